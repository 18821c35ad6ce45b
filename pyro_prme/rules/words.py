"""Rules for the words: C (eq. update_c), theta (eq. update_eta) and the expected log likelihood of X."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.equations.bounds import (
    dirichlet_term,
    elog_sum_epsilon,
    elog_sum_particles,
    elog_sum_quadrature,
    point_topics_term,
)
from pyro_prme.equations.expectations import expected_log, expected_log_rows
from pyro_prme.equations.updates import assignment_probabilities
from pyro_prme.kernels import LocalStep
from pyro_prme.kernels.gamma import DigammaRows, add_rows_, natural_step_, sum_of_rows
from pyro_prme.kernels.sums import inner
from pyro_prme.models.distributions import ImpliedAssignment, WordMajorDirichlet, WordMajorPoint
from pyro_prme.prototype import Prototype
from pyro_prme.rules.base import Rule, Run, register
from pyro_prme.rules.loadings import Local

__all__ = ["Assignment", "DirichletTopics", "PointTopics", "Words"]


@register("C")
class Assignment(Rule):
    """q(C_nm) = Disc(phi_nm), implied by E ln Z and E ln theta and never stored (eq. update_c).

    Args:
        loadings, topics, words: names of the sites Z, theta and X.
    """

    summary = "categorical, phi implied (eq. update_c)"

    def __init__(self, *, loadings: str = "Z", topics: str = "theta", words: str = "X") -> None:
        super().__init__()
        self.loadings, self.topics, self.words = loadings, topics, words
        self.needs = (words,)
        self.moments = (loadings, topics)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        if self.words not in prototype:
            return f"there is no site {self.words} that {name} could be the topics of."
        others = prototype.children(name) - {self.words}
        if others:
            return f"{' and '.join(sorted(others))} also depends on {name}, beside {self.words}."
        for draw in prototype:
            if not hasattr(draw.site(name)["fn"], "probs"):
                return f"{name} is {type(draw.site(name)['fn']).__name__}, not a categorical choice of a topic."
        return None

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        batch = run.batch
        if self.loadings not in run.local:
            run.local[self.loadings] = self._from_drawn_loadings(run)
        step, elog_theta = run.local[self.loadings]
        return ImpliedAssignment(step.elog_loadings, elog_theta, batch.document, batch.local_word)

    @torch.no_grad()
    def _from_drawn_loadings(self, run: Run) -> Local:
        """The same quantities for loadings without a closed form: one update of phi, given E ln Z or a draw of Z."""
        batch, q, Z = run.batch, run.posterior(self.loadings), run.value(self.loadings)
        elog_theta = expected_log_rows(run.posterior(self.topics), run.value(self.topics), batch.words)
        elog = expected_log(q, Z)  # (B, K)
        logits = elog[batch.document] + elog_theta[batch.local_word]
        weighted = batch.count.unsqueeze(-1) * assignment_probabilities(
            elog[batch.document], elog_theta[batch.local_word]
        )
        counts = torch.zeros_like(elog).index_add_(0, batch.document, weighted)
        statistics = torch.zeros_like(elog_theta).index_add_(0, batch.local_word, weighted)
        nothing = torch.zeros(batch.size)
        step = LocalStep(counts, counts, counts, nothing, elog, logits.logsumexp(-1), statistics, nothing.long())
        return Local(step, elog_theta)

    def placeholder(self, posterior: Any) -> Tensor:
        return torch.zeros((), dtype=torch.int64).expand(posterior.batch_shape)

    def is_constant(self, name: str, run: Run) -> bool:
        return isinstance(run.posterior(self.loadings), torch.distributions.Gamma)

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        """Sum over entries of E ln p(C | Z) + H[q(C)], from the words' log-normalisers: no entries x topics table."""
        batch, (step, elog_theta) = run.batch, run.local[self.loadings]
        q, Z = run.posterior(self.loadings), run.value(self.loadings)
        entropy = (
            inner(batch.count, step.log_normalizer)
            - inner(step.counts, step.elog_loadings)
            - inner(step.statistics, elog_theta)
        )
        elog = (step.counts * expected_log(q, Z)).sum(dtype=torch.float64)
        normalizer = (batch.length.double() * self._elog_sum(q, Z, step, bound)).sum()
        return run.scale(self.loadings) * (entropy + elog - normalizer)

    @staticmethod
    def _elog_sum(q: Distribution, Z: Tensor, step: LocalStep, bound: str) -> Tensor:
        if not isinstance(q, torch.distributions.Gamma):
            return Z.sum(-1).log().double()
        if bound == "quadrature":
            return elog_sum_quadrature(q.concentration, q.rate)
        if bound == "particles":
            return elog_sum_particles(q.concentration, q.rate).double()
        return elog_sum_epsilon(q.mean.double(), step.epsilon.double())


@register("X")
class Words(Rule):
    """Expected log likelihood of the words, sum over k of phi_nm(k) E ln theta_kx.

    Args:
        assignment, topics, loadings: names of the sites C, theta and Z.
    """

    summary = "expected log likelihood, theta[C, x]"
    observed = True

    def __init__(self, *, assignment: str = "C", topics: str = "theta", loadings: str = "Z") -> None:
        super().__init__()
        self.assignment, self.topics, self.loadings = assignment, topics, loadings
        self.moments = (assignment, topics)

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        for missing in {self.assignment, self.topics} - set(prototype.names):
            return f"there is no site {missing} that {name} could be drawn from."
        for draw in (*prototype, *(draw.intervene(self.assignment) for draw in prototype)):
            theta, topic, word = draw.value(self.topics), draw.value(self.assignment), draw.value(name)
            if theta.dim() != 2 or int(topic.max()) >= theta.shape[0] or int(word.max()) >= theta.shape[1]:
                return f"{self.topics} is not a topics x words table for {name}."
            if not torch.allclose(draw.log_prob(name), theta[topic, word].log(), rtol=1e-4, atol=1e-5):
                return f"the density of {name} is not {self.topics}[{self.assignment}, x]."
        return None

    def is_constant(self, name: str, run: Run) -> bool:
        return not run.value(self.topics).requires_grad

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        step, elog_theta = run.local[self.loadings]
        if (
            run.held or run.value(self.topics).requires_grad
        ):  # phi was formed under another q(theta), or needs a gradient
            elog_theta = expected_log_rows(run.posterior(self.topics), run.value(self.topics), run.batch.words)
        if elog_theta.requires_grad:
            return run.scale(self.loadings) * (step.statistics * elog_theta).sum(dtype=torch.float64)
        return run.scale(self.loadings) * inner(step.statistics, elog_theta)


@register("theta")
class DirichletTopics(Rule):
    """q(theta_k) = Dir(gamma_k), moved by natural steps (eq. update_eta, eq. stochastic_update_eta).

    gamma is a word-major buffer (D, K), so that a word's row is contiguous; `topics()` has the users' (K, D).

    Args:
        words, loadings: names of the sites X and Z.
    """

    summary = "Dirichlet, natural step (eq. update_eta)"
    slow = True
    gamma: Tensor
    total: Tensor
    pending: Tensor

    def __init__(self, *, words: str = "X", assignment: str = "C", loadings: str = "Z") -> None:
        super().__init__()
        self.words, self.assignment, self.loadings = words, assignment, loadings
        self.needs = (assignment, words)
        self._digamma = DigammaRows()

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        fn = prototype.site(name)["fn"]
        if not isinstance(fn, torch.distributions.Dirichlet):
            return f"the prior of {name} is {type(fn).__name__}, not Dirichlet."
        others = prototype.children(name) - {self.words}
        if others:
            return f"{' and '.join(sorted(others))} also depends on {name}, beside {self.words}."
        return None

    def setup(self, name: str, prototype: Prototype) -> None:
        prior, draw = prototype.site(name)["fn"].concentration, prototype.value(name)
        self._prior = prior.detach()
        self.register_buffer("gamma", (self._prior + 100 * draw).mT.contiguous())
        self.register_buffer("total", self.gamma.sum(0))
        self.register_buffer("pending", torch.zeros_like(self.gamma), persistent=False)

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        self._prior = prior.concentration.detach()
        return WordMajorDirichlet(self.gamma, self.total, self._digamma)

    def placeholder(self, posterior: Any) -> Tensor:
        return torch.ones(()).expand(posterior.batch_shape + posterior.event_shape)

    def is_constant(self, name: str, run: Run) -> bool:
        return not run.prior(name).concentration.requires_grad

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        return run.scaled_sum(
            name, dirichlet_term(run.prior(name).concentration.mT, run.posterior(name).concentration.mT)
        )

    @torch.no_grad()
    def gather(self, name: str, run: Run, scale: float | None = None) -> None:
        statistics = run.local[self.loadings].step.statistics
        weight = run.scale(self.loadings) if scale is None else scale
        add_rows_(self.pending, run.batch.words, statistics, float(weight))

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        prior = self.prior().expand_as(self.gamma)
        shared = prior.stride(1) == 0  # the same for all topics
        self.total.copy_(natural_step_(self.gamma, self.pending, prior[:, :1] if shared else prior, rate))

    @torch.no_grad()
    def set(self, gamma: Tensor) -> None:
        """Replaces gamma, word-major (D, K), and forgets the pending statistics."""
        self.gamma.copy_(gamma)
        self.total.copy_(sum_of_rows(self.gamma))
        self.pending.zero_()

    def prior(self) -> Tensor:
        """gamma0 as the model had it last, word-major, broadcastable to (D, K)."""
        return self._prior.mT

    def rows(self, words: Tensor) -> Tensor:
        """E theta of some words, word-major, shape (W, K)."""
        return self.gamma[words].div_(self.total)

    def topics(self) -> Tensor:
        """E theta, shape (K, D)."""
        return (self.gamma / self.total).mT


class PointTopics(DirichletTopics):
    """theta_k is a point, the largest posterior density on the scale of log ratios (`bounds.point_topics_term`).

    The update is that of eq. update_eta, gamma = gamma0 + n, and the point is gamma_k divided by its sum: the E-step
    sees ln E theta in place of E ln theta.

    Differs from the paper: q(theta_k) there is Dir(gamma_k). Its E ln theta counts a word that a topic has seen x times
    like about x - 1/2 times, and one seen less than once next to never, so that the paper's topics are too sparse: as
    points they predict held-out words better (`benchmarks/paper/NOTES.md`), with gamma0 of 0.05 or less.
    """

    summary = "point mass on the scale of log ratios (eq. update_eta)"

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        self._prior = prior.concentration.detach()
        return WordMajorPoint(self.gamma, self.total)

    def term(self, name: str, run: Run, bound: str) -> Tensor:
        return run.scaled_sum(name, point_topics_term(run.prior(name).concentration.mT, self.gamma))
