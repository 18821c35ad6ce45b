"""In which order an epoch meets the rows: open this to see how a corpus on disk is shuffled without being read."""

from __future__ import annotations

from typing import Protocol

import numpy as np

__all__ = ["BlockOrder", "Order", "WholeOrder", "next_rows", "order_of"]

_BLOCK = 64  # rows that are read together
_WINDOW = 256  # blocks whose rows are mixed


class Order(Protocol):
    """All rows, once each, in some order."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Those at the places from start up to stop."""
        ...


class WholeOrder:
    """A permutation of all rows.

    Args:
        rng: decides it.
        size: how many rows there are.
    """

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self._order = rng.permutation(size)

    def rows(self, start: int, stop: int) -> np.ndarray:
        return self._order[start:stop]


class BlockOrder:
    """Blocks of neighbouring rows in random order, whose rows are mixed within windows of many blocks.

    What lies together on the disk is read together, nothing of the size of the corpus is held but the order of the
    blocks, and a batch still has rows from all over the corpus.

    Args:
        rng: decides it.
        size: how many rows there are.
        block: rows that are read together.
        window: blocks whose rows are mixed.
    """

    def __init__(self, rng: np.random.Generator, size: int, block: int = _BLOCK, window: int = _WINDOW) -> None:
        self._size, self._block = size, block
        self._blocks = rng.permutation(-(-size // block)).astype(np.int64)
        self._seed = int(rng.integers(2**63))
        self._groups = np.split(self._blocks, range(window, len(self._blocks), window))
        sizes = [int((np.minimum((blocks + 1) * block, size) - blocks * block).sum()) for blocks in self._groups]
        self._begin = np.concatenate([[0], np.cumsum(sizes)])
        self._known: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))

    def _window(self, number: int) -> np.ndarray:
        """The rows of a window, which its number decides."""
        if self._known[0] != number:
            rows = (self._groups[number][:, None] * self._block + np.arange(self._block)).ravel()
            mixed = np.random.default_rng([self._seed, number]).permutation(rows[rows < self._size])
            self._known = number, mixed
        return self._known[1]

    def rows(self, start: int, stop: int) -> np.ndarray:
        first, last = np.searchsorted(self._begin, [start, stop - 1], side="right") - 1
        here = [self._window(w)[max(start - self._begin[w], 0) : stop - self._begin[w]] for w in range(first, last + 1)]
        return np.concatenate(here)


def order_of(rng: np.random.Generator, size: int, *, in_blocks: bool) -> Order:
    """The order of an epoch, which the generator decides.

    Args:
        rng: of the trainer.
        size: how many rows there are.
        in_blocks: whether the rows lie on a disk.
    """
    return BlockOrder(rng, size) if in_blocks else WholeOrder(rng, size)


def next_rows(order: Order, size: int, done: int, most: int) -> np.ndarray:
    """The batch after the first `done` rows of an epoch, such that the batches left are of equal size.

    It goes by the number of rows done alone, so that an epoch can go on with another number of workers.

    Args:
        order: of the epoch.
        size: rows of the epoch.
        done: rows done.
        most: rows of a batch, over all workers.
    """
    left = size - done
    return order.rows(done, done - (-left // -(-left // most)))
