"""The expected log joint of every model against the model itself, at matched points or at draws from the factors."""

from __future__ import annotations

import itertools

import pytest
import torch
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.conjugacy import Ascent, Structure, find_structure
from tests.conjugacy import oracle
from tests.conjugacy.models import CASES

EXACT = [name for name, case in CASES.items() if not case.bounded]
BOUNDED = [name for name, case in CASES.items() if case.bounded]
IN_FAMILIES = {
    "normal": dist.Normal(torch.tensor([0.5, -2.0]), torch.tensor([0.3, 2.0])),
    "multivariate": dist.MultivariateNormal(torch.tensor([0.5, -2.0]), torch.tensor([[2.0, 0.3], [0.3, 0.5]])),
    "gamma": dist.Gamma(torch.tensor([0.2, 3.0]), torch.tensor([1.5, 0.4])),
    "inverse gamma": dist.InverseGamma(torch.tensor([0.7, 3.0]), torch.tensor([1.5, 0.4])),
    "beta": dist.Beta(torch.tensor([0.2, 3.0]), torch.tensor([1.5, 0.4])),
    "dirichlet": dist.Dirichlet(torch.tensor([[0.2, 3.0, 1.0], [5.0, 0.1, 0.3]])),
    "bernoulli": dist.Bernoulli(torch.tensor([0.2, 0.7])),
    "categorical": dist.Categorical(torch.tensor([[0.2, 0.7, 0.1], [0.3, 0.3, 0.4]])),
}


def found(name: str) -> tuple[Structure, Ascent]:
    case = CASES[name]
    structure = find_structure(case.model, case.args())
    return structure, Ascent(structure)


def expected(structure: Structure, ascent: Ascent) -> float:
    return float(structure.program.total(ascent.statistics()).detach())


@pytest.mark.parametrize("name", CASES)
def test_sites_are_closed(name: str) -> None:
    structure, _ = found(name)
    assert structure.open == CASES[name].refused
    assert all(error < 1e-12 for error in structure.errors.values())


@pytest.mark.parametrize("name", EXACT)
def test_expected_log_joint(name: str) -> None:
    structure, ascent = found(name)
    oracle.settle(ascent)
    assert expected(structure, ascent) == pytest.approx(
        oracle.expected_log_joint(structure, ascent), rel=1e-8, abs=1e-8
    )


@pytest.mark.parametrize("name", EXACT)
def test_expected_log_joint_away_from_the_optimum(name: str) -> None:
    """At factors that no update has made: the start, moved."""
    structure, ascent = found(name)
    for site, family in structure.families.items():
        ascent.natural[site] = family.start(structure.value(site), 3.7)
    assert expected(structure, ascent) == pytest.approx(
        oracle.expected_log_joint(structure, ascent), rel=1e-8, abs=1e-8
    )


@pytest.mark.parametrize("name", BOUNDED)
def test_bound_is_below(name: str) -> None:
    structure, ascent = found(name)
    oracle.settle(ascent)
    estimate = oracle.monte_carlo(structure, ascent, 100)
    bound = float(ascent.bound())
    assert estimate.mean - 2.5 < bound < estimate.mean + 4 * estimate.error


@pytest.mark.parametrize("name", EXACT)
def test_bound_by_draws(name: str) -> None:
    """Entropies, scales and masks are those of Pyro's own ELBO."""
    structure, ascent = found(name)
    oracle.settle(ascent)
    estimate = oracle.monte_carlo(structure, ascent, 80)
    assert estimate.standard_errors_from(float(ascent.bound())) < 4


@pytest.mark.parametrize("name", CASES)
def test_update_is_stationary(name: str) -> None:
    """Just updated, a factor's gradient of the bound is zero."""
    _, ascent = found(name)
    oracle.settle(ascent, 1)
    for site in ascent.order:
        for _ in range(1 if not CASES[name].bounded else 200):
            ascent.update(site)
        leaf = {key: value.clone().requires_grad_() for key, value in ascent.natural[site].items()}
        ascent.natural[site] = leaf
        slopes = torch.autograd.grad(ascent.bound(), list(leaf.values()))
        ascent.natural[site] = {key: value.detach() for key, value in leaf.items()}
        assert max(float(s.abs().max()) for s in slopes) < 1e-8


@pytest.mark.parametrize("name", CASES)
def test_bound_never_falls(name: str) -> None:
    _, ascent = found(name)
    bounds = [float(ascent.bound().detach())]
    for _ in range(4):
        for site in ascent.order:
            ascent.update(site)
            bounds.append(float(ascent.bound().detach()))
    falls = [a - b for a, b in itertools.pairwise(bounds) if a - b > 1e-9 * (1 + abs(a))]
    assert falls == []
    assert bounds[-1] > bounds[0] - 1e-9 * (1 + abs(bounds[0]))


def _statistics(q: dist.TorchDistribution, x: Tensor) -> list[Tensor]:
    if isinstance(q, dist.Normal):
        return [x, x**2]
    if isinstance(q, dist.MultivariateNormal):
        return [x, torch.outer(x, x)]
    if isinstance(q, dist.Gamma):
        return [x, x.log()]
    if isinstance(q, dist.InverseGamma):
        return [1 / x, x.log()]
    if isinstance(q, dist.Beta):
        return [x.log(), (-x).log1p()]
    if isinstance(q, dist.Dirichlet):
        return [x.log(), x.sum(-1)]
    return [torch.nn.functional.one_hot(x.long(), 3).double()]


@pytest.mark.parametrize("name", IN_FAMILIES)
def test_points_have_the_expected_statistics(name: str) -> None:
    """The oracle itself: weighted statistics at the points are those of draws, and the points are in the support."""
    q = IN_FAMILIES[name]
    points = oracle.matched_points(q)
    assert sum(w for _, w in points) == pytest.approx(1)
    assert all(bool(q.support.check(x).all()) for x, _ in points)
    draws = [_statistics(q, x) for x in q.sample((4000,))]
    for place, ours in enumerate(zip(*(_statistics(q, x) for x, _ in points), strict=True)):
        mean = sum(w * s for s, (_, w) in zip(ours, points, strict=True))
        drawn = torch.stack([d[place] for d in draws])
        error = drawn.std(0) / len(draws) ** 0.5
        assert bool(((mean - drawn.mean(0)).abs() <= 5 * error + 1e-9).all())
