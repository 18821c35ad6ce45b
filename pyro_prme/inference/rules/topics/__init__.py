"""Fused updates for words that are drawn from topics, claimed by the form of the expected densities."""

from pyro_prme.inference.rules.topics.gaussian_function import GaussianFunction
from pyro_prme.inference.rules.topics.own_counts import OwnCountsOut
from pyro_prme.inference.rules.topics.rule import Topics
from pyro_prme.inference.rules.topics.sampling import Sampling

__all__ = ["GaussianFunction", "OwnCountsOut", "Sampling", "Topics"]
