"""Sums of products in float64 of tables in float32, without a table of the products."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pyro_prme.kernels.arithmetic import cached
from pyro_prme.kernels.threads import share_out

__all__ = ["inner"]

_BLOCK = 2**15  # numbers that one thread sums; blocks are added up in order, whatever the number of threads


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Sum of the products of two tensors of the same shape, added up in float64, without a gradient."""
    if a.device.type != "cpu" or not (a.is_contiguous() and b.is_contiguous()):
        return (a.detach() * b.detach()).sum(dtype=torch.float64)
    totals, threads = np.zeros(-(-a.numel() // _BLOCK)), torch.get_num_threads()
    flat = (x.detach().view(-1).numpy() for x in (a, b))
    share_out(_add_products, min(len(totals), 2 * threads) or 1, threads, *flat, totals)
    return torch.tensor(totals.sum())


@cached
def _add_products(first, step, a, b, totals):
    for block in range(first, len(totals), step):
        total = 0.0
        for i in range(block * _BLOCK, min((block + 1) * _BLOCK, a.size)):
            total += float(a[i]) * float(b[i])
        totals[block] = total
