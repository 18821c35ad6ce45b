"""Rules: ways to update the sites of a model, from the most special to the most general."""

from pyro_prme.inference.rules.amortised_normal import AmortisedNormal
from pyro_prme.inference.rules.conjugate import Conjugate
from pyro_prme.inference.rules.first_of import FirstOf
from pyro_prme.inference.rules.from_prior import FromPrior
from pyro_prme.inference.rules.normal_guide import MeanFieldNormal
from pyro_prme.inference.rules.one_by_one import OneByOne
from pyro_prme.inference.rules.only import Only
from pyro_prme.inference.rules.point import Point
from pyro_prme.inference.rules.poisson import PoissonSums
from pyro_prme.inference.rules.topics import GaussianFunction, Topics

__all__ = [
    "AmortisedNormal",
    "Conjugate",
    "FirstOf",
    "FromPrior",
    "GaussianFunction",
    "MeanFieldNormal",
    "OneByOne",
    "Only",
    "Point",
    "PoissonSums",
    "Topics",
]
