"""Runs the tutorials at full size and stores what they print: all of them, or those whose names begin as given.

    python tutorials/execute.py [01 06]

What would differ from run to run for no reason of the notebook's is not stored: times, the version of the language, and
how printed lines happened to be cut into messages. Pictures are stored in double resolution with a palette of 256
colours, and the caption below a picture is also its alternative text. A notebook that fails is left as it was.
"""

import base64
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from PIL import Image

HERE = Path(__file__).parent
SECONDS_A_CELL = 600
#: Shown, but for Pyro's wish for ipywidgets, and what the inline backend does with a setting of ours.
WARNINGS = (
    "default,ignore:IProgress not found,ignore:InlineBackend._figure_formats_changed"
)


def notebooks() -> list[Path]:
    """The chapters in their order."""
    return sorted(HERE.glob("*.ipynb"))


def solutions(markdown: str) -> list[str]:
    """The code of the folded solutions in a Markdown cell."""
    folded = re.findall(r"<details>.*?</details>", markdown, re.DOTALL)
    return [
        code
        for text in folded
        for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]


def with_solutions(notebook: NotebookNode) -> NotebookNode:
    """The notebook with each solution's code as a cell of its own, after the cell that has it folded away."""
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type == "markdown":
            cells += [new_code_cell(code) for code in solutions(cell.source)]
    return NotebookNode(notebook | {"cells": cells})


def execute(notebook: NotebookNode, folder: Path, **variables: str) -> NotebookNode:
    """Runs all cells in place, in a folder; the variable CI, which asks for small sizes, is set only if it is given."""
    notebook.metadata = {
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("CI", "MPLBACKEND")
    }
    client = NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR", "--InlineBackend.figure_formats=retina"],
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=environment | {"PYTHONWARNINGS": WARNINGS} | variables)
    notebook.metadata["language_info"] = {"name": "python"}
    finish_pictures(notebook)
    return notebook


def caption(markdown: str) -> str:
    """The caption that a Markdown cell begins with, in one pair of asterisks, as plain text; empty if it has none."""
    found = re.match(r"\*(?!\*)(.+?)(?<!\*)\*(?!\*)", markdown, re.DOTALL)
    text = (
        re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", found[1]) if found else ""
    )  # the text of a link
    text = text.replace(r"\ldots", "...")
    text = re.sub(r"\\(?:mathbb|mathrm|text|widetilde|tilde|bar|hat|[,;! ])", "", text)
    return " ".join(re.sub(r"[$`{}\\]|\*\*", "", text).split())


def finish_pictures(notebook: NotebookNode) -> None:
    """Makes pictures small, and gives each the caption in the next Markdown cell as its alternative text."""
    for i, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = with_palette(output.data["image/png"])
                below = next(
                    (
                        other.source
                        for other in notebook.cells[i + 1 :]
                        if other.cell_type == "markdown"
                    ),
                    "",
                )
                output.metadata.setdefault("image/png", {})["alt"] = caption(below)


def with_palette(png: str) -> str:
    """A picture (base64) with a palette of 256 colours, each near those that it stands for: a third of the size."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    small = io.BytesIO()
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        small, "png", optimize=True
    )
    return base64.b64encode(small.getvalue()).decode() + "\n"


def main(names: list[str]) -> None:
    chosen = [
        path for path in notebooks() if not names or path.name.startswith(tuple(names))
    ]
    if not chosen:
        sys.exit(f"No tutorial has a name that begins with {' or '.join(names)}.")
    for path in chosen:
        print(path.name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(nbformat.read(path, as_version=4), Path(folder))
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
