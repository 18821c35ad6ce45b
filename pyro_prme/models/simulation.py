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
from torch.distributions import constraints

from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.rows import RowBatch
from pyro_prme.models.factor_model import FactorModel
from pyro_prme.models.networks.modes import evaluating
from pyro_prme.models.topic_model import TopicModel

__all__ = ["simulate", "simulate_corpus"]


@torch.no_grad()
def simulate(model: FactorModel, num_rows: int, seed: int = 0, **given: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Draws rows from the model.

    Args:
        model: a `FactorModel`.
        num_rows: how many, at most the model's `num_documents`.
        seed: of the draws; the global random state is left alone.
        given: values of sites to hold fixed, each of its site's shape and within its support.

    Returns:
        X, shape (num_rows, D), and the value of every site.
    """
    if not isinstance(model, FactorModel):
        raise ValueError(f"{type(model).__name__} draws documents and not rows: use `simulate_corpus`.")
    values = _draw(model, RowBatch.to_draw(num_rows), seed, given)
    return values[model.roles["words"]].reshape(num_rows, -1), values


@torch.no_grad()
def simulate_corpus(
    model: TopicModel, lengths: Sequence[int], seed: int = 0, **given: Any
) -> tuple[sparse.csr_matrix, dict[str, Tensor]]:
    """Draws documents of given lengths from a topic model.

    Args:
        model: a `TopicModel` that draws words.
        lengths: tokens of each document.
        seed: see `simulate`.
        given: values of sites, see `simulate`.

    Returns:
        Counts, shape (N, D), and the value of every site; without any words there are no C and X.
    """
    if isinstance(model, FactorModel):
        raise ValueError(f"{type(model).__name__} draws rows and not documents: use `simulate`.")
    if np.ndim(lengths) != 1 or any(length < 0 or length != int(length) for length in lengths):
        raise ValueError("lengths must be one whole number of at least 0 for each document.")
    batch = Batch.to_draw(lengths)
    values = _draw(model, batch, seed, given)
    shape = (batch.size, model.vocab_size)
    words = values[model.roles["words"]].numpy() if batch.num_entries else np.empty(0, dtype=np.int64)
    times = values.get(model.roles.get("repeats", ""), batch.count)  # of a table's word, where there are tables
    counts = sparse.coo_matrix((times.numpy(), (batch.document.numpy(), words)), shape)
    counts = counts.tocsr()
    counts.eliminate_zeros()
    return counts, values


def _draw(model: Any, batch: Batch | RowBatch, seed: int, given: Mapping[str, Any]) -> dict[str, Tensor]:
    model.check(batch)
    with torch.random.fork_rng(devices=[]), evaluating(model):
        data = _checked(given, _sites(model, batch)) if given else {}
        torch.manual_seed(seed)
        return {name: site["value"] for name, site in _sites(poutine.condition(model, data), batch).items()}


def _sites(model: Any, batch: Batch | RowBatch) -> dict[str, Any]:
    """Every site of a run."""
    nodes: dict[str, Any] = poutine.trace(model).get_trace(batch).nodes
    sites = {name: node for name, node in nodes.items() if node["type"] == "sample"}
    return {name: node for name, node in sites.items() if not site_is_subsample(node)}


def _checked(given: Mapping[str, Any], sites: Mapping[str, Any]) -> dict[str, Tensor]:
    """The given values as tensors of their sites' types, or one sentence why not."""
    data = {}
    for name, value in given.items():
        if name not in sites:
            raise ValueError(f"The model has no site {name}; its sites are {', '.join(sites)}.")
        drawn = sites[name]["value"]
        try:
            asked = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"The value given for {name} is no table of numbers.") from None
        if asked.shape != drawn.shape:
            raise ValueError(
                f"The value given for {name} has shape {tuple(asked.shape)}: the site has {tuple(drawn.shape)}."
            )
        data[name] = asked.to(drawn.dtype)
        support = sites[name]["fn"].support
        if (data[name] != asked).any() and not drawn.is_floating_point():
            raise ValueError(f"The value given for {name} has fractions: the site has whole numbers.")
        if not _inside(support, data[name]):
            raise ValueError(
                f"The value given for {name} has numbers from {float(asked.min()):g} to {float(asked.max()):g}, which "
                f"are not in the site's support, {_words(support)}."
            )
    return data


def _inside(support: Any, value: Tensor) -> bool:
    """Whether a value is finite and in a support; rows of shares may be off one by what rounding does to them."""
    if support is constraints.simplex:
        return bool((value >= 0).all() and ((value.sum(-1) - 1).abs() < 1e-4).all())
    return bool(torch.isfinite(value).all() and support.check(value).all())


def _words(support: Any) -> str:
    """A support by its name, without the events that it is made of."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return str(support)
