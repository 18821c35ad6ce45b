"""Priors of a model's own numbers, such as alpha: what may be given, and what stands for the number outside of runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.distributions import Distribution

__all__ = ["checked_prior", "middle_of"]


def checked_prior(name: str, prior: Distribution, check: Callable[[str, Any], Any]) -> Distribution:
    """The prior of a number, if its draws may stand for the number.

    Args:
        name: of the number.
        prior: its distribution.
        check: of a value, which raises.
    """
    shape = tuple(prior.batch_shape + prior.event_shape)
    if shape:
        raise ValueError(f"The prior of {name} has shape {shape}: it must be of one number.")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for value in prior.sample(torch.Size([100])):
                check(name, value)
    except ValueError as reason:
        raise ValueError(
            f"The prior of {name} is {type(prior).__name__}, whose draws may not stand for it: {reason}"
        ) from None
    return prior


def middle_of(prior: Distribution) -> float:
    """The prior's mean, else its median, else 1."""
    for middle in (lambda: prior.mean, lambda: prior.icdf(torch.tensor(0.5))):
        with suppress(NotImplementedError):
            found = float(middle())
            if math.isfinite(found):
                return found
    return 1.0
