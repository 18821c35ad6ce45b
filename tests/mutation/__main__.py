"""`make mutants`: the chosen faults and random ones, each with the fast tests of its folder; a score in a file.

A report that is there is gone on with: what it has is not tried again, unless it survived and `--again` asks for it.

python -m tests.mutation --random 60 --seed 0 --report build/mutants.json
python -m tests.mutation --random 0                   # the chosen ones alone
python -m tests.mutation --folders equations --random 20
python -m tests.mutation --minutes 7 --report build/mutants.json    # begins no other after seven minutes
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.mutation.chosen_faults import CHOSEN

__all__ = ["Mutant", "chosen_mutants", "noticing_tests", "random_mutants"]

ROOT = Path(__file__).parents[2]

#: The fast tests that are to notice a fault in a folder.
TESTS = {
    "equations": ["tests/equations"],
    "conjugacy": ["tests/conjugacy"],
    "inference": ["tests/inference"],
    "models": ["tests/models", "tests/inference"],
    "answers": ["tests/answers", "tests/inference"],
}
_LIBRARIES = ("numpy", "scipy.sparse", "torch", "pyro", "pandas", "xarray", "sklearn.decomposition", "numba")
_MUTATED = ("equations", "inference", "conjugacy")  # at random

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Mutant(NamedTuple):
    """A file with a fault."""

    what: str
    path: str
    content: str


def chosen_mutants() -> list[Mutant]:
    """One for each chosen fault; its place must be there, once."""
    mutants = []
    for fault in CHOSEN:
        text = (ROOT / fault.path).read_text(encoding="utf-8")
        if text.count(fault.right) != 1:
            raise ValueError(f"{fault.path} has the line of the fault {fault.what!r} {text.count(fault.right)} times.")
        mutants.append(Mutant(fault.what, fault.path, text.replace(fault.right, fault.wrong)))
    return mutants


def random_mutants(number: int, seed: int, folders: tuple[str, ...]) -> list[Mutant]:
    """So many of each folder's operators, numbers and conditions; messages, types and docstrings are left."""
    mutants = []
    for folder in folders:
        places = []
        for path in sorted((ROOT / "pyro_prme" / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            tree = ast.parse(path.read_text(encoding="utf-8"))
            places += [(name, index) for index in range(len(_targets(tree)))]
        chosen = random.Random(seed).sample(places, min(number, len(places)))
        mutants += [_mutant(name, index) for name, index in sorted(chosen)]
    return mutants


def _targets(tree: ast.AST) -> list[ast.AST]:
    """Nodes that can be changed, in a fixed order."""
    found: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.JoinedStr):  # messages
            return
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child)
        if _changes(node):
            found.append(node)

    visit(tree)
    return found


def _changes(node: ast.AST) -> bool:
    """Whether the node is an operator, a condition or a number that another can stand for."""
    if isinstance(node, ast.BinOp):
        strings = [isinstance(p, ast.Constant) and isinstance(p.value, str) for p in (node.left, node.right)]
        return type(node.op) in _SWAPS and not any(strings)
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and type(node.ops[0]) in _SWAPS
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub | ast.Not) and not isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    return isinstance(node, ast.BoolOp | ast.AugAssign)


def _mutant(path: str, index: int) -> Mutant:
    text = (ROOT / path).read_text(encoding="utf-8")
    tree = ast.parse(text)
    node: Any = _targets(tree)[index]
    before = ast.unparse(node)
    line, column, last, end = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
    if isinstance(node, ast.BinOp):
        node.op = _SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare):
        node.ops = [_SWAPS[type(node.ops[0])]()]
    elif isinstance(node, ast.BoolOp):
        node.op = _SWAPS[type(node.op)]()
    elif isinstance(node, ast.AugAssign):
        node.op = _SWAPS.get(type(node.op), ast.Sub)()
    elif isinstance(node, ast.UnaryOp):
        node = node.operand
    elif isinstance(node.value, bool):
        node.value = not node.value
    else:
        node.value = node.value + 1
    after = ast.unparse(node)
    lines = text.encode().splitlines(keepends=True)  # columns are in bytes
    head, tail = b"".join(lines[: line - 1]) + lines[line - 1][:column], lines[last - 1][end:] + b"".join(lines[last:])
    changed = (
        (head + f"({after})".encode() + tail) if not isinstance(node, ast.AugAssign) else head + after.encode() + tail
    )
    return Mutant(f"line {line}: {before} became {after}", path, changed.decode())


def noticing_tests(path: str) -> list[str]:
    """The tests that are to notice a fault in a file: folders, or files of tests."""
    return TESTS[path.split("/")[1]]


def nearest_first(path: str, folder: Path = ROOT) -> list[str]:
    """The files of the noticing tests, those first that name most of what the file has: a fault is seen sooner."""
    tree = ast.parse((folder / path).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    files = []
    for place in noticing_tests(path):
        files += sorted((folder / place).rglob("test_*.py")) if (folder / place).is_dir() else [folder / place]
    near = {file: len(names & set(re.findall(r"\w+", file.read_text(encoding="utf-8")))) for file in files}
    return [file.relative_to(folder).as_posix() for file in sorted(files, key=lambda file: -near[file])]


class Trial(NamedTuple):
    """The tests of one fault, in a process of their own."""

    kind: str
    mutant: Mutant
    folder: Path
    whole: str  # the file without the fault
    process: int
    begin: float


def begun(kind: str, mutant: Mutant, folder: Path) -> Trial:
    """Puts a fault into a copy of the project and starts the tests that are to notice it."""
    target = folder / mutant.path
    whole = target.read_text(encoding="utf-8")
    target.write_text(mutant.content, encoding="utf-8")
    return Trial(kind, mutant, folder, whole, _forked(nearest_first(mutant.path, folder), folder), time.monotonic())


def ended(trial: Trial, seconds: float) -> str | None:
    """How a trial has ended: "killed", "survived" or "too long"; None while it goes on. The fault is taken out then."""
    process, status = os.waitpid(trial.process, os.WNOHANG)
    late = time.monotonic() - trial.begin > seconds
    if not process and not late:
        return None
    if not process:
        with suppress(ProcessLookupError):  # it has not made its group yet, or has ended
            os.killpg(trial.process, signal.SIGKILL)
        os.kill(trial.process, signal.SIGKILL)
        os.waitpid(trial.process, 0)
    (trial.folder / trial.mutant.path).write_text(trial.whole, encoding="utf-8")
    if not process:
        return "too long"
    return "killed" if os.waitstatus_to_exitcode(status) else "survived"


def _forked(tests: Sequence[str], folder: Path) -> int:
    """The number of a process that runs tests in a copy of the project; libraries are imported already."""
    process = os.fork()
    if process:
        return process
    end = 1
    try:
        os.setsid()
        os.chdir(folder)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.environ["PYTHONPATH"], sys.dont_write_bytecode = str(folder), True
        sys.path[:] = [str(folder), *(place for place in sys.path if Path(place).resolve() != ROOT)]
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "pyro_prme")]:
            del sys.modules[name]
        end = int(pytest.main(["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(end)


def copied(place: Path, number: int) -> list[Path]:
    """Copies of the project, one for each worker."""
    for i in range(number):
        for name in ("pyro_prme", "tests", "docs", "pyproject.toml"):
            source, target = ROOT / name, place / str(i) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "reference_images", "api"))
            else:
                shutil.copy(source, target)
    return [place / str(i) for i in range(number)]


def main() -> int:
    """Exit code 1 if a chosen fault survives, or fewer than nine of ten random ones are noticed."""
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=60, help="of each folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", nargs="+", default=list(_MUTATED), choices=_MUTATED)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true", help="try again what survived in the report")
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    folders = tuple(arguments.folders)
    chosen = chosen_mutants() if set(folders) == set(_MUTATED) else []
    mutants = [("chosen", m) for m in chosen]
    mutants += [("random", m) for m in random_mutants(arguments.random, arguments.seed, folders)]
    known, whole = _known(arguments, {(kind, m.path, m.what) for kind, m in mutants})
    mutants = [(kind, m) for kind, m in mutants if (kind, m.path, m.what) not in known]
    os.environ["OMP_NUM_THREADS"] = "1"  # tiny tensors
    for name in _LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as place:
        copies = copied(Path(place), arguments.workers)
        for tests in {tuple(noticing_tests(m.path)) for _, m in mutants}:
            if " ".join(tests) not in whole:
                begin = time.monotonic()
                if os.waitpid(_forked(tests, copies[0]), 0)[1]:
                    print(f"The tests fail without a fault: {' '.join(tests)}", file=sys.stderr)
                    return 2
                whole[" ".join(tests)] = round(time.monotonic() - begin, 1)
        found = list(known.values())
        scores = _written(found, whole, arguments)
        for one in _trials(mutants, copies, whole, time.monotonic() + 60 * arguments.minutes):
            found.append(one)
            scores = _written(found, whole, arguments)
    left = len(mutants) + len(known) - len(found)
    if left:
        print(f"{left} are left: call it again with the same report.")
    print(json.dumps(scores))
    return int(left or any(score["share"] < (1 if kind == "chosen" else 0.9) for kind, score in scores.items()))


def _trials(
    mutants: Sequence[tuple[str, Mutant]], copies: Sequence[Path], whole: Mapping[str, float], last: float
) -> Iterator[dict[str, Any]]:
    """The end of each trial, as many at a time as there are copies; none begins after `last`."""
    waiting, free = list(reversed(mutants)), list(copies)
    running: list[Trial] = []
    while running or (waiting and time.monotonic() < last):
        while free and waiting and time.monotonic() < last:
            running.append(begun(*waiting.pop(), free.pop()))
        for trial in list(running):
            kind, mutant = trial.kind, trial.mutant
            end = ended(trial, 60 + 4 * whole[" ".join(noticing_tests(mutant.path))])
            if end is not None:
                running.remove(trial)
                free.append(trial.folder)
                seconds = round(time.monotonic() - trial.begin, 1)
                print(f"{end:9} {mutant.path}: {mutant.what}", flush=True)
                yield {"kind": kind, "path": mutant.path, "what": mutant.what, "end": end, "seconds": seconds}
        time.sleep(0.02)


def _known(
    arguments: argparse.Namespace, asked: set[tuple[str, str, str]]
) -> tuple[dict[tuple[str, str, str], dict[str, Any]], dict[str, float]]:
    """What the report has of these faults, by kind, file and what is wrong; seconds of the tests without one."""
    if arguments.report is None or not arguments.report.exists():
        return {}, {}
    content = json.loads(arguments.report.read_text(encoding="utf-8"))
    if content["seed"] != arguments.seed:
        raise SystemExit(f"{arguments.report} has the seed {content['seed']}: give that one, or another file.")
    kept = [one for one in content["mutants"] if not (arguments.again and one["end"] == "survived")]
    known = {(one["kind"], one["path"], one["what"]): one for one in kept}
    whole = {} if arguments.again else content["seconds_without_a_fault"]
    return {key: one for key, one in known.items() if key in asked}, whole


def _written(
    found: list[dict[str, Any]], whole: dict[str, float], arguments: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Writes the report, and returns its scores: of the chosen faults, and of each folder's random ones."""
    ends: dict[str, list[bool]] = {}
    for one in found:
        kind = one["kind"] if one["kind"] == "chosen" else one["path"].split("/")[1]
        ends.setdefault(kind, []).append(one["end"] != "survived")
    scores = {
        kind: {"mutants": len(killed), "killed": sum(killed), "share": round(sum(killed) / len(killed), 3)}
        for kind, killed in ends.items()
    }
    if arguments.report:
        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        found = sorted(found, key=lambda one: (one["kind"], one["path"], one["what"]))
        content = {"seed": arguments.seed, "scores": scores, "seconds_without_a_fault": whole, "mutants": found}
        arguments.report.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return scores


if __name__ == "__main__":
    sys.exit(main())
