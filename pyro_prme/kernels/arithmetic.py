"""What the compiled loops share: how they are compiled, exp, digamma, the root epsilon, responsibilities in log space.

numba's cache looks only at the file of a compiled loop: after a change here, touch the files that use it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import event

__all__ = [
    "CompilationLog",
    "cached",
    "digamma_parts",
    "elog_gamma",
    "exp_elog_gamma",
    "exp_in_place",
    "fast",
    "log_in_place",
    "maximum",
    "responsibilities",
    "solve_epsilon",
]


logger = logging.getLogger("pyro_prme")


class CompilationLog(event.Listener):
    """Says, once in a process, that numba really compiles; a hit of numba's cache is silent."""

    said = False

    def on_start(self, event: Any) -> None:
        if not CompilationLog.said:
            CompilationLog.said = True
            logger.info("compiling the inner loops, once for this machine; it takes some seconds")

    def on_end(self, event: Any) -> None:
        pass


def cached(function: Callable) -> Callable:
    """`fast` with numba's cache on disk, or without it where no cache directory can be written."""
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # "cannot cache function ...: no locator available"
        return numba.njit(**_OPTIONS)(function)


_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "nogil": True,
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},  # infinities and NaN keep their meaning
}
#: Compiles a function that the loops call, with the options that they all have.
fast = numba.njit(**_OPTIONS)


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def exp_in_place(x, power):
    """exp(x) in place for x <= 0, with x cut at -700, in loops that vectorise; `power` is scratch of the same size."""
    shift = 1.5 * 2.0**52  # adding it rounds to an integer, which the low bits of the sum then hold
    for k in range(x.size):
        x[k] = max(x[k], -700.0)
        power[k] = x[k] * 1.4426950408889634 + shift
    for k in range(x.size):
        whole = power[k] - shift
        r = x[k] - whole * 0.693147180369123816490 - whole * 1.90821492927058770002e-10  # ln 2 in two parts
        p = 1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r / 479001600))))
        x[k] = 1 + r * (1 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + r * p))))))
    bits = power.view(np.int64)
    for k in range(x.size):
        bits[k] = (bits[k] + 1023) << 52
    for k in range(x.size):
        x[k] *= power[k]


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def log_in_place(x):
    """ln(x) in place for normal positive x, in loops that vectorise: x = 2^e m with m around 1, and a series for ln m.

    With s = (m - 1) / (m + 1) it is ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...).
    """
    bits, exponent = x.view(np.int64), np.empty(x.size)
    for k in range(x.size):
        shifted = bits[k] - 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2): m lies between it and sqrt(2)
        exponent[k] = shifted >> 52
        bits[k] = (shifted & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD
    for k in range(x.size):
        s = (x[k] - 1.0) / (x[k] + 1.0)
        z = s * s
        p = 1 / 11 + z * (1 / 13 + z * (1 / 15 + z * (1 / 17 + z * (1 / 19 + z / 21))))
        p = 1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * p)))
        x[k] = 2.0 * (s + s * z * p) + exponent[k] * 0.6931471805599453


@numba.njit(nogil=True, fastmath=True)
def maximum(x):
    """The largest entry of a vector."""
    top = x[0]
    for k in range(1, x.size):
        top = max(top, x[k])
    return top


@fast
def digamma_parts(x):
    """(s, t) with digamma(x) = ln s - t: ten steps of the recurrence, then the asymptotic series of exp(digamma)."""
    v = x * (x + 9.0)  # sum_{i<10} 1 / (x + i) by pairs: (x + i)(x + 9 - i) = v + i (9 - i)
    d, q = v + 8.0 + v, v * (v + 8.0)
    d, q = d * (v + 14.0) + q, q * (v + 14.0)
    d, q = d * (v + 18.0) + q, q * (v + 18.0)
    d, q = d * (v + 20.0) + q, q * (v + 20.0)
    y = 1.0 / (x + 9.5)
    z = y * y
    s = x + 9.5 + y * (1 / 24 - z * (37 / 5760 - z * (10313 / 2903040 - z * (5509121 / 1393459200))))
    return s, (2.0 * x + 9.0) * d / q


@fast
def elog_gamma(concentration, rate, out):
    """E ln Z of Z ~ Gamma(concentration, rate)."""
    for k in range(out.size):
        s, t = digamma_parts(concentration[k])
        out[k] = math.log(s / rate[k]) - t


@fast
def exp_elog_gamma(concentration, rate, out, power):
    """exp(E ln Z) of Z ~ Gamma(concentration, rate), without a logarithm."""
    for k in range(out.size):
        _, t = digamma_parts(concentration[k])
        out[k] = -t
    exp_in_place(out, power)
    for k in range(out.size):
        s, _ = digamma_parts(concentration[k])
        out[k] *= s / rate[k]


@fast
def solve_epsilon(a, e, mass, prior_mass, guess):
    """The root of sum_k a_k e_k eps / (e_k eps + M) = sum_k beta p_k, by Newton's method from a guess >= 0.

    The left side is concave and increasing, so a step from the right of the root lands left of it (here, not below 0),
    and from the left the steps climb to it.
    """
    epsilon = guess
    for _ in range(50):
        value, slope = 0.0, 0.0
        for k in range(a.size):
            inverse = 1.0 / (e[k] * epsilon + mass)
            value += a[k] * e[k] * inverse
            slope += a[k] * e[k] * inverse * inverse
        before = epsilon
        epsilon = max(0.0, before + (prior_mass - value * before) / (slope * mass))
        if abs(epsilon - before) <= 1e-7 * epsilon:  # the error left is of the order of this squared
            break
    return epsilon


@fast
def responsibilities(elog_loadings, elog_theta, phi, power):
    """phi of one entry in log space, and its log-normaliser."""
    for k in range(phi.size):
        phi[k] = elog_loadings[k] + elog_theta[k]
    peak = maximum(phi)
    for k in range(phi.size):
        phi[k] -= peak
    exp_in_place(phi, power)
    total = 0.0
    for k in range(phi.size):
        total += phi[k]
    for k in range(phi.size):
        phi[k] /= total
    return peak + math.log(total)
