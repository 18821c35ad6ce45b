"""Gibbs draws from the posterior: joint tests, conjugate posteriors, effective sizes, and what cannot be sampled."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import arviz as az
import pyro
import pytest
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.infer import MCMC, Predictive
from pyro.ops.stats import effective_sample_size
from scipy.stats import chisquare, kstest
from torch import Tensor

import pyro_prme as prme
from pyro_prme.conjugacy import Ascent, find_structure
from pyro_prme.conjugacy.conditionals import multinomial
from tests.conjugacy import models
from tests.inference.replicates import REPLICATED

SIZE, SWEEPS = 1500, 4


def drawn(model: Any, size: int) -> dict[str, Tensor]:
    trace = poutine.trace(model).get_trace(size)
    sites = ((name, trace.nodes[name]) for name in (*trace.observation_nodes, *trace.stochastic_nodes))
    return {name: site["value"] for name, site in sites if type(site["fn"]).__name__ != "_Subsample"}


@pytest.mark.parametrize("name", REPLICATED)
def test_joint_distribution_stands(name: str) -> None:
    """Geweke's joint test: parameters and data from the model, then sweeps given the data, are from the model again.

    Independent replicates in one plate make it exact: there is no chain whose length matters.
    """
    case = REPLICATED[name]
    size, sweeps = (SIZE, SWEEPS) if case.exact else (800, 15)
    before, fresh = drawn(case.model, size), drawn(case.model, 4 * SIZE)
    data = "y" if "y" in before else "x"
    kernel = prme.Gibbs(case.model)
    kernel.initial_params = {n: v for n, v in before.items() if n != data}
    kernel.setup(0, size, before[data])
    params = kernel.initial_params
    for _ in range(sweeps):
        params = kernel.sample(params)
    assert case.exact == all(way.startswith("exact") for way in kernel.updates.values())
    after = {**kernel.typed(params), data: before[data]}
    moved = [n for n in params if n != data and not bool((after[n] == before[n]).all())]
    assert set(moved) == set(params)
    for function in case.functions.values():
        first, second = function(after), function(fresh)
        assert first.numel() == size
        assert kstest(first.flatten().numpy(), second.flatten().numpy()).pvalue > 1e-3


def test_gradient_steps_find_the_posterior_from_elsewhere() -> None:
    """From values that have nothing to do with the data, a site that is left to NUTS and the others come right."""
    case = REPLICATED["normal_gamma"]
    size, warmup = 400, 40
    before, fresh = drawn(case.model, size), drawn(case.model, 4 * SIZE)
    kernel = prme.Gibbs(case.model, leave=["tau"])
    kernel.initial_params = {"mu": torch.full((size,), 6.0), "tau": torch.full((size,), 0.01)}
    kernel.setup(warmup, size, before["x"])
    assert kernel.updates == {"mu": "exact, Normal", "tau": "NUTS: another step was asked for"}
    params = kernel.initial_params
    for _ in range(warmup):
        params = kernel.sample(params)
    kernel.end_warmup()
    for _ in range(10):
        params = kernel.sample(params)
    after = {**params, "x": before["x"]}
    for function in case.functions.values():
        assert kstest(function(after).numpy(), function(fresh).numpy()).pvalue > 1e-3
    assert "step size" in kernel.logging()
    assert kernel.diagnostics()["divergences"] == []


def chain(model: Any, *args: Any, samples: int = 500, warmup: int = 50, **kwargs: Any) -> dict[str, Tensor]:
    mcmc = MCMC(prme.Gibbs(model), num_samples=samples, warmup_steps=warmup, disable_progbar=True)
    mcmc.run(*args, **kwargs)
    return mcmc.get_samples()


def effective_size(draws: Tensor) -> Tensor:
    return effective_sample_size(draws.unsqueeze(0), chain_dim=0, sample_dim=1)


def near(draws: Tensor, expected: Tensor, errors: float = 4.5) -> None:
    """The mean of draws against what it should be, in Monte Carlo errors of a chain."""
    error = draws.std(0) / effective_size(draws).clamp(max=len(draws)).sqrt()
    gap = (draws.mean(0) - expected).abs()
    assert bool((gap <= errors * error + 1e-9).all()), f"{gap.max()} with an error of {error.max()}"


@pytest.mark.parametrize(
    "name", ["normal_normal", "gamma_poisson", "beta_bernoulli", "dirichlet_categorical", "mvn_mvn"]
)
def test_draws_of_a_conjugate_posterior(name: str) -> None:
    """One site: draws are independent, and from the posterior that one update finds."""
    case = models.CASES[name]
    args = case.args()
    ascent = Ascent(find_structure(case.model, args))
    ascent.sweep()
    (site,) = ascent.order
    draws, q = chain(case.model, *args, samples=800, warmup=1)[site], ascent.posterior(site)
    near(draws, q.mean)
    assert bool((effective_size(draws) > 0.7 * len(draws)).all())
    if not q.event_shape:
        assert kstest(draws.numpy(), q.sample((20_000,)).numpy()).pvalue > 1e-3
    else:
        torch.testing.assert_close(draws.var(0), q.variance, rtol=0.25, atol=0)


def test_a_chain_of_two_sites_mixes() -> None:
    x = torch.randn(30) * 2 + 1
    draws = chain(models.normal_gamma, x, samples=1000)
    for site in ("mu", "tau"):
        assert float(effective_size(draws[site])) > 500
    grid = torch.linspace(-3, 5, 2001)  # tau integrated out: a prior of 100 for mu, a Gamma of 0.1 and 0.1
    rate = 0.1 + 0.5 * ((x.unsqueeze(-1) - grid) ** 2).sum(0)
    weight = (-(0.1 + 15) * rate.log() - grid**2 / 200).softmax(0)
    near(draws["mu"], (weight * grid).sum())
    near(draws["tau"], (weight * 15.1 / rate).sum())


def coupled(x: Tensor, seen: Tensor) -> None:
    """Two members of one discrete site in one product: no closed form."""
    mu = pyro.sample("mu", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("pair", 2):
        b = pyro.sample("b", dist.Bernoulli(torch.tensor([0.3, 0.6])))
    pyro.sample("x", dist.Normal(mu[0] + 2 * b[0] * b[1], 0.5), obs=x)
    pyro.sample("y", dist.Normal(mu[1] - 1.5 * b[1], 0.5), obs=seen)


def test_coupled_choices_are_drawn_value_by_value() -> None:
    x, y = torch.tensor(1.1), torch.tensor(-0.4)
    kernel = prme.Gibbs(coupled)
    mcmc = MCMC(kernel, num_samples=300, warmup_steps=10, disable_progbar=True)
    mcmc.run(x, y)
    assert kernel.updates["b"].startswith("value by value: it enters a product of two of its members")
    draws = mcmc.get_samples()["b"]
    pairs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    log = dist.Bernoulli(torch.tensor([0.3, 0.6])).log_prob(pairs).sum(-1)
    log += dist.Normal(2 * pairs.prod(-1), 1.25**0.5).log_prob(x) + dist.Normal(-1.5 * pairs[:, 1], 1.25**0.5).log_prob(
        y
    )
    expected = log.softmax(0) @ pairs
    near(draws, expected)
    near(draws.prod(-1), log.softmax(0)[3])


def words_of(documents: list[list[int]]) -> prme.Batch:
    return prme.Batch.from_tokens(documents)


DOCUMENTS, SIZES, BETA, GAMMA0 = [[0, 0, 1], [2, 2, 0, 1]], (2, 3), 3.0, 0.6


def enumerated(V: Tensor, log_prior: Tensor) -> dict[str, Tensor]:
    """Posterior means of a tiny HDP: assignments enumerated, topics and loadings integrated out, V on a grid.

    Args:
        V: points, with K = 2.
        log_prior: ln of the prior's weight at each.
    """
    p = BETA * torch.stack([V, 1 - V], -1)  # (G, K)
    document = torch.tensor([n for n, words in enumerate(DOCUMENTS) for _ in words])
    word = torch.tensor([w for words in DOCUMENTS for w in words])
    total: dict[str, Any] = {"theta": 0.0, "shares": 0.0, "V": 0.0}
    logs, means = [], []
    for choice in itertools.product(range(2), repeat=len(word)):
        c = torch.tensor(choice)
        counts = torch.zeros(2, 3).index_put((c, word), torch.ones(len(word)), accumulate=True)
        sizes = torch.zeros(2, 2).index_put((document, c), torch.ones(len(word)), accumulate=True)
        log = (GAMMA0 + counts).lgamma().sum() - (3 * GAMMA0 + counts.sum(-1)).lgamma().sum()
        log = log + ((p.unsqueeze(-2) + sizes).lgamma() - p.unsqueeze(-2).lgamma()).sum((-1, -2))
        logs.append(log + log_prior)
        theta = ((GAMMA0 + counts) / (3 * GAMMA0 + counts.sum(-1, keepdim=True))).expand(len(V), 2, 3)
        shares = (p.unsqueeze(-2) + sizes) / (BETA + sizes.sum(-1, keepdim=True))
        means.append((theta, shares, V))
    weight = torch.stack(logs).flatten().softmax(0).reshape(len(logs), len(V))
    for place, name in enumerate(total):
        values = torch.stack([m[place] for m in means])
        total[name] = (weight.reshape(*weight.shape, *[1] * (values.dim() - 2)) * values).sum((0, 1))
    return total


def hdp() -> prme.HDP:
    return prme.HDP(*SIZES, len(DOCUMENTS), alpha=1.5, beta=BETA, gamma0=GAMMA0)


def hdp_agrees(draws: dict[str, Tensor], exact: dict[str, Tensor]) -> None:
    near(draws["theta"].reshape(len(draws["theta"]), 2, 3), exact["theta"])
    near(draws["Z"] / draws["Z"].sum(-1, keepdim=True), exact["shares"])


def test_a_small_hdp_agrees_with_enumeration() -> None:
    """With the sticks given all sites are drawn exactly, the sum of the loadings by an auxiliary Gamma."""
    V = torch.tensor([0.4])
    model = poutine.condition(hdp(), {"V": V})
    kernel = prme.Gibbs(model)
    mcmc = MCMC(kernel, num_samples=1200, warmup_steps=50, disable_progbar=True)
    mcmc.run(words_of(DOCUMENTS))
    assert kernel.updates == {"theta": "exact, Dirichlet", "Z": "exact, Gamma", "C": "exact, Categorical"}
    hdp_agrees(mcmc.get_samples(), enumerated(V, torch.zeros(1)))


@pytest.mark.slow
def test_a_small_hdp_with_unknown_sticks_agrees_with_enumeration() -> None:
    draws = chain(hdp(), words_of(DOCUMENTS), samples=1500, warmup=150)
    grid = (torch.arange(400) + 0.5) / 400
    exact = enumerated(grid, dist.Beta(1.0, 1.5).log_prob(grid))
    hdp_agrees(draws, exact)
    near(draws["V"].squeeze(-1), exact["V"])


def test_arviz_reads_the_chains() -> None:
    x = torch.randn(20) + 4 * torch.randint(0, 2, (20,))
    kernel = prme.Gibbs(models.mixture)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on how many processes MCMC uses
        mcmc = MCMC(kernel, num_samples=30, warmup_steps=10, num_chains=2, disable_progbar=True, mp_context="fork")
        mcmc.run(x, 2)
        data = az.from_pyro(mcmc, log_likelihood=False)
    assert dict(data.posterior.sizes)["chain"] == 2
    assert data.posterior["mu"].shape == (2, 30, 2)
    assert not bool(data.sample_stats["diverging"].any())
    first, second = mcmc.get_samples(group_by_chain=True)["mu"]
    assert not torch.equal(first, second)
    kernel.setup(0, x, 2)
    samples = kernel.typed(mcmc.get_samples())
    assert samples["z"].dtype == torch.int64
    assert samples["mu"].dtype == torch.float64
    predicted = Predictive(poutine.uncondition(models.mixture), samples)(x, 2)["x"]
    assert predicted.shape == (60, 20)


@pytest.mark.usefixtures("float32")
def test_single_precision() -> None:
    x = torch.cat([torch.randn(20) - 3, torch.randn(20) + 3])
    draws = chain(models.mixture, x, 2, samples=50)
    assert all(value.dtype == torch.float32 and bool(torch.isfinite(value).all()) for value in draws.values())


def test_one_seed_gives_the_same_chain() -> None:
    chains = []
    for _ in range(2):
        pyro.set_rng_seed(3)
        chains.append(chain(models.normal_gamma, torch.arange(6.0), samples=5, warmup=2))
    assert all(torch.equal(chains[0][name], chains[1][name]) for name in chains[0])


def test_counts_are_multinomial() -> None:
    probs = torch.tensor([[0.2, 0.0], [0.5, 0.3], [0.3, 0.7]]).unsqueeze(-1).expand(3, 2, 2000)
    count = torch.tensor([4.0, 7.0]).unsqueeze(-1).expand(2, 2000)
    draws = multinomial(count, probs)
    assert bool((draws.sum(0) == count).all())
    torch.testing.assert_close(draws.mean(-1), (probs * count).mean(-1), rtol=0, atol=0.12)
    variance = count * probs * (1 - probs)
    torch.testing.assert_close(draws.var(-1), variance.mean(-1), rtol=0.15, atol=0.01)
    once = multinomial(torch.ones(2, 2000), probs)
    assert bool((once.sum(0) == 1).all())
    assert chisquare(once[:, 1].sum(-1)[1:].numpy(), [600, 1400]).pvalue > 1e-3


def shares_not_whole(x: Tensor) -> None:
    g = pyro.sample("g", dist.Gamma(torch.ones(2), 1.0).to_event(1))
    with poutine.scale(scale=0.5):
        pyro.sample("x", dist.Poisson(g.sum()), obs=x)


def test_a_count_that_is_not_whole_is_left_to_gradients() -> None:
    kernel = prme.Gibbs(shares_not_whole)
    kernel.setup(5, torch.tensor(3.0))
    assert kernel.updates == {"g": "NUTS: the logarithm of a sum with it counts a number of times that is not whole"}
    assert kernel.sample(kernel.initial_params)["g"].shape == (2,)


def unbounded(x: Tensor) -> None:
    n = pyro.sample("n", dist.Poisson(3.0))
    pyro.sample("x", dist.Normal(n, 1.0), obs=x)


def subsampled(x: Tensor) -> None:
    with pyro.plate("data", 5, subsample=torch.tensor([0, 2])):
        u = pyro.sample("u", dist.Normal(0.0, 1.0))
        pyro.sample("x", dist.Normal(u, 1.0), obs=x)


def scaled(x: Tensor) -> None:
    with poutine.scale(scale=3.0):
        u = pyro.sample("u", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(u, 1.0), obs=x)


def improper(x: Tensor) -> None:
    u = pyro.sample("u", dist.Gamma(1.0, 1.0))
    pyro.factor("x", x * u)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (unbounded, "Site n has the prior Poisson, which is discrete with infinitely many values, and no closed form"),
        (subsampled, "Plate data has 2 of its 5 members: Gibbs needs all of them."),
        (scaled, "Site u is under a scale, so that one draw would stand for several"),
    ],
)
def test_what_cannot_be_sampled(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prme.Gibbs(model).setup(0, torch.tensor([0.1, 0.4]) if model is subsampled else torch.tensor(1.0))


def test_words_with_counts_say_what_to_do() -> None:
    batch = prme.Batch(torch.tensor([0]), torch.tensor([0, 2]), torch.tensor([0, 2]), torch.tensor([2.0, 1.0]))
    with pytest.raises(ValueError, match=r"one draw would stand for several: .*Batch\.from_tokens"):
        prme.Gibbs(prme.HDP(2, 3, 1)).setup(0, batch)


def test_an_improper_conditional_is_an_error() -> None:
    kernel = prme.Gibbs(improper)
    kernel.setup(0, torch.tensor(5.0))
    with pytest.raises(ValueError, match="The complete conditional of u is not a proper distribution"):
        kernel.sample(kernel.initial_params)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nu": torch.zeros(())}, "initial_params has 'nu', which is not a latent site"),
        ({"mu": torch.zeros(2)}, r"initial_params has shape \(2,\) for site mu: it must be \(\)"),
    ],
)
def test_wrong_values_to_start_from(values: dict[str, Tensor], message: str) -> None:
    kernel = prme.Gibbs(models.normal_gamma)
    kernel.initial_params = values
    with pytest.raises(ValueError, match=message):
        kernel.setup(0, torch.randn(4))


def test_a_wrong_name_to_leave() -> None:
    with pytest.raises(ValueError, match="leave names 'x', which is not a latent site"):
        prme.Gibbs(models.normal_gamma, leave=["x"]).setup(0, torch.randn(4))
    with pytest.raises(ValueError, match="Nothing is known of the model yet"):
        _ = prme.Gibbs(models.normal_gamma).updates
