"""A run's event log: append-only, one transaction per batch, results beside the events that announce them."""

from __future__ import annotations

import json
import sqlite3
import struct
from binascii import crc32
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Self, TypeVar

from asa.core.errors import StateError
from asa.core.event import (
    Amending,
    Event,
    RunEnded,
    StageExpanded,
    Submitting,
    TaskDone,
    TaskResult,
    TasksDone,
    decode,
    encode,
    packed,
)
from asa.core.task import Value
from asa.log.database import Database
from asa.log.values import check_value

_VERSION = 4
"""Of the tables; 1 had no checksums, 2 a row for each event, 3 nothing of what tasks took."""
_SCHEMA = (
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, fields TEXT NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE results (stage TEXT NOT NULL, task INTEGER NOT NULL, data BLOB, path TEXT, crc INTEGER NOT NULL,"
    " UNIQUE (stage, task))",
)
_PACKED_SINCE = 3
_Kind = TypeVar("_Kind", bound=Event)

_PAGE, _VALUES = 1000, 200
_LAST_MOST = 2**31 - 1
_ENDS = "SELECT coalesce((SELECT max(seq) FROM events), 0), application_id FROM pragma_application_id"
"""Which event is the last, and which was when the log was written."""
_to_text = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class EventLog:
    """The truth about a run: replaying it gives the run's state again.

    Every event and every result has a checksum: what is damaged raises an error that names it, and is never taken for
    something else. Logs of versions 1, without, and 2 can be read and appended to as they are.

    Tasks that returned together are one row, a `TasksDone`, which has the number of the last of its events.

    May be used from any thread. One process appends at a time (the run's driver lock sees to that), any number read.
    Where a file system loses locks, two may: the one that does not know of the other's events is refused.

    Parameters
    ----------
    results
        Whether to keep what tasks returned.

    Raises
    ------
    StateError
        When the file cannot be made, opened, or was written by another version of ASA.
    """

    def __init__(self, path: Path, *, results: bool = True) -> None:
        self._database, self._results = Database(path, _SCHEMA, _VERSION, reads=(1, 2, 3)), results
        self._checked = self._database.version != 1
        self._known: int | None = None  # the last event that was read or written here
        self._crc = "crc" if self._checked else "NULL"

    def append(self, events: Sequence[Event]) -> None:
        """Write these events and the results they carry, all of them or none.

        A task's first result stands, unless it is lost: a second one would contradict what others have read. That a
        job is about to be submitted or parked, or the run has ended, survives a power failure, with all that was
        written before: else a job would get the token of a forgotten one, or stay parked.

        Raises
        ------
        StateError
            When they cannot be written (full disk, read-only directory), and the log is as it was before; when the
            log was deleted; when it has events of another driver since this one read it, or last wrote.
        """
        items = packed(events) if self._database.version >= _PACKED_SINCE else events
        rows = [(_count(item), kind, _to_text(fields)) for item in items for kind, fields in [encode(item)]]
        results = [result for event in events for result in event.results] if self._results else []
        lost = [task for event in events for task in event.void]
        lasting = any(
            isinstance(event, Submitting | RunEnded) or (isinstance(event, Amending) and event.parked)
            for event in events
        )
        with self._database.transaction(lasting=lasting) as connection:
            ((last, written),) = connection.execute(_ENDS).fetchall()
            if self._known is not None and last != self._known:
                raise StateError(
                    f"{self._database.path}: another driver has gone on with this run, so this one ends and changes "
                    "nothing more; `asa runs` shows how the run stands"
                )
            if lost:
                connection.executemany("DELETE FROM results WHERE stage = ? AND task = ?", lost)
            if self._checked:
                numbers = accumulate((count for count, _, _ in rows), initial=last)
                numbered = zip(islice(numbers, 1, None), rows, strict=True)
                connection.executemany(
                    "INSERT INTO events VALUES (?, ?, ?, ?)",
                    [(seq, kind, fields, _event_crc(seq, kind, fields)) for seq, (_, kind, fields) in numbered],
                )
            else:
                connection.executemany("INSERT INTO events (kind, fields) VALUES (?, ?)", [row[1:] for row in rows])
            self._store(connection, results)
            # SQLite keeps this number on the first page of a file, for programs that open it: where events at the end
            # are lost, it still says how many there were. Logs of before have 0 there.
            last += sum(count for count, _, _ in rows)
            if last > written:
                connection.execute(f"PRAGMA application_id = {min(last, _LAST_MOST):d}")
        self._known = last

    def store(self, results: Iterable[TaskResult]) -> None:
        """Write results whose events are in the log already."""
        with self._database.transaction() as connection:
            self._store(connection, results)

    def _store(self, connection: sqlite3.Connection, results: Iterable[TaskResult]) -> None:
        rows = ((*result, _result_crc(*result)) if self._checked else result for result in results)
        marks = "?, ?, ?, ?, ?" if self._checked else "?, ?, ?, ?"
        connection.executemany(f"INSERT INTO results VALUES ({marks}) ON CONFLICT DO NOTHING", rows)

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events and their sequence numbers, those above `after`, in order; `value` says what a task returned.

        Raises
        ------
        StateError
            When an event is damaged or missing, or of a kind that this version of ASA does not know.
        """
        for number, item in self._read(after, _PAGE):
            if isinstance(item, TasksDone):
                first = number - len(item) + 1
                yield from (each for each in enumerate(item.events(), first) if each[0] > after)
            else:
                yield number, item

    def packed(self, after: int = 0) -> Iterator[tuple[int, Event | TasksDone]]:
        """As `read`, from after a number that this has returned; tasks that returned together are one, with the number
        of the last."""
        return self._read(after, _PAGE)

    def _read(self, after: int, most: int) -> Iterator[tuple[int, Event | TasksDone]]:
        """Rows with events above `after`, by the number of their last one."""
        for number, kind, fields, crc in self._in_order("", after, most):
            item = self._decode(number, kind, fields, crc)
            if self._checked and number - _count(item) > after:
                raise self._damage(f"event {after + 1} is missing")
            yield number, item
            after = number
        self._known = min(after, self._check_end())

    def _check_end(self) -> int:
        """The number of the last event."""
        ((last, written),) = self._database.rows(_ENDS)
        if last < written:
            raise self._damage(f"events {last + 1} to {written} are missing")
        return int(last)

    def readable(self) -> tuple[list[tuple[int, Event]], list[str]]:
        """The events that can be read, and what is wrong with the others, in lines."""
        found: list[tuple[int, Event]] = []
        wrong: list[str] = []
        after: int | None = 0
        most = _PAGE
        while after is not None:
            try:
                for number, item in self._read(after, most):
                    events = item.events() if isinstance(item, TasksDone) else [item]
                    found += enumerate(events, number - _count(item) + 1)
                    after = number
                break
            except StateError as error:
                if most > 1:  # which of the page is it?
                    most = 1
                    continue
                wrong.append(str(error))
                after, most = self._beyond(after), _PAGE
        return found, wrong

    def _beyond(self, after: int) -> int | None:
        """After which number to read on, where the event after this one is damaged or missing; None where none follows.

        What SQLite cannot read at all is left out in steps that grow with what has been left out.
        """
        skipped = 0
        while after + skipped <= _LAST_MOST:
            try:
                rows = self._database.rows("SELECT seq FROM events WHERE seq > ? ORDER BY seq LIMIT 1", after + skipped)
            except StateError:
                rows = [(0,)]
            if not rows:
                return None
            if rows[0][0] > after + skipped:  # else it is damaged, too
                before = int(rows[0][0]) - 1
                return before if before > after else after + 1
            skipped += max(1, skipped // 100)
        return None

    @property
    def last(self) -> int:
        """Sequence number of the last event; 0 when there is none."""
        ((last,),) = self._database.rows("SELECT coalesce(max(seq), 0) FROM events")
        return int(last)

    def latest(self, *kinds: type[Event]) -> Event | None:
        """The last event of one of these kinds, or None.

        Raises
        ------
        StateError
            When that, or an event after it, is damaged or of an unknown kind.
        """
        names = [kind.__name__ for kind in kinds]
        if TaskDone in kinds:
            names.append(TasksDone.__name__)
        if self._checked:  # what is of no known kind is damaged, and may be one of these
            which, names = "NOT IN", [name for name in (*Event.kinds, TasksDone.__name__) if name not in names]
        else:
            which = "IN"
        sql = f"SELECT seq, kind, fields, {self._crc} FROM events WHERE kind {which} ({', '.join('?' * len(names))})"
        rows = self._database.rows(f"{sql} ORDER BY seq DESC LIMIT 1", *names)
        self._check_end()
        found = self._decode(*rows[0]) if rows else None
        return [*found.events()][-1] if isinstance(found, TasksDone) else found

    def each(self, kind: type[_Kind]) -> Iterator[_Kind]:
        """The events of one kind, in order, which is none of those that are kept in columns."""
        for row in self._in_order("kind = ? AND", 0, _PAGE, kind.__name__):
            item = self._decode(*row)
            if isinstance(item, kind):
                yield item

    def _in_order(self, which: str, after: int, most: int, *names: str) -> Iterator[tuple[int, str, str, int | None]]:
        """Rows above a number, in pages of at most so many."""
        sql = f"SELECT seq, kind, fields, {self._crc} FROM events WHERE {which} seq > ? ORDER BY seq LIMIT ?"
        while page := self._database.rows(sql, *names, after, most):
            for row in page:
                if row[0] <= after:  # pages of a damaged tree are read again and again
                    raise self._damage(f"event {row[0]} is read after event {after}")
                after = row[0]
                yield row

    def value(self, stage: str, index: int) -> Value:
        """What a task returned.

        Raises
        ------
        KeyError
            When it has not returned.
        StateError
            When it is damaged.
        """
        return self.values(stage, index, index + 1)[0]

    def values(self, stage: str, start: int, stop: int) -> list[Value]:
        """What the tasks `start` to `stop` - 1 of a stage returned, in order.

        Raises
        ------
        KeyError
            When one of them has not returned.
        StateError
            When one of them is damaged.
        """
        found = self._values("AND task BETWEEN ? AND ?", stage, start, stop - 1)
        if len(found) < stop - start:  # a damaged index may hide from a search what a scan, as for `lost`, finds
            found = self._values("AND task BETWEEN ? AND ?", stage, start, stop - 1, scan=True)
        return [found[index] for index in range(start, stop)]

    def whole_values(self, stage: str, tasks: Sequence[int]) -> dict[int, Value]:
        """What these tasks of a stage returned, as far as they have, and it is undamaged; a file is not looked into."""
        found: dict[int, Value] = {}
        for first in range(0, len(tasks) if self._checked else 0, _PAGE // 2):
            some = tasks[first : first + _PAGE // 2]
            for row in self._rows(f"AND task IN ({','.join('?' * len(some))})", stage, *some):
                with suppress(StateError):
                    found[row[0]] = self._whole(stage, *row)
        return found

    def all_values(self, stage: str) -> Iterator[Value]:
        """What the tasks of a stage returned that have returned, in order, read as it is asked for.

        Raises
        ------
        StateError
            When one of them is damaged, or one before the last is missing.
        """
        name, after = stage.encode("utf-8", "surrogatepass"), -1
        while rows := self._rows("AND task > ? ORDER BY task LIMIT ?", stage, after, _VALUES):
            for index, data, path, crc in rows:
                if index != after + 1:
                    raise self._damage(f"the result of task {after + 1} of stage {stage!r} is missing")
                after = index
                if type(data) is bytes and crc32(data, crc32(b"%d %b" % (index, name))) == crc:  # there may be millions
                    yield data
                else:
                    yield self._whole(stage, index, data, path, crc)

    def is_whole(self, stage: str, width: int | None) -> bool:
        """Whether all that the tasks of a stage, so many, have returned is there and undamaged."""
        count, sound = 0, set[str]()
        try:
            for value in self.all_values(stage):
                count += 1
                if self._checked:
                    check_value(value, sound)
        except StateError:
            return False
        return count == width

    def width(self, stage: str) -> int | None:
        """How many tasks a stage has, where that was not known from the start."""
        sql = f"SELECT seq, kind, fields, {self._crc} FROM events WHERE kind = ? ORDER BY seq DESC"
        expanded = (self._decode(*row) for row in self._database.rows(sql, StageExpanded.__name__))
        return next((each.width for each in expanded if isinstance(each, StageExpanded) and each.stage == stage), None)

    def lost(self, done: Mapping[str, Collection[int]]) -> dict[tuple[str, int], str]:
        """Of these tasks, which are done, by stage, those whose result is damaged or missing, and why."""
        left = {stage: set(tasks) for stage, tasks in done.items()}
        found: dict[str, dict[int, str]] = {stage: {} for stage in done}
        for stage, index, why in self._verified():
            if index in left.get(stage, ()):
                left[stage].remove(index)
                if why:
                    found[stage][index] = why
        for stage, missing in left.items():
            why = f"{self._database.path}: the result of stage {stage!r} is missing"
            found[stage] |= dict.fromkeys(sorted(missing), why)
        return {(stage, index): why for stage, tasks in found.items() for index, why in tasks.items()}

    def results(self) -> list[TaskResult]:
        """What tasks returned, as far as it is whole."""
        found: list[TaskResult] = []
        with suppress(StateError):
            for stage, index, why in self._verified():
                if not why:
                    value = self.value(stage, index)
                    stored = (None, value) if isinstance(value, str) else (value, None)
                    found.append(TaskResult(stage, index, *stored))
        return found

    def problems(self) -> list[str]:
        """What is wrong with the log and its results, in lines; empty when it is whole."""
        found = self._database.problems() + self.readable()[1]
        try:
            found += [why for _, _, why in self._verified() if why]
        except StateError as error:
            found.append(str(error))
        return list(dict.fromkeys(found))

    def _verified(self) -> Iterator[tuple[str, int, str]]:
        """The tasks that have returned, as (stage, index); what is wrong with what they did, or ""."""
        after: tuple[str, int] = ("", -1)
        sound = set[str]()
        where = "WHERE (stage, task) > (?, ?) ORDER BY stage, task LIMIT ?"
        sql = f"SELECT stage, task, data, path, {self._crc} FROM results {where}"
        while rows := self._database.rows(sql, *after, _PAGE):
            for stage, index, data, path, crc in rows:
                # a damaged index may lead in circles
                if not (isinstance(stage, str) and isinstance(index, int)) or (stage, index) <= after:
                    return
                after, why = (stage, index), ""
                try:
                    value = self._whole(stage, index, data, path, crc)
                    if self._checked:
                        check_value(value, sound)
                except StateError as error:
                    why = str(error)
                yield stage, index, why

    def _values(self, which: str, stage: str, *parameters: int, scan: bool = False) -> dict[int, Value]:
        rows = self._rows(which, stage, *parameters, scan=scan)
        return {row[0]: self._whole(stage, *row) for row in rows}

    def _rows(self, which: str, stage: str, *parameters: int, scan: bool = False) -> list[Any]:
        table = "results NOT INDEXED" if scan else "results"
        sql = f"SELECT task, data, path, {self._crc} FROM {table} WHERE stage = ? {which}"
        return self._database.rows(sql, stage, *parameters)

    def _whole(self, stage: str, index: int, data: bytes | None, path: str | None, crc: int | None) -> Value:
        value = path if data is None else data
        if value is None or (self._checked and _result_crc(stage, index, data, path) != crc):
            raise self._damage(f"the result of task {index} of stage {stage!r} is damaged")
        return value

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _decode(self, number: int, kind: str, fields: str, crc: int | None) -> Event | TasksDone:
        if self._checked and _event_crc(number, kind, fields) != crc:
            raise self._damage(f"event {number} is damaged: its checksum does not match it")
        try:
            content: dict[str, Any] = json.loads(fields)
            return decode(kind, content)
        except (KeyError, TypeError, ValueError, struct.error) as error:
            raise StateError(
                f"{self._database.path}: event {number} ({kind}) cannot be read ({error}): another version of ASA "
                "wrote it, or the file is damaged"
            ) from error

    def _damage(self, what: str) -> StateError:
        return StateError(f"{self._database.path}: {what}. `asa doctor --runs` saves what can be read")


def _count(item: Event | TasksDone) -> int:
    return len(item) if isinstance(item, TasksDone) else 1


def _event_crc(number: object, kind: object, fields: object) -> int:
    return crc32(f"{number} {kind} {fields}".encode("utf-8", "surrogatepass"))


def _result_crc(stage: object, index: object, data: object, path: object) -> int:
    stored = data if isinstance(data, bytes) else f"{type(data).__name__} {path}".encode("utf-8", "surrogatepass")
    return crc32(stored, crc32(f"{index} {stage}".encode("utf-8", "surrogatepass")))
