"""Factors of probabilities: Beta and Dirichlet."""

from __future__ import annotations

from typing import ClassVar

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families.base import Natural, SimpleFamily, Statistics
from pyro_prme.conjugacy.terms import COMPLEMENT_LOG, LOG

__all__ = ["Beta", "Dirichlet"]


class Beta(SimpleFamily):
    """t(x) = (ln x, ln(1 - x)); natural parameters are the two concentrations, each less one."""

    title = "Beta"
    statistics = ("log", "log_complement")
    positive, complement = True, True
    kinds: ClassVar = {(LOG, 1.0): "log", (COMPLEMENT_LOG, 1.0): "log_complement"}

    def inside(self, value: Tensor) -> Tensor:
        limits = torch.finfo(value.dtype)
        return value.clamp(min=limits.tiny, max=1 - limits.eps)

    @classmethod
    def interior_point(cls, shape: torch.Size, generator: torch.Generator) -> Tensor:
        return 0.1 + 0.8 * torch.rand(shape, generator=generator, dtype=torch.float64)

    @staticmethod
    def parameters(natural: Natural) -> tuple[Tensor, Tensor]:
        """The concentrations of x and of 1 - x."""
        return natural["log"] + 1, natural["log_complement"] + 1

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        return {"log": value.log(), "log_complement": (-value).log1p()}

    def means(self, natural: Natural) -> dict[str, Tensor]:
        a, b = self.parameters(natural)
        both = (a + b).digamma()
        return {"log": a.digamma() - both, "log_complement": b.digamma() - both}

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        a, b = self.parameters(natural)
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return log_beta - (a - 1) * a.digamma() - (b - 1) * b.digamma() + (a + b - 2) * (a + b).digamma()

    def start(self, value: Tensor, count: float = 2.0) -> dict[str, Tensor]:
        return {"log": count * value - 0.5, "log_complement": count * (1 - value) - 0.5}

    def distribution(self, natural: Natural) -> Distribution:
        event = len(self.shape) - len(self.batch_shape)
        return dist.Beta(*self.parameters(natural)).to_event(event)

    def holds(self, natural: Natural) -> bool:
        a, b = self.parameters(natural)
        return bool((torch.isfinite(a) & torch.isfinite(b) & (a > 0) & (b > 0)).all())


class Dirichlet(SimpleFamily):
    """t(x) = ln x over the last dimension; natural parameters are the concentrations less one."""

    title = "Dirichlet"
    statistics = ("log",)
    positive, simplex = True, True
    kinds: ClassVar = {(LOG, 1.0): "log"}

    def inside(self, value: Tensor) -> Tensor:
        return value.clamp(min=torch.finfo(value.dtype).tiny)

    @classmethod
    def interior_point(cls, shape: torch.Size, generator: torch.Generator) -> Tensor:
        weights = 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
        return weights / weights.sum(-1, keepdim=True)

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        return {"log": value.log()}

    def means(self, natural: Natural) -> dict[str, Tensor]:
        a = natural["log"] + 1
        return {"log": a.digamma() - a.sum(-1, keepdim=True).digamma()}

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        a = natural["log"] + 1
        total = a.sum(-1, keepdim=True)
        log_beta = a.lgamma().sum(-1, keepdim=True) - total.lgamma()
        each = ((a - 1) * a.digamma()).sum(-1, keepdim=True)
        return log_beta + (total - a.shape[-1]) * total.digamma() - each

    def start(self, value: Tensor, count: float = 1.0) -> dict[str, Tensor]:
        return {"log": count * value * value.shape[-1] - 0.9}

    def distribution(self, natural: Natural) -> Distribution:
        event = len(self.shape) - len(self.batch_shape) - 1
        return dist.Dirichlet(natural["log"] + 1).to_event(event)

    def holds(self, natural: Natural) -> bool:
        return bool((torch.isfinite(natural["log"]) & (natural["log"] > -1)).all())
