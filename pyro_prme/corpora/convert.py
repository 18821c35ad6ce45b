"""Counts in the shapes other libraries use (gensim, pandas, AnnData, CountVectorizer): behind ``Corpus.from_*``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

__all__ = ["Parts", "anndata_parts", "frame_parts", "gensim_parts", "ordered_words"]


class Parts(NamedTuple):
    """What a ``Corpus`` is made of, not yet checked."""

    counts: Any
    vocabulary: Sequence[str]
    names: Sequence[str]


def ordered_words(vocabulary: Iterable[str] | Mapping[str, int]) -> list[str]:
    """The words in column order; a mapping from word to column (``CountVectorizer.vocabulary_``) is turned round."""
    if not isinstance(vocabulary, Mapping):
        return list(vocabulary)
    columns = sorted(vocabulary.values())
    if columns != list(range(len(columns))):
        raise ValueError("The vocabulary does not map its words to the columns 0, 1, 2, ...: give a list of words.")
    return sorted(vocabulary, key=vocabulary.__getitem__)


def gensim_parts(documents: Iterable[Iterable[tuple[int, float]]], id2word: Any) -> Parts:
    """Counts from lists of (id, count) and a gensim ``Dictionary``, a dict from id to word, or a list of words."""
    try:
        vocabulary = [id2word[d] for d in range(len(id2word))]
    except (KeyError, IndexError) as error:
        raise ValueError(
            f"id2word has no word for id {error}: ids must run from 0 without gaps (compactify)."
        ) from None
    rows: list[int] = []
    columns: list[int] = []
    counts: list[float] = []
    total = 0
    for n, document in enumerate(documents):
        total = n + 1
        for entry in document:
            try:
                d, count = entry
                known = d == int(d) and 0 <= d < len(vocabulary)
            except (TypeError, ValueError, OverflowError):
                raise ValueError(f"Document {n} holds {entry!r} where a pair (id, count) is needed.") from None
            if not known:
                raise ValueError(f"Document {n} has word id {d}, but id2word has the ids 0 to {len(vocabulary) - 1}.")
            rows.append(n)
            columns.append(int(d))
            counts.append(count)
    matrix = scipy.sparse.coo_array((np.asarray(counts), (rows, columns)), shape=(total, len(vocabulary)))
    return Parts(matrix, vocabulary, ())


def frame_parts(frame: Any, document: str | None, word: str | None, count: str | None) -> Parts:
    """Counts from a pandas frame, documents x words, or long with a column for the document and one for the word."""
    import pandas as pd

    if (document is None) != (word is None) or (count is not None and word is None):
        raise ValueError("A long frame needs the names of both its document and its word column.")
    if document is None or word is None:
        sparse = bool(len(frame.columns)) and all(isinstance(kind, pd.SparseDtype) for kind in frame.dtypes)
        counts = frame.sparse.to_coo() if sparse else frame.to_numpy()
        return Parts(counts, [str(w) for w in frame.columns], [str(n) for n in frame.index])
    for column in filter(None, (document, word, count)):
        if column not in frame.columns:
            raise ValueError(f"The frame has no column {column!r}: its columns are {list(frame.columns)}.")
    for column in (document, word):
        missing = np.flatnonzero(frame[column].isna())
        if missing.size:
            raise ValueError(f"Row {missing[0]} of the frame has no {column}: fill it in or drop the row.")
    rows, names = pd.factorize(frame[document].astype(str))
    columns, words = pd.factorize(frame[word].astype(str), sort=True)
    values = np.ones(len(frame)) if count is None else frame[count].to_numpy()
    matrix = scipy.sparse.coo_array((values, (rows, columns)), shape=(len(names), len(words)))
    return Parts(matrix, list(words), list(names))


def anndata_parts(data: Any) -> Parts:
    """Counts from anything with AnnData's ``X``, ``var_names`` and ``obs_names``."""
    if getattr(data, "X", None) is None:
        raise ValueError("The AnnData object has no X: put the raw counts there.")
    return Parts(data.X, [str(w) for w in data.var_names], [str(n) for n in data.obs_names])
