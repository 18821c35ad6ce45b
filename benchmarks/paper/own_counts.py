"""The default against the HDP in its settings, by epoch: does it stay ahead, and does it stay where it was best?

    python -m benchmarks.paper.own_counts --corpus snippets nyt --part test --seeds 0 1 2

Perplexity of held-out words at 90, 50 and 10% seen, at the epochs of --at, and of the mean of what the seeds predict
(`Posterior.mix`) at the last. Results grow in results/own_counts.json.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch

import pyro_prme as prme
from benchmarks.paper.experiment import OBSERVED, RESULTS, add, fit, is_there, load, parser, recorded, scores
from pyro_prme.inference.build import PRESETS

PATH = RESULTS / "own_counts.json"
CORPORA = ("snippets", "nyt", "20news", "nips")
MODELS: dict[str, dict[str, Any]] = {
    "prme": PRESETS["default"],
    "hdp": PRESETS["default"] | {"model": "hdp"},
    "diln": PRESETS["default"] | {"model": "diln"},
    "prme, profiled": PRESETS["default"] | {"objective": "profiled"},
    "prme, f in the scale": PRESETS["default"] | {"form": "scale"},
}


def measured(key: dict[str, Any], at: list[int]) -> prme.Posterior:
    """Fits one model, adds a record for each epoch of `at`, and returns what it learned."""
    train, test = load(key["corpus"], key["part"])
    if key["every"] > 1:
        test = test[np.arange(0, len(test), key["every"])]

    def after(trainer: prme.Trainer, record: dict[str, Any]) -> None:
        if record["epoch"] in at:
            found = scores(prme.Posterior(trainer.guide, vocabulary=train.vocabulary), test)
            add(PATH, key | {"epoch": record["epoch"], "perplexity": found})

    def before(trainer: prme.Trainer) -> None:
        trainer.fit(max(at), after)

    settings = MODELS[key["model"]]
    trainer, _ = fit(train, 100, 0, key["seed"], before, **settings)
    return prme.Posterior(trainer.guide, vocabulary=train.vocabulary)


def mixed(key: dict[str, Any], seeds: list[int], at: list[int]) -> None:
    """Fits one model with every seed, and adds a record for the mean of what they predict."""
    posteriors = [measured(key | {"seed": seed}, at) for seed in seeds]
    if len(posteriors) > 1:
        test = load(key["corpus"], key["part"])[1]
        test = test[np.arange(0, len(test), key["every"])]
        found = scores(prme.Posterior.mix(posteriors), test)
        add(PATH, key | {"mean_of": seeds, "epoch": max(at), "perplexity": found})


def table(records: list[dict[str, Any]]) -> str:
    """One row a corpus, model and epoch: the mean over seeds, with their range in brackets."""
    lines = ["| corpus | model | epoch | seeds | 90% | 50% | 10% |", "|---|---|---:|---:|---:|---:|---:|"]
    kinds = sorted({(r["part"], r["corpus"], r["model"], r["epoch"], "mean_of" in r) for r in records})
    for part, corpus, model, epoch, mix in kinds:
        kind = (part, corpus, model, epoch, mix)
        here = [r for r in records if (r["part"], r["corpus"], r["model"], r["epoch"], "mean_of" in r) == kind]
        values = np.array([[r["perplexity"][str(share)] for share in OBSERVED] for r in here])
        cells = [f"{m:.1f} ({s:.0f})" for m, s in zip(values.mean(0), np.ptp(values, 0), strict=True)]
        seeds = f"the mean of {len(here[0]['mean_of'])}" if mix else len(here)
        lines.append(f"| {corpus}, {part} | {model} | {epoch} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--corpus", nargs="+", default=["snippets"], choices=CORPORA)
    options.add_argument("--model", nargs="+", default=["prme", "hdp"], choices=list(MODELS))
    options.add_argument("--part", default="validation", choices=("validation", "test"))
    options.add_argument("--at", nargs="+", type=int, default=[10, 20, 40])
    options.add_argument("--every", type=int, default=1, help="score every so many test documents")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    for corpus, model in product(args.corpus, args.model):
        key = {"corpus": corpus, "part": args.part, "every": args.every, "model": model}
        if not args.report and not is_there(PATH, key | {"mean_of": args.seeds, "epoch": max(args.at)}):
            mixed(key, args.seeds, args.at)
    print(table(recorded(PATH)))


if __name__ == "__main__":
    main()
