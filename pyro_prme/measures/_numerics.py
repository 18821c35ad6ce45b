"""The numerics of Levy tails: inversion with error control, and one integral; a user never opens this."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["SMALLEST_LOG", "beta_integral", "invert_tail"]

Array = NDArray[np.float64]
SMALLEST_LOG = -708.0  # exp of it is nearly the smallest normal double


def _straightened(tail: Array, constant: float, discount: float) -> tuple[Array, Array]:
    """A function of the tail that is nearly -ln(x) for small x and ln(tail) for a small tail, and its derivative."""
    w = tail / constant if discount == 0 else np.log1p(discount * tail / constant) / discount
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
    which is one as it stands where x is small. Stops at a relative change of x below 1e-12, after 50 steps below 1e-10.
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
        left = np.abs(out[open_] - x) > tolerance * x
        if not left.any():
            return out
        open_, low, high, z = open_[left], low[left], high[left], z[left]
    raise ArithmeticError("The inverse tail did not settle to 1e-10; the Levy measure's parameters are too extreme.")


def beta_integral(x: Array, c: float) -> Array:
    """The integral of s^-1 (1 - s)^(c - 1) from x to 1; scipy's hyp2f1 gives it but fails at some c and small x."""
    near = x * (c + 2) < 1
    small = np.where(near, x, 0.5 / (c + 2))
    term, series = np.ones_like(small), np.zeros_like(small)
    for j in range(1, 51):  # powers of x, which is below 1/2
        term = term * (j - c) / j * small
        series = series + term / j
    y = np.where(near, 0.5, 1 - x)
    fraction = np.ones_like(y)
    for j in range(100, 0, -1):  # continued fraction of the incomplete beta function B_y(c, 0), DLMF 8.17.22
        m = j // 2
        d = -m * m if j % 2 == 0 else -((c + m) ** 2)
        fraction = 1 + d * y / ((c + j - 1) * (c + j)) / fraction
    return np.where(near, -np.log(small) - special.digamma(c) - np.euler_gamma - series, y**c / (c * fraction))
