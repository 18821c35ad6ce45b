"""Kallenberg's decomposition, graphons, and separate exchangeability by a two-sample test."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from pyro_prme.measures import (
    GammaLevy,
    buffet_strip,
    correlated_measure,
    exchangeability_test,
    graphon,
    hierarchical_dirichlet_process,
    kallenberg_measure,
    prme,
)

from .laws import assert_mean

ROWS, COLUMNS = [2, 0, 1], [1, 2, 0]
LEVEL = 0.01


def masses_of(measure):
    width = float(measure.data.attrs["width"])
    return measure.rectangle_masses(np.linspace(0, 1, 4), np.linspace(0, width, 4))


SAMPLERS = {
    "kallenberg": lambda: kallenberg_measure(6, 20, seed=0, num_draws=600),
    "prme": lambda: prme(6, 15, seed=1, num_draws=600),
    "hdp": lambda: hierarchical_dirichlet_process(6, 15, seed=2, num_draws=600),
    "buffet": lambda: buffet_strip(6, 3.0, missing_mass=0.05, seed=3, num_draws=600),
    "correlated": lambda: correlated_measure("poisson", 6, 15, GammaLevy(3.0), seed=4, num_draws=600),
    "graphon": lambda: graphon(6, 15, lambda u, v: u * v, seed=5, num_draws=600),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_separate_exchangeability_and_that_the_test_could_fail(name):
    drawn = SAMPLERS[name]()
    assert exchangeability_test(masses_of(drawn), ROWS, COLUMNS, seed=0).p_value > LEVEL
    # with labels of law Beta(4/3, 1) in place of uniform ones, of rows or of columns, 600 draws are enough to see it
    for label, width in (("tau", 1.0), ("sigma", float(drawn.data.attrs["width"]))):
        tilted = replace(drawn, data=drawn.data.assign({label: width * (drawn.data[label] / width) ** 0.75}))
        assert exchangeability_test(masses_of(tilted), ROWS, COLUMNS, seed=0).p_value <= LEVEL


def test_the_test_sees_ordered_columns_and_ordered_rows():
    drawn = kallenberg_measure(6, 20, seed=6, num_draws=600)
    ordered = drawn.data.assign(sigma=(drawn.data["sigma"].dims, np.sort(drawn.data["sigma"].values)))
    assert exchangeability_test(masses_of(type(drawn)(ordered)), [0, 1, 2], COLUMNS, seed=0).p_value <= LEVEL
    loud = drawn.data.assign(beta=drawn.data["beta"] + 0.3 * drawn.data["tau"])
    assert exchangeability_test(masses_of(type(drawn)(loud)), ROWS, [0, 1, 2], seed=0).p_value <= LEVEL
    louder = drawn.data.assign(beta=drawn.data["beta"] + 9.0 * drawn.data["tau"])  # the data's own order counts as one
    assert exchangeability_test(masses_of(type(drawn)(louder)), ROWS, [0, 1, 2], seed=0).p_value == 1 / 500


def test_the_test_keeps_its_level():
    rng = np.random.default_rng(7)
    draws = kallenberg_measure(4, 10, seed=rng, num_draws=4000)
    masses = masses_of(draws)
    p = [
        exchangeability_test(masses.isel(draw=slice(i, i + 100)), ROWS, COLUMNS, permutations=99, seed=rng).p_value
        for i in range(0, 4000, 100)
    ]
    assert np.mean(np.array(p) <= 0.2) < 0.2 + 4 * np.sqrt(0.2 * 0.8 / 40)
    assert np.mean(p) > 0.3


def test_rectangles_add_up_part_by_part():
    drawn = kallenberg_measure(seed=8, num_draws=5)
    data = drawn.data
    whole = drawn.measure_of([(0, 1)], [(0, 5)])
    lines = data["h"].sum("feature") + 5 * data["beta"].sum("object")
    points = data["f"].sum(["object", "feature"]) + data["g"].sum(["cluster", "feature"])
    np.testing.assert_allclose(whole, points + lines + 5 * data["gamma"])
    grid = drawn.rectangle_masses([0, 0.2, 1], [0, 1, 2, 5])
    np.testing.assert_allclose(grid.sum(["row", "column"]), whole)
    np.testing.assert_allclose(grid.isel(row=0, column=2), drawn.measure_of([(0, 0.2)], [(2, 5)]))
    union = drawn.measure_of([(0.2, 1), (0, 0.1)], [(0, 1), (2, 5)])
    pieces = sum(drawn.measure_of([a], [b]) for a in ((0.2, 1), (0, 0.1)) for b in ((0, 1), (2, 5)))
    np.testing.assert_allclose(union, pieces)
    np.testing.assert_allclose(drawn.measure_of([(0, 0.5)], [(1, 3)], parts=["gamma"]), data["gamma"])


def test_no_interval_has_no_mass_and_a_graphon_may_ignore_a_side():
    assert prme(3, 3, seed=0).measure_of([], [(0, 1)]) == 0
    np.testing.assert_array_equal(*graphon(50, 2, lambda u, v: u > 0.5, seed=1).Z.values.T)


def test_embedding_masses_are_sums_of_loadings():
    drawn = prme(8, 10, seed=9)
    inside = (drawn.tau < 0.5) & (drawn.sigma >= 0.3) & (drawn.sigma < 0.6)
    np.testing.assert_allclose(drawn.measure_of([(0, 0.5)], [(0.3, 0.6)]), drawn.Z.where(inside, 0).sum())
    np.testing.assert_allclose(drawn.rectangle_masses([0, 0.5, 1], [0.3, 0.6])[0, 0], drawn.Z.where(inside, 0).sum())


def test_expected_mass_is_the_intensity():
    # with f = exp(-theta) and Poisson points of unit rate, E xi(A x B) = N |A| |B| times the integral of f, which is 1
    drawn = kallenberg_measure(
        4,
        60,
        0,
        width=4.0,
        f=lambda vartheta, rng, count: np.repeat(np.exp(-vartheta)[..., None, :], count, axis=-2),
        column_lines=0.5,
        row_lines=0.25,
        diffuse=2.0,
        seed=10,
        num_draws=4000,
    )
    A, B = [(0.1, 0.6)], [(0, 1), (2, 3)]  # 1/2 x 2
    assert_mean(drawn.measure_of(A, B, ["f"]), 4 * 0.5 * 2)
    assert_mean(drawn.measure_of(A, B, ["h"]), 0.5 * 0.5 * 2)
    assert_mean(drawn.measure_of(A, B, ["beta"]), 0.25 * 4 * 0.5 * 2)
    assert_mean(drawn.measure_of(A, B, ["gamma"]), 2.0 * 0.5 * 2)
    assert np.all(drawn.measure_of(A, B, ["g"]) == 0)


def test_default_functions_are_fading_waves_one_an_object():
    drawn = kallenberg_measure(2, 5, 3, width=2.0, seed=14, num_draws=4000)
    fading = np.exp(-drawn.data["vartheta"].values) / 2
    for part in ("f", "g"):
        waves = drawn.data[part].values - fading[:, None]  # mean 0 given the points, since phases are uniform
        assert np.all(np.abs(waves) <= fading[:, None] * (1 + 1e-12))
        assert_mean(waves, 0.0, errors=4.5)
        assert_mean(waves[:, 0] * waves[:, 1] / fading**2, 0.0)
        assert_mean(waves[:, 0] ** 2 / fading**2, 0.5)
    many = kallenberg_measure(1, 60, 3, width=2.0, seed=15, num_draws=2000)
    assert_mean(many.measure_of([(0.1, 0.6)], [(0, 1), (1.5, 2)], ["g"]), 3 * 0.5 * 1.5 / 2)


def test_the_second_part_has_one_atom_a_row():
    rho = kallenberg_measure(seed=11).data["rho"].values
    assert np.unique(rho).size == rho.size


def test_graphon_has_its_density():
    drawn = graphon(10, 12, lambda u, v: (u + v) / 2, seed=12, num_draws=2000)
    assert_mean(drawn.Z.mean(["object", "feature"]), 0.5)
    U, V = drawn.data["U"].values, drawn.data["V"].values
    assert_mean(drawn.Z.values[:, 3, 4] - (U[:, 3] + V[:, 4]) / 2, 0.0)


@pytest.mark.parametrize(
    ("draws", "expected"),
    [
        ([(0, 2), (0, 2), (0, 2), (0, 2)], 2 * 8**0.5),  # x = (0, 2) and y = (2, 0), twice each
        ([(0, 2), (2, 0), (0, 0), (2, 2)], 2 * 2 - 8**0.5 / 2 - 8**0.5 / 2),  # x and y are corners of one square
    ],
)
def test_the_energy_distance_by_hand(draws, expected):
    """2 E|x - y| - E|x - x'| - E|y - y'| of two draws x and two permuted ones y, in units of standard deviations.

    Every column has two zeros and two twos after the permutation, and so the standard deviation 1.
    """
    masses = xr.DataArray(np.array(draws)[:, None, :], dims=("draw", "row", "column"))
    assert exchangeability_test(masses, [0], [1, 0], seed=0).statistic == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: graphon(2, 2, lambda u, v: u + v + 1), "outside"),
        (lambda: graphon(2, 2, lambda u, v: u * v * np.nan), "outside"),
        (lambda: graphon(2, 2, lambda u, v: np.ones((3, 3))), "W must return"),
        (lambda: kallenberg_measure(f=lambda t, rng, count: -np.ones((count, t.shape[-1]))), "f must return"),
        (lambda: kallenberg_measure(h=lambda t: np.ones(3)), "h must return"),
        (lambda: prme(3, 3, seed=0).measure_of([0, 1], [(0, 1)]), "disjoint pairs"),
        (lambda: exchangeability_test(masses_of(prme(3, 3, seed=0)), ROWS, COLUMNS), "at least 4 draws"),
        (
            lambda: exchangeability_test(masses_of(prme(3, 3, seed=0, num_draws=4)), ROWS, COLUMNS, permutations=0),
            "permutations",
        ),
        (lambda: kallenberg_measure(diffuse=-1.0), "diffuse"),
        (lambda: kallenberg_measure(seed=0).measure_of([(0, 1)], [(0, 1)], ["z"]), "There is no part"),
        (lambda: kallenberg_measure(seed=0).plot(parts=["q"]), "There is no part"),
        (lambda: kallenberg_measure(seed=0).measure_of([(0, 0.5), (0.4, 1)], [(0, 1)]), "disjoint"),
        (lambda: kallenberg_measure(seed=0).rectangle_masses([0, 0], [0, 1]), "Edges must rise"),
        (
            lambda: exchangeability_test(masses_of(prme(3, 3, seed=0, num_draws=4)), [0, 0, 1], COLUMNS),
            "rows and columns must permute",
        ),
    ],
)
def test_wrong_inputs(make, words):
    with pytest.raises(ValueError, match=words):
        make()
