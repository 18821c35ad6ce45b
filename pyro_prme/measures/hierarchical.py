r"""Hierarchical gamma and Dirichlet processes, DILN and PRME as embeddings; open this for priors on topic loadings.

All are one construction with another random function f (paper, eq. topic_model_z and appendix):

.. math:: Z_{nk} \sim \mathrm{Gamma}(\beta p_k,\ \mathrm{scale} = e^{f_{nk}}), \qquad
          f_{nk} \sim N(\mu_f(h_n, \ell_k), \sigma_f^2(h_n, \ell_k))

with f = 0 the hierarchical processes and f linear in both arguments DILN. As functions of the Poisson points,
:math:`f_n(\vartheta_k) = e^{f_{nk}} Q(U_{nk}; \beta T^{-1}(\vartheta_k))` with Q the gamma quantile function.

Differs from the paper: its appendix writes DILN's second gamma parameter as exp(-h_n(ell_k)) and calls it a scale; here
the scale is exp(f), as in eq. topic_model_z (for a Gaussian process with mean zero the two have the same law).
"""

from __future__ import annotations

import numpy as np

from pyro_prme.checks import positive, whole
from pyro_prme.measures._common import Seed, batch_shape, generator
from pyro_prme.measures.crm import completely_random_measure, stick_breaking
from pyro_prme.measures.decoder import Decoder, linear_decoder, random_decoder, zero_decoder
from pyro_prme.measures.embedding import Embedding, make_embedding
from pyro_prme.measures.levy import GammaLevy, Levy

__all__ = ["diln", "hierarchical_dirichlet_process", "hierarchical_gamma_process", "prme"]


def prme(
    num_objects: int,
    num_atoms: int,
    alpha: float = 1.0,
    beta: float = 5.0,
    decoder: Decoder | None = None,
    h: np.ndarray | None = None,
    base: Levy | None = None,
    dim: int = 2,
    h_scale: float = 1.0,
    ell_scale: float = 1.0,
    width: float = 1.0,
    seed: Seed = None,
    num_draws: int | None = None,
    name: str = "PRME",
) -> Embedding:
    r"""A population random measure embedding with gamma loadings (paper, eq. topic_model_z).

    Args:
        num_objects: Number of objects N.
        num_atoms: Truncation K; the last stick takes what is left.
        alpha: Concentration of the sticks p (not used with ``base``).
        beta: Expected row sum at f = 0 with sticks.
        decoder: Callable (h, ell) -> (mean, variance) of f; default `random_decoder` with bounded outputs.
        h: Object embeddings ([draw,] N, dim), to let time or metadata move them; default normal.
        base: A Levy measure whose K heaviest atoms replace the sticks, so that the shapes are beta times its weights.
        dim: Dimension of h and ell.
        h_scale: Standard deviation of h.
        ell_scale: Standard deviation of ell.
        width: Feature labels are uniform on ``[0, width]``.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws (with one decoder); None gives one without a draw dimension.
        name: Name of the result.

    Returns:
        Z ([draw,] N, K), with ``p`` ([draw,] K), ``h``, ``ell``, ``f`` and ``expected``, the mean of Z given p, h, ell;
        with ``base`` also ``missing`` ([draw]): given p, the expected row sum of the atoms left out at f = 0. A decoder
        with ``bound`` (an upper bound on E exp f) makes ``bound * missing`` an upper bound at any f.
    """
    rng, batch = generator(seed), batch_shape(num_draws)
    N, K, beta = whole("num_objects", num_objects), whole("num_atoms", num_atoms), positive("beta", beta)
    dim, decoder = whole("dim", dim), decoder or random_decoder(dim, dim, seed=rng)
    extra: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    if base is None:
        p = stick_breaking(alpha, K, seed=rng, num_draws=num_draws).values
    else:
        crm = completely_random_measure(base, num_atoms=K, seed=rng, num_draws=num_draws)
        p = crm.weight.values
        extra["missing"] = ((), beta * crm.missing.values)
    if h is None:
        h = rng.normal(0, positive("h_scale", h_scale), (*batch, N, dim))
    elif np.shape(h) != (*batch, N, dim) or not np.all(np.isfinite(h)):
        raise ValueError(f"h must be finite numbers of shape {(*batch, N, dim)}, but its shape is {np.shape(h)}.")
    h = np.asarray(h, dtype=float)
    ell = rng.normal(0, positive("ell_scale", ell_scale), (*batch, K, dim))
    mean, variance = decoder(h, ell)  # (..., N, K)
    if np.shape(mean) != (*batch, N, K) or np.shape(variance) != np.shape(mean) or np.any(variance < 0):
        raise ValueError(f"decoder must return a mean and a variance of at least 0, each of shape {(*batch, N, K)}.")
    f = mean + np.sqrt(variance) * rng.standard_normal(mean.shape)
    shape = beta * p[..., None, :]
    Z = rng.standard_gamma(np.broadcast_to(shape, f.shape)) * np.exp(f)
    extra |= {
        "p": (("feature",), p),
        "h": (("object", "h_axis"), h),
        "ell": (("feature", "ell_axis"), ell),
        "f": (("object", "feature"), f),
        "expected": (("object", "feature"), shape * np.exp(mean + variance / 2)),
    }
    return make_embedding(name, Z, rng, width, num_draws, extra)


def hierarchical_dirichlet_process(
    num_objects: int,
    num_atoms: int,
    alpha: float = 1.0,
    beta: float = 5.0,
    seed: Seed = None,
    num_draws: int | None = None,
) -> Embedding:
    r"""Hierarchical Dirichlet process: `prme` with f = 0, whose ``proportions()`` are the HDP's weights.

    .. math:: Z_{nk} \sim \mathrm{Gamma}(\beta p_k, 1), \qquad \sum_k Z_{nk} \sim \mathrm{Gamma}(\beta, 1)

    Args:
        num_objects: Number of objects N.
        num_atoms: Truncation K.
        alpha: Concentration of the upper process.
        beta: Concentration of the lower processes.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.
    """
    return prme(
        num_objects, num_atoms, alpha, beta, zero_decoder, seed=seed, num_draws=num_draws, name="Hierarchical Dirichlet"
    )


def hierarchical_gamma_process(
    num_objects: int,
    num_atoms: int,
    mass: float = 1.0,
    beta: float = 1.0,
    seed: Seed = None,
    num_draws: int | None = None,
) -> Embedding:
    r"""Hierarchical gamma process: each object's gamma process has a gamma process as its base measure.

    .. math:: G_0 = \sum_k T^{-1}(\vartheta_k)\, \delta_{\sigma_k}, \quad T(x) = M E_1(x), \qquad
              Z_{nk} \sim \mathrm{Gamma}(\beta T^{-1}(\vartheta_k), 1)

    Args:
        num_objects: Number of objects N.
        num_atoms: Truncation K.
        mass: Mass M of the upper process.
        beta: Factor on the upper process' weights.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.
    """
    return prme(
        num_objects,
        num_atoms,
        beta=beta,
        decoder=zero_decoder,
        base=GammaLevy(mass),
        seed=seed,
        num_draws=num_draws,
        name="Hierarchical gamma",
    )


def diln(
    num_objects: int,
    num_atoms: int,
    alpha: float = 1.0,
    beta: float = 5.0,
    dim: int = 2,
    h_scale: float = 1.0,
    ell_scale: float = 1.0,
    seed: Seed = None,
    num_draws: int | None = None,
) -> Embedding:
    r"""Discrete infinite logistic normal: `prme` with f from a Gaussian process with linear kernel.

    .. math:: f_n(\ell) = h_n^\top \ell, \quad h_n \sim N(0, aI) \quad\Rightarrow\quad
              \mathrm{cov}(f_n(\ell_j), f_n(\ell_k)) = a\, \ell_j^\top \ell_k

    Args:
        num_objects: Number of objects N.
        num_atoms: Truncation K.
        alpha: Concentration of the sticks.
        beta: Expected row sum at f = 0.
        dim: Dimension of h and ell.
        h_scale: Standard deviation of h, the square root of a.
        ell_scale: Standard deviation of ell.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.
    """
    return prme(
        num_objects,
        num_atoms,
        alpha,
        beta,
        linear_decoder,
        dim=dim,
        h_scale=h_scale,
        ell_scale=ell_scale,
        seed=seed,
        num_draws=num_draws,
        name="DILN",
    )
