"""Corpora as folders on disk whose counts are mapped, not read: open this for what such a folder holds."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import scipy.sparse

from pyro_prme.corpora.corpus import Corpus, Numbered, checked_corpus
from pyro_prme.corpora.files import first_bad_word, printable, read_text_lines, read_words
from pyro_prme.corpora.mapped import give_back

__all__ = ["PackedWriter", "is_packed", "open_packed"]

_ABOUT = "corpus.json"
_KIND, _VERSION = "pyro_prme corpus", 1
_ARRAYS = ("indptr", "indices", "data")
_BLOCK = 1 << 22  # entries looked at or copied at a time
_LARGEST_ABOUT = 1 << 16  # bytes
_SHOWN = 200  # characters of another library's words in a message


def is_packed(path: Path) -> bool:
    """Whether a folder was made by `PackedWriter`."""
    return (path / _ABOUT).is_file()


class PackedWriter:
    """Writes a corpus folder in one pass: CSR arrays as ``.npy`` files, the words, the names, sizes and checksums.

    The folder takes its name when all of it is on the disk. The same documents give the same bytes.

    Args:
        folder: to be made; there must be nothing of that name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))
        if os.path.lexists(folder):
            raise ValueError(f"{folder} exists already: give the name of a new folder, or remove it first.")
        self._temporary = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.tmp")
        self.documents, self.entries, self.tokens, self._most = 0, 0, 0, -1
        self._files: dict[str, Any] = {}

    def __enter__(self) -> PackedWriter:
        try:
            self._temporary.mkdir()
            for name in _ARRAYS:
                self._files[name] = open(self._path(name), "wb")
                self._write_header(name, 0)
        except OSError as error:
            raise ValueError(f"{self.folder} cannot be made ({error.strerror}): check the folder above it.") from None
        self._files["indptr"].write(np.zeros(1, np.int64).tobytes())
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        shutil.rmtree(self._temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise ValueError(
                f"{self.folder} cannot be written ({error.strerror or error}): check the space on the disk."
            ) from None

    def append(self, counts: scipy.sparse.csr_array) -> None:
        """Adds documents: canonical counts of whole numbers, without stored zeros."""
        ends = counts.indptr[1:].astype(np.int64) + self.entries
        self._files["indptr"].write(ends.tobytes())
        self._files["indices"].write(counts.indices.astype(np.int32).tobytes())
        self._files["data"].write(counts.data.astype(np.int32).tobytes())
        self.documents += counts.shape[0]
        self.entries += counts.nnz
        self.tokens += int(counts.data.sum(dtype=np.int64))
        self._most = max(self._most, int(counts.indices.max(initial=-1)))

    def finish(self, vocabulary: Sequence[str], names: Sequence[str] | None = None) -> None:
        """Writes words, names (numbers if left out) and checksums, and gives the folder its name."""
        if not self.tokens:
            raise ValueError("The corpus has no tokens: every document is empty, so check the file and the vocabulary.")
        if self._most >= len(vocabulary):
            raise ValueError(
                f"There is a word with the number {self._most}, and the vocabulary has {len(vocabulary)} words: give "
                "the right vocabulary."
            )
        if names is not None and len(names) != self.documents:
            raise ValueError(f"There are {len(names)} names for {self.documents} documents: give one for each.")
        _refuse_bad_lines("The vocabulary", vocabulary, may_repeat=False)
        lists = {"vocabulary.txt": vocabulary}
        if names is not None and not isinstance(names, Numbered):
            _refuse_bad_lines("The document names", names, may_repeat=True)
            lists["names.txt"] = names
        for name, lines in lists.items():
            with open(self._temporary / name, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{line}\n" for line in lines)
        for name, length in zip(_ARRAYS, (self.documents + 1, self.entries, self.entries), strict=True):
            self._write_header(name, length)
            self._files[name].close()
        files = sorted(path.name for path in self._temporary.iterdir())
        about = {"kind": _KIND, "version": _VERSION, "documents": self.documents, "words": len(vocabulary)}
        about |= {"entries": self.entries, "tokens": self.tokens}
        about |= {"files": {name: _fingerprint(self._temporary / name) for name in files}}
        (self._temporary / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        for path in self._temporary.iterdir():
            _flush(path)
        os.rename(self._temporary, self.folder)

    def _path(self, name: str) -> Path:
        return self._temporary / f"{name}.npy"

    def _write_header(self, name: str, length: int) -> None:
        """The header of an array, which numpy pads so that a longer one fits in the same place."""
        file, kind = self._files[name], np.dtype("<i8" if name == "indptr" else "<i4")
        file.seek(0)
        header = {"descr": kind.str, "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(file, header)


def _refuse_bad_lines(what: str, lines: Sequence[str], *, may_repeat: bool) -> None:
    bad = first_bad_word(lines, may_repeat=may_repeat)
    if bad is not None:
        raise ValueError(f"{what}, position {bad[0]} (from 0): {bad[1]}.")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fingerprint(path: Path) -> dict[str, Any]:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return {"bytes": path.stat().st_size, "sha256": found.hexdigest()}


def open_packed(folder: str | Path) -> Corpus:
    """The corpus of a folder, its counts mapped: pages are read from disk when they are needed, and given back.

    Checksums and arrays are read once and checked, in blocks, so that a folder that was cut short or altered, or
    made to mislead, is refused.
    """
    folder = Path(folder)
    about = _about(folder)
    for name, known in about["files"].items():
        path = folder / name
        if Path(name).name != name or not os.path.isfile(path):
            raise _unsound(folder, f"{name!r} is missing")
        try:
            found = _fingerprint(path)
        except OSError as error:
            raise _unsound(folder, f"{name!r} cannot be read ({error.strerror})") from None
        if found["bytes"] != known.get("bytes"):
            raise _unsound(
                folder, f"{name!r} has {found['bytes']} bytes, and was written with {_short(known.get('bytes'))}"
            )
        if found != known:
            raise _unsound(folder, f"{name!r} was altered: its checksum is another")
    missing = {f"{name}.npy" for name in _ARRAYS} | {"vocabulary.txt"}
    missing -= about["files"].keys()
    if missing:
        raise _unsound(folder, f"{min(missing)} is not among its files")
    sizes = {"indptr": about["documents"] + 1, "indices": about["entries"], "data": about["entries"]}
    arrays = {name: _mapped(folder, name, size) for name, size in sizes.items()}
    vocabulary = read_words(folder / "vocabulary.txt")
    if len(vocabulary) != about["words"]:
        raise _unsound(folder, f"there are {len(vocabulary)} words, and {about['words']} are announced")
    _check_arrays(folder, arrays, len(vocabulary))
    names: Sequence[str] = Numbered(about["documents"])
    if "names.txt" in about["files"]:
        names = tuple(read_text_lines(folder / "names.txt"))
        if len(names) != about["documents"]:
            raise _unsound(folder, f"there are {len(names)} names for {about['documents']} documents")
        bad = first_bad_word(names, may_repeat=True)
        if bad is not None:
            raise _unsound(folder, f"names.txt, line {bad[0] + 1}: {bad[1]}")
    indptr = arrays["indptr"]  # of the indices' type, or scipy would bring them into memory to convert them
    if len(arrays["indices"]) <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
        indptr.flags.writeable = False
    parts = arrays["data"], arrays["indices"], indptr
    give_back(*parts)
    return checked_corpus(scipy.sparse.csr_array(parts, shape=(len(names), len(vocabulary))), vocabulary, names)


def _about(folder: Path) -> dict[str, Any]:
    path = folder / _ABOUT
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is no file")
        if path.stat().st_size > _LARGEST_ABOUT:
            raise ValueError("it is too long")
        about = json.loads(path.read_text(encoding="utf-8"))
        numbers = [about[name] for name in ("documents", "words", "entries")]
        version = about["version"]
        known = isinstance(about["files"], dict) and all(isinstance(f, dict) for f in about["files"].values())
        sound = known and all(type(number) is int and number > 0 for number in numbers) and about["kind"] == _KIND
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unsound(folder, f"{_ABOUT} cannot be understood ({_short(error)})") from None
    if not sound:
        raise _unsound(folder, f"{_ABOUT} does not have what it should")
    if version != _VERSION:
        raise ValueError(
            f"{folder} was packed by another version of pyro_prme (its format is {_short(version)}, and this one reads "
            f"{_VERSION}): pack the corpus again."
        )
    return about


def _short(value: object) -> str:
    """What it says, in one line that is not long."""
    return printable(" ".join(str(value).split()))[:_SHOWN]


def _unsound(folder: Path, why: str) -> ValueError:
    return ValueError(f"{folder} is not a whole corpus folder: {why}. Pack the corpus again, or fetch the folder anew.")


def _mapped(folder: Path, name: str, size: int) -> np.ndarray:
    try:
        array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy's reader of headers raises errors of many kinds
        raise _unsound(folder, f"{name}.npy cannot be read ({_short(error)})") from None
    kind = np.int64 if name == "indptr" else np.int32
    if array.dtype != kind or array.shape != (size,):
        raise _unsound(folder, f"{name}.npy has type {array.dtype} and shape {array.shape}, not {size} numbers")
    return array


def _check_arrays(folder: Path, arrays: dict[str, np.ndarray], vocab_size: int) -> None:
    """Refuses arrays that do not make canonical counts; a block at a time."""
    indptr, indices, data = (arrays[name] for name in _ARRAYS)
    if indptr[0] != 0 or indptr[-1] != len(indices) or bool((indptr[1:] < indptr[:-1]).any()):
        raise _unsound(folder, "its documents do not follow one another")
    for start, stop in _pieces(len(indices)):
        ids, counts = np.asarray(indices[start:stop]), np.asarray(data[start:stop])
        if ids.min() < 0 or ids.max() >= vocab_size:
            raise _unsound(folder, f"it has word numbers outside of 0 to {vocab_size - 1}")
        if counts.min() < 1:
            raise _unsound(folder, "it has counts below one")
        falls = np.flatnonzero(np.diff(np.asarray(indices[max(start - 1, 0) : stop])) <= 0) + max(start - 1, 0) + 1
        if falls.size and not np.isin(falls, indptr[np.searchsorted(indptr, falls)]).all():
            raise _unsound(folder, "the words of a document are not in order")


def _pieces(entries: int) -> Iterator[tuple[int, int]]:
    for start in range(0, entries, _BLOCK):
        yield start, min(start + _BLOCK, entries)
