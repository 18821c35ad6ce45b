"""Pictures to play with as a page or a cell of a notebook: open this to add one."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pyro_prme.checks import choice
from pyro_prme.corpora.files import write_whole
from pyro_prme.explorer.page_data import PageData
from pyro_prme.explorer.pictures.precomputed import paintbox_arrays, selected

__all__ = ["PLAYS", "Play", "play", "write_plays"]

#: The pictures by name, and the height in pixels that each needs in a notebook.
PLAYS: dict[str, int] = {
    "discs": 640,
    "inverse_tail": 840,
    "sticks": 660,
    "written": 870,
    "epsilon": 680,
    "paintboxes": 740,
}


@dataclass(frozen=True, repr=False)
class Play:
    """A picture to play with; a notebook shows it as the value of a cell.

    Args:
        html: the whole page.
        height: of its frame in a notebook, in pixels.
    """

    html: str
    height: int

    def __repr__(self) -> str:
        return "A picture to play with, for a notebook; write_plays makes a page of it."

    def _repr_html_(self) -> str:
        page = html.escape(self.html, quote=True)
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe srcdoc="{page}" style="{style}" title="A picture to play with"></iframe>'


def play(name: str, data: PageData | None = None) -> Play:
    """One picture, for a notebook.

    Args:
        name: a key of `PLAYS`.
        data: for "paintboxes", a fit of one's own, as `page_data` has it; default one of the King James Bible.

    Example:
        >>> play("discs")
    """
    choice("name", name, PLAYS)
    if data is not None and name != "paintboxes":
        raise ValueError(f"The picture {name} shows no fit: leave data out.")
    arrays = selected([name]) if data is None else {name: paintbox_arrays(data)}
    return Play(_page([name], arrays, "A picture to play with"), PLAYS[name])


def write_plays(path: str | Path, names: Sequence[str] = tuple(PLAYS)) -> Path:
    """Writes pictures below each other as one file, which opens from disk and asks no network.

    Args:
        path: of the file.
        names: keys of `PLAYS`.
    """
    for name in names:
        choice("name", name, PLAYS)
    write_whole({Path(path): _page(list(names), selected(names), "Pictures to play with").encode()})
    return Path(path)


def _page(names: Sequence[str], arrays: Mapping[str, Any], title: str) -> str:
    scripts = [_part("explorer/page/elements.js"), _play_part("play.js"), *(_play_part(f"{name}.js") for name in names)]
    code = '(() => {\n"use strict";\n' + "\n".join([*scripts, "startPlays();"]) + "\n})();\n"
    parts = {
        "title": title,
        "digest": base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
        "style": _play_part("play.css"),
        "arrays": json.dumps(arrays, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"),
        "heading": f"<h1>{title}</h1>" if len(names) > 1 else "",
        "script": code,
    }
    return re.sub(r"<!--(\w+)-->", lambda mark: parts[mark[1]], _play_part("play.html"))


def _play_part(name: str) -> str:
    return _part(f"explorer/pictures/play/{name}")


def _part(path: str) -> str:
    return (resources.files("pyro_prme") / path).read_text(encoding="utf-8")
