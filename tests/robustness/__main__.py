"""`make soak`: the trials in turn until the time is up, a table, a report, and exit code 1 if anything broke.

python -m tests.robustness --minutes 60 --seed 0 --report build/soak.json
python -m tests.robustness --only fuzzing --first 4711 --trials 1     # one attempt again
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import threading
import time
from collections import Counter
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from tests.robustness.trials import Outcome, block, isolated

#: Trials of each module a round. Those that begin no processes of their own are made in one, which may die.
ROUND = {"fuzzing": 250, "threaded_calls": 30, "kill_trials": 6, "hostile_files": 5, "bad_disks": 8, "shared_folder": 2}
_ALONE = ("kill_trials", "hostile_files", "bad_disks", "shared_folder", "stream")
_PACKAGES = ("pyro-prme", "torch", "pyro-ppl", "numpy", "scipy", "numba", "safetensors")


def attempt(module: str, seed: int, first: int, trials: int, folder: Path) -> list[Outcome]:
    """The same, in a process of its own where the module has none."""
    folder.mkdir(parents=True, exist_ok=True)
    if module in _ALONE:
        return block(module, seed, first, trials, folder)
    end = isolated(block, module, seed, first, trials, folder, seconds=60 + 5 * trials)
    if end.value is not None:
        return end.value
    return [Outcome(module, f"numbers {first} to {first + trials - 1} ended with {end.code}: {end.error}")]


def soak(minutes: float, seed: int, folder: Path) -> list[tuple[str, int, Outcome]]:
    """All modules in turn, and a stream beside them, until the time is up."""
    found: list[tuple[str, int, Outcome]] = []
    end = time.monotonic() + 60 * minutes
    long = import_module("tests.robustness.stream").trial
    beside = threading.Thread(target=lambda: found.append(("stream", 0, long(seed, 0, folder, 50 * minutes))))
    beside.start()
    turn = 0
    while time.monotonic() < end:
        for module, trials in ROUND.items():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                outcomes = attempt(module, seed, turn * trials, trials, Path(place) / module)
            found += [(module, turn * trials + i, outcome) for i, outcome in enumerate(outcomes)]
            if time.monotonic() > end:
                break
        turn += 1
        faults = sum(bool(outcome.fault) for _, _, outcome in found)
        print(f"round {turn}: {len(found)} trials, {faults} faults", file=sys.stderr, flush=True)
    beside.join()
    return found


def report(found: list[tuple[str, int, Outcome]], arguments: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What was done and what broke."""
    return {
        "seed": arguments.seed,
        "minutes": round(seconds / 60, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: metadata.version(name) for name in _PACKAGES},
        "trials": dict(sorted(Counter(outcome.what for _, _, outcome in found).items())),
        "faults": [
            {"module": module, "number": number, "what": outcome.what, "fault": outcome.fault}
            for module, number, outcome in found
            if outcome.fault
        ],
    }


def main() -> int:
    """Exit code 0 if nothing broke."""
    parser = argparse.ArgumentParser(prog="tests.robustness", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--only", choices=[*ROUND, "stream"], help="one module, --trials times from number --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--trials", type=int, default=1)
    arguments = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        if arguments.only:
            outcomes = attempt(arguments.only, arguments.seed, arguments.first, arguments.trials, Path(place) / "only")
            found = [(arguments.only, arguments.first + i, outcome) for i, outcome in enumerate(outcomes)]
        else:
            found = soak(arguments.minutes, arguments.seed, Path(place))
    content = report(found, arguments, time.monotonic() - begin)
    for what, number in content["trials"].items():
        print(f"{number:7d}  {what}")
    for fault in content["faults"]:
        print(f"FAULT {fault['module']} {fault['number']}: {fault['what']}: {fault['fault']}")
    if arguments.report:
        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        arguments.report.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} trials, {len(content['faults'])} faults, {content['minutes']} minutes, seed {arguments.seed}")
    return int(bool(content["faults"]))


if __name__ == "__main__":
    sys.exit(main())
