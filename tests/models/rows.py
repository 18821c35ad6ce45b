"""Small factor models, and rows drawn from them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyro_prme.inference import fit
from pyro_prme.inference.data import Rows
from pyro_prme.inference.fit import FitOptions
from pyro_prme.inference.topic_guide import PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.models.simulation import simulate

K, D = 4, 12

#: Four factors of equal weight, on three columns each.
BLOCKS = torch.kron(torch.eye(K), torch.ones(1, D // K))
EQUAL = [1 / 4, 1 / 3, 1 / 2]  # sticks of equal weights


def make(kind: Any, num: int, seed: int = 0, **settings: Any) -> Any:
    torch.manual_seed(seed)
    return kind(K, D, num, h_dim=3, ell_dim=2, **settings)


def planted(kind: Any, num: int, seed: int = 1, given: dict[str, Any] | None = None, **settings: Any) -> Tensor:
    """Rows drawn from a model."""
    return simulate(make(kind, num, **settings), num, seed, **(given or {}))[0]


def trained(
    kind: Any, X: Tensor, epochs: int, *, learning_rate: float = 0.02, seed: int = 0, **settings: Any
) -> tuple[PRMEGuide, list[dict[str, Any]]]:
    """A guide fitted to all rows by the trainer, and its history."""
    guide = PRMEGuide(make(kind, len(X), seed, **settings))
    options = TrainOptions(batch_size=len(X), learning_rate=learning_rate, seed=seed)
    return guide, Trainer(guide, Rows(X), options).fit(epochs)


def best_of(kind: Any, X: Tensor, epochs: int, starts: int, *, learning_rate: float = 0.02) -> tuple[PRMEGuide, float]:
    """The guide with the largest bound among several starts."""
    best: tuple[PRMEGuide, float] | None = None
    for seed in range(starts):
        guide = PRMEGuide(make(kind, len(X), seed))
        options = FitOptions(epochs=epochs, learning_rate=learning_rate, seed=seed, bound_draws=5)
        bound = fit(guide, Rows(X), options=options).bound
        if best is None or bound > best[1]:
            best = guide, bound
    assert best is not None
    return best
