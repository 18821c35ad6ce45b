"""Signals that end a process, turned into an exception: open this to let a long job end in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Stopped", "stop_signals"]

_NAMES = ("SIGTERM", "SIGHUP")  # Python itself turns SIGINT into a KeyboardInterrupt; Windows has no SIGHUP


class Stopped(KeyboardInterrupt):
    """The process was asked to end by a signal other than Ctrl-C.

    Args:
        signum: the signal's number.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def stop_signals() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP raise `Stopped` as Ctrl-C raises a KeyboardInterrupt.

    A signal that the process ignores, as under ``nohup``, stays ignored. Outside of the main thread, which alone may
    set handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Stopped(signum)

    known = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known}
    heeded = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    try:
        for number in heeded:
            signal.signal(number, stop)
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
