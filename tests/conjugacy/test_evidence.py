"""Where one update gives the exact posterior, the bound is the log evidence and the factor is the posterior."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pytest
import torch
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.conjugacy import Ascent, find_structure
from tests.conjugacy import models


def updated(model: Any, *args: Any) -> Ascent:
    ascent = Ascent(find_structure(model, args))
    ascent.sweep()
    return ascent


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    return a.lgamma() + b.lgamma() - (a + b).lgamma()


def close(bound: Tensor, evidence: Tensor) -> bool:
    return float(bound) == pytest.approx(float(evidence), rel=1e-12, abs=1e-10)


def test_normal_normal() -> None:
    x = torch.randn(40) + 1
    ascent = updated(models.normal_normal, x)
    evidence = dist.MultivariateNormal(torch.full((40,), 0.5), 0.49 * torch.eye(40) + 9.0).log_prob(x)
    assert close(ascent.bound(), evidence)
    precision = 1 / 9 + 40 / 0.49
    q = ascent.posterior("mu")
    assert float(q.mean) == pytest.approx(float((0.5 / 9 + x.sum() / 0.49) / precision))
    assert float(q.variance) == pytest.approx(1 / precision)


def test_gamma_poisson_with_exposure() -> None:
    x, exposure = torch.poisson(torch.full((40,), 3.0)), torch.rand(40) + 0.5
    ascent = updated(models.gamma_poisson, x, exposure)
    a, b = torch.tensor(2.0), torch.tensor(0.5)
    after, rate = a + x.sum(), b + exposure.sum()
    evidence = a * b.log() - a.lgamma() + after.lgamma() - after * rate.log()
    evidence = evidence + (x * exposure.log() - (x + 1).lgamma()).sum()
    assert close(ascent.bound(), evidence)
    assert float(ascent.posterior("lam").mean) == pytest.approx(float(after / rate))


def test_beta_bernoulli_and_binomial() -> None:
    x = torch.bernoulli(torch.full((40,), 0.3))
    ascent = updated(models.beta_bernoulli, x, torch.tensor(20.0), torch.tensor(7.0))
    a, b = 1.5 + x.sum() + 7, 2.0 + 40 - x.sum() + 13
    evidence = log_beta(a, b) - log_beta(torch.tensor(1.5), torch.tensor(2.0)) + math.log(math.comb(20, 7))
    assert close(ascent.bound(), evidence)
    assert float(ascent.posterior("p").mean) == pytest.approx(float(a / (a + b)))


def test_dirichlet_categorical_and_multinomial() -> None:
    x, counts = torch.randint(0, 4, (40,)), torch.tensor([3.0, 1.0, 0.0, 5.0])
    ascent = updated(models.dirichlet_categorical, x, counts)
    before = torch.full((4,), 0.7)
    after = before + torch.bincount(x, minlength=4) + counts
    evidence = after.lgamma().sum() - after.sum().lgamma() - before.lgamma().sum() + before.sum().lgamma()
    evidence = evidence + (counts.sum() + 1).lgamma() - (counts + 1).lgamma().sum()
    assert close(ascent.bound(), evidence)
    torch.testing.assert_close(ascent.posterior("p").concentration, after)


def test_multivariate_normal() -> None:
    x = torch.randn(6, 3)
    ascent = updated(models.mvn_mvn, x)
    prior, noise = models.PRIOR_ROOT @ models.PRIOR_ROOT.T, models.NOISE_ROOT @ models.NOISE_ROOT.T
    mean = torch.tensor([0.5, -1.0, 0.0])
    covariance = torch.kron(torch.ones(6, 6), prior) + torch.kron(torch.eye(6), noise)
    assert close(ascent.bound(), dist.MultivariateNormal(mean.repeat(6), covariance).log_prob(x.flatten()))
    precision = prior.inverse() + 6 * noise.inverse()
    q = ascent.posterior("mu")
    torch.testing.assert_close(q.covariance_matrix, precision.inverse())
    torch.testing.assert_close(q.mean, precision.inverse() @ (prior.inverse() @ mean + noise.inverse() @ x.sum(0)))


def test_regression_with_known_noise() -> None:
    """A joint Normal over a plate's members."""
    features, y = torch.randn(9, 3), torch.randn(9)

    def model() -> None:
        with pyro.plate("features", 3):
            w = pyro.sample("w", dist.Normal(0.0, 2.0))
        with pyro.plate("data", 9):
            pyro.sample("y", dist.Normal(features @ w, 0.5), obs=y)

    ascent = updated(model)
    evidence = dist.MultivariateNormal(torch.zeros(9), 4 * features @ features.T + 0.25 * torch.eye(9)).log_prob(y)
    assert close(ascent.bound(), evidence)
    precision = torch.eye(3) / 4 + features.T @ features / 0.25
    q = ascent.posterior("w")
    torch.testing.assert_close(q.mean, precision.inverse() @ features.T @ y / 0.25)
    torch.testing.assert_close(q.covariance_matrix, precision.inverse())


def test_latent_classes_with_known_parameters() -> None:
    x, means = torch.randn(7), torch.tensor([-1.0, 0.5, 2.0])
    weights = torch.tensor([0.2, 0.5, 0.3])

    def model() -> None:
        with pyro.plate("data", 7):
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(means[z], 0.8), obs=x)

    ascent = updated(model)
    each = dist.Normal(means, 0.8).log_prob(x.unsqueeze(-1)) + weights.log()
    assert close(ascent.bound(), each.logsumexp(-1).sum())
    torch.testing.assert_close(ascent.posterior("z").probs, each.softmax(-1))


def test_two_discrete_sites_in_one_condition() -> None:
    """Mean field is exact for one of them given that the other is certain."""

    def model() -> None:
        a = pyro.sample("a", dist.Bernoulli(1.0))
        b = pyro.sample("b", dist.Bernoulli(0.3))
        pyro.sample("x", dist.Bernoulli(1 - 0.9 * (1 - 0.5 * a) * (1 - 0.8 * b)), obs=torch.tensor(1.0))

    ascent = updated(model)
    yes, no = 0.3 * (1 - 0.9 * 0.5 * 0.2), 0.7 * (1 - 0.9 * 0.5)
    ascent.sweep(["b", "a", "b"])
    assert float(ascent.posterior("b").probs) == pytest.approx(yes / (yes + no), abs=1e-6)
    assert float(ascent.bound()) == pytest.approx(math.log(yes + no), abs=1e-6)


def test_scaled_data() -> None:
    """A scale counts the data so many times, and a mask hides some."""
    x, seen = torch.randn(8), torch.tensor([1, 1, 0, 1, 0, 0, 1, 1]).bool()

    def model() -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
        with pyro.plate("data", 8), pyro.poutine.mask(mask=seen), pyro.poutine.scale(scale=2.0):
            pyro.sample("x", dist.Normal(mu, 0.7), obs=x)

    ascent = updated(model)
    precision = 1 / 9 + 2 * 5 / 0.49
    q = ascent.posterior("mu")
    assert float(q.mean) == pytest.approx(float(2 * x[seen].sum() / 0.49 / precision))
    assert float(q.variance) == pytest.approx(1 / precision)


def test_batches_average_to_the_whole() -> None:
    """The mean target over all batches is that of the full data: N / B is in the plate, once."""
    x = torch.randn(12) + 1
    full = Ascent(find_structure(models.normal_normal, (x,)))
    target = full.program.target("mu", full.statistics(), full.natural["mu"])
    parts = []
    for batch in torch.arange(12).split(4):
        program = find_structure(models.normal_normal, (x, batch)).program
        parts.append(program.target("mu", full.statistics(), full.natural["mu"]))
    for key, value in target.items():
        torch.testing.assert_close(sum(part[key] for part in parts) / 3, value)


def test_local_site_is_not_scaled() -> None:
    """A site within a batch is divided by its own weight: its factor is that of the full data."""
    x = torch.randn(12)

    def model(batch: Tensor | None = None) -> None:
        with pyro.plate("data", 12, subsample=batch) as i:
            u = pyro.sample("u", dist.Normal(0.3, 1.0))
            pyro.sample("x", dist.Normal(u, 0.5), obs=x[i])

    whole, part = updated(model), updated(model, torch.tensor([7, 2]))
    torch.testing.assert_close(part.posterior("u").mean, whole.posterior("u").mean[[7, 2]])
    torch.testing.assert_close(part.posterior("u").variance, whole.posterior("u").variance[[7, 2]])


def test_a_scale_of_zero_leaves_a_factor_as_it_is() -> None:
    def model() -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.poutine.scale(scale=torch.tensor(0.0)):
            tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
            pyro.sample("x", dist.Normal(mu, tau.rsqrt()), obs=torch.tensor(0.3))

    with pyro.validation_enabled(False):
        structure = find_structure(model)
        ascent = Ascent(structure)
        before = ascent.natural["tau"]
        ascent.sweep()
    assert structure.closed == ("mu", "tau")
    for key, value in before.items():
        torch.testing.assert_close(ascent.natural["tau"][key], value)
    assert float(ascent.bound()) == pytest.approx(0.0, abs=1e-12)
