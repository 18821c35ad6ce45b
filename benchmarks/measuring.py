"""What the speed benchmarks share: a process for each measurement, seconds by part, the circumstances, and bars."""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from unittest import mock

import torch

PACKAGES = ("torch", "pyro-ppl", "numpy", "numba", "pyro-prme")

#: What is to be reached, what was measured, and whether it is met.
Bar = tuple[str, str, bool]


def peak_mib() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Apart:
    """A callable that lives in a process of its own, where it is made and called; its memory is its own.

    Args:
        make: called with `args` in the new process; what it returns is called once for each call of this object.
        args: for it.
    """

    def __init__(self, make: Callable[..., Callable[[], Any]], *args: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, args))
        self._process.start()
        theirs.close()
        self.resident_at_start = self._connection.recv()

    def __call__(self) -> Any:
        self._connection.send(True)
        return self._connection.recv()

    def close(self) -> float:
        """Ends the process; returns its peak resident size in MiB."""
        self._connection.send(False)
        peak = self._connection.recv()
        self._process.join()
        return float(peak)


def _serve(connection: Any, make: Callable[..., Callable[[], Any]], args: tuple) -> None:
    connection.send(peak_mib())
    act = make(*args)
    while connection.recv():
        connection.send(act())
    connection.send(peak_mib())


class Parts:
    """Seconds by part of a computation, each without those of the parts within it; what is in no part is "rest"."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open = ["rest"]
        self._since = time.perf_counter()

    def _switch(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What happens within it belongs to the part."""
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def measure(self, action: Callable[[], Any]) -> dict[str, float]:
        """Seconds of one call, by part."""
        self.seconds.clear()
        self._since = time.perf_counter()
        action()
        self._switch()
        return dict(self.seconds)

    @contextmanager
    def watch(self, owner: Any, attribute: str, part: str) -> Iterator[None]:
        """Within it, calls of a function or method by this name belong to the part."""
        function = getattr(owner, attribute)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                return function(*args, **kwargs)

        with mock.patch.object(owner, attribute, timed):
            yield


def circumstances() -> dict[str, Any]:
    """Threads, load and versions, for the record."""
    return {
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "load_average": os.getloadavg()[0],
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "versions": {package: version(package) for package in PACKAGES} | {"python": platform.python_version()},
    }


def markdown(columns: list[str], rows: list[list[Any]]) -> str:
    """A table; all columns but the first are set to the right."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def verdicts(bars: list[Bar]) -> str:
    """The bars as a table."""
    lines = ["| bar | measured | |", "|---|---|---|"]
    return "\n".join(lines + [f"| {what} | {found} | {'met' if met else 'missed'} |" for what, found, met in bars])
