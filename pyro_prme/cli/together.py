"""Several workers for a command: starts it again under torchrun, or finds that it was."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from pyro_prme.corpora.corpus import Corpus
from pyro_prme.inference.workers import Workers
from pyro_prme.runs.locks import one_writer
from pyro_prme.runs.run_folder import fingerprint

__all__ = [
    "again_with_workers",
    "restarted",
    "same_for_all",
    "team_output",
    "under_torchrun",
    "without_option",
    "writing",
]

_RESTARTS = 5  # of all workers, after one has died
_PATIENCE = 30  # seconds for the workers before to end


def under_torchrun() -> bool:
    """Whether this process is one of several workers."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def restarted() -> bool:
    """Whether the workers were started again because one of them has died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def again_with_workers(number: int, arguments: Sequence[str]) -> None:
    """Replaces this process by torchrun, which starts the command so many times; it does not return.

    Args:
        number: of workers on this machine.
        arguments: of the command, without the number of workers.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    launcher += ["--max-restarts", str(_RESTARTS), "-m", "pyro_prme.cli", *arguments]
    environment = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"} | os.environ
    os.execve(sys.executable, [sys.executable, *launcher], environment)


def without_option(arguments: Sequence[str], option: str) -> list[str]:
    """The arguments of a command without an option and its value."""
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == option:
            skip = True
        elif not argument.startswith(f"{option}="):
            kept.append(argument)
    return kept


@contextmanager
def writing(team: Workers, folder: Path) -> Iterator[None]:
    """Within it, the first worker alone writes the folder; after a restart it waits for the one before to end."""
    with ExitStack() as stack:
        patience = time.monotonic() + (_PATIENCE if restarted() else 0)
        while team.leads:
            try:
                stack.enter_context(one_writer(folder))
                break
            except ValueError:
                if time.monotonic() > patience:
                    raise
                time.sleep(0.2)
        yield


@contextmanager
def team_output(team: Workers) -> Iterator[None]:
    """Within it, only the first worker is heard."""
    if team.leads:
        yield
        return
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        yield


def same_for_all(team: Workers, corpus: Corpus, settings: Mapping[str, Any]) -> None:
    """Refuses workers that differ in version, corpus or settings, before any of them waits for another."""
    from pyro_prme import __version__

    if team.size > 1:
        counts = fingerprint(corpus.counts, corpus.vocabulary)
        team.agree({"version": __version__, "corpus": counts, "settings": repr(settings)})
