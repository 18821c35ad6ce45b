"""The ``prme`` command: from files of counts to topics, correlations and held-out scores, without any Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyro_prme.answers.words_of_topics import RANKINGS
from pyro_prme.checks import whole
from pyro_prme.cli.arguments import FORMATS, Csv, Json, RunArgument, Vocab
from pyro_prme.cli.asking import evaluate, transform
from pyro_prme.cli.demo import run_demo
from pyro_prme.cli.entry import HELP, VERSION_HELP
from pyro_prme.cli.explore import explore
from pyro_prme.cli.fit_command import fit, stopped
from pyro_prme.cli.mix import mix
from pyro_prme.cli.pack import pack
from pyro_prme.cli.plot import plot
from pyro_prme.cli.show import (
    OneLineErrors,
    as_csv,
    as_json,
    as_table,
    echo,
    print_version,
    topic_lines,
    topic_rows,
)
from pyro_prme.corpora.readers import load_corpus
from pyro_prme.runs.fitting import (
    correlations_that_hold,
)
from pyro_prme.runs.mixing import is_mix
from pyro_prme.runs.run_files import is_run
from pyro_prme.runs.run_folder import load_run
from pyro_prme.runs.stopping import stop_signals

__all__ = ["app", "main"]


#: The `prme` command.
#:
#: :meta hide-value:
app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help=HELP,
)


@app.callback()
def _start(
    version: Annotated[
        bool, typer.Option("--version", help=VERSION_HELP, callback=print_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command()(fit)


@app.command()
def topics(
    run: RunArgument,
    words: Annotated[int, typer.Option(help="Words of each topic.")] = 10,
    by: Annotated[str, typer.Option(help=f"How words are ranked: {', '.join(RANKINGS)}.")] = "probability",
    correlations: Annotated[int, typer.Option(help="Correlated topics to name.")] = 3,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Print the topics in use, largest first, with their top words and strongest correlations.

    Correlations are over the documents of the fit; those whose 95% interval has zero in it are left out.
    """
    whole("--words", words)
    whole("--correlations", correlations, 0)
    saved = load_run(run)
    matrix = correlations_that_hold(saved.summary)
    if saved.parts and correlations:
        echo("no correlations: topics of different parts have none; ask a part, such as RUN/part-1", err=True)
    elif matrix is None and correlations:
        echo("no correlations yet: they come with the last epoch of `prme fit`", err=True)
    rows = topic_rows(saved.posterior, matrix, words=words, by=by, others=correlations)
    if json:
        echo(as_json(rows))
    elif csv:
        pairs = [" ".join(f"{c['topic']}:{c['correlation']:.3f}" for c in row.get("correlations", [])) for row in rows]
        table = [[row["topic"], row["share"], " ".join(row["words"]), p] for row, p in zip(rows, pairs, strict=True)]
        echo(as_csv(["topic", "share", "words", "correlations"], table))
    else:
        echo("\n".join(topic_lines(rows)))


app.command()(transform)
app.command()(evaluate)


@app.command()
def info(
    what: Annotated[str, typer.Argument(metavar="RUN-OR-CORPUS", help=f"A run's folder, or a corpus. {FORMATS}")],
    vocab: Vocab = None,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Sizes of a corpus, or settings and state of a run."""
    if not is_run(what) and not is_mix(what):
        echo(as_table(load_corpus(what, vocab=vocab).summary(), json, csv))
        return
    saved = load_run(what)
    if saved.parts:
        echo(
            as_table(
                {"pyro_prme": saved.version, "parts": len(saved.parts), "each": "see prme info RUN/part-1"}, json, csv
            )
        )
        return
    table: dict[str, Any] = {"pyro_prme": saved.version, "epochs": len(saved.history)}
    if not saved.history:
        table["epochs"] = "0, and within epoch 1"
    for last in saved.history[-1:]:
        table |= {key: value for key, value in last.items() if key not in ("epoch", "documents", "terms")}
    table |= {"vocabulary": len(saved.vocabulary), "documents": saved.model.num_documents}
    for part, values in saved.settings.items():
        table |= {f"{part}.{key}": value for key, value in values.items()}
    echo(as_table(table, json, csv))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the models and pictures.")] = Path("prme-demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of a minute or two: less good topics.")
    ] = False,
) -> None:
    """Fit PRME and HDP to the bundled King James Bible; print topics, correlations and scores; draw pictures."""
    try:
        with stop_signals():
            run_demo(out, quick, echo)
    except KeyboardInterrupt as stop:
        raise stopped(stop, None, "") from None


app.command()(explore)
app.command()(plot)
app.command()(pack)
app.command()(mix)


def main() -> None:
    """Entry point of the ``prme`` command."""
    app(prog_name="prme")
