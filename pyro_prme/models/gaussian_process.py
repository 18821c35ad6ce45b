"""A Gaussian process for f with a kernel on the topics' embeddings, in place of the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor, nn

from pyro_prme.checks import positive
from pyro_prme.corpora.batch import Batch
from pyro_prme.models.prme import EmbeddedTopics
from pyro_prme.models.topic_model import Plates

__all__ = ["GaussianProcessPRME"]


class GaussianProcessPRME(EmbeddedTopics):
    r"""A Gaussian process in place of the decoder: topics whose embeddings are near light up in the same documents.

    .. math:: f_n \sim N(0, S), \qquad S_{kj} = s^2 e^{-|\ell_k - \ell_j|^2 / 2 \lambda^2} + \epsilon\, [k = j]

    It is DILN with an RBF kernel held by its embeddings, where DILN holds S itself: ell (K | ell_dim) keeps its prior
    and its point, s and lambda are learned, and there is no h. The site f has shape (B, 1 | K), as in DILN, and the
    same Gaussian for each document; the kernel has its gradient from the expected log density of f.

    Recovered, with topics that are known, from 400 documents of 1000 words: the amplitude s and the variance of
    differences of f over topics, each within a seventh (a part of f that all topics share does nothing). With 200 words
    s ends too small (1.1 to 1.2 for 1.5), since q(f) has no covariances and the prior outweighs what words say; which
    topics go together is recovered there too. The length scale is told from the scale of ell by its prior alone.

    Args:
        amplitude: s, where learning starts.
        length_scale: lambda, where learning starts.
        nugget: epsilon.
        args: by position, see `EmbeddedTopics`.
        kwargs: by name, see `EmbeddedTopics`.
    """

    def __init__(
        self, *args: Any, amplitude: float = 1.0, length_scale: float = 1.0, nugget: float = 1e-2, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        for setting, value in {"amplitude": amplitude, "length_scale": length_scale, "nugget": nugget}.items():
            positive(setting, value)
        self.log_amplitude = nn.Parameter(torch.tensor(float(amplitude)).log())
        self.log_length_scale = nn.Parameter(torch.tensor(float(length_scale)).log())
        self.nugget = nugget

    @property
    def roles(self) -> Mapping[str, str]:
        return {**super().roles, "function": "f"}

    def covariance(self, ell: Tensor) -> Tensor:
        """S for embeddings ell (K, ell_dim), shape (K, K)."""
        scaled = ell / self.log_length_scale.exp()
        squares = (scaled.unsqueeze(-2) - scaled.unsqueeze(-3)).square().sum(-1)
        noise = self.nugget * torch.eye(ell.shape[-2], dtype=ell.dtype)
        return (2 * self.log_amplitude - squares / 2).exp() + noise

    def random_function(self, places: Tensor, plates: Plates, batch: Batch) -> Tensor:
        """f_n ~ N(0, S), all topics at once, shape (B, K)."""
        with plates.documents:
            return self.sample_f(places).squeeze(-2)

    def sample_f(self, ell: Tensor) -> Tensor:
        """f_n ~ N(0, S), shape (B, 1, K)."""
        S = self.covariance(ell)
        if not bool(torch.isfinite(S).all()):
            raise ValueError(
                "The covariance of f is not finite: the fit has diverged; start again with a smaller learning rate."
            )
        return pyro.sample("f", dist.MultivariateNormal(S.new_zeros(self.num_topics), S))
