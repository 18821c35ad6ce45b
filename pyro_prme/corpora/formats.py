"""LDA-C, UCI bag of words and Matrix Market as bytes: open this to see what each format may hold."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.io
import scipy.sparse

__all__ = ["ldac_bytes", "mtx_bytes", "parse_ldac", "parse_mtx", "parse_uci", "sorted_triples", "uci_bytes"]

_BLOCK = 1 << 23  # bytes of text parsed at a time
_LARGEST = np.iinfo(np.int32).max
_UNNAMED = 1_000_000  # more words without a vocabulary, or more empty documents, than this are a broken file
_SPACES = b" \t\r\n"
_COLON, _NEWLINE = ord(":"), ord("\n")
_COLONS_TO_SPACES = bytes.maketrans(b":", b" ")


class _Numbers(NamedTuple):
    """The whole numbers of a block of lines, in order."""

    values: np.ndarray  # (numbers,) int64
    after_colon: np.ndarray  # (numbers,) bool: a colon stands directly before it
    per_line: np.ndarray  # (lines,) how many stand in each line
    first_line: int  # number of the block's first line in the file, from 1
    where: Path  # the file

    def line_of(self, number: int) -> int:
        """Line, from 1, of the number at a position in ``values``."""
        return self.first_line + int(np.searchsorted(np.cumsum(self.per_line), number, side="right"))


def parse_ldac(text: bytes, where: Path, vocab_size: int | None, first_line: int = 1) -> scipy.sparse.csr_array:
    """Counts from LDA-C text: a line ``n id:count ... id:count`` with n pairs and ids from 0 for each document.

    `sklearn.datasets.load_svmlight_file` knows this syntax too. It is not used: it takes n for a label, so that a file
    that was cut short passes, skips blank lines, which shifts documents against their names, takes counts that are
    negative, broken or not a number, and refuses words out of order, which LDA-C allows.

    Args:
        text: content of the file.
        where: its path, for messages.
        vocab_size: number of words; if None, one more than the largest id.
        first_line: number of the text's first line in the file.

    Returns:
        Counts, shape (lines, vocab_size).
    """
    lengths, ids, counts = [], [], []
    for block in _blocks(text, where, first_line=first_line, colons=True):
        first = np.cumsum(block.per_line) - block.per_line
        place = np.arange(block.values.size) - np.repeat(first, block.per_line)  # of each number in its line
        announced = block.values[first]
        _refuse(block.after_colon != ((place > 0) & (place % 2 == 0)), block, "expected 'n id:count id:count ...'")
        wrong = np.repeat(block.per_line != 2 * announced + 1, block.per_line)
        _refuse(wrong, block, "the first number is not the number of id:count pairs that follow; is it cut short?")
        is_id = place % 2 == 1
        if vocab_size is not None:
            reason = f"a word id is past the end of the vocabulary of {vocab_size} words; give the right vocabulary"
            _refuse(is_id & (block.values >= vocab_size), block, reason)
        lengths.append(announced)
        ids.append(block.values[is_id].astype(np.int32))
        counts.append(block.values[(place > 0) & ~is_id].astype(np.int32))
    columns = np.concatenate(ids)
    if vocab_size is None:
        vocab_size = int(columns.max(initial=0)) + 1
        _refuse_size(where, "words", vocab_size, 0)
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    _refuse_size(where, "documents", indptr.size - 1, columns.size)
    return scipy.sparse.csr_array((np.concatenate(counts), columns, indptr), shape=(indptr.size - 1, vocab_size))


def parse_uci(text: bytes, where: Path, vocab_size: int | None) -> scipy.sparse.csr_array:
    """Counts from UCI bag-of-words text: three lines N, D, entries, then ``document word count`` with ids from 1.

    Args:
        text: content of the file.
        where: its path, for messages.
        vocab_size: number of words, if known, for a check against the header.

    Returns:
        Counts, shape (N, D).
    """
    sizes, body, line = _uci_head(text, where)
    return _matrix(sizes, _blocks(body, where, first_line=line), f"{where}, line 3", vocab_size)


def _uci_head(text: bytes, where: Path) -> tuple[np.ndarray, bytes, int]:
    """The three sizes, what follows them, and the number of its first line."""
    head = re.match(rb"[^\n]*\n[^\n]*\n[^\n]*\n?", text)
    header = list(_blocks(head.group(), where)) if head else []
    if head is None or not header or header[0].per_line.tolist() != [1, 1, 1]:
        raise ValueError(f"{where}, line 1: the first three lines must be the numbers of documents, words and entries.")
    return header[0].values, text[head.end() :], 4


def parse_mtx(text: bytes, where: Path, vocab_size: int | None) -> scipy.sparse.csr_array:
    """Counts from Matrix Market text, documents x words, of the kind ``coordinate integer general`` (or ``real``).

    Not by ``scipy.io.mmread``: on some malformed files it ends the process with a segmentation fault (scipy 1.17.1).

    Args:
        text: content of the file.
        where: its path, for messages.
        vocab_size: number of words, if known, for a check against the header.

    Returns:
        Counts, shape (documents, words).
    """
    sizes, blocks, body, line = _mtx_head(text, where)
    return _matrix(sizes, blocks(body, where, first_line=line), f"{where}, line {line - 1}", vocab_size)


def _mtx_head(text: bytes, where: Path) -> tuple[np.ndarray, Callable[..., Iterator[_Numbers]], bytes, int]:
    """The three sizes, how the numbers are read, what follows, and the number of its first line."""
    banner = re.match(rb"%%MatrixMarket[ \t]+matrix[ \t]+coordinate[ \t]+(integer|real)[ \t]+general\s*\n", text, re.I)
    if banner is None:
        raise ValueError(
            f"{where}, line 1: the first line must be '%%MatrixMarket matrix coordinate integer general' (or real); "
            "write a sparse matrix with scipy.io.mmwrite."
        )
    start = re.compile(rb"(?:[ \t\r]*(?:%[^\n]*)?\n)*").match(text, banner.end()).end()  # type: ignore[union-attr]
    line = text.count(b"\n", 0, start) + 1
    size_line, _, body = text[start:].partition(b"\n")
    sizes = [block.values for block in _blocks(size_line, where, first_line=line)]
    if not sizes or sizes[0].size != 3:
        raise ValueError(f"{where}, line {line}: expected the numbers of documents, words and entries.")
    blocks = _blocks if banner.group(1).lower() == b"integer" else _real_block
    return sizes[0], blocks, body, line + 1


def ldac_bytes(counts: scipy.sparse.csr_array) -> bytes:
    """The counts as LDA-C text."""
    lines = []
    for start, end in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
        pairs = zip(counts.indices[start:end].tolist(), counts.data[start:end].tolist(), strict=True)
        lines.append(" ".join([str(end - start), *(f"{d}:{count}" for d, count in pairs)]))
    return ("\n".join(lines) + "\n").encode()


def uci_bytes(counts: scipy.sparse.csr_array) -> bytes:
    """The counts as UCI bag-of-words text."""
    entries = counts.tocoo()
    triples = zip((entries.row + 1).tolist(), (entries.col + 1).tolist(), entries.data.tolist(), strict=True)
    head = (*map(str, counts.shape), str(counts.nnz))
    return ("\n".join([*head, *(f"{n} {d} {count}" for n, d, count in triples)]) + "\n").encode()


def mtx_bytes(counts: scipy.sparse.csr_array) -> bytes:
    """The counts as Matrix Market text."""
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, counts, field="integer", symmetry="general")
    return buffer.getvalue()


def _matrix(
    sizes: np.ndarray, blocks: Iterator[_Numbers], header: str, vocab_size: int | None
) -> scipy.sparse.csr_array:
    """Counts from lines ``document word count`` with ids from 1, held to the sizes announced in the ``header`` line."""
    num_documents, num_words, num_entries = _checked_sizes(sizes, header, vocab_size)
    entries = [np.empty((0, 3), np.int64)]
    entries += [_triples(block, num_documents, num_words) for block in blocks]
    documents, words, counts = np.concatenate(entries).T
    if counts.size != num_entries:
        raise ValueError(f"{header}: {num_entries} entries are announced and {counts.size} follow; is it cut short?.")
    places = (documents.astype(np.int64) - 1, words.astype(np.int64) - 1)
    return scipy.sparse.coo_array((counts, places), shape=(num_documents, num_words)).tocsr()


def sorted_triples(
    chunks: Iterable[tuple[bytes, int]], where: Path, vocab_size: int | None, *, real: bool
) -> Iterator[scipy.sparse.csr_array]:
    """Counts of UCI or Matrix Market text, some documents at a time, whose entries are in the order of documents.

    Args:
        chunks: pieces of the text that end with whole lines, each with the number of its first line.
        where: its path, for messages.
        vocab_size: number of words, if known, for a check against the header.
        real: whether it is Matrix Market, which has a banner, comments, and perhaps decimal points.
    """
    rest = iter(chunks)
    text, line = next(rest)
    if real:
        sizes, blocks, text, line = _mtx_head(text, where)
    else:
        sizes, text, line = _uci_head(text, where)
        blocks = _blocks
    header = f"{where}, line {line - 1}"
    num_documents, num_words, num_entries = _checked_sizes(sizes, header, vocab_size)
    done, seen = 0, 0  # documents that were given out, and entries
    kept = np.empty((0, 3))
    for piece, first in itertools.chain([(text, line)], rest):
        for block in blocks(piece, where, first_line=first):
            triples = _triples(block, num_documents, num_words)
            seen += len(triples)
            triples = np.concatenate([kept, triples])
            if (np.diff(triples[:, 0]) < 0).any() or (len(triples) and triples[0, 0] <= done):
                raise ValueError(
                    f"{where}: its entries are not in the order of documents, so that it cannot be read in pieces: "
                    "sort its lines by their first number, or load it whole and call pack on the corpus."
                )
            last = triples[-1, 0] if len(triples) else done + 1
            whole = triples[triples[:, 0] < last]
            if len(whole):
                yield _rows_of(whole, done, int(last) - 1 - done, num_words)
                done = int(last) - 1
            kept = triples[triples[:, 0] >= last]
    if seen != num_entries:
        raise ValueError(f"{header}: {num_entries} entries are announced and {seen} follow; is it cut short?.")
    yield _rows_of(kept, done, num_documents - done, num_words)


def _rows_of(triples: np.ndarray, before: int, documents: int, words: int) -> scipy.sparse.csr_array:
    places = (triples[:, 0].astype(np.int64) - 1 - before, triples[:, 1].astype(np.int64) - 1)
    if (triples[:, 2] != np.floor(triples[:, 2])).any() or (triples[:, 2] < 0).any():
        raise ValueError("A count is no whole number of zero or more: counts must be whole numbers.")
    return scipy.sparse.coo_array((triples[:, 2].astype(np.int64), places), shape=(documents, words)).tocsr()


def _checked_sizes(sizes: np.ndarray, header: str, vocab_size: int | None) -> tuple[int, int, int]:
    """Numbers of documents, words and entries that a header announces."""
    num_documents, num_words, num_entries = map(int, sizes)
    if vocab_size is not None and vocab_size != num_words:
        raise ValueError(f"{header}: the file has {num_words} words, but its vocabulary has {vocab_size}.")
    _refuse_size(header, "documents", num_documents, num_entries)
    _refuse_size(header, "words", num_words, vocab_size or 0)
    return num_documents, num_words, num_entries


def _triples(block: _Numbers, num_documents: int, num_words: int) -> np.ndarray:
    """Lines ``document word count`` as rows, their ids held to the sizes announced."""
    _refuse(np.repeat(block.per_line != 3, block.per_line), block, "expected 'document word count'")
    triples = block.values.reshape(-1, 3)
    for column, (what, most) in enumerate([("document", num_documents), ("word", num_words)]):
        ids = triples[:, column]
        outside = np.zeros(triples.shape, bool)
        outside[:, column] = ~((ids >= 1) & (ids <= most) & (ids == np.floor(ids)))
        _refuse(outside.ravel(), block, f"the {what} number is not between 1 and {most}, the header's number")
    return triples


def _blocks(text: bytes, where: Path, *, first_line: int = 1, colons: bool = False) -> Iterator[_Numbers]:
    """The numbers of the text, some millions of characters at a time; the first character that cannot be is refused."""
    end = len(text.rstrip(_SPACES))
    start = 0
    while start < end:
        cut = text.find(b"\n", min(start + _BLOCK, end), end)
        cut = end if cut < 0 else cut
        yield _scan(text[start:cut], where, first_line, colons)
        first_line += text.count(b"\n", start, cut + 1)
        start = cut + 1


def _scan(text: bytes, where: Path, first_line: int, colons: bool) -> _Numbers:
    characters = np.frombuffer(text, np.uint8)
    is_digit = (characters >= ord("0")) & (characters <= ord("9"))
    before, after = np.append(False, is_digit[:-1]), np.append(is_digit[1:], False)
    allowed = is_digit | np.isin(characters, np.frombuffer(_SPACES, np.uint8))
    if colons:
        allowed |= (characters == _COLON) & before & after
    if not allowed.all():
        offset = int(np.argmin(allowed))
        line = first_line + text.count(b"\n", 0, offset)
        raise ValueError(
            f"{where}, line {line}: unexpected {text[offset : offset + 1]!r}; only whole numbers belong here."
        )
    starts = np.flatnonzero(is_digit & ~before)
    newlines = np.flatnonzero(characters == _NEWLINE)
    per_line = np.diff(np.searchsorted(starts, newlines), prepend=0, append=starts.size)
    if not per_line.all():
        raise ValueError(
            f"{where}, line {first_line + int(np.argmin(per_line))}: the line is blank; remove it (in LDA-C an empty "
            "document is a line with 0)."
        )
    too_long = np.flatnonzero(is_digit & ~after) - starts >= 18
    values = np.fromstring(text.translate(_COLONS_TO_SPACES), dtype=np.int64, sep=" ")
    block = _Numbers(values, characters[starts - 1] == _COLON, per_line, first_line, where)
    _refuse(too_long | (values > _LARGEST), block, f"a number is larger than {_LARGEST}")
    return block


def _real_block(text: bytes, where: Path, *, first_line: int) -> Iterator[_Numbers]:
    """The numbers of lines ``document word count`` that may have a decimal point or an exponent, as one block."""
    text = text.rstrip(_SPACES)
    blank = re.search(rb"(?:^|\n)[ \t\r]*\n", text)
    if blank:
        line = first_line + text.count(b"\n", 0, blank.end() - 1)
        raise ValueError(f"{where}, line {line}: the line is blank; remove it.")
    if text:
        try:
            values = np.loadtxt(io.BytesIO(text), comments=None, ndmin=2)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{where}: after line {first_line - 1} not all is numbers ({error}).") from None
        yield _Numbers(values.ravel(), np.zeros(values.size, bool), np.full(*values.shape), first_line, where)


def _refuse(wrong: np.ndarray, block: _Numbers, reason: str) -> None:
    """A ``ValueError`` with the line of the first number that is wrong."""
    if wrong.any():
        number = int(np.argmax(wrong))
        raise ValueError(f"{block.where}, line {block.line_of(number)}: {reason} (found {block.values[number]}).")


def _refuse_size(where: str | Path, what: str, size: int, known: int) -> None:
    """A ``ValueError`` for a size that would fill the memory and that nothing in the file bears out."""
    if size > max(_UNNAMED, known):
        least = max(_UNNAMED, known)
        raise ValueError(
            f"{where}: there cannot be {size} {what} here, more than {least}: check the file; more words need a "
            "vocabulary, and more documents as many entries."
        )
