"""Products of tensors with named indices, summed over all but some of them, in a good order.

The order is found by opt_einsum. What a step makes smaller is remembered, so that two updates that need the same
statistic of the data, such as sums of a column within each class, compute it once.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import opt_einsum
import torch
from torch import Tensor

from pyro_prme.conjugacy.indices import Index, Indices, laid_along

__all__ = ["LARGE", "Memory", "contract"]

Operand = tuple[Tensor, Indices]

#: Numbers in a tensor from which on new memory costs more than looking for some that is free.
LARGE = 100_000
_SHRINKS = 4  # a result is remembered if it is so many times smaller than the larger of what it was made from


class Memory:
    """Results of contraction steps, each kept until one of its inputs is another tensor."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Tensor, Tensor, Operand]] = {}

    def look_up(self, key: Hashable, a: Tensor, b: Tensor) -> Operand | None:
        """The result of a step on the same two tensors."""
        known = self._known.get(key)
        return known[2] if known is not None and known[0] is a and known[1] is b else None

    def forget(self, gone: Iterable[Tensor]) -> None:
        """Lets go of large tensors that will not come again, and of what was made from them."""
        large = [t for t in gone if t.numel() >= LARGE]
        if large:
            stale = [k for k, (a, b, _) in self._known.items() if any(a is t or b is t for t in large)]
            for key in stale:
                del self._known[key]

    def holds(self, result: Tensor) -> bool:
        """Whether a tensor is a remembered result, or looks into one."""
        where = result.untyped_storage().data_ptr()
        return any(kept[0].untyped_storage().data_ptr() == where for _, _, kept in self._known.values())

    def keep(self, key: Hashable, a: Tensor, b: Tensor, result: Operand) -> None:
        """Remembers a result that is much smaller than what it was made from, unless it carries a graph."""
        if result[0].numel() * _SHRINKS <= max(a.numel(), b.numel()) and not result[0].requires_grad:
            self._known[key] = (a, b, result)


def contract(
    operands: Sequence[Operand],
    out: Sequence[Index],
    *,
    memory: Memory | None = None,
    keys: Sequence[Hashable] | None = None,
) -> Tensor:
    """The product of the operands, summed over all indices that are not in `out`.

    Args:
        operands: tensors with the names of their dimensions.
        out: order of the result's dimensions; each must be carried by an operand.
        memory: where results of steps are remembered.
        keys: of the operands, by which steps are told apart there.
    """
    left: list[tuple[Tensor, Indices, Any]] = [
        (t, own, keys[n] if keys is not None else None) for n, (t, own) in enumerate(operands)
    ]
    if not left:
        return torch.ones(())
    wanted = tuple(out)
    left = [_summed_alone(left, n, wanted, memory) for n in range(len(left))]
    for step in _order(left, wanted):
        chosen = [left[n] for n in step]
        left = [operand for n, operand in enumerate(left) if n not in step]
        needed = {i for _, own, _ in left for i in own} | set(wanted)
        while len(chosen) > 1:
            a, b = chosen.pop(), chosen.pop()
            inside = needed | {i for _, own, _ in chosen for i in own}
            chosen.append(_pair(a, b, inside, memory))
        left.append(chosen[0])
    tensor, own, _ = left[0]
    return tensor.permute([own.index(i) for i in wanted]) if own != wanted else tensor


def _summed_alone(
    operands: list[tuple[Tensor, Indices, Any]], place: int, out: Indices, memory: Memory | None
) -> tuple[Tensor, Indices, Any]:
    """An operand, summed over the indices that nothing else carries."""
    tensor, own, key = operands[place]
    others = {i for n, (_, indices, _) in enumerate(operands) if n != place for i in indices}
    gone = [d for d, i in enumerate(own) if i not in others and i not in out]
    if not gone:
        return operands[place]
    kept = tuple(i for d, i in enumerate(own) if d not in gone)
    sum_key = None if key is None or memory is None else ("sum", key, tuple(gone))
    known = memory.look_up(sum_key, tensor, tensor) if memory is not None and sum_key is not None else None
    result = known[0] if known is not None else tensor.sum(gone)
    if memory is not None and sum_key is not None and known is None:
        memory.keep(sum_key, tensor, tensor, (result, kept))
    return result, kept, sum_key


def _order(operands: list[tuple[Tensor, Indices, Any]], out: Indices) -> list[tuple[int, ...]]:
    """Which operands are multiplied in each step."""
    if len(operands) == 1:
        return []
    if len(operands) == 2:
        return [(0, 1)]
    numbers: dict[Index, int] = {}
    parts = tuple(tuple(numbers.setdefault(i, len(numbers)) for i in own) for _, own, _ in operands)
    sizes = tuple(i.size for i in numbers)
    return _path(parts, tuple(numbers[i] for i in out), sizes)


@lru_cache(maxsize=4096)
def _path(parts: tuple[tuple[int, ...], ...], out: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    letters = [opt_einsum.get_symbol(n) for n in range(len(sizes))]
    spec = ",".join("".join(letters[n] for n in part) for part in parts) + "->" + "".join(letters[n] for n in out)
    shapes = [tuple(sizes[n] for n in part) for part in parts]
    return list(opt_einsum.contract_path(spec, *shapes, shapes=True, optimize="auto")[0])


def _pair(
    a: tuple[Tensor, Indices, Any], b: tuple[Tensor, Indices, Any], needed: set[Index], memory: Memory | None
) -> tuple[Tensor, Indices, Any]:
    kept = tuple(i for i in dict.fromkeys((*a[1], *b[1])) if i in needed)
    key = None
    if memory is not None and a[2] is not None and b[2] is not None:
        if repr(a[2]) > repr(b[2]):
            a, b = b, a
        key = (a[2], b[2], frozenset(kept))
        known = memory.look_up(key, a[0], b[0])
        if known is not None:
            return (*known, key)
    result = _multiplied(a[0], a[1], b[0], b[1], kept)
    if memory is not None and key is not None:
        memory.keep(key, a[0], b[0], result)
    return (*result, key)


def _multiplied(a: Tensor, own_a: Indices, b: Tensor, own_b: Indices, kept: Indices) -> Operand:
    """The product of two tensors over the kept indices."""
    if a.dtype != b.dtype:
        dtype = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(dtype), b.to(dtype)
    if len(kept) == len(set(own_a) | set(own_b)):
        order = own_a if math.prod(a.shape) >= math.prod(b.shape) else own_b
        indices = (*order, *(i for i in kept if i not in order))
        return laid_along(a, own_a, indices) * laid_along(b, own_b, indices), indices
    if a.numel() < b.numel():
        a, own_a, b, own_b = b, own_b, a, own_a
    kept = tuple(i for i in dict.fromkeys((*own_a, *own_b)) if i in kept)  # in memory as the larger one is
    if math.prod(i.size for i in kept) < b.numel():  # a sum over long columns: the fewer ones first, twice as fast
        a, own_a, b, own_b = b, own_b, a, own_a
        kept = tuple(i for i in dict.fromkeys((*own_a, *own_b)) if i in kept)
    numbers = {i: opt_einsum.get_symbol(n) for n, i in enumerate(dict.fromkeys((*own_a, *own_b)))}
    spec = ",".join("".join(numbers[i] for i in own) for own in (own_a, own_b))
    return torch.einsum(f"{spec}->{''.join(numbers[i] for i in kept)}", a, b), kept
