"""Hyper-priors: alpha, beta, gamma0 and the like learned with the rest. Open it to make a number of a model a site."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.corpora.batch import Batch
from pyro_prme.models.prme import PRME
from pyro_prme.models.topic_model import TopicModel
from pyro_prme.rules import Point
from pyro_prme.swaps.factors import offer
from pyro_prme.swaps.priors import PitmanYorSticks

__all__ = ["HyperPriorPRME", "HyperPriors", "LearnedPitmanYorPRME", "LearnedPitmanYorSticks"]

_SIZES = ("num_topics", "vocab_size", "num_documents", "h_dim", "ell_dim")

for _name in ("alpha", "beta", "gamma0", "discount"):
    offer(_name)(Point)


class HyperPriors(TopicModel):
    """Mix-in that turns numbers of a model into sites: give it first, as in `class Learned(HyperPriors, HDP)`.

    A run of the model draws each of them and puts it in the number's place; everything else is the model's own. The
    plan takes points for alpha, beta, gamma0 and discount, and a proper posterior for others. With a prior of `h_scale`
    or `ell_scale` it has one for h or ell as well: as points these would shrink together with their scale.

    Args:
        priors: the prior of each number, by its name.
        args, kwargs: of the model.
    """

    def __init__(self, *args: Any, priors: Mapping[str, Any], **kwargs: Any) -> None:
        for kind in itertools.takewhile(lambda kind: kind is not HyperPriors, type(self).__mro__):
            if "forward" in vars(kind) and not issubclass(kind, HyperPriors):
                raise ValueError(f"{kind.__name__} stands before HyperPriors, which must be given first.")
        super().__init__(*args, **kwargs)
        for name, prior in priors.items():
            given = getattr(self, name, None)
            if not isinstance(given, float | int) or isinstance(given, bool):
                raise ValueError(f"priors has {name!r}, and the model has no number of this name.")
            if name in _SIZES:
                raise ValueError(f"priors has {name!r}, which is a size of the model and cannot be drawn.")
            if not isinstance(prior, torch.distributions.Distribution):
                raise ValueError(f"The prior of {name} is {prior!r}: give a distribution, such as Gamma(2, 1).")
            if shape := tuple(prior.batch_shape + prior.event_shape):
                raise ValueError(f"The prior of {name} has shape {shape}: it must be of one number.")
            if not getattr(prior.support, "lower_bound", -1) >= 0:
                raise ValueError(
                    f"The prior of {name} is {type(prior).__name__}, which may be negative: it must not be."
                )
        self._hyper = dict(priors)

    def forward(self, batch: Batch) -> Tensor:
        given = {name: getattr(self, name) for name in self._hyper}
        for name, prior in self._hyper.items():
            setattr(self, name, pyro.sample(name, prior).to(torch.get_default_dtype()))
        try:
            return super().forward(batch)
        finally:
            for name, value in given.items():
                setattr(self, name, value)


def _gamma(mean: float) -> dist.Gamma:
    """Gamma with shape 2, whose density is zero at zero."""
    return dist.Gamma(torch.tensor(2.0), torch.tensor(2.0 / mean))


class HyperPriorPRME(HyperPriors, PRME):
    r"""The paper's model with its three numbers learned.

    .. math:: \alpha, \beta, \gamma_0 \sim \mathrm{Gamma}(2, 2 / \mathrm{mean})

    with means 2, 5 and 0.2, each a point. gamma0 has its gradient from the Dirichlet terms, beta from the bound with
    q(Z) maximised out, alpha from the sticks.

    Recovered, with topics that are known and in their order (f = 0, K = 20): alpha, within a tenth of what the true
    sticks say. beta ends at the maximum of the bound, which lies above the truth (5.5 to 6.5 for 5): a document's part
    is about ln((beta + M) / beta) / 2 below its exact value. gamma0 is recovered where topics share few words (0.03, of
    300 words) and ends near 0.07 for 0.1. Not recovered: alpha from topics that a start has ordered by size.

    Args:
        priors: see `HyperPriors`.
        args, kwargs: see `PRME`.
    """

    def __init__(self, *args: Any, priors: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        default = {"alpha": _gamma(2.0), "beta": _gamma(5.0), "gamma0": _gamma(0.2)}
        super().__init__(*args, priors=default if priors is None else priors, **kwargs)


class LearnedPitmanYorSticks(HyperPriors, PitmanYorSticks):
    r"""Pitman-Yor sticks with their discount and concentration learned.

    .. math:: d \sim \mathrm{Beta}(1, 1), \quad \alpha \sim \mathrm{Gamma}(2, 1), \quad
              V_k \sim \mathrm{Beta}(1 - d, \alpha + k d)

    Recovered, with topics that are known and in their order (f = 0, K = 40): d, within 0.1 for 0.3 and 0.5; alpha,
    within a third of what the true sticks say. A d of 0 ends near 0.15.

    Args:
        priors: see `HyperPriors`.
        args, kwargs: see `PitmanYorSticks`.
    """

    def __init__(self, *args: Any, priors: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        default = {"discount": dist.Beta(torch.tensor(1.0), 1.0), "alpha": _gamma(2.0)}
        super().__init__(*args, priors=default if priors is None else priors, **kwargs)


class LearnedPitmanYorPRME(LearnedPitmanYorSticks, PRME):
    """PRME with sticks of a Pitman-Yor process whose discount and concentration are learned."""
