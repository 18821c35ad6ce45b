"""The catalogue names functions that exist, stands in its module's docstring, and agrees with the Levy measures."""

import subprocess
import sys

import numpy as np
from scipy.special import exp1

from pyro_prme import measures
from pyro_prme.measures import catalogue
from pyro_prme.measures.catalogue import __doc__ as table


def test_every_function_exists_and_is_public():
    for name in catalogue()["function"]:
        assert callable(getattr(measures, name))
        assert name in measures.__all__


def test_the_docstring_holds_the_same_rows():
    lines = [line.split("  ") for line in table.splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    for row in catalogue().itertuples(index=False):
        assert list(row) in rows


def test_the_closed_inverses_of_the_table():
    v, M, r = np.array([0.5, 3.0]), 2.0, 1.5
    np.testing.assert_allclose(measures.BetaLevy(M).inverse_tail(v), np.exp(-v / M))
    np.testing.assert_allclose(exp1(r * measures.GammaLevy(M, r).inverse_tail(v)), v / M, rtol=1e-10)


def test_public_names_exist():
    assert len(set(measures.__all__)) == len(measures.__all__)
    for name in measures.__all__:
        assert hasattr(measures, name)


def test_import_brings_no_matplotlib_and_changes_no_state():
    program = """
import sys, numpy as np, torch
before = torch.get_default_dtype(), np.geterr(), torch.random.get_rng_state().sum().item()
import pyro_prme.measures
assert "matplotlib.pyplot" not in sys.modules
assert before == (torch.get_default_dtype(), np.geterr(), torch.random.get_rng_state().sum().item())
import pyro
assert not list(pyro.get_param_store().keys())
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
