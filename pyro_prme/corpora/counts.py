"""Sparse counts, checked: open this to see what a matrix must be to become a ``Corpus``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

__all__ = [
    "LARGEST_COUNT",
    "checked_counts",
    "counts_arrays",
    "counts_from_arrays",
    "float_csr",
    "refuse_other_things",
    "refuse_unsound",
    "sound_csr",
    "tokens_of_words",
    "words_met",
]

_BLOCK = 1 << 22  # entries looked at at a time

#: The largest count of a word in a document.
LARGEST_COUNT = int(np.iinfo(np.int32).max)
_NO_TABLES = (Number, Mapping, Set, Iterator)  # but a sparse matrix of scipy's that is a mapping is one


def refuse_other_things(documents: Any) -> None:
    """Says what to call, where documents are asked for and something near to them is given."""
    if _is_text(documents):
        what = "texts, and counts of words are needed: make them with Corpus.from_texts"
    elif isinstance(documents, tuple) and documents and hasattr(documents[0], "vocabulary"):
        what = "a tuple that begins with a corpus, as Corpus.align and Corpus.split return: give one corpus of it"
    elif hasattr(documents, "observed") and hasattr(documents, "held_out"):
        what = "a token split, which has two corpora: give its observed or its held_out"
    elif documents is None or (isinstance(documents, _NO_TABLES) and not scipy.sparse.issparse(documents)):
        what = f"of the type {type(documents).__name__}, and a matrix of counts is needed, documents x words"
    elif "sparse" in str(getattr(documents, "layout", "")):
        what = "a sparse tensor, and a scipy.sparse matrix is needed: make one of its indices and values"
    elif getattr(documents, "ndim", 2) == 1:
        what = "one row of numbers, and a matrix is needed, documents x words. Reshape your data with reshape(1, -1)"
    elif getattr(getattr(documents, "dtype", None), "kind", "") == "c":
        what = "complex numbers, and counts are needed. Complex data not supported"
    else:
        return
    raise ValueError(f"The documents are {what}.")


def _is_text(documents: Any) -> bool:
    """Whether it is a string, or a sequence of strings or of lists of strings."""
    for _ in range(3):
        if isinstance(documents, str):
            return True
        listed = isinstance(documents, list | tuple | np.ndarray) or type(documents).__name__ == "Series"
        if not listed or getattr(documents, "ndim", 1) == 0 or not len(documents):
            return False
        documents = next(iter(documents))
    return False


def refuse_unsound(matrix: Any) -> None:
    """Refuses a sparse matrix whose arrays do not fit together, which scipy's and our compiled loops would believe.

    It reads the arrays alone, and no flag or method of the matrix: a matrix with one wrong number in ``indptr`` or
    ``indices`` ends the process, or fills the memory, as soon as it is sliced, converted or summed. Other formats than
    CSR, CSC, BSR and COO have no such arrays; ``sound_csr`` converts them first.
    """
    fault = _fault(matrix)
    if fault is not None:
        raise _broken(matrix, fault)


def _broken(matrix: Any, fault: str) -> ValueError:
    return ValueError(
        f"The {matrix.format.upper()} matrix is broken: {fault}. Make it again, and look for code that writes into its "
        "arrays."
    )


def _fault(matrix: Any) -> str | None:
    """What is wrong with the arrays of a CSR, CSC, BSR or COO matrix, or None."""
    if matrix.ndim != 2:
        return f"it has {matrix.ndim} dimensions, and two are needed: documents x words"
    if matrix.format == "coo":
        if not len(matrix.row) == len(matrix.col) == len(matrix.data):
            return f"{len(matrix.row)} rows, {len(matrix.col)} columns and {len(matrix.data)} values are given"
        sizes = zip(("row", "column"), (matrix.row, matrix.col), matrix.shape, strict=True)
        return next((found for what, ids, size in sizes if (found := _outside(ids, size, what))), None)
    if matrix.format not in ("csr", "csc", "bsr"):
        return None
    row, column = ("column", "row") if matrix.format == "csc" else ("row", "column")
    high, wide = matrix.shape[::-1] if matrix.format == "csc" else matrix.shape
    if matrix.format == "bsr":
        blocks = matrix.data.shape[1:]
        if matrix.data.ndim != 3 or any(size % max(block, 1) for size, block in zip((high, wide), blocks, strict=True)):
            return f"its blocks have shape {blocks} and it has shape {matrix.shape}"
        high, wide, row, column = high // blocks[0], wide // blocks[1], "row of blocks", "column of blocks"
    pointers, indices = matrix.indptr, matrix.indices
    if pointers.ndim != 1 or pointers.dtype.kind not in "iu" or len(pointers) != high + 1:
        return f"indptr must be {high + 1} whole numbers, one more than it has {row}s"
    if len(matrix.data) != len(indices):
        return f"there are {len(indices)} indices and {len(matrix.data)} values"
    if pointers[0] != 0:
        return f"indptr begins with {pointers[0]}, not with 0"
    falls = pointers[1:] < pointers[:-1]
    if falls.any():
        at = int(np.argmax(falls))
        return f"{row} {at} begins at entry {pointers[at]} and ends at {pointers[at + 1]}"
    if pointers[-1] > len(indices):
        return f"indptr ends with {pointers[-1]}, and there are {len(indices)} entries"
    return _outside(indices, wide, column)


def _outside(ids: np.ndarray, size: int, what: str) -> str | None:
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        return f"the numbers of its {what}s are not whole numbers"
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
        wrong = ids.min() if ids.min() < 0 else ids.max()
        return f"it has an entry in {what} {wrong}, and {what}s run from 0 to {size - 1}"
    return None


def sound_csr(counts: Any, dtype: Any = None, *, copy: bool = False) -> scipy.sparse.csr_matrix:
    """Any sparse or dense matrix of numbers as CSR, refused if its arrays do not fit together or hold no numbers.

    Duplicates are summed in float64 where a format has them, so that small types do not overflow. The result says of
    itself only what is so: flags that the matrix carried, such as ``has_canonical_format``, are forgotten.

    Args:
        counts: shape (N, D).
        dtype: of the result; that of the counts if left out.
        copy: whether the result may not share arrays with a CSR matrix that was given.
    """
    if not scipy.sparse.issparse(counts):
        return scipy.sparse.csr_matrix(counts, dtype=dtype)
    if counts.format not in ("csr", "csc", "bsr", "coo"):
        try:
            counts = counts.tocoo()
        except (ValueError, IndexError, OverflowError) as error:
            raise _broken(counts, str(error)) from None
    refuse_unsound(counts)
    if counts.dtype.kind not in "biuf":
        raise ValueError(f"The counts are of type {counts.dtype}, and must be real numbers: convert them first.")
    if counts.format != "csr":
        counts, copy = counts.astype(np.float64).tocsr(), False
    used = int(counts.indptr[-1])
    parts = counts.data[:used], counts.indices[:used], counts.indptr
    return scipy.sparse.csr_matrix(parts, shape=counts.shape, dtype=dtype, copy=copy)


def words_met(counts: scipy.sparse.csr_matrix) -> int:
    """How many different words have entries."""
    met = np.zeros(counts.shape[1], bool)
    for start in range(0, len(counts.indices), _BLOCK):
        met[counts.indices[start : start + _BLOCK]] = True
    return int(met.sum())


def tokens_of_words(counts: scipy.sparse.csr_matrix) -> np.ndarray:
    """How often each word occurs, shape (D,), read block by block."""
    totals = np.zeros(counts.shape[1])
    for start in range(0, len(counts.indices), _BLOCK):
        part = slice(start, start + _BLOCK)
        totals += np.bincount(counts.indices[part], counts.data[part], counts.shape[1])
    return totals


def float_csr(counts: Any) -> scipy.sparse.csr_array:
    """A float64 copy of any sparse or dense matrix with two dimensions, its indices verified."""
    if scipy.sparse.issparse(counts):
        return scipy.sparse.csr_array(sound_csr(counts, np.float64, copy=True))
    try:
        counts = np.asarray(counts)
    except ValueError:
        raise ValueError("The rows of the counts differ in length: give one number for each word.") from None
    if counts.ndim != 2:
        raise ValueError(f"The counts have {counts.ndim} dimensions, and two are needed: documents x words.")
    if counts.dtype.kind not in "biufO":
        raise ValueError(f"The counts are of type {counts.dtype}, and must be numbers: convert them first.")
    try:
        if counts.dtype.kind == "O":
            counts = counts.astype(np.float64)
        return scipy.sparse.csr_array(counts, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The counts are no good matrix of numbers ({error}): check how they were made.") from None


def checked_counts(
    matrix: scipy.sparse.csr_array, vocabulary: Sequence[str], names: Sequence[str]
) -> scipy.sparse.csr_array:
    """The same counts as canonical, read-only int32; anything but whole numbers of zero or more is refused by name."""
    _refuse_bad_values(matrix, vocabulary, names)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    _refuse_bad_values(matrix, vocabulary, names)
    index_type = np.int32 if max(matrix.nnz, *matrix.shape) <= LARGEST_COUNT else np.int64
    parts = (matrix.data.astype(np.int32), matrix.indices.astype(index_type), matrix.indptr.astype(index_type))
    counts = scipy.sparse.csr_array(parts, shape=matrix.shape)
    counts.has_canonical_format = True
    for array in (counts.data, counts.indices, counts.indptr):
        array.flags.writeable = False
    return counts


def _refuse_bad_values(matrix: scipy.sparse.csr_array, vocabulary: Sequence[str], names: Sequence[str]) -> None:
    values = matrix.data
    good = (values >= 0) & (values <= LARGEST_COUNT) & (values == np.floor(values))
    if good.all():
        return
    entry = int(np.argmin(good))
    n = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    d = int(matrix.indices[entry])
    raise ValueError(
        f"Document {n} ({names[n]!r}) has the count {values[entry]:g} for word {d} ({vocabulary[d]!r}): "
        f"counts must be whole numbers from 0 to {LARGEST_COUNT}."
    )


def counts_arrays(counts: scipy.sparse.csr_array) -> dict[str, np.ndarray]:
    """Named arrays of the counts in the smallest types that hold them, as ``scipy.sparse.load_npz`` reads them."""
    return {
        "format": np.array(b"csr"),
        "shape": np.array(counts.shape),
        "data": counts.data.astype(np.min_scalar_type(int(counts.data.max(initial=0)))),
        "indices": counts.indices.astype(np.min_scalar_type(counts.shape[1])),
        "indptr": counts.indptr,
    }


def counts_from_arrays(arrays: Mapping[str, np.ndarray], where: str | Path) -> scipy.sparse.csr_array:
    """The counts of an npz file, written by ``counts_arrays`` or as CSR by ``scipy.sparse.save_npz``."""
    missing = [key for key in ("shape", "data", "indices", "indptr") if key not in arrays]
    if missing:
        raise ValueError(f"{where} lacks the array {missing[0]!r}: it is no corpus saved as npz.")
    kind = arrays.get("format", np.array(b"csr")).tobytes().rstrip(b"\0").replace(b"\0", b"")
    if kind != b"csr":
        raise ValueError(f"{where} holds a sparse matrix that is not CSR: save it again after tocsr().")
    index_arrays = [arrays[key] for key in ("shape", "indices", "indptr")]
    if any(array.dtype.kind not in "iu" for array in index_arrays) or arrays["shape"].shape != (2,):
        raise ValueError(f"{where} has indices or a shape that are not whole numbers: it is no corpus saved as npz.")
    try:
        shape, indices, indptr = (array.astype(np.int64) for array in index_arrays)
        matrix = scipy.sparse.csr_array((arrays["data"], indices, indptr), shape=tuple(map(int, shape)))
        fault = _fault(matrix)
        if fault is not None or matrix.dtype.kind not in "biuf":
            raise ValueError(fault or f"its counts are of type {matrix.dtype}, and must be numbers")
        return float_csr(matrix)
    except (TypeError, ValueError, IndexError) as error:
        why = str(error).removesuffix(".")
        raise ValueError(f"{where} does not hold a good CSR matrix ({why}): write it again.") from None
