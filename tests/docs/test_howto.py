"""The how-to pages: their code runs, at small sizes, and every page is listed."""

import re
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "docs" / "howto"
PAGES = [path for path in sorted(FOLDER.glob("*.md")) if path.name != "index.md"]
SMALLER = {
    r"n_components=50": "n_components=12",
    r"max_iter=30": "max_iter=2",
    r"max_iter=40": "max_iter=21",
    r"\(20, 50, 100\)": "(8, 12)",
}


def blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_every_page_is_listed_and_begins_with_what_the_reader_wants() -> None:
    listed = re.findall(r"\]\((\w+\.md)\)", (FOLDER / "index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [path.name for path in PAGES]
    assert len(set(listed)) == len(listed)
    for path in PAGES:
        assert "\n**You want** " in path.read_text(encoding="utf-8"), path.name


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path)], ids=lambda path: path.stem)
def test_its_code_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_default_dtype(torch.float32)
    monkeypatch.chdir(tmp_path)
    if "load_run" in path.read_text(encoding="utf-8"):
        from typer.testing import CliRunner

        from pyro_prme.cli.command import app

        done = CliRunner().invoke(app, ["fit", "kjv", "--topics", "12", "--epochs", "1", "--out", "run"])
        assert done.exit_code == 0, done.output
    names: dict[str, object] = {"__name__": "howto"}
    for block in blocks(path):
        for pattern, smaller in SMALLER.items():
            block = re.sub(pattern, smaller, block)
        exec(compile(block, path.name, "exec"), names)
