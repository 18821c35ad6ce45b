"""Other likelihoods and priors for the random function model: each module swaps one part and shows how it is done."""

from pyro_prme.conjugacy.families.half_normal import ModifiedHalfNormal
from pyro_prme.swaps.binary import BernoulliLoadings, BinaryPRME
from pyro_prme.swaps.conjugate import ConjugateRule
from pyro_prme.swaps.factors import FactorModel, Rows
from pyro_prme.swaps.fitting import (
    completion_score,
    fit,
    fit_best,
    held_out_bound,
    held_out_density,
    posterior_means,
)
from pyro_prme.swaps.gaussian import GammaPrecision, GaussianFactors, GaussianPRME, GaussianRows
from pyro_prme.swaps.gaussian_loadings import GaussianLoadings
from pyro_prme.swaps.gaussian_process import GaussianProcessPRME, KernelFunction
from pyro_prme.swaps.hyper_priors import HyperPriorPRME, HyperPriors, LearnedPitmanYorPRME, LearnedPitmanYorSticks
from pyro_prme.swaps.negative_binomial import NegativeBinomialPRME
from pyro_prme.swaps.poisson import GammaFactors, PoissonLoadings, PoissonPRME, PoissonRows, PoissonTopics
from pyro_prme.swaps.priors import (
    CovariatePRME,
    FiniteDirichletPRME,
    FiniteDirichletSticks,
    HorseshoePRME,
    LogNormalPRME,
    PitmanYorPRME,
    PitmanYorSticks,
)
from pyro_prme.swaps.simulation import simulate, simulate_corpus

__all__ = [
    "BernoulliLoadings",
    "BinaryPRME",
    "ConjugateRule",
    "CovariatePRME",
    "FactorModel",
    "FiniteDirichletPRME",
    "FiniteDirichletSticks",
    "GammaFactors",
    "GammaPrecision",
    "GaussianFactors",
    "GaussianLoadings",
    "GaussianPRME",
    "GaussianProcessPRME",
    "GaussianRows",
    "HorseshoePRME",
    "HyperPriorPRME",
    "HyperPriors",
    "KernelFunction",
    "LearnedPitmanYorPRME",
    "LearnedPitmanYorSticks",
    "LogNormalPRME",
    "ModifiedHalfNormal",
    "NegativeBinomialPRME",
    "PitmanYorPRME",
    "PitmanYorSticks",
    "PoissonLoadings",
    "PoissonPRME",
    "PoissonRows",
    "PoissonTopics",
    "Rows",
    "completion_score",
    "fit",
    "fit_best",
    "held_out_bound",
    "held_out_density",
    "posterior_means",
    "simulate",
    "simulate_corpus",
]
