"""Other priors of the topic model: each class overrides one `pyro.sample`, and the plan keeps what still holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import torch
from pyro import distributions as dist
from torch import Tensor, nn

from pyro_prme.checks import number, positive
from pyro_prme.corpora.batch import Batch
from pyro_prme.models.prme import PRME
from pyro_prme.models.topic_model import TopicModel
from pyro_prme.swaps.guides import GuidedModel

__all__ = [
    "CovariateEncoder",
    "CovariatePRME",
    "FiniteDirichletPRME",
    "FiniteDirichletSticks",
    "HorseshoePRME",
    "LogNormalPRME",
    "PitmanYorPRME",
    "PitmanYorSticks",
]


class PitmanYorSticks(TopicModel):
    r"""Weights with a power law: sticks of a Pitman-Yor process in place of the paper's eq. topic_model_z.

    .. math:: V_k \sim \mathrm{Beta}(1 - d, \alpha + k d)

    The density has no maximum at 0, so that the plan takes the point on the logit scale.

    Recovered, with topics that are known, from 300 documents of 60 words: p_k, within 0.05.

    Args:
        discount: d, at least 0 and below 1; 0 is the paper's prior.
        args, kwargs: see `TopicModel`.
    """

    discount: float | Tensor

    def __init__(self, *args: Any, discount: float = 0.25, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        number("discount", discount, least=0, below=1)
        self.discount = discount

    def sample_V(self) -> Tensor:
        k = torch.arange(1.0, self.num_topics)
        return pyro.sample("V", dist.Beta(1 - self.discount, self.alpha + k * self.discount))


class PitmanYorPRME(PitmanYorSticks, PRME):
    """PRME with sticks of a Pitman-Yor process."""


class FiniteDirichletSticks(TopicModel):
    r"""A finite model: p ~ Dir(alpha / K, ..., alpha / K), written by its sticks.

    .. math:: V_k \sim \mathrm{Beta}(\alpha / K, \alpha (1 - k / K))

    Recovered, with topics that are known, from 300 documents of 60 words: p_k, within 0.05.
    """

    def sample_V(self) -> Tensor:
        k = torch.arange(1.0, self.num_topics)
        share = self.alpha / self.num_topics
        return pyro.sample("V", dist.Beta(share, self.alpha - k * share))


class FiniteDirichletPRME(FiniteDirichletSticks, PRME):
    """PRME with weights from a finite Dirichlet distribution."""


class LogNormalPRME(PRME):
    r"""Log-normal loadings, as in a correlated topic model: Z has no closed form and takes gradients.

    .. math:: Z_{nk} \sim \mathrm{LogNormal}(\ln(\beta p_k) + f_{nk}, s^2)

    Recovered, with topics that are known, from 200 documents of 100 words and by encoders without word dropout: p_k
    within 0.05, and centred ln Z with a correlation above 0.9 and a slope of 0.75 to 1.

    Args:
        spread: s.
        args, kwargs: see `PRME`.
    """

    def __init__(self, *args: Any, spread: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        positive("spread", spread)
        self.spread = spread

    def sample_Z(self, V: Tensor, f: Tensor) -> Tensor:
        return pyro.sample("Z", dist.LogNormal(self.concentration(V).log() + f, self.spread))


class HorseshoePRME(PRME):
    r"""Topics of which few have an embedding: a horseshoe on ell.

    .. math:: \lambda_k \sim \mathrm{HalfCauchy}(1), \quad \ell_k \sim N(0, b \lambda_k^2 I)

    As points the two would be unbounded, ell_k = 0 and lambda_k towards 0: the plan refuses a point for ell, and both
    get the proper generic posterior.

    Recovered, with topics, h and f = h' ell known, from 150 documents of 60 words: ell within a fifth where it is not 0
    and below 0.2 where it is, and lambda_k within a third.

    It needs a scale of ell that means something. With h known and f = h' ell, where few topics answer to metadata, it
    predicts better than N(0, b) with any b tried; a decoder that is learned can scale ell as it likes, and then the two
    priors do not differ (`benchmarks/swaps.py`).
    """

    def sample_ell(self) -> Tensor:
        scale = pyro.sample("lambda", dist.HalfCauchy(torch.ones(())))  # (K,)
        prior = dist.Normal(0.0, self.ell_scale * scale.unsqueeze(-1)).expand([self.num_topics, self.ell_dim])
        return pyro.sample("ell", prior.to_event(1))


class CovariatePRME(GuidedModel):
    r"""Metadata that shift the documents' embeddings.

    .. math:: h_n \sim N(W x_n, a I)

    with W learned. The paper's discussion suggests it: documents are then exchangeable given x only. To ask about other
    documents, put theirs in place: `model.metadata = x`. The guide of `make_guide` has h_n = W x_n + g(X_n) - A x_n, so
    that a document of few words is told by its metadata. In the plain `PRMEGuide`, and under a learned `h_scale`, where
    h is no point, q(h_n) does not know them.

    Recovered, with topics that are known, from 600 documents of 30 words: W within a seventh, where decoder and ell are
    given. Else h may be turned and scaled, and the decoder with it, and what is recovered is the metadata's effect on
    f, mu_f(W x_n, ell_k): within a tenth of its size by a linear decoder, within a fifth by the default one.

    Args:
        metadata: x, a table of numbers, shape (N, Q).
        args, kwargs: see `PRME`.
    """

    metadata: Tensor

    def __init__(self, *args: Any, metadata: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        x = _table(metadata)
        if x.dim() != 2 or len(x) != self.num_documents or not x.shape[1]:
            raise ValueError(
                f"metadata has shape {tuple(x.shape)}: it must have one row for each of the {self.num_documents} "
                "documents, and a column."
            )
        self.register_buffer("metadata", x)
        self.effect = nn.Parameter(torch.zeros(x.shape[1], self.h_dim))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _table(value).to(self.effect.dtype) if name == "metadata" else value)

    def check(self, batch: Batch) -> None:
        super().check(batch)
        size, width = batch.last_document + 1, len(self.effect)
        if len(self.metadata) < size or self.metadata.shape[1:] != (width,):
            raise ValueError(
                f"metadata has shape {tuple(self.metadata.shape)}: these documents need {size} rows or more, and the "
                f"model was built with {width} columns."
            )

    def mean_h(self, batch: Batch) -> Tensor:
        """W x_n, shape (B, h_dim)."""
        return self.metadata[batch.documents] @ self.effect

    def sample_h(self, batch: Batch) -> Tensor:
        return pyro.sample("h", dist.Normal(self.mean_h(batch).unsqueeze(-2), self.h_scale).to_event(1))

    def make_encoder(self) -> nn.Module:
        return CovariateEncoder(self, super().make_encoder())


def _table(metadata: Any) -> Tensor:
    """Metadata as a tensor of torch's default type, or one sentence why not."""
    x = metadata.detach().cpu().numpy() if isinstance(metadata, Tensor) else np.asarray(metadata)
    if x.dtype.kind not in "biuf" or not np.isfinite(x).all():
        raise ValueError("metadata holds what is not a finite number: code groups as columns of 0 and 1.")
    return torch.as_tensor(x, dtype=torch.get_default_dtype())


class CovariateEncoder(nn.Module):
    """g with the mean of h, less what of g is linear in the metadata: h_n = W x_n + g(X_n) - A x_n.

    Words and metadata go together: without A, a part of the effect is g's, and W ends with half of it. With A, the
    prior of h leaves W all that is linear in x, since there it costs nothing.

    Args:
        model: whose W and metadata they are.
        encoder: g.
    """

    def __init__(self, model: CovariatePRME, encoder: nn.Module) -> None:
        super().__init__()
        self._model = (model,)  # no submodule: its parameters are the model's own
        self.encoder = encoder
        self.topics_site: str | None = getattr(encoder, "topics_site", None)
        self.less = nn.Parameter(torch.zeros_like(model.effect))  # A, (Q, h_dim)

    def forward(self, batch: Batch, topics: Tensor | None = None) -> Tensor:
        model = self._model[0]
        return model.mean_h(batch) + self.encoder(batch, topics) - model.metadata[batch.documents] @ self.less
