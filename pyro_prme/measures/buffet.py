r"""The Indian buffet process, one, two or three parameters, drawn two ways; open this for sparse binary features.

By its restaurant scheme, customer after customer, and as a PRME: Bernoulli functions of the points of a Poisson process
through the inverse tail of a (stable-)beta process (paper, appendix "IBP and extensions"). The two have the same law.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from pyro_prme.checks import whole
from pyro_prme.measures._common import Seed, batch_shape, generator
from pyro_prme.measures.crm import completely_random_measure
from pyro_prme.measures.embedding import Embedding, make_embedding
from pyro_prme.measures.levy import StableBetaLevy

__all__ = ["buffet_restaurant", "buffet_strip", "expected_new_dishes"]


def expected_new_dishes(num_objects: int, mass: float, concentration: float = 1.0, discount: float = 0.0) -> np.ndarray:
    r"""Expected number of new dishes of each customer, (num_objects,).

    .. math:: M \frac{\Gamma(1+c)\,\Gamma(n-1+c+d)}{\Gamma(n+c)\,\Gamma(c+d)}, \qquad n = 1, \ldots, N

    With c = 1, d = 0 it is M / n and the total M H_N; with d > 0 the total grows as N to the power d.

    Args:
        num_objects: Number of customers N.
        mass: M, expected dishes of a customer (alpha of the one-parameter process).
        concentration: c above -d.
        discount: d in [0, 1).
    """
    StableBetaLevy(mass, concentration, discount)  # checks the parameters
    n, c, d = np.arange(1, whole("num_objects", num_objects) + 1), concentration, discount
    return mass * np.exp(gammaln(1 + c) - gammaln(c + d) + gammaln(n - 1 + c + d) - gammaln(n + c))


def buffet_restaurant(
    num_objects: int,
    mass: float,
    concentration: float = 1.0,
    discount: float = 0.0,
    seed: Seed = None,
    num_draws: int | None = None,
) -> Embedding:
    r"""The buffet by its predictive scheme: exact, no truncation.

    Customer n takes dish k, taken :math:`m_k` times before, with probability :math:`(m_k - d) / (n - 1 + c)`, and a
    Poisson number of new dishes with the mean of `expected_new_dishes`.

    Args:
        num_objects: Number of customers N.
        mass: Expected dishes of a customer.
        concentration: c above -d; 1 is the one-parameter process.
        discount: d in [0, 1); above 0 it is the three-parameter process.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.

    Returns:
        Z of shape ([draw,] N, K) in {0, 1}, dishes in order of their first customer; K is the largest over the draws.
    """
    rng, batch = generator(seed), batch_shape(num_draws)
    rates = expected_new_dishes(num_objects, mass, concentration, discount)
    new = rng.poisson(rates, (*batch, num_objects))
    opened = new.cumsum(-1)  # dishes on the table after customer n
    dish = np.arange(int(opened[..., -1].max()))
    Z = np.zeros((*batch, num_objects, dish.size), dtype=np.int8)
    taken = np.zeros((*batch, dish.size))
    for n in range(num_objects):
        known = dish < (opened[..., n] - new[..., n])[..., None]
        fresh = ~known & (dish < opened[..., n][..., None])
        again = rng.uniform(size=taken.shape) * (n + concentration) < taken - discount
        Z[..., n, :] = fresh | (known & again)
        taken += Z[..., n, :]
    return make_embedding("Indian buffet, restaurant", Z, rng, num_draws=num_draws)


def buffet_strip(
    num_objects: int,
    mass: float,
    concentration: float = 1.0,
    discount: float = 0.0,
    missing_mass: float = 1e-3,
    seed: Seed = None,
    num_draws: int | None = None,
) -> Embedding:
    r"""The buffet as a PRME, from a Poisson process on the strip.

    .. math:: Z_{nk} \sim \mathrm{Bernoulli}(T^{-1}(\vartheta_k)), \qquad c = 1, d = 0:\ T^{-1}(u) = e^{-u/M}

    Args:
        num_objects: Number of customers N.
        mass: Expected dishes of a customer.
        concentration: c above -d; 1 is the one-parameter process.
        discount: d in [0, 1); above 0 it is the three-parameter process, whose inverse tail is numeric.
        missing_mass: Expected dishes of a customer that the truncation leaves out.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.

    Returns:
        Z of shape ([draw,] N, K) in {0, 1}, with the dishes' probabilities ``weight`` ([draw,] K) and ``vartheta``.
    """
    rng, levy = generator(seed), StableBetaLevy(mass, concentration, discount)
    whole("num_objects", num_objects)
    crm = completely_random_measure(levy, missing_mass=missing_mass, seed=rng, num_draws=num_draws)
    weight = crm.weight.values
    shape = (*weight.shape[:-1], num_objects, weight.shape[-1])
    Z = (rng.uniform(size=shape) < weight[..., None, :]).astype(np.int8)
    extra = {"weight": (("feature",), weight), "vartheta": (("feature",), crm.data["vartheta"].values)}
    return make_embedding("Indian buffet, strip", Z, rng, num_draws=num_draws, extra=extra)
