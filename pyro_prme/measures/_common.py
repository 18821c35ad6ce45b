"""Seeds, input checks and axes shared by the samplers; a user never opens this."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Seed", "batch_dims", "batch_shape", "below_one", "first_draw", "generator", "new_axes", "positive", "whole"]

Seed = int | np.random.Generator | None


def generator(seed: Seed) -> np.random.Generator:
    """The numpy generator of a seed; a generator is used as it is, and moves on."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ValueError(
            f"seed must be a whole number of at least 0, a generator or None, but it is {seed!r}; pass one of these."
        ) from None


def positive(name: str, value: Any, zero: bool = False) -> float:
    """``value`` as a float, or one sentence why not."""
    kind = "a finite number of at least 0" if zero else "a finite number above 0"
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not np.isfinite(float(value)) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be {kind}, but it is {value!r}; pass such a number.")
    return float(value)


def below_one(name: str, value: Any) -> float:
    """``value`` as a float in [0, 1), or one sentence why not."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < 1:
        raise ValueError(f"{name} must be in [0, 1), but it is {value!r}; pass such a number.")
    return float(value)


def whole(name: str, value: Any, least: int = 1) -> int:
    """``value`` as an int of at least ``least``, or one sentence why not."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, but it is {value!r}; pass such a number.")
    return int(value)


def batch_shape(num_draws: int | None) -> tuple[int, ...]:
    """Leading shape of a sampler's arrays: none for a single draw."""
    return () if num_draws is None else (whole("num_draws", num_draws),)


def batch_dims(num_draws: int | None) -> tuple[str, ...]:
    """Names of the leading dimensions that go with `batch_shape`."""
    return () if num_draws is None else ("draw",)


def first_draw(data: Any, draw: int) -> Any:
    """One draw of an xarray object, which may have no draw dimension."""
    if "draw" not in data.dims:
        return data
    if whole("draw", draw, least=0) >= data.sizes["draw"]:
        raise ValueError(f"draw must be below the number of draws, {data.sizes['draw']}, but it is {draw}.")
    return data.isel(draw=draw)


def new_axes(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]
