"""Log densities in plain torch operations, so that their terms are seen when parameters or values are random."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from pyro import distributions as dist
from torch import distributions as td
from torch.distributions.utils import clamp_probs
from torch.nn.functional import logsigmoid

from pyro_prme.conjugacy.operations.indexing import get_item
from pyro_prme.conjugacy.operations.logarithms import log_sum_exp_bound
from pyro_prme.conjugacy.operations.shapes import expand
from pyro_prme.conjugacy.random_tensor import Random, is_lifted, lift, lifted_values, variables_in
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import as_float

__all__ = ["DENSITIES", "is_random", "log_density", "randoms_of"]

_DEPTH = 6  # how deep distributions are nested, at most


def is_random(x: Any, depth: int = 0) -> bool:
    """Whether a value, or a parameter of a distribution, is random."""
    if isinstance(x, Random):
        return True
    if isinstance(x, td.Distribution) and depth < _DEPTH:
        return any(is_random(part, depth + 1) for part in vars(x).values())
    if isinstance(x, td.Transform) and depth < _DEPTH:
        return any(is_random(part, depth + 1) for part in vars(x).values())
    return isinstance(x, list | tuple) and any(is_random(part, depth + 1) for part in x)


def randoms_of(x: Any, depth: int = 0) -> list[Random]:
    """All random tensors within a value or a distribution."""
    if isinstance(x, Random):
        return [x]
    if isinstance(x, td.Distribution | td.Transform) and depth < _DEPTH:
        return [r for part in vars(x).values() for r in randoms_of(part, depth + 1)]
    if isinstance(x, list | tuple):
        return [r for part in x for r in randoms_of(part, depth + 1)]
    return []


def log_density(fn: Any, value: Any) -> Any:
    """ln p(value), by element of the batch, as a tensor or a `Random`."""
    if not is_random(fn) and not isinstance(value, Random):
        return fn.log_prob(value)
    kind = next((kind for kind in type(fn).__mro__ if kind in DENSITIES), None)
    if kind is None or _has_density_of_its_own(type(fn), kind):
        return fn.log_prob(value)  # torch code, as the model is
    return DENSITIES[kind](fn, value)


def _has_density_of_its_own(cls: type, kind: type) -> bool:
    """Whether a class gives another log density than the class it is derived from."""
    owner = next(c for c in cls.__mro__ if "log_prob" in vars(c))
    return owner is not kind and issubclass(owner, kind) and owner.__module__ != "pyro.distributions.torch"


def _sum_rightmost(x: Any, dims: int) -> Any:
    return x.sum(tuple(range(-dims, 0))) if dims else x


def known(x: Any) -> Any:
    """A random tensor that is a constant after all, as a plain one."""
    if not isinstance(x, Random) or x.selections or not is_lifted(x):
        return x
    indices = [i for i in x.dims if i is not None]
    return lifted_values(x, indices).expand([n for n in x.shape if n != 1]).reshape(x.shape)


def _number(x: Any) -> bool:
    return not isinstance(x, Random)


def _independent(fn: Any, x: Any) -> Any:
    return _sum_rightmost(log_density(fn.base_dist, x), fn.reinterpreted_batch_ndims)


def _masked(fn: Any, x: Any) -> Any:
    return log_density(fn.base_dist, x) * torch.as_tensor(fn._mask, dtype=torch.get_default_dtype())


def _expanded(fn: Any, x: Any) -> Any:
    return expand(lift(log_density(fn.base_dist, x)), tuple(fn.batch_shape))


def _factor(fn: Any, x: Any) -> Any:
    return fn.log_factor


def _point(fn: Any, x: Any) -> Any:
    places = variables_in((fn.v, x))
    if places:
        raise Refused(places, "it is the place of a Delta distribution")
    return dist.Delta(fn.v, event_dim=fn.event_dim).log_prob(x) + fn.log_density


def _transformed(fn: Any, y: Any) -> Any:
    inside = randoms_of([y, list(fn.transforms)])
    if inside:
        raise Refused(variables_in(inside), f"it goes through a transform in {type(fn).__name__}")
    total: Any = 0.0
    event = len(fn.event_shape)
    for transform in reversed(fn.transforms):
        x = transform.inv(y)
        event += transform.domain.event_dim - transform.codomain.event_dim
        jacobian = transform.log_abs_det_jacobian(x, y)
        total = total - _sum_rightmost(jacobian, event - transform.domain.event_dim)
        y = x
    return _sum_rightmost(log_density(fn.base_dist, y), event - len(fn.base_dist.event_shape)) + total


def _normal(fn: Any, x: Any) -> Any:
    precision = _as_float(fn.scale) ** -2
    return precision.log() * 0.5 - precision * (x - fn.loc) ** 2 * 0.5 - 0.5 * math.log(2 * math.pi)


def _multivariate_normal(fn: Any, x: Any) -> Any:
    root = fn._unbroadcasted_scale_tril
    if isinstance(root, Random):
        raise Refused(root.variables, "it is in a covariance matrix")
    precision = torch.cholesky_inverse(root)
    d = x - fn.loc
    square = (d.unsqueeze(-1) * precision * d.unsqueeze(-2)).sum((-1, -2))
    log_determinant = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return square * -0.5 - log_determinant - 0.5 * root.shape[-1] * math.log(2 * math.pi)


def _log_normal_of(shape: Any, what: str) -> Any:
    """lgamma of a shape parameter, which must be known."""
    if isinstance(shape, Random):
        raise Refused(shape.variables, what)
    return torch.lgamma(shape)


def _gamma(fn: Any, x: Any) -> Any:
    a, rate = known(fn.concentration), known(fn.rate)
    normaliser = _log_normal_of(a, f"it is in the shape of a {type(fn).__name__}")
    return a * rate.log() + (a - 1) * x.log() - rate * x - normaliser


def _inverse_gamma(fn: Any, x: Any) -> Any:
    a, scale = known(fn.base_dist.concentration), known(fn.base_dist.rate)
    normaliser = _log_normal_of(a, f"it is in the shape of a {type(fn).__name__}")
    return a * scale.log() - (a + 1) * x.log() - scale * x**-1 - normaliser


def _exponential(fn: Any, x: Any) -> Any:
    return fn.rate.log() - fn.rate * x


def _poisson(fn: Any, x: Any) -> Any:
    return fn.rate.log() * x - fn.rate - torch.lgamma(x + 1)


def _beta(fn: Any, x: Any) -> Any:
    a, b = known(fn.concentration1), known(fn.concentration0)
    if _number(a) and bool((a == 1).all()):
        normaliser = -b.log()
    elif _number(b) and bool((b == 1).all()):
        normaliser = -a.log()
    elif _number(a) and _number(b):
        normaliser = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    else:
        raise Refused(variables_in((a, b)), f"it is in the shape of a {type(fn).__name__}")
    return (a - 1) * x.log() + (b - 1) * (1 - x).log() - normaliser


def _dirichlet(fn: Any, x: Any) -> Any:
    a = known(fn.concentration)
    if isinstance(a, Random):
        raise Refused(a.variables, f"it is in the concentration of a {type(fn).__name__}")
    a = lift(a)
    return ((a - 1) * x.log()).sum(-1) + torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1)


def _as_float(x: Any) -> Any:
    return x if isinstance(x, Random) else as_float(x)


def _log_probs(fn: Any) -> Any:
    """ln p by value."""
    probs = vars(fn).get("probs")
    return _clamped(probs).log() if isinstance(probs, Random) else fn.logits


def _clamped(probs: Any) -> Any:
    """Probabilities without zeros and ones, as torch has them, where they can be known to be that."""
    if not isinstance(probs, Random):
        return clamp_probs(probs)
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps) if is_lifted(probs) else probs


def _categorical(fn: Any, x: Any) -> Any:
    log_probs, x = lift(_log_probs(fn)), lift(x)
    batch = log_probs.shape[:-1]
    dims = max(len(batch), x.dim())
    places = []
    for d, n in enumerate(batch, dims - len(batch)):
        at = torch.arange(n) if n != 1 else torch.zeros(1, dtype=torch.int64)
        places.append(at.reshape([-1 if j == d else 1 for j in range(dims)]))
    return get_item(log_probs, (*places, x))


def _one_hot(fn: Any, x: Any) -> Any:
    return (_log_probs(fn._categorical) * x).sum(-1)


def _multinomial(fn: Any, x: Any) -> Any:
    return (_log_probs(fn._categorical) * x).sum(-1) + torch.lgamma(x.sum(-1) + 1) - torch.lgamma(x + 1).sum(-1)


def _log_odds(fn: Any) -> tuple[Any, Any]:
    """ln p and ln(1 - p)."""
    if "probs" not in vars(fn):
        if not isinstance(fn.logits, Random):
            return logsigmoid(fn.logits), logsigmoid(-fn.logits)
        raise Refused(fn.logits.variables, f"it enters the logits of a {type(fn).__name__}")
    p = _clamped(fn.probs)
    return p.log(), (1 - p).log()


def _bernoulli(fn: Any, x: Any) -> Any:
    yes, no = _log_odds(fn)
    return yes * x + no * (1 - x)


def _binomial(fn: Any, x: Any) -> Any:
    yes, no = _log_odds(fn)
    n = known(fn.total_count)
    if isinstance(n, Random):
        raise Refused(n.variables, f"it is the number of trials of a {type(fn).__name__}")
    return yes * x + no * (n - x) + torch.lgamma(n + 1) - torch.lgamma(x + 1) - torch.lgamma(n - x + 1)


def _geometric(fn: Any, x: Any) -> Any:
    yes, no = _log_odds(fn)
    return yes + no * x


def _negative_binomial(fn: Any, x: Any) -> Any:
    yes, no = _log_odds(fn)
    r = known(fn.total_count)
    if isinstance(r, Random) or isinstance(x, Random):
        raise Refused(variables_in((r, x)), f"it is the number of failures of a {type(fn).__name__}")
    return no * r + yes * x + torch.lgamma(r + x) - torch.lgamma(1 + x) - torch.lgamma(r)


def _mixture(fn: Any, x: Any) -> Any:
    each = log_density(fn.component_distribution, x.unsqueeze(-1 - len(fn.event_shape)))
    return log_sum_exp_bound(each + _log_probs(fn.mixture_distribution), -1)


def _uniform(fn: Any, x: Any) -> Any:
    raise Refused(variables_in((fn.low, fn.high, x)), f"it is a limit of a {type(fn).__name__}")


#: By the class of a distribution; the first in its order of inheritance is taken.
DENSITIES: Mapping[type, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        td.Independent: _independent,
        dist.MaskedDistribution: _masked,
        dist.ExpandedDistribution: _expanded,
        dist.Unit: _factor,
        dist.Delta: _point,
        td.InverseGamma: _inverse_gamma,
        td.TransformedDistribution: _transformed,
        td.Normal: _normal,
        td.MultivariateNormal: _multivariate_normal,
        td.Gamma: _gamma,
        td.Exponential: _exponential,
        td.Poisson: _poisson,
        td.Beta: _beta,
        td.Dirichlet: _dirichlet,
        td.Categorical: _categorical,
        td.OneHotCategorical: _one_hot,
        td.Multinomial: _multinomial,
        td.Bernoulli: _bernoulli,
        td.Binomial: _binomial,
        td.Geometric: _geometric,
        td.NegativeBinomial: _negative_binomial,
        td.MixtureSameFamily: _mixture,
        td.Uniform: _uniform,
    }
)
