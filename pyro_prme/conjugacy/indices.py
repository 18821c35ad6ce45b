"""Named indices of tensors, as in einsum, and constant gathers in their place.

An entry of an index tuple is an `Index`, or a `Gather`: a constant tensor of positions with indices of its own, so that
`theta[document]` is theta along ``Gather(document, (e,))``. A gather without indices is one constant position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = [
    "Entry",
    "Gather",
    "Index",
    "Indices",
    "indices_of",
    "laid_along",
    "position",
    "put",
    "same_entries",
    "same_entry",
    "substitute",
    "take",
    "taken_indices",
]


class Index:
    """A name for one dimension. Two indices are the same only if they are the same object."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = int(size)

    def __repr__(self) -> str:
        return f"Index({self.size})"


class Gather:
    """Constant positions along a dimension.

    Args:
        at: whole numbers, one dimension for each of the indices.
        indices: names of the dimensions of `at`.
    """

    __slots__ = ("at", "indices")

    def __init__(self, at: Tensor, indices: Sequence[Index]) -> None:
        self.at, self.indices = at, tuple(indices)

    def __repr__(self) -> str:
        return f"Gather({tuple(self.at.shape)})"


#: One place of a tensor: an index, or one that is looked up.
Entry: TypeAlias = Index | Gather
#: The indices of a tensor, in order.
Indices: TypeAlias = tuple[Index, ...]


def position(number: int) -> Gather:
    """One constant position."""
    return Gather(torch.tensor(number), ())


def same_entry(a: Entry, b: Entry) -> bool:
    """Whether two entries name the same positions."""
    if isinstance(a, Gather) and isinstance(b, Gather):
        return a.indices == b.indices and (a.at is b.at or (a.at.shape == b.at.shape and torch.equal(a.at, b.at)))
    return a is b


def same_entries(a: Sequence[Entry], b: Sequence[Entry]) -> bool:
    """Whether two index tuples name the same positions."""
    return len(a) == len(b) and all(same_entry(x, y) for x, y in zip(a, b, strict=True))


def indices_of(entries: Iterable[Entry]) -> Indices:
    """The indices that occur in the entries, each once, in order."""
    return tuple(dict.fromkeys(i for e in entries for i in (e.indices if isinstance(e, Gather) else (e,))))


def laid_along(tensor: Tensor, own: Sequence[Index], indices: Sequence[Index]) -> Tensor:
    """The tensor with its dimensions `own` in the order of `indices`, and dimensions of size one for the others."""
    order = sorted(range(len(own)), key=lambda d: indices.index(own[d]))
    return tensor.permute(order).reshape([i.size if i in own else 1 for i in indices])


def take(tensor: Tensor, entries: Sequence[Entry]) -> tuple[Tensor, Indices]:
    """The tensor at the entries, one for each dimension, and the indices of the result."""
    entries = tuple(entries)
    for d in range(len(entries) - 1, -1, -1):
        entry = entries[d]
        if isinstance(entry, Gather) and not entry.indices:
            tensor, entries = tensor.select(d, int(entry.at)), (*entries[:d], *entries[d + 1 :])
    plain = [entry for entry in entries if isinstance(entry, Index)]
    gathers = [d for d, entry in enumerate(entries) if isinstance(entry, Gather)]
    distinct = len(set(plain)) == len(plain)
    if not gathers and distinct:
        return tensor, tuple(plain)
    if len(gathers) == 1 and distinct:
        d = gathers[0]
        gather: Gather = entries[d]  # type: ignore[assignment]
        if not set(plain) & set(gather.indices):
            rows = tensor.movedim(d, 0)
            if rows.numel() <= gather.at.numel() * max(rows[0].numel(), 1):
                rows = rows.contiguous()
            rows = rows.index_select(0, gather.at.reshape(-1))
            return rows.reshape(*gather.at.shape, *rows.shape[1:]), (*gather.indices, *plain)
    indices = indices_of(entries)
    where = []
    for entry in entries:
        at, own = (entry.at, entry.indices) if isinstance(entry, Gather) else (torch.arange(entry.size), (entry,))
        where.append(laid_along(at, own, indices))
    return tensor[tuple(where)].expand([i.size for i in indices]), indices


def taken_indices(entries: Sequence[Entry]) -> Indices:
    """The indices of what `take` returns, in their order."""
    left = [e for e in entries if isinstance(e, Index) or e.indices]
    plain = [e for e in left if isinstance(e, Index)]
    gathers = [e for e in left if isinstance(e, Gather)]
    if len(set(plain)) == len(plain):
        if not gathers:
            return tuple(plain)
        if len(gathers) == 1 and not set(plain) & set(gathers[0].indices):
            return (*gathers[0].indices, *plain)
    return indices_of(left)


def put(
    values: Tensor,
    indices: Sequence[Index],
    entries: Sequence[Entry],
    shape: Sequence[int],
    onto: Tensor | None = None,
) -> Tensor:
    """The adjoint of `take`: a tensor of the given shape into which values, laid along indices, are added.

    Args:
        values: what is added.
        indices: of its dimensions, all of which the entries have.
        entries: where, one for each dimension of the result.
        shape: of the result.
        onto: a tensor of that shape to add to, which is written to; zeros if None.
    """
    plain = [entry for entry in entries if isinstance(entry, Index)]
    gathers = [d for d, entry in enumerate(entries) if isinstance(entry, Gather)]
    distinct = len(set(plain)) == len(plain)
    if not gathers and distinct:
        placed = values.permute([indices.index(entry) for entry in plain])
        return placed if onto is None else onto.add_(placed)
    out = values.new_zeros(tuple(shape)) if onto is None else onto
    if len(gathers) == 1 and distinct:
        d = gathers[0]
        gather: Gather = entries[d]  # type: ignore[assignment]
        if gather.indices and not set(plain) & set(gather.indices):
            rows = values.permute([indices.index(i) for i in (*gather.indices, *plain)])
            rows = rows.reshape(-1, *rows.shape[len(gather.indices) :])
            return out.movedim(d, 0).index_add_(0, gather.at.reshape(-1), rows).movedim(0, d)
    order = indices_of(entries)
    where = [
        laid_along(e.at, e.indices, order) if isinstance(e, Gather) else laid_along(torch.arange(e.size), (e,), order)
        for e in entries
    ]
    return out.index_put_(tuple(where), values.permute([indices.index(i) for i in order]), accumulate=True)


def substitute(entry: Entry, names: Mapping[Index, Entry]) -> Entry:
    """The entry with indices replaced."""
    if isinstance(entry, Index):
        return names.get(entry, entry)
    if not any(i in names for i in entry.indices):
        return entry
    return Gather(*take(entry.at, tuple(names.get(i, i) for i in entry.indices)))
