"""Corpus folders: what is packed is what is read, in pieces, within bounds; and what is broken is refused."""

import gzip
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

import pyro_prme as prme
from pyro_prme.cli.command import app
from pyro_prme.corpora import packed, packing
from pyro_prme.corpora.packed import PackedWriter, open_packed
from pyro_prme.corpora.packing import Limits, pack_corpus
from pyro_prme.inference.orders import WholeOrder

TEXTS = [
    "The cat sat on the mat.",
    "",
    "Dogs chase cats; the cat runs.",
    "  ",
    "Überall Straßen, überall Hunde.",
    "cat",
]


def random_corpus(documents: int = 200, words: int = 60, seed: int = 0) -> prme.Corpus:
    rng = np.random.default_rng(seed)
    counts = scipy.sparse.csr_array(rng.poisson(0.1, (documents, words)) * (rng.random((documents, 1)) < 0.8))
    return prme.Corpus(counts, tuple(f"word{d:02d}" for d in range(words)), tuple(f"d {n}" for n in range(documents)))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small file has many pieces, whose ends fall anywhere."""
    monkeypatch.setattr(packing, "_CHUNK", 37)
    monkeypatch.setattr(packing, "_ENTRIES", 50)
    monkeypatch.setattr(packing, "_DOCUMENTS", 2)
    monkeypatch.setattr(packed, "_BLOCK", 41)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", ["c.ldac", "c.ldac.gz", "docword.c.txt", "c.mtx", "c.mtx.gz", "c.npz"])
@pytest.mark.parametrize("limits", [Limits(), Limits(min_df=15, max_df=0.12, stop_words=["word07"], max_words=20)])
def test_counts_in_pieces_are_the_counts(name: str, limits: Limits, tmp_path: Path) -> None:
    corpus = random_corpus()
    prme.save_corpus(corpus, tmp_path / name)
    wanted = prme.load_corpus(tmp_path / name)
    if not limits.drop_nothing:
        wanted = wanted.restrict(15, 0.12, ["word07"], 20)
        assert 5 < wanted.vocab_size <= 20
    found = pack_corpus(tmp_path / name, tmp_path / "folder", limits=limits)
    assert found == wanted
    assert found.names == wanted.names
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", ["lines", "gzip", "folder"])
@pytest.mark.parametrize("words", [None, ("cat", "dogs", "hunde")])
def test_texts_in_pieces_are_the_texts(kind: str, words: tuple[str, ...] | None, tmp_path: Path) -> None:
    if kind == "folder":
        source = tmp_path / "texts"
        source.mkdir()
        for n, text in enumerate(TEXTS):
            (source / f"{n}.txt").write_text(text + "\nmore of it\n" if text.strip() else "the\n", encoding="utf-8")
    else:
        source = tmp_path / ("t.txt.gz" if kind == "gzip" else "t.txt")
        data = "\n".join(TEXTS).encode()
        source.write_bytes(gzip.compress(data) if kind == "gzip" else data)
    limits = Limits() if words else Limits(max_words=6, stop_words="english")
    found = pack_corpus(source, tmp_path / "packed", vocab=words, limits=limits)
    wanted = prme.load_corpus(source)
    wanted = wanted.align(words)[0] if words else wanted.restrict(stop_words="english", max_words=6)
    assert found == wanted


def test_raw_text_shows_two_passes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "t.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    pack_corpus(tmp_path / "t.txt", tmp_path / "folder", progress=True)
    shown = capsys.readouterr().err
    assert shown.index("packing t.txt, pass 1 of 2, words") < shown.index("packing t.txt, pass 2 of 2, counts")
    pack_corpus(tmp_path / "t.txt", tmp_path / "other")
    assert capsys.readouterr().err == ""


def test_pages_of_a_mapped_corpus_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resident() -> int:
        text, size = Path("/proc/self/smaps").read_text(), 0
        for part in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
            if "indices.npy" in part.split("\n", 1)[0]:
                size += int(re.search(r"Rss: +(\d+)", part)[1])  # type: ignore[index]
        return size

    if not Path("/proc/self/smaps").exists():
        pytest.skip("needs /proc")
    rows, words = 100_000, 40
    every = scipy.sparse.csr_array(np.ones((rows, words), np.int32))
    corpus = prme.Corpus(every, tuple(f"word{d}" for d in range(words))).pack(tmp_path / "corpus")
    assert resident() < 100  # kB, of 16,000: the checks have read all of it
    monkeypatch.setattr("pyro_prme.corpora.mapped._ENTRIES", 10_000)
    counts, most = prme.Counts(corpus.counts), 0
    for data in (counts, corpus):
        for start in range(0, rows, 500):
            data.batch(np.arange(start, start + 100))
            most = max(most, resident() if start % 5000 == 0 else 0)
    assert 0 < most < 4000  # of 16,000; the system reads two megabytes at a time
    assert counts.on_disk
    assert corpus.on_disk
    assert not corpus[:50].on_disk


def test_the_folder_is_mapped_and_every_door_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_blocks = []

    def in_one_order(rng: np.random.Generator, size: int, **where: bool) -> WholeOrder:
        in_blocks.append(where["in_blocks"])
        return WholeOrder(rng, size)

    monkeypatch.setattr("pyro_prme.inference.trainer.order_of", in_one_order)
    corpus = prme.load_corpus("kjv")[:200]
    corpus.pack(tmp_path / "bible")
    opened = prme.load_corpus(tmp_path / "bible")
    assert opened == corpus
    assert opened.summary() == corpus.summary()
    for array in (opened.counts.indices, opened.counts.data):
        assert not array.flags.owndata
        assert not array.flags.writeable
    fitted = [prme.PRMETopicModel(n_components=5, max_iter=2, random_state=0).fit(c) for c in (corpus, opened)]
    assert in_blocks == [False, False, True, True]
    np.testing.assert_array_equal(fitted[0].components_, fitted[1].components_)
    np.testing.assert_array_equal(fitted[0].transform(corpus), fitted[1].transform(opened))
    assert opened[3:9] == corpus[3:9]


def test_the_command_packs_and_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prme.save_corpus(prme.load_corpus("kjv")[:150], "part.npz")
    for line in ("pack part.npz --out folder --min-df 5", "fit folder --topics 5 --epochs 1 --out run", "info folder"):
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "run.json").exists()
    for line, message in {
        "pack part.npz --out folder": "exists already",
        "pack part.npz --out other --min-df many": "--min-df",
        "pack nowhere.npz --out other": "nowhere.npz cannot be read",
    }.items():
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 1
        assert message in done.output
        assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_the_same_corpus_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        random_corpus().pack(tmp_path / name)
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def _about(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        about = json.loads((folder / "corpus.json").read_text())
        change(about)
        (folder / "corpus.json").write_text(json.dumps(about))

    return alter


def _array(name: str, change: Callable[[np.ndarray], None], *, seal: bool) -> Callable[[Path], None]:
    """Changes an array, and with `seal` its checksum too."""

    def alter(folder: Path) -> None:
        values = np.load(folder / name)
        change(values)
        np.save(folder / name, values)
        if seal:
            _about(lambda about: about["files"].update({name: packed._fingerprint(folder / name)}))(folder)

    return alter


def _set(place: int, value: int) -> Callable[[np.ndarray], None]:
    return lambda values: values.__setitem__(place, value)


def _swap(values: np.ndarray) -> None:
    values[:2] = values[1::-1]


def _fall_unseen(values: np.ndarray) -> None:
    """Falls so deep that the difference of two neighbours, in 64 bits, is positive."""
    values[1:4] = 2**62 + 10**6, -(2**63) + 10**6, -(2**62)


def _bad_name(folder: Path) -> None:
    names = json.loads((folder / "corpus.json").read_text())["documents"]
    (folder / "names.txt").write_text("".join("\x1b[31m\n" if n == 2 else f"text {n}\n" for n in range(names)))
    _about(lambda about: about["files"].update({"names.txt": packed._fingerprint(folder / "names.txt")}))(folder)


def _replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda folder: (folder / "data.npy").unlink(), "data.npy' is missing"),
        (lambda folder: (folder / "data.npy").write_bytes((folder / "data.npy").read_bytes()[:-8]), "bytes"),
        (_array("data.npy", _set(5, 9), seal=False), "data.npy' was altered"),
        (_array("indptr.npy", _set(3, 10**6), seal=True), "do not follow one another"),
        (_array("indptr.npy", _fall_unseen, seal=True), "do not follow one another"),
        (_array("indices.npy", _set(4, 10**6), seal=True), "word numbers outside"),
        (_array("indices.npy", _set(4, -1), seal=True), "word numbers outside"),
        (_array("indices.npy", _swap, seal=True), "not in order"),
        (_array("data.npy", _set(7, 0), seal=True), "counts below one"),
        (_about(lambda about: about.update(version=2)), "another version"),
        (_about(lambda about: about.pop("version")), "cannot be understood"),
        (_about(lambda about: about["files"].update({"x" * 300: {"bytes": 1}})), "is missing"),
        (_about(lambda about: about["files"].update({"\x1b[31m": {"bytes": 1}})), "x1b"),
        (_bad_name, "names.txt, line 3: .* control character"),
        (lambda folder: _replace_by_pipe(folder / "corpus.json"), "it is no file"),
        (lambda folder: _replace_by_pipe(folder / "data.npy"), "data.npy' is missing"),
        (_about(lambda about: about.update(kind="cake")), "does not have what it should"),
        (_about(lambda about: about.update(words=59)), "there are 60 words"),
        (_about(lambda about: about.update(documents=10**12)), "not 1000000000001 numbers"),
        (_about(lambda about: about["files"].update({"../x": {"bytes": 1}})), "is missing"),
        (_about(lambda about: about["files"].pop("indices.npy")), "indices.npy is not among"),
        (lambda folder: (folder / "corpus.json").write_text("{"), "cannot be understood"),
        (lambda folder: (folder / "corpus.json").write_text("[" * 100_000), "too long|cannot be understood"),
    ],
)
def test_a_broken_folder_is_refused_with_a_sentence(
    alter: Callable[[Path], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_corpus().pack(tmp_path / "folder")
    monkeypatch.setattr(packed, "_BLOCK", 41)
    alter(tmp_path / "folder")
    with pytest.raises(ValueError, match=message) as caught:
        open_packed(tmp_path / "folder")
    assert str(tmp_path / "folder") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.ldac", "1 0:1\n2 0:1\n", "line 2: the first number is not the number"),
        ("a.mtx", "%%MatrixMarket matrix coordinate integer general\n2 2 2\n2 1 1\n1 1 1\n", "order of documents"),
        ("docword.a.txt", "2\n2\n3\n1 1 1\n2 1 1\n", "line 3: 3 entries are announced and 2 follow"),
        ("a.txt", "\n \n", "empty"),
        ("a.txt", "12 34\n", "every document is empty"),
        ("a.ldac", "0\n0\n", "no tokens"),
    ],
)
@pytest.mark.usefixtures("small_pieces")
def test_a_bad_file_leaves_nothing_behind(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        pack_corpus(tmp_path / name, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: PackedWriter, counts: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PackedWriter, "append", full)
    with pytest.raises(ValueError, match="No space left on device"):
        random_corpus().pack(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


PACKER = """
import resource, sys
from pyro_prme.corpora.packing import pack_corpus
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
corpus = pack_corpus(sys.argv[1], sys.argv[2])
print(len(corpus), corpus.num_tokens)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_DATA") or sys.platform != "linux", reason="limits of Linux")
def test_a_file_larger_than_the_memory_is_packed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(2000):
        words, counts = np.sort(rng.choice(5000, 30, replace=False)), rng.integers(1, 9, 30)
        lines.append("30 " + " ".join(f"{d}:{c}" for d, c in zip(words, counts, strict=True)))
    block = "\n".join(lines) + "\n"
    with open(tmp_path / "large.ldac", "w") as file:
        for _ in range(800):
            file.write(block)
    size = (tmp_path / "large.ldac").stat().st_size
    room = 192 << 20
    assert size > 1.5 * room
    command = [sys.executable, "-c", PACKER, str(tmp_path / "large.ldac"), str(tmp_path / "folder"), str(room)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    documents, tokens = map(int, done.stdout.split())
    assert documents == 1_600_000
    assert tokens == 800 * sum(int(found) for found in re.findall(r":(\d+)", block))
