"""Some rows of a matrix of real numbers or of counts: what models of whole rows are called with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyro_prme.corpora.batch import Batch

__all__ = ["RowBatch", "table_of"]


@dataclass(frozen=True)
class RowBatch:
    """Some rows of a matrix.

    Args:
        documents: the rows' positions in the matrix, shape (B,).
        values: the rows, shape (B, D); None when the model draws them.
    """

    documents: Tensor
    values: Tensor | None = None

    def __post_init__(self) -> None:
        if self.values is not None and (self.values.dim() != 2 or len(self.values) != len(self.documents)):
            raise ValueError(
                f"values has shape {tuple(self.values.shape)}: it must be a table with one row for each of the "
                f"{len(self.documents)} positions."
            )

    @classmethod
    def to_draw(cls, num_rows: int) -> RowBatch:
        """Rows whose values the model draws."""
        return cls(torch.arange(num_rows))

    @property
    def size(self) -> int:
        """B, the number of rows."""
        return self.documents.numel()

    @cached_property
    def last_document(self) -> int:
        """The largest of the rows' positions."""
        return int(self.documents.max())

    @property
    def last_word(self) -> int:
        """The number of the last column; -1 without values."""
        return -1 if self.values is None else self.values.shape[1] - 1

    def head(self, num_rows: int) -> RowBatch:
        """The first rows."""
        return self.part(0, num_rows)

    def part(self, start: int, stop: int) -> RowBatch:
        """The rows from start up to stop."""
        return RowBatch(self.documents[start:stop], None if self.values is None else self.values[start:stop])


def table_of(batch: Batch | RowBatch, num_columns: int) -> Tensor | None:
    """The rows of a batch, or the counts of its documents, as a table (B, D); None when the model draws them."""
    if isinstance(batch, RowBatch):
        return batch.values
    if batch.word is None:
        return None
    table = torch.zeros(batch.size, num_columns, dtype=batch.count.dtype)
    return table.index_put_((batch.document, batch.word), batch.count, accumulate=True)
