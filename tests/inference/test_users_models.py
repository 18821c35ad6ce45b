"""Models as users of Pyro write them, many from its tutorials: the plan is right, and the answer exact or near."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyro
import pytest
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.infer import MCMC, config_enumerate
from pyro.nn import PyroModule, PyroSample
from pyro.ops.indexing import Vindex
from torch import Tensor

import pyro_prme as prme
from pyro_prme.inference import ClosedFormGuide, FitOptions, fit

QUIET = FitOptions(progress=False)


def fitted(model: Callable, *args: Any, options: FitOptions = QUIET, **kwargs: Any) -> tuple[ClosedFormGuide, float]:
    guide = ClosedFormGuide(model)
    return guide, fit(guide, *args, options=options, **kwargs).bound


RUG = torch.tensor([0.4, -1.2, 0.3, 2.0, -0.5, 1.1, -0.7, 0.2], dtype=torch.float64)
AFRICA = torch.tensor([1, 0, 0, 1, 1, 0, 1, 0])
GDP = torch.tensor([0.2, 1.1, 0.7, 0.9, -0.4, 0.1, -0.2, 0.8], dtype=torch.float64)


def terrain(africa: Tensor, rugged: Tensor, gdp: Tensor) -> None:
    """Each coefficient is a site of its own; the noise is known here."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    b_a = pyro.sample("bA", dist.Normal(0.0, 1.0))
    b_r = pyro.sample("bR", dist.Normal(0.0, 1.0))
    b_ar = pyro.sample("bAR", dist.Normal(0.0, 1.0))
    mean = a + b_a * africa + b_r * rugged + b_ar * africa * rugged
    with pyro.plate("data", len(rugged)):
        pyro.sample("obs", dist.Normal(mean, 0.5), obs=gdp)


def test_coefficients_that_are_sites_of_their_own_have_the_exact_posterior() -> None:
    guide, bound = fitted(terrain, AFRICA, RUG, GDP)
    features = torch.stack([torch.ones(8), AFRICA.double(), RUG, AFRICA * RUG], -1)
    prior = torch.tensor([100.0, 1, 1, 1]).diag()
    covariance = features @ prior @ features.T + 0.25 * torch.eye(8)
    assert bound == pytest.approx(float(dist.MultivariateNormal(torch.zeros(8), covariance).log_prob(GDP)), abs=1e-10)
    exact = prior @ features.T @ torch.linalg.solve(covariance, GDP)
    means = torch.stack([guide.posterior(name).mean for name in ("a", "bA", "bR", "bAR")])
    torch.testing.assert_close(means, exact)
    assert guide.plan()["bA"].update == "closed form, Normal, joint over 4 sites"


DAYS = torch.tensor([7.0, 9, 6, 8, 10, 7, 2, 3, 1, 2, 4, 2, 1], dtype=torch.float64)


def change(y: Tensor) -> None:
    when = pyro.sample("when", dist.Categorical(torch.ones(len(y)) / len(y)))
    early = pyro.sample("early", dist.Gamma(1.0, 0.2))
    late = pyro.sample("late", dist.Gamma(1.0, 0.2))
    with pyro.plate("days", len(y)):
        pyro.sample("y", dist.Poisson(torch.where(torch.arange(len(y)) < when, early, late)), obs=y)


def exact_change() -> Tensor:
    """Posterior of the day of change, the rates integrated out."""

    def part(y: Tensor) -> Tensor:
        return torch.lgamma(1 + y.sum()) - (1 + y.sum()) * math.log(0.2 + len(y))

    return torch.stack([part(DAYS[:t]) + part(DAYS[t:]) for t in range(len(DAYS))])


def test_a_change_point_of_rates() -> None:
    guide, bound = fitted(change, DAYS)
    assert guide.plan().closed == ("when", "early", "late")
    log = exact_change()
    evidence = log.logsumexp(0) - math.log(len(DAYS)) + 2 * math.log(0.2) - torch.lgamma(DAYS + 1).sum()
    assert float(evidence) - 0.3 < bound < float(evidence)
    torch.testing.assert_close(guide.posterior("when").probs, log.softmax(0), atol=0.1, rtol=0)
    mcmc = MCMC(prme.Gibbs(change), num_samples=600, warmup_steps=20, disable_progbar=True)
    mcmc.run(DAYS)
    drawn = torch.bincount(mcmc.get_samples()["when"].long(), minlength=len(DAYS)) / 600
    torch.testing.assert_close(drawn.double(), log.softmax(0), atol=0.1, rtol=0)


def inflated(y: Tensor) -> None:
    gate = pyro.sample("gate", dist.Beta(1.0, 1.0))
    rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
    with pyro.plate("data", len(y)):
        on = pyro.sample("on", dist.Bernoulli(1 - gate))
        pyro.sample("y", dist.Poisson(on * rate + (1 - on) * 1e-12), obs=y)


def test_a_poisson_with_more_zeros() -> None:
    y = torch.tensor([0.0, 0, 0, 3, 4, 2, 5, 0, 3, 4, 0, 2])
    guide, bound = fitted(inflated, y)
    assert guide.plan().closed == ("gate", "rate", "on")
    g, r = torch.meshgrid(torch.linspace(0.001, 0.999, 200), torch.linspace(0.05, 9, 300), indexing="ij")
    each = dist.ZeroInflatedPoisson(r.unsqueeze(-1), gate=g.unsqueeze(-1), validate_args=False).log_prob(y).sum(-1)
    log = each + dist.Gamma(2.0, 1.0).log_prob(r)
    evidence = log.logsumexp((0, 1)) + math.log(0.998 / 199 * 8.95 / 299)
    assert float(evidence) - 0.3 < bound < float(evidence)
    weight = log.flatten().softmax(0).reshape(log.shape)
    assert float(guide.posterior("rate").mean) == pytest.approx(float((weight * r).sum()), rel=0.03)
    assert float(guide.posterior("gate").mean) == pytest.approx(float((weight * g).sum()), rel=0.05)


def drawn_batches(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    with pyro.plate("data", len(y), subsample_size=10) as i:
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])


def test_batches_that_a_plate_draws_are_all_seen() -> None:
    """The model draws another batch at each run: full steps would end at one of them."""
    y = torch.cat([torch.full((50,), -3.0), torch.full((50,), 3.0)]).double() + 0.5
    guide = ClosedFormGuide(drawn_batches)
    result = fit(guide, y, options=FitOptions(epochs=400, progress=False))
    assert not result.converged
    assert len({round(record["bound"], 6) for record in result.history}) > 100
    exact = float(y.sum() / (len(y) + 1 / 9))
    assert float(guide.posterior("mu").mean) == pytest.approx(exact, abs=0.25)
    assert float(guide.posterior("mu").stddev) == pytest.approx(0.1, rel=0.01)


def seen_in_part(y: Tensor, seen: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y, obs_mask=seen)


def test_an_obs_mask_leaves_the_evidence_of_what_is_seen() -> None:
    y, seen = torch.tensor([1.0, -0.3, 0.8, 2.0]), torch.tensor([True, False, True, False])
    guide, bound = fitted(seen_in_part, y, seen)
    exact = dist.MultivariateNormal(torch.zeros(2), torch.eye(2) + 9).log_prob(y[seen].double())
    assert bound == pytest.approx(float(exact), abs=1e-10)
    assert float(guide.posterior("mu").mean) == pytest.approx(float(y[seen].sum() / (2 + 1 / 9)))
    unseen = guide.posterior("y_unobserved")
    torch.testing.assert_close(unseen.mean[~seen], guide.posterior("mu").mean.expand(2))
    assert guide.draw(y, seen, seed=0)["y_unobserved"].shape == (4,)


def walks(x: Tensor, lengths: Tensor) -> None:
    """Linear states of sequences of different lengths."""
    with pyro.plate("sequences", len(x)):
        s: Any = 0.0
        for t in pyro.markov(range(x.shape[1])):
            with poutine.mask(mask=t < lengths):
                s = pyro.sample(f"s_{t}", dist.Normal(0.8 * s, 1.0))
                pyro.sample(f"x_{t}", dist.Normal(s, 0.5), obs=x[:, t])


def test_linear_states_of_sequences_of_different_lengths() -> None:
    x, lengths = torch.randn(3, 4), torch.tensor([4, 1, 3])
    guide, bound = fitted(walks, x, lengths)
    assert guide.plan()["s_1"].update == "closed form, Normal, joint over 4 sites"
    t = torch.arange(4.0)
    powers = (0.8 ** (t.unsqueeze(-1) - t).clamp(min=0)).tril()
    covariance = powers @ powers.T + 0.25 * torch.eye(4)
    exact = sum(
        dist.MultivariateNormal(torch.zeros(n), covariance[:n, :n]).log_prob(row[:n])
        for row, n in zip(x, lengths.tolist(), strict=True)
    )
    assert bound == pytest.approx(float(exact), abs=1e-10)


@config_enumerate
def clusters(data: Tensor) -> None:
    """As in Pyro's tutorial: the scale has no closed form, and gradients move it beside the others."""
    weights = pyro.sample("weights", dist.Dirichlet(0.5 * torch.ones(2)))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 2.0))
    with pyro.plate("components", 2):
        locs = pyro.sample("locs", dist.Normal(0.0, 10.0))
    with pyro.plate("data", len(data)):
        assignment = pyro.sample("assignment", dist.Categorical(weights))
        pyro.sample("obs", dist.Normal(Vindex(locs)[assignment], scale), obs=data)


def test_the_mixture_of_pyros_tutorial_is_not_stuck() -> None:
    data = torch.tensor([0.0, 1.0, 10.0, 11.0, 12.0])
    guide, bound = fitted(clusters, data, options=FitOptions(epochs=60, learning_rate=0.05, progress=False))
    assert guide.plan().open == ("scale",)
    found = guide.posterior("locs").mean.sort().values
    torch.testing.assert_close(found, torch.tensor([0.5, 11.0]), atol=0.3, rtol=0)
    scale = guide.posterior("scale")
    assert not scale.mean.requires_grad
    assert 0.5 < float(scale.mean) < 2.0
    assert bound > -20


class Linear(PyroModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[torch.nn.Linear](2, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 10.0).expand([1]).to_event(1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(mean, tau.rsqrt()), obs=y)
        return mean


def test_a_bayesian_layer_is_a_regression() -> None:
    x = torch.randn(40, 2)
    y = x @ torch.tensor([1.0, -2.0]).double() + 0.7 + 0.1 * torch.randn(40)
    guide, _ = fitted(Linear(), x, y)
    assert guide.plan().closed == ("tau", "linear.weight", "linear.bias")
    torch.testing.assert_close(
        guide.posterior("linear.weight").mean, torch.tensor([[1.0, -2.0]]).double(), atol=0.1, rtol=0
    )
    assert float(guide.posterior("linear.bias").mean) == pytest.approx(0.7, abs=0.1)


def options_of_all_kinds(y: Tensor, *extra: Any, features: Tensor, **options: float) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(features.shape[1]), options["prior"]).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(features @ w, 1.0), obs=y)


def test_positional_and_keyword_arguments() -> None:
    features, y = torch.randn(6, 2), torch.randn(6)
    _, bound = fitted(options_of_all_kinds, y, "unused", features=features, prior=2.0)
    covariance = 4 * features @ features.T + torch.eye(6)
    assert bound == pytest.approx(float(dist.MultivariateNormal(torch.zeros(6), covariance).log_prob(y)), abs=1e-10)


def chain_as_one_site(x: Tensor) -> None:
    with pyro.plate("states", 2):
        A = pyro.sample("A", dist.Dirichlet(torch.ones(2)))
    pyro.sample("x", dist.DiscreteHMM(torch.zeros(2), A.log(), dist.Normal(torch.tensor([-1.0, 1.0]), 1.0)), obs=x)


def heavy_tails(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    scale = pyro.sample("scale", dist.HalfCauchy(1.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.StudentT(4.0, mu, scale), obs=y)


def imputed(x: Tensor, y: Tensor) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("missing", 2):
        there = pyro.sample("there", dist.Normal(0.0, 1.0))
    x = x.clone()
    x[:2] = there
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


GRADIENTS: list[tuple[Callable, tuple, dict[str, str]]] = [
    (chain_as_one_site, (torch.randn(5),), {"A": "it is written into a tensor in place (clamp_)"}),
    (
        heavy_tails,
        (torch.randn(6),),
        {
            "mu": "the logarithm of a sum with it",
            "scale": "its prior is HalfCauchy, which is not among the exponential families known here",
        },
    ),
    (imputed, (torch.randn(6), torch.randn(6)), {"there": "it is written into a tensor in place (setitem)"}),
]


@pytest.mark.parametrize(("model", "args", "reasons"), GRADIENTS, ids=lambda v: getattr(v, "__name__", None))
def test_gradients_take_over_and_the_plan_says_why(model: Callable, args: tuple, reasons: dict[str, str]) -> None:
    args = tuple(a.double() for a in args)
    guide, bound = fitted(model, *args, options=FitOptions(epochs=5, progress=False))
    assert math.isfinite(bound)
    assert {name: guide.plan()[name].reason for name in guide.plan().open} == reasons
