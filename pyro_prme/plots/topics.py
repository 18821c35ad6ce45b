"""Pictures of topics: how much each is used, and how they correlate; open this after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from pyro_prme.checks import whole
from pyro_prme.corpus import Corpus
from pyro_prme.plots import _common as common
from pyro_prme.posterior import Posterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_correlation_graph", "plot_correlations", "plot_usage"]


def plot_usage(
    posterior: Posterior,
    corpus: Corpus | None = None,
    *,
    label: str | None = None,
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Ranked topic usage, as the paper's Figure 5(d): the share of all tokens that each topic explains, largest first.

    The legend says how many topics hold 99% of the tokens. Call it again with the same axes to compare models.

    Args:
        posterior: of any fitted model.
        corpus: documents to count in; default those of training.
        label: name of the curve; default the model's class.
        log: logarithmic shares, to see the tail.
        ax: axes to draw into.

    Example:
        >>> ax = plot_usage(posterior, corpus)
        >>> ax = plot_usage(hdp_posterior, corpus, label="without a function", ax=ax)
    """
    if corpus is not None:
        common.check(posterior, corpus)
    ax = common.new_axes(ax)
    shares = np.sort(posterior.usage(corpus).values)[::-1]
    used = int(np.searchsorted(shares.cumsum(), 0.99) + 1)
    name = type(posterior.model).__name__ if label is None else label
    i = len(ax.lines)
    style: dict[str, Any] = {"color": common.OKABE_ITO[i % 6], "marker": common.MARKERS[i % 6], "ms": 3.5, "lw": 1.2}
    shares = np.where(shares > 0, shares, np.nan) if log else shares  # a logarithmic scale has no place for 0
    ax.plot(np.arange(1, len(shares) + 1), shares, label=f"{name}: {used} of {len(shares)} topics hold 99%", **style)
    curves = [np.asarray(line.get_ydata()) for line in ax.lines]
    drawn, most = np.concatenate(curves), max(map(len, curves))
    ax.set(xlabel="topic, by rank", ylabel="share of the tokens", xlim=(0, most + 1))
    if log:
        ax.set(yscale="log", ylim=(max(drawn[drawn > 0].min() / 2, 1e-6), 1.5 * np.nanmax(drawn)))
    else:
        ax.set_ylim(0, 1.08 * drawn.max())
    ax.legend(fontsize=8, frameon=False)
    return ax


def _chosen(
    posterior: Posterior, corpus: Corpus, topics: Sequence[int] | None, num_topics: int, kind: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Topics (default those most used) in an order where neighbours correlate, their correlations and usage."""
    common.check(posterior, corpus)
    whole("num_topics", num_topics)
    matrix = posterior.topic_correlations(corpus, kind=kind).values
    usage = posterior.usage(corpus).values
    if topics is None:
        chosen = np.argsort(-usage, kind="stable")
        used = int(np.searchsorted(usage[chosen].cumsum(), 0.99) + 1)
        chosen = chosen[: max(2, min(num_topics, used))]
    else:
        chosen = common.picked(topics, len(matrix), "topics")
    if len(chosen) < 2:
        raise ValueError("There is one topic to show: correlations need at least two.")
    chosen = chosen[common.leaf_order(matrix[np.ix_(chosen, chosen)])]
    return chosen, matrix[np.ix_(chosen, chosen)], usage[chosen]


def _meaning(kind: str) -> str:
    return r"random function $\mu_f(h_n,\ell_k)$" if kind == "function" else "posterior proportions"


def plot_correlations(
    posterior: Posterior,
    corpus: Corpus,
    topics: Sequence[int] | None = None,
    *,
    kind: str = "function",
    num_topics: int = 30,
    num_words: int = 3,
    by: str = "frex",
    ax: Axes | None = None,
) -> Axes:
    """Heat map of the correlations between topics over documents, ordered so that correlated topics are neighbours.

    Orange is positive, purple negative, white none. A minus stands where the correlation is below -0.25, so that a copy
    without colours shows the sign too. In axes of yours, labels shrink to the size of the cells.

    Args:
        posterior: of a fitted model; an HDP has only kind="posterior".
        corpus: documents over which to correlate.
        topics: which to show; default the `num_topics` most used of those that hold 99% of the tokens.
        kind: "function" or "posterior", see `Posterior.topic_correlations`.
        num_topics: see above.
        num_words: top words in a topic's label.
        by: how words are ranked, see `Posterior.top_words`.
        ax: axes to draw into.

    Example:
        >>> ax = plot_correlations(posterior, corpus, num_topics=20)
    """
    chosen, matrix, _ = _chosen(posterior, corpus, topics, num_topics, kind)
    words = common.labels(posterior, corpus, num_words, by)
    names = [f"{', '.join(words[k])}  {k}" for k in chosen]
    side, given = max(0.17 * len(chosen) + 1.2, 3.4), ax is not None
    ax = common.new_axes(ax, side + 0.07 * max(map(len, names)) + 1.2, side)
    image = ax.imshow(matrix, cmap=common.DIVERGING, vmin=-1, vmax=1, interpolation="nearest")
    y, x = np.nonzero(matrix < -0.25)
    ax.scatter(x, y, s=10, marker="_", lw=0.8, c=np.where(matrix[y, x] < -0.5, "white", "black"))
    ends = (-0.5, len(chosen) - 0.5)
    ax.set(xlabel="topic", xlim=ends, ylim=ends[::-1])
    ax.set_xticks(range(len(chosen)), [str(k) for k in chosen], rotation=90)
    ax.set_yticks(range(len(chosen)), names)
    ax.tick_params(length=0, labelsize=8)
    label = f"correlation over documents of the\n{_meaning(kind)} ($-$: below $-0.25$)"
    ax.figure.colorbar(image, ax=ax, label=label, shrink=0.8)
    if given:
        cell = common.points(ax)[1] / len(chosen)
        ax.tick_params(labelsize=min(8.0, max(0.85 * cell, 1.0)))
    return ax


def plot_correlation_graph(
    posterior: Posterior,
    corpus: Corpus,
    topics: Sequence[int] | None = None,
    *,
    kind: str = "function",
    num_topics: int = 30,
    num_edges: int = 30,
    num_words: int = 3,
    by: str = "frex",
    ax: Axes | None = None,
) -> Axes:
    """The strongest correlations between topics as a graph: topics on a circle, correlated ones near each other.

    A solid orange line is a positive correlation, a dashed purple one a negative; its width is the strength. A node's
    area is the topic's usage. In axes of yours, labels are fitted to the size that these have when this is called (so
    draw the neighbours first): they shrink, to six points at least, and then lose words.

    Args:
        posterior, corpus, topics, kind, num_topics, num_words, by, ax: see `plot_correlations`.
        num_edges: how many of the strongest correlations to draw.

    Example:
        >>> ax = plot_correlation_graph(posterior, corpus, num_edges=25)
    """
    from matplotlib.lines import Line2D

    chosen, matrix, usage = _chosen(posterior, corpus, topics, num_topics, kind)
    whole("num_edges", num_edges)
    words = common.labels(posterior, corpus, num_words, by)
    angle = 2 * np.pi * np.arange(len(chosen)) / len(chosen)
    place = np.stack([np.cos(angle), np.sin(angle)], 1)  # (topics, 2)
    left = place[:, 0] < -1e-9
    first, second = np.triu_indices(len(chosen), 1)
    strength = np.abs(matrix[first, second])
    strongest = [e for e in np.argsort(-strength, kind="stable")[:num_edges] if strength[e] > 0]
    weak, strong = (strength[strongest[i]] if strongest else 0.0 for i in (-1, 0))
    widths = 0.6 + 2.4 * (strength - weak) / max(strong - weak, 1e-9)
    area = 20 + 900 * usage
    gap = np.sqrt(area) / 2 + 4  # points from a node's centre to its label
    caption = (
        f"The {len(strongest)} strongest correlations over documents of the {_meaning(kind)}, from {weak:.2f} up; "
        "a node's area is its topic's usage"
    )
    names = [_Label(k, words[k], flip) for k, flip in zip(chosen, left, strict=True)]
    ax, size, caption = _round_axes(ax, place, gap, names, caption)
    for e in reversed(strongest):  # the strongest on top
        i, j = first[e], second[e]
        _draw_edge(ax, place[i], place[j], bool(matrix[i, j] > 0), widths[e])
    ax.scatter(place[:, 0], place[:, 1], s=area, c="0.25", edgecolors="white", lw=0.8, zorder=3)
    for i, name in enumerate(names):
        turn = np.degrees(angle[i]) - (180 if left[i] else 0)
        style: dict[str, Any] = {"rotation": turn, "rotation_mode": "anchor", "ha": "right" if left[i] else "left"}
        where: dict[str, Any] = {"xytext": gap[i] * place[i], "textcoords": "offset points", "va": "center"}
        ax.annotate(name.text(), place[i], fontsize=size, **where, **style)
    signs = {True: "positive", False: "negative"}
    legend = ax.legend(
        handles=[Line2D([], [], label=signs[sign], **style) for sign, style in _EDGES.items()],
        loc="lower center",
        ncols=2,
        fontsize=8,
        frameon=False,
        title=caption,
        title_fontsize=8,
        borderpad=0.2,
        borderaxespad=0,
    )
    legend.get_title().set_multialignment("center")
    return ax


#: How positive (True) and negative correlations are drawn.
_EDGES: dict[bool, dict[str, Any]] = {
    True: {"color": "#d95f02", "ls": "-"},
    False: {"color": "#5e3c99", "ls": (0, (4, 2))},
}


def _draw_edge(ax: Axes, start: np.ndarray, end: np.ndarray, positive: bool, width: float) -> None:
    """A curve between two places on the unit circle, bent inwards."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    middle = (0.8 - 0.3 * np.linalg.norm(start - end)) * (start + end) / 2
    path = Path([start, middle, end], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    ax.add_patch(PathPatch(path, lw=width, alpha=0.8, zorder=1, fill=False, **_EDGES[positive]))


class _Label:
    """A topic's number and words; the number is next to the node, so last where the label stands to the left of it."""

    def __init__(self, topic: int, words: Sequence[str], left: bool) -> None:
        self.topic, self.words, self.left = topic, list(words), left

    def text(self) -> str:
        words = ", ".join(self.words)
        return (f"{words}  {self.topic}" if self.left else f"{self.topic}  {words}") if words else str(self.topic)

    def width(self, size: float) -> float:
        """In points, at a font size; hinted letters are a little wider than their outlines."""
        from matplotlib.textpath import TextPath

        return 1.03 * float(TextPath((0, 0), self.text(), size=size).get_extents().width)

    def shorten(self, room: float, size: float) -> None:
        """Drop words from the end until the label takes no more than `room` points."""
        while self.words and self.width(size) > room:
            self.words.pop()


def _round_axes(
    ax: Axes | None, place: np.ndarray, gap: np.ndarray, labels: Sequence[_Label], caption: str
) -> tuple[Axes, float, str]:
    """Axes for the unit circle, radial labels round it and a caption below; the labels' size, and the caption wrapped.

    With u data units a point, a label of w points at gap g reaches 1 + u (g + w) along its direction, and must stay
    within u W / 2 of the centre in x, W the width of the axes in points; likewise in y. The least such u is taken.
    New axes are as large as a legible circle and the labels need. In given ones, labels leave the circle a third of the
    axes: they shrink to six points, and then are shortened.
    """
    size, margin, given = 8.0, 4.0, ax is not None
    lengths = np.array([label.width(size) for label in labels])
    if ax is None:
        radius = max(105.0, 1.5 * size * len(labels) / (2 * np.pi))
        side = 2 * (radius + (gap + lengths).max() + margin)
        ax = common.new_axes(None, side / 72, side / 72 + 0.7)
    ax.axis("off")
    width, height = common.points(ax)
    lines = wrap(caption, max(24, int(width / 4.8)))
    below = 1.4 * size * (len(lines) + 1) + 2 * margin
    half = np.maximum([width / 2 - margin, (height - below) / 2 - margin], 1.0)
    if given:
        room = np.maximum(0.65 * half.min() - gap, 1.0)  # points for each label
        size = max(6.0, size * min(1.0, float((room / lengths).min())))
        for label, most in zip(labels, room, strict=True):
            label.shorten(most, size)
        lengths = np.array([label.width(size) for label in labels])
    reach = np.abs(place) * (gap + lengths)[:, None]  # points beyond the circle
    unit = float((np.abs(place) / np.maximum(half - reach, 1.0)).max())  # data units a point
    x, y = unit * (half + margin)
    ax.set(aspect="equal", xlim=(-x, x), ylim=(-y - unit * below, y))
    return ax, size, "\n".join(lines)
