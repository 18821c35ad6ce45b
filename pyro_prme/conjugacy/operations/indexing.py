"""Indexing by numbers, slices, constant positions and discrete variables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_prme.conjugacy.indices import Entry, Gather, Index, position
from pyro_prme.conjugacy.operations.shapes import expand
from pyro_prme.conjugacy.random_tensor import Random, align, fresh, is_lifted, lift, lifted_values, rename, twin_of
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import Selection, is_zero

__all__ = ["TABLE", "get_item", "one_hot"]


def get_item(a: Any, index: Any) -> Random:
    """a[index]: a discrete variable among the positions leaves its choice pending."""
    a = lift(a)
    index = _opened(index)
    if a.is_opaque or any(isinstance(i, Random) and i.is_opaque for i in index):
        return _opaque_item(a, index)
    _check_positions(index)
    used = sum(i is not None and i is not Ellipsis for i in index)
    at = next((j for j, i in enumerate(index) if i is Ellipsis), len(index))
    index = [*index[:at], *[slice(None)] * (a.dim() - used), *index[at + 1 :]]
    a = fresh(a)
    places = [j for j, i in enumerate(index) if isinstance(i, Tensor)]
    positions, block_dims, block_shape = align(*(index[j] for j in places)) if places else ([], (), ())
    at_place = dict(zip(places, positions, strict=True))
    dims: list[Index | None] = []
    shape: list[int] = []
    names: dict[Index, Entry] = {}
    front = None
    old = iter(zip(a.dims, a.shape, strict=True))
    for j, i in enumerate(index):
        if i is None:
            dims.append(None)
            shape.append(1)
            continue
        own, size = next(old)
        if isinstance(i, slice):
            new, length = _sliced(own, size, i, names)
            dims.append(new)
            shape.append(length)
        elif isinstance(i, int):
            if not -size <= i < size:
                raise IndexError(f"index {i} is out of bounds for dimension with size {size}")
            if own is not None:
                names[own] = position(i % size)
        else:
            front = len(dims) if front is None and i.dim() else front
            if own is not None:
                names[own] = _positions(at_place[j], size)
    if places:
        wide = [j for j in places if index[j].dim()]  # a single position selects, and does not move the block
        together = not wide or wide[-1] - wide[0] + 1 == len(wide)
        front = front if together and front is not None else 0
        dims[front:front] = list(block_dims)
        shape[front:front] = list(block_shape)
    out = _without_zeros(rename(a, names, tuple(dims), shape))
    return _with_selections(out, positions[0].selections) if places else out


def _without_zeros(r: Random) -> Random:
    """Without terms that are zero here, such as the other parts of a concatenation."""
    if r.terms is None or len(r.terms) < 2:
        return r
    kept = [t for t in r.terms if not is_zero(t)]
    return Random.make(r.shape, r.dims, kept, r.selections, logarithm=r.logarithm, blame=r.blame, dtype=r.dtype)


def _opened(index: Any) -> list[Any]:
    """The index as a list, with lists and arrays as tensors, single positions as numbers and masks as positions."""
    out: list[Any] = []
    for i in index if isinstance(index, tuple) else (index,):
        if isinstance(i, list | tuple | range | np.ndarray):
            i = torch.as_tensor(i)
        if not isinstance(i, Tensor) or isinstance(i, Random):
            out.append(int(i) if isinstance(i, np.integer) else i)
        elif i.dtype == torch.bool and i.dim():
            out += i.nonzero(as_tuple=True)
        else:
            out.append(i if i.dim() or i.dtype == torch.bool else int(i))
    return out


def _check_positions(index: list[Any]) -> None:
    """Refuses truth values that choose elements, which have no shape before they are known, or add a dimension."""
    for i in index:
        if isinstance(i, Random) and i.dtype in (torch.bool, torch.uint8):
            raise Refused(i.variables, "it is a mask that chooses elements")
        if isinstance(i, bool | np.bool_) or (isinstance(i, Tensor) and i.dtype == torch.bool):
            raise TypeError("a single truth value is an index")


def _opaque_item(a: Random, index: list[Any]) -> Random:
    _check_positions(index)
    plain = tuple(torch.zeros(i.shape, dtype=torch.int64) if isinstance(i, Tensor) else i for i in index)
    shape = torch.empty(a.shape, device="meta")[plain].shape
    blame = dict(a.blame)
    for i in index:
        if isinstance(i, Random):
            blame |= i.blame or dict.fromkeys(i.variables, "it indexes something that is not followed")
    return Random.opaque(shape, blame, a.dtype)


def _sliced(own: Index | None, size: int, part: slice, names: dict[Index, Entry]) -> tuple[Index | None, int]:
    """The index and the length of a sliced dimension."""
    if part == slice(None):
        return own, size
    at = torch.arange(size)[part]
    length = len(at)
    if own is None:
        return (Index(length) if length != 1 else None), length
    if length == size and (part.step or 1) > 0:
        return own, size
    new = Index(length) if length != 1 else None
    names[own] = Gather(at, (new,)) if new is not None else Gather(at[0], ())
    return new, length


def _positions(where: Random, size: int) -> Entry:
    """The positions of a constant or of all values of discrete variables."""
    if not is_lifted(where):
        raise Refused(
            where.variables, "it indexes a tensor and is not a function of discrete sites, element by element"
        )
    indices = tuple(dict.fromkeys(i for t in where.terms or () for c in t.constants for i in c.indices))
    at = lifted_values(where, indices).long().reshape([i.size for i in indices])
    least = int(at.min()) if at.numel() else 0
    if at.numel() and not -size <= least <= int(at.max()) < size:
        raise IndexError(f"an index is out of bounds for dimension with size {size}")
    at = at if least >= 0 else at % size
    if len(indices) == 1 and indices[0].size == size and torch.equal(at, torch.arange(size)):
        return indices[0]
    return Gather(at, indices)


def _with_selections(out: Random, extra: tuple[Selection, ...]) -> Random:
    """The tensor with the pending choices of its positions."""
    selections, values = list(out.selections), dict[Index, Entry]()
    for s in extra:
        twin = twin_of(s, selections)
        if twin is None:
            selections.append(s)
        else:
            values[s.value] = twin.value
    whole = Random.make(
        out.shape, out.dims, out.terms, selections, logarithm=out.logarithm, blame=out.blame, dtype=out.dtype
    )
    return rename(whole, values) if values else whole


def index_select(a: Any, dim: int, index: Any) -> Random:
    """Positions along one dimension."""
    return get_item(a, (slice(None),) * (dim % a.dim()) + (index,))


def unbind(a: Any, dim: int = 0) -> tuple[Random, ...]:
    """The slices along a dimension."""
    return tuple(index_select(a, dim, i) for i in range(a.shape[dim]))


def split(a: Any, sizes: Any, dim: int = 0) -> tuple[Random, ...]:
    """Consecutive parts along a dimension."""
    lengths = [len(part) for part in torch.arange(a.shape[dim]).split(sizes)]
    ends = torch.tensor([0, *lengths]).cumsum(0).tolist()
    before = (slice(None),) * (dim % a.dim())
    return tuple(get_item(a, (*before, slice(i, j))) for i, j in itertools.pairwise(ends))


def chunk(a: Any, chunks: int, dim: int = 0) -> tuple[Random, ...]:
    """So many consecutive parts along a dimension."""
    return split(a, [len(part) for part in torch.arange(a.shape[dim]).chunk(chunks)], dim)


def flip(a: Any, *places: Any, dims: Any = ()) -> Random:
    """In reverse order along some dimensions."""
    chosen = places[0] if len(places) == 1 and isinstance(places[0], tuple | list) else places or dims
    for d in (chosen,) if isinstance(chosen, int) else chosen:
        a = index_select(a, d, torch.arange(a.shape[d]).flip(0))
    return a


def narrow(a: Any, dim: int, start: int, length: int) -> Random:
    """A part along a dimension."""
    return get_item(a, (slice(None),) * (dim % a.dim()) + (slice(start, start + length),))


def gather(a: Any, dim: int, index: Any) -> Random:
    """torch.gather: the positions along one dimension, the others in step."""
    places = [
        torch.arange(n).reshape([-1] + [1] * (index.dim() - 1 - d)) if d != dim % a.dim() else index
        for d, n in enumerate(index.shape)
    ]
    return get_item(a, tuple(places))


def take_along(a: Any, indices: Any, dim: int) -> Random:
    """torch.take_along_dim: as gather, with the other dimensions broadcast."""
    a, indices, dim = lift(a), lift(indices), dim % a.dim()
    others = [torch.Size([*x.shape[:dim], 1, *x.shape[dim + 1 :]]) for x in (a, indices)]
    shape = torch.broadcast_shapes(*others)
    a, indices = (expand(x, (*shape[:dim], x.shape[dim], *shape[dim + 1 :])) for x in (a, indices))
    return gather(a, dim, indices)


def one_hot(a: Any, num_classes: int = -1) -> Random:
    """Indicators of the values of a discrete variable."""
    if num_classes < 1:
        raise Refused(a.variables, "one_hot is called without a number of classes")
    return get_item(lift(torch.eye(num_classes, dtype=torch.int64)), a)


#: What is known of indexing and selection: the name of a torch operation, and what it does to random tensors.
TABLE: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "getitem": get_item,
        "index_select": index_select,
        "select": index_select,
        "gather": gather,
        "take_along_dim": take_along,
        "unbind": unbind,
        "iter": lambda a: iter(unbind(a)),
        "split": split,
        "chunk": chunk,
        "flip": flip,
        "narrow": narrow,
        "embedding": lambda index, weight, *args, **kwargs: get_item(weight, index),
        "one_hot": one_hot,
    }
)
