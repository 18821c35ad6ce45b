"""Everything in float64 for a while: differences that a check looks for are lost in float32's seven digits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyro
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["in_double"]


_SHORT = (torch.float32, torch.float16, torch.bfloat16)


def _double(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.double() if x.dtype in _SHORT else x
    return type(x)(map(_double, x)) if type(x) in (tuple, list) else x


class _Double(TorchFunctionMode):
    """Within it every operation takes and gives float64, also on tensors that a model finds outside itself."""

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__deepcopy__:
            return _double(args[0].detach()).clone()  # of a run that the guide remembers there may be a gradient
        given = {key: _double(value) for key, value in (kwargs or {}).items()}
        return _double(func(*_double(args), **given))


@contextmanager
def in_double(*things: Any) -> Iterator[list[Any]]:
    """Copies of things in float64; within it float64 is the default, and Pyro's param store is a copy as well."""
    store, dtype = pyro.get_param_store(), torch.get_default_dtype()
    with _Double():
        *copies, state = copy.deepcopy((*things, store.get_state()))
    try:
        torch.set_default_dtype(torch.float64)
        with store.scope(state), _Double():
            yield copies
    finally:
        torch.set_default_dtype(dtype)
