"""Chains: linear and Gaussian ones written as one site are smoothed exactly; discrete ones are sampled exactly."""

from __future__ import annotations

import itertools

import pyro
import pytest
import torch
from pyro import distributions as dist
from pyro.infer import MCMC
from pyro.ops.stats import effective_sample_size
from torch import Tensor

from pyro_prme.conjugacy import Ascent, find_structure
from pyro_prme.inference import Gibbs

DECAY, NOISE, SEEN = 0.8, 0.5, 0.3


def powers(size: int) -> Tensor:
    """States from noise: the lower triangle of decay^(t - s)."""
    t = torch.arange(size, dtype=torch.float64)
    return (DECAY ** (t.unsqueeze(-1) - t).clamp(min=0)).tril()


def states(x: Tensor) -> None:
    """A state that decays and is disturbed, seen with noise; its first value has the disturbance's variance."""
    matrix = powers(len(x))
    noise = pyro.sample("noise", dist.Normal(0.0, NOISE).expand([len(x)]).to_event(1))
    with pyro.plate("times", len(x)):
        pyro.sample("x", dist.Normal(matrix @ noise, SEEN), obs=x)


def test_linear_gaussian_states_are_smoothed_as_by_a_gaussian_hmm() -> None:
    x = torch.randn(12).cumsum(0)
    structure = find_structure(states, (x,))
    assert structure.families["noise"].joint_size == len(x)
    ascent = Ascent(structure)
    ascent.sweep()
    eye = torch.eye(1)
    first = dist.MultivariateNormal(torch.zeros(1), NOISE**2 * eye)
    step = dist.MultivariateNormal(torch.zeros(1), NOISE**2 * eye)
    seen = dist.MultivariateNormal(torch.zeros(1), SEEN**2 * eye)
    before = dist.MultivariateNormal(torch.zeros(1), 1e-12 * eye)  # Pyro's chain takes a step before the first time
    assert first.variance == step.variance
    chain = dist.GaussianHMM(before, DECAY * eye, step, eye, seen, duration=len(x))
    assert float(ascent.bound()) == pytest.approx(float(chain.log_prob(x.unsqueeze(-1))), abs=1e-8)
    smoothed = powers(len(x)) @ ascent.posterior("noise").mean
    prior = NOISE**2 * powers(len(x)) @ powers(len(x)).T
    exact = prior @ torch.linalg.solve(prior + SEEN**2 * torch.eye(len(x)), x)
    torch.testing.assert_close(smoothed, exact)


A = torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=torch.float64)
MEANS = torch.tensor([-0.5, 0.8], dtype=torch.float64)


def switching(x: Tensor) -> None:
    z = None
    for t in pyro.markov(range(len(x))):
        z = pyro.sample(f"z_{t}", dist.Categorical(torch.ones(2) / 2 if z is None else A[z]))
        pyro.sample(f"x_{t}", dist.Normal(MEANS[z], 1.0), obs=x[t])


def test_discrete_states_are_sampled_as_by_a_discrete_hmm() -> None:
    x = torch.tensor([-0.4, 1.2, 0.3, 0.9])
    paths = torch.tensor(list(itertools.product(range(2), repeat=len(x))))
    log = A.log()[paths[:, :-1], paths[:, 1:]].sum(-1) + dist.Normal(MEANS[paths], 1.0).log_prob(x).sum(-1)
    seen = dist.Normal(MEANS, torch.ones(2))
    whole = dist.DiscreteHMM(torch.zeros(2).log_softmax(-1), A.log(), seen, duration=len(x)).log_prob(x)
    started = (A.T @ (torch.ones(2) / 2)).log()[paths[:, 0]]  # Pyro's chain takes a step before the first time
    assert float((log + started).logsumexp(0)) == pytest.approx(float(whole))
    exact = (log + torch.tensor(0.5).log()).softmax(0) @ paths.double()
    kernel = Gibbs(switching)
    mcmc = MCMC(kernel, num_samples=1500, warmup_steps=20, disable_progbar=True)
    mcmc.run(x)
    assert set(kernel.updates.values()) == {"exact, Categorical"}
    draws = torch.stack([mcmc.get_samples()[f"z_{t}"] for t in range(len(x))], -1)
    size = effective_sample_size(draws.unsqueeze(0), chain_dim=0, sample_dim=1)
    assert bool(((draws.mean(0) - exact).abs() < 4.5 * draws.std(0) / size.sqrt()).all())
    assert float(size.min()) > 150
