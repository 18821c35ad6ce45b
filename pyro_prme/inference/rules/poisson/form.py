r"""What an observed site's expected log density must look like, whatever the sites are called.

Counts X from a sum over factors k, with a weight w that is the same for all rows n:

.. code-block:: text

    X:  w X[n, d] ln sum_k Z[n, k] theta[k, d]  -  w Z[n, k] theta[k, d]        theta Gamma, or
        w X[n, d] ln sum_k Z[n, k] theta[k, d]  -  w Z[n, k]                    theta Dirichlet over d
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_prme.conjugacy.families import Dirichlet, Gamma
from pyro_prme.conjugacy.indices import Gather, Index, laid_along
from pyro_prme.conjugacy.terms import LOG, POWER, Factor, Term
from pyro_prme.conjugacy.variables import Variable

__all__ = ["NotPoissonSums", "PoissonForm", "poisson_form"]


class NotPoissonSums(Exception):
    """Why a density has another form: a clause."""


class PoissonForm(NamedTuple):
    """Counts from a sum over factors.

    Args:
        loadings, factors: the variables Z and theta.
        by_column: whether theta is laid out (D, K), else (K, D).
        counts: X, shape (B, D).
        weight: w.
    """

    loadings: Variable
    factors: Variable
    by_column: bool
    counts: Tensor
    weight: float


class _Pair(NamedTuple):
    """Two variables, each with the index that the other has not and the one that they share."""

    first: Factor
    first_own: Index
    second: Factor
    second_own: Index
    shared: Index


def poisson_form(terms: Sequence[Term]) -> PoissonForm:
    """Reads the density of the counts."""
    bounded = [t for t in terms if t.bounds]
    linear = [t for t in terms if t.factors and not t.bounds]
    if len(bounded) != 1 or len(linear) != 1:
        raise NotPoissonSums("its density is not that of counts with a sum for their rate")
    (log_sum,), (inside,) = bounded[0].bounds, _only_sum(bounded[0])
    counts, rows, columns = _counts(bounded[0])
    pair = _pair(*(_logarithm(t) for t in inside))
    ends = {pair.first_own, pair.second_own}
    if ends != {rows, columns} or pair.shared in log_sum.indices:
        raise NotPoissonSums("the sum is not one over factors of loadings of a row times factors of a column")
    first_is_loadings = pair.first_own is rows
    if _is_local(pair.second if first_is_loadings else pair.first):
        first_is_loadings, counts = not first_is_loadings, counts.mT
    loadings, own = (pair.first, pair.first_own) if first_is_loadings else (pair.second, pair.second_own)
    factors = pair.second if first_is_loadings else pair.first
    if _indices(loadings) != [own, pair.shared] or loadings.variable.family is not Gamma:
        raise NotPoissonSums("the loadings are not Gamma variables laid out by row and then by factor")
    by_column = _indices(factors)[-1] is pair.shared
    kind = factors.variable.family
    if kind is not Gamma and not (kind is Dirichlet and not by_column):
        raise NotPoissonSums("the factors are neither Gamma variables nor Dirichlet over the columns")
    weight = _weight(linear[0], loadings, factors, summed_out=kind is Dirichlet)
    return PoissonForm(loadings.variable, factors.variable, by_column, counts / weight, weight)


def _only_sum(term: Term) -> tuple[tuple[Term, ...]]:
    """The logarithms of the factors of the one monomial within the sum."""
    bound = term.bounds[0]
    if term.factors or len(term.bounds) != 1 or len(bound.logs) != 1 or len(bound.logs[0][1]) != 1:
        raise NotPoissonSums("its rate is not one sum over factors")
    inside, _ = bound.logs[0]
    if len(inside) != 2 or any(t.constants or t.bounds or t.coefficient != 1 or len(t.factors) != 1 for t in inside):
        raise NotPoissonSums("its rate has more in it than loadings times factors")
    return (inside,)


def _logarithm(term: Term) -> Factor:
    (factor,) = term.factors
    if (factor.kind, factor.power) != (LOG, 1.0):
        raise NotPoissonSums("its rate has a power of a variable in it")
    return factor


def _indices(factor: Factor) -> list[Index]:
    """The indices of a variable of two dimensions, further ones of size one left out."""
    entries = [e for e in factor.entries if not (isinstance(e, Gather) and not e.indices)]
    if len(entries) != 2 or not all(isinstance(e, Index) for e in entries):
        raise NotPoissonSums(f"{factor.variable} is not a plain table")
    return [e for e in entries if isinstance(e, Index)]


def _pair(a: Factor, b: Factor) -> _Pair:
    one, two = _indices(a), _indices(b)
    shared = [i for i in one if i in two]
    if len(shared) != 1 or a.variable is b.variable:
        raise NotPoissonSums("loadings and factors do not share one index")
    (k,) = shared
    return _Pair(a, next(i for i in one if i is not k), b, next(i for i in two if i is not k), k)


def _is_local(factor: Factor) -> bool:
    """Whether the members of a variable are those of a batch."""
    return bool(factor.variable.subsampled)


def _counts(term: Term) -> tuple[Tensor, Index, Index]:
    """The weighted counts (B, D), and the names of rows and columns."""
    if len(term.constants) != 1 or len(term.constants[0].indices) != 2:
        raise NotPoissonSums("its counts are not one table")
    table, (rows, columns) = term.constants[0]
    if table.requires_grad:
        raise NotPoissonSums("its counts are weighted by something that is learned")
    indices = term.bounds[0].indices
    if set(indices) != {rows, columns}:
        raise NotPoissonSums("its counts are not laid out as its rate is")
    return table * term.coefficient, rows, columns


def _weight(term: Term, loadings: Factor, factors: Factor, *, summed_out: bool) -> float:
    """What a row counts, from the term that is linear in the loadings."""
    plain = [(f.variable, f.kind, f.power) for f in term.factors]
    wanted = [(loadings.variable, POWER, 1.0)] + ([] if summed_out else [(factors.variable, POWER, 1.0)])
    if len(plain) != len(wanted) or not all(any(x[0] is y[0] and x[1:] == y[1:] for y in plain) for x in wanted):
        raise NotPoissonSums("what is taken from the counts is not the sum of all rates")
    weight = -term.coefficient
    for c in term.constants:
        if c.tensor.requires_grad or c.indices:
            raise NotPoissonSums("its rows do not all have one weight")
        weight *= float(laid_along(c.tensor, c.indices, ()))
    if not weight > 0:
        raise NotPoissonSums("its rows have no positive weight")
    return float(torch.tensor(weight))
