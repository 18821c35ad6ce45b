"""The natural step for Dirichlet parameters in one pass over memory: nothing else in a step touches all of K x D."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pyro_prme.kernels_math import cached
from pyro_prme.kernels_threads import share_out
from pyro_prme.updates import dirichlet_update, natural_step

__all__ = ["natural_step_", "sum_of_rows"]

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
        gamma.copy_(natural_step(gamma, dirichlet_update(prior, pending), rate))
        pending.zero_()
        return sum_of_rows(gamma)
    totals = _empty_totals(gamma)
    arrays = gamma.numpy(), pending.numpy(), prior.to(gamma.dtype).contiguous().numpy()
    share_out(_move_rows, len(totals), torch.get_num_threads(), *arrays, float(rate), totals)
    for changed in (gamma, pending):
        torch.autograd.graph.increment_version(changed)
    return torch.as_tensor(totals.sum(0))


def sum_of_rows(gamma: Tensor) -> Tensor:
    """Sums over words, added up in float64, shape (K,)."""
    if gamma.device.type != "cpu":
        return gamma.sum(0, dtype=torch.float64)
    totals = _empty_totals(gamma)
    share_out(_sum_rows, len(totals), torch.get_num_threads(), gamma.numpy(), totals)
    return torch.as_tensor(totals.sum(0))


def _empty_totals(gamma: Tensor) -> np.ndarray:
    return np.zeros((-(-len(gamma) // _BLOCK), gamma.shape[1]))


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
