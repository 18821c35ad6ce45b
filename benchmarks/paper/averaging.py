"""Updates against sampling, and the mean of several fits: held-out perplexity on validation documents.

    python -m benchmarks.paper.averaging --corpus snippets nyt --seeds 0 1 2 --runs /tmp/runs

Each fit is a run in the folder of --runs, as `prme fit` writes it; mixtures are those of `Posterior.mix`. Perplexity of
held-out words at 90, 50 and 10% seen. Results grow in results/averaging.json.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pyro_prme as prme
from benchmarks.paper.experiment import OBSERVED, RESULTS, add, is_there, load, parser, recorded, scores
from pyro_prme.inference.session import session
from pyro_prme.runs.run_files import is_run
from pyro_prme.runs.run_folder import make_trainer, settings_of

PATH = RESULTS / "averaging.json"
CORPORA = ("snippets", "nyt", "20news", "nips")
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "gibbs": {"inference": "gibbs"},
    "default HDP": {"model": "hdp"},
    "gibbs HDP": {"model": "hdp", "inference": "gibbs"},
}


def fitted(folder: Path, corpus: str, part: str, kind: str, epochs: int, seed: int) -> prme.Posterior:
    """The posterior of a fit, from its run if there is one."""
    if not is_run(folder):
        train, _ = load(corpus, part)
        settings = settings_of("default", num_topics=100, seed=seed, **KINDS[kind])
        with session():
            trainer = make_trainer(train.counts, settings)
            trainer.fit(epochs)
            prme.save_run(folder, trainer, settings, train.vocabulary)
    return prme.load_run(folder).posterior


def record(key: dict[str, Any], members: list[tuple[str, int]], runs: Path, epochs: dict[str, int]) -> None:
    """Scores a fit, or a mixture of several, unless that is done."""
    if is_there(PATH, key):
        return
    parts = []
    for kind, seed in members:
        name = f"{key['corpus']}-{key['part']}-{kind.replace(' ', '-')}-{epochs[kind]}-{seed}"
        parts.append(fitted(runs / name, key["corpus"], key["part"], kind, epochs[kind], seed))
    _, test = load(key["corpus"], key["part"])
    found = scores(parts[0] if len(parts) == 1 else prme.Posterior.mix(parts), test[:: key["every"]])
    add(PATH, key | {"perplexity": found})


def table(records: list[dict[str, Any]]) -> str:
    """One row a corpus and model: the mean over seeds, with their range in brackets."""
    lines = ["| corpus | model | epochs | fits | 90% | 50% | 10% |", "|---|---|---:|---:|---:|---:|---:|"]
    fields = ("corpus", "part", "model", "epochs")
    for corpus, part, model, epochs in dict.fromkeys(tuple(r[name] for name in fields) for r in records):
        here = [r for r in records if tuple(r[name] for name in fields) == (corpus, part, model, epochs)]
        values = np.array([[r["perplexity"][str(share)] for share in OBSERVED] for r in here])
        cells = [f"{m:.1f} ({s:.0f})" for m, s in zip(values.mean(0), np.ptp(values, 0), strict=True)]
        lines.append(f"| {corpus}, {part} | {model} | {epochs} | {len(here)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--corpus", nargs="+", default=["snippets"], choices=CORPORA)
    options.add_argument("--kind", nargs="+", default=["default", "gibbs"], choices=list(KINDS))
    options.add_argument("--part", default="validation", choices=("validation", "test"))
    options.add_argument("--epochs", type=int, default=20, help="of updates")
    options.add_argument(
        "--passes", type=int, default=40, help="of sampling, the first twenty of which are not averaged"
    )
    options.add_argument("--every", type=int, default=1, help="score every so many documents")
    options.add_argument("--runs", type=Path, help="folder for the fits")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    epochs = {kind: args.passes if "gibbs" in kind else args.epochs for kind in KINDS}
    for corpus in [] if args.report else args.corpus:
        key = {"corpus": corpus, "part": args.part, "every": args.every}
        for seed, kind in product(args.seeds, args.kind):
            done = key | {"model": kind, "epochs": str(epochs[kind]), "seeds": [seed]}
            record(done, [(kind, seed)], args.runs, epochs)
        both = [(kind, args.seeds[0]) for kind in args.kind]
        mixed = {"a mixture of one fit of each": both} if len(both) > 1 else {}
        if len(args.seeds) > 1:
            for kind in args.kind:
                mixed[f"a mixture of {len(args.seeds)} of {kind}"] = [(kind, seed) for seed in args.seeds]
        for name, members in mixed.items():
            passes = ", ".join(dict.fromkeys(str(epochs[kind]) for kind, _ in members))
            record(key | {"model": name, "epochs": passes, "seeds": args.seeds}, members, args.runs, epochs)
    print(table(recorded(PATH)))


if __name__ == "__main__":
    main()
