"""One program on one corpus: the data, the clock and the score. Nothing here knows which program it is."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import pyro_prme as prme
from pyro_prme.answers.scores import completion_perplexity, log_predictive

# From observed counts (N, D): proportions (N, K) and topics (K, D), or None and each document's own words (N, D).
Predict = Callable[[sparse.csr_array], tuple["np.ndarray | None", np.ndarray]]

CORPORA = ("kjv", "nyt", "20news")
RESOLUTION = 0.08  # a curve has a point at least so many of its seconds after the last one
PATIENCE = 4.0  # and so many times the seconds that the last score took
BLOCK = 256  # documents scored at a time when each has a row of words of its own


class OutOfTime(Exception):
    """The budget is spent."""


class Clock:
    """Seconds of training so far, and the curve; it stands still while a model is scored.

    Args:
        budget: seconds of training.
        score: perplexity of what a `Predict` predicts.
    """

    def __init__(self, budget: float, score: Callable[[Predict], float]) -> None:
        self.budget, self.score = budget, score
        self.seconds, self.scoring = 0.0, 0.0
        self.curve: list[dict[str, float]] = []
        self.warm_up: float | None = None
        self._due, self._since = 0.0, 0.0

    def start(self) -> None:
        """The data are in the program's own format, and training begins."""
        self._since = time.perf_counter()

    def tick(self, predict: Predict, epochs: float) -> None:
        """Called by a program whenever its model could be used; raises `OutOfTime` at the end of the budget."""
        self.seconds += time.perf_counter() - self._since
        over = self.seconds >= self.budget
        if over or self.seconds >= self._due:
            began = time.perf_counter()
            perplexity = self.score(predict)
            cost = time.perf_counter() - began
            self.scoring += cost
            self.curve.append({"seconds": self.seconds, "perplexity": perplexity, "epochs": epochs})
            self._due = self.seconds + max(RESOLUTION * self.seconds, PATIENCE * cost)
        if over:
            raise OutOfTime
        self.start()


def load(name: str, data: Path, validation: bool = False) -> tuple[prme.Corpus, prme.TokenSplit, int]:
    """Train documents, the tokens of others to score, and how many test tokens are of words that train has not.

    kjv is split as `prme demo` does; 20news goes without scikit-learn's stop words and one-letter words, and every
    fifth of its test documents is scored. For validation, a tenth of the train documents stands in for the test
    documents.
    """
    if name == "kjv":
        train, test = prme.load_corpus("kjv").split(0.1, seed=0)
    else:
        train, test = (prme.load_corpus(data / name / f"{part}.ldac.gz") for part in ("train", "test"))
    if name == "20news":
        letters = {word for word in train.vocabulary if len(word) == 1}
        train = train.restrict(stop_words="english").restrict(stop_words=letters)
        test = test[::5].align(train.vocabulary)[0]
    if validation:
        train, test = train.split(0.1, seed=1)
    train = train[train.lengths > 0].restrict()
    test, dropped = test.align(train.vocabulary)
    return train, test.split_tokens(0.9, seed=0), dropped


def perplexity(predict: Predict, split: prme.TokenSplit) -> float:
    """`pyro_prme.answers.scores.completion_perplexity` of the held-out tokens, given the observed ones."""
    proportions, words = predict(split.observed.counts)
    if proportions is not None:
        return completion_perplexity(proportions, words, split.held_out)
    held_out, total = split.held_out.counts, 0.0
    for start in range(0, held_out.shape[0], BLOCK):
        rows = words[start : start + BLOCK]
        total += log_predictive(np.eye(len(rows)), rows, held_out[start : start + BLOCK]).sum()
    return float(np.exp(-total / held_out.sum()))


def run(
    train: Callable[..., None],
    settings: dict[str, Any],
    corpus: str,
    data: Path,
    budget: float,
    threads: int,
    validation: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """The curve of one program, in this process, with its largest resident size.

    Args:
        train: one of the adapters.
        settings: for it.
        corpus, data, validation: see `load`.
        budget: seconds of training.
        threads: that it may use.
        seed: for it.
    """
    documents, split, dropped = load(corpus, data, validation)
    clock = Clock(budget, lambda predict: perplexity(predict, split))
    with contextlib.suppress(OutOfTime):
        train(sparse.csr_matrix(documents.counts), clock, threads, seed, **settings)
    mib = {who: resource.getrusage(getattr(resource, f"RUSAGE_{who}")).ru_maxrss / 1024 for who in ("SELF", "CHILDREN")}
    return {
        "settings": settings,
        "threads": threads,
        "documents": documents.num_documents,
        "tokens": documents.num_tokens,
        "held_out_tokens": split.held_out.num_tokens,
        "unknown_test_tokens": dropped,
        "curve": clock.curve,
        "scoring_seconds": clock.scoring,
        "warm_up_seconds": clock.warm_up,
        "peak_mib": mib["SELF"],
        "peak_mib_of_largest_child": mib["CHILDREN"],
    }
