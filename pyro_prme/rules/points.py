"""Rules for point masses: ell and V (free values), h (amortized), and f (its own prior)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from pyro import distributions as dist
from pyro.distributions.util import sum_rightmost
from torch import Tensor, nn
from torch.distributions import Distribution, biject_to

from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.expectations import expected
from pyro_prme.models.distributions import WordMajorDirichlet, WordMajorPoint
from pyro_prme.prototype import Draw, Prototype
from pyro_prme.rules.base import Rule, Run, register

__all__ = ["Amortized", "FromPrior", "Point", "check_topics", "is_real", "rows_of_words", "shrinking"]

_REACH, _STEPS = 24.0, 97  # of the unconstrained scale that is looked at, and in how many places
_RULED_OUT = 2.0  # nats of a prior below its largest density


def shrinking(name: str, prototype: Prototype) -> str | None:
    r"""Why points for a real-valued site would shrink together with a scale that is itself a site, or None.

    At its mode a site of n numbers with scale s has the density :math:`s^{-n}`, n being those of the whole corpus. With
    the prior of s this may grow without limit (half-Cauchy, or Gamma of shape below n), or have its maximum where that
    prior has next to nothing (inverse Gamma: at s of order 1 / n).
    """
    draws = prototype.draws
    if not is_real(draws[0].site(name)["fn"]) or _at_mode(name, draws[0]) == _at_mode(name, draws[1]):
        return None
    for parent in prototype.names[: prototype.names.index(name)]:
        site = draws[0].site(parent)
        if site["is_observed"] or site["fn"].support.is_discrete or name not in prototype.children(parent):
            continue
        prior, both = _along(parent, name, draws[0])
        if prior[both.argmax()] < prior.max() - _RULED_OUT:
            return (
                f"the density of {name} at its mode, with that of {parent}, has no maximum where the prior of {parent} "
                "lies: points shrink together."
            )
    return None


def _along(parent: str, name: str, draw: Draw) -> tuple[Tensor, Tensor]:
    """The log prior of a site along its unconstrained scale, and the same with its child's density at the mode."""
    site = draw.site(parent)
    transform = biject_to(site["fn"].support)
    free = transform.inv(site["value"])
    prior, both = [], []
    for x in torch.linspace(-_REACH, _REACH, _STEPS):
        place = torch.full_like(free, float(x))
        moved = draw.replace(parent, transform(place))
        jacobian = transform.log_abs_det_jacobian(place, transform(place)).sum()
        prior.append(_scaled(parent, moved, moved.log_prob(parent)) + site["scale"] * jacobian)
        both.append(prior[-1] + _at_mode(name, moved))
    return tuple(torch.stack(heights).nan_to_num(nan=-torch.inf) for heights in (prior, both))  # type: ignore[return-value]


def _at_mode(name: str, draw: Draw) -> Tensor:
    """The scaled log density of a site at its mode, else at its mean; zero where neither is known."""
    prior = draw.site(name)["fn"]
    for middle in ("mode", "mean"):
        with suppress(NotImplementedError):
            return _scaled(name, draw, prior.log_prob(getattr(prior, middle)))
    return torch.zeros(())


def _scaled(name: str, draw: Draw, log_prob: Tensor) -> Tensor:
    return (draw.site(name)["scale"] * log_prob).sum()


def is_real(prior: Any) -> bool:
    """Whether the support is all of the real line, or of a space of real numbers."""
    return not prior.support.is_discrete and bool((biject_to(prior.support)(torch.full((1,), -1.0)) == -1).all())


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
        return shrinking(name, prototype)

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


def check_topics(encoder: nn.Module, prototype: Prototype) -> None:
    """Refuses an inference network that reads topics' weights of words where the site that it reads has none."""
    site = getattr(encoder, "topics_site", None)
    if site is None or not prototype.has_batch:
        return
    theta = prototype.value(site) if site in prototype else None
    num_words = prototype.draws[0].batch.last_word + 1
    if theta is None or theta.dim() != 2 or theta.shape[-1] < num_words or is_real(prototype.site(site)["fn"]):
        raise ValueError(
            f"The inference network reads the topics' weights of words, and {site} of this model is no such table: "
            "take the guide of `model.make_guide()`, or give an encoder that reads the batch alone."
        )


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
        if not is_real(prototype.site(name)["fn"]):
            return f"{name} is not real-valued: the inference network's output is."
        return shrinking(name, prototype)

    def setup(self, name: str, prototype: Prototype) -> None:
        check_topics(self.encoder, prototype)

    def locations(self, batch: Batch, topics: Tensor | None) -> Tensor:
        """The point of each document, one row each."""
        return self.encoder(batch, topics)

    def posterior(self, name: str, prior: Any, run: Run) -> Tensor:
        site = getattr(self.encoder, "topics_site", None)
        h = self.locations(run.batch, rows_of_words(run, site) if site else None)
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
