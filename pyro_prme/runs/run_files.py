"""The files of a run's folder, written whole and read with suspicion: open this to see what a checkpoint is made of.

``run.json`` holds settings, history, random state and the name of a ``state-*.safetensors`` beside it, which holds all
tensors; ``vocabulary.txt`` holds the words. ``run.json`` has the checksums of the two, so that a file of another run,
or one with damaged bytes, is noticed. There is no pickle: reading a run made by someone else cannot execute code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from pyro_prme.corpora.files import printable, read_bytes, read_words, write_whole
from pyro_prme.runs.locks import LOCK, one_writer
from pyro_prme.runs.record import check_record, from_json

__all__ = [
    "FORMAT",
    "check_new",
    "damaged",
    "is_run",
    "need_files",
    "read_record",
    "read_tensors",
    "read_vocabulary",
    "state_name",
    "write_checkpoint",
]

#: Version of the folder's layout; a change that older code cannot read raises it.
FORMAT = 2


def is_run(folder: str | Path) -> bool:
    """Whether the folder holds a checkpoint."""
    return os.path.isfile(Path(folder) / "run.json")  # which, unlike Path.is_file, raises nothing


def check_new(folder: str | Path) -> None:
    """Refuses a folder that holds anything but what an interrupted first checkpoint leaves."""
    folder = Path(folder)
    if is_run(folder):
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder.")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"{folder} is a file: choose another name for the run's folder.")
    try:
        foreign = os.path.isdir(folder) and any(file not in _ours(folder) for file in folder.iterdir())
    except OSError as error:
        raise ValueError(f"{folder} cannot be read ({error.strerror}): check the path.") from None
    if foreign:
        raise ValueError(f"{folder} exists and is not empty: choose another folder.")


def write_checkpoint(
    folder: Path, record: Mapping[str, Any], tensors: Mapping[str, Tensor], vocabulary: Sequence[str]
) -> None:
    """Writes a checkpoint beside the one before, then lets ``run.json`` name it, in one rename, then tidies up.

    Whatever happens in between, ``run.json`` names a whole checkpoint.
    """
    with one_writer(folder):
        _write(folder, record, tensors, vocabulary)


def _write(folder: Path, record: Mapping[str, Any], tensors: Mapping[str, Tensor], vocabulary: Sequence[str]) -> None:
    if any(os.path.islink(folder / name) for name in ("run.json", "vocabulary.txt")):
        raise ValueError(f"{folder} has links in place of its files: copy the run, and go on with the copy.")
    state = f"state-{1 + max(map(_number, _ours(folder)), default=0)}.safetensors"
    words = "".join(f"{word}\n" for word in vocabulary).encode()
    content = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
    checksums = {"state": _checksum(content), "vocabulary": _checksum(words)}
    named = {"format": FORMAT, "state": state, "checksums": checksums, **record}
    write_whole(
        {
            **({} if is_run(folder) else {folder / "vocabulary.txt": words}),
            folder / state: content,
            folder / "run.json": json.dumps(named, indent=1).encode(),
        }
    )
    _sync(folder)
    for file in _ours(folder):
        if file.name not in ("vocabulary.txt", state, LOCK):
            with suppress(OSError):
                file.unlink()


def read_record(folder: Path) -> dict[str, Any]:
    """The content of ``run.json``, of this format."""
    if not is_run(folder):
        if not os.path.lexists(folder):
            raise ValueError(f"{folder} is no run: there is no such folder.")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ValueError(f"{folder} cannot be read (it belongs to somebody else): check the path.")
        raise ValueError(f"{folder} is no run: it has no run.json, which the first checkpoint of a fit writes.")
    with damaged(folder):
        record = from_json(read_bytes(folder / "run.json"))
        version = record["format"]
    if version != FORMAT:
        raise ValueError(
            f"{folder} is in format {version} (pyro_prme {record.get('pyro_prme')}), and this version reads format "
            f"{FORMAT}: install the one that wrote it, or fit again."
        )
    with damaged(folder):
        check_record(record)
        for part in record["settings"].values():  # JSON has no tuples
            part.update({key: tuple(value) for key, value in part.items() if isinstance(value, list)})
    return record


def need_files(folder: Path, record: Mapping[str, Any]) -> None:
    """Refuses a run of which a file is missing."""
    with damaged(folder):
        for name in (state_name(record), "vocabulary.txt"):
            if not os.path.isfile(folder / name):
                raise ValueError(f"its file {name} is missing")


def read_tensors(folder: Path, record: Mapping[str, Any]) -> dict[str, Tensor]:
    """All tensors of the checkpoint that the record names, of which every number is finite."""
    need_files(folder, record)
    with damaged(folder):
        name = state_name(record)
        try:
            content = (folder / name).read_bytes()
            tensors = safetensors.torch.load(content)
        except (OSError, safetensors.SafetensorError) as error:
            raise ValueError(f"{name} cannot be read: {error}") from None
        _compare(name, content, record, "state")
        for tensor, values in tensors.items():
            if values.is_floating_point() and not bool(values.isfinite().all()):
                raise ValueError(f"{tensor} in {name} has a number that is not finite")
        return tensors


def read_vocabulary(folder: Path, record: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of the run."""
    need_files(folder, record)
    with damaged(folder):
        vocabulary = read_words(folder / "vocabulary.txt")
        if len(vocabulary) != record["sizes"]["vocab_size"]:
            raise ValueError(f"vocabulary.txt has {len(vocabulary)} words, not {record['sizes']['vocab_size']}")
        _compare("vocabulary.txt", "".join(f"{word}\n" for word in vocabulary).encode(), record, "vocabulary")
        return vocabulary


def state_name(record: Mapping[str, Any]) -> str:
    """The file of tensors that a record names, which lies beside it."""
    name = record["state"]
    if Path(name).name != name:
        raise ValueError(f"its file of tensors, {name!r}, lies outside")
    return name


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _compare(name: str, content: bytes, record: Mapping[str, Any], part: str) -> None:
    """Refuses a file that is not the one that was written; a run of version 0.1 has no checksums to tell by."""
    if "checksums" in record and record["checksums"][part] != _checksum(content):
        raise ValueError(f"{name} is not the file that was written with this run.json: it was changed, or swapped")


@contextmanager
def damaged(folder: str | Path) -> Iterator[None]:
    """What goes wrong within it is said in one sentence."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{folder} holds no good checkpoint ({printable(' '.join(what.split()))[:300]}).") from None


def _ours(folder: Path) -> set[Path]:
    """Files of checkpoints, whole or not, that ``run.json`` may or may not name."""
    temporary = (".state-*.tmp", ".run.json.*.tmp", ".vocabulary.txt.*.tmp")
    patterns = (*temporary, "state-*.safetensors", "vocabulary.txt", LOCK)
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
