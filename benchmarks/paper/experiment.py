"""What the experiments share: corpora, the models that are compared, a fit with its scores, and result files that grow.

Fits run in float32 with as many threads as --threads says. A fit that a result file has already is not run again, so
that an experiment can be stopped and taken up later; delete the file to start afresh.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch import Tensor, nn

import pyro_prme as prme

DATA = Path(__file__).parents[3] / "shared" / "data"
RESULTS = Path(__file__).parent / "results"
OBSERVED = (0.9, 0.5, 0.1)
VALIDATION = {"snippets": 1000, "nyt": 500, "20news": 1000, "nips": 200}  # documents of train

#: Settings of `build` and `TrainOptions` over the defaults. HDP, DILN and PRME in the scale are the paper's models.
MODELS: dict[str, dict[str, Any]] = {
    "hdp": {"model": "hdp"},
    "diln": {"model": "diln"},
    "prme-scale": {"form": "scale"},
    "prme": {},
    "prme-linear": {"decoder_hidden": ()},
    "hdp-points": {"model": "hdp", "topics": "point"},
    "prme-points": {"topics": "point", "decoder_hidden": ()},
    "hdp-mean": {"model": "hdp", "topics": "point", "loadings": "mean"},
    "prme-mean": {"topics": "point", "loadings": "mean", "decoder_hidden": ()},
    "hdp-mean-200": {"model": "hdp", "topics": "point", "loadings": "mean", "num_topics": 200},
    "prme-mean-200": {"topics": "point", "loadings": "mean", "decoder_hidden": (), "num_topics": 200},
}
NAMES = {
    "hdp": "HDP",
    "diln": "DILN",
    "prme-scale": "PRME, f in the scale",
    "prme": "PRME",
    "prme-linear": "PRME, linear decoder",
    "hdp-points": "HDP, topics as points",
    "prme-points": "PRME, linear, topics as points",
    "hdp-mean": "HDP, points, words by E Z",
    "prme-mean": "PRME, linear, points, words by E Z",
    "hdp-mean-200": "HDP, points, words by E Z, K = 200",
    "prme-mean-200": "PRME, linear, points, words by E Z, K = 200",
}


def load(name: str, part: str = "test") -> tuple[prme.Corpus, prme.Corpus]:
    """Documents to fit and to score: those of the corpus, or for "validation" both cut from its train part.

    20news is without stop words and one-letter words.
    """
    train, test = (prme.load_corpus(DATA / name / f"{one}.ldac.gz") for one in ("train", "test"))
    if name == "20news":
        dropped = {*ENGLISH_STOP_WORDS, *(word for word in train.vocabulary if len(word) == 1)}
        train = train.restrict(stop_words=dropped)
        test = test.align(train.vocabulary)[0]
    if part == "test":
        return train, test
    order, size = np.random.default_rng(7).permutation(len(train)), VALIDATION[name]
    return train[np.sort(order[size:])], train[np.sort(order[:size])]


class Nothing(nn.Module):
    """A random function that is zero, up to a variance that a Normal must have."""

    def forward(self, h: Tensor, ell: Tensor) -> tuple[Tensor, Tensor]:
        zero = h.new_zeros(len(h), len(ell))
        return zero, zero + 1e-6


@contextmanager
def without_function(model: prme.PRME) -> Iterator[None]:
    """Within it, the model's f is forced to 0."""
    decoder, model.decoder = model.decoder, Nothing()
    try:
        yield
    finally:
        model.decoder = decoder


def fit(
    train: prme.Corpus,
    num_topics: int,
    epochs: int,
    seed: int,
    before: Callable[[prme.Trainer], None] = lambda trainer: None,
    **settings: Any,
) -> tuple[prme.Trainer, float]:
    """A trainer that has run, and its seconds; `before` sees it when it has its start."""
    named = inspect.signature(prme.build).parameters
    build = {key: value for key, value in settings.items() if key in named}
    rest = {key: value for key, value in settings.items() if key not in named}
    began = time.perf_counter()
    guide = prme.build(num_topics, train.vocab_size, len(train), seed=seed, **build)[1]
    start = rest.pop("start", "default")
    trainer = prme.Trainer(guide, train, prme.TrainOptions(seed=seed, **rest), start=start)
    before(trainer)
    trainer.fit(epochs)
    return trainer, time.perf_counter() - began


def scores(posterior: prme.Posterior, test: prme.Corpus, seed: int = 0) -> dict[str, float]:
    """Perplexity of held-out words by the share of a document's words that is observed."""
    return {str(share): posterior.perplexity(test.split_tokens(share, seed=seed)) for share in OBSERVED}


def measured(
    corpus: str,
    part: str,
    seed: int,
    epochs: int = 40,
    num_topics: int = 100,
    after: Callable[[prme.Trainer], dict[str, Any]] = lambda trainer: {},
    **settings: Any,
) -> dict[str, Any]:
    """Fits one model and scores it, with its random function and, where it has one, without; `after` adds to it."""
    train, test = load(corpus, part)
    trainer, seconds = fit(train, num_topics, epochs, seed, **settings)
    posterior = prme.Posterior(trainer.guide, vocabulary=train.vocabulary)
    record: dict[str, Any] = {"perplexity": scores(posterior, test)}
    if settings.get("model", "prme") == "prme":
        with without_function(trainer.model):
            record["perplexity_without_f"] = scores(posterior, test)
    return (
        record
        | {
            "topics_used": int(posterior.num_topics_used),
            "bound": trainer.history[-1]["bound"],
            "seconds": seconds,
        }
        | after(trainer)
    )


def recorded(path: Path) -> list[dict[str, Any]]:
    """The records of a result file; none if there is no file yet."""
    return json.loads(path.read_text()) if path.exists() else []


def is_there(path: Path, key: dict[str, Any]) -> bool:
    """Whether a result file has a record with this key."""
    return any(all(record.get(name) == value for name, value in key.items()) for record in recorded(path))


def add(path: Path, record: dict[str, Any]) -> None:
    """Adds a record to a result file, which is whole at any time, and prints it."""
    path.parent.mkdir(exist_ok=True)
    lines = ",\n ".join(json.dumps(one) for one in [*recorded(path), record])
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(f"[\n {lines}\n]\n")
    fresh.replace(path)
    print(json.dumps(record), flush=True)


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every experiment has."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    made.add_argument("--threads", type=int, default=torch.get_num_threads())
    made.add_argument("--report", action="store_true", help="run nothing: print what is there")
    return made


def average(records: list[dict[str, Any]], share: float, scored: str = "perplexity") -> str:
    """Mean over seeds, with the largest less the smallest in brackets where there are several."""
    values = np.array([record[scored][str(share)] for record in records])
    return f"{values.mean():.1f}" + (f" ({np.ptp(values):.0f})" if len(values) > 1 else "")
