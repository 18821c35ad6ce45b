"""Corpus folders from files that need not fit into memory: open this to see how each format is read in pieces."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import scipy.sparse
from tqdm import tqdm

from pyro_prme.checks import share_or_number, whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.files import need_path, open_text, read_words
from pyro_prme.corpora.formats import parse_ldac, sorted_triples
from pyro_prme.corpora.packed import PackedWriter, open_packed
from pyro_prme.corpora.readers import NAMES, corpus_files, document_names, format_of, load_corpus, vocabulary_beside
from pyro_prme.corpora.text import kept_words, stop_word_set, words_of

__all__ = ["Limits", "pack_corpus"]

_CHUNK = 1 << 23  # bytes of text read at a time
_DOCUMENTS = 10_000  # texts counted at a time
_ENTRIES = 1 << 22  # copied at a time


@dataclass(frozen=True)
class Limits:
    """Which words are kept; see `Corpus.restrict`.

    Args:
        min_df: smallest number of documents, or share of them, that hold a word.
        max_df: largest number or share.
        stop_words: words to drop, or "english".
        max_words: of what is left, only those with most tokens.
    """

    min_df: float = 1
    max_df: float = 1.0
    stop_words: str | Iterable[str] = ()
    max_words: int | None = None

    def __post_init__(self) -> None:
        share_or_number("min_df", self.min_df)
        share_or_number("max_df", self.max_df)
        if self.max_words is not None:
            whole("max_words", self.max_words)
        object.__setattr__(self, "stop_words", stop_word_set(self.stop_words))

    def keep(self, words: Sequence[str], frequency: np.ndarray, tokens: np.ndarray, documents: int) -> np.ndarray:
        """The positions of the words kept; see `kept_words`."""
        limits = {"min_df": self.min_df, "max_df": self.max_df, "max_words": self.max_words}
        return kept_words(words, frequency, lambda: tokens, documents, stop_words=self.stop_words, **limits)  # type: ignore[arg-type]

    @property
    def drop_nothing(self) -> bool:
        """Whether every word that occurs is kept."""
        return self == Limits()


def pack_corpus(
    source: str | Path,
    out: str | Path,
    *,
    vocab: str | Path | Sequence[str] | None = None,
    format: str | None = None,
    limits: Limits | None = None,
    progress: bool | None = False,
) -> Corpus:
    """Writes any corpus that `load_corpus` reads as a corpus folder, and opens that.

    LDA-C, UCI and Matrix Market files (whose entries are in the order of documents) and raw text are read in pieces, so
    that memory is bounded by the vocabulary and not by the corpus; other formats are read whole. Raw text is read
    twice, first for the vocabulary.

    Args:
        source: as for `load_corpus`.
        vocab: as for `load_corpus`.
        format: as for `load_corpus`.
        out: the folder to make.
        limits: which words are kept.
        progress: show a bar; None shows it on a terminal only.
    """
    limits, out = limits or Limits(), Path(out)
    if source not in NAMES:
        need_path(source)
    path = Path(source)
    format = None if source in NAMES else format_of(path) if format is None else format
    words = read_words(Path(vocab)) if isinstance(vocab, str | Path) else None if vocab is None else tuple(vocab)
    with PackedWriter(out) as writer, _bar(path, progress) as report:
        if format in ("lines", "folder") and not (format == "folder" and corpus_files(path)):
            _pack_texts(writer, path, format, words, limits, report)
        elif format in ("ldac", "uci", "mtx"):
            _pack_counts(writer, path, format, words, limits, report)
        else:
            corpus = load_corpus(source, vocab=words, format=format)
            _pack_selected(writer, corpus, limits)
    return open_packed(out)


class Report:
    """A bar of the bytes read, and which pass over them it is."""

    def __init__(self, bar: tqdm, name: str) -> None:
        self._bar, self._name = bar, name

    def __call__(self, read: int) -> None:
        self._bar.update(read)

    def begin(self, what: str) -> None:
        """A pass begins."""
        self._bar.reset()
        self._bar.set_description(f"packing {self._name}, {what}")


@contextmanager
def _bar(path: Path, progress: bool | None) -> Iterator[Report]:
    hidden = None if progress is None else not progress
    with tqdm(desc=f"packing {path.name}", unit="B", unit_scale=True, disable=hidden, dynamic_ncols=True) as bar:
        yield Report(bar, path.name)


# Counts.


def _pack_counts(
    writer: PackedWriter, path: Path, format: str, words: tuple[str, ...] | None, limits: Limits, report: Report
) -> None:
    """A file of counts, a piece at a time; limits on words need a second pass, over the arrays of the first."""
    words = vocabulary_beside(path) if words is None else words
    size = None if words is None else len(words)
    pieces = _ldac_pieces(path, size, report) if format == "ldac" else sorted_triples(
        _chunks(path, report), path, size, real=format == "mtx"
    )  # fmt: skip
    if limits.drop_nothing:
        _write_all(writer, pieces, words, path)
        return
    with tempfile.TemporaryDirectory(dir=writer.folder.parent, prefix=".packing-") as folder:
        with PackedWriter(Path(folder) / "all") as first:
            _write_all(first, pieces, words, path)
        _pack_selected(writer, open_packed(Path(folder) / "all"), limits)


def _write_all(
    writer: PackedWriter, pieces: Iterable[scipy.sparse.csr_array], words: tuple[str, ...] | None, path: Path
) -> None:
    """All pieces of a file; words that have no names are numbers."""
    most = 0
    for piece in pieces:
        most = max(most, piece.shape[1])
        writer.append(_canonical(piece))
    writer.finish(tuple(map(str, range(most))) if words is None else words, document_names(path, writer.documents))


def _ldac_pieces(path: Path, vocab_size: int | None, report: Report) -> Iterator[scipy.sparse.csr_array]:
    for text, line in _chunks(path, report):
        yield parse_ldac(text, path, vocab_size, line)


def _chunks(path: Path, report: Report) -> Iterator[tuple[bytes, int]]:
    """Pieces of a file of text that end with whole lines, each with the number of its first line."""
    with open_text(path) as file:
        line, rest, seen = 1, b"", False
        while block := _read(file, path):
            report(len(block))
            cut = block.rfind(b"\n") + 1
            if not cut:
                rest += block
                continue
            text, rest = rest + block[:cut], block[cut:]
            seen = seen or bool(text.strip())
            yield text, line
            line += text.count(b"\n")
        if rest.strip():
            yield rest, line
        elif not seen:
            raise ValueError(f"{path} is empty: it should hold at least one document.")


def _read(file: BinaryIO, path: Path) -> bytes:
    try:
        return file.read(_CHUNK)
    except EOFError:
        raise ValueError(f"{path} is cut short: its gzip stream ends early, so fetch or write it again.") from None
    except (OSError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a good gzip file ({error}): fetch or write it again.") from None


def _canonical(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    counts = scipy.sparse.csr_array(counts, dtype=np.int64)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    if counts.nnz and counts.data.max() > np.iinfo(np.int32).max:
        raise ValueError(f"A document has a word {counts.data.max()} times: counts must be below 2147483648.")
    return counts


def _pack_selected(writer: PackedWriter, corpus: Corpus, limits: Limits) -> None:
    """The documents of a corpus, with the words that the limits leave, some millions of entries at a time."""
    columns = np.arange(corpus.vocab_size)
    if not limits.drop_nothing:
        columns = limits.keep(corpus.vocabulary, corpus.document_frequency, corpus.word_totals, len(corpus))
    rows = max(1, _ENTRIES * len(corpus) // max(corpus.nnz, 1))
    for start in range(0, len(corpus), rows):
        part = corpus.counts[start : start + rows]
        writer.append(part if len(columns) == corpus.vocab_size else _canonical(part[:, columns]))
    writer.finish(tuple(corpus.vocabulary[d] for d in columns), corpus.names)


# Raw text.


def _pack_texts(
    writer: PackedWriter, path: Path, format: str, words: tuple[str, ...] | None, limits: Limits, report: Report
) -> None:
    """Texts: a pass for the vocabulary unless it is given, and a pass for the counts."""
    if words is None:
        frequency: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        documents = 0
        report.begin("pass 1 of 2, words")
        for _, text in _texts(path, format, report):
            counts = Counter(words_of(text))
            frequency.update(counts.keys())
            tokens.update(counts)
            documents += 1
        if not frequency:
            raise ValueError(f"{path}: every document is empty, so check the texts.")
        every = sorted(frequency)
        order = limits.keep(
            every, np.array([frequency[w] for w in every]), np.array([tokens[w] for w in every]), documents
        )
        words = tuple(every[d] for d in order)
        report.begin("pass 2 of 2, counts")
    column = {word: d for d, word in enumerate(words)}
    names: list[str] = []
    waiting: list[dict[int, int]] = []
    for name, text in _texts(path, format, report):
        names.append(name)
        counted = Counter(column[word] for word in words_of(text) if word in column)
        waiting.append(dict(sorted(counted.items())))
        if len(waiting) == _DOCUMENTS:
            writer.append(_rows(waiting, len(words)))
            waiting = []
    writer.append(_rows(waiting, len(words)))
    writer.finish(words, names)


def _rows(documents: list[dict[int, int]], width: int) -> scipy.sparse.csr_array:
    indptr = np.concatenate([[0], np.cumsum([len(counts) for counts in documents])]).astype(np.int64)
    indices = np.fromiter((d for counts in documents for d in counts), np.int64, int(indptr[-1]))
    data = np.fromiter((c for counts in documents for c in counts.values()), np.int64, int(indptr[-1]))
    return scipy.sparse.csr_array((data, indices, indptr), shape=(len(documents), width))


def _texts(path: Path, format: str, report: Report) -> Iterator[tuple[str, str]]:
    """Each document's name and text: the lines that are not blank, by their numbers, or the files of a folder."""
    if format == "lines":
        for block, first in _chunks(path, report):
            for n, line in enumerate(_decoded(block, path, first).split("\n"), start=first):
                if line.strip():
                    yield str(n), line
        return
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    if not files:
        raise ValueError(f"{path} is an empty folder: it should hold one text file for each document.")
    for file in files:
        name = file.relative_to(path).as_posix()
        yield name, "".join(_decoded(block, file, first) for block, first in _chunks(file, report))


def _decoded(block: bytes, path: Path, first: int) -> str:
    try:
        return block.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first + block.count(b"\n", 0, error.start)
        raise ValueError(f"{path}, line {line}: not UTF-8 text; convert the file to UTF-8.") from None
