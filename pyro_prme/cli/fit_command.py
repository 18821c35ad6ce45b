"""`prme fit`: read, split, build, fit, save. Open this for the story of a fit, and for its options."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from pyro_prme.checks import positive, whole
from pyro_prme.cli.arguments import CorpusArgument, Vocab
from pyro_prme.cli.explore import next_commands
from pyro_prme.cli.mix import part_name
from pyro_prme.cli.show import (
    echo,
    held_out_score,
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
    NUM_TOPICS,
    check_options,
    check_paths,
    fit_in_folder,
    is_a_bound,
    option_of,
    prepared,
    same_settings,
    settings_set,
    usual_settings,
)
from pyro_prme.runs.mixing import write_mix
from pyro_prme.runs.run_files import check_new, is_run, need_files, read_record
from pyro_prme.runs.run_folder import make_trainer, resume, settings_of
from pyro_prme.runs.stopping import Stopped, stop_signals

__all__ = ["fit", "stopped"]

_SETTINGS = settings_of(FIT_DEFAULTS["preset"], num_topics=NUM_TOPICS)
_DEFAULTS = {**_SETTINGS["build"], **_SETTINGS["trainer"], **FIT_DEFAULTS}


def _option(setting: str, text: str) -> Any:
    """An option whose help shows what holds where it is not given."""
    value = _DEFAULTS[setting]
    return typer.Option(help=text, show_default=f"{value:g}" if isinstance(value, float) else str(value))


def fit(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Option(help="Folder for the run: the model, its history, all that resuming needs.")],
    vocab: Vocab = None,
    topics: Annotated[int | None, _option("num_topics", "Most topics that the model may use.")] = None,
    model: Annotated[str | None, _option("model", f"One of {', '.join(MODELS)}.")] = None,
    preset: Annotated[str | None, _option("preset", f"Settings that belong together: {', '.join(PRESETS)}.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the documents.", show_default="see --mode")] = None,
    mode: Annotated[
        str | None, typer.Option(help="batch or online (steps after each batch).", show_default=RULE)
    ] = None,
    batch_size: Annotated[int | None, _option("batch_size", "Documents a step.")] = None,
    seed: Annotated[int | None, _option("seed", "Same seed, same numbers.")] = None,
    alpha: Annotated[float | None, _option("alpha", "Concentration of the sticks.")] = None,
    beta: Annotated[float | None, _option("beta", "Total shape of a document's loadings.")] = None,
    gamma0: Annotated[float | None, _option("gamma0", "Dirichlet parameter of topics.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting of `build` and `TrainOptions`, such as form=scale, background=0 or decay=0.6.",
        ),
    ] = None,
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
    inference: Annotated[str | None, _option("inference", f"One of {', '.join(INFERENCES)} (sampling).")] = None,
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
    pieces = settings_set(set_ or [])
    for name in pieces.keys() & given.keys():
        raise ValueError(f"--set {name} has an option of its own: use {option_of(name)}.")
    asked: dict[str, Any] = {"preset": preset, "epochs": epochs, "held_out": held_out}
    asked |= {"min_df": min_df, "max_df": max_df, "stop_words": stop_words}
    asked = {name: value for name, value in asked.items() if value is not None}
    check_options(given | asked)
    given |= pieces
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
            split_seed = jobs[0].settings["build"]["seed"]
            _read_and_fit(corpus, vocab, job, split_seed, team, shlex.join(again), by_default=by_default)
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
    most = given["num_topics"]
    chosen = given | {"num_topics": NUM_TOPICS if most is None else most}
    settings: dict[str, Any] = settings_of(asked.get("preset", FIT_DEFAULTS["preset"]), **chosen)
    settings["fit"] = FIT_DEFAULTS | asked
    check_passes("--epochs", settings["fit"]["epochs"], settings["build"])
    return settings


def _read_and_fit(
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
        raise stopped(stop, out, again) from None
    last = trainer.history[-1]
    score = held_out_score(trainer.history)
    used = f"{posterior.num_topics_used} of {settings['build']['num_topics']} topics in use"
    what = "bound" if is_a_bound(last) else "log probability of each word given the others"
    echo(f"{out}: {len(trainer.history)} epochs, {what} {last['bound']:.6g}{score}, {used}.")
    echo(next_commands(out, corpus, vocab))


def stopped(stop: KeyboardInterrupt, run: Path | None, again: str) -> typer.Exit:
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
