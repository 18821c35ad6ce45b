"""A Gaussian process for f: its law, its rule and gradient, its kernel recovered."""

import pytest
import torch

from pyro_prme import Batch
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.guide import PRMEGuide
from pyro_prme.rules import GammaLoadings
from pyro_prme.swaps import GaussianProcessPRME, KernelFunction, simulate_corpus
from pyro_prme.testing import check_rule
from pyro_prme.train import Trainer

K, D, N = 4, 12, 12
SIZE = {"ell_dim": 2}


def corpus(num=N, length=15, **given):
    return simulate_corpus(GaussianProcessPRME(K, D, num, **SIZE), [length] * num, seed=1, **given)


def exact_guide(model):
    """A guide whose local updates are run to their fixed point."""
    loadings = GammaLoadings("plain", max_sweeps=300, tolerance=1e-12)
    return model.make_guide({"f": KernelFunction(model, rounds=150), "Z": loadings})


def test_f_has_the_kernels_covariance_over_documents():
    """Within five standard errors of 4000 draws, on the diagonal and off it."""
    ell = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 2.0], [3.0, 3.0]])
    model = GaussianProcessPRME(K, D, 4000, amplitude=1.5, length_scale=0.8, **SIZE)
    _, values = simulate_corpus(model, [1] * 4000, ell=ell)
    distance = (ell.unsqueeze(1) - ell).square().sum(-1)
    expected = 1.5**2 * (-distance / (2 * 0.8**2)).exp() + 1e-2 * torch.eye(K)
    products = torch.einsum("nk,nj->nkj", *[values["f"].squeeze(-2)] * 2)
    assert (products.mean(0) - expected).abs().le(5 * products.std(0) / 4000**0.5).all()
    assert values["f"].mean(0).abs().max() < 5 * 1.5 / 4000**0.5


@pytest.mark.parametrize("site", ["f", "ell", "Z"])
def test_its_rules_are_right(site):
    counts, _ = corpus()
    guide = exact_guide(GaussianProcessPRME(K, D, N, **SIZE))
    report = check_rule(guide, Batch.from_csr(counts), site=site, particles=60)
    assert report.seen("subsampling")
    assert report.seen("stationary") == report.seen("particles") == (site != "ell")


def test_the_kernels_gradient_is_that_of_the_bound_with_its_posteriors_refitted():
    """By the envelope theorem: finite differences of the bound, every local factor at its fixed point each time."""
    counts, _ = corpus()
    batch, model = Batch.from_csr(counts), GaussianProcessPRME(K, D, N, amplitude=1.3, length_scale=0.7, **SIZE)
    guide = exact_guide(model)
    guide.plan(batch)
    elbo = ClosedForm_ELBO()
    parameters = [model.log_amplitude, model.log_length_scale, guide.rule("ell").free]
    gradients = torch.autograd.grad(elbo.differentiable_loss(model, guide, batch), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat = parameter.data.view(-1)
        for i in range(min(len(flat), 3)):
            losses = []
            for step in (1e-4, -2e-4):
                flat[i] += step
                losses.append(elbo.loss(model, guide, batch))
            flat[i] += 1e-4
            assert float(gradient.reshape(-1)[i]) == pytest.approx((losses[0] - losses[1]) / 2e-4, rel=1e-4, abs=1e-5)


def test_the_plain_guide_takes_the_generic_posterior_and_says_why():
    counts, _ = corpus()
    plan = PRMEGuide(GaussianProcessPRME(K, D, N, **SIZE)).plan(Batch.from_csr(counts))
    assert plan.rules["f"].generic
    assert "this one is MultivariateNormal" in str(plan)


def test_wrong_settings_are_refused():
    for name in ("amplitude", "length_scale", "nugget"):
        with pytest.raises(ValueError, match=f"{name} is 0.0: it must be a finite number above 0"):
            GaussianProcessPRME(K, D, N, **{name: 0.0})


def two_clusters(seed, length, epochs):
    """Topics known, in two clusters, 400 documents: learned and planted covariances, and the learned amplitude.

    Covariances are those of differences over topics, since a part of f that all topics share does nothing. ell has five
    dimensions where two would do: in two, topics that start on the wrong side of others stay there.
    """
    K, N = 8, 400
    theta, V = torch.kron(torch.eye(K), torch.full((1, 2), 0.5)), 1 / torch.arange(K, 1, -1.0)
    ell = torch.tensor([[x, y] for x in (-1.5, 1.5) for y in (-0.6, -0.2, 0.2, 0.6)])
    truth = GaussianProcessPRME(K, 2 * K, N, ell_dim=2, beta=20.0, amplitude=1.5)
    counts, _ = simulate_corpus(truth, [length] * N, seed, theta=theta, V=V, ell=ell)
    torch.manual_seed(seed)
    model = GaussianProcessPRME(K, 2 * K, N, ell_dim=5, beta=20.0)
    guide = model.make_guide()
    guide.plan(Batch.from_csr(counts[:8]))
    guide.rule("theta").set(1e4 * theta.mT + 1e-3)
    guide.rule("V").set(V)
    Trainer(model, guide, counts, batch_size=200, learning_rate=0.02, start=None, seed=seed).fit(epochs)
    centre = torch.eye(K) - 1 / K
    with torch.no_grad():
        learned, planted = model.covariance(guide.rule("ell").value()), truth.covariance(ell)
    return centre @ learned @ centre, centre @ planted @ centre, float(model.log_amplitude.exp().detach())


def correlation(learned, planted):
    above = torch.triu_indices(*learned.shape, 1).unbind()
    return float(torch.corrcoef(torch.stack([learned[above], planted[above]]))[0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_kernel_is_recovered_from_long_documents(seed):
    """From 1000 words: the amplitude, and the variance of differences, within a seventh.

    The variance between the clusters is told by 400 draws of one number, which is a standard error of 7%.
    """
    learned, planted, amplitude = two_clusters(seed, 1000, 200)
    assert correlation(learned, planted) > 0.8
    assert float(learned.trace() / planted.trace()) == pytest.approx(1, abs=1 / 7)
    assert amplitude == pytest.approx(1.5, rel=1 / 7)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_shorter_documents_say_which_topics_go_together_and_the_amplitude_is_too_small(seed):
    """From 200 words: between 1 and 1.3 for 1.5, since q(f) has no covariances and too little is said against it."""
    learned, planted, amplitude = two_clusters(seed, 200, 60)
    assert correlation(learned, planted) > 0.8
    assert 1.0 < amplitude < 1.3
