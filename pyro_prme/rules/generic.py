"""The fallback for continuous sites without a closed form: a reparameterised Normal on the unconstrained scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from pyro import distributions as dist
from torch import Tensor, nn
from torch.distributions import Distribution, biject_to

from pyro_prme.corpora.batch import Batch
from pyro_prme.prototype import Prototype
from pyro_prme.rules.base import Rule, Run
from pyro_prme.rules.points import check_topics, is_real, rows_of_words

__all__ = ["EncodedNormal", "MeanFieldNormal"]

_INITIAL_SCALE = 0.1
_REACH = 4.0  # of a logarithm of a scale from the initial one


def _discrete(name: str, prototype: Prototype) -> str | None:
    if prototype.site(name)["fn"].support.is_discrete:
        return f"{name} is discrete and has no reparameterised gradient."
    return None


def _normal(prior: Any, loc: Tensor, log_scale: Tensor) -> Distribution:
    """A Normal on the unconstrained scale of the prior's support; plain where the support is the real line."""
    transform = biject_to(prior.support)
    base = dist.Normal(loc, log_scale.exp()).to_event(transform.domain.event_dim)
    event = prior.event_dim - base.event_dim
    if is_real(prior):
        return base.to_event(event)
    return dist.TransformedDistribution(base, transform.with_cache()).to_event(event)


def _middle(prior: Any, value: Tensor) -> Tensor:
    """The prior's mean, else its median, else the value given.

    From a draw of a horseshoe's scales, topics with small ones would take very long to get away from 0.
    """
    base = prior
    while isinstance(base, torch.distributions.Independent):
        base = base.base_dist
    for middle in (lambda: prior.mean, lambda: base.icdf(torch.full_like(value, 0.5))):
        with suppress(NotImplementedError):
            found = middle()
            if bool(torch.isfinite(found).all()) and bool(prior.support.check(found).all()):
                return found
    return value


class MeanFieldNormal(Rule):
    """A mean-field Normal for a global site."""

    summary = "mean-field Normal, reparameterised gradient"
    generic = True

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        if any(frame.size != frame.full_size for frame in prototype.site(name)["cond_indep_stack"]):
            return f"{name} belongs to a subsampled plate: free parameters for each member are not kept."
        return _discrete(name, prototype)

    def setup(self, name: str, prototype: Prototype) -> None:
        site = prototype.site(name)
        free = biject_to(site["fn"].support).inv(_middle(site["fn"], site["value"]))
        self.loc = nn.Parameter(free.detach().clone())
        self.log_scale = nn.Parameter(torch.full_like(free, _INITIAL_SCALE).log())

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        return _normal(prior, self.loc, self.log_scale)


class EncodedNormal(Rule):
    """A Normal whose location and scale a network reads off each document.

    The scale lies between 0.002 and 5.5: without a bound, one bad step of the network makes it overflow.

    Args:
        head: makes an encoder with the given number of outputs for each document.
    """

    summary = "Normal from an encoder head, reparameterised gradient"
    generic = True

    def __init__(self, head: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self._head = head

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        return _discrete(name, prototype)

    def setup(self, name: str, prototype: Prototype) -> None:
        fn = prototype.site(name)["fn"]
        self._shape = biject_to(fn.support).inv(prototype.value(name)).shape[1:]
        self.encoder = self._head(2 * self._shape.numel())
        check_topics(self.encoder, prototype)

    def locations(self, batch: Batch, topics: Tensor | None) -> Tensor:
        """The location of each document, one row each, on the unconstrained scale."""
        return self.encoder(batch, topics).chunk(2, -1)[0]

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        site = getattr(self.encoder, "topics_site", None)
        out = self.encoder(run.batch, rows_of_words(run, site) if site else None)  # (B, 2 size)
        loc, log_scale = (part.reshape(-1, *self._shape) for part in out.chunk(2, -1))
        return _normal(prior, loc, _REACH * (log_scale / _REACH).tanh() + math.log(_INITIAL_SCALE))
