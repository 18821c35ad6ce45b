"""Operations that only move elements about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from pyro_prme.conjugacy.indices import Entry, Gather, Index
from pyro_prme.conjugacy.random_tensor import Random, broadcast_shape, fresh, is_lifted, lift, rename, terms_in
from pyro_prme.conjugacy.refusal import Refused

__all__ = ["TABLE", "expand", "permute", "reshape", "transpose", "unsqueeze"]


def _laid_out(a: Random, dims: Iterable[Index | None], shape: Iterable[int]) -> Random:
    """The same elements along other dimensions."""
    dims, shape = tuple(dims), tuple(shape)
    known = a.logarithm
    if known is not None:
        known = Random.make(shape, dims, known.terms, known.selections, blame=known.blame, dtype=known.dtype)
    return Random.make(shape, dims, a.terms, a.selections, logarithm=known, blame=a.blame, dtype=a.dtype)


def _sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as a list."""
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list | torch.Size) else shape


def _meta(a: Random) -> torch.Tensor:
    return torch.empty(a.shape, device="meta")


def unsqueeze(a: Random, dim: int) -> Random:
    """One more dimension of size one."""
    dim = dim % (a.dim() + 1)
    shape = (*a.shape[:dim], 1, *a.shape[dim:])
    return _laid_out(a, () if a.is_opaque else (*a.dims[:dim], None, *a.dims[dim:]), shape)


def squeeze(a: Random, dim: Any = None) -> Random:
    """Without dimensions of size one."""
    places = range(a.dim()) if dim is None or not a.dim() else dim if isinstance(dim, tuple | list) else (dim,)
    chosen = {d % a.dim() for d in places}
    kept = [d for d in range(a.dim()) if a.shape[d] != 1 or d not in chosen]
    return _laid_out(a, () if a.is_opaque else (a.dims[d] for d in kept), (a.shape[d] for d in kept))


def permute(a: Random, *order: Any, dims: Any = ()) -> Random:
    """Dimensions in another order."""
    places = [d % a.dim() for d in _sizes(order or (dims,))]
    return _laid_out(a, () if a.is_opaque else (a.dims[d] for d in places), (a.shape[d] for d in places))


def transpose(a: Random, i: int, j: int) -> Random:
    """Two dimensions changed over."""
    order = list(range(a.dim()))
    order[i], order[j] = order[j], order[i]
    return permute(a, order)


def move(a: Random, source: Any, destination: Any) -> Random:
    """Dimensions moved to other places."""
    numbered = torch.empty(tuple(range(2, 2 + a.dim())), device="meta")
    return permute(a, [n - 2 for n in torch.movedim(numbered, source, destination).shape])


def reverse_dims(a: Random) -> Random:
    """All dimensions in reverse order."""
    return permute(a, list(range(a.dim()))[::-1])


def expand(a: Random, *shape: Any) -> Random:
    """The same elements along more or larger dimensions."""
    a, sizes = lift(a), list(_sizes(shape))
    offset = len(sizes) - a.dim()
    sizes = [a.shape[d - offset] if n == -1 else n for d, n in enumerate(sizes)]
    if broadcast_shape(a.shape, sizes) != torch.Size(sizes):
        raise ValueError(f"a tensor of shape {tuple(a.shape)} does not expand to {tuple(sizes)}")
    if a.is_opaque:
        return _laid_out(a, (), sizes)
    dims = [Index(n) if n != 1 else None for n in sizes]
    for d, index in enumerate(a.dims):
        if index is not None:
            dims[offset + d] = index
    return _laid_out(a, dims, sizes)


def broadcast(*xs: Any) -> tuple[Any, ...]:
    """Tensors, random or not, expanded to one shape."""
    tensors = xs[0] if len(xs) == 1 and isinstance(xs[0], tuple | list) else xs
    shape = broadcast_shape(*(x.shape for x in tensors))
    return tuple(expand(x, shape) if isinstance(x, Random) else x.expand(shape) for x in tensors)


def reshape(a: Random, *sizes_given: Any, shape: Any = ()) -> Random:
    """The same elements in another shape."""
    sizes = _sizes(sizes_given or (shape,))
    if len(sizes) == 1 and isinstance(sizes[0], torch.dtype):
        raise Refused(a.variables, "it is read as another type")
    sizes = tuple(_meta(a).reshape(sizes).shape)
    if a.is_opaque:
        return _laid_out(a, (), sizes)
    if [n for n in a.shape if n != 1] == [n for n in sizes if n != 1]:
        left = iter([index for index in a.dims if index is not None])
        return _laid_out(a, [None if n == 1 else next(left) for n in sizes], sizes)
    a = fresh(a)
    dims = tuple(Index(n) if n != 1 else None for n in sizes)
    new = tuple(index for index in dims if index is not None)
    number = torch.arange(a.numel()).reshape([index.size for index in new])  # of each element, in the old order too
    names: dict[Index, Entry] = {}
    stride = 1
    for index, n in zip(a.dims[::-1], a.shape[::-1], strict=True):
        if index is not None:
            names[index] = Gather((number // stride) % n, new)
        stride *= n
    return rename(a, names, dims, sizes)


def flatten(a: Random, start_dim: int = 0, end_dim: int = -1) -> Random:
    """Some dimensions as one."""
    return reshape(a, tuple(_meta(a).flatten(start_dim, end_dim).shape))


def unflatten(a: Random, dim: int, sizes: Any) -> Random:
    """One dimension as several."""
    return reshape(a, tuple(_meta(a).unflatten(dim, sizes).shape))


def itself(a: Any, *args: Any, **kwargs: Any) -> Any:
    """The same tensor: types and storage mean nothing here."""
    return a


def converted(a: Random, *args: Any, **kwargs: Any) -> Random:
    """The tensor in another floating type; whole numbers only of discrete variables."""
    wanted = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.dtype)), None)
    like = next((x for x in args if isinstance(x, torch.Tensor)), None)
    wanted = like.dtype if wanted is None and like is not None else wanted
    return _in_type(a, wanted)


def _in_type(a: Random, wanted: torch.dtype | None) -> Random:
    if wanted is None or wanted == a.dtype:
        return a
    if not wanted.is_floating_point and not is_lifted(a) and not a.is_opaque:
        raise Refused(a.variables, "it is turned into whole numbers")
    if not wanted.is_floating_point and a.dtype.is_floating_point and is_lifted(a):
        raise Refused((), "its values are rounded")  # done on all of its values instead
    known, terms = a.logarithm, terms_in(a, wanted)
    return Random.make(a.shape, a.dims, terms, a.selections, logarithm=known, blame=a.blame, dtype=wanted)


#: What is known of shapes: the name of a torch operation, and what it does to random tensors.
TABLE: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "unsqueeze": unsqueeze,
        "squeeze": squeeze,
        "permute": permute,
        **dict.fromkeys(("transpose", "swapaxes", "swapdims"), transpose),
        **dict.fromkeys(("movedim", "moveaxis"), move),
        **dict.fromkeys(("T", "t", "H"), reverse_dims),
        **dict.fromkeys(("mT", "mH"), lambda a: transpose(a, -1, -2)),
        **dict.fromkeys(("clone", "contiguous", "detach", "requires_grad_", "as_subclass", "cpu", "alias"), itself),
        **dict.fromkeys(("to", "type_as", "type"), converted),
        "double": lambda a: _in_type(a, torch.float64),
        "float": lambda a: _in_type(a, torch.float32),
        "long": lambda a: _in_type(a, torch.int64),
        "int": lambda a: _in_type(a, torch.int32),
        **dict.fromkeys(("expand", "broadcast_to"), expand),
        "expand_as": lambda a, b: expand(a, tuple(b.shape)),
        "broadcast_tensors": broadcast,
        "flatten": flatten,
        "unflatten": unflatten,
        **dict.fromkeys(("reshape", "view"), reshape),
        **dict.fromkeys(("reshape_as", "view_as"), lambda a, b: reshape(a, tuple(b.shape))),
    }
)
