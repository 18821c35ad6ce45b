"""Rules for point masses: ell and V (free values), h (amortized), and f (its own prior)."""

from __future__ import annotations

from typing import Any

import torch
from pyro import distributions as dist
from pyro.distributions.util import sum_rightmost
from torch import Tensor, nn
from torch.distributions import Distribution, biject_to

from pyro_prme.distributions import WordMajorDirichlet, WordMajorPoint
from pyro_prme.expectations import expected
from pyro_prme.prototype import Prototype
from pyro_prme.rules.base import Rule, Run, register

__all__ = ["Amortized", "FromPrior", "Point", "rows_of_words"]


@register("ell")
@register("V")
class Point(Rule):
    """A point mass at a free value.

    The objective has ln p(value), on the site's own scale as in the paper when the density is bounded there, else on
    the unconstrained scale with the Jacobian (Beta(1, alpha) with alpha < 1 has no largest density; with a hyper-prior
    on alpha, unused sticks at 0 would raise alpha).

    Args:
        unconstrained: take the point on the unconstrained scale; None to decide by the prior.
    """

    summary = "point mass"

    def __init__(self, unconstrained: bool | None = None) -> None:
        super().__init__()
        self.unconstrained = unconstrained

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        site = prototype.site(name)
        if site["fn"].support.is_discrete:
            return f"{name} is discrete: a point mass has no gradient."
        if any(frame.size != frame.full_size for frame in site["cond_indep_stack"]):
            return f"{name} belongs to a subsampled plate: a free value for each member is not kept."
        if self.unconstrained is False and self._unbounded(site["fn"], site["value"]):
            return f"the prior density of {name} has no maximum: take the point on the unconstrained scale."
        if (scale := self._unbounded_with(name, prototype)) is not None:
            return f"the density of {name} at its mode, with that of {scale}, has no maximum: points shrink together."
        return None

    def setup(self, name: str, prototype: Prototype) -> None:
        site = prototype.site(name)
        if self.unconstrained is None:
            self.unconstrained = self._unbounded(site["fn"], site["value"]) or self._has_parent(name, prototype)
        self.summary = "point mass on the " + (
            "unconstrained scale, with its Jacobian" if self.unconstrained else "site's own scale"
        )
        self._transform = biject_to(site["fn"].support)
        self.free = nn.Parameter(self._transform.inv(site["value"]).detach().clone())

    @staticmethod
    def _unbounded(prior: Distribution, value: Tensor) -> bool:
        """Whether the density still grows far out on the unconstrained scale."""
        transform = biject_to(prior.support)
        free = transform.inv(value)
        for sign in (-1.0, 1.0):
            near, far = (prior.log_prob(transform(torch.full_like(free, sign * x))) for x in (12.0, 24.0))
            if bool((far > near + 1e-2).any()):
                return True
        return False

    @staticmethod
    def _has_parent(name: str, prototype: Prototype) -> bool:
        """Whether the prior has a parameter that is itself a site."""
        earlier = prototype.names[: prototype.names.index(name)]
        return any(name in prototype.children(parent) for parent in earlier)

    @staticmethod
    def _unbounded_with(name: str, prototype: Prototype) -> str | None:
        """An earlier site, such as a horseshoe's scale, with which a real-valued site's density grows without limit."""
        draw = prototype.draws[0]
        if biject_to(draw.site(name)["fn"].support)(torch.full((1,), -1.0)) != -1:
            return None
        for parent in prototype.names[: prototype.names.index(name)]:
            site = draw.site(parent)
            if site["is_observed"] or site["fn"].support.is_discrete or name not in prototype.children(parent):
                continue
            transform = biject_to(site["fn"].support)
            free = transform.inv(site["value"])
            for sign in (-1.0, 1.0):
                heights = []
                for x in (12.0, 24.0):
                    moved = draw.replace(parent, transform(torch.full_like(free, sign * x)))
                    prior = moved.site(name)["fn"]
                    heights.append(prior.log_prob(prior.mean).sum() + moved.log_prob(parent).sum())
                if heights[1] > heights[0] + 1e-2:
                    return parent
        return None

    def value(self) -> Tensor:
        """The point, on the site's own scale."""
        return self._transform(self.free)

    @torch.no_grad()
    def set(self, value: Tensor) -> None:
        """Moves the point."""
        self.free.copy_(self._transform.inv(value))

    def posterior(self, name: str, prior: Any, run: Run) -> Tensor:
        return self.value()

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        log_prob = run.prior(name).log_prob(run.value(name))
        if self.unconstrained:
            jacobian = self._transform.log_abs_det_jacobian(self.free, run.value(name))
            log_prob = log_prob + sum_rightmost(jacobian, jacobian.dim() - log_prob.dim())
        return run.scaled_sum(name, log_prob)


@torch.no_grad()
def rows_of_words(run: Run, site: str) -> Tensor:
    """E theta of the batch's distinct words, word-major (W, K), without a gradient."""
    q = run.posterior(site)
    if isinstance(q, WordMajorDirichlet | WordMajorPoint):
        return q.mean_rows(run.batch.words)
    return expected(q, run.value(site)).mT[run.batch.words]


class Amortized(Rule):
    """A point mass at the output of an inference network, q(h_n | X_n) = delta at g(X_n).

    Args:
        encoder: module that maps (batch, topics) to one row per document. Where its attribute `topics_site` names a
            site, topics is E theta of the batch's words, (W, K), else None.
    """

    summary = "point mass at the inference network's output"

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = prototype.site(name)["fn"]
        if fn.support.is_discrete or biject_to(fn.support)(torch.zeros(1)) != 0:
            return f"{name} is not real-valued: the inference network's output is."
        return None

    def posterior(self, name: str, prior: Any, run: Run) -> Tensor:
        site = getattr(self.encoder, "topics_site", None)
        h = self.encoder(run.batch, rows_of_words(run, site) if site else None)
        return h.reshape(prior.batch_shape + prior.event_shape)

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        return run.scaled_sum(name, run.prior(name).log_prob(run.value(name)))


@register("f")
class FromPrior(Rule):
    """The posterior of f is its prior, so that the two cancel and only moments of f remain.

    Differs from the paper: there it is left unsaid; q has no factor for f.
    """

    summary = "its prior, q(f) = p(f)"

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = prototype.site(name)["fn"]
        if not isinstance(fn, torch.distributions.Normal | dist.Delta):
            return f"the moments of {name} are known for a Normal prior, and this one is {type(fn).__name__}."
        return None

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        return prior

    def placeholder(self, posterior: Any) -> Tensor:
        return posterior.mean

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        return torch.zeros(())
