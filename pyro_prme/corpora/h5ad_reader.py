"""The program that reads an AnnData file, run in a process of its own: open this for what is read of an ``.h5ad``.

HDF5 is a large library in C, and a file made to mislead may end it, or have it unpack a few bytes to gigabytes. Here
that ends a process that has a limit of memory and of time, and nothing else: `corpora.h5ad` starts it with the bytes of
the file as its input, and gets the counts and names as the bytes of an npz file, or the sentence of a refusal. It
imports nothing else of the package.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import scipy.sparse

__all__ = ["main", "parts_of"]

_KINDS = {"csr_matrix": scipy.sparse.csr_array, "csc_matrix": scipy.sparse.csc_array}
_BEGIN = b"\x89HDF\r\n\x1a\n"
_STRINGS = 64  # read at a time, each of which may be as long as the file
_ROOM = 512 << 20  # bytes of memory for libraries and copies, beside what is read
_SECONDS, _SPEED = 20, 20 << 20  # of processor time: a number, and one more for so many bytes that may be read


class _Budget:
    """How many bytes may still be read.

    Args:
        limit: at first.
    """

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit

    def spend(self, size: int, what: str) -> None:
        """Counts the bytes of something, and refuses it if they are too many."""
        self.left -= size
        if self.left < 0:
            raise ValueError(
                f"{what} unpacks to more than {self.limit >> 20} MiB: if you trust the file, set PRME_MAX_MIB in the "
                "environment to as many MiB as it may have"
            )


def parts_of(file: Any, limit: int) -> dict[str, np.ndarray]:
    """The counts (as CSR) and the two lists of names of an open file, of at most so many bytes."""
    budget = _Budget(limit)
    counts = _counts(_item(file, "X", "the file"), budget)
    names = {"names": _index(file, "obs", budget), "vocabulary": _index(file, "var", budget)}
    arrays = {"data": counts.data, "indices": counts.indices, "indptr": counts.indptr, "shape": np.array(counts.shape)}
    return arrays | {key: np.array(values, dtype=np.str_) for key, values in names.items()}


def _counts(found: Any, budget: _Budget) -> Any:
    """X as a sparse matrix whose arrays have not been checked; a table of numbers becomes one."""
    if hasattr(found, "dtype"):
        return scipy.sparse.csr_array(_numbers(found, "X", budget, 2))
    kind = _text(found.attrs.get("encoding-type", found.attrs.get("h5sparse_format", "")))
    kind = kind if kind.endswith("_matrix") else f"{kind}_matrix"
    if kind not in _KINDS:
        raise ValueError(f"X is of the kind {kind!r}, and must be a csr_matrix, a csc_matrix or a table of numbers")
    shape = np.asarray(found.attrs.get("shape", found.attrs.get("h5sparse_shape", ())))
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise ValueError("X does not have a shape of two whole numbers")
    parts = [_numbers(_item(found, name, "X"), f"X/{name}", budget, 1) for name in ("data", "indices", "indptr")]
    data, indices, indptr = parts
    high, wide = map(int, shape if kind == "csr_matrix" else shape[::-1])
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ValueError("X has indices that are not whole numbers")
    if len(indptr) != high + 1 or len(data) != len(indices) or indptr[0] != 0 or indptr[-1] != len(data):
        raise ValueError("the arrays of X do not fit together")
    if (indptr[1:] < indptr[:-1]).any() or (len(indices) and not 0 <= indices.min() <= indices.max() < wide):
        raise ValueError("the arrays of X do not fit together")
    budget.spend(8 * int(shape.max()), "X")  # of the rows and columns that it announces
    return scipy.sparse.csr_array(_KINDS[kind]((data, indices, indptr), shape=tuple(map(int, shape))))


def _index(file: Any, name: str, budget: _Budget) -> list[str]:
    """The names of documents ("obs") or words ("var")."""
    table = _item(file, name, "the file")
    if hasattr(table, "dtype"):  # before AnnData 0.7 the frame was one array with fields
        field = next((field for field in ("index", "_index") if field in (table.dtype.names or ())), None)
        if field is None:
            raise ValueError(f"{name} has no index")
        return _strings(table, f"{name}/{field}", budget, field)
    key = _text(table.attrs.get("_index", "_index"))
    found = _item(table, key, name)
    if not hasattr(found, "dtype"):  # an array with a mask for what is missing
        found = _item(found, "values", f"{name}/{key}")
    return _strings(found, f"{name}/{key}", budget)


def _item(group: Any, name: str, where: str) -> Any:
    """A part of a group that lies in the file itself."""
    link = group.get(name, getlink=True)
    if link is None:
        raise ValueError(f"{where} has no {name!r}")
    if type(link).__name__ != "HardLink":
        raise ValueError(f"{name!r} of {where} is a link, and must be in the file itself")
    return group[name]


def _numbers(dataset: Any, what: str, budget: _Budget, dimensions: int) -> np.ndarray:
    _need_plain(dataset, what, budget)
    if dataset.dtype.kind not in "biuf" or len(dataset.shape) != dimensions:
        raise ValueError(f"{what} is an array of {dataset.dtype} of shape {dataset.shape}, and must be of numbers")
    budget.spend(dataset.size * dataset.dtype.itemsize, what)
    return np.asarray(dataset[...])


def _strings(dataset: Any, what: str, budget: _Budget, field: str | None = None) -> list[str]:
    _need_plain(dataset, what, budget)
    if len(dataset.shape) != 1:
        raise ValueError(f"{what} has shape {dataset.shape}, and must be a list")
    budget.spend(dataset.size * dataset.dtype.itemsize, what)
    strings: list[str] = []
    for start in range(0, dataset.shape[0], _STRINGS):
        block = dataset[start : start + _STRINGS]
        for value in block if field is None else block[field]:
            strings.append(_text(value))
            budget.spend(4 * len(strings[-1]), what)
    widest = max(map(len, strings), default=0)
    budget.spend(4 * widest * len(strings), what)  # as an array of numpy's
    return strings


def _need_plain(dataset: Any, what: str, budget: _Budget) -> None:
    """Refuses arrays whose numbers lie elsewhere, or in blocks that are larger than what may be read."""
    if not hasattr(dataset, "dtype") or dataset.shape is None:
        raise ValueError(f"{what} is not an array")
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"{what} has its numbers in other files")
    size = dataset.dtype.itemsize
    for length in dataset.chunks or ():
        size *= length
    if size > budget.limit:
        budget.spend(size, what)


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _limit_process(limit: int) -> None:
    """Bounds the memory and the processor time of this process, where the system can."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    resource.setrlimit(resource.RLIMIT_AS, 2 * (used + _ROOM + 4 * limit,))
    resource.setrlimit(resource.RLIMIT_CPU, 2 * (_SECONDS + limit // _SPEED,))


def main() -> int:
    """Reads standard input; writes an npz file to standard output, or a sentence to standard error."""
    limit = int(sys.argv[1])
    try:
        import h5py
    except ImportError:
        print("it needs the package h5py: install it, or save the counts as npz", file=sys.stderr)
        return 2
    data = sys.stdin.buffer.read()
    _limit_process(limit)
    try:
        if not data.startswith(_BEGIN):
            raise ValueError("it does not begin as HDF5 files do")
        with h5py.File(h5py.h5f.open_file_image(data)) as file:
            arrays = parts_of(file, limit)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # a foreign library with errors of its own
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(buffer.getbuffer())
    return 0


if __name__ == "__main__":
    sys.exit(main())
