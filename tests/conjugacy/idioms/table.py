"""The table of idioms: a model without arguments, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "IDIOMS",
    "NO_FAMILY",
    "NO_FUNCTION",
    "TWO_MEMBERS",
    "WRITTEN_INTO",
    "Idiom",
    "counts",
    "features",
    "idiom",
    "labels",
    "numbers",
]

# Reasons that occur often.
NO_FAMILY = "its prior is {}, which is not among the exponential families known here"
TWO_MEMBERS = "it enters a product of two of its members, or of two functions of it"
NO_FUNCTION = (
    "The density of {} differs between two runs with the same values: the model must be a function of its sites. "
    "Make modules and other constants outside of it."
)
WRITTEN_INTO = (
    "The model writes into the value of site {} in place: it needs a new tensor, as in x = x + 1 in place of x += 1."
)


class Idiom(NamedTuple):
    """A model and its expected outcome.

    Args:
        model: the model.
        refused: latent sites that have no closed form, with the exact reason; all others have one.
        bounded: whether the expected log joint holds the logarithm of a sum.
        single: whether some of it is in single precision.
        error: the one sentence with which the whole model is turned down.
    """

    model: Callable
    refused: Mapping[str, str]
    bounded: bool
    single: bool
    error: str


IDIOMS: dict[str, Idiom] = {}


def idiom(
    refused: Mapping[str, str] | None = None, *, bounded: bool = False, single: bool = False, error: str = ""
) -> Callable[[Callable], Callable]:
    """Adds a model to the table."""

    def add(model: Callable) -> Callable:
        if model.__name__ in IDIOMS:
            raise ValueError(f"There are two idioms with the name {model.__name__}.")
        IDIOMS[model.__name__] = Idiom(model, refused or {}, bounded, single, error)
        return model

    return add


def _draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(size: int = 6, seed: int = 0) -> Tensor:
    """Real data."""
    return torch.randn(size, generator=_draw(seed), dtype=torch.float64)


def features(rows: int = 6, columns: int = 3) -> Tensor:
    """A matrix of real data."""
    return torch.randn(rows, columns, generator=_draw(1), dtype=torch.float64)


def counts(size: int = 6) -> Tensor:
    """Whole numbers from zero on, as floats."""
    return torch.poisson(torch.full((size,), 2.5, dtype=torch.float64), generator=_draw(2))


def labels(size: int = 6, values: int = 3) -> Tensor:
    """Classes."""
    return torch.randint(0, values, (size,), generator=_draw(3))
