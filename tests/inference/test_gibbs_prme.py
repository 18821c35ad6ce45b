"""Gibbs on a tiny PRME against NUTS with the assignments summed out by hand."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS
from pyro.infer.autoguide.initialization import init_to_value
from pyro.ops.stats import effective_sample_size

import pyro_prme as prme
from pyro_prme.equations.sticks import stick_weights
from tests.inference.test_gibbs import chain

K, D, N = 2, 4, 3
MEAN = torch.tensor([[0.8, -0.5], [-0.6, 0.7], [0.2, 0.1]], dtype=torch.float64)
DRAWS = 250


class Known(torch.nn.Module):
    """A decoder with moments of f that are known."""

    def forward(self, h, ell):
        return MEAN, torch.full_like(MEAN, 0.6)


def corpus():
    rng = np.random.default_rng(0)
    theta = np.array([[0.6, 0.3, 0.05, 0.05], [0.05, 0.05, 0.3, 0.6]])
    return prme.Batch.from_tokens([rng.choice(D, 12, p=[w, 1 - w] @ theta).tolist() for w in (0.9, 0.2, 0.5)])


def held(model):
    return poutine.condition(model, {"ell": torch.zeros(K, 1), "h": torch.zeros(N, 1, 1)})


def collapsed(batch):
    V = pyro.sample("V", dist.Beta(torch.ones(K - 1), 1.5).to_event(1))
    with pyro.plate("topics", K, dim=-1):
        theta = pyro.sample("theta", dist.Dirichlet(torch.full((D,), 0.7)))
    with pyro.plate("documents", N, dim=-2), pyro.plate("loadings", K, dim=-1):
        f = pyro.sample("f", dist.Normal(MEAN, 0.6**0.5))
        Z = pyro.sample("Z", dist.Gamma(4.0 * stick_weights(V), (-f).exp()))
    proportions = Z / Z.sum(-1, keepdim=True)
    pyro.factor("X", ((proportions @ theta).log()[batch.document, batch.word]).sum())


def summary(draws):
    """Quantities that do not depend on which topic is called the first."""
    theta, Z = (draws[name].reshape(len(draws[name]), -1, n) for name, n in (("theta", D), ("Z", K)))
    words = (Z / Z.sum(-1, keepdim=True)) @ theta
    weight = stick_weights(draws["V"].reshape(-1, K - 1))
    f = draws["f"].reshape(-1, N, K)
    return torch.cat([words.flatten(1), weight.square().sum(-1, keepdim=True), f.flatten(1), Z.sum(-1).log()], -1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_small_prme_agrees_with_nuts():
    batch = corpus()
    model = held(prme.PRME(K, D, N, alpha=1.5, beta=4.0, gamma0=0.7, h_dim=1, ell_dim=1, decoder=Known()))
    gibbs = summary(chain(model, batch, samples=DRAWS, warmup=50))
    pyro.enable_validation(False)
    kernel = NUTS(collapsed, init_strategy=init_to_value(values={"f": MEAN}))
    mcmc = MCMC(kernel, num_samples=DRAWS, warmup_steps=60, disable_progbar=True)
    mcmc.run(batch)
    nuts = summary(mcmc.get_samples())
    error = sum(
        part.var(0) / effective_sample_size(part.unsqueeze(0), chain_dim=0, sample_dim=1) for part in (gibbs, nuts)
    ).sqrt()
    assert bool(((gibbs.mean(0) - nuts.mean(0)).abs() < 4.5 * error).all())
    assert float(error.max()) < 0.4
