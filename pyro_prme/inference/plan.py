"""The plan: which site is updated how, and why. Decided once, printable, and the guide's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from pyro_prme.conjugacy import Structure, find_structure
from pyro_prme.inference.claims import LEFT, Claim, GivenClaim, OpenClaim, Refusal, Rule

__all__ = ["Entry", "Plan", "make_plan"]

_LARGE_JOINT = 1000  # members of a joint Normal from which on the plan warns


class Entry(NamedTuple):
    """What the plan says of one site.

    Args:
        name: of the site.
        prior: name of its distribution.
        update: in words, how its factor is obtained.
        family: of the factor where it is a closed form, else "".
        reason: why a closed form does not hold, else "".
        error: the largest relative difference of the expected log density at points from the model's own.
        children: sites whose density it enters.
        bounded: whether its expected log density is bounded, by that of the logarithm of a sum.
    """

    name: str
    prior: str
    update: str
    family: str
    reason: str
    error: float
    children: tuple[str, ...]
    bounded: bool


@dataclass(frozen=True)
class Plan:
    """How each site of a model is updated.

    Args:
        entries: by site, in the model's order.
        closed: names of the latent sites with a closed form.
        open: names of the other latent sites.
        observed: names of the observed sites.
    """

    entries: Mapping[str, Entry]
    closed: tuple[str, ...]
    open: tuple[str, ...]
    observed: tuple[str, ...]

    def __getitem__(self, name: str) -> Entry:
        if name not in self.entries:
            raise KeyError(f"The model has no site {name}: it has {', '.join(self.entries)}.")
        return self.entries[name]

    def __str__(self) -> str:
        rows = [(e.name, e.update, self._note(e), f"{e.error:.0e}") for e in self.entries.values()]
        head = ("site", "update", "", "error")
        width = [max(len(row[i]) for row in (head, *rows)) for i in range(4)]
        lines = [f"{a:<{width[0]}}  {b:<{width[1]}}  {d:>{width[3]}}  {c}".rstrip() for a, b, c, d in (head, *rows)]
        return "\n".join(lines)

    @staticmethod
    def _note(entry: Entry) -> str:
        notes = []
        if entry.reason:
            notes.append(f"no closed form: {entry.reason}")
        if entry.children:
            notes.append(f"enters {', '.join(entry.children)}")
        if entry.bounded:
            notes.append("the logarithm of a sum is bounded")
        return "; ".join(notes)


def make_plan(
    structure: Structure, rules: Mapping[str, Rule | None], candidates: Sequence[Rule]
) -> tuple[Plan, list[Claim]]:
    """Offers the sites of a model to rules, one after the other.

    Args:
        structure: of the model.
        rules: given by site; None asks for the generic posterior.
        candidates: rules for all other sites, the most special first.

    Raises:
        ValueError: a rule that was given does not hold, or nothing holds for a site.
    """
    claims: list[Claim] = []
    refused: dict[str, list[str]] = {name: [why] for name, why in structure.refusals.items()}

    def free() -> list[str]:
        taken = {name for claim in claims for name in claim.sites}
        return [n for n in structure.sites if n not in structure.observed and n not in taken]

    for name, rule in rules.items():
        if rule is None:
            continue
        found = rule.match(structure, [name])
        if isinstance(found, Refusal):
            raise ValueError(f"The rule given for site {name} does not hold: {found.reasons.get(name, 'no reason')}.")
        claims.append(found)
        for other, why in found.instead_of.items():
            refused[other] = [why]
    for rule in candidates:
        while left := [n for n in free() if n not in rules or rules[n] is None]:
            found = rule.match(structure, left)
            if isinstance(found, Refusal):
                for name, why in found.reasons.items():
                    if why not in refused.setdefault(name, []):
                        refused[name].append(why)
                break
            claims.append(found)
    if left := free():
        name = left[0]
        raise ValueError(
            f"Nothing holds for site {name}: {'; '.join(refused.get(name, ['no rule was tried']))}. Write the model so "
            "that its operations are followed, sum the site out, or give a rule for it."
        )
    return _plan_of(structure, claims, refused), claims


def _plan_of(structure: Structure, claims: Sequence[Claim], refused: Mapping[str, Sequence[str]]) -> Plan:
    claim_of = {name: claim for claim in claims for name in claim.sites}
    closed = tuple(n for n in structure.sites if n in claim_of and not isinstance(claim_of[n], OpenClaim | GivenClaim))
    open_sites = tuple(n for n in structure.sites if n in claim_of and n not in closed)
    entries = {}
    for name in structure.sites:
        claim = claim_of.get(name)
        terms = structure.program.parts[name][1]
        update = claim.title(name) if claim is not None else "observed"
        family = structure.families[name].title if name in closed and name in structure.families else ""
        if family:
            size = getattr(structure.families[name], "joint_size", 1) if structure.families[name].joint else 1
            update += " (large: its covariance is dense)" if size > _LARGE_JOINT else ""
        entries[name] = Entry(
            name,
            structure.priors[name],
            update,
            family,
            "; ".join(refused.get(name, ())[:1]) if name in open_sites else "",
            structure.errors[name],
            tuple(structure.program.children(name)) if name in structure.families else (),
            any(t.bounds for t in terms),
        )
    observed = tuple(n for n in structure.sites if n in structure.observed)
    return Plan(entries, closed, open_sites, observed)


def structure_for(
    model: Callable,
    args: tuple,
    kwargs: Mapping[str, object],
    rules: Mapping[str, Rule | None],
    defaults: Mapping[str, Rule] = MappingProxyType({}),
) -> Structure:
    """The structure of a model, with the sites for which a rule is given left to it."""
    left = dict.fromkeys((*rules, *defaults), LEFT)
    structure = find_structure(model, args, kwargs, leave=left)
    for name in rules:
        if name not in structure.sites or name in structure.observed:
            latent = [n for n in structure.sites if n not in structure.observed]
            raise ValueError(f"A rule was given for {name!r}, and the latent sites are {', '.join(latent) or 'none'}.")
    return structure
