"""Disks that are full and folders that may not be written: a sentence, and what was there is left."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

from pyro_prme.corpora.readers import save_corpus
from tests.robustness import toys
from tests.robustness.trials import Outcome, generator, isolated, sentence_fault

__all__ = ["trial"]

_FORMATS = ("c.npz", "c.ldac", "docword.c.txt.gz", "c.mtx")
_NOBODY = 65534


def trial(seed: int, number: int, folder: Path) -> Outcome:
    """Writes a corpus or a run where the disk is full after some bytes, or where it may not."""
    rng = generator(seed, number)
    place = folder / f"disk-{number}"
    place.mkdir()
    is_run = bool(rng.random() < 0.5)
    if is_run:
        for name, content in toys.run_files(folder).items():
            (place / name).write_bytes(content)
    else:
        save_corpus(toys.corpus()[:5], place / _FORMATS[number % len(_FORMATS)])
    before = {file.name: file.read_bytes() for file in place.iterdir()}
    closed = bool(rng.random() < 0.4)
    most = int(rng.integers(0, max(map(len, before.values()))))
    what = f"{'runs' if is_run else 'corpora'} written {'where it is forbidden' if closed else 'to a full disk'}"
    if closed:
        place.chmod(0o555)
    end = isolated(write, place, is_run, _FORMATS[number % len(_FORMATS)], None if closed else most)
    place.chmod(0o755)
    if not end.clean:
        return Outcome(what, end.error)
    if not end.error:
        return Outcome(what, "" if not closed else "it was written all the same")
    after = {file.name: file.read_bytes() for file in place.iterdir()}
    if after != before:
        return Outcome(what, f"{sorted(before)} became {sorted(after)}, or other bytes, at {most} bytes")
    return Outcome(what, sentence_fault(end.error, place))


def write(place: Path, is_run: bool, name: str, most: int | None) -> None:
    """Writes with at most so many bytes a file, or, if None, as a user who owns nothing."""
    if most is None:
        if os.geteuid() == 0:
            os.setuid(_NOBODY)
    else:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if is_run:
        toys.fit(place, 3)
    else:
        save_corpus(toys.corpus(), place / name)
