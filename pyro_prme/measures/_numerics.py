"""The numerics of Levy tails: two integrals that hold for every discount, and inversion with error control.

A user never opens this.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["SMALLEST_LOG", "beta_constant", "beta_tail", "gamma_tail", "invert_tail"]

Array = NDArray[np.float64]
SMALLEST_LOG = -708.0  # exp of it is nearly the smallest normal double


def _straightened(tail: Array, constant: float, discount: float) -> tuple[Array, Array]:
    """A function of the tail that is nearly -ln(x) for small x and ln(tail) for a small tail, and its derivative."""
    w = tail / constant if discount < 1e-14 else np.log1p(discount * tail / constant) / discount
    rise = -np.expm1(-w)
    return w + np.log(rise), 1 / (rise * (constant + discount * tail))


def invert_tail(
    tail: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    to_x: Callable[[Array], Array],
    start: Callable[[Array], Array],
    u: Array,
    top: float,
    constant: float,
    discount: float,
) -> Array:
    """Solve tail(to_x(z)) = u for a decreasing tail by Newton on `_straightened`, kept inside a shrinking bracket.

    ``slope`` is minus the derivative of the tail with respect to z; ``start`` makes a first z of the straightened goal,
    which is one as it stands where x is small. Stops at a relative change of x below 1e-12, after 50 steps below 1e-10,
    or where the tail meets u to 4e-15.
    """
    goal = _straightened(u, constant, discount)[0]
    low, high = np.full_like(u, SMALLEST_LOG), np.full_like(u, top)
    z = np.clip(start(-goal), low, high)
    out, open_ = to_x(z), np.arange(u.size)
    for count in range(200):
        tolerance = 1e-12 if count < 50 else 1e-10  # where rounding in the tail keeps the steps from shrinking further
        x = out[open_]
        value = tail(x)
        low, high = np.where(value > u[open_], z, low), np.where(value > u[open_], high, z)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            level, rise = _straightened(value, constant, discount)
            steep = rise * slope(x)
            z = z + (level - goal[open_]) / steep
        z = np.where((z >= low) & (z <= high) & (steep < np.inf), z, (low + high) / 2)
        out[open_] = to_x(z)
        left = (np.abs(out[open_] - x) > tolerance * x) & (np.abs(value - u[open_]) > 4e-15 * u[open_])
        if not left.any():
            return out
        open_, low, high, z = open_[left], low[left], high[left], z[left]
    raise ArithmeticError("The inverse tail did not settle to 1e-10; the Levy measure's parameters are too extreme.")


def _log_gamma_slope(x: float, d: float) -> float:
    """(ln Gamma(x + d) - ln Gamma(x)) / d, and psi(x) at d = 0: the mean of psi between the two, by Gauss-Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    return float(np.sum(weights / 2 * special.digamma(x + d * (nodes + 1) / 2)))


def gamma_tail(y: Array, d: float) -> Array:
    r"""The integral of :math:`s^{-1-d} e^{-s} / \Gamma(1-d)` from y to infinity, for y above 0 and d in [0, 1).

    Below 1 by its power series for d < 1/2, with :math:`(e^{ad} - 1)/d` for the two terms that cancel as d falls to 0,
    and by parts for larger d; above 1 by its continued fraction (DLMF 8.9.2, even part).
    """
    out, near = np.empty_like(y), y < 1
    s = y[near]
    if d < 0.5:
        a = _log_gamma_slope(1.0, -d) - np.log(s)
        total, term = a * special.exprel(d * a), -(s**-d) / special.gamma(1 - d)
        for j in range(1, 20):
            term = -term * s / j
            total = total + term / (j - d)
        out[near] = total
    else:
        out[near] = (s**-d * np.exp(-s) / special.gamma(1 - d) - special.gammaincc(1 - d, s)) / d
    s = y[~near]
    fraction = s + 201 + d
    for j in range(100, 0, -1):
        fraction = s + (2 * j - 1) + d - j * (j + d) / fraction
    out[~near] = s**-d * np.exp(-s) / (special.gamma(1 - d) * fraction)
    return out


def beta_constant(c: float, d: float) -> float:
    """Gamma(1 + c) / (Gamma(1 - d) Gamma(c + d)) for d in [0, 1) and c above -d, without cancellation."""
    b = c + d
    return float(b * (1 + b) / (1 + c) * np.exp(-d * _log_gamma_slope(2 + c, d)) / special.gamma(1 - d))


def beta_tail(x: Array, c: float, d: float) -> Array:
    r"""`beta_constant` times the integral of :math:`s^{-1-d} (1-s)^{c+d-1}` from x to 1, for 0 < x < 1.

    For small x as `gamma_tail`; elsewhere by the continued fraction of the incomplete beta function
    :math:`B_{1-x}(c+d, -d)` (DLMF 8.17.22).
    """
    b, constant = c + d, beta_constant(c, d)
    out, near = np.empty_like(x), x * max(c + 2, 2.0) < 1
    s = x[near]
    if d < 0.5:
        a, rest = -np.log(s), _log_gamma_slope(1.0, -d) - _log_gamma_slope(1 + c, d)
        total = constant * a * special.exprel(d * a) + 1 + b * rest * special.exprel(d * rest)
        term = constant * s**-d
        for j in range(1, 50):
            term = term * (j - b) / j * s
            total = total - term / (j - d)
        out[near] = total
    else:
        out[near] = (constant * s**-d * np.exp(b * np.log1p(-s)) - c * special.betaincc(1 - d, b, s)) / d
    s = x[~near]
    fraction = np.ones_like(s)
    for j in range(100, 0, -1):
        m = j // 2
        top = m * (m + d) if j % 2 == 0 else (b + m) * (c + m)
        fraction = 1 - top * (1 - s) / ((b + j - 1) * (b + j)) / fraction
    out[~near] = constant / b * np.exp(b * np.log1p(-s)) * s**-d / fraction
    return out
