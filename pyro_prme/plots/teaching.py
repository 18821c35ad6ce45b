"""Pictures for teaching: feature paintboxes, measures on the strip, and the model as a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from pyro_prme.checks import choice
from pyro_prme.corpora.batch import Batch
from pyro_prme.inference.session import alone, evaluating
from pyro_prme.measures import FeaturePaintbox, random_paintbox
from pyro_prme.plots import _common as common

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_feature_paintbox", "plot_model", "plot_strip"]


def plot_feature_paintbox(
    paintbox: FeaturePaintbox | None = None, *, num_objects: int = 3, seed: int = 9, ax: Axes | None = None
) -> Axes:
    """The toy of the paper's Figure 1 (right): one box a feature, painted where an object has it, objects as lines.

    Args:
        paintbox: default a random one of three features; of several, the first is drawn.
        num_objects: uniform points u_n, each drawn into all boxes; 0 for none.
        seed: of the default paintbox and of the points.
        ax: axes to draw into.

    Example:
        >>> ax = plot_feature_paintbox(seed=1)
    """
    box = random_paintbox(3, seed=seed) if paintbox is None else paintbox
    if not isinstance(box, FeaturePaintbox):
        raise ValueError(f"paintbox is a {type(box).__name__}: give a FeaturePaintbox, or None for a random one.")
    if box.num_draws is not None:
        box = box.draw(0)
    points = box.sample(num_objects, seed=seed).data["u"].values if num_objects else None
    return box.plot(ax=ax, points=points)


def plot_strip(measure: Any, *, draw: int = 0, ax: Axes | None = None) -> Axes:
    """A random measure on the strip, as the paper's Figures 2 and 6.

    Args:
        measure: what a sampler of `pyro_prme.measures` returned: an Embedding, Points, a RandomMeasure or a
            KallenbergMeasure.
        draw: which draw, where there are several.
        ax: axes to draw into.

    Example:
        >>> from pyro_prme import measures
        >>> ax = plot_strip(measures.prme(num_objects=20, num_atoms=30, seed=0))
    """
    if not hasattr(measure, "plot") or not hasattr(measure, "data"):
        raise ValueError(
            f"measure is a {type(measure).__name__}: give a random measure drawn by a sampler of pyro_prme.measures."
        )
    return measure.plot(ax=ax, draw=draw)


def plot_model(model: Callable, batch: Batch, *, backend: str = "matplotlib", ax: Axes | None = None) -> Any:
    """The model as a graph of its sites in their plates.

    An observed site is grey; one that is a function of its parents (a Delta) has a dashed outline.

    Args:
        model: a Pyro model that takes a `Batch`.
        batch: some documents; two or three will do.
        backend: "matplotlib" for a drawing of our own, whose plates may overlap, or "graphviz" for what
            `pyro.render_model` makes, if that package is installed.
        ax: axes to draw into.

    Returns:
        The axes; a graphviz object with that backend.

    Example:
        >>> ax = plot_model(posterior.model, Batch.from_csr(corpus.counts, [0, 1]))
    """
    choice("backend", backend, ("matplotlib", "graphviz"))
    if not isinstance(batch, Batch):
        raise ValueError(f"batch is a {type(batch).__name__}: give a Batch, such as Batch.from_csr makes.")
    import pyro
    import torch

    store = pyro.get_param_store()
    with alone(), torch.random.fork_rng(devices=[]), store.scope(store.get_state()), evaluating(model):  # no trace
        if backend == "graphviz":
            return pyro.render_model(model, (batch,), render_distributions=True, render_deterministic=True)
        from pyro.infer.inspect import get_model_relations

        relations = get_model_relations(model, (batch,), include_deterministic=True)
    return _draw_graph(relations, common.new_axes(ax, 6.4, 4.2))


def _draw_graph(relations: Mapping[str, Any], ax: Axes) -> Axes:
    """Sites in rows by their distance from the roots, in columns by their plates; a rectangle round each plate."""
    from matplotlib.patches import Ellipse, FancyArrowPatch, FancyBboxPatch

    parents: dict[str, list[str]] = relations["sample_sample"]
    plates: dict[str, set[str]] = {}
    for plate, sites in relations["plate_sample"].items():
        plates.setdefault(plate.split("__CLONE")[0], set()).update(sites)
    place = _places(parents, plates)
    x, y = np.array(list(place.values())).T
    ax.set(xlim=(x.min() - 0.7, x.max() + 0.7), ylim=(y.min() - 0.75, y.max() + 0.65), aspect="equal")
    ax.axis("off")
    unit = common.points(ax)[0] / np.ptp(ax.get_xlim())  # points
    size = min(9.0, 0.9 * unit / max(5, *map(len, place)))  # a name fits its ellipse
    boxes = {plate: _plate_box(place, sites, i) for i, (plate, sites) in enumerate(plates.items())}
    for i, (plate, (left, bottom, right, top)) in enumerate(boxes.items()):
        corner, colour = (left, bottom), common.OKABE_ITO[i % 6]
        shape = FancyBboxPatch(corner, right - left, top - bottom, boxstyle="round,pad=0,rounding_size=0.1")
        shape.set(facecolor="none", edgecolor=colour, linewidth=1.3)
        ax.add_patch(shape)
        wide = 0.62 * size * len(plate) / unit
        style: dict[str, Any] = {"fontsize": size, "va": "bottom", "color": colour}
        if _struck(left, left + wide, bottom, boxes, plate) <= _struck(right - wide, right, bottom, boxes, plate):
            ax.text(left + 0.06, bottom + 0.03, plate, ha="left", **style)
        else:
            ax.text(right - 0.06, bottom + 0.03, plate, ha="right", **style)
    ellipses = {site: Ellipse(at, 0.6, 0.46, edgecolor="black", zorder=3) for site, at in place.items()}
    for site, ellipse in ellipses.items():
        ellipse.set_facecolor("0.75" if site in relations["observed"] else "white")
        ellipse.set_linestyle("--" if relations["sample_dist"][site] == "Delta" else "-")
        ax.add_patch(ellipse)
        ax.text(*place[site], site, ha="center", va="center", zorder=4, fontsize=size)
    for site, above in parents.items():
        for parent in above:
            ends: dict[str, Any] = {"patchA": ellipses[parent], "patchB": ellipses[site], "shrinkA": 0, "shrinkB": 1}
            arrow = FancyArrowPatch(
                place[parent], place[site], arrowstyle="-|>", mutation_scale=1.1 * size, color="0.2", **ends
            )
            ax.add_patch(arrow)
    return ax


def _plate_box(place: Mapping[str, tuple[float, float]], sites: set[str], i: int) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of the i-th plate's rectangle; i keeps borders of overlapping ones apart."""
    x, y = np.array([place[site] for site in sites]).T
    pad = 0.42 + 0.05 * i
    return x.min() - pad, y.min() - pad - 0.1, x.max() + pad, y.max() + pad


def _struck(
    left: float, right: float, bottom: float, boxes: Mapping[str, tuple[float, float, float, float]], plate: str
) -> int:
    """How many upright borders of other plates a label at the bottom of this plate would meet."""
    others = [box for name, box in boxes.items() if name != plate and box[1] <= bottom + 0.1 <= box[3]]
    return sum(left <= border <= right for box in others for border in (box[0], box[2]))


def _places(parents: Mapping[str, Sequence[str]], plates: Mapping[str, set[str]]) -> dict[str, tuple[float, float]]:
    """Where each site is drawn. All sites of a column share their plates, and a plate's columns are neighbours if that
    is possible, so that a rectangle round a plate holds no stranger."""
    depth: dict[str, int] = {}
    for site, above in parents.items():  # in the order of the model, so parents come first
        depth[site] = 1 + max((depth[parent] for parent in above), default=-1)
    groups = {site: frozenset(name for name, sites in plates.items() if site in sites) for site in parents}
    kinds = list(dict.fromkeys(groups.values()))
    order = min(permutations(kinds), key=lambda columns: _cost(columns, groups, parents)) if len(kinds) <= 7 else kinds
    column = {kind: i for i, kind in enumerate(order)}
    children = {site: [child for child, above in parents.items() if site in above] for site in parents}
    row = {site: depth[site] for site in parents}
    for site in reversed(list(parents)):  # a root stands just above its first child
        if not parents[site] and children[site]:
            row[site] = max(0, min(row[child] for child in children[site]) - 1)
    place: dict[str, tuple[float, float]] = {}
    taken: set[tuple[float, float]] = set()
    for site in parents:
        x, y = 1.35 * column[groups[site]], -1.0 * row[site]
        while (x, y) in taken:
            y += 1.0
        taken.add((x, y))
        place[site] = (x, y)
    return place


def _cost(
    columns: Sequence[frozenset[str]], groups: Mapping[str, frozenset[str]], parents: Mapping[str, Sequence[str]]
) -> float:
    """Strangers inside plates count most, then the lengths of arrows."""
    position = {kind: i for i, kind in enumerate(columns)}
    strangers = 0
    for plate in {name for kind in columns for name in kind}:
        at = [position[kind] for kind in columns if plate in kind]
        strangers += max(at) - min(at) + 1 - len(at)
    lengths = sum(abs(position[groups[s]] - position[groups[p]]) for s, above in parents.items() for p in above)
    return 1000 * strangers + lengths
