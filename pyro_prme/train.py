"""Inference: batch coordinate ascent and the stochastic Algorithm 2, from one step function."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyro
import torch
from scipy import sparse
from torch import Tensor, nn

from pyro_prme.checks import all_settings, choice, whole
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.counts import sound_csr
from pyro_prme.elbo import Bound, ClosedForm_ELBO
from pyro_prme.equations.sticks import sticks_from_weights
from pyro_prme.equations.updates import robbins_monro_rate
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.inference.topic_starts import STARTS
from pyro_prme.models.prme import PRME
from pyro_prme.optim import make_optimizers
from pyro_prme.prototype import eval_mode
from pyro_prme.rules import DirichletTopics, Point, Run

__all__ = ["Trainer"]

MODES = ("batch", "online")
_CENTRING = 1000  # documents over which f is centred: the error is a thirtieth of f's spread


class Trainer:
    """Fits a model and its guide to a corpus.

    A step is: E-step on the batch (evaluation mode), statistics, gradient steps on the bound for the networks, ell and
    V (training mode, the E-step held), and, online, a natural step for gamma at rate (t0 + t)^-kappa with statistics
    scaled by N / |N_t|. In batch mode the statistics of all batches add up to one natural step of rate 1 an epoch.

    An online pass may end with batch epochs: set `mode` to "batch" and go on. At kappa = 0.75 they gain next to nothing
    (`benchmarks/paper/NOTES.md`).

    The trainer has a random state of its own and leaves the global one alone.

    Args:
        model: a Pyro model, as a module, that takes a `Batch`.
        guide: its guide.
        counts: documents x words.
        mode: "batch" or "online".
        batch_size: documents a step. A layer of the decoder holds documents x topics x width numbers.
        learning_rate: of Adam, for networks and ell.
        stick_rate: of Adam, for V on its logit: with the networks' rate it is far from converged after 30 epochs.
        weight_decay: of Adam, for networks and ell.
        gradient_steps: gradient steps after an E-step.
        delay, decay: t0 and kappa.
        start: a key of `starts.STARTS`, or None to go on from the guide's current state.
        seed: decides the start, the order of documents and all noise.
    """

    def __init__(
        self,
        model: nn.Module,
        guide: ClosedFormGuide,
        counts: sparse.csr_matrix,
        *,
        mode: str = "batch",
        batch_size: int = 500,
        learning_rate: float = 2e-3,
        stick_rate: float = 0.05,
        weight_decay: float = 0.0,
        gradient_steps: int = 1,
        delay: float = 100.0,
        decay: float = 0.75,
        start: str | None = "kmeans",
        seed: int = 0,
    ) -> None:
        choice("mode", mode, MODES)
        if start is not None:
            choice("start", start, STARTS)
        all_settings(batch_size=batch_size, gradient_steps=gradient_steps, delay=delay, decay=decay, seed=seed)
        all_settings(learning_rate=learning_rate, stick_rate=stick_rate, weight_decay=weight_decay)
        self.model, self.guide, self.counts = model, guide, sound_csr(counts)
        if not self.counts.nnz:
            raise ValueError(f"The {counts.shape[0]} documents have no words: there is nothing to fit.")
        self.mode, self.batch_size, self.gradient_steps = mode, batch_size, gradient_steps
        self.delay, self.decay = delay, decay
        self.rng = np.random.default_rng(seed)
        self.steps = 0
        self.history: list[dict[str, Any]] = []
        self._torch_state = torch.Generator().manual_seed(seed).get_state()
        with self._random_state():
            guide.plan(Batch.from_csr(self.counts, np.flatnonzero(np.diff(self.counts.indptr))[:8]))
        if start is not None:
            begin(guide, self.counts, start, seed)
        self.elbo = ClosedForm_ELBO()
        self.objective = ClosedForm_ELBO(constants=False)(model, guide)
        self.optimizers = make_optimizers(self.objective, guide, learning_rate, stick_rate, weight_decay)

    @contextmanager
    def _random_state(self) -> Iterator[None]:
        """Torch draws from the trainer's own random state within it."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._torch_state)
            yield
            self._torch_state = torch.get_rng_state()

    def batches(self, *, shuffle: bool) -> Iterator[Batch]:
        """All documents, once each."""
        num = self.counts.shape[0]
        return self._cut(self.rng.permutation(num) if shuffle else np.arange(num))

    def _cut(self, documents: np.ndarray) -> Iterator[Batch]:
        for rows in np.array_split(documents, -(-len(documents) // self.batch_size)):
            yield Batch.of_rows(self.counts, rows)

    def step(self, batch: Batch) -> dict[str, float]:
        """One step on a batch; returns the bound by site at its E-step, slow terms left out."""
        run, terms = self._expect(batch, slow=False)
        self.guide.gather(run, scale=None if self.mode == "online" else 1.0)
        with self.guide.hold(run.local), pyro.validation_enabled(False):
            for _ in range(self.gradient_steps if self.optimizers else 0):
                for optimizer in self.optimizers:
                    optimizer.zero_grad()
                self.objective(batch).backward()
                for optimizer in self.optimizers:
                    optimizer.step()
        self.steps += 1
        if self.mode == "online":
            self.guide.natural_step(robbins_monro_rate(self.steps, self.delay, self.decay))
        return terms

    @torch.no_grad()
    def _expect(self, batch: Batch, *, slow: bool) -> tuple[Run, dict[str, float]]:
        """A run in evaluation mode, and its terms of the bound that are slow or are not.

        Pyro's validation, which takes a millisecond or two, is off: what it would show is checked here.
        """
        with eval_mode(self.model, self.guide), pyro.validation_enabled(False):
            try:
                run = self.guide.expectations(batch)
                terms = {name: float(term) for name, term in self.elbo.terms_of(run, slow=slow).items()}
            except ValueError:
                self._check_finite(dict(self.objective.named_parameters()))
                raise
        self._check_finite({f"the bound at site {name}": torch.tensor(term) for name, term in terms.items()})
        return run, terms

    def _check_finite(self, numbers: Mapping[str, Tensor]) -> None:
        for name, value in numbers.items():
            if not math.isfinite(value.sum()):
                raise ValueError(
                    f"After {self.steps} steps {name} is not finite: the fit has diverged; start again with a smaller "
                    "learning_rate."
                )

    def epoch(self) -> dict[str, Any]:
        """One pass over the corpus; returns and records its running bound: each batch as its step found it."""
        totals: dict[str, float] = {}
        with self._random_state():
            slow = self._slow_terms() if self.mode == "batch" else {}
            for batch in self.batches(shuffle=True):
                share = batch.size / self.counts.shape[0]
                for name, term in self.step(batch).items():
                    totals[name] = totals.get(name, 0.0) + share * term
            if self.mode == "batch":
                self.guide.natural_step(1.0)
            else:
                slow = self._slow_terms()
            self.recentre()
        terms = totals | slow
        record = {
            "epoch": len(self.history) + 1,
            "documents": (len(self.history) + 1) * self.counts.shape[0],
            "bound": sum(terms.values()),
            "bound_name": self.elbo.name,
            "terms": terms,
        }
        self.history.append(record)
        return record

    def fit(
        self, epochs: int, callback: Callable[[Trainer, dict[str, Any]], None] | None = None
    ) -> list[dict[str, Any]]:
        """Runs epochs; the callback sees the trainer and each epoch's record, and may add to the record."""
        for _ in range(whole("epochs", epochs, 0)):
            record = self.epoch()
            if callback is not None:
                callback(self, record)
        return self.history

    @torch.no_grad()
    def bound(self, bound: str = "epsilon") -> Bound:
        """The bound of the whole corpus as it stands, in evaluation mode, with a fresh E-step."""
        elbo, totals = ClosedForm_ELBO(bound=bound), dict[str, float]()
        with self._random_state(), eval_mode(self.model, self.guide):
            for batch in self.batches(shuffle=False):
                share = batch.size / self.counts.shape[0]
                terms = elbo.terms_of(self.guide.expectations(batch), slow=False)
                for name, term in terms.items():
                    totals[name] = totals.get(name, 0.0) + share * float(term)
            totals |= self._slow_terms()
        return Bound(elbo.name, sum(totals.values()), totals)

    def _slow_terms(self) -> dict[str, float]:
        """Terms of the sites whose rules are slow: they do not depend on the batch."""
        return self._expect(Batch.of_rows(self.counts, np.array([0])), slow=True)[1]

    @torch.no_grad()
    def recentre(self) -> None:
        """Recomputes the decoder's mean over documents, from at most 1,000 of them spread over the corpus."""
        sites = {"h", "ell"} <= set(self.guide.rules)
        if isinstance(self.model, PRME) and sites and isinstance(self.guide.rule("ell"), Point):
            with eval_mode(self.guide):
                num = self.counts.shape[0]
                sample = np.unique(np.linspace(0, num - 1, min(num, _CENTRING)).astype(int))
                embeddings = (self.guide.embeddings(batch) for batch in self._cut(sample))
                self.model.recentre(embeddings, self.guide.rule("ell").value())

    def state_dict(self) -> dict[str, Any]:
        """All that a later trainer on the same corpus needs to go on as if never interrupted."""
        return {
            "model": self.objective.model.state_dict(),
            "guide": self.guide.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "torch_state": self._torch_state,
            "numpy_state": self.rng.bit_generator.state,
            "steps": self.steps,
            "history": self.history,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state; the trainer must have been built alike, with start=None to save time."""
        self.objective.model.load_state_dict(state["model"])
        self.guide.load_state_dict(state["guide"])
        for optimizer, part in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(copy.deepcopy(part))
        self._torch_state = state["torch_state"]
        self.rng.bit_generator.state = state["numpy_state"]
        self.steps, self.history = state["steps"], list(state["history"])


_TOKENS_A_DOCUMENT = 10.0


def begin(guide: ClosedFormGuide, counts: sparse.csr_matrix, start: str = "kmeans", seed: int = 0) -> None:
    """Sets gamma, ell and V of a guide whose plan has been made.

    gamma is gamma0 + 10 (N / K) centre + Gamma(1, 0.1) noise; ell is a random projection of the centres' square roots,
    centred and normalised; V has the clusters' shares as its weights.

    Args:
        guide: with its rules set up.
        counts: documents x words, all of the corpus or a sample of it.
        start: a key of `STARTS`.
        seed: decides the start.
    """
    choice("start", start, STARTS)
    counts = sound_csr(counts)
    topics = guide.rule("theta")
    if not isinstance(topics, DirichletTopics):
        raise ValueError("A start sets the Dirichlet parameters of theta, and this guide has another rule for theta.")
    num_words, num_topics = topics.gamma.shape
    if counts.shape[1] != num_words:
        raise ValueError(f"The corpus has {counts.shape[1]} words and the model {num_words}: build it for this corpus.")
    rng = np.random.default_rng(seed)
    centres, shares = STARTS[start](counts, num_topics, rng)
    weight = _TOKENS_A_DOCUMENT * counts.shape[0] / num_topics
    noise = rng.gamma(1.0, 0.1, size=(num_words, num_topics))
    topics.set(topics.prior() + torch.as_tensor(weight * centres.T + noise, dtype=topics.gamma.dtype))
    sticks, ell = (guide.rule(name) if name in guide.rules else None for name in ("V", "ell"))
    if isinstance(sticks, Point):
        smooth = torch.as_tensor(shares + 0.1 / num_topics, dtype=sticks.free.dtype)
        sticks.set(sticks_from_weights(smooth / smooth.sum()))
    if isinstance(ell, Point):
        ell.set(_projection(centres, ell.free, rng))


def _projection(centres: np.ndarray, like: Tensor, rng: np.random.Generator) -> Tensor:
    """Unit vectors: a random projection of the centres' square roots around their mean."""
    roots = np.sqrt(centres)
    roots -= roots.mean(0)
    projected = roots @ rng.normal(size=(centres.shape[1], like.shape[-1]))
    norms = np.linalg.norm(projected, axis=1, keepdims=True)
    return torch.as_tensor(projected / np.maximum(norms, 1e-12), dtype=like.dtype)
