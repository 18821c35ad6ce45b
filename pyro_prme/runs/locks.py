"""One writer a folder: open this to see what keeps two processes from writing the same run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None  # type: ignore[assignment]

__all__ = ["LOCK", "one_writer"]

#: Name of the file in the folder, which holds the number of the process.
LOCK = "run.lock"

_held: set[str] = set()  # folders that this process writes


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Within it, no other process that asks is let write the folder, which is made if need be.

    The system ends a lock with its process, however that ends: a file that is left over locks nothing, and is taken
    over. The process that has the lock may enter again. Where the file system has no locks, there is none.
    """
    place = os.path.realpath(folder)
    if place in _held:
        yield
        return
    new = not os.path.exists(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made ({error.strerror}): check the path.") from None
    handle = None if fcntl is None else _locked(folder)
    _held.add(place)
    try:
        yield
    finally:
        _held.discard(place)
        if handle is not None:
            try:
                with suppress(OSError):
                    os.unlink(folder / LOCK)
            finally:
                os.close(handle)
        if new:
            with suppress(OSError):  # something has been written
                folder.rmdir()


def _locked(folder: Path) -> int:
    """A handle of the lock's file, which is locked as long as the handle is open."""
    path = folder / LOCK
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise ValueError(f"{folder} cannot be written ({error.strerror}): check the folder.") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = os.read(handle, 20).decode("ascii", "replace").strip()
            os.close(handle)
            who = f"process {process}" if process.isdecimal() else "another process"
            raise ValueError(
                f"{folder} is being written by {who}: wait for its end, or choose another folder."
            ) from None
        except OSError:
            return handle
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()}\n".encode())
                return handle
        os.close(handle)  # the one before has just removed the file: make another
