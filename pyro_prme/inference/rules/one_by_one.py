"""Positive or binary sites whose members a square couples: exact for each member, one member after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from pyro import poutine
from torch import Tensor
from torch import distributions as td

from pyro_prme.conjugacy import Factors, Structure, find_structure
from pyro_prme.conjugacy.families import FAMILY, BinaryMembers, Members, PositiveMembers
from pyro_prme.conjugacy.families.base import unwrapped
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.inference.claims import LEFT, Claim, OneSiteRule, SolvedClaim
from pyro_prme.inference.options import RunOptions

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run

__all__ = ["OneByOne", "OneByOneFactors"]

_SWEEPS = 50  # over the members, if nothing else is asked for

_FAMILIES: tuple[tuple[type, type[Members]], ...] = ((td.Gamma, PositiveMembers), (td.Bernoulli, BinaryMembers))


class OneByOne(OneSiteRule):
    """Claims the first free site with a Gamma or Bernoulli prior that enters others' densities by its squares.

    The expected log density with the products of members is checked against the model's own as any closed form is.
    """

    def claim(self, structure: Structure, name: str) -> Claim | str:
        if structure.refusals.get(name) == LEFT:
            return LEFT
        prior = unwrapped(structure.trace.nodes[name]["fn"])
        family = next((f for kind, f in _FAMILIES if isinstance(prior, kind)), None)
        if family is None:
            return f"its prior is {type(prior).__name__}, and one member after the other needs another"
        found = followed(structure, name, family)
        return found if isinstance(found, str) else OneByOneFactors(found, name)


def followed(structure: Structure, name: str, family: type[Members]) -> Structure | str:
    """The structure with a site in another family, or why it does not hold there."""

    def asks(site: Any) -> Any:
        return {FAMILY: family} if site["name"] == name else {}

    left = {n: why for n, why in structure.refusals.items() if n != name}
    try:
        found = find_structure(
            poutine.infer_config(structure.model, asks), structure.args, structure.kwargs, leave=left
        )
    except ValueError as error:
        return str(error).splitlines()[0].rstrip(".")
    if name in found.refusals:
        return found.refusals[name]
    if lost := set(structure.closed) - set(found.closed):
        return f"with it {', '.join(sorted(lost))} would have no closed form"
    local = [n for n in structure.closed if structure.families[n].variable.subsampled]
    if any(found.program.coupled([name, other]) for other in local):
        return "another site of the same batch is coupled with it"
    return found


class OneByOneFactors(SolvedClaim):
    """The factors of one site's members, solved by sweeps in each run.

    What a later run holds is what the others say of each member, without the site's own prior, which may be another
    one by then.

    Args:
        structure: in which the site has its family.
        name: of the site.
    """

    def __init__(self, structure: Structure, name: str) -> None:
        super().__init__()
        self.sites = (name,)
        self._title = f"closed form, {structure.families[name].title}"
        self.family = type(structure.families[name])

    def title(self, name: str) -> str:
        return self._title

    def factor(self, name: str, run: Run) -> td.Distribution:
        return run.factors.posterior(name)

    @torch.no_grad()
    def solve(
        self, sites: Mapping[str, Site], factors: Factors, options: RunOptions, args: Sequence[Any] = ()
    ) -> dict[str, dict[str, Tensor]]:
        (name,) = self.sites
        family: Any = factors.program.families[name]
        factors.natural[name] = family.single()  # whose statistics enter no target but by `settled`
        own = family.without_products(factors.program.target(name, factors.statistics(), family.empty(), own=True))
        field = options.held.get(name)
        if field is None:
            target = factors.program.target(name, factors.statistics(), family.empty())
            before = options.started.get(name)
            start = torch.zeros(family.shape, dtype=family.variable.dtype)
            if before is not None:
                start = family.means({key: before[key] + own[key] for key in own})["x"]
            settled = family.settled(target, start, options.sweeps or _SWEEPS)
            field = {key: settled[key] - own[key] for key in settled}
        factors.natural[name] = {key: field[key] + own[key] for key in field}
        return {name: field}
