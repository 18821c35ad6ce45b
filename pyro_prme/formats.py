"""LDA-C, UCI bag of words and Matrix Market as bytes: open this to see what each format may hold."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.io
import scipy.sparse

__all__ = ["ldac_bytes", "mtx_bytes", "parse_ldac", "parse_mtx", "parse_uci", "uci_bytes"]

_BLOCK = 1 << 23  # bytes of text parsed at a time
_LARGEST = np.iinfo(np.int32).max
_UNNAMED = 10_000_000  # more words without a vocabulary, or more empty documents, than this are a broken file
_SPACES = b" \t\r\n"
_COLON, _NEWLINE = ord(":"), ord("\n")
_COLONS_TO_SPACES = bytes.maketrans(b":", b" ")


class _Numbers(NamedTuple):
    """The whole numbers of a block of lines, in order."""

    values: np.ndarray  # (numbers,) int64
    after_colon: np.ndarray  # (numbers,) bool: a colon stands directly before it
    per_line: np.ndarray  # (lines,) how many stand in each line
    first_line: int  # number of the block's first line in the file, from 1

    def line_of(self, number: int) -> int:
        """Line, from 1, of the number at a position in ``values``."""
        return self.first_line + int(np.searchsorted(np.cumsum(self.per_line), number, side="right"))


def parse_ldac(text: bytes, where: Path, vocab_size: int | None) -> scipy.sparse.csr_array:
    """Counts from LDA-C text: a line ``n id:count ... id:count`` with n pairs and ids from 0 for each document.

    Args:
        text: content of the file.
        where: its path, for messages.
        vocab_size: number of words; if None, one more than the largest id.

    Returns:
        Counts, shape (lines, vocab_size).
    """
    lengths, ids, counts = [], [], []
    for block in _blocks(text, where, colons=True):
        first = np.cumsum(block.per_line) - block.per_line
        place = np.arange(block.values.size) - np.repeat(first, block.per_line)  # of each number in its line
        announced = block.values[first]
        _refuse(
            block.after_colon != ((place > 0) & (place % 2 == 0)), block, where, "expected 'n id:count id:count ...'"
        )
        wrong = np.repeat(block.per_line != 2 * announced + 1, block.per_line)
        _refuse(
            wrong, block, where, "the first number is not the number of id:count pairs that follow; is it cut short?"
        )
        is_id = place % 2 == 1
        if vocab_size is not None:
            reason = f"a word id is past the end of the vocabulary of {vocab_size} words; give the right vocabulary"
            _refuse(is_id & (block.values >= vocab_size), block, where, reason)
        lengths.append(announced)
        ids.append(block.values[is_id].astype(np.int32))
        counts.append(block.values[(place > 0) & ~is_id].astype(np.int32))
    columns = np.concatenate(ids)
    if vocab_size is None:
        vocab_size = int(columns.max(initial=0)) + 1
        _refuse_size(where, "words", vocab_size, 0)
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
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
    head = re.match(rb"[^\n]*\n[^\n]*\n[^\n]*(\n|$)", text)
    header = [block.values for block in _blocks(head.group(), where)] if head else []
    if not header or header[0].size != 3:
        raise ValueError(f"{where}, line 1: the first three lines must be the numbers of documents, words and entries")
    num_documents, header_words, num_entries = map(int, header[0])
    if vocab_size is not None and vocab_size != header_words:
        raise ValueError(f"{where}, line 2: the file has {header_words} words, but its vocabulary has {vocab_size}")
    _refuse_size(where, "documents", num_documents, num_entries)
    _refuse_size(where, "words", header_words, vocab_size or 0)
    entries = [np.empty((0, 3), np.int64)]
    body = text[head.end() :] if head else b""
    for block in _blocks(body, where, first_line=4) if body.strip() else ():
        _refuse(np.repeat(block.per_line != 3, block.per_line), block, where, "expected 'document word count'")
        triples = block.values.reshape(-1, 3)
        for column, (what, most) in enumerate([("document", num_documents), ("word", header_words)]):
            outside = np.zeros(triples.shape, bool)
            outside[:, column] = (triples[:, column] < 1) | (triples[:, column] > most)
            _refuse(
                outside.ravel(), block, where, f"the {what} number is not between 1 and {most}, the header's number"
            )
        entries.append(triples)
    documents, words, counts = np.concatenate(entries).T
    if counts.size != num_entries:
        raise ValueError(
            f"{where}, line 3: {num_entries} entries are announced and {counts.size} follow; is it cut short?"
        )
    return scipy.sparse.coo_array((counts, (documents - 1, words - 1)), shape=(num_documents, header_words)).tocsr()


def parse_mtx(text: bytes, where: Path) -> scipy.sparse.sparray | np.ndarray:
    """The matrix in Matrix Market text, documents x words."""
    try:
        rows, columns, entries, *_ = scipy.io.mminfo(io.BytesIO(text))
        if entries > len(text):
            raise ValueError(f"{entries} entries are announced, more than the file has characters")
        _refuse_size(where, "documents", rows, entries)
        _refuse_size(where, "words", columns, entries)
        return scipy.io.mmread(io.BytesIO(text))
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"{where} is not a good Matrix Market file ({error}): write it again") from None


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
            f"{where}, line {line}: unexpected {text[offset : offset + 1]!r}; only whole numbers belong here"
        )
    starts = np.flatnonzero(is_digit & ~before)
    newlines = np.flatnonzero(characters == _NEWLINE)
    per_line = np.diff(np.searchsorted(starts, newlines), prepend=0, append=starts.size)
    if not per_line.all():
        raise ValueError(
            f"{where}, line {first_line + int(np.argmin(per_line))}: the line is blank; remove it (in LDA-C an empty "
            "document is a line with 0)"
        )
    too_long = np.flatnonzero(is_digit & ~after) - starts >= 18
    values = np.fromstring(text.translate(_COLONS_TO_SPACES), dtype=np.int64, sep=" ")
    block = _Numbers(values, characters[starts - 1] == _COLON, per_line, first_line)
    _refuse(too_long | (values > _LARGEST), block, where, f"a number is larger than {_LARGEST}")
    return block


def _refuse(wrong: np.ndarray, block: _Numbers, where: Path, reason: str) -> None:
    """A ``ValueError`` with the line of the first number that is wrong."""
    if wrong.any():
        number = int(np.argmax(wrong))
        raise ValueError(f"{where}, line {block.line_of(number)}: {reason} (found {block.values[number]})")


def _refuse_size(where: Path, what: str, size: int, known: int) -> None:
    """A ``ValueError`` for a size that would fill the memory and that nothing in the file bears out."""
    if size > max(_UNNAMED, known):
        raise ValueError(f"{where} announces {size} {what}, far more than it can have: check the file")
