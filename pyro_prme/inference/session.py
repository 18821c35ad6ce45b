"""One run at a time: Pyro's stack of handlers belongs to the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

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


@contextmanager
def evaluating(*modules: Any) -> Iterator[None]:
    """Puts modules into evaluation mode and gives each submodule its own mode back."""
    parts = [part for module in modules if isinstance(module, torch.nn.Module) for part in module.modules()]
    training = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part, mode in zip(parts, training, strict=True):
            part.training = mode
