"""Arguments of a wrong type or range: one sentence with the name and what it may be, whoever is given them."""

import inspect
import math
import re

import numpy as np
import pytest
import torch

from pyro_prme import checks
from pyro_prme.answers.posterior import Posterior
from pyro_prme.estimator import PRMETopicModel
from pyro_prme.inference.build import CHOICES, build
from pyro_prme.inference.topic_guide import Counts
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.runs.run_folder import settings_of

COUNTS = np.random.default_rng(0).poisson(1.0, (12, 9))


class Odd:
    """An object that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError("no")


def wrong(value, message, check, *args, **limits):
    with pytest.raises(ValueError, match=r"\A[^\n]*\.\Z") as error:
        check("x", value, *args, **limits)
    assert str(error.value) == f"x is {message}."


def test_whole_numbers():
    for good in (3, np.int8(3), np.array(3), torch.tensor(3)):
        assert checks.whole("x", good) == 3
        assert type(checks.whole("x", good)) is int
    for bad in (True, 2.0, "2", None, np.inf, [3], np.array([1, 2]), torch.ones(2), 0, -3):
        with pytest.raises(ValueError, match=r"x is .*: it must be a whole number of at least 1\."):
            checks.whole("x", bad)
    assert checks.whole("x", 0, 0) == 0
    wrong(1, "1: it must be a whole number of at least 2", checks.whole, 2)
    wrong(7, "7: it must be a whole number from 0 to 6", checks.whole, 0, 6)


def test_numbers():
    for good in (0.5, np.float32(0.5), torch.tensor(0.5), np.array([0.5])):
        assert checks.positive("x", good) == 0.5
    for bad in (0, -1.0, math.inf, math.nan, 10**400, True, "0.5", None, 1j, Odd()):
        with pytest.raises(ValueError, match=r"x is .*: it must be a finite number above 0\."):
            checks.positive("x", bad)
    assert checks.number("x", -4) == -4.0
    assert checks.number("x", 0, least=0) == checks.number("x", 1, most=1) - 1 == 0
    wrong(1.0, "1.0: it must be a finite number of at least 0 and below 1", checks.number, least=0, below=1)
    wrong(0.5, "0.5: it must be a finite number above 0.5 and at most 1", checks.number, above=0.5, most=1)
    for bad in (0, 1, 90, math.nan):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            checks.fraction("x", bad)


def test_shares_or_numbers():
    assert [checks.share_or_number("x", good) for good in (0, 5, 10**9, 0.0, 0.25, 1.0)] == [0, 5, 10**9, 0, 0.25, 1]
    for bad in (-1, -0.5, 5.0, math.nan, math.inf, True, "5", None):
        with pytest.raises(ValueError, match=r"x is .*: it must be a whole number of documents"):
            checks.share_or_number("x", bad)


def test_choices_flags_and_widths():
    assert checks.choice("x", "a", {"a": 1, "b": 2}) == "a"
    wrong(["a"], "['a']: it must be one of a, b", checks.choice, ("a", "b"))
    wrong("ab", "'ab': it must be one of a, b", checks.choice, ("a", "b"))
    assert checks.flag("x", False) is False
    wrong(1, "1: it must be True or False", checks.flag)
    assert checks.widths("x", [80, np.int64(3)]) == (80, 3)
    assert checks.widths("x", ()) == ()
    for bad in (80, "80", (0,), (1.5,), ("a",), None, [3] * 1001):
        with pytest.raises(ValueError, match="sequence of at most 1000 whole numbers"):
            checks.widths("x", bad)


def test_what_is_shown_of_a_value_is_short_and_in_one_line():
    wrong("a" * 100, f"'{'a' * 59}... (str): it must be True or False", checks.flag)
    wrong("a\x1b[2Jb", r"'a\x1b[2Jb': it must be True or False", checks.flag)
    wrong(np.zeros((2, 2)), "array([[0., 0.], [0., 0.]]): it must be True or False", checks.flag)
    wrong(Odd(), "a Odd: it must be True or False", checks.flag)


#: Values that no number, no choice and no sequence takes.
STRANGE = (-1, math.nan, math.inf, "x", ["x"], True)


def refused(name, call):
    with pytest.raises(ValueError, match=rf"\A{name} is [^\n]*: it must be [^\n]*\.\Z"):
        call()


@pytest.mark.parametrize("name", sorted(set(PRMETopicModel().get_params()) - {"callback", "verbose", "random_state"}))
def test_the_estimator_refuses_what_is_strange(name):
    for value in STRANGE:
        if value is True and name == "own_words":
            continue
        one = PRMETopicModel(**({"n_components": 3, "max_iter": 1} | {name: value}))
        for fit in (one.fit, one.partial_fit):
            refused(name, lambda fit=fit: fit(COUNTS))
        assert not hasattr(one, "model_")


@pytest.mark.parametrize(
    ("name", "value"),
    [("callback", 3), ("verbose", -1), ("verbose", "x"), ("random_state", -1), ("random_state", "x"), ("alpha", None)],
)
def test_the_estimator_refuses_other_wrong_settings(name, value):
    refused(name, lambda: PRMETopicModel(3, max_iter=1, **{name: value}).fit(COUNTS))


def test_the_estimator_takes_numpy_numbers_and_a_boolean_for_verbose():
    settings = {"batch_size": np.int64(6), "alpha": np.float32(1), "verbose": False, "random_state": np.int64(1)}
    assert PRMETopicModel(np.int64(2), max_iter=np.int32(1), **settings).fit(COUNTS).n_iter_ == 1


BUILD = {"num_topics": 3, "vocab_size": 9, "num_documents": 12}
TRAIN = list(inspect.signature(TrainOptions).parameters)


@pytest.mark.parametrize("name", [*BUILD, *(build.__kwdefaults__ or {})])
def test_build_refuses_what_is_strange(name):
    for value in STRANGE:
        if not (value is True and name in ("batch_norm", "residual", "own_words")):
            refused(name, lambda value=value: build(**(BUILD | {name: value})))


@pytest.mark.parametrize("name", TRAIN)
def test_the_options_of_training_and_settings_refuse_what_is_strange(name):
    for value in STRANGE:
        refused(name, lambda value=value: TrainOptions(**{name: value}))
        refused(name, lambda value=value: settings_of(num_topics=3, **{name: value}))


def test_the_trainer_refuses_what_is_strange():
    guide = build(**BUILD)[1]
    for value in STRANGE:
        refused("start", lambda value=value: Trainer(guide, Counts(COUNTS), start=value))
    with pytest.raises(ValueError, match="epochs is -1: it must be a whole number of at least 0"):
        Trainer(guide, Counts(COUNTS)).fit(-1)


def test_a_posterior_refuses_what_is_strange():
    for value in (*STRANGE, 0):
        refused("batch_size", lambda value=value: Posterior(build(**BUILD)[1], batch_size=value))


def test_every_numeric_setting_has_a_check():
    names = {*BUILD, *build.__kwdefaults__, *TRAIN}
    assert names - {*CHOICES, "mode", "start"} <= checks.SETTINGS.keys()
    assert all(re.fullmatch(r"[a-z_0]+", name) for name in checks.SETTINGS)
