"""Normal factors, with the dimensions that some term couples in one joint Normal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution, constraints

from pyro_prme.conjugacy.families.base import Family, Natural, Request, Statistics
from pyro_prme.conjugacy.indices import Entry, same_entry
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import POWER, Factor
from pyro_prme.conjugacy.variables import Variable

__all__ = ["JointNormal", "Normal"]

_LOG_2_PI_E = math.log(2 * math.pi * math.e)
_LARGEST_JOINT = 5000  # members of one joint Normal, whose covariance has that many squared entries


class Normal(Family):
    r"""t(x) = (x, x x') over the joint dimensions, (x, x^2) over the others.

    Natural parameters are precision times mean, and minus half of the precision.
    """

    title = "Normal"
    statistics: ClassVar[tuple[str, ...]] = ("x", "xx")

    @classmethod
    def requests(cls, variable: Variable, factors: Sequence[Factor]) -> list[Request]:
        if any(f.kind != POWER for f in factors) or sum(f.power for f in factors) > 2:
            raise cls.refuse(variable, factors)
        if any(f.power not in (1, 2) for f in factors):
            raise cls.refuse(variable, factors)
        if len(factors) == 1:
            f = factors[0]
            return [Request("x", f.entries)] if f.power == 1 else [Request("xx", f.entries, f.entries)]
        a, b = factors
        differ = frozenset(d for d, (x, y) in enumerate(zip(a.entries, b.entries, strict=True)) if not same_entry(x, y))
        if variable.subsampled & differ:
            raise Refused({variable}, "a term couples members of its subsampled plate")
        return [Request("xx", a.entries, b.entries, differ)]

    @classmethod
    def interior_point(cls, shape: torch.Size, generator: torch.Generator) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def __init__(self, variable: Variable, joint: frozenset[int] = frozenset()) -> None:
        super().__init__(variable, joint)
        self._coupled = sorted(joint)
        self._apart = [d for d in range(len(self.shape)) if d not in joint]
        self.joint_size = math.prod(self.shape[d] for d in self._coupled)
        if self.joint_size > _LARGEST_JOINT:
            raise Refused(
                {variable},
                f"its {self.joint_size} members are coupled, and a joint Normal is kept for {_LARGEST_JOINT} at most",
            )

    def operand_entries(self, request: Request) -> tuple[Entry, ...]:
        if request.statistic != "xx":
            return request.entries
        return (*request.entries, *(request.second[d] for d in self._coupled))

    def rows(self, x: Tensor) -> Tensor:
        """With the joint dimensions flattened into the last one."""
        x = x.permute(self._apart + self._coupled)
        return x.reshape(*x.shape[: len(self._apart)], self.joint_size)

    def _matrices(self, xx: Tensor) -> Tensor:
        """With the joint dimensions, twice, as the last two."""
        n = len(self.shape)
        xx = xx.permute(self._apart + self._coupled + list(range(n, n + len(self._coupled))))
        return xx.reshape(*xx.shape[: len(self._apart)], self.joint_size, self.joint_size)

    def in_place(self, x: Tensor, times: int) -> Tensor:
        """Rows (times = 1) or matrices (times = 2) back in the variable's own order of dimensions."""
        order = self._apart + self._coupled
        sizes = [self.shape[d] for d in order + self._coupled * (times - 1)]
        back = [order.index(d) for d in range(len(order))]
        return x.reshape(sizes).permute(back + list(range(len(order), len(sizes))))

    def at_point(self, value: Tensor) -> dict[str, Tensor]:
        if not self.joint:
            return {"x": value, "xx": value * value}
        rows = self.rows(value)
        return {"x": value, "xx": self.in_place(rows.unsqueeze(-1) * rows.unsqueeze(-2), 2)}

    def means(self, natural: Natural) -> dict[str, Tensor]:
        if not self.joint:
            variance = -0.5 / natural["xx"]
            mean = natural["x"] * variance
            return {"x": mean, "xx": mean * mean + variance}
        mean, covariance = self.moments(natural)
        second = mean.unsqueeze(-1) * mean.unsqueeze(-2) + covariance
        return {"x": self.in_place(mean, 1), "xx": self.in_place(second, 2)}

    def _precision_root(self, natural: Natural) -> Tensor:
        half = self._matrices(natural["xx"])
        return torch.linalg.cholesky(-(half + half.mT))

    def moments(self, natural: Natural) -> tuple[Tensor, Tensor]:
        """Mean and covariance over the flattened joint dimensions."""
        root = self._precision_root(natural)
        mean = torch.cholesky_solve(self.rows(natural["x"]).unsqueeze(-1), root).squeeze(-1)
        return mean, torch.cholesky_inverse(root)

    def precision_times(self, natural: Natural, mean: Tensor) -> Tensor:
        """Precision times a mean: the natural parameter that goes with it."""
        if not self.joint:
            return -2 * natural["xx"] * mean
        half = self._matrices(natural["xx"])
        rows = -(half + half.mT) @ self.rows(mean).unsqueeze(-1)
        return self.in_place(rows.squeeze(-1), 1)

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        if not self.joint:
            return 0.5 * (_LOG_2_PI_E - (-2 * natural["xx"]).log())
        log_root = self._precision_root(natural).diagonal(dim1=-2, dim2=-1).log().sum(-1)
        entropy = 0.5 * self.joint_size * _LOG_2_PI_E - log_root
        return entropy.reshape([1 if d in self.joint else n for d, n in enumerate(self.shape)])

    def start(self, value: Tensor, count: float = 1.0) -> dict[str, Tensor]:
        if not self.joint:
            return {"x": count * value, "xx": torch.full_like(value, -0.5 * count)}
        rows = self.rows(value)
        eye = torch.eye(self.joint_size, dtype=value.dtype).expand(*rows.shape, self.joint_size)
        return {"x": count * value, "xx": self.in_place(-0.5 * count * eye, 2)}

    def distribution(self, natural: Natural) -> Distribution:
        if not self.joint:
            variance = -0.5 / natural["xx"]
            event = len(self.shape) - len(self.batch_shape)
            return dist.Normal(natural["x"] * variance, variance.sqrt()).to_event(event)
        mean, covariance = self.moments(natural)
        if self._coupled == list(range(len(self.batch_shape), len(self.shape))) == [len(self.shape) - 1]:
            return dist.MultivariateNormal(mean, covariance)
        return JointNormal(self, mean, covariance)

    def draw(self, natural: Natural) -> Tensor:
        if not self.joint:
            return self.distribution(natural).sample()
        root = self._precision_root(natural)
        shift = self.rows(natural["x"]).unsqueeze(-1)
        shift = torch.linalg.solve_triangular(root, shift, upper=False)  # L^-1 of precision times mean
        rows = torch.linalg.solve_triangular(root.mT, shift + torch.randn_like(shift), upper=True)
        return self.in_place(rows.squeeze(-1), 1)

    def holds(self, natural: Natural) -> bool:
        if not all(bool(torch.isfinite(part).all()) for part in natural.values()):
            return False
        if not self.joint:
            return bool((natural["xx"] < 0).all())
        half = self._matrices(natural["xx"])
        return not bool(torch.linalg.cholesky_ex(-(half + half.mT)).info.any())

    def empty(self) -> dict[str, Tensor]:
        second = (*self.shape, *(self.shape[d] for d in self._coupled))
        return {
            name: torch.zeros(shape, dtype=self.variable.dtype) for name, shape in (("x", self.shape), ("xx", second))
        }


class JointNormal(dist.TorchDistribution):
    """A joint Normal over some dimensions of a tensor, wherever they are; it is one event of the tensor's shape.

    Args:
        family: which dimensions are joint.
        mean, covariance: over the flattened joint dimensions.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.real
    has_rsample = True

    def __init__(self, family: Normal, mean: Tensor, covariance: Tensor) -> None:
        self._family, self._flat = family, torch.distributions.MultivariateNormal(mean, covariance)
        super().__init__(torch.Size(), family.shape, validate_args=False)

    @property
    def covariance_matrix(self) -> Tensor:
        """Over the flattened joint dimensions, which come last."""
        return self._flat.covariance_matrix

    @property
    def mean(self) -> Tensor:
        return self._family.in_place(self._flat.mean, 1)

    @property
    def variance(self) -> Tensor:
        return self._family.in_place(self._flat.variance, 1)

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        rows = self._flat.rsample(torch.Size(sample_shape))
        lead = len(sample_shape)
        flat = rows.reshape(-1, *rows.shape[lead:])
        placed = [self._family.in_place(row, 1) for row in flat]
        return torch.stack(placed).reshape(*sample_shape, *self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        lead = value.shape[: value.dim() - len(self.event_shape)]
        flat = value.reshape(-1, *self.event_shape)
        each = [self._flat.log_prob(self._family.rows(v)).sum() for v in flat]
        return torch.stack(each).reshape(lead)
