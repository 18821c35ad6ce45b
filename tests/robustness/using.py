"""What is read after damage must be usable: a corpus that has tokens, in all that is done before a fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyro_prme.corpora.readers import load_corpus, save_corpus
from pyro_prme.corpora.splits import TokenSplit
from pyro_prme.runs.fitting import prepared
from pyro_prme.runs.run_folder import settings_of

__all__ = ["need", "use_corpus"]


def use_corpus(path: Path) -> None:
    """What a fit or a score does with a corpus before anything is learned."""
    if path.name == "split.npz":
        split = TokenSplit.load(path)
        need(split.observed.counts.shape == split.held_out.counts.shape, "the two parts have other shapes")
        need(split.held_out.num_tokens > 0, "nothing is held out")
        return
    corpus = load_corpus(path)
    need(corpus.num_tokens > 0, "there are no tokens")
    need(len(corpus.names) == len(corpus) and len(set(corpus.vocabulary)) == corpus.vocab_size, "other sizes")
    rows = np.arange(min(len(corpus), 1000))
    need(corpus.batch(rows)[0].last_word < corpus.vocab_size, "a batch has words beyond the vocabulary")
    corpus.summary()
    settings = settings_of(num_topics=2) | {
        "fit": {"held_out": None, "stop_words": None, "min_df": "1", "max_df": "1.0"}
    }
    prepared(corpus, settings, None)
    save_corpus(corpus, path.with_name("again.npz"))
    need(load_corpus(path.with_name("again.npz")) == corpus, "it is another corpus after it was saved")


def need(holds: bool, complaint: str) -> None:
    """Ends a trial with a fault unless the first is true."""
    if not holds:
        raise AssertionError(complaint)
