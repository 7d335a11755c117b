"""Where runs keep their files: the state directory and, in it, one directory per run, which one driver locks."""

from __future__ import annotations

import dataclasses
import difflib
import fcntl
import json
import math
import os
import re
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from asa.core.errors import InvalidInput, RunNotFound, StateError
from asa.core.event import DriverStarted, RunEnded, RunState
from asa.log import proc
from asa.log.events import EventLog
from asa.log.messages import notify
from asa.log.values import REFERS
from asa.security.files import cannot, private_directory, write_private

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LAST = re.compile(r"@last(?:~(\d{1,9}))?")
_NAMED_MOST = 3
_GENERATION = "driver.generation"
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that drives a run.

    Parameters
    ----------
    born
        When it was started, in clock ticks since the boot: a later process with the same pid has another.
    """

    pid: int
    host: str
    born: int

    @classmethod
    def this(cls) -> Holder:
        """The process that asks."""
        found = proc.stat(os.getpid())
        assert found, "this process exists"
        return cls(os.getpid(), socket.gethostname(), found.birth)

    @property
    def may_live(self) -> bool:
        """Whether it is not known to have ended: it may be on another host."""
        if self.host != socket.gethostname():
            return True
        found = proc.stat(self.pid)
        return found is not None and found.birth == self.born and not found.ended


class DriverLock:
    """Held by the process that drives a run; a context manager.

    A POSIX record lock: it holds across the machines of a shared file system, and no child process inherits it, so
    that it ends with the driver even when workers outlive it. Such a lock does not exclude other threads of the
    process, and closing any descriptor of the file releases it; so its holder is written beside it, and read first.

    Parameters
    ----------
    path
        The file to lock; the holder is named in a second file, with ``.holder`` after its name.

    Attributes
    ----------
    is_doubtful
        Once it is held: whether the last holder has not let go of it and may live, where a file system forgets locks.

    Raises
    ------
    StateError
        On entry, when another process, or this one, drives the run already, or the files cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._note = path.with_name(path.name + ".holder")
        self._descriptor = -1
        self.is_doubtful = False

    def __enter__(self) -> Self:
        this, last = Holder.this(), self._noted()
        self.is_doubtful = last is not None and last.may_live
        if last == this or not self._take():
            run, holder = self._path.parent.name, self._noted()
            who = f"process {holder.pid} on {holder.host}" if holder else "a process that has just started"
            raise StateError(f"run {run} is being driven already, by {who}: wait for it, or stop it first")
        try:
            write_private(self._note, json.dumps(dataclasses.asdict(this)).encode())
        except StateError:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._noted() == Holder.this():  # else the file system has forgotten the lock, and another process has it
            self._note.unlink(missing_ok=True)
        os.close(self._descriptor)

    def begin(self) -> int:
        """The holder begins to drive the run: its generation, which is above those of all drivers before it.

        Raises
        ------
        StateError
            When that cannot be written.
        """
        number = RunDirectory(self._path.parent).generation + 1
        write_private(self._path.with_name(_GENERATION), b"%d\n" % number, durable=True)
        return number

    def holder(self) -> Holder | None:
        """Who drives the run, or None for no process. Asking changes nothing.

        Raises
        ------
        StateError
            When the lock cannot be looked at.
        """
        holder = self._noted()
        if holder == Holder.this():  # to open and close the file would let go of the lock
            return holder
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise cannot("look at", self._path, error) from error
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        finally:
            os.close(descriptor)
        free = struct.unpack(_FLOCK, answer)[0] == fcntl.F_UNLCK
        return None if free else holder

    def _take(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cannot("lock", self._path, error) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError | PermissionError):  # EAGAIN or EACCES: POSIX leaves the choice
                return False
            raise cannot("lock", self._path, error) from error
        self._descriptor = descriptor
        return True

    def _noted(self) -> Holder | None:
        try:
            return Holder(**json.loads(self._note.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None  # none, or a holder that is about to write it


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of everything that outlives a process, mode 0700; made when missing.

    ``$ASA_STATE_DIR``, else ``$XDG_STATE_HOME/asa``, else ``~/.local/state/asa``. On a cluster it must be shared with
    the nodes.

    Raises
    ------
    StateError
        When it cannot be made, belongs to another user, or is open to other users.
    """
    if own := environ.get("ASA_STATE_DIR"):
        return private_directory(Path(own).expanduser().absolute())
    base = Path(environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # XDG Base Directory Specification: relative paths are to be ignored
        base = Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return private_directory(base / "asa")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run, all of them private to their owner."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def events(self) -> Path:
        """The event log, a file."""
        return self.path / "events.db"

    @property
    def functions(self) -> Path:
        return self.path / "functions"

    @property
    def values(self) -> Path:
        """Directory of arguments and results too large for the event log."""
        return self.path / "values"

    @property
    def log(self) -> Path:
        """Messages of its drivers: `asa.log.messages`."""
        return self.path / "asa.log"

    @property
    def jobs(self) -> Path:
        """Directory of what batch jobs print."""
        return self.path / "jobs"

    @property
    def driver_output(self) -> Path:
        """File with what drivers that have no terminal print."""
        return self.path / "driver.out"

    @property
    def output(self) -> Path:
        """Directory of what tasks print: `asa.log.output`; not there until the first worker starts."""
        return self.path / "output"

    @property
    def tls(self) -> Path:
        return self.path / "tls"

    @property
    def settings(self) -> Path:
        """File with what the run was started with."""
        return self.path / "settings"

    @property
    def submitted(self) -> float:
        """When the run was submitted [s since the epoch], whatever clock it goes by; 0 if that is unknown."""
        for kept in (self.settings, self.path):
            with suppress(OSError):
                return kept.stat().st_mtime
        return 0.0

    @property
    def touched(self) -> float:
        """When something was logged last, or it was submitted [s since the epoch]."""
        at = self.submitted
        for path in (self.events, self.events.with_name(f"{self.events.name}-wal")):
            with suppress(OSError):
                at = max(at, path.stat().st_mtime)
        return at

    @property
    def cancel_request(self) -> Path:
        """File that asks the run's driver to cancel it, and says why."""
        return self.path / "cancel"

    @property
    def handover_request(self) -> Path:
        """File that asks the run's driver to let go of it for another one, whose generation it says."""
        return self.path / "handover"

    @property
    def generation(self) -> int:
        """Number of its present driver, or the last: each later one has a larger number; 0 before the first.

        A driver that finds a larger number than its own is one no longer, whatever it may believe of its lock.
        """
        try:
            with open(f"{self.path}/{_GENERATION}", "rb", buffering=0) as file:  # asked for at each step of the watch
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return 0

    @property
    def hold_request(self) -> Path:
        """File that asks the run's driver to hold it, or to go on."""
        return self.path / "hold"

    def referring(self) -> list[str]:
        """Names of runs that refer to results of this one, and hence need it: see `asa.log.values.Ref`."""
        return [run.name for run in list_runs(self.state) if (run.path / REFERS / self.name).exists()]

    @property
    def size(self) -> int:
        """What it takes on its file system [bytes]."""
        total = 0
        for folder, _, files in os.walk(self.path):
            for name in ("", *files):
                with suppress(OSError):  # of a run that goes on, files may go
                    total += 512 * os.lstat(os.path.join(folder, name)).st_blocks
        return total

    @property
    def backend(self) -> Path:
        """Directory in which a backend on this machine keeps its own books."""
        return self.path / "backend"

    @property
    def state(self) -> Path:
        """The state directory that the run belongs to."""
        return self.path.parent.parent

    def lock(self) -> DriverLock:
        return DriverLock(self.path / "driver.lock")

    def is_driven(self) -> bool:
        """Whether its driver is alive: to say how a run stands, ask here *before* reading its events.

        Raises
        ------
        StateError
            When the lock cannot be looked at.
        """
        return self.lock().holder() is not None

    def standing(self, log: EventLog) -> RunState:
        """How the run stands, `log` being its events."""
        driven = self.is_driven()
        last = log.latest(RunEnded, DriverStarted)
        if isinstance(last, RunEnded):
            return last.state
        return RunState.RUNNING if driven else RunState.INTERRUPTED

    @classmethod
    def create(cls, state: Path, run: str) -> RunDirectory:
        """Make the directory of a new run.

        Raises
        ------
        InvalidInput
            When `run` is no fit name for a directory.
        StateError
            When there is such a run already, or the directory cannot be made.
        """
        if not _NAME.fullmatch(run):
            raise InvalidInput(
                f"run name {run!r} must start with a letter or digit; up to 99 more, '.', '_' and '-' may follow"
            )
        made = cls(private_directory(state / "runs") / run)
        try:
            made.path.mkdir(0o700)
        except FileExistsError as error:
            raise StateError(f"there is a run {run!r} in {state} already: choose another name, or resume it") from error
        except OSError as error:
            raise cannot("make the directory", made.path, error) from error
        for directory in (made.functions, made.values, made.jobs, made.tls):
            private_directory(directory)
        return made

    @classmethod
    def open(cls, state: Path, run: str) -> RunDirectory:
        """The directory of a run that exists.

        The first letters of its name are enough; of several that begin so the newest is meant, and that is said on
        standard error. ``@last`` is the newest of all, ``@last~1`` the one before.

        Raises
        ------
        RunNotFound
            When there is none; the message shows the nearest names.
        StateError
            When the directory is not private.
        """
        runs = {found.name: found for found in list_runs(state)}
        meant = [run] if run in runs else [name for name in runs if run and name.startswith(run)]
        if back := _LAST.fullmatch(run):
            meant = [*runs][: len(runs) - int(back[1] or 0)][-1:]
        if len(meant) > 1:
            others = ", ".join(reversed(meant[-1 - _NAMED_MOST : -1]))
            more = f" and {len(meant) - 1 - _NAMED_MOST} more" if len(meant) - 1 > _NAMED_MOST else ""
            notify(f"{run!r} fits {len(meant)} runs: the newest is meant, {meant[-1]}, not {others}{more}")
        if meant:
            private_directory(runs[meant[-1]].path)
            return runs[meant[-1]]
        near = difflib.get_close_matches(run, runs, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else _none_like_it(len(runs))
        raise RunNotFound(f"no run {run!r} in {state}: {hint}")


def _none_like_it(runs: int) -> str:
    if not runs:
        return "there are none yet: start one with asa run, or say with ASA_STATE_DIR where they are"
    return f"there {'is one run' if runs == 1 else f'are {runs} runs'}, none with a name like it: `asa runs` lists them"


def named_limits(variable: str, names: Sequence[str], environ: Mapping[str, str]) -> dict[str, float]:
    """Limits from an environment variable, as in ``days=30,size=2e8``, by name.

    Raises
    ------
    InvalidInput
        When one is no number of at least 0, or has another name than these.

    Examples
    --------
    >>> named_limits("KEEP", ["days", "size"], {"KEEP": "days=30,size=2e8"})
    {'days': 30.0, 'size': 200000000.0}
    """
    given: dict[str, float] = {}
    for word in filter(None, environ.get(variable, "").split(",")):
        name, _, value = word.partition("=")
        try:
            given[name.strip()] = float(value)
        except ValueError:
            raise InvalidInput(f"{variable}: {word!r}: expected NAME=NUMBER") from None
    if unknown := given.keys() - {*names}:
        choices = f"{', '.join(names[:-1])} or {names[-1]}"
        raise InvalidInput(f"{variable}: {sorted(unknown)[0]!r}: expected {choices}")
    if any(not value >= 0 for value in given.values()):
        raise InvalidInput(f"{variable}: a limit must be at least 0")
    return given


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Which runs a state directory keeps: those that were submitted first go first.

    Parameters
    ----------
    runs
        So many.
    age_s
        Those that nothing was logged of for so long [s] are not kept.
    size
        So much on their file system, all together [bytes].
    """

    runs: float = math.inf
    age_s: float = math.inf
    size: float = math.inf

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> RunLimits:
        """What ``ASA_KEEP_RUNS=runs=200,days=90,size=50e9`` asks for, or a part of it; without it all are kept.

        Raises
        ------
        InvalidInput
            When it cannot be read.
        """
        given = named_limits("ASA_KEEP_RUNS", ("runs", "days", "size"), environ)
        everything = math.inf
        return cls(
            given.get("runs", everything), 86400.0 * given.get("days", everything), given.get("size", everything)
        )

    def beyond(self, found: Sequence[RunDirectory], now: float) -> list[RunDirectory]:
        """Those of these runs, the newest last, that are not kept at `now` [s since the epoch]: never the newest."""
        gone, total = list[RunDirectory](), 0
        for number, run in enumerate(reversed(found), 1):
            total += run.size if math.isfinite(self.size) else 0
            if number > 1 and (number > self.runs or run.touched < now - self.age_s or total > self.size):
                gone.append(run)
        return gone[::-1]


def list_runs(state: Path) -> list[RunDirectory]:
    """All runs of a state directory, in the order in which they were submitted."""
    try:
        found = [RunDirectory(Path(entry.path)) for entry in os.scandir(state / "runs") if _NAME.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot("list", state / "runs", error) from error
    return sorted(found, key=lambda run: (run.submitted, run.name))
