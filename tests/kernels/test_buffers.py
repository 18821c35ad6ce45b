"""Memory that is lent to tensors and comes back."""

import pytest
import torch

from pyro_prme.kernels.buffers import Buffers

LIKE = torch.zeros(1, dtype=torch.float32)


def test_memory_comes_back_when_the_last_tensor_that_shares_it_is_gone():
    memory = Buffers()
    table = memory.empty((3, 4), LIKE)
    address, row = table.data_ptr(), table[1]
    del table
    other = memory.empty((3, 4), LIKE)
    assert other.data_ptr() != address  # a row is still in use
    del row
    again = memory.empty((3, 4), LIKE)
    assert again.data_ptr() == address


def test_what_is_lent_is_not_lent_again():
    memory = Buffers()
    tables = [memory.empty((2, 2), LIKE).fill_(i) for i in range(5)]
    assert [float(table.mean()) for table in tables] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype(dtype):
    memory = Buffers()
    for shape in [(3, 4), (5, 4), (0, 4), (2, 3, 2)]:
        table = memory.empty(shape, LIKE.to(dtype))
        assert (table.shape, table.dtype, table.is_contiguous()) == (shape, dtype, True)
        table.fill_(1.0)


def test_a_smaller_one_takes_what_a_larger_one_left_and_a_larger_one_replaces_it():
    memory = Buffers()
    memory.empty((10, 10), LIKE)
    memory.empty((3, 3), LIKE)
    assert len(memory._free) == 1
    memory.empty((20, 10), LIKE)
    assert [x.nbytes >= 800 for x in memory._free] == [True]
