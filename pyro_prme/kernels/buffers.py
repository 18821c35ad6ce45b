"""Memory that is used again: large tensors made anew at every step cost more in fresh pages than in arithmetic."""

from __future__ import annotations

import math
import weakref

import numpy as np
import torch
from torch import Tensor

__all__ = ["Buffers"]


class Buffers:
    """Lends memory to tensors; it comes back by itself when the last tensor that shares it is gone.

    What is lent at one time is never lent twice, so that passes may overlap. A copy of the object, or one read from a
    file, starts without memory. Only the processor's memory is kept: other devices have pools of their own.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def __deepcopy__(self, memo: dict) -> Buffers:
        return Buffers()

    def __reduce__(self) -> tuple:
        return Buffers, ()

    def empty(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A contiguous tensor of arbitrary contents, of the dtype and on the device of another."""
        size = math.prod(shape) * like.element_size()
        if like.device.type != "cpu" or not size:
            return like.new_empty(shape)
        fits = [memory for memory in self._free if memory.nbytes >= size]
        if fits:
            memory = min(fits, key=lambda memory: memory.nbytes)
            self._free = [other for other in self._free if other is not memory]
        else:
            self._free = self._free[1:]  # too small: it makes room for a larger one
            memory = np.empty(size + size // 8, np.uint8)  # the next batch may have some more words
        lent = memory[:size]
        weakref.finalize(lent, self._take_back, memory).atexit = False
        return torch.from_numpy(lent).view(like.dtype).view(shape)

    def _take_back(self, memory: np.ndarray) -> None:
        self._free.append(memory)
