"""Loadings and topics with a document's own counts left out of the topics that explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyro_prme.conjugacy import Factors, Structure
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.corpora.batch import Batch
from pyro_prme.inference.claims import Claim, Refusal, Rule
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.topics.claim import Reading, TopicFactors
from pyro_prme.inference.rules.topics.forms import NotThisForm
from pyro_prme.inference.rules.topics.memory import Memory
from pyro_prme.inference.rules.topics.rule import roles_of
from pyro_prme.kernels.local import LocalStep
from pyro_prme.kernels.own_counts import KEPT, Held, Kept, add_kept_, log_completion, nothing_held, own_counts_out
from pyro_prme.kernels.own_counts_torch import topics_without_own
from pyro_prme.kernels.sums import inner

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run
    from pyro_prme.inference.workers import Workers

__all__ = ["OwnCountsOut", "OwnCountsOutFactors"]

_FOLD_IN = 5  # sweeps over the part of a document that is seen, for the completion of the rest
_WHOLE = 1e-6  # a document counts once, up to rounding


@dataclass(frozen=True)
class OwnCountsOut(Rule):
    """Claims loadings, assignments and topics, and leaves a document's own counts out of the topics that explain it.

    The update is :func:`pyro_prme.kernels.own_counts.own_counts_out`, zero-order collapsed inference: no bound on the
    evidence, but it does not overfit short documents, which points and Dirichlet factors do or pay for. In the place of
    the bound a fit reports the log probability of each word given all others.

    Args:
        objective: what networks and sticks are moved by. "completion" is the log probability of the words that g does
            not see, given those it sees; "profiled" the bound with the factor of the loadings maximised out.
        max_sweeps: most sweeps over a document when it is met.
        tolerance: a document stops when its counts move by less than this share of its words.
        keep: responsibilities of an entry that are kept between passes, four bytes each.
        most: entries of a corpus whose documents are remembered through online passes; batch passes remember all.
    """

    objective: str = "completion"
    max_sweeps: int = 5
    tolerance: float = 1e-3
    keep: int = KEPT
    most: int = 1 << 23
    by_mean = True
    points = True

    def __post_init__(self) -> None:
        if self.objective not in ("completion", "profiled"):
            raise ValueError(f"objective is {self.objective!r}: choose 'completion' or 'profiled'.")

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        reasons: dict[str, str] = {}
        for name in structure.sites:
            if name not in structure.observed or not structure.program.parts[name][1]:
                continue
            try:
                return self.claim(structure, name, roles_of(structure, name, free))
            except NotThisForm as reason:
                reasons[name] = f"leaving own counts out does not hold: {reason}"
        return Refusal(reasons)

    def claim(self, structure: Structure, words: str, roles: Mapping[str, str]) -> OwnCountsOutFactors:
        """The factors of an observed site and of those that play its roles."""
        return OwnCountsOutFactors(self, structure, words, roles)


class OwnDocuments(NamedTuple):
    """What a run found for the documents of a batch: `Documents`, and what topics hold of them."""

    batch: Batch
    step: LocalStep
    elog_theta: Tensor
    weight: float
    place: Tensor | None
    kept: Kept
    own: Held
    rows: np.ndarray | None  # of the data, for documents that the topics hold


class OwnCountsOutFactors(TopicFactors):
    """Collapsed counts of topics, word-major: gamma is gamma0 plus the expected counts of all documents.

    Args:
        rule, structure, words, roles: see `TopicFactors`.
    """

    rule: OwnCountsOut  # type: ignore[assignment]

    def __init__(self, rule: OwnCountsOut, structure: Structure, words: str, roles: Mapping[str, str]) -> None:
        super().__init__(rule, structure, words, roles)  # type: ignore[arg-type]
        self.slow = ()
        self.bounds_a_sum = False
        self.score = "log probability of each word given all others"
        self.memory = Memory(rule.keep, rule.most)

    def title(self, name: str) -> str:
        if name == self.roles["topics"]:
            return "collapsed, own counts out: a document is explained by topics without its own words (compiled)"
        if name == self.roles["assignment"]:
            return "collapsed, own counts out: zero-order responsibilities (compiled)"
        return "collapsed, own counts out: expected counts of each document (compiled)"

    @torch.no_grad()
    def solve(  # type: ignore[override]
        self,
        sites: Mapping[str, Site],
        factors: Factors,
        options: RunOptions,
        args: Sequence[Any] = (),
        tolerance: float | None = None,
        read: Reading | None = None,
    ) -> dict[str, OwnDocuments]:
        name = self.roles["loadings"]
        if name not in options.held:
            self._prior = self._prior_of(sites[self.roles["topics"]].fn)
        batch, weight, place, _ = read or self.read(sites, args)
        prior = self.prior_of_loadings(factors.program, factors)
        before = options.held.get(name)
        if before is not None:
            a = prior[0] + before.step.counts
            slope = (batch.length / before.step.epsilon).unsqueeze(-1)
            step = before.step._replace(concentration=a, rate=(prior[1] + slope).expand_as(a))
            found = before._replace(batch=batch, step=step, weight=weight, place=place)
        else:
            found = self._explained(batch, weight, place, prior, options, tolerance)
        family = factors.program.families[name]
        factors.elsewhere[name] = lambda: self.loadings_statistics(found, family)
        factors.elsewhere[self.roles["topics"]] = self._topics_statistics
        return {name: found}

    def _explained(
        self,
        batch: Batch,
        weight: float,
        place: Tensor | None,
        prior: tuple[Tensor, Tensor],
        options: RunOptions,
        tolerance: float | None,
    ) -> OwnDocuments:
        """The sweeps over a batch: of documents that the topics hold, or of others."""
        origin = options.origin if place is None else None
        rows, own = None, nothing_held(batch.num_entries)
        if origin is not None:
            rows = origin.rows
            own = self.memory.held(origin.data, rows, batch.indptr, batch.count)
        if tolerance is None:
            tolerance = self.rule.tolerance if options.word_tolerance is None else options.word_tolerance
        found = own_counts_out(
            *(batch.indptr, batch.local_word, batch.count, self.gamma[batch.words], self.total, *prior),
            held=own,
            max_sweeps=options.sweeps or (self.rule.max_sweeps if rows is not None else 10 * self.rule.max_sweeps),
            tolerance=tolerance,
            keep=self.rule.keep,
        )
        statistics = self.gamma.new_zeros(len(batch.words), self.gamma.shape[1])
        add_kept_(statistics, batch.local_word, batch.count, found.kept)
        step = LocalStep(
            counts=found.counts,
            concentration=found.concentration,
            rate=found.rate,
            epsilon=found.epsilon,
            elog_loadings=(found.concentration / found.rate).log(),
            log_normalizer=found.log_predictive,
            statistics=statistics,
            sweeps=found.sweeps,
        )
        elog_theta = self.gamma.new_zeros(0, self.gamma.shape[1])
        return OwnDocuments(batch, step, elog_theta, weight, place, found.kept, own, rows)

    # The score in the place of the bound.

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        """The log probability of each word given all others, at the words; nothing at the other sites."""
        found: OwnDocuments = run.local[self.roles["loadings"]]
        nothing = torch.zeros(())
        score = found.weight * inner(found.batch.count, found.step.log_normalizer)
        return {name: score if name == self.words else nothing for name in names}

    def objective(self, run: Run) -> dict[str, Tensor]:
        found: OwnDocuments = run.local[self.roles["loadings"]]
        nothing = torch.zeros(())
        by_completion = self.rule.objective == "completion" and found.batch.seen is not None
        value = (
            self._completion(run, found)
            if by_completion
            else self.loadings_term(
                run.factors.program,
                run.factors,
                found,  # type: ignore[arg-type]
            )
        )
        rest = (self.roles["topics"], self.roles["assignment"], self.words)
        return {self.roles["loadings"]: value} | dict.fromkeys(rest, nothing)

    def _completion(self, run: Run, found: OwnDocuments) -> Tensor:
        """ln p(words that are not seen | those that are), by documents, in topics without the document's own words."""
        batch, prior = found.batch, self.prior_of_loadings(run.factors.program, run.factors)
        assert batch.seen is not None
        topics, total, own = self._without_own(found)
        given = batch.indptr, batch.local_word, topics, total
        proportions = self._proportions(given, batch.seen, prior, own)
        unseen = batch.count - batch.seen
        return found.weight * log_completion(*given[:2], unseen, *given[2:], proportions, own).sum()

    def _without_own(self, found: OwnDocuments) -> tuple[Tensor, Tensor, Held]:
        """gamma of the batch's words, its sums over all words, and what it holds of the documents."""
        return self.gamma[found.batch.words], self.total, found.own

    def _proportions(
        self, given: tuple[Tensor, Tensor, Tensor, Tensor], seen: Tensor, prior: tuple[Tensor, Tensor], own: Held
    ) -> Tensor:
        """Proportions of topics in documents of which some words are seen; gradients flow to the prior alone, (B, K).

        Args:
            given: indptr, local words, gamma of these words, and its sum over all.
            seen: how often each word is seen, (E,).
            prior: concentration and rate of the loadings.
            own: what gamma holds of the documents.
        """
        indptr, size = given[0], len(given[0]) - 1
        with torch.no_grad():
            step = own_counts_out(
                *(*given[:2], seen, *given[2:], *prior),
                held=own, warm=False, max_sweeps=_FOLD_IN, tolerance=self.rule.tolerance, keep=self.rule.keep,
            )  # fmt: skip
            document = torch.arange(size).repeat_interleave(indptr.diff())
            length = seen.new_zeros(size).index_add_(0, document, seen)
            slope = (length / step.epsilon).unsqueeze(-1)
        loadings = (prior[0] + step.counts) / (prior[1] + slope)
        return loadings / loadings.sum(-1, keepdim=True)

    @torch.no_grad()
    def log_probabilities(self, run: Run, seen: Tensor, size: int) -> Tensor:
        """ln of each word's probability in the first documents of a run's batch, given words that are seen.

        Args:
            run: of the model.
            seen: how often each word of these documents is seen, (E',).
            size: number of documents.
        """
        found: OwnDocuments = run.local[self.roles["loadings"]]
        batch, stop = found.batch, len(seen)
        topics, total, held = self._without_own(found)
        own = Held(Kept(*(x[:stop] for x in held.kept)), held.tokens[:stop])
        prior = self.prior_of_loadings(run.factors.program, run.factors)
        concentration, rate = (x[:size] if len(x) == batch.size else x for x in prior)
        given = batch.indptr[: size + 1], batch.local_word[:stop], topics, total
        proportions = self._proportions(given, seen, (concentration, rate), own)
        return (topics_without_own(*given, own) * proportions[batch.document[:stop]]).sum(-1).log()

    # Natural steps.

    @torch.no_grad()
    def gather(self, run: Run, share: float = 1.0) -> None:
        """Adds the counts of a run to those pending for the next natural step."""
        found: OwnDocuments = run.local[self.roles["loadings"]]
        self._met += found.step.counts.sum(0)
        words = found.batch.words[found.batch.local_word]
        add_kept_(self.pending, words, share * found.weight * found.batch.count, found.kept)

    @torch.no_grad()
    def take_up(self, run: Run, share: float, workers: Workers) -> None:
        """Remembers the documents; where all count once, also changes gamma at once.

        A batch pass whose documents are in gamma already moves gamma from the document's old counts to its new ones, so
        that each batch is explained by what those before it have learned. The natural step of rate 1 at its end gives
        the same gamma, up to rounding.
        """
        found: OwnDocuments = run.local[self.roles["loadings"]]
        if found.rows is None:
            return
        amount = share * found.weight
        now = not amount or (abs(amount - 1) < _WHOLE and bool((self.memory.share(found.rows) > 0).all()))
        now = not workers.any(not now) and workers.any(bool(amount))
        if now:
            self._change(found, bool(amount), workers)
        if amount or workers.size == 1:  # a worker that has no row of its own was lent one
            self.memory.keep_(found.rows, found.batch.indptr, found.kept, now, amount)

    def _change(self, found: OwnDocuments, mine: bool, workers: Workers) -> None:
        """Moves gamma from what it holds of the batch's documents to what was found, of those of all workers."""
        batch, alone = found.batch, workers.size == 1
        words = batch.words[batch.local_word]
        gamma = self.gamma if alone else torch.zeros_like(self.gamma)
        moved = torch.zeros_like(self.total).unsqueeze(0)
        if mine:
            for to, where in ((gamma, words), (moved, torch.zeros_like(words))):
                add_kept_(to, where, -found.own.tokens, found.own.kept)
                add_kept_(to, where, batch.count, found.kept)
        changed = batch.words
        if not alone:
            workers.sum_([gamma, moved])
            changed = gamma.any(1).nonzero().squeeze(-1)
            self.gamma += gamma
        self.gamma[changed] = torch.maximum(self.gamma[changed], _rows(self.prior(), changed) / 2)
        self.total += moved[0]

    def natural_step(self, rate: float) -> None:
        super().natural_step(rate)
        self.memory.step(rate)

    def memory_of_data(self) -> dict[str, Tensor]:
        return self.memory.state()

    def joined_memory(self, parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        return Memory.joined(parts)

    def remember_data(self, memory: Mapping[str, Tensor], data: Any) -> None:
        if len(memory["topics"]) and int(memory["topics"].max()) >= self.gamma.shape[1]:
            raise ValueError("What topics hold of the documents has more topics than the model.")
        self.memory.restore(memory, data)

    def set(self, gamma: Tensor) -> None:
        super().set(gamma)
        self.memory.forget()


def _rows(prior: Tensor, words: Tensor) -> Tensor:
    """Rows of gamma0, which may be one for all words."""
    return prior if prior.shape[0] == 1 else prior[words]
