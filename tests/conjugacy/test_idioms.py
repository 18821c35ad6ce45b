"""Each way of writing things: its sites are closed and the expected log joint is right, or they are refused by name."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pyro
import pytest
import torch

from pyro_prme.conjugacy import Ascent, Structure, find_structure
from tests.conjugacy import idioms, oracle
from tests.conjugacy.idioms.table import IDIOMS, Idiom

for _module in pkgutil.iter_modules(idioms.__path__):
    importlib.import_module(f"{idioms.__name__}.{_module.name}")

FOLLOWED = [name for name, one in IDIOMS.items() if not one.error]
TURNED_DOWN = [name for name, one in IDIOMS.items() if one.error]


def found_in(one: Idiom) -> Structure:
    pyro.set_rng_seed(0)
    return find_structure(one.model)


@pytest.mark.parametrize("name", FOLLOWED)
def test_idiom(name: str) -> None:
    one = IDIOMS[name]
    structure = found_in(one)
    assert dict(structure.refusals) == dict(one.refused)
    assert structure.open == tuple(n for n in structure.sites if n in one.refused)
    if structure.closed:
        _check_expectation(structure, one)


def _check_expectation(structure: Structure, one: Idiom) -> None:
    """The expected log joint against the model run at matched points, or against draws where it is a bound."""
    ascent = oracle.settle(Ascent(structure))
    expected = float(structure.program.total(ascent.statistics()).detach())
    if one.bounded:
        estimate = oracle.monte_carlo(structure, ascent, 60)
        bound = float(ascent.bound().detach())
        assert bound <= estimate.mean + 4 * estimate.error
        return
    exact = oracle.expected_log_joint(structure, ascent)
    assert expected == pytest.approx(exact, rel=1e-5 if one.single else 1e-9, abs=1e-5 if one.single else 1e-9)


@pytest.mark.parametrize("name", TURNED_DOWN)
def test_model_is_turned_down(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(IDIOMS[name].error)}$"):
        found_in(IDIOMS[name])


def test_table_is_read() -> None:
    assert len(IDIOMS) > 150
    assert sum(bool(one.refused) for one in IDIOMS.values()) > 50


@pytest.mark.parametrize(
    "name", ["normalised_gammas", "mixture_chosen_by_a_site", "poisson_of_a_sum", "half_cauchy_scale"]
)
def test_bound_is_not_far_below(name: str) -> None:
    """A bound that is far too low would pass the comparison with draws."""
    structure = found_in(IDIOMS[name])
    ascent = oracle.settle(Ascent(structure))
    estimate = oracle.monte_carlo(structure, ascent, 100)
    assert float(ascent.bound()) > estimate.mean - 1.5
    assert torch.isfinite(ascent.bound())
