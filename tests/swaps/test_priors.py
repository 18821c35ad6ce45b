"""Other priors: their laws, what is recovered of them, and points that would be unbounded."""

import math

import numpy as np
import pytest
import torch
from pyro import plate
from scipy import sparse
from torch import nn

from pyro_prme import Batch, TopicEncoder
from pyro_prme.equations.sticks import stick_weights
from pyro_prme.guide import PRMEGuide
from pyro_prme.models.networks.layers import LinearDecoder
from pyro_prme.swaps import simulate_corpus
from pyro_prme.swaps.priors import (
    CovariatePRME,
    FiniteDirichletPRME,
    LogNormalPRME,
    PitmanYorPRME,
)
from pyro_prme.train import Trainer

K, D, N = 4, 12, 60
SIZE = {"h_dim": 3, "ell_dim": 2}


def corpus(seed=0):
    rng = np.random.default_rng(seed)
    theta = np.kron(np.eye(K), np.ones(D // K)) / (D // K)
    return sparse.csr_matrix(np.stack([rng.multinomial(30, rng.dirichlet(np.full(K, 0.4)) @ theta) for _ in range(N)]))


@pytest.mark.parametrize("kind", [PitmanYorPRME, FiniteDirichletPRME])
def test_a_stick_without_a_largest_density_is_a_point_on_the_logit_scale(kind):
    guide = PRMEGuide(kind(K, D, N, **SIZE))
    assert guide.plan(Batch.from_csr(corpus())).rules["V"].unconstrained


def draws_of_V(model, num=4000):
    with plate("draws", num, dim=-2), plate("sticks", model.num_topics - 1, dim=-1):
        return model.sample_V()


def test_finite_dirichlet_sticks_are_a_symmetric_dirichlet():
    """Means 1 / K and variances (1/K)(1 - 1/K) / (alpha + 1), within five standard errors of 4000 draws."""
    p = stick_weights(draws_of_V(FiniteDirichletPRME(K, D, N, alpha=2.0, **SIZE)))
    assert (p.mean(0) - 1 / K).abs().max() < 5 * p.std() / 4000**0.5
    torch.testing.assert_close(p.var(0), torch.full((K,), (1 / K) * (1 - 1 / K) / 3), rtol=0.12, atol=0)


def test_pitman_yor_sticks_have_their_means():
    d, alpha = 0.4, 1.5
    V = draws_of_V(PitmanYorPRME(K, D, N, alpha=alpha, discount=d, **SIZE))
    k = torch.arange(1.0, K)
    assert (V.mean(0) - (1 - d) / (1 - d + alpha + k * d)).abs().max() < 5 * V.std() / 4000**0.5


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="discount is 1"):
        PitmanYorPRME(K, D, N, discount=1.0)
    with pytest.raises(ValueError, match="metadata has shape"):
        CovariatePRME(K, D, N, metadata=torch.ones(3, 1))
    with pytest.raises(ValueError, match="spread is 0"):
        LogNormalPRME(K, D, N, spread=0.0)


def test_a_covariates_effect_on_the_embeddings_is_learned():
    """Two groups with topics of their own: the group shifts the mean of h, and the shift is that of the embeddings.

    For an encoder that sees the same in training as later: with word dropout the effect is that of the embeddings of
    documents with hidden words, which lie nearer to each other.
    """
    rng = np.random.default_rng(0)
    group = np.arange(N) % 2
    theta = np.kron(np.eye(K), np.ones(D // K)) / (D // K)
    shares = np.stack([np.r_[rng.dirichlet([2.0, 2.0]), 0, 0][:: 1 if g else -1] for g in group])
    counts = sparse.csr_matrix(np.stack([rng.multinomial(30, share @ theta) for share in shares]))
    model = CovariatePRME(K, D, N, metadata=torch.as_tensor(2.0 * group - 1).unsqueeze(-1), **SIZE)
    guide = PRMEGuide(model, TopicEncoder(K, SIZE["h_dim"], batch_norm=False, word_dropout=0.0))
    Trainer(model, guide, counts, batch_size=30, learning_rate=0.02).fit(150)
    Trainer(model, guide, counts, batch_size=30, learning_rate=0.002, start=None).fit(150)  # the effect follows h
    with torch.no_grad():
        guide.eval()
        h = guide.embeddings(Batch.from_csr(counts))
    apart = (h[group == 1].mean(0) - h[group == 0].mean(0)) / 2  # (h_dim,)
    torch.testing.assert_close(model.effect[0].detach(), apart, rtol=0, atol=0.05)
    assert apart.norm() > 0.3


def mean_f_given_metadata(model, ell):
    """mu_f(W x_n, ell_k), centred over topics and documents, in a row."""
    model.eval()
    with torch.no_grad():
        f = model.decode((model.metadata @ model.effect).unsqueeze(-2), ell)[0]
    f = f - f.mean(-1, keepdim=True)
    return (f - f.mean(0)).flatten()


class Product(nn.Module):
    """f = h' ell, with nothing to learn."""

    def forward(self, h, ell):
        mean = h @ ell.mT
        return mean - mean.mean(-1, keepdim=True), torch.full_like(mean, 0.05)


ON_A_CIRCLE = torch.arange(6) * 2 * math.pi / 6
ELL = 1.5 * torch.stack([ON_A_CIRCLE.cos(), ON_A_CIRCLE.sin(), torch.zeros(6)], -1)


class GivenEll(CovariatePRME):
    def sample_ell(self):
        return ELL.to(torch.get_default_dtype())


def with_covariates(seed, kind=CovariatePRME, decoder=None):
    """Truth and fit: topics known, on a circle; 600 documents of 30 words; two covariates, each of an axis of h."""
    K, N, size = 6, 600, {"h_dim": 3, "ell_dim": 3, "beta": 20.0}
    theta, V = torch.kron(torch.eye(K), torch.full((1, 2), 0.5)), 1 / torch.arange(K, 1, -1.0)
    torch.manual_seed(seed)
    x = torch.randn(N, 2)
    truth = GivenEll(K, 2 * K, N, metadata=x, h_scale=0.3, decoder=Product(), **size)
    truth.effect.data = torch.eye(2, 3)
    counts, _ = simulate_corpus(truth, [30] * N, seed, theta=theta, V=V)
    model = kind(K, 2 * K, N, metadata=x, decoder=decoder, **size)
    guide = model.make_guide()
    guide.plan(Batch.from_csr(counts[:8]))
    guide.rule("theta").set(1e4 * theta.mT + 1e-3)
    guide.rule("V").set(V)
    Trainer(model, guide, counts, batch_size=100, learning_rate=0.01, start=None, seed=seed).fit(100)
    return truth, model, guide


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_effect_of_metadata_is_recovered_within_a_seventh_where_decoder_and_ell_are_given(seed):
    """W, entry by entry: h may then be neither turned nor scaled."""
    _, model, _ = with_covariates(seed, GivenEll, Product())
    torch.testing.assert_close(model.effect.detach(), torch.eye(2, 3), rtol=0, atol=1 / 7)


def correlation_and_slope(truth, model, guide):
    """Of the learned effect on f against the planted one."""
    planted = mean_f_given_metadata(truth, ELL.to(torch.get_default_dtype()))
    learned = mean_f_given_metadata(model, guide.rule("ell").value().detach())
    both = torch.stack([planted, learned])
    return float(torch.corrcoef(both)[0, 1]), float((planted * learned).sum() / planted.square().sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_effect_of_metadata_on_f_is_recovered_within_a_tenth_by_a_linear_decoder(seed):
    """With decoder and ell learned; W itself is not, since h may be turned and scaled."""
    correlation, slope = correlation_and_slope(*with_covariates(seed, decoder=LinearDecoder(6, 3, 3)))
    assert correlation > 0.99
    assert slope == pytest.approx(1, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_effect_of_metadata_on_f_is_recovered_within_a_fifth_by_the_default_decoder(seed):
    """A network bends the planted plane."""
    correlation, slope = correlation_and_slope(*with_covariates(seed))
    assert correlation > 0.95
    assert slope == pytest.approx(1, abs=0.2)
