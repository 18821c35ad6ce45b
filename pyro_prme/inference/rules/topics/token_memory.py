"""The topic of every word of the data, two bytes each: the state of a chain between passes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_prme.kernels.sampling import Assigned

__all__ = ["TokenMemory"]

_MOST = 2**31  # words of a batch


class TokenMemory:
    """Topics of words by document, for the rows of one data object. Room grows as documents are met."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """No document is known."""
        self._data: Any = None
        self._begin, self._size = np.zeros(0, np.int64), np.full(0, -1, np.int64)
        self._slope, self._topics, self._used = np.zeros(0), np.zeros(0, np.int16), 0

    def held(self, data: Any, rows: np.ndarray, size: np.ndarray, began: bool) -> Assigned:
        """Where the chain is in documents that are rows of the data.

        Args:
            data: which data.
            rows: of the documents.
            size: words of each.
            began: whether the chain has a state of all documents; otherwise none of their words has a topic yet.
        """
        words = int(size.sum())
        if words >= _MOST:
            raise ValueError(f"A batch has {words} words, too many to hold the topic of each: use inference='updates'.")
        if not began:
            self._know(data, rows)
            return Assigned(torch.full((words,), -1, dtype=torch.int16), torch.zeros(len(rows), dtype=torch.float64))
        if self._data is None or self._data() is not data or rows.max(initial=-1) >= len(self._size):
            raise ValueError("The chain's state of these documents is not known: resume the run, or start a new one.")
        if (self._size[rows] != size).any():
            raise ValueError("The documents are not those of the chain: resume the run with the data of its start.")
        place = _places(self._begin[rows], size)
        return Assigned(torch.from_numpy(self._topics[place]), torch.from_numpy(self._slope[rows]))

    def _know(self, data: Any, rows: np.ndarray) -> None:
        if self._data is None or self._data() is not data:
            self.forget()
            self._data = weakref.ref(data)
        missing = int(rows.max(initial=-1)) + 1 - len(self._begin)
        if missing > 0:
            missing = max(missing, len(self._begin) // 2)
            self._begin = np.concatenate([self._begin, np.zeros(missing, np.int64)])
            self._size = np.concatenate([self._size, np.full(missing, -1, np.int64)])
            self._slope = np.concatenate([self._slope, np.zeros(missing)])

    def keep_(self, rows: np.ndarray, size: np.ndarray, assigned: Assigned) -> None:
        """Remembers the state of documents that `held` has been asked for."""
        fresh = np.flatnonzero(self._size[rows] != size)
        if len(fresh):
            self._begin[rows[fresh]] = self._used + np.cumsum(size[fresh]) - size[fresh]
            self._size[rows[fresh]] = size[fresh]
            self._used += int(size[fresh].sum())
            if self._used > len(self._topics):
                grown = np.zeros(max(self._used, len(self._topics) * 3 // 2), np.int16)
                grown[: len(self._topics)] = self._topics
                self._topics = grown
        self._topics[_places(self._begin[rows], size)] = assigned.topics.numpy()
        self._slope[rows] = assigned.slope.numpy()

    def state(self) -> dict[str, Tensor]:
        """What `restore` takes."""
        arrays: dict[str, np.ndarray] = {
            "begin": self._begin,
            "size": self._size,
            "slope": self._slope,
            "topics": self._topics[: self._used],
        }
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    def restore(self, state: Mapping[str, Tensor], data: Any) -> None:
        """Goes on from a state, for rows of the data; raises ValueError if the state is not sound."""
        own = self.state()
        arrays: dict[str, np.ndarray] = {name: np.array(state[name].numpy()) for name in own}
        others = [name for name in own if state[name].dtype != own[name].dtype]
        begin, size, slope, topics = (arrays[name] for name in ("begin", "size", "slope", "topics"))
        known = size >= 0
        if others or not begin.shape == size.shape == slope.shape or topics.ndim != 1:
            raise ValueError("The chain's state has arrays that do not fit together.")
        if (begin < 0).any() or (size > len(topics) - begin)[known].any() or (topics < 0).any() or (slope < 0).any():
            raise ValueError("The chain's state has numbers out of range.")
        self.forget()
        self._begin, self._size, self._slope, self._topics = begin, size, slope, topics
        self._used, self._data = len(topics), weakref.ref(data)


def _places(begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Where the words of documents lie, end to end."""
    return np.repeat(begin - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))
