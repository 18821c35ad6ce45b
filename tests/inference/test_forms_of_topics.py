"""The random function in the shape, and topics as points: laws, plans, stationarity, and what is refused."""

from dataclasses import replace

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_prme import PRME, Batch, Corpus, PRMEGuide, PRMETopicModel, RunOptions, ShapePRME, build, to_inference_data
from pyro_prme.equations.bounds import point_topics_term
from pyro_prme.inference.rules import Topics
from pyro_prme.inference.session import evaluating
from tests.conftest import small_model
from tests.inference.fits import corpus, trainer


def test_shapes_sum_to_beta_whatever_f_is_and_follow_it():
    model = ShapePRME(6, 10, 4, beta=3.0)
    V, f = torch.rand(5), torch.randn(8, 6) * 3
    shape = model.shape(V, f)
    torch.testing.assert_close(shape.sum(-1), torch.full((8,), 3.0), rtol=1e-4, atol=0)
    torch.testing.assert_close(model.shape(V, torch.zeros(8, 6))[0], model.concentration(V))
    raised = model.shape(V, f + torch.eye(6)[2])
    assert (raised[:, 2] > shape[:, 2]).all()
    torch.testing.assert_close(model.shape(V, f + 7.0), shape)  # a common shift changes nothing


def test_loadings_have_the_gamma_law(entries):
    model = small_model(kind=ShapePRME).eval()
    site = pyro.poutine.trace(model).get_trace(entries).nodes
    V, f = site["V"]["value"], site["f"]["value"]
    draws = torch.stack([model.sample_Z(V, f) for _ in range(4000)])
    mean = model.mean_loadings(V, f, torch.zeros_like(f))
    assert ((draws.mean(0) - mean).abs() < 5 * (mean / 4000).sqrt() + 1e-6).all()
    torch.testing.assert_close(draws.sum(-1).mean(0), torch.full((4,), model.beta), rtol=0.08, atol=0)


def test_its_plan_keeps_every_closed_form(tokens):
    plan = PRMEGuide(small_model(kind=ShapePRME)).plan(tokens)
    assert plan.closed == ("theta", "Z", "C")
    assert all("compiled" in plan[name].update for name in plan.closed)


def test_a_random_f_in_the_shape_is_drawn(tokens):
    class Noisy(ShapePRME):
        def sample_f(self, h, ell):
            mean, variance = self.decode(h, ell)
            return pyro.sample("f", dist.Normal(mean, variance.sqrt()))

    assert PRMEGuide(small_model(kind=Noisy)).plan(tokens)["f"].update == "its prior, q = p, drawn"


def test_the_term_of_point_topics_has_the_jacobian_of_log_ratios():
    """ln p(theta) of a Dirichlet plus the log determinant of d theta / d ln(theta_d / theta_D), by autograd."""
    prior, free = torch.rand(4) + 0.1, torch.randn(3)

    def theta_of(free):
        return torch.cat([free, free.new_zeros(1)]).softmax(-1)

    jacobian = torch.autograd.functional.jacobian(lambda x: theta_of(x)[:-1], free)
    expected = dist.Dirichlet(prior).log_prob(theta_of(free)) + jacobian.det().abs().log()
    gamma = 7.3 * theta_of(free)
    torch.testing.assert_close(point_topics_term(prior.unsqueeze(-1), gamma.unsqueeze(-1)), expected.reshape(1))


def test_point_topics_are_stationary_at_their_update():
    prior, counts = torch.full((6, 2), 0.05), torch.rand(6, 2) * 4
    free = (prior + counts).log().requires_grad_()
    value = (point_topics_term(prior, free.exp()) + (counts * free.log_softmax(0)).sum(0)).sum()
    assert torch.autograd.grad(value, free)[0].abs().max() < 1e-12


def test_a_point_is_the_same_however_it_is_asked(tokens):
    guide = PRMEGuide(small_model(kind=ShapePRME), topics=Topics(points=True))
    with torch.no_grad():
        drawn = guide(tokens)["theta"]
    gamma, words = guide.topics.gamma, torch.tensor([3, 0, 7])
    torch.testing.assert_close(drawn, (gamma / gamma.sum(0)).mT)
    torch.testing.assert_close(guide.posterior("theta").mean_rows(words), drawn.mT[words])


@pytest.mark.parametrize("model", ["hdp", "prme"])
def test_batch_training_with_point_topics_raises_the_bound(model):
    """For an HDP by coordinate ascent, so that it never falls; V moves between the epochs and cannot lower it much."""
    counts = corpus()
    hyper = {"topics": "point", "gamma0": 0.05, "stick_rate": 1e-9}
    history = trainer(counts, model=model, hyper=hyper, batch_size=60).fit(12)
    bounds = torch.tensor([record["bound"] for record in history])
    assert bounds[-1] > bounds[0]
    if model == "hdp":
        assert (bounds.diff() > -1e-6 * bounds.abs().max()).all()


@pytest.mark.parametrize("preset", ["predictive", "paper"])
def test_presets_build_what_they_say(preset):
    counts = corpus()
    fitted = PRMETopicModel(4, preset=preset, max_iter=1, random_state=0).fit(counts)
    assert isinstance(fitted.model_, ShapePRME) == (preset == "predictive")
    assert isinstance(fitted.model_, PRME)
    rule = fitted.guide_.topics.rule
    assert rule.points == rule.by_mean == (preset == "predictive")
    assert rule.objective == ("profiled" if preset == "predictive" else "plain")
    assert fitted.model_.gamma0 == (0.02 if preset == "predictive" else 0.2)
    assert fitted.guide_.plan().closed == ("theta", "Z", "C")


def test_draws_of_point_topics_do_not_vary():
    fitted = PRMETopicModel(4, preset="predictive", max_iter=1, random_state=0).fit(corpus())
    documents = Corpus(corpus(), [str(d) for d in range(40)])
    draws = to_inference_data(fitted.posterior_, documents, 5, variables=["theta", "Z"], prior=False)["posterior"]
    assert float(draws["theta"].std("draw").max()) < 1e-12
    assert float(draws["Z"].std("draw").min()) > 0


def test_unknown_forms_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="form is 'size': it must be one of shape, scale"):
        build(4, 10, 5, form="size")
    with pytest.raises(ValueError, match="topics is 'flat': it must be one of dirichlet, point"):
        build(4, 10, 5, topics="flat")
    with pytest.raises(ValueError, match="loadings is 'mode': it must be one of log, mean"):
        build(4, 10, 5, loadings="mode")


@pytest.mark.parametrize("model", ["hdp", "prme", "diln"])
def test_words_assigned_by_the_mean(model):
    """The E-step has phi proportional to E Z and theta, and the bound is no higher than at phi's own update."""
    fit = trainer(corpus(), model=model, hyper={"loadings": "mean"}, batch_size=60)
    fit.fit(3)
    with torch.no_grad(), evaluating(fit.model, fit.guide):
        step = fit.guide.run(Batch.from_csr(corpus())).local["Z"].step
    torch.testing.assert_close(
        step.elog_loadings.log_softmax(-1), (step.concentration / step.rate).log().log_softmax(-1), rtol=0, atol=0.05
    )
    mean = fit.bound().total
    fit.guide.topics.rule = replace(fit.guide.topics.rule, by_mean=False)
    assert mean < fit.bound().total


def test_f_is_trained_on_the_counts_of_one_sweep_by_the_log():
    """Where words are assigned by the mean: what moves f in a gradient step, against phi by hand."""
    fit = trainer(corpus(), hyper={"loadings": "mean"}, batch_size=60)
    fit.fit(2)
    guide, batch = fit.guide, Batch.from_csr(corpus())
    with torch.no_grad(), evaluating(fit.model, guide):
        local = guide.run(batch).local
        run = guide.run(batch, options=RunOptions(held=local))
        term = guide.topics.objective(run)["Z"]
        values = run.values() | run.fixed
        shape = fit.model.shape(values["V"], values["f"])
    step, elog_theta = local["Z"].step, local["Z"].elog_theta
    elog = torch.digamma(step.concentration) - step.rate.log()
    phi = (elog[batch.document] + elog_theta[batch.local_word]).softmax(-1)
    sharp = torch.zeros_like(elog).index_add_(0, batch.document, batch.count.unsqueeze(-1) * phi)
    slope = (batch.length / step.epsilon).unsqueeze(-1)
    value = (shape + sharp).lgamma() - shape.lgamma() - (shape + sharp) * (1 + slope).log()
    torch.testing.assert_close(term, value.sum().to(term), rtol=1e-5, atol=0)
    assert (sharp - step.counts).abs().max() > 0.01


def test_the_plain_objective_is_the_gradient_at_a_fixed_factor(tokens):
    """Its value is E ln p(Z), and where q(Z) is optimal its gradient is that of the profiled one."""
    torch.manual_seed(1)
    gradients = {}
    for objective in ("plain", "profiled"):
        torch.manual_seed(1)
        model = small_model(kind=PRME).eval()
        guide = PRMEGuide(model, topics=Topics(objective)).eval()
        guide.plan(tokens)
        run = guide.run(tokens, options=RunOptions(sweeps=2000, word_tolerance=0.0))
        held = guide.run(tokens, options=RunOptions(held=run.local))
        parameters = [*guide.claim("V").parameters(), *guide.claim("ell").parameters(), *model.decoder.parameters()]
        gradients[objective] = torch.autograd.grad(held.objective(), parameters, allow_unused=True)
    for plain, profiled in zip(gradients["plain"], gradients["profiled"], strict=True):
        torch.testing.assert_close(plain, profiled, rtol=1e-8, atol=1e-10)
