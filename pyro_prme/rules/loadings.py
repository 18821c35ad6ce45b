"""The rule for Z: Gamma loadings that are normalised into topic proportions (eq. update_z)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.checks import choice
from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.bounds import elog_gamma_loadings, gamma_entropy, profiled_loadings
from pyro_prme.equations.expectations import expected, expected_exp_neg, expected_log, expected_log_rows
from pyro_prme.equations.updates import loadings_update
from pyro_prme.kernels import LocalStep, local_step
from pyro_prme.prototype import Draw, Prototype
from pyro_prme.rules.base import Rule, Run, register

__all__ = ["GammaLoadings", "Local"]


class Local(NamedTuple):
    """What an E-step leaves behind for a batch."""

    step: LocalStep
    elog_theta: Tensor  # (W, K), of the batch's distinct words


def one_row(x: Tensor) -> Tensor:
    """The first row of a tensor (B, K) whose rows are one, expanded by a plate; any other as it is."""
    return x[:1] if x.dim() == 2 and x.stride(0) == 0 else x


@register("Z")
class GammaLoadings(Rule):
    r"""q(Z_nk) = Gamma(a_nk, rate_nk) from the fixed point of eq. update_z and eq. update_c, epsilon solved.

    The fixed point over Z and C is run here; the rule for C reads its result.

    Differs from the paper where `by_mean` says so: phi is then formed by ln E Z in place of E ln Z. exp(E ln Z) is next
    to nothing for a topic with less than about one word of a document, so that the topics of short documents are
    decided by who is first (`benchmarks/paper/NOTES.md`). The bound reported stays a bound, at a phi that is not its
    maximum. f and V are trained on the counts of one more sweep, by E ln Z: by E Z every topic gets some of its shape
    back as counts, which says of all topics that they are used, and flattens f.

    Args:
        objective: "profiled" gives f and V the gradient of the bound with q(Z) maximised out (the same at the current
            q(Z), and bounded elsewhere), "plain" that at a fixed q(Z), as the paper.
        by_mean: see above.
        max_sweeps: most sweeps over Z and C.
        tolerance: a document stops when the change of its a_n, summed over topics, falls below tolerance times M_n.
        scale, assignment, topics: names of the sites f, C and theta.
    """

    summary = "Gamma, closed form (eq. update_z)"

    def __init__(
        self,
        objective: str = "profiled",
        *,
        by_mean: bool = False,
        max_sweeps: int = 20,
        tolerance: float = 1e-3,
        scale: str = "f",
        assignment: str = "C",
        topics: str = "theta",
    ) -> None:
        super().__init__()
        choice("objective", objective, ("profiled", "plain"))
        self.by_mean = by_mean
        self.objective, self.max_sweeps, self.tolerance = objective, max_sweeps, tolerance
        self.scale, self.assignment, self.topics = scale, assignment, topics
        self.needs = (assignment,)
        self.moments = (scale, topics)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        if self.assignment not in prototype:
            return f"there is no site {self.assignment} that {name} could be the loadings of."
        if not prototype.has_batch:
            return "the model was called without a Batch, whose entries the fixed point needs."
        if reason := self.prior_refusal(name, prototype):
            return reason
        for draw in prototype:
            Z, assignment = draw.value(name), draw.site(self.assignment)["fn"]
            proportions = getattr(assignment, "probs", None)
            rows = (Z / Z.sum(-1, keepdim=True))[draw.batch.document]
            if (
                proportions is None
                or proportions.shape != rows.shape
                or not torch.allclose(proportions, rows, rtol=1e-4)
            ):
                return f"the probabilities of {self.assignment} are not {name} divided by its sum over topics."
            if reason := draw.scale_refusal(name, self.assignment):
                return reason
        others = prototype.children(name) - {self.assignment}
        if others:
            return f"{' and '.join(sorted(others))} also depends on {name}, beside {self.assignment}."
        return None

    def prior_refusal(self, name: str, prototype: Prototype) -> str | None:
        """Why the prior is not Gamma with rate exp(-f) and a shape without f, or None when it is.

        An f that is a function of other sites, and not random itself, may stand in both: they are then known.
        """
        return next(filter(None, (self._draw_refusal(name, draw) for draw in prototype)), None)

    def _draw_refusal(self, name: str, draw: Draw) -> str | None:
        prior = draw.site(name)["fn"]
        if not isinstance(prior, torch.distributions.Gamma):
            return f"the prior of {name} is {type(prior).__name__}, not Gamma."
        if self.scale not in draw or name not in draw.children(self.scale):
            return None
        if isinstance(draw.site(self.scale)["fn"], dist.Delta):
            return None
        f = draw.value(self.scale)
        if f.numel() != prior.rate.numel() or not torch.allclose(
            prior.rate, (-f).exp().reshape(prior.rate.shape), rtol=1e-4
        ):
            return f"the rate of {name} is not exp(-{self.scale})."
        moved = draw.intervene(self.scale).site(name)["fn"]
        if not torch.equal(moved.concentration, prior.concentration):
            return f"the shape of {name} depends on {self.scale}."
        return None

    def _moments_of_f(self, prior: dist.Gamma, run: Run) -> tuple[Tensor, Tensor]:
        """E[f] and E[exp(-f)], each (B, K), f being minus the logarithm of the rate; known where f is not random."""
        if run.has(self.scale) and not isinstance(run.posterior(self.scale), dist.Delta):
            q, value = run.posterior(self.scale), run.value(self.scale)
            return expected(q, value).reshape(prior.batch_shape), expected_exp_neg(q, value).reshape(prior.batch_shape)
        return -prior.rate.log(), prior.rate

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        batch, held = run.batch, run.held.get(name)
        with torch.no_grad():
            _, exp_neg_f = self._moments_of_f(prior, run)
            c = prior.concentration.expand(batch.size, -1)
            if held is None:
                before = run.started.get(name)
                elog_theta = expected_log_rows(run.posterior(self.topics), run.value(self.topics), batch.words)
                step = local_step(
                    *(batch.indptr, batch.local_word, batch.count, elog_theta, c, exp_neg_f),
                    max_sweeps=self.max_sweeps,
                    tolerance=self.tolerance,
                    start=None if before is None else (before.step.concentration, before.step.rate),
                    by_mean=self.by_mean,
                )
            else:
                step, elog_theta = held
                a, rate = loadings_update(c, step.counts, exp_neg_f, batch.length, step.epsilon)
                step = step._replace(concentration=a, rate=rate)
        run.local[name] = Local(step, elog_theta)
        return dist.Gamma(step.concentration, step.rate, validate_args=False)

    def placeholder(self, posterior: Any) -> Tensor:
        return torch.ones(()).expand(posterior.batch_shape)

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        prior, q = run.prior(name), run.posterior(name)
        mean_f, exp_neg_f = self._moments_of_f(prior, run)
        c = one_row(prior.concentration)
        if self.objective == "plain":
            elog = expected_log(q, run.value(name))
            value = elog_gamma_loadings(c, mean_f, exp_neg_f, q.mean, elog)
            return run.scaled_sum(name, value + self._entropy(q))
        step, elog_theta = run.local[name]
        slope = self.slope(run, step)
        if self.by_mean and name in run.held:
            step = self._sweep(run.batch, run.held[name].step, elog_theta, prior.concentration, exp_neg_f)
        whole = exp_neg_f + slope  # of the two, only the sum matters
        value = profiled_loadings(c, step.counts, mean_f, whole, whole.new_zeros(1))
        if run.constants:
            value = value - (step.counts * expected_log(q, run.value(name)) - slope * q.mean)
        return run.scaled_sum(name, value)

    @staticmethod
    @torch.no_grad()
    def _sweep(batch: Batch, before: LocalStep, elog_theta: Tensor, c: Tensor, exp_neg_f: Tensor) -> LocalStep:
        """One sweep by E ln Z from what the E-step found."""
        where = batch.indptr, batch.local_word, batch.count
        start = before.concentration, before.rate
        return local_step(*where, elog_theta, c.expand(batch.size, -1), exp_neg_f, max_sweeps=1, start=start)

    @staticmethod
    def _entropy(q: Any) -> Tensor:
        return gamma_entropy(q.concentration, q.rate)

    def slope(self, run: Run, step: LocalStep) -> Tensor:
        """What multiplies -Z in the likelihood's bound, here M_n / epsilon_n, broadcastable to (B, K)."""
        return (run.batch.length / step.epsilon).unsqueeze(-1)
