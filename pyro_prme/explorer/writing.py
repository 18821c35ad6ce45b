"""The page as one file: open this to change what it is put together from."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from pyro_prme.answers.posterior import Posterior
from pyro_prme.checks import positive
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.files import need_path, read_bytes, write_whole
from pyro_prme.explorer.page_bytes import pack, packed_arrays
from pyro_prme.explorer.page_data import PageData, page_data

__all__ = ["explore", "page_html", "read_names"]

#: The parts of the page's program, in the order in which they are read.
SCRIPTS = (
    "elements.js",
    "unpack.js",
    "state.js",
    "ranking.js",
    "one_document.js",
    "colours.js",
    "map.js",
    "topic_list.js",
    "topic_panel.js",
    "document_panel.js",
    "word_panel.js",
    "correlations.js",
    "search.js",
    "start.js",
)

_BYTES_AN_ENTRY = 2.2  # of the page, for each pair of a document and one of its words; measured on news and abstracts
_BYTES_A_LETTER = 0.5  # of the page, for each character of a text
_FORMAT = "pyro_prme topic names"


def explore(
    posterior: Posterior,
    corpus: Corpus,
    path: str | Path,
    *,
    title: str | None = None,
    texts: Sequence[str] | None = None,
    names: Mapping[int, str] | str | Path | None = None,
    max_megabytes: float = 10.0,
    seed: int = 0,
) -> Path:
    """Writes a page to explore a fitted model with: one file, which opens from disk and asks no network.

    It shows the topics with their words, the paintboxes with the documents in them, a document's words by topic and
    what happens to them when its place is moved, the correlations, and the words that the model predicts or misses.

    Args:
        posterior: of any fitted topic model.
        corpus: documents to show, of the model's vocabulary, at least three.
        path: the file to write; one that is there is replaced.
        title: of the page; default the file's name.
        texts: one for each document, to be read on the page with their words coloured; without them a document is
            shown as its different words.
        names: of topics by number, or a file of them that the page has saved.
        max_megabytes: size of the file. A corpus that would need more is sampled, and the page says so.
        seed: of that sample.

    Returns:
        The path.

    Example:
        >>> explore(posterior, corpus, "topics.html", names={3: "War"})
    """
    path = Path(path)
    limit = positive("max_megabytes", max_megabytes) * 1e6
    given = read_names(names) if isinstance(names, str | Path) else dict(names or {})
    letters = 0 if texts is None else sum(min(len(text), 20_000) for text in texts)
    expected = _BYTES_AN_ENTRY * corpus.nnz + _BYTES_A_LETTER * letters
    entries = max(int(corpus.nnz * limit / max(expected, 1)), 1)
    while True:
        data = page_data(posterior, corpus, title=title or path.stem, texts=texts, max_entries=entries, seed=seed)
        page = page_html(data, given).encode()
        if len(page) <= limit or len(data.rows) <= 3:
            break
        entries = int(min(entries, data.counts.nnz) * 0.9 * limit / len(page))
    if len(page) > limit:
        raise ValueError(f"max_megabytes is {max_megabytes:g}: it must be at least {len(page) / 1e6:.2f} for this run.")
    write_whole({path: page})
    return path


def page_html(data: PageData, names: Mapping[int, str] | None = None) -> str:
    """The page of page data.

    Args:
        data: what it shows.
        names: of topics by number.
    """
    header = {
        "title": data.title,
        "model": data.model,
        "numTopics": data.num_topics,
        "correlationKind": data.correlation_kind,
        "allDocuments": data.all_documents,
        "allWords": data.all_words,
        "half": data.half,
        "vocabulary": data.vocabulary,
        "documents": data.names,
        "texts": data.texts,
        "labels": data.labels.tolist(),
        "names": {str(k): name for k, name in (names or {}).items()},
    }
    code = program()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    parts = {
        "title": html.escape(data.title),
        "digest": digest,
        "style": _part("page.css"),
        "data": base64.b64encode(pack(header, packed_arrays(data))).decode(),
        "script": code,
    }
    return re.sub(r"<!--(\w+)-->", lambda mark: parts[mark[1]], _part("page.html"))


def program() -> str:
    """The page's JavaScript, one function around all its parts."""
    parts = "\n".join(_part(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


def read_names(path: str | Path) -> dict[int, str]:
    """Names of topics, from a file that a page has saved."""
    need_path(path)
    try:
        content = json.loads(read_bytes(Path(path)).decode("utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError
        return {int(k): str(name) for k, name in content["topics"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise ValueError(f"{path} holds no names of topics: give the file that an explorer page has saved.") from None


def _part(name: str) -> str:
    return (resources.files("pyro_prme.explorer") / "page" / name).read_text(encoding="utf-8")
