"""AnnData files by a process of their own: open this for how ``.h5ad`` files are read safely."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from pyro_prme.corpora import h5ad_reader
from pyro_prme.corpora.files import open_npz, printable, read_bytes, unpacked_limit

__all__ = ["h5ad_arrays"]

_SHOWN = 300  # characters of the reader's words in a message
_PATIENCE = 600  # seconds for the process, of which processor time is bounded by the size of the file


def h5ad_arrays(path: Path) -> dict[str, np.ndarray]:
    """The counts of X as the arrays of a CSR matrix, ``names`` (obs) and ``vocabulary`` (var).

    The file is read by `corpora.h5ad_reader` in another process, so that a file which ends the HDF5 library, or fills
    its memory, is a ``ValueError`` here.
    """
    data = read_bytes(path)
    limit = unpacked_limit(len(data))
    command = [sys.executable, "-P", h5ad_reader.__file__, str(limit)]
    try:
        end = subprocess.run(command, input=data, capture_output=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{path} is not a good h5ad file (it takes too long to read): write it again.") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): save the counts as npz.") from None
    if end.returncode == 0:
        return open_npz(end.stdout, path)
    said = " ".join(printable(end.stderr.decode("utf-8", "replace")).split())[-_SHOWN:]
    if end.returncode == 2:
        raise ValueError(f"{path} cannot be read: {said}.")
    why = said if end.returncode == 1 else f"it ended the HDF5 library, with code {end.returncode}"
    raise ValueError(f"{path} is not a good h5ad file ({why}): write it again.")
