"""How a corpus is learned where nobody says: in batch passes, or online where it is large. The doors go by this."""

from __future__ import annotations

from typing import Any

__all__ = ["LARGE", "RULE", "usual_way"]

#: Documents above which a corpus is learned online, if no mode is given.
LARGE = 200_000
#: Batch passes over a corpus that is not large.
BATCH_PASSES = 40
#: Settings of `TrainOptions`, and passes, for a large corpus: chosen by `benchmarks/paper/schedule.py`.
ONLINE: dict[str, Any] = {"mode": "online", "delay": 100.0, "decay": 0.75, "cooling": 0.0}
ONLINE_PASSES = 1

#: The rule in words, for the help of the doors.
RULE = f"online above {LARGE:,} documents, in one pass; else batch, in {BATCH_PASSES}"


def usual_way(num_documents: int) -> tuple[dict[str, Any], int]:
    """Settings of `TrainOptions`, and passes, where a user gives neither.

    Args:
        num_documents: of the corpus.
    """
    if num_documents > LARGE:
        return dict(ONLINE), ONLINE_PASSES
    return {"mode": "batch"}, BATCH_PASSES
