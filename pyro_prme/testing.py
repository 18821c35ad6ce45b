"""Tells whether a rule of one's own is right. Open it when you have written a `Rule` and before you trust its numbers.

A rule is right when its posterior maximises the bound given the others, its term is what draws say it is, and its
terms and statistics on batches average to those of the whole. `check_rule` looks at all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme._parameters import base_of, free_parameters, with_parameters
from pyro_prme._rule_copies import copied, stepped
from pyro_prme.batch import Batch
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.expectations import natural_parameters
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.prototype import eval_mode
from pyro_prme.rules import Run

__all__ = ["Check", "RuleError", "RuleReport", "check_rule"]

_DIRECTIONS, _STEPS = 8, (1e-3, 1e-2, 1e-1)


class RuleError(ValueError):
    """A rule is wrong; the message is one sentence."""


class Check(NamedTuple):
    """One thing that was looked at. `seen` is False where it could not be told."""

    name: str
    seen: bool
    detail: str


@dataclass(frozen=True)
class RuleReport:
    """What `check_rule` looked at and found right."""

    site: str
    rule: str
    checks: list[Check] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [f"{c.name:<12} {'holds' if c.seen else 'not seen'}: {c.detail}" for c in self.checks]
        return "\n".join([f"{self.rule} at site {self.site}", *rows])

    def seen(self, name: str) -> bool:
        """Whether the check of this name could be made (and held)."""
        return any(check.name == name and check.seen for check in self.checks)


def check_rule(
    guide: ClosedFormGuide,
    *args: Any,
    site: str,
    parts: Sequence[tuple[Any, ...]] | None = None,
    below: bool = False,
    particles: int = 300,
    tolerance: float = 1e-5,
    seed: int = 0,
) -> RuleReport:
    r"""Checks the rule of one site: stationary, its term against draws, subsampling without bias.

    * Stationary: with everything else held, the gradient of the bound in the posterior's parameters vanishes and small
      moves do not raise the bound. A rule with natural steps is looked at after one of rate 1. Rules that are
      moved by gradients, and q = p, are left out: they make no such claim. The bound is read through
      `run.posterior(site)`: a term that does not read it (a profiled one) shows nothing here.
    * Particles: the rule's term and the whole bound against the mean over draws from the guide of
      ln p - ln q, within four standard errors. Point masses are left out on both sides. A rule with natural steps is
      looked at half a step on, where it is neither the prior nor the optimum.
    * Subsampling: the size-weighted mean of the rule's term over parts of the data equals that of the whole, and so do
      the natural parameters after a natural step of rate 1.

    The guide is left as it was, and so is the random state. Evaluation mode is used.

    Args:
        guide: holds the rule.
        args: what the model is called with.
        site: whose rule to check.
        parts: arguments for parts of the data of equal size that together are `args`; documents of a `Batch` are split
            in two by default, and without either this check is left out.
        below: the rules bound the likelihood, so that the bound may lie below what draws say, and must not lie above.
        particles: number of draws.
        tolerance: relative size of the gradient that counts as zero.
        seed: of the draws.

    Returns:
        What was looked at.

    Raises:
        RuleError: the rule is wrong, with the first reason.
    """
    guide.plan(*args)
    if site not in guide.rules:
        raise RuleError(f"Site {site} has no rule: the plan has {', '.join(guide.rules)}.")
    report = RuleReport(site, type(guide.rule(site)).__name__)
    with torch.random.fork_rng(devices=[]), eval_mode(guide.model, guide):
        torch.manual_seed(seed)
        _check_form(guide, args, site)
        report.checks.append(_stationary(guide, args, site, tolerance))
        report.checks.append(_particles(guide, args, site, below, particles))
        report.checks.append(_subsampling(guide, args, site, parts))
    return report


@torch.no_grad()
def _check_form(guide: ClosedFormGuide, args: tuple, site: str) -> None:
    """Refuses a posterior that is no distribution, or is not of the site's shape."""
    with copied(guide, site) as rule:
        given = rule.posterior

        def posterior(name: str, prior: Any, run: Run) -> Any:
            q = given(name, prior, run)
            if not isinstance(q, Distribution | Tensor):
                raise RuleError(
                    f"The posterior of {name} is {type(q).__name__}: it must be a distribution, or a tensor of a point."
                )
            shape, expected = (x.shape if isinstance(x, Tensor) else x.batch_shape + x.event_shape for x in (q, prior))
            if any(a not in (1, b) for a, b in zip_longest(shape[::-1], expected[::-1], fillvalue=1)):
                raise RuleError(f"The posterior of {name} has shape {tuple(shape)}, and the site {tuple(expected)}.")
            return q

        rule.posterior = posterior
        guide.expectations(*args)


# stationarity


def _stationary(guide: ClosedFormGuide, args: tuple, site: str, tolerance: float) -> Check:
    name = "stationary"
    with copied(guide, site) as rule, torch.no_grad():
        if rule.observed:
            return Check(name, False, "the site is observed and has no posterior.")
        if any(True for _ in rule.parameters()):
            return Check(name, False, "the rule is moved by gradients.")
        run = guide.expectations(*args)
        if stepped(rule, site, run, 1.0):
            run.trace.nodes[site]["fn"] = rule.posterior(site, run.prior(site), run)
        q = run.posterior(site)
        if q is run.prior(site):
            return Check(name, False, "the posterior is the prior, and claims no optimum.")
        run.held = dict(run.local)
        free = free_parameters(q)
        if not free:
            return Check(name, False, f"the parameters of {type(q).__name__} are not at hand.")
        start = _bound(run, site, q, free)
        size = max(1.0, abs(float(start)))
        seen = False
        for _ in range(_DIRECTIONS):
            direction = {key: torch.randn_like(value) for key, value in free.items()}
            for step in _STEPS:
                for sign in (step, -step):
                    moved = {key: value + sign * direction[key] for key, value in free.items()}
                    rise = float(_bound(run, site, q, moved) - start)
                    seen = seen or abs(rise) > 1e-12 * size
                    if rise > 1e-9 * size:
                        raise RuleError(
                            f"The posterior of {site} is not stationary: a move of {step:g} of its parameters raises "
                            f"the bound by {rise:.3g}."
                        )
        if not seen:
            return Check(name, False, "the bound does not read the posterior.")
        return Check(name, True, _gradient(run, site, q, free, tolerance))


def _gradient(run: Run, site: str, q: Distribution, free: dict[str, Tensor], tolerance: float) -> str:
    """Compares the gradient at the posterior with that a little way off."""
    norms = []
    with torch.enable_grad():
        for shift in (0.0, 0.1):
            leaves = {key: (value + shift).requires_grad_() for key, value in free.items()}
            bound = _bound(run, site, q, leaves)
            if not bound.requires_grad:
                return "small moves do not raise the bound (no gradient passes through the terms)."
            gradients = torch.autograd.grad(bound, list(leaves.values()), allow_unused=True)
            norms.append(float(sum(g.square().sum() for g in gradients if g is not None)) ** 0.5)
    if norms[0] > tolerance * norms[1]:
        raise RuleError(
            f"The posterior of {site} is not stationary: the bound's gradient there is {norms[0]:.3g}, against "
            f"{norms[1]:.3g} at parameters moved by 0.1."
        )
    return f"gradient {norms[0]:.2g}, against {norms[1]:.2g} at parameters moved by 0.1."


def _bound(run: Run, site: str, q: Distribution, free: dict[str, Tensor]) -> Tensor:
    """The bound with the site's posterior replaced and everything else held."""
    node = run.trace.nodes[site]
    before, node["fn"] = node["fn"], with_parameters(q, free)
    try:
        terms = ClosedForm_ELBO().terms_of(run)
    finally:
        node["fn"] = before
    return torch.stack([torch.as_tensor(term).double().sum() for term in terms.values()]).sum()


# particles


@torch.no_grad()
def _particles(guide: ClosedFormGuide, args: tuple, site: str, below: bool, particles: int) -> Check:
    with copied(guide, site) as rule:
        stepped(rule, site, guide.expectations(*args), 0.5)
        return _against_draws(guide, args, site, below, particles)


def _against_draws(guide: ClosedFormGuide, args: tuple, site: str, below: bool, particles: int) -> Check:
    elbo = ClosedForm_ELBO(bound="quadrature")
    gaps: list[list[float]] = []
    analytic: list[dict[str, float]] = []
    for _ in range(particles):
        guide(*args)
        run = guide.run
        points = [name for name, node in run.trace.nodes.items() if type(node["fn"]).__name__ == "Delta"]
        if len(analytic) < 2 or analytic[0] != analytic[1]:  # terms that depend on no draw are computed twice only
            terms = elbo.terms_of(run).items()
            analytic.append({name: float(term) for name, term in terms if name not in points})
        gap = {name: term - float(_sampled(name, run)) for name, term in analytic[-1].items()}
        gaps.append([gap.get(site, 0.0), sum(gap.values())])
    mean, error = torch.tensor(gaps).mean(0), torch.tensor(gaps).std(0) / particles**0.5
    if site in points:
        return Check("particles", False, "a point mass has nothing to draw.")
    observed = guide.rule(site).observed
    sizes = abs(analytic[-1].get(site, 0.0)), abs(sum(analytic[-1].values()))
    for i, (what, may_be_below) in enumerate(((f"term of {site}", below and observed), ("whole bound", below))):
        slack = 4 * float(error[i]) + 1e-9 * max(1.0, sizes[i])  # the second part for float error
        if float(mean[i]) > slack or (float(mean[i]) < -slack and not may_be_below):
            raise RuleError(
                f"The {what} is {float(mean[i]):+.4g} from the mean over {particles} draws, and four standard errors "
                f"are {4 * float(error[i]):.2g}."
            )
    return Check("particles", True, f"term {float(mean[0]):+.2g} from draws, standard error {float(error[0]):.2g}.")


def _sampled(name: str, run: Run) -> Tensor:
    """ln p - ln q at the drawn value, under the site's scale."""
    node, value = run.trace.nodes[name], run.value(name)
    term = run.prior(name).log_prob(value)
    if not node["is_observed"]:
        term = term - run.posterior(name).log_prob(value)
    return scale_and_mask(term, scale=node["scale"], mask=node["mask"]).sum()


# subsampling


@torch.no_grad()
def _subsampling(guide: ClosedFormGuide, args: tuple, site: str, parts: Sequence[tuple[Any, ...]] | None) -> Check:
    name = "subsampling"
    weighted = [(1 / len(parts), part) for part in parts] if parts else _halves(args)
    if not weighted:
        return Check(name, False, "give `parts` to look at it.")
    whole_term, whole_natural = _term_and_target(guide, args, site)
    again_term, again_natural = _term_and_target(guide, args, site)
    if again_term != whole_term or not all(map(torch.equal, again_natural or (), whole_natural or ())):
        return Check(name, False, "it depends on draws.")
    pairs = [(weight, _term_and_target(guide, part, site)) for weight, part in weighted]
    term = sum(weight * value for weight, (value, _) in pairs)
    if abs(term - whole_term) > 1e-6 * max(1.0, abs(whole_term)):
        raise RuleError(
            f"Subsampling is biased: the term of {site} is {whole_term:.6g} and its mean over {len(pairs)} parts "
            f"{term:.6g}."
        )
    if whole_natural is None:
        return Check(name, True, f"term {whole_term:.6g} is its mean over {len(pairs)} parts.")
    for i, whole in enumerate(whole_natural):
        mean = sum(weight * natural[i] for weight, (_, natural) in pairs if natural is not None)
        gap = float((mean - whole).abs().max())
        if gap > 1e-6 * max(1.0, float(whole.abs().max())):
            raise RuleError(
                f"Subsampling is biased: the natural parameters of {site} after a step of rate 1 differ by {gap:.3g} "
                "from their mean over parts; do the statistics carry N / B?"
            )
    return Check(name, True, f"term and natural parameters are their means over {len(pairs)} parts.")


def _term_and_target(guide: ClosedFormGuide, args: tuple, site: str) -> tuple[float, tuple[Tensor, ...] | None]:
    with copied(guide, site) as rule:
        run = guide.expectations(*args)
        term = float(ClosedForm_ELBO().terms_of(run).get(site, 0.0)) if run.has(site) else 0.0
        if not stepped(rule, site, run, 1.0):
            return term, None
        q: Any = rule.posterior(site, run.prior(site), run)
        return term, natural_parameters(base_of(q))


def _halves(args: tuple) -> list[tuple[float, tuple[Any, ...]]]:
    """The arguments with the documents of their batch split in two, with shares."""
    at = [i for i, arg in enumerate(args) if isinstance(arg, Batch)]
    if not at or args[at[0]].size < 2:
        return []
    batch, middle, out = args[at[0]], (args[at[0]].size + 1) // 2, []
    for start, stop in ((0, middle), (middle, batch.size)):
        part = batch.part(start, stop)
        out.append((part.size / batch.size, (*args[: at[0]], part, *args[at[0] + 1 :])))
    return out
