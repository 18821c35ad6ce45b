"""Sums, products and powers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from pyro_prme.conjugacy.random_tensor import (
    Random,
    align,
    as_table,
    inner_indices,
    is_lifted,
    lift,
    terms_in,
    variables_in,
)
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import POWER, Constant, Term, as_float, collect, is_zero, product

__all__ = ["TABLE", "add", "divide", "multiply", "need_terms", "power", "subtract"]

ONLY_LOGARITHM = "only its logarithm has an expectation"


def need_terms(r: Random) -> tuple[Term, ...]:
    """The terms of a tensor that has them."""
    if r.terms is None:
        raise Refused(r.blame or dict.fromkeys(r.variables, ONLY_LOGARITHM))
    return r.terms


def add(a: Any, b: Any, *, alpha: float = 1) -> Random:
    """a + alpha b."""
    (x, y), dims, shape = align(a, multiply(b, alpha) if alpha != 1 else b)
    terms = collect(need_terms(x) + need_terms(y))
    return Random.make(shape, dims, terms, x.selections, dtype=x.dtype)


def subtract(a: Any, b: Any, *, alpha: float = 1) -> Random:
    """a - alpha b."""
    return add(a, multiply(b, -alpha))


def multiply(a: Any, b: Any) -> Random:
    """a b, with its logarithm where that of both is known."""
    from pyro_prme.conjugacy.operations.logarithms import exp, log

    if isinstance(b, int | float) and isinstance(a, Random) and a.terms is not None and a.logarithm is None:
        dtype = _with_number(a.dtype, b)
        scaled = (t._replace(coefficient=t.coefficient * b) for t in terms_in(a, dtype) or ())
        return Random.make(a.shape, a.dims, scaled, a.selections, dtype=dtype)
    (x, y), dims, shape = align(a, b)
    if x.terms is None or y.terms is None:
        return exp(add(log(x), log(y)))
    logarithm = None
    if x.logarithm is not None or y.logarithm is not None:
        try:
            logarithm = add(log(x), log(y))
        except Refused:
            logarithm = None
    terms = [product(s, t) for s in x.terms for t in y.terms]
    if len(terms) > max(len(x.terms), len(y.terms)):
        terms = [t for t in terms if not is_zero(t)]
    out = Random.make(shape, dims, terms, x.selections, dtype=x.dtype)
    return out if logarithm is None else with_logarithm(out, logarithm)


def _with_number(dtype: torch.dtype, number: float) -> torch.dtype:
    if isinstance(number, float) and not dtype.is_floating_point:
        return torch.get_default_dtype()
    return torch.int64 if dtype == torch.bool and not isinstance(number, bool) else dtype


def with_logarithm(value: Random, logarithm: Random) -> Random:
    """A tensor of which both the terms and those of the logarithm are known."""
    (v, known), dims, shape = align(value, logarithm)
    return Random.make(shape, dims, v.terms, v.selections, logarithm=known, dtype=v.dtype)


def divide(a: Any, b: Any, *, rounding_mode: str | None = None) -> Random:
    """a / b, through the logarithms where 1 / b has no expectation."""
    from pyro_prme.conjugacy.operations.logarithms import exp, log

    if rounding_mode is not None:
        raise Refused(variables_in((a, b)), "it is rounded")
    if isinstance(b, int | float):
        return multiply(a, 1.0 / b)
    if not isinstance(b, Random):
        return multiply(a, 1.0 / as_float(torch.as_tensor(b)))
    try:
        inverse = power(b, -1.0)
    except Refused:
        return exp(subtract(log(lift(a)), log(b)))
    return multiply(a, inverse)


def power(a: Any, p: Any) -> Random:
    """a to the power of a number."""
    from pyro_prme.conjugacy.operations.logarithms import exp, log

    if isinstance(p, Tensor) and not isinstance(p, Random) and p.numel() == 1 and not p.requires_grad:
        p = float(p)
    if isinstance(p, Random) and is_lifted(p) and is_lifted(lift(a)):
        raise Refused((), "it is in an exponent")  # done on all of its values instead
    if not isinstance(p, int | float):
        raise Refused(variables_in((a, p)), "it is in an exponent, or under one that is not a number")
    a = as_table(lift(a))
    if p == 1:
        return a
    if a.terms is None:
        return exp(multiply(log(a), p))
    if len(a.terms) == 1 and not inner_indices(a, a.terms[0]) and not a.terms[0].bounds:
        return _monomial_power(a, a.terms[0], float(p))
    if p == 2:
        return _square(a)
    if float(p).is_integer() and 2 < p <= 4:
        return multiply(_square(a), _square(a) if p == 4 else a)
    raise Refused(a.variables, f"a sum with it is raised to the power {p:g}")


def _monomial_power(a: Random, term: Term, p: float) -> Random:
    whole = p.is_integer() and p >= 0
    if not all(f.kind == POWER and (whole or f.variable.family.positive) for f in term.factors) or (
        term.coefficient < 0 and not p.is_integer()
    ):
        raise Refused(a.variables, f"it is raised to the power {p:g}")
    constants = tuple(Constant(as_float(c.tensor) ** p, c.indices) for c in term.constants)
    factors = tuple(f._replace(power=f.power * p) for f in term.factors if p != 0)
    raised = Term(term.coefficient**p, constants, factors)
    return Random.make(a.shape, a.dims, (raised,), a.selections, dtype=_floating(a.dtype))


def _floating(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _square(a: Random) -> Random:
    """A sum squared: each pair of terms once."""
    (x, y), dims, shape = align(a, a)
    first, second = need_terms(x), need_terms(y)
    terms = []
    for i, s in enumerate(first):
        for j in range(i, len(second)):
            pair = product(s, second[j])
            terms.append(pair if i == j else pair._replace(coefficient=2 * pair.coefficient))
    return Random.make(shape, dims, terms, x.selections, dtype=x.dtype)


def reciprocal_power(p: float) -> Callable[[Any], Random]:
    """The power p as a function of one argument."""
    return lambda a: power(a, p)


#: What is known of arithmetic: the name of a torch operation, and what it does to random tensors.
TABLE: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **dict.fromkeys(("add", "radd", "iadd"), add),
        **dict.fromkeys(("sub", "subtract", "isub"), subtract),
        "rsub": lambda a, b, alpha=1: add(b, multiply(a, -alpha)),
        **dict.fromkeys(("neg", "negative"), lambda a: multiply(a, -1)),
        "positive": lambda a: a,
        **dict.fromkeys(("mul", "rmul", "multiply", "imul"), multiply),
        **dict.fromkeys(("div", "truediv", "true_divide", "divide", "itruediv"), divide),
        **dict.fromkeys(("rtruediv", "rdiv"), lambda a, b: divide(lift(b), a)),
        **dict.fromkeys(("pow", "ipow"), power),
        "square": reciprocal_power(2.0),
        "sqrt": reciprocal_power(0.5),
        "rsqrt": reciprocal_power(-0.5),
        "reciprocal": reciprocal_power(-1.0),
    }
)
