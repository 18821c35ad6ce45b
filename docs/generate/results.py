"""The page of measured results: tables from the JSON files that the benchmarks wrote, and nothing typed by hand."""

from __future__ import annotations

import ast
import json
import runpy
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]
NAMES = {"prme": "PRME", "diln": "DILN", "hdp": "HDP"}


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


def perplexities(records: list[Row]) -> str:
    """Held-out perplexity of each corpus and gamma0: mean over seeds, largest less smallest in brackets."""
    groups: dict[tuple[str, float], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        groups[record["corpus"], record["gamma0"]][record["model"]].append(record)
    parts = []
    for (corpus, gamma0), models in sorted(groups.items()):
        ordered = [name for name in NAMES if name in models] + sorted(models.keys() - NAMES.keys())
        runs = {NAMES.get(name, name): models[name] for name in ordered}
        rows = []
        for share in models[ordered[0]][0]["perplexity"]:
            row: Row = {"words seen": f"{100 * float(share):.0f}%"}
            for name, records_of in runs.items():
                scores = [record["perplexity"][share] for record in records_of]
                row[name] = f"{mean(scores):.1f} ({max(scores) - min(scores):.0f})"
            rows.append(row)
        rows.append({"words seen": "seeds"} | {name: len(records_of) for name, records_of in runs.items()})
        used = {name: mean(record["topics_used"] for record in records_of) for name, records_of in runs.items()}
        rows.append({"words seen": "topics in use"} | {name: f"{value:.0f}" for name, value in used.items()})
        parts.append(
            f"### {corpus}, $\\gamma_0 = {gamma0:g}$\n\n"
            "Held-out perplexity by the share of a document's words that was seen: mean over seeds, largest less "
            f"smallest in brackets. Lower is better.\n\n{table(rows)}"
        )
    return "\n".join(parts)


def local_steps(result: Row) -> str:
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


def anything(result: Any) -> str:
    """Any other result: lists of records as tables, and the rest as a line."""
    if isinstance(result, list):
        return table(row if isinstance(row, dict) else {"value": row} for row in result)
    lists = {k: v for k, v in result.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
    parts = [f"**{key}**\n\n{anything(value)}" for key, value in lists.items()]
    return "\n".join([*parts, _circumstances({k: v for k, v in result.items() if k not in lists})])


def _circumstances(result: Row) -> str:
    facts = {key: value for key, value in result.items() if isinstance(value, int | float | str | dict)}
    line = "; ".join(f"{key.replace('_', ' ')} {shown(value)}" for key, value in facts.items())
    return f"*Measured with: {line}.*\n" if line else ""


def peers(result: Row) -> str:
    """Tables of the benchmark against other topic models, by the benchmark's own report."""
    return str(runpy.run_path(str(ROOT / "benchmarks" / "peers" / "report.py"))["text"](result)) + "\n"


KNOWN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "table1": ("Held-out perplexity", perplexities),
    "peers_kjv": ("Against other topic models: the King James Bible", peers),
    "peers_nyt": ("Against other topic models: New York Times", peers),
    "peers_20news": ("Against other topic models: 20 Newsgroups", peers),
    "local_step": ("The local step", local_steps),
    "peers_tuning": ("Settings tried for the other topic models, on documents cut from train", anything),
}


def script_of(path: Path) -> Path | None:
    """The script that writes a result: of its name in the folder above, or a folder named like its first word."""
    folder = path.parent.parent
    names = (folder / f"{path.stem}.py", folder / path.stem.split("_")[0] / "__main__.py")
    return next((name for name in names if name.exists()), None)


def page(root: Path) -> str:
    """Markdown of the whole page."""
    parts = []
    order = {name: place for place, name in enumerate(KNOWN)}
    found = sorted(root.glob("benchmarks/**/results/*.json"), key=lambda p: (order.get(p.stem, len(order)), str(p)))
    for path in found:
        title, render = KNOWN.get(path.stem, (path.stem.replace("_", " ").capitalize(), anything))
        script = script_of(path)
        source = f"From `{path.relative_to(root)}`"
        about = ""
        if script:
            about = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n\n")[0] + "\n\n"
            source += f", written by `{script.relative_to(root)}`"
        body = render(json.loads(path.read_text(encoding="utf-8")))
        picture = path.with_suffix(".png")
        if picture.exists():
            body += f"\n![{title}](../{picture.relative_to(root)})\n"
        parts.append(f"## {title}\n\n{about}{body}\n{source}.\n")
    return "\n".join(parts)
