"""What a model and a guide are called with: some documents of a corpus as flat (word, count) entries."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pyro_prme.corpora.counts import sound_csr

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """Documents laid end to end, row by row of a CSR matrix.

    Args:
        documents: the documents' positions in the corpus, shape (B,).
        indptr: entries of document n are indptr[n] to indptr[n + 1], shape (B + 1,).
        word: word ids, shape (E,); None when the words are to be drawn by the model.
        count: how often, shape (E,). Token-level documents have one entry a token, each with count 1.
        seen: how many of the count an inference network sees while it learns, shape (E,); None to let it choose.
        times: how often each word occurs, where the count is something else, such as once a word; shape (E,).
    """

    documents: Tensor
    indptr: Tensor
    word: Tensor | None
    count: Tensor
    seen: Tensor | None = field(default=None, kw_only=True)
    times: Tensor | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        indptr, count = self.indptr, self.count
        if not indptr.numel() or bool((indptr[1:] < indptr[:-1]).any()):
            raise ValueError("indptr must hold at least one number, and must not fall: it says where documents begin.")
        if indptr.numel() != self.documents.numel() + 1 or int(indptr[0]) != 0 or int(indptr[-1]) != count.numel():
            raise ValueError(
                f"indptr has {indptr.numel()} entries from {int(indptr[0])} to {int(indptr[-1])}: it must have one "
                f"more than the {self.documents.numel()} documents and run from 0 to the {count.numel()} counts."
            )
        if self.word is not None and self.word.shape != count.shape:
            raise ValueError(f"word has {self.word.numel()} entries and count {count.numel()}: give one count a word.")
        wrong = ~(torch.isfinite(count) & (count >= 0) & (count == count.round()))
        if wrong.any():
            entry = int(wrong.nonzero()[0])
            raise ValueError(
                f"Count {float(count[entry])} in document {int(self.documents[self.document[entry]])}, entry {entry}: "
                "counts must be whole numbers of at least 0."
            )
        if self.word is not None and self.word.numel() and int(self.word.min()) < 0:
            raise ValueError(f"Word id {int(self.word.min())}: word ids must be at least 0.")

    @classmethod
    def from_csr(cls, matrix: sparse.spmatrix, rows: Sequence[int] | np.ndarray | None = None) -> Batch:
        """The chosen rows (default all) of a documents x words count matrix.

        The whole matrix is checked each time; `of_rows` does without, for one that has been.
        """
        counts = sound_csr(matrix)
        if rows is None:
            return cls.of_rows(counts)
        documents = np.asarray(rows)
        if documents.ndim != 1 or (len(documents) and documents.dtype.kind not in "iu"):
            raise ValueError("The rows of a batch must be a list of whole numbers: give the documents' positions.")
        if len(documents) and not 0 <= documents.min() <= documents.max() < counts.shape[0]:
            wrong = documents.min() if documents.min() < 0 else documents.max()
            raise ValueError(f"There is no document {wrong}: the matrix has the rows 0 to {counts.shape[0] - 1}.")
        return cls.of_rows(counts, documents.astype(np.int64))

    @classmethod
    def of_rows(cls, counts: sparse.csr_matrix, rows: np.ndarray | None = None) -> Batch:
        """The chosen rows (default all) of a matrix that `counts.sound_csr` has made, which is not checked again."""
        documents = np.arange(counts.shape[0]) if rows is None else rows
        part = counts if rows is None else counts[rows]
        dtype = torch.get_default_dtype()
        return cls(
            torch.as_tensor(documents, dtype=torch.int64),
            torch.as_tensor(part.indptr.astype(np.int64)),
            torch.as_tensor(part.indices.astype(np.int64)),
            torch.as_tensor(np.asarray(part.data, dtype=np.float64), dtype=dtype),
        )

    @classmethod
    def from_tokens(cls, documents: Sequence[Sequence[int]]) -> Batch:
        """Token-level documents: each a sequence of word ids, repeats kept."""
        lengths = [len(document) for document in documents]
        words = torch.tensor([word for document in documents for word in document], dtype=torch.int64)
        return cls._tokens(lengths, words)

    @classmethod
    def to_draw(cls, lengths: Sequence[int]) -> Batch:
        """Documents of the given lengths whose words the model draws (prior simulation)."""
        return cls._tokens(lengths, None)

    @classmethod
    def _tokens(cls, lengths: Sequence[int], word: Tensor | None) -> Batch:
        indptr = torch.zeros(len(lengths) + 1, dtype=torch.int64)
        indptr[1:] = torch.tensor(lengths, dtype=torch.int64).cumsum(0)
        return cls(torch.arange(len(lengths)), indptr, word, torch.ones(int(indptr[-1])))

    @property
    def size(self) -> int:
        """B, the number of documents."""
        return self.documents.numel()

    @property
    def num_entries(self) -> int:
        """E, the number of entries."""
        return self.count.numel()

    @cached_property
    def document(self) -> Tensor:
        """Row of each entry's document within the batch, shape (E,)."""
        return torch.repeat_interleave(torch.arange(self.size), self.indptr.diff())

    @cached_property
    def length(self) -> Tensor:
        """Tokens M_n of each document, shape (B,)."""
        return self.count.new_zeros(self.size).index_add_(0, self.document, self.count)

    @cached_property
    def is_tokens(self) -> bool:
        """Whether every entry counts once."""
        return bool((self.count == 1).all())

    @cached_property
    def last_document(self) -> int:
        """The largest of the documents' positions."""
        return int(self.documents.max())

    @cached_property
    def last_word(self) -> int:
        """The largest word id; -1 without words."""
        return int(self.word.max()) if self.word is not None and self.word.numel() else -1

    @property
    def words(self) -> Tensor:
        """Ids of the distinct words, rising, shape (W,)."""
        return self._distinct[0]

    @property
    def local_word(self) -> Tensor:
        """Each entry's position in `words`, shape (E,)."""
        return self._distinct[1]

    @cached_property
    def _distinct(self) -> tuple[Tensor, Tensor]:
        if self.word is None:
            raise ValueError("This batch has no words yet: draw them from the model first.")
        if not self.word.numel():
            return self.word, self.word
        seen = torch.zeros(self.last_word + 1, dtype=torch.bool)
        seen[self.word] = True
        return seen.nonzero().squeeze(-1), (seen.cumsum(0) - 1)[self.word]

    def head(self, num_documents: int) -> Batch:
        """The first documents of the batch that have entries."""
        rows = self.indptr.diff().nonzero().squeeze(-1)[:num_documents]
        here = torch.isin(self.document, rows)
        indptr = torch.cat([self.indptr.new_zeros(1), self.indptr.diff()[rows].cumsum(0)])
        word, times = (None if x is None else x[here] for x in (self.word, self.times))
        return Batch(self.documents[rows], indptr, word, self.count[here], times=times)

    def part(self, start: int, stop: int) -> Batch:
        """The documents from start up to stop."""
        indptr = self.indptr[start : stop + 1]
        here = slice(int(indptr[0]), int(indptr[-1]))
        word, times = (None if x is None else x[here] for x in (self.word, self.times))
        return Batch(self.documents[start:stop], indptr - indptr[0], word, self.count[here], times=times)

    def showing(self, seen: Tensor) -> Batch:
        """The same batch, of which an inference network sees only some words while it learns.

        Args:
            seen: whole numbers from 0 to the counts, shape (E,).
        """
        if seen.shape != self.count.shape:
            raise ValueError(f"seen has {seen.numel()} entries and the batch {self.num_entries}: give one for each.")
        shown = copy.copy(self)  # with what has been computed of it
        object.__setattr__(shown, "seen", seen)
        return shown

    def counting(self, count: Callable[[Tensor], Tensor]) -> Batch:
        """The same documents with other counts; `times` has what they were, with one entry for each different word.

        Args:
            count: of how often each word occurs, shape (E,): whole numbers.
        """
        merged = self._merged()
        words = (merged.words, merged.local_word), merged.document  # are those of the result too
        other = Batch(merged.documents, merged.indptr, merged.word, count(merged.count), times=merged.count)
        other.__dict__["_distinct"], other.__dict__["document"] = words
        return other

    def _merged(self) -> Batch:
        """The batch with one entry for each different word of a document."""
        assert self.word is not None
        key = self.document * (self.last_word + 1) + self.word
        found, place = key.unique(return_inverse=True)
        if len(found) == len(key):
            return self
        count = self.count.new_zeros(len(found)).index_add_(0, place, self.count)
        document, word = found // (self.last_word + 1), found % (self.last_word + 1)
        indptr = torch.zeros_like(self.indptr)
        indptr[1:] = torch.bincount(document, minlength=self.size).cumsum(0)
        return Batch(self.documents, indptr, word, count)

    def with_words(self, word: Tensor) -> Batch:
        """The same documents with other words."""
        return Batch(self.documents, self.indptr, word, self.count)
