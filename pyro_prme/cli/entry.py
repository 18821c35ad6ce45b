"""Where the command starts: its overview is shown without what the commands themselves need, which takes seconds."""

from __future__ import annotations

import sys

__all__ = ["HELP", "SUMMARIES", "VERSION_HELP", "main"]

#: The first lines of the help.
HELP = (
    "Topic models with learned correlations (PRME). Start with `prme demo`; for your own files, `prme fit`, then "
    "`prme topics` and `prme evaluate`."
)
#: Help of the option.
VERSION_HELP = "Print the version and end."

#: The commands and what their help begins with, in the order of the overview; a test compares it with theirs.
SUMMARIES = {
    "fit": "Fit a model to a corpus.",
    "topics": "Print the topics in use, largest first, with their top words and strongest correlations.",
    "transform": "Topic proportions of documents: a row for each, that sums to one, as CSV (or JSON).",
    "evaluate": "Score a run on documents that it was not fitted to.",
    "info": "Sizes of a corpus, or settings and state of a run.",
    "demo": "Fit PRME and HDP to the bundled King James Bible; print topics, correlations and scores; draw pictures.",
    "explore": "Write a page to explore a run with: one file that opens in a browser without a network.",
    "plot": "Draw a picture of a run, or of a random measure.",
    "pack": "Write a corpus as a folder that is mapped into memory, for corpora of millions of documents.",
    "mix": "Make one run of several: it predicts the mean of what they predict, better than each of them alone.",
}


def main() -> None:
    """Entry point of the ``prme`` command."""
    if sys.argv[1:] == ["--help"]:
        _overview()
    from pyro_prme.cli.command import app

    app(prog_name="prme")


def _overview() -> None:
    """Prints the help of the command and ends the process."""
    import typer

    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=HELP)

    @app.callback()
    def start(version: bool = typer.Option(False, "--version", help=VERSION_HELP)) -> None:
        pass

    for name, summary in SUMMARIES.items():
        app.command(name, help=summary)(lambda: None)
    app(prog_name="prme")
