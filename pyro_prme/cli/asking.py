"""The commands that ask a run about documents, alone or with several workers, a part of the documents at a time."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pyro_prme.answers.posterior import Posterior
from pyro_prme.answers.scores import npmi_coherence, perplexity_of, topic_diversity
from pyro_prme.checks import fraction, whole
from pyro_prme.cli.arguments import CorpusArgument, Csv, Json, RunArgument, Vocab
from pyro_prme.cli.show import as_csv, as_json, as_table, corpus_of_run, echo
from pyro_prme.cli.together import again_with_workers, all_or_none, speaking, under_torchrun, without_option
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.files import write_whole
from pyro_prme.inference.workers import Workers, working_together
from pyro_prme.runs.run_folder import SavedRun, fingerprint, load_run, was_fitted_to

__all__ = ["evaluate", "transform"]

_DOCUMENTS = 5000  # asked about at a time
_BLOCK = 1 << 20  # bytes of a file copied at a time

AskingWorkers = Annotated[int, typer.Option(help="Processes, each of which takes a part of the documents.")]


def transform(
    run: RunArgument,
    corpus: CorpusArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; default: print.")] = None,
    vocab: Vocab = None,
    json: Json = False,
    workers: AskingWorkers = 1,
) -> None:
    """Topic proportions of documents: a row for each, that sums to one, as CSV (or JSON).

    Example: prme transform run/ new.ldac -o proportions.csv
    """
    whole("--workers", workers)
    if workers > 1 and output is None:
        raise ValueError("Several workers write a file: give --output, or leave out --workers.")
    if workers > 1 and not under_torchrun():
        again_with_workers(workers, without_option(sys.argv[1:], "--workers"))
    with working_together() as team, speaking(team):
        saved, documents = all_or_none(team, lambda: _opened(team, run, corpus, vocab))
        unknown = int((documents.lengths == 0).sum())
        if unknown:
            echo(f"warning: {unknown} of {len(documents)} documents have no known word and get the prior", err=True)
        texts = _texts(saved.posterior, documents, team, json)
        if output is None:
            for text in texts:
                echo(text)
            return
        with tempfile.TemporaryDirectory(dir=output.parent if team.size > 1 else None) as place:
            places = team.gather_all(place)  # every worker writes to the first one's folder
            mine = Path(places[0]) / str(team.rank)
            with open(mine, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{text}\n" for text in texts)
            team.gather_all(None)  # all have written
            if team.leads:
                write_whole({output: _joined([Path(place) / str(rank) for rank in range(team.size)])})
            team.gather_all(None)


def _opened(team: Workers, run: Path, corpus: str, vocab: Path | None) -> tuple[SavedRun, Corpus]:
    """The run and the documents, the same for all workers."""
    saved = load_run(run)
    documents = corpus_of_run(saved, corpus, vocab)
    team.agree({"run": repr(saved.settings), "corpus": fingerprint(documents.counts, documents.vocabulary)})
    return saved, documents


def _share(size: int, team: Workers) -> range:
    """A worker's documents: neighbours, so that the parts follow one another."""
    return range(size * team.rank // team.size, size * (team.rank + 1) // team.size)


def _pieces(mine: range) -> Iterator[slice]:
    for start in range(mine.start, mine.stop, _DOCUMENTS):
        yield slice(start, min(start + _DOCUMENTS, mine.stop))


def _texts(posterior: Posterior, documents: Corpus, team: Workers, json: bool) -> Iterator[str]:
    """Lines of the table for a worker's documents, some at a time; header and brackets where they belong."""
    mine, first = _share(len(documents), team), True
    if json and team.leads:
        yield "["
    for here in _pieces(mine):
        part = documents[here]
        proportions = posterior.proportions(part).values
        if json:
            rows: Any = zip(part.names, proportions, strict=True)
            text = as_json([{"document": n, "proportions": list(map(float, p))} for n, p in rows])
            yield text.removeprefix("[\n").removesuffix("\n]") + ("," if here.stop < len(documents) else "")
            continue
        header = ["document", *(f"topic_{k}" for k in range(proportions.shape[1]))]
        table = as_csv(header, [[n, *(f"{x:.6g}" for x in p)] for n, p in zip(part.names, proportions, strict=True)])
        yield table if first and team.leads else table.split("\n", 1)[1]
        first = False
    if json and team.rank == team.size - 1:
        yield "]"


def _joined(parts: list[Path]) -> Iterator[bytes]:
    for part in parts:
        with open(part, "rb") as file:
            while block := file.read(_BLOCK):
                yield block


def evaluate(
    run: RunArgument,
    corpus: CorpusArgument,
    vocab: Vocab = None,
    observed: Annotated[list[float] | None, typer.Option(help="Shares of words that the model sees.")] = None,
    seed: Annotated[int, typer.Option(help="Decides which words are hidden.")] = 0,
    json: Json = False,
    csv: Csv = False,
    workers: AskingWorkers = 1,
) -> None:
    """Score a run on documents that it was not fitted to.

    Perplexity of hidden words, given 90, 50 and 10 percent of each document (lower is better); NPMI coherence of the
    ten top words in these documents (higher is better) and diversity of the topics (1: no shared top words), both of
    the topics in use; of a mixture, the means over its parts. Perplexity is by the topics alone; a run with --own-words
    has three numbers more for each share, by its layer: of all hidden words, of those that the seen part has too
    (repeated), and of the others (new).

    Example: prme evaluate run/ test.ldac
    """
    whole("--seed", seed, 0)
    whole("--workers", workers)
    shares = [0.9, 0.5, 0.1] if not observed else [fraction("--observed", share) for share in observed]
    if workers > 1 and not under_torchrun():
        again_with_workers(workers, without_option(sys.argv[1:], "--workers"))
    with working_together() as team, speaking(team):
        saved, documents = all_or_none(team, lambda: _opened(team, run, corpus, vocab))
        if was_fitted_to(run, documents.counts, documents.vocabulary):
            echo(
                "warning: the run was fitted to these documents, so that the scores are better than on new ones",
                err=True,
            )
        scores: dict[str, Any] = {"documents": len(documents), "tokens": documents.num_tokens}
        for share in shares:
            scores[f"perplexity_{share:g}"] = _perplexity(saved.posterior, documents, share, seed, team)
        if team.leads:
            posterior, words = saved.posterior, len(saved.vocabulary)
            parts = getattr(posterior, "parts", (posterior,))
            for share in shares if posterior.has("repeats") else ():
                of_tokens = posterior.token_perplexities(documents.split_tokens(share, seed))._asdict()
                scores |= {f"own_words_{share:g}_{kind}": value for kind, value in of_tokens.items()}
            topics = [part.topics(part.num_topics_used).values for part in parts]
            scores["npmi"] = float(np.mean([npmi_coherence(used, documents, min(10, words)).mean() for used in topics]))
            scores["diversity"] = float(np.mean([topic_diversity(used, min(25, words)) for used in topics]))
            echo(as_table(scores, json, csv))


def _perplexity(posterior: Posterior, documents: Corpus, share: float, seed: int, team: Workers) -> float:
    """Of hidden words; each worker hides the same ones and scores its part of the documents."""
    split = documents.split_tokens(share, seed)
    mine = _share(len(split.documents), team)
    found = {"log": 0.0, "tokens": 0.0}
    if len(mine):
        log, tokens = posterior.completion(split.part(mine))
        found = {"log": log, "tokens": tokens}
    total = team.sum_numbers(found)
    return perplexity_of(total["log"], total["tokens"])
