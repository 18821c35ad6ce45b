"""One run of a model under its guide: what came out, and the bound that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, kl_divergence

from pyro_prme.conjugacy import Factors
from pyro_prme.conjugacy.densities import is_random
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.inference.claims import Claim, GivenClaim, OpenClaim
from pyro_prme.inference.options import RunOptions

__all__ = ["OpenSite", "Run"]


@dataclass(frozen=True)
class OpenSite:
    """A site that took a value.

    Args:
        claim: whose it is.
        posterior: its factor, or a tensor for a point mass.
        site: what the run recorded.
    """

    claim: OpenClaim
    posterior: Any
    site: Site

    def minus_log_posterior(self) -> Tensor:
        """The weighted entropy, or what stands for it: minus ln q at the value."""
        log_q = self.claim.log_posterior(self.site.name, self.site.value, self.posterior)
        if log_q is None:
            return torch.zeros(())
        return -(log_q.expand(self.site.fn.batch_shape) * self.site.weight).sum()

    def difference(self) -> Tensor | None:
        """The weighted E_q[ln p - ln q] in closed form, where Pyro knows it."""
        if isinstance(self.posterior, Tensor) or is_random(self.site.fn):
            return None
        try:
            return -(kl_divergence(self.posterior, self.site.fn) * self.site.weight).sum()
        except NotImplementedError:
            return None


@dataclass(frozen=True)
class Run:
    """What a run found.

    Args:
        args, kwargs: what the model was called with.
        sites: of the model, in order.
        claims: of the guide.
        open: sites that took a value.
        factors: of the closed sites, with the program of this run.
        local: by site, what was found for this batch alone; a later run may hold it or start from it.
        options: of the run.
        fixed: values of the sites that others decide, by name, where they are numbers.
        decided: those of these sites that are sample statements.
    """

    args: tuple
    kwargs: Mapping[str, Any]
    sites: Mapping[str, Site]
    claims: tuple[Claim, ...]
    open: Mapping[str, OpenSite]
    factors: Factors
    local: Mapping[str, Any]
    options: RunOptions = field(default_factory=RunOptions)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    decided: tuple[Site, ...] = ()

    def terms(self, *, slow: bool | None = None) -> dict[str, Tensor]:
        """The bound by site: E_q ln p of each, less E_q ln q where it is latent.

        Args:
            slow: only the terms that take long and do not depend on the batch, or only the others; None for all.
        """
        late = {name for claim in self.claims for name in claim.slow}
        names = [name for name in self.sites if slow is None or slow == (name in late)]
        special: dict[str, Tensor] = {}
        for claim in self.claims:
            special |= claim.terms(self, [name for name in names if name in (*claim.sites, *claim.covered)])
        return {name: special[name] if name in special else self._term(name) for name in names}

    def _term(self, name: str) -> Tensor:
        part = self.open.get(name)
        known = part.difference() if part is not None else None
        if known is not None:
            return known
        term = self.factors.program.at(name, self.factors.statistics())
        if part is not None:
            return term + part.minus_log_posterior()
        return term + self.factors.entropy_at(name)

    def bound(self) -> Tensor:
        """The evidence lower bound."""
        return sum(self.terms().values(), start=torch.zeros(()))

    def objective(self) -> Tensor:
        """What of the bound depends on parameters that gradients move, up to a constant."""
        special: dict[str, Tensor] = {}
        for claim in self.claims:
            special |= claim.objective(self)
        given = {name for claim in self.claims if isinstance(claim, GivenClaim) for name in claim.sites}
        total = torch.zeros(())
        for name in self.sites:
            if name in special:
                total = total + special[name]
            elif name in self.open:
                total = total + self._term(name)
            else:
                total = total + self.factors.program.moving(name, self.factors.statistics(), given)
        return total

    def factor(self, name: str) -> Distribution | Tensor:
        """The posterior factor of a site, or a tensor for a site that has a value."""
        if name in self.fixed:
            return self.fixed[name]
        if name in self.sites and self.sites[name].is_observed:
            return self.sites[name].value
        claim = next((claim for claim in self.claims if name in claim.sites), None)
        if claim is None:
            known = ", ".join((*self.sites, *self.fixed))
            raise ValueError(f"The model has no site {name!r}: it has {known}.")
        return claim.factor(name, self)

    def values(self) -> dict[str, Tensor]:
        """The values of the sites that took one."""
        return {name: part.site.value for name, part in self.open.items()}
