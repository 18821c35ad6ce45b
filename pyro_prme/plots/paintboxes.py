"""Topic paintboxes (paper, Figure 4); open this to see which documents light up a topic, and which topics overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyro_prme.answers.places import leaf_order, loadings_at, svd_plane
from pyro_prme.answers.posterior import Posterior
from pyro_prme.checks import choice, positive, whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.plots import _common as common

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_paintboxes"]

#: Colours of documents: the colour-blind tell them apart from each other and from viridis.
COLOURS = ("#d55e00", "#cc79a7", "#56b4e9", "#e69f00", "#f5f5f5")

#: What a colour stands for, and the label of its bar, in one line or two.
SCALES = {
    "relative": ("topic strength $E[Z_{(x,y),k}]$,", "share of the largest in its box"),
    "strength": ("topic strength", "$E[Z_{(x,y),k}]$"),
}


def plot_paintboxes(
    posterior: Posterior,
    corpus: Corpus,
    topics: Sequence[int] | None = None,
    documents: Sequence[int] | None = None,
    *,
    num_topics: int = 9,
    num_documents: int = 3,
    num_words: int = 4,
    by: str = "frex",
    limit: float | None = None,
    scale: str = "relative",
    resolution: int = 80,
) -> np.ndarray:
    r"""Topic paintboxes with documents in them, as the paper's Figure 4.

    The embeddings' mean is m_h, their two leading right singular directions are h_1 and h_2, with singular values s_1
    and s_2. Each box is one topic, and the colour of its pixel (x, y) is its mean loading there: with f in the scale

    .. math:: E[Z_{(x,y),k}] = \beta p_k E[\exp f(m_h + x s_1 h_1 + y s_2 h_2, \ell_k)],
              \quad E[\exp f] = \exp(\mu_f + \sigma^2_f / 2),

    and with f in the shape, the shape at that f (see `ShapePRME`).

    Boxes that are bright in the same place belong to correlated topics. Each document is one marker at its place in
    the plane of all documents, and a line joins it to the same place in the boxes of the topics it uses most.

    Differs from the paper: (x, y) runs over the square where 99% of the documents lie, and those shown, since their
    coordinates shrink as 1 / sqrt(N) and the function is learned only where documents are; give ``limit=0.2`` for the
    paper's square [-0.2, 0.2]^2. Colours are viridis, not blue to red, and each box has its own top colour
    (``scale="relative"``) unless absolute values are asked for (``scale="strength"``).

    Args:
        posterior: of a fitted PRME.
        corpus: documents that define the plane; a subset will do.
        topics: which to show; default `num_topics` salient ones: much used, and with a strength that differs most
            between documents. Neighbouring boxes correlate.
        documents: rows of the corpus to show; default `num_documents` that use the shown topics most, at places where
            these are strong and far from one another. An empty list shows none.
        num_topics: how many salient topics to show, where `topics` is not given.
        num_documents: how many documents to show, where `documents` is not given.
        num_words: top words written into each box.
        by: how words are ranked, see `Posterior.top_words`; "frex" prefers words that tell topics apart.
        limit: half the side of the square of (x, y).
        scale: "relative" or "strength".
        resolution: pixels along a side.

    Returns:
        The axes of the boxes, in the order shown, and last, if there are documents, that of their plane.

    Example:
        >>> axes = plot_paintboxes(posterior, corpus, num_topics=6)
        >>> axes[0].figure.savefig("paintboxes.pdf")
    """
    common.check(posterior, corpus)
    common.need_random_function(posterior, "Paintboxes")
    choice("scale", scale, SCALES)
    if limit is not None:
        positive("limit", limit)
    whole("num_topics", num_topics)
    whole("num_words", num_words)
    whole("resolution", resolution)
    h = posterior.embeddings(corpus).values
    mean, directions, places = svd_plane(h)
    shares = posterior.proportions(corpus).values  # (N, K)
    if topics is None:
        shown = _salient(loadings_at(posterior, h), posterior.usage(corpus).values, num_topics)
    else:
        shown = common.picked(topics, posterior.num_topics, "topics")
    if documents is None:
        strength = loadings_at(posterior, mean + places @ directions)[:, shown]  # (N, topics), in the plane
        lit = shares[:, shown] * strength / strength.max(0)
        inside = np.abs(places).max(1) <= (np.inf if limit is None else limit)
        rows = _typical(lit[inside], places[inside], num_documents)
        rows = np.flatnonzero(inside)[rows]
    else:
        rows = np.array([], int) if len(documents) == 0 else common.picked(documents, len(corpus), "documents")
    if len(rows) > len(COLOURS):
        raise ValueError(f"{len(rows)} documents are too many to tell apart: show at most {len(COLOURS)}.")

    half = _half_side(places, rows) if limit is None else float(limit)
    outside = rows[np.abs(places[rows]).max(1) > half] if len(rows) else rows
    if len(outside):
        raise ValueError(f"Document {outside[0]} lies outside the square of limit {limit}: widen it, or show another.")
    x = np.linspace(-half, half, resolution)
    grid = np.stack(np.meshgrid(x, x), -1).reshape(-1, 2)  # y varies slowest, as the rows of an image do
    boxes = loadings_at(posterior, mean + grid @ directions)[:, shown].T.reshape(-1, resolution, resolution)

    axes, figure = _layout(len(shown), len(rows))
    _paint(figure, axes[: len(shown)], boxes, half, scale)
    if len(rows):
        _document_plane(axes[-1], places, rows, corpus, half)
        for i, n in enumerate(rows):
            used = np.argsort(-shares[n, shown])[:3]
            _join(axes[-1], [axes[j] for j in used if shares[n, shown[j]] > 0.05], places[n], i)
    words = common.labels(posterior, corpus, num_words, by)
    for ax, box, k in zip(axes, boxes, shown, strict=False):
        _write(ax, box, k, words[k])
    return axes


def _salient(strength: np.ndarray, usage: np.ndarray, num_topics: int) -> np.ndarray:
    """Topics whose use times spread of log strength over documents is largest, neighbours correlated."""
    log_strength = np.log(strength)
    score = usage * log_strength.std(0)
    best = np.argsort(-score, kind="stable")[:num_topics]
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.nan_to_num(np.corrcoef(log_strength[:, best].T.reshape(len(best), -1)).reshape(len(best), -1))
    return best[leaf_order(correlations)]


def _typical(lit: np.ndarray, places: np.ndarray, num_documents: int) -> np.ndarray:
    """Documents that hit most, far from one another; lit is a document's share of a topic times the strength there."""
    score = lit.sum(1) - 0.5 * lit.max(1)  # favours documents that hit several topics
    distance = np.ones(len(lit))
    rows: list[int] = []
    while len(rows) < min(num_documents, len(lit)):
        rows.append(int(np.argmax(score * distance)))
        distance = np.minimum(distance, np.linalg.norm(places - places[rows[-1]], axis=1))
    return np.array(rows, dtype=int)


def _half_side(places: np.ndarray, rows: np.ndarray) -> float:
    """Half the side of the square that holds nearly all documents and all those shown."""
    reach = np.abs(places).max(1)
    return 1.08 * max(float(np.quantile(reach, 0.99)), float(reach[rows].max(initial=0.0)))


def _layout(num_boxes: int, num_documents: int) -> tuple[np.ndarray, Figure]:
    """Axes of the boxes, two inches each, and right of them that of the documents with room for its legend."""
    import matplotlib.pyplot as plt

    columns = 4 if num_boxes > 9 else round(np.sqrt(num_boxes)) if num_documents else min(num_boxes, 3)
    lines = -(-num_boxes // columns)
    widths = [1.0] * columns + ([0.25, 1.6] if num_documents else [])
    plane = 3.4 + 0.2 * (num_documents + 1) if num_documents else 0.0
    width, height = 2.0 * sum(widths) + 0.5, max(2.05 * lines, plane) + 0.95
    right = 1 - (0.7 if num_documents else 0.1) / width
    figure = plt.figure(figsize=(width, height))
    margins = {"left": 0.1 / width, "right": right, "top": 1 - 0.1 / height, "bottom": 0.85 / height}
    grid = figure.add_gridspec(lines, len(widths), width_ratios=widths, wspace=0.06, hspace=0.06, **margins)
    axes = [figure.add_subplot(grid[i // columns, i % columns]) for i in range(num_boxes)]
    if num_documents:
        axes.append(figure.add_subplot(grid[:, -1], anchor="C" if lines > 2 else "S"))  # the legend stands above it
    return np.array(axes, dtype=object), figure


def _paint(figure: Figure, axes: np.ndarray, boxes: np.ndarray, half: float, scale: str) -> None:
    from matplotlib.colors import LogNorm, Normalize

    if scale == "relative":
        boxes, norm = boxes / boxes.max((1, 2), keepdims=True), Normalize(0, 1)
    else:
        top = float(boxes.max())
        norm = LogNorm(max(float(boxes.min()), 1e-4 * top), top)
    for ax, box in zip(axes, boxes, strict=True):
        image = ax.imshow(box, origin="lower", extent=(-half, half, -half, half), cmap="viridis", norm=norm)
        ax.set(xticks=[], yticks=[], xlim=(-half, half), ylim=(-half, half))
    left, right = axes[0].get_position().x0, max(ax.get_position().x1 for ax in axes)
    width, height = figure.get_size_inches()
    bar = figure.add_axes((left + 0.05 * (right - left), 0.6 / height, 0.9 * (right - left), 0.14 / height))
    narrow = (right - left) * width < 5
    label = ("\n" if narrow else " ").join(SCALES[scale])
    figure.colorbar(image, cax=bar, orientation="horizontal").set_label(label, fontsize=8 if narrow else 10)


def _write(ax: Axes, box: np.ndarray, k: int, words: Sequence[str]) -> None:
    """The topic's number and words, in the corner of the box with least paint and no document."""
    size, half = len(box), ax.get_xlim()[1]
    marks = [np.asarray(line.get_xydata())[0] / half for line in ax.lines]
    cost = {}
    for right, top in ((False, False), (True, False), (False, True), (True, True)):
        columns = slice(size // 2, None) if right else slice(0, -(-size // 2))
        lines = slice(size // 2, None) if top else slice(0, -(-size // 2))
        corner = np.array([right, top]) * 2.0 - 1
        near = sum(max(0.0, 1.2 - float(np.abs(mark - corner).max())) for mark in marks)
        cost[right, top] = box[lines, columns].mean() / box.max() + near
    right, top = min(cost, key=lambda corner: cost[corner])
    ax.figure.text(  # of the figure and not of the axes, and opaque: no line to a document crosses the words
        0.97 if right else 0.03,
        0.97 if top else 0.03,
        "\n".join([rf"$\bf{{topic\ {k}}}$", *words]),
        transform=ax.transAxes,
        ha="right" if right else "left",
        va="top" if top else "bottom",
        fontsize=8,
        linespacing=1.15,
        zorder=9,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )


def _document_plane(ax: Axes, places: np.ndarray, rows: np.ndarray, corpus: Corpus, half: float) -> None:
    ax.scatter(
        places[:, 0],
        places[:, 1],
        s=min(max(2000 / len(places), 4), 16),
        color="0.75",
        lw=0,
        zorder=1,
        label=f"all {len(corpus):,} documents",
    )
    for i, n in enumerate(rows):
        ax.plot(*places[n], ls="", **_marker(i), ms=8, label=common.plain(corpus.names[n]), zorder=5)
    ax.set(aspect="equal", xlim=(-half, half), ylim=(-half, half), xlabel="x (first direction)", ylabel="y (second)")
    ax.yaxis.set_ticks_position("right")
    ax.yaxis.set_label_position("right")
    ax.tick_params(labelsize=7)
    ax.locator_params(nbins=5)
    ax.set_zorder(2)  # above the lines to the boxes, so that these do not strike numbers out
    ax.patch.set_visible(False)
    for text in (ax.xaxis.label, *ax.get_xticklabels()):
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0})
    ax.legend(  # to the right, where lines to the boxes do not pass
        loc="lower right", bbox_to_anchor=(1.0, 1.01), fontsize=8, frameon=False, handletextpad=0.3, borderpad=0
    )


def _marker(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i], "marker": common.MARKERS[i], "mec": "black", "mew": 0.8}


def _join(plane: Axes, boxes: Sequence[Axes], place: np.ndarray, i: int) -> None:
    """One marker in each box, and a line to it from the document's place in the plane."""
    from matplotlib.patches import ConnectionPatch
    from matplotlib.patheffects import Normal, Stroke

    x, y = float(place[0]), float(place[1])
    for ax in boxes:
        ax.plot(x, y, ls="", **_marker(i), ms=7, zorder=7)
        line = ConnectionPatch(
            (x, y), (x, y), "data", "data", axesA=plane, axesB=ax, color=COLOURS[i], lw=1.1, shrinkA=4, shrinkB=4
        )
        line.set_path_effects([Stroke(linewidth=1.9, foreground="black"), Normal()])
        plane.figure.add_artist(line)
