"""Pictures of topics: how much each is used, and how they correlate; open this after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from pyro_prme.answers.places import leaf_order
from pyro_prme.answers.posterior import Posterior
from pyro_prme.checks import whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.plots import _common as common
from pyro_prme.plots.style import mark_negative

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_correlation_graph", "plot_correlations", "plot_usage"]

#: A share of the tokens that counts as none on a logarithmic axis.
_NOTHING = 1e-6


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
        log: logarithmic shares, to see the tail; topics with less than a millionth of the tokens are left out.
        ax: axes to draw into.

    Example:
        >>> ax = plot_usage(posterior, corpus)
        >>> ax = plot_usage(hdp_posterior, corpus, label="without a function", ax=ax)
    """
    from matplotlib.ticker import MaxNLocator

    if corpus is not None:
        common.check(posterior, corpus)
    ax = common.new_axes(ax)
    shares = np.sort(posterior.usage(corpus).values)[::-1]
    used = int(np.searchsorted(shares.cumsum(), 0.99) + 1)
    name = type(posterior.model).__name__ if label is None else label
    i = len(ax.lines)
    style: dict[str, Any] = {"color": common.OKABE_ITO[i % 6], "marker": common.MARKERS[i % 6], "ms": 3.5, "lw": 1.2}
    shares = np.where(shares > _NOTHING, shares, np.nan) if log else shares  # a logarithmic scale has no place for 0
    ax.plot(np.arange(1, len(shares) + 1), shares, label=f"{name}: {used} of {len(shares)} topics hold 99%", **style)
    curves = [np.asarray(line.get_ydata()) for line in ax.lines]
    drawn, most = np.concatenate(curves), max(map(len, curves))
    ax.set(xlabel="topic, by rank", ylabel="share of the tokens", xlim=(0, most + 1))
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    if log:
        ax.set(yscale="log", ylim=(drawn[drawn > 0].min() / 2, 1.5 * np.nanmax(drawn)))
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
    chosen = chosen[leaf_order(matrix[np.ix_(chosen, chosen)])]
    return chosen, matrix[np.ix_(chosen, chosen)], usage[chosen]


def _meaning(kind: str) -> str:
    return {
        "function": r"random function $\mu_f(h_n,\ell_k)$",
        "posterior": "posterior proportions",
        "roots": "square roots of shares",
    }[kind]


def plot_correlations(
    posterior: Posterior,
    corpus: Corpus,
    topics: Sequence[int] | None = None,
    *,
    kind: str = "roots",
    num_topics: int = 30,
    num_words: int = 3,
    by: str = "frex",
    ax: Axes | None = None,
) -> Axes:
    """Heat map of the correlations between topics over documents, ordered so that correlated topics are neighbours.

    Orange is positive, purple negative, white none. A minus stands where the correlation is below -0.25, so that a copy
    without colours shows the sign too. In axes of yours, labels shrink to the size of the cells.

    Args:
        posterior: of a fitted model.
        corpus: documents over which to correlate.
        topics: which to show; default the `num_topics` most used of those that hold 99% of the tokens.
        kind: "roots", "posterior" or "function", see `Posterior.topic_correlations`.
        num_topics: see above.
        num_words: top words in a topic's label.
        by: how words are ranked, see `Posterior.top_words`.
        ax: axes to draw into.

    Example:
        >>> ax = plot_correlations(posterior, corpus, num_topics=20)
    """
    chosen, matrix, _ = _chosen(posterior, corpus, topics, num_topics, kind)
    names = _names(posterior, corpus, chosen, num_words, by)
    side, given = max(0.17 * len(chosen) + 1.2, 3.4), ax is not None
    ax = common.new_axes(ax, side + 0.07 * max(map(len, names)) + 1.2, side)
    image = ax.imshow(matrix, cmap=common.DIVERGING, vmin=-1, vmax=1, interpolation="nearest")
    mark_negative(ax, matrix, -0.25, 1.0)
    ends = (-0.5, len(chosen) - 0.5)
    ax.set(xlabel="topic", xlim=ends, ylim=ends[::-1])
    ax.set_xticks(range(len(chosen)), [str(k) for k in chosen], rotation=90)
    ax.set_yticks(range(len(chosen)), names)
    ax.tick_params(length=0, labelsize=8)
    label = f"correlation over documents of the\n{_meaning(kind)} ($-$: below $-0.25$)"
    ax.figure.colorbar(image, ax=ax, label=label, shrink=0.8)
    if given:
        _fit_labels(ax, len(chosen))
    return ax


def plot_correlation_graph(
    posterior: Posterior,
    corpus: Corpus,
    topics: Sequence[int] | None = None,
    *,
    kind: str = "roots",
    num_topics: int = 30,
    num_edges: int = 30,
    num_words: int = 3,
    by: str = "frex",
    ax: Axes | None = None,
) -> Axes:
    """The strongest correlations between topics as arcs beside the list of topics, which is that of the heat map.

    Topics stand one below the other in an order where neighbours correlate, so that groups of topics are bundles of
    short arcs. A solid orange arc is a positive correlation, a dashed purple one a negative; its width is the strength.
    A node's area is the topic's usage. In axes of yours, labels shrink to the distance of two topics.

    Args:
        posterior: of a fitted model; an HDP has only kind="posterior".
        corpus: documents over which to correlate.
        topics: which to show, see `plot_correlations`.
        kind: "function" or "posterior".
        num_topics: how many to show, where `topics` is not given.
        num_words: top words in a topic's label.
        by: how words are ranked.
        ax: axes to draw into.
        num_edges: how many of the strongest correlations to draw.

    Example:
        >>> ax = plot_correlation_graph(posterior, corpus, num_edges=25)
    """
    from matplotlib.lines import Line2D

    chosen, matrix, usage = _chosen(posterior, corpus, topics, num_topics, kind)
    whole("num_edges", num_edges)
    first, second = np.triu_indices(len(chosen), 1)
    strength = np.abs(matrix[first, second])
    strongest = [e for e in np.argsort(-strength, kind="stable")[:num_edges] if strength[e] > 0]
    weak, strong = (strength[strongest[i]] if strongest else 0.0 for i in (-1, 0))
    widths = 0.6 + 2.4 * (strength - weak) / max(strong - weak, 1e-9)
    names = _names(posterior, corpus, chosen, num_words, by)
    given = ax is not None
    ax = common.new_axes(ax, 0.07 * max(map(len, names)) + 3.4, max(0.19 * len(chosen) + 1.1, 2.6))
    for e in reversed(strongest):  # the strongest on top
        i, j = first[e], second[e]
        _draw_arc(ax, i, j, bool(matrix[i, j] > 0), widths[e])
    place = np.arange(len(chosen))
    ax.scatter(np.zeros(len(chosen)), place, s=20 + 900 * usage, c="0.25", ec="white", lw=0.8, zorder=3, clip_on=False)
    longest = max((second[e] - first[e] for e in strongest), default=1)
    ax.set(xlim=(-0.02 * longest, 0.52 * longest), ylim=(len(chosen) - 0.5, -0.5), xticks=[])
    ax.spines[:].set_visible(False)
    ax.set_yticks(place, names)
    ax.tick_params(length=0, labelsize=8, pad=6)
    signs = {True: "positive", False: "negative"}
    caption = (
        f"The {len(strongest)} strongest correlations over documents of the {_meaning(kind)}, from {weak:.2f} up; "
        "a node's area is its topic's usage"
    )
    legend = ax.legend(
        handles=[Line2D([], [], label=signs[sign], **style) for sign, style in _EDGES.items()],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=2,
        fontsize=8,
        frameon=False,
        title="\n".join(wrap(caption, 50)),
        title_fontsize=8,
    )
    legend.get_title().set_multialignment("center")
    if given:
        _fit_labels(ax, len(chosen))
    return ax


#: How positive (True) and negative correlations are drawn.
_EDGES: dict[bool, dict[str, Any]] = {
    True: {"color": "#d95f02", "ls": "-"},
    False: {"color": "#5e3c99", "ls": (0, (4, 2))},
}


def _draw_arc(ax: Axes, start: int, end: int, positive: bool, width: float) -> None:
    """Half a circle to the right of the line of nodes, from one row to another."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    out = (end - start) * 2 / 3  # a cubic with such handles comes as far out as half its height
    path = Path([(0, start), (out, start), (out, end), (0, end)], [Path.MOVETO, *[Path.CURVE4] * 3])
    ax.add_patch(PathPatch(path, lw=width, alpha=0.8, zorder=1, fill=False, **_EDGES[positive]))


def _names(posterior: Posterior, corpus: Corpus, topics: np.ndarray, num_words: int, by: str) -> list[str]:
    """Top words and number of each topic."""
    words = common.labels(posterior, corpus, num_words, by)
    return [f"{', '.join(words[k])}  {k}" for k in topics]


def _fit_labels(ax: Axes, rows: int) -> None:
    """Lets labels shrink to the height of a row."""
    ax.tick_params(labelsize=min(8.0, max(0.85 * common.points(ax)[1] / rows, 1.0)))
