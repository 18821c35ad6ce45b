"""Pictures of fitted models and of random measures, in matplotlib; each function returns its axes.

All are readable in print and for the colour-blind. They take a `Posterior` and the `Corpus` whose words and names label
the picture; axes belong to the caller, who saves or closes the figure.
"""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ImportError("Pictures need matplotlib: install it with pip install 'pyro-prme[plots]'.")

from pyro_prme.plots.documents import plot_embeddings, plot_predictive_check
from pyro_prme.plots.factors import plot_factors
from pyro_prme.plots.history import plot_history
from pyro_prme.plots.paintboxes import plot_paintboxes
from pyro_prme.plots.teaching import plot_feature_paintbox, plot_model, plot_strip
from pyro_prme.plots.topics import plot_correlation_graph, plot_correlations, plot_usage

__all__ = [
    "plot_correlation_graph",
    "plot_correlations",
    "plot_embeddings",
    "plot_factors",
    "plot_feature_paintbox",
    "plot_history",
    "plot_model",
    "plot_paintboxes",
    "plot_predictive_check",
    "plot_strip",
    "plot_usage",
]
