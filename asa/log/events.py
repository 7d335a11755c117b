"""A run's event log: append-only, one transaction per batch, results beside the events that announce them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from asa.core.errors import StateError
from asa.core.event import Event, decode, encode
from asa.core.task import Value
from asa.log.database import Database

_VERSION = 1
_SCHEMA = (
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, fields TEXT NOT NULL)",
    "CREATE TABLE results (stage TEXT NOT NULL, task INTEGER NOT NULL, data BLOB, path TEXT, UNIQUE (stage, task))",
)
_PAGE = 1000
_to_text = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class EventLog:
    """The truth about a run: replaying it gives the run's state again.

    May be used from any thread. One process appends at a time (the run's driver lock sees to that), any number read.

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
        self._database, self._results = Database(path, _SCHEMA, _VERSION), results

    def append(self, events: Sequence[Event]) -> None:
        """Write these events and the results they carry, all of them or none.

        A task's first result stands: a second one would contradict what other tasks may have read already.

        Raises
        ------
        StateError
            When they cannot be written (full disk, read-only directory). The log is as it was before.
        """
        rows = [(kind, _to_text(fields)) for kind, fields in map(encode, events)]
        results = [result for event in events if self._results and (result := event.result) is not None]
        with self._database.transaction() as connection:
            connection.executemany("INSERT INTO events (kind, fields) VALUES (?, ?)", rows)
            connection.executemany("INSERT INTO results VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", results)

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events and their sequence numbers, those above `after`, in order; `value` says what a task returned.

        Raises
        ------
        StateError
            When an event is of a kind that this version of ASA does not know.
        """
        while page := self._database.rows(
            "SELECT seq, kind, fields FROM events WHERE seq > ? ORDER BY seq LIMIT ?", after, _PAGE
        ):
            for after, kind, fields in page:
                yield after, self._decode(after, kind, fields)

    @property
    def last(self) -> int:
        """Sequence number of the last event; 0 when there is none."""
        ((last,),) = self._database.rows("SELECT coalesce(max(seq), 0) FROM events")
        return int(last)

    def latest(self, *kinds: type[Event]) -> Event | None:
        """The last event of one of these kinds, or None."""
        marks = ", ".join("?" * len(kinds))
        rows = self._database.rows(
            f"SELECT seq, kind, fields FROM events WHERE kind IN ({marks}) ORDER BY seq DESC LIMIT 1",
            *(kind.__name__ for kind in kinds),
        )
        return self._decode(*rows[0]) if rows else None

    def value(self, stage: str, index: int) -> Value:
        """What a task returned.

        Raises
        ------
        KeyError
            When it has not returned.
        """
        return self.values(stage, index, index + 1)[0]

    def values(self, stage: str, start: int, stop: int) -> list[Value]:
        """What the tasks `start` to `stop` - 1 of a stage returned, in order.

        Raises
        ------
        KeyError
            When one of them has not returned.
        """
        rows = self._database.rows(
            "SELECT task, data, path FROM results WHERE stage = ? AND task BETWEEN ? AND ?", stage, start, stop - 1
        )
        found: dict[int, Value] = {task: path if data is None else data for task, data, path in rows}
        return [found[index] for index in range(start, stop)]

    def all_values(self, stage: str) -> list[Value]:
        """What the tasks of a stage returned that have returned, in order."""
        rows = self._database.rows("SELECT data, path FROM results WHERE stage = ? ORDER BY task", stage)
        return [path if data is None else data for data, path in rows]

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _decode(self, number: int, kind: str, fields: str) -> Event:
        try:
            content: dict[str, Any] = json.loads(fields)
            return decode(kind, content)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"{self._database.path}: event {number} ({kind}) cannot be read ({error}): another version of ASA "
                "wrote it, or the file is damaged"
            ) from error
