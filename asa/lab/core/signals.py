"""Signals end a command of the laboratory, whatever it does: compiled loops never come back to Python's handlers."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from asa.core.command import INTERRUPTED

GRACE_S = 0.5
"""How long the handler of a signal may take to begin [s]; compiled code is at work where it takes longer."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_Run = TypeVar("_Run", bound=Callable[..., Any])


def ends_on_signals(run: _Run) -> _Run:
    """Let SIGTERM, SIGINT and SIGHUP end a command within a second, in the middle of a compiled loop, too.

    Python runs a handler between two of its own instructions, and a compiled loop has none. A thread waits for the
    number that Python writes at once, and ends the process if the handler has not begun after `GRACE_S`. Compiled
    functions let other threads run meanwhile (`asa.lab.core.compiled`). A command has nothing to bring to an end: files
    are written whole, or not at all.
    """

    @functools.wraps(run)
    def watched(*given: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return run(*given, **options)
        begun = threading.Event()
        before = {number: _announcing(number, begun) for number in _ENDING}
        listening, telling = os.pipe()
        os.set_blocking(telling, False)
        outer = signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
        threading.Thread(target=_wait, args=(listening, os.getpid(), begun), daemon=True).start()
        try:
            return run(*given, **options)
        finally:
            signal.set_wakeup_fd(outer)
            os.close(telling)  # which ends the thread
            for number, handler in before.items():
                signal.signal(number, handler)

    return watched  # type: ignore[return-value]


def _announcing(number: signal.Signals, begun: threading.Event) -> Any:
    """Have a signal's handler say that it runs; the handler."""
    handler = signal.getsignal(number)
    if callable(handler):

        def announce(which: int, frame: Any) -> None:
            begun.set()
            handler(which, frame)

        signal.signal(number, announce)
    return handler


def _wait(listening: int, process: int, begun: threading.Event) -> None:
    """End the process when a signal has come whose handler does not run."""
    while numbers := os.read(listening, 1):
        number = numbers[0]
        if number in _ENDING and callable(signal.getsignal(number)) and not begun.wait(GRACE_S):
            if os.getpid() == process:
                print(f"asa: interrupted by {signal.Signals(number).name}", file=sys.stderr, flush=True)
            os._exit(INTERRUPTED)
    os.close(listening)
