"""Own words: the model with a layer of repeated words below its topics, beside the plain model.

    python -m benchmarks.paper.own_words --corpus nyt --part test --seeds 0 1 2 --models own-words plain

Perplexity of held-out words at 90, 50 and 10% seen: of all, of those that the seen part of the document has too, and
of new ones. "presence" is own words with one table a word, "plain" the default without the layer, scored by its topics
alone. Choices (beta, the growth of the tables) were made on validation documents. Results grow in
results/own_words.json.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch

import pyro_prme as prme
from benchmarks.paper.experiment import OBSERVED, RESULTS, add, fit, is_there, load, parser, recorded
from pyro_prme.inference.build import preset_settings

PATH = RESULTS / "own_words.json"
MODELS: dict[str, dict[str, Any]] = {
    "own-words": {},
    "presence": {"growth": 0.0},
    "presence, beta = 3": {"growth": 0.0, "beta": 3.0},
    "own-words, beta = 3": {"beta": 3.0},
    "own-words, beta = 6": {"beta": 6.0},
    "own-words, HDP": {"model": "hdp"},
    "plain": {"own_words": False},
}


def measured(key: dict[str, Any]) -> dict[str, Any]:
    """Fits one model; returns its scores by share and kind of word, and the numbers of its layer."""
    train, test = load(key["corpus"], key["part"])
    settings = dict(MODELS[key["model"]])
    growth = settings.pop("growth", None)
    settings = preset_settings("default", settings.get("own_words", True)) | settings

    def before(trainer: prme.Trainer) -> None:
        if growth is not None:
            trainer.model.growth = growth

    trainer, seconds = fit(train, 100, key["epochs"], key["seed"], before, **settings)
    posterior = prme.Posterior(trainer.guide, vocabulary=train.vocabulary)
    scores = {str(s): posterior.token_perplexities(test.split_tokens(s, seed=0))._asdict() for s in OBSERVED}
    layer = [float(posterior.mean(name)) for name in trainer.model.priors]
    return {"scores": scores, "numbers": layer, "seconds": seconds}


def table(records: list[dict[str, Any]]) -> str:
    """One row a corpus and model: means over seeds, with the range of the first number in brackets."""
    lines = ["| corpus | model | epochs | seeds | 90% | 50% | 10% |", "|---|---|---:|---:|---|---|---|"]
    kinds = sorted({(r["part"], r["corpus"], r["model"], r["epochs"]) for r in records})
    for kind in kinds:
        here = [r for r in records if (r["part"], r["corpus"], r["model"], r["epochs"]) == kind]
        cells = []
        for share in OBSERVED:
            of = {name: np.array([r["scores"][str(share)][name] for r in here]) for name in ("all", "repeated", "new")}
            means = [of[name].mean() for name in of]
            cells.append(f"{means[0]:.0f} ({np.ptp(of['all']):.0f}); {means[1]:.0f}, {means[2]:.0f}")
        part, corpus, model, epochs = kind
        lines.append(f"| {corpus}, {part} | {model} | {epochs} | {len(here)} | {' | '.join(cells)} |")
    return "\n".join(["Each cell: all words (range over seeds); repeated, new.", "", *lines])


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--corpus", nargs="+", default=["nyt"])
    options.add_argument("--models", nargs="+", default=["own-words", "plain"], choices=list(MODELS))
    options.add_argument("--part", default="validation", choices=("validation", "test"))
    options.add_argument("--epochs", type=int, default=15)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    for corpus, seed, model in product(args.corpus, args.seeds, args.models):
        key = {"corpus": corpus, "part": args.part, "model": model, "seed": seed, "epochs": args.epochs}
        if not args.report and not is_there(PATH, key):
            add(PATH, key | measured(key))
    print(table(recorded(PATH)))


if __name__ == "__main__":
    main()
