"""Slides of the tutorials: one file, no network, every picture with its words."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tutorials.execute import notebooks
from tutorials.slides import page, renderer, slides_of


def small() -> nbformat.NotebookNode:
    picture = new_output("display_data", data={"image/png": "AAAA\n"}, metadata={"image/png": {"alt": "A <curve>"}})
    return new_notebook(
        cells=[
            new_markdown_cell("# 3. Title\n\nFirst paragraph, with $x_1 < 2$.\n\nSecond paragraph."),
            new_code_cell("plot(a < b)", outputs=[picture]),
            new_markdown_cell("*Caption.* More.\n\n## 3.1 Next\n\nText.\n\n$$y = 1$$"),
            new_markdown_cell("## Exercises\n\n**1. Not shown.**"),
        ]
    )


def test_a_section_and_a_picture_are_a_slide_each_and_the_rest_is_in_the_notes() -> None:
    first, second, third = slides_of(small(), renderer())
    assert (first.heading, second.heading, third.heading) == ("3. Title", "3. Title", "3.1 Next")
    assert r"\(x_1 &lt; 2\)" in first.shown[0]
    assert "Second paragraph" in first.notes[0]
    assert "plot(a &lt; b)" in first.notes[1]
    assert 'alt="A &lt;curve&gt;"' in second.shown[0]
    assert "Caption" in second.shown[0]
    assert "<p>Text." in third.shown[0]
    assert r"\[y = 1\]" in third.shown[1]


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_every_chapter_becomes_a_file_that_asks_nothing_of_a_network(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    text = page(notebook)
    own = text[: text.rindex("<script>")]  # MathJax, after it, has addresses in its strings that it does not open
    assert not re.search(r"""(?:src|href)=["']https?:|@import|url\(""", re.sub(r"<a [^>]*>", "", own))
    pictures = sum("image/png" in o.get("data", {}) for c in notebook.cells for o in c.get("outputs", []))
    assert own.count("<section") >= 5
    exercises = next(i for i, cell in enumerate(notebook.cells) if "## Exercises" in cell.source)
    later = sum("image/png" in o.get("data", {}) for c in notebook.cells[exercises:] for o in c.get("outputs", []))
    assert own.count("<img ") == pictures - later
