"""Scores, each against a calculation by hand."""

import math

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import LatentDirichletAllocation

from pyro_prme.answers import scores as evaluate
from pyro_prme.answers.scores import completion_perplexity, log_predictive, npmi_coherence, topic_diversity
from pyro_prme.corpora.corpus import Corpus

DOC_TOPIC = np.array([[3.0, 1.0], [0.0, 2.0]])
TOPIC_WORD = np.array([[2.0, 2.0, 0.0], [1.0, 1.0, 8.0]])
HELD_OUT = np.array([[2, 0, 1], [0, 0, 3]])


def test_perplexity_by_hand() -> None:
    p_word_0 = 0.75 * 0.5 + 0.25 * 0.1
    p_word_2 = 0.75 * 0.0 + 0.25 * 0.8
    by_hand = [2 * math.log(p_word_0) + math.log(p_word_2), 3 * math.log(0.8)]
    assert log_predictive(DOC_TOPIC, TOPIC_WORD, HELD_OUT) == pytest.approx(by_hand, rel=1e-14)
    assert completion_perplexity(DOC_TOPIC, TOPIC_WORD, HELD_OUT) == pytest.approx(
        math.exp(-sum(by_hand) / 6), rel=1e-14
    )


def test_held_out_may_be_a_corpus_or_any_matrix() -> None:
    expected = completion_perplexity(DOC_TOPIC, TOPIC_WORD, HELD_OUT)
    for held_out in (Corpus(HELD_OUT, ("a", "b", "c")), scipy.sparse.csc_matrix(HELD_OUT), HELD_OUT.astype(float)):
        assert completion_perplexity(DOC_TOPIC, TOPIC_WORD, held_out) == expected


def test_a_uniform_model_has_the_vocabulary_as_its_perplexity() -> None:
    assert completion_perplexity(np.ones((2, 5)), np.full((5, 3), 7.0), HELD_OUT) == pytest.approx(3.0, rel=1e-14)


def test_blocks_do_not_change_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = rng.gamma(1.0, size=(20, 4)), rng.gamma(1.0, size=(4, 15)), rng.poisson(1.0, size=(20, 15))
    dense = arrays[0] / arrays[0].sum(1, keepdims=True) @ (arrays[1] / arrays[1].sum(1, keepdims=True))
    assert log_predictive(*arrays) == pytest.approx((arrays[2] * np.log(dense)).sum(axis=1), rel=1e-13)
    whole = log_predictive(*arrays)
    monkeypatch.setattr(evaluate, "_BLOCK", 9)
    assert np.array_equal(log_predictive(*arrays), whole)


def test_an_impossible_token_makes_perplexity_infinite() -> None:
    held_out = [[0, 0, 0], [1, 0, 0]]
    assert completion_perplexity([[1, 0], [0, 1]], [[1, 0, 0], [0, 1, 0]], held_out) == math.inf
    assert log_predictive([[1, 0], [0, 1]], [[1, 0, 0], [0, 1, 0]], held_out).tolist() == [0.0, -math.inf]


def test_very_large_and_very_small_weights_are_fine() -> None:
    expected = completion_perplexity(DOC_TOPIC, TOPIC_WORD, HELD_OUT)
    assert completion_perplexity(DOC_TOPIC * 1e307, TOPIC_WORD * 1e-300, HELD_OUT) == pytest.approx(expected, rel=1e-12)


def test_scikit_learn_lda_is_scored_by_the_same_function() -> None:
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(40, 0.1), size=3)
    proportions = rng.dirichlet(np.full(3, 0.2), size=150)
    counts = np.array([rng.multinomial(60, row) for row in proportions @ topics])
    train, test = Corpus(counts, tuple(f"w{d}" for d in range(40))).split(50)
    split = test.split_tokens(0.9)
    lda = LatentDirichletAllocation(3, max_iter=20, random_state=0).fit(train.counts)
    fitted = completion_perplexity(lda.transform(split.observed.counts), lda.components_, split.held_out)
    kept = [int(name) for name in split.held_out.names]
    truth = completion_perplexity(proportions[kept], topics, split.held_out)
    assert 0.9 * truth < fitted < 1.25 * truth
    assert fitted < 0.6 * completion_perplexity(np.ones((50, 1)), np.ones((1, 40)), split.held_out)


@pytest.mark.parametrize(
    ("doc_topic", "topic_word", "held_out", "message"),
    [
        (DOC_TOPIC[:1], TOPIC_WORD, HELD_OUT, r"doc_topic has shape \(1, 2\)"),
        (DOC_TOPIC, TOPIC_WORD[:1], HELD_OUT, r"topic_word \(1, 3\)"),
        (DOC_TOPIC, TOPIC_WORD[:, :2], HELD_OUT, r"held_out \(2, 3\)"),
        (DOC_TOPIC[0], TOPIC_WORD, HELD_OUT, r"doc_topic has shape \(2,\)"),
        (DOC_TOPIC, np.zeros((0, 3)), HELD_OUT, r"topic_word has shape \(0, 3\)"),
        ([[np.nan, 1], [1, 1]], TOPIC_WORD, HELD_OUT, r"doc_topic\[0, 0\] is nan"),
        (DOC_TOPIC, [[1, 1, 1], [1, np.inf, 1]], HELD_OUT, r"topic_word\[1, 1\] is inf"),
        (DOC_TOPIC, -TOPIC_WORD, HELD_OUT, r"topic_word\[0, 0\] is -2"),
        ([[1, 1], [0, 0]], TOPIC_WORD, HELD_OUT, "doc_topic is zero for document 1"),
        (DOC_TOPIC, [[1, 1, 1], [0, 0, 0]], HELD_OUT, "topic_word is zero for topic 1"),
        ([["a", "b"], ["c", "d"]], TOPIC_WORD, HELD_OUT, "doc_topic is not an array of numbers"),
        (DOC_TOPIC, TOPIC_WORD, HELD_OUT * 0, "no held-out tokens"),
        (DOC_TOPIC, TOPIC_WORD, [[np.nan, 1, 1], [0, 0, 0]], "count nan"),
        (DOC_TOPIC, TOPIC_WORD, HELD_OUT[0], "held_out has 1 dimensions"),
    ],
)
def test_bad_arrays_are_refused(doc_topic: object, topic_word: object, held_out: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        completion_perplexity(doc_topic, topic_word, held_out)


@pytest.fixture
def small() -> Corpus:
    documents = [[1, 1, 0, 1, 0], [2, 1, 0, 1, 0], [0, 0, 3, 1, 0], [1, 0, 1, 1, 0]]
    return Corpus(documents, ("ant", "bee", "cat", "dog", "elk"))


def test_npmi_by_hand(small: Corpus) -> None:
    ant_bee = math.log((2 / 4) / (3 / 4 * 2 / 4)) / -math.log(2 / 4)
    ant_cat = math.log((1 / 4) / (3 / 4 * 2 / 4)) / -math.log(1 / 4)
    bee_cat = -1.0
    topic = [[5, 4, 3, 0, 0]]
    assert npmi_coherence(topic, small, top=3) == pytest.approx([(ant_bee + ant_cat + bee_cat) / 3], rel=1e-14)
    assert npmi_coherence([["ant", "bee", "elk"], ["cat", "ant"]], small, top=2) == pytest.approx([ant_bee, ant_cat])


def test_npmi_at_its_ends(small: Corpus) -> None:
    same = Corpus([[1, 1, 0], [1, 1, 0], [0, 0, 1]], ("ant", "bee", "cat"))
    assert npmi_coherence([["ant", "bee"], ["ant", "cat"]], same, top=2) == pytest.approx([1.0, -1.0])
    assert npmi_coherence([["dog", "elk"]], small, top=2).tolist() == [-1.0]
    everywhere = Corpus([[1, 1], [1, 1]], ("ant", "bee"))
    assert npmi_coherence([["ant", "bee"]], everywhere, top=2).tolist() == [1.0]


@pytest.mark.parametrize(
    ("topics", "top", "message"),
    [
        ([["ant", "fox"]], 2, "Topic 0 has the word 'fox'"),
        ([["ant", "bee"], ["ant"]], 2, "Topic 1 has 1 words and top is 2"),
        ([["ant", "bee"]], 1, "top is 1: it must be a whole number of at least 2"),
        (np.ones((2, 4)), 2, "topic_word has 4 columns and the corpus 5 words"),
        (np.ones((2, 5)), 6, "top is 6"),
        (np.full((2, 5), np.nan), 2, r"topic_word\[0, 0\] is nan"),
        ([], 2, "shape"),
    ],
)
def test_bad_topics_are_refused(small: Corpus, topics: object, top: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        npmi_coherence(topics, small, top)


def test_diversity_by_hand() -> None:
    topic_word = [[9, 8, 1, 0], [9, 1, 8, 0], [0, 0, 8, 9]]
    assert topic_diversity(topic_word, top=2) == 4 / 6
    assert topic_diversity(topic_word[:1], top=2) == 1.0
    with pytest.raises(ValueError, match="top is 25: it must be a whole number from 1 to 4"):
        topic_diversity(topic_word)
