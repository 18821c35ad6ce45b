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
        "f in the shape, linear, points (predictive)": {**POINTS, **LINEAR},
        "predictive, K = 200": {**POINTS, **LINEAR, "num_topics": 200},
        "predictive, K = 200, beta = 2": {**POINTS, **LINEAR, "num_topics": 200, "beta": 2.0},
    },
    "20news": {
        "HDP": {"model": "hdp"},
        "f in the scale, linear": {"form": "scale", **LINEAR},
        "f in the shape, linear": LINEAR,
        "HDP, points, gamma0 = 0.05": {"model": "hdp", **POINTS},
        "f in the shape, linear, points (predictive)": {**POINTS, **LINEAR},
        "predictive, gamma0 = 0.02": {**POINTS, **LINEAR, "gamma0": 0.02},
        "predictive, K = 200": {**POINTS, **LINEAR, "num_topics": 200},
    },
    "nips": {
        "HDP": {"model": "hdp"},
        "f in the shape (default)": {},
        "HDP, points, gamma0 = 0.05": {"model": "hdp", **POINTS},
        "f in the shape, linear, points (predictive)": {**POINTS, **LINEAR},
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
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    for corpus, seed in product(args.corpus, args.seeds):
        for choice, settings in CHOICES[corpus].items():
            key = {"corpus": corpus, "choice": choice, "seed": seed}
            if not args.report and not is_there(PATH, key):
                add(PATH, key | measured(corpus, "validation", seed, **settings))
    print(table(recorded(PATH)))


if __name__ == "__main__":
    main()
