"""Fitting any guide: coordinate ascent for closed forms, gradients beside it where the plan has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from pyro import poutine
from torch import nn
from tqdm import tqdm

from pyro_prme.conjugacy.structure import batches_drawn
from pyro_prme.inference.data import Data
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.conjugate import ConjugateFactors
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import seeded
from pyro_prme.inference.steps import natural_step

__all__ = ["FitOptions", "FitResult", "fit"]


_ROUNDING = 3e-7  # relative, of a bound in float32


@dataclass(frozen=True)
class FitOptions:
    """How `fit` goes about it.

    Args:
        epochs: most passes over the data.
        tolerance: fitting ends when a pass raises the bound by less than this, relative to its size. Where values are
            drawn the bound is noisy, and all epochs are made.
        batch_size: rows of a `Data` object a step; all at once if None.
        starts: fit from so many starts, and keep the one with the largest bound.
        learning_rate: of Adam, for what gradients move.
        delay: the natural step t has the rate (delay + t)^-decay where batches or draws make it noisy; else 1.
        decay: how fast that rate falls, see `delay`.
        bound_draws: runs over which the final bound is averaged where values are drawn.
        seed: decides starts, order and draws; the global random state is left alone.
        progress: show a bar; None shows it on a terminal only.
    """

    epochs: int = 1000
    tolerance: float = 1e-9
    batch_size: int | None = None
    starts: int = 1
    learning_rate: float = 1e-2
    delay: float = 1.0
    decay: float = 0.6
    bound_draws: int = 50
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "starts", "bound_draws"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}: it must be a whole number of at least 1.")
        if self.batch_size is not None and (not isinstance(self.batch_size, int) or self.batch_size < 1):
            raise ValueError(f"batch_size is {self.batch_size!r}: it must be a whole number of at least 1, or None.")
        for name in ("tolerance", "learning_rate", "delay"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value!r}: it must be a number of at least 0.")
        if not 0.5 < self.decay <= 1:
            raise ValueError(f"decay is {self.decay!r}: it must be above 0.5 and at most 1.")


@dataclass(frozen=True)
class FitResult:
    """What a fit came to.

    Args:
        bound: the evidence lower bound at the end.
        history: one record an epoch, with its number and the bound as it was found.
        converged: whether the bound had stopped rising.
        interrupted: whether the fit was interrupted from the keyboard; what it had reached is kept.
    """

    bound: float
    history: list[dict[str, Any]]
    converged: bool
    interrupted: bool = False


def fit(
    guide: ClosedFormGuide,
    *args: Any,
    options: FitOptions | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
    **kwargs: Any,
) -> FitResult:
    """Fits a guide, and what its model learns, to data.

    Closed-form sites are updated one after the other, each to its optimum given the others; what has no closed form is
    moved by Adam between sweeps. With a `Data` object and a batch size, closed-form sites take natural steps from
    batches, and the local ones are solved in each.

    Args:
        guide: of the model.
        args, kwargs: what the model is called with, or one `Data` object.
        options: how.
        callback: called with each epoch's record, to which it may add.

    Raises:
        ValueError: the bound of pure coordinate ascent has fallen by more than rounding, or is not finite.
    """
    if not isinstance(guide, ClosedFormGuide):
        raise ValueError(f"The guide is a {type(guide).__name__}: give a ClosedFormGuide.")
    options = options or FitOptions()
    if options.starts > 1:
        return _best_of(guide, args, options, callback, kwargs)
    with seeded(options.seed):
        return _Fit(guide, args, kwargs, options, callback).go()


def _best_of(guide: ClosedFormGuide, args: tuple, options: FitOptions, callback: Any, kwargs: Any) -> FitResult:
    """Fits from several starts and keeps the best."""
    best: tuple[FitResult, dict[str, Any]] | None = None
    for start in range(options.starts):
        once = replace(options, starts=1, seed=options.seed + start)
        result = fit(guide, *args, options=once, callback=callback, **kwargs)
        if best is None or result.bound > best[0].bound:
            best = result, {key: value.clone() for key, value in guide.state_dict().items()}
        if result.interrupted:
            break
    guide.load_state_dict(best[1])  # type: ignore[index]
    return best[0]  # type: ignore[index]


class _Fit:
    """The state of one fit."""

    def __init__(self, guide: ClosedFormGuide, args: tuple, kwargs: Any, options: FitOptions, callback: Any) -> None:
        self.guide, self.args, self.kwargs, self.options, self.callback = guide, args, kwargs, options, callback
        self.data: Data | None = args[0] if len(args) == 1 and isinstance(args[0], Data) else None
        self.rng = np.random.default_rng(options.seed)
        first = self._arguments(next(self._rows(shuffled=False)))
        guide.plan(*first, **kwargs)
        if options.seed:
            guide.restart(options.seed)
        claims: list[Any] = list(guide.claims)
        draws_batches = bool(batches_drawn(guide.structure.trace))  # a plate with a subsample_size draws its own
        self.drawn = draws_batches or any(getattr(claim, "random", False) for claim in claims)
        self.whole = not draws_batches
        if self.data is not None and options.batch_size is not None:
            self.whole = self.whole and options.batch_size >= len(self.data)
        self.optimizer = self._make_optimizer(first)
        self.steps = 0
        self.local: Mapping[str, Any] = {}
        self.still: Run | None = None  # the run of a model that nothing but closed forms can change

    def _make_optimizer(self, args: tuple) -> torch.optim.Optimizer | None:
        parameters: list[nn.Parameter] = [p for p in self.guide.parameters() if p.requires_grad]
        model = self.guide.model
        if isinstance(model, nn.Module):
            parameters += [p for p in model.parameters() if p.requires_grad]
        with poutine.trace(param_only=True) as found, torch.enable_grad():
            self.guide.run(*args, **self.kwargs)
        values: list[Any] = [site["value"] for site in found.trace.nodes.values()]
        stored = [value.unconstrained() for value in values]
        known = {id(p) for p in parameters}
        parameters += [p for p in stored if id(p) not in known]
        return torch.optim.Adam(parameters, lr=self.options.learning_rate) if parameters else None

    def _rows(self, *, shuffled: bool) -> Iterator[np.ndarray | None]:
        if self.data is None:
            yield None
            return
        size = len(self.data)
        order = self.rng.permutation(size) if shuffled else np.arange(size)
        batch_size = self.options.batch_size or size
        yield from np.array_split(order, -(-size // batch_size))

    def _arguments(self, rows: np.ndarray | None) -> tuple:
        return self.args if rows is None or self.data is None else tuple(self.data.batch(rows))

    @property
    def exact(self) -> bool:
        """Whether nothing but closed forms moves, on all data at once: then the bound never falls."""
        return self.whole and self.optimizer is None and not self.drawn

    @property
    def conjugate(self) -> bool:
        """Whether the engine alone moves everything, so that one symbolic run serves all sweeps."""
        return self.exact and all(isinstance(c, ConjugateFactors) for c in self.guide.claims)

    def go(self) -> FitResult:
        """Epochs until the bound stands still."""
        history: list[dict[str, Any]] = []
        converged = interrupted = False
        try:
            with tqdm(total=self.options.epochs, unit="epoch", disable=_hidden(self.options), leave=False) as bar:
                for epoch in range(1, self.options.epochs + 1):
                    bound = self.epoch()
                    record = {"epoch": epoch, "bound": bound}
                    converged = self._check(history, bound)
                    history.append(record)
                    if self.callback is not None:
                        self.callback(record)
                    bar.set_postfix(bound=f"{bound:.6g}", refresh=False)
                    bar.update()
                    if converged:
                        break
        except KeyboardInterrupt:
            interrupted = True
        bound = history[-1]["bound"] if self.exact and history else self.final_bound()
        return FitResult(bound, history, converged, interrupted)

    def _check(self, history: list[dict[str, Any]], bound: float) -> bool:
        """Whether the bound stands still; a fall that rounding does not explain is an error."""
        if not math.isfinite(bound):
            raise ValueError(
                f"After {len(history)} epochs the bound is {bound}: start elsewhere, or use a smaller learning_rate."
            )
        if not history:
            return False
        before = history[-1]["bound"]
        size = max(abs(bound), 1.0)
        rounding = 1e-8 if torch.get_default_dtype() == torch.float64 else 1e-4
        if self.exact and bound < before - rounding * size:
            raise ValueError(
                f"The bound fell from {before} to {bound} in coordinate ascent: its updates and the bound disagree, "
                "which is a fault of this library or of a rule that was given."
            )
        if not (self.whole and not self.drawn):
            return False
        double = torch.get_default_dtype() == torch.float64
        return abs(bound - before) <= max(self.options.tolerance, 0.0 if double else _ROUNDING) * size

    def epoch(self) -> float:
        """One pass over the data; returns the bound, each batch as its step found it."""
        total, size = 0.0, 1 if self.data is None else len(self.data)
        for rows in self._rows(shuffled=not self.whole):
            share = 1.0 if rows is None else len(rows) / size
            total += share * self.step(self._arguments(rows))
        return total

    def step(self, args: tuple) -> float:
        """A run, a gradient step and the natural steps; returns the bound."""
        self.steps += 1
        if self.conjugate:
            return self._sweep(args)
        run = self.guide.run(*args, options=RunOptions(started=self.local), **self.kwargs)
        self.local = run.local if self.whole else {}
        bound = run.bound()
        if self.optimizer is not None:
            self.optimizer.zero_grad()
            (-bound).backward()
            self.optimizer.step()
        natural_step(self.guide, run, self._rate())
        return float(bound.detach())

    @torch.no_grad()
    def _sweep(self, args: tuple) -> float:
        """Coordinate ascent on all data: the symbolic run is made once."""
        if self.still is None:
            self.still = self.guide.run(*args, **self.kwargs)
            self._order = _first_order(self.guide, self.still)
        factors = self.still.factors
        first, self._order = self._order, None
        factors.sweep(first)
        for claim in list(self.guide.claims):
            for name in claim.kept:  # type: ignore[union-attr]
                claim.set_natural(name, factors.natural[name])  # type: ignore[operator]
        return float(factors.bound())

    def _rate(self) -> float:
        if self.whole and not self.drawn:
            return 1.0
        return min(1.0, (self.options.delay + self.steps) ** -self.options.decay)

    @torch.no_grad()
    def final_bound(self) -> float:
        """The bound of all data, averaged over draws."""
        draws = self.options.bound_draws if self.drawn else 1
        total = 0.0
        for rows in self._rows(shuffled=False):
            share = 1.0 if rows is None or self.data is None else len(rows) / len(self.data)
            args = self._arguments(rows)
            held: RunOptions | None = None
            for _ in range(draws):
                run = self.guide.run(*args, options=held, **self.kwargs)
                held = held or (RunOptions(started=run.local) if run.local and self.whole else None)
                total += share * float(run.bound()) / draws
        return total


def _first_order(guide: ClosedFormGuide, run: Run) -> tuple[str, ...] | None:
    """In the first sweep discrete sites come last: they start from clusters, the others from their priors."""
    families = run.factors.program.families
    closed = run.factors.order
    return (*(n for n in closed if not families[n].discrete), *(n for n in closed if families[n].discrete))


def _hidden(options: FitOptions) -> bool | None:
    """What tqdm takes: None hides the bar where there is no terminal."""
    return None if options.progress is None else not options.progress
