"""The distribution of a non-negative loading under a Gaussian likelihood: a Gamma density times a Normal one."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all

from pyro_prme.expectations import expected, expected_log

__all__ = ["ModifiedHalfNormal"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_TERMS = 9  # of the series near zero


class _Moments(NamedTuple):
    log_normalizer: Tensor
    mean: Tensor
    variance: Tensor
    log: Tensor


class ModifiedHalfNormal(TorchDistribution):
    r"""A positive number with a Gamma density times a Normal one.

    .. math:: p(z) \propto z^{c - 1} e^{b z - a z^2 / 2}, \quad z > 0

    Its normaliser is a parabolic cylinder function; it and the moments come from Gauss-Legendre quadrature in ln z,
    with a series near zero, and have gradients.

    Args:
        concentration: c > 0.
        quadratic: a > 0.
        linear: b.
    """

    arg_constraints = {  # noqa: RUF012
        "concentration": constraints.positive,
        "quadratic": constraints.positive,
        "linear": constraints.real,
    }
    support = constraints.positive

    def __init__(self, concentration: Tensor, quadratic: Tensor, linear: Tensor) -> None:
        self.concentration, self.quadratic, self.linear = broadcast_all(concentration, quadratic, linear)
        super().__init__(self.linear.shape, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> ModifiedHalfNormal:
        parameters = self.concentration, self.quadratic, self.linear
        return ModifiedHalfNormal(*(x.expand(batch_shape) for x in parameters))

    @cached_property
    def _moments(self) -> _Moments:
        unit = self.quadratic.sqrt()
        log_normalizer, mean, variance, log = _standard_moments(self.concentration, self.linear / unit)
        shift = self.concentration * unit.log()
        return _Moments(log_normalizer - shift, mean / unit, variance / self.quadratic, log - unit.log())

    @property
    def mean(self) -> Tensor:
        return self._moments.mean

    @property
    def variance(self) -> Tensor:
        return self._moments.variance

    @property
    def expected_log(self) -> Tensor:
        """E ln z."""
        return self._moments.log

    def log_prob(self, value: Tensor) -> Tensor:
        energy = (self.concentration - 1) * value.log() + self.linear * value - self.quadratic * value.square() / 2
        return energy - self._moments.log_normalizer

    def entropy(self) -> Tensor:
        m = self._moments
        square = m.mean.square() + m.variance
        return m.log_normalizer - (self.concentration - 1) * m.log - self.linear * m.mean + self.quadratic * square / 2

    @torch.no_grad()
    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        """Exact draws by rejection: from a Normal at the mode where c >= 1, else from the best of the Gammas."""
        c, a, b = (
            x.expand(torch.Size(sample_shape) + self.batch_shape)
            for x in (self.concentration, self.quadratic, self.linear)
        )
        out, todo = torch.empty_like(c), torch.ones_like(c, dtype=torch.bool)
        while bool(todo.any()):
            c_, a_, b_ = c[todo], a[todo], b[todo]
            root = (b_.square() + 4 * a_ * c_).sqrt()
            rate = torch.where(b_ > 0, 2 * a_ * c_ / (b_ + root), (root - b_) / 2)
            mode = (b_ + (b_.square() + 4 * a_ * (c_ - 1).clamp(min=0)).sqrt()) / (2 * a_)
            normal = (c_ >= 1) & (b_ > 0)
            z = torch.where(normal, mode + torch.randn_like(a_) * a_.rsqrt(), torch._standard_gamma(c_) / rate)
            ratio = torch.where(
                normal,
                (c_ - 1) * ((z / mode).clamp(min=0).log() - z / mode + 1),
                -(a_ / 2) * (z - c_ / rate).square(),
            )
            kept = (z > 0) & (torch.rand_like(z).log() < ratio)
            where = todo.nonzero(as_tuple=True)
            index = tuple(i[kept] for i in where)
            out[index], todo[index] = z[kept], False
        return out


def _standard_moments(c: Tensor, beta: Tensor) -> _Moments:
    r"""Log normaliser, mean, variance and E ln t of the density proportional to t^(c - 1) exp(beta t - t^2 / 2).

    In u = ln t the density has one mode, exp(u) = (beta + sqrt(beta^2 + 4 c)) / 2, with curvature -(t^2 + c): one panel
    of nodes lies around it, one to its left, and the rest is the integral from 0 of a Hermite series.
    """
    with torch.no_grad():
        root = (beta.square() + 4 * c).sqrt()
        mode = torch.where(beta > 0, (beta + root) / 2, 2 * c / (root - beta))
        spread = (mode.square() + c).rsqrt()  # in u
        edge = 0.05 / (1 + beta.abs())
        last = (mode + 10 * mode * spread + 40 / (5 + (-beta).clamp(min=0))).log()
        middle = torch.maximum(edge.log(), mode.log() - 6 * spread)
        x, w = torch.as_tensor(_NODES, dtype=c.dtype), torch.as_tensor(_WEIGHTS, dtype=c.dtype)
        panels = [(low.unsqueeze(-1), high.unsqueeze(-1)) for low, high in ((edge.log(), middle), (middle, last))]
        u = torch.cat([(high + low) / 2 + (high - low) / 2 * x for low, high in panels], -1)  # (..., nodes)
        weight = torch.cat([(high - low) / 2 * w for low, high in panels], -1)
        top = c * mode.log() + beta * mode - mode.square() / 2
    t, away = u.exp(), u.exp() - mode.unsqueeze(-1)  # about the mode: a sharp peak's variance keeps its digits
    density = weight * (c.unsqueeze(-1) * u + beta.unsqueeze(-1) * t - t.square() / 2 - top.unsqueeze(-1)).exp()
    part, part_1, part_2, part_log = _near_zero(c, beta, edge, top)
    total = density.sum(-1) + part
    first = ((density * away).sum(-1) + part_1 - mode * part) / total
    second = ((density * away.square()).sum(-1) + part_2 - 2 * mode * part_1 + mode.square() * part) / total
    log = ((density * u).sum(-1) + part_log) / total
    return _Moments(total.log() + top, mode + first, second - first.square(), log)


def _near_zero(c: Tensor, beta: Tensor, edge: Tensor, top: Tensor) -> tuple[Tensor, ...]:
    r"""The integrals from 0 to the edge of the density, scaled by exp(-top), times 1, t, t^2 and ln t.

    .. math:: e^{\beta t - t^2 / 2} = \textstyle\sum_n \mathrm{He}_n(\beta)\, t^n / n!
    """
    hermite = [torch.ones_like(beta), beta]
    for n in range(1, _TERMS - 1):
        hermite.append((beta * hermite[-1] - hermite[-2]) / (n + 1))  # He_n / n!
    coefficient, log_edge = torch.stack(hermite, -1), edge.log().unsqueeze(-1)
    power = c.unsqueeze(-1) + torch.arange(_TERMS, dtype=c.dtype)  # (..., terms)
    part = coefficient * (power * log_edge - top.unsqueeze(-1)).exp() / power
    steps = [part * power / (power + j) * (j * log_edge).exp() for j in (1, 2)]
    return part.sum(-1), steps[0].sum(-1), steps[1].sum(-1), (part * (log_edge - 1 / power)).sum(-1)


@expected.register(ModifiedHalfNormal)
def _(q: ModifiedHalfNormal, value: Tensor) -> Tensor:
    return q.mean


@expected_log.register(ModifiedHalfNormal)
def _(q: ModifiedHalfNormal, value: Tensor) -> Tensor:
    return q.expected_log
