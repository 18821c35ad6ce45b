"""Every setting of every door with values of every wrong type: a ValueError with the setting's name, or it is taken."""

import inspect
from functools import partial

import numpy as np
import pyro
import pytest
import torch
from scipy import sparse

from pyro_prme.estimator import PRMETopicModel
from pyro_prme.inference.build import build
from pyro_prme.runs.run_folder import settings_of

COUNTS = sparse.csr_matrix(np.random.default_rng(0).poisson(0.7, (30, 20)))
VALUES = {
    "none": None,
    "true": True,
    "negative": -1,
    "zero": 0,
    "a half": 0.5,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "a word": "x",
    "no word": "",
    "bytes": b"x",
    "a list": ["x"],
    "an empty dict": {},
    "an object": object(),
    "an array": np.array([1, 2]),
    "a tensor": torch.ones(2),
    "beyond 64 bits": 10**30,
    "the largest float": 1e308,
    "the smallest float": 1e-320,
    "a complex number": 1 + 2j,
    "a list of lists": [[1], [2]],
}
LONG = {"max_iter", "verbose"}  # a large number of passes is allowed, and takes for ever


def refused_by_name(call, name):
    """Whether the call refuses the setting with one sentence; anything but a refusal by name fails."""
    message = ""
    try:
        call()
    except ValueError as error:
        message = str(error)
        refused = True
    else:
        refused = False
    if refused:
        assert name in message, message
        assert "\n" not in message
        assert message.endswith(".")
    return refused


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", [name for name in inspect.signature(PRMETopicModel).parameters if name not in LONG])
def test_the_estimator_names_the_setting(name, value):
    given = {"n_components": 3, "max_iter": 1, "random_state": 0, name: VALUES[value]}
    taken = not refused_by_name(lambda: PRMETopicModel(**given).fit(COUNTS), name)
    assert not (taken and value in ("a list", "an object", "not a number", "an array", "a complex number"))


@pytest.mark.parametrize("value", VALUES)
def test_build_names_the_setting(value):
    for name in inspect.signature(build).parameters:
        given = {"num_topics": 3, "vocab_size": 20, "num_documents": 30, name: VALUES[value]}
        with pyro.settings.context(module_local_params=True):
            refused_by_name(partial(build, **given), name)


@pytest.mark.parametrize("value", VALUES)
def test_settings_of_a_run_name_the_setting(value):
    known = settings_of(num_topics=3)
    for name in known["build"] | known["trainer"]:
        refused_by_name(partial(settings_of, **{"num_topics": 3, name: VALUES[value]}), name)
