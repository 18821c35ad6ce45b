"""Draws from a model's prior on a few documents, to see what form it has before any closed form is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from pyro import poutine
from pyro.poutine.trace_struct import Trace
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from pyro_prme.corpora.batch import Batch

__all__ = ["Draw", "Prototype", "eval_mode"]


@contextmanager
def eval_mode(*modules: Any) -> Iterator[None]:
    """Puts modules into evaluation mode and gives each submodule its own mode back."""
    parts = [part for module in modules if isinstance(module, torch.nn.Module) for part in module.modules()]
    training = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part, mode in zip(parts, training, strict=True):
            part.training = mode


class Draw:
    """One run of the model with all values drawn from the prior, and what happens when one of them is changed."""

    def __init__(self, model: Callable, args: tuple, trace: Trace, other: Trace) -> None:
        self._model, self.args, self._trace, self._other = model, args, trace, other

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the sample sites, plates left out, in the model's order."""
        nodes = self._trace.nodes.items()
        return tuple(name for name, site in nodes if site["type"] == "sample" and not site_is_subsample(site))

    def __contains__(self, name: str) -> bool:
        return name in self.names

    @property
    def batch(self) -> Batch:
        """The batch among the model's arguments."""
        return next(arg for arg in self.args if isinstance(arg, Batch))

    def site(self, name: str) -> Any:
        """Pyro's record of the site."""
        return self._trace.nodes[name]

    def value(self, name: str) -> Tensor:
        """The site's value."""
        return self.site(name)["value"]

    def log_prob(self, name: str) -> Tensor:
        """The site's log density, without scale."""
        return self.site(name)["fn"].log_prob(self.value(name))

    def intervene(self, name: str) -> Draw:
        """The same run with this one value taken from an independent draw and all others kept."""
        return self.replace(name, self._other.nodes[name]["value"])

    def replace(self, name: str, value: Tensor | None) -> Draw:
        """The same run with this one value replaced and all others kept."""
        trace = self._trace.copy()
        trace.nodes[name] = {**trace.nodes[name], "value": value}
        return Draw(self._model, self.args, _run(self._model, self.args, trace), self._other)

    def children(self, name: str) -> set[str]:
        """Sites whose log density changes when the value of this one is changed."""
        moved = self.intervene(name)
        return {
            other
            for other in self.names
            if other != name and (other not in moved or not torch.equal(self.log_prob(other), moved.log_prob(other)))
        }

    def scale_refusal(self, documents_site: str, words_site: str) -> str | None:
        """Why the entries do not weigh count times the documents' scale, or None when they do."""
        site = self.site(words_site)
        if site["mask"] is not None and site["mask"] is not True:
            return f"{words_site} is masked: leave the entries out of the batch instead."
        expected = self.batch.count * self.site(documents_site)["scale"]
        actual = torch.as_tensor(site["scale"], dtype=expected.dtype).expand_as(expected)
        if not torch.allclose(actual, expected, rtol=1e-5):
            return f"the scale of {words_site} is not the count of each entry times the scale of {documents_site}."
        return None


class Prototype:
    """Independent prior draws of a model, in evaluation mode, with the random state left as it was.

    Args:
        model: a Pyro model.
        args: what it is called with; of a batch of more than 64 documents only the first with words are used, so that
            values of per-document sites can be conditioned on in small batches only.
        num_draws: how many, at least two.
    """

    def __init__(self, model: Callable, args: tuple, num_draws: int = 2) -> None:
        for batch in (arg for arg in args if isinstance(arg, Batch) and not arg.num_entries):
            raise ValueError(f"The {batch.size} documents of the batch have no words: the model's form cannot be seen.")
        args = tuple(arg.head(8) if isinstance(arg, Batch) and arg.size > 64 else arg for arg in args)
        with torch.random.fork_rng(devices=[]):
            traces = [_run(model, args) for _ in range(num_draws)]
        self.draws = [
            Draw(model, args, trace, other) for trace, other in zip(traces, traces[1:] + traces[:1], strict=True)
        ]
        self._children: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[Draw]:
        return iter(self.draws)

    def __contains__(self, name: str) -> bool:
        return name in self.draws[0]

    @property
    def has_batch(self) -> bool:
        """Whether the model was called with a batch."""
        return any(isinstance(arg, Batch) for arg in self.draws[0].args)

    @property
    def names(self) -> tuple[str, ...]:
        return self.draws[0].names

    def site(self, name: str) -> Any:
        return self.draws[0].site(name)

    def value(self, name: str) -> Tensor:
        return self.draws[0].value(name)

    def children(self, name: str) -> set[str]:
        """Sites that depend on this one in any of the draws."""
        if name not in self._children:
            self._children[name] = set().union(*(draw.children(name) for draw in self.draws))
        return self._children[name]


def _run(model: Callable, args: tuple, values: Trace | None = None) -> Trace:
    run = model if values is None else poutine.replay(model, trace=values)
    with torch.no_grad(), eval_mode(model), poutine.block():
        return poutine.trace(run).get_trace(*args)
