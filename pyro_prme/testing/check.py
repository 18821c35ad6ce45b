"""`check_rule`: an update written by hand against the derivative of the expected log joint, which the engine finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy import Ascent, Structure, find_structure
from pyro_prme.inference.claims import Claim, Context, GivenClaim, OpenClaim, Refusal, Rule
from pyro_prme.inference.guide import RULES, ClosedFormGuide
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.rules.topics.rule import difference_from_engine
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import evaluating, seeded
from pyro_prme.testing.report import Check, RuleError, RuleReport

__all__ = ["check_rule"]

_POINTS = 8  # at which two factors are compared
_PLACES = 3  # factors of the other sites that the update is looked at under
_ALLOWED = {torch.float64: 1e-8, torch.float32: 1e-3}

Formula = Callable[[Mapping[str, Distribution]], Distribution]


def check_rule(
    rule: Rule | Formula | Any,
    *args: Any,
    site: str | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    **kwargs: Any,
) -> RuleReport:
    r"""Compares an update of your own with :math:`\partial F / \partial \mu`, at several factors of the other sites.

    .. code-block:: python

        def tau(q):  # the optimal factor of tau given those of the others
            square = (x - q["mu"].mean) ** 2 + q["mu"].variance
            return dist.Gamma(1.0 + len(x) / 2, 1.0 + square.sum() / 2)

        print(check_rule(tau, model, x, site="tau"))

    The engine's update is the gradient of the expected log joint, which is checked against the model's own density;
    so one that differs from it is wrong. Call the model on a batch, with a subsampled plate, and the share of the batch
    is checked as well.

    Args:
        rule: a function from the factors of the other sites to that of the site, or a `Rule`, or a guide, which is left
            as it was.
        args, kwargs: the model, and what it is called with; without the model for a guide, which has one.
        site: whose update it is; for a rule, the first that it claims if nothing is said.
        tolerance: relative difference of log densities that counts as none; for float64 1e-8 if not given.
        seed: of the factors and points at which it is looked at.

    Returns:
        What was looked at.

    Raises:
        RuleError: the rule refuses the model, or is wrong, with the reason.
    """
    allowed = _ALLOWED.get(torch.get_default_dtype(), 1e-3) if tolerance is None else tolerance
    if isinstance(rule, ClosedFormGuide):
        with evaluating(rule.model, rule), torch.no_grad(), seeded(seed):
            return _check_guide(rule, args, kwargs, site, allowed)
    if not args or not callable(args[0]):
        raise ValueError("Give check_rule the rule, the model, and what the model is called with.")
    model, *rest = args
    with evaluating(model), torch.no_grad():
        structure = find_structure(model, tuple(rest), kwargs)
        with seeded(seed):
            if isinstance(rule, Rule):
                return _check_claims(rule, structure, site, allowed)
            return _check_formula(rule, structure, site, allowed)


def _family_of(structure: Structure, site: str | None) -> str:
    """The site, which must have a closed form to be compared with."""
    if site is None:
        raise ValueError("Name the site whose update the function is, as in site='tau'.")
    if site not in structure.closed:
        why = structure.refusals.get(site, "it is not a latent site of the model")
        raise RuleError(f"The engine has no update of {site} to compare with: {why}.")
    return site


def _check_formula(formula: Formula, structure: Structure, site: str | None, allowed: float) -> RuleReport:
    name, ascent = _family_of(structure, site), Ascent(structure)
    report = RuleReport(name, getattr(formula, "__name__", type(formula).__name__))
    fixed = {other: dist.Delta(structure.value(other)) for other in structure.open}
    worst = 0.0
    for _ in range(_PLACES):
        others = {other: ascent.posterior(other) for other in structure.closed if other != name}
        found = _checked(formula(fixed | others), structure, name)
        worst = max(worst, _difference(found, ascent.target(name), structure, name, allowed))
        ascent.sweep()
    report.checks.append(Check("update", True, f"within {worst:.0e} of dF/dmu, under {_PLACES} factors of the others."))
    return report


def _check_claims(rule: Rule, structure: Structure, site: str | None, allowed: float) -> RuleReport:
    latent = [name for name in structure.sites if name not in structure.observed]
    offered = rule.match(structure, latent)
    if isinstance(offered, Refusal):
        reasons = ", ".join(f"{name}: {why}" for name, why in offered.reasons.items())
        raise RuleError(f"{type(rule).__name__} claims no site of this model ({reasons or 'without a reason'}).")
    guide = ClosedFormGuide(structure.model, candidates=(rule, *RULES))
    guide.plan(*structure.args, **structure.kwargs)
    name = offered.sites[0] if site is None else site
    claim = guide.claim(name) if name in latent else None
    if claim is None or type(claim) is not type(offered):
        raise RuleError(f"{type(rule).__name__} does not claim {name}, but {', '.join(offered.sites)}.")
    report = RuleReport(name, type(rule).__name__)
    report.checks.append(_check_claim(guide, claim, structure, name, allowed))
    return report


def _check_guide(
    guide: ClosedFormGuide, args: tuple, kwargs: Mapping[str, Any], site: str | None, allowed: float
) -> RuleReport:
    """The claim that a guide has for a site."""
    plan = guide.plan(*args, **kwargs)
    name = plan.closed[0] if site is None else site
    claim = guide.claim(name)
    structure = guide.structure
    if not isinstance(claim, TopicFactors):
        structure = find_structure(guide.model, args, kwargs)
    before = {key: value.clone() for key, value in guide.state_dict().items()}
    report = RuleReport(name, type(claim).__name__)
    try:
        report.checks.append(_check_claim(guide, claim, structure, name, allowed))
    finally:
        guide.load_state_dict(before)
    return report


def _check_claim(guide: ClosedFormGuide, claim: Claim, structure: Structure, name: str, allowed: float) -> Check:
    if isinstance(claim, TopicFactors):
        worst = difference_from_engine(claim, structure)
        if not worst <= max(allowed, 1e-6):
            raise RuleError(f"The compiled update of {name} differs from dF/dmu by {worst:.0e}.")
        return Check("update", True, f"within {worst:.0e} of dF/dmu where it stands still.")
    if isinstance(claim, GivenClaim):
        return Check("update", False, "the factor is the prior, and claims no optimum.")
    if any(True for _ in claim.parameters()):
        return Check("update", False, "the factor is moved by gradients.")
    _family_of(structure, name)
    worst = 0.0
    for place in range(_PLACES):
        guide.restart(place)
        run = guide.run(*structure.args, **structure.kwargs)
        target = _engines(structure, run, name)
        claim.gather(run)
        claim.natural_step(1.0)
        if isinstance(claim, OpenClaim):
            context = Context(structure.args, structure.kwargs, tuple(guide.claims))  # type: ignore[arg-type]
            found = claim.posterior(name, run.sites[name].fn, context)
        else:
            found = guide.posterior(name)
        if isinstance(found, Tensor):
            return Check("update", False, "a point mass has no family to compare.")
        worst = max(worst, _difference(_checked(found, structure, name), target, structure, name, allowed))
    return Check("update", True, f"within {worst:.0e} of dF/dmu, under {_PLACES} factors of the others.")


def _engines(structure: Structure, run: Run, name: str) -> dict[str, Tensor]:
    """The natural parameters that the engine finds given the other factors of a run."""
    values = {other: part.site.value for other, part in run.open.items()}
    others = {other: values[other] for other in structure.open if other in values}
    program = structure.rebuilt(structure.args, structure.kwargs, others) if others else structure.program
    statistics: dict[str, Any] = {}
    for other, family in program.families.items():
        if other != name:
            known = run.factors.statistics()
            statistics[other] = family.at_point(values[other]) if other in values else known[other]
    return program.target(name, statistics, program.families[name].empty())


def _checked(found: Any, structure: Structure, name: str) -> Distribution:
    """What was found, if it is a distribution of the site's shape."""
    if not isinstance(found, Distribution):
        raise RuleError(f"The factor of {name} is {type(found).__name__}: it must be a distribution.")
    shape, expected = found.batch_shape + found.event_shape, structure.value(name).shape
    if any(a not in (1, b) for a, b in zip_longest(shape[::-1], expected[::-1], fillvalue=1)):
        raise RuleError(f"The factor of {name} has shape {tuple(shape)}, and the site {tuple(expected)}.")
    return found


def _difference(
    found: Distribution, target: Mapping[str, Tensor], structure: Structure, name: str, allowed: float
) -> float:
    """The largest relative difference of the log densities of two factors, each site's members added up."""
    family = structure.families[name]
    expected = family.distribution(target)
    worst = 0.0
    for _ in range(_POINTS):
        value = family.draw(target)
        ours, theirs = float(_total(expected, value)), float(_total(found, value))
        worst = max(worst, abs(ours - theirs) / (1 + abs(ours)) if theirs == theirs else float("inf"))
    if worst > allowed:
        raise RuleError(
            f"The update of {name} is not dF/dmu: log densities differ by {worst:.2g}, relative. The engine has "
            f"{_shown(expected)}, the rule {_shown(found)}."
        )
    return worst


def _total(q: Distribution, value: Tensor) -> Tensor:
    """ln q over all members, for a factor that may have been left to broadcast."""
    each = q.log_prob(value)
    members = value.shape[: value.dim() - len(q.event_shape)]
    return each.expand(members).sum() if each.dim() <= len(members) else each.sum()


def _shown(q: Any) -> str:
    """A distribution with its first few parameters."""
    base = q
    while isinstance(base, torch.distributions.Independent):
        base = base.base_dist
    parts: Sequence[str] = [key for key in base.arg_constraints if key in vars(base)]
    numbers = (f"{key} {', '.join(f'{v:.6g}' for v in vars(base)[key].flatten()[:3].tolist())}" for key in parts)
    return f"{type(base).__name__}({'; '.join(numbers)})"
