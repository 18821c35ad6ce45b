"""Sums over dimensions, and the products of matrices and running sums that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from pyro_prme.conjugacy.contraction import contract
from pyro_prme.conjugacy.evaluation import constant_sum
from pyro_prme.conjugacy.indices import Index, indices_of
from pyro_prme.conjugacy.operations.arithmetic import add, multiply, need_terms
from pyro_prme.conjugacy.operations.logarithms import exp, log
from pyro_prme.conjugacy.operations.shapes import permute, transpose, unsqueeze
from pyro_prme.conjugacy.random_tensor import Random, lift, variables_in
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import Selection, Term, as_float, collect, constant, product, summed, term_indices

__all__ = ["TABLE", "matrix_product", "total"]


def total(a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None) -> Random:
    """The sum over some dimensions, or all."""
    a, dim = lift(a), axis if dim is None else dim
    if a.logarithm is not None and isinstance(dim, int) and (a.terms is None or len(a.terms) > 1):
        known = constant_sum(a.logarithm, dim % a.dim())
        if known is not None:
            return lift(known.unsqueeze(dim) if keepdim else known)
    terms = list(need_terms(a))
    dims = [dim] if isinstance(dim, int) else range(a.dim()) if dim is None or dim == () else dim
    gone = {d % a.dim() for d in dims} if a.dim() else set()
    over = [i for d in gone if (i := a.dims[d]) is not None]
    selections: list[Selection] = []
    for s in a.selections:
        if set(indices_of(s.entries)) & set(over):
            terms = [product(t, Term(1.0, (), (s.chosen(),))) for t in terms]
        else:
            selections.append(s)
    kept = {i for d, i in enumerate(a.dims) if d not in gone and i is not None} | {s.value for s in selections}
    terms = [_constants_summed(summed(t, over, kept), kept) for t in terms]
    left = [d for d in range(a.dim()) if keepdim or d not in gone]
    new_dims = [None if d in gone else a.dims[d] for d in left]
    return Random.make(
        [1 if d in gone else a.shape[d] for d in left], new_dims, collect(terms), selections, dtype=a.dtype
    )


def _constants_summed(term: Term, kept: set[Index]) -> Term:
    """A term of constants alone, with its inner sums carried out."""
    inner = term_indices(term) - kept
    if term.factors or term.bounds or not inner:
        return term
    indices = tuple(dict.fromkeys(i for c in term.constants for i in c.indices if i in kept))
    whole = contract([(as_float(c.tensor), c.indices) for c in term.constants], indices)
    return product(Term(term.coefficient), constant(whole, indices))


def mean(a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None) -> Random:
    """The mean over some dimensions, or all."""
    whole = total(a, dim, keepdim, axis=axis)
    return multiply(whole, whole.numel() / max(a.numel(), 1))


def matrix_product(a: Any, b: Any) -> Random:
    """a @ b, by torch's rules for vectors and batches."""
    a, b = lift(a), lift(b)
    if b.dim() == 1:
        return total(multiply(a, b), -1)
    if a.dim() == 1:
        return total(multiply(unsqueeze(a, -1), b), -2)
    return total(multiply(unsqueeze(a, -1), unsqueeze(b, -3)), -2)


def linear(x: Any, weight: Any, bias: Any = None) -> Random:
    """x W' + b."""
    out = matrix_product(x, transpose(lift(weight), -1, -2))
    return out if bias is None else add(out, bias)


def einsum(spec: str, *operands: Any) -> Random:
    """Einsum with an explicit result and no ellipsis or repeated letter."""
    xs = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands
    if "->" not in spec or "." in spec:
        raise Refused(variables_in(xs), f"it goes through einsum in a form that is not followed ({spec})")
    left, right = spec.replace(" ", "").split("->")
    letters = sorted(set(left) - {","})
    out: Any = None
    for names, x in zip(left.split(","), xs, strict=True):
        if len(set(names)) != len(names):
            raise Refused(variables_in(xs), f"it goes through einsum with a repeated index ({spec})")
        x = permute(lift(x), sorted(range(len(names)), key=lambda d: names[d]))
        for d, letter in enumerate(letters):
            if letter not in names:
                x = unsqueeze(x, d)
        out = x if out is None else multiply(out, x)
    dropped = [d for d, letter in enumerate(letters) if letter not in right]
    out = total(out, dropped) if dropped else out
    kept = [letter for letter in letters if letter in right]
    return permute(out, [kept.index(letter) for letter in right])


def running_sum(a: Any, dim: int, *, dtype: Any = None) -> Random:
    """Cumulative sum."""
    a = lift(a)
    size = a.shape[dim]
    upper = torch.ones(size, size, dtype=a.dtype if a.dtype.is_floating_point else None).triu()
    return transpose(matrix_product(transpose(a, dim, -1), upper), dim, -1)


def running_product(a: Any, dim: int, *, dtype: Any = None) -> Random:
    """Cumulative product, through the logarithm."""
    return exp(running_sum(log(a), dim))


def whole_product(a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Random:
    """Product along a dimension, through the logarithm."""
    return exp(total(log(a), dim, keepdim))


def outer(a: Any, b: Any) -> Random:
    """The outer product of two vectors."""
    return multiply(unsqueeze(lift(a), -1), b)


#: What is known of sums and products: the name of a torch operation, and what it does to random tensors.
TABLE: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "sum": total,
        "mean": mean,
        **dict.fromkeys(("matmul", "mm", "bmm"), matrix_product),
        "rmatmul": lambda a, b: matrix_product(b, a),
        **dict.fromkeys(("mv", "dot", "vdot"), matrix_product),
        "outer": outer,
        "linear": linear,
        "einsum": einsum,
        "cumsum": running_sum,
        "cumprod": running_product,
        "prod": whole_product,
    }
)
