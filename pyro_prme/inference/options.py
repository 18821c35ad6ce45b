"""Options of one run, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from pyro_prme.checks import choice
from pyro_prme.equations.bounds import NORMALIZERS

__all__ = ["Origin", "RunOptions"]


@dataclass(frozen=True)
class Origin:
    """Where a batch comes from.

    Args:
        data: what is fitted.
        rows: of the data.
    """

    data: Any
    rows: np.ndarray


@dataclass(frozen=True)
class RunOptions:
    """How a guide runs its model.

    Args:
        held: local results of an earlier run on the same data, by site, that this one does not solve again.
        started: local results that the solution starts from.
        sweeps: most sweeps over local sites; None for what each rule has by default.
        tolerance: sweeps over conjugate sites end when no natural parameter moves by more than this, relative to the
            largest of its kind.
        word_tolerance: sweeps over a document's loadings end when its counts move by less than this share of its words;
            None for what the rule has.
        bound: what stands for E ln of the sum of a document's loadings, a key of `bounds.NORMALIZERS`.
        origin: in the data that is fitted, where the batch is part of them: what factors hold of its rows may be left
            out when they are explained. None for other data.
    """

    held: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    started: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    sweeps: int | None = None
    tolerance: float = 1e-6
    word_tolerance: float | None = None
    bound: str = "epsilon"
    origin: Origin | None = None

    def __post_init__(self) -> None:
        choice("bound", self.bound, NORMALIZERS)
