"""What a check of a rule says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Check", "RuleError", "RuleReport"]


class RuleError(ValueError):
    """A rule is wrong; the message is one sentence."""


class Check(NamedTuple):
    """One thing that was looked at. `seen` is False where it could not be told."""

    name: str
    seen: bool
    detail: str


@dataclass(frozen=True)
class RuleReport:
    """What `check_rule` looked at and found right."""

    site: str
    rule: str
    checks: list[Check] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [f"{c.name:<12} {'holds' if c.seen else 'not seen'}: {c.detail}" for c in self.checks]
        return "\n".join([f"{self.rule} at site {self.site}", *rows])

    def seen(self, name: str) -> bool:
        """Whether the check of this name could be made (and held)."""
        return any(check.name == name and check.seen for check in self.checks)
