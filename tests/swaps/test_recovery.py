"""What a swap puts in place of a part of the model is found again in data of its own, within the stated tolerance."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from pyro_prme import Batch, TopicEncoder
from pyro_prme.equations.sticks import stick_weights
from pyro_prme.guide import PRMEGuide
from pyro_prme.prototype import eval_mode
from pyro_prme.swaps import (
    FiniteDirichletPRME,
    GaussianPRME,
    LogNormalPRME,
    PitmanYorPRME,
    PoissonPRME,
    fit_best,
    posterior_means,
    simulate,
    simulate_corpus,
)
from pyro_prme.train import Trainer

# factors of rows, four of them, on three columns of their own each

K, D = 4, 12
SIZE = {"h_dim": 3, "ell_dim": 2}
EQUAL = [1 / 4, 1 / 3, 1 / 2]  # sticks of equal weights
BLOCKS = np.kron(np.eye(K), np.ones(D // K))


def least_cosine(planted, learned):
    """The smallest cosine between factors and their partners, in the best order."""
    one, two = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (planted, learned))
    cosine = one @ two.T
    return cosine[linear_sum_assignment(-cosine)].min()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_poisson_factors_are_recovered_up_to_their_order(seed):
    """Every cosine is above 0.95, from 300 rows of about four counts each, by the trainer's own start."""
    N = 300
    torch.manual_seed(seed)
    truth, model = (PoissonPRME(K, D, N, beta=4.0, **SIZE) for _ in range(2))
    X, _ = simulate(truth, N, seed, V=EQUAL, theta=BLOCKS / 3)
    guide = model.make_guide()
    Trainer(model, guide, sparse.csr_matrix(X.numpy()), batch_size=N, learning_rate=0.01, seed=seed).fit(20)
    factors = posterior_means(guide, model.batch_of(X), draws=50).factors
    assert least_cosine(BLOCKS, factors.numpy()) > 0.95


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_gaussian_factors_are_recovered_up_to_their_order_and_scale(seed):
    """Every cosine is above 0.95, from 100 rows with noise of half the factors' size, by the best of three starts."""
    N = 100
    torch.manual_seed(seed)
    truth = GaussianPRME(K, D, N, **SIZE)
    X, _ = simulate(truth, N, seed, V=EQUAL, tau=1.0, theta=2 * BLOCKS.T)
    batch = truth.batch_of(X)
    guide, _ = fit_best(lambda: GaussianPRME(K, D, N, **SIZE).make_guide(), batch, 40, starts=3, learning_rate=0.1)
    assert least_cosine(BLOCKS, posterior_means(guide, batch, draws=50).factors.numpy()) > 0.95


# weights and loadings of five topics, known, on two words of their own each

TOPICS = torch.kron(torch.eye(5), torch.full((1, 2), 0.5))
WEIGHTS = torch.tensor([0.35, 0.25, 0.2, 0.12, 0.08])
STICKS = WEIGHTS[:-1] / (1 - torch.cat([torch.zeros(1), WEIGHTS.cumsum(0)[:-2]]))


def documents_and_fit(make, num, length, seed, epochs, learning_rate, **guide):
    """Counts, the values they were drawn with, and a guide whose topics are known and whose weights start equal."""
    torch.manual_seed(seed)
    truth, model = make(num), make(num)
    counts, values = simulate_corpus(truth, [length] * num, seed, theta=TOPICS, V=STICKS)
    fitted = PRMEGuide(model, **guide)
    fitted.plan(Batch.from_csr(counts[:8]))
    fitted.rule("theta").set(1e4 * TOPICS.mT.to(torch.get_default_dtype()) + 1e-3)
    fitted.rule("V").set(1 / torch.arange(5.0, 1, -1))
    trainer = Trainer(model, fitted, counts, batch_size=100, learning_rate=learning_rate, start=None, seed=seed)
    trainer.fit(epochs)
    return counts, values, fitted


def learned_weights(guide):
    return stick_weights(guide.rule("V").value().detach())


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "settings"), [(FiniteDirichletPRME, {"alpha": 5.0}), (PitmanYorPRME, {"alpha": 1.0, "discount": 0.4})]
)
def test_weights_are_recovered_within_a_twentieth(kind, settings, seed):
    """p_k, each within 0.05, from 300 documents of 60 words whose topics are known."""

    def make(num):
        return kind(5, 10, num, beta=20.0, **SIZE, **settings)

    _, _, guide = documents_and_fit(make, 300, 60, seed, 40, 0.005)
    torch.testing.assert_close(learned_weights(guide), WEIGHTS.double(), rtol=0, atol=0.05)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_log_normal_loadings_and_their_weights_are_recovered(seed):
    """From 200 documents of 100 words whose topics are known, by encoders that hide no words.

    p_k, each within 0.05. Of ln Z_nk, less its mean over topics since only shares are seen, the posterior means: with
    the truth they correlate above 0.9, and they have between three quarters and all of its size (a posterior mean is
    shorter than the truth by what the words leave open, here about a tenth).
    """

    def make(num):
        return LogNormalPRME(5, 10, num, **SIZE)

    def head(size):
        return TopicEncoder(5, size, batch_norm=False, word_dropout=0.0)

    counts, values, guide = documents_and_fit(make, 200, 100, seed, 30, 0.02, head=head)
    torch.testing.assert_close(learned_weights(guide), WEIGHTS.double(), rtol=0, atol=0.05)
    batch = Batch.from_csr(counts)
    with torch.no_grad(), eval_mode(guide.model, guide):
        learned = torch.stack([guide(batch)["Z"].log() for _ in range(50)]).mean(0)
    truth, learned = ((x - x.mean(-1, keepdim=True)).flatten() for x in (values["Z"].log(), learned))
    assert torch.corrcoef(torch.stack([truth, learned]))[0, 1] > 0.9
    assert 0.75 < (truth @ learned) / (truth @ truth) < 1
