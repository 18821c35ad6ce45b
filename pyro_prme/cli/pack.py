"""The command that writes a corpus folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyro_prme.checks import share_or_number
from pyro_prme.cli.show import echo
from pyro_prme.corpora.files import need_path, read_words
from pyro_prme.corpora.packing import Limits, pack_corpus
from pyro_prme.corpora.readers import NAMES

__all__ = ["pack"]


def pack(
    source: Annotated[str, typer.Argument(metavar="CORPUS", help="As for `prme fit`; may be larger than the memory.")],
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    vocab: Annotated[Path | None, typer.Option(help="File with one word a line: for counts without words, or the "
    "words to count in texts.")] = None,
    min_df: Annotated[str, typer.Option(help="Keep words in at least so many documents (5), or such a share (0.01).")]
    = "1",
    max_df: Annotated[str, typer.Option(help="Keep words in at most so many documents, or such a share.")] = "1.0",
    max_words: Annotated[int | None, typer.Option(help="Keep only so many words, those with most tokens.")] = None,
    stop_words: Annotated[str | None, typer.Option(help="Words to drop: english, or a file of them.")] = None,
) -> None:  # fmt: skip
    """Write a corpus as a folder that is mapped into memory, for corpora of millions of documents.

    Files of counts and raw text are read in pieces, so that memory is bounded by the vocabulary. Every command takes
    the folder as its corpus.

    Example: prme pack texts.txt.gz --out corpus/ --min-df 20 --max-words 50000 --stop-words english
    """
    if source not in NAMES:
        need_path(source)
    words = read_words(Path(stop_words)) if stop_words not in (None, "english") else stop_words or ()
    limits = Limits(_limit("--min-df", min_df), _limit("--max-df", max_df), words, max_words)
    corpus = pack_corpus(source, out, vocab=vocab, limits=limits, progress=None)
    size = sum(path.stat().st_size for path in out.iterdir())
    echo(
        f"{out}: {corpus.num_documents:,} documents, {corpus.vocab_size:,} words, {corpus.num_tokens:,} tokens, "
        f"{size / 1e6:.1f} MB. Next: prme fit {out} --out run"
    )


def _limit(name: str, text: str) -> float:
    """A whole number of documents, or a share of them."""
    try:
        value = int(text) if text.isdecimal() else float(text)
    except ValueError:
        value = float("nan")
    return share_or_number(name, value)
