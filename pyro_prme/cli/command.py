"""The ``prme`` command: from files of counts to topics, correlations and held-out scores, without any Python."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from pyro_prme.answers.words_of_topics import RANKINGS
from pyro_prme.checks import positive, whole
from pyro_prme.cli.arguments import FORMATS, CorpusArgument, Csv, Json, RunArgument, Vocab
from pyro_prme.cli.asking import evaluate, transform
from pyro_prme.cli.demo import run_demo
from pyro_prme.cli.entry import HELP, VERSION_HELP
from pyro_prme.cli.explore import explore, next_commands
from pyro_prme.cli.mix import mix, part_name
from pyro_prme.cli.pack import pack
from pyro_prme.cli.plot import plot
from pyro_prme.cli.show import (
    OneLineErrors,
    as_csv,
    as_json,
    as_table,
    echo,
    held_out_score,
    print_version,
    topic_lines,
    topic_rows,
)
from pyro_prme.cli.together import (
    again_with_workers,
    all_or_none,
    restarted,
    same_for_all,
    speaking,
    under_torchrun,
    without_option,
    writing,
)
from pyro_prme.corpora.readers import load_corpus
from pyro_prme.corpora.text import frequent_stop_words
from pyro_prme.inference.build import INFERENCES, MODELS, PRESETS, check_passes
from pyro_prme.inference.large import RULE
from pyro_prme.inference.workers import Workers, working_together
from pyro_prme.runs.fitting import (
    FIT_DEFAULTS,
    check_options,
    check_paths,
    correlations_that_hold,
    fit_in_folder,
    is_a_bound,
    prepared,
    same_settings,
    usual_settings,
)
from pyro_prme.runs.mixing import is_mix, write_mix
from pyro_prme.runs.run_files import check_new, is_run, need_files, read_record
from pyro_prme.runs.run_folder import load_run, make_trainer, resume, settings_of
from pyro_prme.runs.stopping import Stopped, stop_signals

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


@app.command()
def fit(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Option(help="Folder for the run: the model, its history, all that resuming needs.")],
    vocab: Vocab = None,
    topics: Annotated[int | None, typer.Option(help="Most topics that the model may use.", show_default="100")] = None,
    model: Annotated[str | None, typer.Option(help=f"One of {', '.join(MODELS)}.", show_default="prme")] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"Settings that belong together: {', '.join(PRESETS)}.", show_default="default")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the documents.", show_default="see --mode")] = None,
    mode: Annotated[
        str | None, typer.Option(help="batch or online (steps after each batch).", show_default=RULE)
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Documents a step.", show_default="500")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same numbers.", show_default="0")] = None,
    alpha: Annotated[float | None, typer.Option(help="Concentration of the sticks.", show_default="1")] = None,
    beta: Annotated[float | None, typer.Option(help="Total shape of a document's loadings.", show_default="3")] = None,
    gamma0: Annotated[float | None, typer.Option(help="Dirichlet parameter of topics.", show_default="0.05")] = None,
    own_words: Annotated[
        bool | None,
        typer.Option(
            "--own-words", help="Topics say which words a document has, a layer below them how often it repeats them."
        ),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(help="Documents to score while fitting: a corpus, or a fraction of this one kept out of the fit."),
    ] = None,
    min_df: Annotated[
        str | None, typer.Option(help="Keep words in at least so many documents (5), or such a share (0.01).")
    ] = None,
    max_df: Annotated[
        str | None, typer.Option(help="Keep words in at most so many documents, or such a share.")
    ] = None,
    stop_words: Annotated[str | None, typer.Option(help="Words to drop: english, or a file of them.")] = None,
    inference: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(INFERENCES)} (sampling).", show_default="updates")
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Fits, with seeds from --seed on, that are asked as one: their mean predicts better.")
    ] = 1,
    resume_run: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, with its own settings.")
    ] = False,
    workers: Annotated[
        int, typer.Option(help="Processes that fit together, each on its part of every batch. See torchrun for more.")
    ] = 1,
    patience: Annotated[
        float, typer.Option(help="Minutes that a worker waits for the others; then all are started again.")
    ] = 10.0,
) -> None:
    """Fit a model to a corpus.

    A checkpoint is kept after each epoch and every five minutes within one, or less often where that would take more
    than a tenth of the time. Ctrl-C, SIGTERM and SIGHUP end the fit and leave the last one, from which --resume goes
    on.

    Example: prme fit corpus.ldac --vocab vocab.txt --topics 100 --out run/
    """
    given: dict[str, Any] = {"num_topics": topics, "model": model, "mode": mode, "batch_size": batch_size}
    given |= {"seed": seed, "alpha": alpha, "beta": beta, "gamma0": gamma0}
    given |= {"own_words": own_words, "inference": inference}
    asked: dict[str, Any] = {"preset": preset, "epochs": epochs, "held_out": held_out}
    asked |= {"min_df": min_df, "max_df": max_df, "stop_words": stop_words}
    asked = {name: value for name, value in asked.items() if value is not None}
    check_options(given | asked)
    check_paths(corpus, vocab, asked)
    whole("--workers", workers)
    whole("--seeds", seeds)
    positive("--patience", patience)
    resume_run = resume_run or (restarted() and any(is_run(folder) for folder in (out, out / part_name(0))))
    if not resume_run and not under_torchrun():
        check_new(out)
    if seeds > 1 and is_run(out):
        raise ValueError(f"{out} holds one run, without parts for several seeds: leave --seeds out to resume it.")
    folders = [out] if seeds == 1 else [out / part_name(i) for i in range(seeds)]
    goes_on = seed is None and resume_run and is_run(folders[0])
    first = int(read_record(folders[0])["settings"]["build"]["seed"]) if goes_on else seed or 0
    jobs: list[Job] = []
    for i, folder in enumerate(folders):
        wanted = given if seeds == 1 else given | {"seed": first + i}
        resuming = resume_run and (seeds == 1 or is_run(folder))
        new = None if resuming else given | asked
        jobs.append(Job(folder, _settings(folder, wanted, asked, resuming), new))
    if workers > 1 and not under_torchrun():
        again_with_workers(workers, without_option(sys.argv[1:], "--workers"))
    again = ["prme", "fit", corpus, *(["--vocab", str(vocab)] if vocab else []), "--out", str(out)]
    again += ["--seeds", str(seeds), "--resume"] if seeds > 1 else ["--resume"]
    with working_together(patience) as team, speaking(team):
        for job in jobs:
            by_default = topics is None and job.given is not None
            _fit(corpus, vocab, job, jobs[0].settings["build"]["seed"], team, shlex.join(again), by_default=by_default)
        if team.leads and seeds > 1:
            write_mix(out, [folder.name for folder in folders])
            echo(f"{out}: the mean of {seeds} fits. Next: prme evaluate {shlex.quote(str(out))} test.ldac")


class Job(NamedTuple):
    """One fit: the folder of its run, its settings, and what was given for a new one; None if it goes on."""

    folder: Path
    settings: dict[str, Any]
    given: dict[str, Any] | None


def _settings(folder: Path, given: dict[str, Any], asked: dict[str, Any], resuming: bool) -> dict[str, Any]:
    """Settings of a fit: those of the run that goes on, or those that were asked for."""
    if resuming:
        record = read_record(folder)
        need_files(folder, record)
        return same_settings(record["settings"], given | asked)
    chosen = given | {"num_topics": given["num_topics"] or 100}
    settings: dict[str, Any] = settings_of(asked.get("preset", "default"), **chosen)
    settings["fit"] = FIT_DEFAULTS | asked
    check_passes("--epochs", settings["fit"]["epochs"], settings["build"])
    return settings


def _fit(
    corpus: str, vocab: Path | None, job: Job, split_seed: int, team: Workers, again: str, *, by_default: bool
) -> None:
    """Reads, fits and saves; then says how it went. A number of topics by default is questioned where it is large."""
    out, settings, given = job
    train, test = all_or_none(team, lambda: prepared(load_corpus(corpus, vocab=vocab), settings, vocab, split_seed))
    if given is not None:
        settings, note = usual_settings(settings, given, len(train))
        if note:
            echo(f"note: {note}", err=True)
    split = None if test is None else test.split_tokens(0.9, seed=split_seed)
    common = frequent_stop_words(train.vocabulary, train.word_totals)
    if common and settings["fit"]["stop_words"] is None:
        named = ", ".join(common[:3])
        echo(f"note: {named} are among the most frequent words: --stop-words english drops words like them", err=True)
    most, few = settings["build"]["num_topics"], max(5, train.num_documents // 10)
    if by_default and few < most // 2:
        echo(
            f"note: {train.num_documents} documents are few for {most} topics: --topics {few} is easier to read",
            err=True,
        )
    try:
        with stop_signals(), writing(team, out):
            same_for_all(team, train, settings)
            if given is None:
                trainer = all_or_none(team, lambda: resume(out, train.counts, train.vocabulary, workers=team)[0])
            else:
                trainer = all_or_none(team, lambda: make_trainer(train.counts, settings, workers=team))
            posterior = fit_in_folder(out, trainer, settings, train, settings["fit"]["epochs"], split)
    except KeyboardInterrupt as stop:
        raise _stopped(stop, out, again) from None
    last = trainer.history[-1]
    score = held_out_score(trainer.history)
    used = f"{posterior.num_topics_used} of {settings['build']['num_topics']} topics in use"
    what = "bound" if is_a_bound(last) else "log probability of each word given the others"
    echo(f"{out}: {len(trainer.history)} epochs, {what} {last['bound']:.6g}{score}, {used}.")
    echo(next_commands(out, corpus, vocab))


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
        raise _stopped(stop, None, "") from None


app.command()(explore)
app.command()(plot)
app.command()(pack)
app.command()(mix)


def main() -> None:
    """Entry point of the ``prme`` command."""
    app(prog_name="prme")


def _stopped(stop: KeyboardInterrupt, run: Path | None, again: str) -> typer.Exit:
    """Says what stopped a fit and what is kept of it; returns the end of the command, with the shell's exit code.

    Args:
        stop: Ctrl-C, or a `Stopped`.
        run: the run's folder; None for the demo.
        again: the command that goes on.
    """
    why, code = (f"stopped by {stop}", 128 + stop.signum) if isinstance(stop, Stopped) else ("interrupted", 130)
    if run is None:
        kept = "the same command goes on from the last checkpoint"
    elif not is_run(run):
        kept = "no checkpoint was written yet: nothing is kept"
    else:
        record = read_record(run)
        done, within = len(record["history"]), record.get("underway") is not None
        place = f"within epoch {done + 1}" if within else f"of epoch {done}"
        kept = f"the checkpoint {place} is kept. Go on with: {again}"
    with suppress(OSError):  # the terminal may be gone, and that may be why
        echo(f"{why}; {kept}", err=True)
    return typer.Exit(code)
