"""`prme fit --own-words`, what is saved of it and how it is scored."""

import json

import pytest

import pyro_prme
from pyro_prme.models.own_words import OwnWordsShapePRME

from .test_cli import error_of, fitted, prme

__all__ = ["fitted"]  # the fixture


def test_own_words_are_fitted_saved_and_scored_beside_the_plain_score(fitted):
    out = fitted / "own"
    options = ["--topics", 5, "--epochs", 2, "--batch-size", 20]
    prme("fit", fitted / "train.npz", *options, "--out", out, "--own-words")
    saved = pyro_prme.load_run(out)
    assert isinstance(saved.model, OwnWordsShapePRME)
    assert (saved.settings["build"]["own_words"], saved.settings["build"]["beta"]) == (True, 10.0)
    scores = json.loads(prme("evaluate", out, fitted / "test.npz", "--observed", 0.5, "--json").stdout)
    split = pyro_prme.load_corpus(str(fitted / "test.npz")).split_tokens(0.5, 0)
    for kind, value in saved.posterior.token_perplexities(split)._asdict().items():
        assert scores[f"own_words_0.5_{kind}"] == pytest.approx(value)
    assert scores["perplexity_0.5"] == pytest.approx(saved.posterior.perplexity(split))
    plain = json.loads(prme("evaluate", fitted / "run", fitted / "test.npz", "--observed", 0.5, "--json").stdout)
    assert not any(name.startswith("own_words") for name in plain)
    prme("fit", fitted / "train.npz", "--out", out, "--resume", "--epochs", 3)
    again = pyro_prme.load_run(out)
    assert float(again.posterior.mean("own_discount")) != float(saved.posterior.mean("own_discount"))
    assert "--own-words False, not True" in error_of(
        "fit", fitted / "train.npz", "--out", fitted / "run", "--resume", "--own-words"
    )
