"""Gaussian factors for real-valued rows: theta and tau are conjugate, and Z has a closed form of its own."""

from __future__ import annotations

import math
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.checks import positive
from pyro_prme.conjugacy.families.half_normal import ModifiedHalfNormal
from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.expectations import expected, expected_log
from pyro_prme.models.topic_model import Plates
from pyro_prme.prototype import Draw, Prototype
from pyro_prme.rules import Point, Rule, Run
from pyro_prme.swaps.conjugate import ConjugateRule
from pyro_prme.swaps.factors import RowModel, dense, offer, product_refusal

__all__ = ["GammaPrecision", "GaussianFactors", "GaussianPRME", "GaussianRows", "expected_squares", "loading_moments"]


class GaussianPRME(RowModel):
    r"""Factor analysis with non-negative loadings from a random function.

    .. math::
        \theta_{kd} \sim N(0, s^2), \quad \tau \sim \mathrm{Gamma}(1, 1), \quad
        X_{nd} \sim N(\textstyle\sum_k Z_{nk}\theta_{kd}, 1/\tau)

    with Z as in the paper (eq. topic_model_z). theta has one factor a column, (D | K), so that its posterior has the
    covariance of the K topics: there the closed form is exact.

    Recovered: tau, within a tenth from 1800 cells (three standard errors), and the factors up to their order and scale,
    every cosine above 0.95 from 100 rows, by the best of three starts; a factor's scale is told from its loadings' by
    the priors alone.

    Args:
        theta_scale: s.
        args, kwargs: see `PRME`.
    """

    def __init__(self, *args: Any, theta_scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        positive("theta_scale", theta_scale)
        self.theta_scale = theta_scale

    def sample_table(self, plates: Plates) -> Tensor:
        with pyro.plate("columns", self.vocab_size, dim=-1):
            prior = dist.Normal(0.0, self.theta_scale).expand([self.num_topics]).to_event(1)
            return self.by_topic(pyro.sample("theta", prior))

    def by_topic(self, theta: Tensor) -> Tensor:
        return theta.mT

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

    def precision_refusal(draw: Draw, base: Any) -> str | None:
        if "tau" not in draw or not torch.allclose(base.scale, draw.value("tau").rsqrt().expand_as(base.scale)):
            return f"the precision of {words} is not a site tau."
        return None

    sites, normal = (loadings, factors, words), torch.distributions.Normal
    return product_refusal(name, sites, prototype, normal, "mean", by_column=True, also=precision_refusal)


def loading_moments(q: Distribution, value: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of Z, each (B, K); the drawn value and zero where they are not known."""
    if isinstance(q, torch.distributions.Bernoulli | torch.distributions.Gamma | ModifiedHalfNormal):
        return q.mean, q.variance
    if isinstance(q, torch.distributions.TransformedDistribution) and isinstance(q.base_dist, dist.Normal):
        probe = image = torch.tensor([-1.0, 0.0, 2.0])
        for transform in q.transforms:
            image = transform(image)
        if torch.allclose(image, probe.exp()):
            mean = (q.base_dist.loc + q.base_dist.variance / 2).exp()
            return mean, mean.square() * q.base_dist.variance.expm1()
    return value, torch.zeros_like(value)


def expected_squares(run: Run, loadings: str, factors: str, words: str) -> Tensor:
    r"""Expected squared residuals, shape (B, D).

    .. math::
        E\Big[\big(X_{nd} - \textstyle\sum_k Z_{nk}\theta_{kd}\big)^2\Big] = (X_{nd} - z_n^\top m_d)^2
        + z_n^\top \Sigma_d z_n + \textstyle\sum_k \mathrm{Var}(Z_{nk}) (m_{kd}^2 + \Sigma_{d,kk})
    """
    q, X = run.posterior(factors), run.value(words).squeeze(-2)  # (B, D)
    z, variance = loading_moments(run.posterior(loadings), run.value(loadings))
    square = (X - z @ q.mean.mT).square()
    square = square + torch.einsum("bk,dkj,bj->bd", z, q.covariance_matrix, z)
    return square + variance @ (q.mean.square() + q.variance).mT


def expected_precision(run: Run) -> Tensor:
    """E tau, a number."""
    return expected(run.posterior("tau"), run.value("tau"))


@offer("theta")
class GaussianFactors(ConjugateRule):
    r"""q(theta_d) = N(m_d, Lambda^-1), Normal-Normal, moved by natural steps.

    .. math::
        \Lambda = I / s^2 + E[\tau] \sum_n E[Z_n Z_n^\top], \quad \Lambda m_d = E[\tau] \sum_n E[Z_n] X_{nd}

    Args:
        words, loadings: names of the sites X and Z.
    """

    summary = "Normal, natural step (Normal-Normal)"
    natural = ("precision", "shift")  # (D, K, K) and (D, K)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = prototype.site(name)["fn"]
        base = getattr(fn, "base_dist", fn)
        if not isinstance(base, torch.distributions.Normal) or fn.event_dim != 1:
            return f"the prior of {name} is {type(base).__name__}, not a Normal for every topic of a column."
        return gaussian_refusal(name, self.loadings, name, self.words, prototype)

    def natural_prior(self, prior: Any) -> tuple[Tensor, ...]:
        loc, variance = prior.base_dist.loc, prior.base_dist.variance
        return torch.diag_embed(variance.reciprocal()), loc / variance

    def start(self, prior: Any, value: Tensor) -> tuple[Tensor, ...]:
        precision = 10 * prior.base_dist.variance.reciprocal()
        return torch.diag_embed(precision), precision * value

    def statistics(self, name: str, run: Run) -> tuple[Tensor, ...]:
        mean, variance = loading_moments(run.posterior(self.loadings), run.value(self.loadings))
        X, tau = run.value(self.words).squeeze(-2), expected_precision(run)  # (B, D)
        return tau * (mean.mT @ mean + variance.sum(0).diag()), tau * (X.mT @ mean)

    def build(self, *natural: Tensor) -> Distribution:
        precision, shift = natural
        return dist.MultivariateNormal(torch.linalg.solve(precision, shift), precision_matrix=precision)

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        q, prior = run.posterior(name), run.prior(name).base_dist
        gap = (q.mean - prior.loc).square() + q.variance
        cross = -0.5 * (gap / prior.variance + (2 * torch.pi * prior.variance).log())
        return run.scaled_sum(name, cross.sum(-1) + q.entropy())


@offer("tau")
class GammaPrecision(ConjugateRule):
    r"""q(tau) = Gamma, Normal-Gamma, moved by natural steps.

    .. math::
        q(\tau) = \mathrm{Gamma}\Big(a + \tfrac12 N D,\;
        b + \tfrac12 \sum_{nd} E\big[(X_{nd} - \textstyle\sum_k Z_{nk}\theta_{kd})^2\big]\Big)

    A point moved by Adam is slow here: the first residuals are large, and Adam's step is divided by what it remembers
    of their gradient.

    Args:
        words, loadings, factors: names of the sites X, Z and theta.
    """

    summary = "Gamma, natural step (Normal-Gamma)"
    natural = ("concentration", "rate")

    def __init__(self, *, words: str = "X", loadings: str = "Z", factors: str = "theta") -> None:
        super().__init__(words=words, loadings=loadings)
        self.factors = factors
        self.needs = (words, factors)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = prototype.site(name)["fn"]
        if not isinstance(fn, torch.distributions.Gamma) or fn.batch_shape:
            return f"the prior of {name} is not one Gamma."
        return gaussian_refusal(name, self.loadings, self.factors, self.words, prototype)

    def natural_prior(self, prior: Any) -> tuple[Tensor, ...]:
        return prior.concentration, prior.rate

    def start(self, prior: Any, value: Tensor) -> tuple[Tensor, ...]:
        return prior.concentration, prior.rate

    def statistics(self, name: str, run: Run) -> tuple[Tensor, ...]:
        squares = expected_squares(run, self.loadings, self.factors, self.words)
        return torch.tensor(squares.numel() / 2), squares.sum() / 2

    def build(self, *natural: Tensor) -> Distribution:
        concentration, rate = natural
        return dist.Gamma(concentration, rate)


offer("tau")(Point)


@offer("X")
class GaussianRows(Rule):
    r"""The expected log likelihood of Gaussian rows.

    .. math::
        \tfrac12 \sum_d \Big(E[\ln\tau] - \ln 2\pi
        - E[\tau]\, E\big[(X_{nd} - \textstyle\sum_k Z_{nk}\theta_{kd})^2\big]\Big)

    Args:
        loadings, factors: names of the sites Z and theta.
    """

    summary = "expected log likelihood (Normal)"
    observed = True

    def __init__(self, *, loadings: str = "Z", factors: str = "theta") -> None:
        super().__init__()
        self.loadings, self.factors = loadings, factors
        self.moments = (loadings, factors, "tau")
        self.needs = (factors,)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        return gaussian_refusal(self.loadings, self.loadings, self.factors, name, prototype)

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        square = expected_squares(run, self.loadings, self.factors, name)
        elog = expected_log(run.posterior("tau"), run.value("tau"))
        value = 0.5 * (elog - math.log(2 * math.pi) - expected_precision(run) * square)
        return run.scaled_sum(name, value.sum(-1, keepdim=True))
