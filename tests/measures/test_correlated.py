"""Correlated random measures: means and covariances given the weights and positions."""

import numpy as np
import pytest
from scipy.special import expit, logit

from pyro_prme.measures import BetaLevy, GammaLevy, StableBetaLevy, correlated_measure, squared_exponential

from .laws import assert_mean

N, K = 30_000, 4


def drawn_for(kind):
    base = BetaLevy(3.0) if kind == "binary" else GammaLevy(3.0)
    return correlated_measure(kind, N, K, base, kernel=squared_exponential(0.25, 1.5), seed=3)


@pytest.mark.parametrize("kind", ["poisson", "negative_binomial", "gamma"])
def test_mean_and_covariance_given_the_weights(kind):
    drawn = drawn_for(kind)
    w, ell = drawn.data["weight"].values, drawn.data["ell"].values
    kernel = squared_exponential(0.25, 1.5)(ell, ell)
    Z = drawn.Z.values
    mean = w * np.exp(0.125)
    assert_mean(Z, mean, errors=4.5)
    covariance = np.outer(mean, mean) * np.expm1(kernel)  # off the diagonal, that of w exp F
    for j, k in ((0, 1), (0, 2), (1, 2)):
        assert covariance[j, k] > 0
        assert_mean((Z[:, j] - mean[j]) * (Z[:, k] - mean[k]), covariance[j, k])
    noise = {"poisson": w * np.exp(0.125), "gamma": w * np.exp(0.5)}
    noise["negative_binomial"] = noise["poisson"] + noise["gamma"]
    assert_mean((Z - mean) ** 2, np.diag(covariance) + noise[kind], errors=4.5)


@pytest.mark.parametrize("kind", ["poisson", "negative_binomial", "gamma"])
def test_mean_given_the_process(kind):
    """A loading has mean w exp(F) at its own F, and not only over all of them, where the sign of F is lost."""
    drawn = drawn_for(kind)
    Z, F, w = drawn.Z.values, drawn.data["F"].values, drawn.data["weight"].values
    residual = Z - w * np.exp(F)
    assert_mean(residual, 0.0)
    assert_mean(residual * F, 0.0)


def test_counts_are_counts():
    for kind in ("poisson", "negative_binomial"):
        Z = drawn_for(kind).Z.values
        assert Z.dtype.kind == "i"
        assert Z.max() > 1


def test_binary_given_the_process():
    drawn = drawn_for("binary")
    Z, F, w = drawn.Z.values, drawn.data["F"].values, drawn.data["weight"].values
    probability = expit(logit(w) + F)
    assert_mean(Z - probability, 0.0)
    assert_mean((Z - probability) * F, 0.0)
    assert_mean(
        (Z[:, 0] - Z[:, 0].mean()) * (Z[:, 1] - Z[:, 1].mean()), np.cov(probability[:, 0], probability[:, 1])[0, 1]
    )
    assert set(np.unique(Z)) == {0, 1}


def test_kernel_and_positions():
    a, b = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[3.0, 0.0]])
    expected = 2.0 * np.exp([[-9 / 50], [-16 / 50]])
    np.testing.assert_allclose(squared_exponential(2.0, 5.0)(a, b), expected)
    ell = correlated_measure("gamma", 1, 4, GammaLevy(1.0), dim=3, seed=6, num_draws=2000).data["ell"].values
    assert ell.shape == (2000, 4, 3)
    assert_mean(ell**2, 1.0)


def test_process_has_the_kernel():
    drawn = drawn_for("gamma")
    F, ell = drawn.data["F"].values, drawn.data["ell"].values
    assert_mean(F[:, :, None] * F[:, None, :], squared_exponential(0.25, 1.5)(ell, ell))


def test_without_variance_it_is_the_uncorrelated_measure():
    drawn = correlated_measure(
        "binary", 5, 20, StableBetaLevy(2.0, 1.0, 0.3), kernel=squared_exponential(1e-12), seed=4
    )
    assert np.abs(drawn.data["F"]).max() < 1e-4


def test_batches():
    drawn = correlated_measure("gamma", 6, 5, GammaLevy(1.0), seed=5, num_draws=7)
    assert drawn.Z.shape == (7, 6, 5)
    assert len(np.unique(drawn.data["weight"].values[:, 0])) == 7


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: correlated_measure("normal", 3, 3, GammaLevy(1.0)), "kind is 'normal': it must be one of"),
        (lambda: correlated_measure("binary", 3, 3, GammaLevy(1.0)), "weights below 1"),
        (lambda: correlated_measure("gamma", 0, 3, GammaLevy(1.0)), "num_objects"),
        (
            lambda: correlated_measure("gamma", 3, 3, GammaLevy(1.0), kernel=lambda a, b: np.eye(2)),
            "kernel must return",
        ),
        (
            lambda: correlated_measure("gamma", 3, 3, GammaLevy(1.0), kernel=lambda a, b: -np.eye(3)),
            "positive definite",
        ),
        (lambda: squared_exponential(length=0.0), "length"),
    ],
)
def test_wrong_inputs(make, words):
    with pytest.raises(ValueError, match=words):
        make()
