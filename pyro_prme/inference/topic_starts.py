"""Where inference starts from. The start decides quality more than anything else: k-means is the default."""

from __future__ import annotations

import warnings
from typing import NamedTuple, Protocol

import numpy as np
import torch
from scipy import sparse
from sklearn.cluster import kmeans_plusplus
from torch import Tensor

from pyro_prme.checks import choice

__all__ = ["STARTS", "Start", "Table", "document_start", "kmeans_start", "random_start", "start_table"]

_TOKENS_A_DOCUMENT = 10.0  # weight of a seed in gamma, times the documents a topic has on average

_SAMPLE = 10_000  # documents that k-means looks at
_SEEDING = 3000  # documents among which k-means++ looks for its first centres


class Start(NamedTuple):
    """First guesses of the topics, largest first."""

    centres: np.ndarray  # (K, D), rows that sum to one
    shares: np.ndarray  # (K,), of the documents


def _rows_normalised(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    counts = sparse.csr_matrix(counts, dtype=np.float32)
    lengths = np.asarray(counts.sum(1)).ravel()
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(lengths, 1)) @ counts, dtype=np.float32)


def _check(counts: sparse.csr_matrix, num_topics: int, what: str) -> None:
    documents = int((np.diff(counts.indptr) > 0).sum())
    if documents < num_topics:
        raise ValueError(
            f"{num_topics} topics and {documents} documents with words: {what} needs at least as many documents."
        )


def kmeans_start(counts: sparse.csr_matrix, num_topics: int, rng: np.random.Generator) -> Start:
    """Centres of k-means on the square roots of the normalised counts, largest cluster first.

    A large corpus, or a stream, is represented by a sample of its documents.
    """
    _check(counts, num_topics, "a k-means start")
    if counts.shape[0] > _SAMPLE:
        counts = counts[np.sort(rng.choice(counts.shape[0], _SAMPLE, replace=False))]
    counts = counts[np.diff(counts.indptr) > 0]
    frequencies = _rows_normalised(counts)
    labels = _lloyd(frequencies.sqrt(), num_topics, rng)
    sizes = np.bincount(labels, minlength=num_topics)
    centres = (_members(labels, num_topics) @ frequencies).toarray().astype(np.float64)
    centres[sizes == 0] = np.asarray(frequencies.mean(0)).ravel()
    centres /= centres.sum(1, keepdims=True)
    order = np.argsort(-sizes, kind="stable")
    return Start(centres[order], sizes[order] / sizes.sum())


def _members(labels: np.ndarray, num_clusters: int) -> sparse.csr_matrix:
    """Clusters x points, one where the point belongs to the cluster."""
    ones = np.ones(len(labels), np.float32)
    return sparse.csr_matrix((ones, (labels, np.arange(len(labels)))), (num_clusters, len(labels)))


def _lloyd(points: sparse.csr_matrix, num_clusters: int, rng: np.random.Generator, iterations: int = 20) -> np.ndarray:
    """Clusters of sparse points by Lloyd's algorithm from k-means++ on a sample of them; a label for each point.

    scikit-learn's `KMeans` reads a row of centres for every entry of a sparse point; as a product with word-major
    centres the same step takes a third of the time (20 Newsgroups, 100 clusters).
    """
    sample = points[np.sort(rng.permutation(points.shape[0])[: max(_SEEDING, 4 * num_clusters)])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # fewer distinct documents than clusters
        centres, _ = kmeans_plusplus(sample, num_clusters, random_state=int(rng.integers(2**31)))
    centres = np.asarray(centres.todense() if sparse.issparse(centres) else centres)
    labels = np.full(points.shape[0], -1)
    for _ in range(iterations):
        scores = points @ np.ascontiguousarray(centres.T) - (centres**2).sum(1) / 2
        before, labels = labels, scores.argmax(1)
        if (labels != before).mean() < 1e-3:
            break
        members = _members(labels, num_clusters)
        sizes = np.bincount(labels, minlength=num_clusters)
        means = (members @ points).toarray() / np.maximum(sizes, 1)[:, None].astype(np.float32)
        centres = np.where(sizes[:, None] > 0, means, centres)  # an empty cluster stays where it is
    return labels


def document_start(counts: sparse.csr_matrix, num_topics: int, rng: np.random.Generator) -> Start:
    """Each topic is the mean of ten random documents (fewer where the corpus has fewer)."""
    _check(counts, num_topics, "a start from documents")
    rows = np.flatnonzero(np.diff(counts.indptr))
    each = max(1, min(10, len(rows) // num_topics))
    chosen = rng.choice(rows, num_topics * each, replace=False)
    frequencies = _rows_normalised(counts[chosen])
    member = sparse.csr_matrix(
        (np.full(len(chosen), 1 / each, np.float32), (np.arange(len(chosen)) // each, np.arange(len(chosen))))
    )
    return Start((member @ frequencies).toarray(), np.full(num_topics, 1 / num_topics))


def random_start(counts: sparse.csr_matrix, num_topics: int, rng: np.random.Generator) -> Start:
    """Topics drawn at random around the corpus's word frequencies."""
    frequencies = np.asarray(counts.sum(0), dtype=np.float64).ravel()
    centres = rng.gamma(1.0, size=(num_topics, counts.shape[1])) * (frequencies + 1 / counts.shape[1])
    return Start(centres / centres.sum(1, keepdims=True), np.full(num_topics, 1 / num_topics))


#: By name, what finds the topics that a fit starts from.
STARTS = {"kmeans": kmeans_start, "documents": document_start, "random": random_start}


class Table(Protocol):
    """Factors of topics, or of what stands for them, that can begin round centres."""

    @property
    def table_shape(self) -> tuple[int, int]:
        """D and K."""
        ...

    def begin_from(self, centres: Tensor, weight: float, noise: Tensor) -> None:
        """Topics round centres (K, D), each worth so many tokens, with noise (K, D) in tokens."""
        ...


def start_table(table: Table, counts: sparse.csr_matrix, start: str, rng: np.random.Generator) -> Start:
    """Puts topics round the centres of a start, which it returns: 10 (N / K) tokens each, and Gamma(1, 0.1) noise.

    Args:
        table: of the topics.
        counts: documents x words, all of the corpus or a sample of it.
        start: a key of `STARTS`; "default" is k-means.
        rng: decides the start.
    """
    name = choice("start", "kmeans" if start == "default" else start, STARTS)
    num_words, num_topics = table.table_shape
    if counts.shape[1] != num_words:
        raise ValueError(f"The corpus has {counts.shape[1]} words and the model {num_words}: build it for this corpus.")
    found = STARTS[name](counts, num_topics, rng)
    weight = _TOKENS_A_DOCUMENT * counts.shape[0] / num_topics
    noise = rng.gamma(1.0, 0.1, size=(num_words, num_topics))
    table.begin_from(torch.as_tensor(found.centres), weight, torch.as_tensor(noise.T))
    return found
