r"""Loadings that drift in time: a PRME that is not exchangeable; open this when the order of the objects matters.

The paper's discussion (section 6.1) notes that the method adapts to non-exchangeable settings: here the objects'
embeddings h follow a path in time. Metadata can move them in the same way: pass ``h`` to `prme`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from pyro_prme.checks import positive, whole
from pyro_prme.measures._common import Seed, batch_dims, batch_shape, first_draw, generator, new_axes
from pyro_prme.measures.decoder import Decoder
from pyro_prme.measures.embedding import Embedding
from pyro_prme.measures.hierarchical import prme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DriftingEmbedding", "drifting_prme", "stationary_path"]


@dataclass(frozen=True)
class DriftingEmbedding(Embedding):
    """An embedding whose objects are times: tau rises with the object."""

    def plot(self, ax: Axes | None = None, draw: int = 0, num_features: int = 5) -> Axes:
        """Share of the expected loadings of the strongest features against time."""
        import matplotlib as mpl

        ax = new_axes(ax, 6.0)
        data = first_draw(self.data, draw)
        share = data["expected"] / data["expected"].sum("feature")
        strongest = np.argsort(-share.mean("object").values)[:num_features]
        colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(strongest)))
        for i, k in enumerate(strongest):
            style = ("-", "--", "-.", ":")[i % 4]
            ax.plot(data["tau"], share.isel(feature=k), style, color=colours[i], lw=1.5, label=f"feature {k + 1}")
        ax.set(xlabel=r"time $\tau$", ylabel="share of expected loading", xlim=(0, 1), ylim=(0, None), title=self.name)
        ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        return ax


def stationary_path(
    num_times: int, dim: int, length: float, scale: float = 1.0, seed: Seed = None, num_draws: int | None = None
) -> xr.DataArray:
    r"""A stationary random walk that is pulled back to 0, ([draw,] object, h_axis), the objects being times.

    .. math:: h_{t+1} = \rho h_t + \sqrt{1 - \rho^2}\, a^{1/2} \epsilon_t, \quad \rho = e^{-1/s}, \qquad
              \mathrm{cov}(h_s, h_t) = a \rho^{|s - t|} I

    so at every single time h is N(0, aI), as the paper's h_n.

    Args:
        num_times: Number of times.
        dim: Dimension.
        length: s, the number of steps over which the correlation falls to 1/e.
        scale: Standard deviation, the square root of a.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.
    """
    rng, rho = generator(seed), np.exp(-1 / positive("length", length))
    steps = rng.normal(
        0, positive("scale", scale), (*batch_shape(num_draws), whole("num_times", num_times), whole("dim", dim))
    )
    path = steps.copy()
    for t in range(1, num_times):
        path[..., t, :] = rho * path[..., t - 1, :] + np.sqrt(1 - rho**2) * steps[..., t, :]
    return xr.DataArray(path, dims=(*batch_dims(num_draws), "object", "h_axis"), name="h")


def drifting_prme(
    num_times: int,
    num_atoms: int,
    length: float = 50.0,
    alpha: float = 1.0,
    beta: float = 5.0,
    decoder: Decoder | None = None,
    dim: int = 2,
    h_scale: float = 1.0,
    seed: Seed = None,
    num_draws: int | None = None,
) -> DriftingEmbedding:
    """A PRME whose h moves along `stationary_path`, with tau the time: neighbours in time have similar loadings.

    Each single object has the law of `prme`; rows are not exchangeable.

    Args:
        num_times: Number of objects, one a time.
        num_atoms: Truncation K.
        length: Correlation length of the path, in steps.
        alpha: Concentration of the sticks.
        beta: Expected row sum at f = 0.
        decoder: Random function; default `random_decoder`.
        dim: Dimension of h and ell.
        h_scale: Standard deviation of h.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.
    """
    rng = generator(seed)
    h = stationary_path(num_times, dim, length, h_scale, rng, num_draws).values
    drawn = prme(
        num_times, num_atoms, alpha, beta, decoder, h=h, dim=dim, seed=rng, num_draws=num_draws, name="Drifting PRME"
    )
    time = (np.arange(num_times) + 0.5) / num_times
    data = drawn.data.assign(tau=(drawn.tau.dims, np.broadcast_to(time, drawn.tau.shape)))
    return DriftingEmbedding(data, drawn.name)
