"""Moments of posterior factors, by family. A family without an entry is represented by its drawn value.

Open it to teach the closed-form rules a new posterior family: register one function per moment.
"""

from functools import singledispatch

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

__all__ = ["expected", "expected_exp_neg", "expected_log", "expected_log_rows"]


@singledispatch
def expected(q: Distribution, value: Tensor) -> Tensor:
    """E[x] under q, or the drawn value where the mean is not known."""
    return value


@singledispatch
def expected_log(q: Distribution, value: Tensor) -> Tensor:
    """E[ln x] under q, or the logarithm of the drawn value."""
    return value.log()


@singledispatch
def expected_exp_neg(q: Distribution, value: Tensor) -> Tensor:
    """E[exp(-x)] under q, or that of the drawn value."""
    return (-value).exp()


@singledispatch
def expected_log_rows(q: Distribution, value: Tensor, words: Tensor) -> Tensor:
    """E[ln theta_kd] for the words d only, word-major (W, K), or that of the drawn theta (K, D)."""
    return value.index_select(-1, words).clamp(min=torch.finfo(value.dtype).tiny).log().mT


for _moment in (expected, expected_log, expected_exp_neg):

    @_moment.register(torch.distributions.Independent)
    def _(q: torch.distributions.Independent, value: Tensor, _moment=_moment) -> Tensor:
        return _moment(q.base_dist, value)


@expected.register(torch.distributions.Normal)
@expected.register(torch.distributions.Gamma)
@expected.register(torch.distributions.Dirichlet)
def _(q: Distribution, value: Tensor) -> Tensor:
    return q.mean


@expected_log.register(torch.distributions.Gamma)
def _(q: dist.Gamma, value: Tensor) -> Tensor:
    return torch.digamma(q.concentration) - q.rate.log()


@expected_log.register(torch.distributions.Dirichlet)
def _(q: dist.Dirichlet, value: Tensor) -> Tensor:
    return torch.digamma(q.concentration) - torch.digamma(q.concentration.sum(-1, keepdim=True))


@expected_log.register(torch.distributions.LogNormal)
def _(q: dist.LogNormal, value: Tensor) -> Tensor:
    return q.loc


@expected_exp_neg.register(torch.distributions.Normal)
def _(q: dist.Normal, value: Tensor) -> Tensor:
    return (-q.loc + q.variance / 2).exp()


@expected_log_rows.register(torch.distributions.Dirichlet)
def _(q: dist.Dirichlet, value: Tensor, words: Tensor) -> Tensor:
    return torch.digamma(q.concentration.mT[words]) - torch.digamma(q.concentration.sum(-1))
