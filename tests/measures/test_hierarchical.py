"""Hierarchical processes, DILN, PRME and the drifting PRME as embeddings, against their laws."""

import numpy as np
import pytest
from scipy import stats

from pyro_prme.measures import (
    GammaLevy,
    GeneralizedGammaLevy,
    diln,
    drifting_prme,
    hierarchical_dirichlet_process,
    hierarchical_gamma_process,
    prme,
    random_decoder,
    stationary_path,
)

from .laws import assert_mean


def test_hdp_row_sums_are_gamma_and_rows_share_features():
    beta = 4.0
    drawn = hierarchical_dirichlet_process(3, 60, alpha=2.0, beta=beta, seed=0, num_draws=3000)
    sums = drawn.row_sums().values
    assert stats.kstest(sums[:, 0], stats.gamma(beta).cdf).pvalue > 1e-3
    assert stats.spearmanr(sums[:, 0], sums[:, 1]).pvalue > 1e-3
    share = drawn.proportions().values
    p = drawn.data["p"].values
    np.testing.assert_allclose(share.sum(-1), 1.0)
    # given p the shares are a Dirichlet process: E[pi_n . pi_m] = p . p, E[pi_n . pi_n] = (1 + beta p . p) / (1 + beta)
    square = (p**2).sum(-1)
    assert_mean((share[:, 0] * share[:, 1]).sum(-1) - square, 0.0)
    assert_mean((share[:, 0] ** 2).sum(-1) - (1 + beta * square) / (1 + beta), 0.0)
    assert_mean(square, 1 / (1 + 2.0))


def test_hierarchical_gamma_process_given_the_upper_one():
    drawn = hierarchical_gamma_process(2, 80, mass=2.0, beta=3.0, seed=1, num_draws=4000)
    upper = drawn.data["p"].values.sum(-1)
    lower = drawn.row_sums().values
    assert stats.kstest(upper, stats.gamma(2.0).cdf).pvalue > 1e-3
    uniform = stats.gamma.cdf(lower[:, 0], 3.0 * upper)
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    # cov = 9 var(upper) = 18, var = 18 + mean of 3 upper = 24
    assert_mean((lower[:, 0] - 6.0) * (lower[:, 1] - 6.0), 18.0)
    assert_mean((lower[:, 0] - 6.0) ** 2, 24.0)


def test_diln_has_a_linear_kernel():
    drawn = diln(20_000, 4, seed=2, h_scale=0.7)
    f, ell = drawn.data["f"].values, drawn.data["ell"].values
    kernel = 0.7**2 * ell @ ell.T
    assert_mean(f[:, :, None] * f[:, None, :], kernel)
    p = drawn.data["p"].values
    assert_mean(drawn.Z.values[:, 0] - 5 * p[0] * np.exp(f[:, 0]), 0.0)
    assert_mean(drawn.Z.values, 5 * p * np.exp(np.diag(kernel) / 2), errors=4.5)


def test_prme_loadings_have_their_expectation_and_correlate_through_h():
    decoder = random_decoder(seed=11)
    drawn = prme(20_000, 5, alpha=3.0, decoder=decoder, seed=3)
    assert_mean(drawn.Z.values - drawn.data["expected"].values, 0.0)
    mean, variance = decoder(drawn.data["h"].values, drawn.data["ell"].values)
    assert_mean(drawn.data["f"].values - mean, 0.0)
    assert_mean((drawn.data["f"].values - mean) ** 2 - variance, 0.0)
    # given the shared p, loadings are correlated across objects only through h: as strongly as their expectations are
    Z, expected = drawn.Z.values, drawn.data["expected"].values
    k, j = np.argsort(-drawn.data["p"].values)[:2]
    assert_mean((Z[:, k] - Z[:, k].mean()) * (Z[:, j] - Z[:, j].mean()), np.cov(expected[:, k], expected[:, j])[0, 1])


def test_positions_and_labels_have_their_scales():
    drawn = diln(1, 5000, h_scale=1.0, ell_scale=0.5, seed=15)
    assert_mean(drawn.data["ell"].values ** 2, 0.25)
    assert stats.kstest(drawn.sigma.values, "uniform").pvalue > 1e-3
    wide = prme(2, 3000, width=4.0, seed=16)
    assert stats.kstest(wide.sigma.values / 4.0, "uniform").pvalue > 1e-3
    path = drifting_prme(4, 2, h_scale=0.5, seed=17, num_draws=4000).data["h"].values
    assert_mean(path**2, 0.25, errors=4.5)


def test_decoder_is_bounded_and_the_bound_holds():
    decoder = random_decoder(mean_bound=1.5, variance_bound=0.4, seed=4)
    rng = np.random.default_rng(5)
    mean, variance = decoder(100 * rng.normal(size=(50, 2)), 100 * rng.normal(size=(60, 2)))
    assert mean.shape == variance.shape == (50, 60)
    assert np.abs(mean).max() <= 1.5
    assert np.abs(mean).max() > 1.0  # the bound is reached for, not vacuous
    assert variance.min() >= 0
    assert variance.max() <= 0.4
    assert decoder.bound == pytest.approx(np.exp(1.7))


def test_missing_mass_bounds_the_rows_that_truncation_leaves_out():
    base, decoder = GeneralizedGammaLevy(2.0, 0.5), random_decoder(seed=6)
    drawn = prme(10, 2000, beta=1.0, base=base, decoder=decoder, seed=7, num_draws=60)
    K = 30
    lost = drawn.Z.isel(feature=slice(K, None)).sum("feature").mean("object").values
    bound = decoder.bound * base.mean_below(drawn.data["p"].isel(feature=K - 1).values)
    assert lost.mean() + 4 * lost.std() / np.sqrt(60) < bound.mean()
    assert np.all(drawn.data["missing"].values < bound)
    twice = prme(2, 50, beta=2.0, base=base, seed=8, num_draws=3)
    np.testing.assert_allclose(twice.data["missing"], 2 * base.mean_below(twice.data["p"].isel(feature=-1)))


def test_stationary_path_has_its_covariance():
    path = stationary_path(15, 1, length=4.0, scale=2.0, seed=8, num_draws=8000).values[..., 0]
    for lag in (0, 1, 6):
        assert_mean(path[:, 8] * path[:, 8 - lag], 4 * np.exp(-lag / 4))


def test_drifting_loadings_resemble_their_neighbours_but_have_the_law_of_prme():
    decoder = random_decoder(seed=9)
    drawn = drifting_prme(30, 20, length=10.0, decoder=decoder, seed=10, num_draws=1500)
    log = np.log(drawn.data["expected"].values[..., 0])
    near, far = ((log[:, 5] - log[:, n]) ** 2 for n in (6, 29))
    assert near.mean() < 0.5 * far.mean()
    still = prme(1, 20, decoder=decoder, seed=11, num_draws=1500)
    assert stats.ks_2samp(drawn.row_sums().values[:, 17], still.row_sums().values[:, 0]).pvalue > 1e-3
    np.testing.assert_allclose(drawn.tau.values[0], (np.arange(30) + 0.5) / 30)


def test_drift_breaks_row_exchangeability_and_prme_keeps_it():
    # exchangeable rows: (row 5 - row 6)^2 and (row 5 - row 29)^2 have the same law
    arguments = {"decoder": random_decoder(mean_bound=3.0, seed=12), "beta": 50.0, "seed": 13, "num_draws": 1500}
    p_values = []
    for drawn in (drifting_prme(30, 10, length=10.0, **arguments), prme(30, 10, **arguments)):
        log = np.log(drawn.row_sums().values)
        near, far = ((log[:, 5] - log[:, n]) ** 2 for n in (6, 29))
        p_values.append(stats.wilcoxon(near, far, alternative="less").pvalue)
    assert p_values[0] < 1e-6
    assert p_values[1] > 1e-3


def test_metadata_can_move_h():
    h = np.zeros((6, 2))
    h[3:] = 4.0
    drawn = prme(6, 10, h=h, seed=14)
    expected = drawn.data["expected"].values
    np.testing.assert_allclose(expected[0], expected[1])
    assert not np.allclose(expected[0], expected[4])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: prme(0, 3), "num_objects"),
        (lambda: prme(3, 3, beta=0.0), "beta"),
        (lambda: prme(3, 3, h=np.zeros((2, 2))), "h must be"),
        (lambda: prme(3, 3, h=np.full((3, 2), np.nan)), "h must be"),
        (lambda: prme(3, 3, width=0.0), "width"),
        (lambda: prme(3, 3, decoder=random_decoder(3, 3)), "dimensions"),
        (lambda: prme(3, 3, decoder=lambda h, ell: (h @ ell.T, -np.ones((3, 3)))), "decoder must return"),
        (lambda: prme(3, 3, base="gamma"), "levy must be"),
        (lambda: diln(3, 3, dim=0), "dim"),
        (lambda: stationary_path(5, 0, length=1.0), "dim"),
        (lambda: prme(3, 3, alpha=float("inf")), "alpha"),
        (lambda: diln(3, 3, h_scale=-1.0), "h_scale"),
        (lambda: hierarchical_gamma_process(3, 3, mass=-1.0), "mass"),
        (lambda: random_decoder(mean_bound=0.0), "mean_bound"),
        (lambda: stationary_path(5, 1, length=0.0), "length"),
        (lambda: prme(3, 0, base=GammaLevy(1.0)), "num_atoms"),
    ],
)
def test_wrong_inputs(make, words):
    with pytest.raises(ValueError, match=words):
        make()
