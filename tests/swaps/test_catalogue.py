"""Every swap of the package has its expected plan and trains; every likelihood goes from simulation to picture."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from scipy import sparse

import pyro_prme as inference
from pyro_prme import HDP, PRME, Batch, Corpus, plots, swaps
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.guide import PRMEGuide
from pyro_prme.prototype import eval_mode
from pyro_prme.swaps.factors import FactorModel, RowModel
from pyro_prme.swaps.guides import GuidedModel
from pyro_prme.train import Trainer

mpl.use("Agg")

K, D, N = 4, 12, 60
#: Classes that a swap is made with, and are none.
BASES = {FactorModel, GuidedModel, RowModel, swaps.HyperPriors}

LIKELIHOODS = [
    (swaps.PoissonPRME, {"beta": 20.0}, ("PoissonTopics", "PoissonLoadings", "PoissonRows")),
    (swaps.PoissonPRME, {"beta": 20.0, "factors": "gamma"}, ("GammaFactors", "PoissonLoadings", "PoissonRows")),
    (swaps.GaussianPRME, {}, ("GaussianFactors", "GaussianLoadings", "GaussianRows")),
    (swaps.BinaryPRME, {}, ("GaussianFactors", "BernoulliLoadings", "GaussianRows")),
    (swaps.NegativeBinomialPRME, {"beta": 20.0, "gamma0": 1.0}, ("MeanFieldNormal", "EncodedNormal", None)),
]

PRIORS = [
    (swaps.PitmanYorPRME, {"discount": 0.3}, {"V": "Point", "Z": "GammaLoadings"}),
    (swaps.FiniteDirichletPRME, {}, {"V": "Point", "Z": "GammaLoadings"}),
    (swaps.LogNormalPRME, {}, {"Z": "EncodedNormal", "C": "Assignment", "theta": "DirichletTopics"}),
    (swaps.HorseshoePRME, {}, {"ell": "MeanFieldNormal", "lambda": "MeanFieldNormal", "Z": "GammaLoadings"}),
    (swaps.GaussianProcessPRME, {}, {"ell": "Point", "f": "KernelFunction", "Z": "GammaLoadings"}),
    (swaps.CovariatePRME, {"metadata": torch.ones(N, 1)}, {"h": "Amortized", "Z": "GammaLoadings"}),
    (
        swaps.HyperPriorPRME,
        {},
        {"alpha": "Point", "beta": "Point", "gamma0": "Point", "V": "Point", "Z": "GammaLoadings"},
    ),
    (swaps.LearnedPitmanYorPRME, {}, {"discount": "Point", "alpha": "Point", "V": "Point", "Z": "GammaLoadings"}),
]


def subclasses(kind):
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


def test_no_swap_is_missing_from_the_catalogue():
    written = {kind for kind in subclasses(PRME) if kind.__module__.startswith("pyro_prme.swaps.")} - BASES
    assert {kind for kind, _, _ in LIKELIHOODS + PRIORS} == written
    assert {kind.__name__ for kind in written} <= set(swaps.__all__)


def make(kind, num=N, **kwargs):
    torch.manual_seed(0)
    return kind(K, D, num, h_dim=3, ell_dim=2, **kwargs)


def names_of(plan):
    return {name: type(rule).__name__ for name, rule in plan.rules.items()}


@pytest.mark.parametrize(("kind", "kwargs", "expected"), LIKELIHOODS)
def test_a_likelihood_is_simulated_planned_fitted_scored_and_drawn(kind, kwargs, expected):
    """Training raises its bound by 100 and more, and makes rows that it has not seen more likely.

    The bound is that of one draw a round: the median of five is compared.
    """
    X, _ = swaps.simulate(make(kind, 2 * N, **kwargs), 2 * N, seed=1)
    model = make(kind, **kwargs)
    guide, train, test = model.make_guide(), model.batch_of(X[:N]), model.batch_of(X[N:])
    names = names_of(guide.plan(train))
    assert tuple(names.get(name) for name in ("theta", "Z", "X")) == expected
    before = swaps.held_out_density(guide, test, draws=20)
    history = swaps.fit(guide, train, 40, learning_rate=0.02)
    assert np.median(history[-5:]) > history[0] + 100
    assert all(torch.isfinite(p).all() for p in guide.parameters())
    after = swaps.held_out_density(guide, test, draws=20)
    assert after > before + 1
    assert after > swaps.held_out_bound(guide, test), "it is the tighter of the two bounds"
    cells = plots.plot_factors(guide, test, draws=20)[2].collections[0].get_offsets()
    assert np.corrcoef(np.asarray(cells).T)[0, 1] > 0.3


def corpus(num=N, seed=0):
    rng = np.random.default_rng(seed)
    theta = np.kron(np.eye(K), np.ones(D // K)) / (D // K)
    return sparse.csr_matrix(np.stack([rng.multinomial(30, rng.dirichlet([0.4] * K) @ theta) for _ in range(num)]))


def split_of(num=N):
    return Corpus(corpus(num, seed=1), tuple("abcdefghijkl")).split_tokens(observed=0.5, seed=0)


@pytest.mark.parametrize(("kind", "kwargs", "expected"), PRIORS)
def test_a_prior_is_planned_fitted_and_scored(kind, kwargs, expected):
    """Training raises its bound, and its score of hidden words over ln D, that of a model that knows nothing."""
    model, counts = make(kind, **kwargs), corpus()
    guide = model.make_guide() if hasattr(model, "make_guide") else PRMEGuide(model)
    assert expected.items() <= names_of(guide.plan(Batch.from_csr(counts))).items()
    history = [record["bound"] for record in Trainer(model, guide, counts, batch_size=30).fit(8)]
    assert history[-1] > history[0]
    assert all(torch.isfinite(p).all() for p in guide.parameters())
    assert swaps.completion_score(guide, split_of(), draws=20) > -np.log(D) + 0.3


# scores


def test_the_score_of_words_is_that_of_the_mean_proportions():
    """For HDP, whose proportions have a Dirichlet posterior, so that their mean is known."""
    torch.manual_seed(0)
    model = HDP(K, D, N)
    guide = PRMEGuide(model)
    Trainer(model, guide, corpus(), batch_size=30).fit(5)
    same = inference.PRMEGuide(make(HDP))
    inference.Trainer(same, inference.Counts(corpus()), inference.TrainOptions(batch_size=30)).fit(5)
    exact = -np.log(inference.Posterior(same).perplexity(split_of()))
    assert swaps.completion_score(guide, split_of(), draws=400) == pytest.approx(exact, abs=0.003)
    with pytest.raises(ValueError, match="The split has 61 documents and the model was built for 60"):
        swaps.completion_score(guide, split_of(N + 1))


def test_the_held_out_bound_is_the_local_part_of_the_bound():
    model = make(swaps.PoissonPRME, beta=20.0)
    batch, guide = model.batch_of(swaps.simulate(model, N)[0]), model.make_guide()
    guide.plan(batch)
    with eval_mode(model, guide):
        terms = ClosedForm_ELBO().report(guide, batch).terms
    local = sum(terms[name] for name in ("h", "f", "Z", "X")) / N
    assert swaps.held_out_bound(guide, batch, draws=1) == pytest.approx(local, rel=1e-9)
    half = model.batch_of(swaps.simulate(model, N)[0], torch.arange(N // 2))
    rest = model.batch_of(swaps.simulate(model, N)[0], torch.arange(N // 2, N))
    parts = [swaps.held_out_bound(guide, part, draws=1) for part in (half, rest)]
    assert sum(parts) / 2 == pytest.approx(local, rel=1e-9), "whatever share of the rows a batch is"


@torch.no_grad()
def test_the_held_out_density_is_that_of_draws_from_the_prior():
    """Rows of few counts, so that the prior's draws of Z hit them: five standard errors, by the delta method."""
    model = make(swaps.PoissonPRME, 4, factors="gamma", beta=2.0)
    batch, guide = model.batch_of(swaps.simulate(model, 4, seed=3)[0]), model.make_guide()
    guide.plan(batch)
    model.eval()
    guide.eval()
    logs = []
    for _ in range(300):
        values = guide(batch)
        Z = guide.run.prior("Z").sample(torch.Size([200]))  # (200, B, K), given f from its prior
        rate = Z @ values["theta"]
        X = guide.run.value("X").squeeze(-2)
        logs.append(torch.distributions.Poisson(rate).log_prob(X).sum(-1))
        h = guide.run.prior("h").log_prob(values["h"]).squeeze(-1)
    p = torch.cat(logs).exp()  # (60000, B)
    error = float((p.std(0) / p.mean(0)).norm() / 4 / 60000**0.5)
    expected = float((p.mean(0).log() + h).mean())
    assert swaps.held_out_density(guide, batch, draws=2000) == pytest.approx(expected, abs=5 * error + 0.01)
    assert error < 0.02
