"""Means, spreads and quantiles of posterior factors; by draws where a factor has none in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["DRAWS", "Drawn", "Moment", "deviation_of", "drawn", "mean_of", "quantiles_of"]

#: Draws over which a moment is taken that has no closed form.
DRAWS = 1000


class Moment(NamedTuple):
    """A number of a factor.

    Args:
        value: of the shape of the site.
        draws: over how many it was taken; 0 for a closed form.
    """

    value: Tensor
    draws: int


class Drawn:
    """Values of a site that other sites decide, one for each run of a model; it answers as a distribution does.

    Args:
        values: along the first dimension.
    """

    def __init__(self, values: Tensor) -> None:
        self._values = values

    @property
    def mean(self) -> Tensor:
        """Over the runs."""
        return self._values.mean(0)

    @property
    def variance(self) -> Tensor:
        """Over the runs."""
        return self._values.var(0)

    def sample(self, shape: tuple[int, ...]) -> Tensor:
        """Some of the values, with replacement."""
        return self._values[torch.randint(len(self._values), shape)]

    def shape(self) -> torch.Size:
        """Of a value."""
        return self._values.shape[1:]

    def icdf(self, level: Tensor) -> Tensor:
        """Left to draws."""
        raise NotImplementedError


def _closed(read: Callable[[], Tensor], otherwise: Callable[[Tensor], Tensor], q: Any) -> Moment:
    try:
        return Moment(read(), 0)
    except NotImplementedError:
        return Moment(otherwise(drawn(q, DRAWS)), DRAWS)


def mean_of(q: Any) -> Moment:
    """E x; q may be a tensor, for a point."""
    if isinstance(q, Tensor):
        return Moment(q, 0)
    return _closed(lambda: q.mean, lambda draws: draws.mean(0), q)


def deviation_of(q: Any) -> Moment:
    """The standard deviation of x, zero for a point."""
    if isinstance(q, Tensor):
        return Moment(torch.zeros_like(q), 0)
    return _closed(lambda: q.variance.sqrt(), lambda draws: draws.std(0), q)


def quantiles_of(q: Any, levels: tuple[float, ...]) -> Moment:
    """Quantiles of x, one after the other along a new first dimension."""
    if isinstance(q, Tensor):
        return Moment(torch.stack([q] * len(levels)), 0)

    def read() -> Tensor:
        base = getattr(q, "base_dist", q)
        at = base.mean
        found = torch.stack([base.icdf(torch.full_like(at, level)) for level in levels])
        if found.shape[1:] != q.shape():
            raise NotImplementedError
        return found

    return _closed(read, lambda draws: torch.quantile(draws, torch.tensor(levels, dtype=draws.dtype), dim=0), q)


def drawn(q: Any, number: int) -> Tensor:
    """Draws of x along a new first dimension."""
    return torch.stack([q] * number) if isinstance(q, Tensor) else q.sample((number,))
