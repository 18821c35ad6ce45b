"""The commands that follow a fit: a page to explore it with, and what `prme fit` proposes at its end."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pyro_prme.checks import positive, whole
from pyro_prme.cli.show import corpus_of_run, echo
from pyro_prme.corpora.files import need_path
from pyro_prme.corpora.readers import load_texts
from pyro_prme.explorer.writing import explore as write_page
from pyro_prme.runs.run_folder import load_run

__all__ = ["explore", "next_commands"]


def explore(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `prme fit` made.")],
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="Documents to show: as for `prme fit`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("topics.html"),
    vocab: Annotated[Path | None, typer.Option(help="File with one word a line, for counts without words.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.", show_default="name of the corpus")] = None,
    names: Annotated[Path | None, typer.Option(help="Names of topics, as the page saves them.")] = None,
    megabytes: Annotated[float, typer.Option(help="Size of the file; a larger corpus is sampled.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Decides which documents a sample has.")] = 0,
) -> None:
    """Write a page to explore a run with: one file that opens in a browser without a network.

    Topics and their words, the paintboxes with the documents in them, each document's words by topic, correlations,
    and a search. Of raw texts, the texts themselves can be read, with their words coloured by topic.

    Example: prme explore run/ corpus.ldac -o topics.html
    """
    positive("--megabytes", megabytes)
    whole("--seed", seed, 0)
    if names is not None:
        need_path(names)
    saved = load_run(run)
    documents = corpus_of_run(saved, corpus, vocab)
    title = title or Path(corpus).name.split(".")[0] or "Topics"
    texts = load_texts(corpus)
    read = None if texts is None else [texts[name] for name in documents.names]
    path = write_page(
        saved.posterior, documents, output, title=title, texts=read, names=names, max_megabytes=megabytes, seed=seed
    )
    echo(f"{path}: {path.stat().st_size / 1e6:.2f} MB. Open it in a browser; it needs no network.")


def next_commands(run: Path, corpus: str, vocab: Path | None) -> str:
    """Three commands to go on with after a fit, a line each: topics, the page, and a picture."""
    words = ["--vocab", str(vocab)] if vocab else []
    page, picture = (f"{run.name or 'topics'}{ending}" for ending in (".html", "-correlations.png"))
    commands = [
        ["prme", "topics", str(run)],
        ["prme", "explore", str(run), corpus, *words, "-o", str(run.with_name(page) if run.name else page)],
        [
            "prme",
            "plot",
            "correlations",
            str(run),
            corpus,
            *words,
            "-o",
            str(run.with_name(picture) if run.name else picture),
        ],
    ]
    return "\n".join(["Next:", *(f"  {shlex.join(command)}" for command in commands)])
