"""Scores of rows that a model has not seen: for comparing likelihoods, and models of rows by one likelihood."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pyro import poutine
from torch import Tensor

from pyro_prme.checks import whole
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.inference.claims import GivenClaim
from pyro_prme.inference.data import Data
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.from_prior import PriorDraw
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import alone, evaluating, seeded

__all__ = ["held_out_bound", "held_out_density"]

_CONVERGED = RunOptions(sweeps=200, word_tolerance=1e-4)


@torch.no_grad()
def held_out_bound(guide: ClosedFormGuide, *data: Any, draws: int = 20, seed: int = 0) -> float:
    r"""A lower bound on the mean log density of new rows and their embeddings, with global sites as they were learned.

    .. math:: \frac{1}{B} \sum_n \Big(E_q[\ln p(X_n, Z_n, f_n, h_n \mid \theta, \ell, V)] + H[q_n]\Big)

    A site with a point, such as h_n where the network puts it, has no entropy: the bound is then on ln p(X_n, h_n) and
    not on ln p(X_n). Compare it between models with the same prior of h.

    Args:
        guide: fitted, of a model whose observed site is in a plate of rows.
        data: rows that it has not seen, as `Rows` or what else its model is called with; where they stand in the data
            only names rows of the plate.
        draws: over which sampled terms are averaged.
        seed: of the draws.
    """
    args = _checked(guide, data)
    whole("draws", draws)
    totals = []
    with alone(), seeded(seed), evaluating(guide.model, guide):
        run = guide.run(*args, options=_CONVERGED)
        count = draws if any(part.claim.random for part in run.open.values()) else 1
        for _ in range(count):
            run = guide.run(*args, options=_CONVERGED)
            rows = _rows_plate(run)
            local = _local_sites(run, rows)
            terms = run.terms()
            totals.append(sum(float(terms[s.name]) / float(s.weight.max()) for s in local) / rows.size)
    return sum(totals) / len(totals)


@torch.no_grad()
def held_out_density(guide: ClosedFormGuide, *data: Any, draws: int = 200, seed: int = 0) -> float:
    r"""The mean log density of new rows by importance sampling, for comparing likelihoods.

    .. math:: \frac{1}{B} \sum_n \ln \frac{1}{S} \sum_s
              \frac{p(X_n \mid Z_n^s, \theta^s)\, p(Z_n^s, f_n^s, h_n)}{q(Z_n^s, f_n^s)}

    with draws from q. A point, such as h_n where the network puts it, is no draw, and the density is that of
    (X_n, h_n). In expectation it is a lower bound too, above that of `held_out_bound` and nearer to the density with
    every draw; closed forms and gradients are scored alike, where `held_out_bound` of Poisson rows is lower by what its
    shares cost.

    Args:
        guide: see `held_out_bound`.
        data: see `held_out_bound`.
        seed: see `held_out_bound`.
        draws: S.
    """
    args = _checked(guide, data)
    whole("draws", draws)
    weights = []
    with alone(), seeded(seed), evaluating(guide.model, guide):
        run = guide.run(*args, options=_CONVERGED)
        again = any(part.claim.random for part in run.open.values())
        for s in range(draws):
            if s and again:
                run = guide.run(*args, options=_CONVERGED)
            weights.append(_log_weights(guide, run))
    return float((torch.stack(weights).logsumexp(0) - math.log(draws)).mean())


def _checked(guide: Any, data: Sequence[Any]) -> tuple[Any, ...]:
    """What the model is called with, or one sentence why the data cannot be scored."""
    if not isinstance(guide, ClosedFormGuide):
        raise ValueError(f"The guide is a {type(guide).__name__}: give a fitted ClosedFormGuide.")
    if not list(guide.claims):
        raise ValueError("The guide has no plan yet: fit it before it is scored.")
    if any(isinstance(claim, TopicFactors) for claim in guide.claims):
        raise ValueError(
            "The guide is of a model of words, which have no density of rows: score it with `Posterior.perplexity`."
        )
    if len(data) == 1 and isinstance(data[0], Data):
        import numpy as np

        return tuple(data[0].batch(np.arange(len(data[0]))))
    if not data:
        raise ValueError("There are no rows to score: give the data after the guide.")
    return tuple(data)


def _rows_plate(run: Run) -> Any:
    """The plate of rows: the outermost one of the observed site."""
    observed = [site for site in run.sites.values() if site.is_observed and site.plates]
    if len(observed) != 1:
        raise ValueError(
            f"The model has {len(observed)} observed sites in plates, and rows are scored by one: score it otherwise."
        )
    return min(observed[0].plates, key=lambda plate: plate.dim)


def _local_sites(run: Run, rows: Any) -> list[Site]:
    """Sites of which each row has one."""
    return [site for site in run.sites.values() if any(plate.name == rows.name for plate in site.plates)]


def _log_weights(guide: ClosedFormGuide, run: Run) -> Tensor:
    """ln p of one draw of the sites of rows, less ln q, shape (B,)."""
    rows = _rows_plate(run)
    own = {name for claim in run.claims if isinstance(claim, GivenClaim | PriorDraw) for name in claim.sites}
    values: dict[str, Tensor] = {}
    log_q: dict[str, Tensor] = {}
    for site in run.sites.values():
        if site.is_observed or (site.name in own and site.name not in run.open):
            continue  # a site whose factor is its prior is drawn by the model itself
        if site.name in run.open:
            part = run.open[site.name]
            values[site.name] = part.site.value
            found = None if site.name in own else part.claim.log_posterior(site.name, part.site.value, part.posterior)
            if found is not None:
                log_q[site.name] = found
            continue
        q: Any = run.factor(site.name)
        values[site.name] = q if isinstance(q, Tensor) else q.sample()
        if not isinstance(q, Tensor):
            log_q[site.name] = q.log_prob(values[site.name])
    trace = poutine.trace(poutine.condition(guide.model, data=_shaped(values, run.sites))).get_trace(
        *run.args, **run.kwargs
    )
    total = torch.zeros(rows.size)
    for site in _local_sites(run, rows):
        if site.name in own:
            continue
        node: Any = trace.nodes[site.name]
        total = total + _by_row(node["fn"].log_prob(node["value"]), node["fn"].batch_shape, rows)
        if site.name in log_q:
            total = total - _by_row(log_q[site.name], node["fn"].batch_shape, rows)
    return total


def _shaped(values: Mapping[str, Tensor], sites: Mapping[str, Site]) -> dict[str, Tensor]:
    """Values in the shapes that the model has."""
    return {name: value.expand(sites[name].fn.shape()) for name, value in values.items()}


def _by_row(log_density: Tensor, batch_shape: torch.Size, rows: Any) -> Tensor:
    """Sums over everything but the rows, shape (B,)."""
    dim = len(batch_shape) + rows.dim
    laid = log_density.expand(batch_shape)
    others = [d for d in range(laid.dim()) if d != dim]
    return laid.sum(others) if others else laid
