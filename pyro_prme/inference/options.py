"""Options of one run, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pyro_prme.conjugacy.families import Natural

__all__ = ["RunOptions"]


@dataclass(frozen=True)
class RunOptions:
    """How a guide runs its model.

    Args:
        held: local factors of an earlier run on the same data, that this one does not solve again.
        started: local factors that the solution starts from.
        sweeps: most sweeps over local sites.
        tolerance: sweeps end when no natural parameter moves by more than this, relative to the largest of its kind.
    """

    held: Mapping[str, Natural] = field(default_factory=lambda: MappingProxyType({}))
    started: Mapping[str, Natural] = field(default_factory=lambda: MappingProxyType({}))
    sweeps: int = 50
    tolerance: float = 1e-6
