"""Files with random damage, for every reader and every file of a run: read, or refused in one line with their name.

What is read after damage must be usable: a corpus has tokens, and a run answers with finite numbers that sum to one.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import safetensors.numpy

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.readers import save_corpus
from pyro_prme.inference.session import session
from pyro_prme.runs.run_folder import SavedRun, load_run, resume
from tests.robustness import toys
from tests.robustness.damage import damaged, damaged_array, damaged_json
from tests.robustness.fuzzed_folders import damaged_folder
from tests.robustness.fuzzed_h5ad import damaged_h5ad
from tests.robustness.trials import Outcome, generator, spoken
from tests.robustness.using import need, use_corpus

__all__ = ["trial"]

_CORPORA = ("c.npz", "c.ldac", "c.ldac.gz", "docword.c.txt", "c.mtx", "real.mtx", "c.txt", "c.vocab.txt", "split.npz")
_RUNS = ("run.json", "state-1.safetensors", "vocabulary.txt")


def trial(seed: int, number: int, folder: Path) -> Outcome:
    """One damaged file, of a corpus or of a run; every fortieth an ``.h5ad``, and every tenth in a corpus folder."""
    rng = generator(seed, number)
    place = _emptied(folder / "fuzzed")
    if number % 40 == 0:
        outcome = damaged_h5ad(rng, place)
    elif number % 10 == 3:
        outcome = damaged_folder(rng, place)
    elif rng.random() < 0.5:
        outcome = _corpus(rng, place)
    else:
        outcome = _run(rng, place, toys.run_files(folder))
    return outcome._replace(counts={"files": 1})


def _corpus(rng: np.random.Generator, folder: Path) -> Outcome:
    name = str(rng.choice(_CORPORA))
    path = folder / ("c.ldac" if name == "c.vocab.txt" else name)
    _write_corpus(path)
    target = folder / name
    data = target.read_bytes()
    if name.endswith(".gz") and rng.random() < 0.7:
        data = gzip.compress(damaged(rng, gzip.decompress(data)), mtime=0)
    elif name.endswith(".npz") and rng.random() < 0.7:
        data = _damaged_npz(rng, data)
    else:
        data = damaged(rng, data)
    target.write_bytes(data)
    return spoken(lambda: use_corpus(path), f"damaged {name}", folder)


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


def _run(rng: np.random.Generator, folder: Path, files: dict[str, bytes]) -> Outcome:
    files_now, name = dict(files), str(rng.choice(_RUNS))
    state = next(file for file in files if file.endswith(".safetensors"))
    target = state if name.endswith(".safetensors") else name
    kind = rng.random()
    if target == state and kind < 0.7:
        files_now[target] = _damaged_tensors(rng, files[target])
    elif target == "run.json" and kind < 0.8:
        files_now[target] = damaged_json(rng, files[target])
    else:
        files_now[target] = damaged(rng, files[target])
    if target != "run.json" and rng.random() < 0.7:
        files_now["run.json"] = _signed(files_now["run.json"], files_now[state], files_now["vocabulary.txt"])
    for file, content in files_now.items():
        (folder / file).write_bytes(content)
    again = rng.random() < 0.5
    return spoken(lambda: (_resume if again else _use_run)(folder), f"damaged {name}", folder)


def _use_run(folder: Path) -> None:
    """What the command asks of a run."""
    with session():
        saved = load_run(folder)
        try:
            _ask(saved)
        except ValueError as error:  # strange numbers of a signed run may have diverged, which is said
            need("diverged" in str(error), str(error))


def _ask(saved: SavedRun) -> None:
    posterior, documents = saved.posterior, toys.corpus()
    topics = posterior.topics().values
    need(bool(np.isfinite(topics).all()) and np.allclose(topics.sum(1), 1, atol=1e-4), "topics do not sum to one")
    aligned = documents.align(saved.vocabulary)[0]
    shares = posterior.proportions(aligned[:3]).values
    need(bool(np.isfinite(shares).all()) and np.allclose(shares.sum(1), 1, atol=1e-4), "proportions do not sum")


def _resume(folder: Path) -> None:
    """One more epoch of a run."""
    with session():
        documents = toys.corpus()
        trainer = resume(folder, documents.counts, documents.vocabulary)[0]
        try:
            trainer.fit(1)
        except ValueError as error:  # strange settings of a signed run may diverge, which is said
            need("diverged" in str(error), str(error))


def _damaged_npz(rng: np.random.Generator, data: bytes) -> bytes:
    arrays = dict(np.load(io.BytesIO(data)))
    name = str(rng.choice(list(arrays)))
    if rng.random() < 0.1:
        del arrays[name]
    else:
        arrays[name] = damaged_array(rng, arrays[name])
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _damaged_tensors(rng: np.random.Generator, data: bytes) -> bytes:
    tensors = dict(safetensors.numpy.load(data))
    name = str(rng.choice(list(tensors)))
    if rng.random() < 0.1:
        tensors[str(rng.choice(["x", "summary.x", "optimizer0.0.x", "optimizer9.0.exp_avg"]))] = tensors.pop(name)
    else:
        tensors[name] = damaged_array(rng, tensors[name])
    return safetensors.numpy.save(tensors)


def _signed(record: bytes, state: bytes, vocabulary: bytes) -> bytes:
    """The record with the checksums of the files as they are now, as somebody with bad intent would write it."""
    content = json.loads(record)
    sums = {"state": state, "vocabulary": vocabulary}
    content["checksums"] = {part: hashlib.sha256(data).hexdigest() for part, data in sums.items()}
    return json.dumps(content).encode()


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
