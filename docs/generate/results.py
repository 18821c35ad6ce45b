"""The page of measured results: tables from the JSON files that the benchmarks wrote, and nothing typed by hand."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def shown(value: Any) -> str:
    """Four significant digits, thousands kept whole; words as they are; a record as its items in a line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(part)}" for key, part in value.items())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).replace("|", "\\|")
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def table(rows: Iterable[Row]) -> str:
    """A Markdown table of records; a column whose cells all begin with a digit is set to the right."""
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[shown(row[c]) if c in row else "" for c in columns] for row in rows]
    numeric = [all(cell[:1].isdigit() or not cell for cell in column) for column in zip(*cells, strict=True)]
    lines = [columns, ["---:" if right else "---" for right in numeric], *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def local_steps(result: Row, script: Row) -> str:
    """Milliseconds of our local step, and how many times longer each other form takes."""
    rows = []
    for case in result["cases"]:
        row: Row = {"documents": f"{shown(case['documents'])} {case['length']}", "distinct words": case["entries"]}
        row |= {"topics": case["topics"], "ours, ms": f"{case['milliseconds']['ours']:.1f}"}
        row |= {
            key: f"{value:.1f} \N{MULTIPLICATION SIGN}" for key, value in case["ratio_to_ours"].items() if key != "ours"
        }
        rows.append(row)
    return (
        "Milliseconds of one local step of ours, and how many times as long each other form took in the same run. "
        "Distinct words are counted in each document, and summed.\n\n"
        f"{table(rows)}\n{_circumstances(result)}"
    )


def anything(result: Any, script: Row) -> str:
    """Any other result: lists of records as tables, and the rest as a line."""
    if isinstance(result, list):
        return table(row if isinstance(row, dict) else {"value": row} for row in result)
    lists = {k: v for k, v in result.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
    parts = [f"**{key}**\n\n{anything(value, script)}" for key, value in lists.items()]
    return "\n".join([*parts, _circumstances({k: v for k, v in result.items() if k not in lists})])


def printed(result: Any, script: Row) -> str:
    """The table that the script itself prints."""
    spread = "Mean over seeds (range over the seeds in brackets); lower is better."
    return f"{spread}\n\n{script['table'](result)}\n"


def depth_and_width(result: Any, script: Row) -> str:
    """Its script's tables, for each share of words that was seen."""
    parts = []
    for share, what in product(script["OBSERVED"], ("depth", "width")):
        parts.append(
            f"**By {what}, {share:.0%} of a document's words seen.**\n\n{script['table'](result, what, share)}\n"
        )
    return "\n".join(parts)


def online(result: Any, script: Row) -> str:
    """Where each curve ends, and an online pass before its batch epochs; the time of a batch."""
    ends = []
    for run in (run for run in result if "curve" in run):
        about = {key: run[key] for key in ("model", "mode", "kappa") if key in run}
        about["corpus"] = "all" if run["documents"] >= script["ALL"] else run["documents"]
        if run["mode"] == "online" and run["epochs"]:
            ends.append(about | run["curve"][-1 - run["epochs"]])
            about["mode"] = f"online, then {run['epochs']} batch epochs"
        ends.append(about | run["curve"][-1])
    times = [{"model": run["model"]} | run["milliseconds"] for run in result if "milliseconds" in run]
    return f"{table(ends)}\nMilliseconds of a batch:\n\n{table(times)}"


def peers(result: Row, script: Row) -> str:
    """Tables of the benchmark against other topic models, by the benchmark's own report."""
    return str(script["report"].text(result)) + "\n"


def tables(result: Row, script: Row) -> str:
    """The tables and bars that the script itself prints, and how they were measured."""
    facts = {key: value for key, value in result.items() if not isinstance(value, list)}
    return f"{script['text'](result)}\n\n{_circumstances(result.get('circumstances', facts))}"


def _circumstances(result: Row) -> str:
    facts = {key: value for key, value in result.items() if isinstance(value, int | float | str | dict)}
    line = "; ".join(f"{key.replace('_', ' ')} {shown(value)}" for key, value in facts.items())
    return f"*Measured with: {line}.*\n" if line else ""


KNOWN: dict[str, tuple[str, Callable[[Any, Row], str]]] = {
    "table1": ("Held-out perplexity", printed),
    "peers_kjv": ("Against other topic models: the King James Bible", peers),
    "peers_nyt": ("Against other topic models: New York Times", peers),
    "peers_20news": ("Against other topic models: 20 Newsgroups", peers),
    "local_step": ("The local step", local_steps),
    "training_step": ("The training step", tables),
    "scaling": ("Growth of time and memory", tables),
    "architecture": ("Depth and width of the networks", depth_and_width),
    "online": ("Online learning", online),
    "swaps": ("Swapped models against the unswapped one", anything),
    "learned": ("gamma0 and beta learned", printed),
    "choices": ("What the defaults were chosen by", printed),
    "peers_tuning": ("Settings tried for the other topic models, on documents cut from train", anything),
}


def script_of(path: Path) -> Path | None:
    """The script that writes a result: of its name in the folder above, or a folder named like its first word."""
    folder = path.parent.parent
    names = (folder / f"{path.stem}.py", folder / path.stem.split("_")[0] / "__main__.py")
    return next((name for name in names if name.exists()), None)


def names_of(script: Path) -> Row:
    """What a script defines, without running its main part."""
    sys.path.insert(0, str(script.parent))
    try:
        return runpy.run_path(str(script), run_name="shown")
    finally:
        sys.path.remove(str(script.parent))


def section(path: Path, root: Path) -> str:
    """A result file under a heading, with what its script says of it, and its picture where there is one."""
    title, render = KNOWN.get(path.stem, (path.stem.replace("_", " ").capitalize(), anything))
    script, about, source = script_of(path), "", f"From `{path.relative_to(root)}`"
    if script:
        about = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n\n")[0] + "\n\n"
        source += f", written by `{script.relative_to(root)}`"
    body = render(json.loads(path.read_text(encoding="utf-8")), names_of(script) if script else {})
    picture = path.with_suffix(".png")
    if picture.exists():
        body += f"\n![{title}](../{picture.relative_to(root)})\n"
    return f"## {title}\n\n{about}{body}\n{source}.\n"


def page(root: Path) -> str:
    """Markdown of the whole page."""
    order = {name: place for place, name in enumerate(KNOWN)}
    found = sorted(root.glob("benchmarks/**/results/*.json"), key=lambda p: (order.get(p.stem, len(order)), str(p)))
    return "\n".join(section(path, root) for path in found)
