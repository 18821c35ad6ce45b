"""One attempt to break something, and processes of their own to make it in."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["MIB", "Child", "Outcome", "block", "generator", "isolated", "sentence_fault", "spoken"]

MIB = 1 << 20
_ADDRESSES = 12 << 30  # bytes of address space beyond which a child gets a MemoryError


class Outcome(NamedTuple):
    """What came of one attempt."""

    what: str  # the kind of attempt and of its end, for the table of the report
    fault: str = ""  # empty if nothing broke
    counts: Mapping[str, int] = {}  # how much was tried: kills, files, calls, ...
    most: Mapping[str, float] = {}  # what must stay below a limit: seconds, memory, ...


class Child(NamedTuple):
    """What came of a call in a process of its own."""

    value: Any  # what the call returned; None if it raised or the process died
    error: str  # the sentence of a ValueError, or the traceback of anything else
    clean: bool  # returned, or raised a ValueError
    code: int | None  # exit code, negative for a signal; None if it took too long
    seconds: float  # of processors' time, so that other work on the machine does not count
    mib: float  # the most memory it held, with the largest of the processes that it began


def generator(seed: int, number: int) -> np.random.Generator:
    """Random numbers of one attempt."""
    return np.random.default_rng([seed, number])


def sentence_fault(error: BaseException | str, *parts: str | Path) -> str:
    """What is wrong with a refusal: it must be a ValueError of one printable line that has each of the parts."""
    if not isinstance(error, str | ValueError):
        return f"{type(error).__name__}: {error}"
    message = str(error)
    if not message or re.search("[\x00-\x1f\x7f-\x9f]", message):
        return f"not one printable line: {message!r}"
    return next((f"{str(part)!r} is not in {message!r}" for part in parts if str(part) not in message), "")


def spoken(call: Callable[[], Any], what: str, *parts: str | Path) -> Outcome:
    """The outcome of a call that may succeed, or refuse in one sentence."""
    try:
        call()
    except Exception as error:
        fault = sentence_fault(error, *parts)
        return Outcome(f"{what}: refused", fault)
    return Outcome(f"{what}: accepted")


def start(call: Callable[..., Any], *arguments: Any) -> tuple[Any, Connection]:
    """A process that makes the call, and the end of a pipe that gets (value, error, clean, MiB, seconds)."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.robustness.warm"])
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(send, call, arguments), daemon=True)
    process.start()
    send.close()
    return process, receive


def isolated(call: Callable[..., Any], *arguments: Any, seconds: float = 600) -> Child:
    """Makes a call in a process of its own, and kills it if it takes too long.

    Args:
        call: a function of a module.
        arguments: for it.
        seconds: most that it may take.
    """
    process, receive = start(call, *arguments)
    value, error, clean, mib, busy = None, "", False, 0.0, 0.0
    late = not receive.poll(seconds)
    if not late:
        try:
            value, error, clean, mib, busy = receive.recv()
        except EOFError:
            error = "the process died"
    if late:
        process.kill()
    process.join()
    return Child(value, error, clean, None if late else process.exitcode, busy, mib)


def block(module: str, seed: int, first: int, trials: int, folder: Path) -> list[Outcome]:
    """Some trials of a module, one after the other; whatever a trial raises is a fault."""
    trial = import_module(f"tests.robustness.{module}").trial
    outcomes = []
    for number in range(first, first + trials):
        try:
            outcomes.append(trial(seed, number, folder))
        except Exception as error:
            outcomes.append(Outcome(f"{module}, number {number}", f"{type(error).__name__}: {error}"))
    return outcomes


def _call(send: Connection, call: Callable[..., Any], arguments: tuple) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    before, children, begin = _peak(), _peak(resource.RUSAGE_CHILDREN), _busy()
    value, error, clean = None, "", True
    try:
        value = call(*arguments)
    except ValueError as refusal:
        error = str(refusal)
    except BaseException:
        error, clean = traceback.format_exc(), False
    most = _peak(resource.RUSAGE_CHILDREN)
    send.send((value, error, clean, _peak() - before + (most if most > children else 0), _busy() - begin))


def _busy() -> float:
    """Seconds of processors' time that this process, and those that it began and that have ended, have taken."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _peak(who: int = resource.RUSAGE_SELF) -> float:
    """The most memory that this process, or the largest of those that it began, has held, in MiB."""
    return resource.getrusage(who).ru_maxrss / 1024
