"""What there is to look at: runs, and queues of jobs that share cores, where a package that has some is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from asa.core.errors import AsaError, RunNotFound
from asa.core.event import DriverStarted, Event, RunEnded, RunStarted, RunState
from asa.core.registry import Registry
from asa.dashboard.feed import Feed
from asa.dashboard.model import RunModel
from asa.dashboard.queue_model import Entry, QueueModel
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
from asa.workflows.assemble import VIRTUAL

RUNS, QUEUES = "runs", "queues"
LISTED_MOST = 200
"""Runs, and queues, that are listed: the newest."""


_PAGES = Registry("page", {}, group="asa.pages")
"""Objects with `logs(state directory)`, the paths of all logs, and `read(path)`, the entries of one."""


class RunLog:
    """A run's event log, as a `Feed` reads it."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._log = EventLog(directory.events)
        self._virtual = False

    def read(self, after: int) -> Iterable[tuple[int, Event]]:
        """Numbers and events above `after`."""
        for number, event in self._log.read(after):
            if isinstance(event, RunStarted):
                self._virtual = event.executor == VIRTUAL
            yield number, event

    def is_written(self) -> bool:
        """Whether a driver is at it."""
        return self._directory.lock().holder() is not None

    def follows_the_clock(self) -> bool:
        """False for a run in virtual time."""
        return not self._virtual

    def at(self, event: Event) -> float:
        """When it happened [s since the epoch]."""
        return event.at

    def close(self) -> None:
        """Close the file."""
        self._log.close()


class QueueLog:
    """The log of a queue, as a `Feed` reads it: a file of lines, which only grows."""

    def __init__(self, path: Path, read: Callable[[Path], Sequence[Entry]]) -> None:
        self._path, self._read_all = path, read
        self._size = -1
        self._entries: list[Entry] = []

    def read(self, after: int) -> Iterable[tuple[int, Entry]]:
        """Numbers and entries above `after`; the first has number 1."""
        size = self._path.stat().st_size
        if size != self._size:
            self._entries, self._size = list(self._read_all(self._path)), size
        yield from enumerate(self._entries[after:], after + 1)

    def is_written(self) -> bool:
        """Taken to be: nobody can tell."""
        return True

    def follows_the_clock(self) -> bool:
        """Never: its times count from a start that it does not tell."""
        return False

    def at(self, entry: Entry) -> float:
        """When it happened [s since the queue's start]."""
        return float(entry["at"])

    def close(self) -> None:
        """Nothing is open."""


class Sources:
    """Runs and queues of one state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def find(self, name: str) -> tuple[str, str]:
        """Kind and full name of what this, or a beginning of it, names; the newest run for "".

        Raises
        ------
        RunNotFound
            When it names nothing, or more than one thing.
        """
        if name in self._queues():
            return QUEUES, name
        if name:
            return RUNS, RunDirectory.open(self._state, name).name
        if runs := list_runs(self._state):
            return RUNS, runs[-1].name
        raise RunNotFound(f"there are no runs in {self._state}: start one with asa run")

    def listed(self) -> list[dict[str, Any]]:
        """All of them, the newest first; what cannot be read is left out."""
        rows = []
        for directory in reversed(list_runs(self._state)[-LISTED_MOST:]):
            with contextlib.suppress(AsaError):
                rows.append(_row(directory))
        return rows + [{"kind": QUEUES, "name": name} for name in list(self._queues())[:LISTED_MOST]]

    def open(self, kind: str, name: str) -> Feed[Any]:
        """The feed of a run or a queue, by its full name.

        Raises
        ------
        RunNotFound
            When there is none.
        StateError
            When its log cannot be read.
        """
        if kind == QUEUES and name in (queues := self._queues()):
            return Feed(queues[name], QueueModel)
        if kind != RUNS:
            raise RunNotFound(f"no queue {name!r} in {self._state}")
        return Feed(RunLog(self.directory(name)), RunModel)

    def directory(self, name: str) -> RunDirectory:
        """The directory of a run, by its full name.

        Raises
        ------
        RunNotFound
            When there is none.
        """
        directory = RunDirectory.open(self._state, name)
        if directory.name != name:
            raise RunNotFound(f"no run {name!r} in {self._state}")
        return directory

    def _queues(self) -> dict[str, QueueLog]:
        """Logs of queues by their directory's name, the newest first."""
        pages = [_PAGES.load(name) for name in _PAGES]
        found = [(path, page.read) for page in pages for path in page.logs(self._state)]
        found.sort(key=lambda each: each[0].stat().st_mtime, reverse=True)
        return {path.parent.name: QueueLog(path, read) for path, read in found}


def _row(directory: RunDirectory) -> dict[str, Any]:
    with EventLog(directory.events) as log:
        started, ended = log.latest(RunStarted), log.latest(RunEnded, DriverStarted)
    state = ended.state.value if isinstance(ended, RunEnded) else RunState.RUNNING.value
    if state == RunState.RUNNING.value and directory.lock().holder() is None:
        state = "interrupted"
    row: dict[str, Any] = {"kind": RUNS, "name": directory.name, "state": state}
    if isinstance(started, RunStarted):
        row |= {"workflow": started.workflow, "backend": started.backend, "strategy": started.strategy}
    return row
