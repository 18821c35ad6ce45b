"""The rule that claims documents' loadings, their words' topics and the topics together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyro_prme.conjugacy import Structure
from pyro_prme.inference.claims import Claim, Refusal, Rule
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.rules.topics.forms import NotThisForm, choice_form, word_form

__all__ = ["Topics"]


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
        if self.objective not in ("profiled", "plain"):
            raise ValueError(f"objective is {self.objective!r}: choose 'profiled' or 'plain'.")

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        reasons: dict[str, str] = {}
        for name in structure.sites:
            if name not in structure.observed or not structure.program.parts[name][1]:
                continue
            try:
                return TopicFactors(self, structure, name, roles_of(structure, name, free))
            except NotThisForm as reason:
                reasons[name] = f"the fused updates of topics do not hold: {reason}"
        return Refusal(reasons)


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
