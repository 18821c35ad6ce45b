"""Pictures of topics: how much each is used, and how they correlate; open this after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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
    """Ranked topic usage, as the paper's Figure 6(d): the share of all tokens that each topic explains, largest first.

    The legend says how many topics hold 99% of the tokens. Call it again with the same axes to compare models.

    Args:
        posterior: of any fitted model.
        corpus: documents to count in; default those of training.
        label: name of the curve; default the model's class.
        log: logarithmic shares, to see the tail.
        ax: axes to draw into.

    Example:
        >>> ax = plot_usage(prme_posterior, corpus)  # doctest: +SKIP
        >>> plot_usage(hdp_posterior, corpus, ax=ax)  # doctest: +SKIP
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
    common.positive_whole(num_topics=num_topics)
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
    return r"random function $\mu_f(h_n, \ell_k)$" if kind == "function" else "posterior proportions"


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

    Orange is positive, purple negative, white none.

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
        >>> plot_correlations(posterior, corpus, num_topics=20)  # doctest: +SKIP
    """
    chosen, matrix, _ = _chosen(posterior, corpus, topics, num_topics, kind)
    words = common.labels(posterior, corpus, num_words, by)
    names = [f"{', '.join(words[k])}  {k}" for k in chosen]
    side = max(0.17 * len(chosen) + 1.2, 3.4)
    ax = common.new_axes(ax, side + 0.07 * max(map(len, names)) + 1.2, side)
    size = 8 if len(chosen) <= 40 else 320 / len(chosen)
    image = ax.imshow(matrix, cmap=common.DIVERGING, vmin=-1, vmax=1, interpolation="nearest")
    ax.set_xticks(range(len(chosen)), [str(k) for k in chosen], rotation=90, fontsize=size)
    ax.set_yticks(range(len(chosen)), names, fontsize=size)
    ax.tick_params(length=0)
    ax.set_xlabel("topic")
    ax.figure.colorbar(image, ax=ax, label=f"correlation over documents of the\n{_meaning(kind)}", shrink=0.8)
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
    area is the topic's usage.

    Args:
        posterior, corpus, topics, kind, num_topics, num_words, by, ax: see `plot_correlations`.
        num_edges: how many of the strongest correlations to draw.

    Example:
        >>> plot_correlation_graph(posterior, corpus, num_edges=25)  # doctest: +SKIP
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    chosen, matrix, usage = _chosen(posterior, corpus, topics, num_topics, kind)
    common.positive_whole(num_edges=num_edges)
    words = common.labels(posterior, corpus, num_words, by)
    ax = common.new_axes(ax, 7.0, 7.0)
    angle = 2 * np.pi * np.arange(len(chosen)) / len(chosen)
    place = np.stack([np.cos(angle), np.sin(angle)], 1)  # (topics, 2)
    first, second = np.triu_indices(len(chosen), 1)
    strength = np.abs(matrix[first, second])
    strongest = [e for e in np.argsort(-strength, kind="stable")[:num_edges] if strength[e] > 0]
    weak, strong = (strength[strongest[i]] if strongest else 0.0 for i in (-1, 0))
    widths = 0.6 + 2.4 * (strength - weak) / max(strong - weak, 1e-9)
    colours, styles = {True: "#d95f02", False: "#5e3c99"}, {True: "-", False: (0, (4, 2))}
    for e in reversed(strongest):  # the strongest on top
        i, j, positive = first[e], second[e], bool(matrix[first[e], second[e]] > 0)
        middle = (0.8 - 0.3 * np.linalg.norm(place[i] - place[j])) * (place[i] + place[j]) / 2  # bent inwards
        path = Path([place[i], middle, place[j]], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
        style: dict[str, Any] = {"edgecolor": colours[positive], "linestyle": styles[positive], "facecolor": "none"}
        ax.add_patch(PathPatch(path, lw=widths[e], alpha=0.8, zorder=1, **style))
    area = 20 + 900 * usage
    ax.scatter(place[:, 0], place[:, 1], s=area, c="0.25", edgecolors="white", lw=0.8, zorder=3)
    for i, k in enumerate(chosen):
        left = np.cos(angle[i]) < -1e-9
        turn = np.degrees(angle[i]) - (180 if left else 0)
        text = f"{', '.join(words[k])}  {k}" if left else f"{k}  {', '.join(words[k])}"
        side = "right" if left else "left"
        x, y = (1.05 + np.sqrt(area[i]) / 2 / 110) * place[i]  # clear of the node, at about 110 points a unit
        ax.text(x, y, text, rotation=turn, rotation_mode="anchor", ha=side, va="center", fontsize=8)
    ax.set(aspect="equal", xlim=(-2.2, 2.2), ylim=(-2.2, 2.2))
    ax.axis("off")
    kinds = ((True, "positive"), (False, "negative"))
    ax.legend(
        handles=[Line2D([], [], color=colours[s], ls=styles[s], label=f"{name} correlation") for s, name in kinds],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.01),
        ncols=2,
        fontsize=8,
        frameon=False,
        title=f"{len(strongest)} strongest correlations over documents of the {_meaning(kind)}, from {weak:.2f} up",
        title_fontsize=8,
    )
    return ax
