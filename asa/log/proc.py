"""The only reader of /proc/PID/stat and /proc/PID/environ."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

_BLOCK = 4096  # more is returned of no file here at a time


class Stat(NamedTuple):
    """What /proc/PID/stat says; times in ticks, memory in pages. `birth` is counted from the machine's boot."""

    name: str
    state: str
    parent: int
    session: int
    user: int
    system: int
    children_user: int
    children_system: int
    threads: int
    birth: int
    resident: int

    @property
    def ended(self) -> bool:
        """Whether it is a zombie, or dead."""
        return self.state in "ZX"


def parse(text: str) -> Stat:
    """Read a line of /proc/PID/stat; the program's name in it may contain anything.

    >>> found = parse("7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 3 4 5 6 20 0 2 0 99 1000 42 0")
    >>> found.name, found.birth
    ('a) b', 99)
    """
    before, _, after = text.rpartition(")")
    fields = after.split(None, 22)
    numbers = (int(fields[index]) for index in (1, 3, 11, 12, 13, 14, 17, 19, 21))
    return Stat(before.partition("(")[2], fields[0], *numbers)


def stat(pid: int) -> Stat | None:
    """None when there is no such process, or /proc hides it (mount option ``hidepid``)."""
    try:
        return parse(_read(f"/proc/{pid}/stat").decode(errors="replace"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def environment(pid: int) -> bytes | None:
    """The environment that its program was started with: ``NAME=VALUE``, each ended by a null byte.

    Empty while its program is just being loaded; None when it is another user's, or gone.
    """
    try:
        return _read(f"/proc/{pid}/environ")
    except OSError:
        return None


def _read(path: str) -> bytes:
    """All of a file, with fewer calls than an object for it takes: all processes are read at the end of a job."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = some = os.read(file, _BLOCK)
        while len(some) == _BLOCK:
            found += (some := os.read(file, _BLOCK))
        return found
    finally:
        os.close(file)


def available_memory() -> int | None:
    """What this machine can give to programs without swapping [bytes]; None where the kernel does not say."""
    try:
        lines = _read("/proc/meminfo").decode().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None


def pids() -> Iterator[int]:
    """The numbers of all processes."""
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def living() -> Iterator[tuple[int, Stat]]:
    """All processes that have not ended, by their numbers."""
    return ((pid, found) for pid in pids() if (found := stat(pid)) and not found.ended)
