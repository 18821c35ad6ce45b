"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["FORMATS", "CorpusArgument", "Csv", "Json", "RunArgument", "Vocab"]

#: What may be given as a corpus.
FORMATS = (
    "A corpus: .ldac, .dat, .mtx, .npz, docword*.txt (gzipped or not), a .txt with one document a line, a folder of "
    "texts, a corpus folder of `prme pack`, or the name kjv or 20news."
)
#: The argument that is a corpus.
CorpusArgument = Annotated[str, typer.Argument(metavar="CORPUS", help=FORMATS)]
#: The argument that is a run.
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `prme fit` made.")]
#: The option of a vocabulary.
Vocab = Annotated[
    Path | None, typer.Option(help="File with one word a line, for counts without words. Found by itself if beside.")
]
#: The option to print JSON.
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
#: The option to print CSV.
Csv = Annotated[
    bool, typer.Option("--csv", help="Print CSV. A text that a spreadsheet might run as a formula gets a ' before it.")
]
