"""The page of measured results: tables from the JSON files that the benchmarks wrote, and no number typed by hand.

A sentence stands above each table, and what few readers need is folded; `QUESTIONS` and `FOLDED` know the tables by the
first cells of their headings.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: What a table answers, by the beginning of its heading; it stands above the table.
QUESTIONS: dict[str, str] = {
    "perplexity after": "How good is each program after so many seconds of training? Perplexity of held-out words, "
    "lower is better; then its best one, the seconds of an epoch, and the largest memory.",
    "to the best perplexity of": "How long does each program take to its own best perplexity (the column “it”), and "
    "how long do ours take to it? In brackets: how many times sooner; “never” is not within the time allowed.",
    "milliseconds": "On what is the time of a training step spent?",
    "model | generic": "How much faster is a step than the same step in generic Pyro, and how much sooner is the best "
    "bound reached that generic Pyro came to?",
    "documents | distinct words | words": "How does the cost grow with the number of documents?",
    "words | distinct": "How does it grow with the size of the vocabulary?",
    "topics | distinct": "How does it grow with the number of topics?",
    "tokens | distinct": "How does it grow with the length of the documents?",
    "exponent in": "Which power of each size does the cost follow? With an exponent of one it grows in proportion.",
    "model | mode": "Where does each online and batch fit end, in held-out perplexity?",
    "comparison | swapped": "Is a swapped model better than the unswapped one on data of its own kind? The gain has "
    "its standard error beside it, and the number of seeds with which the swapped model won.",
    "a sweep of": "How long does a sweep of the structure engine take beside code written by hand for the model, and "
    "beside BayesPy? The ratio is the median over turns in one process.",
    "to a bound": "How many seconds until the best bound that AutoNormal with SVI came to, less a nat or a few?",
    "data, MiB": "What does a sweep over a mixture of 200,000 rows need beside the data?",
    "peer | corpus": "Which settings did best for each of the other programs on the validation documents?",
}

#: Tables and lines that are folded away, by their beginning, with what is written in their place.
FOLDED: dict[str, str] = {
    "bar": "Goals that were set beforehand, and whether they were met",
    "model | gradient in": "How noisy the gradients of generic Pyro are",
    "peer | corpus": "All settings that were tried",
    "not counted": "What is not counted",
    "*Measured with": "How it was measured",
}


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


SPREAD = "Mean over seeds (range over the seeds in brackets); lower is better."


def printed(result: Any, script: Row) -> str:
    """The table that the script itself prints."""
    return f"{SPREAD}\n\n{script['table'](result)}\n"


def columns(markdown: str, *names: str) -> str:
    """Some columns of a Markdown table, in this order; rows that are empty in all but the first two are left out."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]
    chosen = [lines[0].index(name) for name in names]
    kept = [[line[i] for i in chosen] for line in lines]
    rows = [row for i, row in enumerate(kept) if i < 2 or any(row[2:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def perplexities(result: Any, script: Row) -> str:
    """The models at the paper's gamma0, a table a question; folded, one table with all settings."""
    main = [run for run in result if run["gamma0"] == PAPERS_GAMMA0]
    every = script["table"](result)
    if not main:
        return f"{SPREAD}\n\n{every}\n"
    here = script["table"](main)
    # The script has two columns called 10%: the second is that of the fit without f.
    here = here.replace("| f = 0: 90% | 10% |", "| f = 0: 90% | f = 0: 10% |", 1)
    models = columns(here, "corpus", "model", "90%", "paper, 90%", "50%", "10% observed")
    without = columns(here, "corpus", "model", "f = 0: 90%", "90%", "f = 0: 10%", "10% observed")
    without = "\n".join(line for line in without.splitlines() if "|  |" not in line)
    return (
        "Does the random function pay, with the paper's gamma0, at three shares of a document's words seen? PRME has "
        "it in the shape of the loadings, the library's form, unless a row says “in the scale”, which is the paper's. "
        f"The paper's own figures stand beside ours. {SPREAD}\n\n{models}\n\n"
        "How much of that is the function itself? The same fits, scored once more with f set to zero (the columns "
        f"“f = 0”), beside the scores above.\n\n{without}\n\n"
        + folded("All settings: other values of gamma0, topics as points, and the preset “predictive”", every)
    )


#: Of the paper's tables, but for those that vary it.
PAPERS_GAMMA0 = 0.2


def folded(summary: str, text: str) -> str:
    """Markdown behind a line to click on."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>\n"


def arranged(body: str) -> str:
    """Each table with its question above it; details folded."""
    blocks = []
    for block in re.split(r"\n{2,}", body):
        start = block.lstrip("| ")
        blocks += [text for heading, text in QUESTIONS.items() if start.startswith(heading) and block.startswith("|")]
        found = [summary for heading, summary in FOLDED.items() if start.startswith(heading)]
        blocks.append(folded(found[0], block) if found else block)
    return "\n\n".join(blocks)


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
    "table1": ("Held-out perplexity", perplexities),
    "own_counts": ("The default: topics without a document's own words", printed),
    "averaging": ("Sampling, and the mean of several fits", printed),
    "sampling": ("The Gibbs sweep", tables),
    "peers_kjv": ("Against other topic models: the King James Bible", peers),
    "peers_nyt": ("Against other topic models: New York Times", peers),
    "peers_20news": ("Against other topic models: 20 Newsgroups", peers),
    "local_step": ("The local step", local_steps),
    "training_step": ("The training step", tables),
    "conjugacy": ("Closed forms found from structure", tables),
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
    body = arranged(render(json.loads(path.read_text(encoding="utf-8")), names_of(script) if script else {}))
    picture = path.with_suffix(".png")
    if picture.exists():
        body += f"\n![{title}](../{picture.relative_to(root)})\n"
    return f"## {title}\n\n{about}{body}\n{source}.\n"


#: What a section answers, for the list at the top of the page, by the name of its file.
ASKED: dict[str, str] = {
    "own_counts": "How good is the default, and what does averaging several fits gain?",
    "table1": "Does the random function pay, and how do our scores compare with the paper's?",
    "peers_nyt": "How does it compare with gensim, scikit-learn, tomotopy and Pyro?",
    "training_step": "How fast is a training step, and what is it spent on?",
    "scaling": "How do time and memory grow?",
    "conjugacy": "What do closed forms cost in a model of one's own?",
    "architecture": "Do deeper and wider networks help?",
    "online": "Online or batch?",
    "swaps": "Does a swapped prior or likelihood win on data of its own kind?",
    "choices": "How were the defaults chosen?",
}


def slug(title: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def page(root: Path) -> str:
    """Markdown of the whole page: the questions, and a section for each file."""
    order = {name: place for place, name in enumerate(KNOWN)}
    found = sorted(root.glob("benchmarks/**/results/*.json"), key=lambda p: (order.get(p.stem, len(order)), str(p)))
    there = {path.stem for path in found}
    asked = [f"- [{text}](#{slug(KNOWN[name][0])})" for name, text in ASKED.items() if name in there]
    return "\n".join(["\n".join(asked) + "\n" if asked else "", *(section(path, root) for path in found)]).lstrip("\n")
