"""What an explorer page knows, as plain arrays: open this to see where a number on the page comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from pyro_prme.answers.places import leaf_order, loadings_at, svd_plane
from pyro_prme.answers.posterior import Posterior
from pyro_prme.answers.words_of_topics import frex
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.models.prme import ShapePRME

__all__ = ["PageData", "page_data"]

_TEXT = 20_000  # characters of a text that are kept
_RESOLUTION = 40  # points along a side of a paintbox; the page interpolates between them


@dataclass(frozen=True, eq=False)
class PageData:
    """The content of an explorer page: T topics in use, W words, N documents.

    Args:
        title: of the page.
        model: one sentence about the model.
        topic_numbers: the model's numbers of the topics, largest usage first, shape (T,).
        num_topics: K, the truncation level.
        usage: each topic's share of the training tokens, shape (T,).
        topics: E theta over the words of the page, shape (T, W).
        labels: numbers of the four words of the page that stand first in each topic by FREX, shape (T, 4).
        correlations: of the topics over the documents of the page, shape (T, T).
        correlation_kind: see `Posterior.topic_correlations`.
        order: positions of topics such that neighbours correlate, shape (T,).
        vocabulary: W words.
        all_words: D, the size of the whole vocabulary.
        rows: numbers of the documents in the corpus, shape (N,).
        all_documents: number of documents of the corpus.
        names: N names of documents.
        lengths: tokens of each document, words left out included, shape (N,).
        counts: shape (N, W).
        texts: N texts of the documents, for reading; None shows their words one by one.
        proportions: shape (N, T).
        coordinates: places of the documents in the plane, shape (N, 2).
        half: half the side of the square of the plane that the map shows.
        loadings: E[Z] over the square before any word is seen, shape (T, R, R), y in the rows; None for a model
            without a random function of places.
        weights: beta p_k where f is in the scale of the loadings, shape (T,); None where it is in the shape, and for a
            model without f.
    """

    title: str
    model: str
    topic_numbers: np.ndarray
    num_topics: int
    usage: np.ndarray
    topics: np.ndarray
    labels: np.ndarray
    correlations: np.ndarray
    correlation_kind: str
    order: np.ndarray
    vocabulary: tuple[str, ...]
    all_words: int
    rows: np.ndarray
    all_documents: int
    names: tuple[str, ...]
    lengths: np.ndarray
    counts: scipy.sparse.csr_array
    texts: tuple[str, ...] | None
    proportions: np.ndarray
    coordinates: np.ndarray
    half: float
    loadings: np.ndarray | None
    weights: np.ndarray | None


def page_data(
    posterior: Posterior,
    corpus: Corpus,
    *,
    title: str = "Topics",
    texts: Sequence[str] | None = None,
    max_words: int = 30_000,
    max_entries: int | None = None,
    seed: int = 0,
) -> PageData:
    """Asks a posterior for all that a page shows.

    Args:
        posterior: of any fitted topic model.
        corpus: at least three documents of the model's vocabulary.
        title: of the page.
        texts: one for each document, if they are to be read on the page; the first 20,000 characters of each are kept.
        max_words: words of the page, those with most tokens; of larger vocabularies the rest is left out.
        max_entries: pairs of a document and one of its words that the page may hold. A larger corpus is sampled, and
            the page says so.
        seed: of that sample.
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior is a {type(posterior).__name__}: give a Posterior of a fitted model.")
    if not isinstance(corpus, Corpus):
        raise ValueError(f"corpus is a {type(corpus).__name__}: give a Corpus, whose words and names the page shows.")
    if texts is not None and (isinstance(texts, str) or len(texts) != len(corpus)):
        raise ValueError(
            f"There are {len(texts)} texts for {len(corpus)} documents: give one for each, in their order."
        )
    rows = _sample(corpus, max_entries, seed)
    part = corpus if len(rows) == len(corpus) else corpus[rows]
    if len(part) < 3:
        raise ValueError(f"The page would have {len(part)} documents: a map needs at least three.")
    used = np.argsort(-posterior.usage().values, kind="stable")[: posterior.num_topics_used]
    words = _words(corpus, max_words)
    shares = posterior.proportions(part).values  # (N, K)
    has_places = {"places", "embedding"} <= set(getattr(posterior.model, "roles", {}))
    topics, usage = posterior.topics().values[np.ix_(used, words)], posterior.usage().values[used]
    found = posterior.topic_correlations(part)
    kind, correlations = str(found.attrs["kind"]), found.values[np.ix_(used, used)]
    coordinates, half, loadings, weights = _map(posterior, part, shares, used, has_places)
    return PageData(
        title=title,
        model=_sentence(posterior),
        topic_numbers=used,
        num_topics=shares.shape[1],
        usage=usage,
        topics=topics,
        labels=np.argsort(-frex(topics, usage), axis=1, kind="stable")[:, :4],
        correlations=correlations,
        correlation_kind=kind,
        order=leaf_order(correlations),
        vocabulary=tuple(corpus.vocabulary[d] for d in words),
        all_words=corpus.vocab_size,
        rows=rows,
        all_documents=len(corpus),
        names=tuple(part.names),
        lengths=np.asarray(part.lengths),
        counts=part.counts[:, words],
        texts=None if texts is None else tuple(str(texts[n])[:_TEXT] for n in rows),
        proportions=shares[:, used],
        coordinates=coordinates,
        half=half,
        loadings=loadings,
        weights=weights,
    )


def _map(
    posterior: Posterior, corpus: Corpus, shares: np.ndarray, used: np.ndarray, has_places: bool
) -> tuple[np.ndarray, float, np.ndarray | None, np.ndarray | None]:
    """Coordinates, half the side, loadings over the square, and weights, as `PageData` has them."""
    if not has_places:
        roots = np.sqrt(shares)
        coordinates = svd_plane(roots)[2]
        return coordinates, _half_side(coordinates), None, None
    h = posterior.embeddings(corpus).values
    mean, directions, coordinates = svd_plane(h)
    half = _half_side(coordinates)
    side = np.linspace(-half, half, _RESOLUTION)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)  # y varies slowest
    painted = loadings_at(posterior, mean + grid @ directions)[:, used]
    loadings = painted.T.reshape(-1, _RESOLUTION, _RESOLUTION)
    if isinstance(posterior.model, ShapePRME):
        return coordinates, half, loadings, None
    some = corpus[: min(len(corpus), 200)]
    f = posterior.random_function(some).values
    weights = (loadings_at(posterior, posterior.embeddings(some).values) / np.exp(f)).mean(0)[used]
    return coordinates, half, loadings, weights


def _half_side(coordinates: np.ndarray) -> float:
    """Half the side of the square that holds 99% of the documents and a margin."""
    return 1.08 * max(float(np.quantile(np.abs(coordinates).max(1), 0.99)), 1e-12)


def _sample(corpus: Corpus, max_entries: int | None, seed: int) -> np.ndarray:
    """Rows of documents, drawn without replacement if their entries were too many; in order."""
    if max_entries is None or corpus.nnz <= max_entries:
        return np.arange(len(corpus))
    order = np.random.default_rng(seed).permutation(len(corpus))
    entries = np.diff(corpus.counts.indptr)[order].cumsum()
    return np.sort(order[: max(3, int(np.searchsorted(entries, max_entries, side="right")))])


def _words(corpus: Corpus, most: int) -> np.ndarray:
    """Columns of the words with most tokens, in the vocabulary's order."""
    tokens = np.asarray(corpus.counts.sum(axis=0, dtype=np.int64)).ravel()
    return np.sort(np.argsort(-tokens, kind="stable")[:most])


def _sentence(posterior: Posterior) -> str:
    model = posterior.model
    name = type(model).__name__
    if isinstance(model, ShapePRME):
        return "PRME with its random function in the shape of the loadings (the paper has it in the scale)"
    return {"PRME": "PRME with its random function in the scale of the loadings, as in the paper"}.get(name, name)
