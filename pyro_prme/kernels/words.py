"""Sums over the entries of each word of a batch, the other way round than documents lie in memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pyro_prme.kernels.arithmetic import cached
from pyro_prme.kernels.buffers import Buffers
from pyro_prme.kernels.threads import share_out

__all__ = ["entries_by_word", "sums_by_word", "sums_by_word_torch"]

_PIECES = 8  # a thread: words differ much in how often they occur


@cached
def entries_by_word(indptr, word, num_words):
    """The entries sorted by word, in document order within a word, with their documents: a counting sort."""
    offset = np.zeros(num_words + 1, np.int64)
    for m in range(word.size):
        offset[word[m] + 1] += 1
    for w in range(num_words):
        offset[w + 1] += offset[w]
    order, owner, place = np.empty(word.size, np.int64), np.empty(word.size, np.int64), offset[:-1].copy()
    for n in range(indptr.size - 1):
        for m in range(indptr[n], indptr[n + 1]):
            order[place[word[m]]], owner[place[word[m]]] = m, n
            place[word[m]] += 1
    return offset, order, owner


def sums_by_word(indptr: Tensor, word: Tensor, num_words: int, weight: Tensor, rows: Tensor, memory: Buffers) -> Tensor:
    """For each word, the sum over its entries of the weight times its document's row.

    Args:
        indptr: (B + 1,) int64; the entries of document n are `indptr[n]:indptr[n + 1]`.
        word: (E,) int64, each from 0 up to num_words.
        num_words: W.
        weight: (E,).
        rows: (B, width).
        memory: where the result comes from.

    Returns:
        Shape (W, width).
    """
    if rows.device.type != "cpu":
        return sums_by_word_torch(indptr, word, num_words, weight, rows)
    out = memory.empty((num_words, rows.shape[1]), rows)
    threads = torch.get_num_threads()
    by_word = entries_by_word(indptr.numpy(), word.numpy(), num_words)
    arrays = weight.contiguous().numpy(), rows.contiguous().numpy(), out.numpy()
    share_out(_add_up, threads * _PIECES if threads > 1 else 1, threads, by_word, *arrays)
    return out


def sums_by_word_torch(indptr: Tensor, word: Tensor, num_words: int, weight: Tensor, rows: Tensor) -> Tensor:
    """The same on any device."""
    weighted = weight.unsqueeze(-1) * rows.repeat_interleave(indptr.diff(), 0)  # (E, width)
    return rows.new_zeros(num_words, rows.shape[1]).index_add_(0, word, weighted)


@cached
def _add_up(first, step, by_word, weight, rows, out):
    """Words first, first + step, ..., each summed in document order."""
    offset, order, owner = by_word
    for w in range(first, len(out), step):
        total = out[w]
        for j in range(total.size):
            total[j] = 0
        for i in range(offset[w], offset[w + 1]):
            factor, row = weight[order[i]], rows[owner[i]]
            if factor != 0:
                for j in range(total.size):
                    total[j] += factor * row[j]
