"""New words go to spare columns, always to the same."""

import numpy as np
import pytest

import pyro_prme as prme


def of_texts(*texts: str) -> prme.Corpus:
    return prme.Corpus.from_texts(texts)


def test_known_words_keep_their_columns_and_new_ones_share_the_spare() -> None:
    words = prme.OpenWords(["apple", "pear"], spare=3)
    first = words.align(of_texts("pear apple pear", "quince"))
    assert first.vocabulary == ("apple", "pear", "(new word 0)", "(new word 1)", "(new word 2)")
    assert first.counts.toarray()[0].tolist() == [1, 2, 0, 0, 0]
    second = words.align(of_texts("quince quince medlar sloe damson apple"))
    column = words.column("quince")
    assert 2 <= column < 5
    assert first.counts.toarray()[1].tolist() == np.eye(5, dtype=int)[column].tolist()
    assert second.num_tokens == 6
    assert second.counts.toarray()[0, column] >= 2
    named = {word: d for d, found in words.found.items() for word in found}
    assert named == {word: words.column(word) - 2 for word in ("quince", "medlar", "sloe", "damson")}
    again = prme.OpenWords(["apple", "pear"], spare=3)  # in another process too
    assert [again.column(word) for word in ("quince", "medlar")] == [column, words.column("medlar")]


def test_a_stream_with_new_words_is_learned() -> None:
    words, model = prme.OpenWords(["cat", "dog", "cow"], spare=4), prme.PRMETopicModel(2, total_samples="seen")
    model.partial_fit(words.align(of_texts(*["cat dog cow cat"] * 5, *["dog cow"] * 5)))
    model.partial_fit(words.align(of_texts(*["zebra zebra cat"] * 5)))
    assert model.components_.shape == (2, 7)
    assert model.components_[:, words.column("zebra")].max() > 2 * model.components_[:, 3:].min()


def test_no_spare_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="spare is 0"):
        prme.OpenWords(["cat"], spare=0)
