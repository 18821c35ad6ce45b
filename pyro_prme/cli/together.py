"""Several workers for a command: starts it again under torchrun, or finds that it was."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["again_with_workers", "restarted", "under_torchrun"]

_RESTARTS = 3  # of all workers, after one has died


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
