"""Two processes that fit in the same folder: one does, the other is told, and the run is whole."""

from __future__ import annotations

import time
from pathlib import Path

from tests.robustness import toys
from tests.robustness.trials import Outcome, generator, isolated, sentence_fault, start

__all__ = ["trial"]


def trial(seed: int, number: int, folder: Path) -> Outcome:
    """Two fits of the same run, the second a little later."""
    run, what = folder / f"shared-{number}", "two processes on a folder"
    processes = []
    for pause in (0.0, float(generator(seed, number).exponential(0.2))):
        time.sleep(pause)
        processes.append(start(toys.fit, run))
    ends = []
    for process, receive in processes:
        try:
            ends.append(receive.recv() if receive.poll(600) else (None, "it takes more than 600 s", False, 0, 0))
        except EOFError:
            ends.append((None, "the process died", False, 0, 0))
        process.kill()
        process.join()
    for _, error, clean, *_ in ends:
        allowed = clean and (not error or "is being written by" in error or "holds a run" in error)
        if not allowed or (error and sentence_fault(error, run)):
            return Outcome(what, error)
    if all(error for _, error, *_ in ends):
        return Outcome(what, "both were refused")
    found = isolated(toys.learned, run)
    if found.error or found.value[0] != toys.EPOCHS:
        return Outcome(what, found.error or f"{found.value[0]} epochs and not {toys.EPOCHS}")
    return Outcome(what)
