"""Where workers print: a file of the run's for each worker that there is at a time; see `asa.log.output`.

A task writes there by itself, as do the programs that it starts, so that nothing is lost with worker, supervisor or
driver, and nothing passes through their memory. Once a task has written more than it may, the middle is
taken out: the beginning and the end are kept.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from asa.log.output import HEAD, OUTPUT, begun, cut, first_line
from executors import node

if TYPE_CHECKING:
    from asa.log.curve import UsageSample

log = logging.getLogger(__name__)

_FLAGS = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_PUNCH = 0x03  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_SLACK = 8
"""The middle is taken out once this part of the limit has come to be too much."""


class OutputFile:
    """A file of output with its index, open for appending.

    Parameters
    ----------
    text, index
        Descriptors.
    limit
        Most that is kept of a task's text [bytes]; 0 for all.
    samples
        Path without its suffix, node and allocation of the file for samples of what tasks take; None for no such file.
    """

    def __init__(self, text: int, index: int, limit: int, samples: tuple[str, str, str] | None = None) -> None:
        self.text, self.index, self.limit = text, index, limit
        self._samples, self._sampled = samples, -1
        self.kept = True
        """Whether what is printed is found again."""
        self._start, self._gone, self._noted = -1, 0, -1
        self._head = os.pread(text, HEAD, 0)

    @classmethod
    def create(cls, directory: str, allocation: str, name: str, limit: int) -> OutputFile:
        """A new one in a run's directory.

        Where that cannot be, what is printed goes to a file of the node's own, and is lost with the worker.
        """
        folder = os.path.join(directory, OUTPUT)
        path = os.path.join(folder, f"{name}-{os.urandom(6).hex()}")
        try:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            text = os.open(path + ".out", os.O_RDWR | _FLAGS, 0o600)
            index = os.open(path + ".index", os.O_WRONLY | _FLAGS, 0o600)
            os.write(index, first_line(name, allocation).encode())
            os.write(text, b"asa %s\n" % os.urandom(4).hex().encode())
            return cls(text, index, limit, (path, name, allocation))
        except OSError as error:
            log.error("what tasks print is not kept: %s: %s", path, error.strerror)
            path = os.path.join(node.scratch(os.environ), f".asa-{os.urandom(16).hex()}")
            text = os.open(path, os.O_RDWR | _FLAGS, 0o600)
            os.unlink(path)
            index = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return cls(text, index, limit)

    @classmethod
    def nowhere(cls) -> OutputFile:
        """One that keeps nothing."""
        flags = os.O_RDWR | os.O_CLOEXEC
        made = cls(os.open(os.devnull, flags), os.open(os.devnull, flags), 0)
        made.kept = False
        return made

    @classmethod
    def own(cls, limit: int) -> OutputFile:
        """That of this process, a worker, for code that the worker runs."""
        path = os.readlink("/proc/self/fd/2")
        try:
            index = os.open(path.removesuffix(".out") + ".index", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:  # it has none
            index = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return cls(2, index, limit)

    @property
    def size(self) -> int:
        """How much was written [bytes]. A network file system answers this sooner than fstat, which has it sync."""
        return os.lseek(self.text, 0, os.SEEK_END)

    @property
    def whole(self) -> bool:
        """Whether no program has opened the file anew, as a shell does for ``> /dev/stderr``, and so emptied it."""
        return os.pread(self.text, HEAD, 0) == self._head

    def note(self, *lines: str) -> None:
        """Append to the index."""
        with suppress(OSError):  # a full disk: the text stays, without a name
            os.write(self.index, "".join(lines).encode())

    def note_usage(self, sample: UsageSample, started: float, task: int, stage: str) -> None:
        """Append what a task, which started then, took; the first makes the file."""
        from asa.log.curve import SUFFIX, curve_head, curve_line  # here: few tasks run for long

        if self._samples is None:
            return
        path, *origin = self._samples
        try:
            if self._sampled < 0:
                self._sampled = os.open(path + SUFFIX, os.O_WRONLY | _FLAGS, 0o600)
                os.write(self._sampled, curve_head(*origin).encode())
            os.write(self._sampled, curve_line(sample, started, task, stage).encode())
        except OSError as error:  # a full disk: less is known of them
            log.info("what tasks take as time goes on is not kept: %s: %s", path, error.strerror)
            self._samples = None

    def note_begun(self, at: float, place: int, task: int, stage: str) -> None:
        """This task runs, not only others that were begun with it; if it has printed something, and once."""
        if place != self._noted and self.size > place:
            self._noted = place
            self.note(begun(at, place, task, 1, stage))

    def bound(self, start: int, size: int, slack: bool = True) -> int:
        """Take out the middle of what one task has written, if that is too much; how large the file is then.

        Parameters
        ----------
        start, size
            Where it began, and how large the file was; in the supervisor `size` is asked for first, so that nothing of
            the next task's is between them.
        slack
            Whether a little more may stay, for the task goes on.
        """
        if not self.limit or size - start <= self.limit:
            return size
        keep = self.limit // 2
        first, last = start + keep, size - keep
        if start != self._start:
            self._start, self._gone = start, 0
        if last - first - self._gone < (self.limit // _SLACK if slack else 1):
            return size
        self.note(cut(first, last - first, last - first))  # before: who reads a hole knows what it is
        if self._punch(first, last):
            self._gone = last - first
            return size
        os.ftruncate(self.text, first)
        self._gone += size - first
        self.note(cut(first, self._gone, 0))
        return first

    def _punch(self, first: int, last: int) -> bool:
        """Return these bytes to the file system; False where it cannot do that."""
        import ctypes  # here: few tasks print so much

        call = ctypes.CDLL(None, use_errno=True).fallocate
        call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        return int(call(self.text, _PUNCH, first, last - first)) == 0

    def tail(self, start: int, most: int) -> str:
        """The last part of what was written from `start` on, `most` bytes of it."""
        size = self.size
        first = max(start, size - most)
        return os.pread(self.text, max(0, size - first), first).decode(errors="replace")

    def close(self) -> None:
        os.close(self.text)
        os.close(self.index)
        if self._sampled >= 0:
            os.close(self._sampled)
