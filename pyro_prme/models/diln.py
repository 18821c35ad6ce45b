"""DILN, the discrete infinite logistic normal distribution: a Gaussian process where PRME has a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.corpora.batch import Batch
from pyro_prme.models.topic_model import Plates, TopicModel

__all__ = ["DILN"]


class DILN(TopicModel):
    r"""Discrete infinite logistic normal distribution (Paisley, Wang and Blei, 2012): a Gaussian process for f.

    .. math:: f_n \sim N(m, S), \qquad Z_{nk} \sim \mathrm{Gamma}(\beta p_k, \mathrm{scale} = e^{f_{nk}})

    The process has a linear kernel on ell; it is held as the K x K covariance S that the kernel gives, so there is no
    site ell, and m and S are fitted by their closed forms. The site f has shape (B, 1 | K).

    Args:
        args: by position, see `TopicModel`.
        kwargs: by name, see `TopicModel`.
    """

    mean: Tensor
    covariance: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("mean", torch.zeros(self.num_topics))
        self.register_buffer("covariance", torch.eye(self.num_topics))

    @property
    def roles(self) -> Mapping[str, str]:
        return {**super().roles, "function": "f"}

    @torch.no_grad()
    def learn_function(self, mean: Tensor, covariance: Tensor, rate: float) -> None:
        """Moves m and S towards these by a share `rate` of the way."""
        self.mean.lerp_(mean.to(self.mean.dtype), rate)
        self.covariance.lerp_(covariance.to(self.covariance.dtype), rate)

    def random_function(self, places: Tensor, plates: Plates, batch: Batch) -> Tensor:
        """f_n ~ N(m, S), all topics at once, shape (B, K)."""
        with plates.documents:
            return self.sample_f().squeeze(-2)

    def sample_f(self) -> Tensor:
        """f_n ~ N(m, S), shape (B, 1, K)."""
        return pyro.sample("f", dist.MultivariateNormal(self.mean, self.covariance))
