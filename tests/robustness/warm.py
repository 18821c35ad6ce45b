"""Imported once by the server from which the trials' processes are forked, so that each begins where work begins."""

import tempfile
from pathlib import Path

from tests.robustness import toys

with tempfile.TemporaryDirectory() as folder:
    toys.fit(Path(folder) / "run", 1)
    toys.learned(Path(folder) / "run")
