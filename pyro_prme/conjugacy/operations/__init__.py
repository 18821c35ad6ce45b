"""The table of torch operations that random tensors follow. What is not in it makes a tensor opaque, and is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pyro_prme.conjugacy.operations import arithmetic, indexing, joining, logarithms, reductions, shapes

__all__ = ["OPERATIONS", "SHAPE_OPERATIONS"]

#: By the name of a torch function or method.
OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **arithmetic.TABLE,
        **logarithms.TABLE,
        **reductions.TABLE,
        **shapes.TABLE,
        **indexing.TABLE,
        **joining.TABLE,
    }
)

#: They only move elements about, and are followed for opaque tensors too.
SHAPE_OPERATIONS = frozenset(shapes.TABLE) | {"getitem"}
