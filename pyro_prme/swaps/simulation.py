"""Data of one's own: rows or documents drawn from a model, with the values of all its sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pyro import poutine
from pyro.poutine.util import site_is_subsample
from scipy import sparse
from torch import Tensor

from pyro_prme.batch import Batch
from pyro_prme.model import PRME
from pyro_prme.prototype import eval_mode
from pyro_prme.swaps.factors import FactorModel

__all__ = ["simulate", "simulate_corpus"]


@torch.no_grad()
def simulate(model: FactorModel, num_rows: int, seed: int = 0, **given: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Draws rows from the model.

    Args:
        model: a `FactorModel`.
        num_rows: how many, at most the model's `num_documents`.
        seed: of the draws; the global random state is left alone.
        given: values of sites to hold fixed.

    Returns:
        X, shape (num_rows, D), and the value of every site.
    """
    if not isinstance(model, FactorModel):
        raise ValueError(f"{type(model).__name__} draws documents and not rows: use `simulate_corpus`.")
    values = _draw(model, model.to_draw(num_rows), seed, given)
    return values["X"].reshape(num_rows, -1), values


@torch.no_grad()
def simulate_corpus(
    model: PRME, lengths: Sequence[int], seed: int = 0, **given: Any
) -> tuple[sparse.csr_matrix, dict[str, Tensor]]:
    """Draws documents of given lengths from a topic model.

    Args:
        model: a `PRME` or a subclass that draws words.
        lengths: tokens of each document.
        seed, given: see `simulate`.

    Returns:
        Counts, shape (N, D), and the value of every site.
    """
    if isinstance(model, FactorModel):
        raise ValueError(f"{type(model).__name__} draws rows and not documents: use `simulate`.")
    if np.ndim(lengths) != 1 or any(length < 0 or length != int(length) for length in lengths):
        raise ValueError("lengths must be one whole number of at least 0 for each document.")
    batch = Batch.to_draw(lengths)
    values = _draw(model, batch, seed, given)
    shape = (batch.size, model.vocab_size)
    counts = sparse.coo_matrix((batch.count.numpy(), (batch.document.numpy(), values["X"].numpy())), shape)
    return counts.tocsr(), values


def _draw(model: Any, batch: Batch, seed: int, given: Mapping[str, Any]) -> dict[str, Tensor]:
    model.check(batch)
    with torch.random.fork_rng(devices=[]), eval_mode(model):
        data = {name: torch.as_tensor(value) for name, value in given.items()}
        if data:
            _check_given(data, _values(model, batch))
        torch.manual_seed(seed)
        return _values(poutine.condition(model, data), batch)


def _values(model: Any, batch: Batch) -> dict[str, Tensor]:
    """The value of every site in a run."""
    nodes: dict[str, Any] = poutine.trace(model).get_trace(batch).nodes
    sites = {name: node for name, node in nodes.items() if node["type"] == "sample"}
    return {name: node["value"] for name, node in sites.items() if not site_is_subsample(node)}


def _check_given(given: Mapping[str, Tensor], drawn: Mapping[str, Tensor]) -> None:
    for name, value in given.items():
        if name not in drawn:
            raise ValueError(f"The model has no site {name}; its sites are {', '.join(drawn)}.")
        if value.shape != drawn[name].shape:
            raise ValueError(
                f"The value given for {name} has shape {tuple(value.shape)}: the site has {tuple(drawn[name].shape)}."
            )
