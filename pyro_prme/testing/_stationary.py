"""Whether a rule's posterior is where the bound is largest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.rules import Run
from pyro_prme.testing._copies import copied, stepped
from pyro_prme.testing._draws import drawn_sites, reading, slope_by_draws
from pyro_prme.testing._parameters import base_of, free_parameters, with_parameters
from pyro_prme.testing.report import Check, RuleError

__all__ = ["check_stationary"]

_DIRECTIONS, _STEPS = 8, (1e-3, 1e-2, 1e-1)


@torch.no_grad()
def check_stationary(guide: ClosedFormGuide, args: tuple, site: str, tolerance: float, particles: int) -> Check:
    """With everything else held, moves of the site's posterior do not raise the bound, and its gradient is zero."""
    rule = guide.rule(site)
    if rule.observed:
        return _not_seen("the site is observed and has no posterior.")
    if any(True for _ in rule.parameters()):
        return _not_seen("the rule is moved by gradients.")
    with _plain(guide):
        run = _updated(guide, args, site)
        q = run.posterior(site)
        if q is run.prior(site):
            return _not_seen("the posterior is the prior, and claims no optimum.")
        if isinstance(base_of(q), dist.Delta):
            return _not_seen("a point mass has no parameters to move but its value.")
        free = free_parameters(q)
        if not free:
            return _not_seen(f"the parameters of {type(q).__name__} are not at hand.")
        others = drawn_sites(guide, run, site)
        own = reading(guide, run, [site])
        if own or reading(guide, run, others):
            again = free_parameters(_updated(guide, args, site).posterior(site))
            if not all(torch.allclose(free[key], again[key], rtol=1e-10) for key in free):
                others = []  # the rule takes the others' draws as they are, and is the optimum given them
            if own or others:
                return slope_by_draws(guide, run, site, own, others, max(particles, 200))
        return _by_moves(run, site, free, tolerance)


def _not_seen(why: str) -> Check:
    return Check("stationary", False, why)


@contextmanager
def _plain(guide: ClosedFormGuide) -> Iterator[None]:
    """Within it profiled terms are read in their plain form: with their own posterior held, and not maximised out."""
    profiled: list[Any] = [rule for rule in guide.rules.values() if getattr(rule, "objective", None) == "profiled"]
    for rule in profiled:
        rule.objective = "plain"
    try:
        yield
    finally:
        for rule in profiled:
            rule.objective = "profiled"


def _updated(guide: ClosedFormGuide, args: tuple, site: str) -> Run:
    """A run with the site's posterior where its rule wants it: a natural step of rate 1 on, where it makes such."""
    with copied(guide, site) as rule:
        run = guide.expectations(*args)
        if stepped(rule, site, run, 1.0):
            prior = run.prior(site)
            q: Any = rule.posterior(site, prior, run)
            q = dist.Delta(q, event_dim=prior.event_dim) if isinstance(q, Tensor) else q
            run.trace.nodes[site]["fn"] = q if q.batch_shape == prior.batch_shape else q.expand(prior.batch_shape)
    run.held = dict(run.local)
    return run


def _by_moves(run: Run, site: str, free: dict[str, Tensor], tolerance: float) -> Check:
    q = run.posterior(site)
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
        return _not_seen("the bound does not read the posterior.")
    return Check("stationary", True, _gradient(run, site, q, free, tolerance))


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
