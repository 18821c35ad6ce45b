"""Correlations of topics over documents, of two and of three, with how sure they are: pure functions of arrays."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from pyro_prme.checks import fraction

__all__ = ["correlation", "correlation_error", "correlation_interval", "third_moment", "third_moment_error"]


def correlation(values: np.ndarray) -> np.ndarray:
    """Correlation of columns over rows, shape (K, K); a column that does not vary has 0 with the others.

    Args:
        values: shape (N, K).
    """
    x = _standardised(values)
    found = np.clip(x.T @ x / len(x), -1, 1)
    np.fill_diagonal(found, 1.0)
    return found


def correlation_error(values: np.ndarray) -> np.ndarray:
    r"""Standard errors of correlations over other documents of the same kind, shape (K, K).

    .. math::
        \frac{1}{N^2} \sum_n \Big(z_{ni} z_{nj} - \tfrac{r_{ij}}{2} (z_{ni}^2 + z_{nj}^2)\Big)^2

    with z the standardised columns: the infinitesimal jackknife, to which a bootstrap of the rows leads. It assumes no
    Normal, which shares of topics are far from.

    Args:
        values: shape (N, K).
    """
    z = _standardised(values)
    squares, num = z**2, len(z)
    r = z.T @ z / num
    both, one = squares.T @ squares / num, (z**3).T @ z / num  # E z_i^2 z_j^2 and E z_i^3 z_j
    fourth = np.diag(both)
    variance = both - r * (one + one.T) + r**2 / 4 * (fourth[:, None] + fourth + 2 * both)
    np.fill_diagonal(variance, 0.0)
    return np.sqrt(np.maximum(variance, 0) / num)


def correlation_interval(found: np.ndarray, error: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Limits between which correlations lie, by Fisher's z, each shape (K, K).

    Args:
        found: the correlations.
        error: their standard errors.
        level: of the interval, between 0 and 1.
    """
    wide = NormalDist().inv_cdf((1 + fraction("level", level)) / 2)
    inside = np.clip(found, -1 + 1e-12, 1 - 1e-12)
    z, half = np.arctanh(inside), wide * error / (1 - inside**2)
    lower, upper = np.tanh(z - half), np.tanh(z + half)
    for limits in (lower, upper):
        np.fill_diagonal(limits, 1.0)
    return lower, upper


def third_moment(values: np.ndarray, i: int, j: int, k: int) -> float:
    """The standardised third cross-moment of three columns over the rows; 0 where one does not vary."""
    return float(_standardised(values[:, [i, j, k]]).prod(1).mean())


def third_moment_error(values: np.ndarray, i: int, j: int, k: int) -> float:
    r"""The standard error of `third_moment` over other documents of the same kind, by the infinitesimal jackknife.

    .. math::
        \frac{1}{N^2} \sum_n \Big(z_{na} z_{nb} z_{nc} - m - \sum_a z_{na} r_{bc} - \tfrac{m}{2} \sum_a (z_{na}^2 - 1)
        \Big)^2
    """
    z = _standardised(values[:, [i, j, k]])
    product, r = z.prod(1), z.T @ z / len(z)
    m = product.mean()
    others = np.array([r[1, 2], r[0, 2], r[0, 1]])
    influence = product - m - z @ others - m / 2 * (z**2 - 1).sum(1)
    return float(np.sqrt((influence**2).mean() / len(z)))


def _standardised(values: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and variance 1; a column that does not vary, beyond rounding, becomes 0."""
    centred = values - values.mean(0)
    scale = values.std(0)
    varies = scale > 1e-12 * np.abs(values).max(0)
    return np.where(varies, centred / np.where(varies, scale, 1.0), 0.0)
