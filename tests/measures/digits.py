"""Levy tails to sixty digits, by formulas other than the package's, for its tests."""

import mpmath as mp

__all__ = ["gamma_tail", "stable_beta_tail"]


def gamma_tail(y, d):
    """The generalised gamma process' tail at mass and rate 1: Gamma(-d, y) / Gamma(1 - d)."""
    with mp.workdps(60):
        d = mp.mpf(d)
        return mp.gammainc(-d, mp.mpf(y)) / mp.gamma(1 - d)


def stable_beta_tail(x, c, d):
    """The stable-beta process' tail at mass 1.

    From x = 0.02 by the series of the incomplete beta function in 1 - x; below by that in x, with as many digits more
    as its terms cancel.
    """
    with mp.workdps(80 + int(2 * max(c, 0) * x) if x < 0.02 else 60):
        x, c, d = mp.mpf(x), mp.mpf(c), mp.mpf(d)
        b = c + d
        constant = mp.gamma(1 + c) / (mp.gamma(1 - d) * mp.gamma(b))
        j, term = 0, mp.mpf(1)
        if x >= 0.02:
            total = term
            while abs(term) > mp.mpf(10) ** -45 * total:
                term *= (c + j) / (b + 1 + j) * (1 - x)
                total, j = total + term, j + 1
            return constant * (1 - x) ** b * x**-d / b * total
        total = (constant * x**-d - c) / d if d else c * (-mp.log(x) - mp.digamma(c) - mp.euler)
        term = constant * x**-d
        while abs(term) > mp.mpf(10) ** -60 * abs(total):
            j += 1
            term *= (j - b) / j * x
            total -= term / (j - d)
        return total
