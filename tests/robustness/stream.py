"""A long stream through `partial_fit`: memory stays what it was after the first calls."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import psutil

from pyro_prme.estimator import PRMETopicModel
from tests.robustness.trials import Outcome, generator, isolated

__all__ = ["stream", "trial"]

_WORDS = 200
_WARM = 60  # calls before memory is looked at
_GROWTH = 0.02


def trial(seed: int, number: int, folder: Path, seconds: float = 20.0) -> Outcome:
    """A stream for some seconds, in a process of its own."""
    end = isolated(stream, seed, number, seconds, seconds=10 * seconds + 300)
    if end.error or end.value is None:
        return Outcome("streams", end.error or f"ended with {end.code}")
    calls, before, after, bound = end.value
    grown = after / before - 1
    if grown > _GROWTH:
        return Outcome("streams", f"{calls} calls: memory grew by {grown:.1%}, from {before:.0f} to {after:.0f} MiB")
    fault = "" if np.isfinite(bound) else f"the bound is {bound} after {calls} calls"
    most = {"growth of a stream's memory": grown, "MiB of a stream": after, "minutes of a stream": seconds / 60}
    return Outcome("streams", fault, {"calls of partial_fit": calls}, most)


def stream(seed: int, number: int, seconds: float) -> tuple[int, float, float, float]:
    """Calls of `partial_fit` made, MiB after the first and the last of them, and the last bound."""
    rng, process = generator(seed, number), psutil.Process()
    model = PRMETopicModel(10, random_state=seed, batch_size=50)
    topics = rng.dirichlet(np.full(_WORDS, 0.1), 10)
    calls, before, begin = 0, 0.0, time.monotonic()
    while calls < 2 * _WARM or time.monotonic() - begin < seconds:
        shares = rng.dirichlet(np.full(10, 0.2), 50)
        model.partial_fit(rng.poisson(60 * shares @ topics))
        calls += 1
        if calls == _WARM:
            before = process.memory_info().rss / 2**20
    return calls, before, process.memory_info().rss / 2**20, float(model.history_[-1]["bound_without_theta"])
