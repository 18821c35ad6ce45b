"""The files of a run's folder, written whole and read with suspicion: open this to see what a checkpoint is made of.

``run.json`` holds settings, history, random state and the name of a ``state-*.safetensors`` beside it, which holds all
tensors; ``vocabulary.txt`` holds the words. There is no pickle: reading a run made by someone else cannot execute code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from pyro_prme.files import read_bytes, read_words, write_whole

__all__ = [
    "FORMAT",
    "check_new",
    "damaged",
    "is_run",
    "read_record",
    "read_tensors",
    "read_vocabulary",
    "write_checkpoint",
]

#: Version of the folder's layout; a change that older code cannot read raises it.
FORMAT = 1


def is_run(folder: str | Path) -> bool:
    """Whether the folder holds a checkpoint."""
    return (Path(folder) / "run.json").is_file()


def check_new(folder: str | Path) -> None:
    """Refuses a folder that holds anything but what an interrupted first checkpoint leaves."""
    folder = Path(folder)
    if is_run(folder):
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder.")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another name for the run's folder.")
    if folder.is_dir() and any(file not in _ours(folder) for file in folder.iterdir()):
        raise ValueError(f"{folder} exists and is not empty: choose another folder.")


def write_checkpoint(
    folder: Path, record: Mapping[str, Any], tensors: Mapping[str, Tensor], vocabulary: Sequence[str]
) -> None:
    """Writes a checkpoint beside the one before, then lets ``run.json`` name it, in one rename, then tidies up.

    Whatever happens in between, ``run.json`` names a whole checkpoint.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made ({error.strerror}): check the path.") from None
    state = f"state-{1 + max(map(_number, _ours(folder)), default=0)}.safetensors"
    words = {} if is_run(folder) else {folder / "vocabulary.txt": "".join(f"{word}\n" for word in vocabulary).encode()}
    named = {"format": FORMAT, "state": state, **record}
    write_whole(
        {
            **words,
            folder / state: safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}),
            folder / "run.json": json.dumps(named, indent=1).encode(),
        }
    )
    _sync(folder)
    for file in _ours(folder):
        if file.name not in ("vocabulary.txt", state):
            with suppress(OSError):
                file.unlink()


def read_record(folder: Path) -> dict[str, Any]:
    """The content of ``run.json``, of this format."""
    if not is_run(folder):
        raise ValueError(f"{folder} is no run: it has no run.json, which the first checkpoint of a fit writes.")
    with damaged(folder):
        record = json.loads(read_bytes(folder / "run.json"))
        version = record["format"]
    if version != FORMAT:
        raise ValueError(
            f"{folder} is in format {version} (pyro_prme {record.get('pyro_prme')}), and this version reads format "
            f"{FORMAT}: install the one that wrote it, or fit again."
        )
    with damaged(folder):
        for part in record["settings"].values():  # JSON has no tuples
            part.update({key: tuple(value) for key, value in part.items() if isinstance(value, list)})
    return record


def read_tensors(folder: Path, record: Mapping[str, Any]) -> dict[str, Tensor]:
    """All tensors of the checkpoint that the record names."""
    with damaged(folder):
        name = record["state"]
        if Path(name).name != name:
            raise ValueError(f"its file of tensors, {name!r}, lies outside")
        try:
            return safetensors.torch.load_file(folder / name)
        except (OSError, safetensors.SafetensorError) as error:
            raise ValueError(f"{name} cannot be read: {error}") from None


def read_vocabulary(folder: Path, record: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of the run."""
    with damaged(folder):
        vocabulary = read_words(folder / "vocabulary.txt")
        if len(vocabulary) != record["sizes"]["vocab_size"]:
            raise ValueError(f"vocabulary.txt has {len(vocabulary)} words, not {record['sizes']['vocab_size']}")
        return vocabulary


@contextmanager
def damaged(folder: str | Path) -> Iterator[None]:
    """What goes wrong within it is said in one sentence."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, MemoryError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{folder} holds no good checkpoint ({' '.join(what.split())[:300]}).") from None


def _ours(folder: Path) -> set[Path]:
    """Files of checkpoints, whole or not, that ``run.json`` may or may not name."""
    patterns = ("state-*.safetensors", ".state-*.tmp", ".run.json.*.tmp", ".vocabulary.txt.*.tmp", "vocabulary.txt")
    return {file for pattern in patterns for file in folder.glob(pattern)}


def _number(file: Path) -> int:
    number = file.name.removeprefix("state-").removesuffix(".safetensors")
    return int(number) if number.isdecimal() else 0


def _sync(folder: Path) -> None:
    """The folder's names are on the disk, where the system can say so."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
