"""Every term of the variational objective (paper, appendix, eq. vi_obj_batch) as a pure function of tensors.

All terms are per factor (per topic, per document and topic, ...): nothing is summed over plates and nothing is scaled.
"""

import math

import torch
from torch import Tensor

__all__ = [
    "NORMALIZERS",
    "assignment_entropy",
    "dirichlet_entropy",
    "dirichlet_term",
    "elog_dirichlet",
    "elog_gamma_loadings",
    "elog_sum_epsilon",
    "elog_sum_particles",
    "elog_sum_quadrature",
    "gamma_entropy",
    "point_topics_term",
    "profiled_loadings",
]

_BLOCK = 2048  # words whose float64 copies are held at a time

#: What stands for E ln sum_k Z_nk in a bound, and the name of the bound that results.
NORMALIZERS = {
    "epsilon": "ELBO with the epsilon bound on E ln sum Z",
    "quadrature": "ELBO with E ln sum Z by quadrature",
    "particles": "ELBO with E ln sum Z by particles",
}


def elog_dirichlet(prior: Tensor, elog_theta: Tensor) -> Tensor:
    r"""Expected log density of a topic under its Dirichlet prior.

    .. math:: E[\ln p(\theta_k)] = \ln\Gamma(\textstyle\sum_d \gamma_{0d}) - \sum_d \ln\Gamma(\gamma_{0d})
              + \sum_d (\gamma_{0d} - 1) E[\ln\theta_{kd}]

    Args:
        prior: gamma0, shape (K, D) or broadcastable to it.
        elog_theta: E ln theta, shape (K, D).

    Returns:
        Shape (K,).
    """
    return prior.sum(-1).lgamma() - prior.lgamma().sum(-1) + ((prior - 1) * elog_theta).sum(-1)


def dirichlet_entropy(gamma: Tensor, elog_theta: Tensor) -> Tensor:
    r"""Entropy of q(theta_k).

    .. math:: H[q(\theta_k)] = \sum_d \ln\Gamma(\gamma_{kd}) - \ln\Gamma(\textstyle\sum_d \gamma_{kd})
              - \sum_d (\gamma_{kd} - 1) E[\ln\theta_{kd}]

    Args:
        gamma: shape (K, D).
        elog_theta: shape (K, D).

    Returns:
        Shape (K,).
    """
    return gamma.lgamma().sum(-1) - gamma.sum(-1).lgamma() - ((gamma - 1) * elog_theta).sum(-1)


def dirichlet_term(prior: Tensor, gamma: Tensor) -> Tensor:
    r"""The sum of `elog_dirichlet` and `dirichlet_entropy` from word-major tables, in float64, some words at a time.

    .. math:: \ln\Gamma(\textstyle\sum_d \gamma_{0d}) - \ln\Gamma(\sum_d \gamma_{kd})
              + \sum_d [\ln\Gamma(\gamma_{kd}) - \ln\Gamma(\gamma_{0d}) + (\gamma_{0d} - \gamma_{kd}) E[\ln\theta_{kd}]]

    Args:
        prior: gamma0, shape (D, K); where it is expanded from one number, only that one is looked at.
        gamma: shape (D, K).

    Returns:
        Shape (K,).
    """
    total = gamma.sum(0, dtype=torch.float64)
    mean_log_total = total.digamma()
    value = prior.sum(0, dtype=torch.float64).lgamma() - total.lgamma()
    for words in torch.arange(len(gamma)).split(_BLOCK):
        block = slice(int(words[0]), int(words[-1]) + 1)
        g, p = gamma[block].double(), prior[block]
        distinct = p[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in p.stride())].double()
        value = value + (g.lgamma() + (distinct - g) * (g.digamma() - mean_log_total)).sum(0)
        value = value - distinct.lgamma().expand(p.shape).sum(0)
    return value


def point_topics_term(prior: Tensor, gamma: Tensor) -> Tensor:
    r"""Log density of topics that are points, on the scale of their log ratios, from word-major tables in float64.

    .. math:: \ln p(\theta_k) + \ln \prod_d \theta_{kd}
              = \ln\Gamma(\textstyle\sum_d \gamma_{0d}) - \sum_d \ln\Gamma(\gamma_{0d})
              + \sum_d \gamma_{0d} \ln\theta_{kd}, \qquad \theta_{kd} = \gamma_{kd} / \textstyle\sum_d \gamma_{kd}

    The product is the Jacobian of theta in ln(theta_d / theta_D). On its own scale a Dirichlet density with gamma0 < 1
    has no maximum; here it has one, and with expected counts n it lies at gamma = gamma0 + n.

    Args:
        prior: gamma0, shape (D, K).
        gamma: shape (D, K).

    Returns:
        Shape (K,).
    """
    prior = prior.double()
    log_theta = gamma.double().log() - gamma.sum(0, dtype=torch.float64).log()
    return prior.sum(0).lgamma() + (prior * log_theta - prior.lgamma()).sum(0)


def elog_gamma_loadings(
    prior_concentration: Tensor, mean_f: Tensor, exp_neg_f: Tensor, mean: Tensor, elog: Tensor
) -> Tensor:
    r"""Expected log density of a loading under its Gamma prior.

    .. math:: E[\ln p(Z_{nk} | V, h_n, \ell_k)] = -\ln\Gamma(\beta p_k) - \beta p_k E[f_{nk}]
              + (\beta p_k - 1) E[\ln Z_{nk}] - E[Z_{nk}] E[e^{-f_{nk}}]

    Args:
        prior_concentration: beta p, shape (K,) or (B, K).
        mean_f: E[f], shape (B, K).
        exp_neg_f: E[exp(-f)], shape (B, K).
        mean: E[Z], shape (B, K).
        elog: E[ln Z], shape (B, K).

    Returns:
        Shape (B, K).
    """
    c = prior_concentration
    return -c.lgamma() - c * mean_f + (c - 1) * elog - mean * exp_neg_f


def gamma_entropy(concentration: Tensor, rate: Tensor) -> Tensor:
    r"""Entropy of q(Z_nk), with b = 1 / rate.

    .. math:: H[q(Z_{nk})] = a_{nk} + \ln b_{nk} + \ln\Gamma(a_{nk}) + (1 - a_{nk}) \psi(a_{nk})
    """
    a = concentration
    return a - rate.log() + a.lgamma() + (1 - a) * a.digamma()


def assignment_entropy(phi: Tensor) -> Tensor:
    r"""Entropy of q(C_nm), :math:`-\sum_k \phi_{nm}(k) \ln\phi_{nm}(k)`, shape (E,)."""
    return -torch.special.xlogy(phi, phi).sum(-1)


def profiled_loadings(
    prior_concentration: Tensor, counts: Tensor, mean_f: Tensor, exp_neg_f: Tensor, slope: Tensor
) -> Tensor:
    r"""The part of the bound that holds Z, with q(Z) maximised out.

    .. math:: \ln\Gamma(\beta p_k + n_{nk}) - \ln\Gamma(\beta p_k) - \beta p_k E[f_{nk}]
              - (\beta p_k + n_{nk}) \ln(E[e^{-f_{nk}}] + r_n)

    It equals E ln p(Z) + H[q(Z)] + n E[ln Z] - r E[Z] at the q(Z) of `updates.loadings_update`, and so do its gradients
    in f and p. It stays bounded where the plain form explodes: tiny shapes, and an f that has moved since the E-step.

    Differs from the paper: there the gradient of f and V is taken at a fixed q(Z).

    Args:
        prior_concentration: beta p, shape (K,) or (B, K).
        counts: n, the expected counts of the E-step, shape (B, K).
        mean_f: E[f], shape (B, K).
        exp_neg_f: E[exp(-f)], shape (B, K).
        slope: r = M / epsilon of the E-step, shape (B,).

    Returns:
        Shape (B, K).
    """
    c = prior_concentration
    return (c + counts).lgamma() - c.lgamma() - c * mean_f - (c + counts) * (exp_neg_f + slope.unsqueeze(-1)).log()


def elog_sum_epsilon(mean: Tensor, epsilon: Tensor) -> Tensor:
    r"""Upper bound on E ln of the sum of loadings, for any epsilon > 0.

    .. math:: E[\ln \textstyle\sum_k Z_{nk}] \leq \ln\varepsilon_n
              + (\textstyle\sum_k E[Z_{nk}] - \varepsilon_n) / \varepsilon_n

    Args:
        mean: E[Z], shape (B, K).
        epsilon: shape (B,).

    Returns:
        Shape (B,).
    """
    return epsilon.log() + mean.sum(-1) / epsilon - 1


def elog_sum_quadrature(concentration: Tensor, rate: Tensor, spacing: float = 0.2) -> Tensor:
    r"""E ln of a sum of independent Gamma variables, to about 1e-10.

    .. math:: E[\ln S] = \int_0^\infty \frac{e^{-t} - \prod_k (1 + t / r_k)^{-a_k}}{t} dt

    With t = exp(u) the integrand is analytic in a strip and decays at both ends, so that the trapezoid rule converges
    geometrically in 1 / spacing.

    Args:
        concentration: a, shape (B, K), with a sum over k of at least 0.01.
        rate: r, shape (B, K).
        spacing: of the trapezoid rule, in ln t.

    Returns:
        Shape (B,), float64.
    """
    a, log_rate = concentration.double(), rate.double().log()
    total = a.sum(-1)
    # towards 0 the integrand is about t (E[S] - 1); beyond max ln r it falls like exp(-total u)
    low = (-37 - (a / log_rate.exp()).sum(-1).clamp(min=1).log()).detach()
    high = (log_rate.amax(-1) + 38 / total.clamp(min=0.01, max=1)).clamp(min=math.log(40.0)).detach()
    out = torch.empty_like(total)
    for n in range(len(total)):
        u = torch.arange(float(low[n]), float(high[n]), spacing, dtype=torch.float64)
        log_product = -(a[n] * torch.nn.functional.softplus(u.unsqueeze(-1) - log_rate[n], threshold=40)).sum(-1)
        out[n] = ((-u.exp()).exp() - log_product.exp()).sum() * spacing
    return out


def elog_sum_particles(concentration: Tensor, rate: Tensor, particles: int = 1000) -> Tensor:
    """Monte Carlo estimate of E ln of the sum of the loadings, shape (B,)."""
    draws = torch.distributions.Gamma(concentration, rate).sample((particles,))  # (particles, B, K)
    return draws.sum(-1).log().mean(0)
