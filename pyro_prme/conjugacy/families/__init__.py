"""Exponential families of posterior factors, and which of them a site's prior belongs to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch import distributions as td

from pyro_prme.conjugacy.families.base import Family, Natural, Request, Statistics, unwrapped
from pyro_prme.conjugacy.families.finite import Finite, OneHot
from pyro_prme.conjugacy.families.finite_group import FiniteGroup
from pyro_prme.conjugacy.families.group import Group
from pyro_prme.conjugacy.families.known import GivenNormal
from pyro_prme.conjugacy.families.members import BinaryMembers, Members, PositiveMembers
from pyro_prme.conjugacy.families.normal import Normal
from pyro_prme.conjugacy.families.normal_group import NormalGroup
from pyro_prme.conjugacy.families.positive import Gamma, InverseGamma
from pyro_prme.conjugacy.families.simplex import Beta, Dirichlet
from pyro_prme.conjugacy.variables import Variable

__all__ = [
    "FAMILY",
    "Beta",
    "BinaryMembers",
    "Dirichlet",
    "Family",
    "Finite",
    "FiniteGroup",
    "Gamma",
    "GivenNormal",
    "Group",
    "InverseGamma",
    "Members",
    "Natural",
    "Normal",
    "NormalGroup",
    "OneHot",
    "PositiveMembers",
    "Request",
    "Statistics",
    "family_of",
    "variable_of",
]

#: In a site's `infer`, the family of its factor where that is not the prior's.
FAMILY = "closed_form_family"

_MOST_VALUES = 10_000  # of a discrete variable; each member has a responsibility for each value

_CONTINUOUS: tuple[tuple[tuple[type, ...], type[Family]], ...] = (
    ((td.Normal, td.MultivariateNormal), Normal),
    ((td.Gamma, td.Exponential), Gamma),
    ((td.InverseGamma,), InverseGamma),
    ((td.Beta,), Beta),
    ((td.Dirichlet,), Dirichlet),
)


def family_of(fn: Any, infer: Mapping[str, Any] | None = None) -> type[Family] | None:
    """The family of a site's posterior factor, by its prior or as its `infer` asks; None where there is none."""
    if infer and FAMILY in infer:
        return infer[FAMILY]
    base = unwrapped(fn)
    if isinstance(base, td.OneHotCategorical):
        return OneHot
    found = next((family for classes, family in _CONTINUOUS if isinstance(base, classes)), None)
    if found is None and _values_of(base) is not None:
        return Finite
    return found


def variable_of(
    name: str, fn: Any, subsampled: Collection[int] = (), family: type[Family] | None = None
) -> Variable | None:
    """The site as a variable of this run, or None where it has no family.

    Args:
        name: of the site.
        fn: its prior.
        subsampled: negative dimensions of its batch shape that belong to subsampled plates.
        family: of its factor, where that is not the prior's.
    """
    family = family or family_of(fn)
    if family is None:
        return None
    values = _values_of(unwrapped(fn)) if family.discrete else None
    dims = frozenset(len(fn.batch_shape) + dim for dim in subsampled)
    dtype = _dtype_of(fn) if values is None else values.dtype
    return Variable(name, family, fn.shape(), fn.batch_shape, dtype, dims, values)


def _dtype_of(fn: Any) -> torch.dtype:
    parameters = [v for v in vars(unwrapped(fn)).values() if isinstance(v, Tensor) and v.is_floating_point()]
    dtype = torch.get_default_dtype() if not parameters else parameters[0].dtype
    for parameter in parameters[1:]:
        dtype = torch.promote_types(dtype, parameter.dtype)
    return dtype


def _values_of(base: Any) -> Tensor | None:
    """All values of a discrete distribution, along the first dimension."""
    if isinstance(base, td.OneHotCategorical):
        size = base.event_shape[-1]
        return torch.eye(size) if size <= _MOST_VALUES else None
    if isinstance(base, td.Categorical):
        return torch.arange(base._num_events) if base._num_events <= _MOST_VALUES else None
    if isinstance(base, td.Bernoulli):
        return torch.tensor([0.0, 1.0])
    if not getattr(base, "has_enumerate_support", False) or getattr(base, "event_shape", None):
        return None
    try:
        values = base.enumerate_support(expand=False)
    except NotImplementedError:
        return None
    return values.reshape(-1) if values.numel() == len(values) <= _MOST_VALUES else None
