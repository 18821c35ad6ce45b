"""Data that come in batches: anything with a length that gives the arguments of a model for some of its rows."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

__all__ = ["Data", "Tensors"]


@runtime_checkable
class Data(Protocol):
    """What fitting in batches needs of its data."""

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def batch(self, rows: np.ndarray) -> tuple[Any, ...]:
        """What the model is called with for these rows."""
        ...


class Tensors:
    """Tensors whose first dimensions are the rows.

    The model is called with the rows of each tensor and, last, with their numbers, for its plate:

    .. code-block:: python

        def model(x, rows):
            mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
            with pyro.plate("data", 50_000, subsample=rows):
                pyro.sample("x", dist.Normal(mu, 1.0), obs=x)

    Args:
        tensors: one or more, of the same length.
    """

    def __init__(self, *tensors: Tensor) -> None:
        lengths = {len(tensor) for tensor in tensors}
        if len(lengths) != 1:
            found = ", ".join(str(len(tensor)) for tensor in tensors) or "none"
            raise ValueError(f"The tensors have lengths {found}: give one or more of the same length.")
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def batch(self, rows: np.ndarray) -> tuple[Tensor, ...]:
        """The rows of each tensor and their numbers."""
        where = torch.as_tensor(rows, dtype=torch.int64)
        return (*(tensor[where] for tensor in self.tensors), where)
