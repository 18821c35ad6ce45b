"""What the command prints: topics with their strongest correlations, tables, JSON, CSV, and errors of one line."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer
from typer.core import TyperGroup

import pyro_prme
from pyro_prme.answers.posterior import Posterior
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.files import printable
from pyro_prme.inference.session import session
from pyro_prme.runs.fitting import known_words
from pyro_prme.runs.run_folder import SavedRun

__all__ = [
    "OneLineErrors",
    "as_csv",
    "as_json",
    "as_table",
    "corpus_of_run",
    "csv_cell",
    "echo",
    "held_out_score",
    "print_version",
    "topic_lines",
    "topic_rows",
]

_UNPRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # what `json` leaves as it is
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")  # what a cell begins with that a spreadsheet may run, and '


def echo(text: str, *, err: bool = False) -> None:
    """Prints to standard output or error; control characters, which may come from a foreign file, are spelled out."""
    typer.echo(printable(text), err=err)


def print_version(asked: bool) -> None:
    """Prints the version and ends the command, if it was asked for."""
    if asked:
        echo(f"prme {pyro_prme.__version__}")
        raise typer.Exit()


def corpus_of_run(saved: SavedRun, source: str, vocab: Path | None) -> Corpus:
    """A corpus over the vocabulary of a run; says how many tokens have other words."""
    corpus, dropped = known_words(saved, source, vocab)
    if dropped:
        total = corpus.num_tokens + dropped
        echo(f"note: {dropped} of {total} tokens are of words that the run does not know", err=True)
    return corpus


class OneLineErrors(TyperGroup):
    """Anything wrong is one line on standard error; PRME_TRACEBACK=1 in the environment shows where it came from."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            with session():
                code = super().main(*args, **(extra | {"standalone_mode": False}))
        except (KeyboardInterrupt, typer.Abort):
            code = 130
        except Exception as error:
            if os.environ.get("PRME_TRACEBACK"):
                echo(traceback.format_exc(), err=True)
            echo(f"error: {_sentence(error)}", err=True)
            code = getattr(error, "exit_code", 1)
        sys.exit(code if isinstance(code, int) else 0)


def _sentence(error: Exception) -> str:
    usage = getattr(error, "format_message", None)  # of a wrong option and the like
    if usage is not None:
        command = getattr(getattr(error, "ctx", None), "command_path", "prme")
        text = f"{usage()} (see {command} --help)"
    elif isinstance(error, ValueError | OSError) and str(error):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def topic_rows(
    posterior: Posterior, correlations: np.ndarray | None, *, words: int = 10, by: str = "probability", others: int = 3
) -> list[dict[str, Any]]:
    """The topics in use, largest first, each with its share of the tokens, top words and strongest correlations.

    Args:
        posterior: of a fitted model.
        correlations: shape (K, K), NaN for those that are not to be named; None to leave all out.
        words: number of words.
        by: how they are ranked, see `Posterior.top_words`.
        others: number of correlated topics, the strongest first, whatever the sign.
    """
    usage = posterior.usage().values
    used = np.argsort(-usage, kind="stable")[: posterior.num_topics_used]
    table = posterior.top_words(words, by=by)
    rows: list[dict[str, Any]] = []
    for k in used:
        row: dict[str, Any] = {"topic": int(k), "share": float(usage[k]), "words": [str(word) for word in table.loc[k]]}
        if correlations is not None:
            rest = used[(used != k) & np.isfinite(correlations[k, used])]
            strongest = rest[np.argsort(-np.abs(correlations[k, rest]), kind="stable")[:others]]
            row["correlations"] = [{"topic": int(j), "correlation": float(correlations[k, j])} for j in strongest]
        rows.append(row)
    return rows


def held_out_score(history: Sequence[Mapping[str, Any]]) -> str:
    """The last held-out score of a fit, and the best one where an earlier epoch has it; nothing without scores."""
    scored = [record for record in history if "perplexity" in record]
    if not scored:
        return ""
    last, best = scored[-1], min(scored, key=lambda record: record["perplexity"])
    text = f", held-out perplexity {last['perplexity']:.1f}"
    return text if best is last else f"{text} (best after {best['epoch']} epochs: {best['perplexity']:.1f})"


def topic_lines(rows: Sequence[Mapping[str, Any]], most: int | None = None) -> list[str]:
    """Two lines a topic, for the first `most`: number, share and words; correlated topics by number and first words."""
    first = {row["topic"]: " ".join(row["words"][:2]) for row in rows}
    lines = ["topic  share  words"]
    for row in rows[:most]:
        lines.append(f"{row['topic']:5d} {row['share']:6.1%}  {' '.join(row['words'])}")
        if row.get("correlations"):
            pairs = (f"{c['correlation']:+.2f} {c['topic']} ({first[c['topic']]})" for c in row["correlations"])
            lines.append(f"{'':14}{', '.join(pairs)}")
    return lines


def as_json(value: Any) -> str:
    """JSON for people and programs; control characters are escaped as JSON escapes them."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _UNPRINTED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def as_csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """CSV with a header, without the last line's end; texts go through `csv_cell`."""
    lines = []
    for row in (header, *rows):
        line = io.StringIO()
        csv.writer(line, lineterminator="\r\n").writerow([csv_cell(cell) for cell in row])  # so that \r is quoted too
        lines.append(line.getvalue().removesuffix("\r\n"))
    return "\n".join(lines)


def csv_cell(cell: Any) -> Any:
    """A text with an apostrophe before it, if a spreadsheet might take it for a formula; anything else as it is.

    A word or a name of a document may be ``=HYPERLINK(...)``. Texts that begin with =, +, -, @, a tab or a line end,
    and are not numbers, get the apostrophe, and so do those that begin with one: whoever takes one apostrophe from the
    front of the cells that have it gets the texts back.
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def as_table(table: Mapping[str, Any], json: bool, csv: bool) -> str:
    """Names and values, in the format asked for."""
    if json:
        return as_json(table)
    if csv:
        return as_csv(list(table), [list(table.values())])
    width = max(map(len, table))
    shown = {
        name: f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
        for name, value in table.items()
    }
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())
