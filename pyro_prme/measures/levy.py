r"""Levy measures by their tail T and its inverse; open this to turn a Poisson process into a random measure's weights.

A completely random measure has atoms whose weights are the points of a Poisson process with Levy measure nu. With

.. math:: T(x) = \nu((x, \infty)), \qquad \widetilde\vartheta_k = T^{-1}(\vartheta_k),

the points of a unit-rate Poisson process become those weights, largest first (paper, section 3.2 and appendix).

Differs from the paper: section 3.2 writes the map as T, the appendix as the inverse of the tail. Here T is the tail and
the map is ``inverse_tail``, as in the appendix.

``tail`` is right to a relative 1e-13 (gamma family) and 1e-10 (beta family), for every discount in [0, 1) and
concentrations up to 10^6, as tests show against sixty digits. ``inverse_tail`` stops at a relative change of 1e-12
(1e-10 where rounding in the tail prevents it), or where the tail meets its argument to 4e-15, or raises. The two are
inverse to each other to 1e-8, but for weights within 1e-7 of 1, the limit of beta weights, where a double cannot hold
1 - x, and for a concentration within 1e-6 of minus the discount, where the tail is too flat to tell weights apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pyro_prme.checks import number, positive, whole
from pyro_prme.measures._numerics import SMALLEST_LOG, beta_constant, beta_tail, gamma_tail, invert_tail

__all__ = ["BetaLevy", "GammaLevy", "GeneralizedGammaLevy", "Levy", "StableBetaLevy"]

Array = NDArray[np.float64]
LARGEST_CONCENTRATION = 1e6  # the accuracy above was measured up to it


@dataclass(frozen=True)
class Levy(ABC):
    """What every Levy measure can do; ``mass`` is the mass of its base measure over the whole label space."""

    mass: float
    title: ClassVar[str]

    def density(self, x: ArrayLike) -> Array:
        """The density of the Levy measure at weights ``x``, in the shape of ``x``; 0 outside its support."""
        x = np.asarray(x, dtype=np.float64)
        out, inside = np.where(np.isnan(x), np.nan, 0.0), (x > 0) & (x < self.upper)
        out[inside] = self._density(x[inside])
        return out

    def tail(self, x: ArrayLike) -> Array:
        """T(x), the expected number of atoms heavier than ``x``, in the shape of ``x``."""
        x = np.asarray(x, dtype=np.float64)
        out, inside = np.where(x <= 0, np.inf, np.where(np.isnan(x), np.nan, 0.0)), (x > 0) & (x < self.upper)
        with np.errstate(over="ignore"):  # beyond the largest double the tail is infinite
            out[inside] = self._tail(x[inside])
        return out

    @abstractmethod
    def _density(self, x: Array) -> Array:
        """The density at weights inside the support (flat)."""

    @abstractmethod
    def _tail(self, x: Array) -> Array:
        """The tail at weights inside the support (flat)."""

    @abstractmethod
    def _solve(self, u: Array) -> Array:
        """The weight whose tail is ``u``, for finite positive ``u`` (flat)."""

    @abstractmethod
    def mean_below(self, x: ArrayLike) -> Array:
        r"""Expected total weight of the atoms lighter than ``x``: :math:`\int_0^x s\,\nu(ds)`, shaped as ``x``."""

    @abstractmethod
    def level_of_mean(self, missing: float) -> float:
        """The weight below which the expected total weight is ``missing``: the inverse of `mean_below`."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Expected total weight of all atoms."""

    @property
    @abstractmethod
    def upper(self) -> float:
        """Upper limit of the weights."""

    def inverse_tail(self, u: ArrayLike) -> Array:
        r"""The weight at a point of the unit-rate Poisson process, :math:`T^{-1}(u)` (paper, appendix).

        Args:
            u: Points, not negative, of any shape; infinity stands for "no atom".

        Returns:
            Weights in the shape of ``u``; 0 where the weight is below the smallest double.
        """
        u = np.asarray(u, dtype=np.float64)
        if np.any(np.isnan(u)) or np.any(u < 0):
            raise ValueError(
                "u holds a negative or missing value, but points lie on the positive half line; drop those."
            )
        out = np.where(u == 0, self.upper, 0.0)
        inside = (u > 0) & (u < self.tail(np.exp(SMALLEST_LOG)))
        out[inside] = self._solve(u[inside])
        return out

    def expected_missing_mass(self, num_atoms: int, nodes: int = 200) -> float:
        r"""Expected total weight lost when only the ``num_atoms`` heaviest atoms are kept.

        .. math:: \mathbb{E} \int_0^{T^{-1}(\vartheta_K)} s\,\nu(ds), \qquad \vartheta_K \sim \mathrm{Gamma}(K, 1),

        by Gauss-Legendre quadrature in the cube root of the last point's distance from the least it may be.
        """
        whole("num_atoms", num_atoms)
        spread = np.sqrt(num_atoms)
        low, high = max(0.0, num_atoms - 40 * spread), num_atoms + 12 * spread + 30
        x, w = np.polynomial.legendre.leggauss(nodes)
        root = (x + 1) / 2
        points, steps = low + (high - low) * root**3, (high - low) * 1.5 * root**2
        density = np.exp(special.xlogy(num_atoms - 1, points) - points - special.gammaln(num_atoms))
        return float(np.sum(w * steps * density * self.mean_below(self.inverse_tail(points))))


@dataclass(frozen=True)
class GeneralizedGammaLevy(Levy):
    r"""Generalised gamma process; discount 0 is the gamma process, and the rate tempers a stable process.

    .. math:: \nu(dx) = \frac{M}{\Gamma(1-d)} x^{-1-d} e^{-rx} dx, \qquad
              T(x) = \frac{M r^d}{\Gamma(1-d)} \Gamma(-d, rx)

    Args:
        mass: Mass M of the base measure.
        discount: d in [0, 1).
        rate: r above 0.
    """

    discount: float = 0.0
    rate: float = 1.0
    title = "Generalised gamma process"

    def __post_init__(self) -> None:
        positive("mass", self.mass)
        positive("rate", self.rate)
        number("discount", self.discount, least=0, below=1)

    @property
    def mean(self) -> float:
        return self.mass * self.rate ** (self.discount - 1)

    @property
    def upper(self) -> float:
        return np.inf

    def _density(self, x: Array) -> Array:
        return self.mass / special.gamma(1 - self.discount) * x ** (-1 - self.discount) * np.exp(-self.rate * x)

    def _tail(self, x: Array) -> Array:
        return self.mass * self.rate**self.discount * self._unit_tail(self.rate * x)

    def _unit_tail(self, y: Array) -> Array:
        return special.exp1(y) if self.discount == 0 else gamma_tail(y, self.discount)

    def _solve(self, u: Array) -> Array:
        d, constant = self.discount, 1 / special.gamma(1 - self.discount)
        u = u / (self.mass * self.rate**d)

        def slope(y: Array) -> Array:
            return constant * y**-d * np.exp(-y)

        def start(z: Array) -> Array:  # for large x the tail falls as exp(-x)
            return np.where(z < -30, z, np.log(np.logaddexp(0, np.maximum(z, -30))))

        return invert_tail(self._unit_tail, slope, np.exp, start, u, np.log(700.0), constant, d) / self.rate

    def mean_below(self, x: ArrayLike) -> Array:
        return self.mean * special.gammainc(1 - self.discount, self.rate * np.asarray(x, dtype=np.float64))

    def level_of_mean(self, missing: float) -> float:
        return float(special.gammaincinv(1 - self.discount, _fraction(missing, self.mean)) / self.rate)


class GammaLevy(GeneralizedGammaLevy):
    r"""Gamma process: total weight Gamma(mass, rate), and normalised it is a Dirichlet process.

    .. math:: \nu(dx) = M x^{-1} e^{-rx} dx, \qquad T(x) = M E_1(rx)

    Args:
        mass: Mass M of the base measure.
        rate: r above 0.
    """

    title = "Gamma process"

    def __init__(self, mass: float, rate: float = 1.0) -> None:
        super().__init__(mass=mass, discount=0.0, rate=rate)


@dataclass(frozen=True)
class StableBetaLevy(Levy):
    r"""Stable-beta process of Teh and Gorur, behind the three-parameter Indian buffet (paper, appendix).

    .. math:: \nu(dx) = M \frac{\Gamma(1+c)}{\Gamma(1-d)\Gamma(c+d)} x^{-1-d} (1-x)^{c+d-1} dx, \quad 0 < x < 1

    Its tail is an incomplete beta function, its inverse is numeric.

    Args:
        mass: Mass M of the base measure, the expected total weight.
        concentration: c above -d, and at most 10^6.
        discount: d in [0, 1).
    """

    concentration: float = 1.0
    discount: float = 0.0
    title = "Stable-beta process"

    def __post_init__(self) -> None:
        positive("mass", self.mass)
        number("discount", self.discount, least=0, below=1)
        number("concentration", self.concentration, above=0.0 - self.discount, most=LARGEST_CONCENTRATION)

    @property
    def mean(self) -> float:
        return self.mass

    @property
    def upper(self) -> float:
        return 1.0

    def _density(self, x: Array) -> Array:
        c, d = self.concentration, self.discount
        return self.mass * beta_constant(c, d) * x ** (-1 - d) * (1 - x) ** (c + d - 1)

    def _tail(self, x: Array) -> Array:
        return self.mass * self._unit_tail(x)

    def _unit_tail(self, x: Array) -> Array:
        simple = self.discount == 0 and self.concentration == 1
        return -np.log(x) if simple else beta_tail(x, self.concentration, self.discount)

    def _solve(self, u: Array) -> Array:
        if self.discount == 0 and self.concentration == 1:
            return np.exp(-u / self.mass)
        c, d = self.concentration, self.discount
        constant = beta_constant(c, d)

        def slope(x: Array) -> Array:
            return constant * x**-d * (1 - x) ** (c + d)

        return invert_tail(self._unit_tail, slope, special.expit, np.asarray, u / self.mass, 36.0, constant, d)

    def mean_below(self, x: ArrayLike) -> Array:
        return self.mean * special.betainc(1 - self.discount, self.concentration + self.discount, np.asarray(x))

    def level_of_mean(self, missing: float) -> float:
        share = _fraction(missing, self.mean)
        return float(special.betaincinv(1 - self.discount, self.concentration + self.discount, share))


class BetaLevy(StableBetaLevy):
    r"""Beta process, behind the Indian buffet; with concentration 1 the inverse tail is the paper's exponential.

    .. math:: \nu(dx) = M c x^{-1} (1-x)^{c-1} dx, \qquad c = 1:\ T(x) = -M \ln x,\ T^{-1}(u) = e^{-u/M}

    Args:
        mass: Mass M of the base measure; the paper's :math:`T^{-1}(u) = e^{-u}` is mass 1.
        concentration: c above 0.
    """

    title = "Beta process"

    def __init__(self, mass: float, concentration: float = 1.0) -> None:
        super().__init__(mass=mass, concentration=concentration, discount=0.0)


def _fraction(missing: float, mean: float) -> float:
    if not isinstance(missing, Real) or not 0 < missing < mean:
        raise ValueError(f"missing mass must lie between 0 and the expected total {mean:g}, but it is {missing!r}.")
    return missing / mean
