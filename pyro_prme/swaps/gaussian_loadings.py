"""Loadings under a Gaussian sum, topic by topic: what non-negative and binary ones share, and the rule of the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families.half_normal import ModifiedHalfNormal
from pyro_prme.equations.expectations import expected, expected_log
from pyro_prme.prototype import Prototype
from pyro_prme.rules import GammaLoadings, Run
from pyro_prme.swaps.factors import offer
from pyro_prme.swaps.gaussian import expected_precision, gaussian_refusal

__all__ = ["Field", "GaussianLoadings", "sweep_topics"]


class Field(NamedTuple):
    """What the likelihood says of each loading, E ln p(X) = linear Z - quadratic Z^2 / 2, and the loadings' means."""

    linear: Tensor  # (B, K)
    quadratic: Tensor  # (K,)
    mean: Tensor  # (B, K)


def sweep_topics(
    run: Run, factors: str, start: Tensor, mean_of: Callable[[int, Tensor, Tensor], Tensor], sweeps: int
) -> Field:
    r"""Coordinate ascent over the topics of each row: what the likelihood says of a loading given the others' means.

    .. math::
        E \ln p(X_n \mid Z_n) = b_{nk} Z_{nk} - \tfrac12 a_k Z_{nk}^2 + \mathrm{const}, \quad
        a_k = E[\tau] S_{kk}, \quad
        b_{nk} = E[\tau] \Big(\sum_d X_{nd} m_{kd} - \sum_{j \ne k} E[Z_{nj}] S_{jk}\Big), \quad
        S = \sum_d E[\theta_d \theta_d^\top]

    Args:
        run: at the site Z.
        factors: name of the site theta.
        start: first means of Z, shape (B, K).
        mean_of: the mean of q(Z_k) from k, b_k (B,) and a_k, shape (B,).
        sweeps: most of them; they stop where no mean changes by more than 1e-6.
    """
    q, X = run.posterior(factors), run.batch.values.to(start.dtype)  # type: ignore[attr-defined]
    tau = expected_precision(run)
    second = tau * (q.mean.mT @ q.mean + q.covariance_matrix.sum(0))  # (K, K)
    a, linear, mean = second.diagonal(), tau * (X @ q.mean), start.clone()
    coupling, b = second - a.diag(), torch.empty_like(start)
    for _sweep in range(sweeps):
        before = mean.clone()
        for k in range(start.shape[-1]):
            b[:, k] = linear[:, k] - mean @ coupling[:, k]
            mean[:, k] = mean_of(k, b[:, k], a[k])
        if float((mean - before).abs().max()) < 1e-6:
            break
    return Field(b, a, mean)


@offer("Z")
class GaussianLoadings(GammaLoadings):
    r"""q(Z_nk) under a Gaussian sum: the Gamma prior times the likelihood's Normal, by sweeps over k.

    .. math:: q(Z_{nk}) \propto Z_{nk}^{\beta p_k - 1}
              \exp\big((b_{nk} - E[e^{-f_{nk}}]) Z_{nk} - \tfrac12 a_k Z_{nk}^2\big)

    with a and b of `sweep_topics`. It is the best factor of its own, given the other topics' and theta.

    Args:
        words, factors: names of the sites X and theta.
        sweeps: over the topics.
    """

    summary = "Gamma times Normal, closed form under a Gaussian sum"

    def __init__(self, *, words: str = "X", factors: str = "theta", sweeps: int = 50) -> None:
        super().__init__("plain", max_sweeps=sweeps, topics=factors)
        self.words = words
        self.needs = (words, factors)
        self.moments = (self.scale, factors, "tau")

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        reason = gaussian_refusal(name, name, self.topics, self.words, prototype)
        return reason or self.prior_refusal(name, prototype)

    @torch.no_grad()
    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        _, exp_neg_f = self._moments_of_f(prior, run)
        c = prior.concentration.expand_as(exp_neg_f)

        def mean_of(k: int, b: Tensor, a: Tensor) -> Tensor:
            return ModifiedHalfNormal(c[:, k], a, b - exp_neg_f[:, k]).mean

        field = run.held.get(name)
        if field is None:
            start = run.started[name].mean if name in run.started else torch.zeros_like(exp_neg_f)
            field = sweep_topics(run, self.topics, start, mean_of, self.max_sweeps)
        run.local[name] = field
        return ModifiedHalfNormal(c, field.quadratic, field.linear - exp_neg_f)

    @staticmethod
    def _entropy(q: Any) -> Tensor:
        return q.entropy()


@expected.register(ModifiedHalfNormal)
def _(q: ModifiedHalfNormal, value: Tensor) -> Tensor:
    return q.mean


@expected_log.register(ModifiedHalfNormal)
def _(q: ModifiedHalfNormal, value: Tensor) -> Tensor:
    return q.expected_log
