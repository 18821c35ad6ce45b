"""Several runs as one folder: open this to save a mixture of fits, or to see what its files are.

``mix.json`` names the parts, which are runs in folders beside it; there is no copy of anything else. So whatever is
checked when a run is read is checked for each part.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyro_prme.corpora.files import read_bytes, write_whole
from pyro_prme.runs.record import from_json
from pyro_prme.runs.run_files import check_new, damaged, is_run, need_files, read_record, state_name

__all__ = ["is_mix", "parts_of", "save_mix", "write_mix"]

_FILE = "mix.json"
_FORMAT = 1
_MOST = 1000  # parts


def is_mix(folder: str | Path) -> bool:
    """Whether the folder holds a mixture of runs."""
    return os.path.isfile(Path(folder) / _FILE)


def parts_of(folder: str | Path) -> list[Path]:
    """The folders of a mixture's runs; of a single run, itself."""
    folder = Path(folder)
    if not is_mix(folder):
        return [folder]
    with damaged(folder):
        record = from_json(read_bytes(folder / _FILE))
        if record["format"] != _FORMAT:
            raise ValueError(f"its {_FILE} is in format {record['format']}, and this version reads format {_FORMAT}")
        names = record["parts"]
        if not isinstance(names, list) or not 1 <= len(names) <= _MOST:
            raise ValueError(f"its {_FILE} does not list its parts")
        for name in names:
            if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
                raise ValueError(f"its part {name!r} lies outside")
            if not is_run(folder / name):
                raise ValueError(f"its part {name} is missing")
    return [folder / name for name in names]


def save_mix(folder: str | Path, runs: Sequence[str | Path]) -> None:
    """Copies runs into a new folder that is asked as one: `load_run` gives the mean of what they predict.

    Args:
        folder: made if need be; one that holds anything is refused.
        runs: folders of runs, or of mixtures, whose parts are taken; fitted to one vocabulary.
    """
    folder = Path(folder)
    check_new(folder)
    if is_mix(folder):
        raise ValueError(f"{folder} holds a mixture already: choose another folder.")
    sources = [part for run in runs for part in parts_of(run)]
    if not sources:
        raise ValueError("There is nothing to mix: give at least one run.")
    names = [f"part-{i}" for i in range(1, len(sources) + 1)]
    words = None
    for name, source in zip(names, sources, strict=True):
        read_record(source)
        (folder / name).mkdir(parents=True)
        shutil.copyfile(source / "run.json", folder / name / "run.json")
        record = read_record(folder / name)
        need_files(source, record)
        for file in (state_name(record), "vocabulary.txt"):
            shutil.copyfile(source / file, folder / name / file)
        lines = read_bytes(folder / name / "vocabulary.txt")
        if words is not None and lines != words:
            shutil.rmtree(folder)
            raise ValueError(f"{source} has other words than {sources[0]}: mix runs of one vocabulary.")
        words = lines
    write_mix(folder, names)


def write_mix(folder: Path, names: Sequence[str]) -> None:
    """Says that a folder's runs of these names are one mixture."""
    from pyro_prme import __version__

    record: dict[str, Any] = {"format": _FORMAT, "pyro_prme": __version__, "parts": list(names)}
    write_whole({folder / _FILE: json.dumps(record, indent=1).encode()})
