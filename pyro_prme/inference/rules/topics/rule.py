"""The rule that claims documents' loadings, their words' topics and the topics together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from pyro_prme.checks import choice
from pyro_prme.conjugacy import Factors, Structure
from pyro_prme.inference.claims import Claim, Refusal, Rule
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.rules.topics.forms import NotThisForm, choice_form, word_form

__all__ = ["Topics", "difference_from_engine"]

_MANY_SWEEPS = 2000
_ALLOWED = {torch.float64: 1e-6, torch.float32: 1e-2}  # relative, of natural parameters at the fixed point


@dataclass(frozen=True)
class Topics(Rule):
    """Claims loadings, assignments and topics of one table of words, where the densities have that form.

    Args:
        objective: "profiled" gives what decides the loadings the gradient of the bound with their factor maximised
            out, "plain" that at a fixed factor, as the paper.
        by_mean: form responsibilities by ln E Z in place of E ln Z.
        points: topics as points on the scale of log ratios.
        max_sweeps: most sweeps over a document's loadings and assignments.
        tolerance: a document stops when its counts move by less than this share of its words.
    """

    objective: str = "profiled"
    by_mean: bool = False
    points: bool = False
    max_sweeps: int = 20
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        choice("objective", self.objective, ("profiled", "plain"))

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        reasons: dict[str, str] = {}
        for name in structure.sites:
            if name not in structure.observed or not structure.program.parts[name][1]:
                continue
            try:
                claim = TopicFactors(self, structure, name, roles_of(structure, name, free))
                check_against_engine(claim, structure)
                return claim
            except NotThisForm as reason:
                reasons[name] = f"the fused updates of topics do not hold: {reason}"
        return Refusal(reasons)


def check_against_engine(claim: TopicFactors, structure: Structure) -> None:
    """Compares the compiled updates, where they stand still, with the engine's own on the prototype.

    Raises:
        NotThisForm: with the size of the difference.
    """
    difference = difference_from_engine(claim, structure)
    allowed = _ALLOWED[torch.get_default_dtype()] if not claim.rule.by_mean else float("inf")
    if not difference <= allowed:
        raise NotThisForm(f"the compiled update differs from the engine's by {difference:.0e}")


@torch.no_grad()
def difference_from_engine(claim: TopicFactors, structure: Structure) -> float:
    """The largest relative difference of natural parameters between the compiled updates and the engine's."""
    program, roles = structure.program, claim.roles
    sites = {site.name: site for site in structure.run_sites}
    covered = structure.rebuilt_without(claim.covered)
    rest = {n: f for n, f in program.families.items() if n not in claim.sites}
    natural = {name: family.start(structure.value(name)) for name, family in rest.items()}
    found = claim.solve(sites, Factors(covered, natural, ()), RunOptions(sweeps=_MANY_SWEEPS), tolerance=0.0)
    documents = found[roles["loadings"]]
    statistics = {name: family.means(natural[name]) for name, family in rest.items()}
    statistics |= claim.statistics_on(documents, program)
    differences = []
    for name in (roles["loadings"], roles["topics"]):
        family = program.families[name]
        target = program.target(name, statistics, family.empty())
        own = claim.natural_on(name, documents, family)
        differences += [float(((target[key] - own[key]).abs() / (1 + own[key].abs())).max()) for key in own]
    return max(differences)


def roles_of(structure: Structure, words: str, free: Sequence[str]) -> Mapping[str, str]:
    """Which sites are the assignments, the topics and the loadings of an observed site."""
    parts = structure.program.parts
    form = word_form([t.term for t in parts[words][1]])
    assignment, topics = form.assignment.name, form.topics.name
    choice = choice_form([t.term for t in parts[assignment][1]], form)
    loadings = choice.loadings.name
    taken = [name for name in (assignment, topics, loadings) if name not in free]
    if taken:
        raise NotThisForm(f"{taken[0]} has another rule")
    for name, allowed in ((assignment, {words}), (topics, {words})):
        others = set(structure.program.children(name)) - allowed
        if others:
            raise NotThisForm(f"{name} also enters {', '.join(sorted(others))}")
    return {"words": words, "assignment": assignment, "topics": topics, "loadings": loadings}
