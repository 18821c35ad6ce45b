"""Rules and claims: a rule looks at a model's structure and claims sites of it, or says why it cannot.

A rule is a value without state; the candidates of a guide are a tuple of rules. A claim is a module that holds the
posterior factors of its sites: their natural parameters are buffers, what a gradient moves are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from pyro_prme.conjugacy import Factors, Structure
from pyro_prme.conjugacy.families import Family
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.inference.options import RunOptions

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run
    from pyro_prme.inference.workers import Workers

__all__ = ["LEFT", "Claim", "Context", "GivenClaim", "OneSiteRule", "OpenClaim", "Refusal", "Rule", "SolvedClaim"]


#: Why a site that was given to a rule, or to none, is not found by the engine.
LEFT = "another posterior was asked for"


@dataclass(frozen=True)
class Refusal:
    """Why a rule does not hold, by site: a clause such as "its prior is LogNormal"."""

    reasons: Mapping[str, str]


@dataclass(frozen=True)
class Context:
    """What a factor may depend on when a run begins.

    Args:
        args, kwargs: what the model was called with.
        claims: of the guide.
    """

    args: tuple
    kwargs: Mapping[str, Any]
    claims: tuple[Claim, ...]


class Rule:
    """A way to update some sites of a model."""

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        """Claims sites, or says why not.

        Args:
            structure: of the model.
            free: latent sites that no earlier rule has claimed, in the model's order.
        """
        raise NotImplementedError


class OneSiteRule(Rule):
    """Claims the first free site that it can, and says of each site before it why it cannot."""

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        reasons: dict[str, str] = {}
        for name in free:
            found = self.claim(structure, name)
            if isinstance(found, Claim):
                return found
            reasons[name] = found
        return Refusal(reasons)

    def claim(self, structure: Structure, name: str) -> Claim | str:
        """A claim of this site, or why not: a clause."""
        raise NotImplementedError


class Claim(nn.Module):
    """The posterior factors of one or several sites."""

    #: The sites whose factors these are.
    sites: tuple[str, ...]

    #: Of its parameters, without weight decay; None for that of everything else.
    learning_rate: float | None = None
    #: Sites whose terms of the bound do not depend on the batch and take long: a report computes them once.
    slow: tuple[str, ...] = ()
    #: Of its sites' factors, where that is not the prior's.
    family: type[Family] | None = None
    #: Sites whose densities the claim computes itself, so that the engine leaves them out.
    covered: tuple[str, ...] = ()
    #: Whether its terms of the bound have one for the logarithm of a sum, see `RunOptions.bound`.
    bounds_a_sum: bool = False
    #: The name of the number that a fit reports, where that is no bound.
    score: str | None = None
    #: What the claim does, where it needs all data in one process.
    needs_all_data: str | None = None
    #: By site, why a rule that was preferred to this one does not hold.
    instead_of: Mapping[str, str] = MappingProxyType({})
    #: Which site plays which role in a model of topics, where the claim knows.
    roles: Mapping[str, str] = MappingProxyType({})

    def title(self, name: str) -> str:
        """What the plan prints for a site."""
        raise NotImplementedError

    def begin(self, data: Any, start: str, seed: int) -> None:
        """Puts its factors where a fit to these data begins, if it knows better than `restart`."""

    def restart(self, generator: torch.Generator) -> None:
        """Puts what natural steps move back to a start that the generator decides; nothing, if there is nothing."""

    def factor(self, name: str, run: Run) -> Distribution | Tensor:
        """The factor of a site in a run, or a tensor for a point mass."""
        raise NotImplementedError

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        """The bound of those of the sites for which the claim has a form of its own."""
        return {}

    def objective(self, run: Run) -> dict[str, Tensor]:
        """The same, up to what no gradient moves."""
        return {}

    def gather(self, run: Run, share: float = 1.0) -> None:
        """Adds what a run found to what is pending for the next natural step.

        Args:
            run: on a batch.
            share: of this run in what the step is made of; the shares of all runs add up to one.
        """

    def memory_of_data(self) -> dict[str, Tensor]:
        """What the claim remembers of single rows of the data: a fit that goes on needs it, answers do not."""
        return {}

    def take_up(self, run: Run, share: float, workers: Workers) -> None:
        """Takes up at once, in all workers together, what of a gathered run need not wait for the natural step."""

    def joined_memory(self, parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """One memory of the rows, from those of several workers in their order."""
        return parts[0]

    def remember_data(self, memory: Mapping[str, Tensor], data: Any) -> None:
        """Takes up what `memory_of_data` gave, for rows of the data."""

    def pending_parts(self) -> dict[str, Tensor]:
        """What is pending, as tensors that several workers may add up in place before the natural step."""
        return {}

    def restore_pending(self, parts: Mapping[str, Tensor]) -> None:
        """Takes up what `pending_parts` gave, which there must be; raises ValueError if it does not fit."""
        raise ValueError("Nothing can be pending here.")

    def natural_step(self, rate: float) -> None:
        """Moves natural parameters towards the target of what is pending, and forgets that."""


class SolvedClaim(Claim):
    """Factors of sites that the claim solves itself in each run, given all others."""

    def solve(
        self, sites: Mapping[str, Site], factors: Factors, options: RunOptions, args: Sequence[Any] = ()
    ) -> Mapping[str, Any]:
        """Puts the factors in place, and returns what a later run may hold or start from, by site.

        Args:
            sites: of the run.
            factors: of all other sites; those of the claim's own are put there, or functions for their statistics.
            options: of the run.
            args: what the model was called with.
        """
        raise NotImplementedError


class OpenClaim(Claim):
    """Factors of sites that take a value in a run: a draw that gradients pass through, or a point."""

    #: Whether values are drawn, so that two runs differ.
    random: bool = True

    def factor(self, name: str, run: Run) -> Distribution | Tensor:
        return run.open[name].posterior

    def posterior(self, name: str, prior: Any, context: Context) -> Distribution | Tensor:
        """The factor of a site, or a tensor for a point mass.

        Args:
            name: of the site.
            prior: its distribution in the model.
            context: what the model was called with, and the other claims.
        """
        raise NotImplementedError

    def log_posterior(self, name: str, value: Tensor, posterior: Any) -> Tensor | None:
        """ln q(value) by element of the batch; None for a point mass, whose entropy is left out."""
        return None if isinstance(posterior, Tensor) else posterior.log_prob(value)


class GivenClaim(Claim):
    """Factors that are not updated: each run makes them from the site's prior, and they cancel against it."""

    #: Of the factors.
    family: type[Family]

    def factor(self, name: str, run: Run) -> Distribution | Tensor:
        return run.sites[name].fn

    def natural(self, prior: Any) -> dict[str, Tensor]:
        """Natural parameters of the factor, through which gradients pass."""
        raise NotImplementedError

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        return dict.fromkeys(names, torch.zeros(()))

    def objective(self, run: Run) -> dict[str, Tensor]:
        return self.terms(run, self.sites)
