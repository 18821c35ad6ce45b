"""Random tensors at given values of their variables: what tests and the search for constant sums compute with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pyro_prme.conjugacy.contraction import contract
from pyro_prme.conjugacy.indices import Index, laid_along, take
from pyro_prme.conjugacy.random_tensor import Random
from pyro_prme.conjugacy.terms import CHOSEN, COMPLEMENT_LOG, LOG, Factor, LogSum, Term
from pyro_prme.conjugacy.variables import Variable

__all__ = ["constant_sum", "value_at"]


def value_at(r: Random, points: Mapping[Variable, Tensor]) -> Tensor:
    """The tensor where its variables have these values; pending choices are those of the points.

    Args:
        r: a random tensor that has terms.
        points: of continuous variables, in float64.
    """
    terms = [t._replace(factors=(*t.factors, *(s.chosen() for s in r.selections))) for t in r.terms or ()]
    indices = [i for i in r.dims if i is not None]
    out = torch.zeros([i.size for i in indices], dtype=torch.float64)
    for term in terms:
        out = out + _term_at(term, indices, points)
    return out.reshape(r.shape)


def _term_at(term: Term, indices: Sequence[Index], points: Mapping[Variable, Tensor]) -> Tensor:
    operands = [(c.tensor.double(), c.indices) for c in term.constants]
    operands += [take(_statistic_at(f, points[f.variable]), f.entries) for f in term.factors]
    operands += [(_log_sum_at(b, points), b.indices) for b in term.bounds]
    carried = {i for _, own in operands for i in own}
    kept = tuple(i for i in indices if i in carried)
    if not operands:
        return torch.full([1] * len(indices), term.coefficient, dtype=torch.float64)
    return term.coefficient * laid_along(contract(operands, kept), kept, indices)


def _log_sum_at(bound: LogSum, points: Mapping[Variable, Tensor]) -> Tensor:
    parts = []
    for terms, own in bound.logs:
        indices = (*own, *bound.indices)
        logs = torch.zeros([i.size for i in indices], dtype=torch.float64)
        for term in terms:
            logs = logs + _term_at(term, indices, points)
        parts.append(logs.logsumexp(tuple(range(len(own)))) if own else logs)
    return torch.stack(parts).logsumexp(0)


def _statistic_at(f: Factor, x: Tensor) -> Tensor:
    if f.kind == LOG:
        return x.log()
    if f.kind == COMPLEMENT_LOG:
        return (-x).log1p()
    if f.kind == CHOSEN:
        raise ValueError(f"{f.variable} is discrete: it has no points here.")
    return x**f.power


def constant_sum(logarithm: Random, dim: int) -> Tensor | None:
    """The sum along a dimension of something known by its logarithm, where it is one number at random points.

    The weights of sticks add up to one, whatever the sticks are.
    """
    discrete = any(v.family.discrete for v in logarithm.variables)
    if discrete or logarithm.selections or logarithm.terms is None:
        return None
    generator = torch.Generator().manual_seed(0)
    seen = []
    for _ in range(2):
        points = {v: v.family.interior_point(v.shape, generator) for v in logarithm.variables}
        seen.append(value_at(logarithm, points).exp().sum(dim))
    number = seen[0].flatten()[0] if seen[0].numel() else torch.zeros(())
    same = all(torch.allclose(v, number.expand_as(v), rtol=1e-9, atol=0) for v in seen)
    return number.to(logarithm.dtype).expand(seen[0].shape) if same else None
