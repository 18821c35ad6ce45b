"""One run of a model under its guide: what came out, and the bound that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import kl_divergence

from pyro_prme.conjugacy import Factors
from pyro_prme.conjugacy.densities import is_random
from pyro_prme.conjugacy.families import Natural
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.inference.claims import OpenClaim

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
        return -(log_q * self.site.weight).sum()

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
        open: sites that took a value.
        factors: of the closed sites, with the program of this run.
        local: natural parameters of the closed sites that belong to this batch alone.
    """

    args: tuple
    kwargs: Mapping[str, Any]
    sites: tuple[Site, ...]
    open: Mapping[str, OpenSite]
    factors: Factors
    local: Mapping[str, Natural]

    def terms(self) -> dict[str, Tensor]:
        """The bound by site: E_q ln p of each, less E_q ln q where it is latent."""
        statistics = self.factors.statistics()
        out: dict[str, Tensor] = {}
        for site in self.sites:
            name = site.name
            part = self.open.get(name)
            known = part.difference() if part is not None else None
            if known is not None:
                out[name] = known
                continue
            term = self.factors.program.at(name, statistics)
            if part is not None:
                term = term + part.minus_log_posterior()
            elif name in self.factors.natural and name in self.factors.program.families:
                natural = self.factors.natural[name]
                term = term + self.factors.program.entropy(name, natural, statistics[name])
            out[name] = term
        return out

    def bound(self) -> Tensor:
        """The evidence lower bound."""
        return sum(self.terms().values(), start=torch.zeros(()))

    def values(self) -> dict[str, Tensor]:
        """The values of the sites that took one."""
        return {name: part.site.value for name, part in self.open.items()}
