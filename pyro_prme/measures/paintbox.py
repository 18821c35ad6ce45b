r"""Feature and partition paintboxes; open this to see how overlapping paint makes correlated binary features.

A feature paintbox paints a subset :math:`S_k` of the unit box for each feature; an object is a uniform point u and has
the features whose paint it hits (paper, section 1, Algorithm 1). Kingman's partition paintbox cuts the unit interval
into blocks, one for each distinct value; for finitely many features either can be turned into the other (Figure 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pyro_prme.checks import positive, whole
from pyro_prme.measures._common import Seed, batch_dims, batch_shape, generator, new_axes
from pyro_prme.measures.embedding import Embedding, make_embedding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FeaturePaintbox", "PartitionPaintbox", "random_paintbox"]


@dataclass(frozen=True)
class FeaturePaintbox:
    """Painted subsets of the unit interval or square, on a grid of cells; or several of them, one a draw.

    Args:
        edges: For each axis, the rising cell borders from 0 to 1, ([draw,] cells + 1).
        paint: Whether a cell belongs to S_k, ([draw,] K, cells of the first axis[, cells of the second]).
    """

    edges: tuple[np.ndarray, ...]
    paint: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(np.array(e, dtype=float) for e in self.edges))
        object.__setattr__(self, "paint", np.asarray(self.paint, dtype=bool))
        cells = tuple(e.shape[-1] - 1 for e in self.edges)
        if len(self.edges) not in (1, 2) or self.paint.shape[-len(cells) :] != cells:
            here = self.paint.shape[-len(cells) :]
            raise ValueError(f"paint has cells {here}, but the edges of one or two axes give {cells}.")
        lead = self.paint.shape[: -1 - len(cells)]
        if self.paint.ndim <= len(cells) or len(lead) > 1 or any(e.shape[:-1] != lead for e in self.edges):
            raise ValueError(
                f"paint has shape {self.paint.shape} and edges {[e.shape for e in self.edges]}; give paint the "
                "dimensions (feature, cells), and all of them a first one of draws, or none."
            )
        if any(np.any(e[..., 0] != 0) or not np.allclose(e[..., -1], 1) or not _rising(e) for e in self.edges):
            raise ValueError("Edges must rise from 0 to 1 on every axis; rescale the box to the unit box.")
        for e in self.edges:
            e[..., -1] = 1.0  # a rounded edge would leave a gap

    @property
    def num_features(self) -> int:
        """Number of features K."""
        return self.paint.shape[-1 - len(self.edges)]

    @property
    def num_draws(self) -> int | None:
        """Number of paintboxes; None for a single one, without a draw dimension."""
        return self.paint.shape[0] if self.edges[0].ndim == 2 else None

    def draw(self, index: int) -> FeaturePaintbox:
        """One paintbox of several."""
        if self.num_draws is None or not 0 <= index < self.num_draws:
            raise ValueError(f"There is no draw {index}: this paintbox has {self.num_draws or 'no'} draws.")
        return FeaturePaintbox(tuple(e[index] for e in self.edges), self.paint[index])

    def _cell_volumes(self) -> np.ndarray:
        """Volumes of the cells, ([draw,] cells of the first axis[, cells of the second])."""
        sides = [np.diff(e) for e in self.edges]
        return sides[0] if len(sides) == 1 else sides[0][..., :, None] * sides[1][..., None, :]

    def volumes(self) -> xr.DataArray:
        """Volume of each S_k, ([draw,] feature): the probability of the feature."""
        axes, feature = tuple(range(-len(self.edges), 0)), -1 - len(self.edges)
        volumes = (self.paint * np.expand_dims(self._cell_volumes(), feature)).sum(axes)
        return xr.DataArray(volumes, dims=(*batch_dims(self.num_draws), "feature"), name="volume")

    def intersection_volume(self, features: Sequence[int]) -> Any:
        r"""The moment :math:`\mathbb{E}[\prod_{k \in J} Z_{nk}] = \mathrm{vol}(\cap_{k \in J} S_k)` (section 1).

        Returns:
            A number; (draw) for several paintboxes.
        """
        if any(not 0 <= k < self.num_features for k in features):
            raise ValueError(f"features must lie in 0..{self.num_features - 1}, but they are {list(features)}.")
        paint = self.paint.take(list(features), axis=-1 - len(self.edges)).all(-1 - len(self.edges))
        volume = (paint * self._cell_volumes()).sum(tuple(range(-len(self.edges), 0)))
        return float(volume) if self.num_draws is None else xr.DataArray(volume, dims="draw", name="volume")

    def sample(self, num_objects: int, seed: Seed = None, num_draws: int | None = None) -> Embedding:
        """Objects by Algorithm 1: points ``u`` ([draw,] object, axis) and ``Z`` ([draw,] object, feature) in {0, 1}.

        Several paintboxes give a draw each.
        """
        rng = generator(seed)
        if self.num_draws is not None:
            if num_draws not in (None, self.num_draws):
                raise ValueError(
                    f"num_draws is {num_draws}, but the paintbox has {self.num_draws} draws; leave it out."
                )
            num_draws = self.num_draws
        u = rng.uniform(size=(*batch_shape(num_draws), whole("num_objects", num_objects), len(self.edges)))
        if self.num_draws is None:
            Z = self.hit(u)
        else:
            Z = np.stack([self.draw(i).hit(points) for i, points in enumerate(u)])
        return make_embedding("Feature paintbox", Z, rng, num_draws=num_draws, extra={"u": (("object", "axis"), u)})

    def hit(self, u: np.ndarray) -> np.ndarray:
        """Features that points (..., axis) have, (..., feature), in a single paintbox."""
        cell = tuple(np.searchsorted(e, u[..., i], side="right") - 1 for i, e in enumerate(self.edges))
        return np.moveaxis(self.paint, 0, -1)[cell].astype(np.int8)

    def to_partition(self) -> PartitionPaintbox:
        """The partition paintbox with one block for each distinct value of Z_n, largest first."""
        if self.num_draws is not None:
            raise ValueError("Several paintboxes have a partition each; convert one, with `paintbox.draw(0)`.")
        codes, block = np.unique(self.paint.reshape(self.num_features, -1).T, axis=0, return_inverse=True)
        lengths = np.bincount(block.ravel(), weights=self._cell_volumes().ravel(), minlength=len(codes))
        order = np.argsort(-lengths, kind="stable")
        return PartitionPaintbox(lengths[order], codes[order])

    def plot(self, ax: Axes | None = None, points: np.ndarray | None = None, draw: int = 0) -> Axes:
        """The K boxes side by side, paint dark; ``points`` (object, axis) are drawn into each, joined by thin lines."""
        if self.num_draws is not None:
            return self.draw(draw).plot(ax, points)
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


def _rising(edges: np.ndarray) -> bool:
    return bool(np.all(np.diff(edges) >= 0))


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


def random_paintbox(
    num_features: int, alpha: float = 2.0, seed: Seed = None, num_draws: int | None = None
) -> FeaturePaintbox:
    r"""A random feature paintbox: S_k is a random rectangle in the unit square with the k-th stick as its volume.

    .. math:: \mathrm{vol}(S_k) = \prod_{j \le k} B_j, \quad B_j \sim \mathrm{Beta}(\alpha, 1), \qquad
              \mathbb{E} \sum_k \mathrm{vol}(S_k) = \alpha

    so the volumes are summable, as Algorithm 1 demands; sides and places are random.

    Args:
        num_features: Number of features K, at most 100 (the grid has about 4 K^2 cells).
        alpha: Expected total volume as K grows.
        seed: Seed or numpy generator.
        num_draws: Number of independent paintboxes; None gives one without a draw dimension.
    """
    whole("num_features", num_features, most=100)  # the grid of more would not fit in memory
    rng, shape = generator(seed), (*batch_shape(num_draws), num_features)
    log_volume = np.log(rng.beta(positive("alpha", alpha), 1, shape)).cumsum(-1)
    share = rng.uniform(size=shape)
    sides = np.exp(np.stack([share * log_volume, (1 - share) * log_volume]))  # (2, [draw,] K)
    low = rng.uniform(size=sides.shape) * (1 - sides)
    high, ends = low + sides, np.broadcast_to([0.0, 1.0], (*low.shape[:-1], 2))
    edges = np.sort(np.concatenate([ends, low, high], -1).clip(0, 1))  # (2, [draw,] 2 K + 2)
    middle = (edges[..., None, 1:] + edges[..., None, :-1]) / 2
    inside = (middle > low[..., None]) & (middle < high[..., None])  # (2, [draw,] K, cells)
    return FeaturePaintbox(tuple(edges), inside[0][..., :, None] & inside[1][..., None, :])
