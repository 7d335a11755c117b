"""What a master or an agent must not forget: rows, found by table and key, in one SQLite file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from asa.core.errors import StateError
from asa.log.database import Database, is_local
from executors.mesos.codec import encode
from executors.mesos.effects import KeepRow

_SCHEMA = (
    # Rows keep the number that they were first written under: they come back in the order in which they came to be.
    "CREATE TABLE kept (number INTEGER PRIMARY KEY, part TEXT NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL)",
    "CREATE UNIQUE INDEX found ON kept (part, key)",
)
_VERSION = 1
_WRITE = "INSERT INTO kept (part, key, row) VALUES (?, ?, ?) ON CONFLICT (part, key) DO UPDATE SET row = excluded.row"
_REMOVE = "DELETE FROM kept WHERE part = ? AND key = ?"


class Entry(NamedTuple):
    """A `KeepRow` as it is written, in ASCII: what its row came from may change, and its key may be no Unicode."""

    table: str
    key: str
    row: str | None


def entries(keeps: Iterable[KeepRow]) -> list[Entry]:
    """What `Journal.write` takes.

    >>> entries([KeepRow("tasks", "t1", {"state": "TASK_RUNNING"}), KeepRow("tasks", "t0", None)])[0]
    Entry(table='tasks', key='t1', row='{"state":"TASK_RUNNING"}')
    """
    return [
        Entry(table, json.dumps(key)[1:-1], None if row is None else encode(row).decode()) for table, key, row in keeps
    ]


class Journal:
    """The file, of mode 0600; made when it is missing. May be used from any thread. `holds` is what it knows of, in
    words.

    What was kept survives the death of the process and, where the file is not on a disk of this machine, the machine's,
    unless it need not: `outlasts` as in `Database`.

    Raises
    ------
    StateError
        When it cannot be made, opened or written, is damaged, or is open to other users.
    """

    def __init__(self, path: Path, holds: str = "what was there before", *, outlasts: bool = True) -> None:
        self.path, self._holds = path, holds
        self.quick = is_local(path.parent)
        """Whether a transaction takes a fraction of a millisecond, rather than a server's time."""
        self._database = Database(path, _SCHEMA, _VERSION, outlasts=outlasts)

    def rows(self) -> list[KeepRow]:
        """All rows, in the order in which each was first written."""
        found = self._database.rows("SELECT part, key, row FROM kept ORDER BY number")
        with self.reading():
            return [KeepRow(str(part), json.loads(f'"{key}"'), _row(text)) for part, key, text in found]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What goes wrong in here with its rows is the file's fault."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"{self.path} is damaged ({error!r}): restore it from a copy, or move it away, after which nothing is "
                f"known of {self._holds}"
            ) from error

    def keep(self, keeps: Sequence[KeepRow]) -> None:
        """Write or remove these rows, all of them or, when it raises, none."""
        self.write(entries(keeps))

    def write(self, entries: Sequence[Entry]) -> None:
        last = {(entry.table, entry.key): entry.row for entry in entries}
        if not last:
            return
        with self._database.transaction() as connection:
            if written := [(*found, row) for found, row in last.items() if row is not None]:
                connection.executemany(_WRITE, written)
            if removed := [found for found, row in last.items() if row is None]:
                connection.executemany(_REMOVE, removed)

    def close(self) -> None:
        self._database.close()


def _row(text: str) -> dict[str, object]:
    row = json.loads(text)
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, found {type(row).__name__}")
    return row
