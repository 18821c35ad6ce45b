"""A distribution's parameters on the unconstrained scale, to move a posterior a little."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor
from torch.distributions import Distribution, Independent, biject_to, constraints, transform_to

__all__ = ["base_of", "free_parameters", "with_parameters"]


def base_of(q: Distribution) -> Distribution:
    """The distribution inside all `Independent`s."""
    return base_of(q.base_dist) if isinstance(q, Independent) else q


def free_parameters(q: Distribution) -> dict[str, Tensor]:
    """The parameters of a distribution on the unconstrained scale; none for a family that does not name them."""
    base = base_of(q)
    accepted = inspect.signature(_family(base)).parameters
    names = [name for name in base.arg_constraints if name in accepted]
    for drop, keep in (("probs", "logits"), ("covariance_matrix", "scale_tril"), ("precision_matrix", "scale_tril")):
        if drop in names and keep in names:
            names.remove(drop)
    return {name: _link(base, name).inv(getattr(base, name)).detach().clone() for name in names}


def with_parameters(q: Distribution, free: dict[str, Tensor]) -> Distribution:
    """The distribution of the same family and shape with other `free_parameters`."""
    base = base_of(q)
    moved: Any = _family(base)(**{key: _link(base, key)(value) for key, value in free.items()})
    extra = len(q.event_shape) - len(moved.event_shape)
    return moved.to_event(extra) if extra else moved


def _family(base: Distribution) -> type[Distribution]:
    """The class to build a moved posterior with: the first that can be called with its own parameters."""
    for family in type(base).__mro__:
        if set(inspect.signature(family).parameters) & set(base.arg_constraints):
            return family
    return type(base)


def _link(base: Distribution, name: str) -> Any:
    constraint = base.arg_constraints[name]
    if isinstance(constraint, constraints.independent) and constraint.base_constraint is constraints.positive:
        constraint = constraints.positive  # the same map, for every entry
    return transform_to(constraint) if constraint is constraints.lower_cholesky else biject_to(constraint)
