"""Statistical comparisons with stated tolerances, shared by the tests of this directory."""

import numpy as np

__all__ = ["assert_mean", "assert_variance"]


def assert_mean(draws, expected, errors=4.0):
    """The mean over the first axis lies within ``errors`` standard errors of ``expected``, entry by entry."""
    draws = np.asarray(draws, dtype=float)
    error = draws.std(0, ddof=1) / np.sqrt(len(draws))
    off = np.abs(draws.mean(0) - expected)
    assert np.all(off <= errors * error), f"{draws.mean(0)} is not {expected}: {np.max(off / error):.1f} errors off"


def assert_variance(draws, expected, errors=4.0):
    """The same for the variance."""
    draws = np.asarray(draws, dtype=float)
    assert_mean((draws - draws.mean(0)) ** 2 * len(draws) / (len(draws) - 1), expected, errors)
