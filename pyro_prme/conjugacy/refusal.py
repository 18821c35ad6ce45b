"""Why a closed form does not hold: an exception that names the latent variables involved and the operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyro_prme.conjugacy.variables import Variable

__all__ = ["Refused", "reason_of"]

_LONGEST = 80  # characters of another error's message


class Refused(Exception):
    """The expected log density cannot be written with the statistics that these variables have.

    Args:
        variables: the variables to blame, or the reason for each of them.
        reason: one reason for all of them, a clause such as "it goes through clamp".
    """

    def __init__(self, variables: Iterable[Variable] | Mapping[Variable, str], reason: str = "") -> None:
        self.why: dict[Variable, str] = (
            dict(variables) if isinstance(variables, Mapping) else dict.fromkeys(variables, reason)
        )
        self.reason = reason or "; ".join(dict.fromkeys(self.why.values()))
        super().__init__(self.reason)


def reason_of(error: Exception) -> str:
    """An error as a clause: its kind and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:_LONGEST]}" if lines else type(error).__name__
