"""Reading files that may be gzipped or broken, and writing them whole or not at all: open this to add a file format."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pyro_prme.checks import refusal

__all__ = [
    "compressed_npz",
    "first_bad_word",
    "need_path",
    "open_npz",
    "open_text",
    "printable",
    "read_bytes",
    "read_text_lines",
    "read_words",
    "unpacked_limit",
    "write_whole",
]

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # all but tabs and line ends
_UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    r"""The text with every control character spelled out, as ``\x1b``: what a file or its name says to a terminal.

    Tabs and line ends stay, and so do all letters. Halves of surrogate pairs, as in names of files that are not in
    UTF-8, are spelled out too, since they cannot be written.
    """
    return _CONTROLS.sub(lambda found: ascii(found.group())[1:-1], text)


def need_path(path: str | Path) -> None:
    """Refuses a path at which there is no file or folder."""
    if not str(path):
        raise ValueError("A path is empty: give the name of a file or folder.")
    try:
        kind = os.stat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise ValueError("it is a pipe or a device, and no file")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({_reason(error)}): check the path.") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if it is gzip; anything wrong with the file is a ``ValueError``."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("it is a folder, a pipe or a device, and no file")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({_reason(error)}): check the path.") from None
    if path.suffix == ".gz" or data[:2] == b"\x1f\x8b":
        most = unpacked_limit(len(data))
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(most + 1)
        except EOFError:
            raise ValueError(f"{path} is cut short: its gzip stream ends early, so fetch or write it again.") from None
        except (OSError, zlib.error) as error:
            raise ValueError(f"{path} is not a good gzip file ({error}): fetch or write it again.") from None
        if len(data) > most:
            raise ValueError(_too_large(path, most))
    if not data.strip():
        raise ValueError(f"{path} is empty: it should hold at least one document or word.")
    return data


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """A file to read in pieces, unpacked on the way if it is gzip."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("it is a folder, a pipe or a device, and no file")
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({_reason(error)}): check the path.") from None
    with file:
        packed = path.suffix == ".gz" or file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield file


def unpacked_limit(packed: int) -> int:
    """Bytes that a packed file of a size may unpack to: 32 MiB, or 10 times its size, unless PRME_MAX_MIB says more."""
    own = os.environ.get("PRME_MAX_MIB")
    if own is None:
        return max(32 << 20, 10 * packed)
    if not own.isdecimal() or int(own) < 1:
        raise refusal("PRME_MAX_MIB", own, "a whole number of MiB of at least 1")
    return int(own) << 20


def _too_large(path: str | Path, most: int) -> str:
    return (
        f"{path} unpacks to more than {most >> 20} MiB, which is more than 32 MiB and 10 times its size: if you trust "
        "it, set PRME_MAX_MIB in the environment to as many MiB as it may have."
    )


def read_text_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, without their ends."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text; convert the file to UTF-8.") from None
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_words(path: Path) -> tuple[str, ...]:
    """A vocabulary file: one word a line, the line number from 0 is the word's id."""
    words = tuple(read_text_lines(path))
    bad = first_bad_word(words)
    if bad is not None:
        line, reason = bad
        raise ValueError(f"{path}, line {line + 1}: {reason}.")
    return words


def first_bad_word(words: Sequence[str], *, may_repeat: bool = False) -> tuple[int, str] | None:
    """Position and fault of the first string that is blank, repeated or unfit for a line of text, or None."""
    repeats = not may_repeat and len(set(words)) < len(words)
    if not repeats and all(map(str.strip, words)) and not _UNWRITABLE.search("".join(words)):
        return None
    seen: dict[str, int] = {}
    for position, word in enumerate(words):
        if not word.strip():
            return position, "it is blank; write at least one letter"
        if _UNWRITABLE.search(word):
            return position, f"{word!r} holds a control character, line break or lone surrogate; remove it"
        if repeats and word in seen:
            return position, f"{word!r} is also at position {seen[word]} (from 0); the words must differ"
        seen[word] = position
    return None


def open_npz(data: bytes, where: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file, without pickles."""
    most = unpacked_limit(len(data))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            size = sum(member.file_size for member in members.infolist())
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError, struct.error) as error:
        raise ValueError(f"{where} is not a good npz file ({error}): fetch or write it again.") from None
    if size > most:
        raise ValueError(_too_large(where, most))
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a bare array")
            return {key: archive[key] for key in archive.files}
    except (
        ValueError,
        TypeError,
        KeyError,
        OSError,
        EOFError,
        SyntaxError,
        MemoryError,
        OverflowError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(f"{where} is not a good npz file ({error}): fetch or write it again.") from None


def compressed_npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a compressed npz file; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def write_whole(contents: Mapping[Path, bytes | Iterator[bytes]]) -> None:
    """Write each file (gzipped if its name ends in ``.gz``), all whole, or leave what was there.

    A content is bytes, or an iterator over blocks of them. Every content goes to a temporary file in its own folder;
    the files take their names once all are on the disk. A link stays, and the file that it points to is written. A
    terminal, a pipe or another device for characters, such as ``/dev/null``, stays too, and the content is sent to it,
    before any file takes its name. Disks and sockets are refused.
    """
    path, temporary, places = Path(), dict[Path, Path](), dict[Path, Path]()
    try:
        for path in contents:
            if not _is_stream(path):
                places[path] = Path(os.path.realpath(path))
                temporary[path] = places[path].with_name(f".{places[path].name}.{os.getpid()}.tmp")
        for path, data in contents.items():
            if path not in temporary:
                with open(os.open(path, os.O_WRONLY), "wb") as stream:
                    _write(stream, data, packed=path.suffix == ".gz")
                continue
            with open(temporary[path], "wb") as file:
                _write(file, data, packed=path.suffix == ".gz")
                file.flush()
                os.fsync(file.fileno())
        for path, place in places.items():
            os.replace(temporary[path], place)
    except (OSError, ValueError) as error:
        why = f"cannot be written ({_reason(error)}): check the folder and the space on the disk"
        raise ValueError(f"{path} {why}.") from None
    finally:
        for leftover in temporary.values():
            with contextlib.suppress(OSError, ValueError):
                leftover.unlink()


def _write(file: BinaryIO, data: bytes | Iterator[bytes], *, packed: bool) -> None:
    """Bytes, whole or in blocks."""
    if isinstance(data, bytes):
        file.write(gzip.compress(data, compresslevel=6, mtime=0) if packed else data)
    elif packed:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as stream:
            stream.writelines(data)
    else:
        file.writelines(data)


def _is_stream(path: Path) -> bool:
    """Whether the path is of a terminal, a pipe or the like, which is written to as it is; a ``ValueError`` if not."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(kind):
        raise ValueError("it is a folder")
    if stat.S_ISBLK(kind) or stat.S_ISSOCK(kind):
        raise ValueError("it is a disk or a socket, and no file")
    return not stat.S_ISREG(kind)
