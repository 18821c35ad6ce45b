"""Normal factors that are given and not updated, of which exponential moments are known too."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pyro_prme.conjugacy.families.base import Natural, Request
from pyro_prme.conjugacy.families.normal import Normal
from pyro_prme.conjugacy.terms import EXPONENTIAL, Factor
from pyro_prme.conjugacy.variables import Variable

__all__ = ["GivenNormal"]

_EXPONENT = "exp:"


class _Moments(dict[str, Tensor]):
    """The moments of a Normal; those of exp(c x) are computed when they are asked for."""

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        super().__init__(x=mean, xx=mean * mean + variance)
        self.variance = variance

    def __missing__(self, statistic: str) -> Tensor:
        c = float(statistic.removeprefix(_EXPONENT))
        moment = (c * self["x"] + 0.5 * c * c * self.variance).exp()
        if moment.requires_grad or not self["x"].requires_grad:  # else it was asked for without a gradient
            self[statistic] = moment
        return moment


class GivenNormal(Normal):
    r"""A Normal that another part of a model decides, with :math:`E e^{cx} = \exp(c m + c^2 v / 2)`."""

    title = "given Normal"
    exponential = True

    @classmethod
    def requests(cls, variable: Variable, factors: Sequence[Factor]) -> list[Request]:
        if len(factors) == 1 and factors[0].kind == EXPONENTIAL:
            return [Request(f"{_EXPONENT}{factors[0].power!r}", factors[0].entries)]
        return super().requests(variable, factors)

    def means(self, natural: Natural) -> dict[str, Tensor]:
        if self.joint:
            return super().means(natural)
        variance = -0.5 / natural["xx"]
        return _Moments(natural["x"] * variance, variance)
