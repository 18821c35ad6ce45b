"""Poisson factorisations are claimed by their form, and the compiled updates are the engine's own."""

from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_prme.conjugacy import Factors, find_structure
from pyro_prme.inference import ClosedFormGuide, FitOptions, Tensors, fit
from pyro_prme.inference.claims import Refusal
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules import Conjugate, MeanFieldNormal, PoissonSums
from pyro_prme.inference.rules.poisson import claim as poisson_claim
from pyro_prme.inference.rules.poisson.claim import PoissonFactors
from pyro_prme.inference.rules.poisson.rule import difference_from_engine

N, K, D = 12, 3, 8
ENGINE = (Conjugate(), MeanFieldNormal())
FULLY = RunOptions(sweeps=3000, word_tolerance=1e-13)


def counts(num=N, seed=1):
    generator = torch.Generator().manual_seed(seed)
    rates = torch.rand(num, K, generator=generator) @ (9 * torch.rand(K, D, generator=generator) ** 3)
    return torch.poisson(rates, generator=generator)


def topics(X, theta="theta", Z="Z", x="X"):
    with pyro.plate("k", K):
        t = pyro.sample(theta, dist.Dirichlet(torch.full((D,), 0.3)))
    with pyro.plate("n", len(X)):
        z = pyro.sample(Z, dist.Gamma(torch.ones(K), 0.2).to_event(1))
        pyro.sample(x, dist.Poisson(z @ t).to_event(1), obs=X)


def factors(X, theta="theta", Z="Z", x="X"):
    with pyro.plate("d", D, dim=-1), pyro.plate("k", K, dim=-2):
        t = pyro.sample(theta, dist.Gamma(0.3, 1.0))
    with pyro.plate("n", len(X), dim=-2):
        with pyro.plate("k2", K, dim=-1):
            z = pyro.sample(Z, dist.Gamma(1.0, 0.2))
        with pyro.plate("d2", D, dim=-1):
            pyro.sample(x, dist.Poisson(z @ t), obs=X)


def columns(X, theta="theta", Z="Z", x="X"):
    """Rates of columns and of rows are learned beside."""
    with pyro.plate("d", D):
        b = pyro.sample("b", dist.Gamma(1.0, 1.0))
        t = pyro.sample(theta, dist.Gamma(torch.full((K,), 0.3), b.unsqueeze(-1)).to_event(1))
    a = pyro.sample("a", dist.Gamma(1.0, 1.0))
    with pyro.plate("n", len(X)):
        z = pyro.sample(Z, dist.Gamma(torch.ones(K), a).to_event(1))
        pyro.sample(x, dist.Poisson(torch.einsum("nk,dk->nd", z, t)).to_event(1), obs=X)


MODELS = [topics, factors, columns]


def claimed(guide):
    return [claim for claim in guide.claims if isinstance(claim, PoissonFactors)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("names", [{}, {"theta": "Z", "Z": "theta", "x": "C"}, {"theta": "q7", "Z": "h", "x": "V"}])
def test_a_plain_factorisation_gets_the_compiled_updates_whatever_its_sites_are_called(model, names):
    guide = ClosedFormGuide(partial(model, **names))
    guide.plan(counts())
    (claim,) = claimed(guide)
    assert claim.roles == {
        "topics": names.get("theta", "theta"),
        "loadings": names.get("Z", "Z"),
        "words": names.get("x", "X"),
    }
    plain = ClosedFormGuide(model)
    options = FitOptions(epochs=5)
    assert fit(guide, counts(), options=options).bound == pytest.approx(
        fit(plain, counts(), options=options).bound, abs=1e-10
    )


@pytest.mark.parametrize("model", MODELS)
def test_the_compiled_update_is_the_engines(model):
    structure = find_structure(model, (counts(),))
    assert difference_from_engine(PoissonSums().match(structure, structure.closed), structure) < 1e-9


@pytest.mark.parametrize("model", MODELS)
def test_its_bound_and_updates_are_the_engines_at_the_same_factors(model):
    X = counts()
    guide = ClosedFormGuide(model)
    fit(guide, X, options=FitOptions(epochs=3))
    run = guide.run(X, options=FULLY)
    engine = Factors(guide.structure.program, run.factors.natural, ())
    assert float(run.bound()) == pytest.approx(float(engine.bound()), abs=1e-9)
    (claim,) = claimed(guide)
    for key, part in run.factors.natural[claim.loadings].items():
        torch.testing.assert_close(engine.target(claim.loadings)[key], part, rtol=1e-8, atol=1e-8)
    claim.gather(run)
    claim.natural_step(1.0)
    for key, part in claim.natural().items():
        torch.testing.assert_close(engine.target(claim.factors)[key], part, rtol=1e-8, atol=1e-8)


def test_what_it_has_fitted_is_a_fixed_point_of_the_engine():
    """From there the engine alone gains nothing more."""
    guide, engine = ClosedFormGuide(topics), ClosedFormGuide(topics, candidates=ENGINE)
    bound = fit(guide, counts(), options=FitOptions(epochs=1000, tolerance=1e-13)).bound
    engine.plan(counts())
    run = guide.run(counts(), options=FULLY)
    for name, natural in run.factors.natural.items():
        engine.claims[0].set_natural(name, natural)
    again = fit(engine, counts(), options=FitOptions(epochs=50, tolerance=1e-13)).bound
    assert again == pytest.approx(bound, abs=1e-6)


def test_two_tables_are_two_claims():
    def model(X, Y):
        topics(X)
        with pyro.plate("m", len(Y)):
            v = pyro.sample("v", dist.Gamma(torch.ones(2), 0.2).to_event(1))
        with pyro.plate("columns", D):
            u = pyro.sample("u", dist.Gamma(torch.ones(2), 1.0).to_event(1))
        with pyro.plate("m2", len(Y)):
            pyro.sample("y", dist.Poisson(v @ u.mT).to_event(1), obs=Y)

    guide = ClosedFormGuide(model)
    X, Y = counts(), counts(seed=2)
    guide.plan(X, Y)
    assert [claim.words for claim in claimed(guide)] == ["X", "y"]
    one, other = (guide.run(X, table).terms() for table in (Y, Y + 1))
    assert one["X"] == other["X"]
    assert one["y"] != other["y"]


def subsampled(x, rows):
    with pyro.plate("k", K):
        t = pyro.sample("t", dist.Gamma(0.3, 1.0).expand([D]).to_event(1))
    with pyro.plate("n", N, subsample=rows):
        z = pyro.sample("z", dist.Gamma(torch.ones(K), 0.2).to_event(1))
        pyro.sample("x", dist.Poisson(z @ t).to_event(1), obs=x)


def test_batches_add_up_to_the_whole():
    data = Tensors(counts())
    guides = [ClosedFormGuide(subsampled) for _ in range(2)]
    parts = [[range(5), range(5, N)], [range(N)]]
    for guide, batches in zip(guides, parts, strict=True):
        guide.plan(*data.batch(range(4)))
        for rows in batches:
            claimed(guide)[0].gather(guide.run(*data.batch(rows), options=FULLY), len(rows) / N)
        claimed(guide)[0].natural_step(0.7)
    for key, part in claimed(guides[0])[0].natural().items():
        torch.testing.assert_close(part, claimed(guides[1])[0].natural()[key], rtol=1e-8, atol=1e-8)


def test_a_natural_step_moves_by_its_rate():
    guide = ClosedFormGuide(topics)
    guide.plan(counts())
    (claim,) = claimed(guide)
    before = claim.natural()["log"].clone()
    run = guide.run(counts())
    claim.gather(run)
    claim.natural_step(0.25)
    target = claim.natural_prior["log"] + claim.messages(run)["log"]
    torch.testing.assert_close(claim.natural()["log"], 0.75 * before + 0.25 * target)


def test_gradients_of_what_is_learned_are_the_bounds():
    def model(X):
        shape = pyro.param("shape", torch.tensor(0.7), constraint=dist.constraints.positive)
        with pyro.plate("k", K):
            t = pyro.sample("t", dist.Dirichlet(torch.full((D,), 0.3)))
        with pyro.plate("n", N):
            z = pyro.sample("z", dist.Gamma(shape.expand(K), 0.2).to_event(1))
            pyro.sample("x", dist.Poisson(z @ t).to_event(1), obs=X)

    slopes = []
    for candidates in (ENGINE, (PoissonSums(),)):
        pyro.clear_param_store()
        guide = ClosedFormGuide(model, candidates=candidates)
        fit(guide, counts(), options=FitOptions(epochs=60, learning_rate=0.0))
        run = guide.run(counts(), options=FULLY)
        for what in (run.bound(), run.objective()):
            (slope,) = torch.autograd.grad(what, pyro.get_param_store()._params["shape"], retain_graph=True)
            slopes.append(float(slope))
    assert slopes == pytest.approx([slopes[0], slopes[0], slopes[2], slopes[2]], rel=1e-8)


def test_rows_and_tables_without_counts():
    X = counts()
    X[3] = 0
    guide = ClosedFormGuide(topics)
    fit(guide, X, options=FitOptions(epochs=5))
    run = guide.run(X)
    prior = {"log": torch.zeros(K), "x": torch.full((K,), -1.2)}
    for key, part in prior.items():
        torch.testing.assert_close(run.factors.natural["Z"][key][3], part)
    empty = fit(ClosedFormGuide(topics), torch.zeros(N, D), options=FitOptions(epochs=5))
    assert empty.bound == pytest.approx(N * K * torch.tensor(0.2 / 1.2).log().item())


def exposed(rate, z, t):
    return rate * 2.0


def shifted(rate, z, t):
    return rate + 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [(exposed, "more in it than loadings times factors"), (shifted, "not one sum over factors")],
)
def test_another_form_is_left_to_the_engine_with_the_reason(change, words):
    def model(X):
        with pyro.plate("k", K):
            t = pyro.sample("t", dist.Gamma(0.3, 1.0).expand([D]).to_event(1))
        with pyro.plate("n", N):
            z = pyro.sample("z", dist.Gamma(torch.ones(K), 0.2).to_event(1))
            pyro.sample("x", dist.Poisson(change(z @ t, z, t)).to_event(1), obs=X)

    structure = find_structure(model, (counts(),))
    refusal = PoissonSums().match(structure, structure.closed)
    assert isinstance(refusal, Refusal)
    assert words in refusal.reasons["x"]
    guide = ClosedFormGuide(model)
    assert guide.plan(counts()).closed == ("t", "z")


def test_a_wrong_update_is_refused_with_the_size_of_the_difference(monkeypatch):
    right = poisson_claim.local_step

    def wrong(*args, **kwargs):
        step = right(*args, **kwargs)
        return step._replace(counts=1.1 * step.counts)

    monkeypatch.setattr(poisson_claim, "local_step", wrong)
    structure = find_structure(topics, (counts(),))
    refusal = PoissonSums().match(structure, structure.closed)
    assert "the compiled update differs from the engine's by" in refusal.reasons["X"]


@pytest.mark.usefixtures("float32")
def test_in_single_precision_it_is_claimed_too():
    guide = ClosedFormGuide(topics)
    guide.plan(counts())
    assert claimed(guide)
