"""The walk of one document's counts, counted: from a file to a fit, a perplexity and a picture.

A profiler watches the commands `prme fit` and `prme evaluate` and a picture of paintboxes, on a corpus of which one
document has a word 7,919 times. It notes each call that hands this document on from a function of one module to one of
another, as an argument: its file, an object that holds it, or an array with a number of that size. What happens while
a plan is made is left out: there the model is looked at, and no document is explained. A hop is a pair of modules,
counted once however often it is taken. A return is a hop of the one function that tells the story of a fit, beyond its
first: after each the counts come back to it.

python docs/generate/walk.py             # prints the calls and the numbers
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

__all__ = ["VERSION_0_1", "Call", "Walk", "fragment", "walked"]

_TIMES = 7919  # that the document has its word
_LEAST = 4000  # from which on a number is taken for one that came from it; half of them may be held out
_PARTS = 4  # levels of what an object holds that are looked at
_PACKAGE = "pyro_prme"

#: Hops, modules and returns of version 0.1, by this script.
VERSION_0_1 = (60, 35, 5)


class Call(NamedTuple):
    """A call that hands the document's counts on."""

    caller: str
    callee: str


class Walk(NamedTuple):
    """Calls in the order in which they were first made."""

    calls: tuple[Call, ...]

    @property
    def hops(self) -> tuple[tuple[str, str], ...]:
        """Pairs of modules of which one hands the counts to the other."""
        found = ((call.caller.split(":")[0], call.callee.split(":")[0]) for call in self.calls)
        return tuple(dict.fromkeys(found))

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that had the counts in hand."""
        return tuple(dict.fromkeys(module for hop in self.hops for module in hop))

    @property
    def returns(self) -> int:
        """How often the counts came back to the function that tells the story of the fit."""
        story = next(call.caller for call in self.calls if call.callee.endswith(":load_corpus"))
        return sum(call.caller == story for call in self.calls) - 1


def walked(folder: Path) -> Walk:
    """Walks through them.

    Args:
        folder: to write in.
    """
    corpus = folder / "corpus.ldac"
    lines = [f"2 {n % 7}:{3 + n % 4} {7 + n % 5}:2" for n in range(40)]
    corpus.write_text("\n".join([f"2 3:{_TIMES} 5:40", *lines]) + "\n")
    (folder / "corpus.vocab").write_text("\n".join(f"word{d}" for d in range(12)) + "\n")
    vocab, run = ["--vocab", str(folder / "corpus.vocab")], str(folder / "run")
    size = ["--topics", "4", "--epochs", "2", "--held-out", str(corpus), "--model", "prme"]
    commands = [["fit", str(corpus), *vocab, "--out", run, *size], ["evaluate", run, str(corpus), *vocab]]
    app, load_corpus, load_run, plot = (_found(*places) for places in _PLACES)
    with _watching(str(corpus)) as calls, contextlib.redirect_stdout(io.StringIO()):
        for command in commands:
            try:
                app(command)
            except SystemExit as end:
                if end.code:
                    raise
        documents = load_corpus(str(corpus), vocab=folder / "corpus.vocab")
        plot(load_run(Path(run)).posterior, documents)
    return Walk(tuple(calls))


#: What is called, the module that had it in version 0.1, and the one that has it now.
_PLACES = (
    ("app", "cli", "cli.command"),
    ("load_corpus", "readers", "corpora.readers"),
    ("load_run", "runs", "runs.run_folder"),
    ("plot_paintboxes", "plots.paintboxes"),
)


def _found(name: str, *modules: str) -> Any:
    """A function of this version of the package."""
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError, AttributeError):
            return getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
    raise ValueError(f"The package has no {name}.")


@contextlib.contextmanager
def _watching(path: str) -> Iterator[dict[Call, None]]:
    """The calls that are made within it."""
    calls: dict[Call, None] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not _ours(frame):
            return
        caller, above = None, frame.f_back
        while above is not None:
            if _ours(above):
                if above.f_code.co_name == "plan":
                    return
                caller = caller or above  # torch, Pyro and the like pass it on
            above = above.f_back
        if caller is None or _module(caller) == _module(frame):
            return
        call = Call(_name(caller), _name(frame))
        given = (value for name, value in frame.f_locals.items() if name not in ("self", "cls"))
        if call not in calls and any(_carries(value, path) for value in given):
            calls[call] = None

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def _ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(f"{_PACKAGE}.") and "<" not in frame.f_code.co_name


def _name(frame: FrameType) -> str:
    return f"{_module(frame)}:{frame.f_code.co_name}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals["__name__"]).removeprefix(f"{_PACKAGE}.")


def _carries(value: Any, path: str, depth: int = _PARTS) -> bool:
    """Whether a value has the document in it."""
    import numpy as np
    import scipy.sparse
    import torch

    if isinstance(value, str | Path):
        return str(value) == path
    if isinstance(value, bytes):
        return str(_TIMES).encode() in value
    if type(value) is torch.Tensor:
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iuf" and value.size > 0 and bool((abs(value) >= _LEAST).any())
    if scipy.sparse.issparse(value):
        return _carries(value.data, path)
    if depth and isinstance(value, tuple | list):
        return any(_carries(part, path, depth - 1) for part in value[:3])
    if depth and isinstance(value, dict):
        return any(_carries(part, path, depth - 1) for part in list(value.values()))
    if depth and type(value).__module__.startswith(_PACKAGE) and not isinstance(value, torch.nn.Module):
        return any(_carries(part, path, depth - 1) for part in list(getattr(value, "__dict__", {}).values()))
    return False


def fragment(root: Path) -> str:
    """A sentence with the numbers and a table of the hops, from a process of its own.

    Args:
        root: of the project.
    """
    command = [sys.executable, str(Path(__file__)), "--markdown"]
    places = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.run(command, env=places, check=True, capture_output=True, text=True).stdout


def _markdown(walk: Walk) -> str:
    by_module: dict[str, list[str]] = {}
    for caller, callee in walk.hops:
        by_module.setdefault(caller, []).append(f"`{callee}`")
    before = "{} hops, {} modules and {} returns".format(*VERSION_0_1)
    lines = [
        f"Counted here: {len(walk.hops)} hops, {len(walk.modules)} modules and {walk.returns} returns to the caller. "
        f"Version 0.1 has {before} by the same script.",
        "",
        "| module | hands the counts to |",
        "|---|---|",
        *(f"| `{module}` | {', '.join(others)} |" for module, others in by_module.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints the walk."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        walk = walked(Path(folder))
    if "--markdown" in sys.argv:
        print(_markdown(walk), end="")
        return
    for call in walk.calls:
        print(f"{call.caller:55} -> {call.callee}")
    numbers = f"{len(walk.hops)} hops, {len(walk.modules)} modules, {walk.returns} returns to the caller"
    print(f"{len(walk.calls)} calls, {numbers}")


if __name__ == "__main__":
    main()
