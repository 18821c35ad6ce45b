"""The random function in the shape, and topics as points: laws, plans, stationarity, and what is refused."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_prme import PRME, Batch, Corpus, PRMEGuide, PRMETopicModel, ShapePRME, Trainer, build, to_inference_data
from pyro_prme.equations.bounds import point_topics_term
from pyro_prme.prototype import eval_mode
from pyro_prme.rules import PointTopics
from tests.conftest import small_model
from tests.test_train import corpus


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
    assert not plan.refusals
    assert type(plan.rules["Z"]).__name__ == "GammaLoadings"


def test_a_random_f_in_the_shape_is_refused(tokens):
    class Noisy(ShapePRME):
        def sample_f(self, h, ell):
            mean, variance = self.decode(h, ell)
            return pyro.sample("f", dist.Normal(mean, variance.sqrt()))

    plan = PRMEGuide(small_model(kind=Noisy)).plan(tokens)
    assert plan.rules["Z"].generic
    assert "the rate of Z is not exp(-f)" in str(plan)


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
    guide = PRMEGuide(small_model(kind=ShapePRME), rules={"theta": PointTopics()})
    with torch.no_grad():
        drawn = guide(tokens)["theta"]
    rule, words = guide.rule("theta"), torch.tensor([3, 0, 7])
    torch.testing.assert_close(drawn, rule.topics())
    torch.testing.assert_close(guide.run.posterior("theta").mean_rows(words), drawn.mT[words])


@pytest.mark.parametrize("model", ["hdp", "prme"])
def test_batch_training_with_point_topics_raises_the_bound(model):
    """For an HDP by coordinate ascent, so that it never falls; V moves between the epochs and cannot lower it much."""
    counts = corpus()
    built = build(6, counts.shape[1], counts.shape[0], model=model, topics="point", gamma0=0.05)
    history = Trainer(*built, counts, batch_size=60, stick_rate=1e-9).fit(12)
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
    assert isinstance(fitted.guide_.rule("theta"), PointTopics) == (preset == "predictive")
    assert fitted.guide_.rule("Z").by_mean == (preset == "predictive")
    assert fitted.model_.gamma0 == (0.02 if preset == "predictive" else 0.2)
    assert fitted.guide_.plan(Batch.from_csr(counts)).refusals == {}


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
def test_words_dealt_out_by_the_mean(model):
    """The E-step has phi proportional to E Z and theta, and the bound is no higher than at phi's own update."""
    counts = corpus()
    built = build(6, counts.shape[1], counts.shape[0], model=model, loadings="mean")
    trainer = Trainer(*built, counts, batch_size=60)
    trainer.fit(3)
    step = trainer.guide.local_step(Batch.from_csr(counts))["Z"].step
    torch.testing.assert_close(
        step.elog_loadings.log_softmax(-1), (step.concentration / step.rate).log().log_softmax(-1), rtol=0, atol=0.05
    )
    mean = trainer.bound().total
    trainer.guide.rule("Z").by_mean = False
    assert mean < trainer.bound().total


def test_f_is_trained_on_the_counts_of_one_sweep_by_the_log():
    """Where words are dealt out by the mean: the term of Z in a gradient step, against phi by hand."""
    counts = corpus()
    trainer = Trainer(*build(6, counts.shape[1], counts.shape[0], loadings="mean"), counts, batch_size=60)
    trainer.fit(2)
    guide, batch = trainer.guide, Batch.from_csr(counts)
    local = guide.local_step(batch)
    with torch.no_grad(), eval_mode(trainer.model, guide), guide.hold(local):
        run = guide.expectations(batch)
        term = guide.rule("Z").term("Z", run, "epsilon")
    step, elog_theta = local["Z"]
    elog = torch.digamma(step.concentration) - step.rate.log()
    phi = (elog[batch.document] + elog_theta[batch.local_word]).softmax(-1)
    sharp = torch.zeros_like(elog).index_add_(0, batch.document, batch.count.unsqueeze(-1) * phi)
    slope, shape, q = (batch.length / step.epsilon).unsqueeze(-1), run.prior("Z").concentration, run.posterior("Z")
    value = (shape + sharp).lgamma() - shape.lgamma() - (shape + sharp) * (1 + slope).log()
    value = value - sharp * (torch.digamma(q.concentration) - q.rate.log()) + slope * q.mean
    torch.testing.assert_close(term, value.sum().to(term), rtol=1e-5, atol=0)
    assert (sharp - step.counts).abs().max() > 0.01
