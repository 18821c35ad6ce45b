"""Why a closed form does not hold: an exception that names the latent variables involved and the operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyro_prme.conjugacy.variables import Variable

__all__ = ["Refused"]


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
