"""The rule for DILN's f: a Gaussian for each document with its own local update."""

from __future__ import annotations

from typing import Any

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.equations.expectations import expected_log_rows
from pyro_prme.kernels import local_step
from pyro_prme.models.topic_model import TopicModel
from pyro_prme.prototype import Prototype
from pyro_prme.rules.base import Rule, Run
from pyro_prme.rules.loadings import GammaLoadings, Local

__all__ = ["GaussianFunction", "function_bound", "function_update"]

_RIDGE = 1e-3  # on the diagonal of S


def function_bound(mu: Tensor, v: Tensor, concentration: Tensor, mean_Z: Tensor, m: Tensor, P: Tensor) -> Tensor:
    r"""The part of the bound that holds q(f_n) = N(mu_n, diag v_n), up to a constant.

    .. math:: \sum_k \left[-\beta p_k \mu_{nk} - E[Z_{nk}] e^{-\mu_{nk} + v_{nk}/2} + \tfrac12 \ln v_{nk}\right]
              - \tfrac12 (\mu_n - m)^\top S^{-1} (\mu_n - m) - \tfrac12 \mathrm{tr}(S^{-1} \mathrm{diag}\, v_n)

    Args:
        mu, v: shape (B, K).
        concentration: beta p, shape (K,).
        mean_Z: E Z, shape (B, K).
        m: shape (K,).
        P: the precision, inverse of S, shape (K, K).

    Returns:
        Shape (B,).
    """
    local = -concentration * mu - mean_Z * (-mu + v / 2).exp() + v.log() / 2
    d = mu - m
    return local.sum(-1) - ((d @ P) * d).sum(-1) / 2 - (P.diagonal() * v).sum(-1) / 2


def function_update(
    mu: Tensor, v: Tensor, concentration: Tensor, mean_Z: Tensor, m: Tensor, P: Tensor, steps: int = 5
) -> tuple[Tensor, Tensor]:
    """Maximises `function_bound`: Newton for mu, halved where it would overshoot, and for v its fixed point."""
    for _ in range(steps):
        weight = mean_Z * (-mu + v / 2).exp()  # (B, K)
        gradient = weight - concentration - (mu - m) @ P
        factor = torch.linalg.cholesky(torch.diag_embed(weight) + P)
        direction = torch.cholesky_solve(gradient.unsqueeze(-1), factor).squeeze(-1)
        size = torch.ones_like(mu[:, :1])
        before = function_bound(mu, v, concentration, mean_Z, m, P)
        for _ in range(8):
            worse = function_bound(mu + size * direction, v, concentration, mean_Z, m, P) < before - 1e-9 * before.abs()
            if not worse.any():
                break
            size[worse] /= 2
        size[worse] = 0
        mu = mu + size * direction
        for _ in range(5):
            v = 1 / (P.diagonal() + mean_Z * (-mu + v / 2).exp())
    return mu, v


class GaussianFunction(Rule):
    """q(f_n) = N(mu_n, diag v_n), from a fixed point with q(Z) and q(C); m and S by their closed forms.

    Args:
        model: the DILN that f belongs to, or another with a Gaussian f of its own.
        rounds: alternations of the update of f with sweeps over Z and C.
        steps: Newton steps for f in a round.
        loadings, topics, sticks: names of the sites Z, theta and V.
    """

    summary = "Gaussian for each document, Newton and fixed point (DILN)"

    def __init__(
        self,
        model: TopicModel,
        rounds: int = 4,
        steps: int = 1,
        *,
        loadings: str = "Z",
        topics: str = "theta",
        sticks: str = "V",
    ) -> None:
        super().__init__()
        self._model, self.rounds, self.steps = (model,), rounds, steps
        self.loadings, self.topics, self.sticks = loadings, topics, sticks
        self.needs, self.moments = (loadings,), (topics,)
        self._pending: list[Tensor] = []

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = prototype.site(name)["fn"]
        if not isinstance(fn, torch.distributions.MultivariateNormal):
            return f"the prior of {name} is {type(fn).__name__}, not MultivariateNormal."
        return None

    @torch.no_grad()
    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        if name in run.held:
            mu, v = run.held[name]
        else:
            mu, v = self._fixed_point(prior, run)
        run.local[name] = (mu, v)
        return dist.Normal(mu.unsqueeze(-2), v.sqrt().unsqueeze(-2)).to_event(1)

    def _fixed_point(self, prior: Any, run: Run) -> tuple[Tensor, Tensor]:
        batch, m, P = run.batch, prior.loc[0, 0], prior.precision_matrix[0, 0]
        c = self._model[0].concentration(run.value(self.sticks))
        elog_theta = expected_log_rows(run.posterior(self.topics), run.value(self.topics), batch.words)
        before = run.started.get(self.loadings)
        start = None if before is None else (before.step.concentration, before.step.rate)
        mu, v = m.expand(batch.size, -1), (1 / P.diagonal()).expand(batch.size, -1)
        mu, v = run.started.get("f", (mu, v))
        rule: Any = run.rules[self.loadings]
        limits: dict[str, Any] = (
            {"max_sweeps": rule.max_sweeps, "by_mean": rule.by_mean} if isinstance(rule, GammaLoadings) else {}
        )
        for _ in range(self.rounds):
            e = (-mu + v / 2).exp()
            step = local_step(
                batch.indptr, batch.local_word, batch.count, elog_theta, c, e, start=start, **limits,
            )  # fmt: skip
            start = step.concentration, step.rate
            mu, v = function_update(mu, v, c, step.concentration / step.rate, m, P, self.steps)
        run.started = {**run.started, self.loadings: Local(step, elog_theta)}
        return mu, v

    def placeholder(self, posterior: Any) -> Tensor:
        return posterior.mean

    def is_constant(self, name: str, run: Run) -> bool:
        return True

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        prior, q = run.prior(name), run.posterior(name).base_dist
        mu, v = (x.squeeze(-2).double() for x in (q.loc, q.variance))
        m, P = prior.loc[0, 0].double(), prior.precision_matrix[0, 0].double()
        value = function_bound(mu, v, torch.zeros_like(m), torch.zeros_like(mu), m, P)
        value = value + (mu.shape[-1] + P.logdet()) / 2
        return run.scaled_sum(name, value.unsqueeze(-1))

    @torch.no_grad()
    def gather(self, name: str, run: Run, scale: float | None = None) -> None:
        mu, v = (x.double() for x in run.local[name])
        parts = [torch.tensor(float(len(mu))), mu.sum(0), mu.mT @ mu, v.sum(0)]
        self._pending = [a + b for a, b in zip(self._pending, parts, strict=True)] if self._pending else parts

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        """m = mean of mu, S = mean of (mu - m)(mu - m)' + diag v, with a small ridge."""
        if not self._pending:
            return
        number, total, squares, variances = self._pending
        mean = total / number
        ridge = torch.full_like(mean, _RIDGE)
        covariance = squares / number - torch.outer(mean, mean) + torch.diag(variances / number + ridge)
        model: Any = self._model[0]
        model.mean.lerp_(mean.to(model.mean.dtype), rate)
        model.covariance.lerp_(covariance.to(model.mean.dtype), rate)
        self._pending = []
