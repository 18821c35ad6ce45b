"""The paper's closed-form updates as pure functions of tensors: each equation once.

The kernel of `pyro_prme.kernels` runs the same local updates fused and in parallel; these are the readable forms, and
the ones to use on small problems.
"""

import torch
from torch import Tensor

__all__ = [
    "assignment_probabilities",
    "dirichlet_update",
    "loadings_update",
    "natural_step",
    "robbins_monro_rate",
    "solve_epsilon",
]


def assignment_probabilities(elog_loadings: Tensor, elog_theta: Tensor) -> Tensor:
    r"""Topic probabilities of each entry (eq. update_c).

    .. math:: \phi_{nm}(k) \propto \exp(E[\ln\theta_{k,X_{nm}}] + E[\ln Z_{nk}])

    Args:
        elog_loadings: E ln Z of each entry's document, shape (E, K).
        elog_theta: E ln theta of each entry's word, shape (E, K).

    Returns:
        phi, rows that sum to one, shape (E, K).
    """
    return (elog_loadings + elog_theta).softmax(-1)


def solve_epsilon(concentration: Tensor, exp_neg_f: Tensor, length: Tensor, prior_total: Tensor) -> Tensor:
    r"""The epsilon at which the epsilon bound and q(Z) are jointly optimal.

    .. math:: \sum_k \frac{a_k e_k \varepsilon}{e_k \varepsilon + M} = \beta, \qquad e_k = E[e^{-f_k}]

    The left side rises and is concave in epsilon, so Newton's method from zero never passes the root.

    Differs from the paper: there epsilon is only recomputed as the sum of E[Z], a map that contracts by about
    1 - beta / M a sweep; this is its limit.

    Args:
        concentration: a, shape (B, K), with sum over k equal to prior_total + length.
        exp_neg_f: e, shape (B, K).
        length: M, tokens of each document, shape (B,).
        prior_total: sum over k of the prior shapes (beta, when nothing is floored), shape (B,).

    Returns:
        epsilon, shape (B,). An empty document has epsilon = sum of a / e, its E[sum Z].
    """
    a, e, M = concentration.double(), exp_neg_f.double(), length.double().unsqueeze(-1)
    epsilon = torch.zeros_like(length, dtype=torch.float64)
    for _ in range(50):
        denominator = e * epsilon.unsqueeze(-1) + M
        value = (a * e * epsilon.unsqueeze(-1) / denominator).sum(-1) - prior_total
        slope = (a * e * M / denominator**2).sum(-1)
        change = torch.where(length > 0, -value / slope, torch.zeros_like(value))
        epsilon = epsilon + change
        if (change.abs() <= 1e-15 * epsilon).all():
            break
    return torch.where(length > 0, epsilon, (a / e).sum(-1)).to(concentration.dtype)


def loadings_update(
    prior_concentration: Tensor, counts: Tensor, exp_neg_f: Tensor, length: Tensor, epsilon: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Parameters of q(Z) given the expected counts and epsilon (eq. update_z).

    .. math:: a_{nk} = \beta p_k + \sum_m \phi_{nm}(k), \qquad 1 / b_{nk} = E[e^{-f_{nk}}] + M_n / \varepsilon_n

    Args:
        prior_concentration: beta p, shape (K,) or (B, K).
        counts: sum of phi over the document's tokens, shape (B, K).
        exp_neg_f: E[exp(-f)], shape (B, K).
        length: M, shape (B,).
        epsilon: shape (B,).

    Returns:
        Concentration and rate of the Gamma posterior, each (B, K). The paper's b is a scale, so that rate = 1 / b.
    """
    return prior_concentration + counts, exp_neg_f + (length / epsilon).unsqueeze(-1)


def dirichlet_update(prior: Tensor | float, statistics: Tensor) -> Tensor:
    r"""Dirichlet parameters given the expected topic-word counts (eq. update_eta).

    .. math:: \gamma_{kd} = \gamma_0 + \sum_n \sum_m \phi_{nm}(k) 1(X_{nm} = d)
    """
    return prior + statistics


def natural_step(gamma: Tensor, target: Tensor, rate: float) -> Tensor:
    r"""A natural-gradient step for Dirichlet parameters (eq. stochastic_update_eta).

    .. math:: \gamma^{(t)} = (1 - \rho^{(t)}) \gamma^{(t-1)} + \rho^{(t)} \tilde\gamma^{(t)}

    Differs from the paper: the target is `dirichlet_update` of statistics scaled by :math:`N / |N_t|`, as the objective
    L_t has it; the text leaves the factor out, which biases the step.
    """
    return (1 - rate) * gamma + rate * target


def robbins_monro_rate(step: int, delay: float = 100.0, decay: float = 0.75) -> float:
    r"""Step size of the stochastic algorithm, :math:`\rho^{(t)} = (t_0 + t)^{-\kappa}`.

    Args:
        step: t, from 0.
        delay: t_0.
        decay: kappa in (0.5, 1].
    """
    return (delay + step) ** -decay
