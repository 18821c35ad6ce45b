"""A rule that is offered some sites only."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyro_prme.conjugacy import Structure
from pyro_prme.inference.claims import Claim, Refusal, Rule

__all__ = ["Only"]


class Only(Rule):
    """Offers a rule those of the free sites that are among some.

    Args:
        sites: their names.
        rule: to be offered them.
    """

    def __init__(self, sites: Collection[str], rule: Rule) -> None:
        self.sites, self.rule = frozenset(sites), rule

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        asked = [name for name in free if name in self.sites]
        return self.rule.match(structure, asked) if asked else Refusal({})
