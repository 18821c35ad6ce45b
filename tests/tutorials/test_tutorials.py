"""The tutorials: every cell and every folded solution runs, and what is stored in them is clean."""

import base64
import io
import re
import struct
from pathlib import Path

import matplotlib
import nbformat
import numpy as np
import pytest
from nbformat import NotebookNode
from PIL import Image

from tutorials.execute import HERE, caption, execute, notebooks, solutions, with_palette, with_solutions

NOTEBOOKS = notebooks()
PAGES = [path for path in sorted(HERE.parent.rglob("*.md")) if not {"build", ".venv"} & set(path.parts)]
LISTED = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", (HERE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
MACHINE = re.compile(r"/(?:home|root|tmp|work|usr|opt|Users|private)/|site-packages|[A-Z]:\\|\bat 0x[0-9a-f]{6}")

PLACEHOLDER = re.compile(r"@@|\b(?:TODO|FIXME|XXX|TBD)\b")

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
    assert [int(path.name[:2]) for path in NOTEBOOKS] == list(range(13))


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
def test_pictures_have_double_resolution_and_an_alternative_text(path: Path) -> None:
    outputs = [output for cell in code_cells(nbformat.read(path, as_version=4)) for output in cell.outputs]
    for output in outputs:
        if "image/png" in output.get("data", {}):
            about = output.metadata["image/png"]
            width, height = struct.unpack(">II", base64.b64decode(output.data["image/png"])[16:24])
            assert abs(width - 2 * about["width"]) <= 1
            assert abs(height - 2 * about["height"]) <= 1
            assert len(about["alt"]) > 30, "the Markdown cell below a picture begins with its caption, in asterisks"


def test_a_caption_is_what_stands_between_the_first_asterisks() -> None:
    text = "*Left: $\\mathbb{E} Z_{nk}$, as in [chapter 5](05.ipynb).\nRight: **all**, $k = 1, \\ldots$* And *more*."
    assert caption(text) == "Left: E Z_nk, as in chapter 5. Right: all, k = 1, ..."
    assert caption("**Bold.** Text with *emphasis*.") == caption("Plain *emphasis*.") == ""


def test_a_palette_keeps_the_colours_of_small_things() -> None:
    x = np.linspace(-2, 2, 400)
    picture = (255 * matplotlib.colormaps["viridis"](np.exp(-(x**2) - x[:, None] ** 2))[..., :3]).astype(np.uint8)
    picture[:, 300:] = 255
    for i, colour in enumerate([(213, 94, 0), (204, 121, 167), (86, 180, 233)]):  # marks on a paintbox
        picture[40 * i + 10 : 40 * i + 14, 20:24] = colour
    stored = io.BytesIO()
    Image.fromarray(picture).save(stored, "png")
    small = with_palette(base64.b64encode(stored.getvalue()).decode())
    change = np.asarray(Image.open(io.BytesIO(base64.b64decode(small))).convert("RGB")).astype(int) - picture
    assert np.abs(change).max() <= 12


@pytest.mark.parametrize("path", [*NOTEBOOKS, *PAGES], ids=lambda path: path.relative_to(HERE.parent).as_posix())
def test_nothing_is_left_to_be_filled_in(path: Path) -> None:
    if path.suffix == ".ipynb":
        cells = nbformat.read(path, as_version=4).cells
        text = "\n".join([cell.source + "".join(map(printed, cell.get("outputs", []))) for cell in cells])
    else:
        text = path.read_text(encoding="utf-8")
    assert PLACEHOLDER.search(text) is None


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
