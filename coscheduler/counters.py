"""Counts what a program and all that it starts execute, and keeps the count in a file while it runs.

    python -m coscheduler.counters EVENT FILE PROGRAM [ARGUMENT...]

The kernel counts (``perf_event_open``), for ordinary users too where ``/proc/sys/kernel/perf_event_paranoid`` is 2 or
less: a process inherits the counters of the one that has started it, and one that ends adds its count to these. Only
what runs outside of the kernel counts. Where the processor has fewer counters than are wanted they take turns, and the
count is scaled to the whole time.

The file has one number, in a line of always the same length. This process takes no signals: who sends one to a job
sends it to each of its processes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

EVENTS = {"instructions": (0, 1), "task-clock": (1, 1)}
"""Kind and number of what can be counted: instructions, by a counter of the processor; CPU time [ns], by the kernel, on
every machine."""

WRITE_S = 0.5
"""How often the file is written [s]."""

_CALLS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTES = "<IIQQQQQIIQ"  # of its first version, 64 bytes, which every kernel takes
_INHERIT, _NOT_KERNEL, _NOT_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_TIMES = 1 << 0 | 1 << 1  # beside the count: for how long it was to be counted, and for how long it was
_CLOSE_ON_EXEC = 1 << 3
_READ = struct.Struct("<QQQ")
_LINE = "{:020d}\n"
_REFUSALS = {
    errno.ENOENT: "this machine has no such counter",
    errno.EACCES: "kernel.perf_event_paranoid is above 2",
    errno.EPERM: "kernel.perf_event_paranoid is above 2",
}


class EventCounter:
    """Counts an event of this process and of those that it starts from now on, by its name in `EVENTS`.

    Raises `OSError`, which says why, where that cannot be counted.
    """

    def __init__(self, event: str) -> None:
        kind, number = EVENTS[event]
        flags = _INHERIT | _NOT_KERNEL | _NOT_HYPERVISOR
        size = struct.calcsize(_ATTRIBUTES)
        attributes = struct.pack(_ATTRIBUTES, kind, size, number, 0, 0, _TIMES, flags, 0, 0, 0)
        library = ctypes.CDLL(None, use_errno=True)
        call = _CALLS.get(platform.machine(), -1)
        self._file: int = library.syscall(call, attributes, 0, -1, -1, _CLOSE_ON_EXEC)
        if self._file < 0:
            code = ctypes.get_errno()
            raise OSError(code, _REFUSALS.get(code, os.strerror(code)))

    def read(self) -> int:
        """The count so far."""
        return scaled(os.read(self._file, _READ.size))


def scaled(record: bytes) -> int:
    """The count of a record of the kernel: what was counted, for how long it was to be, and for how long it was [ns].

    >>> scaled(_READ.pack(1000, 50, 25))
    2000
    """
    count, wanted, counted = _READ.unpack(record)
    return count * wanted // counted if counted else 0


def run(counter: EventCounter, out: int, argv: Sequence[str]) -> int:
    """Run a program and write what is counted to an open file; its exit code, 128 and the number of the signal for one
    that a signal has ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _become(argv)
    ended = 0
    while not ended:
        signal.sigtimedwait({signal.SIGCHLD}, WRITE_S)
        ended, status = os.waitpid(pid, os.WNOHANG)
        with suppress(OSError):  # a full disk: the next one, perhaps
            os.pwrite(out, _LINE.format(counter.read()).encode(), 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main(words: Sequence[str]) -> int:
    """Run a program; where nothing can be counted, without that."""
    event, file, *argv = words
    try:
        counter = EventCounter(event)
        out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _say(f"{event} cannot be counted: {error.strerror}; without progress reports this job takes no guests")
        _become(argv)
    return run(counter, out, argv)


def _become(argv: Sequence[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # these Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], [*argv])
    except OSError as error:
        _say(f"cannot start {argv[0]!r}: {error.strerror}")
    os._exit(127)


def _say(text: str) -> None:
    os.write(2, f"asa: {text}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
