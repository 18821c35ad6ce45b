"""Gaussian factors for real-valued rows: theta has a closed form, Z the generic posterior or one of its own."""

from __future__ import annotations

from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.batch import Batch
from pyro_prme.prototype import Prototype
from pyro_prme.rules import Rule, Run
from pyro_prme.swaps.factors import RowModel, dense, offer

__all__ = ["GaussianFactors", "GaussianPRME", "GaussianRows", "loading_moments"]


class GaussianPRME(RowModel):
    r"""Factor analysis with non-negative loadings from a random function.

    .. math::
        \theta_{kd} \sim N(0, s^2), \quad \tau \sim \mathrm{Gamma}(1, 1), \quad
        X_{nd} \sim N(\textstyle\sum_k Z_{nk}\theta_{kd}, 1/\tau)

    with Z as in the paper (eq. topic_model_z) and a point mass for tau. theta has one factor a column, (D | K), so that
    its posterior has the covariance of the K topics: there the closed form is exact.

    Args:
        theta_scale: s.
        args, kwargs: see `PRME`.
    """

    def __init__(self, *args: Any, theta_scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if theta_scale <= 0:
            raise ValueError(f"theta_scale is {theta_scale}: it must be positive.")
        self.theta_scale = theta_scale

    def sample_factors(self, topics: pyro.plate) -> Tensor:
        with pyro.plate("columns", self.vocab_size, dim=-1):
            prior = dist.Normal(0.0, self.theta_scale).expand([self.num_topics]).to_event(1)
            return pyro.sample("theta", prior).mT

    def sample_noise(self) -> Tensor:
        """tau ~ Gamma(1, 1), a number."""
        return pyro.sample("tau", dist.Gamma(torch.ones(()), 1.0))

    def sample_rows(self, Z: Tensor, theta: Tensor, noise: Tensor | None, batch: Batch) -> Tensor:
        values = dense(batch, self.vocab_size)
        obs = None if values is None else values.unsqueeze(-2)
        assert noise is not None
        return pyro.sample("X", dist.Normal((Z @ theta).unsqueeze(-2), noise.rsqrt()).to_event(1), obs=obs)


def gaussian_refusal(name: str, loadings: str, factors: str, words: str, prototype: Prototype) -> str | None:
    """Why X is not N(Z theta', 1 / tau), or None when it is."""
    if words not in prototype or not {loadings, factors} <= set(prototype.names):
        return f"there are no sites {words}, {loadings} and {factors} of a factorisation."
    for draw in prototype:
        fn = draw.site(words)["fn"]
        base = getattr(fn, "base_dist", fn)
        Z, theta = draw.value(loadings), draw.value(factors)
        if not isinstance(base, torch.distributions.Normal):
            return f"{words} is {type(base).__name__}, not Normal."
        mean = (Z @ theta.mT).unsqueeze(-2) if Z.shape[-1] == theta.shape[-1] else Z.new_zeros(0)
        if base.loc.shape != mean.shape or not torch.allclose(base.loc, mean, rtol=1e-4, atol=1e-6):
            return f"the mean of {words} is not {loadings} times {factors}."
        if "tau" not in draw or not torch.allclose(base.scale, draw.value("tau").rsqrt().expand_as(base.scale)):
            return f"the precision of {words} is not a site tau."
        if draw.site(words)["scale"] != draw.site(loadings)["scale"] or draw.site(words)["mask"] is not None:
            return f"{words} and {loadings} are not scaled alike."
    others = prototype.children(name) - {words}
    return f"{' and '.join(sorted(others))} also depends on {name}, beside {words}." if others else None


def loading_moments(q: Distribution, value: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of Z, each (B, K); the drawn value and zero where they are not known."""
    if isinstance(q, torch.distributions.Bernoulli):
        return q.mean, q.variance
    if isinstance(q, torch.distributions.TransformedDistribution) and isinstance(q.base_dist, dist.Normal):
        probe = image = torch.tensor([-1.0, 0.0, 2.0])
        for transform in q.transforms:
            image = transform(image)
        if torch.allclose(image, probe.exp()):
            mean = (q.base_dist.loc + q.base_dist.variance / 2).exp()
            return mean, mean.square() * q.base_dist.variance.expm1()
    return value, torch.zeros_like(value)


@offer("theta")
class GaussianFactors(Rule):
    r"""q(theta_d) = N(m_d, Lambda^-1), Normal-Normal, moved by natural steps.

    .. math::
        \Lambda = I / s^2 + \tau \sum_n E[Z_n Z_n^\top], \quad \Lambda m_d = \tau \sum_n E[Z_n] X_{nd}

    Args:
        words, loadings: names of the sites X and Z.
    """

    summary = "Normal, natural step (Normal-Normal)"
    precision: Tensor
    shift: Tensor
    pending: Tensor
    pending_shift: Tensor

    def __init__(self, *, words: str = "X", loadings: str = "Z") -> None:
        super().__init__()
        self.words, self.loadings = words, loadings
        self.needs = (words,)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = prototype.site(name)["fn"]
        base = getattr(fn, "base_dist", fn)
        if not isinstance(base, torch.distributions.Normal) or fn.event_dim != 1:
            return f"the prior of {name} is {type(base).__name__}, not a Normal for every topic of a column."
        return gaussian_refusal(name, self.loadings, name, self.words, prototype)

    def setup(self, name: str, prototype: Prototype) -> None:
        fn = prototype.site(name)["fn"].base_dist
        num = fn.batch_shape[-1]
        self._prior = fn.loc / fn.variance, fn.variance.reciprocal()  # each (D, K)
        self.register_buffer("precision", torch.diag_embed(10 * self._prior[1]))  # (D, K, K)
        self.register_buffer("shift", 10 * self._prior[1] * prototype.value(name))  # (D, K)
        self.register_buffer("pending", torch.zeros(num, num), persistent=False)
        self.register_buffer("pending_shift", torch.zeros_like(self.shift), persistent=False)

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        mean = torch.linalg.solve(self.precision, self.shift)
        return dist.MultivariateNormal(mean, precision_matrix=self.precision)

    def placeholder(self, posterior: Any) -> Tensor:
        return posterior.mean

    @torch.no_grad()
    def gather(self, name: str, run: Run, scale: float | None = None) -> None:
        weight = run.scale(self.loadings) if scale is None else scale
        mean, variance = loading_moments(run.posterior(self.loadings), run.value(self.loadings))
        X = run.value(self.words).squeeze(-2)  # (B, D)
        tau = run.value("tau")
        self.pending += weight * tau * (mean.mT @ mean + variance.sum(0).diag())
        self.pending_shift += weight * tau * (X.mT @ mean)

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        self.precision.lerp_(torch.diag_embed(self._prior[1]) + self.pending, rate)
        self.shift.lerp_(self._prior[0] + self.pending_shift, rate)
        self.pending.zero_()
        self.pending_shift.zero_()

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        q, prior = run.posterior(name), run.prior(name).base_dist
        gap = (q.mean - prior.loc).square() + q.variance
        cross = -0.5 * (gap / prior.variance + (2 * torch.pi * prior.variance).log())
        return run.scaled_sum(name, cross.sum(-1) + q.entropy())


@offer("X")
class GaussianRows(Rule):
    r"""The expected log likelihood of Gaussian rows.

    .. math::
        E\Big[\big(X_{nd} - \textstyle\sum_k Z_{nk}\theta_{kd}\big)^2\Big] = (X_{nd} - z_n^\top m_d)^2
        + z_n^\top \Sigma_d z_n + \textstyle\sum_k \mathrm{Var}(Z_{nk}) (m_{kd}^2 + \Sigma_{d,kk})

    Args:
        loadings, factors: names of the sites Z and theta.
    """

    summary = "expected log likelihood (Normal)"
    observed = True

    def __init__(self, *, loadings: str = "Z", factors: str = "theta") -> None:
        super().__init__()
        self.loadings, self.factors = loadings, factors
        self.moments = (factors,)
        self.needs = (factors,)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        return gaussian_refusal(self.loadings, self.loadings, self.factors, name, prototype)

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        q = run.posterior(self.factors)
        z, variance = loading_moments(run.posterior(self.loadings), run.value(self.loadings))
        X, covariance = run.value(name).squeeze(-2), q.covariance_matrix  # (B, D), (D, K, K)
        square = (X - z @ q.mean.mT).square()  # (B, D)
        square = square + torch.einsum("bk,dkj,bj->bd", z, covariance, z)
        square = square + variance @ (q.mean.square() + q.variance).mT
        tau = run.value("tau")
        value = 0.5 * ((tau / (2 * torch.pi)).log() - tau * square)
        return run.scaled_sum(name, value.sum(-1, keepdim=True))
