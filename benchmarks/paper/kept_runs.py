"""Fits that several experiments look at: each is made once, and kept as a run in a folder that is not committed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import pyro_prme as prme
from benchmarks.paper.experiment import load
from pyro_prme.runs.run_folder import load_run, make_trainer, save_run, settings_of

__all__ = ["EPOCHS", "RUNS", "corpus_parts", "kept_run"]

RUNS = Path(__file__).parents[2] / "runs" / "paper"
EPOCHS = {"snippets": 15, "kjv": 15, "nyt": 10, "20news": 10, "nips_1987_1999": 10}
_VALIDATION = {"kjv": 100, "nips_1987_1999": 200}


def corpus_parts(name: str, part: str) -> tuple[prme.Corpus, prme.Corpus]:
    """Documents to fit and to look at, as `experiment.load`; of the Bible a tenth of the chapters is kept out."""
    if name == "kjv":
        train, test = prme.load_corpus("kjv").split(0.1, seed=0)
    else:
        train, test = load(name, "test")
    if part == "test":
        return train, test
    if name not in _VALIDATION:
        return load(name, part)
    order, size = np.random.default_rng(7).permutation(len(train)), _VALIDATION[name]
    return train[np.sort(order[size:])], train[np.sort(order[:size])]


def kept_run(name: str, part: str, preset: str, seed: int, num_topics: int = 100, **settings: str) -> prme.Posterior:
    """The posterior of a fit with a preset and further settings, after the epochs of `EPOCHS`."""
    tag = "-".join([name, part, preset, *settings.values(), str(num_topics), str(EPOCHS[name]), str(seed)])
    if not (RUNS / tag).exists():
        train = corpus_parts(name, part)[0]
        chosen = settings_of(preset, num_topics=num_topics, seed=seed, **settings)
        trainer = make_trainer(train.counts, chosen)
        trainer.fit(EPOCHS[name])
        RUNS.mkdir(parents=True, exist_ok=True)
        save_run(RUNS / tag, trainer, chosen, train.vocabulary)
    return load_run(RUNS / tag).posterior
