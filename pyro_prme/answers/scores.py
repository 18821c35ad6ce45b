"""Scores of any topic model from plain arrays: open this to compare models by perplexity, coherence or diversity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from pyro_prme.checks import whole
from pyro_prme.corpora.corpus import Corpus

__all__ = [
    "completion_perplexity",
    "log_predictive",
    "npmi_coherence",
    "perplexity_of",
    "probabilities",
    "topic_diversity",
]

_BLOCK = 1 << 21  # numbers held at a time when topics and documents are multiplied entry by entry


def completion_perplexity(doc_topic: Any, topic_word: Any, held_out: Corpus | Any) -> float:
    r"""Document-completion perplexity (eq. perplexity), lower is better.

    .. math::
        \exp\Big(-\frac{\sum_n \sum_d x_{nd} \ln \sum_k \pi_{nk} \theta_{kd}}{\sum_n \sum_d x_{nd}}\Big)

    with x the held-out counts, pi the rows of ``doc_topic`` and theta those of ``topic_word``, each divided by its sum.
    It is infinite if a held-out token has probability zero. ``Corpus.split_tokens`` makes the held-out counts;
    ``doc_topic`` must come from the observed ones.

    Differs from the paper: its equation is written for one document; here the mean runs over all held-out tokens of all
    documents.

    Args:
        doc_topic: weights of the topics in each document, shape (N, K).
        topic_word: weights of the words in each topic, shape (K, D).
        held_out: counts to predict, a corpus or matrix, shape (N, D).
    """
    counts = _counts(held_out)
    return perplexity_of(log_predictive(doc_topic, topic_word, counts).sum() if counts.nnz else 0.0, counts.sum())


def perplexity_of(log_probability: float, tokens: float) -> float:
    """The perplexity of so many tokens that together have this log probability."""
    if tokens == 0:
        raise ValueError("There are no held-out tokens to score: split the documents with Corpus.split_tokens.")
    with np.errstate(over="ignore"):
        return float(np.exp(-log_probability / tokens))


def log_predictive(doc_topic: Any, topic_word: Any, held_out: Corpus | Any) -> np.ndarray:
    r"""Log probability of the held-out tokens of each document.

    .. math::
        \sum_d x_{nd} \ln \sum_k \pi_{nk} \theta_{kd}

    Args:
        doc_topic: weights of the topics in each document, shape (N, K); rows are normalised here.
        topic_word: weights of the words in each topic, shape (K, D); rows are normalised here.
        held_out: counts to predict, a corpus or matrix, shape (N, D).

    Returns:
        Sums over each document's tokens, shape (N,); 0 for a document without any, minus infinity where a token has
        probability zero.
    """
    counts = _counts(held_out)
    probability = probabilities(doc_topic, topic_word, counts)
    with np.errstate(divide="ignore"):
        terms = counts.data * np.log(probability)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    return np.bincount(rows, weights=terms, minlength=counts.shape[0])


def probabilities(doc_topic: Any, topic_word: Any, counts: scipy.sparse.csr_array) -> np.ndarray:
    r"""Probability of each entry's word in its document, :math:`\sum_k \pi_{nk} \theta_{kd}`, shape (entries,).

    Args:
        doc_topic: weights of the topics in each document, shape (N, K); rows are normalised here.
        topic_word: weights of the words in each topic, shape (K, D); rows are normalised here.
        counts: where the words are, shape (N, D).
    """
    proportions = _normalised(doc_topic, "doc_topic", "document")
    topics = _normalised(topic_word, "topic_word", "topic")
    expected = (counts.shape[0], topics.shape[0])
    if proportions.shape != expected or topics.shape[1] != counts.shape[1]:
        raise ValueError(
            f"doc_topic has shape {proportions.shape}, topic_word {topics.shape} and held_out {counts.shape}: "
            "they must be (N, K), (K, D) and (N, D)."
        )
    by_word = np.ascontiguousarray(topics.T)  # (D, K)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    probability = np.empty(counts.nnz)
    step = max(1, _BLOCK // topics.shape[0])
    for start in range(0, counts.nnz, step):
        part = slice(start, start + step)
        probability[part] = np.einsum("ek,ek->e", proportions[rows[part]], by_word[counts.indices[part]])
    return probability


def npmi_coherence(topics: Any, corpus: Corpus, top: int = 10) -> np.ndarray:
    r"""Coherence of each topic: mean normalised pointwise mutual information of the pairs of its top words.

    .. math::
        \mathrm{NPMI}(i, j) = \ln\frac{p(i, j)}{p(i) p(j)} \Big/ {-\ln p(i, j)}

    with p(i) the fraction of the corpus's documents that hold word i, and p(i, j) of those that hold both. A pair never
    seen together has -1; a pair in every document has 1, the limit.

    Args:
        topics: weights of the words in each topic, shape (K, D), or K lists of words.
        corpus: where to count; of the topics' vocabulary, if weights are given.
        top: number of words of each topic to look at.

    Returns:
        Shape (K,), between -1 and 1; take the mean for one number.
    """
    whole("top", top, 2)
    tops = _ids_of_words(topics, corpus, top) if _are_words(topics) else _top_ids(topics, top, corpus.vocab_size)
    words, place = np.unique(tops, return_inverse=True)
    seen = (corpus.counts[:, words] > 0).astype(np.int64)
    together = (seen.T @ seen).toarray() / corpus.num_documents  # (words, words): p(i, j), and p(i) on the diagonal
    single = np.diagonal(together)
    with np.errstate(divide="ignore", invalid="ignore"):
        npmi = np.log(together / np.outer(single, single)) / -np.log(together)
    npmi[together == 0] = -1.0
    npmi[together == 1] = 1.0
    first, second = np.triu_indices(top, 1)
    place = place.reshape(tops.shape)
    return npmi[place[:, first], place[:, second]].mean(axis=1)


def topic_diversity(topic_word: Any, top: int = 25) -> float:
    r"""Fraction of different words among the top words of all topics; 1 if no two topics share one.

    .. math::
        \big|\cup_k T_k\big| \,/\, (K \cdot \mathrm{top})

    with T_k the ``top`` words of topic k.

    Args:
        topic_word: weights of the words in each topic, shape (K, D).
        top: number of words of each topic to look at.
    """
    tops = _top_ids(topic_word, top, None)
    return np.unique(tops).size / tops.size


def _counts(held_out: Corpus | Any) -> scipy.sparse.csr_array:
    """Checked counts of a corpus or of a bare matrix."""
    if isinstance(held_out, Corpus):
        return held_out.counts
    matrix = held_out if scipy.sparse.issparse(held_out) else np.asarray(held_out)
    if matrix.ndim != 2:
        raise ValueError(f"held_out has {matrix.ndim} dimensions, and two are needed: documents x words.")
    return Corpus(matrix, tuple(str(d) for d in range(matrix.shape[1]))).counts


def _weights(array: Any, what: str) -> np.ndarray:
    """A float64 matrix of finite weights of zero or more."""
    try:
        weights = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} is not an array of numbers: give a dense array.") from None
    if weights.ndim != 2 or weights.size == 0:
        raise ValueError(f"{what} has shape {weights.shape}, and a matrix with two dimensions is needed.")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"{what}[{row}, {column}] is {weights[row, column]}: weights must be finite and not negative.")
    return weights


def _normalised(array: Any, what: str, row_is: str) -> np.ndarray:
    weights = _weights(array, what)
    largest = weights.max(axis=1, keepdims=True)
    if not largest.all():
        raise ValueError(f"{what} is zero for {row_is} {int(np.argmin(largest))}: a row of weights must have a sum.")
    weights = weights / largest
    return weights / weights.sum(axis=1, keepdims=True)


def _top_ids(topic_word: Any, top: int, vocab_size: int | None) -> np.ndarray:
    """Ids of the ``top`` heaviest words of each topic, shape (K, top); the lower id wins a tie."""
    weights = _weights(topic_word, "topic_word")
    if vocab_size is not None and weights.shape[1] != vocab_size:
        raise ValueError(
            f"topic_word has {weights.shape[1]} columns and the corpus {vocab_size} words: they must agree."
        )
    whole("top", top, 1, weights.shape[1])
    return np.argsort(-weights, axis=1, kind="stable")[:, :top]


def _are_words(topics: Any) -> bool:
    return not isinstance(topics, np.ndarray) and len(topics) > 0 and all(isinstance(w, str) for t in topics for w in t)


def _ids_of_words(topics: Sequence[Sequence[str]], corpus: Corpus, top: int) -> np.ndarray:
    """Ids of the first ``top`` words of each list, shape (K, top)."""
    column = {word: d for d, word in enumerate(corpus.vocabulary)}
    for k, words in enumerate(topics):
        if len(words) < top:
            raise ValueError(f"Topic {k} has {len(words)} words and top is {top}: give more words or a smaller top.")
        unknown = [word for word in words[:top] if word not in column]
        if unknown:
            raise ValueError(f"Topic {k} has the word {unknown[0]!r}, which is not in the corpus: align the two.")
    return np.array([[column[word] for word in words[:top]] for words in topics])
