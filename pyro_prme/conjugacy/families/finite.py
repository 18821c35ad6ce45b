"""Factors of discrete variables with a finite number of values."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families.base import Natural, SimpleFamily, Statistics
from pyro_prme.conjugacy.terms import CHOSEN
from pyro_prme.conjugacy.variables import Variable

__all__ = ["Finite", "OneHot"]


class Finite(SimpleFamily):
    """t(x) are the indicators of each value; mean parameters are responsibilities, natural ones their logarithms.

    Natural parameters have one more dimension than the variable, for its values; an additive constant means nothing.
    """

    title = "Categorical"
    statistics = ("chosen",)
    discrete = True
    kinds: ClassVar = {(CHOSEN, 1.0): "chosen"}

    def __init__(self, variable: Variable, joint: frozenset[int] = frozenset()) -> None:
        super().__init__(variable, joint)
        self.values: Tensor = variable.values  # type: ignore[assignment]
        self.members = self.shape[: len(self.shape) - (self.values.dim() - 1)]

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        each = value.unsqueeze(-1) == self.values
        return {"chosen": each.to(torch.get_default_dtype())}

    def means(self, natural: Natural) -> dict[str, Tensor]:
        return {"chosen": _softmax(natural["chosen"])}

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        logits, probs = natural["chosen"], means["chosen"]
        inner = (probs * logits).sum(-1)
        if not bool(torch.isfinite(inner).all()):  # values that are excluded have logits of minus infinity
            inner = torch.where(probs > 0, probs * logits, 0.0).sum(-1)
        return logits.logsumexp(-1) - inner

    def start(self, value: Tensor, count: float = 1.0) -> dict[str, Tensor]:
        return {"chosen": count * self.at_point(value)["chosen"]}

    def distribution(self, natural: Natural) -> Distribution:
        logits = natural["chosen"]
        event = len(self.shape) - len(self.batch_shape)
        if self.values.dtype.is_floating_point and torch.equal(self.values, torch.tensor([0.0, 1.0]).to(self.values)):
            return dist.Bernoulli(logits=logits[..., 1] - logits[..., 0]).to_event(event)
        if torch.equal(self.values, torch.arange(len(self.values))):
            return dist.Categorical(logits=logits).to_event(event)
        return ValuesOf(dist.Categorical(logits=logits), self.values).to_event(event)

    def holds(self, natural: Natural) -> bool:
        logits = natural["chosen"]
        if bool(torch.isfinite(logits.sum())):  # the usual case, in one fast pass
            return True
        return bool((logits.amax(-1) > -torch.inf).all())  # false for what is not a number, too

    def empty(self) -> dict[str, Tensor]:
        return {"chosen": torch.zeros(*self.members, len(self.values), dtype=torch.get_default_dtype())}


def _softmax(logits: Tensor) -> Tensor:
    """Softmax over the last dimension; in steps in float64, where torch's own is ten times as slow for short rows."""
    if logits.dtype != torch.float64 or logits.requires_grad:
        return logits.softmax(-1)
    out = (logits - logits.amax(-1, keepdim=True)).exp_()
    return out.div_(out.sum(-1, keepdim=True))


class OneHot(Finite):
    """The same for one-hot vectors, whose values are the rows of an identity matrix."""

    title = "OneHotCategorical"

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        return {"chosen": value.to(torch.get_default_dtype())}

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        return super().entropy(natural, means).unsqueeze(-1)

    def distribution(self, natural: Natural) -> Distribution:
        event = len(self.shape) - len(self.batch_shape) - 1
        return dist.OneHotCategorical(logits=natural["chosen"]).to_event(event)


class ValuesOf(dist.TorchDistribution):
    """A categorical distribution over given numbers.

    Args:
        choice: over positions.
        values: the number at each position.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, choice: dist.Categorical, values: Tensor) -> None:
        self.choice, self.values = choice, values
        super().__init__(choice.batch_shape, validate_args=False)

    @property
    def probs(self) -> Tensor:
        """Of each value, along the last dimension."""
        return self.choice.probs

    @property
    def mean(self) -> Tensor:
        return (self.choice.probs * self.values).sum(-1)

    @property
    def variance(self) -> Tensor:
        return (self.choice.probs * (self.values - self.mean.unsqueeze(-1)) ** 2).sum(-1)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        return self.values[self.choice.sample(sample_shape)]

    def log_prob(self, value: Tensor) -> Tensor:
        return self.choice.log_prob((value.unsqueeze(-1) == self.values).to(torch.int64).argmax(-1))

    def expand(self, batch_shape: Any, _instance: Any = None) -> ValuesOf:
        return ValuesOf(self.choice.expand(batch_shape), self.values)
