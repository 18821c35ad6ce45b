r"""Unit-rate Poisson processes; open this for the points :math:`(\vartheta_k, \sigma_k)` behind every construction.

The label :math:`\sigma` lies in ``[0, width]`` and :math:`\vartheta` in the positive half line: the strip is width 1,
a window of the quadrant is any width with a finite height (paper, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from pyro_prme.checks import positive, whole
from pyro_prme.measures._common import Seed, batch_dims, batch_shape, first_draw, generator, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_POINTS", "Points", "poisson_strip", "poisson_window"]

#: How many points `poisson_window` may expect.
MOST_POINTS = 1e8


@dataclass(frozen=True)
class Points:
    """Points of a Poisson process, by rising vartheta; ``data`` holds ``vartheta`` and ``sigma`` ([draw,] point).

    Where draws have fewer points than others, the rest is vartheta = infinity and sigma = nan.
    """

    data: xr.Dataset

    @property
    def vartheta(self) -> xr.DataArray:
        """Positions on the half line, ([draw,] point)."""
        return self.data["vartheta"]

    @property
    def sigma(self) -> xr.DataArray:
        """Labels in ``[0, width]``, ([draw,] point)."""
        return self.data["sigma"]

    def counts(self) -> xr.DataArray:
        """Number of points, ([draw])."""
        return (self.vartheta < np.inf).sum("point")

    def plot(self, ax: Axes | None = None, draw: int = 0) -> Axes:
        """The points of one draw as a scatter; returns the axes."""
        ax = new_axes(ax)
        data = first_draw(self.data, draw)
        ax.scatter(data["sigma"], data["vartheta"], s=14, color="#0072b2", edgecolors="black", lw=0.3)
        ax.set(xlabel=r"label $\sigma$", ylabel=r"$\vartheta$", xlim=(0, self.data.attrs["width"]), ylim=(0, None))
        return ax


def poisson_strip(num_points: int, width: float = 1.0, seed: Seed = None, num_draws: int | None = None) -> Points:
    r"""The first points, by rising vartheta, of a unit-rate process on ``[0, width]`` times the half line.

    .. math:: \vartheta_k = \frac{1}{S} \sum_{j \le k} E_j, \quad E_j \sim \mathrm{Exp}(1), \quad \sigma_k \sim U(0, S)

    Args:
        num_points: Number of points K.
        width: Width S of the strip.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.

    Returns:
        Points with vartheta and sigma of shape ([draw,] K).
    """
    rng, shape = generator(seed), (*batch_shape(num_draws), whole("num_points", num_points))
    width = positive("width", width)
    vartheta = rng.standard_exponential(shape).cumsum(-1) / width
    return _points(vartheta, rng.uniform(0, width, shape), num_draws, width)


def poisson_window(width: float, height: float, seed: Seed = None, num_draws: int | None = None) -> Points:
    r"""All points of a unit-rate process in the window ``[0, width] x [0, height]``.

    .. math:: K \sim \mathrm{Poisson}(S H), \qquad \sigma_k \sim U(0, S), \quad \vartheta_k \sim U(0, H)

    Args:
        width: Width S, of the labels.
        height: Height H, of vartheta.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.

    Returns:
        Points with vartheta and sigma of shape ([draw,] K), K the largest count over the draws.
    """
    rng, width, height = generator(seed), positive("width", width), positive("height", height)
    if width * height > MOST_POINTS:
        raise ValueError(
            f"The window expects {width * height:g} points, more than {MOST_POINTS:g}; choose a smaller one."
        )
    counts = np.asarray(rng.poisson(width * height, batch_shape(num_draws)))
    shape = (*counts.shape, int(counts.max()))
    present = np.arange(shape[-1]) < counts[..., None]
    vartheta = np.sort(np.where(present, rng.uniform(0, height, shape), np.inf), axis=-1)
    return _points(vartheta, np.where(present, rng.uniform(0, width, shape), np.nan), num_draws, width)


def _points(vartheta: np.ndarray, sigma: np.ndarray, num_draws: int | None, width: float) -> Points:
    dims = (*batch_dims(num_draws), "point")
    return Points(xr.Dataset({"vartheta": (dims, vartheta), "sigma": (dims, sigma)}, attrs={"width": width}))
