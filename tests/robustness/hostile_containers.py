"""AnnData files and corpus folders, small on the disk, that ask for much memory or time."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pyro_prme.corpora.corpus import Corpus
from tests.robustness.fuzzed_h5ad import h5ad_bytes
from tests.robustness.trials import MIB

__all__ = ["FOLDERS", "H5AD"]

Make = Callable[[np.random.Generator, Path], Path]


def _h5ad(change: Callable[[Any], None]) -> Make:
    """A sound file, changed by a function of it."""

    def make(rng: np.random.Generator, folder: Path) -> Path:
        folder.mkdir()
        path = folder / "c.h5ad"
        path.write_bytes(h5ad_bytes())
        with h5py.File(path, "r+") as file:
            change(file)
        return path

    return make


def _packed_array(file: Any, name: str, size: int, chunk: int, block: bytes) -> None:
    """An array of int64 in place of one, each block of which is given packed."""
    del file[name]
    array = file.create_dataset(name, (size,), "i8", chunks=(chunk,), compression="gzip")
    for start in range(0, size, chunk):
        array.id.write_direct_chunk((start,), block)


def _bomb(file: Any) -> None:
    _packed_array(file, "X/data", 1 << 28, 1 << 20, zlib.compress(bytes(8 * MIB), 9))


def _block_bomb(file: Any) -> None:
    packer = zlib.compressobj(9)
    block = b"".join([*(packer.compress(bytes(MIB)) for _ in range(3000)), packer.flush()])
    _packed_array(file, "X/data", 12, 12, block)


def _large_block(file: Any) -> None:
    del file["X/data"]
    file.create_dataset("X/data", (3,), "i8", maxshape=(None,), chunks=(2**28,), compression="gzip")


def _long_names(file: Any) -> None:
    del file["var/_index"]
    file.create_dataset("var/_index", (10**6,), h5py.string_dtype(), fillvalue="word" * (MIB // 4))


def _many_names(file: Any) -> None:
    del file["var/_index"]
    file.create_dataset("var/_index", (2**34,), "S8", chunks=(2**16,))


def _wide(file: Any) -> None:
    file["X"].attrs["shape"] = np.array([6, 2**40])


def _elsewhere(file: Any) -> None:
    del file["X/data"]
    file.create_dataset("X/data", (12,), "i8", external=[("/dev/zero", 0, 96)])


#: AnnData files, by what they do.
H5AD: dict[str, Make] = {
    "an h5ad that unpacks to gigabytes": _h5ad(_bomb),
    "an h5ad with a block that unpacks to gigabytes": _h5ad(_block_bomb),
    "an h5ad with a block that is announced large": _h5ad(_large_block),
    "an h5ad of long names": _h5ad(_long_names),
    "an h5ad of many names": _h5ad(_many_names),
    "an h5ad of many columns": _h5ad(_wide),
    "an h5ad with its numbers elsewhere": _h5ad(_elsewhere),
}


def _folder(change: Callable[[Path], None]) -> Make:
    """A sound corpus folder, changed, with checksums as its maker would write them."""

    def make(rng: np.random.Generator, place: Path) -> Path:
        place.mkdir()
        folder = place / "packed"
        Corpus(np.arange(12).reshape(3, 4), ("ant", "bee", "cat", "dog")).pack(folder)
        change(folder)
        try:
            about = json.loads((folder / "corpus.json").read_bytes())
        except (ValueError, RecursionError):
            return folder
        for name in about["files"]:
            data = (folder / name).read_bytes()
            about["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (folder / "corpus.json").write_text(json.dumps(about))
        return folder

    return make


def _claiming(folder: Path) -> None:
    header = repr({"descr": "<i4", "fortran_order": False, "shape": (2**40,)}).encode().ljust(117) + b"\n"
    (folder / "data.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)


def _sizes(folder: Path) -> None:
    about = json.loads((folder / "corpus.json").read_bytes())
    (folder / "corpus.json").write_text(json.dumps(about | {"documents": 10**12, "words": 10**12, "entries": 10**12}))


def _packed_words(folder: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    block = b"word\n" * (MIB // 5)
    (folder / "vocabulary.txt").write_bytes(b"".join([*(packer.compress(block) for _ in range(500)), packer.flush()]))


def _brackets(folder: Path) -> None:
    (folder / "corpus.json").write_bytes(b"[" * 60_000)


def _falls_unseen(folder: Path) -> None:
    """Each document begins so far before the one after it that the difference of the two, in 64 bits, is positive."""
    data = np.load(folder / "indptr.npy")
    data[1:3] = 2**62 + 5_000_000, -(2**63) + 5_000_000
    np.save(folder / "indptr.npy", data)


#: Corpus folders, by what they do.
FOLDERS: dict[str, Make] = {
    "a corpus folder with a header that claims much": _folder(_claiming),
    "a corpus folder of large sizes": _folder(_sizes),
    "a corpus folder with packed words": _folder(_packed_words),
    "a corpus folder with deep brackets": _folder(_brackets),
    "a corpus folder whose documents begin nowhere": _folder(_falls_unseen),
}
