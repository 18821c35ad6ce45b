"""Page data as few bytes: open this beside ``page/unpack.js``, which reads what this writes.

The layout is four bytes with the length of a JSON header, the header, and the arrays one after another, all compressed
with gzip. Probabilities and loadings are kept as logarithms in one byte, shares as square roots in one byte.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pyro_prme.explorer.page_data import PageData

__all__ = ["pack", "packed_arrays"]

_SMALLEST_SHARE = 0.004  # smaller shares of a topic in a document are left out


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The compressed bytes: a JSON header with the places of the arrays, and the arrays, little-endian."""
    places, parts, offset = {}, [], 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        places[name] = [array.dtype.name, offset, len(data)]
        parts.append(data)
        offset += len(data)
    head = json.dumps(dict(header) | {"arrays": places}, ensure_ascii=False, separators=(",", ":")).encode()
    return gzip.compress(len(head).to_bytes(4, "little") + head + b"".join(parts), 9, mtime=0)


def packed_arrays(data: PageData) -> dict[str, np.ndarray]:
    """The arrays of a page by the names that its JavaScript knows."""
    topics, topic_floor, topic_step = _log_bytes(data.topics)
    sizes, topic_of_share, shares = _sparse_shares(data.proportions)
    arrays = {
        "topicNumbers": data.topic_numbers.astype(np.uint16),
        "usage": data.usage.astype(np.float32),
        "topics": topics,
        "topicFloor": topic_floor,
        "topicStep": topic_step,
        "correlations": np.rint(data.correlations * 10_000).astype(np.int16),
        "order": data.order.astype(np.uint16),
        "rows": data.rows.astype(np.uint32),
        "lengths": data.lengths.astype(np.uint32),
        "x": _coordinates(data.coordinates[:, 0], data.half),
        "y": _coordinates(data.coordinates[:, 1], data.half),
        "shareSizes": sizes,
        "shareTopics": topic_of_share,
        "shares": shares,
        "entrySizes": np.diff(data.counts.indptr).astype(np.uint32),
        "entryGaps": _variable_bytes(_gaps(data.counts)),
        "entryCounts": _variable_bytes(data.counts.data),
    }
    if data.loadings is not None:
        flat, floor, step = _log_bytes(data.loadings.reshape(len(data.loadings), -1))
        arrays |= {"loadings": np.diff(flat, axis=1, prepend=np.uint8(0)), "loadingFloor": floor, "loadingStep": step}
    if data.weights is not None:
        arrays["weights"] = data.weights.astype(np.float32)
    return arrays


def _log_bytes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positive rows as floor * exp(step * byte); the bytes, the floors and the steps."""
    low, high = values.min(1, keepdims=True), values.max(1, keepdims=True)
    low = np.maximum(low, 1e-30)
    step = np.maximum(np.log(high / low), 1e-9) / 255
    scaled = np.rint(np.log(np.maximum(values, low) / low) / step).clip(0, 255)
    return scaled.astype(np.uint8), low[:, 0].astype(np.float32), step[:, 0].astype(np.float32)


def _coordinates(values: np.ndarray, half: float) -> np.ndarray:
    """Places in the square as whole numbers, 10,000 for half its side; those far outside are put at three sides."""
    return np.rint(values / half * 10_000).clip(-30_000, 30_000).astype(np.int16)


def _sparse_shares(proportions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many shares each document keeps, their topics, and 255 times their square roots."""
    kept = proportions >= _SMALLEST_SHARE
    rows, topics = np.nonzero(kept)
    sizes = np.bincount(rows, minlength=len(proportions)).astype(np.uint16)
    roots = np.rint(255 * np.sqrt(proportions[rows, topics]))
    return sizes, topics.astype(np.uint16), roots.astype(np.uint8)


def _gaps(counts: Any) -> np.ndarray:
    """Differences between a document's word numbers, which are small; the first of each is the number itself."""
    gaps = np.diff(counts.indices.astype(np.int64), prepend=0)
    starts = counts.indptr[:-1][np.diff(counts.indptr) > 0]
    gaps[starts] = counts.indices[starts]
    return gaps


def _variable_bytes(values: np.ndarray) -> np.ndarray:
    """Whole numbers of zero or more, seven bits a byte, lowest first; the eighth says that more follow."""
    left = np.asarray(values, dtype=np.uint64)
    columns, alive = [], []
    more = np.ones(len(left), dtype=bool)
    while more.any():
        low = (left & np.uint64(127)).astype(np.uint8)
        left = left >> np.uint64(7)
        alive.append(more)
        more = more & (left > 0)
        columns.append(low | (more.astype(np.uint8) << 7))
    if not columns:
        return np.zeros(0, dtype=np.uint8)
    return np.stack(columns, 1)[np.stack(alive, 1)]
