"""A Gaussian factor for a function that scales the loadings of topics, such as DILN's f: Newton and a fixed point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy import Factors, Structure
from pyro_prme.conjugacy.families import Family, GivenNormal
from pyro_prme.conjugacy.families.base import unwrapped
from pyro_prme.conjugacy.program import Program
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.inference.claims import Claim, Refusal, Rule
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.topics.claim import TopicFactors

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run

__all__ = ["FunctionFactors", "GaussianFunction", "function_bound", "function_update"]

_RIDGE = 1e-3  # on the diagonal of S

#: Takes the mean (K,) and the covariance (K, K) that the prior of f should move to, and how far.
Learn = Callable[[Tensor, Tensor, float], None]


def function_bound(mu: Tensor, v: Tensor, concentration: Tensor, mean_Z: Tensor, m: Tensor, P: Tensor) -> Tensor:
    r"""The part of the bound that holds q(f_n) = N(mu_n, diag v_n), up to a constant.

    .. math:: \sum_k \left[-\beta p_k \mu_{nk} - E[Z_{nk}] e^{-\mu_{nk} + v_{nk}/2} + \tfrac12 \ln v_{nk}\right]
              - \tfrac12 (\mu_n - m)^\top S^{-1} (\mu_n - m) - \tfrac12 \mathrm{tr}(S^{-1} \mathrm{diag}\, v_n)

    Args:
        mu, v: shape (B, K).
        concentration: beta p, shape (K,) or (B, K).
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


class Function(NamedTuple):
    """q(f_n) = N(mu_n, diag v_n) of the documents of a batch, each (B, K)."""

    mu: Tensor
    v: Tensor


@dataclass(frozen=True)
class GaussianFunction(Rule):
    """Claims the first free site with a multivariate Normal prior for each document.

    Other sites must see it linearly and through exp(-f) alone, as the scale of Gamma loadings does; a run checks it.

    Args:
        learn: moves the prior's mean and covariance to their closed forms, m = mean of mu and S = mean of
            (mu - m)(mu - m)' + diag v, with a small ridge; None leaves the prior to the model.
        rounds: alternations of the update of f with sweeps over loadings and assignments.
        steps: Newton steps for f in a round.
    """

    learn: Learn | None = None
    rounds: int = 4
    steps: int = 1

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        reasons: dict[str, str] = {}
        for name in free:
            fn = structure.trace.nodes[name]["fn"]
            prior = unwrapped(fn)
            if not isinstance(prior, torch.distributions.MultivariateNormal):
                reasons[name] = f"its prior is {type(prior).__name__}, and a function needs a multivariate Normal"
            elif fn.batch_shape.numel() != max(fn.batch_shape, default=0):
                reasons[name] = "its prior has more than one dimension beside those of one document"
            else:
                return FunctionFactors(self, name)
        return Refusal(reasons)


class FunctionFactors(Claim):
    """q(f_n), found anew in each run together with the loadings.

    Args:
        rule: whose options hold.
        name: of the site.
    """

    family: type[Family] = GivenNormal

    def __init__(self, rule: GaussianFunction, name: str) -> None:
        super().__init__()
        self.rule = rule
        self.sites = self.covered = (name,)
        self._pending: list[Tensor] = []

    def title(self, name: str) -> str:
        return "Normal for each document, Newton and fixed point"

    @torch.no_grad()
    def solve(
        self,
        sites: Mapping[str, Site],
        factors: Factors,
        options: RunOptions,
        args: Sequence[Any],
        topics: Sequence[TopicFactors],
    ) -> tuple[dict[str, Any], RunOptions]:
        """The factor of a run, and options from which the loadings go on.

        Args:
            sites: of the run.
            factors: of all sites whose factors are known.
            options: of the run.
            args: what the model was called with.
            topics: claims whose loadings the function scales.
        """
        (name,) = self.sites
        held = options.held.get(name)
        if held is not None:
            self._put(factors, held)
            return {name: held}, options
        m, P = prior_of(sites[name])
        rows = sites[name].fn.batch_shape.numel()
        found = options.started.get(name) or Function(m.expand(rows, -1), (1 / P.diagonal()).expand(rows, -1))
        self._put(factors, found)
        read = {claim: claim.read(sites, args) for claim in topics}
        read = {claim: r._replace(elog_theta=claim.elog_rows(r.batch)) for claim, r in read.items()}
        for _ in range(self.rule.rounds):
            for claim in topics:
                options = replace(
                    options, started={**options.started, **claim.solve(sites, factors, options, args, read=read[claim])}
                )
            concentration, mean_Z = self._slopes(factors)
            mu, v = function_update(found.mu, found.v, concentration, mean_Z, m, P, self.rule.steps)
            found = Function(mu, v)
            self._put(factors, found)
        return {name: found}, options

    def _put(self, factors: Factors, found: Function) -> None:
        """Gives the factor's statistics to the other sites."""
        family = factors.program.families[self.sites[0]]
        precision = (1 / found.v).reshape(family.shape)
        natural = {"x": precision * found.mu.reshape(family.shape), "xx": -0.5 * precision}
        means = family.means(natural)
        factors.elsewhere[self.sites[0]] = partial(_same, means)

    def _slopes(self, factors: Factors) -> tuple[Tensor, Tensor]:
        """What other sites' densities have of -f and of -exp(-f), each (B, K)."""
        (name,) = self.sites
        program, shape = factors.program, factors.program.families[name].shape
        keys = statistics_of(program, name)
        powers = [key for key in keys if key != "x"]
        if not all(key.startswith("exp:") and float(key.removeprefix("exp:")) == -1 for key in powers):
            raise ValueError(
                f"The Gaussian update of {name} needs a model that has it linearly and as exp(-{name}) alone, such as "
                "the logarithm of the scale of Gamma loadings: give another rule for it."
            )
        empty = {key: torch.zeros(shape) for key in (*keys, "x")}
        target = program.target(name, factors.statistics(), empty)
        exponential = sum((target[key] for key in powers), start=torch.zeros(shape))
        return -target["x"].reshape(-1, shape[-1]), -exponential.reshape(-1, shape[-1])

    def factor(self, name: str, run: Run) -> Distribution:
        found: Function = run.local[name]
        shape = run.sites[name].fn.shape()
        return dist.Normal(found.mu.reshape(shape), found.v.sqrt().reshape(shape)).to_event(1)

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        return {name: self._term(run, name) for name in names}

    def objective(self, run: Run) -> dict[str, Tensor]:
        (name,) = self.sites
        m, P = prior_of(run.sites[name])
        return {name: self._term(run, name) if m.requires_grad or P.requires_grad else torch.zeros(())}

    @staticmethod
    def _term(run: Run, name: str) -> Tensor:
        """E ln p(f) + H[q(f)]."""
        mu, v = (x.double() for x in run.local[name])
        m, P = (x.double() for x in prior_of(run.sites[name]))
        value = function_bound(mu, v, torch.zeros_like(m), torch.zeros_like(mu), m, P)
        value = value + (mu.shape[-1] + P.logdet()) / 2
        site = run.sites[name]
        return (value.reshape(site.fn.batch_shape) * site.weight).sum()

    @torch.no_grad()
    def gather(self, run: Run, share: float = 1.0) -> None:
        """Adds sums over a batch's documents, whose plate gives all of them one weight."""
        if self.rule.learn is None:
            return
        mu, v = (x.double() for x in run.local[self.sites[0]])
        parts = [torch.tensor(float(len(mu))).double(), mu.sum(0), mu.mT @ mu, v.sum(0)]
        weight = share * float(run.sites[self.sites[0]].weight.reshape(-1)[0])
        parts = [weight * part for part in parts]
        self._pending = [a + b for a, b in zip(self._pending, parts, strict=True)] if self._pending else parts

    def pending_parts(self) -> dict[str, Tensor]:
        return {str(i): part for i, part in enumerate(self._pending)}

    def restore_pending(self, parts: Mapping[str, Tensor]) -> None:
        self._pending = [parts[str(i)] for i in range(len(parts))]
        if len(parts) != 4 or parts["2"].shape != 2 * parts["1"].shape:
            raise ValueError("What is pending of the random function does not fit together.")

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        """Moves the prior's mean and covariance towards their closed forms."""
        if not self._pending or self.rule.learn is None:
            return
        number, total, squares, variances = self._pending
        mean = total / number
        ridge = torch.full_like(mean, _RIDGE)
        covariance = squares / number - torch.outer(mean, mean) + torch.diag(variances / number + ridge)
        self.rule.learn(mean, covariance, rate)
        self._pending = []


def prior_of(site: Site) -> tuple[Tensor, Tensor]:
    """Mean and precision of the prior of one document, all documents having the same."""
    prior = unwrapped(site.fn)
    size = prior.event_shape[-1]
    return prior.loc.reshape(-1, size)[0], prior.precision_matrix.reshape(-1, size, size)[0]


def statistics_of(program: Program, name: str) -> tuple[str, ...]:
    """Which statistics of a variable the densities ask for."""
    terms = [term for _, parts in program.parts.values() for term in parts if name in term.names]
    return tuple(dict.fromkeys(o.statistic for term in terms for o in term.operands if o.name == name))


def _same(x: Any) -> Any:
    return x
