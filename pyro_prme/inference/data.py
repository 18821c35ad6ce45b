"""Data that come in batches: anything with a length that gives the arguments of a model for some of its rows."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pyro_prme.corpora.counts import sound_csr
from pyro_prme.corpora.rows import RowBatch

__all__ = ["Data", "Rows", "Tensors"]


@runtime_checkable
class Data(Protocol):
    """What fitting in batches needs of its data.

    Data that lie on a disk may say so by an attribute `on_disk`: their rows are then shuffled in blocks.
    """

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


class Rows:
    """A matrix of real numbers or of counts as data whose batches are `RowBatch`, for models of whole rows.

    Args:
        values: a table (N, D): a tensor, an array or a sparse matrix.
    """

    def __init__(self, values: Any) -> None:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
        table = sound_csr(values).toarray() if sparse.issparse(values) else np.asarray(values)
        if table.ndim != 2 or not table.size:
            raise ValueError(f"The table has shape {tuple(table.shape)}: it must have rows and columns.")
        if not np.issubdtype(table.dtype, np.number) or not np.isfinite(table).all():
            raise ValueError("The table holds what is not a finite number: fill it or leave such rows out.")
        self.values = torch.as_tensor(table, dtype=torch.get_default_dtype())

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Rows(of shape {tuple(self.values.shape)})"

    @property
    def num_columns(self) -> int:
        """D."""
        return self.values.shape[1]

    def batch(self, rows: np.ndarray | None = None) -> tuple[RowBatch]:
        """The rows of these numbers, all of them by default."""
        where = np.arange(len(self)) if rows is None else np.asarray(rows)
        if where.ndim != 1 or not np.issubdtype(where.dtype, np.integer) or not _within(where, len(self)):
            raise ValueError(f"rows must be numbers of rows, from 0 to {len(self) - 1}.")
        chosen = torch.as_tensor(where, dtype=torch.int64)
        return (RowBatch(chosen, self.values[chosen]),)


def _within(where: np.ndarray, size: int) -> bool:
    """Whether all numbers are those of rows."""
    return not where.size or bool(where.min() >= 0 and where.max() < size)
