r"""Terms as contractions: their values and derivatives at given statistics, with both sides of bounded logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_prme.conjugacy.contraction import LARGE, Memory, contract
from pyro_prme.conjugacy.families import Family, Group, Request, Statistics
from pyro_prme.conjugacy.indices import Index, Indices, indices_of, laid_along, take, taken_indices
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import Constant, LogSum, Term, term_variables
from pyro_prme.conjugacy.variables import Variable

__all__ = ["CompiledBound", "CompiledTerm", "FactorTable", "Message", "all_requests", "dense"]

_DENSE = (
    1_000_000  # numbers; constants are contracted with each other up to this size even where that makes them larger
)

#: Statistics whose expectation is never negative.
_NEVER_NEGATIVE = ("chosen", "x", "inverse")


class _Operand(NamedTuple):
    """A statistic in a term: whose, which, and where."""

    name: str
    statistic: str
    entries: tuple[Any, ...]
    key: tuple[Any, ...]


class FactorTable:
    """Which factor each variable belongs to: one of its own, or that of a group.

    Args:
        units: families by unit.
    """

    def __init__(self, units: Mapping[str, Family]) -> None:
        self.units = units
        self._unit_of = {s: unit for unit, f in units.items() if isinstance(f, Group) for s in f.sites}

    def unit_of(self, variable: Variable) -> str:
        """The unit that a variable belongs to."""
        return self._unit_of.get(variable.name, variable.name)

    def operands(self, term: Term) -> list[_Operand]:
        """The statistics that a term asks for."""
        together: dict[str, list[Any]] = {}
        for f in term.factors:
            together.setdefault(self.unit_of(f.variable), []).append(f)
        found = []
        for unit, factors in together.items():
            family = self.units[unit]
            if isinstance(family, Group):
                found.append(_operand(unit, *family.operand(factors)))
            else:
                variable = factors[0].variable
                for request in variable.family.requests(variable, factors):
                    found.append(_operand(unit, request.statistic, family.operand_entries(request)))
        return found


class CompiledTerm:
    """One term as a contraction; constants that no statistic touches are contracted once.

    Args:
        term: the term.
        table: the families.
        kept: indices of the result that the constants must keep, for a term inside of a bound.
        dtype: in which constants and statistics are taken.
    """

    def __init__(self, term: Term, table: FactorTable, kept: Iterable[Index], dtype: torch.dtype) -> None:
        self.term, self.coefficient, self.dtype = term, term.coefficient, dtype
        self.operands = table.operands(term)
        live = {i for o in self.operands for i in indices_of(o.entries)} | {i for b in term.bounds for i in b.indices}
        constants = [Constant(c.tensor.to(dtype), c.indices) for c in term.constants]
        self.constants = _contracted(constants, live | set(kept))
        self.bounds = [CompiledBound(b, table, dtype) for b in term.bounds]
        self.names = {table.unit_of(v) for v in term_variables(term)}
        self.has_gradient = has_gradient(term)
        self._keys: list[Any] = [("constant", id(c.tensor)) for c in self.constants] + [o.key for o in self.operands]
        if self.bounds:
            self._check_sign(term, table)

    def _check_sign(self, term: Term, table: FactorTable) -> None:
        """A bound needs a coefficient whose sign is known: constants, indicators and positive statistics."""
        variables = term_variables(term)
        signed = [o for o in self.operands if not _never_negative(o, table.units[o.name])]
        if len(self.bounds) > 1 or signed:
            raise Refused(variables, "the logarithm of a sum times something of unknown sign")
        outside = {table.unit_of(f.variable) for f in term.factors}
        twice = {v for v in term_variables(term._replace(factors=())) if table.unit_of(v) in outside}
        if twice:  # the expectation of such a product is not that of its parts
            raise Refused(twice, "it multiplies the logarithm of a sum that it is in")
        below = [bool((c.tensor < 0).any()) for c in self.constants]
        if len(below) == 1:
            negative = bool((self.constants[0].tensor * self.coefficient < 0).any())
        else:
            negative = self.coefficient < 0 or any(below)
        if negative and self.bounds[0].upper is None:
            raise Refused(variables, "the logarithm of a sum with a negative weight")

    def taken(self, statistics: Mapping[str, Statistics]) -> list[tuple[Tensor, Indices]]:
        """Constants and statistics with the names of their dimensions."""
        found: list[tuple[Tensor, Indices]] = [(c.tensor, c.indices) for c in self.constants]
        return found + [self._take(o, statistics) for o in self.operands]

    def _take(self, operand: _Operand, statistics: Mapping[str, Statistics]) -> tuple[Tensor, Indices]:
        return take(statistics[operand.name][operand.statistic].to(self.dtype), operand.entries)

    def value(self, statistics: Mapping[str, Statistics], out: Sequence[Index], memory: Memory | None) -> Tensor:
        """The term, summed over all indices but those of the result that it carries."""
        operands = self.taken(statistics)
        if not self.bounds:
            return _scaled_product(self.coefficient, operands, tuple(out), memory, self._keys)
        bound = self.bounds[0]
        carried = tuple(dict.fromkeys(i for _, own in operands for i in own))
        weight = self.coefficient * (contract(operands, carried) if operands else torch.ones(()))
        return sum(
            (contract([(part, carried), (side, bound.indices)], out) for part, side in bound.sides(weight, statistics)),
            start=torch.zeros(()),
        )

    def message(self, name: str, statistics: Mapping[str, Statistics], memory: Memory | None) -> list[Message]:
        """The derivative in each statistic of a variable: the contraction of all the other operands."""
        if self.bounds:
            return self._message_through_bound(name, statistics)
        return self.slopes(name, statistics, (), memory)

    def slopes(
        self,
        name: str,
        statistics: Mapping[str, Statistics],
        weights: Sequence[tuple[Tensor, Indices]],
        memory: Memory | None = None,
    ) -> list[Message]:
        """The derivatives of the product of constants, statistics and further weights, without the bounds."""
        fixed: list[tuple[Tensor, Indices]] = [(c.tensor, c.indices) for c in self.constants]
        fixed += weights
        constants = [*self._keys[: len(self.constants)], *(None for _ in weights)]
        taken = {n: self._take(o, statistics) for n, o in enumerate(self.operands) if o.name != name}
        out = []
        for n, operand in enumerate(self.operands):
            if operand.name != name:
                continue
            for m, twin in enumerate(self.operands):
                if twin.name == name and m != n and m not in taken:
                    taken[m] = self._take(twin, statistics)
            others = [m for m in range(len(self.operands)) if m != n]
            rest = fixed + [taken[m] for m in others]
            keys = constants + [self._keys[len(self.constants) + m] for m in others]
            own = taken_indices(operand.entries)
            carried = {i for _, indices in rest for i in indices}
            kept = tuple(i for i in own if i in carried)
            slope = _scaled_product(self.coefficient, rest, kept, memory, keys)
            fresh = slope.numel() >= LARGE and len(rest) > 1 and not (memory is not None and memory.holds(slope))
            out.append(Message(operand.statistic, slope, kept, own, operand.entries, fresh))
        return out

    def _message_through_bound(self, name: str, statistics: Mapping[str, Statistics]) -> list[Message]:
        own = {key: value.detach().requires_grad_() for key, value in statistics[name].items()}
        with torch.enable_grad():
            value = self.value({**statistics, name: own}, (), None)
            slopes = torch.autograd.grad(value, list(own.values()), allow_unused=True)
        return [
            Message(key, slope, None, None, None) for key, slope in zip(own, slopes, strict=True) if slope is not None
        ]


def _scaled_product(
    coefficient: float, operands: list[tuple[Tensor, Indices]], out: Indices, memory: Memory | None, keys: list[Any]
) -> Tensor:
    """A contraction times a number, which is multiplied into whatever is smaller: an operand or the result."""
    if coefficient == 1:
        return contract(operands, out, memory=memory, keys=keys)
    if not operands:
        return torch.tensor(coefficient, dtype=torch.get_default_dtype())
    size = math.prod(i.size for i in out)
    small = min(range(len(operands)), key=lambda n: operands[n][0].numel())
    if operands[small][0].numel() >= size:
        return contract(operands, out, memory=memory, keys=keys) * coefficient
    tensor, own = operands[small]
    scaled = [*operands[:small], (tensor * coefficient, own), *operands[small + 1 :]]
    return contract(scaled, out)


class Message(NamedTuple):
    """A derivative in a statistic.

    Args:
        statistic: which.
        slope: laid along `kept`; along the statistic's own dimensions where that is None.
        kept: names of the slope's dimensions.
        own: names that the statistic had in the term; the slope is constant along those that are not kept.
        entries: where in the statistic.
        fresh: whether nobody else has the slope's memory, which may then be written to.
    """

    statistic: str
    slope: Tensor
    kept: Indices | None
    own: Indices | None
    entries: tuple[Any, ...] | None
    fresh: bool = False


class CompiledBound:
    r"""Both sides of E ln of a sum of positive monomials m.

    .. math:: \ln \sum_m \exp E \ln m \;\le\; E \ln \sum_m m \;\le\; \ln \sum_m E m

    The left one is used where the coefficient is positive, the right one where it is negative; both are tight at
    points.
    """

    def __init__(self, bound: LogSum, table: FactorTable, dtype: torch.dtype) -> None:
        self.indices = bound.indices
        self.logs = [
            ([CompiledTerm(t, table, (*own, *bound.indices), dtype) for t in terms], own) for terms, own in bound.logs
        ]
        self.upper: list[CompiledTerm] | None = None
        if bound.terms:
            try:
                self.upper = [CompiledTerm(t, table, bound.indices, dtype) for t in bound.terms]
            except Refused:
                self.upper = None

    def sides(self, weight: Tensor, statistics: Mapping[str, Statistics]) -> list[tuple[Tensor, Tensor]]:
        """Parts of the coefficient, each with the side of the bound that it asks for."""
        if bool((weight >= 0).all()):
            return [(weight, self.from_below(statistics))]
        if bool((weight <= 0).all()):
            return [(weight, self._from_above(statistics))]
        below, above = self.from_below(statistics), self._from_above(statistics)
        return [(weight.clamp(min=0), below), (weight.clamp(max=0), above)]

    def from_below(self, statistics: Mapping[str, Statistics]) -> Tensor:
        """The left side, laid along the bound's indices."""
        parts = []
        for terms, own in self.logs:
            logs = dense(terms, (*own, *self.indices), statistics)
            parts.append(logs.logsumexp(tuple(range(len(own)))) if own else logs)
        return parts[0] if len(parts) == 1 else torch.stack(torch.broadcast_tensors(*parts)).logsumexp(0)

    def _from_above(self, statistics: Mapping[str, Statistics]) -> Tensor:
        if self.upper is None:
            raise ValueError("A bound from above was asked of a sum whose parts have no expectations.")
        return dense(self.upper, self.indices, statistics).log()


def dense(terms: Sequence[CompiledTerm], indices: Indices, statistics: Mapping[str, Statistics]) -> Tensor:
    """The sum of terms, laid along indices."""
    out = torch.zeros(())
    for term in terms:
        carried = {i for _, own in term.taken(statistics) for i in own} | {i for b in term.bounds for i in b.indices}
        kept = tuple(i for i in indices if i in carried)
        out = out + laid_along(term.value(statistics, kept, None), kept, indices)
    return out.expand([i.size for i in indices])


def has_gradient(term: Term) -> bool:
    """Whether a gradient passes through a constant of the term."""
    inside = (t for b in term.bounds for terms, _ in b.logs for t in terms)
    return any(c.tensor.requires_grad for c in term.constants) or any(has_gradient(t) for t in inside)


def requests_of(term: Term) -> list[tuple[Variable, Request]]:
    """The statistics that a term asks for."""
    by_variable: dict[Variable, list[Any]] = {}
    for f in term.factors:
        by_variable.setdefault(f.variable, []).append(f)
    return [(v, r) for v, factors in by_variable.items() for r in v.family.requests(v, factors)]


def all_requests(term: Term) -> list[tuple[Variable, Request]]:
    """Those of a term and of all terms inside of its bounds."""
    found = requests_of(term)
    for bound in term.bounds:
        for terms, _ in bound.logs:
            found += [request for t in terms for request in all_requests(t)]
    return found


def _operand(unit: str, statistic: str, entries: tuple[Any, ...]) -> _Operand:
    return _Operand(unit, statistic, entries, (unit, statistic, *(id(e) for e in entries)))


def _never_negative(operand: _Operand, family: Family) -> bool:
    if isinstance(family, Group):
        return family.discrete
    return operand.statistic in _NEVER_NEGATIVE and (family.discrete or family.positive)


def _contracted(constants: Sequence[Constant], live: set[Index]) -> list[Constant]:
    """Constants with the indices that only they carry summed out, unless that makes them larger."""
    dead = {i for c in constants for i in c.indices} - live
    groups: list[list[Constant]] = []
    for c in constants:
        joined = [g for g in groups if any(set(c.indices) & set(d.indices) & dead for d in g)]
        groups = [g for g in groups if not any(g is other for other in joined)]
        groups.append([*(d for g in joined for d in g), c])
    out: list[Constant] = []
    for group in groups:
        indices = tuple(dict.fromkeys(i for c in group for i in c.indices))
        kept = tuple(i for i in indices if i not in dead)
        size = math.prod(i.size for i in kept)
        if len(kept) < len(indices) and size <= max(_DENSE, sum(c.tensor.numel() for c in group)):
            out.append(Constant(contract([(c.tensor, c.indices) for c in group], kept), kept))
        else:
            out += group
    return out
