"""Rows and documents drawn from a model: what may be given, and what is told in a sentence."""

import numpy as np
import pytest
import torch

from pyro_prme import PRME, GaussianPRME, PoissonPRME, Rows, simulate, simulate_corpus

K, D, N = 3, 6, 20
SIZE = {"h_dim": 2, "ell_dim": 2}


def poisson():
    torch.manual_seed(0)
    return PoissonPRME(K, D, N, **SIZE)


def gaussian():
    torch.manual_seed(0)
    return GaussianPRME(K, D, N, **SIZE)


def test_a_number_may_be_given_for_a_site():
    X, values = simulate(gaussian(), N, tau=4.0)
    assert float(values["tau"]) == 4
    assert set(values) == {"ell", "V", "theta", "tau", "h", "f", "Z", "X"}
    assert X.shape == (N, D)


def test_the_seed_decides_and_the_global_state_is_left_alone():
    model, before = gaussian(), torch.get_rng_state()
    one, two, other = (simulate(gaussian(), N, seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    simulate(model, N)
    assert torch.equal(before, torch.get_rng_state())


def test_documents_without_words_are_an_empty_corpus():
    counts, values = simulate_corpus(PRME(K, D, N, **SIZE), [0, 0])
    assert counts.shape == (2, D)
    assert counts.nnz == 0
    assert set(values) == {"ell", "V", "theta", "h", "f", "Z"}


def test_documents_have_the_lengths_asked_for():
    counts, _ = simulate_corpus(PRME(K, D, N, **SIZE), [3, 0, 7])
    assert np.asarray(counts.sum(1)).ravel().tolist() == [3, 0, 7]


@pytest.mark.usefixtures("float32")
def test_given_values_take_the_type_of_their_site():
    theta = np.full((K, D), 1 / D)  # float64
    X, values = simulate(poisson(), N, theta=theta, V=[1, 0])
    assert X.dtype == values["V"].dtype == torch.float32
    torch.testing.assert_close(values["theta"], torch.as_tensor(theta).float())


@pytest.mark.usefixtures("float32")
def test_shares_may_be_off_one_by_rounding():
    theta = torch.rand(K, 4 * D).softmax(-1) * (1 + 1e-5)
    simulate(PoissonPRME(K, 4 * D, N, **SIZE), N, theta=theta)


@pytest.mark.parametrize("form", [torch.Tensor.numpy, torch.Tensor.float, torch.Tensor.tolist])
def test_tables_of_every_kind_are_the_same_rows(form):
    X = simulate(poisson(), N)[0]
    (batch,) = Rows(form(X)).batch([3, 5])
    assert torch.equal(batch.values, X[[3, 5]])
    assert torch.equal(batch.documents, torch.tensor([3, 5]))


X = torch.ones(N, D)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Rows(X[0]), r"The table has shape \(6,\): it must have rows and columns"),
        (lambda: Rows(X * float("nan")), "not a finite number"),
        (lambda: Rows([["a"]]), "not a finite number"),
        (lambda: Rows(X).batch([N]), "numbers of rows, from 0 to 19"),
        (lambda: Rows(X).batch([0.5]), "numbers of rows, from 0 to 19"),
        (lambda: simulate(poisson(), N + 1), "built for num_documents=20"),
        (lambda: simulate(poisson(), 0), "no rows"),
        (lambda: simulate(PRME(K, D, N), N), "use `simulate_corpus`"),
        (lambda: simulate(poisson(), N, delta=torch.ones(1)), "no site delta; its sites are ell, V, theta"),
        (lambda: simulate(poisson(), N, theta=torch.ones(2, D)), r"theta has shape \(2, 6\): the site has \(3, 6\)"),
        (lambda: simulate(poisson(), N, Z=torch.full((N, K), -1.0)), "for Z has numbers from -1 to -1, which are"),
        (lambda: simulate(poisson(), N, V=torch.full((K - 1,), 2.0)), "not in the site's support, Interval"),
        (lambda: simulate(poisson(), N, theta=X[:K]), "for theta has numbers from 1 to 1, .* Simplex"),
        (lambda: simulate(poisson(), N, f=torch.full((N, K), float("inf"))), "for f has numbers from inf"),
        (lambda: simulate(poisson(), N, V="half"), "for V is no table of numbers"),
        (lambda: simulate_corpus(poisson(), [5] * N), "use `simulate`"),
        (lambda: simulate_corpus(PRME(K, D, N), [-1] * N), "lengths must be"),
        (lambda: simulate_corpus(PRME(K, D, N), 5), "lengths must be"),
        (lambda: simulate_corpus(PRME(K, D, N), [1] * N, C=np.full(N, 0.5)), "for C has fractions"),
        (lambda: simulate_corpus(PRME(K, D, N), [1] * N, C=np.full(N, K)), "for C has numbers from 3 to 3"),
    ],
)
def test_wrong_inputs_are_told_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
