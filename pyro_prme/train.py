"""Inference: batch coordinate ascent and the stochastic Algorithm 2, from one step function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyro
import torch
from scipy import sparse

from pyro_prme.batch import Batch
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.model import PRME
from pyro_prme.prototype import eval_mode
from pyro_prme.starts import begin
from pyro_prme.updates import robbins_monro_rate

__all__ = ["Trainer"]

MODES = ("batch", "online")


class Trainer:
    """Fits a model and its guide to a corpus.

    A step is: E-step on the batch (evaluation mode), statistics, gradient steps on the bound for the networks, ell and
    V (training mode, the E-step held), and, online, a natural step for gamma at rate (t0 + t)^-kappa with statistics
    scaled by N / |N_t|. In batch mode the statistics of all batches add up to one natural step of rate 1 an epoch.

    Args:
        model: a Pyro model that takes a `Batch`.
        guide: its guide.
        counts: documents x words.
        mode: "batch" or "online".
        batch_size: documents a step.
        learning_rate: of Adam, for networks and ell.
        stick_rate: of Adam, for V on its logit.
        weight_decay: of Adam, for networks and ell.
        gradient_steps: gradient steps after an E-step.
        delay, decay: t0 and kappa.
        start: a key of `starts.STARTS`.
        seed: decides the start, the order of documents and all noise.
    """

    def __init__(
        self,
        model: Callable,
        guide: ClosedFormGuide,
        counts: sparse.csr_matrix,
        *,
        mode: str = "batch",
        batch_size: int = 500,
        learning_rate: float = 1e-3,
        stick_rate: float = 0.05,
        weight_decay: float = 0.0,
        gradient_steps: int = 1,
        delay: float = 100.0,
        decay: float = 0.75,
        start: str = "kmeans",
        seed: int = 0,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}: choose 'batch' or 'online'.")
        if not 0.5 < decay <= 1:
            raise ValueError(f"decay is {decay}: kappa must be above 0.5 and at most 1.")
        self.model, self.guide, self.counts = model, guide, sparse.csr_matrix(counts)
        self.mode, self.batch_size, self.gradient_steps = mode, batch_size, gradient_steps
        self.delay, self.decay = delay, decay
        self.rng = np.random.default_rng(seed)
        self.time = 0
        self.history: list[dict[str, Any]] = []
        pyro.set_rng_seed(seed)
        guide.plan(Batch.from_csr(self.counts, np.arange(min(8, self.counts.shape[0]))))
        begin(guide, self.counts, start, seed)
        self.elbo = ClosedForm_ELBO()
        self.objective = ClosedForm_ELBO(constants=False)(model, guide)
        self.optimizer = self._optimizer(learning_rate, stick_rate, weight_decay)

    def _optimizer(self, learning_rate: float, stick_rate: float, weight_decay: float) -> torch.optim.Optimizer | None:
        sticks = list(self.guide.rules["V"].parameters()) if "V" in self.guide.rules else []
        rest = [p for p in self.objective.parameters() if not any(p is s for s in sticks)]
        groups = [
            {"params": rest, "lr": learning_rate, "weight_decay": weight_decay},
            {"params": sticks, "lr": stick_rate, "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        return torch.optim.AdamW(groups) if groups else None

    def batches(self, *, shuffle: bool) -> Iterator[Batch]:
        """All documents, once each."""
        num = self.counts.shape[0]
        order = self.rng.permutation(num) if shuffle else np.arange(num)
        for rows in np.array_split(order, -(-num // self.batch_size)):
            yield Batch.from_csr(self.counts, rows)

    def step(self, batch: Batch) -> dict[str, float]:
        """One step on a batch; returns the bound by site, gamma's own term left out."""
        with torch.no_grad(), eval_mode(self.model, self.guide):
            run = self.guide.expectations(batch)
            terms = {name: float(term) for name, term in self.elbo.terms_of(run, skip_slow=True).items()}
        self.guide.gather(run, scale=None if self.mode == "online" else 1.0)
        if self.optimizer is not None:
            with self.guide.hold(run.local):
                for _ in range(self.gradient_steps):
                    self.optimizer.zero_grad()
                    self.objective(batch).backward()
                    self.optimizer.step()
        if self.mode == "online":
            self.time += 1
            self.guide.natural_step(robbins_monro_rate(self.time, self.delay, self.decay))
        return terms

    def epoch(self) -> dict[str, Any]:
        """One pass over the corpus; returns and records the bound, a running one: each batch as its step found it."""
        totals: dict[str, float] = {}
        slow = self._slow_terms() if self.mode == "batch" else {}
        for batch in self.batches(shuffle=True):
            share = batch.size / self.counts.shape[0]
            for name, term in self.step(batch).items():
                totals[name] = totals.get(name, 0.0) + share * term
        if self.mode == "batch":
            self.guide.natural_step(1.0)
        terms = totals | (slow or self._slow_terms())
        self.recentre()
        record = {
            "epoch": len(self.history) + 1,
            "bound": sum(terms.values()),
            "bound_name": self.elbo.name,
            "terms": terms,
        }
        self.history.append(record)
        return record

    @torch.no_grad()
    def _slow_terms(self) -> dict[str, float]:
        """Terms of the sites whose rules are slow: they do not depend on the batch."""
        with eval_mode(self.model, self.guide):
            run = self.guide.expectations(Batch.from_csr(self.counts, [0]))
            return {
                name: float(rule.term(name, run, self.elbo.bound)) for name, rule in run.rules.items() if rule.slow
            }

    @torch.no_grad()
    def recentre(self) -> None:
        """Recomputes the decoder's mean over documents exactly."""
        if "h" in self.guide.rules and isinstance(self.model, PRME):
            with eval_mode(self.guide):
                embeddings = (self.guide.embeddings(batch) for batch in self.batches(shuffle=False))
                self.model.recentre(embeddings, self.guide.rules["ell"].value())

    def fit(self, epochs: int, callback: Callable[[Trainer, dict[str, Any]], None] | None = None) -> list[dict[str, Any]]:
        """Runs epochs; the callback sees the trainer and each epoch's record."""
        for _ in range(epochs):
            record = self.epoch()
            if callback is not None:
                callback(self, record)
        return self.history
