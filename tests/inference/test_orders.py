"""In which order rows are met: once each, the same again, in blocks where they lie on a disk, whatever the batches."""

import numpy as np
import pytest

from pyro_prme.inference.orders import BlockOrder, WholeOrder, next_rows, order_of


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("size", [1, 5, 64, 1000, 1001])
def test_blocks_have_every_row_once_however_they_are_cut(size: int) -> None:
    order = BlockOrder(generator(), size, block=7, window=5)
    rows = order.rows(0, size)
    assert sorted(rows) == list(range(size))
    again = BlockOrder(generator(), size, block=7, window=5)
    for start in range(0, size, 13):  # asked from the end, and across windows
        start = size - 1 - start
        np.testing.assert_array_equal(again.rows(start, min(start + 40, size)), rows[start : start + 40])
    if size > 5:
        assert list(rows) != list(BlockOrder(generator(1), size, block=7, window=5).rows(0, size))


def test_a_batch_reads_whole_blocks_from_all_over_the_rows_and_mixes_them() -> None:
    size, block, window = 20_000, 20, 30
    order = BlockOrder(generator(), size, block, window)
    first = order.rows(0, block * window)
    blocks, counts = np.unique(first // block, return_counts=True)
    assert (counts == block).all()  # what is read is used
    assert len(blocks) == window
    assert blocks.max() - blocks.min() > size / block / 2
    assert len(np.unique(order.rows(0, 100) // block)) > window * 0.8  # a batch has rows of most blocks of its window
    assert (np.diff(first) == 1).mean() < 0.1


def test_rows_in_memory_are_a_permutation_of_the_generator() -> None:
    order = order_of(generator(3), 50, in_blocks=False)
    assert isinstance(order, WholeOrder)
    np.testing.assert_array_equal(order.rows(0, 50), generator(3).permutation(50))
    assert isinstance(order_of(generator(3), 50, in_blocks=True), BlockOrder)


@pytest.mark.parametrize("size", [1, 2, 59, 60, 61, 119])
@pytest.mark.parametrize("most", [1, 7, 12, 60, 200])
def test_batches_are_of_equal_size_from_any_place(size: int, most: int) -> None:
    order, done, found = WholeOrder(generator(), size), 0, []
    while done < size:
        found.append(next_rows(order, size, done, most))
        done += len(found[-1])
    wanted = np.array_split(order.rows(0, size), -(-size // most))
    assert [list(rows) for rows in found] == [list(rows) for rows in wanted]


def test_an_epoch_goes_on_with_batches_of_another_size_without_a_row_lost_or_met_twice() -> None:
    order, done, met = BlockOrder(generator(), 500, 8, 4), 0, []
    for most in [40, 40, 90, 90, 7, *[13] * 60]:
        if done < 500:
            rows = next_rows(order, 500, done, most)
            assert len(rows) <= most
            met += list(rows)
            done += len(rows)
    assert sorted(met) == list(range(500))
