"""Population random measure embeddings (PRME) in Pyro: Bayesian nonparametric models with learned correlations."""

__version__ = "0.1.0"
