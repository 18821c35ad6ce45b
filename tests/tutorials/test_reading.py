"""What a reader of the tutorials meets: lines that fit, times that hold, symbols at hand, pictures to play with."""

import importlib
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

import pyro_prme as prme
from pyro_prme.explorer.pictures import PLAYS
from tutorials.execute import HERE, notebooks

NOTEBOOKS = notebooks()
WIDTH = 88
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def hidden(cell: NotebookNode) -> bool:
    return "hide-input" in cell.metadata.get("tags", [])


def reading_minutes(notebook: NotebookNode) -> float:
    """Of the chapter without its exercises and what is folded: 120 words, 25 lines of code or two pictures a minute."""
    minutes = 0.0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if cell.source.startswith("## Exercises"):
                break
            minutes += len(re.sub(r"<details>.*?</details>", "", cell.source, flags=re.DOTALL).split()) / 120
        else:
            minutes += 0 if hidden(cell) else sum(bool(line.strip()) for line in cell.source.splitlines()) / 25
            minutes += 0.5 * sum("image/png" in output.get("data", {}) for output in cell.outputs)
    return minutes


@each
def test_lines_fit_a_window(path: Path) -> None:
    for cell in read(path).cells:
        for line in cell.source.splitlines():
            assert len(line) <= WIDTH or line.startswith(("|", "<details>")), line  # which are one line each


@each
def test_the_time_that_is_stated_is_enough_and_stands_in_the_table_too(path: Path) -> None:
    notebook = read(path)
    found = re.search(r"Time: (?:about )?(\d+|ten|an hour)", notebook.cells[0].source)
    assert found
    stated = {"ten": 10, "an hour": 60}.get(found[1]) or int(found[1])
    assert stated >= 0.95 * reading_minutes(notebook)
    row = next(line for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines() if path.name in line)
    assert f"| {stated} min |" in row


@each
def test_symbols_are_one_click_away(path: Path) -> None:
    assert "](LECTURES.md#symbols)" in read(path).cells[0].source
    assert "\n## Symbols\n" in (HERE / "LECTURES.md").read_text(encoding="utf-8")


@each
def test_setup_and_helpers_are_folded(path: Path) -> None:
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert hidden(code[0])
    for cell in code:
        assert hidden(cell) == bool(cell.metadata.get("jupyter", {}).get("source_hidden")), (
            "for the site, and for Jupyter"
        )
    assert not all(map(hidden, code))


@each
def test_the_style_is_in_one_module(path: Path) -> None:
    text = "\n".join(cell.source for cell in read(path).cells)
    assert "rcParams.update" not in text
    assert not re.search(r"^(?:BLUE|ORANGE|GREEN|PINK)\b.* = ", text, re.MULTILINE)


def test_each_picture_to_play_with_is_in_a_chapter() -> None:
    shown: dict[str, str] = {}
    for path in NOTEBOOKS:
        for cell in read(path).cells:
            found = re.search(r'^play\("(\w+)"', cell.source, re.MULTILINE) if cell.cell_type == "code" else None
            if found:
                (output,) = cell.outputs
                page = output.data["text/html"]
                assert page.startswith("<iframe srcdoc=")
                assert "https:" not in re.sub(r"https?://www\.w3\.org", "", page)
                assert len(output.data["text/plain"]) < 200
                shown[found[1]] = path.stem
    assert set(shown) == set(PLAYS)


@pytest.mark.parametrize(
    ("chapter", "summary"),
    [
        ("02", "the theorem on a finite grid, proved"),
        ("02", "Campbell's formula, proved"),
        ("03", "Why sticks: the normalised gamma process"),
        ("05", "the best bound of its kind, proved"),
    ],
)
def test_proofs_are_folded_and_end(chapter: str, summary: str) -> None:
    path = next(path for path in NOTEBOOKS if path.name.startswith(chapter))
    proofs = [cell.source for cell in read(path).cells if f"{summary}" in cell.source.split("</summary>")[0]]
    assert len(proofs) == 1
    assert proofs[0].startswith("<details><summary>")
    assert r"$\square$" in proofs[0]
    assert "</details>" in proofs[0]


@each
def test_names_in_the_text_are_names_of_the_library(path: Path) -> None:
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            for name in re.findall(r"`(?:prme|pyro_prme)\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)", cell.source):
                assert resolves(name), name


def resolves(name: str) -> bool:
    """Whether a dotted name below the package is a module, or something in one."""
    thing: object = prme
    for i, part in enumerate(name.split(".")):
        if not hasattr(thing, part):
            try:
                importlib.import_module(f"pyro_prme.{'.'.join(name.split('.')[: i + 1])}")
            except ImportError:
                return False
        thing = getattr(thing, part)
    return True


def test_a_name_that_is_not_there_is_noticed() -> None:
    assert resolves("answers.draws.prior_draws")
    assert resolves("PRME.sample_Z")
    assert not resolves("swaps.CovariatePRME")
    assert not resolves("answers.draws.nothing")
