"""A small corpus, its settings and runs of it, for the trials."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.inference.session import session
from pyro_prme.runs.fitting import fit_in_folder
from pyro_prme.runs.run_files import is_run
from pyro_prme.runs.run_folder import load_run, make_trainer, resume, settings_of

WORDS = tuple(f"word{d}" for d in range(20))
EPOCHS = 6
SETTINGS = {"num_topics": 4, "batch_size": 10, "embedding_dim": 3, "seed": 1}


def corpus() -> Corpus:
    """Thirty documents over twenty words."""
    return Corpus(sparse.csr_array(np.random.default_rng(0).poisson(0.7, (30, len(WORDS)))), WORDS)


def fit(folder: Path, epochs: int = EPOCHS) -> None:
    """A fit in a folder, begun or resumed, as the command makes it."""
    documents, settings = corpus(), settings_of(**SETTINGS)
    settings["fit"] = {"epochs": epochs}
    with session():
        if is_run(folder):
            trainer, settings = resume(folder, documents.counts, documents.vocabulary)
        else:
            trainer = make_trainer(documents.counts, settings)
        fit_in_folder(folder, trainer, settings, documents, epochs)


def learned(folder: Path) -> tuple[int, bytes]:
    """The epochs of a run, and the bytes of its topics and correlations."""
    with session():
        saved = load_run(folder)
    parts = [saved.posterior.topics().values, saved.summary.get("topic_correlations", np.zeros(0))]
    return len(saved.history), b"".join(part.tobytes() for part in parts)


_files: dict[str, bytes] = {}


def run_files(folder: Path) -> dict[str, bytes]:
    """The files of a finished run, by name; it is fitted once a process, in a folder within the one given."""
    if not _files:
        fit(folder / "toy", 2)
        _files.update({file.name: file.read_bytes() for file in (folder / "toy").iterdir()})
    return _files
