"""A skeleton to copy: a reader of your own, from a file to a `Corpus`.

Here: a line for each token, with the document's name, a tab and the word. `tests/docs/test_skeletons.py` reads such
files, and damages them. To make it a format of `load_corpus`, add it to the readers in `pyro_prme/corpora/readers.py`,
and to the fuzzer in `tests/robustness/fuzzing.py`.
"""

from pathlib import Path

import pandas as pd

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.files import read_text_lines

__all__ = ["read_pairs"]


def read_pairs(path: str | Path) -> Corpus:
    """The corpus in a file of lines ``document<tab>word``.

    Whatever is wrong with the file is a ValueError of one line that names the file, the line, and what to do.
    `read_text_lines` does that for files that are missing, packed, too large or not text; `Corpus` does it for counts.
    Nothing in the file decides how much memory is used, beyond its own size.
    """
    path = Path(path)
    pairs = []
    for number, line in enumerate(read_text_lines(path), start=1):
        document, tab, word = line.partition("\t")
        if not (document and tab and word) or "\t" in word:
            raise ValueError(f"{path}, line {number}: expected 'document<tab>word'; write one token a line")
        pairs.append((document, word))
    try:
        return Corpus.from_frame(pd.DataFrame(pairs, columns=["document", "word"]), document="document", word="word")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
