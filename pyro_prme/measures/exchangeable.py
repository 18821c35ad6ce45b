r"""Separately exchangeable measures: Kallenberg's decomposition, graphons, and a test of exchangeability.

Open this to see what the representation theorem allows, and to check that a sampler obeys it (paper, section 3.1 and
appendix):

.. math:: \xi = \sum_{nk} f_n(\vartheta_k) \delta_{\tau_n, \sigma_k}
    + \sum_{mk} g_m(\vartheta_k) \delta_{\rho_{mk}, \sigma_k}
    + \sum_k h(\vartheta_k) (\lambda \otimes \delta_{\sigma_k}) + \sum_n \beta_n (\delta_{\tau_n} \otimes \lambda)
    + \gamma \lambda^2

Differs from the paper: its h carries an index k; one function h, of which each point takes its value, says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from pyro_prme.checks import number, whole
from pyro_prme.measures._common import Seed, batch_dims, batch_shape, first_draw, generator, new_axes
from pyro_prme.measures.embedding import Embedding, Interval, _cells, _inside, make_embedding
from pyro_prme.measures.poisson import poisson_strip

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "PARTS",
    "ExchangeabilityTest",
    "KallenbergMeasure",
    "exchangeability_test",
    "graphon",
    "kallenberg_measure",
]

#: The parts of Kallenberg's representation.
PARTS = ("f", "g", "h", "beta", "gamma")
RandomFunctions = Callable[[np.ndarray, np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class KallenbergMeasure:
    """A separately exchangeable measure on [0, 1] x [0, width], part by part, in ``data``.

    ``f`` ([draw,] object, feature) at (tau, sigma); ``g`` ([draw,] cluster, feature) at (rho, sigma); ``h`` ([draw,]
    feature) along the lines of fixed sigma; ``beta`` ([draw,] object) along those of fixed tau; ``gamma`` ([draw])
    spread evenly.
    """

    data: xr.Dataset

    def measure_of(self, A: Sequence[Interval], B: Sequence[Interval], parts: Sequence[str] = PARTS) -> xr.DataArray:
        """The mass of A x B, ([draw]), for unions of disjoint half-open intervals A in [0, 1] and B in [0, width]."""
        d = {name: variable.values for name, variable in self.data.items()}
        in_A, in_B = _inside(d["tau"], A)[..., None], _inside(d["sigma"], B)[..., None]
        in_rho = _inside(d["rho"], A)[..., None]
        sides = np.array([sum(high - low for low, high in A)]), np.array([sum(high - low for low, high in B)])
        mass = self._masses(parts, in_A, in_rho, in_B, *sides)[..., 0, 0]
        return xr.DataArray(mass, dims=self.data["gamma"].dims, name="mass")

    def rectangle_masses(
        self, tau_edges: Sequence[float], sigma_edges: Sequence[float], parts: Sequence[str] = PARTS
    ) -> xr.DataArray:
        """Mass of each rectangle of the grid that two lists of edges cut out, ([draw,] row, column)."""
        rows, columns = _cells(self.data["tau"].values, tau_edges), _cells(self.data["sigma"].values, sigma_edges)
        in_rho = _cells(self.data["rho"].values, tau_edges)
        masses = self._masses(parts, rows, in_rho, columns, np.diff(tau_edges), np.diff(sigma_edges))
        return xr.DataArray(masses, dims=(*self.data["gamma"].dims, "row", "column"), name="mass")

    def _masses(
        self,
        parts: Sequence[str],
        rows: np.ndarray,
        in_rho: np.ndarray,
        columns: np.ndarray,
        a: np.ndarray,
        b: np.ndarray,
    ) -> np.ndarray:
        """Masses (..., I, J) by membership of tau (..., N, I), rho (..., M, K, I), sigma (..., K, J), and sides."""
        _check_parts(parts)
        data = self.data
        terms = {
            "f": lambda: np.swapaxes(rows, -1, -2) @ data["f"].values @ columns,
            "g": lambda: np.einsum("...mki,...mk,...kj->...ij", in_rho, data["g"].values, columns),
            "h": lambda: a[:, None] * np.einsum("...k,...kj->...j", data["h"].values, columns)[..., None, :],
            "beta": lambda: np.einsum("...n,...ni->...i", data["beta"].values, rows)[..., None] * b,
            "gamma": lambda: data["gamma"].values[..., None, None] * a[:, None] * b,
        }
        zero = np.zeros((*data["gamma"].shape, len(a), len(b)))
        return sum((terms[part]() for part in parts), zero)

    def plot(self, ax: Axes | None = None, draw: int = 0, parts: Sequence[str] = PARTS) -> Axes:
        """One draw as in the paper's Figures 2 and 6: discs f, squares g, lines h and beta, a tint for gamma.

        Areas of discs and squares are their masses, widths of lines their masses by length.
        """
        _check_parts(parts)
        ax = new_axes(ax, 6.0)
        d, width = first_draw(self.data, draw), float(self.data.attrs["width"])
        sigma, tau = d["sigma"].values, d["tau"].values
        top = max(float(d[part].values.max(initial=1e-12)) for part in ("f", "g"))  # g may have no clusters
        style: dict[str, Any] = {"edgecolors": "black", "lw": 0.3, "zorder": 3}
        if "gamma" in parts and d["gamma"] > 0:
            ax.axhspan(0, 1, color="0.92", zorder=0, label=r"diffuse, $\gamma$")
        if "h" in parts and d["h"].max() > 0:
            thick = 3 * d["h"].values / float(d["h"].max())
            ax.vlines(sigma, 0, 1, color="#0072b2", lw=thick, zorder=1, label="lines, $h$")
        if "beta" in parts and d["beta"].max() > 0:
            thick = 3 * d["beta"].values / float(d["beta"].max())
            ax.hlines(tau, 0, width, color="#d55e00", lw=thick, zorder=1, label=r"lines, $\beta$")
        if "f" in parts:
            x, y = np.broadcast_to(sigma, d["f"].shape), np.broadcast_to(tau[:, None], d["f"].shape)
            ax.scatter(x, y, s=60 * d["f"].values / top, color="0.2", label="points, $f$", **style)
        if "g" in parts and d["g"].size:
            x, g = np.broadcast_to(sigma, d["g"].shape), d["g"].values
            ax.scatter(x, d["rho"].values, s=60 * g / top, color="#e69f00", marker="s", label="points, $g$", **style)
        ax.set(xlabel=r"$\sigma$", ylabel=r"$\tau$", xlim=(0, width), ylim=(0, 1))
        if len(parts) > 2:
            from matplotlib.collections import PathCollection

            legend = ax.legend(ncols=5, fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
            for handle in legend.legend_handles:
                if isinstance(handle, PathCollection):
                    handle.set_sizes([30])
        return ax

    def plot_parts(self, axes: np.ndarray | None = None, draw: int = 0) -> np.ndarray:
        """The decoupling of Figure 6, one panel a part; returns the four axes."""
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.subplots(2, 2, figsize=(9, 5), layout="constrained", sharex=True, sharey=True)[1].ravel()
        titles = {
            ("f",): r"rows meet columns: $f_n(\vartheta_k)\,\delta_{\tau_n,\sigma_k}$",
            ("g",): r"no shared rows: $g_m(\vartheta_k)\,\delta_{\rho_{mk},\sigma_k}$",
            (
                "h",
                "beta",
            ): r"lines: $h(\vartheta_k)\,\lambda\otimes\delta_{\sigma_k}$, $\beta_n\,\delta_{\tau_n}\otimes\lambda$",
            ("gamma",): r"diffuse: $\gamma\lambda^2$",
        }
        for ax, (parts, title) in zip(axes, titles.items(), strict=True):
            self.plot(ax, draw, parts).set_title(title, fontsize=9)
            ax.label_outer()
        return axes


def _check_parts(parts: Sequence[str]) -> None:
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise ValueError(f"There is no part {sorted(unknown)}; the parts are {PARTS}.")


def _waves(vartheta: np.ndarray, rng: np.random.Generator, count: int) -> np.ndarray:
    """Random waves that fade with vartheta, ([draw,] count, K)."""
    shape = (*vartheta.shape[:-1], count, 1)
    frequency, phase = rng.uniform(2, 10, shape), rng.uniform(0, 2 * np.pi, shape)
    vartheta = vartheta[..., None, :]
    return np.exp(-vartheta) * (1 + np.sin(frequency * vartheta + phase)) / 2


def kallenberg_measure(
    num_objects: int = 10,
    num_points: int = 40,
    num_clusters: int = 2,
    width: float = 5.0,
    f: RandomFunctions | None = None,
    g: RandomFunctions | None = None,
    h: Callable[[np.ndarray], np.ndarray] | None = None,
    column_lines: float = 0.2,
    row_lines: float = 0.05,
    diffuse: float = 0.05,
    seed: Seed = None,
    num_draws: int | None = None,
) -> KallenbergMeasure:
    r"""Sample every part of a separately exchangeable measure on [0, 1] x [0, width] (paper, appendix).

    Args:
        num_objects: Number of functions f_n, with labels tau_n uniform on [0, 1].
        num_points: Number of Poisson points kept, by rising vartheta.
        num_clusters: Number of functions g_m; 0 leaves that part out.
        width: Window of sigma.
        f: Callable (vartheta ([draw,] K), generator, count) -> ([draw,] count, K), not negative; default fading waves.
        g: The same for the atoms whose row label rho_mk is drawn anew at each point.
        h: Callable vartheta -> weights of the lines at sigma_k, both ([draw,] K); default exp(-vartheta).
        column_lines: Factor on h; 0 leaves that part out.
        row_lines: Mean of the exponential beta_n; 0 leaves that part out.
        diffuse: Mean of the exponential gamma; 0 leaves that part out.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.
    """
    rng, batch = generator(seed), batch_shape(num_draws)
    N, M = whole("num_objects", num_objects), whole("num_clusters", num_clusters, least=0)
    points = poisson_strip(num_points, width, rng, num_draws)
    vartheta = points.vartheta.values
    line = np.exp(-vartheta) if h is None else h(vartheta)
    variables = {
        "f": (("object", "feature"), (f or _waves)(vartheta, rng, N)),
        "g": (("cluster", "feature"), (g or _waves)(vartheta, rng, M)),
        "h": (("feature",), number("column_lines", column_lines, least=0) * line),
        "beta": (("object",), number("row_lines", row_lines, least=0) * rng.standard_exponential((*batch, N))),
        "gamma": ((), number("diffuse", diffuse, least=0) * rng.standard_exponential(batch)),
        "tau": (("object",), rng.uniform(size=(*batch, N))),
        "rho": (("cluster", "feature"), rng.uniform(size=(*batch, M, num_points))),
        "sigma": (("feature",), points.sigma.values),
        "vartheta": (("feature",), vartheta),
    }
    for name, count in (("f", (N,)), ("g", (M,)), ("h", ())):
        shape, value = (*batch, *count, num_points), np.asarray(variables[name][1])
        if value.shape != shape or not np.all(value >= 0):
            raise ValueError(f"{name} must return numbers of at least 0 of shape {shape}, but its are {value.shape}.")
    lead = batch_dims(num_draws)
    data = xr.Dataset({k: ((*lead, *dims), v) for k, (dims, v) in variables.items()}, attrs={"width": width})
    return KallenbergMeasure(data)


def graphon(
    num_objects: int,
    num_features: int,
    W: Callable[[np.ndarray, np.ndarray], np.ndarray],
    seed: Seed = None,
    num_draws: int | None = None,
) -> Embedding:
    r"""A separately exchangeable binary matrix (paper, proposition on empty matrices and its proof).

    .. math:: Z_{nk} = 1(R_{nk} < W(U_n, V_k)), \qquad R, U, V \sim U(0, 1)

    Args:
        num_objects: Number of rows N.
        num_features: Number of columns K.
        W: Callable of arrays ([draw,] N, 1) and ([draw,] 1, K) with values in [0, 1].
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.

    Returns:
        Z ([draw,] N, K) in {0, 1}, with ``U`` ([draw,] N) and ``V`` ([draw,] K).
    """
    rng, batch = generator(seed), batch_shape(num_draws)
    U = rng.uniform(size=(*batch, whole("num_objects", num_objects)))
    V = rng.uniform(size=(*batch, whole("num_features", num_features)))
    probability, shape = np.asarray(W(U[..., :, None], V[..., None, :])), (*batch, num_objects, num_features)
    if any(size not in (1, full) for size, full in zip(probability.shape[::-1], shape[::-1], strict=False)):
        raise ValueError(f"W must return an array of shape {shape}, but returned {probability.shape}.")
    if not np.all((probability >= 0) & (probability <= 1)):
        raise ValueError("W takes values outside [0, 1], but they are probabilities; rescale it.")
    Z = (rng.uniform(size=shape) < probability).astype(np.int8)
    return make_embedding("Graphon", Z, rng, num_draws=num_draws, extra={"U": (("object",), U), "V": (("feature",), V)})


class ExchangeabilityTest(NamedTuple):
    """Energy distance between masses and permuted masses, and the permutation test's p-value."""

    statistic: float
    p_value: float


def exchangeability_test(
    masses: xr.DataArray, rows: Sequence[int], columns: Sequence[int], permutations: int = 499, seed: Seed = None
) -> ExchangeabilityTest:
    r"""Two-sample test of :math:`\xi(T_1(A) \times T_2(B)) =_d \xi(A \times B)` (paper, section 3.1).

    Half of the draws keep their rectangles, the other half have rows and columns permuted; the joint law of all
    rectangle masses is compared by the energy distance, with a permutation test. It sees unequal rows or columns well,
    and dependence between neighbouring rows badly (it misses `drifting_prme`): compare differences of rows for that.

    Args:
        masses: From ``rectangle_masses``, (draw, row, column), with rows of equal length and columns of equal length,
            so that permuting them preserves lengths.
        rows: A permutation of the rows.
        columns: A permutation of the columns.
        permutations: Number of relabellings.
        seed: Seed or numpy generator.
    """
    if masses.sizes.get("draw", 0) < 4:
        raise ValueError("masses must have at least 4 draws to compare halves; sample with num_draws.")
    values = masses.transpose("draw", "row", "column").values.astype(float)
    if sorted(rows) != list(range(values.shape[1])) or sorted(columns) != list(range(values.shape[2])):
        raise ValueError(f"rows and columns must permute 0..{values.shape[1] - 1} and 0..{values.shape[2] - 1}.")
    half = len(values) // 2
    moved = values[half : 2 * half][:, list(rows)][:, :, list(columns)]
    pooled = np.concatenate([values[:half], moved]).reshape(2 * half, -1)
    pooled = pooled / np.maximum(pooled.std(0), 1e-12)
    square = (pooled**2).sum(1)
    distance = np.sqrt(np.maximum(square[:, None] + square - 2 * pooled @ pooled.T, 0))
    signs = np.repeat([1.0, -1.0], half)
    rng = generator(seed)
    all_signs = np.stack([signs, *(rng.permutation(signs) for _ in range(whole("permutations", permutations)))])
    energy = -((all_signs @ distance) * all_signs).sum(1) / half**2
    return ExchangeabilityTest(float(energy[0]), float((energy >= energy[0] - 1e-12).mean()))
