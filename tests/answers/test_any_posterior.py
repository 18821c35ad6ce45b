"""A posterior answers for any site of any model, and for topics wherever sites play their roles."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.distributions import constraints

from pyro_prme import ClosedFormGuide, Corpus, FitOptions, Posterior, Tensors, Trainer, TrainOptions, fit
from pyro_prme.inference.rules import Conjugate, MeanFieldNormal
from tests.inference.fits import corpus

X = torch.tensor([1.0, 2.0, 4.0])
ROWS = Tensors(torch.cat([torch.randn(30, generator=torch.Generator().manual_seed(0)).double(), torch.ones(3)]))


def scales(x):
    """A conjugate mean, and a scale that gradients move."""
    mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Normal(mu, scale), obs=x)


def lda(batch):
    """Plain latent Dirichlet allocation with names of its user's own."""
    with pyro.plate("themes", 4):
        phi = pyro.sample("phi", dist.Dirichlet(torch.full((40,), 0.1)))
    with pyro.plate("texts", 60, subsample=batch.documents):
        share = pyro.sample("share", dist.Dirichlet(torch.full((4,), 0.5)))
    with pyro.plate("tokens", batch.num_entries), pyro.poutine.scale(scale=batch.count * 60 / batch.size):
        z = pyro.sample("z", dist.Categorical(share[batch.document]))
        pyro.sample("w", dist.Categorical(phi[z]), obs=batch.word)


@pytest.fixture(scope="module")
def own():
    torch.set_default_dtype(torch.float64)
    guide = ClosedFormGuide(lda)
    documents = Corpus(corpus(), [f"w{d}" for d in range(40)])
    trainer = Trainer(guide, documents, TrainOptions(batch_size=20))
    trainer.fit(10)
    return Posterior(guide, vocabulary=documents.vocabulary), documents


def test_means_spreads_and_intervals_of_a_conjugate_site_and_of_one_by_gradients():
    guide = ClosedFormGuide(scales)
    fit(guide, X, options=FitOptions(epochs=200))
    posterior = Posterior(guide)
    q = guide.posterior("mu")
    assert float(posterior.mean("mu")) == pytest.approx(float(q.mean))
    assert float(posterior.sd("mu")) == pytest.approx(float(q.stddev))
    interval = posterior.interval("mu", level=0.8)
    assert list(interval["bound"].values) == ["lower", "upper"]
    np.testing.assert_allclose(interval, [float(q.icdf(torch.tensor(p))) for p in (0.1, 0.9)])
    assert "draws" not in posterior.mean("mu").attrs
    mean = posterior.mean("scale")
    assert "draws" not in mean.attrs  # of a log-normal there is a formula
    free = guide.claim("scale")
    exact = float((free.loc + free.log_scale.exp() ** 2 / 2).exp().detach())
    assert float(mean) == pytest.approx(exact, rel=1e-6)
    draws = posterior.draws("scale", number=7, seed=3)
    assert draws.dims == ("draw",)
    assert (draws.values > 0).all()
    np.testing.assert_array_equal(draws, posterior.draws("scale", number=7, seed=3))
    assert posterior.draws("scale", number=7, seed=4).values[0] != draws.values[0]


def test_sites_of_rows_are_asked_for_with_the_rows():
    def members(x, rows):
        level = pyro.sample("level", dist.Normal(0.0, 5.0))
        with pyro.plate("rows", 33, subsample=rows):
            own = pyro.sample("own", dist.Normal(level, 1.0))
            pyro.sample("x", dist.Normal(own, 0.5), obs=x)

    guide = ClosedFormGuide(members)
    Trainer(guide, ROWS, TrainOptions(batch_size=11)).fit(5)
    posterior = Posterior(guide, batch_size=10)
    with pytest.raises(ValueError, match="own belongs to a subsampled plate"):
        posterior.mean("own")
    mean = posterior.mean("own", ROWS)
    assert mean.dims == ("rows",)
    level = float(posterior.mean("level"))
    np.testing.assert_allclose(mean, (level + 4 * ROWS.tensors[0].numpy()) / 5, rtol=1e-6)
    assert posterior.interval("own", ROWS).dims == ("bound", "rows")
    np.testing.assert_allclose(posterior.sd("own", ROWS), 0.2**0.5, rtol=1e-9)


def test_a_users_own_lda_has_topics_proportions_and_a_score(own):
    posterior, documents = own
    assert posterior.roles == {"words": "w", "assignment": "z", "topics": "phi", "loadings": "share"}
    topics = posterior.topics()
    assert topics.sizes == {"topic": 4, "word": 40}
    np.testing.assert_allclose(topics.sum("word"), 1)
    proportions = posterior.proportions(documents)
    np.testing.assert_allclose(proportions.sum("topic"), 1)
    np.testing.assert_allclose(posterior.mean("share", documents), proportions)
    assert posterior.perplexity(documents) < 30
    assert posterior.topic_correlations(documents, kind="posterior").shape == (4, 4)
    assert posterior.mean("topics").dims == ("themes", "word")
    np.testing.assert_allclose(posterior.mean("topics"), topics, rtol=1e-6)
    with pytest.raises(ValueError, match="lda has no f: random_function needs a model with a random function"):
        posterior.random_function(documents)


def test_one_document_of_all_words_has_the_same_plan():
    """Where words are 0, 1, 2, ... the choice of a word is no longer a gather."""
    guide = ClosedFormGuide(lda)
    plan = guide.plan(*Corpus(np.ones((1, 40)), [str(d) for d in range(40)]).batch(np.arange(1)))
    assert all("compiled" in plan[site].update for site in ("phi", "share", "z"))


def test_it_says_what_it_is(own):
    printed = str(own[0])
    assert printed.startswith("Posterior of lda, with factors for 3 sites.\n4 topics over 40 words, labelled.")
    assert "  phi    closed form, Dirichlet, natural steps (compiled) (topics)" in printed
    assert str(Posterior(ClosedFormGuide(lda))) == "Posterior of lda: its guide has not been fitted or loaded."


class SoftmaxTopics(torch.nn.Module):
    """Topics by gradients on Dirichlet loadings by the engine, so that no closed form covers the topics."""

    roles = {"topics": "beta", "loadings": "share"}  # noqa: RUF012

    def forward(self, batch):
        with pyro.plate("themes", 4):
            logits = pyro.sample("logits", dist.Normal(torch.zeros(40), 1.0).to_event(1))
            beta = pyro.deterministic("beta", logits.softmax(-1), event_dim=1)
        with pyro.plate("texts", 60):
            share = pyro.sample("share", dist.LogNormal(torch.zeros(4), 1.0).to_event(1))
        rates = (share / share.sum(-1, keepdim=True)) @ beta
        pyro.factor("words", (batch.count * rates[batch.document, batch.word].log()).sum())


def test_roles_that_a_model_names_are_answered_by_draws():
    model = SoftmaxTopics()
    guide = ClosedFormGuide(model, candidates=(Conjugate(), MeanFieldNormal()))
    documents = Corpus(corpus(), [f"w{d}" for d in range(40)])
    fit(guide, *documents.batch(np.arange(60)), options=FitOptions(epochs=60, learning_rate=0.1))
    posterior = Posterior(guide, vocabulary=documents.vocabulary, batch_size=60)
    topics = posterior.topics()
    assert topics.attrs["draws"] >= 100
    np.testing.assert_allclose(topics.sum("word"), 1)
    proportions = posterior.proportions(documents)
    assert proportions.attrs["draws"] == 1000
    np.testing.assert_allclose(proportions.sum("topic"), 1, rtol=1e-6)
    usage = posterior.usage(documents)
    np.testing.assert_allclose(usage.sum(), 1)
    with pytest.raises(ValueError, match="give the documents"):
        posterior.usage()
    assert constraints.simplex.check(torch.as_tensor(topics.values)).all()


def test_a_role_that_nothing_plays_is_refused_in_one_sentence():
    guide = ClosedFormGuide(scales)
    guide.plan(X)
    with pytest.raises(ValueError, match=r"scales has no topics: topics needs .* say which by `roles`"):
        Posterior(guide).topics()
    with pytest.raises(ValueError, match="There is no factor for 'nu': the guide has factors for mu, scale"):
        Posterior(guide).mean("nu")
