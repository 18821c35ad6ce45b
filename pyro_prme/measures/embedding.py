r"""The random measure of a population, :math:`\xi = \sum_{nk} Z_{nk} \delta_{\tau_n, \sigma_k}` (paper, section 3.1).

Every sampler of loadings returns one; open this to see what can be asked of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from pyro_prme.checks import positive
from pyro_prme.measures._common import batch_dims, first_draw, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Embedding", "Extra", "Interval", "make_embedding"]

#: Both ends of an interval.
Interval = tuple[float, float]
#: Further arrays by name, each with the names of its dimensions.
Extra = Mapping[str, tuple[tuple[str, ...], np.ndarray]]


@dataclass(frozen=True)
class Embedding:
    """Loadings and their places, in ``data``.

    ``Z`` ([draw,] object, feature) at ``tau`` ([draw,] object) and ``sigma`` ([draw,] feature). ``data`` also
    holds what else the construction drew (weights, embeddings h, positions ell, ...).
    """

    data: xr.Dataset
    name: str

    @property
    def Z(self) -> xr.DataArray:
        """Loadings, ([draw,] object, feature)."""
        return self.data["Z"]

    @property
    def tau(self) -> xr.DataArray:
        """Object labels in [0, 1], ([draw,] object)."""
        return self.data["tau"]

    @property
    def sigma(self) -> xr.DataArray:
        """Feature labels in [0, width], ([draw,] feature)."""
        return self.data["sigma"]

    def row_sums(self) -> xr.DataArray:
        """Total loading of each object, ([draw,] object)."""
        return self.Z.sum("feature")

    def proportions(self) -> xr.DataArray:
        """Loadings normalised over features, ([draw,] object, feature); nan for an object without any."""
        return self.Z / self.row_sums().where(self.row_sums() > 0)

    def features_used(self) -> xr.DataArray:
        """Number of features that the first n objects use, ([draw,] object)."""
        seen = (self.Z > 0).transpose(..., "object", "feature").values
        used = np.logical_or.accumulate(seen, axis=-2).sum(-1)
        return xr.DataArray(used, dims=self.tau.dims, name="features used")

    def rectangle_masses(self, tau_edges: Sequence[float], sigma_edges: Sequence[float]) -> xr.DataArray:
        """Mass of each rectangle of the grid that two lists of edges cut out, ([draw,] row, column)."""
        rows, columns = _cells(self.tau.values, tau_edges), _cells(self.sigma.values, sigma_edges)
        Z = self.Z.transpose(..., "object", "feature").values
        masses = np.swapaxes(rows, -1, -2) @ Z @ columns
        return xr.DataArray(masses, dims=(*self.tau.dims[:-1], "row", "column"), name="mass")

    def measure_of(self, A: Sequence[Interval], B: Sequence[Interval]) -> xr.DataArray:
        """The mass of A x B, ([draw]), where A and B are unions of disjoint half-open intervals."""
        in_A, in_B = _inside(self.tau.values, A), _inside(self.sigma.values, B)
        Z = self.Z.transpose(..., "object", "feature").values
        mass = np.einsum("...n,...nk,...k->...", in_A, Z, in_B)
        return xr.DataArray(mass, dims=self.tau.dims[:-1], name="mass")

    def plot(self, ax: Axes | None = None, draw: int = 0) -> Axes:
        """One draw on the strip, as the paper's Figure 2: a disc at (sigma_k, tau_n) with area and colour by Z_nk."""
        ax = new_axes(ax, 6.0)
        data = first_draw(self.data, draw)
        n, k = np.nonzero(data["Z"].transpose("object", "feature").values)
        Z = data["Z"].transpose("object", "feature").values[n, k]
        tau, sigma, width = data["tau"].values, data["sigma"].values, float(self.data.attrs["width"])
        if tau.size <= 60:
            ax.hlines(tau, 0, width, color="0.85", lw=0.6, ls="--", zorder=0)
        used = np.unique(k)
        if used.size <= 60:
            ax.vlines(sigma[used], 0, 1, color="0.85", lw=0.6, ls="--", zorder=0)
        if Z.size:
            binary = np.all(Z == 1)
            size = 16 if binary else 1 + 90 * Z / Z.max()
            shade = np.zeros(Z.size) if binary else Z
            dots = ax.scatter(sigma[k], tau[n], s=size, c=shade, cmap="viridis", vmin=0, edgecolors="black", lw=0.3)
            if not binary:
                ax.figure.colorbar(dots, ax=ax, label=r"$Z_{nk}$")
        ax.set(xlabel=r"feature $\sigma_k$", ylabel=r"object $\tau_n$", xlim=(0, width), ylim=(0, 1), title=self.name)
        return ax


def make_embedding(
    name: str,
    Z: np.ndarray,
    rng: np.random.Generator,
    width: float = 1.0,
    num_draws: int | None = None,
    extra: Extra | None = None,
) -> Embedding:
    """Label loadings and draw what the embedding adds: uniform tau on [0, 1] and sigma on [0, width].

    Args:
        name: Name of the construction.
        Z: Loadings ([draw,] object, feature).
        rng: Generator.
        width: Width of the window of feature labels.
        num_draws: As given to the sampler: None where Z has no draw dimension.
        extra: Further variables as (dims without "draw", values).
    """
    width = positive("width", width)
    variables: Extra = {
        "Z": (("object", "feature"), Z),
        "tau": (("object",), rng.uniform(size=Z.shape[:-1])),
        "sigma": (("feature",), rng.uniform(0, width, (*Z.shape[:-2], Z.shape[-1]))),
        **(extra or {}),
    }
    batch = batch_dims(num_draws)
    data = {key: ((*batch, *dims), values) for key, (dims, values) in variables.items()}
    return Embedding(xr.Dataset(data, attrs={"width": width}), name)


def _cells(x: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """One-hot membership of points in the half-open cells between edges, (..., point, cell)."""
    cuts = np.asarray(edges, dtype=float)
    if cuts.ndim != 1 or cuts.size < 2 or np.any(np.diff(cuts) <= 0):
        raise ValueError(
            f"Edges must rise and be at least two, but they are {edges!r}; pass the cell borders in order."
        )
    return ((x[..., None] >= cuts[:-1]) & (x[..., None] < cuts[1:])).astype(float)


def _inside(x: np.ndarray, intervals: Sequence[Interval]) -> np.ndarray:
    """Membership of points in a union of disjoint half-open intervals, (..., point)."""
    ends = np.asarray(intervals, dtype=float).ravel() if np.ndim(intervals) == 2 else np.empty(0)
    ordered = sorted(intervals) if ends.size == 2 * len(intervals) else [(1.0, 0.0)]
    bad = not all(low <= high for low, high in ordered)
    if bad or any(first[1] > second[0] for first, second in pairwise(ordered)):
        raise ValueError(
            f"Intervals must be disjoint pairs (low, high), but they are {intervals!r}; split the overlaps."
        )
    return sum(((x >= low) & (x < high)).astype(float) for low, high in ordered) + np.zeros(x.shape)
