"""Small files that ask for much: memory and time stay bounded by the file's size, or it is refused with the limit."""

import gzip
import io
import itertools
import os
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.readers import load_corpus
from pyro_prme.corpora.splits import TokenSplit, drawn_counts
from pyro_prme.runs.run_files import read_record


def peak(call: Callable[[], object]) -> float:
    """The most MiB that a call holds at a time."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def words(number: int) -> tuple[str, ...]:
    return tuple(f"w{d}" for d in range(number))


def unfolded(corpus: Corpus, observed: float, seed: int) -> list[np.ndarray]:
    """Held-out tokens by the rule as it is written: shuffle each document's tokens, hold out the first tenth."""
    rng, held = np.random.default_rng(seed), []
    for counts in corpus.counts.toarray()[corpus.lengths >= 2]:
        tokens = rng.permutation(np.repeat(np.arange(counts.size), counts))
        held.append(np.bincount(tokens[: max(1, round(round(1 - observed, 12) * tokens.size))], minlength=counts.size))
    return held


def test_ordinary_documents_are_split_by_the_shuffle() -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.3, 5, (60, 40)))
    counts[3], counts[7, :] = 0, np.eye(40, dtype=int)[2]
    counts[11, 5] = 9999  # a document of ten thousand tokens is ordinary
    corpus = Corpus(counts, words(40))
    for observed, seed in itertools.product((0.9, 0.5, 0.1), (0, 3)):
        split = corpus.split_tokens(observed, seed)
        assert (split.held_out.counts.toarray() == unfolded(corpus, observed, seed)).all()
        assert (split.held_out.counts + split.observed.counts - corpus.counts[split.documents]).nnz == 0


def test_two_thousand_million_tokens_are_split_in_little_memory() -> None:
    corpus = Corpus([[2_000_000_000, 0, 7], [2**31 - 1, 2**31 - 1, 2**31 - 1], [1, 1, 0]], words(3))
    parts: list[TokenSplit] = []
    assert peak(lambda: parts.append(corpus.split_tokens(0.9, seed=0))) < 40
    held = parts[0].held_out.counts.toarray().astype(np.int64)
    lengths = corpus.lengths
    assert held.sum(1).tolist() == [max(1, round(0.1 * int(length))) for length in lengths]
    assert (parts[0].observed.counts.toarray() + held == corpus.counts.toarray()).all()
    spread = np.sqrt(0.1 * 0.9 * int(lengths[1]) / 3 * (2 / 3))
    assert (np.abs(held[1] - (2**31 - 1) / 10) < 5 * spread).all()
    again = corpus.split_tokens(0.9, seed=0)
    assert again.held_out == parts[0].held_out
    assert corpus.split_tokens(0.9, seed=1).held_out != parts[0].held_out


def test_large_documents_leave_the_split_of_the_others_as_it_is() -> None:
    counts = np.random.default_rng(0).poisson(1.0, (20, 5))
    with_large = np.vstack([counts[:8], [[10**9] * 5], counts[8:]])
    ordinary, mixed = (Corpus(x, words(5)).split_tokens(0.5).held_out.counts.toarray() for x in (counts, with_large))
    large = int(np.flatnonzero(mixed.sum(1) > 10**6)[0])
    assert (np.delete(mixed, large, axis=0) == ordinary).all()


def test_many_documents_of_large_counts_are_split_in_memory_of_their_number() -> None:
    corpus = Corpus(np.full((2000, 2), 900), words(2))  # 3,600,000 tokens
    assert peak(lambda: corpus.split_tokens(0.5)) < 10


@pytest.mark.parametrize(("counts", "num_held"), [((3, 5, 0, 2), 4), ((1, 1), 1), ((6, 1, 2), 7), ((4, 4), 8)])
def test_drawn_counts_have_the_law_of_the_shuffle(counts: tuple, num_held: int) -> None:
    """Multivariate hypergeometric: every outcome as often as its probability says, by a chi-squared test."""
    rng, draws = np.random.default_rng(0), 20_000
    document = np.repeat(np.arange(draws), len(counts))
    drawn = drawn_counts(np.tile(np.array(counts, np.int32), draws), document, np.full(draws, num_held), rng)
    found = Counter(map(tuple, drawn.reshape(draws, -1).tolist()))
    outcomes = [held for held in itertools.product(*(range(count + 1) for count in counts)) if sum(held) == num_held]
    assert set(found) <= set(outcomes)
    expected = draws * np.array([stats.multivariate_hypergeom.pmf(held, counts, num_held) for held in outcomes])
    if len(outcomes) > 1:
        assert stats.chisquare([found.get(held, 0) for held in outcomes], expected).pvalue > 1e-3


BOMB = 100 << 20  # bytes


def packed(line: bytes) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(line * ((BOMB // 100) // len(line)))
    return buffer.getvalue()


def npz(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, data=array, indices=array, indptr=array, shape=np.array([3, 3]))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("c.ldac.gz", lambda: packed(b"1 0:1\n")),
        ("c.ldac", lambda: packed(b"1 0:1\n")),
        ("c.txt.gz", lambda: packed(b"some words\n")),
        ("c.npz", lambda: npz(np.zeros(BOMB // 3, np.int8))),
    ],
)
def test_packed_files_that_unpack_to_much_are_refused_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[], bytes]
) -> None:
    path = tmp_path / name
    path.write_bytes(make())
    assert path.stat().st_size < 2 << 20
    message = rf"{name} unpacks to more than 32 MiB, .*: if you trust it, set PRME_MAX_MIB"

    def refused() -> None:
        with pytest.raises(ValueError, match=message):
            load_corpus(path)

    assert peak(refused) < 200
    monkeypatch.setenv("PRME_MAX_MIB", "many")
    with pytest.raises(ValueError, match="PRME_MAX_MIB is 'many': it must be a whole number of MiB"):
        load_corpus(path)
    if name != "c.ldac.gz":
        return
    monkeypatch.setenv("PRME_MAX_MIB", "1")
    with pytest.raises(ValueError, match="unpacks to more than 1 MiB"):
        load_corpus(path)
    path.write_bytes(gzip.compress(b"1 0:1\n" * 1000))
    assert load_corpus(path).num_tokens == 1000


def test_packed_files_of_a_run_are_bounded_too(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(packed(b" "))

    def refused() -> None:
        with pytest.raises(ValueError, match=r"run\.json unpacks to more than 32 MiB"):
            read_record(tmp_path)

    assert peak(refused) < 200


def test_the_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.txt.gz"
    path.write_bytes(packed(b" " * 99 + b"word\n"))
    monkeypatch.setenv("PRME_MAX_MIB", "101")
    assert load_corpus(path).vocabulary == ("word",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "docword.c.txt",
            b"10000000\n10000000\n1\n1 1 1\n",
            "there cannot be 10000000 documents here, more than 10{6}",
        ),
        ("docword.c.txt", b"1\n10000000\n1\n1 1 1\n", "there cannot be 10000000 words here, more than 1000000"),
        ("c.ldac", b"1 9000000:1\n", "there cannot be 9000001 words here, more than 1000000"),
        ("c.ldac.gz", gzip.compress(b"1 0:1\n" + b"0\n" * 1_100_000), "there cannot be 1100001 documents here"),
    ],
)
def test_few_bytes_cannot_claim_many_documents_or_words(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)

    def refused() -> None:
        with pytest.raises(ValueError, match=message):
            load_corpus(tmp_path / name)

    assert peak(refused) < 200


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c.ldac")
    (tmp_path / "zero.ldac").symlink_to("/dev/zero")
    for name in ("c.ldac", "zero.ldac"):
        with pytest.raises(ValueError, match=r"cannot be read \(it is (a folder, )?a pipe or a device, and no file\)"):
            load_corpus(tmp_path / name)
