"""DILN: its local Gaussian update is stationary, its bound is the ELBO, and it climbs."""

import numpy as np
import pytest
import torch
from pyro.infer import Trace_ELBO

from pyro_prme import DILN, Batch, ClosedForm_ELBO, Posterior, PRMEGuide
from pyro_prme.rules.gaussian import function_bound, function_update
from tests.test_train import closed_form_bounds, corpus, trainer

B, K = 7, 5


def test_the_local_update_of_f_is_stationary():
    root = torch.randn(K, K)
    m, P = torch.randn(K), torch.linalg.inv(root @ root.T + 0.3 * torch.eye(K))
    c, mean_Z = torch.rand(K) + 0.1, torch.rand(B, K) * 20
    mu, v = function_update(torch.zeros(B, K), torch.ones(B, K), c, mean_Z, m, P, steps=60)
    mu.requires_grad_(), v.requires_grad_()
    gradients = torch.autograd.grad(function_bound(mu, v, c, mean_Z, m, P).sum(), (mu, v))
    assert max(g.abs().max() for g in gradients) < 1e-8


def test_every_update_of_f_raises_its_bound():
    P = torch.linalg.inv(torch.eye(K) + 0.5)
    c, mean_Z = torch.rand(K) + 0.1, torch.rand(B, K) * 1000
    mu, v = torch.full((B, K), -6.0), torch.ones(B, K)
    bounds = []
    for _ in range(12):
        bounds.append(function_bound(mu, v, c, mean_Z, torch.zeros(K), P))
        mu, v = function_update(mu, v, c, mean_Z, torch.zeros(K), P, steps=1)
    assert (torch.stack(bounds).diff(dim=0) > -1e-8 * bounds[0].abs()).all()


def test_the_analytic_elbo_is_the_elbo_of_particles(tokens):
    model = DILN(5, 10, 4)
    guide = PRMEGuide(model)
    assert list(guide.plan(tokens).rules) == ["V", "theta", "f", "Z", "C", "X"]
    for _ in range(4):
        guide.expectations(tokens)
        guide.gather()
        guide.natural_step(0.7)
    analytic = ClosedForm_ELBO(bound="quadrature").loss(model, guide, tokens)
    with torch.no_grad():
        draws = torch.tensor([Trace_ELBO().loss(model, guide, tokens) for _ in range(400)])
    assert abs(draws.mean() - analytic) < 4 * draws.std() / 400**0.5


def test_the_bound_never_falls_over_the_closed_form_blocks():
    t = trainer(corpus(), model="diln")
    t.fit(2)
    bounds = closed_form_bounds(t.guide, Batch.from_csr(t.counts), 10)
    # a fresh mean and covariance carry a ridge of 1e-3, which is not the maximiser's
    assert (bounds.diff() > -1e-4 * bounds[0].abs()).all()
    assert bounds[-1] > bounds[0] + 5


def test_mean_and_covariance_are_the_maximisers():
    t = trainer(corpus(), model="diln")
    t.guide.expectations(Batch.from_csr(t.counts))
    mu, v = t.guide.run.local["f"]
    t.guide.gather()
    t.guide.natural_step(1.0)
    torch.testing.assert_close(t.model.mean, mu.mean(0))
    d = mu - mu.mean(0)
    expected = d.T @ d / len(mu) + torch.diag(v.mean(0) + 1e-3)
    torch.testing.assert_close(t.model.covariance, expected)


@pytest.mark.parametrize("mode", ["batch", "online"])
def test_it_trains_finds_correlations_and_resumes(mode, float32):
    counts = corpus(120)
    t = trainer(counts, model="diln", mode=mode)
    history = t.fit(5)
    assert history[-1]["bound"] > history[0]["bound"]
    posterior = Posterior(t.model, t.guide)
    np.testing.assert_allclose(np.asarray(posterior.proportions(counts)).sum(1), 1, rtol=1e-5)
    correlations = np.asarray(posterior.topic_correlations(counts))
    assert correlations.shape == (6, 6)
    assert np.isfinite(correlations).all()
    again = trainer(counts, model="diln", mode=mode, start=None)
    again.load_state_dict(t.state_dict())
    assert again.epoch() == t.epoch()
