"""Tensors joined into one: concatenated, stacked, padded, chosen between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from pyro_prme.conjugacy.indices import Entry, Gather, Index
from pyro_prme.conjugacy.operations.arithmetic import add, multiply, with_logarithm
from pyro_prme.conjugacy.operations.logarithms import exp, log
from pyro_prme.conjugacy.operations.shapes import unsqueeze
from pyro_prme.conjugacy.random_tensor import Random, fresh, lift, rename, variables_in
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import Constant, Term, is_zero, product

__all__ = ["TABLE", "concatenate"]


def concatenate(xs: Sequence[Any], dim: int = 0, *, axis: int | None = None) -> Random:
    """Tensors one after the other: each becomes a gather times an indicator of its part."""
    rs = [lift(x) for x in xs]
    dim = (dim if axis is None else axis) % rs[0].dim()
    rs = [r for r in rs if r.shape[dim]]
    if len(rs) == 1:
        return rs[0]
    length = sum(r.shape[dim] for r in rs)
    along = Index(length) if length != 1 else None
    parts: list[Random | None] = []
    logarithms: list[Random | None] = []
    before = 0
    for r in rs:
        size = r.shape[dim]
        at = torch.arange(length) - before
        here = ((at >= 0) & (at < size)).to(_common(rs))
        inside = Term(1.0, (Constant(here, (along,)),)) if along is not None else Term()
        r = fresh(r)
        own, names = r.dims[dim], dict[Index, Entry]()
        if own is not None:
            names[own] = Gather(at.clamp(0, size - 1), (along,)) if along is not None else Gather(at[0], ())
        dims = (*r.dims[:dim], along, *r.dims[dim + 1 :])
        shape = (*r.shape[:dim], length, *r.shape[dim + 1 :])
        parts.append(_placed(r, names, dims, shape, inside))
        logarithms.append(_placed_log(r, names, dims, shape, inside))
        before += size
    value, known = _sum(parts), _sum(logarithms)
    if value is None and known is None:
        raise Refused(variables_in(rs), "it is joined with something without an expectation")
    if value is None:
        return exp(known)
    return value if known is None else with_logarithm(value, known)


def _common(rs: Sequence[Random]) -> torch.dtype:
    dtype = rs[0].dtype
    for r in rs[1:]:
        dtype = torch.promote_types(dtype, r.dtype)
    return dtype


def _placed(r: Random, names: Mapping[Index, Entry], dims: Any, shape: Any, inside: Term) -> Random | None:
    """The tensor at its place in the whole, zero elsewhere; None where it has no terms."""
    if r.terms is None:
        return None
    moved = rename(r, names, dims, shape)
    terms = [product(t, inside) for t in moved.terms or ()]
    return Random.make(shape, dims, [t for t in terms if not is_zero(t)], moved.selections, dtype=r.dtype)


def _placed_log(r: Random, names: Mapping[Index, Entry], dims: Any, shape: Any, inside: Term) -> Random | None:
    try:
        return _placed(log(r), names, dims, shape, inside)
    except Refused:
        return None


def _sum(parts: Sequence[Random | None]) -> Random | None:
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    out = known[0]
    for p in known[1:]:
        out = add(out, p)
    return out


def stack(xs: Sequence[Any], dim: int = 0) -> Random:
    """Tensors side by side along a new dimension."""
    return concatenate([unsqueeze(lift(x), dim) for x in xs], dim)


def pad(a: Any, widths: Sequence[int], mode: str = "constant", value: float | None = None) -> Random:
    """Constants before and after along the last dimension."""
    if len(widths) != 2 or mode != "constant" or min(widths) < 0:
        raise Refused(variables_in((a,)), "it goes through pad in a form that is not followed")
    left, right = (torch.full((*a.shape[:-1], n), float(value or 0), dtype=a.dtype) for n in widths)
    return concatenate([left, a, right], -1)


def where(condition: Any, a: Any = None, b: Any = None) -> Random:
    """One of two tensors, by a condition that is constant or a function of discrete variables."""
    if a is None or b is None:
        raise Refused(variables_in((condition,)), "where is called with a condition alone")
    if not isinstance(condition, Random):
        condition = torch.as_tensor(condition)
        # constants are chosen at once: infinities that are not chosen vanish
        if not isinstance(a, Random):
            a = torch.where(condition, torch.as_tensor(a), torch.zeros((), dtype=torch.as_tensor(a).dtype))
        if not isinstance(b, Random):
            b = torch.where(condition, torch.zeros((), dtype=torch.as_tensor(b).dtype), torch.as_tensor(b))
    chosen = multiply(lift(condition), 1.0)
    return add(multiply(chosen, a), multiply(add(multiply(chosen, -1.0), 1.0), b))


def diagonal_matrix(a: Any, *args: Any, **kwargs: Any) -> Random:
    """A diagonal matrix of the last dimension."""
    if args or kwargs:
        raise Refused(variables_in((a,)), "it goes through diag_embed in a form that is not followed")
    return multiply(unsqueeze(a, -1), torch.eye(a.shape[-1], dtype=a.dtype))


def full_like(a: Tensor, value: Any, **kwargs: Any) -> Tensor:
    """Constants of the shape of a random tensor."""
    return torch.full(a.shape, float(value), dtype=kwargs.get("dtype") or a.dtype)


#: What is known of joining and stacking: the name of a torch operation, and what it does to random tensors.
TABLE: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **dict.fromkeys(("cat", "concat", "concatenate"), concatenate),
        "stack": stack,
        "pad": pad,
        "where": where,
        "diag_embed": diagonal_matrix,
        "full_like": full_like,
        "zeros_like": lambda a, **kwargs: full_like(a, 0.0, **kwargs),
        "ones_like": lambda a, **kwargs: full_like(a, 1.0, **kwargs),
        **dict.fromkeys(("new_zeros",), lambda a, *shape, **kw: torch.zeros(*shape, **({"dtype": a.dtype} | kw))),
        **dict.fromkeys(("new_ones",), lambda a, *shape, **kw: torch.ones(*shape, **({"dtype": a.dtype} | kw))),
        "new_tensor": lambda a, data, **kw: torch.tensor(data, **({"dtype": a.dtype} | kw)),
        "new_full": lambda a, shape, value, **kw: torch.full(shape, value, **({"dtype": a.dtype} | kw)),
    }
)
