"""Terms: products of constants, of statistics of latent variables and of logarithms of sums, with named indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_prme.conjugacy.indices import Entry, Index, Indices, indices_of, same_entries, substitute, take
from pyro_prme.conjugacy.variables import Variable

__all__ = [
    "CHOSEN",
    "COMPLEMENT_LOG",
    "EXPONENTIAL",
    "LOG",
    "POWER",
    "Constant",
    "Factor",
    "LogSum",
    "Selection",
    "Term",
    "collect",
    "constant",
    "in_dtype",
    "is_zero",
    "log_of_monomial",
    "product",
    "renamed",
    "summed",
    "term_indices",
    "term_variables",
]

#: x^power
POWER = "power"
#: ln x
LOG = "log"
#: ln(1 - x)
COMPLEMENT_LOG = "log(1 - x)"
#: exp(power x)
EXPONENTIAL = "exponential"
#: 1 where the variable has the value that the last index names, else 0
CHOSEN = "chosen"

_SMALL = 4096  # numbers; constants up to this size are looked through for zeros


class Constant(NamedTuple):
    """A tensor and the names of its dimensions."""

    tensor: Tensor
    indices: Indices


class Factor(NamedTuple):
    """A statistic of a variable at an index."""

    variable: Variable
    kind: str  # POWER, LOG, COMPLEMENT_LOG, EXPONENTIAL or CHOSEN
    power: float
    entries: tuple[Entry, ...]


class LogSum(NamedTuple):
    """The logarithm of a sum of positive monomials; the sign of its coefficient decides on which side it is bounded.

    Args:
        logs: of each monomial, the terms of its logarithm and the indices that are summed within it.
        terms: the sum itself; empty where only logarithms of its parts have expectations.
        indices: those that remain.
    """

    logs: tuple[tuple[tuple[Term, ...], Indices], ...]
    terms: tuple[Term, ...]
    indices: Indices


class Term(NamedTuple):
    """A product. Indices that are not dimensions of the tensor it belongs to are summed over."""

    coefficient: float = 1.0
    constants: tuple[Constant, ...] = ()
    factors: tuple[Factor, ...] = ()
    bounds: tuple[LogSum, ...] = ()


class Selection(NamedTuple):
    """A pending choice: the index `value` stands for the value that a discrete variable has at the entries."""

    variable: Variable
    entries: tuple[Entry, ...]
    value: Index

    def chosen(self) -> Factor:
        """The indicator that turns the choice into a sum over all values."""
        return Factor(self.variable, CHOSEN, 1.0, (*self.entries, self.value))


def constant(tensor: Tensor, indices: Indices = ()) -> Term:
    """A constant as a term; a plain number becomes its coefficient."""
    if not indices and not tensor.requires_grad:
        return Term(float(tensor))
    return Term(1.0, (Constant(tensor, indices),))


def term_indices(term: Term) -> set[Index]:
    """All indices that the term carries on its outside."""
    found = {i for c in term.constants for i in c.indices}
    found |= {i for f in term.factors for i in indices_of(f.entries)}
    return found | {i for b in term.bounds for i in b.indices}


def term_variables(term: Term) -> set[Variable]:
    """All variables of which the term has a statistic."""
    found = {f.variable for f in term.factors}
    for bound in term.bounds:
        for inner, _ in bound.logs:
            for part in inner:
                found |= term_variables(part)
    return found


def renamed(term: Term, names: Mapping[Index, Entry]) -> Term:
    """The term with indices replaced by indices or gathers."""
    if not names:
        return term
    constants, coefficient = [], term.coefficient
    for c in term.constants:
        moved = _renamed_constant(c, names)
        if moved.indices or moved.tensor.requires_grad or not moved.tensor.is_floating_point():
            constants.append(moved)
        else:
            coefficient *= float(moved.tensor)
    factors = tuple(f._replace(entries=tuple(substitute(e, names) for e in f.entries)) for f in term.factors)
    bounds = tuple(
        LogSum(
            tuple((tuple(renamed(part, names) for part in inner), own) for inner, own in b.logs),
            tuple(renamed(part, names) for part in b.terms),
            indices_of(tuple(names.get(i, i) for i in b.indices)),
        )
        for b in term.bounds
    )
    return Term(coefficient, tuple(constants), factors, bounds)


def _renamed_constant(c: Constant, names: Mapping[Index, Entry]) -> Constant:
    if not any(i in names for i in c.indices):
        return c
    return Constant(*take(c.tensor, tuple(names.get(i, i) for i in c.indices)))


def product(a: Term, b: Term) -> Term:
    """The product of two terms that share indices only where they mean the same dimension."""
    return Term(
        a.coefficient * b.coefficient,
        _merged_constants(a.constants + b.constants),
        merged_factors(a.factors + b.factors),
        a.bounds + b.bounds,
    )


def _merged_constants(constants: Iterable[Constant]) -> tuple[Constant, ...]:
    out: list[Constant] = []
    for c in constants:
        for place, d in enumerate(out):
            if not c.indices or not d.indices or c.indices == d.indices:
                large, small = (c, d) if len(c.indices) >= len(d.indices) else (d, c)
                out[place] = Constant(large.tensor * small.tensor, large.indices)
                break
        else:
            out.append(c)
    return tuple(out)


def merged_factors(factors: Iterable[Factor]) -> tuple[Factor, ...]:
    """Powers and exponents of the same member of a variable are added."""
    out: list[Factor] = []
    for f in factors:
        for place, g in enumerate(out):
            if (
                f.kind == g.kind in (POWER, EXPONENTIAL)
                and f.variable is g.variable
                and same_entries(f.entries, g.entries)
            ):
                out[place] = g._replace(power=g.power + f.power)
                break
        else:
            out.append(f)
    return tuple(f for f in out if f.power != 0)


def is_zero(term: Term) -> bool:
    """Whether the term is seen to be zero."""
    if term.coefficient == 0:
        return True
    small = (c.tensor for c in term.constants if c.tensor.numel() <= _SMALL and not c.tensor.requires_grad)
    return any(not bool(tensor.any()) for tensor in small)


def collect(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Adds up constants of one layout."""
    out: list[Term] = []
    for term in terms:
        place = next((i for i, other in enumerate(out) if _same_layout(term, other)), None)
        if place is None:
            out.append(term)
            continue
        other = out[place]
        if not term.constants:
            out[place] = Term(term.coefficient + other.coefficient)
        else:
            total = _scaled(term) + _scaled(other)
            out[place] = Term(1.0, (Constant(total, term.constants[0].indices),))
    return tuple(out)


def _same_layout(a: Term, b: Term) -> bool:
    if a.factors or b.factors or a.bounds or b.bounds or len(a.constants) != len(b.constants):
        return False
    return not a.constants or (len(a.constants) == 1 and a.constants[0].indices == b.constants[0].indices)


def _scaled(term: Term) -> Tensor:
    tensor = term.constants[0].tensor
    return tensor if term.coefficient == 1 else tensor * term.coefficient


def summed(term: Term, gone: Iterable[Index], kept: set[Index]) -> Term:
    """The sum of a term over indices, which it may go on to carry as inner ones.

    Probabilities and indicators add up to one: a factor whose last index nothing else carries is left out.

    Args:
        term: the term.
        gone: indices to sum over, whether the term carries them or not.
        kept: indices that remain outside; all others that the term carries are sums already.
    """
    pending = set(gone) | (term_indices(term) - kept)
    while True:
        found = next((f for f in term.factors if _adds_up(f, term, pending)), None)
        if found is None:
            break
        pending.remove(found.entries[-1])  # type: ignore[arg-type]
        term = term._replace(factors=tuple(f for f in term.factors if f is not found))
    if not term.factors and not term.bounds:
        term = _constants_summed(term, pending)
    times = 1.0
    for index in pending - term_indices(term):
        times *= index.size
    return term if times == 1 else term._replace(coefficient=term.coefficient * times)


def _constants_summed(term: Term, pending: set[Index]) -> Term:
    """Sums that only one constant has anything to do with, so that what depends on discrete sites alone stays so."""
    constants = list(term.constants)
    for place, c in enumerate(constants):
        elsewhere = {i for d in term.constants if d is not c for i in d.indices}
        gone = [i for i in c.indices if i in pending and i not in elsewhere]
        if gone:
            pending -= set(gone)
            left = tuple(i for i in c.indices if i not in gone)
            constants[place] = Constant(c.tensor.sum([c.indices.index(i) for i in gone]), left)
    return term._replace(constants=tuple(constants))


def _adds_up(f: Factor, term: Term, pending: set[Index]) -> bool:
    """Whether the sum of a factor over its last index is one and can be taken apart from the rest."""
    index = f.entries[-1] if f.entries else None
    if not isinstance(index, Index) or index not in pending or index in indices_of(f.entries[:-1]):
        return False
    if not (f.kind == CHOSEN or (f.kind == POWER and f.power == 1 and f.variable.family.simplex)):
        return False
    return index not in term_indices(term._replace(factors=tuple(g for g in term.factors if g is not f)))


def log_of_monomial(term: Term) -> tuple[Term, ...]:
    """The terms of the logarithm of a positive monomial without sums."""
    out = [] if term.coefficient == 1 else [Term(float(torch.tensor(term.coefficient, dtype=torch.float64).log()))]
    out += [Term(1.0, (Constant(as_float(c.tensor).log(), c.indices),)) for c in term.constants]
    for f in term.factors:
        kind = POWER if f.kind == EXPONENTIAL else LOG
        out.append(Term(float(f.power), (), (f._replace(kind=kind, power=1.0),)))
    return tuple(out)


def in_dtype(term: Term, dtype: torch.dtype) -> Term:
    """The term with truth values and whole numbers as numbers of the given type: True + True is two there."""
    constants = tuple(
        c if c.tensor.is_floating_point() or c.tensor.dtype == dtype else Constant(c.tensor.to(dtype), c.indices)
        for c in term.constants
    )
    return term._replace(constants=constants)


def as_float(tensor: Tensor) -> Tensor:
    """The tensor in a floating type: its own, or the default."""
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())
