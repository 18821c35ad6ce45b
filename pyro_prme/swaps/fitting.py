"""Simulate, fit and score any of the swapped models, in a few lines each. `Trainer` serves those of counts as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pyro import poutine
from scipy import sparse
from torch import Tensor

from pyro_prme.batch import Batch
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.model import PRME
from pyro_prme.prototype import eval_mode

__all__ = ["fit", "fit_best", "held_out_bound", "simulate", "simulate_corpus"]


@torch.no_grad()
def simulate(model: Any, num_rows: int, seed: int = 0, **given: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Draws rows from the model.

    Args:
        model: a `FactorModel`.
        num_rows: how many.
        seed: of the draws; the global random state is left alone.
        given: values of sites to hold fixed.

    Returns:
        X, shape (num_rows, D), and the value of every site.
    """
    values = _draw(model, model.to_draw(num_rows), seed, given)
    return values["X"].reshape(num_rows, -1), values


@torch.no_grad()
def simulate_corpus(
    model: PRME, lengths: Sequence[int], seed: int = 0, **given: Tensor
) -> tuple[sparse.csr_matrix, dict[str, Tensor]]:
    """Draws documents of given lengths from a topic model.

    Args:
        model: a `PRME` or a subclass that draws words.
        lengths: tokens of each document.
        seed, given: see `simulate`.

    Returns:
        Counts, shape (N, D), and the value of every site.
    """
    batch = Batch.to_draw(lengths)
    values = _draw(model, batch, seed, given)
    shape = (batch.size, model.vocab_size)
    counts = sparse.coo_matrix((batch.count.numpy(), (batch.document.numpy(), values["X"].numpy())), shape)
    return counts.tocsr(), values


def _draw(model: Any, batch: Batch, seed: int, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]), eval_mode(model):
        torch.manual_seed(seed)
        trace = poutine.trace(poutine.condition(model, dict(given))).get_trace(batch)
    nodes: dict[str, Any] = trace.nodes
    return {name: node["value"] for name, node in nodes.items() if node["type"] == "sample"}


def fit(
    guide: ClosedFormGuide, batch: Batch, epochs: int = 50, *, learning_rate: float = 1e-2, seed: int = 0
) -> list[float]:
    """Fits a guide and its model to one batch: an E-step, a gradient step, a natural step of rate 1, and so on.

    Args:
        guide: of the model.
        batch: all of the data.
        epochs: rounds.
        learning_rate: of Adam.
        seed: of the draws; the global random state is left alone.

    Returns:
        The bound at each round.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        guide.plan(batch)
        elbo = ClosedForm_ELBO()
        model: Any = guide.model
        objective = elbo(model, guide)
        optimizer = torch.optim.Adam([p for p in objective.parameters() if p.requires_grad], lr=learning_rate)
        history: list[float] = []
        for _ in range(epochs):
            optimizer.zero_grad()
            with guide.resume(guide.run.local if history else {}):
                loss = objective(batch)
            loss.backward()
            history.append(-float(loss.detach()))
            guide.gather()
            optimizer.step()
            guide.natural_step(1.0)
    return history


def fit_best(
    make_guide: Callable[[], ClosedFormGuide], batch: Batch, epochs: int = 50, starts: int = 5, **kwargs: Any
) -> tuple[ClosedFormGuide, list[float]]:
    """Fits from several starts and keeps the one with the largest bound, the mean of its last five rounds.

    Binary loadings need it: most of their starts end in poor optima.

    Args:
        make_guide: makes a model and its guide; called with torch's seed set to 0, 1, ... in turn.
        batch, epochs, kwargs: see `fit`.
        starts: how many.

    Returns:
        The guide and its history.
    """
    runs = []
    for seed in range(starts):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            guide = make_guide()
        runs.append((guide, fit(guide, batch, epochs, seed=seed, **kwargs)))
    return max(runs, key=lambda run: sum(run[1][-5:]))


@torch.no_grad()
def held_out_bound(guide: ClosedFormGuide, batch: Batch, draws: int = 20, seed: int = 0) -> float:
    r"""A lower bound on the mean log density of new rows, with global sites as they were learned.

    .. math:: \frac{1}{B} \sum_n \Big(E_q[\ln p(X_n, Z_n, f_n, h_n \mid \theta, \ell, V)] + H[q_n]\Big)

    Args:
        guide: fitted.
        batch: rows that it has not seen; their positions only name rows of the plate.
        draws: over which sampled terms are averaged.
        seed: of the draws.
    """
    totals = []
    with torch.random.fork_rng(devices=[]), eval_mode(guide.model, guide):
        torch.manual_seed(seed)
        for _ in range(draws):
            run = guide.expectations(batch)
            terms = ClosedForm_ELBO().terms_of(run)
            local = [
                float(term) / float(torch.as_tensor(run.scale(name)).max())
                for name, term in terms.items()
                if any(frame.name == "documents" for frame in run.trace.nodes[name]["cond_indep_stack"])
            ]
            totals.append(sum(local) / batch.size)
    return sum(totals) / draws
