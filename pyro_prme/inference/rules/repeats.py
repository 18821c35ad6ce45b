"""The numbers of the layer of repeated words, by the completion of documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyro_prme.conjugacy import Structure
from pyro_prme.inference.claims import Claim, Refusal
from pyro_prme.inference.rules.point import FreePoint, Point
from pyro_prme.inference.rules.topics.own_counts import OwnCountsOutFactors

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run

__all__ = ["CompletedRepeats"]

_DOCUMENTS = 64  # of a batch, that a gradient step completes


class CompletedRepeats(Point):
    """Claims a number of `OwnWords` as a point, moved by completion in place of the layer's likelihood.

    In each gradient step a share of the tokens of some documents is hidden, drawn uniformly for each document, and
    predicted from the others by the layer, on top of topics that hold none of the document's own words, which
    `OwnCountsOut` gives. The likelihood of the layer itself takes every word that is repeated for one that was copied,
    though topics draw some of them again, and scores 1% worse on held-out words.

    Args:
        repeats: name of the observed site of the layer.
        loadings: name of the site whose claim explains the documents.
        tables: of a word with so many tokens.
        leads: whether this one of the layer's two numbers answers for the layer's term.
        learning_rate: see `Point`.
    """

    def __init__(
        self,
        repeats: str,
        loadings: str,
        tables: Callable[[Tensor], Tensor],
        leads: bool,
        learning_rate: float | None = None,
    ) -> None:
        super().__init__(learning_rate=learning_rate)
        self.repeats, self.loadings, self.tables, self.leads = repeats, loadings, tables, leads

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        found = super().match(structure, free)
        if not isinstance(found, FreePoint) or self.repeats not in structure.sites:
            return found
        name = found.sites[0]
        site = structure.trace.nodes[name]
        return CompletionPoint(self, name, site["fn"], site["value"], found.with_jacobian)


class CompletionPoint(FreePoint):
    """A point that the completion of documents moves.

    Args:
        rule: whose options hold.
        name, prior, value, with_jacobian: see `FreePoint`.
    """

    def __init__(self, rule: CompletedRepeats, name: str, prior: Any, value: Tensor, with_jacobian: bool) -> None:
        super().__init__(name, prior, value, with_jacobian, rule.learning_rate)
        self.rule = rule
        if rule.leads:
            self.covered = (rule.repeats,)

    def title(self, name: str) -> str:
        return "point mass, moved by the completion of documents"

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        """At the layer's site, what makes the log probability of tables, each given all others, one of tokens."""
        repeats = self.rule.repeats
        if not self.rule.leads or repeats not in names:
            return {}
        found, site = run.local[self.rule.loadings], run.sites[repeats]
        batch, log_base = found.batch, found.step.log_normalizer.detach()
        law: Any = site.fn
        others = self.rule.tables((site.value - 1).clamp(min=0))
        score = law.log_left_out(site.value, log_base, others) - batch.count * log_base
        return {repeats: (site.weight * score).sum(dtype=torch.float64).to(log_base.dtype)}

    def objective(self, run: Run) -> dict[str, Tensor]:
        repeats = self.rule.repeats
        if not self.rule.leads or repeats not in run.sites:
            return {}
        found, site = run.local[self.rule.loadings], run.sites[repeats]
        topics = next(c for c in run.claims if isinstance(c, OwnCountsOutFactors))
        size = min(_DOCUMENTS, found.batch.size)
        stop = int(found.batch.indptr[size])
        if not stop:
            return {repeats: torch.zeros(())}
        document, times = found.batch.document[:stop], site.value[:stop]
        seen = torch.binomial(times, torch.rand(size, dtype=times.dtype)[document])
        tables = self.rule.tables(seen)
        log_base = topics.log_probabilities(run, tables, size)
        law: Any = site.fn
        score = law.of_first(stop).log_hidden(seen, times - seen, log_base, tables).sum()
        return {repeats: found.weight * found.batch.size / size * score}
