"""The Pyro programs: traces, laws under Predictive, gradients, and one step of inference."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from scipy import special, stats

from pyro_prme.measures import (
    BetaLevy,
    GammaLevy,
    StableBetaLevy,
    inverse_tail,
    linear_decoder,
    pyro_gamma_process,
    pyro_indian_buffet,
    pyro_prme_loadings,
    pyro_random_measure,
    pyro_sticks,
    random_decoder,
)

from .laws import assert_mean


@pytest.fixture(autouse=True)
def _clean():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


def draws(model, num, parallel=False, **arguments):
    return Predictive(model, num_samples=num, parallel=parallel)(**arguments)


@pytest.mark.parametrize("levy", [GammaLevy(2.0), BetaLevy(2.0), StableBetaLevy(2.0, 1.0, 0.4)], ids=repr)
def test_inverse_tail_has_the_right_gradient(levy):
    u = torch.tensor([0.3, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: inverse_tail(v, levy), (u,), eps=1e-6, atol=1e-7)


def test_inverse_tail_is_zero_with_zero_gradient_where_the_weight_underflows():
    u = torch.tensor([1e5], requires_grad=True)
    x = inverse_tail(u, GammaLevy(1.0))
    x.sum().backward()
    assert x.item() == 0
    assert u.grad.item() == 0


def test_random_measure_sites_and_law():
    trace = poutine.trace(pyro_gamma_process).get_trace("g_", 3.0, 50)
    assert {"g_gaps", "g_sigma", "g_weight"} <= set(trace.nodes)
    assert torch.isfinite(trace.log_prob_sum())
    weight = trace.nodes["g_weight"]["value"]
    assert weight.shape == (50,)
    assert torch.all(weight[1:] <= weight[:-1])
    sample = draws(lambda: pyro_gamma_process("g_", 3.0, 50), 1500, parallel=True)
    assert stats.kstest(sample["g_sigma"].flatten().numpy(), "uniform").pvalue > 1e-3
    total = sample["g_weight"].sum(-1).flatten()
    assert stats.kstest(total.numpy(), stats.gamma(3.0).cdf).pvalue > 1e-3


def test_mass_and_rate_may_be_sites():
    gaps = torch.tensor([0.2, 0.5, 1.5], dtype=torch.float64)

    def weight(mass, rate):
        return poutine.condition(pyro_gamma_process, data={"gaps": gaps})("", mass, 3, rate)[0]

    mass, rate = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (2.0, 3.0))
    expected = GammaLevy(2.0, 3.0).inverse_tail(gaps.cumsum(0).numpy())
    np.testing.assert_allclose(weight(mass, rate).detach(), expected, rtol=1e-10)
    np.testing.assert_allclose(weight(2.0, 3.0), expected, rtol=1e-10)
    assert torch.autograd.gradcheck(weight, (mass, rate), eps=1e-6, atol=1e-6)


def test_programs_stand_in_plates_and_can_be_conditioned():
    Z = dist.Gamma(2.0, 1.0).sample((2, 3, 4))

    def model():
        with pyro.plate("groups", 2, dim=-3):
            return pyro_prme_loadings("a_", 3, 4, decoder=random_decoder(seed=1))

    trace = poutine.trace(poutine.condition(model, data={"a_Z": Z})).get_trace()
    p, f = (trace.nodes[name]["value"] for name in ("a_p", "a_f"))
    assert p.shape == (2, 1, 4)
    assert not torch.allclose(p[0], p[1])
    trace.compute_log_prob()
    torch.testing.assert_close(trace.nodes["a_Z"]["log_prob"], dist.Gamma(5.0 * p, torch.exp(-f)).log_prob(Z))
    with pyro.plate("groups", 2, dim=-2):
        weight, sigma = pyro_random_measure("b_", GammaLevy(1.0), 5)
    assert weight.shape == sigma.shape == (2, 5)


def test_sticks_sum_to_one_and_are_beta():
    sample = draws(lambda: pyro_sticks("", 2.0, 8), 1500, parallel=True)
    torch.testing.assert_close(sample["p"].sum(-1), torch.ones_like(sample["p"][..., 0]))
    assert stats.kstest(sample["p"][..., 0].flatten().numpy(), stats.beta(1, 2.0).cdf).pvalue > 1e-3
    assert_mean(-torch.log1p(-sample["V"]).flatten().numpy(), 1 / 2.0)  # exponential with rate alpha


@pytest.mark.parametrize("parallel", [False, True])
def test_prme_loadings_shapes_and_hdp_law(parallel):
    sample = draws(lambda: pyro_prme_loadings("", 3, 30, alpha=1.0, beta=4.0), 400, parallel=parallel)
    assert sample["Z"].shape == (400, 3, 30)
    assert stats.kstest(sample["Z"][:, 0].sum(-1).numpy(), stats.gamma(4.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("parallel", [False, True])
def test_prme_loadings_with_a_decoder(parallel):
    decoder = random_decoder(seed=1)
    sample = draws(lambda: pyro_prme_loadings("t_", 4, 6, beta=3.0, decoder=decoder), 400, parallel=parallel)
    h, ell = sample["t_h"].reshape(400, 4, 2), sample["t_ell"].reshape(400, 6, 2)
    mean, variance = decoder(h, ell)
    expected = 3.0 * sample["t_p"].reshape(400, 1, 6) * torch.exp(mean + variance / 2)
    assert_mean((sample["t_Z"] - expected).sum(-1).numpy(), 0.0)
    assert_mean((sample["t_f"] - mean).reshape(400, -1).mean(-1).numpy(), 0.0)
    assert_mean(((sample["t_f"] - mean) ** 2 - variance).reshape(400, -1).mean(-1).numpy(), 0.0)
    assert_mean(h.flatten().numpy() ** 2, 1.0)
    assert_mean(ell.flatten().numpy() ** 2, 1.0)


def test_prme_trace_matches_its_densities():
    trace = poutine.trace(pyro_prme_loadings).get_trace("", 3, 5, decoder=random_decoder(seed=2))
    value = {name: trace.nodes[name]["value"] for name in ("V", "p", "ell", "h", "f", "Z")}
    shapes = {"V": (4,), "p": (5,), "ell": (5, 2), "h": (3, 1, 2), "f": (3, 5), "Z": (3, 5)}
    assert {name: tuple(v.shape) for name, v in value.items()} == shapes
    trace.compute_log_prob()
    expected = dist.Gamma(5.0 * value["p"], torch.exp(-value["f"])).log_prob(value["Z"])
    torch.testing.assert_close(trace.nodes["Z"]["log_prob"], expected)


def test_linear_decoder_makes_f_deterministic():
    trace = poutine.trace(pyro_prme_loadings).get_trace("", 3, 5, decoder=linear_decoder)
    f, h, ell = (trace.nodes[name]["value"] for name in ("f", "h", "ell"))
    torch.testing.assert_close(f, h.squeeze(-2) @ ell.T)


def test_decoder_agrees_between_numpy_and_torch():
    rng, decoder = np.random.default_rng(3), random_decoder(seed=3)
    h, ell = rng.normal(size=(4, 2)), rng.normal(size=(5, 2))
    for a, b in zip(decoder(h, ell), decoder(torch.tensor(h), torch.tensor(ell)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_indian_buffet_dishes():
    sample = draws(lambda: pyro_indian_buffet("", 3, 2.0, 40), 1500, parallel=True)["Z"]
    assert sample.shape == (1500, 3, 40)
    assert_mean(sample.sum(-1).numpy(), 2.0)
    assert_mean((sample.amax(1).sum(-1)).numpy(), 2.0 * (1 + 1 / 2 + 1 / 3))


@pytest.mark.slow
def test_programs_can_be_inferred_inside_a_model():
    torch.manual_seed(0)
    data = torch.tensor([5.0, 6.0, 7.0, 4.0])

    def model():
        weight, _ = pyro_random_measure("g_", GammaLevy(1.0), 10)
        with pyro.plate("data", 4):
            pyro.sample("x", dist.Poisson(weight.sum(-1)), obs=data)

    guide = AutoNormal(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO(num_particles=2))
    losses = [svi.step() for _ in range(200)]
    assert np.all(np.isfinite(losses))
    assert np.mean(losses[-20:]) < np.mean(losses[:20])
    total = Predictive(model, guide=guide, num_samples=200)()["g_weight"].sum(-1).mean().item()
    # Gamma(1, 1) prior, 22 counts in 4: the exact posterior is Gamma(23, 5), mean 4.6
    assert total == pytest.approx(4.6, abs=0.8)


@pytest.mark.slow
def test_mass_is_inferred_by_nuts():
    # mass ~ Gamma(2, 1), total ~ Gamma(mass, 1), 22 counts in 4: the total integrates out
    def model():
        mass = pyro.sample("mass", dist.Gamma(torch.tensor(2.0), torch.tensor(1.0)))
        weight, _ = pyro_gamma_process("g_", mass, 20)
        with pyro.plate("data", 4):
            pyro.sample("x", dist.Poisson(weight.sum(-1)), obs=torch.tensor([5.0, 6.0, 7.0, 4.0]))

    mcmc = MCMC(NUTS(model, max_tree_depth=6), num_samples=400, warmup_steps=150, disable_progbar=True)
    mcmc.run()
    sample = mcmc.get_samples()["mass"].numpy()
    a = np.linspace(1e-3, 40, 20_001)
    density = a * np.exp(special.gammaln(a + 22) - special.gammaln(a) - a * (1 + np.log(5)) - 60)
    exact = (a * density).sum() / density.sum()
    error = sample.std() / np.sqrt(mcmc.diagnostics()["mass"]["n_eff"].item())
    assert error < 0.2
    assert abs(sample.mean() - exact) < 4 * error


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pyro_sticks("", 1.0, 1), "num_sticks"),
        (lambda: pyro_sticks("", -1.0, 5), "alpha is -1.0: it must be a finite number above 0"),
        (lambda: pyro_prme_loadings("", 3, 5, beta=-1.0), "beta is -1.0: it must be a finite number above 0"),
        (lambda: pyro_prme_loadings("", 3, 5, alpha=0.0), "alpha is 0.0: it must be a finite number above 0"),
        (lambda: pyro_gamma_process("", 1.0, 0), "num_atoms"),
        (lambda: pyro_prme_loadings("", 0, 5), "num_objects"),
        (lambda: pyro_prme_loadings("", 3, 5, dim_h=0), "dim_h"),
        (lambda: pyro_prme_loadings("", 3, 5, decoder=linear_decoder, dim_h=1), "a linear decoder"),
        (lambda: pyro_gamma_process("", 1.0, 3, rate=0.0), "rate"),
        (lambda: pyro_indian_buffet("", 3, -1.0, 5), "mass"),
    ],
)
def test_wrong_inputs(make, words):
    with pytest.raises(ValueError, match=words):
        make()
