"""Seeds, input checks and axes shared by the samplers; a user never opens this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyro_prme.checks import refusal, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Seed", "batch_dims", "batch_shape", "first_draw", "generator", "new_axes"]

Seed = int | np.random.Generator | None


def generator(seed: Seed) -> np.random.Generator:
    """The numpy generator of a seed; a generator is used as it is, and moves on."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise refusal("seed", seed, "a whole number of at least 0, a generator or None") from None


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
        raise refusal("draw", draw, f"below the number of draws, {data.sizes['draw']}")
    return data.isel(draw=draw)


def new_axes(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]
