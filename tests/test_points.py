"""Points for h with a learned scale: refused where the two would shrink together, and only there."""

import pyro
import pytest
import torch
from pyro import distributions as dist

from pyro_prme import PRME, Batch, TopicEncoder
from pyro_prme.guide import PRMEGuide
from pyro_prme.rules import Amortized, Point
from pyro_prme.swaps import HyperPriors, fit, simulate_corpus
from pyro_prme.train import Trainer

K, D, N = 4, 12, 60
SIZE = {"h_dim": 2, "ell_dim": 2}
SENTENCE = "density of h at its mode, with that of h_scale, has no maximum where the prior of h_scale lies"


class LearnedScale(HyperPriors, PRME):
    pass


class HorseshoeOfDocuments(PRME):
    """A scale for every document."""

    def sample_h(self, batch):
        scale = pyro.sample("lambda_h", dist.HalfCauchy(torch.ones(())))  # (B, 1)
        return pyro.sample("h", dist.Normal(0.0, scale.unsqueeze(-1)).expand([batch.size, 1, self.h_dim]).to_event(1))


def number(kind, *parameters):
    return kind(*(torch.tensor(float(x)) for x in parameters))


def counts():
    return simulate_corpus(PRME(K, D, N, **SIZE), [20] * N, seed=1)[0]


def learned(prior, name="h_scale"):
    torch.manual_seed(0)
    return LearnedScale(K, D, N, priors={name: prior}, **SIZE)


def rule_of_h(model, batch=None):
    return type(PRMEGuide(model).plan(batch or Batch.from_csr(counts())).rules["h"]).__name__


@pytest.mark.parametrize(
    "prior",
    [
        number(dist.HalfCauchy, 1),
        number(dist.HalfNormal, 1),
        number(dist.LogNormal, 0, 1),
        number(dist.Gamma, 2, 2),
        number(dist.Gamma, 100, 100),  # below the 120 numbers of all h
        number(dist.InverseGamma, 2, 1),
        number(dist.InverseGamma, 20, 20),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_a_point_for_h_that_would_shrink_with_its_scale_is_refused(prior):
    plan = PRMEGuide(learned(prior)).plan(Batch.from_csr(counts()))
    assert type(plan.rules["h"]).__name__ == "EncodedNormal"
    assert SENTENCE in str(plan)


def test_documents_that_the_plan_does_not_see_count():
    """Gamma(100, 100) outweighs the eight numbers of four documents, and not those of all sixty."""
    assert rule_of_h(learned(number(dist.Gamma, 100, 100)), Batch.from_csr(counts()[:4])) == "EncodedNormal"


@pytest.mark.parametrize("prior", [number(dist.LogNormal, 0, 1e-3), number(dist.Gamma, 1e4, 1e4)])
def test_a_prior_that_outweighs_the_documents_keeps_the_point(prior):
    assert rule_of_h(learned(prior)) == "Amortized"


def test_a_learned_mean_keeps_the_point():
    class LearnedMean(PRME):
        def sample_h(self, batch):
            return pyro.sample("h", dist.Normal(self.mean, 1.0).expand([batch.size, 1, self.h_dim]).to_event(1))

        def forward(self, batch):
            self.mean = pyro.sample("mean", dist.Normal(torch.zeros(()), 1.0))
            return super().forward(batch)

    assert rule_of_h(LearnedMean(K, D, N, **SIZE)) == "Amortized"


def test_heavy_tails_without_a_mean_are_seen_at_their_mode():
    class Cauchy(LearnedScale):
        def sample_h(self, batch):
            return pyro.sample("h", dist.Cauchy(0.0, self.h_scale).expand([batch.size, 1, self.h_dim]).to_event(1))

    assert rule_of_h(Cauchy(K, D, N, priors={"h_scale": number(dist.HalfNormal, 1)}, **SIZE)) == "EncodedNormal"


def test_a_point_for_ell_is_refused_as_well():
    model = learned(number(dist.InverseGamma, 2, 1), "ell_scale")
    assert type(PRMEGuide(model).plan(Batch.from_csr(counts())).rules["ell"]).__name__ == "MeanFieldNormal"
    with pytest.raises(ValueError, match="rule asked for at site ell does not hold"):
        PRMEGuide(model, rules={"ell": Point()}).plan(Batch.from_csr(counts()))


def test_a_point_for_h_asked_for_by_name_is_an_error():
    guide = PRMEGuide(learned(number(dist.HalfCauchy, 1)), rules={"h": Amortized(TopicEncoder(K, 2))})
    with pytest.raises(ValueError, match=f"rule asked for at site h does not hold: the {SENTENCE}"):
        guide.plan(Batch.from_csr(counts()))


@pytest.mark.parametrize("prior", [number(dist.HalfCauchy, 1), number(dist.InverseGamma, 2, 1)])
def test_a_learned_scale_of_h_does_not_collapse(prior):
    """With points for h it ends at ln s of -2.9 and -3.7 after as many rounds."""
    guide = PRMEGuide(learned(prior))
    fit(guide, Batch.from_csr(counts()), 200, learning_rate=0.05)
    assert -1 < float(guide.rule("h_scale").loc.detach()) < 1.5


def test_a_horseshoe_on_documents_is_fitted():
    torch.manual_seed(0)
    guide = PRMEGuide(HorseshoeOfDocuments(K, D, N, **SIZE))
    history = fit(guide, Batch.from_csr(counts()), 200, learning_rate=0.01)
    assert "density of h at its mode, with that of lambda_h" in str(guide.plan())
    assert sum(history[-20:]) / 20 > history[0] + 500
    assert all(torch.isfinite(p).all() for p in guide.parameters())


def test_the_trainer_takes_the_mean_of_h_where_it_is_no_point():
    model, data = learned(number(dist.HalfCauchy, 1)), counts()
    guide = PRMEGuide(model)
    history = Trainer(model, guide, data, batch_size=30).fit(3)
    assert type(guide.rule("h")).__name__ == "EncodedNormal"
    guide.eval()
    batch = Batch.from_csr(data)
    torch.testing.assert_close(guide.embeddings(batch), guide.expectations(batch).posterior("h").mean.squeeze(-2))
    assert history[-1]["bound"] > history[0]["bound"]
