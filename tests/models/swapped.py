"""Every prior that can be swapped, as small models, and the same models with all their sites renamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from scipy import sparse

from pyro_prme.models.covariates import CovariatePRME
from pyro_prme.models.diln import DILN
from pyro_prme.models.gaussian_process import GaussianProcessPRME
from pyro_prme.models.priors import FiniteDirichletPRME, HorseshoePRME, LogNormalPRME, PitmanYorPRME, PitmanYorSticks
from pyro_prme.models.prme import PRME, ShapePRME
from pyro_prme.models.topic_model import HDP

K, D, N = 4, 12, 30
PLACES = {"ell_dim": 2}
EMBEDDED = {"h_dim": 3, **PLACES}


def number(kind: Callable[..., Any], *parameters: float) -> Any:
    """A distribution of one number, in torch's default precision."""
    return kind(*(torch.tensor(float(x)) for x in parameters))


def metadata(num: int = N) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(num, 2))


class PitmanYorShape(PitmanYorSticks, ShapePRME):
    """Two swaps in one model."""


class CovariateShape(CovariatePRME, ShapePRME):
    """Metadata and f in the shape."""


#: How each model is made, by name: its class and the settings that belong to it.
MODELS: dict[str, tuple[Any, Callable[[], dict[str, Any]]]] = {
    "HDP": (HDP, dict),
    "PRME": (PRME, lambda: EMBEDDED),
    "ShapePRME": (ShapePRME, lambda: EMBEDDED),
    "DILN": (DILN, dict),
    "Pitman-Yor": (PitmanYorPRME, lambda: EMBEDDED),
    "Pitman-Yor, f in the shape": (PitmanYorShape, lambda: EMBEDDED),
    "finite Dirichlet": (FiniteDirichletPRME, lambda: EMBEDDED),
    "log-normal": (LogNormalPRME, lambda: EMBEDDED),
    "horseshoe": (HorseshoePRME, lambda: EMBEDDED),
    "covariates": (CovariatePRME, lambda: {**EMBEDDED, "metadata": metadata()}),
    "covariates, f in the shape": (CovariateShape, lambda: {**EMBEDDED, "metadata": metadata()}),
    "Gaussian process": (GaussianProcessPRME, lambda: PLACES),
    "learned numbers": (
        PRME,
        lambda: {
            **EMBEDDED,
            "alpha": number(dist.Gamma, 2, 1),
            "beta": number(dist.Gamma, 2, 0.4),
            "gamma0": number(dist.Gamma, 2, 10),
        },
    ),
    "learned discount": (
        PitmanYorPRME,
        lambda: {**EMBEDDED, "discount": number(dist.Beta, 1, 1), "alpha": number(dist.Gamma, 2, 1)},
    ),
}


def make(name: str, renamed: int | None = None) -> Any:
    """A model by its name in `MODELS`; with a seed, its sites have names drawn from it."""
    kind, settings = MODELS[name]
    torch.manual_seed(0)
    model = (kind if renamed is None else with_other_names(kind, renamed))(K, D, N, **settings())
    return model


def corpus(num: int = N, length: int = 20, seed: int = 0) -> sparse.csr_matrix:
    """Documents of topics on words of their own."""
    rng = np.random.default_rng(seed)
    theta = np.kron(np.eye(K), np.ones(D // K)) / (D // K)
    rows = [rng.multinomial(length, rng.dirichlet(np.full(K, 0.4)) @ theta) for _ in range(num)]
    return sparse.csr_matrix(np.stack(rows))


class _Renaming(Messenger):
    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self._names = names

    def _pyro_sample(self, msg: Any) -> None:
        if not site_is_subsample(msg):
            msg["name"] = self._names[msg["name"]]


def with_other_names(kind: Any, seed: int) -> Any:
    """A class whose sites have names drawn at random, some of them those of other sites."""
    rng = np.random.default_rng(seed)
    taken = ["ell", "V", "theta", "h", "f", "Z", "C", "X", "W", "lambda", "alpha", "beta", "gamma0", "discount"]
    shuffled = [str(n) if rng.random() < 0.5 else f"site_{rng.integers(10**9)}" for n in rng.permutation(taken)]
    names = dict(zip(taken, shuffled, strict=True))

    class Renamed(kind):
        @property
        def roles(self):
            return {role: names[site] for role, site in super().roles.items()}

        def forward(self, batch):
            with _Renaming(names):
                return super().forward(batch)

    Renamed.names = names
    return Renamed
