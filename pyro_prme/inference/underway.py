"""An epoch that is not at its end: open this for what a checkpoint within an epoch has beside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from pyro_prme.checks import number, whole
from pyro_prme.inference.orders import Order
from pyro_prme.inference.workers import Workers

__all__ = ["Underway"]


@dataclass
class Underway:
    """How far an epoch is.

    Args:
        drawn: state of the trainer's generator before the order of the epoch was drawn from it.
        slow: terms of the bound that were computed before its first step.
        done: rows done, by all workers.
        totals: this worker's part of the running bound, by site.
        notes: what the epoch's record gets beside.
    """

    drawn: Mapping[str, Any]
    slow: dict[str, float] = field(default_factory=dict)
    done: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    notes: dict[str, dict[str, float]] = field(default_factory=dict)
    order: Order = field(init=False)

    def add(self, terms: Mapping[str, float], rows: int, size: int) -> None:
        """A step on so many rows of the data, of which there are `size`."""
        for name, term in terms.items():
            self.totals[name] = self.totals.get(name, 0.0) + rows / size * term
        self.done += rows

    def state(self, pending: Sequence[Mapping[str, Tensor]], totals: Sequence[Mapping[str, float]]) -> dict[str, Any]:
        """What `of` takes, given what is pending and the running bounds of all workers, in their order."""
        return {
            "done": self.done,
            "slow": dict(self.slow),
            "notes": {name: dict(values) for name, values in self.notes.items()},
            "totals": [dict(part) for part in totals],
            "pending": [dict(part) for part in pending],
        }

    @classmethod
    def of(
        cls, state: Mapping[str, Any], drawn: Mapping[str, Any], workers: Workers, size: int
    ) -> tuple[Underway, dict[str, Tensor]]:
        """The epoch as it was, and what this worker has pending.

        As many workers as before get what each had; of another number the first gets the sum.
        """
        totals, pending = list(state["totals"]), list(state["pending"])
        if len(totals) != workers.size:
            first = workers.leads
            totals, pending = ([_sum(parts) if first else {}] * workers.size for parts in (totals, pending))
        going = cls(drawn, dict(state["slow"]), whole("rows done", state["done"], 0, size - 1))
        going.totals = {name: number(name, value) for name, value in totals[workers.rank].items()}
        going.notes = {name: dict(values) for name, values in state["notes"].items()}
        return going, dict(pending[workers.rank])


def _sum(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
