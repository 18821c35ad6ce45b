"""Training and evaluation mode of modules, which batch norm and word dropout depend on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["evaluating"]


@contextmanager
def evaluating(*modules: Any) -> Iterator[None]:
    """Puts modules into evaluation mode and gives each submodule its own mode back."""
    parts = [part for module in modules if isinstance(module, torch.nn.Module) for part in module.modules()]
    training = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part, mode in zip(parts, training, strict=True):
            part.training = mode
