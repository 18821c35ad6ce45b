"""Logarithms and exponentials: of monomials exactly, of positive sums as a `LogSum` that is bounded later."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from pyro_prme.conjugacy.indices import Index, Indices, indices_of, laid_along, same_entries
from pyro_prme.conjugacy.operations.arithmetic import ONLY_LOGARITHM, add, multiply, need_terms
from pyro_prme.conjugacy.random_tensor import Random, as_table, fresh, inner_indices, is_lifted, lift
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import (
    COMPLEMENT_LOG,
    EXPONENTIAL,
    LOG,
    POWER,
    Constant,
    Factor,
    LogSum,
    Term,
    as_float,
    log_of_monomial,
    merged_factors,
    product,
    renamed,
    term_indices,
)

__all__ = ["TABLE", "exp", "log", "log_sum_exp_bound"]

_MOST_PLACES = 20_000_000  # numbers in a table of which part of a sum is there


def log(a: Any) -> Random:
    """The logarithm: of a monomial, of 1 - x for a Beta variable, or of a sum of positive monomials."""
    a = as_table(lift(a))
    if a.logarithm is not None:
        return a.logarithm
    terms = need_terms(a)
    if not terms:
        raise Refused(a.variables, "the logarithm of zero")
    if len(terms) == 1 and not inner_indices(a, terms[0]):
        if not _is_positive(terms[0]):
            raise Refused(a.variables, "the logarithm of something that may be negative")
        return Random.make(a.shape, a.dims, log_of_monomial(terms[0]), a.selections, dtype=_floating(a))
    complement = _complement(a, terms)
    if complement is not None:
        return Random.make(a.shape, a.dims, (Term(1.0, (), (complement,)),), a.selections, dtype=a.dtype)
    if not all(map(_is_positive, terms)):
        terms = _joined(a, terms)
    if not all(map(_is_positive, terms)):
        raise Refused(a.variables, "the logarithm of a sum with it")
    chosen = _chosen(a, terms)
    if chosen is not None:
        return Random.make(a.shape, a.dims, chosen, a.selections, dtype=_floating(a))
    carried = set().union(*map(term_indices, terms))
    private = [_private((t,), inner_indices(a, t)) for t in terms]
    logs = tuple((log_of_monomial(t), own) for (t,), own in private)
    sums = tuple(t for (t,), _ in private)
    bound = LogSum(logs, sums, tuple(i for i in _outside(a) if i in carried))
    return Random.make(a.shape, a.dims, (Term(1.0, (), (), (bound,)),), a.selections, dtype=a.dtype)


def _joined(a: Random, terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Terms that have the same statistics as one, such as rate (1 - on) for rate less rate times on."""
    if any(inner_indices(a, t) or t.bounds for t in terms):
        return terms
    groups: list[list[Term]] = []
    for term in terms:
        group = next((g for g in groups if _same_factors(g[0], term)), None)
        if group is None:
            groups.append([term])
        else:
            group.append(term)
    out = []
    for group in groups:
        indices = tuple(dict.fromkeys(i for t in group for c in t.constants for i in c.indices))
        if math.prod(i.size for i in indices) > _MOST_PLACES:
            return terms
        table = sum((_table(t, indices, _floating(a)) for t in group), start=torch.zeros(()))
        whole = Constant(table.expand([i.size for i in indices]), indices)
        out.append(Term(1.0, (whole,), group[0].factors) if len(group) > 1 else group[0])
    return tuple(out)


def _same_factors(a: Term, b: Term) -> bool:
    def key(f: Factor) -> tuple[Any, ...]:
        return f.variable, f.kind, f.power

    return len(a.factors) == len(b.factors) and all(
        any(key(f) == key(g) and same_entries(f.entries, g.entries) for g in b.factors) for f in a.factors
    )


def _table(term: Term, indices: Indices, dtype: torch.dtype) -> torch.Tensor:
    """The constants of a term, laid along indices."""
    table = torch.tensor(term.coefficient, dtype=dtype)
    for c in term.constants:
        table = table * laid_along(as_float(c.tensor), c.indices, indices)
    return table


def _chosen(a: Random, terms: tuple[Term, ...]) -> list[Term] | None:
    """The logarithm of a sum of which one part alone is not zero at each value of discrete sites, as in `where`."""
    if any(inner_indices(a, t) for t in terms):
        return None
    indices = tuple(dict.fromkeys(i for t in terms for c in t.constants for i in c.indices))
    if math.prod(i.size for i in indices) > _MOST_PLACES:
        return None
    tables, there = [], []
    for term in terms:
        table = _table(term, indices, _floating(a))
        tables.append(table)
        there.append((table != 0).expand([i.size for i in indices]))
    if not bool((torch.stack(there).sum(0) == 1).all()):
        return None
    out: list[Term] = []
    for term, table, mask in zip(terms, tables, there, strict=True):
        own = Term(1.0, (Constant(mask.to(_floating(a)), indices),))
        number = torch.where(table > 0, table, torch.ones(())).log()
        out.append(Term(1.0, (Constant((number * mask).expand(mask.shape), indices),)))
        out += [product(own, part) for part in log_of_monomial(term._replace(coefficient=1.0, constants=()))]
    return out


def _private(terms: Iterable[Term], own: Iterable[Index]) -> tuple[tuple[Term, ...], tuple[Index, ...]]:
    """The terms with indices that nothing else has for those that are summed within a logarithm."""
    names = {i: Index(i.size) for i in own}
    return tuple(renamed(t, names) for t in terms), tuple(names.values())


def _floating(a: Random) -> torch.dtype:
    return a.dtype if a.dtype.is_floating_point else torch.get_default_dtype()


def _outside(a: Random) -> tuple[Any, ...]:
    """Indices of the dimensions and of the pending selections."""
    return tuple(dict.fromkeys([*(i for i in a.dims if i is not None), *(s.value for s in a.selections)]))


def _is_positive(term: Term) -> bool:
    """Whether a term is positive whatever its variables are."""
    if term.bounds or term.coefficient < 0:
        return False
    positive = all(f.kind == EXPONENTIAL or (f.kind == POWER and f.variable.family.positive) for f in term.factors)
    return positive and all(bool((c.tensor >= 0).all()) for c in term.constants)


def _complement(a: Random, terms: tuple[Term, ...]) -> Factor | None:
    """ln(1 - x) of a variable between 0 and 1, as a statistic of it."""
    if len(terms) != 2 or any(inner_indices(a, t) or t.bounds for t in terms):
        return None
    one, x = sorted(terms, key=lambda t: len(t.factors))
    if one.factors or len(x.factors) != 1 or not x.factors[0].variable.family.complement:
        return None
    if x.factors[0].kind != POWER or x.factors[0].power != 1 or not (_is_number(one, 1) and _is_number(x, -1)):
        return None
    return x.factors[0]._replace(kind=COMPLEMENT_LOG)


def _is_number(term: Term, number: float) -> bool:
    """Whether the constants of a term are this number throughout."""
    if any(c.tensor.requires_grad for c in term.constants):
        return False
    value = math.prod((as_float(c.tensor) for c in term.constants), start=torch.tensor(term.coefficient))
    return bool((value == number).all()) if len(term.constants) <= 1 else False


def exp(a: Any) -> Random:
    """The exponential of a sum of logarithms; of other sums only the logarithm is known."""
    a = as_table(lift(a))
    terms = need_terms(a)
    if not any(inner_indices(a, t) for t in terms) and all(_is_logarithm(t) for t in terms):
        monomial = _monomial(terms)
        if monomial is not None:
            return Random.make(a.shape, a.dims, (monomial,), a.selections, logarithm=a, dtype=_floating(a))
    under = {f.variable for t in terms for f in t.factors if f.kind == POWER and not f.variable.family.exponential}
    if under:
        raise Refused(under, "it is under an exp")
    blame = dict.fromkeys(a.variables, ONLY_LOGARITHM)
    return Random.make(a.shape, a.dims, None, a.selections, logarithm=a, blame=blame, dtype=_floating(a))


def _is_logarithm(term: Term) -> bool:
    """Whether exp of the term is a monomial: a constant, a multiple of ln x, or of an x with exponential moments."""
    if term.bounds or len(term.factors) > 1:
        return False
    return all(f.kind == LOG or _has_exponential(f) for f in term.factors)


def _has_exponential(f: Factor) -> bool:
    return f.kind == POWER and f.power == 1 and f.variable.family.exponential


def _monomial(terms: tuple[Term, ...]) -> Term | None:
    """exp of a sum of constants and of numbers times logarithms."""
    out = Term()
    for t in terms:
        if t.factors:
            if t.constants:
                return None
            kind = POWER if t.factors[0].kind == LOG else EXPONENTIAL
            out = product(out, Term(1.0, (), (t.factors[0]._replace(kind=kind, power=t.coefficient),)))
        elif not t.constants:
            out = product(out, Term(math.exp(t.coefficient)))
        else:
            if any(c.indices != t.constants[0].indices for c in t.constants):
                return None
            value = math.prod((as_float(c.tensor) for c in t.constants[1:]), start=as_float(t.constants[0].tensor))
            out = product(out, Term(1.0, (Constant((value * t.coefficient).exp(), t.constants[0].indices),)))
    return out._replace(factors=merged_factors(out.factors))


def log_sum_exp(a: Any, dim: Any, keepdim: bool = False) -> Random:
    """ln sum exp along a dimension: the logarithm of a sum where its parts have expectations, else a bound."""
    from pyro_prme.conjugacy.operations.reductions import total

    try:
        return log(total(exp(a), dim, keepdim))
    except Refused:
        return log_sum_exp_bound(a, dim, keepdim)


def log_sum_exp_bound(a: Any, dim: Any, keepdim: bool = False) -> Random:
    """ln sum exp of terms that have expectations, bounded from below by that of the expectations."""
    from pyro_prme.conjugacy.operations.shapes import unsqueeze

    a = fresh(lift(a))
    terms = need_terms(a)
    if not isinstance(dim, int):
        if len(dim) != 1:
            raise Refused(a.variables, "a logsumexp over several dimensions")
        dim = dim[0]
    dim = dim % a.dim()
    summed = a.dims[dim]
    over = {s.variable for s in a.selections if summed is not None and summed in indices_of(s.entries)}
    if over:
        raise Refused(over, "a logsumexp over its members")
    dims = tuple(i for d, i in enumerate(a.dims) if d != dim)
    shape = [n for d, n in enumerate(a.shape) if d != dim]
    carried = set().union(*map(term_indices, terms)) if terms else set()
    outside = [i for i in _outside(a) if i in carried and i is not summed]
    bound = LogSum((_private(terms, () if summed is None else (summed,)),), (), tuple(outside))
    out = Random.make(shape, dims, (Term(1.0, (), (), (bound,)),), a.selections, dtype=_floating(a))
    return unsqueeze(out, dim) if keepdim else out


def softmax(a: Any, dim: int, dtype: Any = None) -> Random:
    """exp(a - logsumexp a), of which the logarithm is known."""
    return exp(log_softmax(a, dim))


def log_softmax(a: Any, dim: int, dtype: Any = None) -> Random:
    """a - logsumexp a."""
    return add(a, multiply(log_sum_exp(a, dim, True), -1))


def raised(a: Any, b: Any) -> Random:
    """A number to the power of a random tensor."""
    if is_lifted(a):
        raise Refused((), "it is in an exponent")  # done on all of its values instead, where whole numbers stay so
    return exp(multiply(a, torch.as_tensor(b).log()))


#: What is known of logarithms and exponentials: the name of a torch operation, and what it does to random tensors.
TABLE: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "log": log,
        "log1p": lambda a: log(add(a, 1.0)),
        "exp": exp,
        "logsumexp": log_sum_exp,
        "special_logsumexp": log_sum_exp,
        "softmax": softmax,
        "log_softmax": log_softmax,
        "rpow": raised,
    }
)
