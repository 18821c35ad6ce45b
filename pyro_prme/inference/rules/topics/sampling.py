"""Loadings and topics by Gibbs sampling: a topic for each word, drawn given all others, and topics averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyro_prme.checks import whole
from pyro_prme.conjugacy import Structure
from pyro_prme.corpora.batch import Batch
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.topics.own_counts import OwnCountsOut, OwnCountsOutFactors
from pyro_prme.inference.rules.topics.token_memory import TokenMemory
from pyro_prme.kernels.local import LocalStep
from pyro_prme.kernels.own_counts import Held, nothing_held
from pyro_prme.kernels.sampling import Assigned, kept_of_tokens, sample_topics

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run
    from pyro_prme.inference.workers import Workers

__all__ = ["Sampling", "SamplingFactors"]

_ONCE = 1e-6  # a document counts once, up to rounding
_SEED, _VISITS, _PASSES, _STATES = range(4)  # places in `progress`


@dataclass(frozen=True)
class Sampling(OwnCountsOut):
    """Claims loadings, assignments and topics, and draws the topic of every word given those of all others.

    Topics are integrated out, and so are the loadings (:func:`pyro_prme.kernels.sampling.sample_topics`): exact for
    loadings whose rates are the same for all topics, as those of the HDP and of PRME with f in the shape, and with one
    exact auxiliary draw a document for f in the scale, whose exp(-f) enters by its expectation. Networks and sticks are
    moved by gradients between the sweeps.

    A chain begins where passes by expected counts have led (`warm_up`), since it leaves a bad start one word at a time.
    Topics are the mean, over the states of the chain after the burn-in, of the word probabilities that each state
    predicts. New documents are explained in these mean topics by expected counts, as `OwnCountsOut` does. In the place
    of a bound a fit reports the log probability of each word given all others: during the warm-up as `OwnCountsOut`,
    and then when the word was drawn, given the topics of all others.

    Args:
        objective, max_sweeps, tolerance, keep: see `OwnCountsOut`; the sweeps are those over new documents.
        sweeps: over a batch when it is met.
        warm_up: passes over the data as `OwnCountsOut` makes them, before the chain begins.
        burn_in: passes of the chain before its states are averaged; until then topics are those of the last state.
    """

    sweeps: int = 3
    warm_up: int = 10
    burn_in: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("sweeps", self.sweeps, 1, 1000)
        whole("warm_up", self.warm_up, 0)
        whole("burn_in", self.burn_in, 0)

    def claim(self, structure: Structure, words: str, roles: Mapping[str, str]) -> OwnCountsOutFactors:
        return SamplingFactors(self, structure, words, roles)


class SampledDocuments(NamedTuple):
    """What the sweeps over a batch of the data found: the fields of `Documents`, and the state of the chain."""

    batch: Batch
    step: LocalStep
    elog_theta: Tensor
    weight: float
    place: Tensor | None
    rows: np.ndarray  # of the data
    assigned: Assigned
    moved: Tensor  # (W, K) by how much the counts of the batch's words change
    log_predictive: Tensor  # (B,)


class SamplingFactors(OwnCountsOutFactors):
    """A chain of topics of words, and the mean of the topics that its states predict, word-major.

    `gamma` and `total` are for answers: the mean topics, times the mean of the topics' sums. `chain` has the counts of
    the state, without gamma0.

    Args:
        rule, structure, words, roles: see `TopicFactors`.
    """

    rule: Sampling
    chain: Tensor
    chain_total: Tensor
    progress: Tensor
    needs_all_data = "Gibbs sampling"

    def __init__(self, rule: Sampling, structure: Structure, words: str, roles: Mapping[str, str]) -> None:
        super().__init__(rule, structure, words, roles)
        self.score = "log probability of each word given all others, by expected counts and then by drawn topics"
        self.tokens_of_data = TokenMemory()
        self.register_buffer("chain", torch.zeros_like(self.gamma))
        self.register_buffer("chain_total", torch.zeros_like(self.total, dtype=torch.float64))
        self.register_buffer("progress", torch.zeros(4, dtype=torch.int64))

    def title(self, name: str) -> str:
        if name == self.roles["topics"]:
            passes = f"{self.rule.warm_up} passes by expected counts, and {self.rule.burn_in} of the chain"
            return f"collapsed Gibbs: mean over states of the chain, after {passes}"
        if name == self.roles["assignment"]:
            return "collapsed Gibbs: each word's topic drawn given those of all others (compiled)"
        exact = "an exact auxiliary draw where rates differ between topics" if self.normalised else "integrated out"
        return f"collapsed Gibbs: counts of the drawn topics; {exact} (compiled)"

    @property
    def is_sampling(self) -> bool:
        """Whether the warm-up is over."""
        return int(self.progress[_PASSES]) >= self.rule.warm_up

    @property
    def _has_state(self) -> bool:
        """Whether all words of the data have topics that were drawn."""
        return int(self.progress[_PASSES]) > self.rule.warm_up

    @property
    def num_states(self) -> int:
        """States of the chain that the topics are the mean of; 0 during the burn-in."""
        return int(self.progress[_STATES])

    def _explained(
        self,
        batch: Batch,
        weight: float,
        place: Tensor | None,
        prior: tuple[Tensor, Tensor],
        options: RunOptions,
        tolerance: float | None,
    ) -> Any:
        """Sweeps over documents of the data; the fixed point of expected counts, in the mean topics, for others."""
        origin = options.origin if place is None else None
        if origin is None or not self.is_sampling:
            return super()._explained(batch, weight, place, prior, options, tolerance)
        given, total = self._topics_of(batch)
        size = batch.length.numpy().astype(np.int64)
        assigned = self.tokens_of_data.held(origin.data, origin.rows, size, self._has_state)
        seed = np.random.SeedSequence(self.progress[: _VISITS + 1].tolist())
        found = sample_topics(
            *(batch.indptr, batch.local_word, batch.count, given, total, *prior, assigned),
            key=int(seed.generate_state(1, np.uint64)[0]),
            rows=torch.as_tensor(origin.rows),
            sweeps=options.sweeps or self.rule.sweeps,
        )
        step = LocalStep(
            counts=found.counts,
            concentration=found.concentration,
            rate=found.rate,
            epsilon=torch.where(batch.length > 0, batch.length / found.assigned.slope.to(batch.length.dtype), 1.0),
            elog_loadings=(found.concentration / found.rate).log(),
            log_normalizer=found.log_predictive,
            statistics=self.gamma.new_zeros(0, self.gamma.shape[1]),
            sweeps=torch.full((batch.size,), options.sweeps or self.rule.sweeps),
        )
        moved = (found.topics - given).round_()
        nothing = self.gamma.new_zeros(0, self.gamma.shape[1])
        return SampledDocuments(
            *(batch, step, nothing, weight, place, origin.rows), found.assigned, moved, found.log_predictive
        )

    def _topics_of(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """gamma of the batch's words and its sums in the chain; at the start, of the topics that it starts from."""
        if not self._has_state:
            return self.gamma[batch.words], self.total
        prior = self.prior()
        rows = self.chain[batch.words] + (prior if prior.shape[0] == 1 else prior[batch.words])
        return rows, self.chain_total + _sums(prior, len(self.chain))

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        """The log probability of each word given the topics of all others, at the words."""
        found = run.local[self.roles["loadings"]]
        if not isinstance(found, SampledDocuments):
            return super().terms(run, names)
        nothing, score = torch.zeros(()), found.weight * found.log_predictive.sum()
        return {name: score if name == self.words else nothing for name in names}

    def _without_own(self, found: Any) -> tuple[Tensor, Tensor, Held]:
        if not isinstance(found, SampledDocuments):
            return super()._without_own(found)
        given, total = self._topics_of(found.batch)
        if not self._has_state:
            return given, total, nothing_held(found.batch.num_entries)
        kept = kept_of_tokens(found.batch.count, found.assigned.topics, self.rule.keep)
        return given, total, Held(kept, found.batch.count)

    @torch.no_grad()
    def gather(self, run: Run, share: float = 1.0) -> None:
        """Moves the chain to the state that a run has drawn."""
        found = run.local[self.roles["loadings"]]
        if not self.is_sampling:
            super().gather(run, share)
            return
        if not isinstance(found, SampledDocuments) or abs(share * found.weight - 1) > _ONCE:
            raise ValueError(
                "Gibbs sampling of topics goes over all documents, each of which counts once: fit with a Trainer in "
                "mode='batch'."
            )
        self.chain.index_add_(0, found.batch.words, found.moved)
        self.chain_total += found.moved.sum(0, dtype=torch.float64)
        self.tokens_of_data.keep_(found.rows, found.batch.length.numpy().astype(np.int64), found.assigned)
        self.progress[_VISITS] += 1

    def take_up(self, run: Run, share: float, workers: Workers) -> None:
        if not self.is_sampling:
            super().take_up(run, share, workers)

    def pending_parts(self) -> dict[str, Tensor]:
        return {} if self.is_sampling else super().pending_parts()

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        """Ends a pass: after the burn-in, the topics that the state predicts enter the mean."""
        if rate != 1:
            raise ValueError("Gibbs sampling of topics has no online steps: fit with a Trainer in mode='batch'.")
        warm = not self.is_sampling
        self.progress[_PASSES] += 1
        if warm:
            super().natural_step(rate)
            return
        self.memory.forget()
        prior = self.prior()
        predicted, total = self.chain + prior, self.chain_total + _sums(prior, len(self.chain))
        predicted /= total
        if int(self.progress[_PASSES]) > self.rule.warm_up + self.rule.burn_in:
            self.progress[_STATES] += 1
            states = self.num_states
            if states > 1:
                predicted.lerp_(self.gamma / self.total, 1 - 1 / states)
                total = total + (self.total - total) * (1 - 1 / states)
        self.total.copy_(total)
        torch.mul(predicted, self.total, out=self.gamma)

    def restart(self, generator: torch.Generator) -> None:
        self.progress[_SEED] = torch.randint(2**31 - 1, (), generator=generator)
        super().restart(generator)

    def set(self, gamma: Tensor) -> None:
        super().set(gamma)
        self.tokens_of_data.forget()
        self.chain.zero_()
        self.chain_total.zero_()
        self.progress[_VISITS:] = 0

    def memory_of_data(self) -> dict[str, Tensor]:
        drawn = {f"drawn_{name}": part for name, part in self.tokens_of_data.state().items()}
        return super().memory_of_data() | drawn

    def remember_data(self, memory: Mapping[str, Tensor], data: Any) -> None:
        drawn = {name.removeprefix("drawn_"): part for name, part in memory.items() if name.startswith("drawn_")}
        super().remember_data({name: part for name, part in memory.items() if not name.startswith("drawn_")}, data)
        if len(drawn["topics"]) and int(drawn["topics"].max()) >= self.gamma.shape[1]:
            raise ValueError("The chain has topics of words that the model does not have.")
        self.tokens_of_data.restore(drawn, data)


def _sums(prior: Tensor, words: int) -> Tensor:
    """Sums of gamma0 over all words, from one row for all of them or from one for each."""
    return prior.sum(0, dtype=torch.float64) * (words if prior.shape[0] == 1 else 1)
