"""The bound after each iteration against BayesPy's, from the same start and in the same order of updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from bayespy.inference import VB
from bayespy.nodes import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    Gate,
    GaussianARD,
    Mixture,
    Poisson,
    SumMultiply,
)
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.conjugacy import Ascent, find_structure
from tests.conjugacy import models

ITERATIONS = 12


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    state = np.random.get_state()  # noqa: NPY002 - BayesPy draws from the global generator
    np.random.seed(0)  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


def gamma_at(shape: Sequence[int], concentration: float, rate: float) -> dict[str, Tensor]:
    """Natural parameters of a Gamma, which is what BayesPy starts from: the prior."""
    return {"log": torch.full(tuple(shape), concentration - 1), "x": torch.full(tuple(shape), -rate)}


def started(model: Any, args: tuple, natural: Mapping[str, Mapping[str, Tensor]]) -> Ascent:
    structure = find_structure(model, args)
    assert structure.refusals == {}
    return Ascent(structure, natural)


def bounds_agree(ascent: Ascent, order: Sequence[str], other: VB, nodes: Mapping[str, Any]) -> None:
    """Runs both and compares the bounds of each iteration."""
    first = None
    for _ in range(ITERATIONS):
        ascent.sweep(order)
        other.update(*[nodes[name] for name in order], verbose=False)
        ours, theirs = float(ascent.bound()), float(other.compute_lowerbound())
        assert ours == pytest.approx(theirs, rel=1e-9)
        first = ours if first is None else first
    assert ours > first  # both have moved


def responsibilities(members: int, size: int) -> Tensor:
    r = torch.rand(members, size) ** 3
    return r / r.sum(-1, keepdim=True)


def test_normal_gamma() -> None:
    x = torch.randn(40) * 2 + 1
    ascent = started(models.normal_gamma, (x,), {"tau": gamma_at((), 0.1, 0.1)})
    mu, tau = GaussianARD(0, 0.01), Gamma(0.1, 0.1)
    y = GaussianARD(mu, tau, plates=(40,))
    y.observe(x.numpy())
    bounds_agree(ascent, ["mu", "tau"], VB(y, mu, tau), {"mu": mu, "tau": tau})


def test_regression_with_relevance() -> None:
    features = torch.randn(30, 4)
    y = features @ torch.tensor([1.0, -2.0, 0.0, 0.5]) + 0.3 * torch.randn(30)
    start = {"alpha": gamma_at((4,), 0.1, 0.1), "tau": gamma_at((), 0.1, 0.1)}
    ascent = started(models.regression, (features, y), start)
    alpha, tau = Gamma(0.1, 0.1, plates=(4,)), Gamma(0.1, 0.1)
    w = GaussianARD(0, alpha, shape=(4,), plates=())
    seen = GaussianARD(SumMultiply("i,i", w, features.numpy()), tau)
    seen.observe(y.numpy())
    nodes = {"w": w, "alpha": alpha, "tau": tau}
    bounds_agree(ascent, ["w", "alpha", "tau"], VB(seen, w, alpha, tau), nodes)


def test_mixture_in_one_dimension() -> None:
    x = 4 * torch.randint(0, 3, (50,)) + torch.randn(50)
    r = responsibilities(50, 3)
    start = {"tau": gamma_at((3,), 1.0, 1.0), "z": {"chosen": r.log()}}
    ascent = started(models.mixture, (x, 3), start)
    weights = Dirichlet(np.ones(3))
    z = Categorical(weights, plates=(50,))
    mu, tau = GaussianARD(0, 0.01, plates=(3,)), Gamma(1, 1, plates=(3,))
    seen = Mixture(z, GaussianARD, mu, tau)
    seen.observe(x.numpy())
    z.initialize_from_parameters(r.numpy())
    nodes = {"mu": mu, "tau": tau, "weights": weights, "z": z}
    bounds_agree(ascent, ["mu", "tau", "weights", "z"], VB(seen, z, mu, tau, weights), nodes)


def test_mixture_in_several_dimensions() -> None:
    x = 4 * torch.randint(0, 3, (50, 1)) + torch.randn(50, 2)
    r = responsibilities(50, 3)
    start = {"tau": gamma_at((3, 2), 1.0, 1.0), "z": {"chosen": r.log()}}
    ascent = started(models.diagonal_mixture, (x, 3), start)
    weights = Dirichlet(np.full(3, 0.8))
    z = Categorical(weights, plates=(50, 1))
    mu, tau = GaussianARD(0, 0.01, plates=(2, 3)), Gamma(1, 1, plates=(2, 3))
    seen = Mixture(z, GaussianARD, mu, tau)
    seen.observe(x.numpy())
    z.initialize_from_parameters(r.numpy()[:, None])
    nodes = {"mu": mu, "tau": tau, "weights": weights, "z": z}
    bounds_agree(ascent, ["mu", "tau", "weights", "z"], VB(seen, z, mu, tau, weights), nodes)


def test_bernoulli_mixture() -> None:
    x = torch.bernoulli(torch.rand(2, 6)[torch.randint(0, 2, (40,))])
    r = responsibilities(40, 2)
    ascent = started(models.bernoulli_mixture, (x, 2), {"z": {"chosen": r.log()}})
    weights = Dirichlet(np.full(2, 2.0))
    z = Categorical(weights, plates=(40, 1))
    p = Beta([0.5, 0.5], plates=(6, 2))
    seen = Mixture(z, Bernoulli, p)
    seen.observe(x.numpy().astype(bool))
    z.initialize_from_parameters(r.numpy()[:, None])
    nodes = {"p": p, "weights": weights, "z": z}
    bounds_agree(ascent, ["p", "weights", "z"], VB(seen, z, p, weights), nodes)


def test_pca_with_relevance() -> None:
    x = torch.randn(30, 2) @ torch.randn(2, 5) + 0.3 * torch.randn(30, 5)
    mean = torch.randn(30, 3)
    start = {"tau": gamma_at((), 0.1, 0.1), "alpha": gamma_at((3,), 0.1, 0.1)}
    ascent = started(models.pca, (x, 3), start)
    ascent.natural["z"] = ascent.program.families["z"].start(mean, 1.0)
    alpha, tau = Gamma(0.1, 0.1, plates=(3,)), Gamma(0.1, 0.1)
    W = GaussianARD(0, alpha, shape=(3,), plates=(1, 5))
    z = GaussianARD(0, 1, shape=(3,), plates=(30, 1))
    seen = GaussianARD(SumMultiply("d,d->", W, z), tau)
    seen.observe(x.numpy())
    z.initialize_from_parameters(mean.numpy()[:, None], np.ones((30, 1, 3)))
    nodes = {"W": W, "z": z, "alpha": alpha, "tau": tau}
    bounds_agree(ascent, ["W", "z", "alpha", "tau"], VB(seen, W, z, alpha, tau), nodes)


def test_factor_analysis_with_missing_values() -> None:
    x = torch.randn(20, 2) @ torch.randn(2, 4) + 0.3 * torch.randn(20, 4)
    there = torch.rand(20, 4) < 0.7
    there[:, 0] = True
    mean = torch.randn(20, 2)
    ascent = started(models.factor_analysis, (x, there, 2), {"psi": gamma_at((4,), 1.0, 1.0)})
    start = ascent.program.families["z"].start(mean.unsqueeze(1), 1.0)
    ascent.natural["z"] = start
    W = GaussianARD(0, 1, shape=(2,), plates=(1, 4))
    z = GaussianARD(0, 1, shape=(2,), plates=(20, 1))
    psi = Gamma(1, 1, plates=(1, 4))
    seen = GaussianARD(SumMultiply("d,d->", W, z), psi)
    seen.observe(x.numpy(), mask=there.numpy())
    z.initialize_from_parameters(mean.numpy()[:, None], np.ones((20, 1, 2)))
    bounds_agree(ascent, ["W", "z", "psi"], VB(seen, W, z, psi), {"W": W, "z": z, "psi": psi})


def test_lda() -> None:
    words, document = torch.randint(0, 12, (200,)), torch.randint(0, 5, (200,))
    words = torch.where(torch.rand(200) < 0.7, words % 4 + 4 * (document % 3), words)
    r = responsibilities(200, 3)
    ascent = started(models.lda, (words, document, 5, 3, 12), {"C": {"chosen": r.log()}})
    theta, phi = Dirichlet(np.full(3, 0.5), plates=(5,)), Dirichlet(np.full(12, 0.3), plates=(3,))
    C = Categorical(Gate(document.numpy(), theta), plates=(200,))
    X = Categorical(Gate(C, phi), plates=(200,))
    X.observe(words.numpy())
    C.initialize_from_parameters(r.numpy())
    bounds_agree(ascent, ["phi", "theta", "C"], VB(X, C, phi, theta), {"phi": phi, "theta": theta, "C": C})


def test_gamma_gamma_poisson() -> None:
    x = torch.poisson(torch.rand(6, 1) * 5 * torch.ones(6, 9))
    ascent = started(models.gamma_gamma_poisson, (x,), {"b": gamma_at((), 1.0, 1.0)})
    b = Gamma(1, 1)
    rate = Gamma(2, b, plates=(6, 1))
    seen = Poisson(rate, plates=(6, 9))
    seen.observe(x.numpy().astype(int))
    bounds_agree(ascent, ["rate", "b"], VB(seen, rate, b), {"rate": rate, "b": b})


def test_stochastic_run_of_a_mixture() -> None:
    """Batches, N / B and steps in natural parameters: one global factor after the other."""
    x = 4 * torch.randint(0, 3, (60, 1)) + torch.randn(60, 2)
    batches = [torch.randperm(60)[:15] for _ in range(ITERATIONS)]

    def model(x: Tensor, batch: Tensor) -> None:
        weights = pyro.sample("weights", dist.Dirichlet(torch.ones(3)))
        with pyro.plate("components", 3):
            mu = pyro.sample("mu", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
            tau = pyro.sample("tau", dist.Gamma(1.0, 1.0).expand([2]).to_event(1))
        with pyro.plate("data", len(x), subsample=batch) as i:
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(mu[z], tau[z].rsqrt()).to_event(1), obs=x[i])

    structure = find_structure(model, (x, batches[0]))
    ascent = Ascent(structure, {"tau": gamma_at((3, 2), 1.0, 1.0), "weights": {"log": torch.zeros(3)}})
    means = torch.randn(3, 2) * 3
    ascent.natural["mu"] = {"x": means, "xx": torch.full((3, 2), -0.5)}

    weights = Dirichlet(np.ones(3))
    z = Categorical(weights, plates=(15, 1), plates_multiplier=(60 / 15, 1))
    mu, tau = GaussianARD(0, 0.01, plates=(2, 3)), Gamma(1, 1, plates=(2, 3))
    seen = Mixture(z, GaussianARD, mu, tau)
    mu.initialize_from_parameters(means.T.numpy(), np.ones((2, 3)))
    other = VB(seen, z, mu, tau, weights)
    other.ignore_bound_checks = True

    for n, batch in enumerate(batches):
        ascent.program = structure.rebuilt((x, batch), {}, {})
        seen.observe(x[batch].numpy())
        step = (n + 2) ** -0.7
        ascent.update("z")
        other.update(z, verbose=False)
        for name, node in (("mu", mu), ("tau", tau), ("weights", weights)):
            ascent.update(name, step)
            other.gradient_step(node, scale=step)
        assert float(ascent.bound()) == pytest.approx(float(other.compute_lowerbound()), rel=1e-9)
    torch.testing.assert_close(ascent.posterior("mu").mean, torch.tensor(np.array(mu.u[0])).T)
