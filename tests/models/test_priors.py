"""Laws of the swapped priors, numbers with priors of their own, and what is refused."""

import pyro.distributions as dist
import pytest
import torch
from pyro import plate

from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.sticks import stick_weights
from pyro_prme.inference.rules import AmortisedNormal, Point
from pyro_prme.inference.rules.amortised import Amortised
from pyro_prme.inference.rules.topic_table import topic_table
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.models.networks.encoders import TopicEncoder
from pyro_prme.models.priors import FiniteDirichletPRME, HorseshoePRME, LogNormalPRME, PitmanYorPRME
from pyro_prme.models.prme import PRME
from pyro_prme.models.topic_model import HDP
from tests.models.swapped import EMBEDDED, D, K, N, corpus, number


def draws_of_V(model, num=4000):
    with plate("draws", num, dim=-2), plate("sticks", model.num_topics - 1, dim=-1):
        return model.sample_V()


def test_finite_dirichlet_sticks_are_a_symmetric_dirichlet():
    """Means 1 / K and variances (1/K)(1 - 1/K) / (alpha + 1), within five standard errors of 4000 draws."""
    p = stick_weights(draws_of_V(FiniteDirichletPRME(K, D, N, alpha=2.0, **EMBEDDED)))
    assert (p.mean(0) - 1 / K).abs().max() < 5 * p.std() / 4000**0.5
    torch.testing.assert_close(p.var(0), torch.full((K,), (1 / K) * (1 - 1 / K) / 3), rtol=0.12, atol=0)


def test_pitman_yor_sticks_have_their_means():
    d, alpha = 0.4, 1.5
    V = draws_of_V(PitmanYorPRME(K, D, N, alpha=alpha, discount=d, **EMBEDDED))
    k = torch.arange(1.0, K)
    assert (V.mean(0) - (1 - d) / (1 - d + alpha + k * d)).abs().max() < 5 * V.std() / 4000**0.5


def test_log_normal_loadings_have_their_law_given_sticks_and_f():
    """ln Z has mean ln(beta p_k) + f_nk and variance s^2, within four standard errors of 20000 rows each."""
    num, spread = 20_000, 0.5
    V, f = torch.tensor([0.5, 0.4, 0.5]), torch.tensor([-1.0, 0.0, 0.7, 2.0])
    p = torch.tensor([0.5, 0.2, 0.15, 0.15])  # by hand
    model = LogNormalPRME(4, 6, num, beta=3.0, spread=spread)
    Z = model.sample_Z(V, f.expand(num, 4))
    error = spread / num**0.5
    torch.testing.assert_close(Z.log().mean(0), (3.0 * p).log() + f, rtol=0, atol=4 * error)
    torch.testing.assert_close(Z.log().var(0), torch.full((4,), spread**2), rtol=4 * (2 / num) ** 0.5, atol=0)
    means = model.mean_loadings(V, f, torch.zeros(4))
    torch.testing.assert_close(Z.mean(0), means, rtol=0.02, atol=0)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="discount is 1"):
        PitmanYorPRME(K, D, N, discount=1.0)
    with pytest.raises(ValueError, match="spread is 0"):
        LogNormalPRME(K, D, N, spread=0.0)


# numbers with priors


def test_a_learned_alpha_has_its_gamma_in_closed_form():
    """q(alpha) = Gamma(a + K - 1, b - sum ln(1 - V)), given the sticks."""
    guide = PRMEGuide(HDP(K, D, N, alpha=number(dist.Gamma, 2, 3)))
    Trainer(guide, Counts(corpus()), TrainOptions(batch_size=N)).fit(2)
    claim = guide.claim("alpha")
    claim.gather(guide.run(Batch.from_csr(corpus())))
    claim.natural_step(1.0)
    V = guide.posterior("V").v
    q = guide.posterior("alpha")
    torch.testing.assert_close(q.concentration, torch.tensor(2.0 + K - 1))
    torch.testing.assert_close(q.rate, 3.0 - (-V).log1p().sum(), rtol=1e-9, atol=0)


def test_a_model_at_other_numbers_shares_all_but_them():
    model = PRME(K, D, N, beta=number(dist.Gamma, 2, 1), **EMBEDDED)
    assert model.beta == pytest.approx(2.0)
    other = model.with_numbers(beta=torch.tensor(7.0))
    V = torch.tensor([0.5, 0.4, 0.5])
    torch.testing.assert_close(other.concentration(V), 7 * stick_weights(V))
    assert model.beta == pytest.approx(2.0)
    assert other.decoder is model.decoder


@pytest.mark.parametrize(
    ("name", "prior", "reason"),
    [
        ("alpha", dist.Gamma(torch.ones(2), 1.0), r"The prior of alpha has shape \(2,\): it must be of one number"),
        ("beta", dist.Normal(torch.tensor(0.0), 1.0), "The prior of beta is Normal, whose draws may not stand for it"),
        ("gamma0", dist.Poisson(torch.tensor(1.0)), "The prior of gamma0 is Poisson"),
    ],
)
def test_a_prior_that_is_none_of_its_number_is_refused(name, prior, reason):
    with pytest.raises(ValueError, match=reason):
        HDP(K, D, N, **{name: prior})


def test_a_prior_of_a_discount_stays_below_one():
    with pytest.raises(ValueError, match="The prior of discount is Gamma"):
        PitmanYorPRME(K, D, N, discount=number(dist.Gamma, 5, 1))


@pytest.mark.parametrize("given", [torch.float32, torch.float64])
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_priors_of_another_precision_are_taken(default, given):
    torch.set_default_dtype(default)
    two = torch.tensor(2.0, dtype=given)
    model = HDP(K, D, N, beta=dist.Gamma(two, two), gamma0=dist.Gamma(two, two))
    assert len(Trainer(PRMEGuide(model), Counts(corpus()), TrainOptions(batch_size=10)).fit(2)) == 2


def test_learned_numbers_move():
    guide = PRMEGuide(HDP(K, D, N, beta=number(dist.Gamma, 2, 0.4), gamma0=number(dist.Gamma, 2, 2)))
    trainer = Trainer(guide, Counts(corpus()), TrainOptions(batch_size=N, learning_rate=0.1))
    before = {name: float(guide.posterior(name).v) for name in ("beta", "gamma0")}
    bounds = [record["bound"] for record in trainer.fit(20)]
    after = {name: float(guide.posterior(name).v) for name in ("beta", "gamma0")}
    assert all(abs(after[name] / before[name] - 1) > 0.1 for name in before)
    assert bounds[-1] > bounds[0]


# points that would shrink together with a scale that is itself unknown

SENTENCE = "its density at its mode, with that of h_scale, has no maximum where the prior of h_scale lies"


def update_of(name, prior, scale="h_scale", batch=None, **rules):
    torch.manual_seed(0)
    model = PRME(K, D, 60, **{scale: prior}, **EMBEDDED)
    return PRMEGuide(model, rules=rules).plan(batch or Batch.from_csr(corpus(60)))[name]


@pytest.mark.parametrize(
    "prior",
    [
        number(dist.HalfCauchy, 1),
        number(dist.HalfNormal, 1),
        number(dist.LogNormal, 0, 1),
        number(dist.Gamma, 2, 2),
        number(dist.Gamma, 150, 150),  # below the 180 numbers of all h
        number(dist.InverseGamma, 2, 1),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_a_point_for_h_that_would_shrink_with_its_scale_is_refused(prior):
    entry = update_of("h", prior)
    assert entry.update == "Normal from the inference network, reparameterised gradient"
    assert SENTENCE in entry.reason


def test_documents_that_the_plan_does_not_see_count():
    """Gamma(150, 150) outweighs the twelve numbers of four documents, and not those of all sixty."""
    entry = update_of("h", number(dist.Gamma, 150, 150), batch=Batch.from_csr(corpus(60)[:4]))
    assert entry.update.startswith("Normal from the inference network")


@pytest.mark.parametrize("prior", [number(dist.LogNormal, 0, 1e-3), number(dist.Gamma, 1e4, 1e4)])
def test_a_prior_that_outweighs_the_documents_keeps_the_point(prior):
    assert update_of("h", prior).update == "point mass at the inference network's output"


def test_a_point_for_ell_is_refused_as_well_and_an_error_where_it_was_asked_for():
    prior = number(dist.InverseGamma, 2, 1)
    assert update_of("ell", prior, "ell_scale").update == "Normal, reparameterised gradient"
    with pytest.raises(ValueError, match="rule given for site ell does not hold: its density at its mode"):
        update_of("ell", prior, "ell_scale", ell=Point())
    with pytest.raises(ValueError, match=f"rule given for site h does not hold: {SENTENCE}"):
        update_of("h", prior, h=Amortised(TopicEncoder(K, 3)))


def test_a_learned_scale_of_h_does_not_collapse():
    """As points h and its scale would end at ln s below -2.9."""
    torch.manual_seed(0)
    guide = PRMEGuide(PRME(K, D, 60, h_scale=number(dist.InverseGamma, 2, 1), **EMBEDDED))
    Trainer(guide, Counts(corpus(60)), TrainOptions(batch_size=60, learning_rate=0.05)).fit(60)
    assert float(guide.posterior("h_scale").v.log()) > -2


# the Normal from a network


def test_a_normal_from_a_network_reads_each_document_and_is_bounded():
    model = PRME(K, D, N, **EMBEDDED)
    guide = PRMEGuide(model, rules={"h": AmortisedNormal(model.default_network)})
    batch = Batch.from_csr(corpus())
    guide.plan(batch)
    guide.eval().requires_grad_(False)
    factor = guide.run(batch).factor("h")
    assert factor.mean.shape == (N, 1, 3)
    part = guide.run(Batch.from_csr(corpus()[:5])).factor("h")
    torch.testing.assert_close(part.mean, factor.mean[:5])
    torch.testing.assert_close(part.stddev, factor.stddev[:5])
    assert (factor.mean.std(0) > 0).all()
    claim = guide.claim("h")
    with torch.no_grad():
        claim.encoder.network.head.bias[3:] = 1e6
    assert float(guide.run(batch).factor("h").stddev.max()) < 6
    torch.testing.assert_close(guide.embeddings(batch), factor.mean.squeeze(-2))


def test_a_normal_from_a_network_is_refused_for_what_no_document_has():
    guide = PRMEGuide(PRME(K, D, N, **EMBEDDED), rules={"ell": AmortisedNormal(lambda size: TopicEncoder(K, size))})
    with pytest.raises(ValueError, match="it does not belong to the documents of a batch"):
        guide.plan(Batch.from_csr(corpus()))


# where a fit begins, without compiled topics or without points


def test_topics_that_the_engine_holds_are_read_by_words_and_begin_at_clusters():
    guide = PRMEGuide(LogNormalPRME(K, D, N, **EMBEDDED))
    guide.plan(Batch.from_csr(corpus()))
    table = topic_table(list(guide.claims))
    words = torch.tensor([3, 0, 7])
    torch.testing.assert_close(table.mean_rows(words), guide.posterior("theta").mean[:, words].mT)
    before, centres = table.concentration.clone(), torch.rand(K, D)
    table.begin_from(centres, 10.0, torch.ones(K, D))
    torch.testing.assert_close(table.concentration, before + 10 * centres + 1)
    Trainer(guide, Counts(corpus()), TrainOptions(batch_size=N))
    shares = table.mean_rows(torch.arange(D)).mT  # each topic has three words of its own
    assert float(shares.topk(3).values.sum(-1).min()) > 0.4  # a quarter without clusters


def test_places_with_a_normal_begin_where_points_would():
    guide = PRMEGuide(HorseshoePRME(K, D, N, **EMBEDDED))
    Trainer(guide, Counts(corpus()), TrainOptions(batch_size=N))
    torch.testing.assert_close(guide.posterior("ell").mean.norm(dim=-1), torch.ones(K))
    torch.testing.assert_close(guide.claim("lambda").value().detach(), torch.ones(K))  # the median of a half-Cauchy
