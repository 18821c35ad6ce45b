"""The pages of the API reference: every public module, a page for each folder of the package, from docstrings."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from sphinx.pycode import ModuleAnalyzer

import pyro_prme

#: Modules that stand first on the page of their folder: what most readers come for.
FIRST: dict[str, tuple[str, ...]] = {
    "models": ("prme", "diln", "topic_model", "factor_model", "count_rows", "real_rows", "priors"),
    "inference": ("fit", "guide", "plan", "build", "trainer", "options", "gibbs"),
    "corpora": ("corpus", "readers"),
    "answers": ("posterior", "scores"),
}

#: The page of the modules that lie in no folder.
ROOT = "package"


def folders() -> list[str]:
    """The folders of the package, which are the groups of the reference."""
    return sorted(info.name for info in pkgutil.iter_modules(pyro_prme.__path__) if info.ispkg)


def modules_of(folder: str) -> list[ModuleType]:
    """The public modules of a folder, itself first; of the root, those that lie in no folder."""
    if folder == ROOT:
        names = [i.name for i in pkgutil.iter_modules(pyro_prme.__path__) if not i.ispkg and i.name[0] != "_"]
        return [importlib.import_module(f"pyro_prme.{name}") for name in names]
    first = [f"pyro_prme.{folder}.{name}" for name in FIRST.get(folder, ())]
    found = {module.__name__: module for module in _walk(f"pyro_prme.{folder}")}
    package = f"pyro_prme.{folder}"
    return [found[name] for name in dict.fromkeys([package, *first, *found])]


def _walk(name: str) -> Iterator[ModuleType]:
    """A module and all public ones below it."""
    module = importlib.import_module(name)
    yield module
    for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
        if info.name[0] != "_":
            yield from _walk(f"{name}.{info.name}")


def first_sentence(thing: object) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def members(module: ModuleType) -> list[str]:
    """The public names that a module documents: those that `import pyro_prme` brings first, then by place."""
    analyzer = ModuleAnalyzer.for_module(module.__name__)
    analyzer.analyze()
    place, documented = analyzer.tagorder, {name for scope, name in analyzer.attr_docs if not scope}
    names = []
    for name in getattr(module, "__all__", []):
        thing = getattr(module, name)
        defined = getattr(thing, "__module__", None) == module.__name__ and callable(thing)
        if defined or name in documented:
            names.append(name)
    return sorted(names, key=lambda name: (name not in pyro_prme.__all__, place.get(name, 0)))


def _directive(module: ModuleType, name: str) -> str:
    thing = getattr(module, name)
    kind = "class" if inspect.isclass(thing) else "function" if inspect.isroutine(thing) else "data"
    return f".. auto{kind}:: {module.__name__}.{name}"


def _section(module: ModuleType) -> str:
    """A heading and the module's docstrings; of a package, only its own: its names are shown where they are defined."""
    shown = [] if hasattr(module, "__path__") else [_directive(module, name) for name in members(module)]
    directives = "\n\n".join([f".. automodule:: {module.__name__}\n   :no-members:", *shown])
    return f"## {module.__name__}\n\n```{{eval-rst}}\n{directives}\n```\n"


def pages() -> dict[str, str]:
    """Markdown by file name, for the folder api/."""
    out = {}
    for folder in (*folders(), ROOT):
        sections = [_section(module) for module in modules_of(folder)]
        out[f"{folder}.md"] = "\n".join([f"# {folder}\n", *sections])
    out["index.md"] = _index()
    return out


def _index() -> str:
    rows = []
    for name in sorted(pyro_prme.__all__, key=str.lower):
        thing = getattr(pyro_prme, name)
        rows.append(f"   * - :py:obj:`{name} <{thing.__module__}.{name}>`\n     - {first_sentence(thing)}")
    table = "\n".join(rows)
    groups = "\n".join(f"- [{name}]({name}.md): {_purpose(name)}" for name in (*folders(), ROOT))
    toctree = "\n".join((*folders(), ROOT))
    return (
        "# API reference\n\n"
        f"```{{toctree}}\n:hidden:\n\n{toctree}\n```\n\n{groups}\n\n"
        "## What `import pyro_prme as prme` brings\n\n"
        "Pictures, random measures, swaps and rules are imported by their packages, as in "
        "`from pyro_prme import plots`.\n\n"
        f"```{{eval-rst}}\n.. list-table::\n   :widths: 26 74\n   :class: names\n\n{table}\n```\n"
    )


def _purpose(folder: str) -> str:
    """What a folder is for, in the words of its docstring."""
    if folder == ROOT:
        return "What lies in no folder."
    return first_sentence(importlib.import_module(f"pyro_prme.{folder}"))
