"""The corpus, counts of words in documents: open this to make one, cut it to size, or hold out words for a score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from pyro_prme.checks import share_or_number, whole
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.convert import Parts, anndata_parts, frame_parts, gensim_parts, ordered_words
from pyro_prme.corpora.counts import checked_counts, float_csr
from pyro_prme.corpora.files import first_bad_word
from pyro_prme.corpora.mapped import Pages, is_mapped
from pyro_prme.corpora.text import count_words, kept_words, stop_word_set

if TYPE_CHECKING:
    from pyro_prme.corpora.splits import TokenSplit

__all__ = ["Corpus", "Numbered", "checked_corpus"]

_BLOCK = 1 << 22  # entries counted at a time, so that a mapped corpus does not come into memory as a whole


class Numbered(Sequence[str]):
    """The names "0", "1", ... of documents that have none.

    Args:
        size: how many.
    """

    def __init__(self, size: int) -> None:
        self._range = range(size)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, n: Any) -> Any:
        found = self._range[n]
        return tuple(map(str, found)) if isinstance(found, range) else str(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(len(self))


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Immutable word counts of N documents over a vocabulary of D words.

    Args:
        counts: whole numbers of zero or more, shape (N, D), sparse or dense; kept as a read-only int32 ``csr_array``
            with sorted indices, no duplicates and no stored zeros.
        vocabulary: D different words.
        names: N document names; "0", "1", ... if left out.
    """

    counts: scipy.sparse.csr_array
    vocabulary: tuple[str, ...]
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        vocabulary = tuple(str(word) for word in self.vocabulary)
        counts = float_csr(self.counts)
        num_documents, vocab_size = counts.shape
        if num_documents == 0:
            raise ValueError("The corpus has no documents: give at least one.")
        if vocab_size == 0:
            raise ValueError("The vocabulary has no words: give at least one.")
        if len(vocabulary) != vocab_size:
            relation = "shorter" if len(vocabulary) < vocab_size else "longer"
            raise ValueError(
                f"The vocabulary has {len(vocabulary)} words and is {relation} than the {vocab_size} columns of the "
                "counts: give one word for each column."
            )
        bad_word = first_bad_word(vocabulary)
        if bad_word is not None:
            raise ValueError(f"vocabulary, position {bad_word[0]} (from 0): {bad_word[1]}.")
        names = tuple(str(name) for name in self.names) or tuple(str(n) for n in range(num_documents))
        if len(names) != num_documents:
            raise ValueError(f"There are {len(names)} names for {num_documents} documents: give one for each.")
        bad_name = first_bad_word(names, may_repeat=True)
        if bad_name is not None:
            raise ValueError(f"Document names, position {bad_name[0]} (from 0): {bad_name[1]}.")
        object.__setattr__(self, "counts", checked_counts(counts, vocabulary, names))
        object.__setattr__(self, "vocabulary", vocabulary)
        object.__setattr__(self, "names", names)

    @classmethod
    def from_counts(
        cls, counts: Any, vocabulary: Iterable[str] | Mapping[str, int], names: Iterable[str] = ()
    ) -> Corpus:
        """A corpus from a matrix, such as scikit-learn's ``CountVectorizer`` returns.

        Args:
            counts: shape (N, D), sparse or dense.
            vocabulary: the words in column order (``get_feature_names_out()``), or a mapping from word to column.
            names: N document names.
        """
        return cls(counts, tuple(ordered_words(vocabulary)), tuple(names))

    @classmethod
    def from_gensim(cls, documents: Iterable[Iterable[tuple[int, float]]], id2word: Any) -> Corpus:
        """A corpus from gensim's lists of (id, count) and its ``Dictionary`` (or a dict from id to word, or a list)."""
        return cls._from_parts(gensim_parts(documents, id2word))

    @classmethod
    def from_frame(
        cls, frame: Any, document: str | None = None, word: str | None = None, count: str | None = None
    ) -> Corpus:
        """A corpus from a pandas frame.

        Args:
            frame: documents x words; or long, if ``document`` and ``word`` are given.
            document: column with the document of each row of a long frame.
            word: column with the word.
            count: column with the count; without it each row is one token.
        """
        return cls._from_parts(frame_parts(frame, document, word, count))

    @classmethod
    def from_anndata(cls, data: Any) -> Corpus:
        """A corpus from an AnnData object: ``X`` as counts, ``var_names`` as words, ``obs_names`` as documents."""
        return cls._from_parts(anndata_parts(data))

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        names: Iterable[str] = (),
        *,
        min_letters: int = 3,
        stop_words: str | Iterable[str] = (),
        min_df: float = 1,
        max_df: float = 1.0,
    ) -> Corpus:
        """A corpus from raw text: lower-case runs of letters (see ``pyro_prme.corpora.text``), then ``restrict``."""
        counts, words = count_words(texts, min_letters=min_letters)
        return cls(counts, tuple(words), tuple(names)).restrict(min_df, max_df, stop_words)

    @classmethod
    def _from_parts(cls, parts: Parts) -> Corpus:
        return cls(parts.counts, tuple(parts.vocabulary), tuple(parts.names))

    @property
    def num_documents(self) -> int:
        """N, empty documents included."""
        return self.counts.shape[0]

    @property
    def vocab_size(self) -> int:
        """D."""
        return self.counts.shape[1]

    @property
    def nnz(self) -> int:
        """Number of (document, word) pairs with a count."""
        return self.counts.nnz

    @property
    def num_tokens(self) -> int:
        """Sum of all counts."""
        return int(self.lengths.sum())

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens in each document, shape (N,), read-only."""
        lengths = np.zeros(self.num_documents, np.int64)
        starts = self.counts.indptr[:-1]
        used = np.flatnonzero(np.diff(self.counts.indptr))
        for first in range(0, len(used), _BLOCK):
            rows = used[first : first + _BLOCK]
            stop = self.counts.indptr[rows[-1] + 1]
            begin = starts[rows[0]]
            lengths[rows] = np.add.reduceat(self.counts.data[begin:stop], starts[rows] - begin, dtype=np.int64)
        lengths.flags.writeable = False
        return lengths

    @property
    def word_totals(self) -> np.ndarray:
        """Tokens of each word, shape (D,)."""
        found = np.zeros(self.vocab_size, np.int64)
        for start in range(0, self.nnz, _BLOCK):
            here = slice(start, start + _BLOCK)
            counted = np.bincount(self.counts.indices[here], self.counts.data[here], self.vocab_size)
            found += counted.astype(np.int64)
        return found

    @property
    def document_frequency(self) -> np.ndarray:
        """Documents that hold each word, shape (D,)."""
        found = np.zeros(self.vocab_size, np.int64)
        for start in range(0, self.nnz, _BLOCK):
            found += np.bincount(self.counts.indices[start : start + _BLOCK], minlength=self.vocab_size)
        return found

    def __len__(self) -> int:
        return self.num_documents

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Corpus):
            return NotImplemented
        return (
            self.vocabulary == other.vocabulary
            and self.names == other.names
            and np.array_equal(self.counts.indptr, other.counts.indptr)
            and np.array_equal(self.counts.indices, other.counts.indices)
            and np.array_equal(self.counts.data, other.counts.data)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = f"{self.num_documents:,} documents, {self.vocab_size:,} words, {self.num_tokens:,} tokens"
        words = ", ".join(self.vocabulary[:3]) + (", ..." if self.vocab_size > 3 else "")
        return f"Corpus({sizes}; {words})"

    def summary(self) -> dict[str, int | float]:
        """Sizes of the corpus by name, for printing or JSON."""
        return {
            "documents": self.num_documents,
            "empty_documents": int((self.lengths == 0).sum()),
            "vocabulary": self.vocab_size,
            "words_used": int((self.document_frequency > 0).sum()),
            "tokens": self.num_tokens,
            "entries": self.nnz,
            "shortest_document": int(self.lengths.min()),
            "mean_length": float(self.lengths.mean()),
            "longest_document": int(self.lengths.max()),
        }

    def batch(self, rows: np.ndarray) -> tuple[Batch]:
        """The documents of these numbers, as models take them."""
        batch = Batch.of_rows(self.counts, rows)
        self._pages.read(batch.num_entries)
        return (batch,)

    @property
    def on_disk(self) -> bool:
        """Whether the counts are mapped, and not in memory."""
        return is_mapped(self.counts)

    @cached_property
    def _pages(self) -> Pages:
        return Pages(self.counts)

    def typical_rows(self, size: int) -> np.ndarray:
        """The first documents that have words."""
        return np.flatnonzero(np.diff(self.counts.indptr))[:size]

    def __getitem__(self, rows: Any) -> Corpus:
        """The documents picked by a number, slice, list of numbers or boolean mask, in that order."""
        picked = np.atleast_1d(np.arange(self.num_documents)[rows])
        if not picked.size:
            raise ValueError("The corpus has no documents: give at least one.")
        counts = scipy.sparse.csr_array(self.counts[picked])
        for array in (counts.data, counts.indices, counts.indptr):
            array.flags.writeable = False
        return checked_corpus(counts, self.vocabulary, tuple(self.names[n] for n in picked))

    def split(self, test_size: float, seed: int = 0) -> tuple[Corpus, Corpus]:
        """Train and test documents, each in the order of this corpus.

        Args:
            test_size: number of test documents (int), or their fraction (float below 1).
            seed: of ``numpy.random.default_rng``, whose first ``test_size`` permuted documents are the test set.
        """
        share_or_number("test_size", test_size)
        whole("seed", seed, 0)
        num_test = test_size if isinstance(test_size, int | np.integer) else round(test_size * self.num_documents)
        if not 0 < num_test < self.num_documents:
            raise ValueError(
                f"test_size {test_size} leaves {num_test} of {self.num_documents} documents for testing: "
                "there must be at least one for testing and one for training."
            )
        order = np.random.default_rng(seed).permutation(self.num_documents)
        return self[np.sort(order[num_test:])], self[np.sort(order[:num_test])]

    def split_tokens(self, observed: float = 0.9, seed: int = 0) -> TokenSplit:
        """Split each document's tokens into observed and held-out ones, for document completion.

        With one ``numpy.random.default_rng(seed)``, document after document: the n tokens are shuffled, and the first
        max(1, round((1 - observed) n)) are held out. Documents of fewer than two tokens are left out. A short document
        may keep no observed token.

        Documents of more than 1,000,000 tokens, or of more than 1,000 for each of their different words, are split
        after all others, by a method with the same law that does not hold their tokens one by one.

        Args:
            observed: fraction of tokens to keep, between 0 and 1.
            seed: of the generator.

        Returns:
            The two corpora and the rows kept; ``TokenSplit.save`` writes them for other programs.
        """
        from pyro_prme.corpora.splits import token_split

        return token_split(self, observed, seed)

    def restrict(
        self,
        min_df: float = 1,
        max_df: float = 1.0,
        stop_words: str | Iterable[str] = (),
        max_words: int | None = None,
    ) -> Corpus:
        """Drop words; documents stay, even if they become empty.

        Args:
            min_df: keep words in at least this many documents (int) or this fraction of them (float).
            max_df: keep words in at most this many documents (int) or this fraction of them (float).
            stop_words: words to drop, or ``"english"``.
            max_words: of what is left, keep only the words with most tokens.
        """
        share_or_number("min_df", min_df)
        share_or_number("max_df", max_df)
        if max_words is not None:
            whole("max_words", max_words)
        columns = kept_words(
            self.vocabulary,
            self.document_frequency,
            lambda: self.word_totals,
            self.num_documents,
            min_df=min_df,
            max_df=max_df,
            stop_words=stop_word_set(stop_words),
            max_words=max_words,
        )
        if len(columns) == self.vocab_size:
            return self
        return Corpus(self.counts[:, columns], tuple(self.vocabulary[d] for d in columns), self.names)

    def pack(self, folder: str | Path) -> Corpus:
        """Writes the corpus as a folder whose counts are mapped into memory when it is opened, and opens it.

        `load_corpus` and every door that takes a path of a corpus open it too; `corpora.packing.pack_corpus` makes one
        from files that do not fit into memory.

        Args:
            folder: to be made.
        """
        from pyro_prme.corpora.packed import PackedWriter, open_packed

        with PackedWriter(Path(folder)) as writer:
            rows = max(1, _BLOCK * self.num_documents // max(self.nnz, 1))
            for start in range(0, self.num_documents, rows):
                writer.append(self.counts[start : start + rows])
            numbers = isinstance(self.names, Numbered) or self.names == Numbered(self.num_documents)
            writer.finish(self.vocabulary, None if numbers else self.names)
        return open_packed(folder)

    def align(self, vocabulary: Sequence[str]) -> tuple[Corpus, int]:
        """The same documents over another vocabulary.

        Args:
            vocabulary: the new words, in order.

        Returns:
            The corpus, without the words that are not in ``vocabulary``, and the number of tokens so dropped.
        """
        column = {word: d for d, word in enumerate(vocabulary)}
        new = np.array([column.get(word, -1) for word in self.vocabulary])[self.counts.indices]  # (nnz,)
        known = new >= 0
        rows = np.repeat(np.arange(self.num_documents), np.diff(self.counts.indptr))
        shape = (self.num_documents, len(vocabulary))
        counts = scipy.sparse.coo_array((self.counts.data[known], (rows[known], new[known])), shape=shape)
        dropped = int(self.counts.data[~known].sum(dtype=np.int64))
        return Corpus(counts, tuple(vocabulary), self.names), dropped


def checked_corpus(counts: scipy.sparse.csr_array, vocabulary: Sequence[str], names: Sequence[str]) -> Corpus:
    """A corpus of parts that have been checked already, such as mapped arrays, which would otherwise be copied.

    Args:
        counts: canonical, of int32, without stored zeros, shape (N, D).
        vocabulary: D different words.
        names: N names.
    """
    counts.has_canonical_format = True
    corpus = object.__new__(Corpus)
    for field, value in (("counts", counts), ("vocabulary", tuple(vocabulary)), ("names", names)):
        object.__setattr__(corpus, field, value)
    return corpus
