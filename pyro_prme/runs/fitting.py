"""A fit with a progress bar and checkpoints: what the command and its demo do; open this to do the same in a script."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pyro_prme.answers.posterior import Posterior
from pyro_prme.checks import SETTINGS, choice, fraction, refusal, share_or_number, whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.files import need_path, printable, read_words
from pyro_prme.corpora.readers import NAMES, load_corpus
from pyro_prme.corpora.splits import TokenSplit
from pyro_prme.inference.build import INFERENCES, MODELS, PRESETS
from pyro_prme.inference.large import BATCH_PASSES, LARGE, usual_way
from pyro_prme.inference.trainer import MODES, Trainer
from pyro_prme.runs.locks import one_writer
from pyro_prme.runs.run_folder import SavedRun, Settings, save_run

__all__ = [
    "CORRELATED",
    "EVERY",
    "FIT_DEFAULTS",
    "NUM_TOPICS",
    "check_options",
    "check_paths",
    "correlations_that_hold",
    "correlations_to_keep",
    "fit_in_folder",
    "is_a_bound",
    "known_words",
    "option_of",
    "prepared",
    "same_settings",
    "settings_set",
    "usual_settings",
]

#: Most topics that the model may use.
NUM_TOPICS = 100

#: Settings of a run beside those of `build` and `Trainer`; min_df and max_df as a user writes them.
FIT_DEFAULTS: dict[str, Any] = {
    "preset": "default",
    "epochs": BATCH_PASSES,
    "held_out": None,
    "min_df": "1",
    "max_df": "1.0",
    "stop_words": None,
}

#: Names in a run's summary of the limits of the correlations' intervals.
LOWER, UPPER = "topic_correlations_lower", "topic_correlations_upper"
#: Seconds between checkpoints within an epoch.
EVERY = 300.0
#: Documents, spread over the corpus, from which the correlations of topics are taken at the end of a fit.
CORRELATED = 20_000

_SAVING = 0.1  # most of the time that checkpoints may take, or scores within an epoch
_SCORES = 10  # within an online epoch
_SCORING = 20.0  # seconds between them


class _Ration:
    """Says when something is due that may take a tenth of the time."""

    def __init__(self, every: float = 0.0) -> None:
        self._every, self._last, self._cost = every, time.monotonic(), 0.0

    def due(self, at_least: float | None = None) -> bool:
        """Whether it is: seconds that have passed since the last time must be so many, those given or `every`."""
        passed = time.monotonic() - self._last
        return passed >= (self._every if at_least is None else at_least) and passed * _SAVING >= self._cost

    @contextmanager
    def used(self) -> Iterator[None]:
        """What takes the time."""
        begin = time.monotonic()
        yield
        self._last = time.monotonic()
        self._cost = self._last - begin


def fit_in_folder(
    folder: Path,
    trainer: Trainer,
    settings: Settings,
    corpus: Corpus,
    epochs: int,
    split: TokenSplit | None = None,
    *,
    every: float = EVERY,
) -> Posterior:
    """Trains until `epochs` are done, with checkpoints in between and a last one that has the topic correlations.

    A checkpoint is written after each epoch, and within one where the last is some minutes old, unless checkpoints
    would then take more than a tenth of the time. Each record of the history gets "topics_in_use" and, with a split,
    "perplexity"; a long online epoch also "perplexity_by_rows", about ten scores on the way. The bar is on standard
    error, and absent if that is no terminal.

    Args:
        folder: of the run.
        trainer: new or resumed.
        settings: of the run.
        corpus: that of the trainer.
        epochs: in all, those done before included.
        split: words to score, of documents that are not in the corpus.
        every: seconds between checkpoints within an epoch.

    No other process may write the folder meanwhile. Of several workers, the first writes and scores.
    """
    with one_writer(folder) if trainer.workers.leads else nullcontext():
        return _fit(folder, trainer, settings, corpus, epochs, split, every)


def _fit(
    folder: Path,
    trainer: Trainer,
    settings: Settings,
    corpus: Corpus,
    epochs: int,
    split: TokenSplit | None,
    every: float,
) -> Posterior:
    posterior = Posterior(trainer.guide, vocabulary=corpus.vocabulary)
    workers, size, name = trainer.workers, len(trainer.data), settings["build"]["model"].upper()
    saving, scoring = _Ration(every), _Ration(_SCORING)
    shown: dict[str, Any] = {}
    hidden = None if workers.leads else True

    def done() -> int:
        return len(trainer.history) * size + (0 if trainer.underway is None else trainer.underway.done)

    def keep(due: bool, summary: Mapping[str, np.ndarray] | None = None) -> None:
        if workers.any(due and workers.leads):
            with saving.used():
                save_run(folder, trainer, settings, corpus.vocabulary, summary)

    with tqdm(
        total=epochs * size, initial=done(), desc=name, unit="docs", unit_scale=True, disable=hidden, dynamic_ncols=True
    ) as bar:

        def advance() -> None:
            bar.set_postfix(shown, refresh=False)
            bar.update(done() - bar.n)

        def between(trainer: Trainer) -> None:
            going = trainer.underway
            if split is not None and workers.leads and trainer.options.mode == "online" and going is not None:
                scores = going.notes.setdefault("perplexity_by_rows", {})
                if going.done * _SCORES // size > len(scores) and scoring.due():
                    with scoring.used():
                        scores[str(done())] = posterior.perplexity(split)
                    shown["perplexity"] = f"{scores[str(done())]:.1f}"
            advance()
            keep(saving.due())

        def after_epoch(trainer: Trainer, record: dict[str, Any]) -> None:
            if workers.leads:
                record["topics_in_use"] = posterior.num_topics_used
                what = "bound" if is_a_bound(record) else "log p"
                shown.update({what: f"{record['bound']:.5g}", "topics": record["topics_in_use"]})
                if split is not None:
                    record["perplexity"] = posterior.perplexity(split)
                    shown["perplexity"] = f"{record['perplexity']:.1f}"
                if not record.get("perplexity_by_rows", True):
                    del record["perplexity_by_rows"]
            advance()
            keep(saving.due(0.0))

        trainer.fit(max(0, epochs - len(trainer.history)), after_epoch, between)
    summary = None
    if workers.leads:
        every = len(corpus) <= CORRELATED
        some = corpus if every else corpus[np.linspace(0, len(corpus) - 1, CORRELATED).astype(int)]
        summary = correlations_to_keep(posterior, some)
    keep(True, summary)
    return posterior


def is_a_bound(record: Mapping[str, Any]) -> bool:
    """Whether the number under "bound" is one; where own counts are left out it is a log probability of the words."""
    return "log probability" not in record.get("bound_name", "")


def correlations_to_keep(posterior: Posterior, corpus: Corpus) -> dict[str, np.ndarray]:
    """Correlations over the documents and the limits of their intervals, as a run keeps them in its summary."""
    found = posterior.topic_correlation_intervals(corpus)
    names = {"correlation": "topic_correlations", "lower": LOWER, "upper": UPPER}
    return {name: found[part].values for part, name in names.items()}


def correlations_that_hold(summary: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The correlations of a run's summary, those whose interval has zero in it as NaN; None if there are none."""
    found = summary.get("topic_correlations")
    if found is None or LOWER not in summary or UPPER not in summary:
        return found
    return np.where((summary[LOWER] > 0) | (summary[UPPER] < 0), found, np.nan)


def option_of(name: str) -> str:
    """The option of the command for a setting."""
    return "--topics" if name == "num_topics" else f"--{name.replace('_', '-')}"


def check_options(given: Mapping[str, Any]) -> None:
    """Refuses options of a wrong type or range by their names; None is an option that was not given."""
    known: dict[str, Iterable[str]] = {"model": MODELS, "preset": PRESETS, "mode": MODES, "inference": INFERENCES}
    for name, value in given.items():
        if value is None:
            continue
        if name in known:
            choice(option_of(name), value, known[name])
        elif name in SETTINGS or name == "epochs":
            SETTINGS.get(name, whole)(option_of(name), value)
        elif name in ("min_df", "max_df"):
            share_or_number(option_of(name), _number(value, name))
        elif name == "held_out" and _is_number(value):
            fraction(option_of(name), float(value))


def settings_set(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings given as name=value: numbers, True and False, sequences such as 80,80, or words.

    Args:
        pairs: as typed.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"--set {printable(pair)} is not name=value: write, for example, --set form=scale.")
        if name in found:
            raise ValueError(f"--set {name} is there twice: give it once.")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found


def check_paths(corpus: str, vocab: Path | None, asked: Mapping[str, Any]) -> None:
    """Refuses, before anything long begins, paths at which there is nothing.

    Args:
        corpus: a path, or the name of a corpus.
        vocab: a path, if given.
        asked: with "stop_words", a path or "english", and "held_out", a path, the name of a corpus or a number.
    """
    if corpus not in NAMES:
        need_path(corpus)
    if vocab is not None:
        need_path(vocab)
    if asked.get("stop_words", "english") != "english":
        need_path(asked["stop_words"])
    held_out = asked.get("held_out", "0")
    if held_out not in NAMES and not _is_number(held_out):
        need_path(held_out)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def same_settings(saved: Settings, given: dict[str, Any]) -> Settings:
    """The settings of a run, which options given again must not contradict; only the epochs may change."""
    if "fit" not in saved:
        raise ValueError("The run was not made by `prme fit`: resume it in Python.")
    parts = saved["build"] | saved["trainer"] | saved["fit"]
    for name, value in given.items():
        before = tuple(parts[name]) if isinstance(parts[name], list) else parts[name]
        if name != "epochs" and value is not None and before != value:
            raise ValueError(
                f"The run has {option_of(name)} {parts[name]}, not {value}: leave the option out to resume it."
            )
    return saved | {"fit": saved["fit"] | {"epochs": given.get("epochs", parts["epochs"])}}


def usual_settings(settings: Settings, given: Mapping[str, Any], num_documents: int) -> tuple[Settings, str]:
    """The settings with the usual way of learning so many documents, unless a mode was given; and a note of it.

    Args:
        settings: of a new run.
        given: what the user gave, None where nothing was.
        num_documents: of the corpus.
    """
    if given.get("mode") is not None or num_documents <= LARGE or settings["build"].get("inference") == "gibbs":
        return settings, ""
    way, passes = usual_way(num_documents)
    chosen = PRESETS[given.get("preset") or "default"]
    trainer = settings["trainer"] | {name: value for name, value in way.items() if name not in chosen}
    epochs = given.get("epochs") or passes
    times = "one pass" if epochs == 1 else f"{epochs} passes"
    note = f"{num_documents:,} documents are learned online, in {times}: give --mode batch for batch passes"
    return settings | {"trainer": trainer, "fit": settings["fit"] | {"epochs": epochs}}, note


def prepared(
    corpus: Corpus, settings: Settings, vocab: Path | None, seed: int | None = None
) -> tuple[Corpus, Corpus | None]:
    """The documents to fit, with the words asked for, and those to score, cut by the seed (default: the fit's)."""
    chosen = settings["fit"]
    stop = chosen["stop_words"]
    dropped = stop if stop == "english" else () if stop is None else read_words(Path(stop))
    limits = {name: _number(chosen[name], name) for name in ("min_df", "max_df")}
    restricted = corpus.restrict(limits["min_df"], limits["max_df"], dropped)
    held_out = chosen["held_out"]
    if held_out is None:
        return restricted, None
    if not _is_number(held_out):
        test = load_corpus(held_out, vocab=vocab)
        if vocab is None and _has_no_words(test):
            test = load_corpus(held_out, vocab=corpus.vocabulary)
        return restricted, test.align(restricted.vocabulary)[0]
    return restricted.split(float(held_out), settings["build"]["seed"] if seed is None else seed)


def known_words(saved: SavedRun, source: str, vocab: Path | None) -> tuple[Corpus, int]:
    """A corpus over the vocabulary of a run, and the number of tokens of other words that were dropped.

    Word ids without words are taken for the run's, if the run has all words of its corpus.
    """
    corpus = load_corpus(source, vocab=vocab)
    if vocab is None and _has_no_words(corpus):
        chosen = FIT_DEFAULTS | saved.settings.get("fit", {})
        if any(chosen[name] != FIT_DEFAULTS[name] for name in ("min_df", "max_df", "stop_words")):
            raise ValueError(f"{source} has no words, and the run has dropped some of its own: give --vocab.")
        return load_corpus(source, vocab=saved.vocabulary), 0
    known, dropped = corpus.align(saved.vocabulary)
    if not known.num_tokens:
        raise ValueError(f"{source} has no word in common with the run: check the vocabulary.")
    return known, dropped


def _has_no_words(corpus: Corpus) -> bool:
    return corpus.vocabulary == tuple(map(str, range(corpus.vocab_size)))


def _number(text: str, name: str) -> float:
    """A whole number of documents, or a share of them."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        allowed = "a whole number of documents, such as 5, or a share of them from 0.0 to 1.0"
        raise refusal(option_of(name), text, allowed) from None
