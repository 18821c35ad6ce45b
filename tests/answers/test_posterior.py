"""The posterior: labels, definitions by hand, evaluation mode, nothing global, one sentence for bad input."""

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from scipy import sparse

from pyro_prme import Posterior, Trainer, TrainOptions, build
from pyro_prme.answers.correlations import third_moment, third_moment_error
from pyro_prme.answers.scores import completion_perplexity
from pyro_prme.answers.words_of_topics import frex, hellinger, lift
from pyro_prme.corpora.corpus import Corpus

WORDS = tuple(f"w{d:02d}" for d in range(20))
NUM_DOCUMENTS, NUM_TOPICS = 40, 6


def corpus(num_documents=NUM_DOCUMENTS, seed=0):
    """Two topics out of four, on disjoint words, in each document; the last document is empty."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(4), np.full(5, 0.2))
    rows = [rng.multinomial(20, topics[rng.choice(4, 2, replace=False)].mean(0)) for _ in range(num_documents - 1)]
    return Corpus(np.stack([*rows, np.zeros(20)]), WORDS, tuple(f"doc{n}" for n in range(num_documents)))


def fit(model, epochs=5, dtype=torch.float64):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    built = build(NUM_TOPICS, 20, NUM_DOCUMENTS, model=model, embedding_dim=3)
    Trainer(built[1], corpus(), TrainOptions(batch_size=10)).fit(epochs)
    torch.set_default_dtype(before)
    return Posterior(built[1], vocabulary=WORDS, batch_size=7)


@pytest.fixture(scope="module")
def prme():
    return fit("prme")


@pytest.fixture(scope="module")
def hdp():
    return fit("hdp")


def test_topics_are_the_normalised_gamma_with_words_as_labels(prme):
    topics = prme.topics()
    gamma = prme.guide.topics.gamma.mT.numpy()
    assert topics.dims == ("topic", "word")
    assert tuple(topics["word"].values) == WORDS
    np.testing.assert_allclose(topics, gamma / gamma.sum(1, keepdims=True))
    np.testing.assert_allclose(topics.sum("word"), 1)
    largest = prme.topics(2)
    assert largest.shape == (2, 20)
    np.testing.assert_array_equal(largest["topic"], np.argsort(-prme.usage().values)[:2])
    np.testing.assert_array_equal(largest[0], topics.sel(topic=int(largest["topic"][0])))


def test_usage_of_a_batch_fit_is_that_of_its_corpus(hdp):
    np.testing.assert_allclose(hdp.usage().sum(), 1)
    counts, gamma = corpus().counts, hdp.guide.topics.gamma
    assert float((gamma - 0.2).sum()) == pytest.approx(counts.sum(), rel=1e-6)
    np.testing.assert_allclose(hdp.usage(), (gamma - 0.2).sum(0) / counts.sum(), atol=1e-9)
    of_corpus = hdp.usage(corpus())
    np.testing.assert_allclose(of_corpus.sum(), 1)
    np.testing.assert_allclose(of_corpus, hdp.usage(), atol=0.02)
    with pytest.raises(ValueError, match="no words"):
        hdp.usage(np.zeros((2, 20)))


def test_topics_used_hold_99_percent_of_the_tokens(hdp, monkeypatch):
    for shares, used in (([0.5, 0.495, 0.005], 2), ([0.2, 0.4, 0.4], 3), ([1.0, 0.0, 0.0], 1)):
        monkeypatch.setattr(hdp, "usage", lambda shares=shares: hdp._labelled(np.array(shares), "topic"))
        assert hdp.num_topics_used == used


@pytest.mark.parametrize("by", ["probability", "lift", "frex"])
def test_top_words_of_separate_topics(prme, by):
    table = prme.top_words(5, by=by)
    assert isinstance(table, pd.DataFrame)
    assert table.shape == (NUM_TOPICS, 5)
    assert (table.index.name, table.columns.name) == ("topic", "rank")
    assert list(table.columns) == [1, 2, 3, 4, 5]
    largest = int(prme.topics(1)["topic"][0])
    blocks = {WORDS.index(word) // 5 for word in table.loc[largest]}
    assert len(blocks) == 1


def test_rankings_by_hand():
    topics, usage = np.array([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4]]), np.array([0.75, 0.25])
    np.testing.assert_allclose(lift(topics, usage)[0], [0.6 / 0.575, 0.3 / 0.25, 0.1 / 0.175])
    # topic 0: frequency ranks 3, 2, 1 of 3; exclusivities 6/11, 3/4, 1/5 have ranks 2, 3, 1 of 3
    harmonic = [2 / (1 / a + 1 / b) for a, b in ((1, 2 / 3), (2 / 3, 1), (1 / 3, 1 / 3))]
    np.testing.assert_allclose(frex(topics, usage)[0], harmonic)
    np.testing.assert_allclose(hellinger(np.eye(3), np.eye(3)[0]), [0, 1, 1])
    np.testing.assert_allclose(hellinger(topics, topics[0])[1], np.sqrt(1 - np.sqrt([0.3, 0.03, 0.04]).sum()))


def test_documents_get_labels_and_rows_that_sum_to_one(prme):
    documents = corpus()
    proportions = prme.proportions(documents)
    assert proportions.dims == ("document", "topic")
    assert tuple(proportions["document"].values) == documents.names
    np.testing.assert_allclose(proportions.sum("topic"), 1)
    loadings = prme.loadings(documents)
    np.testing.assert_allclose(loadings / loadings.sum("topic"), proportions)
    assert prme.embeddings(documents).sizes == {"document": NUM_DOCUMENTS, "dimension": 3}
    assert prme.topic_embeddings().sizes == {"topic": NUM_TOPICS, "dimension": 3}
    assert prme.random_function(documents).dims == ("document", "topic")
    np.testing.assert_array_equal(prme.proportions(documents.counts), proportions)
    np.testing.assert_array_equal(prme.proportions(documents.counts.toarray())["document"], range(NUM_DOCUMENTS))
    assert list(Posterior(prme.guide).topics()["word"].values) == list(range(20))


def test_the_random_function_is_the_decoder_at_the_embeddings(prme):
    h, ell = (torch.tensor(x.values) for x in (prme.embeddings(corpus()), prme.topic_embeddings()))
    with torch.no_grad():
        mean = prme.model.decoder.eval()(h, ell)[0]
    prme.model.decoder.train()
    np.testing.assert_allclose(prme.random_function(corpus()), mean, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ask", ["loadings", "proportions", "embeddings", "random_function"])
def test_an_answer_does_not_depend_on_the_other_documents(prme, ask):
    """Also for more documents than the model was built for, and for batches larger than that."""
    documents = corpus(90, seed=1)
    whole = getattr(prme, ask)(documents)
    order = np.random.default_rng(0).permutation(90)
    for batch_size in (7, 90):
        other = Posterior(prme.guide, batch_size=batch_size)
        np.testing.assert_allclose(getattr(other, ask)(documents[order]), whole[order], rtol=1e-7, atol=1e-9)
    alone = np.concatenate([getattr(prme, ask)(documents[n]) for n in (0, 5, 89)])
    np.testing.assert_allclose(alone, whole[[0, 5, 89]], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("model", ["prme", "hdp"])
def test_asking_changes_nothing(model, request):
    posterior = request.getfixturevalue(model)
    posterior.guide.train()
    state = {name: x.clone() for name, x in posterior.guide.state_dict().items()}
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    pyro.param("mine", torch.ones(1))
    posterior.topic_correlations(corpus(), kind="posterior")
    posterior.perplexity(corpus().split_tokens())
    assert list(pyro.get_param_store().keys()) == ["mine"]
    assert torch.equal(torch_state, torch.get_rng_state())
    assert (numpy_state == np.random.get_state()[1]).all()  # noqa: NPY002
    assert all(part.training for part in posterior.guide.modules())
    assert all(torch.equal(x, state[name]) for name, x in posterior.guide.state_dict().items())


def test_a_float32_model_is_asked_in_float32():
    posterior = fit("prme", epochs=1, dtype=torch.float32)
    assert posterior.proportions(corpus()).dtype == np.float64
    assert torch.get_default_dtype() == torch.float64
    np.testing.assert_allclose(posterior.proportions(corpus()).sum("topic"), 1)


def test_a_document_without_words_gets_the_prior(hdp):
    weights = hdp.model.concentration(hdp.guide.claim("V").value()).detach()
    prior = weights / weights.sum()
    np.testing.assert_allclose(hdp.proportions(corpus())[-1], prior)
    np.testing.assert_allclose(hdp.proportions(np.zeros((9, 20))), prior.expand(9, -1))


def test_correlations_by_hand(prme, hdp):
    function = prme.random_function(corpus()).values
    correlations = prme.topic_correlations(corpus(), kind="function")
    assert correlations.dims == ("topic", "other_topic")
    np.testing.assert_allclose(correlations, np.corrcoef(function.T), atol=1e-9)
    for posterior in (prme, hdp):
        proportions = posterior.proportions(corpus()).values
        by_hand = np.corrcoef(proportions.T)
        np.testing.assert_allclose(posterior.topic_correlations(corpus(), kind="posterior"), by_hand, atol=1e-9)
        by_hand = np.corrcoef(np.sqrt(proportions).T)
        np.testing.assert_allclose(posterior.topic_correlations(corpus()), by_hand, atol=1e-9)
    same = sparse.vstack([corpus().counts[:1]] * 3)
    np.testing.assert_array_equal(hdp.topic_correlations(same, kind="posterior"), np.eye(NUM_TOPICS))


def test_intervals_of_correlations_by_hand(prme):
    found = prme.topic_correlation_intervals(corpus(), level=0.9)
    np.testing.assert_array_equal(found["correlation"], prme.topic_correlations(corpus()))
    x = np.sqrt(prme.proportions(corpus()).values[:, [1, 3]])
    z = (x - x.mean(0)) / x.std(0)
    r = (z[:, 0] * z[:, 1]).mean()
    error = np.sqrt(((z[:, 0] * z[:, 1] - r / 2 * (z**2).sum(1)) ** 2).mean() / NUM_DOCUMENTS)
    middle, half = np.arctanh(r), 1.6448536 * error / (1 - r**2)
    assert float(found["lower"][1, 3]) == pytest.approx(np.tanh(middle - half))
    assert float(found["upper"][1, 3]) == pytest.approx(np.tanh(middle + half))
    assert (found.attrs["kind"], found.attrs["level"]) == ("roots", 0.9)


def test_third_moments_by_hand(prme):
    x = prme.random_function(corpus()).values[:, [0, 1, 3]]
    z = (x - x.mean(0)) / x.std(0)
    m = (z[:, 0] * z[:, 1] * z[:, 2]).mean()
    assert prme.third_moment(corpus(), 0, 1, 3, kind="function") == pytest.approx(m)
    roots = np.sqrt(prme.proportions(corpus()).values)
    assert prme.third_moment(corpus(), 0, 1, 3) == pytest.approx(third_moment(roots, 0, 1, 3))
    lower, upper = prme.third_moment_interval(corpus(), 0, 1, 3, level=0.9)
    assert (lower + upper) / 2 == pytest.approx(third_moment(roots, 0, 1, 3))
    assert (upper - lower) / 2 == pytest.approx(1.6448536 * third_moment_error(roots, 0, 1, 3))
    pi = prme.proportions(corpus()).values
    assert prme.third_moment(corpus(), 2, 0, 2, kind="posterior") == pytest.approx(third_moment(pi, 2, 0, 2))
    assert third_moment(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 5.0]]), 0, 1, 1) == 0
    skewed = np.array([[0.0], [0.0], [3.0]])
    assert third_moment(skewed, 0, 0, 0) == pytest.approx(1 / np.sqrt(2))


def test_similar_topics_and_representative_documents(prme):
    topics = prme.topics().values
    similar = prme.similar_topics(2, 3)
    assert similar.dims == ("topic",)
    assert 2 not in similar["topic"]
    assert (np.diff(similar) >= 0).all()
    nearest = int(similar["topic"][0])
    by_hand = np.sqrt(((np.sqrt(topics[2]) - np.sqrt(topics[nearest])) ** 2).sum() / 2)
    assert float(similar[0]) == pytest.approx(by_hand)
    documents = prme.representative_documents(0, 4, corpus())
    share = prme.proportions(corpus()).sel(topic=0)
    assert documents.sizes == {"document": 4}
    assert float(documents[0]) == pytest.approx(float(share.max()))
    assert str(documents["document"].values[0]) == f"doc{int(share.values.argmax())}"


@pytest.mark.parametrize("observed", [0.9, 0.5])
def test_perplexity_is_that_of_evaluate(prme, observed):
    split = corpus().split_tokens(observed, seed=3)
    pi, theta, held = prme.proportions(split.observed).values, prme.topics().values, split.held_out.counts.toarray()
    by_hand = np.exp(-(held * np.log(pi @ theta)).sum() / held.sum())
    assert prme.perplexity(split) == pytest.approx(by_hand)
    assert prme.perplexity(split) == completion_perplexity(pi, theta, split.held_out)
    assert prme.perplexity(split) < 20


def test_an_hdp_has_no_random_function(hdp):
    for ask, site in (("embeddings", "h"), ("random_function", "f")):
        with pytest.raises(ValueError, match=f"HDP has no {site}: {ask} needs a model with a random function"):
            getattr(hdp, ask)(corpus())
    with pytest.raises(ValueError, match="HDP has no ell"):
        hdp.topic_embeddings()
    with pytest.raises(ValueError, match="ask topic_correlations for kind='roots'"):
        hdp.topic_correlations(corpus(), kind="function")
    with pytest.raises(ValueError, match="ask third_moment for kind='roots'"):
        hdp.third_moment(corpus(), 0, 1, 2, kind="function")


def test_the_perplexity_of_a_corpus_is_that_of_its_default_split(prme):
    assert prme.perplexity(corpus()) == prme.perplexity(corpus().split_tokens(0.9, seed=0))
    assert prme.perplexity(corpus()) != prme.perplexity(corpus().split_tokens(0.5, seed=0))
    for wrong in (corpus().counts, corpus().align(WORDS), ["a text"], None):
        with pytest.raises(ValueError, match=r"The split is a \w+: give corpus\.split_tokens"):
            prme.perplexity(wrong)


def test_bad_questions_get_one_sentence(prme):
    _, guide = build(3, 20, 4)
    with pytest.raises(ValueError, match="has not been fitted or loaded"):
        Posterior(guide).topics()
    with pytest.raises(ValueError, match="vocabulary has 2 words and the model 20"):
        Posterior(guide, vocabulary=["a", "b"])
    with pytest.raises(ValueError, match="guide is a ShapePRME: give a fitted ClosedFormGuide"):
        Posterior(prme.model)
    with pytest.raises(ValueError, match="documents have 19 words and the model 20"):
        prme.proportions(corpus().counts[:, :19])
    with pytest.raises(ValueError, match="other words than the model"):
        prme.proportions(Corpus(corpus().counts, WORDS[::-1]))
    with pytest.raises(ValueError, match=r"has the count 0\.5 for word 3 \('w03'\)"):
        prme.loadings(0.5 * np.eye(20)[3:4])
    with pytest.raises(ValueError, match="no documents"):
        prme.loadings(np.zeros((0, 20)))
    with pytest.raises(ValueError, match="by is 'best': it must be one of probability, lift, frex"):
        prme.top_words(by="best")
    with pytest.raises(ValueError, match="kind is 'best'"):
        prme.topic_correlations(corpus(), kind="best")
    with pytest.raises(ValueError, match="at least two"):
        prme.topic_correlations(corpus()[0])
    for ask in (lambda k: prme.similar_topics(k), lambda k: prme.representative_documents(k, 1, corpus())):
        with pytest.raises(ValueError, match="The number of a topic is 6: it must be a whole number from 0 to 5"):
            ask(6)
