"""gamma0 and beta learned with the rest (empirical Bayes), for HDP and PRME, scored as in Table 1.

    python benchmarks/paper/learned.py --corpus nyt 20news --seeds 0

adds each fit to results/learned.json as it ends, and prints the table. Both numbers are points under vague Gamma priors
with means 5 and 0.2 and move by gradient from there; topics are Dirichlet, K = 100, 40 epochs. Only train is read to
learn them, so that test documents may be scored. The gradient of gamma0 reads all of K x D at each step: on 20news a
batch has 2,000 documents, for fewer steps.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from experiment import OBSERVED, RESULTS, add, average, is_there, measured, parser, recorded
from pyro import distributions as dist

import pyro_prme as prme
from pyro_prme.inference.build import FORMS, MODELS

PATH = RESULTS / "learned.json"
START = {"beta": 5.0, "gamma0": 0.2}


class Learned(prme.TopicModel):
    """START's numbers as sites."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        priors = {k: dist.Gamma(torch.tensor(2.0), 2 / v) for k, v in START.items()}
        super().__init__(*args, **{**kwargs, **priors})


class LearnedHDP(Learned, prme.HDP):
    """HDP with learned numbers."""


class LearnedPRME(Learned, prme.ShapePRME):
    """PRME, f in the shape, with learned numbers."""


BATCH = {"nyt": 500, "20news": 2000}
SETTINGS = {"HDP": {"model": "learned"}, "PRME": {"form": "learned"}}


def begin(trainer: prme.Trainer) -> None:
    """Puts the numbers where Table 1 has them."""
    for name, value in START.items():
        trainer.guide.claim(name).set(torch.tensor(value))


def learned(trainer: prme.Trainer) -> dict[str, float]:
    """The numbers as they are."""
    return {name: float(trainer.guide.claim(name).value().detach()) for name in START}


def table(records: list[dict]) -> str:
    """One row a corpus and model."""
    lines = [
        "| corpus | model | seeds | gamma0 | beta | 90% | 50% | 10% observed | f = 0: 90% | 10% | topics used |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for corpus, model in dict.fromkeys((r["corpus"], r["model"]) for r in records):
        here = [r for r in records if (r["corpus"], r["model"]) == (corpus, model)]
        cells = [f"{sum(r[name] for r in here) / len(here):.3g}" for name in ("gamma0", "beta")]
        cells += [average(here, share) for share in OBSERVED]
        zero = "perplexity_without_f" in here[0]
        cells += [average(here, share, "perplexity_without_f") if zero else "" for share in (0.9, 0.1)]
        cells.append(f"{sum(r['topics_used'] for r in here) / len(here):.0f}")
        lines.append(f"| {corpus} | {model} | {len(here)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(seeds=[0])
    options.add_argument("--corpus", nargs="+", default=list(BATCH), choices=list(BATCH))
    options.add_argument("--model", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    args = options.parse_args()
    MODELS["learned"], FORMS["learned"] = LearnedHDP, LearnedPRME
    torch.set_num_threads(args.threads)
    for corpus, seed, model in product(args.corpus, args.seeds, args.model):
        key = {"corpus": corpus, "model": model, "seed": seed}
        if not args.report and not is_there(PATH, key):
            settings = {"before": begin, "after": learned, "batch_size": BATCH[corpus], **SETTINGS[model]}
            add(PATH, key | measured(corpus, "test", seed, **settings))
    print(table(recorded(PATH)))


if __name__ == "__main__":
    main()
