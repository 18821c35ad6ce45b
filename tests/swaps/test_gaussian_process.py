"""A Gaussian process for f: its law, its rule and gradient, its kernel recovered."""

import pytest
import torch

from pyro_prme import Batch, ClosedForm_ELBO, PRMEGuide
from pyro_prme.rules import GammaLoadings
from pyro_prme.swaps import GaussianProcessPRME, KernelFunction, simulate_corpus
from pyro_prme.testing import check_rule

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


def test_nothing_of_a_run_stays_with_the_model():
    counts, _ = corpus()
    model = GaussianProcessPRME(K, D, N, **SIZE)
    model.make_guide().expectations(Batch.from_csr(counts))
    assert model._ell is None


def test_wrong_settings_are_refused():
    for name in ("amplitude", "length_scale", "nugget"):
        with pytest.raises(ValueError, match=f"{name} is 0.0: it must be a positive number"):
            GaussianProcessPRME(K, D, N, **{name: 0.0})
