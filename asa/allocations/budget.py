"""How often a user's runs may call the batch system: one budget for all of them, kept in the state directory.

`Bucket` is the rule, without I/O; `SharedBudget` keeps one for each kind of call in a small file that the runs of all
login nodes lock in turn. Whoever wants to call is given the time at which it may, in the order of asking, so that
no job waits for ever; cancelling needs no leave.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from asa.core.errors import InvalidInput

VARIABLE = "ASA_SCHEDULER_BUDGET"
"""Environment variable: such as ``query=15,submit=2,burst=10``, or ``off``."""

QUERY, SUBMIT = "query", "submit"
WINDOW_S = 600.0

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid
_PATIENCE_S, _RETRY_S = 1.0, 0.02  # the budget's lock is held for an instant only
TURN_MOST_S, _TURN_RETRY_S = 30.0, 0.2
_FILE_MOST = 4096
_DEBT_MOST = 1000.0  # calls that wait; a file that says more is damaged

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Bucket:
    """Calls of one kind that may be made now, less those that wait for their turn, as of a time [s since the epoch].

    Parameters
    ----------
    left
        At most `burst`; negative when calls have been promised for later.
    """

    left: float
    at: float

    def reserve(self, now: float, every_s: float, burst: int, spare: float = 0.0) -> tuple[Bucket, float | None]:
        """The bucket after one more call, and when that may be made [s since the epoch].

        Parameters
        ----------
        every_s
            Mean time between calls over any ten minutes [s], those made at once included.
        burst
            Calls that may be made at once.
        spare
            Calls that must be left for others now; None is returned, and nothing is taken, where there are not.

        Examples
        --------
        >>> Bucket(1.0, 0.0).reserve(0.0, 15.0, 10)
        (Bucket(left=0.0, at=0.0), 0.0)
        >>> Bucket(0.0, 0.0).reserve(0.0, 15.0, 10)
        (Bucket(left=-1.0, at=0.0), 20.0)
        """
        rate, left = self._refilled(now, every_s, burst)
        if spare and left - 1.0 < spare:
            return Bucket(left, now), None
        left -= 1.0
        return Bucket(left, now), now + max(0.0, -left) / rate

    def charge(self, now: float, every_s: float, burst: int, count: int) -> Bucket:
        """The bucket after calls without a reservation: they are taken from those that may be made at once.

        >>> Bucket(8.0, 0.0).charge(0.0, 15.0, 10, 6), Bucket(-2.0, 0.0).charge(0.0, 15.0, 10, 1)
        (Bucket(left=2.0, at=0.0), Bucket(left=-2.0, at=0.0))
        """
        _, left = self._refilled(now, every_s, burst)
        return Bucket(max(min(left, 0.0), left - count), now)

    def _refilled(self, now: float, every_s: float, burst: int) -> tuple[float, float]:
        """Calls a second that are added, and how many may be made now."""
        rate = (WINDOW_S / every_s - burst) / WINDOW_S
        return rate, min(float(burst), self.left + max(0.0, now - self.at) * rate)


@dataclass(frozen=True)
class CallLimits:
    """What the budget allows; the mean times between calls are in seconds.

    Raises
    ------
    InvalidInput
        When a number is out of range.
    """

    query: float = 15.0
    submit: float = 2.0
    burst: int = 10

    def __post_init__(self) -> None:
        for name in (QUERY, SUBMIT):
            every_s = getattr(self, name)
            if not (math.isfinite(every_s) and every_s > 0):
                raise InvalidInput(f"{VARIABLE}: {name}={every_s:g}: expected a number of seconds above 0")
            if not 1 <= self.burst < WINDOW_S / every_s:
                most = WINDOW_S / every_s
                raise InvalidInput(f"{VARIABLE}: burst={self.burst}: expected 1 or more, and less than the "
                                   f"{most:g} calls that {name}={every_s:g} allows in ten minutes")  # fmt: skip

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> CallLimits | None:
        """What the environment asks for; None for no budget.

        Raises
        ------
        InvalidInput
            When it cannot be read.
        """
        text = environ.get(VARIABLE, "").strip()
        if text == "off":
            return None
        given: dict[str, float] = {}
        for word in filter(None, text.split(",")):
            name, _, value = word.partition("=")
            try:
                given[name.strip()] = int(value) if name.strip() == "burst" else float(value)
            except ValueError:
                raise InvalidInput(f"{VARIABLE}: {word!r}: expected NAME=NUMBER") from None
        if unknown := given.keys() - {QUERY, SUBMIT, "burst"}:
            raise InvalidInput(f"{VARIABLE}: {sorted(unknown)[0]!r}: expected query, submit or burst, or just off")
        return cls(**given)  # type: ignore[arg-type]


class SharedBudget:
    """One budget of all runs that share a state directory.

    Its file is read anew each time. Where it is damaged, it begins anew; where it cannot be locked or written, this
    process keeps a budget of its own. A lock ends with the process that has it.
    """

    def __init__(self, path: Path, limits: CallLimits) -> None:
        self._path, self._limits = path, limits
        self._own: dict[str, Bucket] = {}

    @classmethod
    def of(cls, state: Path) -> SharedBudget | None:
        """That of a state directory; None where the environment wants none.

        Raises
        ------
        InvalidInput
            When it cannot be read what the environment wants.
        """
        limits = CallLimits.of()
        return None if limits is None else cls(state / "scheduler-budget.json", limits)

    def reserve(self, kind: str, now: float, spare: float = 0.0) -> float | None:
        """When a call of this kind may be made [s since the epoch]; see `Bucket.reserve`."""
        return self._shared(now, lambda: self._take(kind, now, spare))

    def wait(self, kind: str) -> None:
        """Wait until a call of this kind may be made, and reserve it."""
        if (at := self.reserve(kind, time.time())) is not None:
            time.sleep(max(0.0, at - time.time()))

    def charge(self, kind: str, now: float, count: int) -> None:
        """Calls of this kind have been made without a reservation; see `Bucket.charge`."""

        def charged() -> None:
            bucket, every_s = self._bucket(kind, now)
            self._own[kind] = bucket.charge(now, every_s, self._limits.burst, count)

        self._shared(now, charged)

    def _shared(self, now: float, act: Callable[[], Result]) -> Result:
        """Let `act` look at the buckets and change them while no other process does."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                _lock(descriptor)
                self._own = read_buckets(os.pread(descriptor, _FILE_MOST, 0), now, self._limits.burst)
                found = act()
                text = json.dumps({name: [bucket.left, bucket.at] for name, bucket in self._own.items()}).encode()
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, text, 0)
                return found
            finally:
                os.close(descriptor)
        except OSError as error:
            _log.debug("the budget %s cannot be shared: %s", self._path, error)
            return act()

    def _take(self, kind: str, now: float, spare: float) -> float | None:
        bucket, every_s = self._bucket(kind, now)
        self._own[kind], found = bucket.reserve(now, every_s, self._limits.burst, spare)
        return found

    def _bucket(self, kind: str, now: float) -> tuple[Bucket, float]:
        """The bucket of this kind, a full one where none is known, and the mean time between such calls [s]."""
        full = Bucket(float(self._limits.burst), now)
        return self._own.get(kind, full), self._limits.query if kind == QUERY else self._limits.submit


@contextmanager
def in_turn(path: Path, most_s: float = TURN_MOST_S) -> Iterator[None]:
    """Ask a site what it is like while no other run of the user does: many may begin at the same moment.

    Whoever has waited for `most_s` [s], or cannot lock the file, goes on all the same.
    """
    with ExitStack() as opened:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            opened.callback(os.close, descriptor)
            _lock(descriptor, most_s, _TURN_RETRY_S)
        except OSError as error:
            _log.debug("did not wait for others at %s: %s", path, error)
        yield


def read_buckets(text: bytes, now: float, burst: int) -> dict[str, Bucket]:
    """The buckets in a file; those that are damaged are left out. Clocks of login nodes may differ.

    >>> read_buckets(b'{"query": [3, 5.0], "submit": ["x", null]}', now=4.0, burst=10)
    {'query': Bucket(left=3.0, at=4.0)}
    """
    found: dict[str, Bucket] = {}
    with suppress(ValueError, RecursionError):
        content = json.loads(text)
        for kind in (QUERY, SUBMIT) if isinstance(content, dict) else ():
            with suppress(TypeError, ValueError, OverflowError):
                left, at = map(float, content.get(kind))
                if -_DEBT_MOST <= left <= burst and math.isfinite(at):
                    found[kind] = Bucket(left, min(at, now))
    return found


def _lock(descriptor: int, most_s: float = _PATIENCE_S, retry_s: float = _RETRY_S) -> None:
    """Lock an opened file against all others, on this machine or another."""
    deadline = time.monotonic() + most_s
    whole = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    while True:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, whole)  # of the opened file: it keeps other threads out, too
            return
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= deadline:
                raise
            time.sleep(retry_s)
