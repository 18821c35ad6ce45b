"""The state of optimizers as named tensors and numbers: open this to see how a resumed fit gets its moments back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pyro_prme.checks import whole

__all__ = ["from_parts", "to_parts"]

#: What an optimizer keeps of each parameter that it has moved: its steps, a mean and a mean of squares.
_KEPT = {"AdamW": ("step", "exp_avg", "exp_avg_sq"), "LazyAdam": ("step", "m", "v")}


def to_parts(number: int, optimizer: Mapping[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The state of an optimizer for JSON; its tensors go to `tensors`. Learning rates and the like are left out.

    Args:
        number: of the optimizer, from 0.
        optimizer: its ``state_dict()``.
        tensors: gets names such as ``optimizer0.3.exp_avg``: optimizer, parameter, what is kept.
    """
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, values in optimizer["state"].items():
        numbers[str(parameter)] = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer{number}.{parameter}.{name}"] = value
    return {"numbers": numbers}


def from_parts(
    number: int, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The state that `to_parts` took apart, for an optimizer made from the same settings.

    Learning rates and the like are those of the optimizer, so that a file cannot bring others. What is kept of each
    parameter must be all that there is, of the parameter's shape and type.
    """
    values = {int(parameter): dict(numbers) for parameter, numbers in saved["numbers"].items()}
    prefix = f"optimizer{number}."
    for key, tensor in tensors.items():
        if key.startswith(prefix):
            parameter, name = key.removeprefix(prefix).split(".")
            values[int(parameter)][name] = tensor
    own = optimizer.state_dict()["param_groups"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = _KEPT[type(optimizer).__name__]
    for place, kept in values.items():
        whole("the number of a parameter", place, 0, len(parameters) - 1)
        if set(kept) != set(names):
            raise ValueError(f"{sorted(kept)} are kept of parameter {place}, and {sorted(names)} are needed")
        _check(place, kept, names, parameters[place])
    return {"state": values, "param_groups": own}


def _check(place: int, kept: Mapping[str, Any], names: tuple[str, ...], parameter: Tensor) -> None:
    steps, *moments = names
    if torch.as_tensor(kept[steps]).dtype in (torch.bool, torch.complex64, torch.complex128):
        raise ValueError(f"{steps} of parameter {place} is not a number of steps")
    whole(f"{steps} of parameter {place}", int(kept[steps]) if isinstance(kept[steps], Tensor) else kept[steps])
    for name in moments:
        tensor, shape = kept[name], tuple(parameter.shape)
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape or tensor.dtype != parameter.dtype:
            found = f"shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else f"the value {tensor!r}"
            raise ValueError(f"{name} of parameter {place} has {found} and not that of the parameter, {shape}")
    if bool((kept[names[-1]] < 0).any()):
        raise ValueError(f"{names[-1]} of parameter {place} has a negative number, and is a mean of squares")
