"""Inference: the plan of a model's updates, its guide, the bound, fitting and sampling."""

from pyro_prme.inference.data import Data, Tensors
from pyro_prme.inference.elbo import ClosedForm_ELBO
from pyro_prme.inference.fit import FitOptions, FitResult, fit
from pyro_prme.inference.gibbs import Gibbs
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.plan import Plan

__all__ = [
    "ClosedFormGuide",
    "ClosedForm_ELBO",
    "Data",
    "FitOptions",
    "FitResult",
    "Gibbs",
    "Plan",
    "RunOptions",
    "Tensors",
    "fit",
]
