"""Factors of positive variables: Gamma and inverse Gamma."""

from __future__ import annotations

from typing import ClassVar

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families.base import Natural, SimpleFamily, Statistics
from pyro_prme.conjugacy.terms import LOG, POWER

__all__ = ["Gamma", "InverseGamma"]


class Gamma(SimpleFamily):
    """t(x) = (ln x, x); natural parameters are the concentration less one and minus the rate."""

    title = "Gamma"
    statistics = ("log", "x")
    positive = True
    kinds: ClassVar = {(LOG, 1.0): "log", (POWER, 1.0): "x"}

    def inside(self, value: Tensor) -> Tensor:
        return value.clamp(min=torch.finfo(value.dtype).tiny)

    @classmethod
    def interior_point(cls, shape: torch.Size, generator: torch.Generator) -> Tensor:
        return (0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)).exp()

    @staticmethod
    def parameters(natural: Natural) -> tuple[Tensor, Tensor]:
        """Concentration and rate."""
        return natural["log"] + 1, -natural["x"]

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        return {"log": value.log(), "x": value}

    def means(self, natural: Natural) -> dict[str, Tensor]:
        concentration, rate = self.parameters(natural)
        return {"log": concentration.digamma() - rate.log(), "x": concentration / rate}

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        a, rate = self.parameters(natural)
        return a - rate.log() + a.lgamma() + (1 - a) * a.digamma()

    def start(self, value: Tensor, count: float = 1.0) -> dict[str, Tensor]:
        return {"log": torch.full_like(value, count - 1), "x": -count / value}

    def distribution(self, natural: Natural) -> Distribution:
        event = len(self.shape) - len(self.batch_shape)
        return dist.Gamma(*self.parameters(natural)).to_event(event)

    def holds(self, natural: Natural) -> bool:
        concentration, rate = self.parameters(natural)
        finite = torch.isfinite(concentration) & torch.isfinite(rate)
        return bool((finite & (concentration > 0) & (rate > 0)).all())


class InverseGamma(SimpleFamily):
    """t(x) = (ln x, 1 / x); natural parameters are minus the concentration less one, and minus the scale."""

    title = "InverseGamma"
    statistics = ("log", "inverse")
    positive = True
    kinds: ClassVar = {(LOG, 1.0): "log", (POWER, -1.0): "inverse"}

    def inside(self, value: Tensor) -> Tensor:
        limits = torch.finfo(value.dtype)
        return value.clamp(min=limits.tiny, max=limits.max)

    @classmethod
    def interior_point(cls, shape: torch.Size, generator: torch.Generator) -> Tensor:
        return Gamma.interior_point(shape, generator)

    @staticmethod
    def parameters(natural: Natural) -> tuple[Tensor, Tensor]:
        """Concentration and scale."""
        return -natural["log"] - 1, -natural["inverse"]

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        return {"log": value.log(), "inverse": 1 / value}

    def means(self, natural: Natural) -> dict[str, Tensor]:
        concentration, scale = self.parameters(natural)
        return {"log": scale.log() - concentration.digamma(), "inverse": concentration / scale}

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        a, scale = self.parameters(natural)
        return a + scale.log() + a.lgamma() - (1 + a) * a.digamma()

    def start(self, value: Tensor, count: float = 2.0) -> dict[str, Tensor]:
        return {"log": torch.full_like(value, -count - 1), "inverse": -count * value}

    def distribution(self, natural: Natural) -> Distribution:
        event = len(self.shape) - len(self.batch_shape)
        return dist.InverseGamma(*self.parameters(natural)).to_event(event)

    def holds(self, natural: Natural) -> bool:
        concentration, scale = self.parameters(natural)
        finite = torch.isfinite(concentration) & torch.isfinite(scale)
        return bool((finite & (concentration > 0) & (scale > 0)).all())
