"""Wrong inputs to the swaps are told in one sentence, and right ones of every kind are taken."""

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import sparse

from pyro_prme import HDP, PRME, Batch, Corpus, swaps
from pyro_prme.guide import ClosedFormGuide, PRMEGuide

K, D, N = 3, 6, 20
SIZE = {"h_dim": 2, "ell_dim": 2}


def poisson():
    torch.manual_seed(0)
    return swaps.PoissonPRME(K, D, N, **SIZE)


def gaussian(**kwargs):
    torch.manual_seed(0)
    return swaps.GaussianPRME(K, D, N, **SIZE, **kwargs)


def documents():
    return Batch.from_csr(swaps.simulate_corpus(PRME(K, D, N, **SIZE), [9] * N)[0])


def with_metadata(then):
    """A model whose metadata were replaced."""
    model = swaps.CovariatePRME(K, D, N, metadata=np.ones((N, 2)), **SIZE)
    model.metadata = then
    return model.make_guide()


@pytest.mark.parametrize("kind", [poisson, gaussian])
@pytest.mark.parametrize("form", [torch.Tensor.numpy, lambda X: sparse.csr_matrix(X.numpy()), torch.Tensor.float])
def test_tables_of_every_kind_are_the_same(kind, form):
    model = kind()
    X = swaps.simulate(model, N)[0].round()
    one, two = (model.batch_of(table, [3, 5]) for table in (X, form(X)))
    density = [swaps.held_out_density(swaps.PoissonPRME.make_guide(kind()), batch, draws=2) for batch in (one, two)]
    assert density[0] == pytest.approx(density[1])
    torch.testing.assert_close(one.documents, torch.tensor([3, 5]))


def test_metadata_of_every_kind_are_the_same():
    x = np.arange(2.0 * N).reshape(N, 2)
    for form in (torch.as_tensor, np.ndarray.tolist, lambda x: x.astype(int)):
        torch.testing.assert_close(swaps.CovariatePRME(K, D, N, metadata=form(x)).metadata, torch.as_tensor(x))


def test_a_number_may_be_given_for_a_site():
    _, values = swaps.simulate(gaussian(), N, tau=4.0)
    assert float(values["tau"]) == 4
    assert set(values) == {"ell", "V", "theta", "tau", "h", "f", "Z", "X"}


def test_documents_without_words_are_an_empty_corpus():
    counts, values = swaps.simulate_corpus(PRME(K, D, N, **SIZE), [0, 0])
    assert counts.shape == (2, D)
    assert counts.nnz == 0
    assert set(values) == {"ell", "V", "theta", "h", "f", "Z"}


def test_given_values_take_the_type_of_their_site(float32):
    theta = np.full((K, D), 1 / D)  # float64
    X, values = swaps.simulate(poisson(), N, theta=theta, V=[1, 0])
    assert X.dtype == values["V"].dtype == torch.float32
    torch.testing.assert_close(values["theta"], torch.as_tensor(theta).float())


def test_shares_may_be_off_one_by_rounding(float32):
    theta = torch.rand(K, 4 * D).softmax(-1) * (1 + 1e-5)
    swaps.simulate(swaps.PoissonPRME(K, 4 * D, N, **SIZE), N, theta=theta)


X = torch.ones(N, D)


def planned(model):
    """A guide that has seen rows of ones."""
    guide = model.make_guide()
    guide.plan(model.batch_of(X))
    return guide


def split():
    counts = swaps.simulate_corpus(PRME(K, D, N, **SIZE), [9] * N)[0]
    return Corpus(counts, tuple("abcdef")).split_tokens(observed=0.5, seed=0)


def topic_guide(plan=True):
    guide = PRMEGuide(PRME(K, D, N, **SIZE))
    if plan:
        guide.plan(documents())
    return guide


@pytest.mark.parametrize("score", [swaps.held_out_bound, swaps.held_out_density])
@pytest.mark.parametrize("kind", [PRME, HDP])
def test_topic_models_have_no_density_of_rows(score, kind):
    """What it would leave out are the words, whose sites are on no row."""
    with pytest.raises(
        ValueError, match=f"{kind.__name__} has no factors: score a topic model with `completion_score`"
    ):
        score(PRMEGuide(kind(K, D, N)), documents())


@pytest.mark.parametrize("score", [swaps.fit, swaps.held_out_bound, swaps.held_out_density, swaps.posterior_means])
@pytest.mark.parametrize("guide_of", [planned, swaps.PoissonPRME.make_guide])
def test_a_batch_of_another_kind_is_refused(score, guide_of):
    """Cells of `Rows` would pass for counts of one each."""
    rows, counts = swaps.Rows.of(3 * X), poisson().batch_of(3 * X)
    with pytest.raises(ValueError, match="of real-valued rows and PoissonPRME is of counts: make it"):
        score(guide_of(poisson()), rows)
    with pytest.raises(ValueError, match="of counts and GaussianPRME is of real-valued rows: make it"):
        score(guide_of(gaussian()), counts)


def test_rows_are_no_documents():
    with pytest.raises(ValueError, match=r"PRME is of counts: make it with `Batch.from_csr\(counts\)`"):
        swaps.fit(topic_guide(), swaps.Rows.of(X))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: poisson().batch_of(X[:, :4]), "must have the model's 6 columns"),
        (lambda: poisson().batch_of(X[0]), "must have the model's 6 columns"),
        (lambda: poisson().batch_of(X * float("nan")), "not a finite number"),
        (lambda: poisson().batch_of(X + 0.5), "whole numbers"),
        (lambda: poisson().batch_of(X, [N]), "numbers of rows, from 0 to 19"),
        (lambda: gaussian().batch_of(X * float("inf")), "not a finite number"),
        (lambda: swaps.fit(gaussian().make_guide(), poisson().batch_of(X)), "make it with `model.batch_of"),
        (lambda: swaps.fit(poisson().make_guide(), X), "not a batch"),
        (lambda: swaps.held_out_density(poisson().make_guide(), X), "not a batch"),
        (lambda: swaps.held_out_bound(poisson().make_guide(), poisson().batch_of(X), draws=0), "draws is 0"),
        (lambda: swaps.fit_best(poisson().make_guide, poisson().batch_of(X), starts=0), "starts is 0"),
        (lambda: swaps.posterior_means(PRMEGuide(PRME(K, D, N)), documents()), "PRME has no factors"),
        (lambda: swaps.simulate(poisson(), N + 1), "built for num_documents=20"),
        (lambda: swaps.simulate(poisson(), 0), "no documents"),
        (lambda: swaps.simulate(PRME(K, D, N), N), "use `simulate_corpus`"),
        (lambda: swaps.simulate(poisson(), N, delta=torch.ones(1)), "no site delta; its sites are ell, V, theta"),
        (
            lambda: swaps.simulate(poisson(), N, theta=torch.ones(2, D)),
            r"theta has shape \(2, 6\): the site has \(3, 6\)",
        ),
        (lambda: swaps.simulate_corpus(poisson(), [5] * N), "use `simulate`"),
        (lambda: swaps.simulate_corpus(PRME(K, D, N), [-1] * N), "lengths must be"),
        (lambda: swaps.simulate_corpus(PRME(K, D, N), 5), "lengths must be"),
        (lambda: swaps.CovariatePRME(K, D, N, metadata=torch.ones(3, 1)), r"metadata has shape \(3, 1\)"),
        (lambda: swaps.CovariatePRME(K, D, N, metadata=torch.ones(N, 0)), "and a column"),
        (lambda: swaps.CovariatePRME(K, D, N, metadata=torch.full((N, 1), float("nan"))), "not a finite number"),
        (lambda: swaps.CovariatePRME(K, D, N, metadata=[["a"]] * N), "code groups as columns"),
        (lambda: with_metadata(torch.ones(5, 2)).plan(documents()), "these documents need 20 rows"),
        (lambda: with_metadata(torch.ones(N, 3)).plan(documents()), "built with 2 columns"),
        (lambda: swaps.HyperPriorPRME(K, D, N, priors={"alpha": 2.0}), "give a distribution"),
        (lambda: swaps.HyperPriorPRME(K, D, N, priors={"alpha": dist.Normal(0.0, 1.0)}), "may be negative"),
        (lambda: gaussian(theta_scale=float("nan")), "theta_scale is nan"),
        (lambda: swaps.fit(poisson(), poisson().batch_of(X)), r"The guide is a PoissonPRME: give a guide"),
        (lambda: swaps.posterior_means(poisson(), poisson().batch_of(X)), r"The guide is a PoissonPRME: give a guide"),
        (lambda: swaps.fit(ClosedFormGuide(print), documents()), "The guide's model is a builtin_function"),
        (lambda: swaps.fit(planned(poisson()), poisson().batch_of(X), epochs=-1), "epochs is -1"),
        (lambda: swaps.fit(planned(poisson()), poisson().batch_of(X), epochs=1.5), "epochs is 1.5"),
        (lambda: swaps.fit(planned(poisson()), poisson().to_draw(N)), "The batch has no values"),
        (lambda: swaps.fit(planned(gaussian()), gaussian().to_draw(N)), "The batch has no values"),
        (lambda: swaps.completion_score(topic_guide(), split(), draws=0), "draws is 0"),
        (lambda: swaps.completion_score(topic_guide(plan=False), split()), "no plan yet: fit it"),
        (lambda: swaps.completion_score(topic_guide(), split().observed), "The split is a Corpus: make one with"),
        (lambda: swaps.completion_score(PRME(K, D, N), split()), "The guide is a PRME: give a guide"),
        (
            lambda: swaps.completion_score(planned(swaps.PoissonPRME(K, D, N, factors="gamma", **SIZE)), split()),
            "score its rows with `held_out_density`",
        ),
        (
            lambda: swaps.simulate(poisson(), N, Z=torch.full((N, K), -1.0)),
            "for Z has numbers from -1 to -1, which are",
        ),
        (lambda: swaps.simulate(poisson(), N, V=torch.full((K - 1,), 2.0)), "not in the site's support, Interval"),
        (lambda: swaps.simulate(poisson(), N, theta=X[:K]), "for theta has numbers from 1 to 1, .* Simplex"),
        (lambda: swaps.simulate(poisson(), N, f=torch.full((N, K), float("inf"))), "for f has numbers from inf"),
        (lambda: swaps.simulate(poisson(), N, V="half"), "for V is no table of numbers"),
        (lambda: swaps.simulate_corpus(PRME(K, D, N), [1] * N, C=np.full(N, 0.5)), "for C has fractions"),
        (lambda: swaps.simulate_corpus(PRME(K, D, N), [1] * N, C=np.full(N, K)), "for C has numbers from 3 to 3"),
    ],
)
def test_wrong_inputs_are_told_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
