"""What topics hold of each document, so that it can be left out when the document is explained."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_prme.kernels.own_counts import Held, Kept, nothing_held

__all__ = ["Memory"]

_ROUNDING = 1e-6  # of how often a document is in the topics


class Memory:
    """Kept responsibilities by document, and how often each document's words are in the topics.

    Rows are those of one data object; documents of another one are new. Room grows as documents are met.

    In online passes documents fade from the topics. Those of a corpus with more than `most` entries are then not
    remembered: the memory would grow with the corpus, and when one of many documents comes back the topics hold little
    of it.

    Args:
        keep: responsibilities of an entry.
        most: entries of a corpus whose documents are remembered through online passes.
    """

    def __init__(self, keep: int, most: int) -> None:
        self.keep, self.most = keep, most
        self.forget()

    def forget(self) -> None:
        """No document is known."""
        self._data: Any = None
        self._begin, self._size = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._share, self._pending = np.zeros(0), np.zeros(0)
        self._topics, self._shares = (np.zeros((0, self.keep), np.int16) for _ in range(2))
        self._used, self._large = 0, False

    def _know(self, data: Any) -> None:
        """Forgets rows of other data."""
        if self._data is None or self._data() is not data:
            if self._data is not None:
                self.forget()
            self._belongs_to(data)

    def _belongs_to(self, data: Any) -> None:
        counts = getattr(data, "counts", None)
        self._data, self._large = weakref.ref(data), counts is not None and counts.nnz > self.most

    def _make_room(self, rows: np.ndarray) -> None:
        missing = int(rows.max()) + 1 - len(self._begin) if len(rows) else 0
        if missing > 0:
            missing = max(missing, len(self._begin) // 2)
            for name in ("_begin", "_size", "_share", "_pending"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(missing, old.dtype)]))

    def held(self, data: Any, rows: np.ndarray, indptr: Tensor, count: Tensor) -> Held:
        """What topics hold of documents that are rows of the data.

        Args:
            data: which data.
            rows: of the batch's documents.
            indptr, count: the batch's.
        """
        self._know(data)
        if not self._used:
            return nothing_held(len(count))
        self._make_room(rows)
        size = indptr.diff().numpy()
        share = np.where(self._size[rows] == size, self._share[rows], 0.0)
        place = self._places(np.where(share > 0, self._begin[rows], 0), size, share > 0)
        kept = Kept(*(torch.from_numpy(_taken(x, place)) for x in (self._topics, self._shares)))
        return Held(kept, count * torch.as_tensor(np.repeat(share, size), dtype=count.dtype))

    def share(self, rows: np.ndarray) -> np.ndarray:
        """How often each document's words are in the topics."""
        if not self._used:
            return np.zeros(len(rows))
        return self._share[rows]

    def keep_(self, rows: np.ndarray, indptr: Tensor, kept: Kept, now: bool, amount: float) -> None:
        """Remembers responsibilities of documents.

        Args:
            rows, indptr: of the documents, which `held` has been asked for.
            kept: their responsibilities.
            now: they are in the topics already; otherwise the next natural step brings them.
            amount: how often.
        """
        if self._large and amount > 1 + _ROUNDING:
            return
        self._make_room(rows)
        size = indptr.diff().numpy()
        fresh = np.flatnonzero(self._size[rows] != size)
        if len(fresh):
            begin = self._used + np.cumsum(size[fresh]) - size[fresh]
            self._begin[rows[fresh]], self._size[rows[fresh]] = begin, size[fresh]
            self._used += int(size[fresh].sum())
            if self._used > len(self._topics):
                room = max(self._used, len(self._topics) * 3 // 2)
                self._topics, self._shares = (_grown(x, room) for x in (self._topics, self._shares))
        place = self._places(self._begin[rows], size, size >= 0)
        self._topics[place], self._shares[place] = (_wide(x.numpy(), self.keep) for x in kept)
        if now:
            self._share[rows] = amount
        self._pending[rows] = amount

    def step(self, rate: float) -> None:
        """What a natural step does to how often documents are in the topics."""
        self._share *= 1 - rate
        self._share += rate * self._pending
        self._pending[:] = 0

    @staticmethod
    def _places(begin: np.ndarray, size: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Where the entries of documents lie, end to end; -1 for documents that are not known."""
        first = np.repeat(begin - (np.cumsum(size) - size), size)
        return np.where(np.repeat(known, size), first + np.arange(int(size.sum())), -1)

    def state(self) -> dict[str, Tensor]:
        """What `restore` takes: all that is known of the documents."""
        arrays = {name: getattr(self, f"_{name}") for name in ("begin", "size", "share", "pending")}
        arrays |= {"topics": self._topics[: self._used], "shares": self._shares[: self._used]}
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    @staticmethod
    def joined(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """One state from those of several workers, each of which has the rows that leave its rank as the remainder."""
        if len(states) == 1:
            return states[0]
        size = max(len(state["begin"]) for state in states)
        joined = {name: states[0][name].new_zeros(size) for name in ("begin", "size", "share", "pending")}
        used = 0
        for rank, state in enumerate(states):
            for name, array in joined.items():
                mine = state[name][rank :: len(states)]
                array[rank : len(state[name]) : len(states)] = mine + used if name == "begin" else mine
            used += len(state["topics"])
        return joined | {name: torch.cat([state[name] for state in states]) for name in ("topics", "shares")}

    def restore(self, state: Mapping[str, Tensor], data: Any) -> None:
        """Goes on from a state, for rows of the data; raises ValueError if the state is not sound."""
        own = self.state()
        arrays = {name: state[name].numpy().copy() for name in own}
        begin, size, topics, shares = (arrays[name] for name in ("begin", "size", "topics", "shares"))
        rows = {arrays[name].shape for name in ("begin", "size", "share", "pending")}
        others = [name for name in own if state[name].dtype != own[name].dtype]
        if others or len(rows) > 1 or topics.shape != shares.shape or topics.shape[1:] != (self.keep,):
            raise ValueError("What topics hold of the documents has arrays that do not fit together.")
        if ((begin < 0) | (size < 0) | (size > len(topics) - begin)).any() or (topics < 0).any() or (shares < 0).any():
            raise ValueError("What topics hold of the documents has numbers out of range.")
        self.forget()
        for name, array in arrays.items():
            setattr(self, f"_{name}", array)
        self._used = len(self._topics)
        self._belongs_to(data)


def _taken(rows: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Rows at these places, zeros where a place is -1."""
    if not len(rows):
        return np.zeros((len(place), rows.shape[1]), rows.dtype)
    taken = rows[place]
    taken[place < 0] = 0
    return taken


def _wide(rows: np.ndarray, width: int) -> np.ndarray:
    """Rows with zeros at their ends, up to a width."""
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


def _grown(rows: np.ndarray, size: int) -> np.ndarray:
    grown = np.zeros((size, rows.shape[1]), rows.dtype)
    grown[: len(rows)] = rows
    return grown
