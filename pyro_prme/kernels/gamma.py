"""Passes over Dirichlet parameters, word-major (D, K): digamma, and the natural step, which alone touches all."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_prme.equations.updates import dirichlet_update, natural_step
from pyro_prme.kernels.arithmetic import cached, digamma_parts, log_in_place
from pyro_prme.kernels.buffers import Buffers
from pyro_prme.kernels.threads import share_out

__all__ = ["DigammaRows", "add_rows_", "natural_step_", "natural_step_torch_", "sum_of_rows"]

_SMALL = 100_000  # numbers below which one thread is enough
_BLOCK = 2048  # words whose rows one thread sums; blocks are added up in order, whatever the number of threads


def natural_step_(gamma: Tensor, pending: Tensor, prior: Tensor, rate: float) -> Tensor:
    """`updates.natural_step` towards `updates.dirichlet_update` of the pending statistics, which are then forgotten.

    Args:
        gamma: changed in place, word-major, shape (D, K).
        pending: statistics, shape (D, K); zero afterwards.
        prior: gamma0, shape (D, 1) or (D, K).
        rate: rho.

    Returns:
        The sums of the new gamma over words, shape (K,), float64.
    """
    if gamma.device.type != "cpu":
        return natural_step_torch_(gamma, pending, prior, rate)
    totals = _empty_totals(gamma)
    arrays = gamma.numpy(), pending.numpy(), prior.to(gamma.dtype).contiguous().numpy()
    share_out(_move_rows, _pieces(totals), torch.get_num_threads(), *arrays, float(rate), totals)
    for changed in (gamma, pending):
        torch.autograd.graph.increment_version(changed)
    return torch.as_tensor(totals.sum(0))


def natural_step_torch_(gamma: Tensor, pending: Tensor, prior: Tensor, rate: float) -> Tensor:
    """The same on any device."""
    gamma.copy_(natural_step(gamma, dirichlet_update(prior, pending), rate))
    pending.zero_()
    return gamma.sum(0, dtype=torch.float64)


def sum_of_rows(gamma: Tensor) -> Tensor:
    """Sums over words, added up in float64, shape (K,)."""
    if gamma.device.type != "cpu":
        return gamma.sum(0, dtype=torch.float64)
    totals = _empty_totals(gamma)
    share_out(_sum_rows, _pieces(totals), torch.get_num_threads(), gamma.numpy(), totals)
    return torch.as_tensor(totals.sum(0))


def _empty_totals(gamma: Tensor) -> np.ndarray:
    return np.zeros((-(-len(gamma) // _BLOCK), gamma.shape[1]))


def _pieces(totals: np.ndarray) -> int:
    return min(len(totals), 4 * torch.get_num_threads())


class DigammaRows:
    """digamma of rows of a table (D, K), each row computed once until the table changes in place.

    The batches of an epoch share their words.
    """

    def __init__(self) -> None:
        self._table = self._values = self._known = torch.empty(0)
        self._version, self._memory = 0, Buffers()

    def __deepcopy__(self, memo: Any) -> DigammaRows:
        return DigammaRows()

    def __call__(self, table: Tensor, words: Tensor) -> Tensor:
        """For distinct words, shape (W, K)."""
        if table is not self._table:
            self._table, self._values, self._version = table, torch.empty_like(table), -1
        if table._version != self._version:
            self._version, self._known = table._version, torch.zeros(len(table), dtype=torch.bool, device=table.device)
        if table.device.type != "cpu":
            return torch.digamma(table[words])
        out, threads = self._memory.empty((len(words), table.shape[1]), table), torch.get_num_threads()
        arrays = (x.numpy() for x in (table, words, self._known, self._values, out))
        share_out(_digamma_rows, 1 if out.numel() < _SMALL else 8 * threads, threads, *arrays)
        return out


@cached
def _digamma_rows(first, step, table, words, known, values, out):
    s, t = np.empty(table.shape[1]), np.empty(table.shape[1])
    for i in range(first, len(words), step):
        w = words[i]
        row, kept, target = table[w], values[w], out[i]
        if not known[w]:
            for k in range(row.size):
                s[k], t[k] = digamma_parts(float(row[k]))
            log_in_place(s)
            for k in range(row.size):
                kept[k] = s[k] - t[k]
            known[w] = True
        for k in range(row.size):
            target[k] = kept[k]


def add_rows_(table: Tensor, words: Tensor, rows: Tensor, weight: float) -> None:
    """Adds rows (W, K) times a weight to those of distinct words in a table (D, K), in place."""
    if table.device.type != "cpu":
        table.index_add_(0, words, rows, alpha=weight)
        return
    threads = torch.get_num_threads()
    arrays = (x.numpy() for x in (table, words, rows.contiguous()))
    share_out(_add_rows, 1 if rows.numel() < _SMALL else 4 * threads, threads, *arrays, float(weight))
    torch.autograd.graph.increment_version(table)


@cached
def _add_rows(first, step, table, words, rows, weight):
    factor = table.dtype.type(weight)
    for i in range(first, len(words), step):
        target, row = table[words[i]], rows[i]
        for k in range(row.size):
            target[k] += factor * row[k]


@cached
def _move_rows(first, step, gamma, pending, prior, rate, totals):
    keep, move = gamma.dtype.type(1 - rate), gamma.dtype.type(rate)
    shared = prior.shape[1] == 1
    for block in range(first, len(totals), step):
        total = totals[block]
        for d in range(block * _BLOCK, min((block + 1) * _BLOCK, len(gamma))):
            row, new, base = gamma[d], pending[d], prior[d]
            if shared:
                start = base[0]
                for k in range(row.size):
                    row[k] = keep * row[k] + move * (start + new[k])
            else:
                for k in range(row.size):
                    row[k] = keep * row[k] + move * (base[k] + new[k])
            for k in range(row.size):
                new[k] = 0
                total[k] += row[k]


@cached
def _sum_rows(first, step, gamma, totals):
    for block in range(first, len(totals), step):
        total = totals[block]
        for d in range(block * _BLOCK, min((block + 1) * _BLOCK, len(gamma))):
            row = gamma[d]
            for k in range(row.size):
                total[k] += row[k]
