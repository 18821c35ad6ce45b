"""A training step of the library's models written out in plain torch, on the state of a trainer: the same numbers.

It is what a step would cost without Pyro: the same kernels, networks, terms and optimizers, and no handlers, traces,
plates, distributions or plans. One step of it and one of `Trainer.step` leave the same parameters behind
(tests/benchmarks/test_benchmarks.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pyro_prme as prme
from pyro_prme.equations.bounds import elog_sum_epsilon, profiled_loadings
from pyro_prme.equations.sticks import MIN_CONCENTRATION, log_stick_weights
from pyro_prme.equations.updates import robbins_monro_rate
from pyro_prme.inference.session import evaluating
from pyro_prme.kernels import LocalStep, local_step
from pyro_prme.kernels.gamma import add_rows_
from pyro_prme.kernels.sums import inner


def moments(trainer: prme.Trainer, batch: prme.Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shape, E f and E exp(-f) of the loadings, (B, K) or broadcastable to it, and the log density of V, ell and h."""
    model, guide = trainer.model, trainer.guide
    V = guide.claim("V").value()
    weights = log_stick_weights(V)
    density = (math.log(model.alpha) + (model.alpha - 1) * (-V).log1p()).sum()
    if isinstance(model, prme.HDP):
        c = (weights + math.log(model.beta)).exp().clamp(min=MIN_CONCENTRATION)
        return c, torch.zeros(1), torch.ones(1, len(c)), density
    ell, share = guide.claim("ell").value(), len(trainer.data) / batch.size
    with torch.no_grad():
        rows = guide.topics.topics_posterior().mean_rows(batch.words)
    h = guide.claim("h").encoder(batch, rows)
    density = density + normal(ell, model.ell_scale) + share * normal(h, model.h_scale)
    mean, variance = model.decoder(h, ell)
    if isinstance(model, prme.ShapePRME):
        c = (model.beta * (weights + mean).softmax(-1)).clamp(min=MIN_CONCENTRATION)
        return c, torch.zeros(1), torch.ones_like(c), density
    c = (weights + math.log(model.beta)).exp().clamp(min=MIN_CONCENTRATION)
    return c, mean, (-mean + variance / 2).exp(), density


def normal(x: Tensor, scale: float) -> Tensor:
    """Log density of independent N(0, scale^2)."""
    return -(x / scale).square().sum() / 2 - x.numel() * math.log(scale * math.sqrt(2 * math.pi))


def bound(step: LocalStep, batch: prme.Batch, c: Tensor, mean: Tensor, e: Tensor, elog_theta: Tensor) -> Tensor:
    """The documents' part of the bound, as a step of the trainer reports it."""
    q = torch.distributions.Gamma(step.concentration, step.rate, validate_args=False)
    elog = torch.digamma(q.concentration) - q.rate.log()
    slope = (batch.length / step.epsilon).unsqueeze(-1)
    Z = profiled_loadings(c, step.counts, mean, e + slope, torch.zeros(1)) - (step.counts * elog - slope * q.mean)
    words = inner(batch.count, step.log_normalizer) - inner(step.counts, step.elog_loadings)
    C = words - inner(step.statistics, elog_theta) + inner(step.counts, elog)
    normalizer = batch.length.double() * elog_sum_epsilon(q.mean.double(), step.epsilon.double())
    return Z.sum() + C - normalizer.sum() + inner(step.statistics, elog_theta)


def step_by_hand(trainer: prme.Trainer, rows: np.ndarray) -> float:
    """One online step; returns the bound at its E-step, without the term of theta."""
    model, guide, batch = trainer.model, trainer.guide, trainer.data.batch(rows)[0]
    theta: Any = guide.topics
    rule, share = theta.rule, len(trainer.data) / batch.size
    with torch.no_grad(), evaluating(model, guide):
        c, mean, e, density = moments(trainer, batch)
        elog_theta = theta.elog_rows(batch)
        step = local_step(
            batch.indptr, batch.local_word, batch.count, elog_theta, c, e,
            max_sweeps=rule.max_sweeps, tolerance=rule.tolerance,
        )  # fmt: skip
        total = float(density + share * bound(step, batch, c, mean, e, elog_theta))
    add_rows_(theta.pending, batch.words, step.statistics, share)
    for optimizer in trainer.optimisers:
        optimizer.zero_grad()
    c, mean, e, density = moments(trainer, batch)
    slope = (batch.length / step.epsilon).unsqueeze(-1)
    loss = -density - share * profiled_loadings(c, step.counts, mean, e + slope, torch.zeros(1)).sum()
    loss.backward()
    for optimizer in trainer.optimisers:
        optimizer.step()
    trainer.steps += 1
    theta.natural_step(robbins_monro_rate(trainer.steps, trainer.options.delay, trainer.options.decay))
    return total
