"""The numbers of the layer of repeated words, by the log probability of each word given all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyro_prme.conjugacy import Structure
from pyro_prme.inference.claims import Claim, Refusal
from pyro_prme.inference.rules.point import FreePoint, Point

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run

__all__ = ["LeftOutRepeats"]


class LeftOutRepeats(Point):
    """Claims a number of `OwnWords` as a point, moved by the completion of words in place of the layer's likelihood.

    Each token is predicted from all others of its document, by the layer on top of topics that hold none of the
    document's own words, which `OwnCountsOut` gives. The likelihood of the layer itself takes every repeated word for
    one that was drawn again, and scores 1% worse on held-out words.

    Args:
        repeats: name of the observed site of the layer.
        loadings: name of the site whose claim explains the documents.
        tables: of a word with so many tokens.
        learning_rate: see `Point`.
    """

    def __init__(
        self, repeats: str, loadings: str, tables: Callable[[Tensor], Tensor], learning_rate: float | None = None
    ) -> None:
        super().__init__(learning_rate=learning_rate)
        self.repeats, self.loadings, self.tables = repeats, loadings, tables

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        found = super().match(structure, free)
        if not isinstance(found, FreePoint) or self.repeats not in structure.sites:
            return found
        name = found.sites[0]
        site = structure.trace.nodes[name]
        return LeftOutPoint(self, name, site["fn"], site["value"], found.with_jacobian)


class LeftOutPoint(FreePoint):
    """A point that the completion of left-out words moves.

    Args:
        rule: whose options hold.
        name, prior, value, with_jacobian: see `FreePoint`.
    """

    def __init__(self, rule: LeftOutRepeats, name: str, prior: Any, value: Tensor, with_jacobian: bool) -> None:
        super().__init__(name, prior, value, with_jacobian, rule.learning_rate)
        self.rule = rule
        self.covered = (rule.repeats,)

    def title(self, name: str) -> str:
        return "point mass, moved by the log probability of each token given all others"

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        """At the layer's site, what it adds to the log probability of the topics' tables to make it one of tokens."""
        repeats = self.rule.repeats
        if repeats not in names:
            return {}
        found, site = run.local[self.rule.loadings], run.sites[repeats]
        batch, log_base = found.batch, found.step.log_normalizer.detach()
        score = self._log_left_out(site.fn, site.value, log_base) - batch.count * log_base
        return {repeats: (site.weight * score).sum(dtype=torch.float64).to(log_base.dtype)}

    def _log_left_out(self, law: Any, times: Tensor, log_base: Tensor) -> Tensor:
        return law.log_left_out(times, log_base, self.rule.tables((times - 1).clamp(min=0)))

    def objective(self, run: Run) -> Mapping[str, Tensor]:  # type: ignore[override]
        return self.terms(run, [self.rule.repeats])
