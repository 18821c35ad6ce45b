"""Generated corpora with the statistics of natural language, for benchmarks that need a corpus of any size."""

from __future__ import annotations

import numpy as np
from scipy import sparse

OFFSET = 30.0  # of the law below: about that of 20 Newsgroups without stop words
SPREAD = 0.9  # standard deviation of the log-lengths, likewise
SPARSITY = 0.3  # shape of the Gamma noise that tells a topic from the corpus: the smaller, the fewer words it has
PROPORTIONS = 0.05  # Dirichlet parameter of a document's topics
BURSTINESS = 0.35  # share of the tokens that repeat an earlier one of their document


def zipf_mandelbrot(vocab_size: int, offset: float = OFFSET, exponent: float = 1.0) -> np.ndarray:
    """Probabilities of words by rank r = 1, 2, ..., proportional to (r + offset)^-exponent, shape (D,)."""
    law = (np.arange(1, vocab_size + 1) + offset) ** -exponent
    return law / law.sum()


def lognormal_lengths(
    num_documents: int, tokens: float, rng: np.random.Generator, spread: float = SPREAD
) -> np.ndarray:
    """Document lengths of at least one, log-normal with the given mean, shape (N,)."""
    lengths = np.exp(rng.normal(np.log(tokens) - spread**2 / 2, spread, num_documents))
    return np.maximum(lengths.round().astype(np.int64), 1)


def natural_corpus(
    num_documents: int, vocab_size: int, tokens: float = 130.0, *, num_topics: int = 50, seed: int = 0
) -> sparse.csr_matrix:
    """Documents of planted topics whose words together follow the Zipf-Mandelbrot law.

    A topic is the law times Gamma noise, so that topics differ and their mean is the law. A document draws a length,
    proportions of topics and then its words, of which some repeat an earlier one: without that, documents of 130 tokens
    had 117 distinct words, and in 20 Newsgroups they have 89. Words are numbered at random, as by an alphabet.

    Args:
        num_documents: N.
        vocab_size: D.
        tokens: mean length of a document.
        num_topics: planted, and no matter of the K that a model is given.
        seed: decides all.

    Returns:
        Counts, shape (N, D), float32 with sorted indices.
    """
    rng = np.random.default_rng(seed)
    law, name = zipf_mandelbrot(vocab_size), rng.permutation(vocab_size)
    lengths = lognormal_lengths(num_documents, tokens, rng)
    proportions = rng.gamma(PROPORTIONS, size=(num_documents, num_topics)) + 1e-12
    proportions /= proportions.sum(1, keepdims=True)
    split = rng.multinomial(lengths, proportions)  # (N, planted topics)
    words = np.empty(lengths.sum(), np.int64)
    planted = np.repeat(np.tile(np.arange(num_topics), num_documents), split.ravel())  # topic of each token
    for k in range(num_topics):
        topic = (law * rng.gamma(SPARSITY, size=vocab_size)).cumsum()
        here = planted == k
        drawn = topic.searchsorted(rng.uniform(0, topic[-1], here.sum()), side="right")
        words[here] = name[np.minimum(drawn, vocab_size - 1)]
    indptr = np.concatenate([[0], lengths.cumsum()])
    first = np.repeat(indptr[:-1], lengths)
    earlier = first + (rng.uniform(size=len(words)) * (np.arange(len(words)) - first)).astype(np.int64)
    words = np.where(rng.uniform(size=len(words)) < BURSTINESS, words[earlier], words)
    ones = np.ones(len(words), np.float32)
    counts = sparse.csr_matrix((ones, words.astype(np.int32), indptr.astype(np.int32)), (num_documents, vocab_size))
    counts.sum_duplicates()
    return counts
