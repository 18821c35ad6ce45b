"""One run at a time, and what is set while it lasts: handlers, default type and threads belong to the whole process.

Everything here gives back what it found, also after an exception.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyro
import torch

from pyro_prme.models.networks.modes import evaluating as evaluating

__all__ = ["alone", "default_dtype", "seeded", "session"]

_ONE_AT_A_TIME = threading.RLock()


def _after_fork() -> None:
    """A forked process has one thread, and must not wait for those of its parent."""
    global _ONE_AT_A_TIME
    _ONE_AT_A_TIME = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def alone() -> Iterator[None]:
    """Within it, no other thread runs a model of ours."""
    with _ONE_AT_A_TIME:
        yield


@contextmanager
def session(dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """What all doors fit in: alone, one default type, parameters in their modules, one thread of torch's.

    Torch's random state is given back too. The local step has threads of its own, and torch's beside them only wait: on
    two busy cores, fitting the bundled corpus took 13 s for ten epochs with one torch thread and 73 s with two.
    """
    with alone():
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with (
                default_dtype(dtype),
                torch.random.fork_rng(devices=[]),
                pyro.settings.context(module_local_params=True),
            ):
                yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Within it, torch's default type is this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Within it, torch draws from this seed; the global random state is left as it was. None changes nothing."""
    if seed is None:
        yield
        return
    with alone(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
