"""Bernoulli loadings: the paintbox binarised (paper, section 5.2), a discrete site that brings its own rule."""

from __future__ import annotations

from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.prototype import Prototype
from pyro_prme.rules import Rule, Run
from pyro_prme.swaps.factors import offer
from pyro_prme.swaps.gaussian import GaussianPRME, gaussian_refusal
from pyro_prme.swaps.gaussian_loadings import sweep_topics

__all__ = ["BernoulliLoadings", "BinaryPRME"]


class BinaryPRME(GaussianPRME):
    r"""Sparse binary features of real-valued rows.

    .. math::
        Z_{nk} \sim \mathrm{Bernoulli}(\sigma(\ln(\beta p_k) + f_{nk})), \quad
        X_{nd} \sim N(\textstyle\sum_k Z_{nk}\theta_{kd}, 1/\tau)

    The odds of a feature are beta p_k exp(f_nk), so that a row has finitely many of them as K grows.

    Recovered: tau, within a tenth from 1200 cells, by the start with the largest bound (`fit_best`); other starts end
    in poor optima that merge or split features, with a smaller tau.
    """

    def sample_Z(self, V: Tensor, f: Tensor) -> Tensor:
        return pyro.sample("Z", dist.Bernoulli(logits=self.concentration(V).log() + f))


@offer("Z")
class BernoulliLoadings(Rule):
    r"""q(Z_nk | f_n) = Bernoulli(nu_nk) under a Gaussian sum, by sweeps over k.

    .. math:: \mathrm{logit}\,\nu_{nk} = \ln(\beta p_k) + f_{nk} + b_{nk} - \tfrac12 a_k

    with a and b of `sweep_topics`. It is given the drawn f, so that q(f) q(Z | f) keeps the two together and the bound
    stays one.

    Args:
        words, factors: names of the sites X and theta.
        sweeps: over the topics.
    """

    summary = "Bernoulli, closed form under a Gaussian sum, given the drawn f"

    def __init__(self, *, words: str = "X", factors: str = "theta", sweeps: int = 20) -> None:
        super().__init__()
        self.words, self.factors, self.sweeps = words, factors, sweeps
        self.needs = (words, factors)
        self.moments = (factors, "tau")

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = prototype.site(name)["fn"]
        if not isinstance(fn, torch.distributions.Bernoulli):
            return f"the prior of {name} is {type(fn).__name__}, not Bernoulli."
        return gaussian_refusal(name, name, self.factors, self.words, prototype)

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        return dist.Bernoulli(logits=self._logits(name, prior, run), validate_args=False)

    @torch.no_grad()
    def _logits(self, name: str, prior: Any, run: Run) -> Tensor:
        if name in run.held:
            return run.held[name]

        def mean_of(k: int, b: Tensor, a: Tensor) -> Tensor:
            return (prior.logits[:, k] + b - a / 2).sigmoid()

        field = sweep_topics(run, self.factors, prior.probs, mean_of, self.sweeps)
        run.local[name] = prior.logits + field.linear - field.quadratic / 2
        return run.local[name]
