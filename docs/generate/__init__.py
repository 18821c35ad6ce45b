"""What the site takes from the package, its measurements and its notebooks when it is built."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from generate import api, differences, results, swaps
from pyro_prme.measures import catalogue_markdown

ROOT = Path(__file__).resolve().parents[2]


def write(docs: Path) -> None:
    """Brings generated pages, fragments and notebooks into the sources; a file that is right is left alone."""
    files = {docs / "api" / name: text for name, text in api.pages().items()}
    fragments = {
        "measures.md": re.sub(r"`(\w+)`", r"{py:obj}`\1`", catalogue_markdown()),
        "results.md": results.page(ROOT),
        "swaps.md": swaps.fragment(),
        **differences.fragments(ROOT),
    }
    files.update({docs / "generated" / name: text for name, text in fragments.items()})
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    notebooks = {path.name: path for path in (ROOT / "tutorials").glob("*.ipynb")}
    for name, path in notebooks.items():
        copy = docs / "tutorials" / name
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            shutil.copyfile(path, copy)
    for copy in (docs / "tutorials").glob("*.ipynb"):
        if copy.name not in notebooks:
            copy.unlink()
