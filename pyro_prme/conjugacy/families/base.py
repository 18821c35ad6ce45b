"""What a family of posterior factors has to know: statistics, mean parameters, entropy, a distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.indices import Entry
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import CHOSEN, COMPLEMENT_LOG, EXPONENTIAL, LOG, Factor
from pyro_prme.conjugacy.variables import Variable

__all__ = ["Family", "Natural", "Request", "SimpleFamily", "Statistics"]

#: Natural parameters by the name of the statistic that they multiply.
Natural = Mapping[str, Tensor]
#: Mean parameters, the expected statistics, by name.
Statistics = Mapping[str, Tensor]


class Request(NamedTuple):
    """Statistics of a variable that a term asks for.

    Args:
        statistic: name of the statistic.
        entries: where; for a product of two members, those of the first and of the second.
        couples: dimensions along which the two members differ.
    """

    statistic: str
    entries: tuple[Entry, ...]
    second: tuple[Entry, ...] = ()
    couples: frozenset[int] = frozenset()


class Family:
    """The posterior factor of one variable, as a member of its exponential family.

    Args:
        variable: the variable.
        joint: dimensions of its shape that are coupled, and so have one factor together.
    """

    #: What the plan calls it.
    title: ClassVar[str]
    #: Names of the statistics.
    statistics: ClassVar[tuple[str, ...]]
    #: Whether values are positive; lie between 0 and 1 with a statistic for 1 - x; add up to one.
    positive: ClassVar[bool] = False
    complement: ClassVar[bool] = False
    simplex: ClassVar[bool] = False
    #: Whether exp of a multiple of x has an expectation that is known.
    exponential: ClassVar[bool] = False
    #: Whether values are among a finite number of them.
    discrete: ClassVar[bool] = False

    def __init__(self, variable: Variable, joint: frozenset[int] = frozenset()) -> None:
        self.variable, self.joint = variable, joint
        self.shape, self.batch_shape = variable.shape, variable.batch_shape

    # What is asked before there is a factor.

    @classmethod
    def requests(cls, variable: Variable, factors: Sequence[Factor]) -> list[Request]:
        """Which statistics the factors of one term ask for, all of them of this variable."""
        raise NotImplementedError

    @classmethod
    def interior_point(cls, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """A random point inside of the support, in float64."""
        raise NotImplementedError

    @classmethod
    def refuse(cls, variable: Variable, factors: Sequence[Factor]) -> Refused:
        """Says which statistic the family does not have."""
        names = {LOG: "ln x", COMPLEMENT_LOG: "ln(1 - x)", CHOSEN: "an indicator", EXPONENTIAL: "exp(x)"}
        asked = " times ".join(names.get(f.kind) or ("x" if f.power == 1 else f"x^{f.power:g}") for f in factors)
        return Refused({variable}, f"{asked} is not a statistic of its {cls.title} family")

    # What the factor itself knows.

    def operand_entries(self, request: Request) -> tuple[Entry, ...]:
        """The index of the statistic's tensor for a request."""
        return request.entries

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        """The statistics at a value."""
        raise NotImplementedError

    def means(self, natural: Natural) -> dict[str, Tensor]:
        """The expected statistics."""
        raise NotImplementedError

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        """By element of the shape, with size one along joint and event dimensions that share a factor."""
        raise NotImplementedError

    def start(self, value: Tensor, count: float = 1.0) -> dict[str, Tensor]:
        """Natural parameters of a factor round a value, worth so many observations."""
        raise NotImplementedError

    def distribution(self, natural: Natural) -> Distribution:
        """The factor as a distribution over values of the variable's shape."""
        raise NotImplementedError

    def inside(self, value: Tensor) -> Tensor:
        """A value whose statistics are finite: draws of sparse distributions can be zero in floating point."""
        return value

    def draw(self, natural: Natural) -> Tensor:
        """A value drawn from the factor."""
        return self.inside(self.distribution(natural).sample())

    def holds(self, natural: Natural) -> bool:
        """Whether the natural parameters are those of a proper distribution."""
        raise NotImplementedError

    def empty(self) -> dict[str, Tensor]:
        """Zeros of the shapes of the natural parameters."""
        raise NotImplementedError


class SimpleFamily(Family):
    """A family in which every member of a variable has a factor of its own: products of two members are refused."""

    #: The statistic for a kind and power of a factor.
    kinds: ClassVar[Mapping[tuple[str, float], str]]

    @classmethod
    def requests(cls, variable: Variable, factors: Sequence[Factor]) -> list[Request]:
        if len(factors) > 1:
            many = "it enters a product of two of its members, or of two functions of it"
            raise Refused({variable}, many)
        statistic = cls.kinds.get((factors[0].kind, factors[0].power))
        if statistic is None:
            raise cls.refuse(variable, factors)
        return [Request(statistic, factors[0].entries)]

    def empty(self) -> dict[str, Tensor]:
        return {name: torch.zeros(self.shape, dtype=self.variable.dtype) for name in self.statistics}


def unwrapped(fn: Any) -> Any:
    """A distribution without the wrappers that only change its shape or mask it."""
    from pyro import distributions as dist

    while isinstance(fn, torch.distributions.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
    return fn
