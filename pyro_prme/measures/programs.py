r"""The constructions as Pyro programs, to be called inside a model; open this to put a random measure into your own.

Sites are named ``prefix + symbol``; each function needs a prefix of its own within a model. The truncation K is
fixed, as inference needs it.
"""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from pyro_prme.checks import positive, whole
from pyro_prme.measures.decoder import Decoder, zero_decoder
from pyro_prme.measures.levy import BetaLevy, GammaLevy, Levy

__all__ = [
    "inverse_tail",
    "pyro_gamma_process",
    "pyro_indian_buffet",
    "pyro_prme_loadings",
    "pyro_random_measure",
    "pyro_sticks",
]


class _InverseTail(torch.autograd.Function):
    """T^-1 with gradient -1 / nu(x), since T(x) = u gives nu(x) dx = -du."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, levy: Levy) -> Tensor:
        x = levy.inverse_tail(u.detach().cpu().double().numpy())
        x64 = torch.as_tensor(x, device=u.device)
        ctx.levy = levy
        ctx.save_for_backward(x64)
        return x64.to(u.dtype)

    @staticmethod
    def backward(ctx: Any, *grad: Any) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        inside = (x > 0) & (x < ctx.levy.upper)
        density = ctx.levy.density(x.where(inside, torch.full_like(x, 0.5)).cpu().numpy())
        slope = torch.where(inside, -1 / torch.as_tensor(density, device=x.device), torch.zeros_like(x))
        return grad[0] * slope.to(grad[0].dtype), None


def inverse_tail(u: Tensor, levy: Levy) -> Tensor:
    r"""Differentiable :math:`T^{-1}(u)` (paper, appendix), shaped and typed as ``u``; computed in double on the CPU."""
    return _InverseTail.apply(u, levy)  # type: ignore[no-untyped-call]


def pyro_random_measure(
    prefix: str, levy: Levy, num_atoms: int, mass: float | Tensor = 1.0, rate: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    r"""The heaviest atoms of a completely random measure (paper, appendix).

    .. math:: e_k \sim \mathrm{Exp}(1), \quad \vartheta_k = \sum_{j \le k} e_j, \quad
              \widetilde\vartheta_k = T^{-1}(\vartheta_k / M) / r, \quad \sigma_k \sim U(0, 1)

    Sites: ``gaps`` (K), ``sigma`` (K) and the deterministic ``weight`` (K).

    Args:
        prefix: Prefix of the site names.
        levy: The Levy measure.
        num_atoms: Truncation K; ``levy.expected_missing_mass(K)`` is what it leaves out in expectation if M = r = 1.
        mass: M, a factor on the mass of ``levy``, which may be a site of the model.
        rate: r, by which all weights are divided, which may be a site too.

    Returns:
        Weights (K), heaviest first, and labels (K).
    """
    with pyro.plate(f"{prefix}atoms", whole("num_atoms", num_atoms), dim=-1):
        gaps = pyro.sample(f"{prefix}gaps", dist.Exponential(torch.tensor(1.0)))
        sigma = pyro.sample(f"{prefix}sigma", dist.Uniform(torch.tensor(0.0), torch.tensor(1.0)))
    weight = pyro.deterministic(
        f"{prefix}weight", inverse_tail(gaps.cumsum(-1) / _scale("mass", mass), levy) / _scale("rate", rate)
    )
    return weight, sigma


def _scale(name: str, value: float | Tensor) -> float | Tensor:
    """A number that was checked, or a tensor as it is: its site has a support."""
    return value if isinstance(value, Tensor) else positive(name, value)


def pyro_gamma_process(
    prefix: str, mass: float | Tensor, num_atoms: int, rate: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    r"""A gamma process (paper, section 3.2), :math:`T(x) = M E_1(rx)`: weights (K), heaviest first, and labels (K)."""
    return pyro_random_measure(prefix, GammaLevy(1.0), num_atoms, mass, rate)


def pyro_sticks(prefix: str, alpha: float | Tensor, num_sticks: int) -> Tensor:
    r"""Stick lengths of a Dirichlet process (paper, eq. topic_model_z); the last takes what is left.

    .. math:: p_k = V_k \prod_{j<k} (1 - V_j), \qquad V_k \sim \mathrm{Beta}(1, \alpha)

    Sites: ``V`` (K - 1), Beta(1, alpha), and the deterministic ``p`` (K), which sums to one.

    Args:
        prefix: Prefix of the site names.
        alpha: Concentration.
        num_sticks: Number of sticks K, at least 2.

    Returns:
        Lengths (K).
    """
    with pyro.plate(f"{prefix}sticks", whole("num_sticks", num_sticks, least=2) - 1, dim=-1):
        alpha = torch.as_tensor(_scale("alpha", alpha), dtype=torch.get_default_dtype())
        V = pyro.sample(f"{prefix}V", dist.Beta(torch.ones_like(alpha), alpha))
    one = V.new_ones(*V.shape[:-1], 1)
    log_left = torch.cat([0 * one, torch.log1p(-V).cumsum(-1)], dim=-1)
    return pyro.deterministic(f"{prefix}p", torch.cat([V, one], dim=-1) * log_left.exp())


def pyro_prme_loadings(
    prefix: str,
    num_objects: int,
    num_atoms: int,
    alpha: float | Tensor = 1.0,
    beta: float | Tensor = 5.0,
    decoder: Decoder = zero_decoder,
    dim_h: int = 2,
    dim_ell: int = 2,
) -> Tensor:
    r"""Loadings of a PRME with gamma loadings (paper, eq. topic_model_z); with the default f = 0 those of an HDP.

    .. math:: Z_{nk} \sim \mathrm{Gamma}(\beta p_k,\ \mathrm{scale} = e^{f_{nk}}), \qquad
              f_{nk} \sim N(\mu_f(h_n, \ell_k), \sigma_f^2(h_n, \ell_k))

    Sites: ``V`` (K - 1), ``p`` (K), ``ell`` (K | dim_ell), ``h`` (N, 1 | dim_h), ``f`` (N, K), ``Z`` (N, K), the last
    two on plates ``objects`` (dim -2) and ``features`` (dim -1). A variance of 0 everywhere makes f deterministic.
    Differs from the paper: shapes beta p_k are kept above the smallest normal number, since Gamma(0) has no density.

    Args:
        prefix: Prefix of the site names.
        num_objects: Number of objects N.
        num_atoms: Truncation K, at least 2.
        alpha: Concentration of the sticks.
        beta: Expected row sum at f = 0.
        decoder: Callable (h (N, dim_h), ell (K, dim_ell)) -> (mean, variance) of f, each (N, K).
        dim_h: Dimension of h.
        dim_ell: Dimension of ell.

    Returns:
        Z (N, K).
    """
    p, beta = pyro_sticks(prefix, alpha, num_atoms), _scale("beta", beta)
    objects = pyro.plate(f"{prefix}objects", whole("num_objects", num_objects), dim=-2)
    features = pyro.plate(f"{prefix}features", num_atoms, dim=-1)
    with features:
        ell = pyro.sample(f"{prefix}ell", dist.Normal(torch.zeros(whole("dim_ell", dim_ell)), 1.0).to_event(1))
    with objects:
        h = pyro.sample(f"{prefix}h", dist.Normal(torch.zeros(whole("dim_h", dim_h)), 1.0).to_event(1))
    mean, variance = decoder(h.squeeze(-2), ell.squeeze(-3) if ell.dim() > 2 else ell)
    with objects, features:
        if torch.any(variance > 0):
            f = pyro.sample(f"{prefix}f", dist.Normal(mean, variance.sqrt()))
        else:
            f = pyro.deterministic(f"{prefix}f", mean)
        shape = (beta * p).clamp(min=torch.finfo(p.dtype).tiny)
        return pyro.sample(f"{prefix}Z", dist.Gamma(shape, torch.exp(-f)))


def pyro_indian_buffet(prefix: str, num_objects: int, mass: float | Tensor, num_atoms: int) -> Tensor:
    r"""The Indian buffet as a PRME (paper, appendix "IBP and extensions").

    .. math:: Z_{nk} \sim \mathrm{Bernoulli}(T^{-1}(\vartheta_k)), \qquad T^{-1}(\vartheta_k) = e^{-\vartheta_k/M}

    Sites: those of `pyro_random_measure`, and ``Z`` (N, K) on plates ``objects`` (dim -2) and ``features`` (dim -1).
    The truncation leaves out M (M / (M + 1))^K dishes of an object in expectation.

    Args:
        prefix: Prefix of the site names.
        num_objects: Number of objects N.
        mass: Expected dishes M of an object, which may be a site of the model.
        num_atoms: Truncation K.

    Returns:
        Z (N, K) in {0, 1}.
    """
    weight, _ = pyro_random_measure(prefix, BetaLevy(1.0), num_atoms, mass)
    with (
        pyro.plate(f"{prefix}objects", whole("num_objects", num_objects), dim=-2),
        pyro.plate(f"{prefix}features", num_atoms, dim=-1),
    ):
        return pyro.sample(f"{prefix}Z", dist.Bernoulli(weight))
