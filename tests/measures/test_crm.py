"""Poisson points, completely random measures and sticks against their laws."""

import numpy as np
import pytest
from scipy import stats

from pyro_prme.measures import (
    BetaLevy,
    GammaLevy,
    GeneralizedGammaLevy,
    StableBetaLevy,
    completely_random_measure,
    poisson_strip,
    poisson_window,
    stick_breaking,
)

from .laws import assert_mean, assert_variance


def test_window_counts_are_poisson_and_points_uniform():
    points = poisson_window(2.0, 3.0, seed=0, num_draws=4000)
    counts = points.counts().values
    assert_mean(counts, 6.0)
    assert_variance(counts, 6.0)
    sigma, vartheta = points.sigma.values, points.vartheta.values
    there = np.isfinite(vartheta)
    assert stats.kstest(sigma[there] / 2, "uniform").pvalue > 1e-3
    assert stats.kstest(vartheta[there] / 3, "uniform").pvalue > 1e-3
    halves = np.stack([(there & (sigma < 1)).sum(-1), (there & (sigma >= 1)).sum(-1)])
    assert_mean((halves[0] - 3) * (halves[1] - 3), 0.0)  # disjoint parts are independent


def test_strip_is_the_window_by_rising_vartheta():
    points = poisson_strip(400, width=2.0, seed=1, num_draws=500)
    vartheta = points.vartheta.values
    assert np.all(np.diff(vartheta) > 0)
    assert stats.kstest(np.diff(vartheta)[:, 17] * 2, "expon").pvalue > 1e-3
    assert_mean((vartheta < 30).sum(-1), 60.0)
    assert_variance((vartheta < 30).sum(-1), 60.0)


@pytest.mark.parametrize(("mass", "rate"), [(0.5, 1.0), (3.0, 2.0)])
def test_gamma_process_total_is_gamma(mass, rate):
    total = completely_random_measure(GammaLevy(mass, rate), num_atoms=80, seed=2, num_draws=4000).total()
    assert stats.kstest(total.values, stats.gamma(mass, scale=1 / rate).cdf).pvalue > 1e-3


def test_gamma_process_parts_are_independent_gammas():
    crm = completely_random_measure(GammaLevy(4.0), num_atoms=120, seed=3, num_draws=4000)
    left = (crm.weight * (crm.sigma < 0.25)).sum("atom").values
    right = (crm.weight * (crm.sigma >= 0.25)).sum("atom").values
    assert stats.kstest(left, stats.gamma(1.0).cdf).pvalue > 1e-3
    assert stats.spearmanr(left, right).pvalue > 1e-3


@pytest.mark.parametrize(
    "levy", [BetaLevy(2.0, 3.0), StableBetaLevy(2.0, 1.0, 0.4), GeneralizedGammaLevy(2.0, 0.4, 2.0)], ids=repr
)
def test_total_mean_is_that_of_the_levy_measure(levy):
    missing = 0.01 * levy.mean
    total = completely_random_measure(levy, missing_mass=missing, seed=4, num_draws=800).total().values
    assert_mean(total, levy.mean - missing)


def test_generalised_gamma_total_has_its_laplace_transform():
    # E exp(-s total) = exp(-M ((r + s)^d - r^d) / d), here for the inverse Gaussian case d = 1/2
    levy = GeneralizedGammaLevy(1.0, 0.5, 1.0)
    crm = completely_random_measure(levy, num_atoms=500, seed=5, num_draws=1000)
    assert float(crm.missing.max()) < 4e-3  # half a standard error of what follows
    for s in (0.5, 3.0):
        assert_mean(np.exp(-s * crm.total().values), np.exp(-2 * (np.sqrt(1 + s) - 1)))


def test_missing_mass_is_what_truncation_leaves_out():
    levy = StableBetaLevy(2.0, 1.0, 0.5)
    full = completely_random_measure(levy, num_atoms=400, seed=6, num_draws=800)
    K = 25
    lost = full.weight.isel(atom=slice(K, None)).sum("atom").values + full.missing.values
    bound = levy.mean_below(full.weight.isel(atom=K - 1).values)
    assert_mean(lost - bound, 0.0)  # given the atoms kept
    assert_mean(lost, levy.expected_missing_mass(K))  # before sampling
    short = completely_random_measure(levy, num_atoms=K, seed=7, num_draws=1500)
    np.testing.assert_allclose(short.missing, levy.mean_below(short.weight.isel(atom=-1)))


def test_mass_threshold_keeps_a_poisson_number_above_the_level():
    levy = GammaLevy(5.0)
    crm = completely_random_measure(levy, missing_mass=0.05, seed=8, num_draws=2000)
    level = levy.level_of_mean(0.05)
    weight = crm.weight.values
    assert weight[weight > 0].min() >= level * (1 - 1e-9)
    count = (weight > 0).sum(-1)
    assert_mean(count, levy.tail(level))
    assert_variance(count, levy.tail(level))
    assert np.all(crm.missing == 0.05)
    assert_mean(crm.total().values, 5.0 - 0.05)


def test_labels_fill_the_width():
    for truncation in ({"num_atoms": 2000}, {"missing_mass": 1e-6}):
        crm = completely_random_measure(GammaLevy(150.0), width=3.0, seed=13, **truncation)
        assert stats.kstest(crm.sigma.values / 3.0, "uniform").pvalue > 1e-3


def test_stick_lengths_are_beta():
    p = stick_breaking(2.0, 12, seed=9, num_draws=4000).values
    np.testing.assert_allclose(p.sum(-1), 1.0)
    left = 1 - np.concatenate([np.zeros((4000, 1)), p.cumsum(-1)], axis=-1)
    for k in (0, 4):
        assert stats.kstest(p[:, k] / left[:, k], stats.beta(1, 2.0).cdf).pvalue > 1e-3
    pitman_yor = stick_breaking(1.0, 12, discount=0.3, seed=10, num_draws=4000).values
    ratio = pitman_yor[:, 1] / (1 - pitman_yor[:, 0])
    assert stats.kstest(ratio, stats.beta(0.7, 1.6).cdf).pvalue > 1e-3


def test_sticks_are_a_normalised_gamma_process_in_another_order():
    alpha = 1.5
    sticks = np.sort(stick_breaking(alpha, 80, seed=11, num_draws=3000).values, axis=-1)[:, ::-1]
    weight = completely_random_measure(GammaLevy(alpha), num_atoms=80, seed=12, num_draws=3000).weight.values
    normalised = weight / weight.sum(-1, keepdims=True)
    for k in (0, 2):
        assert stats.ks_2samp(sticks[:, k], normalised[:, k]).pvalue > 1e-3
    assert_mean((normalised**2).sum(-1), 1 / (1 + alpha))


def test_same_seed_same_numbers_and_generators_move_on():
    first = completely_random_measure(GammaLevy(1.0), num_atoms=5, seed=3)
    again = completely_random_measure(GammaLevy(1.0), num_atoms=5, seed=3)
    assert first.data.equals(again.data)
    rng = np.random.default_rng(3)
    one, two = (completely_random_measure(GammaLevy(1.0), num_atoms=5, seed=rng) for _ in range(2))
    assert one.data.equals(first.data)
    assert not two.data.equals(first.data)
    assert first.weight.dims == ("atom",)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: completely_random_measure(GammaLevy(1.0)), "num_atoms or missing_mass"),
        (lambda: completely_random_measure(GammaLevy(1.0), num_atoms=3, missing_mass=0.1), "not both"),
        (lambda: completely_random_measure(GammaLevy(1.0), num_atoms=2.5), "num_atoms"),
        (lambda: completely_random_measure("gamma", num_atoms=2), "levy must be"),
        (lambda: completely_random_measure(GammaLevy(1.0), missing_mass="x"), "missing mass"),
        (lambda: completely_random_measure(GammaLevy(1.0), num_atoms=2, width=0.0), "width"),
        (lambda: completely_random_measure(GammaLevy(1.0), num_atoms=2, num_draws=0), "num_draws"),
        (lambda: completely_random_measure(GammaLevy(1.0), missing_mass=1.5), "missing mass"),
        (lambda: completely_random_measure(GammaLevy(1.0), missing_mass=float("nan")), "missing mass"),
        (lambda: completely_random_measure(StableBetaLevy(1.0, 1.0, 0.9), missing_mass=1e-3), "a number of atoms"),
        (lambda: completely_random_measure(GeneralizedGammaLevy(1.0, 1 - 1e-6), missing_mass=0.1), "keeps inf atoms"),
        (lambda: completely_random_measure(StableBetaLevy(1.0, -0.2999, 0.3), missing_mass=0.1), "keeps 0 atoms"),
        (lambda: stick_breaking(-1.0, 5), "alpha"),
        (lambda: stick_breaking(1.0, 0), "num_sticks"),
        (lambda: stick_breaking(1.0, 5, discount=1.0), "discount"),
        (lambda: stick_breaking(1.0, 5, discount="x"), "discount"),
        (lambda: stick_breaking(True, 5), "alpha"),
        (lambda: poisson_window(1.0, -1.0), "height"),
        (lambda: poisson_window(1.0, 1e30), "a smaller one"),
        (lambda: poisson_strip(3, seed=-1), "seed"),
        (lambda: poisson_strip(3, seed=0, num_draws=2).plot(draw=2), "draw is 2: it must be below"),
        (lambda: poisson_strip(0), "num_points"),
    ],
)
def test_wrong_inputs(make, words):
    with pytest.raises(ValueError, match=words):
        make()
