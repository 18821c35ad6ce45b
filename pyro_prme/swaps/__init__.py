"""Other likelihoods and priors for the random function model: each module swaps one part and shows how it is done."""

from pyro_prme.swaps.binary import BernoulliLoadings, BinaryPRME
from pyro_prme.swaps.factors import FactorModel, Rows
from pyro_prme.swaps.fitting import fit, held_out_bound, simulate
from pyro_prme.swaps.gaussian import GaussianFactors, GaussianPRME, GaussianRows
from pyro_prme.swaps.negative_binomial import NegativeBinomialPRME
from pyro_prme.swaps.poisson import GammaFactors, PoissonLoadings, PoissonPRME, PoissonRows, PoissonTopics
from pyro_prme.swaps.priors import (
    CovariatePRME,
    FiniteDirichletPRME,
    HorseshoePRME,
    HyperPriorPRME,
    LogNormalPRME,
    PitmanYorPRME,
)

__all__ = [
    "BernoulliLoadings",
    "BinaryPRME",
    "CovariatePRME",
    "FactorModel",
    "FiniteDirichletPRME",
    "GammaFactors",
    "GaussianFactors",
    "GaussianPRME",
    "GaussianRows",
    "HorseshoePRME",
    "HyperPriorPRME",
    "LogNormalPRME",
    "NegativeBinomialPRME",
    "PitmanYorPRME",
    "PoissonLoadings",
    "PoissonPRME",
    "PoissonRows",
    "PoissonTopics",
    "Rows",
    "fit",
    "held_out_bound",
    "simulate",
]
