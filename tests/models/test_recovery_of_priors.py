"""What a swapped prior puts in place of a part of the model is found again in data of its own, topics being known."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import beta as beta_law
from torch import nn

from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.sticks import stick_weights
from pyro_prme.inference.rules.topic_table import topic_table
from pyro_prme.inference.session import evaluating
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.models.covariates import CovariatePRME
from pyro_prme.models.gaussian_process import GaussianProcessPRME
from pyro_prme.models.networks.encoders import TopicEncoder
from pyro_prme.models.networks.layers import LinearDecoder
from pyro_prme.models.priors import FiniteDirichletPRME, HorseshoePlaces, LogNormalPRME, PitmanYorPRME, PitmanYorSticks
from pyro_prme.models.prme import ShapePRME
from pyro_prme.models.simulation import simulate_corpus
from pyro_prme.models.topic_model import HDP
from tests.models.swapped import number


def pairs(num_topics):
    """Topics of two words each, shape (K, 2 K)."""
    return torch.kron(torch.eye(num_topics), torch.full((1, 2), 0.5))


def equal_sticks(num_topics):
    return 1 / torch.arange(num_topics, 1, -1.0)


def fitted(model, counts, epochs, V, *, seed=0, batch_size=100, learning_rate=0.01):
    """A guide whose topics start where they are known to be, and whose sticks start at V."""
    guide = PRMEGuide(model)
    guide.plan(Batch.from_csr(counts[:8]))
    gamma = 1e4 * pairs(model.num_topics) + 1e-3
    table = topic_table(list(guide.claims))
    if table is None:
        guide.topics.set(gamma.mT)
    else:
        table.claim.set_natural(table.name, {"log": gamma - 1})
    guide.claim("V").set(V)
    options = TrainOptions(batch_size=batch_size, learning_rate=learning_rate, seed=seed)
    Trainer(guide, Counts(counts), options, start=None).fit(epochs)
    return guide


WEIGHTS = torch.tensor([0.35, 0.25, 0.2, 0.12, 0.08])
STICKS = WEIGHTS[:-1] / (1 - torch.cat([torch.zeros(1), WEIGHTS.cumsum(0)[:-2]]))
SIZE = {"h_dim": 3, "ell_dim": 2}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "settings"), [(FiniteDirichletPRME, {"alpha": 5.0}), (PitmanYorPRME, {"alpha": 1.0, "discount": 0.4})]
)
def test_weights_are_recovered_within_a_twentieth(kind, settings, seed):
    """p_k, each within 0.05, from 300 documents of 60 words."""
    torch.manual_seed(seed)
    truth, model = (kind(5, 10, 300, beta=20.0, **SIZE, **settings) for _ in range(2))
    counts, _ = simulate_corpus(truth, [60] * 300, seed, theta=pairs(5), V=STICKS)
    guide = fitted(model, counts, 40, equal_sticks(5), seed=seed, learning_rate=0.005)
    found = stick_weights(guide.posterior("V").v)
    torch.testing.assert_close(found, WEIGHTS.to(found.dtype), rtol=0, atol=0.05)


class SeeingAll(LogNormalPRME):
    """Its networks see every word in training, too."""

    def default_network(self, size):
        return TopicEncoder(self.num_topics, size, batch_norm=False, word_dropout=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_log_normal_loadings_and_their_weights_are_recovered(seed):
    """From 200 documents of 100 words: p_k within 0.05, and ln Z less its mean over topics, since only shares are seen.

    The posterior means correlate above 0.9 with the truth and have between three quarters and all of its size.
    """
    torch.manual_seed(seed)
    truth, model = (SeeingAll(5, 10, 200, **SIZE) for _ in range(2))
    counts, values = simulate_corpus(truth, [100] * 200, seed, theta=pairs(5), V=STICKS)
    guide = fitted(model, counts, 30, equal_sticks(5), seed=seed, learning_rate=0.02)
    found = stick_weights(guide.posterior("V").v)
    torch.testing.assert_close(found, WEIGHTS.to(found.dtype), rtol=0, atol=0.05)
    with torch.no_grad(), evaluating(model, guide):
        q = guide.run(Batch.from_csr(counts)).factor("Z")
        learned = q.base_dist.base_dist.loc if hasattr(q.base_dist, "base_dist") else q.base_dist.loc
    truth, learned = ((x - x.mean(-1, keepdim=True)).flatten() for x in (values["Z"].log(), learned))
    assert torch.corrcoef(torch.stack([truth, learned]))[0, 1] > 0.9
    assert 0.75 < (truth @ learned) / (truth @ truth) < 1


# a horseshoe on places


class Product(nn.Module):
    """f = h' ell, with nothing to learn."""

    def __init__(self, variance=0.0):
        super().__init__()
        self.variance = variance

    def forward(self, h, ell):
        mean = h @ ell.mT
        return mean - mean.mean(-1, keepdim=True), torch.full_like(mean, self.variance)


class AnswersToMetadata(HorseshoePlaces, ShapePRME):
    """Metadata are h itself, and topics are known: what is left to learn is how each topic answers to them."""

    def sample_h(self, batch):
        return self.metadata[batch.documents].unsqueeze(-2)

    def sample_theta(self):
        return pyro.sample("theta", dist.Dirichlet(1e4 * pairs(self.num_topics) + 0.01))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_topics_that_answer_to_metadata_are_found_and_the_others_shrunk(seed):
    """ell within a fifth where it is 1.5 long, below a fifth where it is 0, and lambda_k within a third."""
    K, N, dim = 10, 150, 3
    torch.manual_seed(seed)
    x, ell = torch.randn(N, dim), torch.zeros(K, dim)
    ell[0, 0], ell[1, 1] = 1.5, -1.5
    sizes = {"h_dim": dim, "ell_dim": dim, "beta": 20.0, "ell_scale": 0.1}
    truth, model = (AnswersToMetadata(K, 2 * K, N, decoder=Product(), **sizes) for _ in range(2))
    truth.metadata = model.metadata = x
    counts, _ = simulate_corpus(truth, [60] * N, seed, theta=pairs(K), V=equal_sticks(K), ell=ell)
    guide = fitted(model, counts, 200, equal_sticks(K), seed=seed, batch_size=N, learning_rate=0.05)
    found, scale = guide.claim("ell").loc.detach(), guide.claim("lambda").loc.detach().exp()
    assert (found - ell)[:2].norm(dim=-1).max() < 0.3
    assert found[2:].norm(dim=-1).max() < 0.2
    torch.testing.assert_close(scale[:2], torch.full((2,), 1.5 / (0.1 * dim**0.5)), rtol=1 / 3, atol=0)
    assert scale[2:].max() < 2.2


# covariates

ON_A_CIRCLE = torch.arange(6) * 2 * math.pi / 6
ELL = 1.5 * torch.stack([ON_A_CIRCLE.cos(), ON_A_CIRCLE.sin(), torch.zeros(6)], -1)


class GivenEll(CovariatePRME):
    def sample_ell(self):
        return ELL.to(torch.get_default_dtype())


def with_covariates(seed, kind=CovariatePRME, decoder=None):
    """Truth and fit: topics on a circle; 600 documents of 30 words; two covariates, each of an axis of h."""
    K, N, size = 6, 600, {"h_dim": 3, "ell_dim": 3, "beta": 20.0}
    torch.manual_seed(seed)
    x = torch.randn(N, 2)
    truth = GivenEll(K, 2 * K, N, metadata=x, h_scale=0.3, decoder=Product(0.05), **size)
    counts, _ = simulate_corpus(truth, [30] * N, seed, theta=pairs(K), V=equal_sticks(K), W=torch.eye(2, 3))
    model = kind(K, 2 * K, N, metadata=x, decoder=decoder, **size)
    return truth, model, fitted(model, counts, 100, equal_sticks(K), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_effect_of_metadata_is_recovered_within_a_seventh_where_decoder_and_ell_are_given(seed):
    """W, entry by entry: h may then be neither turned nor scaled."""
    _, _, guide = with_covariates(seed, GivenEll, Product(0.05))
    W = guide.posterior("W").mean
    torch.testing.assert_close(W, torch.eye(2, 3, dtype=W.dtype), rtol=0, atol=1 / 7)


def centred_f(model, W, ell):
    """mu_f(x_n W, ell_k), centred over topics and documents, in a row."""
    with torch.no_grad(), evaluating(model):
        f = model.decode((model.metadata @ W).unsqueeze(-2), ell)[0]
    f = f - f.mean(-1, keepdim=True)
    return (f - f.mean(0)).flatten()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_effect_of_metadata_on_f_is_recovered_within_a_tenth_by_a_linear_decoder(seed):
    """With decoder and ell learned; W itself is not, since h may be turned and scaled."""
    truth, model, guide = with_covariates(seed, decoder=LinearDecoder(6, 3, 3))
    dtype = torch.get_default_dtype()
    planted = centred_f(truth, torch.eye(2, 3, dtype=dtype), ELL.to(dtype))
    learned = centred_f(model, guide.posterior("W").mean, guide.posterior("ell").v)
    assert float(torch.corrcoef(torch.stack([planted, learned]))[0, 1]) > 0.99
    assert float((planted * learned).sum() / planted.square().sum()) == pytest.approx(1, abs=0.1)


# a Gaussian process


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_documents_say_which_topics_go_together_and_the_amplitude_is_too_small(seed):
    """Two clusters, from 200 words: s between 1 and 1.3 for 1.5, since q(f) has no covariances."""
    K, N = 8, 400
    ell = torch.tensor([[x, y] for x in (-1.5, 1.5) for y in (-0.6, -0.2, 0.2, 0.6)])
    truth = GaussianProcessPRME(K, 2 * K, N, ell_dim=2, beta=20.0, amplitude=1.5)
    counts, _ = simulate_corpus(truth, [200] * N, seed, theta=pairs(K), V=equal_sticks(K), ell=ell)
    torch.manual_seed(seed)
    model = GaussianProcessPRME(K, 2 * K, N, ell_dim=5, beta=20.0)
    guide = fitted(model, counts, 120, equal_sticks(K), seed=seed, batch_size=200, learning_rate=0.02)
    centre, above = torch.eye(K) - 1 / K, torch.triu_indices(K, K, 1).unbind()
    with torch.no_grad():
        S = [centre @ x @ centre for x in (model.covariance(guide.posterior("ell").v), truth.covariance(ell))]
    assert float(torch.corrcoef(torch.stack([x[above] for x in S]))[0, 1]) > 0.8
    assert 1.0 < float(model.log_amplitude.detach().exp()) < 1.3


# numbers


def gamma(mean):
    return number(dist.Gamma, 2, 2 / mean)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_alpha_is_that_of_the_sticks_and_beta_lies_above_its_own(seed):
    """alpha is within a tenth of the true sticks' own estimate; beta ends at the maximum of the bound, above the truth.

    With ln of the sum of Z bounded, a document's part is below its exact value by about ln((beta + M) / beta) / 2.
    """
    K, N = 20, 500
    counts, values = simulate_corpus(HDP(K, 2 * K, N, alpha=3.0, beta=5.0), [200] * N, seed, theta=pairs(K))
    model = HDP(K, 2 * K, N, alpha=gamma(2.0), beta=gamma(5.0))
    guide = fitted(model, counts, 80, values["V"], batch_size=N, learning_rate=0.05)
    own = (K + 1) / (1 - float(torch.log1p(-values["V"]).sum()))  # the posterior mean given the true sticks
    assert float(guide.posterior("alpha").mean) == pytest.approx(own, rel=0.1)
    assert 5.3 < float(guide.posterior("beta").v) < 6.6


def sticks_own(V):
    """Discount and alpha, with their priors, from the true sticks."""
    k = np.arange(1, len(V) + 1)

    def loss(x):
        d, alpha = 1 / (1 + np.exp(-x[0])), np.exp(x[1])
        return -beta_law.logpdf(V, 1 - d, alpha + k * d).sum() - np.log(alpha) + alpha

    x = minimize(loss, [0.0, 0.0], method="Nelder-Mead").x
    return 1 / (1 + np.exp(-x[0])), np.exp(x[1])


class PitmanYorHDP(PitmanYorSticks, HDP):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("discount", [0.3, 0.5])
def test_the_sticks_discount_is_recovered_within_a_tenth(discount):
    """Of the truth and of what the true sticks say."""
    K, N = 40, 500
    truth = PitmanYorHDP(K, 2 * K, N, alpha=1.0, discount=discount)
    counts, values = simulate_corpus(truth, [200] * N, seed=1, theta=pairs(K))
    model = PitmanYorHDP(K, 2 * K, N, discount=number(dist.Beta, 1, 1), alpha=gamma(2.0))
    guide = fitted(model, counts, 80, values["V"], batch_size=N, learning_rate=0.05)
    found = float(guide.posterior("discount").v)
    assert found == pytest.approx(discount, abs=0.1)
    assert found == pytest.approx(sticks_own(values["V"].numpy().clip(1e-12, 1 - 1e-12))[0], abs=0.1)
