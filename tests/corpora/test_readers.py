"""Corpora from files and back, in every format."""

import gzip
import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import sklearn.datasets
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.readers import load_corpus, save_corpus
from pyro_prme.corpora.text import stop_word_set

SHARED = Path(__file__).parents[3] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpora are not on this machine")
FILES = ["c.ldac", "c.dat.gz", "docword.c.txt", "docword.c.txt.gz", "c.mtx", "c.mtx.gz", "c.npz", "c.npz.gz"]


@pytest.fixture
def corpus() -> Corpus:
    return Corpus([[1, 2, 0], [0, 0, 0], [3, 0, 1]], ("ant", "bée", "see cat"), ("Genesis 1", "Genesis 2", "Genesis 2"))


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_kjv_is_bundled_with_chapter_names() -> None:
    kjv = load_corpus("kjv")
    assert (kjv.num_documents, kjv.vocab_size, kjv.num_tokens, kjv.nnz) == (1189, 6068, 265422, 150590)
    assert (kjv.names[0], kjv.names[-1]) == ("Genesis 1", "Revelation 22")
    assert kjv.counts[0, kjv.vocabulary.index("god")] == 32


def test_kjv_can_be_re_indexed() -> None:
    kjv = load_corpus("kjv", vocab=["god", "unheard"])
    assert kjv.vocabulary == ("god", "unheard")
    assert kjv.counts[0, 0] == 32


@needs_shared
def test_kjv_is_the_shared_one(tmp_path: Path) -> None:
    shared = load_corpus(SHARED / "kjv")
    assert shared == load_corpus("kjv")
    save_corpus(shared, tmp_path / "kjv.npz")
    save_corpus(shared, tmp_path / "again.npz")
    digests = {hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("kjv.npz", "again.npz")}
    assert len(digests) == 1
    assert (tmp_path / "kjv.npz").stat().st_size < 500_000


@needs_shared
@pytest.mark.parametrize(
    ("file", "sizes"),
    [
        ("nyt/test.ldac.gz", (500, 8000, 89441, 60521)),
        ("20news/train.ldac.gz", (11269, 53975, 2765300, 1467345)),
        ("nyt_columbia/train.ldac.gz", (5000, 3012, 722365, 568878)),
    ],
)
def test_shared_corpora_have_their_published_sizes(file: str, sizes: tuple) -> None:
    corpus = load_corpus(SHARED / file)
    assert (corpus.num_documents, corpus.vocab_size, corpus.num_tokens, corpus.nnz) == sizes


@needs_shared
def test_20news_without_stop_words_has_the_published_size() -> None:
    corpus = load_corpus(SHARED / "20news" / "train.ldac.gz")
    letters = {word for word in corpus.vocabulary if len(word) == 1}
    kept = corpus.restrict(stop_words=stop_word_set("english") | letters)
    assert (kept.vocab_size, kept.num_tokens) == (53666, 1467718)


@pytest.mark.slow
@needs_shared
def test_a_large_file_is_read_in_blocks() -> None:
    corpus = load_corpus(SHARED / "arxiv" / "train.ldac.gz")
    assert (corpus.num_documents, corpus.num_tokens, corpus.nnz) == (146999, 10783719, 7654974)


def test_20news_goes_through_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"the engine runs {'fast' if n % 2 else 'slow'} word{n}" for n in range(12)] + ["the"]
    files = [f"/home/data/train/rec.autos/{n}" for n in range(13)]

    def fetch(*, subset: str, remove: tuple) -> SimpleNamespace:
        assert (subset, remove) == ("all", ("headers", "footers", "quotes"))
        return SimpleNamespace(data=texts, filenames=files)

    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups", fetch)
    corpus = load_corpus("20news")
    assert corpus.vocabulary == ("fast", "slow")
    assert corpus.names[0] == "rec.autos/0"
    assert corpus.num_documents == 12


def test_20news_offline_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(**_: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups", fetch)
    with pytest.raises(ValueError, match=r"and was not \(no route to host\): go online"):
        load_corpus("20news")


@pytest.mark.parametrize("name", FILES)
def test_what_is_saved_is_loaded(corpus: Corpus, tmp_path: Path, name: str) -> None:
    save_corpus(corpus, tmp_path / name)
    assert load_corpus(tmp_path / name) == corpus
    assert load_corpus(str(tmp_path / name)) == corpus
    assert not list(tmp_path.glob(".*"))


words = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="\ufeff"), min_size=1)
words = words.filter(lambda word: bool(word.strip()))


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 4)))
    elements = st.one_of(st.integers(0, 3), st.integers(0, 2**31 - 1))
    counts = draw(hnp.arrays(np.int64, shape, elements=elements))
    counts[-1, -1] = max(1, counts[-1, -1])
    vocabulary = draw(st.lists(words, min_size=shape[1], max_size=shape[1], unique=True))
    names = draw(st.lists(words, min_size=shape[0], max_size=shape[0]))
    return Corpus(counts, tuple(vocabulary), tuple(names))


@pytest.mark.parametrize("name", ["c.ldac", "docword.c.txt.gz", "c.mtx", "c.npz"])
@settings(deadline=None, max_examples=30)
@given(corpus=corpora())
def test_any_corpus_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, name: str, corpus: Corpus
) -> None:
    path = tmp_path_factory.mktemp("trip") / name
    save_corpus(corpus, path)
    assert load_corpus(path) == corpus


def test_tabs_carriage_returns_and_a_blank_end_are_fine(tmp_path: Path) -> None:
    corpus = load_corpus(write(tmp_path / "c.ldac", "2  1:1\t0:2\r\n0\r\n1 1:3 \n\n\n"))
    assert corpus.counts.toarray().tolist() == [[2, 1], [0, 0], [0, 3]]


def test_gzip_is_known_by_its_content_too(tmp_path: Path) -> None:
    (tmp_path / "c.ldac").write_bytes(gzip.compress(b"1 0:5\n"))
    assert load_corpus(tmp_path / "c.ldac").num_tokens == 5


def test_vocabulary_is_given_or_found_beside_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "train.ldac.gz", "1 0:1\n1 1:2\n")
    assert load_corpus(path).vocabulary == ("0", "1")
    write(tmp_path / "vocab.txt.gz", "ant\nbee\ncat\n")
    assert load_corpus(path).vocabulary == ("ant", "bee", "cat")
    write(tmp_path / "train.vocab.txt", "dog\r\neel\r\n")
    assert load_corpus(path).vocabulary == ("dog", "eel")
    assert load_corpus(path, vocab=tmp_path / "vocab.txt.gz").vocabulary == ("ant", "bee", "cat")
    assert load_corpus(path, vocab=["x", "y"]).vocabulary == ("x", "y")
    write(tmp_path / "documents.txt", "one\ntwo\n")
    assert load_corpus(path).names == ("one", "two")
    write(tmp_path / "documents.txt", "one\ntwo\nthree\n")
    assert load_corpus(path).names == ("0", "1")
    write(tmp_path / "train.documents.txt", "one\n")
    with pytest.raises(ValueError, match="1 names for 2 documents"):
        load_corpus(path)


def test_uci_vocabulary_has_its_usual_name(tmp_path: Path) -> None:
    path = write(tmp_path / "docword.kos.txt", "1\n2\n1\n1 2 4\n")
    write(tmp_path / "vocab.kos.txt", "ant\nbee\n")
    assert load_corpus(path).vocabulary == ("ant", "bee")
    with pytest.raises(ValueError, match="line 3: the file has 2 words, but its vocabulary has 1"):
        load_corpus(path, vocab=["ant"])


def test_lines_and_folders_of_text(tmp_path: Path) -> None:
    lines = load_corpus(write(tmp_path / "c.txt.gz", "The cat sat\n\nA dog\n"))
    assert (lines.vocabulary, lines.names) == (("cat", "dog", "sat", "the"), ("1", "3"))
    folder = tmp_path / "posts"
    (folder / "autos").mkdir(parents=True)
    write(folder / "autos" / "17", "cats sat\nsat")
    write(folder / "b.txt.gz", "dogs")
    write(folder / ".hidden", "hidden")
    texts = load_corpus(folder)
    assert (texts.vocabulary, texts.names) == (("cats", "dogs", "sat"), ("autos/17", "b.txt.gz"))
    assert texts.counts.toarray().tolist() == [[1, 0, 2], [0, 1, 0]]
    assert load_corpus(folder, vocab=["sat"]).num_tokens == 2


def test_folders_with_counts(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="empty folder"):
        load_corpus(tmp_path)
    save_corpus(corpus, tmp_path / "train.ldac")
    assert load_corpus(tmp_path) == corpus
    save_corpus(corpus, tmp_path / "test.npz")
    with pytest.raises(ValueError, match=r"holds 2 corpora \(test.npz, train.ldac\)"):
        load_corpus(tmp_path)
    with pytest.raises(ValueError, match="is not a folder"):
        load_corpus(tmp_path / "train.ldac", format="folder")


def test_npz_and_scipy_read_each_other(corpus: Corpus, tmp_path: Path) -> None:
    save_corpus(corpus, tmp_path / "ours.npz")
    assert np.array_equal(scipy.sparse.load_npz(tmp_path / "ours.npz").toarray(), corpus.counts.toarray())
    scipy.sparse.save_npz(tmp_path / "theirs.npz", scipy.sparse.csr_matrix(corpus.counts))
    assert load_corpus(tmp_path / "theirs.npz", vocab=corpus.vocabulary)[:1].vocabulary == corpus.vocabulary
    assert load_corpus(tmp_path / "ours.npz", vocab=["bée"]).counts.toarray().tolist() == [[2], [0], [0]]
    scipy.sparse.save_npz(tmp_path / "theirs.npz", scipy.sparse.csc_matrix(corpus.counts))
    with pytest.raises(ValueError, match="not CSR"):
        load_corpus(tmp_path / "theirs.npz")


def test_mtx_is_the_one_scipy_writes(corpus: Corpus, tmp_path: Path) -> None:
    for counts in (corpus.counts, scipy.sparse.csr_matrix(corpus.counts, dtype=float)):
        scipy.io.mmwrite(tmp_path / "c.mtx", counts, comment="a note", symmetry="general")
        assert load_corpus(tmp_path / "c.mtx", vocab=corpus.vocabulary).counts.toarray().tolist() == [
            [1, 2, 0],
            [0, 0, 0],
            [3, 0, 1],
        ]
    write(tmp_path / "c.mtx", "%%matrixmarket MATRIX coordinate REAL general\r\n1 2 1\r\n1 2 3.0e+00\r\n")
    assert load_corpus(tmp_path / "c.mtx").counts.toarray().tolist() == [[0, 3]]
