"""What ``run.json`` may say: open this to see its fields, each of which is checked before anything is built from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyro_prme.checks import choice, number, whole

__all__ = ["check_record", "from_json"]

_LARGEST = 2**128 - 1  # of the numbers in numpy's random state
_TYPES = ("float32", "float64")


def from_json(text: bytes) -> dict[str, Any]:
    """The record in a text; NaN and infinity, which JSON does not have and Python's reader takes, are refused."""

    def refuse(name: str) -> None:
        raise ValueError(f"it has the number {name}")

    record = json.loads(text, parse_constant=refuse)
    if not isinstance(record, dict):
        raise ValueError("it is a list or a single value, and must have names and values")
    return record


def check_record(record: Mapping[str, Any]) -> None:
    """Refuses a record with a field that is missing, or of another type or range than a fit writes."""
    for name in ("settings", "sizes", "numpy_state"):
        _named(name, record[name])
    for part, values in record["settings"].items():
        _named(f"settings.{part}", values)
    choice("dtype", record["dtype"], _TYPES)
    for name in ("state", "corpus", "pyro_prme"):
        if not isinstance(record[name], str):
            raise ValueError(f"its {name} is not a text")
    for name in ("vocab_size", "num_documents"):
        whole(name, record["sizes"][name], 1, 2**63 - 1)
    whole("steps", record["steps"], 0)
    _check_underway(record.get("underway"))
    _check_history(record["history"], record.get("underway") is not None)
    _check_random(record["numpy_state"])
    if not isinstance(record["optimizers"], list):
        raise ValueError("its optimizers are not a list")


def _named(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"its {name} has no names and values")


def _check_underway(state: Any) -> None:
    """What is known of an epoch that is not at its end: finite numbers by name."""
    if state is None:
        return
    _named("epoch under way", state)
    whole("rows done", state["done"], 0)
    _named("terms of the epoch under way", state["slow"])
    _named("notes of the epoch under way", state["notes"])
    if not isinstance(state["totals"], list) or not state["totals"]:
        raise ValueError("its epoch under way has no bound")
    for place, values in enumerate([state["slow"], *state["notes"].values(), *state["totals"]]):
        _named(f"part {place} of the epoch under way", values)
        for name, value in values.items():
            number(f"{name} of the epoch under way", value)


def _check_history(history: Any, underway: bool) -> None:
    """An epoch's record has its number, from 1 on, and finite numbers; what else it has must be plain values.

    It may be empty within the first epoch.
    """
    if not isinstance(history, list) or not (history or underway):
        raise ValueError("its history is empty, or not a list")
    for place, record in enumerate(history, start=1):
        _named(f"history of epoch {place}", record)
        whole(f"the number of epoch {place}", record["epoch"], place, place)
        number(f"the bound of epoch {place}", record["bound"])
        for name, value in record.items():
            for key, part in value.items() if isinstance(value, dict) else ((name, value),):
                if not isinstance(part, str | bool):
                    number(f"{key} of epoch {place}", part)


def _check_random(state: Mapping[str, Any]) -> None:
    choice("the random generator", state["bit_generator"], ("PCG64",))
    _named("numpy_state.state", state["state"])
    for name in ("state", "inc"):
        whole(f"{name} of the random generator", state["state"][name], 0, _LARGEST)
    whole("has_uint32 of the random generator", state["has_uint32"], 0, 1)
    whole("uinteger of the random generator", state["uinteger"], 0, 2**32 - 1)
