"""Rows of numbers or of counts in place of documents of words: what all factor models share.

Open it to write a likelihood of your own: a subclass has one method, `sample_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.rows import RowBatch, table_of
from pyro_prme.models.networks.row_encoder import RowEncoder
from pyro_prme.models.topic_model import Plates, TopicModel

__all__ = ["FactorModel"]


class FactorModel(TopicModel):
    r"""A topic model whose data are whole rows X_n, given their loadings and the factors.

    .. math:: X_n \sim p(X_n \mid Z_n, \theta), \quad Z_{nk} = f_n(\vartheta_k)

    This is the paper's section 2 with its likelihood left open. It goes before the class whose prior of the loadings is
    wanted, as in `class PoissonPRME(PoissonRows, PRME)`. Sites and shapes are those of that class but for C, which is
    gone, and X (B, 1 | D). Data are `Rows`, or counts of documents where the rows are counts.
    """

    @property
    def roles(self) -> Mapping[str, str]:
        own = {"topics": "theta", "loadings": "Z", "words": "X"}
        return {role: site for role, site in super().roles.items() if role != "assignment"} | own

    def likelihood(self, Z: Tensor, theta: Tensor, plates: Plates, batch: Any) -> Tensor:
        noise = self.sample_noise()
        with plates.documents:
            return self.sample_rows(Z, theta, noise, self.observed(batch))

    def sample_noise(self) -> Tensor | None:
        """The likelihood's own parameter, such as a precision; None where it has none."""
        return None

    def sample_rows(self, Z: Tensor, theta: Tensor, noise: Tensor | None, observed: Tensor | None) -> Tensor:
        """X, shape (B, 1, D).

        Args:
            Z: loadings, shape (B, K).
            theta: factors, shape (K, D).
            noise: what `sample_noise` returns.
            observed: the rows, shape (B, 1, D); None where they are drawn.
        """
        raise NotImplementedError

    def observed(self, batch: Batch | RowBatch) -> Tensor | None:
        """The rows of a batch, shape (B, 1, D); None where they are drawn."""
        values = table_of(batch, self.vocab_size)
        return None if values is None else values.unsqueeze(-2)

    def by_topic(self, theta: Tensor) -> Tensor:
        """The site theta as factors, shape (K, D)."""
        return theta

    def default_network(self, size: int) -> nn.Module:
        """A network that reads whole rows, with so many outputs for each."""
        return RowEncoder(self.vocab_size, size)

    def check(self, batch: Any) -> None:
        """Refuses a batch that does not belong to this model, with the reason."""
        if isinstance(batch, Batch):
            super().check(batch)
            return
        if not isinstance(batch, RowBatch):
            raise ValueError(f"The data are a {type(batch).__name__}: give rows, from `Rows(X).batch(...)`.")
        if batch.size < 1:
            raise ValueError("The batch has no rows: give at least one.")
        if batch.last_document >= self.num_documents:
            raise ValueError(
                f"The batch has row {batch.last_document}, the model was built for num_documents={self.num_documents}: "
                "build it with the number of rows."
            )
        if batch.values is not None and batch.values.shape[1] != self.vocab_size:
            raise ValueError(f"The rows have {batch.values.shape[1]} columns and the model {self.vocab_size}.")
