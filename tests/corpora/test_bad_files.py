"""Files that are missing, broken or foreign: each is refused in one line, and a failed write leaves the old file."""

import errno
import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from pyro_prme.corpora import formats
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.readers import load_corpus, save_corpus
from pyro_prme.corpora.splits import TokenSplit


@pytest.fixture
def corpus() -> Corpus:
    return Corpus([[1, 2, 0], [0, 0, 0], [3, 0, 1]], ("ant", "bee", "cat"))


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


MTX = "%%MatrixMarket matrix coordinate integer general\n"
REAL = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.ldac", "1 0:1\n2 0:1\n", r"c\.ldac, line 2: the first number is not the number of id:count pairs"),
        ("c.ldac", "1 0:1\n1 0:1 1:1\n", "line 2: the first number"),
        ("c.ldac", "1 0:1\n1 0 1\n", "line 2: expected 'n id:count"),
        ("c.ldac", "1:0 1\n", "line 1: expected 'n id:count"),
        ("c.ldac", "1 0:1\n\n1 0:1\n", "line 2: the line is blank"),
        ("c.ldac", "1 0:1\n1 0:-1\n", "line 2: unexpected b'[:-]'"),
        ("c.ldac", "1 0:1\n1 0:1.5\n", r"line 2: unexpected b'\.'"),
        ("c.ldac", "1 0:1\n1 0: 1\n", "line 2: unexpected b':'"),
        ("c.ldac", "1 0:3000000000\n", "line 1: a number is larger than 2147483647"),
        ("c.ldac", f"1 0:{10**30}\n", "line 1: a number is larger"),
        ("c.ldac", "1 20000000:1\n", "there cannot be 20000001 words"),
        ("c.ldac", "0\n0\n", "every document is empty"),
        ("c.ldac", "1 0:0\n", "every document is empty"),
        ("c.ldac", "", "is empty"),
        ("c.ldac", " \n\n", "is empty"),
        ("c.ldac.gz", "", "is empty"),
        ("docword.c.txt", "2\n3\n", "line 1: the first three lines"),
        ("docword.c.txt", "2 3\n1\n1\n1 1 1\n", "line 1: the first three lines"),
        ("docword.c.txt", "2\n3\n2\n1 1 1\n", "line 3: 2 entries are announced and 1 follow"),
        ("docword.c.txt", "2\n3\n1\n1 1\n", "line 4: expected 'document word count'"),
        ("docword.c.txt", "2\n3\n2\n1 1 1\n3 1 1\n", "line 5: the document number is not between 1 and 2"),
        ("docword.c.txt", "2\n3\n2\n1 1 1\n1 0 1\n", "line 5: the word number is not between 1 and 3"),
        ("docword.c.txt", "2\n3\n2\n1 1 1\n1 x 1\n", "line 5: unexpected b'x'"),
        ("docword.c.txt", "2\n3\n0\n", "every document is empty"),
        ("docword.c.txt", "0\n3\n0\n", "no documents"),
        ("docword.c.txt", "2000000000\n3\n1\n1 1 1\n", "line 3: there cannot be 2000000000 documents"),
        ("c.mtx", "1 2 3\n", "line 1: the first line must be '%%MatrixMarket"),
        ("c.mtx", "%%MatrixMarket matrix array integer general\n0 0\n1 ", "line 1: the first line must be"),
        ("c.mtx", MTX, "line 2: expected the numbers"),
        ("c.mtx", f"{MTX}% note\n2 2\n", "line 3: expected the numbers of documents, words and entries"),
        ("c.mtx", f"{MTX}% note\n\n2 2 2\n1 1 1\n", "line 4: 2 entries are announced and 1 follow"),
        ("c.mtx", f"{MTX}2 2 1\n3 1 1\n", "line 3: the document number is not between 1 and 2"),
        ("c.mtx", f"{MTX}2 2 1\n1 1 -4\n", "line 3: unexpected b'-'"),
        ("c.mtx", f"{MTX}999999999 2 1\n1 1 1\n", "line 2: there cannot be 999999999 documents"),
        ("c.mtx", f"{REAL}2 2 1\n1 1 -4\n", r"c\.mtx: Document 0 .* count -4"),
        ("c.mtx", f"{REAL}2 2 2\n1 1 1.0\n1.5 1 1\n", "line 4: the document number is not between"),
        ("c.mtx", f"{REAL}2 2 2\n1 1 1.0\n\n1 1 1\n", "line 4: the line is blank"),
        ("c.mtx", f"{REAL}2 2 2\n1 1 1.0\n1 1 x\n", "after line 2 not all is numbers .*'x'"),
        ("c.mtx", f"{REAL}2 2 2\n1 1 1.0\n1 1\n", "after line 2 not all is numbers"),
        ("c.mtx", f"{REAL}2 2 2\n1 1\n1 1\n", "line 3: expected 'document word count'"),
        ("c.npz", "PK not a zip", "not a good npz file"),
        ("c.txt", "12 34\n", "Every document is empty"),
        ("c.txt", b"good line\nbad \xff line\n", "line 2: not UTF-8"),
        ("c.xyz", "text", "the name does not tell the format"),
    ],
)
def test_malformed_files_are_refused_with_place_and_reason(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load_corpus(write(tmp_path / name, content))
    assert str(tmp_path / name) in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_line_is_right_in_a_later_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_BLOCK", 10)
    good = "2 0:1 1:12\n" * 20
    assert load_corpus(write(tmp_path / "good.ldac", good)).num_tokens == 260
    with pytest.raises(ValueError, match="line 21: the first number"):
        load_corpus(write(tmp_path / "bad.ldac", good + "2 0:1\n" + good))
    with pytest.raises(ValueError, match="line 21: the line is blank"):
        load_corpus(write(tmp_path / "bad.ldac", good + "\n" + good))
    with pytest.raises(ValueError, match="line 21: unexpected b'x'"):
        load_corpus(write(tmp_path / "bad.ldac", good + "x\n" + good))


def test_missing_files_and_bad_gzip_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.ldac cannot be read \(No such file"):
        load_corpus(tmp_path / "none.ldac")
    with pytest.raises(ValueError, match="cannot be read"):
        load_corpus("nul\0byte.ldac")
    for name in ("none", "none.xyz", "none/c.npz"):
        with pytest.raises(ValueError, match=r"none.* cannot be read \(No such file or directory\): check the path"):
            load_corpus(tmp_path / name, vocab="also none")
    (tmp_path / "loop.ldac").symlink_to("loop.ldac")
    with pytest.raises(ValueError, match=r"loop\.ldac cannot be read \(Too many levels"):
        load_corpus(tmp_path / "loop.ldac")
    for source in (["a text", "another"], None, np.eye(2)):
        with pytest.raises(ValueError, match=r"must be a path or a name: give texts to Corpus\.from_texts"):
            load_corpus(source)
    (tmp_path / "c.ldac.gz").write_bytes(b"1 0:1\n")
    with pytest.raises(ValueError, match="not a good gzip file"):
        load_corpus(tmp_path / "c.ldac.gz")
    packed = gzip.compress(b"1 0:1\n" * 100)
    (tmp_path / "c.ldac.gz").write_bytes(packed[:-9])
    with pytest.raises(ValueError, match="is cut short"):
        load_corpus(tmp_path / "c.ldac.gz")
    with pytest.raises(ValueError, match="no format 'bogus'"):
        load_corpus(tmp_path / "c.ldac.gz", format="bogus")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ant\n", r"c\.ldac, line 2: a word id is past the end of the vocabulary of 1 words"),
        ("ant\nant\n", r"vocab\.txt, line 2: 'ant' is also at position 0"),
        ("ant\n\nbee\n", r"vocab\.txt, line 2: it is blank"),
        ("ant\nb\x00e\n", r"vocab\.txt, line 2: .* control character"),
        (b"ant\n\xff\n", r"vocab\.txt, line 2: not UTF-8"),
        ("", r"vocab\.txt is empty"),
    ],
)
def test_bad_vocabularies_are_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path / "c.ldac", "1 0:1\n1 1:1\n")
    vocab = write(tmp_path / "vocab.txt", content)
    for given_vocab in (None, vocab):
        with pytest.raises(ValueError, match=message):
            load_corpus(path, vocab=given_vocab)


def test_a_vocabulary_without_the_corpus_words_is_refused() -> None:
    with pytest.raises(ValueError, match="kjv has no tokens"):
        load_corpus("kjv", vocab=["zzz"])
    with pytest.raises(ValueError, match="cannot be read"):
        load_corpus("kjv", vocab="missing-vocabulary.txt")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("data", None, "lacks the array 'data'"),
        ("indices", np.array([0, 1, 0, 9]), "good CSR matrix"),
        ("indices", np.array([0.0, 1, 0, 2]), "not whole numbers"),
        ("indptr", np.array([0, 9, 1, 4]), "good CSR matrix"),
        ("shape", np.array([3]), "not whole numbers"),
        ("shape", np.array([3, -1]), "good CSR matrix"),
        ("data", np.array([1, np.nan, 1, 1]), "count nan"),
        ("data", np.array(["a", "b", "c", "d"]), "must be numbers"),
        ("vocabulary", np.array("ant"), "not a list"),
        ("vocabulary", np.array([object()] * 3), "not a good npz file .*pickle"),
    ],
)
def test_foreign_npz_files_are_refused(corpus: Corpus, tmp_path: Path, key: str, value: object, message: str) -> None:
    save_corpus(corpus, tmp_path / "c.npz")
    arrays = dict(np.load(tmp_path / "c.npz"))
    arrays.pop(key)
    np.savez(tmp_path / "c.npz", **arrays, **({} if value is None else {key: np.asarray(value)}))
    with pytest.raises(ValueError, match=message):
        load_corpus(tmp_path / "c.npz")


FRAGMENTS = [
    *(b"0", b"1", b"3", b"123456789", b"99999999999999999999", b"-1", b"0.5", b"nan", b"1:2", b"word"),
    *(b" ", b":", b"\n", b"\t", b"\xff", b"\xc3\xa9", b"\x1f\x8b", b"PK\x03\x04", b"3 3 1\n", b"1 1 1\n", b"2\n2\n1\n"),
    b"%%MatrixMarket matrix coordinate integer general\n",
    b"%%MatrixMarket matrix coordinate real general\n",
    b"%%MatrixMarket matrix array real symmetric\n",
]


def corpus_or_refusal(path: Path, load: Callable[[Path], Corpus]) -> Corpus | None:
    """What is read; or None, if it was refused in one line that names the file."""
    try:
        return load(path)
    except ValueError as error:
        message = str(error)
    assert str(path) in message
    assert "\n" not in message
    return None


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", ["ldac", "uci", "mtx", "npz", "lines"])
@settings(deadline=None, max_examples=60)
@given(data=st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(b"".join)))
def test_random_bytes_give_a_corpus_or_a_value_error(
    tmp_path_factory: pytest.TempPathFactory, format: str, packed: bool, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "file"
    path.write_bytes(gzip.compress(data) if packed else data)
    corpus = corpus_or_refusal(path, lambda file: load_corpus(file, format=format))
    assert corpus is None or corpus.num_tokens > 0


@pytest.mark.parametrize("name", ["c.npz", "split.npz", "c.mtx", "c.ldac", "docword.c.txt", "c.ldac.gz"])
@settings(deadline=None, max_examples=40)
@given(place=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_file_gives_a_corpus_or_a_value_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: float, byte: int, cut: bool
) -> None:
    corpus = Corpus([[1, 2, 0], [4, 0, 0], [3, 0, 1]], ("ant", "bee", "cat"))
    path = tmp_path_factory.mktemp("damaged") / name
    if name == "split.npz":
        corpus.split_tokens(0.5).save(path)
    else:
        save_corpus(corpus, path)
    data = bytearray(path.read_bytes())
    offset = int(place * (len(data) - 1))
    data[offset:] = b"" if cut else bytes([byte]) + data[offset + 1 :]
    path.write_bytes(data)
    load = (lambda file: TokenSplit.load(file).held_out) if name == "split.npz" else load_corpus
    loaded = corpus_or_refusal(path, load)
    assert loaded is None or loaded.num_tokens > 0


def test_a_full_disk_leaves_the_old_files(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.ldac"
    save_corpus(corpus, path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"cannot be written \(No space left on device\)"):
        save_corpus(corpus[:1], path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_saving_where_or_what_it_cannot_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        save_corpus(corpus, tmp_path / "no" / "folder.npz")
    with pytest.raises(ValueError, match="cannot be written as 'lines'"):
        save_corpus(corpus, tmp_path / "c.txt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"3 0:3 4:1\n", b"1 0:-3\n", b"1 0:2.5\n", b"1 0:nan\n", b"1 0:1\n\n1 1:1\n"])
def test_what_a_reader_of_svmlight_files_lets_pass_is_refused(content, tmp_path):
    load_svmlight_file(io.BytesIO(content), zero_based=True)
    (tmp_path / "c.ldac").write_bytes(content)
    with pytest.raises(ValueError, match=r"c\.ldac, line [12]: "):
        load_corpus(tmp_path / "c.ldac")


def test_what_a_reader_of_svmlight_files_refuses_is_read(tmp_path):
    (tmp_path / "c.ldac").write_bytes(b"2 4:1 0:3\n")
    with pytest.raises(ValueError, match="sorted"):
        load_svmlight_file(io.BytesIO(b"2 4:1 0:3\n"), zero_based=True)
    assert load_corpus(tmp_path / "c.ldac").counts.toarray().tolist() == [[3, 0, 0, 0, 1]]
