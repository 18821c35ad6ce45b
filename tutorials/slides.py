"""Slides from the tutorials: one HTML file a chapter, which opens from disk without a network.

    python tutorials/slides.py --out build/slides [01 06]

Each section becomes a slide, and each picture in it another: the heading, the first paragraph, equations and tables,
and pictures with their captions. Everything else of the section, code included, is in the notes that the key N shows.
Arrow keys turn the pages, P prepares for printing.
"""

from __future__ import annotations

import argparse
import html
import re
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import nbformat
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode

HERE = Path(__file__).parent
STYLE = (HERE / "slides.css").read_text(encoding="utf-8")
SCRIPT = (HERE / "slides.js").read_text(encoding="utf-8")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style></head>
<body>{slides}<p id="place" aria-live="polite"></p>
<script>{script}</script><script>{mathjax}</script></body></html>
"""


@dataclass
class Slide:
    """One page.

    Args:
        heading: its title, Markdown.
        shown: parts of the page, HTML.
        notes: the rest of its text, HTML.
    """

    heading: str
    shown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def page(self, markdown: MarkdownIt) -> str:
        """Its HTML."""
        notes = f"<aside hidden>{''.join(self.notes)}</aside>" if self.notes else ""
        heading = markdown.renderInline(self.heading)
        return f'<section tabindex="-1"><h2>{heading}</h2><div class="shown">{"".join(self.shown)}</div>{notes}</section>'


def renderer() -> MarkdownIt:
    """Markdown with tables and TeX; MathJax finds the latter in its own brackets."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")

    def tex(content: str, options: dict[str, bool]) -> str:
        left, right = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
        return html.escape(left + content + right)

    return markdown.use(dollarmath_plugin, double_inline=True, renderer=tex)


def slides_of(notebook: NotebookNode, markdown: MarkdownIt) -> list[Slide]:
    """The pages of a chapter, without its exercises."""
    slides: list[Slide] = []
    waiting: list[NotebookNode] = []  # pictures whose caption is still to come
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if slides:
                slides[-1].notes.append(f"<pre>{html.escape(cell.source)}</pre>")
            waiting += [
                output
                for output in cell.outputs
                if "image/png" in output.get("data", {})
            ]
            continue
        for block in re.split(r"\n{2,}(?=\S)", cell.source):
            heading = re.match(r"#{1,3} (.+)", block)
            if heading:
                if heading[1].startswith("Exercises"):
                    return slides
                slides.append(Slide(heading[1]))
                block = block[heading.end() :].strip()
                if not block:
                    continue
            if waiting:
                if slides[-1].shown:
                    slides.append(Slide(slides[-1].heading))
                images = "".join(map(image, waiting))
                slides[-1].shown.append(
                    f"<figure>{images}<figcaption>{markdown.render(block)}</figcaption></figure>"
                )
                waiting = []
            elif not slides[-1].shown or block.lstrip().startswith(("$$", "|")):
                slides[-1].shown.append(markdown.render(block))
            else:
                slides[-1].notes.append(markdown.render(block))
    return slides


def image(output: NotebookNode) -> str:
    """A picture with its alternative text."""
    alt = html.escape(output.metadata.get("image/png", {}).get("alt", ""), quote=True)
    return f'<img alt="{alt}" src="data:image/png;base64,{output.data["image/png"].strip()}">'


def page(notebook: NotebookNode) -> str:
    """The whole file."""
    markdown = renderer()
    slides = slides_of(notebook, markdown)
    mathjax = next(
        file
        for file in metadata.files("sphinx-mathjax-offline") or []
        if file.name == "tex-svg.js"
    )
    return PAGE.format(
        title=html.escape(slides[0].heading),
        style=STYLE,
        slides="".join(slide.page(markdown) for slide in slides),
        script=SCRIPT,
        mathjax=Path(str(mathjax.locate()))
        .read_text(encoding="utf-8")
        .replace("</script", r"<\/script"),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    options.add_argument(
        "names", nargs="*", help="beginnings of names; all chapters if there are none"
    )
    options.add_argument("--out", type=Path, default=Path("build/slides"))
    args = options.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(HERE.glob("*.ipynb")):
        if not args.names or path.name.startswith(tuple(args.names)):
            target = args.out / f"{path.stem}.html"
            target.write_text(page(nbformat.read(path, as_version=4)), encoding="utf-8")
            print(target)


if __name__ == "__main__":
    main()
