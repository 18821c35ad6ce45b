"""Runs the tutorials at full size and stores what they print: all of them, or those whose names begin as given.

    python tutorials/execute.py [01 06]

What would differ from run to run for no reason of the notebook's is not stored: times, the version of the language, and
how printed lines happened to be cut into messages. A notebook that fails is left as it was.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

HERE = Path(__file__).parent
SECONDS_A_CELL = 600
WARNINGS = "default,ignore:IProgress not found"  # shown, but for Pyro's wish for ipywidgets


def notebooks() -> list[Path]:
    """The chapters in their order."""
    return sorted(HERE.glob("*.ipynb"))


def solutions(markdown: str) -> list[str]:
    """The code of the folded solutions in a Markdown cell."""
    folded = re.findall(r"<details>.*?</details>", markdown, re.DOTALL)
    return [code for text in folded for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]


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
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "MPLBACKEND")}
    client = NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=environment | {"PYTHONWARNINGS": WARNINGS} | variables)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main(names: list[str]) -> None:
    chosen = [path for path in notebooks() if not names or path.name.startswith(tuple(names))]
    if not chosen:
        sys.exit(f"No tutorial has a name that begins with {' or '.join(names)}.")
    for path in chosen:
        print(path.name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(nbformat.read(path, as_version=4), Path(folder))
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
