"""DILN: the local Gaussian update of f is stationary, its bound is the ELBO, and it climbs."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO

from pyro_prme.corpora.batch import Batch
from pyro_prme.inference import ClosedFormGuide, RunOptions
from pyro_prme.inference.rules import Conjugate, GaussianFunction, Point, Topics
from pyro_prme.inference.rules.topics.gaussian_function import function_bound, function_update
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.models.diln import DILN
from tests.inference.fits import closed_form_bounds, corpus

B, K = 7, 5


def fitted(epochs=0, mode="batch", start="default"):
    counts = corpus()
    guide = PRMEGuide(DILN(6, counts.shape[1], counts.shape[0]))
    trainer = Trainer(guide, Counts(counts), TrainOptions(batch_size=20, mode=mode), start=start)
    trainer.fit(epochs)
    return trainer


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
    plan = guide.plan(tokens)
    assert "Newton" in plan["f"].update
    assert "compiled" in plan["Z"].update
    for _ in range(4):
        run = guide.run(tokens)
        for claim in guide.claims:
            claim.gather(run)
            claim.natural_step(0.7)
    with torch.no_grad():
        analytic = -float(guide.run(tokens, options=RunOptions(bound="quadrature")).bound())
        draws = torch.tensor([Trace_ELBO().loss(model, guide, tokens) for _ in range(400)])
    assert abs(draws.mean() - analytic) < 4 * draws.std() / 400**0.5


def test_the_bound_never_falls_over_the_closed_form_blocks():
    trainer = fitted(2)
    bounds = closed_form_bounds(trainer.guide, Batch.from_csr(corpus()), 10)
    # a fresh mean and covariance carry a ridge of 1e-3, which is not the maximiser's
    assert (bounds.diff() > -1e-4 * bounds[0].abs()).all()
    assert bounds[-1] > bounds[0] + 5


def test_mean_and_covariance_are_the_maximisers():
    guide = fitted().guide
    run = guide.run(Batch.from_csr(corpus()))
    mu, v = run.local["f"]
    for claim in guide.claims:
        claim.gather(run)
        claim.natural_step(1.0)
    torch.testing.assert_close(guide.model.mean, mu.mean(0))
    d = mu - mu.mean(0)
    torch.testing.assert_close(guide.model.covariance, d.T @ d / len(mu) + torch.diag(v.mean(0) + 1e-3))


@pytest.mark.parametrize("mode", ["batch", "online"])
def test_it_trains_and_resumes(mode, float32):
    trainer = fitted(5, mode)
    assert trainer.history[-1]["bound"] > trainer.history[0]["bound"]
    again = fitted(0, mode, start=None)
    again.load_state_dict(trainer.state_dict())
    assert again.epoch() == trainer.epoch()


def test_the_claim_does_not_know_names():
    """The same model under other names, with a guide that is told which sites they are: the same bound."""
    counts = corpus()

    class Renamed(DILN):
        def sample_V(self):
            return pyro.sample("breaks", dist.Beta(1.0, self.alpha))

        def sample_f(self):
            return pyro.sample("logits", dist.MultivariateNormal(self.mean, self.covariance))

    bounds = []
    for kind, V, f in ((DILN, "V", "f"), (Renamed, "breaks", "logits")):
        model = kind(6, counts.shape[1], counts.shape[0])
        asked = {V: Point(), f: GaussianFunction(model.learn_function)}
        guide = ClosedFormGuide(model, asked, candidates=(Topics(), Conjugate()))
        batch = Batch.from_csr(counts)
        guide.plan(batch)
        bounds.append(float(guide.run(batch).bound().detach()))
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


def test_a_function_that_enters_otherwise_is_refused_in_one_sentence(tokens):
    class Squared(DILN):
        def sample_f(self):
            return 2 * super().sample_f()

    guide = PRMEGuide(Squared(5, 10, 4))
    with pytest.raises(ValueError, match=r"needs a model that has it linearly and as exp\(-f\) alone"):
        guide.run(tokens)


def test_another_prior_gets_a_normal_from_a_network_and_the_plan_says_why(tokens):
    class Plain(DILN):
        def sample_f(self):
            return pyro.sample("f", dist.Gamma(torch.ones(self.num_topics), 1.0).to_event(1))

    entry = PRMEGuide(Plain(5, 10, 4)).plan(tokens)["f"]
    assert entry.update == "Normal from the inference network, reparameterised gradient"
    assert "its prior is Gamma, and a function needs a multivariate Normal" in entry.reason
    with pytest.raises(ValueError, match="its prior is Gamma, and a function needs a multivariate Normal"):
        PRMEGuide(Plain(5, 10, 4), rules={"f": GaussianFunction()}).plan(tokens)
