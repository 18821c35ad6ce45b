r"""Factors whose members a square couples, updated one member after the other: Gamma and Bernoulli under a Normal.

In :math:`-\tfrac12 (x - \sum_k z_k w_k)^2` members of z multiply each other. A joint factor is known for a Normal prior
only; for others each member keeps a factor of its own, which is the best one given the means of the others. All of them
at once would be no ascent, hence a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families.base import Natural, Request, Statistics
from pyro_prme.conjugacy.families.half_normal import ModifiedHalfNormal
from pyro_prme.conjugacy.families.normal import Normal
from pyro_prme.conjugacy.families.positive import Gamma
from pyro_prme.conjugacy.terms import LOG, Factor
from pyro_prme.conjugacy.variables import Variable

__all__ = ["BinaryMembers", "Members", "PositiveMembers"]

_STILL = 1e-6  # change of a mean, relative to the largest, at which sweeps end


class Members(Normal):
    r"""t(z) = (..., z, z z') over coupled members; the factor is a product over members.

    Natural parameters are by member, those of z^2 the diagonal; what `Program.target` gives has the whole matrix, and
    `settled` makes the one of the other.
    """

    title = "one member after the other"

    def means(self, natural: Natural) -> dict[str, Tensor]:
        mean, second = self._moments(natural)
        if not self.joint:
            return {"x": mean, "xx": second}
        rows, squares = self.rows(mean), self.rows(second)
        both = rows.unsqueeze(-1) * rows.unsqueeze(-2)
        both = torch.diagonal_scatter(both, squares, dim1=-2, dim2=-1)
        return {"x": mean, "xx": self.in_place(both, 2)}

    def _moments(self, natural: Natural) -> tuple[Tensor, Tensor]:
        """E z and E z^2 of each member."""
        raise NotImplementedError

    def _mean_of(self, natural: Natural) -> Tensor:
        """E z of members laid out in any way."""
        raise NotImplementedError

    def single(self) -> dict[str, Tensor]:
        """Zeros of the shapes of the natural parameters by member."""
        return {name: torch.zeros(self.shape, dtype=self.variable.dtype) for name in self.statistics}

    def draw(self, natural: Natural) -> Tensor:
        return self.distribution(natural).sample()

    def without_products(self, target: Natural) -> dict[str, Tensor]:
        """Natural parameters by member, the products of different ones left out."""
        own = self._matrices(target["xx"]).diagonal(dim1=-2, dim2=-1)
        parts = {name: target[name] for name in self.statistics if name != "xx"}
        return {name: parts[name] if name in parts else self.in_place(own, 1) for name in self.statistics}

    def settled(self, target: Natural, start: Tensor, sweeps: int) -> dict[str, Tensor]:
        """Natural parameters by member after sweeps over the members, from first means of them.

        Args:
            target: what everything else asks for, with the products of members.
            start: means of z, of its shape.
            sweeps: most of them; they stop where no mean moves.
        """
        matrix = self._matrices(target["xx"])
        coupling = matrix + matrix.mT
        own = matrix.diagonal(dim1=-2, dim2=-1)
        parts = {name: self.rows(target[name]) for name in self.statistics if name != "xx"}
        linear, mean = parts["x"].expand(self.rows(start).shape), self.rows(start).clone()
        current = linear.clone()
        for _ in range(sweeps):
            before = mean.clone()
            for k in range(self.joint_size):
                others = (coupling[..., k, :] * mean).sum(-1) - coupling[..., k, k] * mean[..., k]
                current[..., k] = linear[..., k] + others
                member = {name: part[..., k] for name, part in parts.items()} | {"x": current[..., k]}
                mean[..., k] = self._mean_of(member | {"xx": own[..., k]})
            if not bool(((mean - before).abs() > _STILL * mean.abs().amax().clamp(min=1e-30)).any()):
                break
        found = parts | {"x": current, "xx": own.expand(mean.shape)}
        return {name: self.in_place(found[name].expand(mean.shape), 1) for name in self.statistics}


class PositiveMembers(Members):
    r"""A Gamma prior: each member has :math:`q(z) \propto z^{c - 1} \exp(b z - \tfrac12 a z^2)`."""

    title = "Gamma times Normal, one member after the other"
    statistics: ClassVar[tuple[str, ...]] = ("log", "x", "xx")
    positive: ClassVar[bool] = True

    @classmethod
    def requests(cls, variable: Variable, factors: Sequence[Factor]) -> list[Request]:
        if len(factors) == 1 and (factors[0].kind, factors[0].power) == (LOG, 1.0):
            return [Request("log", factors[0].entries)]
        return super().requests(variable, factors)

    @classmethod
    def interior_point(cls, shape: torch.Size, generator: torch.Generator) -> Tensor:
        return Gamma.interior_point(shape, generator)

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        return {"log": value.log(), **super().at_point(value)}

    @staticmethod
    def _each(natural: Natural) -> ModifiedHalfNormal:
        tiny = torch.finfo(natural["xx"].dtype).tiny
        return ModifiedHalfNormal(natural["log"] + 1, (-2 * natural["xx"]).clamp(min=tiny), natural["x"])

    def means(self, natural: Natural) -> dict[str, Tensor]:
        return {"log": self._each(natural).expected_log, **super().means(natural)}

    def _moments(self, natural: Natural) -> tuple[Tensor, Tensor]:
        q = self._each(natural)
        return q.mean, q.mean.square() + q.variance

    def _mean_of(self, natural: Natural) -> Tensor:
        return self._each(natural).mean

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        each = self._each(natural).entropy()
        for d in sorted(self.joint):
            each = each.sum(d, keepdim=True)
        return each

    def start(self, value: Tensor, count: float = 1.0) -> dict[str, Tensor]:
        return {**Gamma.start(self, value, count), "xx": torch.full_like(value, -1e-3)}  # type: ignore[arg-type]

    def distribution(self, natural: Natural) -> Distribution:
        return self._each(natural).to_event(len(self.shape) - len(self.batch_shape))

    def holds(self, natural: Natural) -> bool:
        finite = all(bool(torch.isfinite(part).all()) for part in natural.values())
        return finite and bool((natural["log"] > -1).all()) and bool((natural["xx"] < 0).all())

    def empty(self) -> dict[str, Tensor]:
        return {"log": torch.zeros(self.shape, dtype=self.variable.dtype), **super().empty()}


class BinaryMembers(Members):
    """A Bernoulli prior: each member has log odds of its own."""

    title = "Bernoulli, one member after the other"
    statistics = ("x", "xx")

    @classmethod
    def interior_point(cls, shape: torch.Size, generator: torch.Generator) -> Tensor:
        return torch.randint(0, 2, shape, generator=generator).double()  # z^2 is z nowhere else

    @staticmethod
    def _log_odds(natural: Natural) -> Tensor:
        return natural["x"] + natural["xx"]  # z^2 is z

    def _moments(self, natural: Natural) -> tuple[Tensor, Tensor]:
        mean = self._mean_of(natural)
        return mean, mean

    def _mean_of(self, natural: Natural) -> Tensor:
        return self._log_odds(natural).sigmoid()

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        each = dist.Bernoulli(logits=self._log_odds(natural), validate_args=False).entropy()
        for d in sorted(self.joint):
            each = each.sum(d, keepdim=True)
        return each

    def start(self, value: Tensor, count: float = 1.0) -> dict[str, Tensor]:
        return {"x": (value - 0.5) * 2, "xx": torch.zeros_like(value)}

    def distribution(self, natural: Natural) -> Distribution:
        q = dist.Bernoulli(logits=self._log_odds(natural), validate_args=False)
        return q.to_event(len(self.shape) - len(self.batch_shape))

    def holds(self, natural: Natural) -> bool:
        return all(bool(torch.isfinite(part).all()) for part in natural.values())
