r"""The paper's claims about growth, as experiments; open this to see why Z is a random measure and not a random matrix.

`empty_matrix_experiment` shows row sums against the number of features (paper, section 2), `edge_growth` the edges of
the hidden graph against the number of objects (section 6.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from pyro_prme.checks import whole
from pyro_prme.measures._common import Seed, batch_dims, first_draw, generator, new_axes
from pyro_prme.measures.buffet import buffet_restaurant
from pyro_prme.measures.decoder import Decoder
from pyro_prme.measures.exchangeable import graphon
from pyro_prme.measures.hierarchical import prme
from pyro_prme.measures.levy import GeneralizedGammaLevy, Levy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Growth", "edge_growth", "empty_matrix_experiment"]

STYLES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Growth:
    """A quantity against a size for several constructions: ``data`` ([draw,] construction, size)."""

    data: xr.DataArray
    size: str

    def exponents(self) -> xr.DataArray:
        """Slope of ln(quantity) against ln(size) over the upper half of the sizes, two or more; nan for zeros.

        Returns:
            Slopes ([draw,] construction).
        """
        num = self.data.sizes["size"]
        upper = self.data.transpose(..., "construction", "size").isel(size=slice(min(num // 2, num - 2), None))
        with np.errstate(divide="ignore", invalid="ignore"):
            x, y = np.log(upper["size"].values), np.log(upper.values)
            slopes = ((x - x.mean()) * (y - y.mean(-1, keepdims=True))).sum(-1) / ((x - x.mean()) ** 2).sum()
        coords = {"construction": self.data["construction"].values}
        return xr.DataArray(slopes, coords, upper.dims[:-1], name="exponent")

    def plot(self, ax: Axes | None = None, draw: int = 0) -> Axes:
        """Log-log curves, one a construction; a construction that is zero throughout stands in the legend only."""
        import matplotlib as mpl

        ax = new_axes(ax, 5.5, 3.6)
        data = first_draw(self.data, draw)
        names = data["construction"].values
        colours = mpl.colormaps["viridis"](np.linspace(0, 0.8, len(names)))
        for i, name in enumerate(names):
            y = data.sel(construction=name)
            label = str(name) if (y > 0).any() else f"{name}: 0"
            ax.plot(y["size"], y.where(y > 0), STYLES[i % 4], color=colours[i], marker="o", ms=3, label=label)
        ax.set(xscale="log", yscale="log", xlabel=self.size, ylabel=str(self.data.name))
        ax.legend(fontsize=8)
        return ax


def empty_matrix_experiment(
    num_features: Sequence[int] = (10, 100, 1_000, 10_000, 100_000),
    num_objects: int = 20,
    graphon_means: Sequence[float] = (0.5, 0.01, 0.0),
    base: Levy | None = None,
    decoder: Decoder | None = None,
    seed: Seed = None,
    num_draws: int | None = None,
) -> Growth:
    r"""Mean row sums as columns are added: a PRME with a truncation layer against graphons.

    A graphon with :math:`\int W = w` has row sums near w K, so that they stay finite only if Z = 0; a PRME's settle at
    a finite value (paper, section 2, proposition on empty matrices).

    Args:
        num_features: Numbers of columns K, rising.
        num_objects: Number of rows N.
        graphon_means: For each graphon :math:`W(u, v) = 4 w u v` (w at most 1/4) or w (above), the mean w.
        base: Levy measure of the PRME; default a generalised gamma process with discount 1/2 (slow decay).
        decoder: Random function of the PRME; default bounded.
        seed: Seed or numpy generator.
        num_draws: Number of runs, with one decoder for all, as in `prme`; None gives one without a draw dimension.

    Returns:
        Mean row sum ([draw,] construction, size).
    """
    rng, sizes = generator(seed), _sizes("num_features", num_features)
    base = base or GeneralizedGammaLevy(1.0, discount=0.5)
    rows = {"PRME": prme(num_objects, sizes[-1], beta=1.0, base=base, decoder=decoder, seed=rng, num_draws=num_draws).Z}
    for mean in graphon_means:

        def W(u: np.ndarray, v: np.ndarray, mean: float = mean) -> np.ndarray:
            return 4 * mean * u * v if mean <= 0.25 else np.full(np.broadcast_shapes(u.shape, v.shape), mean)

        rows[f"graphon, mean {mean:g}"] = graphon(num_objects, sizes[-1], W, seed=rng, num_draws=num_draws).Z
    at = np.array(sizes) - 1
    sums = {name: Z.mean("object").cumsum("feature").values[..., at] for name, Z in rows.items()}
    return Growth(_labelled("mean row sum", sums, sizes, num_draws), "features K")


def edge_growth(
    num_objects: Sequence[int] = (10, 30, 100, 300, 1_000),
    num_atoms: int = 200,
    seed: Seed = None,
    num_draws: int | None = None,
) -> Growth:
    r"""Total strength of the edges between objects and features as objects are added.

    .. math:: |E| = \sum_{n \le N, k} Z_{nk}

    grows as N for a PRME and for the Indian buffet, and as N^2 for a graphon with N features (paper, section 6.1).

    Args:
        num_objects: Numbers of objects N, rising.
        num_atoms: Truncation of the PRME.
        seed: Seed or numpy generator.
        num_draws: Number of runs, with one decoder for all, as in `prme`; None gives one without a draw dimension.

    Returns:
        Total strength ([draw,] construction, size).
    """
    rng, sizes = generator(seed), _sizes("num_objects", num_objects)
    top, at = sizes[-1], np.array(sizes) - 1
    edges = graphon(top, top, lambda u, v: u * v, seed=rng, num_draws=num_draws).Z.values
    rows = {
        "PRME": prme(top, num_atoms, seed=rng, num_draws=num_draws).row_sums(),
        "Indian buffet": buffet_restaurant(top, 5.0, seed=rng, num_draws=num_draws).row_sums(),
    }
    totals = {name: sums.values.cumsum(-1)[..., at] for name, sums in rows.items()}
    totals["graphon, K = N"] = edges.cumsum(-2, dtype=np.int64).cumsum(-1)[..., at, at]
    return Growth(_labelled("total edge strength", totals, sizes, num_draws), "objects N")


def _labelled(name: str, values: dict[str, np.ndarray], sizes: list[int], num_draws: int | None) -> xr.DataArray:
    """Values ([draw,] size) by construction as one array, ([draw,] construction, size)."""
    dims = (*batch_dims(num_draws), "construction", "size")
    return xr.DataArray(np.stack(list(values.values()), -2), {"construction": list(values), "size": sizes}, dims, name)


def _sizes(name: str, sizes: Sequence[int]) -> list[int]:
    out = [whole(name, size) for size in sizes]
    if len(out) < 2 or any(b <= a for a, b in pairwise(out)):
        raise ValueError(f"{name} must hold at least two rising sizes, but it is {sizes!r}; sort them.")
    return out
