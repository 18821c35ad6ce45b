"""Sparse counts, checked: open this to see what a matrix must be to become a ``Corpus``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

__all__ = ["checked_counts", "counts_arrays", "counts_from_arrays", "float_csr"]

_LARGEST = np.iinfo(np.int32).max


def float_csr(counts: Any) -> scipy.sparse.csr_array:
    """A float64 copy of any sparse or dense matrix with two dimensions, its indices verified."""
    if not scipy.sparse.issparse(counts):
        try:
            counts = np.asarray(counts)
        except ValueError:
            raise ValueError("the rows of the counts differ in length: give one number for each word") from None
    if counts.ndim != 2:
        raise ValueError(f"the counts have {counts.ndim} dimensions, and two are needed: documents x words")
    if counts.dtype.kind not in ("biuf" if scipy.sparse.issparse(counts) else "biufO"):
        raise ValueError(f"the counts are of type {counts.dtype}, and must be numbers: convert them first")
    try:
        if counts.dtype.kind == "O":
            counts = counts.astype(np.float64)
        matrix = scipy.sparse.csr_array(counts, dtype=np.float64, copy=True)
        matrix.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the counts are no good matrix of numbers ({error}): check how they were made") from None
    return matrix


def checked_counts(
    matrix: scipy.sparse.csr_array, vocabulary: Sequence[str], names: Sequence[str]
) -> scipy.sparse.csr_array:
    """The same counts as canonical, read-only int32; anything but whole numbers of zero or more is refused by name."""
    _refuse_bad_values(matrix, vocabulary, names)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    _refuse_bad_values(matrix, vocabulary, names)
    index_type = np.int32 if max(matrix.nnz, *matrix.shape) <= _LARGEST else np.int64
    parts = (matrix.data.astype(np.int32), matrix.indices.astype(index_type), matrix.indptr.astype(index_type))
    counts = scipy.sparse.csr_array(parts, shape=matrix.shape)
    counts.has_canonical_format = True
    for array in (counts.data, counts.indices, counts.indptr):
        array.flags.writeable = False
    return counts


def _refuse_bad_values(matrix: scipy.sparse.csr_array, vocabulary: Sequence[str], names: Sequence[str]) -> None:
    values = matrix.data
    good = (values >= 0) & (values <= _LARGEST) & (values == np.floor(values))
    if good.all():
        return
    entry = int(np.argmin(good))
    n = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    d = int(matrix.indices[entry])
    raise ValueError(
        f"document {n} ({names[n]!r}) has the count {values[entry]:g} for word {d} ({vocabulary[d]!r}): "
        f"counts must be whole numbers from 0 to {_LARGEST}"
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
        raise ValueError(f"{where} lacks the array {missing[0]!r}: it is no corpus saved as npz")
    kind = arrays.get("format", np.array(b"csr")).tobytes().rstrip(b"\0").replace(b"\0", b"")
    if kind != b"csr":
        raise ValueError(f"{where} holds a sparse matrix that is not CSR: save it again after tocsr()")
    index_arrays = [arrays[key] for key in ("shape", "indices", "indptr")]
    if any(array.dtype.kind not in "iu" for array in index_arrays) or arrays["shape"].shape != (2,):
        raise ValueError(f"{where} has indices or a shape that are not whole numbers: it is no corpus saved as npz")
    try:
        shape, indices, indptr = (array.astype(np.int64) for array in index_arrays)
        matrix = scipy.sparse.csr_array((arrays["data"], indices, indptr), shape=tuple(map(int, shape)))
        return float_csr(matrix)
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{where} does not hold a good CSR matrix ({error}): write it again") from None
