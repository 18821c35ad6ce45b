"""Wrong inputs to the swaps are told in one sentence, and right ones of every kind are taken."""

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import sparse

from pyro_prme import PRME, Batch, PRMEGuide, swaps

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


X = torch.ones(N, D)


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
    ],
)
def test_wrong_inputs_are_told_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
