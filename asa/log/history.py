"""The history of what tasks and stages took, which all runs of a user share: a file beside that of learned waits."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from asa.core.errors import AsaError
from asa.core.history import Frozen, StageUsage, Usage, spread
from asa.log.database import LearnedStore, Record

HISTORY = "history.db"
"""Name of the file in a state directory."""
ROWS_MOST, ROWS_OF_RUN, RUNS_MOST, CODES_MOST, KEYS_MOST = 400, 100, 60, 8, 2000
"""How many are kept: rows for each stage, code and machine, of which one run adds so many; runs of a stage; codes of a
stage on a machine; stages with their codes in all. What is older goes."""

HISTORY_VERSION = 2
"""Of rows: it changes with the fields of `Usage` and `StageUsage`, and with keys; 1 did not say which machine is local.
Rows of other versions are not looked at."""
LOCAL = "local"
"""What a machine without a batch system is called on itself. In the file, its host name follows: a history that is
copied from one machine to another says nothing of the other."""
_TOOK, _FROZEN, _MARK = f"took-{HISTORY_VERSION} ", "frozen ", f"run-{HISTORY_VERSION} "
_log = logging.getLogger(__name__)
_Row = TypeVar("_Row", Usage, StageUsage)


class HistoryKey(NamedTuple):
    """A stage of which something is kept."""

    stage: str
    code: str
    machine: str


class Counted(NamedTuple):
    """What a run adds of its stage of this name: as a whole; of all its attempts those from a place on, as rows."""

    name: str
    whole: StageUsage
    attempts: int
    rows: Callable[[int], Sequence[Usage]]


class UsageHistory:
    """What tasks and stages took, by stage, code and machine. May be used from any thread, by any number of processes.

    The machine `LOCAL` is the one of this `host`; others of that kind are called ``local@NAME``.

    Raises
    ------
    StateError
        When the file cannot be made, opened, read or written; when it is damaged, or of another version.
    """

    def __init__(self, path: Path, *, busy_s: float = 30.0, host: str | None = None) -> None:
        self._store = LearnedStore(path, busy_s=busy_s)
        self._own = f"{LOCAL}@{host or os.uname().nodename}"
        self.path = path

    def add(self, rows: Iterable[Usage]) -> None:
        """Keep what attempts took that no run of ours has made: what was imported."""
        groups: dict[HistoryKey, list[Usage]] = {}
        for row in rows:
            groups.setdefault(HistoryKey(row.stage, row.code, row.machine), []).append(row)
        for kept, some in groups.items():
            self._make_room(kept)
            self._store.update(self._key(_TOOK, kept), partial(_with_rows, kept=kept, rows=some))

    def record(self, found: Iterable[Counted]) -> None:
        """Keep what a run of ours took so far; what was kept of it before is not kept twice."""
        groups: dict[HistoryKey, list[Counted]] = {}
        for each in found:
            groups.setdefault(HistoryKey(each.whole.stage, each.whole.code, each.whole.machine), []).append(each)
        for kept, some in groups.items():
            self._make_room(kept)
            self._store.update(self._key(_TOOK, kept), partial(_with_runs, kept=kept, found=some))

    def of(self, stage: str, code: str | None = None, machine: str | None = None) -> list[Usage]:
        """What attempts of a stage took, the oldest first; of every code, or on every machine, where none is given.

        What was imported has the code "".
        """
        records = self._records(stage, code, machine)
        rows = [row for kept, record in records for row in _read(Usage, kept, record["rows"])]
        return sorted(rows, key=lambda row: row.ended)

    def runs(self, stage: str, code: str | None = None, machine: str | None = None) -> list[StageUsage]:
        """What a stage as a whole took in earlier runs, the oldest first."""
        records = self._records(stage, code, machine)
        runs = ((kept, (row for row, _ in record["runs"].values())) for kept, record in records)
        return sorted((row for kept, some in runs for row in _read(StageUsage, kept, some)), key=lambda row: row.ended)

    def stages(self) -> list[HistoryKey]:
        """All stages of which something is kept."""
        return [kept for key in self._store.keys(_TOOK) if (kept := self._kept(key)) is not None]

    def freeze(self, stage: str, machine: str, asked: Frozen | None) -> None:
        """Ask for this from now on, whatever is learned; with None, what is learned counts again."""
        record = None if asked is None else dict(zip(("memory", "walltime_s", "since"), astuple(asked), strict=True))
        self._store.update(self._key(_FROZEN, HistoryKey(stage, "", machine)), lambda _: record)

    def frozen(self, stage: str, machine: str) -> Frozen | None:
        """What was frozen for a stage on a machine, if something was."""
        record = self._store.get(self._key(_FROZEN, HistoryKey(stage, "", machine)))
        with contextlib.suppress(TypeError, AsaError):
            return None if record is None else Frozen(**record)
        return None

    def forget(self, stage: str, code: str | None = None, machine: str | None = None) -> int:
        """Remove what is kept of a stage; of how many codes and machines that was."""
        keys = self._keys(stage, code, machine)
        for key in keys:
            self._store.update(key, lambda _: None)
        return len(keys)

    def mark(self, run: str, last: int) -> None:
        """All events of a run up to this one have been looked at."""
        self._store.update(_MARK + run, lambda _: {"last": last})

    def marked(self, run: str) -> int:
        """Up to which event a run has been looked at; 0 where it was not."""
        return int((self._store.get(_MARK + run) or {}).get("last", 0))

    def problems(self) -> list[str]:
        """What is wrong with the file, in lines; empty when it is whole."""
        return self._store.problems()

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _keys(self, stage: str, code: str | None, machine: str | None) -> dict[str, HistoryKey]:
        found = ((key, self._kept(key)) for key in self._store.keys(f"{_TOOK}[{json.dumps(stage)}, "))
        return {key: one for key, one in found if one and code in (None, one.code) and machine in (None, one.machine)}

    def _records(self, stage: str, code: str | None, machine: str | None) -> Iterator[tuple[HistoryKey, Record]]:
        for key, kept in self._keys(stage, code, machine).items():
            if (record := self._store.get(key)) is not None and _is_sound(record):
                yield kept, record

    def _make_room(self, new: HistoryKey) -> None:
        """Remove the oldest codes of a stage, or stages, before one is added that would be one too many."""
        keys = self._store.keys(_TOOK)
        if self._key(_TOOK, new) in keys:
            return
        alike = self._keys(new.stage, None, new.machine)
        gone: list[str] = []
        if len(alike) >= CODES_MOST:
            gone = self._oldest(alike, len(alike) - CODES_MOST + 1)
        elif len(keys) >= KEYS_MOST:
            gone = self._oldest(keys, KEYS_MOST // 10)
        for key in gone:
            _log.info("what %s says is removed: there is no more room for old stages", key)
            self._store.update(key, lambda _: None)

    def _oldest(self, keys: Iterable[str], count: int) -> list[str]:
        return sorted(keys, key=lambda key: (self._store.get(key) or {}).get("ended", 0.0))[:count]

    def _key(self, kind: str, kept: HistoryKey) -> str:
        return kind + json.dumps(kept._replace(machine=self._own) if kept.machine == LOCAL else kept)

    def _kept(self, key: str) -> HistoryKey | None:
        with contextlib.suppress(ValueError, TypeError):
            kept = HistoryKey(*json.loads(key.partition(" ")[2]))
            return kept._replace(machine=LOCAL) if kept.machine == self._own else kept
        return None


def _is_sound(record: Record | None) -> bool:
    return record is not None and isinstance(record.get("rows"), list) and isinstance(record.get("runs"), dict)


def _written(row: Usage | StageUsage) -> list[Any]:
    """Its fields but those that its key says."""
    return list(astuple(row)[len(HistoryKey._fields) :])


def _read(kind: type[_Row], kept: HistoryKey, rows: Iterable[Any]) -> Iterator[_Row]:
    """Rows as they were; one that is none is left out."""
    count = len(fields(kind)) - len(kept)
    for row in rows:
        with contextlib.suppress(TypeError, AsaError):
            if isinstance(row, list) and len(row) == count:
                yield kind(*kept, *row)


def _with_rows(record: Record | None, kept: HistoryKey, rows: Sequence[Usage]) -> Record:
    """A record with more rows; old ones go when there are too many."""
    if record is None or not _is_sound(record):
        record = {"rows": [], "runs": {}, "ended": 0.0}
    if not rows:
        return record
    before = list(_read(Usage, kept, record["rows"]))
    known = frozenset(before)  # what is imported twice counts once
    found = [*before, *(row for row in spread(rows, ROWS_MOST) if row not in known)]
    found.sort(key=lambda row: row.ended)
    ended = max(record.get("ended", 0.0), found[-1].ended)
    return {**record, "rows": [_written(row) for row in found[-ROWS_MOST:]], "ended": ended}


def _with_runs(record: Record | None, kept: HistoryKey, found: Sequence[Counted]) -> Record:
    """A record with what runs came to, and with rows of the attempts that are not in it."""
    if record is None or not _is_sound(record):
        record = {"rows": [], "runs": {}, "ended": 0.0}
    runs: dict[str, Any] = dict(record["runs"])
    rows: list[Usage] = []
    for each in found:
        name = f"{each.whole.run} {each.name}"
        before = runs[name][1] if name in runs else 0
        if each.attempts > before:
            rows += each.rows(before)
        runs[name] = _written(each.whole), max(before, each.attempts)
    newest = sorted(runs.items(), key=lambda item: item[1][0][-1])[-RUNS_MOST:]
    return _with_rows({**record, "runs": dict(newest)}, kept, spread(rows, ROWS_OF_RUN))
