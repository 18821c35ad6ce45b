"""Inference on data in batches: coordinate ascent and its stochastic form, from one step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyro
import torch
from pyro import poutine
from torch import Tensor, nn

from pyro_prme.checks import all_settings, choice, whole
from pyro_prme.equations.updates import robbins_monro_rate
from pyro_prme.inference.data import Data
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.optimisers import make_optimisers, slower
from pyro_prme.inference.options import Origin, RunOptions
from pyro_prme.inference.orders import Order, next_rows, order_of
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import alone, evaluating
from pyro_prme.inference.underway import Underway
from pyro_prme.inference.workers import Workers
from pyro_prme.models.networks.layers import batch_mean

__all__ = ["MODES", "Bound", "TrainOptions", "Trainer"]

#: How natural steps are taken, see `TrainOptions`.
MODES = ("batch", "online")

_CENTRING = 50  # steps of an online pass after which what belongs to all documents is computed again


@dataclass(frozen=True)
class TrainOptions:
    """How a trainer goes about it.

    Args:
        mode: "batch" takes one natural step of rate 1 an epoch, from all batches; "online" one after each batch, at
            rate (delay + t)^-decay.
        batch_size: rows a step.
        learning_rate: of Adam, for what gradients move and has no rate of its own.
        weight_decay: of Adam, likewise.
        gradient_steps: gradient steps after an E-step.
        delay: t0, steps that the rate starts after.
        decay: kappa, how fast the rate falls.
        cooling: the last share of an online fit's rows, over which its steps shrink to nothing, those of gradients too.
        seed: decides the order of rows and all noise.
    """

    mode: str = "batch"
    batch_size: int = 500
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    gradient_steps: int = 1
    delay: float = 100.0
    decay: float = 0.75
    cooling: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        choice("mode", self.mode, MODES)
        all_settings(**{name: value for name, value in vars(self).items() if name != "mode"})


class Bound(NamedTuple):
    """A bound with its name and its parts by site."""

    name: str
    total: float
    terms: dict[str, float]


class Trainer:
    """Fits a guide, and what its model learns, to data in batches.

    A step is: E-step on the batch in evaluation mode, statistics, gradient steps on the bound in training mode with the
    E-step held, and, online, a natural step. In batch mode the statistics of all batches make one natural step of rate
    1 an epoch.

    The trainer has a random state of its own and leaves the global one alone.

    Args:
        guide: of the model.
        data: what to fit.
        options: how.
        start: passed to the guide's `begin`; None goes on from the guide's state.
        workers: with which this process fits together; each has the same guide and data, and takes its part of each
            batch. Batches are then `batch_size` rows for each of them.
    """

    def __init__(
        self,
        guide: ClosedFormGuide,
        data: Data,
        options: TrainOptions | None = None,
        *,
        start: str | None = "default",
        workers: Workers | None = None,
    ) -> None:
        self.workers = workers or Workers()
        self.guide, self.data, self.options = guide, data, options or TrainOptions()
        if not len(data):
            raise ValueError("The data have no rows: there is nothing to fit.")
        self.rng = np.random.default_rng(self.options.seed)
        self.steps = 0
        self.planned = 0  # epochs, of a fit that knows
        self.underway: Underway | None = None  # of an epoch that is not at its end
        self.history: list[dict[str, Any]] = []
        self._torch_state = torch.Generator().manual_seed(self.options.seed).get_state()
        with alone(), self._random_state():
            guide.plan(*data.batch(self._some_rows()))
            self._check_claims()
            if start is not None:
                guide.begin(data, start, self.options.seed)
            self.optimisers = self._make_optimisers()

    @property
    def model(self) -> Callable:
        """The guide's model."""
        return self.guide.model

    def _check_claims(self) -> None:
        """Refuses parts of the data for claims that need all of them."""
        claims: Any = list(self.guide.claims)
        needs = next((claim.needs_all_data for claim in claims if claim.needs_all_data), None)
        if needs and (self.options.mode != "batch" or self.workers.size > 1):
            raise ValueError(f"{needs} goes over all documents in one process: use mode='batch' and one worker.")

    def _some_rows(self) -> np.ndarray:
        """Rows for the plan: few, since the form of the model is the same for all."""
        typical = getattr(self.data, "typical_rows", None)
        return typical(8) if typical is not None else np.arange(min(8, len(self.data)))

    def _modules(self) -> list[nn.Module]:
        model = self.guide.model
        return [self.guide, model] if isinstance(model, nn.Module) else [self.guide]

    def _make_optimisers(self) -> list[torch.optim.Optimizer]:
        modules = self._modules()
        model = self.guide.model
        stored: list[Tensor] = []
        if not isinstance(model, nn.Module):
            with poutine.trace(param_only=True) as found:
                self.guide.run(*self.data.batch(self._some_rows()))
            values: list[Any] = [site["value"] for site in found.trace.nodes.values()]
            stored = [value.unconstrained() for value in values]
        claims: Any = list(self.guide.claims)
        rates = {"learning_rate": self.options.learning_rate, "weight_decay": self.options.weight_decay}
        return make_optimisers(claims, modules, stored, **rates)

    @contextmanager
    def _random_state(self) -> Iterator[None]:
        """Torch draws from the trainer's own random state within it."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._torch_state)
            try:
                yield
            finally:
                self._torch_state = torch.get_rng_state()

    def batches(self, *, shuffle: bool) -> Iterator[np.ndarray]:
        """The numbers of all rows, once each, in batches."""
        size = len(self.data)
        if not shuffle:
            yield from np.array_split(np.arange(size), -(-size // self._most))
            return
        order, done = self._order(), 0
        while done < size:
            rows = next_rows(order, size, done, self._most)
            done += len(rows)
            yield rows

    @property
    def _most(self) -> int:
        """Rows of a batch, over all workers."""
        return self.options.batch_size * self.workers.size

    def _order(self) -> Order:
        return order_of(self.rng, len(self.data), in_blocks=getattr(self.data, "on_disk", False))

    def step(self, rows: np.ndarray) -> dict[str, float]:
        """One step on a batch; returns the bound by site at its E-step, slow terms left out."""
        mine, share = self.workers.part(rows)
        args = self.data.batch(mine)
        run, terms = self._expect(args, slow=False, options=RunOptions(origin=Origin(self.data, mine)))
        online = self.options.mode == "online"
        self._gather(run, share if online else share * len(rows) / len(self.data))
        if self.optimisers:
            self._gradient_steps(args, run, share)
        self.steps += 1
        if online:
            rate = robbins_monro_rate(self.steps, self.options.delay, self.options.decay)
            self._natural_step(self._ease() * rate)
        return terms if self.workers.size == 1 else {name: share * term for name, term in terms.items()}

    def _ease(self) -> float:
        """By how much steps are smaller than they were, since the end of a planned online fit is near."""
        last = self.options.cooling * self.planned
        if self.options.mode == "batch" or not last:
            return 1.0
        done = self.underway.done / len(self.data) if self.underway is not None else 0.0
        return max(0.0, min(1.0, (self.planned - len(self.history) - done) / last))

    def _gather(self, run: Run, share: float) -> None:
        claims: Any = list(self.guide.claims)
        for claim in claims:
            claim.gather(run, share)
            claim.take_up(run, share, self.workers)

    def _natural_step(self, rate: float) -> None:
        claims: Any = list(self.guide.claims)
        self.workers.sum_([part for claim in claims for part in claim.pending_parts().values()])
        for claim in claims:
            claim.natural_step(rate)

    def _gradient_steps(self, args: tuple, run: Run, share: float) -> None:
        held, ease = RunOptions(held=run.local), self._ease()
        with pyro.validation_enabled(False), batch_mean(self.workers.mean):
            for _ in range(self.options.gradient_steps):
                for optimiser in self.optimisers:
                    optimiser.zero_grad()
                shown = self.guide.for_gradients(args)
                objective = -share * self.guide.run(*shown, options=held).objective()
                if not objective.requires_grad:
                    return
                objective.backward()
                self.workers.sum_gradients(self.optimisers)
                for optimiser in self.optimisers:
                    with slower(optimiser, ease):
                        optimiser.step()
        self.workers.average_running(self._modules())

    @torch.no_grad()
    def _expect(self, args: tuple, *, slow: bool, options: RunOptions | None = None) -> tuple[Run, dict[str, float]]:
        """A run in evaluation mode, and its terms of the bound that are slow or are not."""
        with evaluating(self.guide.model, self.guide), pyro.validation_enabled(False):
            try:
                run = self.guide.run(*args, options=options)
                terms = {name: float(term) for name, term in run.terms(slow=slow).items()}
            except ValueError:
                self._check_finite(self._named_parameters())
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

    def _named_parameters(self) -> dict[str, Tensor]:
        """What gradients move, with the sites of claims and the model's own names."""
        claims: Any = list(self.guide.claims)
        named = {f"{', '.join(c.sites)} ({name})": p for c in claims for name, p in c.named_parameters()}
        model = self.guide.model
        return named | (dict(model.named_parameters()) if isinstance(model, nn.Module) else {})

    def epoch(self, between: Callable[[Trainer], None] | None = None) -> dict[str, Any]:
        """One pass over the data, or the rest of one; returns and records its running bound.

        That is the bound of each batch as its step found it.

        Args:
            between: called after each step but the last; the trainer's state may be taken there.
        """
        going = self._all_steps(between)
        with alone(), self._random_state():
            if self.options.mode == "batch":
                self._natural_step(1.0)
            else:
                going.slow = self._slow_terms()
            self.guide.after_epoch(self.data)
        terms = self.workers.sum_numbers(going.totals) | going.slow
        record = {
            "epoch": len(self.history) + 1,
            "rows": (len(self.history) + 1) * len(self.data),
            "bound": sum(terms.values()),
            "bound_name": self.guide.bound_name(),
            "terms": terms,
            **going.notes,
        }
        self.underway = None
        self.history.append(record)
        return record

    def steps_on_all(self) -> dict[str, float]:
        """A step on each batch of the data; returns the bound by site, slow terms left out."""
        self.planned = 0
        totals = self._all_steps(None).totals
        self.underway = None
        return self.workers.sum_numbers(totals)

    def _all_steps(self, between: Callable[[Trainer], None] | None) -> Underway:
        """What is left of an epoch's steps."""
        if self.underway is None:
            drawn = copy.deepcopy(self.rng.bit_generator.state)
            with alone(), self._random_state():
                slow = self._slow_terms() if self.options.mode == "batch" else {}
            self.underway = Underway(drawn, slow=slow)
            self.underway.order = self._order()
        going, size = self.underway, len(self.data)
        while going.done < size:
            rows = next_rows(going.order, size, going.done, self._most)
            if self.workers.size > 1:  # noise of its own for each worker, that only seed, step, rank and size decide
                seed = self.workers.seed(self.options.seed, self.steps)
                self._torch_state = torch.Generator().manual_seed(seed).get_state()
            with alone(), self._random_state():
                going.add(self.step(rows), len(rows), size)
                if self.options.mode == "online" and self.steps % _CENTRING == 0 and going.done < size:
                    self.guide.after_epoch(self.data)
            if between is not None and going.done < size:
                between(self)
        return going

    def fit(
        self,
        epochs: int,
        callback: Callable[[Trainer, dict[str, Any]], None] | None = None,
        between: Callable[[Trainer], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Runs epochs, the first of which may be the rest of one.

        Args:
            epochs: how many.
            callback: sees the trainer and each epoch's record, and may add to the record.
            between: see `epoch`.
        """
        self.planned = len(self.history) + whole("epochs", epochs, 0)
        for _ in range(epochs):
            record = self.epoch(between)
            if callback is not None:
                callback(self, record)
        return self.history

    @torch.no_grad()
    def bound(self, bound: str = "epsilon") -> Bound:
        """The bound of all data as it stands, in evaluation mode, with a fresh E-step.

        Args:
            bound: what stands for E ln of the sum of a document's loadings, see `RunOptions`.
        """
        totals, options = dict[str, float](), RunOptions(bound=bound)
        with alone(), self._random_state():
            for rows in self.batches(shuffle=False):
                share = len(rows) / len(self.data)
                for name, term in self._expect(self.data.batch(rows), slow=False, options=options)[1].items():
                    totals[name] = totals.get(name, 0.0) + share * term
            totals |= self._slow_terms()
        return Bound(self.guide.bound_name(bound), sum(totals.values()), totals)

    def _slow_terms(self) -> dict[str, float]:
        """Terms that take long and do not depend on the batch."""
        claims: Any = list(self.guide.claims)
        if not any(claim.slow for claim in claims):
            return {}
        return self._expect(self.data.batch(self._some_rows()[:1]), slow=True)[1]

    def state_dict(self) -> dict[str, Any]:
        """All that a later trainer on the same data needs to go on as if never interrupted, also within an epoch.

        All workers must call it together; what the first gets is whole.
        """
        model = self.guide.model
        claims: Any = list(self.guide.claims)
        state: dict[str, Any] = {
            "model": model.state_dict() if isinstance(model, nn.Module) else {},
            "guide": self.guide.state_dict(),
            "optimizers": [optimiser.state_dict() for optimiser in self.optimisers],
            "torch_state": self._torch_state,
            "numpy_state": self.rng.bit_generator.state,
            "steps": self.steps,
            "history": self.history,
            "memory": {
                str(i): claim.joined_memory(self.workers.gather(claim.memory_of_data()))
                for i, claim in enumerate(claims)
            },
            "underway": None,
        }
        if self.underway is not None:
            parts = {f"{i}.{name}": x for i, claim in enumerate(claims) for name, x in claim.pending_parts().items()}
            state["numpy_state"] = self.underway.drawn
            state["underway"] = self.underway.state(
                self.workers.gather(parts if self.options.mode == "batch" else {}),
                self.workers.gather(self.underway.totals),
            )
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state; the trainer must have been built alike, with start=None to save time."""
        if isinstance(self.guide.model, nn.Module):
            self.guide.model.load_state_dict(state["model"])
        self.guide.load_state_dict(state["guide"])
        claims: Any = list(self.guide.claims)
        for i, part in state.get("memory", {}).items():
            claims[int(i)].remember_data(part, self.data)
        for optimiser, part in zip(self.optimisers, state["optimizers"], strict=True):
            optimiser.load_state_dict(copy.deepcopy(part))
        self._torch_state = state["torch_state"]
        self.rng.bit_generator.state = copy.deepcopy(state["numpy_state"])
        self.steps, self.history, self.underway = state["steps"], list(state["history"]), None
        going = state.get("underway")
        if going is not None:
            drawn = copy.deepcopy(self.rng.bit_generator.state)
            self.underway, pending = Underway.of(going, drawn, self.workers, len(self.data))
            self.underway.order = self._order()
            for i, claim in enumerate(claims):
                prefix = f"{i}."
                found = {name.removeprefix(prefix): x for name, x in pending.items() if name.startswith(prefix)}
                if found:
                    claim.restore_pending(found)
