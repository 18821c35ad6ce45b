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

__all__ = ["ModifiedHalfNormal"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_TERMS = 9  # of the series near zero
_CELLS = 96  # steps of the envelope


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
    def _standard(self) -> tuple[Tensor, Tensor, Tensor]:
        """c, b / sqrt(a) and sqrt(a) in double precision: terms as large as b^2 / a cancel in what follows."""
        unit = self.quadratic.double().sqrt()
        return self.concentration.double(), self.linear / unit, unit

    @cached_property
    def _moments(self) -> _Moments:
        c, beta, _ = self._standard
        return _standard_moments(c, beta)

    @property
    def mean(self) -> Tensor:
        return (self._moments.mean / self._standard[2]).to(self.linear.dtype)

    @property
    def variance(self) -> Tensor:
        return (self._moments.variance / self._standard[2].square()).to(self.linear.dtype)

    @property
    def expected_log(self) -> Tensor:
        """E ln z."""
        return (self._moments.log - self._standard[2].log()).to(self.linear.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        c, beta, unit = self._standard
        t = value * unit
        energy = (c - 1) * t.log() + beta * t - t.square() / 2
        return (energy - self._moments.log_normalizer + unit.log()).to(self.linear.dtype)

    def entropy(self) -> Tensor:
        (c, beta, unit), m = self._standard, self._moments
        square = m.mean.square() + m.variance
        standard = m.log_normalizer - (c - 1) * m.log - beta * m.mean + square / 2
        return (standard - unit.log()).to(self.linear.dtype)

    @torch.no_grad()
    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        """Exact draws by rejection, of which half or more are kept at any parameters."""
        shape, unit = torch.Size(sample_shape) + self.batch_shape, self._standard[2]
        c, beta = (x.flatten() for x in self._standard[:2])
        if not bool((c.isfinite() & beta.isfinite()).all()):
            raise ValueError("A loading's density has a parameter that is not finite: the fit has diverged.")
        rows = torch.arange(len(c)).expand(torch.Size(sample_shape).numel(), -1).flatten()
        envelope, u = _envelope(c, beta), torch.empty(len(rows), dtype=c.dtype)
        todo = torch.arange(len(rows))
        while len(todo):
            here = rows[todo]
            proposed, height = envelope.draw(here)
            kept = torch.rand_like(height).log() < _log_density(c[here], beta[here], proposed) - height
            u[todo[kept]], todo = proposed[kept], todo[~kept]
        dtype = self.linear.dtype
        return (u.exp().reshape(shape) / unit).clamp(min=torch.finfo(dtype).tiny).to(dtype)


def _log_density(c: Tensor, beta: Tensor, u: Tensor) -> Tensor:
    """ln of the density of u = ln t, without its constant, for t^(c - 1) exp(beta t - t^2 / 2)."""
    t = u.exp()
    return c * u + beta * t - t.square() / 2


class _Envelope(NamedTuple):
    """A function above the log density of u: c u + a constant on the left, then steps, then a line that falls."""

    c: Tensor  # (rows,)
    left: Tensor  # (rows,), the constant
    ends: Tensor  # (rows, cells + 1), of the steps
    steps: Tensor  # (rows, cells)
    right: Tensor  # (rows,), where the line begins
    slope: Tensor  # (rows,), of the line
    share: Tensor  # (rows, cells + 2), cumulated masses

    def draw(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """One u for each of the rows named, and the envelope's height there."""
        v, cells = torch.rand(len(row), dtype=self.c.dtype), self.steps.shape[-1]
        piece = torch.searchsorted(self.share[row], v.unsqueeze(-1)).squeeze(-1).clamp(max=cells + 1)
        e, cell = torch.empty_like(v).exponential_(), (piece - 1).clamp(0, cells - 1)
        u = torch.lerp(self.ends[row, cell], self.ends[row, cell + 1], torch.rand_like(v))
        height = self.steps[row, cell]
        on_left, on_right, c = piece == 0, piece > cells, self.c[row]
        u = torch.where(on_left, self.ends[row, 0] - e / c, u)
        u = torch.where(on_right, self.ends[row, -1] - e / self.slope[row], u)
        height = torch.where(on_left, c * u + self.left[row], height)
        return u, torch.where(on_right, self.right[row] - e, height)


def _envelope(c: Tensor, beta: Tensor) -> _Envelope:
    """In u the density rises to its one mode, falls beyond it, and is log-concave there.

    Steps have the height of their end nearer to the mode; half of them are close to it. Left of them
    exp(beta t - t^2 / 2) is at most its value at their first end or 1, right of them the tangent is above.
    """
    mode, edge, middle, last = _places(c, beta)
    grid = torch.linspace(0, 1, _CELLS // 2 + 1, dtype=c.dtype)
    panels = [low.unsqueeze(-1) + (high - low).unsqueeze(-1) * grid for low, high in ((edge, middle), (middle, last))]
    ends = torch.cat([panels[0], panels[1][:, 1:]], -1)
    heights = _log_density(c.unsqueeze(-1), beta.unsqueeze(-1), ends)
    around = (ends[:, :-1] <= mode.unsqueeze(-1)) & (ends[:, 1:] >= mode.unsqueeze(-1))
    highest = torch.maximum(heights[:, :-1], heights[:, 1:])
    steps = torch.where(around, _log_density(c, beta, mode).unsqueeze(-1), highest)
    left, right = (beta * edge.exp()).clamp(min=0), heights[:, -1]
    slope = c + beta * last.exp() - (2 * last).exp()
    masses = [c * edge + left - c.log(), *(steps + ends.diff().log()).unbind(-1), right - (-slope).log()]
    return _Envelope(c, left, ends, steps, right, slope, torch.stack(masses, -1).softmax(-1).cumsum(-1))


class _Places(NamedTuple):
    """Of u = ln t, for two panels: one around the mode, one from near zero to it."""

    mode: Tensor
    edge: Tensor
    middle: Tensor
    last: Tensor


def _places(c: Tensor, beta: Tensor) -> _Places:
    """The one mode is at exp(u) = (beta + sqrt(beta^2 + 4 c)) / 2, with curvature -(t^2 + c)."""
    root = (beta.square() + 4 * c).sqrt()
    mode = torch.where(beta > 0, (beta + root) / 2, 2 * c / (root - beta))
    spread = (mode.square() + c).rsqrt()  # in u
    edge = (0.05 / (1 + beta.abs())).log()
    last = (mode + 10 * mode * spread + 40 / (5 + (-beta).clamp(min=0))).log()
    return _Places(mode.log(), edge, torch.maximum(edge, mode.log() - 6 * spread), last)


def _standard_moments(c: Tensor, beta: Tensor) -> _Moments:
    r"""Log normaliser, mean, variance and E ln t of the density proportional to t^(c - 1) exp(beta t - t^2 / 2).

    Two panels of nodes in u = ln t, and the integral from 0 to the first of a Hermite series.
    """
    with torch.no_grad():
        log_mode, edge, middle, last = _places(c, beta)
        x, w = torch.as_tensor(_NODES, dtype=c.dtype), torch.as_tensor(_WEIGHTS, dtype=c.dtype)
        panels = [(low.unsqueeze(-1), high.unsqueeze(-1)) for low, high in ((edge, middle), (middle, last))]
        u = torch.cat([(high + low) / 2 + (high - low) / 2 * x for low, high in panels], -1)  # (..., nodes)
        weight = torch.cat([(high - low) / 2 * w for low, high in panels], -1)
        mode, top = log_mode.exp(), _log_density(c, beta, log_mode)
    t, away = u.exp(), u.exp() - mode.unsqueeze(-1)  # about the mode: a sharp peak's variance keeps its digits
    density = weight * (c.unsqueeze(-1) * u + beta.unsqueeze(-1) * t - t.square() / 2 - top.unsqueeze(-1)).exp()
    part, part_1, part_2, part_log = _near_zero(c, beta, edge, top)
    total = density.sum(-1) + part
    first = ((density * away).sum(-1) + part_1 - mode * part) / total
    second = ((density * away.square()).sum(-1) + part_2 - 2 * mode * part_1 + mode.square() * part) / total
    log = ((density * u).sum(-1) + part_log) / total
    return _Moments(total.log() + top, mode + first, second - first.square(), log)


def _near_zero(c: Tensor, beta: Tensor, edge: Tensor, top: Tensor) -> tuple[Tensor, ...]:
    r"""The integrals from 0 to exp(edge) of the density, scaled by exp(-top), times 1, t, t^2 and ln t.

    .. math:: e^{\beta t - t^2 / 2} = \textstyle\sum_n \mathrm{He}_n(\beta)\, t^n / n!
    """
    hermite = [torch.ones_like(beta), beta]
    for n in range(1, _TERMS - 1):
        hermite.append((beta * hermite[-1] - hermite[-2]) / (n + 1))  # He_n / n!
    coefficient, log_edge = torch.stack(hermite, -1), edge.unsqueeze(-1)
    power = c.unsqueeze(-1) + torch.arange(_TERMS, dtype=c.dtype)  # (..., terms)
    part = coefficient * (power * log_edge - top.unsqueeze(-1)).exp() / power
    steps = [part * power / (power + j) * (j * log_edge).exp() for j in (1, 2)]
    return part.sum(-1), steps[0].sum(-1), steps[1].sum(-1), (part * (log_edge - 1 / power)).sum(-1)
