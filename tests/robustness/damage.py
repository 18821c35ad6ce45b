"""Damage at random: to bytes, to arrays and to JSON."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np

__all__ = ["damaged", "damaged_array", "damaged_json"]

_PIECES = (
    *(b"0", b"-1", b"1e400", b"nan", b"inf", b"2147483648", b"9" * 30, b":", b" ", b"\n", b"\r\n", b"\t", b"\x00"),
    *(b"\xff", b"\xef\xbb\xbf", b"\x1b[31m", b"\x1f\x8b\x08", b"PK\x03\x04", b"%%MatrixMarket matrix ", b'"', b"{}"),
    *("\u0661".encode(), b"\xe2\x80\xa8", b"\xed\xa0\x80", b"null", b"true", b"[]"),
)
_VALUES = (
    *(None, True, False, 0, -1, 1, 2, 1.5, 1e308, 10**9, 10**30, float("nan"), float("inf"), "", "x", "\x1b[31m"),
    *([], {}, [1], {"a": 1}, "0", [[]], [None], "float32", -0.0, "../run.json", "run.json"),
)
_KINDS = ("float32", "float64", "int64", "uint8", "bool", "float16")


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """The bytes with one to three changes: cut, turned, put in, doubled, taken out, zeroed."""
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(data) + 1))
        size = int(rng.integers(1, 1 + max(1, len(data) // 4)))
        kind = int(rng.integers(0, 7))
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + bytes([int(rng.integers(0, 256))]) + data[at + 1 :]
        elif kind == 2:
            data = data[:at] + _PIECES[int(rng.integers(0, len(_PIECES)))] + data[at:]
        elif kind == 3:
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
        elif kind == 4:
            data = data[:at] + data[at + size :]
        elif kind == 5:
            data = data[:at] + bytes(len(data[at : at + size])) + data[at + size :]
        else:
            piece = _PIECES[int(rng.integers(0, len(_PIECES)))]
            data = data[:at] + piece + data[at + len(piece) :]
    return data


def damaged_array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Another array in place of one: other numbers, shape or type."""
    kind = int(rng.integers(0, 7))
    if kind == 0 and array.size:
        array = array.copy()
        value = (0, -1, 10**9, np.nan, np.inf, 1)[int(rng.integers(0, 6))]
        with np.errstate(invalid="ignore"):
            array.reshape(-1)[int(rng.integers(0, array.size))] = np.asarray(value).astype(array.dtype)
    elif kind == 1:
        array = array[: int(rng.integers(0, len(array) + 1))] if array.ndim else array[None]
    elif kind == 2:
        array = array.reshape(1, *array.shape)
    elif kind == 3 and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            array = array.astype(str(rng.choice(_KINDS)))
    elif kind == 4:
        array = np.zeros_like(array)
    elif kind == 5:
        array = np.concatenate([array, array]) if array.ndim else array
    else:
        array = array.T
    return np.ascontiguousarray(array)


def damaged_json(rng: np.random.Generator, data: bytes) -> bytes:
    """The JSON with one part taken out, or another value in its place."""
    record = copy.deepcopy(json.loads(data))
    places: list[tuple[Any, Any]] = []

    def collect(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            places.append((value, key))
            collect(item)

    collect(record)
    holder, key = places[int(rng.integers(0, len(places)))]
    if rng.random() < 0.15:
        del holder[key]
    else:
        holder[key] = _VALUES[int(rng.integers(0, len(_VALUES)))]
    return json.dumps(record).encode()
