"""Words of raw text."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.text import count_words, frequent_stop_words, stop_word_set


def test_words_are_lower_case_runs_of_three_or_more_letters() -> None:
    counts, words = count_words(["The THE the_cat 3cats ab2cd, Cat's", "Naïve ЖИЗНЬ 東京都"])
    assert words == ["cat", "cats", "naïve", "the", "жизнь", "東京都"]
    assert counts.toarray().tolist() == [[2, 1, 0, 3, 0, 0], [0, 0, 1, 0, 1, 1]]


def test_composed_and_decomposed_letters_are_the_same_word() -> None:
    counts, words = count_words(["cafe\u0301", "caf\u00e9"])
    assert words == ["caf\u00e9"]
    assert counts.toarray().tolist() == [[1], [1]]


def test_min_letters_sets_the_shortest_word() -> None:
    assert count_words(["a bb ccc"], min_letters=1)[1] == ["a", "bb", "ccc"]


def test_english_stop_words_are_those_of_scikit_learn() -> None:
    assert stop_word_set("english") == ENGLISH_STOP_WORDS
    assert stop_word_set(["the"]) == {"the"}
    with pytest.raises(ValueError, match="'english', not 'french'"):
        stop_word_set("french")


def test_from_texts_applies_stop_words_and_limits() -> None:
    texts = ["the cat and the dog", "the cat sat", "the bird sang cat"]
    corpus = Corpus.from_texts(texts, ["a", "b", "c"], stop_words="english", max_df=2)
    assert corpus.vocabulary == ("bird", "dog", "sang", "sat")
    assert corpus.names == ("a", "b", "c")
    assert Corpus.from_texts(texts, min_df=2).vocabulary == ("cat", "the")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "no texts"),
        (["", "1 2 3"], "Every document is empty"),
        ("one string", "one string"),
        (["good text", None], "Text 1 is a NoneType"),
    ],
)
def test_bad_texts_are_refused(texts: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Corpus.from_texts(texts)  # type: ignore[arg-type]


def test_stop_words_are_pointed_out_where_they_are_frequent() -> None:
    words = ("cat", "The", "and", "of", *(f"word{d}" for d in range(40)))
    tokens = np.array([9, 3, 8, 5, *[1] * 40])
    assert frequent_stop_words(words, tokens) == ["and", "of", "The"]
    assert frequent_stop_words(words, np.array([9, 3, 8, 0, *[1] * 40])) == []  # two may be words of the subject
    assert frequent_stop_words(words[:1], tokens[:1]) == []
