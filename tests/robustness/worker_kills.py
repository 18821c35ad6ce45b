"""Runs of several workers, of which any is killed at any time: none is lost or hung, and the numbers are the same.

python -m tests.robustness.worker_kills --kills 100 --seed 0 --report build/worker_kills.json

Trials that the report has already are kept, and more are made until there are so many kills.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import pyro_prme as prme
from tests.robustness.trials import generator

__all__ = ["compared", "fitted", "started", "trial", "workers_of"]

ROOT = Path(__file__).parents[2]
EPOCHS, WORKERS = 400, 2
_MOST_KILLS = 4  # of a run: torchrun starts all again five times
_LONGEST = 15.0  # seconds until a kill, from when there are workers
_HUNG = 240.0  # seconds for a run, however many kills it has


def started(folder: Path, out: str, *more: str, workers: int = WORKERS) -> subprocess.Popen:
    """The command on a small corpus, in a group of processes of its own."""
    command = [sys.executable, "-m", "pyro_prme.cli", "fit", "corpus.npz", "--topics", "5", "--batch-size", "20"]
    command += ["--mode", "online", "--epochs", str(EPOCHS), "--workers", str(workers), "--out", out, *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def workers_of(launcher: int) -> list[int]:
    """Processes that the launcher has started for the command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = (path.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == launcher and b"fit" in words:
            found.append(int(path.parent.name))
    return sorted(found)


def fitted(run: Path) -> tuple[list[float], np.ndarray]:
    """The bounds of all epochs, and the topics."""
    saved = prme.load_run(run)
    return [record["bound"] for record in saved.history], saved.posterior.topics().values


def trial(folder: Path, number: int, seed: int, kills: int) -> dict[str, Any]:
    """One run with so many kills: what was killed when, and what came of it."""
    rng, out = generator(seed, number), f"run-{number}"
    process, made, begin = started(folder, out), [], time.monotonic()
    for _ in range(kills):
        while not (victims := workers_of(process.pid)) and process.poll() is None:
            time.sleep(0.05)
        time.sleep(float(rng.uniform(0, _LONGEST)))
        victims = workers_of(process.pid) or victims
        if process.poll() is not None or not victims:
            break
        place = int(rng.integers(len(victims)))
        before = set(victims)
        try:
            os.kill(victims[place], signal.SIGKILL)
        except ProcessLookupError:
            continue
        made.append({"worker": place, "after": round(time.monotonic() - begin, 1), "saved": (folder / out).exists()})
        while before & set(workers_of(process.pid)) and process.poll() is None:
            time.sleep(0.05)  # until all have been ended, to be started again
    try:
        _, err = process.communicate(timeout=_HUNG)
        outcome = "ended" if process.returncode == 0 else f"lost: {err[-500:]}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        outcome = "hung"
    return {"run": out, "kills": made, "outcome": outcome, "seconds": round(time.monotonic() - begin, 1)}


def compared(folder: Path, found: dict[str, Any], wanted: tuple[list[float], np.ndarray]) -> dict[str, Any]:
    """The trial, and whether it gave the numbers of a run that was let alone."""
    if found["outcome"] != "ended":
        return found
    bounds, topics = fitted(folder / found["run"])
    same = bounds == wanted[0] and bool((topics == wanted[1]).all())
    return found | {"epochs": len(bounds), "same": same}


def main() -> int:
    """Exit code 0 if nothing was lost, hung or other than it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    there = arguments.report is not None and arguments.report.exists()
    trials: list[dict[str, Any]] = json.loads(arguments.report.read_text()) if there else []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prme.save_corpus(prme.load_corpus("kjv")[:120].restrict(min_df=5), folder / "corpus.npz")
        reference = started(folder, "reference")
        _, err = reference.communicate()
        if reference.returncode:
            raise RuntimeError(err[-2000:])
        wanted = fitted(folder / "reference")
        while (made := sum(len(t["kills"]) for t in trials)) < arguments.kills:
            found = trial(folder, len(trials), arguments.seed, min(_MOST_KILLS, arguments.kills - made))
            trials.append(compared(folder, found, wanted))
            if arguments.report:
                arguments.report.parent.mkdir(parents=True, exist_ok=True)
                arguments.report.write_text(json.dumps(trials, indent=1) + "\n", encoding="utf-8")
            print(trials[-1], file=sys.stderr, flush=True)
    kills = sum(len(t["kills"]) for t in trials)
    wrong = [t for t in trials if not t.get("same")]
    lost, hung = (sum(t["outcome"].startswith(what) for t in trials) for what in ("lost", "hung"))
    print(
        f"{kills} kills in {len(trials)} runs: {lost} lost, {hung} hung, {len(wrong) - lost - hung} with other numbers"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
