"""Metadata of the documents that shift their embeddings, as in a structural topic model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyro
import torch
from pyro import distributions as dist
from torch import Tensor, nn

from pyro_prme.checks import positive
from pyro_prme.corpora.batch import Batch
from pyro_prme.models.prme import PRME
from pyro_prme.models.topic_model import Plates

__all__ = ["CovariateEncoder", "CovariatePRME"]


class CovariatePRME(PRME):
    r"""Metadata that shift the documents' embeddings.

    .. math:: W \sim N(0, s^2), \qquad h_n \sim N(x_n W, a I)

    The paper's discussion suggests it: documents are then exchangeable given x only. Given h this is a regression, so
    that W (Q, h_dim) has a closed form, with a posterior that says how sure an effect is. To ask about other documents,
    put theirs in place: `model.metadata = x`. The inference network reads the metadata beside the words.

    Args:
        metadata: x, a table of numbers, shape (N, Q).
        effect_scale: s.
        args: by position, see `PRME`.
        kwargs: by name, see `PRME`.
    """

    metadata: Tensor

    def __init__(self, *args: Any, metadata: Any, effect_scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.effect_scale = positive("effect_scale", effect_scale)
        x = _table(metadata)
        if x.dim() != 2 or len(x) != self.num_documents or not x.shape[1]:
            raise ValueError(
                f"metadata has shape {tuple(x.shape)}: it must have one row for each of the {self.num_documents} "
                "documents, and a column."
            )
        self.num_covariates = x.shape[1]
        self.register_buffer("metadata", x)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _table(value) if name == "metadata" else value)

    @property
    def roles(self) -> Mapping[str, str]:
        return {**super().roles, "effect": "W"}

    def check(self, batch: Batch) -> None:
        super().check(batch)
        size = batch.last_document + 1
        if len(self.metadata) < size or self.metadata.shape[1:] != (self.num_covariates,):
            raise ValueError(
                f"metadata has shape {tuple(self.metadata.shape)}: these documents need {size} rows or more, and the "
                f"model was built with {self.num_covariates} columns."
            )

    def default_encoder(self) -> nn.Module:
        return CovariateEncoder(self, super().default_encoder())

    def random_function(self, places: Tensor, plates: Plates, batch: Batch) -> Tensor:
        """f_n(ell_k) by the decoder, shape (B, K)."""
        W = self.sample_W()
        with plates.documents:
            h = self.sample_h_around(self.metadata[batch.documents] @ W)
            with plates.topics:
                return self.sample_f(h, places)

    def sample_W(self) -> Tensor:
        """W ~ N(0, s^2), shape (Q, h_dim)."""
        return pyro.sample(
            "W", dist.Normal(0.0, self.effect_scale).expand([self.num_covariates, self.h_dim]).to_event(2)
        )

    def sample_h_around(self, mean: Tensor) -> Tensor:
        """h_n ~ N(x_n W, a I) given these means (B, h_dim), shape (B, 1, h_dim)."""
        return pyro.sample("h", dist.Normal(mean.unsqueeze(-2), self.h_scale).to_event(1))


def _table(metadata: Any) -> Tensor:
    """Metadata as a tensor of torch's default type, or one sentence why not."""
    x = metadata.detach().cpu().numpy() if isinstance(metadata, Tensor) else np.asarray(metadata)
    if x.dtype.kind not in "biuf" or not np.isfinite(x).all():
        raise ValueError("metadata holds what is not a finite number: code groups as columns of 0 and 1.")
    return torch.as_tensor(x, dtype=torch.get_default_dtype())


class CovariateEncoder(nn.Module):
    """g with a linear part in the metadata: h_n = g(X_n) + x_n B.

    Args:
        model: whose metadata they are.
        encoder: g.
    """

    def __init__(self, model: CovariatePRME, encoder: nn.Module) -> None:
        super().__init__()
        self._model = (model,)  # no submodule: its parameters are the model's own
        self.encoder = encoder
        self.reads_topics = bool(getattr(encoder, "reads_topics", False))
        self.effect = nn.Parameter(torch.zeros(model.num_covariates, model.h_dim))  # B

    def forward(self, batch: Batch, topics: Tensor | None = None) -> Tensor:
        """h of each document, shape (B, h_dim)."""
        return self.encoder(batch, topics) + self._model[0].metadata[batch.documents] @ self.effect
