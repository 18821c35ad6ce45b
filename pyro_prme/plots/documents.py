"""Pictures of documents: where they lie, and whether words drawn from the fit look like theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from pyro_prme.answers.draws import draw_words, posterior_factors
from pyro_prme.answers.places import svd_plane
from pyro_prme.answers.posterior import Posterior
from pyro_prme.checks import choice, whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.plots import _common as common

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_embeddings", "plot_predictive_check"]


def plot_embeddings(
    posterior: Posterior,
    corpus: Corpus,
    topics: Sequence[int] | None = None,
    *,
    num_topics: int = 6,
    num_words: int = 3,
    by: str = "frex",
    ax: Axes | None = None,
) -> Axes:
    """Documents in the plane of the two leading singular directions of their embeddings h, marked by main topic.

    A document whose main topic is not among those shown is a small grey point. The axes are those of `plot_paintboxes`.

    Args:
        posterior: of a fitted PRME.
        corpus: at least three documents.
        topics: at most six to mark; default the `num_topics` that are the main topic of most documents.
        num_topics: see above.
        num_words: top words in the legend.
        by: how words are ranked, see `Posterior.top_words`.
        ax: axes to draw into.

    Example:
        >>> ax = plot_embeddings(posterior, corpus, num_topics=3)
    """
    common.check(posterior, corpus)
    common.need_random_function(posterior, "Embeddings")
    whole("num_topics", num_topics)
    places = svd_plane(posterior.embeddings(corpus).values)[2]
    main = posterior.proportions(corpus).values.argmax(1)
    if topics is None:
        sizes = np.bincount(main, minlength=posterior.num_topics)
        order = np.argsort(-sizes, kind="stable")
        shown = order[: min(num_topics, 6, int((sizes > 0).sum()))]
    else:
        shown = common.picked(topics, posterior.num_topics, "topics")
        if len(shown) > 6:
            raise ValueError(f"{len(shown)} topics are too many to tell apart: show at most six.")
    words = common.labels(posterior, corpus, num_words, by)
    names = ["\n".join(wrap(f"{k}: {', '.join(words[k])}", 40)) for k in shown]
    ax = common.new_axes(ax, 4.9 + 0.065 * min(max(map(len, names)), 40), 4.4)
    rest = ~np.isin(main, shown)
    if rest.any():
        ax.scatter(places[rest, 0], places[rest, 1], s=5, color="0.8", lw=0, label="other topics", zorder=1)
    size = min(max(7000 / len(places), 20), 40)
    for i, k in enumerate(shown):
        of = main == k
        style: dict[str, Any] = {"color": common.OKABE_ITO[i], "marker": common.MARKERS[i], "label": names[i]}
        ax.scatter(places[of, 0], places[of, 1], s=size, edgecolors="black", linewidths=0.4, zorder=2, **style)
    ax.set(xlabel="x (first singular direction of h)", ylabel="y (second)")
    ax.locator_params(nbins=5)
    ax.legend(
        title="main topic", fontsize=8, title_fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0)
    )
    return ax


def _distinct(counts: scipy.sparse.csr_array) -> np.ndarray:
    return np.diff(counts.indptr)


def _frequency(counts: scipy.sparse.csr_array) -> np.ndarray:
    return np.bincount(counts.indices, minlength=counts.shape[1])


def _totals(counts: scipy.sparse.csr_array) -> np.ndarray:
    return np.asarray(counts.sum(axis=0)).ravel()


#: By name: what is computed from counts (N, D), whether it is one number a document or a word, and its name in words.
STATISTICS: dict[str, tuple[Callable[[scipy.sparse.csr_array], np.ndarray], str, str]] = {
    "distinct_words": (_distinct, "document", "distinct words in a document"),
    "document_frequency": (_frequency, "word", "documents that hold a word"),
    "word_counts": (_totals, "word", "tokens of a word"),
}


def plot_predictive_check(
    posterior: Posterior,
    corpus: Corpus,
    statistic: str = "distinct_words",
    *,
    draws: int = 30,
    seed: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Posterior predictive check: a statistic of the corpus against the same of words drawn from the fit.

    Each draw takes theta and Z from q, and for every document as many words as it has; document lengths are given, not
    modelled. For statistics of documents the picture has their histogram, for statistics of words each word's observed
    value against its draws; bands and bars hold 90% of the draws.

    Args:
        posterior: of a fitted model.
        corpus: documents to compare with.
        statistic: "distinct_words", the number of different words in each document; "document_frequency", the number of
            documents that hold each word (words are bursty where fewer do than drawn); "word_counts", the tokens of
            each word.
        draws: number of corpora drawn.
        seed: of the draws.
        ax: axes to draw into.

    Example:
        >>> ax = plot_predictive_check(posterior, corpus, "document_frequency", draws=20)
    """
    common.check(posterior, corpus)
    choice("statistic", statistic, STATISTICS)
    whole("draws", draws)
    compute, of, name = STATISTICS[statistic]
    rng, factors = np.random.default_rng(seed), posterior_factors(posterior, corpus)
    drawn = np.stack(
        [
            compute(draw_words(corpus.lengths, factors.draw_loadings(rng), factors.draw_topics(rng), rng))
            for _ in range(draws)
        ]
    )  # (draws, N or D)
    ax = common.new_axes(ax)
    (_compare_histograms if of == "document" else _compare_words)(ax, compute(corpus.counts), drawn, name)
    if of == "document":
        ax.legend(fontsize=8, frameon=False)
    else:
        ax.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderpad=0.1)
    return ax


def _compare_histograms(ax: Axes, observed: np.ndarray, drawn: np.ndarray, name: str) -> None:
    low, high = min(observed.min(), drawn.min()), max(observed.max(), drawn.max())
    width = -(-int(high - low + 1) // min(30, max(5, len(observed) // 4)))  # whole, and the same for all bars
    edges = np.arange(low, high + width + 1, width) - 0.5
    counts = np.stack([np.histogram(row, edges)[0] for row in drawn])
    low, high = np.quantile(counts, [0.05, 0.95], axis=0)
    ax.stairs(high, edges, baseline=low, fill=True, color="#56b4e9", alpha=0.5, label="drawn, 90% of draws")
    ax.stairs(counts.mean(0), edges, color="#0072b2", ls="--", lw=1.2, label="drawn, mean")
    ax.stairs(np.histogram(observed, edges)[0], edges, color="black", lw=1.2, label="observed")
    ax.set(xlabel=name, ylabel="documents", ylim=(0, None))


def _compare_words(ax: Axes, observed: np.ndarray, drawn: np.ndarray, name: str) -> None:
    seen = observed > 0
    low, high = np.quantile(drawn[:, seen], [0.05, 0.95], axis=0)
    inside = (observed[seen] >= low) & (observed[seen] <= high)
    ends = (max(0.7, 0.7 * min(observed[seen].min(), low.min())), 1.3 * max(observed.max(), drawn.max()))
    ax.plot(ends, ends, color="0.4", lw=0.8, zorder=3, label="equal")
    ax.vlines(observed[seen], np.maximum(low, ends[0]), np.maximum(high, ends[0]), color="#56b4e9", lw=0.6, alpha=0.5)
    mean = np.maximum(drawn[:, seen].mean(0), ends[0])
    label = f"a word: mean and 90% of the draws, which hold {inside.mean():.0%} of the words"
    ax.scatter(observed[seen], mean, s=5, color="#0072b2", lw=0, zorder=2, label=label)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel=f"{name}, observed", ylabel="drawn")
