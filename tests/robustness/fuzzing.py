"""Files with random damage, for every reader and every file of a run: read, or refused in one line with their name.

What is read after damage must be usable: a corpus has tokens, and a run answers with finite numbers that sum to one.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.readers import load_corpus, save_corpus
from pyro_prme.corpora.splits import TokenSplit
from pyro_prme.inference.session import session
from pyro_prme.runs.fitting import prepared
from pyro_prme.runs.run_folder import load_run, resume, settings_of
from tests.robustness import toys
from tests.robustness.trials import Outcome, generator, spoken

__all__ = ["trial"]

_CORPORA = ("c.npz", "c.ldac", "c.ldac.gz", "docword.c.txt", "c.mtx", "real.mtx", "c.txt", "c.vocab.txt", "split.npz")
_RUNS = ("run.json", "state-1.safetensors", "vocabulary.txt")
_PIECES = (
    *(b"0", b"-1", b"1e400", b"nan", b"inf", b"2147483648", b"9" * 30, b":", b" ", b"\n", b"\r\n", b"\t", b"\x00"),
    *(b"\xff", b"\xef\xbb\xbf", b"\x1b[31m", b"\x1f\x8b\x08", b"PK\x03\x04", b"%%MatrixMarket matrix ", b'"', b"{}"),
    *("\u0661".encode(), b"\xe2\x80\xa8", b"\xed\xa0\x80", b"null", b"true", b"[]"),
)
_VALUES = (
    *(None, True, False, 0, -1, 1, 2, 1.5, 1e308, 10**9, 10**30, float("nan"), float("inf"), "", "x", "\x1b[31m"),
    *([], {}, [1], {"a": 1}, "0", [[]], [None], "float32", -0.0, "../run.json", "run.json"),
)
_KINDS = ("float32", "float64", "int64", "uint8", "bool", "float16")


def trial(seed: int, number: int, folder: Path) -> Outcome:
    """One damaged file, of a corpus or of a run."""
    rng = generator(seed, number)
    place = folder / "fuzzed"
    if rng.random() < 0.5:
        return _corpus(rng, place)
    return _run(rng, place, toys.run_files(folder))


def _corpus(rng: np.random.Generator, folder: Path) -> Outcome:
    _emptied(folder)
    name = str(rng.choice(_CORPORA))
    path = folder / ("c.ldac" if name == "c.vocab.txt" else name)
    _write_corpus(path)
    target = folder / name
    data = target.read_bytes()
    if name.endswith(".gz") and rng.random() < 0.7:
        data = gzip.compress(_damaged(rng, gzip.decompress(data)), mtime=0)
    elif name.endswith(".npz") and rng.random() < 0.7:
        data = _damaged_npz(rng, data)
    else:
        data = _damaged(rng, data)
    target.write_bytes(data)
    return spoken(lambda: _use_corpus(path), f"damaged {name}", folder)


def _write_corpus(path: Path) -> None:
    corpus = Corpus([[1, 2, 0, 0], [4, 0, 0, 1], [3, 0, 1, 0]], ("ant", "bee", "cat", "dog"), ("one", "two", "three"))
    if path.name == "split.npz":
        corpus.split_tokens(0.5).save(path)
    elif path.name == "c.txt":
        path.write_text("ant bee bee\n\ncat dog ant\n", encoding="utf-8")
    else:
        save_corpus(corpus, path)
        if path.name == "real.mtx":
            path.write_bytes(path.read_bytes().replace(b"integer", b"real"))


def _use_corpus(path: Path) -> None:
    """What a fit or a score does with a corpus before anything is learned."""
    if path.name == "split.npz":
        split = TokenSplit.load(path)
        _need(split.observed.counts.shape == split.held_out.counts.shape, "the two parts have other shapes")
        _need(split.held_out.num_tokens > 0, "nothing is held out")
        return
    corpus = load_corpus(path)
    _need(corpus.num_tokens > 0, "there are no tokens")
    _need(len(corpus.names) == len(corpus) and len(set(corpus.vocabulary)) == corpus.vocab_size, "other sizes")
    corpus.summary()
    settings = settings_of(num_topics=2) | {
        "fit": {"held_out": None, "stop_words": None, "min_df": "1", "max_df": "1.0"}
    }
    prepared(corpus, settings, None)
    save_corpus(corpus, path.with_name("again.npz"))
    _need(load_corpus(path.with_name("again.npz")) == corpus, "it is another corpus after it was saved")


def _run(rng: np.random.Generator, folder: Path, files: dict[str, bytes]) -> Outcome:
    _emptied(folder)
    damaged, name = dict(files), str(rng.choice(_RUNS))
    state = next(file for file in files if file.endswith(".safetensors"))
    target = state if name.endswith(".safetensors") else name
    kind = rng.random()
    if target == state and kind < 0.7:
        damaged[target] = _damaged_tensors(rng, files[target])
    elif target == "run.json" and kind < 0.8:
        damaged[target] = _damaged_json(rng, files[target])
    else:
        damaged[target] = _damaged(rng, files[target])
    if target != "run.json" and rng.random() < 0.7:
        damaged["run.json"] = _signed(damaged["run.json"], damaged[state], damaged["vocabulary.txt"])
    for file, content in damaged.items():
        (folder / file).write_bytes(content)
    again = rng.random() < 0.5
    return spoken(lambda: (_resume if again else _use_run)(folder), f"damaged {name}", folder)


def _use_run(folder: Path) -> None:
    """What the command asks of a run."""
    with session():
        saved = load_run(folder)
        posterior, documents = saved.posterior, toys.corpus()
        topics = posterior.topics().values
        _need(bool(np.isfinite(topics).all()) and np.allclose(topics.sum(1), 1, atol=1e-4), "topics do not sum to one")
        aligned = documents.align(saved.vocabulary)[0]
        shares = posterior.proportions(aligned[:3]).values
        _need(bool(np.isfinite(shares).all()) and np.allclose(shares.sum(1), 1, atol=1e-4), "proportions do not sum")


def _resume(folder: Path) -> None:
    """One more epoch of a run."""
    with session():
        documents = toys.corpus()
        trainer = resume(folder, documents.counts, documents.vocabulary)[0]
        try:
            trainer.fit(1)
        except ValueError as error:  # strange settings of a signed run may diverge, which is said
            _need("diverged" in str(error), str(error))


def _damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """The bytes with one to three changes: cut, turned, put in, doubled, taken out, zeroed."""
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(data) + 1))
        size = int(rng.integers(1, 1 + max(1, len(data) // 4)))
        kind = int(rng.integers(0, 7))
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + bytes([int(rng.integers(0, 256))]) + data[at + 1 :]
        elif kind == 2:
            data = data[:at] + _PIECES[int(rng.integers(0, len(_PIECES)))] + data[at:]
        elif kind == 3:
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
        elif kind == 4:
            data = data[:at] + data[at + size :]
        elif kind == 5:
            data = data[:at] + bytes(len(data[at : at + size])) + data[at + size :]
        else:
            piece = _PIECES[int(rng.integers(0, len(_PIECES)))]
            data = data[:at] + piece + data[at + len(piece) :]
    return data


def _array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Another array in place of one: other numbers, shape or type."""
    kind = int(rng.integers(0, 7))
    if kind == 0 and array.size:
        array = array.copy()
        value = (0, -1, 10**9, np.nan, np.inf, 1)[int(rng.integers(0, 6))]
        with np.errstate(invalid="ignore"):
            array.reshape(-1)[int(rng.integers(0, array.size))] = np.asarray(value).astype(array.dtype)
    elif kind == 1:
        array = array[: int(rng.integers(0, len(array) + 1))] if array.ndim else array[None]
    elif kind == 2:
        array = array.reshape(1, *array.shape)
    elif kind == 3 and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            array = array.astype(str(rng.choice(_KINDS)))
    elif kind == 4:
        array = np.zeros_like(array)
    elif kind == 5:
        array = np.concatenate([array, array]) if array.ndim else array
    else:
        array = array.T
    return np.ascontiguousarray(array)


def _damaged_npz(rng: np.random.Generator, data: bytes) -> bytes:
    arrays = dict(np.load(io.BytesIO(data)))
    name = str(rng.choice(list(arrays)))
    if rng.random() < 0.1:
        del arrays[name]
    else:
        arrays[name] = _array(rng, arrays[name])
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _damaged_tensors(rng: np.random.Generator, data: bytes) -> bytes:
    tensors = dict(safetensors.numpy.load(data))
    name = str(rng.choice(list(tensors)))
    if rng.random() < 0.1:
        tensors[str(rng.choice(["x", "summary.x", "optimizer0.0.x", "optimizer9.0.exp_avg"]))] = tensors.pop(name)
    else:
        tensors[name] = _array(rng, tensors[name])
    return safetensors.numpy.save(tensors)


def _damaged_json(rng: np.random.Generator, data: bytes) -> bytes:
    """The JSON with one part taken out, or another value in its place."""
    record = copy.deepcopy(json.loads(data))
    places: list[tuple[Any, Any]] = []

    def collect(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            places.append((value, key))
            collect(item)

    collect(record)
    holder, key = places[int(rng.integers(0, len(places)))]
    if rng.random() < 0.15:
        del holder[key]
    else:
        holder[key] = _VALUES[int(rng.integers(0, len(_VALUES)))]
    return json.dumps(record).encode()


def _signed(record: bytes, state: bytes, vocabulary: bytes) -> bytes:
    """The record with the checksums of the files as they are now, as somebody with bad intent would write it."""
    content = json.loads(record)
    sums = {"state": state, "vocabulary": vocabulary}
    content["checksums"] = {part: hashlib.sha256(data).hexdigest() for part, data in sums.items()}
    return json.dumps(content).encode()


def _emptied(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()


def _need(holds: bool | Callable, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
