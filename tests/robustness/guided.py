"""Coverage-guided fuzzing of the parsers, with atheris if it is installed: bytes are parsed, or refused in one line.

python -m tests.robustness.guided -max_total_time=600     # other options are libFuzzer's
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pyro_prme"]):
    from pyro_prme.corpora.counts import counts_from_arrays
    from pyro_prme.corpora.files import open_npz
    from pyro_prme.corpora.formats import parse_ldac, parse_mtx, parse_uci

_PARSERS = (
    lambda data, path: parse_ldac(data, path, None),
    lambda data, path: parse_ldac(data, path, 5),
    lambda data, path: parse_uci(data, path, None),
    lambda data, path: parse_mtx(b"%%MatrixMarket matrix coordinate integer general\n" + data, path, None),
    lambda data, path: parse_mtx(b"%%MatrixMarket matrix coordinate real general\n" + data, path, None),
    lambda data, path: counts_from_arrays(open_npz(data, path), path),
)


def attempt(data: bytes) -> None:
    """The first byte chooses the parser of the others; a file of blanks is refused before it is parsed."""
    if not data[1:].strip():
        return
    try:
        counts = _PARSERS[data[0] % len(_PARSERS)](data[1:], Path("c.txt"))
    except ValueError as refusal:
        if "\n" in str(refusal) or "c.txt" not in str(refusal):
            raise AssertionError(f"not one line with the path: {refusal}") from None
        return
    if counts.nnz and not 0 <= counts.indices.min() <= counts.indices.max() < counts.shape[1]:
        raise AssertionError(f"words beyond {counts.shape}: {counts.indices.max()}")


if __name__ == "__main__":
    atheris.Setup(sys.argv, attempt)
    atheris.Fuzz()
