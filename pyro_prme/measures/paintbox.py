r"""Feature and partition paintboxes; open this to see how overlapping paint makes correlated binary features.

A feature paintbox paints a subset :math:`S_k` of the unit box for each feature; an object is a uniform point u and has
the features whose paint it hits (paper, section 1, Algorithm 1). Kingman's partition paintbox cuts the unit interval
into blocks, one for each distinct value; for finitely many features either can be turned into the other (Figure 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from pyro_prme.measures._common import Seed, batch_dims, batch_shape, generator, new_axes, positive, whole
from pyro_prme.measures.embedding import Embedding, make_embedding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FeaturePaintbox", "PartitionPaintbox", "random_paintbox"]


@dataclass(frozen=True)
class FeaturePaintbox:
    """Painted subsets of the unit interval or square, on a grid of cells.

    Args:
        edges: For each axis, the rising cell borders from 0 to 1.
        paint: Whether a cell belongs to S_k, (K, cells of the first axis[, cells of the second]).
    """

    edges: tuple[np.ndarray, ...]
    paint: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(np.array(e, dtype=float) for e in self.edges))
        object.__setattr__(self, "paint", np.asarray(self.paint, dtype=bool))
        cells = tuple(len(e) - 1 for e in self.edges)
        if len(self.edges) not in (1, 2) or self.paint.shape[1:] != cells:
            raise ValueError(f"paint has cells {self.paint.shape[1:]}, but the edges of one or two axes give {cells}.")
        if any(e[0] != 0 or not np.isclose(e[-1], 1) or not np.all(np.diff(e) >= 0) for e in self.edges):
            raise ValueError("Edges must rise from 0 to 1 on every axis; rescale the box to the unit box.")
        for e in self.edges:
            e[-1] = 1.0  # a rounded edge would leave a gap

    @property
    def num_features(self) -> int:
        """Number of features K."""
        return self.paint.shape[0]

    def _cell_volumes(self) -> np.ndarray:
        sides = [np.diff(e) for e in self.edges]
        return sides[0] if len(sides) == 1 else np.multiply.outer(sides[0], sides[1])

    def volumes(self) -> xr.DataArray:
        """Volume of each S_k, (feature): the probability of the feature."""
        axes = tuple(range(1, self.paint.ndim))
        return xr.DataArray((self.paint * self._cell_volumes()).sum(axes), dims="feature", name="volume")

    def intersection_volume(self, features: Sequence[int]) -> float:
        r"""The moment :math:`\mathbb{E}[\prod_{k \in J} Z_{nk}] = \mathrm{vol}(\cap_{k \in J} S_k)` (section 1)."""
        if any(not 0 <= k < self.num_features for k in features):
            raise ValueError(f"features must lie in 0..{self.num_features - 1}, but they are {list(features)}.")
        return float((self.paint[list(features)].all(0) * self._cell_volumes()).sum())

    def sample(self, num_objects: int, seed: Seed = None, num_draws: int | None = None) -> Embedding:
        """Objects by Algorithm 1: points ``u`` ([draw,] object, axis) and ``Z`` ([draw,] object, feature) in {0, 1}."""
        rng = generator(seed)
        u = rng.uniform(size=(*batch_shape(num_draws), whole("num_objects", num_objects), len(self.edges)))
        cell = tuple(np.searchsorted(e, u[..., i], side="right") - 1 for i, e in enumerate(self.edges))
        Z = np.moveaxis(self.paint, 0, -1)[cell].astype(np.int8)
        return make_embedding("Feature paintbox", Z, rng, num_draws=num_draws, extra={"u": (("object", "axis"), u)})

    def to_partition(self) -> PartitionPaintbox:
        """The partition paintbox with one block for each distinct value of Z_n, largest first."""
        codes, block = np.unique(self.paint.reshape(self.num_features, -1).T, axis=0, return_inverse=True)
        lengths = np.bincount(block.ravel(), weights=self._cell_volumes().ravel(), minlength=len(codes))
        order = np.argsort(-lengths, kind="stable")
        return PartitionPaintbox(lengths[order], codes[order])

    def plot(self, ax: Axes | None = None, points: np.ndarray | None = None) -> Axes:
        """The K boxes side by side, paint dark; ``points`` (object, axis) are drawn into each, joined by thin lines."""
        ax = new_axes(ax, 1.2 + 1.5 * self.num_features, 2.2)
        gap = 1.15
        for k in range(self.num_features):
            x = self.edges[0] + k * gap
            y = self.edges[1] if len(self.edges) == 2 else np.array([0.0, 1.0])
            box = self.paint[k].reshape(len(x) - 1, len(y) - 1).T
            ax.pcolormesh(x, y, box, cmap="Greys", vmin=0, vmax=1.4)
            ax.plot(k * gap + np.array([0, 1, 1, 0, 0]), [0, 0, 1, 1, 0], color="black", lw=0.8)
            ax.text(k * gap + 0.5, -0.06, f"$S_{{{k + 1}}}$", ha="center", va="top")
        if points is not None:
            start = gap * np.arange(self.num_features)
            for i, u in enumerate(np.atleast_2d(points)):
                y = np.full(self.num_features, u[1] if len(u) == 2 else (i + 1) / (len(points) + 1))
                ax.plot(start + u[0], y, color="#d55e00", lw=1.0, marker="o", ms=5, mec="white", mew=0.8)
        ax.set(
            aspect="equal", title="Feature paintbox", xlim=(-0.03, gap * self.num_features - 0.12), ylim=(-0.2, 1.03)
        )
        ax.axis("off")
        return ax


@dataclass(frozen=True)
class PartitionPaintbox:
    """Kingman's paintbox: blocks of the unit interval; what the lengths leave of it is dust (singletons).

    Args:
        lengths: Block lengths (J,), not negative, summing to at most 1.
        codes: Value of Z in each block (J, K); without it each block is a feature of its own.
    """

    lengths: np.ndarray
    codes: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", np.asarray(self.lengths, dtype=float))
        if self.lengths.ndim != 1 or not np.all(self.lengths >= 0) or self.lengths.sum() > 1 + 1e-9:
            raise ValueError("Block lengths must be at least 0 and sum to at most 1; divide them by their sum.")
        if self.codes is None:
            return
        object.__setattr__(self, "codes", np.asarray(self.codes))
        if self.codes.ndim != 2 or len(self.codes) != len(self.lengths):
            raise ValueError(
                f"There are {len(self.lengths)} blocks and codes of shape {self.codes.shape}; give one code a block."
            )

    @property
    def dust(self) -> float:
        """Length outside all blocks."""
        return max(0.0, 1.0 - float(self.lengths.sum()))

    def sample(self, num_objects: int, seed: Seed = None, num_draws: int | None = None) -> xr.DataArray:
        """Block of each object, ([draw,] object); an object in the dust has a number of its own, from J upward."""
        rng, shape = generator(seed), (*batch_shape(num_draws), whole("num_objects", num_objects))
        dusty = self.dust > 1e-9
        cuts = np.cumsum(self.lengths)[: None if dusty else -1]
        block = np.searchsorted(cuts, rng.uniform(size=shape), side="right")
        block = np.where(block >= len(self.lengths), len(self.lengths) + np.arange(num_objects), block)
        return xr.DataArray(block, dims=(*batch_dims(num_draws), "object"), name="block")

    def to_features(self) -> FeaturePaintbox:
        """The feature paintbox on the unit interval whose S_k are the blocks with code k."""
        if self.dust > 1e-9:
            raise ValueError(
                f"A paintbox with dust {self.dust:.3g} has infinitely many features; give the dust blocks."
            )
        codes = np.eye(len(self.lengths), dtype=bool) if self.codes is None else self.codes.astype(bool)
        edges = np.concatenate([[0.0], np.cumsum(self.lengths)])
        edges[-1] = 1.0
        return FeaturePaintbox((edges,), codes.T)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The unit interval as a bar of blocks, labelled by their codes where there is room; dust is hatched."""
        import matplotlib as mpl

        ax = new_axes(ax, 6.0, 1.3)
        starts = np.concatenate([[0.0], np.cumsum(self.lengths)])
        shades = mpl.colormaps["cividis"](np.linspace(0.25, 1, max(len(self.lengths), 2)))
        ax.barh(0, self.lengths, left=starts[:-1], color=shades[: len(self.lengths)], edgecolor="black", lw=0.6)
        if self.dust > 1e-9:
            ax.barh(0, self.dust, left=starts[-1], color="white", edgecolor="black", hatch="...", lw=0.6)
        for j, length in enumerate(self.lengths):
            text = str(j + 1) if self.codes is None else "".join(str(int(c)) for c in self.codes[j])
            if length > 0.016 * len(text) + 0.01:
                dark = shades[j][:3].mean() < 0.5
                ax.text(
                    starts[j] + length / 2, 0, text, ha="center", va="center", fontsize=8, color="w" if dark else "k"
                )
        ax.set(yticks=[], xlim=(0, 1), xlabel="u", title="Partition paintbox")
        return ax


def random_paintbox(num_features: int, alpha: float = 2.0, seed: Seed = None) -> FeaturePaintbox:
    r"""A random feature paintbox: S_k is a random rectangle in the unit square with the k-th stick as its volume.

    .. math:: \mathrm{vol}(S_k) = \prod_{j \le k} B_j, \quad B_j \sim \mathrm{Beta}(\alpha, 1), \qquad
              \mathbb{E} \sum_k \mathrm{vol}(S_k) = \alpha

    so the volumes are summable, as Algorithm 1 demands; sides and places are random.

    Args:
        num_features: Number of features K, at most 100 (the grid has about 4 K^2 cells).
        alpha: Expected total volume as K grows.
        seed: Seed or numpy generator.
    """
    if whole("num_features", num_features) > 100:
        raise ValueError(
            f"num_features must be at most 100, but it is {num_features}; the grid would not fit in memory."
        )
    rng = generator(seed)
    log_volume = np.log(rng.beta(positive("alpha", alpha), 1, num_features)).cumsum()
    share = rng.uniform(size=num_features)
    sides = np.exp(np.stack([share * log_volume, (1 - share) * log_volume]))  # (2, K)
    low = rng.uniform(size=sides.shape) * (1 - sides)
    edges, inside = [], []
    for axis in range(2):
        cuts = np.unique(np.concatenate([[0.0, 1.0], low[axis], low[axis] + sides[axis]]).clip(0, 1))
        middle = (cuts[1:] + cuts[:-1]) / 2
        edges.append(cuts)
        inside.append((middle > low[axis][:, None]) & (middle < (low[axis] + sides[axis])[:, None]))
    return FeaturePaintbox(tuple(edges), inside[0][:, :, None] & inside[1][:, None, :])
