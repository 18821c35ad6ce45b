"""Correlations of two and three topics: their errors against a bootstrap, and planted ones that are found."""

import numpy as np
import pytest

from pyro_prme.answers.correlations import (
    correlation,
    correlation_error,
    correlation_interval,
    third_moment,
    third_moment_error,
)


def shares(num, seed):
    """Shares with heavy tails, of which the first two go together, in documents with and without the third."""
    rng = np.random.default_rng(seed)
    loadings = rng.gamma(0.3, size=(num, 5)) + 1e-3
    loadings[:, 1] += rng.gamma(0.5, size=num) * loadings[:, 0]
    return np.sqrt(loadings / loadings.sum(1, keepdims=True))


def bootstrap(statistic, values, draws=400):
    rng = np.random.default_rng(0)
    return np.std([statistic(values[rng.integers(len(values), size=len(values))]) for _ in range(draws)], 0)


def test_errors_of_correlations_are_those_of_a_bootstrap():
    values = shares(600, 0)
    found = correlation_error(values)
    upper = np.triu_indices(5, 1)
    np.testing.assert_allclose(found[upper], bootstrap(correlation, values)[upper], rtol=0.12)
    np.testing.assert_allclose(np.diag(found), 0, atol=1e-12)


def test_errors_of_third_moments_are_those_of_a_bootstrap():
    values = shares(800, 1)
    for topics in ((0, 1, 2), (2, 3, 4), (0, 1, 1)):
        expected = bootstrap(lambda x, topics=topics: third_moment(x, *topics), values)
        assert third_moment_error(values, *topics) == pytest.approx(expected, rel=0.15)


def test_intervals_cover_the_truth_as_often_as_they_say():
    truth = correlation(shares(200_000, 2))
    upper = np.triu_indices(5, 1)
    inside = []
    for seed in range(200):
        values = shares(300, 10 + seed)
        low, high = correlation_interval(correlation(values), correlation_error(values), 0.9)
        inside.append(((low <= truth) & (truth <= high))[upper])
    np.testing.assert_allclose(np.mean(inside, 0), 0.9, atol=0.07)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.02)


def test_a_column_that_does_not_vary_has_no_correlation():
    values = np.column_stack([np.arange(9.0), np.full(9, 0.3), np.arange(9.0) ** 2])
    found, error = correlation(values), correlation_error(values)
    assert (found[1, 0], found[1, 2], error[1, 0]) == (0, 0, 0)
    low, high = correlation_interval(found, error, 0.95)
    assert (low[0, 1], high[0, 1], low[1, 1]) == (0, 0, 1)
    assert low[0, 2] < found[0, 2] < high[0, 2] <= 1
    with pytest.raises(ValueError, match="level is 1"):
        correlation_interval(found, error, 1)
