"""Chains: states of loops over time have one factor together, discrete ones and Normal ones, as by forward-backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from bayespy.inference import VB
from bayespy.nodes import (
    CategoricalMarkovChain,
    Dirichlet,
    Gamma,
    GaussianARD,
    GaussianMarkovChain,
    Mixture,
    SumMultiply,
)
from pyro import distributions as dist
from pyro import poutine
from pyro.infer import MCMC, TraceEnum_ELBO, config_enumerate
from pyro.ops.stats import effective_sample_size
from torch import Tensor

from pyro_prme.conjugacy import Ascent, find_groups, find_structure
from pyro_prme.conjugacy.families import FiniteGroup
from pyro_prme.inference import ClosedFormGuide, FitOptions, Gibbs, fit
from pyro_prme.inference.rules import Conjugate

A = torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=torch.float64)
B = torch.tensor([[0.6, 0.4], [0.1, 0.9]], dtype=torch.float64)
MEANS = torch.tensor([-0.5, 0.8], dtype=torch.float64)
BOTH = torch.tensor([[-1.0, 0.0], [0.5, 2.0]], dtype=torch.float64)
DECAY, NOISE, SEEN = 0.8, 0.5, 0.3


def ascent_of(model: Callable, *args: Any, natural: Any = None) -> Ascent:
    """Coordinate ascent with the factors that the sites have together."""
    structure = find_structure(model, args)
    assert structure.refusals == {}
    return Ascent(structure, natural, find_groups(structure, structure.closed).groups)


def evidence(model: Callable, *args: Any, plates: int = 0) -> float:
    """By Pyro's enumeration of all discrete sites."""
    loss = TraceEnum_ELBO(max_plate_nesting=plates).loss(config_enumerate(model), lambda *_: None, *args)
    return -float(loss)


def switching(x: Tensor) -> None:
    z = None
    for t in pyro.markov(range(len(x))):
        z = pyro.sample(f"z_{t}", dist.Categorical(torch.ones(2) / 2 if z is None else A[z]))
        pyro.sample(f"x_{t}", dist.Normal(MEANS[z], 1.0), obs=x[t])


def factorial(x: Tensor) -> None:
    """Two chains, whose states are looked at together."""
    v: Any = 0
    w: Any = 1
    for t in range(len(x)):
        v = pyro.sample(f"v_{t}", dist.Categorical(A[v]))
        w = pyro.sample(f"w_{t}", dist.Bernoulli(B[w, 1])).long()
        pyro.sample(f"x_{t}", dist.Normal(BOTH[v, w], 1.0), obs=x[t])


def second_order(x: Tensor) -> None:
    table = torch.tensor([[[0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5], [0.2, 0.8]]])
    y = pyro.sample("y_0", dist.Categorical(torch.tensor([0.3, 0.7])))
    z = pyro.sample("y_1", dist.Categorical(A[y]))
    for t in range(len(x)):
        y, z = z, pyro.sample(f"z_{t}", dist.Categorical(table[y, z]))
        pyro.sample(f"x_{t}", dist.Normal(MEANS[z], 0.5), obs=x[t])


def tree(x: Tensor) -> None:
    """One root, a class for each row and one for each cell: plates within plates."""
    root = pyro.sample("root", dist.Categorical(torch.tensor([0.3, 0.7])))
    with pyro.plate("rows", x.shape[0], dim=-2):
        c = pyro.sample("c", dist.Categorical(A[root]))
        with pyro.plate("columns", x.shape[1], dim=-1):
            k = pyro.sample("k", dist.Categorical(B[c]))
            pyro.sample("x", dist.Normal(MEANS[k] + 0.3 * root, 1.0), obs=x)


def sequences(x: Tensor, lengths: Tensor) -> None:
    """Of different lengths, with plates, as in Pyro's own example."""
    with pyro.plate("sequences", x.shape[0], dim=-2):
        z: Any = 0
        for t in pyro.markov(range(x.shape[1])):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                z = pyro.sample(f"z_{t}", dist.Categorical(A[z]), infer={"enumerate": "parallel"})
                with pyro.plate(f"tones_{t}", x.shape[2], dim=-1):
                    pyro.sample(f"x_{t}", dist.Bernoulli(B[z, torch.arange(2)]), obs=x[:, t])


EXACT: list[tuple[Callable, tuple, int]] = [
    (switching, (torch.tensor([-0.4, 1.2, 0.3, 0.9, 2.0]),), 0),
    (factorial, (torch.tensor([-0.4, 1.2, 0.3, 0.9]),), 0),
    (second_order, (torch.tensor([-0.4, 1.2, 0.3, 0.9]),), 0),
    (tree, (torch.tensor([[0.2, -1.0, 0.4], [2.0, 0.5, 1.1]]),), 2),
    (sequences, (torch.tensor([[[1.0, 0], [0, 0], [1, 1]]] * 3), torch.tensor([3, 1, 2])), 2),
]


@pytest.mark.parametrize(("model", "args", "plates"), EXACT, ids=lambda v: getattr(v, "__name__", None))
def test_bound_is_the_evidence_where_all_that_is_latent_is_discrete(model: Callable, args: tuple, plates: int) -> None:
    args = tuple(a.double() if a.is_floating_point() else a for a in args)
    ascent = ascent_of(model, *args)
    (unit,) = ascent.order
    ascent.sweep()
    assert float(ascent.bound()) == pytest.approx(evidence(model, *args, plates=plates), abs=1e-10)
    group = ascent.program.families[unit]
    assert isinstance(group, FiniteGroup)
    values = group.drawn(ascent.natural[unit])
    at = group.at_values(values)
    statistics = ascent.statistics()[unit]
    assert {key: part.shape for key, part in at.items()} == {key: part.shape for key, part in statistics.items()}
    for key, part in statistics.items():  # marginals add up, and what is drawn is possible
        width = len(key.split("#")[0].split(","))
        torch.testing.assert_close(part.sum(tuple(range(-width, 0))), torch.ones(part.shape[: part.dim() - width]))
        assert bool(((at[key] == 0) | (part > 0)).all())


def test_pairs_of_states_are_those_of_all_paths() -> None:
    x = torch.tensor([-0.4, 1.2, 0.3, 0.9], dtype=torch.float64)
    ascent = ascent_of(switching, x)
    ascent.sweep()
    paths = torch.tensor(list(itertools.product(range(2), repeat=len(x))))
    log = A.log()[paths[:, :-1], paths[:, 1:]].sum(-1) + dist.Normal(MEANS[paths], 1.0).log_prob(x).sum(-1)
    weight = log.softmax(0)
    (found,) = ascent.statistics().values()
    for t in range(3):
        exact = torch.stack([((paths[:, t] == i) * weight).sum() for i in range(2)])
        torch.testing.assert_close(found[f"{t}"], exact)
        both = [[((paths[:, t] == i) & (paths[:, t + 1] == j)).double() @ weight for j in range(2)] for i in range(2)]
        torch.testing.assert_close(found[f"{t},{t + 1}"], torch.tensor(both))
        torch.testing.assert_close(ascent.posterior(f"z_{t}").probs, exact)


def test_what_is_drawn_together_has_the_pairs_of_the_factor() -> None:
    x = torch.tensor([-0.4, 1.2, 0.3], dtype=torch.float64)
    guide = ClosedFormGuide(switching)
    fit(guide, x, options=FitOptions(epochs=3, progress=False))
    ascent = ascent_of(switching, x)
    ascent.sweep()
    (exact,) = ascent.statistics().values()
    factors = guide.run(x).factors
    (unit,) = factors.order
    group = factors.program.families[unit]
    assert isinstance(group, FiniteGroup)
    draws = [group.drawn(factors.natural[unit]) for _ in range(1000)]
    assert set(guide(x)) == set(draws[0])
    z = torch.stack([torch.stack([d[f"z_{t}"] for t in range(3)]) for d in draws])
    for t in range(2):
        both = torch.nn.functional.one_hot(2 * z[:, t] + z[:, t + 1], 4).double().mean(0).reshape(2, 2)
        p = exact[f"{t},{t + 1}"]
        assert bool(((both - p).abs() < 4.5 * (p * (1 - p) / len(z)).sqrt()).all())


def learned(x: Tensor, size: int) -> None:
    with pyro.plate("states", size):
        rows = pyro.sample("rows", dist.Dirichlet(torch.full((size,), 0.7)))
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = pyro.sample("tau", dist.Gamma(2.0, 1.0))
    first = pyro.sample("first", dist.Dirichlet(torch.ones(size)))
    z = None
    for t in pyro.markov(range(len(x))):
        z = pyro.sample(f"z_{t}", dist.Categorical(first if z is None else rows[z]))
        pyro.sample(f"x_{t}", dist.Normal(mu[z], tau[z].rsqrt()), obs=x[t])


@pytest.fixture
def numpy_seeded() -> Any:
    state = np.random.get_state()  # noqa: NPY002 - BayesPy draws from the global generator
    np.random.seed(0)  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


@pytest.mark.usefixtures("numpy_seeded")
def test_hidden_markov_model_with_learned_rows_as_by_bayespy() -> None:
    torch.manual_seed(0)
    x = torch.tensor([-3.0, 0.0, 3.0])[torch.randint(0, 3, (20,))] + torch.randn(20)
    counts, means = torch.rand(3, 3) + 1, torch.tensor([-2.0, 0.5, 2.5])
    ascent = ascent_of(learned, x, 3)
    ascent.natural["rows"] = {"log": counts - 1}
    ascent.natural["first"] = {"log": torch.zeros(3)}
    ascent.natural["mu"] = {"x": means, "xx": torch.full((3,), -0.5)}
    ascent.natural["tau"] = {"log": torch.ones(3), "x": -torch.ones(3)}
    states = next(unit for unit in ascent.order if "z_0" in unit)
    order = (states, "rows", "first", "mu", "tau")

    first, rows = Dirichlet(np.ones(3)), Dirichlet(np.full(3, 0.7), plates=(3,))
    z = CategoricalMarkovChain(first, rows, states=20)
    mu, tau = GaussianARD(0, 0.04, plates=(3,)), Gamma(2, 1, plates=(3,))
    seen = Mixture(z, GaussianARD, mu, tau)
    seen.observe(x.numpy())
    rows.initialize_from_parameters(counts.numpy())
    first.initialize_from_parameters(np.ones(3))
    mu.initialize_from_parameters(means.numpy(), np.ones(3))
    other = VB(seen, z, rows, first, mu, tau)
    bounds = []
    for _ in range(12):
        ascent.sweep(order)
        other.update(z, rows, first, mu, tau, verbose=False)
        bounds.append(float(ascent.bound()))
        assert bounds[-1] == pytest.approx(float(other.compute_lowerbound()), rel=1e-9)
    assert bounds[-1] > bounds[0]


def state_space(y: Tensor, size: int) -> None:
    """Dynamics and loadings with relevance, states one after the other."""
    with pyro.plate("to", size, dim=-1):
        alpha = pyro.sample("alpha", dist.Gamma(1.0, 1.0))
        gamma = pyro.sample("gamma", dist.Gamma(1.0, 1.0))
    with pyro.plate("from", size):
        dynamics = pyro.sample("dynamics", dist.Normal(torch.zeros(size), alpha.rsqrt()).to_event(1))
    with pyro.plate("columns", y.shape[1]):
        loadings = pyro.sample("loadings", dist.Normal(torch.zeros(size), gamma.rsqrt()).to_event(1))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    s = None
    for t in pyro.markov(range(len(y))):
        mean, scale = (torch.zeros(size), 10.0) if s is None else (dynamics @ s, 1.0)
        s = pyro.sample(f"s_{t}", dist.Normal(mean, scale).to_event(1))
        pyro.sample(f"y_{t}", dist.Normal(loadings @ s, tau.rsqrt()).to_event(1), obs=y[t])


@pytest.mark.usefixtures("numpy_seeded")
def test_linear_state_space_model_as_by_bayespy() -> None:
    torch.manual_seed(0)
    y = torch.randn(12, 2).cumsum(0) @ torch.randn(2, 4) + 0.3 * torch.randn(12, 4)
    start_dynamics, start_loadings = torch.eye(2) * 0.7 + 0.1, torch.randn(4, 2)
    ascent = ascent_of(state_space, y, 2)
    for name, mean in (("dynamics", start_dynamics), ("loadings", start_loadings)):
        ascent.natural[name] = ascent.program.families[name].start(mean)
    for name, shape in (("alpha", (2,)), ("gamma", (2,)), ("tau", ())):
        ascent.natural[name] = {"log": torch.zeros(shape), "x": -torch.ones(shape)}
    states = next(unit for unit in ascent.order if "s_0" in unit)
    order = (states, "loadings", "dynamics", "alpha", "gamma", "tau")

    alpha, gamma, tau = Gamma(1, 1, plates=(2,)), Gamma(1, 1, plates=(2,)), Gamma(1, 1)
    dynamics = GaussianARD(0, alpha, shape=(2,), plates=(2,))
    loadings = GaussianARD(0, gamma, shape=(2,), plates=(4, 1))
    s = GaussianMarkovChain(np.zeros(2), 0.01 * np.identity(2), dynamics, np.ones(2), n=12)
    seen = GaussianARD(SumMultiply("d,d->", loadings, s), tau)
    seen.observe(y.T.numpy())
    dynamics.initialize_from_parameters(start_dynamics.numpy(), np.ones((2, 2)))
    loadings.initialize_from_parameters(start_loadings.numpy()[:, None], np.ones((4, 1, 2)))
    other = VB(seen, s, loadings, dynamics, alpha, gamma, tau)
    bounds = []
    for _ in range(12):
        ascent.sweep(order)
        other.update(s, loadings, dynamics, alpha, gamma, tau, verbose=False)
        bounds.append(float(ascent.bound()))
        assert bounds[-1] == pytest.approx(float(other.compute_lowerbound()), rel=1e-9)
    assert bounds[-1] > bounds[0]


def linear(x: Tensor) -> None:
    s = None
    for t in pyro.markov(range(len(x))):
        s = pyro.sample(f"s_{t}", dist.Normal(0.0 if s is None else DECAY * s, NOISE))
        pyro.sample(f"x_{t}", dist.Normal(s, SEEN), obs=x[t])


def powers(size: int) -> Tensor:
    """States from noise: the lower triangle of decay^(t - s)."""
    t = torch.arange(size, dtype=torch.float64)
    return (DECAY ** (t.unsqueeze(-1) - t).clamp(min=0)).tril()


def states(x: Tensor) -> None:
    """The same with the disturbances as one site, of which states are sums."""
    matrix = powers(len(x))
    noise = pyro.sample("noise", dist.Normal(0.0, NOISE).expand([len(x)]).to_event(1))
    with pyro.plate("times", len(x)):
        pyro.sample("x", dist.Normal(matrix @ noise, SEEN), obs=x)


@pytest.mark.parametrize("model", [linear, states], ids=lambda m: m.__name__)
def test_linear_states_are_smoothed_as_by_a_gaussian_hmm(model: Callable) -> None:
    x = torch.randn(12).cumsum(0)
    ascent = ascent_of(model, x)
    (unit,) = ascent.order
    ascent.sweep()
    eye = torch.eye(1)
    step = dist.MultivariateNormal(torch.zeros(1), NOISE**2 * eye)
    seen = dist.MultivariateNormal(torch.zeros(1), SEEN**2 * eye)
    before = dist.MultivariateNormal(torch.zeros(1), 1e-12 * eye)  # Pyro's chain takes a step before the first time
    chain = dist.GaussianHMM(before, DECAY * eye, step, eye, seen, duration=len(x))
    assert float(ascent.bound()) == pytest.approx(float(chain.log_prob(x.unsqueeze(-1))), abs=1e-8)
    prior = NOISE**2 * powers(len(x)) @ powers(len(x)).T
    exact = prior @ torch.linalg.solve(prior + SEEN**2 * torch.eye(len(x)), x)
    if model is states:
        smoothed = powers(len(x)) @ ascent.posterior("noise").mean
    else:
        smoothed = torch.stack([ascent.posterior(f"s_{t}").mean for t in range(len(x))])
        spread = torch.stack([ascent.posterior(f"s_{t}").variance for t in range(len(x))])
        covariance = prior - prior @ torch.linalg.solve(prior + SEEN**2 * torch.eye(len(x)), prior)
        torch.testing.assert_close(spread, covariance.diagonal())
        group = ascent.program.families[unit]
        draws = torch.stack([torch.stack(list(group.drawn(ascent.natural[unit]).values())) for _ in range(1000)])
        torch.testing.assert_close(draws.T.cov(), covariance, atol=0.02, rtol=0)
    torch.testing.assert_close(smoothed, exact)


def slopes_and_intercept(y: Tensor, features: Tensor, group: Tensor) -> None:
    """Weights, effects of groups and their mean: Normal sites of different plates, all in one square."""
    mean = pyro.sample("mean", dist.Normal(0.0, 3.0))
    w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("groups", 3):
        effect = pyro.sample("effect", dist.Normal(mean, 0.7))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(effect[group] + features @ w, 0.5), obs=y)


def test_normal_sites_of_different_plates_have_the_exact_joint_posterior() -> None:
    y, features, group = torch.randn(8), torch.randn(8, 2), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    ascent = ascent_of(slopes_and_intercept, y, features, group)
    assert len(ascent.order) == 1
    ascent.sweep()
    member = torch.nn.functional.one_hot(group, 3).double()
    effects = 9 * torch.ones(3, 3) + 0.49 * torch.eye(3)
    covariance = member @ effects @ member.T + features @ features.T + 0.25 * torch.eye(8)
    exact = dist.MultivariateNormal(torch.zeros(8), covariance).log_prob(y)
    assert float(ascent.bound()) == pytest.approx(float(exact), abs=1e-10)
    torch.testing.assert_close(ascent.posterior("effect").mean, effects @ member.T @ torch.linalg.solve(covariance, y))
    torch.testing.assert_close(ascent.posterior("mean").mean, 9 * torch.ones(8) @ torch.linalg.solve(covariance, y))


def blocks(x: Tensor) -> None:
    """A class for each row and each column: their pairs do not lie in one another's plates."""
    with pyro.plate("rows", x.shape[0], dim=-2):
        a = pyro.sample("a", dist.Categorical(torch.ones(2) / 2))
    with pyro.plate("columns", x.shape[1], dim=-1):
        b = pyro.sample("b", dist.Categorical(torch.ones(2) / 2))
    with pyro.plate("rows again", x.shape[0], dim=-2), pyro.plate("columns again", x.shape[1], dim=-1):
        pyro.sample("x", dist.Normal(BOTH[a, b], 1.0), obs=x)


def wide(x: Tensor) -> None:
    """Too many pairs of values."""
    means = torch.arange(200.0).unsqueeze(-1) * torch.ones(200)
    a = pyro.sample("a", dist.Categorical(torch.ones(200) / 200))
    b = pyro.sample("b", dist.Categorical(torch.ones(200) / 200))
    pyro.sample("x", dist.Normal(means[a, b], 1.0), obs=x)


@pytest.mark.parametrize(
    ("model", "x", "reason"),
    [
        (blocks, torch.randn(3, 4), "do not lie in one another's plates"),
        (wide, torch.tensor(3.0), "a table over a, b would have 40000 numbers"),
    ],
    ids=["blocks", "wide"],
)
def test_what_cannot_go_together_says_why(model: Callable, x: Tensor, reason: str) -> None:
    guide = ClosedFormGuide(model)
    assert reason in guide.plan(x)["a"].update
    assert fit(guide, x, options=FitOptions(epochs=5, progress=False)).bound > -1e4


def test_factors_apart_are_asked_for_and_are_worse() -> None:
    x = torch.tensor([-0.4, 1.2, 0.3, 0.9], dtype=torch.float64)
    together, apart = ClosedFormGuide(switching), ClosedFormGuide(switching, candidates=(Conjugate(together=False),))
    bounds = [fit(guide, x, options=FitOptions(progress=False)).bound for guide in (together, apart)]
    assert bounds[0] > bounds[1] + 1e-3
    assert together.plan()["z_1"].update == "closed form, Categorical, joint over 4 sites"
    assert apart.plan()["z_1"].update == "closed form, Categorical"


def test_batches_of_sequences_step_towards_the_same_rows() -> None:
    """With all sequences in each batch and full steps, stochastic fits are coordinate ascent."""

    def model(x: Tensor, rows: Tensor) -> None:
        with pyro.plate("states", 2):
            table = pyro.sample("table", dist.Dirichlet(torch.ones(2)))
        with pyro.plate("sequences", len(x), subsample=rows) as i:
            z: Any = 0
            for t in pyro.markov(range(x.shape[1])):
                z = pyro.sample(f"z_{t}", dist.Categorical(table[z]))
                pyro.sample(f"x_{t}", dist.Normal(MEANS[z], 1.0), obs=x[i, t])

    x = torch.randn(6, 4)
    guide = ClosedFormGuide(model)
    plan = guide.plan(x, torch.tensor([0, 2, 5]))
    assert plan["z_2"].update == "closed form, Categorical, joint over 4 sites, for each batch"
    halves = [guide.run(x, torch.tensor(rows)) for rows in ([0, 2, 5], [1, 3, 4])]
    targets = [run.factors.target("table")["log"] for run in halves]
    whole = ascent_of(model, x, torch.arange(6))
    whole.natural["table"] = guide.claim("table").natural("table")  # type: ignore[operator]
    whole.update(next(unit for unit in whole.order if "z_0" in unit))
    torch.testing.assert_close(sum(targets) / 2, whole.target("table")["log"])
    assert float(sum(run.bound() for run in halves) / 2) == pytest.approx(float(whole.bound()))


@pytest.mark.parametrize("model", [switching, linear], ids=lambda m: m.__name__)
def test_updates_of_a_group_are_stationary(model: Callable) -> None:
    ascent = ascent_of(model, torch.randn(4))
    (unit,) = ascent.order
    ascent.update(unit)
    leaf = {key: value.clone().requires_grad_() for key, value in ascent.natural[unit].items()}
    ascent.natural[unit] = leaf
    slopes = torch.autograd.grad(ascent.bound(), list(leaf.values()))
    assert max(float(s.abs().max()) for s in slopes) < 1e-8


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
    assert set(kernel.updates.values()) == {"exact, Categorical, together with 3 others"}
    draws = torch.stack([mcmc.get_samples()[f"z_{t}"] for t in range(len(x))], -1)
    size = effective_sample_size(draws.unsqueeze(0), chain_dim=0, sample_dim=1)
    assert bool(((draws.mean(0) - exact).abs() < 4.5 * draws.std(0) / size.sqrt()).all())
    assert float(size.min()) > 700  # drawn together: near to independent


def test_bound_is_the_evidence_of_pyros_discrete_hmm() -> None:
    x = torch.randn(30)

    def model(x: Tensor) -> None:
        z = None
        for t in pyro.markov(range(len(x))):
            z = pyro.sample(f"z_{t}", dist.Categorical(A[0] @ A if z is None else A[z]))
            pyro.sample(f"x_{t}", dist.Normal(MEANS[z], 1.0), obs=x[t])

    ascent = ascent_of(model, x)
    ascent.sweep()
    chain = dist.DiscreteHMM(A[0].log(), A.log(), dist.Normal(MEANS, torch.ones(2)), duration=len(x))
    assert float(ascent.bound()) == pytest.approx(float(chain.log_prob(x)), abs=1e-10)
