"""What the defaults and the preset "predictive" were chosen by: perplexity on validation documents cut from train.

    python benchmarks/paper/choices.py --corpus nyt 20news

adds each fit to results/choices.json as it ends, and prints the table. No test document is read here. K = 100, 40
epochs.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from experiment import OBSERVED, RESULTS, add, average, is_there, measured, parser, recorded

PATH = RESULTS / "choices.json"
POINTS = {"topics": "point", "gamma0": 0.05}
LINEAR = {"decoder_hidden": ()}
MEAN = {"loadings": "mean"}

#: What the preset "predictive" was chosen among: f in the shape; "mean" has topics as points too, unless it says not.
PREDICTIVE: dict[str, dict[str, Any]] = {
    "linear, points": {**POINTS, **LINEAR},
    "linear, points, gamma0 = 0.02": {**POINTS, **LINEAR, "gamma0": 0.02},
    "linear, points, gamma0 = 0.01": {**POINTS, **LINEAR, "gamma0": 0.01},
    "HDP, mean": {"model": "hdp", **POINTS, **MEAN},
    "linear, mean": {**POINTS, **LINEAR, **MEAN},
    "linear, mean, gamma0 = 0.02": {**POINTS, **LINEAR, **MEAN, "gamma0": 0.02},
    "HDP, mean, K = 200": {"model": "hdp", **POINTS, **MEAN, "num_topics": 200},
    "linear, mean, K = 200": {**POINTS, **LINEAR, **MEAN, "num_topics": 200},
    "linear, mean, K = 200, gamma0 = 0.02": {**POINTS, **LINEAR, **MEAN, "num_topics": 200, "gamma0": 0.02},
    "linear, mean, K = 200, gamma0 = 0.01": {**POINTS, **LINEAR, **MEAN, "num_topics": 200, "gamma0": 0.01},
    "HDP, mean, K = 200, gamma0 = 0.02": {"model": "hdp", **POINTS, **MEAN, "num_topics": 200, "gamma0": 0.02},
    "linear, mean, K = 200, beta = 2": {**POINTS, **LINEAR, **MEAN, "num_topics": 200, "beta": 2.0},
    "linear, mean, K = 200, beta = 10": {**POINTS, **LINEAR, **MEAN, "num_topics": 200, "beta": 10.0},
    "linear, mean, K = 400": {**POINTS, **LINEAR, **MEAN, "num_topics": 400},
    "mean": {**POINTS, **MEAN},
    "Dirichlet topics, mean": MEAN,
    "HDP, Dirichlet topics, mean": {"model": "hdp", **MEAN},
    "HDP, points, K = 200": {"model": "hdp", **POINTS, "num_topics": 200},
    "linear, points, K = 200": {**POINTS, **LINEAR, "num_topics": 200},
    "linear, points, K = 200, beta = 2": {**POINTS, **LINEAR, "num_topics": 200, "beta": 2.0},
    "linear, points, K = 200, gamma0 = 0.02": {**POINTS, **LINEAR, "num_topics": 200, "gamma0": 0.02},
}

#: Settings over the library's defaults, by corpus.
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "nyt": {
        "HDP": {"model": "hdp"},
        "HDP, beta = 15": {"model": "hdp", "beta": 15.0},
        "f in the scale": {"form": "scale"},
        "f in the scale, rate 1e-3": {"form": "scale", "learning_rate": 1e-3},
        "f in the scale, linear": {"form": "scale", **LINEAR},
        "f in the scale, linear, beta = 15": {"form": "scale", "beta": 15.0, **LINEAR},
        "f in the shape (default)": {},
        "f in the shape, linear": LINEAR,
        "f in the shape, linear, beta = 3": {"beta": 3.0, **LINEAR},
        "f in the shape, linear, beta = 15": {"beta": 15.0, **LINEAR},
        "HDP, points, gamma0 = 0.02": {"model": "hdp", **POINTS, "gamma0": 0.02},
        "HDP, points, gamma0 = 0.05": {"model": "hdp", **POINTS},
        "HDP, points, gamma0 = 0.1": {"model": "hdp", **POINTS, "gamma0": 0.1},
        "f in the scale, points": {"form": "scale", **POINTS},
        "f in the shape, points": POINTS,
        **PREDICTIVE,
    },
    "20news": {
        "HDP": {"model": "hdp"},
        "f in the scale, linear": {"form": "scale", **LINEAR},
        "f in the shape, linear": LINEAR,
        "HDP, points, gamma0 = 0.05": {"model": "hdp", **POINTS},
        **PREDICTIVE,
    },
    "nips": {
        "HDP": {"model": "hdp"},
        "f in the shape (default)": {},
        "HDP, points, gamma0 = 0.05": {"model": "hdp", **POINTS},
        "linear, points": {**POINTS, **LINEAR},
    },
}


def table(records: list[dict]) -> str:
    """Markdown: one row a choice."""
    lines = [
        "| corpus | choice | seeds | 90% | 50% | 10% observed | topics used |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for corpus, choices in CHOICES.items():
        for choice in choices:
            here = [r for r in records if (r["corpus"], r["choice"]) == (corpus, choice)]
            if here:
                cells = [average(here, share) for share in OBSERVED]
                used = sum(r["topics_used"] for r in here) / len(here)
                lines.append(f"| {corpus} | {choice} | {len(here)} | {' | '.join(cells)} | {used:.0f} |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(seeds=[0])
    options.add_argument("--corpus", nargs="+", default=list(CHOICES), choices=list(CHOICES))
    options.add_argument("--choice", nargs="+", help="only these")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    for corpus, seed in product(args.corpus, args.seeds):
        for choice, settings in CHOICES[corpus].items():
            key = {"corpus": corpus, "choice": choice, "seed": seed}
            wanted = args.choice is None or choice in args.choice
            if wanted and not args.report and not is_there(PATH, key):
                add(PATH, key | measured(corpus, "validation", seed, **settings))
    print(table(recorded(PATH)))


if __name__ == "__main__":
    main()
