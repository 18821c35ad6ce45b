"""A corpus by its name or from a file, and back into one: open this to load or save a corpus."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import counts_arrays, counts_from_arrays
from pyro_prme.corpora.files import (
    compressed_npz,
    need_path,
    open_npz,
    read_bytes,
    read_text_lines,
    read_words,
    write_whole,
)
from pyro_prme.corpora.formats import ldac_bytes, mtx_bytes, parse_ldac, parse_mtx, parse_uci, uci_bytes
from pyro_prme.corpora.h5ad import h5ad_arrays
from pyro_prme.corpora.packed import is_packed, open_packed

__all__ = [
    "NAMES",
    "corpus_files",
    "document_names",
    "format_of",
    "load_corpus",
    "load_texts",
    "save_corpus",
    "vocabulary_beside",
]

Words = tuple[str, ...]
_SUFFIXES = {".ldac": "ldac", ".dat": "ldac", ".mtx": "mtx", ".npz": "npz", ".h5ad": "h5ad", ".txt": "lines"}


def load_corpus(
    source: str | Path, *, vocab: str | Path | Sequence[str] | None = None, format: str | None = None
) -> Corpus:
    """A bundled or fetched corpus by name, or one from a file or folder.

    Names are ``"kjv"`` (the King James Bible by chapter, in the package) and ``"20news"`` (20 Newsgroups, fetched by
    scikit-learn). Files, gzipped or not, are told apart by their names:

    ============  ===========================  ========================================================
    format        name                         content
    ============  ===========================  ========================================================
    ``ldac``      ``*.ldac``, ``*.dat``        LDA-C: ``n id:count ...`` a line, ids from 0
    ``uci``       ``docword*.txt``             UCI bag of words
    ``mtx``       ``*.mtx``                    Matrix Market, documents x words, sparse
    ``npz``       ``*.npz``                    ``save_corpus``, or CSR by ``scipy.sparse.save_npz``
    ``h5ad``      ``*.h5ad``                   AnnData's X, var and obs, if ``h5py`` is installed
    ``lines``     other ``*.txt``              raw text, one document a line; blank lines are skipped
    ``folder``    a folder                     raw text, one document a file; or the one file of counts in it
    ``packed``    a folder by `prme pack`      a corpus whose counts are mapped into memory
    ============  ===========================  ========================================================

    For a file without words of its own, the vocabulary is looked for beside it: for ``train.ldac.gz`` in
    ``train.vocab.txt``, then ``vocab.txt`` (or their ``.gz``), for ``docword.x.txt`` also in ``vocab.x.txt``; without
    one the words are their numbers. Document names come from ``train.documents.txt``, or from a ``documents.txt`` with
    as many lines as there are documents.

    What a file may ask for is bounded by its size: a packed file may unpack to 32 MiB, or to 10 times its size if that
    is more (``PRME_MAX_MIB`` in the environment sets another limit, in MiB); without a vocabulary there are at most a
    million words; and at most a million documents, or as many as there are entries. Pipes and devices are not read.

    Args:
        source: name or path.
        vocab: path of a vocabulary file (one word a line), or the words. A corpus with words of its own is re-indexed
            to these, and other words are dropped.
        format: one of the formats above, if the name does not tell.
    """
    if not isinstance(source, str | Path):
        raise ValueError(
            f"source is a {type(source).__name__}, and must be a path or a name: give texts to Corpus.from_texts, and "
            "counts to Corpus.from_counts."
        )
    if source not in _NAMED:
        need_path(source)
    words = read_words(Path(vocab)) if isinstance(vocab, str | Path) else None if vocab is None else tuple(vocab)
    if source in _NAMED:
        corpus = _aligned(_NAMED[str(source)](), words)
    else:
        path = Path(source)
        format = format_of(path) if format is None else format
        if format not in _READERS:
            raise ValueError(f"There is no format {format!r}: use one of {', '.join(_READERS)}.")
        corpus = _READERS[format](path, words)
    if corpus.num_tokens == 0:
        raise ValueError(f"{source} has no tokens: every document is empty, so check the file and the vocabulary.")
    return corpus


def save_corpus(corpus: Corpus, path: str | Path, *, format: str | None = None) -> None:
    """Write a corpus as ``ldac``, ``uci``, ``mtx`` or ``npz``, whole or not at all.

    Beside text formats the words go to ``<name>.vocab.txt`` and the document names to ``<name>.documents.txt``.

    Args:
        corpus: what to write.
        path: the file; ``.gz`` at its end packs it.
        format: as in ``load_corpus``, if the name does not tell.
    """
    path = Path(path)
    format = format_of(path) if format is None else format
    if format == "npz":
        arrays = counts_arrays(corpus.counts)
        arrays |= {"vocabulary": np.array(corpus.vocabulary), "names": np.array(corpus.names)}
        write_whole({path: compressed_npz(arrays)})
        return
    writers = {"ldac": ldac_bytes, "uci": uci_bytes, "mtx": mtx_bytes}
    if format not in writers:
        raise ValueError(f"A corpus cannot be written as {format!r}: use one of {', '.join(writers)} or npz.")
    beside = {
        path.with_name(f"{_stem(path)}.{kind}.txt"): "".join(f"{line}\n" for line in lines).encode()
        for kind, lines in (("vocab", corpus.vocabulary), ("documents", corpus.names))
    }
    write_whole({**beside, path: writers[format](corpus.counts)})


def _read_counts(path: Path, words: Words | None, parse: Callable) -> Corpus:
    """A corpus from a file without words, which are given or lie beside it."""
    data = read_bytes(path)
    words = _beside(path, "vocab") if words is None else words
    counts = parse(data, path, None if words is None else len(words))
    return _named(path, counts, words, _beside(path, "documents", lines=counts.shape[0]))


def _read_npz(path: Path, words: Words | None) -> Corpus:
    arrays = open_npz(read_bytes(path), path)
    counts = counts_from_arrays(arrays, path)
    if "vocabulary" not in arrays:
        return _named(path, counts, _beside(path, "vocab") if words is None else words, None)
    own, names = (arrays.get(key, np.array([], str)) for key in ("vocabulary", "names"))
    if own.ndim != 1 or names.ndim != 1:
        raise ValueError(f"{path} has words or names that are not a list: write the corpus again.")
    return _aligned(_named(path, counts, tuple(own), tuple(names)), words)


def _read_h5ad(path: Path, words: Words | None) -> Corpus:
    arrays = h5ad_arrays(path)
    names, own = (tuple(map(str, arrays[key])) for key in ("names", "vocabulary"))
    return _aligned(_named(path, counts_from_arrays(arrays, path), own, names), words)


def _read_lines(path: Path, words: Words | None) -> Corpus:
    texts = _texts_of_lines(path)
    return _aligned(_located(path, lambda: Corpus.from_texts(texts.values(), texts)), words)


def _texts_of_lines(path: Path) -> dict[str, str]:
    return {str(n): line for n, line in enumerate(read_text_lines(path), start=1) if line.strip()}


def _read_folder(path: Path, words: Words | None) -> Corpus:
    if not os.path.isdir(path):
        raise ValueError(f"{path} is not a folder: give a folder, or a format that fits the file.")
    held = corpus_files(path)
    if len(held) > 1:
        raise ValueError(
            f"{path} holds {len(held)} corpora ({', '.join(file.name for file in held)}): name one of them."
        )
    if held:
        return _READERS[format_of(held[0])](held[0], words)
    texts = _texts_of_folder(path)
    if not texts:
        raise ValueError(f"{path} is an empty folder: it should hold one text file for each document.")
    return _aligned(_located(path, lambda: Corpus.from_texts(texts.values(), texts)), words)


def _texts_of_folder(path: Path) -> dict[str, str]:
    try:
        files = sorted(file for file in path.rglob("*") if os.path.isfile(file) and not file.name.startswith("."))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    return {file.relative_to(path).as_posix(): "\n".join(read_text_lines(file)) for file in files}


def load_texts(source: str | Path) -> dict[str, str] | None:
    """The texts themselves by the names of their documents, where `load_corpus` would count words of texts.

    None where the source is a corpus of counts, or known by its name.
    """
    if source in _NAMED:
        return None
    need_path(source)
    path = Path(source)
    format = format_of(path)
    if format == "lines":
        return _texts_of_lines(path)
    return _texts_of_folder(path) if format == "folder" and not corpus_files(path) else None


def corpus_files(folder: Path) -> list[Path]:
    """The files of counts that lie in a folder."""
    files = sorted(file for file in folder.iterdir() if os.path.isfile(file) and not file.name.startswith("."))
    return [file for file in files if _format_by_name(file) in ("ldac", "uci", "mtx", "npz", "h5ad")]


def vocabulary_beside(path: Path) -> Words | None:
    """The vocabulary that lies beside a file of counts."""
    return _beside(path, "vocab")


def document_names(path: Path, documents: int) -> Words | None:
    """The document names that lie beside a file of counts."""
    return _beside(path, "documents", lines=documents)


def _kjv() -> Corpus:
    resource = importlib.resources.files("pyro_prme") / "data" / "kjv.npz"
    with importlib.resources.as_file(resource) as path:
        return _read_npz(path, None)


def _twenty_newsgroups() -> Corpus:
    """All posts without headers, footers and quotes; words in 5 posts to half of them, no English stop words."""
    from sklearn.datasets import fetch_20newsgroups

    try:
        posts = fetch_20newsgroups(subset="all", remove=("headers", "footers", "quotes"))
    except OSError as error:
        raise ValueError(
            f"20news is fetched by scikit-learn, and was not ({error}): go online, or give a path."
        ) from None
    names = ["/".join(Path(file).parts[-2:]) for file in posts.filenames]
    corpus = Corpus.from_texts(posts.data, names, stop_words="english", min_df=5, max_df=0.5)
    return corpus[corpus.lengths > 0]


_NAMED: dict[str, Callable[[], Corpus]] = {"kjv": _kjv, "20news": _twenty_newsgroups}
#: Names of corpora that `load_corpus` knows without a path.
NAMES = tuple(_NAMED)

_READERS: dict[str, Callable[[Path, Words | None], Corpus]] = {
    "ldac": lambda path, words: _read_counts(path, words, parse_ldac),
    "uci": lambda path, words: _read_counts(path, words, parse_uci),
    "mtx": lambda path, words: _read_counts(path, words, parse_mtx),
    "npz": _read_npz,
    "h5ad": _read_h5ad,
    "lines": _read_lines,
    "folder": _read_folder,
    "packed": lambda path, words: _aligned(open_packed(path), words),
}


def _plain_name(path: Path) -> str:
    return path.name.removesuffix(".gz")


def _stem(path: Path) -> str:
    return Path(_plain_name(path)).stem


def _format_by_name(path: Path) -> str | None:
    name = _plain_name(path)
    if name.startswith("docword") and name.endswith(".txt"):
        return "uci"
    return _SUFFIXES.get(Path(name).suffix)


def format_of(path: Path) -> str:
    """The format that a path's name tells; a key of the readers."""
    format = ("packed" if is_packed(path) else "folder") if os.path.isdir(path) else _format_by_name(path)
    if format is None:
        known = ", ".join(_SUFFIXES)
        raise ValueError(f"{path}: the name does not tell the format (known: {known}, docword*.txt); give format=.")
    return format


def _beside(path: Path, kind: str, lines: int | None = None) -> Words | None:
    """The lines of the first file of this kind beside ``path``; a shared file counts only if it has ``lines`` lines."""
    stem = _stem(path)
    for name in dict.fromkeys([f"{stem}.{kind}.txt", f"{stem.replace('docword', kind, 1)}.txt", f"{kind}.txt"]):
        for file in (path.with_name(name), path.with_name(f"{name}.gz")):
            if file == path or not os.path.isfile(file):
                continue
            found = read_words(file) if kind == "vocab" else tuple(read_text_lines(file))
            if lines is None or len(found) == lines or name.startswith(stem):
                return found
    return None


def _aligned(corpus: Corpus, words: Words | None) -> Corpus:
    return corpus if words is None else corpus.align(words)[0]


def _named(path: Path, counts: object, words: Words | None, names: Words | None) -> Corpus:
    if words is None:
        words = tuple(str(d) for d in range(counts.shape[1]))  # type: ignore[attr-defined]
    return _located(path, lambda: Corpus(counts, words, names or ()))


def _located(path: Path, build: Callable[[], Corpus]) -> Corpus:
    """The corpus, or its ``ValueError`` with the path before it."""
    try:
        return build()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
