"""One run at a time: Pyro's stack of handlers belongs to the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pyro_prme.models.networks.modes import evaluating

__all__ = ["alone", "evaluating", "seeded"]

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Within it, no other thread runs a model of ours."""
    with _ONE_AT_A_TIME:
        yield


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Within it, torch draws from this seed; the global random state is left as it was. None changes nothing."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
