"""What was learned, shared by all runs of a user: small JSON records that concurrent processes change one at a time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asa.log.database import Database

Record = dict[str, Any]
Change = Callable[[Record | None], Record | None]
"""From what is stored under a key (None: nothing) to what is to be stored (None: nothing). Other processes wait for it:
it must be quick."""

_VERSION = 1
_SCHEMA = (
    "CREATE TABLE records (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE seen (key TEXT NOT NULL, token TEXT NOT NULL, PRIMARY KEY (key, token)) WITHOUT ROWID",
)


class LearnedStore:
    """A table from keys to JSON records. May be used from any thread, by any number of processes.

    Parameters
    ----------
    path
        The file; made with mode 0600 when missing.

    Raises
    ------
    StateError
        When the file cannot be made, opened, read or written. Nothing is half written.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA, _VERSION)

    def get(self, key: str) -> Record | None:
        """What is stored under `key`, or None."""
        rows = self._database.rows("SELECT value FROM records WHERE key = ?", key)
        found: Record | None = json.loads(rows[0][0]) if rows else None
        return found

    def keys(self, prefix: str = "") -> list[str]:
        """All keys that begin with `prefix`, in order."""
        sql = "SELECT key FROM records WHERE substr(key, 1, ?) = ? ORDER BY key"
        rows = self._database.rows(sql, len(prefix), prefix)
        return [key for (key,) in rows]

    def update(self, key: str, change: Change) -> Record | None:
        """Store what `change` makes of the record, and return it. No other process changes it in between."""
        with self._database.transaction() as connection:
            return _apply(connection, key, change)

    def learn_once(self, key: str, token: str, change: Change) -> bool:
        """As `update`, but only the first time that this `token` teaches this `key`; whether this was the first time.

        The token of a job makes learning idempotent: a run that is resumed may report a job again.
        """
        with self._database.transaction() as connection:
            fresh = connection.execute("INSERT INTO seen VALUES (?, ?) ON CONFLICT DO NOTHING", (key, token)).rowcount
            if fresh:
                _apply(connection, key, change)
        return bool(fresh)

    def close(self) -> None:
        self._database.close()


def _apply(connection: sqlite3.Connection, key: str, change: Change) -> Record | None:
    row = connection.execute("SELECT value FROM records WHERE key = ?", (key,)).fetchone()
    before: str | None = row[0] if row else None
    record = change(None if before is None else json.loads(before))
    after = None if record is None else json.dumps(record)
    if after is None:
        connection.execute("DELETE FROM records WHERE key = ?", (key,))
    elif after != before:
        connection.execute(
            "INSERT INTO records VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, after)
        )
    return record
