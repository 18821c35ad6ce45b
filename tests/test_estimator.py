"""The estimator: scikit-learn's conventions, recovery, scores, streams, pickles and bad input."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from pyro_prme.answers.fitted import whole_counts
from pyro_prme.answers.scores import completion_perplexity
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.estimator import PRMETopicModel
from pyro_prme.inference.build import MODELS
from pyro_prme.inference.large import ONLINE

TOPICS = np.kron(np.eye(3), np.full(6, 1 / 6))  # (3, 18)


def planted(num_documents=90, length=40, seed=0):
    """Documents of three topics on disjoint words."""
    rng = np.random.default_rng(seed)
    rows = [rng.multinomial(length, rng.dirichlet([0.3] * 3) @ TOPICS) for _ in range(num_documents)]
    return sparse.csr_matrix(np.stack(rows))


def estimator(n_components=3, **kwargs):
    return PRMETopicModel(n_components, **({"max_iter": 5, "batch_size": 30, "random_state": 0} | kwargs))


@pytest.fixture(scope="module")
def fitted():
    return estimator(max_iter=15).fit(planted())


class Rounded(PRMETopicModel):
    """Scikit-learn's checks draw real numbers: this rounds them up, and is the estimator in all else."""

    @staticmethod
    def _whole(X):
        counts = sparse.csr_matrix(X, copy=True)
        counts.data = np.where(counts.data < 0, counts.data, np.ceil(counts.data))
        return whole_counts(counts)


ONE_TOPIC = "sets n_components to 1, and a model has at least two topics"
FAILURES = dict.fromkeys(
    [
        "check_dont_overwrite_parameters",
        "check_fit2d_1feature",
        "check_fit2d_1sample",
        "check_fit2d_predict1d",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
    ],
    ONE_TOPIC,
)


@parametrize_with_checks([Rounded(2, max_iter=1, random_state=0)], expected_failed_checks=lambda estimator: FAILURES)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_planted_topics_are_recovered(fitted):
    assert fitted.components_.shape == (3, 18)
    np.testing.assert_allclose(fitted.components_.sum(1), 1)
    order = fitted.components_.argmax(1) // 6
    assert sorted(order) == [0, 1, 2]
    assert np.abs(fitted.components_ - TOPICS[order]).max() < 0.05
    assert fitted.n_topics_used_ == 3
    assert fitted.topic_usage_.sum() == pytest.approx(1)
    counts = planted(seed=1)
    truth = counts @ TOPICS[order].T * 6 / 40
    assert np.abs(fitted.transform(counts) - truth).max() < 0.1


@pytest.mark.parametrize("model", MODELS)
def test_every_model_fits_and_answers(model):
    fitted = estimator(model=model, max_iter=2).fit(planted())
    assert isinstance(fitted.model_, MODELS[model])
    assert len(fitted.history_) == fitted.n_iter_ == 2
    proportions = fitted.transform(planted(seed=1))
    assert proportions.shape == (90, 3)
    np.testing.assert_allclose(proportions.sum(1), 1)
    np.testing.assert_allclose(fitted.inverse_transform(proportions).sum(1), 1)
    np.testing.assert_allclose(fitted.inverse_transform(np.eye(3)), fitted.components_)
    assert list(fitted.get_feature_names_out()) == ["prmetopicmodel0", "prmetopicmodel1", "prmetopicmodel2"]


def test_presets_modes_and_given_settings_reach_the_core():
    paper = estimator(preset="paper", mode="online", max_iter=1).fit(planted())
    assert paper.guide_.topics.rule.objective == "plain"
    assert paper.trainer_.options.mode == "online"
    assert paper.trainer_.optimisers[0].param_groups[0]["lr"] == 1e-4
    given = estimator(preset="paper", learning_rate=0.5, embedding_dim=4, beta=2.0, max_iter=1).fit(planted())
    assert given.trainer_.optimisers[0].param_groups[0]["lr"] == 0.5
    assert given.posterior_.topic_embeddings().shape == (3, 4)
    assert given.model_.beta == 2.0


def test_a_document_has_the_same_answer_alone_and_in_any_order(fitted):
    counts = planted(20, seed=2)
    whole = fitted.transform(counts)
    order = np.random.default_rng(0).permutation(20)
    np.testing.assert_allclose(fitted.transform(counts[order]), whole[order], atol=1e-5)
    alone = np.concatenate([fitted.transform(counts[n]) for n in range(20)])
    np.testing.assert_allclose(alone, whole, atol=1e-5)


def test_the_same_random_state_gives_the_same_numbers():
    first, same, other = (estimator(max_iter=2, random_state=seed).fit(planted()) for seed in (3, 3, 4))
    assert first.history_ == same.history_
    assert (first.transform(planted()) == same.transform(planted())).all()
    assert first.history_ != other.history_
    assert (estimator(max_iter=2, random_state=3).fit_transform(planted()) == first.transform(planted())).all()


def test_nothing_global_changes_and_the_model_is_in_float32():
    state, random = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    fitted = estimator(max_iter=1).fit(planted())
    fitted.transform(planted())
    fitted.partial_fit(planted())
    fitted.perplexity(planted())
    assert len(list(pyro.get_param_store().keys())) == 0
    assert pyro.settings.get("module_local_params") is False
    assert torch.get_default_dtype() == torch.float64
    assert torch.equal(state, torch.get_rng_state())
    assert (random == np.random.get_state()[1]).all()  # noqa: NPY002
    parts = (*fitted.model_.parameters(), *fitted.guide_.parameters(), fitted.guide_.topics.gamma)
    assert {part.dtype for part in parts} == {torch.float32}


def test_perplexity_is_document_completion(fitted):
    counts = planted(seed=1)
    split = Corpus(counts, tuple(f"w{d}" for d in range(18))).split_tokens(0.5, seed=7)
    pi, theta, held = fitted.transform(split.observed.counts), fitted.components_, split.held_out.counts.toarray()
    by_hand = np.exp(-(held * np.log(pi @ theta)).sum() / held.sum())
    assert fitted.perplexity(counts, observed=0.5, seed=7) == pytest.approx(by_hand, rel=1e-9)
    assert completion_perplexity(pi, theta, held) == pytest.approx(by_hand, rel=1e-9)
    assert fitted.score(counts) == pytest.approx(-np.log(fitted.perplexity(counts)))
    assert fitted.perplexity(counts) < 18


def test_documents_without_a_known_word_get_the_prior_and_are_counted(fitted):
    counts = sparse.vstack([planted(3), sparse.csr_matrix((2, 18))]).tocsr()
    with pytest.warns(UserWarning, match="2 of 5 documents have no known word"):
        proportions = fitted.transform(counts)
    np.testing.assert_allclose(proportions[3], proportions[4])
    np.testing.assert_allclose(proportions.sum(1), 1)
    hdp = estimator(model="hdp", max_iter=1).fit(planted())
    with pytest.warns(UserWarning, match="1 of 1 documents"):
        prior = hdp.transform(np.zeros((1, 18)))
    weights = hdp.model_.concentration(hdp.guide_.claim("V").value()).detach().numpy()
    np.testing.assert_allclose(prior[0], weights / weights.sum(), rtol=1e-5)


def test_a_pipeline_and_a_grid_search():
    words = ["ash oak elm fir", "cod eel ray ide", "gin rum ale rye"]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words[n % 3].split(), 12)) for n in range(60)]
    pipeline = make_pipeline(CountVectorizer(), estimator(max_iter=2, model="hdp"))
    assert pipeline.fit_transform(texts).shape == (60, 3)
    with pytest.warns(UserWarning, match="1 of 2 documents"):
        pipeline.transform(["oak oak elm", "bach"])
    assert pipeline.score(texts) < 0
    search = GridSearchCV(pipeline, {"prmetopicmodel__n_components": [2, 3]}, cv=2).fit(texts)
    assert search.best_params_ == {"prmetopicmodel__n_components": 3}


def test_partial_fit_learns_from_a_stream():
    stream = estimator(total_samples=900)
    held = planted(seed=99)
    scores = [stream.partial_fit(planted(seed=seed)).score(held) for seed in range(10)]
    assert stream.model_.num_documents == 900
    assert stream.trainer_.steps == 30
    assert len(stream.history_) == stream.n_iter_ == 10
    assert scores[-1] > scores[0] - 0.01
    order = stream.components_.argmax(1) // 6
    assert sorted(order) == [0, 1, 2]
    again = estimator(total_samples=900)
    for seed in range(10):
        again.partial_fit(planted(seed=seed))
    assert (again.components_ == stream.components_).all()


def test_a_stream_keeps_its_last_records(monkeypatch):
    monkeypatch.setattr("pyro_prme.estimator._KEPT", 3)
    stream = estimator(total_samples=900)
    for seed in range(5):
        stream.partial_fit(planted(seed=seed))
    assert [record["epoch"] for record in stream.history_] == [3, 4, 5]
    assert stream.n_iter_ == 5


def test_a_stream_may_stand_for_the_documents_seen():
    stream = estimator(total_samples="seen").partial_fit(planted())
    first = estimator(total_samples=90).partial_fit(planted())
    assert (stream.components_ == first.components_).all()
    first.model_.num_documents = 150
    for one in (stream, first):
        one.partial_fit(planted(60, seed=1))
    assert stream.model_.num_documents == 150
    assert (stream.components_ == first.components_).all()
    again = pickle.loads(pickle.dumps(stream))
    for one in (stream, again):
        one.partial_fit(planted(30, seed=2))
        assert one.model_.num_documents == 180
    assert (stream.components_ == again.components_).all()


def test_usage_over_time_shows_topics_that_come_and_go():
    stream, only = estimator(total_samples="seen", decay=0.55), sparse.csr_matrix(planted(60).toarray())
    for k in (0, 1):
        block = np.zeros((60, 18), int)
        block[:, 6 * k : 6 * k + 6] = only[:, 6 * k : 6 * k + 6].toarray() + 1
        stream.partial_fit(planted()).partial_fit(sparse.csr_matrix(block))
    usage = stream.usage_over_time()
    assert list(usage.index) == [90, 150, 240, 300]
    np.testing.assert_allclose(usage.sum(axis=1), 1)
    largest = [int(stream.components_[:, 6 * k : 6 * k + 6].sum(1).argmax()) for k in (0, 1)]
    assert usage.loc[150].idxmax() == largest[0]
    assert usage.loc[300].idxmax() == largest[1]
    assert usage.loc[[150, 300]].max().min() < 0.2
    with pytest.raises(ValueError, match="give its parts to partial_fit"):
        estimator(max_iter=1).fit(planted()).usage_over_time()


def test_a_large_matrix_is_learned_online_unless_batch_is_asked_for(monkeypatch):
    assert estimator(max_iter=None).max_iter is None
    monkeypatch.setattr("pyro_prme.inference.large.LARGE", 50)
    online = estimator(max_iter=None).fit(planted())
    assert online.n_iter_ == 1
    assert online.trainer_.options.mode == "online"
    assert online.trainer_.options.decay == ONLINE["decay"]
    assert estimator(decay=0.9).fit(planted()).trainer_.options.decay == 0.9
    assert estimator(mode="batch").fit(planted()).trainer_.options.mode == "batch"
    monkeypatch.setattr("pyro_prme.inference.large.LARGE", 90)
    assert estimator().fit(planted()).trainer_.options.mode == "batch"


def test_partial_fit_goes_on_after_fit():
    fitted = estimator().fit(planted())
    before = fitted.components_
    fitted.partial_fit(planted(seed=1))
    assert 0 < np.abs(fitted.components_ - before).max() < 0.05
    with pytest.raises(ValueError, match="X has 91 documents, more than the 90 that the stream stands for"):
        fitted.partial_fit(planted(91))


def test_pickles_and_clones():
    fitted = estimator(max_iter=2).fit(planted())
    copy = pickle.loads(pickle.dumps(fitted))
    assert (copy.transform(planted(seed=1)) == fitted.transform(planted(seed=1))).all()
    assert copy.history_ == fitted.history_
    assert not hasattr(copy, "trainer_")
    stream = estimator(total_samples=90).partial_fit(planted())
    resumed = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(stream))))
    for one in (stream, resumed):
        one.partial_fit(planted(seed=1))
    assert (stream.components_ == resumed.components_).all()
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "components_")
    with pytest.raises(NotFittedError):
        pickle.loads(pickle.dumps(fresh)).transform(planted())


def test_empty_documents_are_left_out_of_training():
    """Also where a whole batch of them would have come."""
    gaps = sparse.vstack([row for n in range(90) for row in (planted()[n], sparse.csr_matrix((1, 18)))])
    with_gaps, without = (estimator(max_iter=2).fit(counts) for counts in (gaps, planted()))
    assert with_gaps.model_.num_documents == 90
    assert (with_gaps.components_ == without.components_).all()
    with pytest.raises(ValueError, match="All documents of X are empty"):
        without.partial_fit(np.zeros((2, 18)))


def test_the_words_names_are_kept_and_compared():
    words = tuple(f"w{d}" for d in range(18))
    corpus = Corpus(planted(), words)
    fitted = estimator(max_iter=1).fit(corpus)
    assert tuple(fitted.feature_names_in_) == words
    assert list(fitted.posterior_.topics()["word"].values) == list(words)
    frame = pd.DataFrame(planted().toarray(), columns=words)
    np.testing.assert_array_equal(fitted.transform(frame), fitted.transform(corpus))
    with pytest.raises(ValueError, match="other words"):
        fitted.transform(Corpus(planted(), words[::-1]))
    nameless = estimator(max_iter=1).fit(planted())
    np.testing.assert_array_equal(nameless.transform(corpus), fitted.transform(corpus))
    with pytest.raises(ValueError, match="other words"):
        nameless.transform(Corpus(planted()[:, :5], words[:5]))


def test_the_counts_of_a_corpus_after_a_fit_to_the_corpus_give_no_warning():
    corpus = Corpus(planted(), tuple(f"w{d}" for d in range(18)))
    fitted = estimator(max_iter=1).fit(corpus)
    for counts in (corpus.counts, corpus.counts.toarray()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(fitted.transform(counts), fitted.transform(corpus))
    frame = pd.DataFrame(planted().toarray(), columns=corpus.vocabulary)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        fitted.fit(frame).transform(corpus.counts)
    other = pd.DataFrame(planted().toarray(), columns=corpus.vocabulary[::-1])
    with pytest.raises(ValueError, match="feature names"):
        estimator(max_iter=1).fit(corpus).transform(other)


TEXTS = ["the cat sat", "a dog ran"]


@pytest.mark.parametrize("texts", [TEXTS, tuple(TEXTS), np.array(TEXTS), pd.Series(TEXTS), [["cat"], ["dog"]], "a cat"])
def test_texts_say_what_to_call(fitted, texts):
    for ask in (estimator().fit, estimator().partial_fit, fitted.transform, fitted.posterior_.proportions):
        with pytest.raises(ValueError, match=r"The documents are texts, .* make them with Corpus\.from_texts\."):
            ask(texts)


def test_pairs_and_splits_of_corpora_say_what_to_give(fitted):
    corpus = Corpus(planted(), tuple(f"w{d}" for d in range(18)))
    for ask in (estimator().fit, fitted.transform, fitted.perplexity, fitted.posterior_.topic_correlations):
        for pair in (corpus.align(corpus.vocabulary), corpus.split(0.5)):
            with pytest.raises(
                ValueError, match=r"a tuple that begins with a corpus, as Corpus\.align and Corpus\.split"
            ):
                ask(pair)
        with pytest.raises(ValueError, match="a token split, which has two corpora: give its observed"):
            ask(corpus.split_tokens())


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (None, "of the type NoneType, and a matrix of counts is needed"),
        (3, "of the type int"),
        ({"oak": 1}, "of the type dict"),
        ({1, 2}, "of the type set"),
        (iter([[1, 2]]), "of the type list_iterator"),
        (torch.eye(18).to_sparse(), "a sparse tensor, and a scipy.sparse matrix is needed"),
        (np.ones(18), "one row of numbers, and a matrix is needed"),
        (sparse.csr_matrix(np.eye(18) * 1j), "complex numbers, and counts are needed"),
    ],
)
def test_other_things_than_documents_are_refused_at_every_door(fitted, documents, message):
    posterior = fitted.posterior_
    for door in (estimator().fit, estimator().partial_fit, fitted.transform, fitted.score, posterior.proportions):
        with pytest.raises(ValueError, match=message) as caught:
            door(documents)
        assert "\n" not in str(caught.value)


def test_callback_and_progress(capsys):
    seen = []
    fitted = estimator(max_iter=3, verbose=1, callback=lambda trainer, record: seen.append(record["epoch"]))
    fitted.fit(planted())
    assert seen == [1, 2, 3]
    assert "3/3" in capsys.readouterr().err
    estimator(max_iter=1).fit(planted())
    assert capsys.readouterr().err == ""


def with_value(value):
    counts = planted().toarray().astype(float)
    counts[2, 4] = value
    return counts


BAD_INPUT = {
    "NaN": (lambda: with_value(np.nan), {}, "document 2 has NaN for word 4, and counts are whole numbers"),
    "infinite": (lambda: with_value(np.inf), {}, "document 2 has inf for word 4"),
    "negative": (lambda: with_value(-1), {}, "Negative values in data: document 2 has -1 for word 4"),
    "not whole": (lambda: with_value(0.5), {}, "document 2 has 0.5 for word 4"),
    "more topics than documents": (planted, {"n_components": 91}, "n_components=91, than documents with words"),
    "more topics than words": (planted, {"n_components": 19}, "n_components=19, than distinct words in X"),
    "more topics than words used": (lambda: planted()[:, [0, 1]].multiply([1, 0]), {}, "n_features=2: 1"),
    "one document": (lambda: planted(1), {}, "n_samples=1."),
    "one word": (lambda: np.ones((9, 1)), {}, "n_features=1: 1"),
    "no documents": (lambda: np.zeros((0, 18)), {}, "0 sample"),
    "empty documents": (lambda: np.zeros((9, 18)), {}, "All documents of X are empty"),
    "one topic": (planted, {"n_components": 1}, "n_components is 1: it must be a whole number of at least 2"),
    "no epochs": (planted, {"max_iter": 0}, "max_iter is 0"),
    "a float of topics": (planted, {"n_components": 2.5}, "n_components is 2.5"),
    "unknown model": (planted, {"model": "lda2"}, "model is 'lda2': it must be one of"),
    "unknown preset": (
        planted,
        {"preset": "best"},
        "preset is 'best': it must be one of default, dirichlet, predictive, paper",
    ),
    "unknown mode": (planted, {"mode": "fast"}, "mode is 'fast'"),
    "unknown start": (planted, {"start": "best"}, "start is 'best'"),
    "beta of 0": (planted, {"beta": 0.0}, "beta is 0.0: it must be a finite number above 0"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gets_one_sentence(case):
    make, settings, message = BAD_INPUT[case]
    one = estimator(**settings)
    with pytest.raises(ValueError, match=r"\A[^\n]*\Z") as error:
        one.fit(make())
    assert message in str(error.value)
    with pytest.raises(NotFittedError):
        one.transform(planted())


def test_bad_input_of_a_fitted_model(fitted):
    with pytest.raises(ValueError, match="X has 17 features, but PRMETopicModel is expecting 18"):
        fitted.transform(planted()[:, :17])
    with pytest.raises(ValueError, match="document 2 has NaN for word 4"):
        fitted.transform(with_value(np.nan))
    with pytest.raises(ValueError, match="one column for each of the topics"):
        fitted.inverse_transform(np.ones((2, 4)))
    with pytest.raises(ValueError, match="X has 9 documents, more than the 8"):
        estimator(total_samples=8).partial_fit(planted(9))
    with pytest.raises(NotFittedError):
        estimator().perplexity(planted())
