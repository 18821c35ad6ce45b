"""The figures in the notes on security are those of the committed reports of the harness."""

import json
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_figures_are_those_of_the_reports():
    reports = json.loads((ROOT / "tests" / "robustness" / "soak.json").read_text())
    page = " ".join((ROOT / "docs" / "security.md").read_text().split())
    made: Counter[str] = Counter()
    for report in reports:
        made.update(report["counts"])
    faults = [fault for report in reports for fault in report["faults"]]
    last = max(report["commit"] for report in reports if report["only"] == "hostile")
    last_faults = [fault for report in reports if report["commit"] == last for fault in report["faults"]]
    most = {
        name: max(r["most"].get(name, 0) for r in reports)
        for name in ("seconds of a hostile file", "MiB of a hostile file")
    }
    growth = max(r["most"].get("growth of a stream's memory", 0) for r in reports)
    for figure in (
        f"{made['files']:,} damaged files",
        f"{made['calls']:,} calls from four threads",
        f"{made['kills']:,} kills",
        f"{made['hostile files']:,} hostile files",
        f"{most['seconds of a hostile file']:.1f} seconds of processor time",
        f"{most['MiB of a hostile file']:.0f} MiB",
        f"{len(faults)} faults",
        f"{growth:.1%} more memory",
        f"{len(last_faults)} of them at the last commit",
        f"`{last[:7]}`",
    ):
        assert figure in page, figure
