"""Factor models are plain programs: the engine finds their closed forms, whatever their sites are called."""

from dataclasses import replace

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.poutine.messenger import Messenger

from pyro_prme.answers.held_out import held_out_bound, held_out_density
from pyro_prme.inference.data import Rows
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules import Conjugate, MeanFieldNormal
from pyro_prme.inference.rules.conjugate import LocalFactor
from pyro_prme.inference.session import evaluating
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.models.count_rows import NegativeBinomialPRME, PoissonPRME, PoissonRows
from pyro_prme.models.factor_model import FactorModel
from pyro_prme.models.networks.encoders import TopicEncoder
from pyro_prme.models.prme import PRME, ShapePRME
from pyro_prme.models.real_rows import BinaryLoadings, BinaryPRME, GaussianPRME, GaussianRows
from pyro_prme.models.topic_model import HDP
from tests.models.rows import D, K, make, planted

N = 24
MEMBERS = "one member after the other"
COMPILED = "(compiled)"
FULLY = RunOptions(sweeps=3000, tolerance=1e-13, word_tolerance=1e-13)

#: With settings, and what the plan says of theta and of Z.
LIKELIHOODS = [
    (PoissonPRME, {"beta": 20.0}, COMPILED, COMPILED),
    (PoissonPRME, {"beta": 20.0, "factors": "gamma"}, COMPILED, COMPILED),
    (NegativeBinomialPRME, {"beta": 20.0, "gamma0": 1.0}, "closed form, Gamma", "closed form, Gamma, for each batch"),
    (GaussianPRME, {}, f"closed form, Normal, joint over {K}", f"Gamma times Normal, {MEMBERS}"),
    (BinaryPRME, {}, f"closed form, Normal, joint over {K}", f"Bernoulli, {MEMBERS}"),
]
KINDS = [(kind, settings) for kind, settings, _, _ in LIKELIHOODS]


@pytest.mark.parametrize(("kind", "settings", "of_factors", "of_loadings"), LIKELIHOODS)
def test_a_likelihood_is_planned_fitted_and_scored(kind, settings, of_factors, of_loadings):
    """Training raises its bound by 100 and more, and makes rows that it has not seen more likely."""
    X = planted(kind, 2 * N, **settings)
    train, test = Rows(X[:N]), Rows(X[N:])
    guide = PRMEGuide(make(kind, N, **settings))
    plan = guide.plan(*train.batch())
    assert of_factors in plan["theta"].update
    assert of_loadings in plan["Z"].update
    assert {"theta", "Z"} <= set(plan.closed)
    before = held_out_density(guide, test, draws=10)
    history = Trainer(guide, train, TrainOptions(batch_size=N, learning_rate=0.02)).fit(10)
    assert history[-1]["bound"] > history[0]["bound"] + 100
    after = held_out_density(guide, test, draws=10)
    assert after > before + 1
    assert after > held_out_bound(guide, test), "it is the tighter of the two bounds"


class Renaming(Messenger):
    """Gives sites other names."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def _pyro_sample(self, msg):
        msg["name"] = self.names.get(msg["name"], msg["name"])


def renamed(kind, names):
    """A model of which all sites have other names, and which says so in its roles."""

    class Renamed(kind):
        @property
        def roles(self):
            return {role: names.get(site, site) for role, site in super().roles.items()}

        def forward(self, batch):
            with Renaming(names):
                return super().forward(batch)

    return Renamed


SITES = ("theta", "Z", "V", "ell", "X", "f", "h", "tau", "r", "G")
WRONG = dict(zip(SITES, ("Z", "theta", "ell", "V", "C", "h", "f", "X", "G", "r"), strict=True))
ODD = {name: f"site_{place}" for place, name in enumerate(SITES)}


@pytest.mark.parametrize("names", [WRONG, ODD])
@pytest.mark.parametrize(("kind", "settings"), KINDS)
def test_names_of_sites_decide_nothing(kind, settings, names):
    X = planted(kind, N, **settings)
    found = []
    for model in (kind, renamed(kind, names)):
        guide = PRMEGuide(make(model, N, **settings))
        plan = guide.plan(*Rows(X).batch())
        updates = {name: (entry.update, entry.family, entry.reason) for name, entry in plan.entries.items()}
        history = Trainer(guide, Rows(X), TrainOptions(batch_size=N // 2, learning_rate=0.02)).fit(2)
        found.append((updates, [record["bound"] for record in history]))
    plain, other = found
    assert {names.get(name, name): update for name, update in plain[0].items()} == other[0]
    assert plain[1] == pytest.approx(other[1], rel=1e-12)


@pytest.mark.parametrize("settings", [{}, {"factors": "gamma"}])
def test_poisson_rows_have_the_same_bound_gradients_and_steps_by_the_engine_alone(settings):
    X = planted(PoissonPRME, N, beta=20.0, **settings)
    model = make(PoissonPRME, N, beta=20.0, **settings)
    (batch,) = Rows(X).batch()
    fused = PRMEGuide(model)
    Trainer(fused, Rows(X), TrainOptions(batch_size=N, learning_rate=0.02)).fit(3)
    encoder = fused.claim("h").encoder
    engine = PRMEGuide(model, encoder, candidates=(Conjugate(), MeanFieldNormal()))
    engine.plan(batch)
    for name in ("V", "ell"):
        engine.claim(name).set(fused.claim(name).value())
    engine.claim("theta").set_natural("theta", fused.claim("theta").natural())
    runs, started = [], {}
    for guide in (fused, engine):
        with evaluating(model, guide):
            run = guide.run(batch, options=replace(FULLY, started=started))
            started = {"Z": LocalFactor(run.factors.natural["Z"], {})}  # a row may have several optima
            again, bound = guide.run(batch, options=RunOptions(held=run.local)), float(run.bound().detach())
        parameters = [*model.parameters(), *encoder.parameters(), guide.claim("V").free, guide.claim("ell").free]
        slopes = torch.autograd.grad(again.objective(), parameters, allow_unused=True)
        guide.claim("theta").gather(run)
        guide.claim("theta").natural_step(0.5)
        runs.append((bound, slopes, guide.posterior("theta").mean))
    (one, one_slopes, one_mean), (two, two_slopes, two_mean) = runs
    assert one == pytest.approx(two, abs=1e-8)
    torch.testing.assert_close(one_mean, two_mean, rtol=1e-8, atol=1e-8)
    for a, b in zip(one_slopes, two_slopes, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("kind", "settings"), [pair for pair in KINDS if pair[0] is not BinaryPRME])
def test_gradients_of_the_objective_are_those_of_the_bound(kind, settings):
    """With the E-step held, where the model draws nothing."""
    X = planted(kind, N, **settings)
    model = make(kind, N, **settings)
    (batch,) = Rows(X).batch(range(16))
    guide = PRMEGuide(model)
    held = RunOptions(held=guide.run(batch, options=FULLY).local)
    parameters = [p for p in (*model.parameters(), *guide.parameters()) if p.requires_grad]
    slopes = []
    for what in (lambda run: run.bound(), lambda run: run.objective()):
        found = torch.autograd.grad(what(guide.run(batch, options=held)), parameters, allow_unused=True)
        each = [torch.zeros_like(p) if s is None else s for s, p in zip(found, parameters, strict=True)]
        slopes.append(torch.cat([s.flatten() for s in each]))
    assert slopes[0].abs().sum() > 0
    torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("kind", "settings"), KINDS)
def test_batches_of_rows_add_up_to_all_of_them(kind, settings):
    """Natural parameters after a step from two batches and from one; where f is drawn, from the same draw."""
    if kind is BinaryPRME:
        pytest.skip("its f is drawn anew in each run")
    X = planted(kind, N, **settings)
    data, steps = Rows(X), []
    for parts in ([range(15), range(15, N)], [range(N)]):
        guide = PRMEGuide(make(kind, N, **settings))
        guide.plan(*data.batch())
        with torch.no_grad(), evaluating(guide.model, guide):
            for rows in parts:
                guide.claim("theta").gather(guide.run(*data.batch(rows), options=FULLY), len(rows) / N)
        guide.claim("theta").natural_step(1.0)
        steps.append(guide.posterior("theta").mean)
    torch.testing.assert_close(*steps, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("prior", [HDP, PRME, ShapePRME])
@pytest.mark.parametrize("likelihood", [PoissonRows, GaussianRows])
def test_a_likelihood_goes_with_every_prior_of_the_loadings(likelihood, prior):
    kind = type("Combined", (likelihood, prior), {})
    sizes = {} if prior is HDP else {"h_dim": 3, "ell_dim": 2}
    torch.manual_seed(0)
    model = kind(K, D, N, **sizes)
    X = planted(PoissonPRME, N)
    guide = PRMEGuide(model)
    history = Trainer(guide, Rows(X), TrainOptions(batch_size=N)).fit(3)
    assert history[-1]["bound"] > history[0]["bound"]
    assert {"theta", "Z"} <= set(guide.plan().closed)


def test_counts_may_come_as_documents():
    X = planted(PoissonPRME, N, beta=20.0)
    found = []
    for data in (Rows(X), Counts(X.numpy())):
        guide = PRMEGuide(make(PoissonPRME, N, beta=20.0))
        found.append(Trainer(guide, data, TrainOptions(batch_size=N)).fit(3)[-1]["bound"])
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_binary_loadings_under_a_poisson_sum_are_an_error():
    """A feature that is absent makes a rate of zero: nothing holds for it, and it is discrete."""
    kind = type("Counted", (BinaryLoadings, PoissonRows, PRME), {})
    X = planted(PoissonPRME, 20, beta=20.0)
    with pytest.raises(ValueError, match="Nothing holds for site Z"):
        PRMEGuide(make(kind, 20)).plan(*Rows(X).batch())


def test_a_changed_rate_takes_gradients_and_the_plan_has_the_reason():
    class Softened(FactorModel, PRME):
        def sample_rows(self, Z, theta, noise, observed):
            rate = (Z.sqrt() @ theta).unsqueeze(-2)
            return pyro.sample("X", dist.Poisson(rate).to_event(1), obs=observed)

    X = planted(PoissonPRME, 20, beta=20.0)
    guide = PRMEGuide(make(Softened, 20))
    trainer = Trainer(guide, Rows(X), TrainOptions(batch_size=10, learning_rate=0.02))
    assert guide.plan()["Z"].update == "Normal from the inference network, reparameterised gradient"
    assert "x^0.5 is not a statistic of its Gamma family" in guide.plan()["Z"].reason
    history = trainer.fit(10)
    assert history[-1]["bound"] > history[0]["bound"]


def test_wrong_settings_and_rows_are_told_in_a_sentence():
    with pytest.raises(ValueError, match="factors is 'flat'"):
        make(PoissonPRME, N, factors="flat")
    with pytest.raises(ValueError, match="theta_scale is 0"):
        make(GaussianPRME, N, theta_scale=0)
    model = make(GaussianPRME, N)
    with pytest.raises(ValueError, match="11 columns and the model 12"):
        model(Rows(torch.ones(N, D - 1)).batch()[0])
    with pytest.raises(ValueError, match="row 24, the model was built for num_documents=24"):
        model(Rows(torch.ones(N + 1, D)).batch()[0])
    with pytest.raises(ValueError, match="The data are a Tensor: give rows"):
        model(torch.ones(N, D))
    guide = PRMEGuide(model, TopicEncoder(K, 3))
    with pytest.raises(ValueError, match="reads words of documents, and the data are rows"):
        guide.run(*Rows(torch.ones(N, D)).batch())


def test_a_plate_of_topics_is_not_that_of_rows_though_it_be_as_large():
    """The plan is made on eight rows: factors of eight topics are no factors of rows."""
    torch.manual_seed(0)
    model = PoissonPRME(8, D, N, h_dim=3, ell_dim=2, factors="gamma")
    guide = PRMEGuide(model, rules={"theta": None, "Z": None})
    plan = guide.plan(*Rows(planted(PoissonPRME, N)).batch())
    assert plan["theta"].update == "Normal, reparameterised gradient"
    assert plan["Z"].update == "Normal from the inference network, reparameterised gradient"
