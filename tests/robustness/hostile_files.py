"""Small files that ask for much: 5 MiB get at most 1.5 GiB and 30 seconds, and end as a corpus or as a sentence."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyro_prme.corpora.readers import load_corpus
from pyro_prme.corpora.splits import TokenSplit
from pyro_prme.inference.session import session
from pyro_prme.runs.run_folder import load_run, resume
from tests.robustness import toys
from tests.robustness.hostile_containers import FOLDERS, H5AD
from tests.robustness.trials import MIB, Outcome, generator, isolated, sentence_fault

__all__ = ["FILES", "trial"]

_SECONDS, _MIB = 30, 1536
_MTX = b"%%MatrixMarket matrix coordinate integer general\n"


def trial(seed: int, number: int, folder: Path) -> Outcome:
    """Reads one of the files, of a random size, in a process of its own."""
    name = list(FILES)[number % len(FILES)]
    make, use = FILES[name]
    path = make(generator(seed, number), folder / f"hostile-{number}")
    end = isolated(use, path, seconds=20 * _SECONDS)
    if not end.clean:
        return Outcome(name, f"ended with {end.code}: {end.error}" if end.code is not None else "it did not end")
    if end.seconds > _SECONDS or end.mib > _MIB:
        return Outcome(name, f"{end.seconds:.0f} s and {end.mib:.0f} MiB: {end.error or 'read'}")
    fault = sentence_fault(end.error) if end.error else ""
    most = {"seconds of a hostile file": end.seconds, "MiB of a hostile file": end.mib}
    return Outcome(f"{name}: {'refused' if end.error else 'read'}", fault, {"hostile files": 1}, most)


def read_corpus(path: Path) -> None:
    """What `prme fit --held-out` and `prme evaluate` do with documents."""
    corpus = load_corpus(path)
    corpus.summary()
    corpus.split_tokens(0.9)
    corpus.restrict(min_df=1)


def read_split(path: Path) -> None:
    """A saved split."""
    TokenSplit.load(path)


def read_run(path: Path) -> None:
    """What every command does with a run, and `prme fit --resume`."""
    with session():
        try:
            load_run(path)
        except ValueError as error:
            documents = toys.corpus()
            try:
                resume(path, documents.counts, documents.vocabulary)
            except ValueError:
                raise error from None
            raise AssertionError(f"resumed what cannot be loaded: {error}") from None


Make = Callable[[np.random.Generator, Path], Path]


def _file(name: str, content: Callable[[np.random.Generator], bytes]) -> Make:
    def make(rng: np.random.Generator, folder: Path) -> Path:
        folder.mkdir()
        (folder / name).write_bytes(content(rng))
        return folder / name

    return make


def _run(change: Callable[[np.random.Generator, dict[str, bytes]], None]) -> Make:
    def make(rng: np.random.Generator, folder: Path) -> Path:
        folder.mkdir()
        files = dict(toys.run_files(folder))
        change(rng, files)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    return make


def _setting(part: str, **values: object) -> Make:
    def change(rng: np.random.Generator, files: dict[str, bytes]) -> None:
        record = json.loads(files["run.json"])
        (record["settings"] if part in record["settings"] else record)[part].update(values)
        files["run.json"] = json.dumps(record).encode()

    return _run(change)


def _bomb(mebibytes: int, line: bytes) -> bytes:
    """Gzip of many of the same line."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed:
        block = line * (MIB // len(line))
        for _ in range(mebibytes):
            packed.write(block)
    return buffer.getvalue()


def _packed_file(name: str, mebibytes: int) -> Make:
    def change(rng: np.random.Generator, files: dict[str, bytes]) -> None:
        files[name] = _bomb(mebibytes, files[name][:1000])

    return _run(change)


def _npz(**arrays: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as members:
        for name, content in arrays.items():
            members.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def _npy(shape: tuple[int, ...], kind: str = "<i8", content: bytes = b"") -> bytes:
    """The header of an array of any shape, with whatever follows."""
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def _long_header(rng: np.random.Generator, files: dict[str, bytes]) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [2**31, 2**31], "data_offsets": [0, 2**62]}}).encode()
    name = next(file for file in files if file.endswith(".safetensors"))
    size = int(rng.choice([len(header), 2**40, 2**63]))
    files[name] = struct.pack("<Q", size) + header


def _nested(rng: np.random.Generator, files: dict[str, bytes]) -> None:
    files["run.json"] = b"[" * int(rng.integers(10**3, 2 * 10**6))


def _digits(rng: np.random.Generator, files: dict[str, bytes]) -> None:
    files["run.json"] = files["run.json"].replace(b'"steps": ', b'"steps": ' + b"9" * int(rng.integers(10**3, 10**6)))


def _device(path: str) -> Make:
    def make(rng: np.random.Generator, folder: Path) -> Path:
        folder.mkdir()
        (folder / "c.ldac").symlink_to(path)
        return folder / "c.ldac"

    return make


def _pipe(rng: np.random.Generator, folder: Path) -> Path:
    folder.mkdir()
    os.mkfifo(folder / "c.ldac")
    return folder / "c.ldac"


def _many_files(rng: np.random.Generator, folder: Path) -> Path:
    folder.mkdir()
    for n in range(int(rng.integers(100, 1500))):
        (folder / f"{n}.txt").write_text("a word and another" * int(rng.integers(0, 3)))
    return folder


def _repeated(line: bytes, most: int = 5 * MIB) -> Callable[[np.random.Generator], bytes]:
    return lambda rng: line * int(rng.integers(1, max(2, most // len(line))))


FILES: dict[str, tuple[Make, Callable[[Path], None]]] = {
    "two thousand million tokens in a line": (_file("c.ldac", lambda rng: b"1 0:2000000000\n1 0:1 \n"), read_corpus),
    "many lines of many tokens": (_file("c.ldac", _repeated(b"2 0:2000000000 1:7\n")), read_corpus),
    "a word with a large number": (
        _file("c.ldac", lambda rng: b"1 %d:1\n1 0:1\n" % rng.integers(10, 2**31)),
        read_corpus,
    ),
    "empty lines": (_file("c.txt", _repeated(b"\n")), read_corpus),
    "short lines": (_file("c.txt", _repeated(b"a\n")), read_corpus),
    "one long word": (_file("c.txt", _repeated(b"word")), read_corpus),
    "words that are all different": (
        _file(
            "c.txt",
            lambda rng: "".join(f"{chr(97 + i % 26)}{i:x} " for i in range(400_000)).translate(_LETTERS).encode(),
        ),
        read_corpus,
    ),
    "empty documents": (_file("c.ldac", _repeated(b"0\n")), read_corpus),
    "documents announced by a header": (
        _file("c.mtx", lambda rng: _MTX + b"%d %d 1\n1 1 1\n" % tuple(rng.integers(10, 2**31, 2))),
        read_corpus,
    ),
    "entries announced by a header": (
        _file("docword.c.txt", lambda rng: b"3\n3\n%d\n1 1 1\n" % rng.integers(10, 2**62)),
        read_corpus,
    ),
    "a matrix of one entry a line": (
        _file("c.mtx", lambda rng: _MTX + b"9 9 500000\n" + 500_000 * b"1 1 1\n"),
        read_corpus,
    ),
    "gzip that unpacks to gigabytes": (
        _file("c.ldac.gz", lambda rng: _bomb(int(rng.integers(100, 500)), b"1 0:1\n")),
        read_corpus,
    ),
    "gzip within gzip": (_file("c.ldac.gz", lambda rng: gzip.compress(_bomb(300, b"1 0:1\n"))), read_corpus),
    "npz that unpacks to gigabytes": (
        _file("c.npz", lambda rng: _npz(data=_npy((2**27,), "<i8", bytes(2**28)), shape=_npy((2,), "<i8", bytes(16)))),
        read_corpus,
    ),
    "npz with a header that claims much": (
        _file("c.npz", lambda rng: _npz(data=_npy((int(rng.integers(2**30, 2**40)),)), shape=_npy((2,)))),
        read_corpus,
    ),
    "npz that claims negative sizes": (
        _file("c.npz", lambda rng: _npz(data=_npy((-1,)), shape=_npy((2,)))),
        read_corpus,
    ),
    "npz of 20,000 arrays": (
        _file("c.npz", lambda rng: _npz(**{f"a{i}": _npy((0,)) for i in range(20_000)})),
        read_corpus,
    ),
    "a split that unpacks to gigabytes": (
        _file("split.npz", lambda rng: _npz(vocabulary=_npy((2**24,), "<U4", bytes(2**28)))),
        read_split,
    ),
    "a pipe": (_pipe, read_corpus),
    "a device": (_device("/dev/zero"), read_corpus),
    "a link to itself": (_device("c.ldac"), read_corpus),
    "a folder of many files": (_many_files, read_corpus),
    "a run with a packed record": (_packed_file("run.json", 500), read_run),
    "a run with a packed vocabulary": (_packed_file("vocabulary.txt", 500), read_run),
    "a run of a million topics": (_setting("build", num_topics=10**6), read_run),
    "a run of wide layers": (_setting("build", encoder_hidden=[25_000, 25_000]), read_run),
    "a run of deep networks": (_setting("build", decoder_hidden=[3] * 100_000), read_run),
    "a run of long embeddings": (_setting("build", embedding_dim=10**9), read_run),
    "a run of many words": (_setting("sizes", vocab_size=10**9), read_run),
    "a run of many documents": (_setting("sizes", num_documents=10**15), read_run),
    "a run of large batches": (_setting("trainer", batch_size=10**15), read_run),
    "a run with a lying header": (_run(_long_header), read_run),
    "a run with deep brackets": (_run(_nested), read_run),
    "a run with a number of a million digits": (_run(_digits), read_run),
    **{name: (make, read_corpus) for name, make in (H5AD | FOLDERS).items()},
}
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
