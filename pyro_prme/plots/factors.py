"""Pictures of factor models: what the factors are, which rows use them, and what they say of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyro_prme.answers.posterior import Posterior
from pyro_prme.inference.data import Rows
from pyro_prme.plots import _common as common
from pyro_prme.plots.style import mark_negative

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_factors"]


def plot_factors(posterior: Posterior, rows: Rows, *, axes: Sequence[Axes] | None = None) -> np.ndarray:
    r"""A fitted factor model: its factors, the loadings of the rows, and every cell against what the two say of it.

    .. math:: E[X_{nd}] = \textstyle\sum_k E[Z_{nk}]\, E[\theta_{kd}]

    Factors are rows, those with the largest part in the data first; rows of the data are sorted by the factor with the
    largest part in them. Where factors may be negative, a minus stands in the cells that are clearly so.

    Args:
        posterior: of a factor model such as `PoissonPRME`.
        rows: seen or new.
        axes: three; a new figure by default.

    Returns:
        The axes of the factors, the loadings and the cells.

    Example:
        >>> axes = plot_factors(factor_posterior, rows)
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"The posterior is a {type(posterior).__name__}: give that of a factor model.")
    if not isinstance(rows, Rows):
        raise ValueError(f"The rows are a {type(rows).__name__}: give Rows(X).")
    Z, theta = posterior.loadings(rows).values, posterior.factors().values
    size = Z * np.abs(theta).sum(1)  # (B, K): the part of a factor in a row
    factors = np.argsort(-size.mean(0), kind="stable")
    order = np.lexsort([-size.max(1), np.argsort(factors)[size.argmax(1)]])
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 3, figsize=(10.5, 3.3), layout="constrained", width_ratios=[1.2, 1, 1])[1]
    if len(axes) != 3:
        raise ValueError(f"There are {len(axes)} axes: give three, for factors, loadings and cells.")
    first, second, third = axes
    _image(first, theta[factors], r"$E[\theta_{kd}]$")
    first.set(xlabel="column d", ylabel="factor k", title="factors")
    first.set_yticks(range(len(factors)), [str(k) for k in factors], fontsize=8)
    _image(second, Z[np.ix_(order, factors)], "$E[Z_{nk}]$")
    second.set(xlabel="factor k", ylabel="rows n, sorted", title="loadings")
    second.set_xticks(range(len(factors)), [str(k) for k in factors], fontsize=8)
    _cells(third, rows.values.numpy().ravel(), (Z @ theta).ravel())
    return np.array([first, second, third], dtype=object)


def _image(ax: Axes, values: np.ndarray, label: str) -> None:
    """Values as colours: to either side of zero where some are negative."""
    signed, top = bool((values < 0).any()), float(np.abs(values).max())
    low, colours = (-top, common.DIVERGING) if signed else (0.0, "viridis")
    image = ax.imshow(values, aspect="auto", interpolation="nearest", cmap=colours, vmin=low, vmax=top)
    if signed:
        mark_negative(ax, values, -top / 4, top)
    ax.figure.colorbar(image, ax=ax, label=label)


def _cells(ax: Axes, observed: np.ndarray, mean: np.ndarray) -> None:
    ends = (min(observed.min(), mean.min()), max(observed.max(), mean.max()))
    ax.plot(ends, ends, color="0.4", lw=0.8, label="equal")
    ax.scatter(observed, mean, s=6, color=common.OKABE_ITO[0], alpha=0.4, lw=0, label="a cell")
    share = ""
    if observed.min() < observed.max():  # else there is no variance to have a share of
        share = f", {1 - np.square(observed - mean).mean() / observed.var():.0%} of the variance"
    ax.set(xlabel="observed $X_{nd}$", ylabel="$E[X_{nd}]$", title=f"cells{share}")
    ax.legend(fontsize=8, frameon=False, loc="upper left")
