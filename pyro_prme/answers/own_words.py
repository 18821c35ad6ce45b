"""Scores by kind of word: those that a document has used before, and those that are new to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from pyro_prme.answers.scores import probabilities
from pyro_prme.corpora.splits import TokenSplit
from pyro_prme.equations.restaurant import next_word

__all__ = ["Layer", "TokenPerplexities", "token_perplexities"]


class TokenPerplexities(NamedTuple):
    """Perplexity of held-out words, of all and of two kinds; NaN where there are none."""

    all: float
    repeated: float  # words that occur in the observed part of their document
    new: float  # the others
    repeated_share: float  # of the held-out tokens


class Layer(NamedTuple):
    """The layer of repeated words, for observed counts.

    Args:
        tables: of each entry of the observed counts, in their order.
        concentration: c.
        discount: d.
    """

    tables: np.ndarray
    concentration: float
    discount: float


def token_perplexities(
    doc_topic: np.ndarray, topic_word: np.ndarray, split: TokenSplit, layer: Layer | None = None
) -> TokenPerplexities:
    """Document-completion perplexity by kind of word.

    Args:
        doc_topic: weights of the topics in each document, from the observed words, shape (N, K).
        topic_word: weights of the words in each topic, shape (K, D).
        split: observed and held-out words.
        layer: that predicts words from topics and from what the document has used; None for topics alone.
    """
    observed, held = sparse.csr_matrix(split.observed.counts), sparse.csr_matrix(split.held_out.counts)
    base = probabilities(doc_topic, topic_word, split.held_out.counts)
    rows = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    count = np.asarray(observed[rows, held.indices], dtype=float).ravel()
    if layer is not None:
        of_word = sparse.csr_matrix((layer.tables, observed.indices, observed.indptr), observed.shape)
        tables = np.asarray(of_word[rows, held.indices], dtype=float).ravel()
        total, total_tables = (np.asarray(x.sum(1), dtype=float).ravel()[rows] for x in (observed, of_word))
        base = next_word(count, tables, total, total_tables, base, layer.concentration, layer.discount)
    with np.errstate(divide="ignore"):
        log_p = np.log(base)
    again, tokens = count > 0, held.data.astype(float)

    def of(kind: np.ndarray) -> float:
        number = tokens[kind].sum()
        with np.errstate(over="ignore"):
            return float(np.exp(-(tokens[kind] * log_p[kind]).sum() / number)) if number else float("nan")

    share = float(tokens[again].sum() / tokens.sum())
    return TokenPerplexities(of(np.ones_like(again)), of(again), of(~again), share)
