"""Learned alpha, beta, gamma0 and discount: what is recovered, against what the planted sites themselves say."""

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln
from scipy.stats import beta as beta_law

from pyro_prme import HDP, Batch
from pyro_prme.equations.sticks import stick_weights
from pyro_prme.guide import PRMEGuide
from pyro_prme.swaps import HyperPriorPRME, HyperPriors, LearnedPitmanYorPRME, PitmanYorSticks, simulate_corpus
from pyro_prme.train import Trainer


class LearnedHDP(HyperPriors, HDP):
    pass


class PitmanYorHDP(PitmanYorSticks, HDP):
    pass


class LearnedPitmanYorHDP(HyperPriors, PitmanYorSticks, HDP):
    pass


def gamma(mean):
    return dist.Gamma(torch.tensor(2.0), torch.tensor(2.0 / mean))


def value(guide, name):
    return float(guide.rule(name).value().detach())


def fitted(model, counts, epochs, **start):
    """Fitted from k-means, or from given topics and sticks."""
    guide = PRMEGuide(model)
    guide.plan(Batch.from_csr(counts[:8]))
    if start:
        guide.rule("theta").set(1e4 * start["theta"].mT + 1e-3)
        guide.rule("V").set(start["V"].clamp(1e-3, 1 - 1e-3))
    Trainer(model, guide, counts, batch_size=250, start=None if start else "kmeans").fit(epochs)
    return guide


def blocks(num_topics):
    """Topics of two words each, so that words tell topics and nothing is left to guess but the numbers."""
    return torch.kron(torch.eye(num_topics), torch.full((1, 2), 0.5))


def test_the_numbers_are_points_and_the_sticks_are_on_the_logit_scale():
    guide = PRMEGuide(HyperPriorPRME(4, 12, 30, h_dim=3, ell_dim=2))
    plan = guide.plan(Batch.from_tokens([[0, 1, 2], [3, 4]]))
    assert {name: type(plan.rules[name]).__name__ for name in ("alpha", "beta", "gamma0")} == dict.fromkeys(
        ("alpha", "beta", "gamma0"), "Point"
    )
    assert plan.rules["V"].unconstrained
    assert type(plan.rules["Z"]).__name__ == "GammaLoadings"


def best_beta(counts, p, bound):
    """The maximum over beta, with its prior, of the exact marginal likelihood of known topics or of its bound."""
    n = counts.toarray().reshape(counts.shape[0], -1, 2).sum(-1)  # (N, K)
    length = n.sum(-1)

    def loss(log_beta):
        beta = np.exp(log_beta)
        if bound:
            normalizer = beta * np.log(beta) - (beta + length) * np.log(beta + length) + length
        else:
            normalizer = gammaln(beta) - gammaln(beta + length)
        topics = (gammaln(beta * p + n) - gammaln(beta * p)).sum()
        return -(normalizer.sum() + topics + log_beta - 2 / 5 * beta)

    return float(np.exp(minimize_scalar(loss, bounds=(-2, 5), method="bounded").x))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_alpha_is_that_of_the_sticks_and_beta_that_of_the_bound(seed):
    """Topics known: alpha is within a tenth of the true sticks' own estimate, whose error is one over root K.

    beta is the maximiser of the bound within a twentieth. That lies above the exact one, which is within a tenth of the
    truth: with ln Z's sum bounded, a document's part is below its exact value by about ln((beta + M) / beta) / 2.
    """
    K, N = 20, 500
    counts, values = simulate_corpus(HDP(K, 2 * K, N, alpha=3.0, beta=5.0), [200] * N, seed, theta=blocks(K))
    V = values["V"]
    model = LearnedHDP(K, 2 * K, N, priors={"alpha": gamma(2.0), "beta": gamma(5.0)})
    guide = fitted(model, counts, 80, theta=blocks(K), V=V)
    assert value(guide, "alpha") == pytest.approx(K / (1 - float(torch.log1p(-V).sum())), rel=0.1)
    learned = stick_weights(guide.rule("V").value().detach()).numpy()
    exact = best_beta(counts, stick_weights(V).numpy(), bound=False)
    biased = best_beta(counts, learned, bound=True)
    assert exact == pytest.approx(5.0, rel=0.1)
    assert value(guide, "beta") == pytest.approx(biased, rel=0.05)
    assert biased > exact


def known_gamma0(values, shape):
    """The estimate of gamma0 from the words of every topic, assignments known."""
    n = np.zeros(shape)
    np.add.at(n, (values["C"].numpy(), values["X"].numpy()), 1)

    def loss(log):
        g = np.exp(log)
        total = gammaln(shape[1] * g) - gammaln(shape[1] * g + n.sum(1))
        return -(total.sum() + (gammaln(g + n) - gammaln(g)).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(-6, 2), method="bounded").x))


@pytest.mark.slow
@pytest.mark.parametrize(("gamma0", "lowest", "highest"), [(0.03, 0.9, 1.2), (0.1, 0.6, 0.9)])
def test_gamma0_is_recovered_where_topics_share_few_words(gamma0, lowest, highest):
    """Known assignments say it within a tenth; words shared by topics go to one of them, so that 0.1 ends lower."""
    K, D, N = 10, 300, 300
    counts, values = simulate_corpus(HDP(K, D, N, alpha=3.0, gamma0=gamma0), [200] * N, seed=0)
    assert known_gamma0(values, (K, D)) == pytest.approx(gamma0, rel=0.1)
    guide = fitted(LearnedHDP(K, D, N, priors={"gamma0": gamma(0.2)}), counts, 60)
    assert lowest < value(guide, "gamma0") / gamma0 < highest


def sticks_own(V):
    """Discount and alpha, with their priors, from the true sticks."""
    k = np.arange(1, len(V) + 1)

    def loss(x):
        d, alpha = 1 / (1 + np.exp(-x[0])), np.exp(x[1])
        return -beta_law.logpdf(V, 1 - d, alpha + k * d).sum() - np.log(alpha) + alpha

    x = minimize(loss, [0.0, 0.0], method="Nelder-Mead").x
    return 1 / (1 + np.exp(-x[0])), np.exp(x[1])


def learned_discount(discount):
    """A fit to documents of known topics in their order, 40 sticks, and the sticks that they were drawn with."""
    K, N = 40, 500
    truth = PitmanYorHDP(K, 2 * K, N, alpha=1.0, discount=discount)
    counts, values = simulate_corpus(truth, [200] * N, seed=1, theta=blocks(K))
    model = LearnedPitmanYorHDP(
        K, 2 * K, N, priors={"discount": dist.Beta(torch.tensor(1.0), torch.tensor(1.0)), "alpha": gamma(2.0)}
    )
    return fitted(model, counts, 80, theta=blocks(K), V=values["V"]), values["V"]


@pytest.mark.slow
@pytest.mark.parametrize("discount", [0.3, 0.5])
def test_the_sticks_discount_is_recovered_within_a_tenth(discount):
    """Of the truth and of what the true sticks say, and alpha within a third of what they say."""
    guide, V = learned_discount(discount)
    assert value(guide, "discount") == pytest.approx(discount, abs=0.1)
    own = sticks_own(V.numpy().clip(1e-12, 1 - 1e-12))
    assert value(guide, "discount") == pytest.approx(own[0], abs=0.1)
    assert value(guide, "alpha") == pytest.approx(own[1], rel=1 / 3)


@pytest.mark.slow
def test_sticks_without_a_discount_get_a_small_one():
    """Zero is at the edge of its prior."""
    assert 0.05 < value(learned_discount(0.0)[0], "discount") < 0.25


def test_learned_pitman_yor_sticks_have_their_plan():
    guide = PRMEGuide(LearnedPitmanYorPRME(4, 12, 30, h_dim=3, ell_dim=2))
    plan = guide.plan(Batch.from_tokens([[0, 1, 2], [3, 4]]))
    assert [type(plan.rules[name]).__name__ for name in ("discount", "alpha", "V")] == ["Point"] * 3


def test_a_prior_of_no_number_is_refused():
    with pytest.raises(ValueError, match="no number of this name"):
        LearnedHDP(4, 12, 30, priors={"delta": gamma(1.0)})
    with pytest.raises(ValueError, match="must be of one number"):
        LearnedHDP(4, 12, 30, priors={"alpha": dist.Gamma(torch.ones(2), 1.0)})
