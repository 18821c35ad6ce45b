"""Gamma and Bernoulli sites under a Normal: exact for each member, one member after the other."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.integrate import quad

from pyro_prme.conjugacy import Factors, find_structure
from pyro_prme.conjugacy.families import BinaryMembers, PositiveMembers
from pyro_prme.inference import ClosedFormGuide, FitOptions, fit
from pyro_prme.inference.claims import Refusal
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules import Conjugate, OneByOne
from pyro_prme.inference.rules.one_by_one import OneByOneFactors

N, K, D = 8, 3, 5
ONLY = (Conjugate(), OneByOne())
PRIORS = {
    "gamma": lambda: dist.Gamma(torch.tensor([0.5, 1.0, 2.0]), 0.7),
    "bernoulli": lambda: dist.Bernoulli(logits=torch.tensor([-0.5, 0.0, 1.0])),
    "probabilities": lambda: dist.Bernoulli(torch.tensor([0.2, 0.5, 0.6])),
}


def rows():
    generator = torch.Generator().manual_seed(3)
    return torch.rand(N, K, generator=generator) @ torch.randn(K, D, generator=generator)


def model_of(kind, f="f", w="w", tau="tau", X="X"):
    def model(x):
        precision = pyro.sample(tau, dist.Gamma(1.0, 1.0))
        with pyro.plate("columns", D):
            weights = pyro.sample(w, dist.Normal(0.0, 1.0).expand([K]).to_event(1))
        with pyro.plate("rows", len(x)):
            z = pyro.sample(f, PRIORS[kind]().to_event(1))
            pyro.sample(X, dist.Normal(z @ weights.mT, precision.rsqrt()).to_event(1), obs=x)

    return model


@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("names", [{}, {"f": "theta", "w": "Z", "tau": "C", "X": "V"}])
def test_they_are_claimed_whatever_the_sites_are_called(kind, names):
    guide = ClosedFormGuide(model_of(kind, **names))
    plan = guide.plan(rows())
    assert set(plan.closed) == {names.get(name, name) for name in ("tau", "w", "f")}
    assert isinstance(guide.claim(names.get("f", "f")), OneByOneFactors)
    assert "one member after the other" in plan[names.get("f", "f")].update


@pytest.mark.parametrize("kind", PRIORS)
def test_each_member_has_the_best_factor_given_the_others(kind):
    """The bound falls whichever natural parameter of whichever member is moved, and its gradient is zero."""
    guide = ClosedFormGuide(model_of(kind))
    fit(guide, rows(), options=FitOptions(epochs=3))
    run = guide.run(rows(), options=RunOptions(sweeps=5000))
    natural = {key: part.clone().requires_grad_() for key, part in run.factors.natural["f"].items()}
    factors = Factors(run.factors.program, {**run.factors.natural, "f": natural}, ())
    factors.bound().backward()
    for part in natural.values():
        torch.testing.assert_close(part.grad, torch.zeros_like(part), rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", PRIORS)
def test_its_bound_is_that_of_draws(kind):
    """E_q[ln p - ln q] over 4000 draws, within four standard errors."""
    x = rows()
    model = model_of(kind)
    guide = ClosedFormGuide(model)
    fit(guide, x, options=FitOptions(epochs=5))
    run = guide.run(x)
    values, log_q = {}, torch.zeros(4000)
    for name in ("tau", "w", "f"):
        q = run.factors.posterior(name)
        values[name] = q.sample(torch.Size([4000]))
        log_q = log_q + q.log_prob(values[name]).reshape(4000, -1).sum(-1)
    tau, w, z = (values[name] for name in ("tau", "w", "f"))
    log_p = dist.Gamma(1.0, 1.0).log_prob(tau) + dist.Normal(0.0, 1.0).log_prob(w).sum((-1, -2))
    log_p = log_p + PRIORS[kind]().log_prob(z).sum((-1, -2))
    log_p = log_p + dist.Normal(z @ w.mT, tau.rsqrt()[:, None, None]).log_prob(x).sum((-1, -2))
    ratio = log_p - log_q
    assert abs(float(ratio.mean() - run.bound())) < 4 * float(ratio.std()) / 4000**0.5


@pytest.mark.parametrize("kind", ["gamma", "bernoulli"])
def test_one_member_alone_has_its_evidence(kind):
    prior = dist.Gamma(torch.tensor(2.0), 0.7) if kind == "gamma" else dist.Bernoulli(torch.tensor(0.3))

    def model(x):
        pyro.sample("x", dist.Normal(1.5 * pyro.sample("g", prior), 0.8).expand([3]).to_event(1), obs=x)

    x = torch.tensor([1.0, 2.5, 0.3])

    def joint(z):
        log_p = prior.log_prob(torch.tensor(z)) + dist.Normal(1.5 * z, 0.8).log_prob(x).sum()
        return math.exp(float(log_p))

    evidence = quad(joint, 0, 20)[0] if kind == "gamma" else joint(0.0) + joint(1.0)
    guide = ClosedFormGuide(model, candidates=ONLY)
    assert fit(guide, x).bound == pytest.approx(math.log(evidence), abs=1e-8)


@pytest.mark.parametrize("kind", PRIORS)
def test_coordinate_ascent_never_falls(kind):
    history = fit(ClosedFormGuide(model_of(kind)), rows(), options=FitOptions(epochs=30)).history
    bounds = torch.tensor([record["bound"] for record in history])
    assert bounds.diff().min() > -1e-9
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize(("family", "kind"), [(PositiveMembers, "gamma"), (BinaryMembers, "bernoulli")])
def test_the_factor_as_a_distribution_has_the_statistics(family, kind):
    guide = ClosedFormGuide(model_of(kind))
    guide.plan(rows())
    run = guide.run(rows())
    q, statistics = run.factors.posterior("f"), run.factors.statistics()["f"]
    assert isinstance(run.factors.program.families["f"], family)
    torch.testing.assert_close(q.mean, statistics["x"])
    both = statistics["x"].unsqueeze(-1) * statistics["x"].unsqueeze(-2) + torch.diag_embed(q.variance)
    torch.testing.assert_close(statistics["xx"], both)


def test_held_factors_stay():
    guide = ClosedFormGuide(model_of("gamma"))
    guide.plan(rows())
    first = guide.run(rows())
    again = guide.run(rows() + 1, options=RunOptions(held=first.local))
    for key, part in first.factors.natural["f"].items():
        assert torch.equal(part, again.factors.natural["f"][key])


def shape_of(z):
    return dist.Gamma(z.exp(), 1.0)


@pytest.mark.parametrize(
    ("density", "words"),
    [
        (lambda z: dist.Normal(z**2, 1.0), "x^4 is not a statistic"),
        (lambda z: dist.Normal(z, z.sqrt()), "one member after the other"),
        (shape_of, "in the shape of a Gamma"),
    ],
)
def test_what_asks_for_other_statistics_is_refused_with_the_reason(density, words):
    def model(x):
        z = pyro.sample("z", dist.Gamma(2.0, 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("x", density(z), obs=x)

    x = rows()[:, 0].abs()
    structure = find_structure(model, (x,))
    refusal = OneByOne().match(structure, ["z"])
    assert isinstance(refusal, Refusal)
    assert words in refusal.reasons["z"]
    assert ClosedFormGuide(model).plan(x).open == ("z",)


def test_other_priors_are_left_alone():
    structure = find_structure(model_of("gamma"), (rows(),), leave={"w": "asked"})
    assert "its prior is Normal" in OneByOne().match(structure, ["w"]).reasons["w"]


def test_a_site_that_is_asked_to_have_another_posterior_gets_it():
    guide = ClosedFormGuide(model_of("gamma"), rules={"f": None})
    assert guide.plan(rows())["f"].update == "Normal, reparameterised gradient"
