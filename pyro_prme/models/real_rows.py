"""Rows of real numbers: factor analysis with non-negative loadings, and with binary ones."""

from __future__ import annotations

from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.checks import positive
from pyro_prme.models.factor_model import FactorModel
from pyro_prme.models.prme import PRME
from pyro_prme.models.topic_model import Plates, TopicModel

__all__ = ["BinaryLoadings", "BinaryPRME", "GaussianPRME", "GaussianRows"]


class GaussianRows(FactorModel):
    r"""Real numbers whose means are loadings times factors.

    .. math::
        \theta_{kd} \sim N(0, s^2), \quad \tau \sim \mathrm{Gamma}(1, 1), \quad
        X_{nd} \sim N(\textstyle\sum_k Z_{nk}\theta_{kd}, 1/\tau)

    theta has one factor a column, (D | K), so that its posterior has the covariance of the K topics: there the closed
    form is exact.

    Args:
        theta_scale: s.
        args: of the class that this one goes before, by position.
        kwargs: of the class that this one goes before, by name.
    """

    def __init__(self, *args: Any, theta_scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.theta_scale = positive("theta_scale", theta_scale)

    def sample_factors(self, plates: Plates) -> Tensor:
        with pyro.plate("columns", self.vocab_size, dim=-1):
            prior = dist.Normal(0.0, self.theta_scale).expand([self.num_topics]).to_event(1)
            return self.by_topic(pyro.sample("theta", prior))

    def by_topic(self, theta: Tensor) -> Tensor:
        return theta.mT

    def sample_noise(self) -> Tensor:
        """tau ~ Gamma(1, 1), a number."""
        return pyro.sample("tau", dist.Gamma(torch.ones(()), 1.0))

    def sample_rows(self, Z: Tensor, theta: Tensor, noise: Tensor | None, observed: Tensor | None) -> Tensor:
        if noise is None:
            raise ValueError("Gaussian rows need a precision: `sample_noise` must return one.")
        return pyro.sample("X", dist.Normal((Z @ theta).unsqueeze(-2), noise.rsqrt()).to_event(1), obs=observed)


class GaussianPRME(GaussianRows, PRME):
    r"""Factor analysis with non-negative loadings from a random function.

    .. math::
        \theta_{kd} \sim N(0, s^2), \quad \tau \sim \mathrm{Gamma}(1, 1), \quad
        X_{nd} \sim N(\textstyle\sum_k Z_{nk}\theta_{kd}, 1/\tau)

    with Z as in the paper (eq. topic_model_z). theta and tau are conjugate; Z has a Gamma times a Normal for each
    topic, one topic after the other.

    Recovered: tau, within a tenth from 1800 cells (three standard errors), and the factors up to their order and scale,
    every cosine above 0.95 from 100 rows, by the best of three starts; a factor's scale is told from its loadings' by
    the priors alone.

    Args:
        args: by position, see `GaussianRows` and `PRME`.
        kwargs: by name, see `GaussianRows` and `PRME`.
    """


class BinaryLoadings(TopicModel):
    r"""Loadings that are present or absent: the paintbox binarised (paper, section 5.2).

    .. math:: Z_{nk} \sim \mathrm{Bernoulli}(\sigma(\ln(\beta p_k) + f_{nk}))

    The odds of a feature are beta p_k exp(f_nk), so that a row has finitely many of them as K grows.
    """

    def sample_Z(self, V: Tensor, f: Tensor) -> Tensor:
        return pyro.sample("Z", dist.Bernoulli(logits=self.concentration(V).log() + f))


class BinaryPRME(BinaryLoadings, GaussianRows, PRME):
    r"""Sparse binary features of real-valued rows.

    .. math::
        Z_{nk} \sim \mathrm{Bernoulli}(\sigma(\ln(\beta p_k) + f_{nk})), \quad
        X_{nd} \sim N(\textstyle\sum_k Z_{nk}\theta_{kd}, 1/\tau)

    f is drawn from its prior in each run, and q(Z) is the best given that draw: q(f) q(Z | f) keeps the two together.

    Recovered: tau, within a tenth from 1200 cells, by the start with the largest bound; other starts end in poor optima
    that merge or split features, with a smaller tau.

    Args:
        args: by position, see `GaussianRows` and `PRME`.
        kwargs: by name, see `GaussianRows` and `PRME`.
    """
