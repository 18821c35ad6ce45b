"""References of docstrings: `Posterior` finds its class wherever it is, and |x| in prose is no substitution."""

from __future__ import annotations

import re
import sys
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

logger = logging.getLogger(__name__)


def resolve(app: Sphinx, env: Any, node: Any, content: nodes.TextElement) -> nodes.reference | None:
    """A Python name that is not in scope, by the end of its path, where only one thing or one public name fits."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removeprefix("prme.")
    objects = {k: v for k, v in env.domains["py"].objects.items() if not v.aliased}
    found = [name for name in objects if name == target or name.endswith(f".{target}")]
    top = [name for name in found if name.count(".") == target.count(".") + 2]  # pyro_prme.module.name
    found = top if len(found) > 1 and len(top) == 1 else found
    if len(found) != 1:
        if target.startswith("pyro_prme.") and "._" not in target:
            logger.warning("the package has no %s", target, location=node)
        return None
    entry = objects[found[0]]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, found[0])


def with_bars(text: str) -> str:
    """Escapes the bars of absolute values, outside backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"\|(\w[^|\s]*)\|", r"\\|\1\\|", part) for part in parts[::2]]
    return "`".join(parts)


def escape_bars(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Absolute values in the prose of a docstring keep their bars; lines of equations are left alone."""
    lines[:] = [line if "\\" in line else with_bars(line) for line in lines]


def skip(app: Sphinx, what: str, name: str, obj: object, skipped: bool, options: object) -> bool | None:
    """Leaves out what a module defines and does not list in `__all__`; the order stays that of the source."""
    home = getattr(obj, "__module__", None) or ""
    public = getattr(sys.modules.get(home), "__all__", None) if home.startswith("pyro_prme") else None
    nested = "." in getattr(obj, "__qualname__", "")
    return True if what == "module" and public is not None and not nested and name not in public else None
