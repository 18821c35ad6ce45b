"""Sums over the entries of each word, against a loop."""

import pytest
import torch

from pyro_prme import Batch
from pyro_prme.kernels.buffers import Buffers
from pyro_prme.kernels.words import entries_by_word, sums_by_word, sums_by_word_torch


@pytest.fixture
def batch() -> Batch:
    return Batch.from_tokens([[4, 1, 4, 0], [], [1, 2], [4]])


def expected(batch: Batch, weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(6, rows.shape[1])
    for entry in range(batch.num_entries):
        out[batch.word[entry]] += weight[entry] * rows[batch.document[entry]]
    return out


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_are_those_of_a_loop(batch, threads):
    weight, rows, before = torch.rand(batch.num_entries), torch.randn(batch.size, 3), torch.get_num_threads()
    weight[2] = 0.0
    torch.set_num_threads(threads)
    try:
        found = sums_by_word(batch.indptr, batch.word, 6, weight, rows.mT.contiguous().mT, Buffers())
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found, expected(batch, weight, rows), rtol=1e-13, atol=1e-13)


def test_the_form_for_other_devices_is_the_same(batch):
    weight, rows = torch.rand(batch.num_entries), torch.randn(batch.size, 3)
    found = sums_by_word_torch(batch.indptr, batch.word, 6, weight, rows)
    torch.testing.assert_close(found, expected(batch, weight, rows))


def test_entries_by_word(batch):
    offset, order, owner = entries_by_word(batch.indptr.numpy(), batch.word.numpy(), 6)
    assert offset.tolist() == [0, 1, 3, 4, 4, 7, 7]
    assert order.tolist() == [3, 1, 4, 5, 0, 2, 6]
    assert owner.tolist() == [0, 0, 2, 2, 0, 0, 3]
