"""`make soak`: the trials in turn until the time is up, a table, a report, and exit code 1 if anything broke.

python -m tests.robustness --minutes 60 --seed 0 --report build/soak.json
python -m tests.robustness --only fuzzing --first 4711 --trials 1     # one attempt again
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from tests.robustness.trials import Outcome, block, isolated

#: Trials of each module a round. Those that begin no processes of their own are made in one, which may die.
ROUND = {"fuzzing": 500, "threaded_calls": 60, "kill_trials": 6, "hostile_files": 3, "bad_disks": 4, "shared_folder": 1}
#: What an hour makes at least; a shorter time makes its part. A slow machine takes longer.
HOUR = {"files": 20_000, "calls": 10_000, "kills": 300}
_MAKES = {"fuzzing": "files", "threaded_calls": "calls", "kill_trials": "kills"}
_ALONE = ("kill_trials", "hostile_files", "bad_disks", "shared_folder", "stream")
_PACKAGES = ("pyro-prme", "torch", "pyro-ppl", "numpy", "scipy", "numba", "safetensors")


def attempt(module: str, seed: int, first: int, trials: int, folder: Path) -> list[Outcome]:
    """The same, in a process of its own where the module has none."""
    folder.mkdir(parents=True, exist_ok=True)
    if module in _ALONE:
        return block(module, seed, first, trials, folder)
    end = isolated(block, module, seed, first, trials, folder, seconds=600 + 5 * trials)
    if end.value is not None:
        return end.value
    return [Outcome(module, f"numbers {first} to {first + trials - 1} ended with {end.code}: {end.error}")]


def soak(minutes: float, seed: int, folder: Path) -> list[tuple[str, int, Outcome]]:
    """All modules in turn, and a stream beside them, until the time is up and its part of `HOUR` is made.

    A module that has made its part waits while another has not. After twice the time it ends in any case.
    """
    found: list[tuple[str, int, Outcome]] = []
    end, goals = time.monotonic() + 60 * minutes, {what: number * minutes / 60 for what, number in HOUR.items()}
    long = import_module("tests.robustness.stream").trial
    beside = threading.Thread(target=lambda: found.append(("stream", 0, long(seed, 0, folder, 60 * minutes))))
    beside.start()
    made: Counter[str] = Counter()
    turn = dict.fromkeys(ROUND, 0)
    while time.monotonic() < end + 60 * minutes:
        open_goals = {what for what, goal in goals.items() if made[what] < goal}
        if not open_goals and time.monotonic() > end:
            break
        for module, trials in ROUND.items():
            if open_goals and _MAKES.get(module, next(iter(open_goals))) not in open_goals:
                continue
            with tempfile.TemporaryDirectory(dir=folder) as place:
                outcomes = attempt(module, seed, turn[module], trials, Path(place) / module)
            found += [(module, turn[module] + i, outcome) for i, outcome in enumerate(outcomes)]
            turn[module] += trials
            for outcome in outcomes:
                made.update(outcome.counts)
                if outcome.fault:
                    print(f"FAULT {module}: {outcome.what}: {outcome.fault}", file=sys.stderr, flush=True)
        faults = sum(bool(outcome.fault) for _, _, outcome in found)
        print(f"{dict(made)}, {faults} faults", file=sys.stderr, flush=True)
    beside.join()
    return found


def report(found: list[tuple[str, int, Outcome]], arguments: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What was done and what broke."""
    return {
        "commit": arguments.commit,
        "seed": arguments.seed,
        "minutes": round(seconds / 60, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: metadata.version(name) for name in _PACKAGES},
        "counts": dict(sorted(sum((Counter(outcome.counts) for _, _, outcome in found), Counter()).items())),
        "most": _largest(outcome.most for _, _, outcome in found),
        "load": [round(load, 1) for load in os.getloadavg()],
        "processors": os.cpu_count(),
        "trials": dict(sorted(Counter(outcome.what for _, _, outcome in found).items())),
        "faults": [
            {"module": module, "number": number, "what": outcome.what, "fault": outcome.fault}
            for module, number, outcome in found
            if outcome.fault
        ],
    }


def _largest(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The largest of each number."""
    largest: dict[str, float] = {}
    for numbers in found:
        largest |= {name: max(value, largest.get(name, value)) for name, value in numbers.items()}
    return {name: round(value, 4) for name, value in sorted(largest.items())}


def main() -> int:
    """Exit code 0 if nothing broke."""
    parser = argparse.ArgumentParser(prog="tests.robustness", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--commit", default="", help="what is tried, for the report")
    parser.add_argument(
        "--only",
        choices=[*ROUND, "stream"],
        help="one module, --trials times from number --first on; the stream for --minutes",
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--trials", type=int, default=1)
    arguments = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        if arguments.only == "stream":
            trial = import_module("tests.robustness.stream").trial
            found = [("stream", 0, trial(arguments.seed, 0, Path(place), 60 * arguments.minutes))]
        elif arguments.only:
            outcomes = attempt(arguments.only, arguments.seed, arguments.first, arguments.trials, Path(place) / "only")
            found = [(arguments.only, arguments.first + i, outcome) for i, outcome in enumerate(outcomes)]
        else:
            found = soak(arguments.minutes, arguments.seed, Path(place))
    content = report(found, arguments, time.monotonic() - begin)
    for what, number in (content["trials"] | content["counts"]).items():
        print(f"{number:7d}  {what}")
    for what, value in content["most"].items():
        print(f"{value:7.4g}  {what}, at most")
    for fault in content["faults"]:
        print(f"FAULT {fault['module']} {fault['number']}: {fault['what']}: {fault['fault']}")
    if arguments.report:
        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        arguments.report.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} trials, {len(content['faults'])} faults, {content['minutes']} minutes, seed {arguments.seed}")
    return int(bool(content["faults"]))


if __name__ == "__main__":
    sys.exit(main())
