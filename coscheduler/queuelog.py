"""What happened to a queue, as it happens: a file of JSON lines in a private directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from asa.core.errors import StateError
from asa.log.rundir import state_directory
from asa.security.files import cannot, check_private, private_directory
from coscheduler.loss import LOSSES
from coscheduler.nouns import SharedRun
from coscheduler.result import JobRun

NAME = "log.jsonl"
_QUEUES = "cosched"  # directory, in the state directory, of queues for which no other was given

Entry = Mapping[str, Any]
"""``at`` [s], and either ``event`` (``started``, ``requeued``, ``ended``) or ``decision``, with more."""


class QueueLog:
    """A log; a context manager. An entry that was written is there even if we are killed.

    Parameters
    ----------
    directory
        Where it is.
    resume
        Go on with the one that is there; a last line that was not written to its end goes. Else it is a new one.

    Raises
    ------
    StateError
        When there is a log in the directory already, or none to go on with, or it cannot be read or written.
    """

    def __init__(self, directory: Path, *, resume: bool = False) -> None:
        self.path = private_directory(directory) / NAME
        self.before = read(self.path) if resume else []
        """Entries that are gone on with."""
        try:
            if resume:
                os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (0 if resume else os.O_CREAT | os.O_EXCL)
            # without a buffer: what the disk did not take must not come again when the log is closed
            self._file = os.fdopen(os.open(self.path, flags, 0o600), "wb", buffering=0)
        except FileExistsError as error:
            raise StateError(
                f"{directory} has the log of another queue: give another --work directory, or go on with --resume"
            ) from error
        except OSError as error:
            raise cannot("write", self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, entry: Entry) -> None:
        """Add an entry.

        Raises
        ------
        StateError
            When the disk is full, say.
        """
        line = json.dumps(entry).encode() + b"\n"
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise cannot("write", self.path, error) from error


def ended(run: SharedRun, result: JobRun) -> dict[str, Any]:
    """The entry, but for its time, of a job that has ended well: how long it ran, its loss by either form, and all that
    came of it."""
    return {
        "event": "ended",
        "job": run.job,
        "problem": "",
        "run_time_s": run.run_time_s,
        "alone_s": run.alone_s,
        "slowdown": run.slowdown,
        "loss": {name: loss(run) for name, loss in LOSSES.items()},
        "result": result.to_json(),
    }


def read(path: Path) -> list[Entry]:
    """All entries of a log; a last line that was not written to its end is left out.

    Raises
    ------
    StateError
        When it is not one's own private file, or no log.
    """
    check_private(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
    except OSError as error:
        raise cannot("read", path, error) from error
    except ValueError as error:
        raise StateError(f"{path} is damaged, or no log of a queue ({error}): give another --work directory") from error


def ended_well(entries: Iterable[Entry]) -> dict[str, JobRun]:
    """What came of the jobs that have ended well, by name.

    Raises
    ------
    StateError
        When these entries do not say: they were written by an older version.
    """
    found = [entry for entry in entries if entry.get("event") == "ended" and not entry["problem"]]
    if not all("result" in entry for entry in found):
        raise StateError("the log was written by an older version: run the queue with another --work directory")
    return {entry["job"]: JobRun.of(entry["result"]) for entry in found}


def new_directory(name: str) -> Path:
    """A directory for a queue of this name that no other has: ``NAME-1``, ``NAME-2`` ..."""
    base, number = private_directory(state_directory() / _QUEUES), 1
    while True:
        path = base / f"{name}-{number}"
        try:
            path.mkdir(0o700)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise cannot("make the directory", path, error) from error


def logs(state: Path) -> list[Path]:
    """Logs of all queues in this state directory, the newest first."""
    found = (state / _QUEUES).glob(f"*/{NAME}")
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


class QueuePage(NamedTuple):
    """How `asa dashboard` finds and reads the logs of queues."""

    logs: Callable[[Path], list[Path]]
    read: Callable[[Path], list[Entry]]


PAGE = QueuePage(logs, read)
