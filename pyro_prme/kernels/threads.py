"""Python threads for compiled loops: they sleep when done and so leave the cores to torch's."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from numba.core import event

from pyro_prme.kernels.arithmetic import CompilationLog

__all__ = ["share_out"]


def share_out(loop: Callable[..., None], pieces: int, threads: int, *args: Any) -> None:
    """Calls a loop once for each piece of its items, on some threads.

    Args:
        loop: compiled, without the GIL; handles items first, first + pieces, ...
        pieces: into how many the items are cut.
        threads: at most.
        args: for the loop.
    """
    with event.install_listener("numba:compile", CompilationLog()):
        loop(sys.maxsize, 1, *args)  # handles nothing: a compilation happens here, not in a thread's smaller stack
    if pieces == 1:
        loop(0, 1, *args)
    else:
        list(_pool(threads, os.getpid()).map(lambda first: loop(first, pieces, *args), range(pieces)))


@functools.lru_cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Kept, since to start threads takes longer than many a loop; a forked process has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="pyro_prme")
