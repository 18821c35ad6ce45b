"""What the site takes from the package, its measurements and its notebooks when it is built."""

from __future__ import annotations

from pathlib import Path

import nbformat

from generate import api, closed_forms, differences, front, measures, results, swaps, walk

ROOT = Path(__file__).resolve().parents[2]


def write(docs: Path) -> None:
    """Brings generated pages, fragments and notebooks into the sources; a file that is right is left alone."""
    files = {docs / "api" / name: text for name, text in api.pages().items()}
    fragments = {
        "closed_forms.md": closed_forms.fragment(ROOT),
        "front.md": front.fragment(ROOT),
        "measures.md": measures.table(),
        "results.md": results.page(ROOT),
        "swaps.md": swaps.fragment(),
        "walk.md": walk.fragment(ROOT),
        **differences.fragments(ROOT),
    }
    files.update({docs / "generated" / name: text for name, text in fragments.items()})
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    notebooks = {path.name: path for path in (ROOT / "tutorials").glob("*.ipynb")}
    for name, path in notebooks.items():
        copy, text = docs / "tutorials" / name, with_alternative_texts(path)
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            copy.write_text(text, encoding="utf-8")
    for copy in (docs / "tutorials").glob("*.ipynb"):
        if copy.name not in notebooks:
            copy.unlink()


def with_alternative_texts(path: Path) -> str:
    """A notebook whose cells tell MyST-NB the alternative texts that the pictures in their outputs have."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if alt := output.get("metadata", {}).get("image/png", {}).get("alt"):
                cell.metadata["mystnb"] = {"image": {"alt": alt}}
    return str(nbformat.writes(notebook))
