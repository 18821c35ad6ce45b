"""The plan accepts what has the assumed form and refuses every mutation, with a reason in words."""

import re
from contextlib import nullcontext

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyro_prme import HDP, PRME
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.guide import ClosedFormGuide, PRMEGuide
from pyro_prme.models.distributions import TopicAssignment, WordGivenTopic
from pyro_prme.rules import DirichletTopics, GammaLoadings, MeanFieldNormal, Point
from tests.conftest import small_model


def mutated(**methods):
    """A PRME with some of its methods replaced."""
    return type("Mutated", (PRME,), methods)(5, 10, 4, h_dim=3, ell_dim=2)


def plan_of(model, tokens, **kwargs):
    return PRMEGuide(model, **kwargs).plan(tokens)


def test_the_papers_model_has_the_papers_plan(tokens):
    plan = plan_of(small_model(), tokens)
    assert {name: type(rule).__name__ for name, rule in plan.rules.items()} == {
        "ell": "Point", "V": "Point", "theta": "DirichletTopics", "h": "Amortized", "f": "FromPrior",
        "Z": "GammaLoadings", "C": "Assignment", "X": "Words",
    }  # fmt: skip
    assert not plan.refusals
    assert plan.undrawn == {"theta", "f", "Z", "C"}
    printed = str(plan)
    for name in plan.rules:
        assert any(line.startswith(f"{name} ") for line in printed.splitlines())


def test_hdp_has_no_random_function(tokens):
    plan = plan_of(HDP(5, 10, 4), tokens)
    assert list(plan.rules) == ["V", "theta", "Z", "C", "X"]


def test_making_a_plan_leaves_modes_and_random_state_alone(tokens):
    model = small_model()
    model.decoder.norm.eval()
    guide = PRMEGuide(model)
    before = torch.get_rng_state(), [m.training for m in model.modules()], model.decoder.running_mean.clone()
    guide.plan(tokens)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == [m.training for m in model.modules()]
    assert torch.equal(before[2], model.decoder.running_mean)


def rate_grows(self, V, f):
    return pyro.sample("Z", dist.Gamma(self.concentration(V), f.exp()))


def shape_has_f(self, V, f):
    return pyro.sample("Z", dist.Gamma(self.concentration(V) * f.exp(), (-f).exp()))


def lognormal(self, V, f):
    return pyro.sample("Z", dist.LogNormal(f + self.concentration(V).log(), torch.ones(())))


def extra_factor(self, V, f):
    Z = PRME.sample_Z(self, V, f)
    pyro.factor("extra", -Z.sum(-1, keepdim=True))
    return Z


def extra_site(self, V, f):
    Z = PRME.sample_Z(self, V, f)
    pyro.sample("seen", dist.Poisson(Z), obs=torch.ones(Z.shape))
    return Z


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (rate_grows, r"rate of Z is not exp\(-f\)"),
        (shape_has_f, "shape of Z depends on f"),
        (lognormal, "prior of Z is LogNormal, not Gamma"),
        (extra_factor, "extra also depends on Z"),
        (extra_site, "seen also depends on Z"),
    ],
)
def test_a_changed_prior_of_Z_is_refused_and_falls_back(method, reason, tokens):
    model = mutated(sample_Z=method)
    guide = PRMEGuide(model)
    plan = guide.plan(tokens)
    assert plan.rules["Z"].generic
    assert "Z" not in plan.undrawn
    assert re.search(reason, " ".join(plan.refusals["Z"]))
    assert re.search(reason, str(plan))
    loss = ClosedForm_ELBO()(model, guide)(tokens)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in guide.rules["Z"].parameters())


def softmax(self, Z, batch):
    return pyro.sample("C", dist.Categorical(logits=Z[batch.document]))


def tempered(self, Z, batch):
    return pyro.sample("C", TopicAssignment(Z**2, batch.document))


@pytest.mark.parametrize("method", [softmax, tempered])
def test_other_proportions_than_normalised_loadings_are_refused(method, tokens):
    plan = plan_of(mutated(sample_C=method), tokens)
    assert plan.rules["Z"].generic
    assert "probabilities of C are not Z divided by its sum" in plan.refusals["Z"][0]


def transposed(self, C, theta, batch):
    turned = theta.mT.reshape(theta.shape)
    return pyro.sample("X", WordGivenTopic(turned, C), obs=batch.word)


def smoothed(self, C, theta, batch):
    return pyro.sample("X", WordGivenTopic(0.9 * theta + 0.1 / theta.shape[-1], C), obs=batch.word)


@pytest.mark.parametrize("method", [transposed, smoothed])
def test_another_likelihood_leaves_the_discrete_site_without_a_rule(method, tokens):
    model = mutated(sample_X=method)
    guide = PRMEGuide(model)
    with pytest.raises(ValueError, match=r"Site C has no closed form.*density of X is not theta\[C, x\].*sum it out"):
        guide.plan(tokens)
    assert not list(guide.state_dict())


def count_unscaled(self, batch):
    return nullcontext()


def test_a_wrong_scale_of_the_words_is_refused(entries):
    plan = plan_of(mutated(word_scale=count_unscaled), entries)
    assert "scale of C is not the count of each entry" in plan.refusals["Z"][0]


def test_a_rule_asked_for_by_name_that_does_not_hold_is_an_error(tokens):
    guide = PRMEGuide(mutated(sample_Z=lognormal), rules={"Z": GammaLoadings()})
    with pytest.raises(ValueError, match="rule asked for at site Z does not hold: the prior of Z is LogNormal"):
        guide.plan(tokens)
    assert not list(guide.state_dict())


def test_conditioned_sites_are_observed_and_their_values_are_used(tokens):
    """f held at a value: q(Z) has its exp(-f), and no rule moves it."""
    f = torch.randn(4, 5)
    fixed = poutine.condition(small_model(), {"f": f, "V": torch.full((4,), 0.3)})
    guide = ClosedFormGuide(fixed, {"h": None})
    plan = guide.plan(tokens)
    assert not {"f", "V"} & set(plan.rules)
    assert "log likelihood of the observed value" in str(plan)
    step = guide.expectations(tokens).local["Z"].step
    slope = tokens.length / step.epsilon
    torch.testing.assert_close(step.rate, (-f).exp() + slope.unsqueeze(-1))
    with pytest.raises(ValueError, match="V does not hold: it is a rule for latent sites"):
        ClosedFormGuide(fixed, {"V": Point()}).plan(tokens)


def test_a_rule_for_a_site_that_does_not_exist_is_an_error(tokens):
    with pytest.raises(ValueError, match="given for 'W', and the model has no such site: it has ell, V"):
        PRMEGuide(small_model(), rules={"W": Point()}).plan(tokens)


def test_the_generic_posterior_can_be_asked_for(tokens):
    plan = plan_of(small_model(), tokens, rules={"ell": None})
    assert isinstance(plan.rules["ell"], MeanFieldNormal)


def test_a_closed_form_that_leans_on_a_lost_one_is_taken_back(tokens):
    """Without a rule for X there is none for C, and so none for theta."""

    def gaussian_words(theta):
        pyro.sample("X", dist.Normal(theta.sum(), 1.0), obs=torch.zeros(()))

    def model(batch):
        with pyro.plate("topics", 3):
            theta = pyro.sample("theta", dist.Dirichlet(torch.ones(4)))
        gaussian_words(theta)

    guide = ClosedFormGuide(model)
    plan = guide.plan(tokens)
    assert plan.rules["theta"].generic
    assert "leans on that of C" in plan.refusals["theta"][0]
    with pytest.raises(ValueError, match="theta does not hold"):
        ClosedFormGuide(model, {"theta": DirichletTopics()}).plan(tokens)


@pytest.mark.parametrize(("alpha", "unconstrained"), [(1.0, False), (3.0, False), (0.5, True)])
def test_a_point_is_taken_where_its_density_is_bounded(alpha, unconstrained, tokens):
    plan = plan_of(small_model(alpha=alpha), tokens)
    assert plan.rules["V"].unconstrained == unconstrained
    assert ("Jacobian" in plan.rules["V"].summary) == unconstrained
    assert not plan.rules["ell"].unconstrained


def test_an_unbounded_point_asked_for_by_name_is_refused(tokens):
    with pytest.raises(ValueError, match="density of V has no maximum"):
        plan_of(small_model(alpha=0.5), tokens, rules={"V": Point(unconstrained=False)})


def test_loadings_without_a_batch_are_refused():
    def model(x):
        with pyro.plate("topics", 3):
            Z = pyro.sample("Z", dist.Gamma(1.0, 1.0))
        with pyro.plate("words", 4):
            C = pyro.sample("C", dist.Categorical(Z / Z.sum()))
            pyro.sample("X", dist.Normal(C.double(), 1.0), obs=x)

    with pytest.raises(ValueError, match="Site C has no closed form"):
        ClosedFormGuide(model).plan(torch.zeros(4))
    with pytest.raises(ValueError, match="Z does not hold: the model was called without a Batch"):
        ClosedFormGuide(model, {"Z": GammaLoadings()}).plan(torch.zeros(4))


def test_a_site_that_appears_later_is_an_error(tokens):
    class Growing(PRME):
        grown = False

        def sample_ell(self):
            if self.grown:
                pyro.sample("more", dist.Normal(0.0, 1.0).expand([]))
            return super().sample_ell()

    model = Growing(5, 10, 4)
    guide = PRMEGuide(model)
    guide.plan(tokens)
    model.grown = True
    with pytest.raises(ValueError, match="site 'more' that it did not have"):
        guide(tokens)


def test_the_elbo_wants_a_closed_form_guide(tokens):
    with pytest.raises(ValueError, match="works with a ClosedFormGuide, and this guide is function"):
        ClosedForm_ELBO().loss(small_model(), lambda batch: None, tokens)
    with pytest.raises(ValueError, match="bound is 'exact'"):
        ClosedForm_ELBO(bound="exact")
