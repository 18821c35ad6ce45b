"""The command that makes one run of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyro_prme.cli.show import echo
from pyro_prme.runs.mixing import parts_of, save_mix

__all__ = ["mix", "part_name"]


def part_name(number: int) -> str:
    """The folder of a mixture's part, counted from 0."""
    return f"part-{number + 1}"


def mix(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that `prme fit` made.")],
    out: Annotated[Path, typer.Option(help="Folder to make.")],
) -> None:
    """Make one run of several: it predicts the mean of what they predict, better than each of them alone.

    The runs, with different seeds or of different models, must have the same vocabulary; they are copied.
    `prme evaluate`, `transform` and `topics` take the new folder. Topics of different runs stay apart.

    Example: prme mix run1/ run2/ run3/ --out mixed/
    """
    save_mix(out, runs)
    echo(f"{out}: the mean of {len(parts_of(out))} runs. Next: prme evaluate {out} test.ldac")
