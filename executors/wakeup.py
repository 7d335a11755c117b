"""Signals as something that a selector can wait for. A supervisor uses this, so it loads little."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def wakeup(numbers: Iterable[int], handler: Callable[[int, object], None]) -> Iterator[socket.socket]:
    """A socket with something to read once one of these signals has come, whose handler `handler` is meanwhile.

    In the main thread only, and one at a time: Python has one descriptor that signals wake.
    """
    inner, outer = socket.socketpair()
    for end in (inner, outer):
        end.setblocking(False)
    signal.set_wakeup_fd(outer.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield inner
    finally:
        signal.set_wakeup_fd(-1)
        for number, handled in before.items():
            signal.signal(number, handled)
        inner.close()
        outer.close()
