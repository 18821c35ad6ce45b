"""The corpus: what it refuses, how it is cut, and the split of tokens."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.feature_extraction.text import CountVectorizer

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.splits import TokenSplit


@pytest.fixture
def corpus() -> Corpus:
    return Corpus([[1, 2, 0], [0, 5, 0], [3, 0, 1], [0, 0, 0]], ("ant", "bee", "cat"), ("a", "b", "c", "d"))


def test_counts_are_canonical_and_read_only() -> None:
    given_counts = scipy.sparse.coo_array(([1.0, 2.0, 0.0, 4.0], ([0, 0, 1, 1], [1, 1, 0, 2])), shape=(2, 3)).tocsr()
    given_counts.indices[-1] = 2
    corpus = Corpus(given_counts, ("ant", "bee", "cat"))
    assert corpus.counts.toarray().tolist() == [[0, 3, 0], [0, 0, 4]]
    assert corpus.counts.dtype == np.int32
    assert corpus.counts.indices.dtype == np.int32
    assert corpus.nnz == 2
    assert corpus.counts.has_canonical_format
    for array in (corpus.counts.data, corpus.counts.indices, corpus.counts.indptr, corpus.lengths):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7
    with pytest.raises(dataclasses.FrozenInstanceError):
        corpus.names = ("x",)  # type: ignore[misc]
    given_counts.data[:] = 9
    assert corpus.num_tokens == 7


def test_sizes_summary_and_repr(corpus: Corpus) -> None:
    assert (corpus.num_documents, corpus.vocab_size, corpus.num_tokens, corpus.nnz) == (4, 3, 12, 5)
    assert len(corpus) == 4
    assert corpus.lengths.tolist() == [3, 5, 4, 0]
    assert repr(corpus) == "Corpus(4 documents, 3 words, 12 tokens; ant, bee, cat)"
    summary = corpus.summary()
    assert (summary["empty_documents"], summary["words_used"], summary["mean_length"]) == (1, 3, 3.0)
    assert (summary["shortest_document"], summary["longest_document"]) == (0, 5)


WORDS = ("ant", "bee")


@pytest.mark.parametrize(
    ("counts", "words", "names", "message"),
    [
        ([[1, np.nan]], WORDS, ("doc",), r"Document 0 \('doc'\) has the count nan for word 1 \('bee'\)"),
        ([[1, 0], [-2, 0]], WORDS, (), r"Document 1 \('1'\) has the count -2 for word 0 \('ant'\)"),
        ([[1, 0.5]], WORDS, (), "count 0.5 for word 1 .*whole numbers"),
        ([[1, np.inf]], WORDS, (), "count inf"),
        ([[1, 2**31]], WORDS, (), "from 0 to 2147483647"),
        ([[1, 2]], ("ant",), (), "vocabulary has 1 words and is shorter than the 2 columns"),
        ([[1, 2]], ("ant", "bee", "cat"), (), "vocabulary has 3 words and is longer than the 2 columns"),
        ([[1, 2]], ("ant", "ant"), (), "position 1 .*'ant' is also at position 0"),
        ([[1, 2]], ("ant", " "), (), "position 1 .*blank"),
        ([[1, 2]], ("ant", "b\nc"), (), "position 1 .*line break"),
        ([[1, 2]], WORDS, ("a\nb",), "Document names, position 0 .*line break"),
        ([[1, 2]], WORDS, ("a", "b"), "2 names for 1 documents"),
        (np.zeros((0, 2)), WORDS, (), "no documents"),
        (np.zeros((2, 0)), (), (), "no words"),
        ([1, 2], WORDS, (), "1 dimensions"),
        ([[1, 2], [3]], WORDS, (), "differ in length"),
        ([["x", "y"]], WORDS, (), "must be numbers"),
        (np.array([[1, None]]), WORDS, (), "count nan for word 1"),
        (np.array([[1, "x"]], object), WORDS, (), "no good matrix of numbers"),
        (np.array([[1j, 2]]), WORDS, (), "must be numbers"),
    ],
)
def test_bad_counts_are_refused(counts: object, words: tuple, names: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Corpus(counts, words, names)


def test_indices_outside_the_matrix_are_refused() -> None:
    matrix = scipy.sparse.csr_array(np.eye(2))
    matrix.indices[0] = 7
    with pytest.raises(ValueError, match="matrix is broken: it has an entry in column 7"):
        Corpus(matrix, WORDS)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 3), ("b", "c")),
        ([2, 0], ("c", "a")),
        (np.array([True, False, False, True]), ("a", "d")),
        (-1, ("d",)),
        ([0, 0], ("a", "a")),
    ],
)
def test_rows_are_picked_in_order(corpus: Corpus, rows: object, expected: tuple) -> None:
    part = corpus[rows]
    assert part.names == expected
    picked = ["abcd".index(name) for name in expected]
    assert np.array_equal(part.counts.toarray(), corpus.counts.toarray()[picked])


def test_picking_nothing_or_too_much_is_refused(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="no documents"):
        corpus[[]]
    with pytest.raises(IndexError):
        corpus[4]


def test_equality_sees_counts_words_and_names(corpus: Corpus) -> None:
    assert corpus == corpus[:]
    assert corpus != corpus[::-1]
    assert corpus != Corpus(corpus.counts, ("x", "y", "z"), corpus.names)
    assert corpus != Corpus(corpus.counts * 2, corpus.vocabulary, corpus.names)
    assert corpus != "corpus"


def test_split_parts_the_documents() -> None:
    corpus = Corpus(np.arange(1, 21).reshape(10, 2), WORDS)
    train, test = corpus.split(3, seed=2019)
    first = np.sort(np.random.default_rng(2019).permutation(10)[:3])
    assert test.names == tuple(str(n) for n in first)
    assert sorted(train.names + test.names) == [str(n) for n in range(10)]
    assert corpus.split(0.3, seed=2019)[1] == test
    for bad in (0, 10, 1.0, 0.01):
        with pytest.raises(ValueError, match="at least one for testing"):
            corpus.split(bad)


def test_token_split_is_the_one_of_the_recipe() -> None:
    rng = np.random.default_rng(0)
    corpus = Corpus(rng.poisson(0.7, (30, 12)), [f"w{d}" for d in range(12)])
    split = corpus.split_tokens(0.9, seed=4)
    generator = np.random.default_rng(4)
    expected = []
    for row in corpus.counts.toarray():
        tokens = np.repeat(np.arange(12), row)
        if tokens.size > 1:
            held_out = generator.permutation(tokens)[: max(1, round(0.1 * tokens.size))]
            expected.append(np.bincount(held_out, minlength=12))
    assert np.array_equal(split.held_out.counts.toarray(), expected)


@pytest.mark.parametrize(("observed", "held_out"), [(0.9, 2), (0.5, 8), (0.1, 14)])
def test_fifteen_tokens_round_as_the_text_says(observed: float, held_out: int) -> None:
    assert Corpus([[15]], ("ant",)).split_tokens(observed).held_out.num_tokens == held_out


def test_two_tokens_may_leave_none_observed() -> None:
    split = Corpus([[2, 0], [1, 0], [0, 0], [3, 3]], WORDS).split_tokens(0.1)
    assert split.documents.tolist() == [0, 3]
    assert split.observed.lengths.tolist() == [0, 1]
    assert split.held_out.lengths.tolist() == [2, 5]


@settings(deadline=None, max_examples=40)
@given(
    counts=hnp.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(0, 9)),
    observed=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
)
def test_token_split_keeps_every_token(counts: np.ndarray, observed: float, seed: int) -> None:
    corpus = Corpus(counts, [f"w{d}" for d in range(counts.shape[1])])
    keep = counts.sum(axis=1) >= 2
    if not keep.any():
        with pytest.raises(ValueError, match="No document has two tokens"):
            corpus.split_tokens(observed, seed)
        return
    split = corpus.split_tokens(observed, seed)
    assert np.array_equal(split.documents, np.flatnonzero(keep))
    assert np.array_equal((split.observed.counts + split.held_out.counts).toarray(), counts[keep])
    assert split.held_out.lengths.min() >= 1
    assert split.observed.names == split.held_out.names == corpus[keep].names


def test_token_split_is_saved_and_read_back(corpus: Corpus, tmp_path: Path) -> None:
    split = corpus.split_tokens(0.5, seed=1)
    split.save(tmp_path / "split.npz")
    again = TokenSplit.load(tmp_path / "split.npz")
    assert again.observed == split.observed
    assert again.held_out == split.held_out
    assert np.array_equal(again.documents, split.documents)
    assert [path.name for path in tmp_path.iterdir()] == ["split.npz"]


def test_a_broken_token_split_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "split.npz"
    with pytest.raises(ValueError, match="cannot be read"):
        TokenSplit.load(path)
    np.savez(path, vocabulary=np.array(["a"]))
    with pytest.raises(ValueError, match="lacks the array 'names'"):
        TokenSplit.load(path)
    corpus.split_tokens(0.5).save(path)
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "documents": np.arange(9)})
    with pytest.raises(ValueError, match="one row for each"):
        TokenSplit.load(path)
    np.savez(path, **{**arrays, "vocabulary": np.array(["a"])})
    with pytest.raises(ValueError, match=r"split\.npz: The vocabulary has 1 words"):
        TokenSplit.load(path)


def test_observed_must_be_a_fraction(corpus: Corpus) -> None:
    for bad in (0, 1, 90, float("nan")):
        with pytest.raises(ValueError, match=r"observed is .*: it must be a finite number above 0 and below 1"):
            corpus.split_tokens(bad)


def test_restrict_drops_words_and_keeps_documents(corpus: Corpus) -> None:
    assert corpus.restrict(min_df=2).vocabulary == ("ant", "bee")
    assert corpus.restrict(max_df=0.25).vocabulary == ("cat",)
    assert corpus.restrict(stop_words=["bee"]).lengths.tolist() == [1, 0, 4, 0]
    assert corpus.restrict(max_words=1).vocabulary == ("bee",)
    assert corpus.restrict(max_words=2, stop_words=["bee"]).vocabulary == ("ant", "cat")
    assert corpus.restrict() == corpus
    with pytest.raises(ValueError, match="None of the 3 words is left"):
        corpus.restrict(min_df=5)


def test_align_reorders_and_counts_what_it_drops(corpus: Corpus) -> None:
    aligned, dropped = corpus.align(("cat", "new", "bee"))
    assert aligned.counts.toarray().tolist() == [[0, 0, 2], [0, 0, 5], [1, 0, 0], [0, 0, 0]]
    assert aligned.names == corpus.names
    assert dropped == 4
    assert corpus.align(corpus.vocabulary) == (corpus, 0)
    assert corpus.align(("x",))[1] == corpus.num_tokens
    with pytest.raises(ValueError, match="also at position 0"):
        corpus.align(("ant", "ant"))


def test_from_counts_takes_count_vectorizer_output() -> None:
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(["zebra ant zebra", "bee ant"])
    corpus = Corpus.from_counts(counts, vectorizer.get_feature_names_out())
    assert corpus.vocabulary == ("ant", "bee", "zebra")
    assert corpus.counts.toarray().tolist() == [[1, 0, 2], [1, 1, 0]]
    assert Corpus.from_counts(counts, vectorizer.vocabulary_) == corpus
    with pytest.raises(ValueError, match="columns 0, 1, 2"):
        Corpus.from_counts(counts, {"ant": 1, "bee": 2, "zebra": 3})


def test_from_gensim_takes_lists_of_pairs() -> None:
    corpus = Corpus.from_gensim([[(0, 2), (2, 1)], []], {0: "ant", 1: "bee", 2: "cat"})
    assert corpus.counts.toarray().tolist() == [[2, 0, 1], [0, 0, 0]]
    assert Corpus.from_gensim([[(0, 2), (2, 1)], []], ["ant", "bee", "cat"]) == corpus


@pytest.mark.parametrize(
    ("documents", "id2word", "message"),
    [
        ([[(3, 1)]], {0: "ant"}, "Document 0 has word id 3"),
        ([[(-1, 1)]], {0: "ant"}, "Document 0 has word id -1"),
        ([[(0, 1)], [5]], {0: "ant"}, "Document 1 holds 5"),
        ([[("x", 1)]], {0: "ant"}, "a pair"),
        ([[(0, 1)]], {0: "ant", 5: "bee"}, "no word for id 1"),
        ([[(0, 0.5)]], {0: "ant"}, "count 0.5"),
        ([], {0: "ant"}, "no documents"),
    ],
)
def test_bad_gensim_lists_are_refused(documents: list, id2word: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Corpus.from_gensim(documents, id2word)


def test_from_frame_takes_wide_sparse_and_long_frames() -> None:
    wide = pd.DataFrame({"ant": [1, 0], "bee": [2, 3]}, index=["x", "y"])
    corpus = Corpus.from_frame(wide)
    assert (corpus.names, corpus.vocabulary) == (("x", "y"), WORDS)
    assert Corpus.from_frame(wide.astype(pd.SparseDtype("int64", 0))) == corpus
    long = pd.DataFrame({"doc": ["x", "x", "y"], "term": ["bee", "ant", "bee"], "n": [2, 1, 3]})
    assert Corpus.from_frame(long, "doc", "term", "n") == corpus
    tokens = long.loc[long.index.repeat(long["n"])]
    assert Corpus.from_frame(tokens, document="doc", word="term") == corpus


def test_bad_frames_are_refused() -> None:
    long = pd.DataFrame({"doc": ["x", None], "term": ["bee", "ant"]})
    with pytest.raises(ValueError, match="Row 1 of the frame has no doc"):
        Corpus.from_frame(long, "doc", "term")
    with pytest.raises(ValueError, match="no column 'word'"):
        Corpus.from_frame(long, "doc", "word")
    with pytest.raises(ValueError, match="both its document and its word"):
        Corpus.from_frame(long, document="doc")
    with pytest.raises(ValueError, match="count nan"):
        Corpus.from_frame(pd.DataFrame({"ant": [1, np.nan]}))


def test_from_anndata_needs_only_its_shape() -> None:
    data = SimpleNamespace(X=scipy.sparse.csr_matrix([[1.0, 2.0]]), var_names=pd.Index(WORDS), obs_names=["cell"])
    corpus = Corpus.from_anndata(data)
    assert (corpus.names, corpus.vocabulary, corpus.num_tokens) == (("cell",), WORDS, 3)
    with pytest.raises(ValueError, match="has no X"):
        Corpus.from_anndata(SimpleNamespace(X=None))
