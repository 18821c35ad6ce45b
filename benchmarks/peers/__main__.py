"""Wall-clock time to a held-out perplexity, and perplexity after a time, against other topic models.

    python benchmarks/peers --corpus nyt --data ../shared/data [--only hdp sklearn-batch] [--budget 90]
    python benchmarks/peers --corpus nyt --data ../shared/data --tune gensim-lda --budget 30
    python benchmarks/peers --corpus nyt --report

Every program runs in a process of its own, on all cores, for the same seconds of training, on the same documents;
what is scored, and how, is the same for all (document completion: 10% of each test document's tokens, given the
others, by `pyro_prme.answers.scores`). Time spent on scoring, on importing, and on bringing the counts into a
program's own format is not counted. Results are added to results/peers_CORPUS.json, so that a corpus can be measured
in parts; the tables and the bars are of all that is there, and peers_CORPUS.png is their picture. `--tune` tries
settings on documents cut from train: nothing is chosen on test words. The extra `benchmarks` installs the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import report

RESULTS = Path(__file__).parents[1] / "results"
TUNING = RESULTS / "peers_tuning.json"
DATA = Path(__file__).parents[3] / "shared" / "data"
PACKAGES = ("scikit-learn", "gensim", "tomotopy", "pyro-ppl", "torch", "numpy", "numba", "pyro-prme")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="nyt", choices=("kjv", "nyt", "20news"))
    parser.add_argument("--data", type=Path, default=DATA, help="folder with nyt/ and 20news/")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these programs (default: all)")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds of training for each")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tune", metavar="NAME", help="try settings of one program on documents cut from train")
    parser.add_argument("--report", action="store_true", help="run nothing: print and draw what is there")
    parser.add_argument("--no-save", action="store_true", help="leave the stored results alone")
    parser.add_argument("--trial", nargs=2, metavar=("NAME", "CHANGES"), help=argparse.SUPPRESS)
    return parser.parse_args()


def trial(options: argparse.Namespace) -> None:
    """What the child process does: one program; its result is the last line of the output."""
    from programs import PEERS
    from trial import run

    name, changes = options.trial
    settings = PEERS[name].settings | PEERS[name].on.get(options.corpus, {}) | json.loads(changes)
    result = run(
        PEERS[name].train,
        settings,
        options.corpus,
        options.data,
        options.budget,
        options.threads,
        validation=options.tune is not None,
    )
    print(json.dumps(result), flush=True)
    os.killpg(0, signal.SIGKILL)  # some programs leave worker processes behind that would be waited for


def measured(name: str, changes: dict[str, Any], options: argparse.Namespace, cache: str) -> dict[str, Any]:
    """One program in a process of its own, with the kernels' cache in `cache`."""
    command = [sys.executable, __file__, "--corpus", options.corpus, "--data", str(options.data)]
    command += ["--budget", str(options.budget), "--threads", str(options.threads)]
    command += ["--trial", name, json.dumps(changes)] + (["--tune", name] if options.tune else [])
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONWARNINGS": "ignore"}
    if name.startswith(("gensim", "sklearn")):  # they have processes of their own: more threads in each only disturb
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    load = os.getloadavg()[0]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    if not done.stdout.strip():
        raise RuntimeError(f"{name} ended without a result, with exit code {done.returncode}.")
    return json.loads(done.stdout.strip().splitlines()[-1]) | {"load_average": load}


def tune(options: argparse.Namespace, cache: str) -> None:
    """Prints and stores what each tried setting reaches on documents cut from train."""
    from programs import PEERS

    for changes in ({}, *PEERS[options.tune].tried):
        result = measured(options.tune, changes, options, cache)
        best = min(result["curve"], key=lambda point: point["perplexity"])
        row = {"peer": options.tune, "corpus": options.corpus, "settings": result["settings"]}
        row |= {"budget": options.budget, "threads": options.threads, **best}
        print(json.dumps(row), flush=True)
        if not options.no_save:
            same = ("peer", "corpus", "settings", "budget", "threads")
            stored = json.loads(TUNING.read_text()) if TUNING.exists() else []
            stored = [old for old in stored if any(old[key] != row[key] for key in same)] + [row]
            TUNING.write_text(json.dumps(stored, indent=1) + "\n")


def main() -> None:
    options = arguments()
    if options.trial:
        trial(options)
    with tempfile.TemporaryDirectory() as cache:
        if options.tune:
            tune(options, cache)
            return
        path = RESULTS / f"peers_{options.corpus}.json"
        stored = json.loads(path.read_text()) if path.exists() else {"corpus": options.corpus, "peers": {}}
        if options.no_save and not options.report:
            stored["peers"] = {}
        from programs import OURS, PEERS

        for name in [] if options.report else options.only or PEERS:
            result = measured(name, {}, options, cache)
            last = result["curve"][-1]
            print(
                f"{PEERS[name].label}: {last['perplexity']:.1f} after {last['seconds']:.1f} s",
                file=sys.stderr,
                flush=True,
            )
            result |= {"label": PEERS[name].label, "ours": name in OURS, "budget": options.budget}
            stored["peers"][name] = result
            stored |= {"machine": platform.machine(), "python": platform.python_version()}
            stored["versions"] = {package: version(package) for package in PACKAGES}
            if not options.no_save:
                path.write_text(json.dumps(stored, indent=1) + "\n")
    print(report.text(stored))
    if not options.no_save:
        report.figure(stored, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
