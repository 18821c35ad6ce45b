"""A latent site as the symbolic run sees it: a name, a shape and the family of its posterior factor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pyro_prme.conjugacy.families.base import Family

__all__ = ["Variable"]


@dataclass(frozen=True, eq=False)
class Variable:
    """One latent site in one symbolic run.

    Args:
        name: of the site.
        family: class of its posterior factor.
        shape: of its value.
        batch_shape: the part of the shape that is not the event.
        dtype: of its value.
        subsampled: dimensions of the shape that belong to subsampled plates.
        values: of a discrete site, all its values, stacked along the first dimension.
    """

    name: str
    family: type[Family]
    shape: torch.Size
    batch_shape: torch.Size
    dtype: torch.dtype
    subsampled: frozenset[int] = frozenset()
    values: torch.Tensor | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return self.name
