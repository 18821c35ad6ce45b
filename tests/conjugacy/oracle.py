"""An expected log joint computed by running the model itself, with nothing of the engine but the posterior factors.

Matched points: for each factor a few values with weights whose weighted statistics are exactly those expected under the
factor. The log joint is affine in the statistics of each member, so its weighted sum over the products of these points
is the expectation. All members of a site move together: that is right as long as no term multiplies two members of one
site outside of a joint Normal, which is exactly what the engine has to guarantee.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from pyro import distributions as dist
from pyro import poutine
from torch import Tensor
from torch import distributions as td

from pyro_prme.conjugacy import Ascent, Structure
from pyro_prme.conjugacy.families.finite import ValuesOf
from pyro_prme.conjugacy.families.normal import JointNormal

__all__ = ["Estimate", "expected_log_joint", "fixed_values", "log_joint", "matched_points", "monte_carlo", "settle"]

Points = list[tuple[Tensor, float]]


def settle(ascent: Ascent, sweeps: int = 2) -> Ascent:
    """Some sweeps, so that factors are neither at their start nor at an optimum."""
    for _ in range(sweeps):
        ascent.sweep()
    return ascent


def log_joint(structure: Structure, values: Mapping[str, Any]) -> Tensor:
    """The model's own log density with all latent sites at given values."""
    model = poutine.condition(structure.model, data=dict(values))
    return poutine.trace(model).get_trace(*structure.args, **structure.kwargs).log_prob_sum()


def fixed_values(structure: Structure) -> dict[str, Any]:
    """Values of the sites that have no closed form, and the batches of plates that draw one."""
    nodes = structure.trace.nodes
    batches = {
        name: site["value"]
        for name, site in nodes.items()
        if site["type"] == "sample" and type(site["fn"]).__name__ == "_Subsample"
    }
    return {name: nodes[name]["value"] for name in structure.open} | batches


def expected_log_joint(structure: Structure, ascent: Ascent) -> float:
    """E_q ln p, from the model run at the products of matched points."""
    fixed = fixed_values(structure)
    each = [matched_points(ascent.posterior(name), structure.families[name].joint) for name in structure.closed]
    total = 0.0
    for choice in itertools.product(*each):
        weight = math.prod(w for _, w in choice)
        values = {name: value for name, (value, _) in zip(structure.closed, choice, strict=True)}
        total += weight * float(log_joint(structure, fixed | values).detach())
    return total


def matched_points(q: Any, joint: frozenset[int] = frozenset()) -> Points:
    """Values and weights with the expected statistics of a factor.

    Args:
        q: the factor.
        joint: of a Normal, the dimensions that have one factor together.
    """
    while isinstance(q, td.Independent):
        q = q.base_dist
    if isinstance(q, JointNormal):
        return _joint_normal_points(q.mean, q.covariance_matrix, joint)
    if isinstance(q, td.MultivariateNormal):
        return _joint_normal_points(q.mean, q.covariance_matrix, frozenset({q.mean.dim() - 1}))
    if isinstance(q, td.Normal):
        return _even(q.loc + q.scale, q.loc - q.scale)
    if isinstance(q, td.Gamma):
        return _even(*_gamma_points(q.concentration, q.rate))
    if isinstance(q, dist.InverseGamma | td.InverseGamma):
        base = q.base_dist  # of which the value is one over
        return _even(*(1 / point for point in _gamma_points(base.concentration, base.rate)))
    if isinstance(q, td.Beta):
        return _even(*_beta_points(q.concentration1, q.concentration0))
    if isinstance(q, td.Dirichlet):
        return _even(*_dirichlet_points(q.concentration))
    if isinstance(q, td.Bernoulli):
        return _finite_points(torch.stack([1 - q.probs, q.probs], -1), torch.tensor([0.0, 1.0]))
    if isinstance(q, td.OneHotCategorical):
        return _finite_points(q.probs, torch.eye(q.probs.shape[-1]))
    if isinstance(q, td.Categorical):
        return _finite_points(q.probs, torch.arange(q.probs.shape[-1]))
    if isinstance(q, ValuesOf):
        return _finite_points(q.probs, q.values)
    raise TypeError(f"No points are known for {type(q).__name__}.")


def _even(*points: Tensor) -> Points:
    return [(point, 1 / len(points)) for point in points]


def _joint_normal_points(mean: Tensor, covariance: Tensor, joint: frozenset[int]) -> Points:
    """The mean plus and minus each scaled column of a root of the covariance, the joint dimensions flattened."""
    apart = [d for d in range(mean.dim()) if d not in joint]
    order = apart + sorted(joint)
    back = [order.index(d) for d in range(mean.dim())]
    laid = mean.permute(order)
    size = covariance.shape[-1]
    root = torch.linalg.cholesky(covariance) * math.sqrt(size)
    steps = [root[..., k].reshape(laid.shape).permute(back) for k in range(size)]
    return _even(*(mean + step for step in steps), *(mean - step for step in steps))


def _gamma_points(concentration: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """Two points with sum 2 E x and product exp 2 E ln x."""
    mean, square = concentration / rate, (2 * (concentration.digamma() - rate.log())).exp()
    high = mean + (mean**2 - square).sqrt()
    return high, square / high


def _beta_points(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two points with product exp 2 E ln x, and that of what is left of one exp 2 E ln(1 - x)."""
    both = (a + b).digamma()
    square, complement = (2 * (a.digamma() - both)).exp(), (2 * (b.digamma() - both)).exp()
    half = (1 + square - complement) / 2
    high = half + (half**2 - square).clamp(min=0).sqrt()
    return high, square / high


def _dirichlet_points(concentration: Tensor) -> tuple[Tensor, Tensor]:
    """Two points on the simplex with products exp 2 E ln x: the first member against all the others."""
    size = concentration.shape[-1]
    if size == 1:
        return torch.ones_like(concentration), torch.ones_like(concentration)
    means = (concentration.digamma() - concentration.sum(-1, keepdim=True).digamma()).exp()
    first, others = means[..., :1], means[..., 1:]
    rest = others.sum(-1, keepdim=True)
    half = (1 + first**2 - rest**2) / first / 2
    a = half + (half**2 - 1).clamp(min=0).sqrt()
    b = (1 - first / a) / rest
    return torch.cat([first * a, others / b], -1), torch.cat([first / a, others * b], -1)


def _finite_points(probs: Tensor, values: Tensor) -> Points:
    """All members draw their values with one uniform number: one point for each interval of it."""
    upper = probs.cumsum(-1)
    upper = upper / upper[..., -1:]
    ends = torch.cat([torch.zeros(1), upper.flatten(), torch.ones(1)]).unique()
    points: Points = []
    for low, high in itertools.pairwise(ends.tolist()):
        middle = (low + high) / 2
        which = (upper < middle).sum(-1).clamp(max=probs.shape[-1] - 1)
        points.append((values[which], high - low))
    return points


class Estimate(NamedTuple):
    """A mean of draws and its standard error."""

    mean: float
    error: float

    def standard_errors_from(self, number: float) -> float:
        """How many standard errors lie between."""
        return abs(self.mean - number) / max(self.error, 1e-9)


def monte_carlo(structure: Structure, ascent: Ascent, draws: int = 200) -> Estimate:
    """E_q[ln p - ln q] by draws from the factors, each ln q with the weight that the site has in the model."""
    fixed = fixed_values(structure)
    found = torch.tensor([_one_draw(structure, ascent, fixed) for _ in range(draws)])
    return Estimate(float(found.mean()), float(found.std()) / math.sqrt(draws))


def _one_draw(structure: Structure, ascent: Ascent, fixed: Mapping[str, Any]) -> float:
    values, log_q = {}, 0.0
    for name in structure.closed:
        q = ascent.posterior(name)
        values[name] = q.sample()
        log_q += float(_weighted(q.log_prob(values[name]), structure.trace.nodes[name]).detach())
    return float(log_joint(structure, {**fixed, **values}).detach()) - log_q


def _weighted(log_prob: Tensor, site: Any) -> Tensor:
    mask = site["mask"]
    if mask is not None and mask is not True:
        log_prob = torch.where(torch.as_tensor(mask), log_prob, torch.zeros(()))
    return (log_prob * site["scale"]).sum()


def batches(size: int, length: int) -> Iterator[Tensor]:
    """Consecutive batches of a data set."""
    return iter(torch.arange(size).split(length))
