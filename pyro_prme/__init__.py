"""Population random measure embeddings (PRME) in Pyro: Bayesian nonparametric models with learned correlations.

The names are listed in ``__init__.pyi``. Each is imported when it is first asked for, so that a script which reads a
corpus does not wait for torch.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
