"""Fits that are killed at a system call, or at any time: the run is whole, and goes on as if nothing had been."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyro_prme.runs.run_files import is_run
from tests.robustness import toys
from tests.robustness.trials import Outcome, generator, isolated, start

__all__ = ["trial"]

_CALLS = ("fsync", "replace", "unlink")
_MOST_KILLS = 3
_LONGEST = 2.0  # seconds until a kill at a random time
_reference: list[tuple[int, bytes]] = []


def trial(seed: int, number: int, folder: Path) -> Outcome:
    """Kills a fit up to three times, then lets it end: it must give the numbers of a fit that was let alone."""
    if not _reference:
        _need(isolated(toys.fit, folder / "reference"))
        _reference.append(_need(isolated(toys.learned, folder / "reference")))
    rng, run, done, killed, kills = generator(seed, number), folder / f"run-{number}", 0, 0, []
    for _ in range(int(rng.integers(1, _MOST_KILLS + 1))):
        if rng.random() < 0.7:
            name, count, after = str(rng.choice(_CALLS)), int(rng.integers(1, 20)), bool(rng.random() < 0.5)
            kills.append(f"{'after' if after else 'before'} {name} {count}")
            child = isolated(killed_at, run, name, count, after)
            code = child.code
        else:
            seconds = float(rng.uniform(0, _LONGEST))
            kills.append(f"after {seconds:.3f} s")
            process, _ = start(toys.fit, run)
            time.sleep(seconds)
            process.kill()
            process.join()
            code = process.exitcode
        if code not in (0, -signal.SIGKILL):
            return Outcome("fits killed", f"{kills}: ended with {code}")
        killed += code == -signal.SIGKILL
        if not is_run(run):
            if done:
                return Outcome("fits killed", f"{kills}: a run of {done} epochs is gone")
            continue
        found = isolated(toys.learned, run)
        if not found.clean or found.error or found.value[0] < done:
            return Outcome("fits killed", f"{kills}: {found.error or found.value[0]} after {done} epochs")
        done = found.value[0]
    last = isolated(toys.fit, run)
    found = isolated(toys.learned, run)
    if last.error or found.error:
        return Outcome("fits killed", f"{kills}: {last.error}{found.error}")
    left = sorted(file.name for file in run.iterdir() if file.name not in ("run.json", "vocabulary.txt"))
    if len(left) != 1:
        return Outcome("fits killed", f"{kills}: the folder is left with {left}")
    same = found.value == _reference[0]
    fault = "" if same else f"{kills}: other numbers than those of a fit let alone"
    return Outcome("fits killed", fault, {"kills": killed})


def killed_at(folder: Path, name: str, count: int, after: bool) -> None:
    """A fit that kills its own process at the count-th call of a function of `os`."""
    original: Callable[..., Any] = getattr(os, name)
    calls = itertools.count(1)

    def deadly(*arguments: Any, **named: Any) -> Any:
        last = next(calls) == count
        if last and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, name, deadly)
    toys.fit(folder)


def _need(child: Any) -> Any:
    if child.error:
        raise RuntimeError(child.error)
    return child.value
