"""An inference network g that reads whole rows of numbers or of counts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.rows import RowBatch, table_of
from pyro_prme.models.networks.layers import Stack

__all__ = ["RowEncoder"]


class RowEncoder(nn.Module):
    """g on a whole row, on the scale of sign(x) ln(1 + |x|).

    It sees how large a row is. `TopicEncoder`, which reads shares of words and hides some of them, serves counts as
    well. Which is better depends on the data: with it new rows were less likely by one to two nats where size tells
    much (12 columns, 4 factors, beta = 20), and more likely by a half to one (bars of 16 pixels, 8 factors, beta = 4).

    Args:
        num_columns: D.
        size: number of outputs.
        hidden: widths of the hidden layers.
    """

    topics_site: str | None = None

    def __init__(self, num_columns: int, size: int, hidden: tuple[int, ...] = (50,)) -> None:
        super().__init__()
        self.num_columns = num_columns
        self.stack = Stack([num_columns, *hidden], batch_norm=False)
        self.head = nn.Linear([num_columns, *hidden][-1], size)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch | RowBatch, topics: Tensor | None = None) -> Tensor:
        """Shape (B, size)."""
        values = table_of(batch, self.num_columns)
        if values is None:
            raise ValueError("The batch has no values, which the inference network reads: give rows with values.")
        values = values.to(self.head.bias.dtype)
        return self.head(self.stack(values.sign() * torch.log1p(values.abs())))
