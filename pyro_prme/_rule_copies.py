"""A rule looked at without touching it: copies, steps of a copy, and the form of what it returns."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.guide import ClosedFormGuide
from pyro_prme.rules import Rule, Run

__all__ = ["RuleError", "check_form", "copied", "stepped"]


class RuleError(ValueError):
    """A rule is wrong; the message is one sentence."""


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


@torch.no_grad()
def check_form(guide: ClosedFormGuide, args: tuple, site: str) -> None:
    """Refuses a posterior that is no distribution, or is not of the site's shape."""
    with copied(guide, site) as rule:
        given = rule.posterior

        def posterior(name: str, prior: Any, run: Run) -> Any:
            q = given(name, prior, run)
            if not isinstance(q, Distribution | Tensor):
                raise RuleError(
                    f"The posterior of {name} is {type(q).__name__}: it must be a distribution, or a tensor of a point."
                )
            shape, expected = (x.shape if isinstance(x, Tensor) else x.batch_shape + x.event_shape for x in (q, prior))
            if any(a not in (1, b) for a, b in zip_longest(shape[::-1], expected[::-1], fillvalue=1)):
                raise RuleError(f"The posterior of {name} has shape {tuple(shape)}, and the site {tuple(expected)}.")
            return q

        rule.posterior = posterior
        guide.expectations(*args)
