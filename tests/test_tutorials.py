"""The tutorials: every cell and every folded solution runs, and what is stored in them is clean."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tutorials.execute import HERE, execute, notebooks, solutions, with_solutions

NOTEBOOKS = notebooks()
LISTED = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", (HERE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
MACHINE = re.compile(r"/(?:home|root|tmp|work|usr|opt|Users|private)/|site-packages|[A-Z]:\\|\bat 0x[0-9a-f]{6}")

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def markdown(notebook: NotebookNode) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def printed(output: NotebookNode) -> str:
    """All of an output that is text."""
    texts = {kind: text for kind, text in output.get("data", {}).items() if not kind.startswith("image/png")}
    return "\n".join([output.get("text", ""), *map(str, texts.values())])


def test_the_table_lists_every_chapter_in_order() -> None:
    assert LISTED
    assert [path.name for path in NOTEBOOKS] == LISTED
    assert [int(path.name[:2]) for path in NOTEBOOKS] == list(range(1, 10))


@each
def test_what_is_stored_is_whole_and_clean(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run it: make notebooks"
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    for output in outputs:
        assert output.output_type in ("stream", "display_data", "execute_result")
        assert output.get("name") != "stderr", printed(output)
        assert not MACHINE.search(printed(output)), printed(output)
    assert all("execution" not in cell.metadata for cell in cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata["language_info"] == {"name": "python"}
    assert path.stat().st_size < 1.6e6


@each
def test_links_to_other_chapters_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+\.ipynb)", markdown(nbformat.read(path, as_version=4))):
        assert (path.parent / target).exists(), target


@each
def test_exercises_have_folded_solutions(path: Path) -> None:
    _, heading, text = markdown(nbformat.read(path, as_version=4)).partition("\n## Exercises")
    assert heading
    exercises = re.findall(r"^(?:\*\*|### )(?:Exercise )?\d+[.:]", text, re.MULTILINE)
    folded = re.findall(r"^<details>\s*<summary>.+?</summary>\n\n.+?\n\n</details>$", text, re.DOTALL | re.MULTILINE)
    assert 1 <= len(exercises) == len(folded) == text.count("<details>")
    assert solutions(text)


@pytest.mark.slow
@pytest.mark.timeout(900)
@each
def test_every_cell_and_solution_runs_at_small_size(path: Path, tmp_path: Path) -> None:
    notebook = with_solutions(nbformat.read(path, as_version=4))
    assert '"CI" in os.environ' in code_cells(notebook)[0].source
    execute(notebook, tmp_path, CI="true")
    for cell in code_cells(notebook):
        assert cell.execution_count is not None
        for output in cell.outputs:
            assert output.get("name") != "stderr", f"{cell.source}\n\n{printed(output)}"
