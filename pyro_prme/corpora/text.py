"""Counting words of raw text: open this to see what counts as a word when a corpus is built from texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import scipy.sparse

__all__ = ["count_words", "frequent_stop_words", "kept_words", "stop_word_set", "words_of"]

_MOST_FREQUENT = 20  # words among which a stop word is pointed out


def count_words(texts: Iterable[str], *, min_letters: int = 3) -> tuple[scipy.sparse.csr_matrix, list[str]]:
    """Count the words of each text.

    A word is a run of at least ``min_letters`` letters of any alphabet, in lower case, after Unicode composition (NFC).
    Digits, underscores and signs separate words, and so do the combining vowel signs of scripts such as Devanagari:
    for those use a tokenizer of the language and ``Corpus.from_counts``.

    Args:
        texts: one string for each document.
        min_letters: length of the shortest word.

    Returns:
        Counts, shape (documents, words), and the words in alphabetical order.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    if isinstance(texts, str):
        raise ValueError("texts is one string, and a list with one string for each document is needed.")
    documents = list(texts)
    for n, document in enumerate(documents):
        if not isinstance(document, str):
            raise ValueError(f"Text {n} is a {type(document).__name__} and not a string: decode or convert it first.")
    if not documents:
        raise ValueError("There are no texts: give at least one document.")
    vectorizer = CountVectorizer(analyzer=lambda text: words_of(text, min_letters))
    try:
        counts = vectorizer.fit_transform(documents)
    except ValueError as error:
        if "empty vocabulary" not in str(error):
            raise
        raise ValueError(
            f"Every document is empty: no text has a word of {min_letters} letters or more, so check the texts."
        ) from None
    return counts, list(vectorizer.get_feature_names_out())


def words_of(text: str, min_letters: int = 3) -> list[str]:
    """The words of a text in their order; see `count_words`."""
    return re.findall(rf"[^\W\d_]{{{min_letters},}}", unicodedata.normalize("NFC", text.lower()))


def stop_word_set(stop_words: str | Iterable[str]) -> frozenset[str]:
    """The stop words as a set; ``"english"`` stands for scikit-learn's ``ENGLISH_STOP_WORDS``."""
    if not isinstance(stop_words, str):
        return frozenset(stop_words)
    if stop_words != "english":
        raise ValueError(f"The only named stop-word list is 'english', not {stop_words!r}: give the words themselves.")
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def frequent_stop_words(words: Sequence[str], tokens: np.ndarray) -> list[str]:
    """English stop words among the twenty most frequent words, if they are at least three, most frequent first.

    Args:
        words: the D words.
        tokens: how often each occurs, shape (D,).
    """
    top = [words[d] for d in np.argsort(-tokens, kind="stable")[:_MOST_FREQUENT]]
    found = [word for word in top if word.lower() in stop_word_set("english")]
    return found if len(found) >= 3 else []


def kept_words(
    words: Sequence[str],
    frequency: np.ndarray,
    tokens: Callable[[], np.ndarray],
    documents: int,
    *,
    min_df: float,
    max_df: float,
    stop_words: frozenset[str],
    max_words: int | None,
) -> np.ndarray:
    """The positions, rising, of the words that limits leave.

    Args:
        words: all of them.
        frequency: documents that hold each.
        tokens: gives the tokens of each; asked for only where `max_words` is given.
        documents: in all.
        min_df: smallest number of documents (int), or share of them (float), that hold a word.
        max_df: largest number or share.
        stop_words: words to drop.
        max_words: of what is left, only so many with most tokens.
    """
    least, most = (limit if isinstance(limit, int | np.integer) else limit * documents for limit in (min_df, max_df))
    keep = (frequency >= least) & (frequency <= most) & np.array([word not in stop_words for word in words])
    if max_words is not None:
        keep[np.argsort(-np.where(keep, tokens(), -1), kind="stable")[max_words:]] = False
    if not keep.any():
        raise ValueError(f"None of the {len(words)} words is left: loosen min_df, max_df or the stop words.")
    return np.flatnonzero(keep)
