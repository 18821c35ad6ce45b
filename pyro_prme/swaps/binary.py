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

__all__ = ["BernoulliLoadings", "BinaryPRME"]


class BinaryPRME(GaussianPRME):
    r"""Sparse binary features of real-valued rows.

    .. math::
        Z_{nk} \sim \mathrm{Bernoulli}(\sigma(\ln(\beta p_k) + f_{nk})), \quad
        X_{nd} \sim N(\textstyle\sum_k Z_{nk}\theta_{kd}, 1/\tau)

    The odds of a feature are beta p_k exp(f_nk), so that a row has finitely many of them as K grows.
    """

    def sample_Z(self, V: Tensor, f: Tensor) -> Tensor:
        return pyro.sample("Z", dist.Bernoulli(logits=self.concentration(V).log() + f))


@offer("Z")
class BernoulliLoadings(Rule):
    r"""q(Z_nk | f_n) = Bernoulli(nu_nk) under a Gaussian sum, by sweeps over k.

    .. math::
        \mathrm{logit}\,\nu_{nk} = \ln(\beta p_k) + f_{nk} + \tau \sum_d \Big( m_{kd} (X_{nd}
        - \sum_{j \ne k} \nu_{nj} m_{jd}) - \tfrac12 (m_{kd}^2 + \Sigma_{d,kk})
        - \sum_{j \ne k} \nu_{nj} \Sigma_{d,kj} \Big)

    It is given the drawn f, so that q(f) q(Z | f) keeps the two together and the bound stays one.

    Args:
        words, factors: names of the sites X and theta.
        sweeps: over the topics.
    """

    summary = "Bernoulli, closed form under a Gaussian sum, given the drawn f"

    def __init__(self, *, words: str = "X", factors: str = "theta", sweeps: int = 20) -> None:
        super().__init__()
        self.words, self.factors, self.sweeps = words, factors, sweeps
        self.needs = (words, factors)
        self.moments = (factors,)

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
        q, X = run.posterior(self.factors), run.batch.values.to(prior.logits.dtype)  # type: ignore[attr-defined]
        tau = run.value("tau")
        second = (q.mean.mT @ q.mean) + q.covariance_matrix.sum(0)  # (K, K)
        linear = prior.logits + tau * (X @ q.mean - 0.5 * second.diagonal())  # (B, K)
        logits, coupling = prior.logits.clone(), second - second.diagonal().diag()
        for _sweep in range(self.sweeps):
            before = logits.clone()
            for k in range(logits.shape[-1]):
                logits[:, k] = linear[:, k] - tau * (logits.sigmoid() @ coupling[:, k])
            if float((logits - before).abs().max()) < 1e-8:
                break
        run.local[name] = logits
        return logits
