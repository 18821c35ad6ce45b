"""The plan of the topic models: the compiled updates hold where the densities have their form, and nowhere else."""

from contextlib import nullcontext

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyro_prme import HDP, PRME, ClosedFormGuide, PRMEGuide, RunOptions
from pyro_prme.inference.rules import MeanFieldNormal, Point
from pyro_prme.models.distributions import TopicAssignment, WordGivenTopic
from tests.conftest import small_model


def mutated(**methods):
    """A PRME with some of its methods replaced."""
    return type("Mutated", (PRME,), methods)(5, 10, 4, h_dim=3, ell_dim=2)


def plan_of(model, tokens, **kwargs):
    return PRMEGuide(model, **kwargs).plan(tokens)


def test_the_papers_model_has_the_papers_plan(tokens):
    plan = plan_of(small_model(), tokens)
    assert {name: entry.update.split(",")[0] for name, entry in plan.entries.items()} == {
        "ell": "point mass on the site's own scale",
        "V": "point mass on the site's own scale",
        "theta": "closed form",
        "h": "point mass at the inference network's output",
        "f": "its prior",
        "Z": "closed form",
        "C": "closed form",
        "X": "observed",
    }
    assert all("compiled" in plan[name].update for name in ("theta", "Z", "C"))
    assert max(entry.error for entry in plan.entries.values()) < 1e-10
    printed = str(plan).splitlines()
    assert all(any(line.startswith(f"{name} ") for line in printed) for name in plan.entries)


def test_hdp_has_no_random_function(tokens):
    assert set(plan_of(HDP(5, 10, 4), tokens).entries) == {"V", "theta", "Z", "C", "X"}


def rate_grows(self, V, f):
    return pyro.sample("Z", dist.Gamma(self.concentration(V), (2 - f.cos()).exp()))


def extra_site(self, V, f):
    Z = PRME.sample_Z(self, V, f)
    pyro.sample("seen", dist.Poisson(Z), obs=torch.ones(Z.shape))
    return Z


def tempered(self, Z, batch):
    return pyro.sample("C", TopicAssignment(Z**2, batch.document))


def transposed(self, C, theta, batch):
    turned = theta.mT.reshape(theta.shape)
    return pyro.sample("X", WordGivenTopic(turned, C), obs=batch.word)


def smoothed(self, C, theta, batch):
    return pyro.sample("X", WordGivenTopic(0.9 * theta + 0.1 / theta.shape[-1], C), obs=batch.word)


def unscaled(self, batch):
    return poutine.scale(scale=0.5) if batch.is_tokens else nullcontext()


@pytest.mark.parametrize(
    "methods",
    [{"sample_C": tempered}, {"sample_X": transposed}, {"sample_X": smoothed}],
    ids=["tempered choices", "transposed topics", "smoothed words"],
)
def test_another_form_is_never_given_the_compiled_updates(methods, tokens):
    """It gets another plan with a reason, or is refused with a sentence."""
    guide, refused = PRMEGuide(mutated(**methods)), ""
    try:
        plan = guide.plan(tokens)
    except ValueError as error:
        refused = str(error)
    if refused:
        assert refused.startswith("Nothing holds for site")
        assert not list(guide.state_dict())
    else:
        assert not any("compiled" in entry.update for entry in plan.entries.values())


def test_another_child_of_the_loadings_is_counted_in(tokens):
    """Counts drawn from Z, one each: the shape and the rate of q(Z) grow by one."""
    torch.manual_seed(0)
    runs = []
    for model in (small_model(), mutated(sample_Z=extra_site)):
        torch.manual_seed(1)
        guide = PRMEGuide(model, rules={"ell": Point(), "V": Point()})
        assert "compiled" in guide.plan(tokens)["Z"].update
        guide.claim("V").set(torch.full((4,), 0.3))
        held = guide.run(tokens.with_words(tokens.word))
        prior = guide.topics.prior_of_loadings(held.factors.program, held.factors)
        runs.append(prior)
    torch.testing.assert_close(runs[1][0].detach(), runs[0][0].detach() + 1)


def test_words_that_count_a_fraction_of_their_documents_are_refused(tokens):
    guide = PRMEGuide(mutated(word_scale=unscaled))
    with pytest.raises(ValueError, match="Words count a fraction of what their documents count"):
        guide.run(tokens)


def test_a_function_that_enters_otherwise_is_drawn(tokens):
    """Its moments are not known, so that it takes a value."""
    assert plan_of(mutated(sample_Z=rate_grows), tokens)["f"].update == "its prior, q = p, drawn"


def test_conditioned_sites_are_observed_and_their_values_are_used(tokens):
    """f held at a value: q(Z) has its exp(-f), and nothing moves it."""
    f = torch.randn(4, 5)
    fixed = poutine.condition(small_model(), {"f": f, "V": torch.full((4,), 0.3), "h": torch.zeros(4, 1, 3)})
    guide = ClosedFormGuide(fixed, {"ell": Point()})
    plan = guide.plan(tokens)
    assert {"f", "V", "h"} <= set(plan.observed)
    run = guide.run(tokens)
    slope = tokens.length / run.local["Z"].step.epsilon
    torch.testing.assert_close(run.factor("Z").rate, (-f).exp() + slope.unsqueeze(-1))
    with pytest.raises(ValueError, match="given for 'V', and the latent sites are ell, theta"):
        ClosedFormGuide(fixed, {"V": Point()}).plan(tokens)


def test_a_rule_for_a_site_that_does_not_exist_is_an_error(tokens):
    with pytest.raises(ValueError, match="A rule was given for 'W', and the latent sites are"):
        plan_of(small_model(), tokens, rules={"W": Point()})


def test_the_generic_posterior_can_be_asked_for(tokens):
    guide = PRMEGuide(small_model(), rules={"ell": None})
    assert guide.plan(tokens)["ell"].update == "Normal, reparameterised gradient"
    again = PRMEGuide(small_model(), rules={"ell": MeanFieldNormal()})
    assert again.plan(tokens)["ell"].update == "Normal, reparameterised gradient"


@pytest.mark.parametrize(("alpha", "jacobian"), [(1.0, False), (3.0, False), (0.5, True)])
def test_a_point_is_taken_where_its_density_is_bounded(alpha, jacobian, tokens):
    plan = plan_of(small_model(alpha=alpha), tokens)
    assert ("Jacobian" in plan["V"].update) == jacobian
    assert "Jacobian" not in plan["ell"].update


def test_an_unbounded_point_asked_for_by_name_is_refused(tokens):
    with pytest.raises(ValueError, match="prior density has no maximum"):
        plan_of(small_model(alpha=0.5), tokens, rules={"V": Point(unconstrained=False)})


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


def test_sites_keep_their_updates_whatever_they_are_called(tokens):
    """Topics and loadings by other names: the same plan and the same bound."""
    bounds = []
    for names in (("theta", "Z", "C", "X"), ("f", "h", "V", "words")):
        guide = ClosedFormGuide(renamed(*names))
        plan = guide.plan(tokens)
        assert all("compiled" in plan[name].update for name in names[:3])
        assert guide.roles == dict(zip(("topics", "loadings", "assignment", "words"), names, strict=True))
        with torch.no_grad():
            bounds.append(float(guide.run(tokens, options=RunOptions(sweeps=3)).bound()))
    assert bounds[0] == bounds[1]


def renamed(theta, Z, C, X):
    def model(batch):
        with pyro.plate("k", 3, dim=-1):
            topics = pyro.sample(theta, dist.Dirichlet(torch.full((10,), 0.5)))
        with pyro.plate("n", 4, subsample=batch.documents, dim=-2), pyro.plate("k2", 3, dim=-1):
            loadings = pyro.sample(Z, dist.Gamma(torch.full((4, 3), 0.7), 1.0))
        with pyro.plate("m", batch.num_entries, dim=-1):
            chosen = pyro.sample(C, TopicAssignment(loadings, batch.document))
            pyro.sample(X, WordGivenTopic(topics, chosen), obs=batch.word)

    return model
