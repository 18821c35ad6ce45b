r"""Completely random measures by the inverse Levy method; open this to sample the atoms of a gamma or beta process.

Ferguson and Klass: the points of a unit-rate Poisson process, mapped by the inverse tail, are the atoms' weights,

.. math:: \lambda = \sum_k T^{-1}(\vartheta_k)\, \delta_{\sigma_k}

(paper, section 3.2 and appendix). What a truncation leaves out is known in expectation and comes with every draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from pyro_prme.checks import number, positive, whole
from pyro_prme.measures._common import Seed, batch_dims, batch_shape, first_draw, generator, new_axes
from pyro_prme.measures.levy import Levy
from pyro_prme.measures.poisson import MOST_POINTS, poisson_strip, poisson_window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RandomMeasure", "completely_random_measure", "stick_breaking"]


@dataclass(frozen=True)
class RandomMeasure:
    """Atoms of a random measure, in ``data``.

    ``weight``, ``sigma``, ``vartheta`` are ([draw,] atom); ``missing`` ([draw]) is the expected weight of the atoms
    that were left out, given those kept. Where draws have fewer atoms than others, the rest has weight 0.
    """

    data: xr.Dataset
    name: str

    @property
    def weight(self) -> xr.DataArray:
        """Weights, ([draw,] atom), heaviest first."""
        return self.data["weight"]

    @property
    def sigma(self) -> xr.DataArray:
        """Labels, ([draw,] atom)."""
        return self.data["sigma"]

    @property
    def missing(self) -> xr.DataArray:
        """Expected weight left out by the truncation, ([draw])."""
        return self.data["missing"]

    def total(self) -> xr.DataArray:
        """Total weight of the atoms kept, ([draw])."""
        return self.weight.sum("atom")

    def plot(self, ax: Axes | None = None, draw: int = 0) -> Axes:
        """The atoms of one draw as stems at their labels; returns the axes."""
        ax = new_axes(ax)
        data = first_draw(self.data, draw)
        weight, sigma = data["weight"].values, data["sigma"].values
        ax.vlines(sigma, 0, weight, color="0.6", lw=0.8)
        ax.scatter(sigma, weight, color="#0072b2", s=12, zorder=3, edgecolors="black", lw=0.3)
        ax.set(xlabel=r"label $\sigma$", ylabel="weight", ylim=(0, None), title=self.name)
        return ax


def completely_random_measure(
    levy: Levy,
    num_atoms: int | None = None,
    missing_mass: float | None = None,
    width: float = 1.0,
    seed: Seed = None,
    num_draws: int | None = None,
) -> RandomMeasure:
    r"""Sample a completely random measure, truncated at a number of atoms or at an expected missing mass.

    With ``num_atoms`` = K the K heaviest atoms are kept; given the last of them, the others weigh in expectation
    :math:`\int_0^{T^{-1}(\vartheta_K)} s\,\nu(ds)`; before sampling that is ``levy.expected_missing_mass(K)``.
    With ``missing_mass`` all atoms above the weight :math:`\epsilon` are kept, where :math:`\int_0^\epsilon s\,\nu(ds)`
    equals it; their number is Poisson with mean :math:`T(\epsilon)`.

    Args:
        levy: The Levy measure; its mass is that of the whole label window.
        num_atoms: Number of atoms K; give this or ``missing_mass``.
        missing_mass: Expected weight left out; give this or ``num_atoms``.
        width: Labels are uniform on ``[0, width]``.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.

    Returns:
        The measure, with weights of shape ([draw,] atom).
    """
    if not isinstance(levy, Levy):
        raise ValueError(f"levy must be a Levy measure such as GammaLevy(1.0), but it is {levy!r}; pass one of those.")
    if (num_atoms is None) == (missing_mass is None):
        raise ValueError("The truncation needs num_atoms or missing_mass, and not both; pass one of them.")
    rng, width = generator(seed), positive("width", width)
    if num_atoms is not None:
        points = poisson_strip(whole("num_atoms", num_atoms), seed=rng, num_draws=num_draws)
        vartheta = points.vartheta.values
        weight = levy.inverse_tail(vartheta)
        missing = levy.mean_below(weight[..., -1])
    else:
        assert missing_mass is not None
        expected = float(levy.tail(levy.level_of_mean(missing_mass)))
        if not 0 < expected <= MOST_POINTS:
            raise ValueError(
                f"A missing mass of {missing_mass!r} keeps {expected:g} atoms in expectation, which is not between 0 "
                f"and {MOST_POINTS:g}; choose another, or a number of atoms."
            )
        points = poisson_window(1.0, expected, seed=rng, num_draws=num_draws)
        vartheta = points.vartheta.values
        weight = levy.inverse_tail(vartheta)
        missing = np.full(vartheta.shape[:-1], float(missing_mass))
    batch = batch_dims(num_draws)
    dims = (*batch, "atom")
    data = {
        "weight": (dims, weight),
        "sigma": (dims, width * points.sigma.values),
        "vartheta": (dims, vartheta),
        "missing": (batch, missing),
    }
    return RandomMeasure(xr.Dataset(data, attrs={"width": width}), levy.title)


def stick_breaking(
    alpha: float, num_sticks: int, discount: float = 0.0, seed: Seed = None, num_draws: int | None = None
) -> xr.DataArray:
    r"""Stick lengths of a Dirichlet process (or Pitman-Yor process), the weights of a normalised gamma process.

    .. math:: p_k = V_k \prod_{j<k} (1 - V_j), \qquad V_k \sim \mathrm{Beta}(1 - d, \alpha + kd)

    (paper, eq. topic_model_z). Differs from the paper: the last stick takes what is left, so the K lengths sum to one.

    Args:
        alpha: Concentration; above 0.
        num_sticks: Number of sticks K.
        discount: d in [0, 1); 0 is the Dirichlet process.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.

    Returns:
        Lengths ([draw,] atom).
    """
    discount = number("discount", discount, least=0, below=1)
    rng, batch, alpha = generator(seed), batch_shape(num_draws), positive("alpha", alpha)
    num_sticks = whole("num_sticks", num_sticks)
    k = np.arange(1, num_sticks)
    V = rng.beta(1 - discount, alpha + k * discount, (*batch, num_sticks - 1))
    ones = np.ones((*batch, 1))
    left = np.concatenate([ones, np.cumprod(1 - V, axis=-1)], axis=-1)
    return xr.DataArray(left * np.concatenate([V, ones], axis=-1), dims=(*batch_dims(num_draws), "atom"), name="p")
