"""The bound: a mean-field ELBO that asks each site's rule for its analytic term."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pyro.distributions.util import scale_and_mask
from pyro.infer import TraceMeanField_ELBO
from pyro.poutine import unwrap
from pyro.util import warn_if_nan
from torch import Tensor
from torch.distributions import kl_divergence

from pyro_prme.checks import choice
from pyro_prme.equations.bounds import NORMALIZERS
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.rules import Run

__all__ = ["Bound", "ClosedForm_ELBO"]


class Bound(NamedTuple):
    """A bound with its parts and its name."""

    name: str
    total: float
    terms: dict[str, float]


class ClosedForm_ELBO(TraceMeanField_ELBO):
    """ELBO whose term at each site is the rule's analytic one, else the KL registry's, else that of a draw.

    It serves any model under a `ClosedFormGuide`, as a module (`elbo(model, guide)`) or in `pyro.infer.SVI`.

    Args:
        bound: what stands for E ln sum Z, a key of `bounds.NORMALIZERS`; it names the bound that a number is.
        constants: False leaves out the terms that no gradient moves, as a training step does.
        num_particles: draws over which sampled terms are averaged.
    """

    def __init__(self, *, bound: str = "epsilon", constants: bool = True, num_particles: int = 1) -> None:
        super().__init__(num_particles=num_particles)
        choice("bound", bound, NORMALIZERS)
        self.bound, self.constants = bound, constants

    @property
    def name(self) -> str:
        """Which bound the numbers are."""
        return NORMALIZERS[self.bound]

    def terms(self, guide: Callable, *args: Any) -> dict[str, Tensor]:
        """The bound by site, for one run of the guide's model."""
        guide = unwrap(guide)
        if not isinstance(guide, ClosedFormGuide):
            raise ValueError(f"ClosedForm_ELBO works with a ClosedFormGuide, and this guide is {type(guide).__name__}.")
        return self.terms_of(guide.expectations(*args))

    def terms_of(self, run: Run, *, slow: bool | None = None) -> dict[str, Tensor]:
        """The bound by site, for a run that has been made: all, or only the sites whose rule is slow or is not."""
        out = {}
        run.constants = self.constants
        for name, site in run.trace.nodes.items():
            if site["type"] != "sample" or "rule" not in site["infer"]:
                continue
            rule = site["infer"]["rule"]
            if slow is not None and slow != (rule is not None and rule.slow):
                continue
            if rule is not None and not run.constants and rule.is_constant(name, run):
                continue
            term = None if rule is None else rule.term(name, run, self.bound)
            out[name] = self._fallback(name, run) if term is None else term
        return out

    @staticmethod
    def _fallback(name: str, run: Run) -> Tensor:
        """The term from Pyro's registry of KL divergences or, where it has none, from the drawn value."""
        site, prior, value = run.trace.nodes[name], run.prior(name), run.value(name)
        if site["is_observed"]:
            term = prior.log_prob(value)
        else:
            try:
                term = -kl_divergence(run.posterior(name), prior)
            except NotImplementedError:
                term = prior.log_prob(value) - run.posterior(name).log_prob(value)
        return scale_and_mask(term, scale=site["scale"], mask=site["mask"]).sum()

    def differentiable_loss(self, model: Callable, guide: Callable, *args: Any) -> Tensor:
        """Minus the bound, averaged over particles. The model is the guide's own."""
        losses = [-sum(self.terms(guide, *args).values()) for _ in range(self.num_particles)]
        loss = torch.stack([torch.as_tensor(loss) for loss in losses]).mean()
        warn_if_nan(loss, "loss")
        return loss

    @torch.no_grad()
    def loss(self, model: Callable, guide: Callable, *args: Any) -> float:
        """Minus the bound as a number."""
        return float(self.differentiable_loss(model, guide, *args))

    def loss_and_grads(self, model: Callable, guide: Callable, *args: Any) -> float:
        """Minus the bound as a number, with gradients added to the parameters (for SVI)."""
        loss = self.differentiable_loss(model, guide, *args)
        if loss.requires_grad:
            loss.backward(retain_graph=self.retain_graph)
        return float(loss.detach())

    @torch.no_grad()
    def report(self, guide: Callable, *args: Any) -> Bound:
        """The bound with its breakdown by site and its name."""
        terms = {name: float(term) for name, term in self.terms(guide, *args).items()}
        return Bound(self.name, sum(terms.values()), terms)
