"""Several rules for the same sites, the first that holds."""

from __future__ import annotations

from collections.abc import Sequence

from pyro_prme.conjugacy import Structure
from pyro_prme.inference.claims import Claim, Refusal, Rule

__all__ = ["FirstOf"]


class FirstOf(Rule):
    """Offers the same sites to rules, one after the other.

    Args:
        rules: the most special first.
    """

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        reasons: dict[str, list[str]] = {}
        for rule in self.rules:
            found = rule.match(structure, free)
            if not isinstance(found, Refusal):
                found.instead_of = {name: "; ".join(why) for name, why in reasons.items() if name in found.sites}
                return found
            for name, why in found.reasons.items():
                reasons.setdefault(name, []).append(why)
        return Refusal({name: "; ".join(why) for name, why in reasons.items()})
