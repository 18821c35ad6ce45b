"""Poisson factorisation of counts: the likelihood is swapped and every closed form stays."""

from __future__ import annotations

from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.checks import choice
from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.expectations import expected, expected_log, expected_log_rows
from pyro_prme.equations.updates import assignment_probabilities
from pyro_prme.kernels import LocalStep
from pyro_prme.prototype import Prototype
from pyro_prme.rules import DirichletTopics, GammaLoadings, Local, Rule, Run
from pyro_prme.swaps.conjugate import ConjugateRule
from pyro_prme.swaps.factors import FactorModel, dense, offer, product_refusal

__all__ = ["GammaFactors", "PoissonLoadings", "PoissonPRME", "PoissonRows", "PoissonTopics"]


class PoissonPRME(FactorModel):
    r"""Poisson factorisation with a random function prior on the loadings.

    .. math:: X_{nd} \sim \mathrm{Poisson}(\textstyle\sum_k Z_{nk} \theta_{kd})

    with Z as in the paper (eq. topic_model_z): nothing normalises Z, so that a document's length speaks of it.

    Recovered: Dirichlet factors up to their order, every cosine above 0.95, from 300 rows of about four counts, by the
    start of `Trainer`; random starts (`fit`) often end in poor optima.

    Args:
        factors: "dirichlet" for theta_k ~ Dir(gamma0), "gamma" for theta_kd ~ Gamma(gamma0, rate = gamma0 D).
        args, kwargs: see `PRME`.
    """

    def __init__(self, *args: Any, factors: str = "dirichlet", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice("factors", factors, ("dirichlet", "gamma"))
        self.factors = factors

    def sample_theta(self) -> Tensor:
        if self.factors == "dirichlet":
            return super().sample_theta()
        rate = self.gamma0 * self.vocab_size
        return pyro.sample("theta", dist.Gamma(self.gamma0, rate).expand([self.vocab_size]).to_event(1))

    def sample_rows(self, Z: Tensor, theta: Tensor, noise: Tensor | None, batch: Batch) -> Tensor:
        values = dense(batch, self.vocab_size)
        obs = None if values is None else values.unsqueeze(-2)
        rate = (Z @ theta).unsqueeze(-2).clamp(min=torch.finfo(Z.dtype).tiny)  # (B, 1, D)
        return pyro.sample("X", dist.Poisson(rate).to_event(1), obs=obs)


def poisson_refusal(name: str, loadings: str, topics: str, words: str, prototype: Prototype) -> str | None:
    """Why X is not Poisson(Z theta), or None when it is."""
    return product_refusal(name, (loadings, topics, words), prototype, torch.distributions.Poisson, "rate")


def elog_rows(run: Run, topics: str) -> Tensor:
    """E ln theta of the batch's words, word-major, shape (W, K)."""
    q, value = run.posterior(topics), run.value(topics)
    if isinstance(q, torch.distributions.Dirichlet):
        return expected_log_rows(q, value, run.batch.words)
    return expected_log(q, value).mT[run.batch.words]


def factor_totals(run: Run, topics: str) -> Tensor:
    """The sum over columns of E theta, shape (K,): one for Dirichlet factors."""
    q = run.posterior(topics)
    if isinstance(q, torch.distributions.Dirichlet):
        return torch.ones(q.batch_shape, dtype=q.concentration.dtype)
    return expected(q, run.value(topics)).sum(-1)


@offer("Z")
class PoissonLoadings(GammaLoadings):
    r"""q(Z_nk) under a Poisson sum, by shares phi of every count.

    .. math::
        q(Z_{nk}) = \mathrm{Gamma}\Big(\beta p_k + \sum_d X_{nd} \phi_{ndk},\;
        E[e^{-f_{nk}}] + \sum_d E[\theta_{kd}]\Big), \quad
        \phi_{ndk} \propto \exp(E \ln Z_{nk} + E \ln \theta_{kd})

    It is eq. update_z with the slope M_n / epsilon_n replaced by the factors' totals, and needs no epsilon.

    Args:
        objective, max_sweeps, tolerance, scale, topics: see `GammaLoadings`.
        words: name of the site X.
    """

    summary = "Gamma, closed form under a Poisson sum"

    def __init__(self, objective: str = "profiled", *, max_sweeps: int = 50, words: str = "X", **kwargs: Any) -> None:
        super().__init__(objective, max_sweeps=max_sweeps, **kwargs)
        self.words = words
        self.needs = (words,)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        reason = poisson_refusal(name, name, self.topics, self.words, prototype)
        return reason or self.prior_refusal(name, prototype)

    @torch.no_grad()
    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        _, exp_neg_f = self._moments_of_f(prior, run)
        rate = (exp_neg_f + factor_totals(run, self.topics)).expand(run.batch.size, -1)
        c = prior.concentration.expand_as(rate)
        held = run.held.get(name)
        step, elog_theta = self._sweeps(c, rate, run) if held is None else held
        run.local[name] = Local(step, elog_theta)
        return dist.Gamma(c + step.counts, rate, validate_args=False)

    def _sweeps(self, c: Tensor, rate: Tensor, run: Run) -> Local:
        batch, elog_theta = run.batch, elog_rows(run, self.topics)
        rows, length = batch.document, batch.length.unsqueeze(-1)
        a = c + length / c.shape[-1]
        elog, going = a.digamma() - rate.log(), torch.ones_like(length, dtype=torch.bool)
        for _sweep in range(self.max_sweeps):
            logits = elog[rows] + elog_theta[batch.local_word]  # (E, K)
            phi = assignment_probabilities(elog[rows], elog_theta[batch.local_word])
            weighted = batch.count.unsqueeze(-1) * phi
            counts = torch.zeros_like(a).index_add_(0, rows, weighted)
            change, a = (c + counts - a).abs().sum(-1, keepdim=True), c + counts
            going = going & (change > self.tolerance * length)  # a document stops by its own test, whatever its batch
            if not bool(going.any()):
                break
            elog = torch.where(going, a.digamma() - rate.log(), elog)
        statistics = torch.zeros_like(elog_theta).index_add_(0, batch.local_word, weighted)
        zero = torch.zeros(batch.size)
        step = LocalStep(counts, a, rate, zero, elog, logits.logsumexp(-1), statistics, zero.long())
        return Local(step, elog_theta)

    def slope(self, run: Run, step: LocalStep) -> Tensor:
        return factor_totals(run, self.topics).detach()


@offer("X")
class PoissonRows(Rule):
    r"""The expected log likelihood of Poisson rows, bounded by the shares phi.

    .. math::
        E \ln p(X_n) \geq \sum_d X_{nd} \sum_k \phi_{ndk} (E \ln Z_{nk} + E \ln \theta_{kd} - \ln \phi_{ndk})
        - \sum_k E[Z_{nk}] \sum_d E[\theta_{kd}] - \sum_d \ln X_{nd}!

    Args:
        loadings, topics: names of the sites Z and theta.
    """

    summary = "expected log likelihood, bounded by the topics' shares"
    observed = True

    def __init__(self, *, loadings: str = "Z", topics: str = "theta") -> None:
        super().__init__()
        self.loadings, self.topics = loadings, topics
        self.moments = (loadings, topics)
        self.needs = (loadings,)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        return poisson_refusal(self.loadings, self.loadings, self.topics, name, prototype)

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        batch, (step, elog_theta) = run.batch, run.local[self.loadings]
        q = run.posterior(self.loadings)
        entropy = (
            (batch.count * step.log_normalizer).sum()
            - (step.counts * step.elog_loadings).sum()
            - (step.statistics * elog_theta).sum()
        )
        elog = (step.counts * expected_log(q, run.value(self.loadings))).sum()
        elog = elog + (step.statistics * elog_rows(run, self.topics)).sum()
        total = (q.mean * factor_totals(run, self.topics)).sum()
        return run.scale(name) * (entropy + elog - total - (batch.count + 1).lgamma().sum())


@offer("theta")
class PoissonTopics(DirichletTopics):
    """q(theta_k) = Dir(gamma0 + counts) under a Poisson sum: the statistics are those of the topic model."""

    summary = "Dirichlet, natural step under a Poisson sum"

    def __init__(self, *, words: str = "X", loadings: str = "Z") -> None:
        super().__init__(words=words, loadings=loadings)
        self.needs = (words, loadings)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        return poisson_refusal(name, self.loadings, name, self.words, prototype) or super().refusal(name, prototype)


@offer("theta")
class GammaFactors(ConjugateRule):
    r"""q(theta_kd) = Gamma, moved by natural steps.

    .. math:: q(\theta_{kd}) = \mathrm{Gamma}\Big(a + \sum_n X_{nd}\phi_{ndk},\; b + \sum_n E[Z_{nk}]\Big)

    Args:
        words, loadings: names of the sites X and Z.
    """

    summary = "Gamma, natural step under a Poisson sum"
    natural = ("concentration", "rate")  # each (K, D)
    concentration: Tensor
    rate: Tensor

    def __init__(self, *, words: str = "X", loadings: str = "Z") -> None:
        super().__init__(words=words, loadings=loadings)
        self.needs = (words, loadings)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = getattr(prototype.site(name)["fn"], "base_dist", None)
        if not isinstance(fn, torch.distributions.Gamma):
            return f"the prior of {name} is {type(prototype.site(name)['fn']).__name__}, not Gamma for every column."
        return poisson_refusal(name, self.loadings, name, self.words, prototype)

    def natural_prior(self, prior: Any) -> tuple[Tensor, ...]:
        return prior.base_dist.concentration, prior.base_dist.rate

    def start(self, prior: Any, value: Tensor) -> tuple[Tensor, ...]:
        start = 1 + torch.rand_like(value)
        return start, start.sum(-1, keepdim=True).expand_as(value)

    def statistics(self, name: str, run: Run) -> tuple[Tensor, ...]:
        shares = torch.zeros_like(self.concentration)
        shares[:, run.batch.words] = run.local[self.loadings].step.statistics.mT
        return shares, run.posterior(self.loadings).mean.sum(0).unsqueeze(-1)

    def build(self, *natural: Tensor) -> Distribution:
        concentration, rate = natural
        return dist.Gamma(concentration, rate).to_event(1)
