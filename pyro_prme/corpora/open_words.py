"""Words that were not known when a stream began: open this to give them columns that were kept free."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import scipy.sparse

from pyro_prme.checks import whole
from pyro_prme.corpora.corpus import Corpus

__all__ = ["OpenWords"]

_NAMED = 5  # words of a spare column that are remembered


class OpenWords:
    """A vocabulary with columns to spare: a word that it does not have goes to one of them, always the same.

    Several new words may share a column, by their hash, so that their counts are added: give about as many columns as
    you expect new words of weight.

    Args:
        words: known up front.
        spare: columns for all others.
    """

    def __init__(self, words: Sequence[str], spare: int) -> None:
        self.words, self.spare = tuple(words), whole("spare", spare)
        self._column = {word: d for d, word in enumerate(self.words)}
        #: By spare column, the first few words that were put there.
        self.found: dict[int, list[str]] = {}

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The known words and, for each spare column, a name."""
        return (*self.words, *(f"(new word {i})" for i in range(self.spare)))

    def column(self, word: str) -> int:
        """The column of a word."""
        known = self._column.get(word)
        return len(self.words) + zlib.crc32(word.encode()) % self.spare if known is None else known

    def align(self, corpus: Corpus) -> Corpus:
        """The same documents over `vocabulary`."""
        columns = np.array([self.column(word) for word in corpus.vocabulary])
        for word, d in zip(corpus.vocabulary, columns.tolist(), strict=True):
            names = self.found.setdefault(d - len(self.words), []) if d >= len(self.words) else None
            if names is not None and word not in names and len(names) < _NAMED:
                names.append(word)
        counts = scipy.sparse.csr_array(
            (corpus.counts.data, columns[corpus.counts.indices], corpus.counts.indptr),
            shape=(len(corpus), len(self.words) + self.spare),
        )
        return Corpus(counts, self.vocabulary, tuple(corpus.names))
