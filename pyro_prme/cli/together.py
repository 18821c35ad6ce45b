"""Several workers for a command: starts it again under torchrun, or finds that it was."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar, cast

import typer

from pyro_prme.cli.show import echo
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.inference.workers import Workers, WorkersDiffer
from pyro_prme.runs.locks import one_writer
from pyro_prme.runs.run_folder import fingerprint

__all__ = [
    "again_with_workers",
    "all_or_none",
    "restarted",
    "same_for_all",
    "speaking",
    "under_torchrun",
    "without_option",
    "writing",
]

_REFUSED = "PRME_REFUSED"  # in the environment: a file that is there once a worker has refused to go on
_Found = TypeVar("_Found")

_RESTARTS = 5  # of all workers, after one has died
_PATIENCE = 30  # seconds for the workers before to end


def under_torchrun() -> bool:
    """Whether this process is one of several workers."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def restarted() -> bool:
    """Whether the workers were started again because one of them has died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def again_with_workers(number: int, arguments: Sequence[str]) -> None:
    """Runs torchrun, which starts the command so many times, and ends this one with its exit code.

    A worker that is killed is started again with the others. One that refuses to go on says why, leaves word of it in
    a file, and is not: what it refuses does not change.

    Args:
        number: of workers on this machine.
        arguments: of the command, without the number of workers.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as launch

    launcher = ["--standalone", "--nproc-per-node", str(number), "--max-restarts", str(_RESTARTS)]
    with tempfile.TemporaryDirectory() as place:
        refused = Path(place) / "refused"
        quiet = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "LOGLEVEL": "CRITICAL"}
        for name, value in quiet.items():
            os.environ.setdefault(name, value)
        os.environ[_REFUSED] = str(refused)
        code = 0
        try:
            launch([*launcher, "-m", "pyro_prme.cli", *arguments])
        except ChildFailedError:
            if not refused.exists():
                raise ValueError(
                    f"The workers were started again {_RESTARTS} times and failed each time: see above; the last "
                    "checkpoint is kept."
                ) from None
        except SignalException as stop:
            code = 128 + int(stop.sigval)
        raise typer.Exit(1 if refused.exists() else code)


def _first_to_refuse() -> bool:
    """Whether no worker has refused yet; from now on one has."""
    try:
        os.close(os.open(os.environ[_REFUSED], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class _Agreed(ValueError):
    """What all workers refuse together."""


def all_or_none(team: Workers, action: Callable[[], _Found]) -> _Found:
    """What the action returns in this worker; where one of them refuses, all refuse with its sentence."""
    if team.size == 1:
        return action()
    found, problem = None, ""
    try:
        found = action()
    except ValueError as error:
        problem = str(error)
    for rank, other in enumerate(team.gather_all(problem)):
        if other:
            raise _Agreed(other if rank == 0 else f"worker {rank}: {other}")
    return cast(_Found, found)


@contextmanager
def speaking(team: Workers) -> Iterator[None]:
    """Within it the first worker is heard, and any worker that has to end says why, in one sentence."""
    if team.size == 1:
        yield
        return
    launched = _REFUSED in os.environ
    if launched and restarted() and os.path.exists(os.environ[_REFUSED]):
        raise typer.Exit(0)  # the launcher knows
    try:
        with _only_first_heard(team):
            yield
    except (_Agreed, WorkersDiffer) as error:  # in all workers
        if team.leads:
            echo(f"error: {error}", err=True)
            if launched:
                _first_to_refuse()
        team.gather_all(None)
        raise typer.Exit(0 if launched else 1) from None
    except ValueError as error:
        if not launched or _first_to_refuse():
            echo(f"error: worker {team.rank}: {error}", err=True)
        raise typer.Exit(1) from None
    except RuntimeError as error:
        why = team.why_lost(error)
        if why is None:
            raise
        echo(f"worker {team.rank}: {why}", err=True)
        raise typer.Exit(1) from None


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
def _only_first_heard(team: Workers) -> Iterator[None]:
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
