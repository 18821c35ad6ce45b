"""A point mass at a free value, for sites that are asked to have one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, biject_to

from pyro_prme.conjugacy import Structure
from pyro_prme.inference.claims import Claim, OneSiteRule, OpenClaim
from pyro_prme.inference.rules.shrinking import shrinking

__all__ = ["FreePoint", "Point"]


class Point(OneSiteRule):
    """Claims the first free continuous site that belongs to no subsampled plate, as a point.

    The bound then has ln p(value) in it, with the Jacobian of the unconstrained scale where the density would have no
    maximum without it, and is a bound on ln p(X, value).

    Args:
        unconstrained: take the point on the unconstrained scale; None to decide by the prior.
        learning_rate: of its own, without weight decay; None for that of everything else.
    """

    def __init__(self, unconstrained: bool | None = None, *, learning_rate: float | None = None) -> None:
        self.unconstrained, self.learning_rate = unconstrained, learning_rate

    def claim(self, structure: Structure, name: str) -> Claim | str:
        site = structure.trace.nodes[name]
        if site["fn"].support.is_discrete:
            return "it is discrete, and a point mass has no gradient"
        if any(frame.size != frame.full_size for frame in site["cond_indep_stack"]):
            return "it belongs to a subsampled plate, and a free value for each member is not kept"
        unbounded = self.unconstrained is not True and _unbounded(site["fn"], site["value"])
        if self.unconstrained is False and unbounded:
            return "its prior density has no maximum: take the point on the unconstrained scale"
        if why := shrinking(structure, name):
            return why
        free_scale = unbounded if self.unconstrained is None else self.unconstrained
        return FreePoint(name, site["fn"], site["value"], free_scale, self.learning_rate)


def _unbounded(prior: Distribution, value: Tensor) -> bool:
    """Whether the density still grows far out on the unconstrained scale."""
    transform = biject_to(prior.support)
    free = transform.inv(value)
    for sign in (-1.0, 1.0):
        near, far = (prior.log_prob(transform(torch.full_like(free, sign * x))) for x in (12.0, 24.0))
        if bool((far > near + 1e-2).any()):
            return True
    return False


class FreePoint(OpenClaim):
    """A point on the unconstrained scale of the prior's support.

    Args:
        name: of the site.
        prior: its prior.
        value: where it starts.
        with_jacobian: whether the density is taken on the unconstrained scale.
        learning_rate: see `Point`.
    """

    random = False

    def __init__(
        self, name: str, prior: Any, value: Tensor, with_jacobian: bool, learning_rate: float | None = None
    ) -> None:
        super().__init__()
        self.sites, self.learning_rate = (name,), learning_rate
        self.with_jacobian = with_jacobian
        self._transform = biject_to(prior.support)
        self._event_dim = prior.event_dim
        self.free = nn.Parameter(self._transform.inv(value).detach().clone())

    def value(self) -> Tensor:
        """The point, on the site's own scale."""
        return self._transform(self.free)

    @torch.no_grad()
    def set(self, value: Tensor) -> None:
        """Moves the point."""
        self.free.copy_(self._transform.inv(value))

    def title(self, name: str) -> str:
        scale = "unconstrained scale, with its Jacobian" if self.with_jacobian else "site's own scale"
        return f"point mass on the {scale}"

    def posterior(self, name: str, prior: Any, context: Any) -> Tensor:
        return self.value()

    def log_posterior(self, name: str, value: Tensor, posterior: Any) -> Tensor | None:
        if not self.with_jacobian:
            return None
        jacobian = self._transform.log_abs_det_jacobian(self.free, value)
        extra = jacobian.dim() - (value.dim() - self._event_dim)
        return -(jacobian.sum(tuple(range(-extra, 0))) if extra else jacobian)
