"""The fallback for continuous sites without a closed form: a Normal on the unconstrained scale, moved by gradients."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from pyro import distributions as dist
from torch import Tensor, nn
from torch.distributions import Distribution, biject_to
from torch.distributions.transforms import AffineTransform, ComposeTransform, ExpTransform

from pyro_prme.conjugacy import Structure
from pyro_prme.conjugacy.families.base import unwrapped
from pyro_prme.inference.claims import Claim, OneSiteRule, OpenClaim

__all__ = ["FreeNormal", "MeanFieldNormal"]

_INITIAL_SCALE = 0.1  # standard deviation, on the unconstrained scale


class MeanFieldNormal(OneSiteRule):
    """Claims the first free continuous site that belongs to no subsampled plate."""

    def claim(self, structure: Structure, name: str) -> Claim | str:
        site = structure.trace.nodes[name]
        if site["fn"].support.is_discrete:
            return "it is discrete and has no reparameterised gradient"
        if any(frame.size != frame.full_size for frame in site["cond_indep_stack"]):
            return "it belongs to a subsampled plate, and free parameters for each member are not kept"
        return FreeNormal(name, site["fn"], site["value"])


class FreeNormal(OpenClaim):
    """A Normal with a free location and scale for each element, on the unconstrained scale of the prior's support.

    Args:
        name: of the site.
        prior: its prior.
        value: a value of it, from which it starts where the prior has neither a median nor a mean.
    """

    def __init__(self, name: str, prior: Any, value: Tensor) -> None:
        super().__init__()
        self.sites = (name,)
        free = biject_to(prior.support).inv(middle_of(prior, value))
        self._transform = biject_to(prior.support)
        self.loc = nn.Parameter(free.detach().clone())
        self.log_scale = nn.Parameter(torch.full_like(free, _INITIAL_SCALE).log())

    def value(self) -> Tensor:
        """Its location, on the site's own scale."""
        return self._transform(self.loc)

    @torch.no_grad()
    def set(self, value: Tensor) -> None:
        """Moves its location."""
        self.loc.copy_(self._transform.inv(value))

    def title(self, name: str) -> str:
        return "Normal, reparameterised gradient"

    def posterior(self, name: str, prior: Any, context: Any) -> Distribution:
        loc = self.loc if torch.is_grad_enabled() else self.loc.detach()
        return normal_on_support(prior, loc, self.log_scale.exp())


def normal_on_support(prior: Any, loc: Tensor, scale: Tensor) -> Distribution:
    """A Normal on the unconstrained scale of the prior's support; plain where the support is the real line."""
    transform = biject_to(prior.support)
    base = dist.Normal(loc, scale).to_event(transform.domain.event_dim)
    event = prior.event_dim - transform.codomain.event_dim
    if is_real(prior):
        return base.to_event(event)
    if _is_exp(transform):  # then it has a mean and a variance
        return dist.LogNormal(loc, scale).to_event(event)
    return dist.TransformedDistribution(base, transform.with_cache()).to_event(event)


def _is_exp(transform: Any) -> bool:
    """Whether a transform to the positive numbers is the exponential."""
    parts = transform.parts if isinstance(transform, ComposeTransform) else [transform]
    return [type(part) for part in parts if not _is_nothing(part)] == [ExpTransform]


def _is_nothing(transform: Any) -> bool:
    return isinstance(transform, AffineTransform) and bool(transform.loc == 0) and bool(transform.scale == 1)


def is_real(prior: Any) -> bool:
    """Whether the support is all of the real line, or of a space of real numbers."""
    if prior.support.is_discrete:
        return False
    transform = biject_to(prior.support)
    shape = (2,) * max(transform.domain.event_dim, 1)
    probe = torch.full(shape, -1.0)
    with suppress(Exception):
        return bool((transform(probe) == probe).all())
    return False


def middle_of(prior: Any, value: Tensor) -> Tensor:
    """The prior's median, which a long tail does not move, else its mean, else the value given."""
    for middle in (lambda: unwrapped(prior).icdf(torch.full_like(value, 0.5)), lambda: prior.mean):
        with suppress(Exception):
            found = middle()
            inside = bool(torch.isfinite(found).all()) and bool(prior.support.check(found).all())
            if inside and found.shape == value.shape:
                return found
    return value
