"""AnnData files with random damage: to their bytes, or to one of their arrays, attributes or links."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy import sparse

from tests.robustness.damage import damaged, damaged_array
from tests.robustness.trials import Outcome, spoken
from tests.robustness.using import use_corpus

__all__ = ["damaged_h5ad", "h5ad_bytes"]

KINDS = ("csr", "csc", "dense")


def damaged_h5ad(rng: np.random.Generator, place: Path) -> Outcome:
    """One file, in a place that is empty."""
    kind, deep = str(rng.choice(KINDS)), bool(rng.random() < 0.5)
    path = place / "c.h5ad"
    data = h5ad_bytes(kind, bool(rng.random() < 0.5), rng if deep else None)
    path.write_bytes(data if deep else damaged(rng, data))
    return spoken(lambda: use_corpus(path), "damaged h5ad", place)


def h5ad_bytes(kind: str = "csr", packed: bool = False, rng: np.random.Generator | None = None) -> bytes:
    """A file such as AnnData 0.8 and later write: X, obs and var, with one of its parts changed if `rng` is given."""
    counts = np.random.default_rng(2).poisson(0.8, (6, 5)).astype(np.float32)
    arrays: dict[str, Any] = {"obs/_index": [f"cell {n}" for n in range(6)], "var/_index": list("abcde")}
    shape, attributes = np.array(counts.shape), {}
    if kind == "dense":
        arrays["X"] = counts
    else:
        matrix = getattr(sparse, f"{kind}_matrix")(counts)
        arrays |= {f"X/{name}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
        attributes = {"encoding-type": f"{kind}_matrix", "encoding-version": "0.1.0", "shape": shape}
    changed = None
    if rng is not None:
        changed = str(rng.choice([*arrays, "shape", "link", "key"]))
        if changed == "shape":
            attributes["shape"] = damaged_array(rng, shape)
        elif changed in ("X", *(f"X/{name}" for name in ("data", "indices", "indptr"))):
            arrays[changed] = damaged_array(rng, arrays[changed])
        elif changed in arrays:
            names = arrays[changed]
            names[int(rng.integers(0, len(names)))] = str(
                rng.choice(["", "a", "\n", "\x1b[31m", "\ufeff", "x" * 10**5])
            )
            arrays[changed] = names[: int(rng.integers(0, len(names) + 1))] if rng.random() < 0.3 else names
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name in ("obs", "var"):
            file.create_group(name).attrs["_index"] = "nothing" if changed == "key" else "_index"
        for name, values in arrays.items():
            is_text = isinstance(values, list)
            kept = np.array(values, dtype=object) if is_text else values
            file.create_dataset(
                name,
                data=kept,
                dtype=h5py.string_dtype() if is_text else None,
                compression="gzip" if packed and not is_text and np.ndim(values) else None,
            )
        if kind != "dense":
            file["X"].attrs.update(attributes)
        if changed == "link":
            del file["X"]
            file["X"] = h5py.ExternalLink("other.h5ad", "X") if rng.random() < 0.5 else h5py.SoftLink("/X")  # type: ignore[union-attr]
    return buffer.getvalue()
