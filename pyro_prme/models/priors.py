"""Other priors of sticks, loadings and places: each class overrides one `pyro.sample`, and no rule comes with it.

A class without PRME in its name goes before any topic model, as in `class Mine(PitmanYorSticks, HDP)`.
"""

from __future__ import annotations

from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.checks import number, positive
from pyro_prme.models.prme import PRME, EmbeddedTopics
from pyro_prme.models.topic_model import TopicModel

__all__ = [
    "FiniteDirichletPRME",
    "FiniteDirichletSticks",
    "HorseshoePRME",
    "HorseshoePlaces",
    "LogNormalLoadings",
    "LogNormalPRME",
    "PitmanYorPRME",
    "PitmanYorSticks",
]


def _discount(name: str, value: Any) -> float:
    return number(name, value, least=0, below=1)


class PitmanYorSticks(TopicModel):
    r"""Weights with a power law: sticks of a Pitman-Yor process in place of the paper's eq. topic_model_z.

    .. math:: V_k \sim \mathrm{Beta}(1 - d, \alpha + k d)

    The density has no maximum at 0, so that a guide takes the point on the logit scale.

    Recovered, with topics that are known, from 300 documents of 60 words: p_k, within 0.05.

    Args:
        discount: d, at least 0 and below 1, or a prior of it; 0 is the paper's prior.
        args: by position, see `TopicModel`.
        kwargs: by name, see `TopicModel`.
    """

    discount: float | Tensor

    def __init__(self, *args: Any, discount: float | Distribution = 0.25, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_number("discount", discount, _discount)

    def sample_V(self) -> Tensor:
        """V_k ~ Beta(1 - d, alpha + k d), shape (K - 1,)."""
        k = torch.arange(1.0, self.num_topics)
        return pyro.sample("V", dist.Beta(1 - self.discount, self.alpha + k * self.discount))


class PitmanYorPRME(PitmanYorSticks, PRME):
    """PRME with sticks of a Pitman-Yor process."""


class FiniteDirichletSticks(TopicModel):
    r"""A finite model: p ~ Dir(alpha / K, ..., alpha / K), written by its sticks.

    .. math:: V_k \sim \mathrm{Beta}(\alpha / K, \alpha (1 - k / K))

    Recovered, with topics that are known, from 300 documents of 60 words: p_k, within 0.05.
    """

    def sample_V(self) -> Tensor:
        """V_k ~ Beta(alpha / K, alpha (1 - k / K)), shape (K - 1,)."""
        k = torch.arange(1.0, self.num_topics)
        share = self.alpha / self.num_topics
        return pyro.sample("V", dist.Beta(share, self.alpha - k * share))


class FiniteDirichletPRME(FiniteDirichletSticks, PRME):
    """PRME with weights from a finite Dirichlet distribution."""


class LogNormalLoadings(TopicModel):
    r"""Log-normal loadings, as in a correlated topic model.

    .. math:: Z_{nk} \sim \mathrm{LogNormal}(\ln(\beta p_k) + f_{nk}, s^2)

    They have no closed form: a guide gives them a Normal on the logarithmic scale, from a network.

    Args:
        spread: s.
        args: by position, see `TopicModel`.
        kwargs: by name, see `TopicModel`.
    """

    def __init__(self, *args: Any, spread: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spread = positive("spread", spread)

    def sample_Z(self, V: Tensor, f: Tensor) -> Tensor:
        """Z_nk ~ LogNormal(ln(beta p_k) + f_nk, s^2), shape (B, K)."""
        return pyro.sample("Z", dist.LogNormal(self.concentration(V).log() + f, self.spread))

    def mean_loadings(self, V: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return super().mean_loadings(V, mean, variance + self.spread**2)


class LogNormalPRME(LogNormalLoadings, PRME):
    """PRME with log-normal loadings."""


class HorseshoePlaces(EmbeddedTopics):
    r"""Topics of which few have an embedding: a horseshoe on ell.

    .. math:: \lambda_k \sim \mathrm{HalfCauchy}(1), \quad \ell_k \sim N(0, b \lambda_k^2 I)

    As points the two would be unbounded, ell_k = 0 and lambda_k towards 0: a guide refuses a point for ell, and both
    get a Normal.

    Recovered, with topics, h and f = h' ell known, from 150 documents of 60 words: ell within a fifth where it is not 0
    and below 0.2 where it is, and lambda_k within a third. It needs a scale of ell that means something: a decoder
    that is learned can scale ell as it likes, and then this prior and N(0, b) do not differ.
    """

    def sample_ell(self) -> Tensor:
        """ell_k ~ N(0, b lambda_k^2 I), shape (K, ell_dim)."""
        scale = pyro.sample("lambda", dist.HalfCauchy(torch.ones(())))  # (K,)
        prior = dist.Normal(0.0, self.ell_scale * scale.unsqueeze(-1)).expand([self.num_topics, self.ell_dim])
        return pyro.sample("ell", prior.to_event(1))


class HorseshoePRME(HorseshoePlaces, PRME):
    """PRME with a horseshoe on the topics' places."""
