"""Models that are unusual or wrong: each is fitted, sampled, or turned down with one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pytest
import torch
from pyro import distributions as dist
from pyro import poutine
from torch import Tensor

import pyro_prme as prme
from pyro_prme.inference import ClosedFormGuide, FitOptions, fit

X = torch.tensor([0.3, -1.2, 2.0, 0.7, 1.1], dtype=torch.float64)
FEW = FitOptions(epochs=20, progress=False)


def keywords(*, y: Tensor, scale: float = 1.0) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, scale))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def no_latent_site(y: Tensor) -> None:
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def no_observed_site(y: Tensor) -> None:
    pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("tau", dist.Gamma(2.0, 1.0))


def nothing(y: Tensor) -> None:
    """Neither sites nor a value."""


def plate_of_one(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 1):
        u = pyro.sample("u", dist.Normal(mu, 1.0))
        pyro.sample("y", dist.Normal(u, 1.0), obs=y[:1])


def plate_of_none(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 0):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y[:0])


def event_of_two_dimensions(y: Tensor) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    pyro.sample("y", dist.Normal(w, tau.rsqrt()).to_event(2), obs=y[0].expand(2, 3))


def lkj(y: Tensor) -> None:
    L = pyro.sample("L", dist.LKJCholesky(3, 1.0))
    pyro.sample("y", dist.MultivariateNormal(torch.zeros(3), scale_tril=L), obs=y[:3])


def data_hidden(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.4, 2.0))
    with pyro.plate("data", len(y)), poutine.mask(mask=torch.zeros(len(y)).bool()):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def all_hidden(y: Tensor) -> None:
    with poutine.mask(mask=False):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y[0])


def returns_something(y: Tensor) -> dict[str, Any]:
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    return {"mu": mu, "y": pyro.sample("y", dist.Normal(mu, 1.0), obs=y[0])}


def latent_counts(y: Tensor) -> None:
    n = pyro.sample("n", dist.Poisson(3.0))
    pyro.sample("y", dist.Normal(n, 1.0), obs=y[0])


WORK: list[tuple[Callable, tuple[str, ...], tuple[str, ...]]] = [
    (no_latent_site, (), ()),
    (no_observed_site, ("mu", "tau"), ()),
    (nothing, (), ()),
    (plate_of_one, ("mu", "u"), ()),
    (event_of_two_dimensions, ("w", "tau"), ()),
    (lkj, (), ("L",)),
    (data_hidden, ("mu",), ()),
    (all_hidden, ("mu",), ()),
    (returns_something, ("mu",), ()),
]


@pytest.mark.parametrize(("model", "closed", "free"), WORK, ids=lambda v: getattr(v, "__name__", None))
def test_it_is_fitted_and_sampled(model: Callable, closed: tuple[str, ...], free: tuple[str, ...]) -> None:
    guide = ClosedFormGuide(model)
    result = fit(guide, X, options=FEW)
    plan = guide.plan()
    assert (plan.closed, plan.open) == (closed, free)
    assert torch.isfinite(torch.tensor(result.bound))
    for name in (*closed, *free):
        assert torch.isfinite(guide.posterior(name).sample()).all()
    assert str(plan)
    kernel = prme.Gibbs(model)
    kernel.setup(0, X)
    params = kernel.sample(kernel.initial_params)
    assert set(params) == {*closed, *free}


def test_hidden_data_leave_the_prior() -> None:
    guide = ClosedFormGuide(data_hidden)
    assert fit(guide, X, options=FEW).bound == pytest.approx(0.0, abs=1e-10)
    q = guide.posterior("mu")
    assert (float(q.mean), float(q.variance)) == (pytest.approx(0.4), pytest.approx(4.0))


def test_keyword_arguments_reach_the_model() -> None:
    bounds = []
    for scale in (1.0, 3.0):
        guide = ClosedFormGuide(keywords)
        bounds.append(fit(guide, y=X, scale=scale, options=FEW).bound)
        evidence = dist.MultivariateNormal(torch.zeros(5), torch.eye(5) + scale**2).log_prob(X)
        assert bounds[-1] == pytest.approx(float(evidence), abs=1e-10)
    assert bounds[0] != bounds[1]


def test_a_plate_of_none_is_pyros_own_error() -> None:
    with pytest.raises(ZeroDivisionError, match="size cannot be zero"):
        ClosedFormGuide(plate_of_none).plan(X)


def test_a_discrete_site_that_nothing_holds_for() -> None:
    with pytest.raises(ValueError, match="Nothing holds for site n: its prior is Poisson"):
        ClosedFormGuide(latent_counts).plan(X)


def test_asking_for_what_is_not_there() -> None:
    guide = ClosedFormGuide(plate_of_one)
    with pytest.raises(ValueError, match="The guide has no plan yet"):
        _ = guide.structure
    guide.plan(X)
    with pytest.raises(ValueError, match="There is no factor for 'nu': the guide has factors for mu, u"):
        guide.posterior("nu")
    with pytest.raises(KeyError, match="The model has no site nu"):
        guide.plan()["nu"]
    with pytest.raises(ValueError, match="A rule was given for 'nu', and the latent sites are mu, u"):
        ClosedFormGuide(plate_of_one, rules={"nu": None}).plan(X)
