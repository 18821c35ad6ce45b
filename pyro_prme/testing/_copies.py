"""A rule looked at without touching it: a copy in its place, and steps of the copy."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyro_prme.guide import ClosedFormGuide
from pyro_prme.rules import Rule, Run

__all__ = ["copied", "stepped"]


@contextmanager
def copied(guide: ClosedFormGuide, site: str) -> Iterator[Any]:
    """A copy of the site's rule takes its place within it."""
    rule = guide.rules[site]
    guide.rules[site] = copy.deepcopy(rule)
    try:
        yield guide.rules[site]
    finally:
        guide.rules[site] = rule


def stepped(rule: Rule, site: str, run: Run, rate: float) -> bool:
    """Makes a natural step on the statistics of a run, where the rule has one; says whether it has."""
    if type(rule).natural_step is Rule.natural_step:
        return False
    rule.gather(site, run)
    rule.natural_step(rate)
    return True
