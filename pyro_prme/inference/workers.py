"""Several processes that fit one model together: open this to see what they add up, and when.

Each worker has all data at hand (mapped from disk, where they are large), takes its part of every batch, and solves the
local factors there. What they found is summed before it is used: statistics before a natural step, gradients before an
optimiser's. So W workers with batches of b rows do what one does with batches of W b. Batch norm is the exception: as
elsewhere in torch, each worker normalises by its own rows.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as torch_distributed

from pyro_prme.models.networks.layers import mean_of_rows

__all__ = ["Workers", "WorkersDiffer", "working_together"]

_MINUTES = 10  # that a worker waits for the others before it gives up
_MEETING = 60  # seconds that all have to find each other at the start; after that they are started again
_GRACE = 15  # seconds more, after which a worker that still waits is ended

_LOST = ("timed out", "connection", "gloo")  # in the errors of torch


class WorkersDiffer(ValueError):
    """Not all workers have the same; each of them raises it."""


@dataclass(frozen=True)
class Workers:
    """The place of this process among those that fit together; alone by default.

    Args:
        rank: of this one.
        size: how many there are.
        minutes: that one waits for the others.
    """

    rank: int = 0
    size: int = 1
    minutes: float = _MINUTES

    @property
    def leads(self) -> bool:
        """Whether this one writes files and speaks to the user."""
        return self.rank == 0

    def owns(self, rows: np.ndarray) -> np.ndarray:
        """Which rows of the data are this worker's: always the same, so that what it remembers of them is of use."""
        return rows % self.size == self.rank

    def why_lost(self, error: RuntimeError) -> str | None:
        """What an error of torch says of the other workers, in a sentence; None if it is about something else."""
        text = str(error).lower()
        if not any(sign in text for sign in _LOST):
            return None
        late = "timed out" in text
        why = f"No word from the other workers for {self.minutes:g} minutes" if late else "Another worker has ended"
        return f"{why}: all start again from the last checkpoint, where torchrun may do so."

    def part(self, rows: np.ndarray) -> tuple[np.ndarray, float]:
        """This worker's rows of a batch, and their share of it; a worker that has none gets one of share 0."""
        if self.size == 1:
            return rows, 1.0
        mine = rows[self.owns(rows)]
        return (mine, len(mine) / len(rows)) if len(mine) else (rows[:1], 0.0)

    def seed(self, *numbers: int) -> int:
        """A seed of this worker's own, from numbers that all share."""
        return int(np.random.SeedSequence([*numbers, self.rank, self.size]).generate_state(1)[0])

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Adds each tensor up over all workers, in place; they must be the same in number and shape everywhere."""
        if self.size == 1:
            return
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            by_type.setdefault(tensor.dtype, []).append(tensor)
        for parts in by_type.values():
            if len(parts) == 1 and parts[0].is_contiguous():
                torch_distributed.all_reduce(parts[0])
                continue
            together = torch.cat([part.detach().reshape(-1) for part in parts])
            torch_distributed.all_reduce(together)
            for part, total in zip(parts, together.split([part.numel() for part in parts]), strict=True):
                part.detach().copy_(total.view_as(part))

    def mean(self, x: Tensor) -> Tensor | None:
        """The mean over the rows of all workers, through which gradients pass; None for a single row."""
        if self.size == 1:
            return mean_of_rows(x)
        count = torch.tensor(float(len(x)), dtype=x.dtype)
        self.sum_([count])
        total: Tensor = _Sum.apply(x.sum(0))
        return total / count if count > 1 else None

    def sum_gradients(self, optimisers: Iterable[torch.optim.Optimizer]) -> None:
        """Adds the gradients of all that the optimisers move up over all workers."""
        if self.size == 1:
            return
        dense: list[Tensor] = []
        sparse: list[Tensor] = []
        for parameter in (p for o in optimisers for group in o.param_groups for p in group["params"]):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            (sparse if parameter.grad.is_sparse else dense).append(parameter)
        self.sum_([parameter.grad for parameter in dense if parameter.grad is not None])
        for parameter in sparse:
            gradient: Any = parameter.grad
            parts: list[Any] = [None] * self.size
            torch_distributed.all_gather_object(parts, gradient.coalesce())
            parameter.grad = sum(parts[1:], start=parts[0]).coalesce()

    def average_running(self, modules: Iterable[nn.Module]) -> None:
        """Gives all workers the mean of the running means and variances that batch norm keeps."""
        if self.size == 1:
            return
        buffers = [
            buffer
            for module in modules
            for name, buffer in module.named_buffers()
            if name.rpartition(".")[2].startswith("running_")
        ]
        self.sum_(buffers)
        for buffer in buffers:
            buffer /= self.size

    def sum_numbers(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Each number added up over all workers."""
        if self.size == 1:
            return dict(numbers)
        names = sorted(numbers)
        values = torch.tensor([numbers[name] for name in names], dtype=torch.float64)
        torch_distributed.all_reduce(values)
        return dict(zip(names, values.tolist(), strict=True))

    def gather(self, what: Any) -> list[Any]:
        """What each worker gives, for the first of them; the others get their own."""
        if self.size == 1:
            return [what]
        found: list[Any] | None = [None] * self.size if self.leads else None
        torch_distributed.gather_object(what, found)
        return [what] if found is None else found

    def gather_all(self, what: Any) -> list[Any]:
        """What each worker gives, for all of them."""
        found: list[Any] = [what] * self.size
        if self.size > 1:
            torch_distributed.all_gather_object(found, what)
        return found

    def any(self, said: bool) -> bool:
        """Whether any worker says so."""
        if self.size == 1:
            return said
        total = torch.tensor(float(said))
        torch_distributed.all_reduce(total)
        return bool(total > 0)

    def agree(self, what: Mapping[str, Any]) -> None:
        """Refuses, in all workers alike, what is not the same for all of them: a corpus, a setting, a version."""
        if self.size == 1:
            return
        found: list[Any] = [None] * self.size
        torch_distributed.all_gather_object(found, dict(what))
        for rank, other in enumerate(found):
            for name, value in found[0].items():
                if other.get(name) != value:
                    raise WorkersDiffer(
                        f"Worker {rank} has another {name} than worker 0 ({other.get(name)} and {value}): start all "
                        "workers with the same files, settings and version."
                    )


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all workers; the objective is a sum over them too, and so is its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        torch_distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Sum.forward(ctx, gradient)


def _meet(wait: timedelta) -> None:
    """Finds the other workers, by addresses that only this start of them has left.

    torchrun keeps what workers have left with it when it starts them again, and the addresses of those before lead
    nowhere.
    """
    store, rank, size = next(torch_distributed.rendezvous("env://", timeout=wait))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    own = torch_distributed.PrefixStore(f"attempt {attempt}", store)
    torch_distributed.init_process_group("gloo", store=own, rank=rank, world_size=size, timeout=wait)


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Ends this process if what is within takes longer: workers that wait in vain for others do not always time out.

    torchrun then starts all of them again.
    """
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def working_together(minutes: float = _MINUTES) -> Iterator[Workers]:
    """The workers that `torchrun` has started, or this process alone.

    Args:
        minutes: that one waits for the others; then it ends with an error.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Workers()
        return
    wait = timedelta(minutes=minutes)
    with _ended_after(_MEETING + _GRACE):
        _meet(timedelta(seconds=_MEETING))
    world: Any = torch_distributed.group.WORLD
    if hasattr(world, "set_timeout"):
        world.set_timeout(wait)
    try:
        yield Workers(torch_distributed.get_rank(), size, minutes)
    finally:
        torch_distributed.destroy_process_group()
