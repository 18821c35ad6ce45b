"""Closed-form rules, one for each site of the paper's model, behind one protocol."""

from pyro_prme.rules.base import REGISTRY, Rule, Run, register
from pyro_prme.rules.gaussian import GaussianFunction
from pyro_prme.rules.generic import EncodedNormal, MeanFieldNormal
from pyro_prme.rules.loadings import GammaLoadings, Local
from pyro_prme.rules.points import Amortized, FromPrior, Point
from pyro_prme.rules.words import Assignment, DirichletTopics, PointTopics, Words

__all__ = [
    "REGISTRY",
    "Amortized",
    "Assignment",
    "DirichletTopics",
    "EncodedNormal",
    "FromPrior",
    "GammaLoadings",
    "GaussianFunction",
    "Local",
    "MeanFieldNormal",
    "Point",
    "PointTopics",
    "Rule",
    "Run",
    "Words",
    "register",
]
