"""The random measures of the paper as small samplers with known laws; open this to teach, to plot, or to simulate.

Plain samplers take a seed or a numpy generator and return labelled objects that plot themselves; most take
``num_draws`` for a batch. The functions named ``pyro_...`` are Pyro programs, to be called inside a model. `catalogue`
says which construction is which and where it stands in the paper.
"""

from pyro_prme.measures.buffet import buffet_restaurant, buffet_strip, expected_new_dishes
from pyro_prme.measures.catalogue import catalogue
from pyro_prme.measures.correlated import correlated_measure, squared_exponential
from pyro_prme.measures.crm import RandomMeasure, completely_random_measure, stick_breaking
from pyro_prme.measures.decoder import Decoder, RandomDecoder, linear_decoder, random_decoder, zero_decoder
from pyro_prme.measures.drift import DriftingEmbedding, drifting_prme, stationary_path
from pyro_prme.measures.embedding import Embedding
from pyro_prme.measures.exchangeable import (
    ExchangeabilityTest,
    KallenbergMeasure,
    exchangeability_test,
    graphon,
    kallenberg_measure,
)
from pyro_prme.measures.experiments import Growth, edge_growth, empty_matrix_experiment
from pyro_prme.measures.hierarchical import diln, hierarchical_dirichlet_process, hierarchical_gamma_process, prme
from pyro_prme.measures.levy import BetaLevy, GammaLevy, GeneralizedGammaLevy, Levy, StableBetaLevy
from pyro_prme.measures.paintbox import FeaturePaintbox, PartitionPaintbox, random_paintbox
from pyro_prme.measures.poisson import Points, poisson_strip, poisson_window
from pyro_prme.measures.programs import (
    inverse_tail,
    pyro_gamma_process,
    pyro_indian_buffet,
    pyro_prme_loadings,
    pyro_random_measure,
    pyro_sticks,
)

__all__ = [
    "BetaLevy",
    "Decoder",
    "DriftingEmbedding",
    "Embedding",
    "ExchangeabilityTest",
    "FeaturePaintbox",
    "GammaLevy",
    "GeneralizedGammaLevy",
    "Growth",
    "KallenbergMeasure",
    "Levy",
    "PartitionPaintbox",
    "Points",
    "RandomDecoder",
    "RandomMeasure",
    "StableBetaLevy",
    "buffet_restaurant",
    "buffet_strip",
    "catalogue",
    "completely_random_measure",
    "correlated_measure",
    "diln",
    "drifting_prme",
    "edge_growth",
    "empty_matrix_experiment",
    "exchangeability_test",
    "expected_new_dishes",
    "graphon",
    "hierarchical_dirichlet_process",
    "hierarchical_gamma_process",
    "inverse_tail",
    "kallenberg_measure",
    "linear_decoder",
    "poisson_strip",
    "poisson_window",
    "prme",
    "pyro_gamma_process",
    "pyro_indian_buffet",
    "pyro_prme_loadings",
    "pyro_random_measure",
    "pyro_sticks",
    "random_decoder",
    "random_paintbox",
    "squared_exponential",
    "stationary_path",
    "stick_breaking",
    "zero_decoder",
]
