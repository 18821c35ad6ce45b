r"""Correlated random measures, binary, discrete and continuous; open this for loadings tied by a Gaussian process.

After Ranganath and Blei: a Poisson process with weights :math:`w_k` and positions :math:`\ell_k`, and for each object a
Gaussian process :math:`F_n` on the positions that bends the weights (paper, appendix "Correlated random measures").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from scipy.special import expit, logit

from pyro_prme.checks import positive, refusal, whole
from pyro_prme.measures._common import Seed, generator
from pyro_prme.measures.crm import completely_random_measure
from pyro_prme.measures.embedding import Embedding, Extra, make_embedding
from pyro_prme.measures.levy import Levy

__all__ = ["CorrelatedKind", "correlated_measure", "squared_exponential"]

#: The law of a loading given its weight and the correlated function.
CorrelatedKind = Literal["binary", "poisson", "negative_binomial", "gamma"]
Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]


def squared_exponential(variance: float = 1.0, length: float = 1.0) -> Kernel:
    r"""The kernel :math:`v \exp(-|\ell - \ell'|^2 / 2 s^2)` as a function of positions (..., K, d), (..., J, d)."""
    variance, length = positive("variance", variance), positive("length", length)

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        square = ((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(-1)
        return variance * np.exp(-square / (2 * length**2))

    return kernel


def correlated_measure(
    kind: CorrelatedKind,
    num_objects: int,
    num_atoms: int,
    base: Levy,
    kernel: Kernel | None = None,
    dim: int = 2,
    seed: Seed = None,
    num_draws: int | None = None,
) -> Embedding:
    r"""Loadings whose correlations come from a Gaussian process on the atoms' positions.

    ===================  ===================================================  ==========================
    kind                 law of Z_nk given w_k and F_nk                       a base that suits
    ===================  ===================================================  ==========================
    binary               Bernoulli(sigmoid(logit w_k + F_nk))                 `BetaLevy`
    poisson              Poisson(w_k exp F_nk)                                `GammaLevy`
    negative_binomial    Poisson(Gamma(w_k, scale = exp F_nk))                `GammaLevy`
    gamma                Gamma(w_k, scale = exp F_nk)                         `GammaLevy`
    ===================  ===================================================  ==========================

    Args:
        kind: One of the table's.
        num_objects: Number of objects N.
        num_atoms: Number of atoms K; costs K^3 for the Gaussian process.
        base: Levy measure of the weights; "binary" needs weights below 1.
        kernel: Covariance of F_n on positions; default `squared_exponential` with variance and length 1.
        dim: Dimension of the positions ell, standard normal.
        seed: Seed or numpy generator.
        num_draws: Number of independent draws; None gives one without a draw dimension.

    Returns:
        Z ([draw,] N, K), with ``weight`` ([draw,] K), ``ell`` ([draw,] K, dim), ``F`` ([draw,] N, K).
    """
    if kind not in get_args(CorrelatedKind):
        raise refusal("kind", kind, f"one of {', '.join(get_args(CorrelatedKind))}")
    if kind == "binary" and base.upper > 1:
        raise ValueError("A binary measure needs weights below 1; pass a BetaLevy or StableBetaLevy as its base.")
    rng, kernel = generator(seed), kernel or squared_exponential()
    whole("num_objects", num_objects)
    crm = completely_random_measure(base, num_atoms=num_atoms, seed=rng, num_draws=num_draws)
    weight = crm.weight.values
    ell = rng.standard_normal((*weight.shape, whole("dim", dim)))
    K = kernel(ell, ell)
    if K.shape != (*weight.shape, num_atoms):
        raise ValueError(f"kernel must return an array of shape {(*weight.shape, num_atoms)}, but its is {K.shape}.")
    try:
        root = np.linalg.cholesky(K + 1e-9 * np.max(K) * np.eye(num_atoms))  # (..., K, K)
    except np.linalg.LinAlgError:
        raise ValueError("The kernel's matrix is not positive definite; pass a covariance function.") from None
    F = rng.standard_normal((*weight.shape[:-1], num_objects, num_atoms)) @ np.swapaxes(root, -1, -2)
    w = np.broadcast_to(weight[..., None, :], F.shape)
    if kind == "binary":
        with np.errstate(divide="ignore"):  # logit(0) is minus infinity, and its loading 0
            Z = (rng.uniform(size=F.shape) < expit(logit(w) + F)).astype(np.int8)
    elif kind == "poisson":
        Z = rng.poisson(w * np.exp(F))
    else:
        Z = rng.standard_gamma(w) * np.exp(F)
        Z = rng.poisson(Z) if kind == "negative_binomial" else Z
    extra: Extra = {
        "weight": (("feature",), weight),
        "ell": (("feature", "ell_axis"), ell),
        "F": (("object", "feature"), F),
    }
    return make_embedding(
        f"Correlated random measure, {kind.replace('_', ' ')}", Z, rng, num_draws=num_draws, extra=extra
    )
