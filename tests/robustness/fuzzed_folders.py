"""Corpus folders with random damage to their arrays, words or record, most of them with checksums made anew."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from pyro_prme.corpora.corpus import Corpus
from tests.robustness.damage import damaged, damaged_array, damaged_json
from tests.robustness.trials import Outcome, spoken
from tests.robustness.using import use_corpus

__all__ = ["damaged_folder"]

_ARRAYS = ("indptr.npy", "indices.npy", "data.npy")
_FILES = (*_ARRAYS, *_ARRAYS, "corpus.json", "vocabulary.txt", "names.txt")
_EXTREMES = (-(2**63), -(2**62), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1)


def damaged_folder(rng: np.random.Generator, place: Path) -> Outcome:
    """One folder with one damaged file, in a place that is empty."""
    folder, name = place / "packed", str(rng.choice(_FILES))
    counts = sparse.csr_array(np.random.default_rng(5).poisson(0.6, (12, 7)))
    Corpus(counts, tuple("abcdefg"), tuple(f"text {n}" for n in range(12))).pack(folder)
    target, kind = folder / name, rng.random()
    if name in _ARRAYS and kind < 0.7:
        np.save(target, _array(rng, np.load(target)))
    elif name == "corpus.json" and kind < 0.7:
        target.write_bytes(damaged_json(rng, target.read_bytes()))
    else:
        target.write_bytes(damaged(rng, target.read_bytes()))
    if name != "corpus.json" and rng.random() < 0.8:
        _sign(folder, sizes=bool(rng.random() < 0.5))
    if rng.random() < 0.05:
        target.unlink()
    return spoken(lambda: use_corpus(folder), f"damaged corpus folder, {name}", folder)


def _array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Another array: with numbers at the ends of their types, in another order, or damaged in other ways."""
    kind = rng.random()
    if kind < 0.4:
        array = array.copy()
        for _ in range(int(rng.integers(1, 5))):
            near = int(rng.choice(_EXTREMES)) + int(rng.integers(-3, 4))
            array[int(rng.integers(0, len(array)))] = np.array(near % 2**64, np.uint64).astype(array.dtype)
        return array
    if kind < 0.5:
        return rng.permutation(array)
    return damaged_array(rng, array)


def _sign(folder: Path, *, sizes: bool) -> None:
    """Checksums of the files as they are, and perhaps the sizes of their arrays, as somebody with bad intent would."""
    about: dict[str, Any] = json.loads((folder / "corpus.json").read_bytes())
    for name in about["files"]:
        data = (folder / name).read_bytes()
        about["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if sizes:
        for name, key, more in (("indptr.npy", "documents", 1), ("indices.npy", "entries", 0)):
            try:
                about[key] = len(np.load(folder / name)) - more
            except Exception:  # of numpy's reader of headers, many kinds
                continue
        about["words"] = (folder / "vocabulary.txt").read_bytes().count(b"\n")
    (folder / "corpus.json").write_text(json.dumps(about))
