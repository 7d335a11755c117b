"""Which runs of a state directory have the result of which call: a table from what a call is to where its result lies.

It holds no result: that is in the run's own store. Nothing in it is needed to run anything: where it cannot be read,
the call runs.
"""

from __future__ import annotations

import json
import os
from binascii import crc32
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from asa.log.database import Database
from asa.log.rundir import named_limits

REUSE_VERSION = 1
VARIABLE = "ASA_REUSE_KEEP"

_SCHEMA = (
    "CREATE TABLE sources (id INTEGER PRIMARY KEY, run TEXT NOT NULL, stage TEXT NOT NULL, at REAL NOT NULL,"
    " code TEXT NOT NULL, UNIQUE (run, stage))",
    "CREATE TABLE calls (key BLOB NOT NULL, source INTEGER NOT NULL, task INTEGER NOT NULL, value BLOB NOT NULL,"
    " files TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (key, source)) WITHOUT ROWID",
)
_ASKED = 400
"""Keys that are looked for together."""
_BUSY_S = 5.0
_DAY_S = 86400.0
_MARGIN = 0.9

State = Any
"""How a file is: its size [bytes] and time of change [ns], or a number for its contents."""
Files = Mapping[str, State]


class Known(NamedTuple):
    """Where the result of a call lies.

    Parameters
    ----------
    run, stage, task
        The task that returned it.
    value
        A number for what it returned.
    files
        Files that it was given or has returned, and how each was then.
    """

    run: str
    stage: str
    task: int
    value: bytes
    files: Files


@dataclass(frozen=True)
class KeepLimits:
    """How much a store keeps: what is oldest goes first.

    Parameters
    ----------
    calls
        Calls at most.
    days
        How long they are kept [days].
    size
        How large the file may be [bytes].
    """

    calls: int = 1_000_000
    days: float = 365.0
    size: float = 1e9

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> KeepLimits:
        """What the environment asks for, as in ``ASA_REUSE_KEEP=calls=100000,days=30,size=2e8``.

        Raises
        ------
        InvalidInput
            When it cannot be read.
        """
        given = named_limits(VARIABLE, ("calls", "days", "size"), environ)
        limits = cls(**given)  # type: ignore[arg-type]
        return cls(int(limits.calls), limits.days, limits.size)


StageCalls = tuple[str, Mapping[str, str], Sequence[tuple[bytes, int, bytes, Files]]]
"""A stage; the code that it consists of; and of each task that returned its key, its index, a number for its value, and
its files."""


class ReuseStore:
    """Calls that have succeeded, by key. May be used by any number of processes.

    A row that is damaged counts as none.

    Raises
    ------
    StateError
        When the file cannot be made, opened, read or written, or has another version.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA, REUSE_VERSION, busy_s=_BUSY_S)

    def look_up(self, keys: Sequence[bytes]) -> dict[bytes, list[Known]]:
        """Where results of these calls lie, the latest first."""
        found: dict[bytes, list[Known]] = {}
        for first in range(0, len(keys), _ASKED):
            some = keys[first : first + _ASKED]
            sql = (
                "SELECT key, source, task, value, CAST(files AS BLOB), crc, CAST(run AS BLOB), CAST(stage AS BLOB)"
                " FROM calls JOIN sources ON source = id"
                f" WHERE key IN ({','.join('?' * len(some))}) ORDER BY source DESC"
            )
            for key, source, task, value, files, crc, run, stage in self._database.rows(sql, *some):
                if type(value) is bytes and type(files) is bytes and _crc(key, source, task, value, files) == crc:
                    known = Known(run.decode(), stage.decode(), task, value, json.loads(files) if files else {})
                    found.setdefault(key, []).append(known)
        return found

    def add(self, run: str, stages: Iterable[StageCalls], now: float) -> None:
        """Tasks of a run's stages have returned."""
        with self._database.transaction() as connection:
            sql = (
                "INSERT INTO sources (run, stage, at, code) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET at = excluded.at, code = excluded.code RETURNING id"
            )
            for stage, code, calls in stages:
                ((source,),) = connection.execute(sql, (run, stage, now, json.dumps(code))).fetchall()
                rows = []
                for key, task, value, files in calls:
                    text = json.dumps(files, separators=(",", ":")) if files else ""
                    rows.append((key, source, task, value, text, _crc(key, source, task, value, text.encode())))
                connection.executemany("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?)", rows)

    def code(self, stage: str) -> dict[str, dict[str, str]]:
        """What a stage of this name consisted of, by run, the latest first."""
        sql = "SELECT CAST(run AS BLOB), code FROM sources WHERE stage = ? ORDER BY id DESC"
        return {run.decode(): json.loads(code) for run, code in self._database.rows(sql, stage)}

    def count(self) -> int:
        ((found,),) = self._database.rows("SELECT count(*) FROM calls")
        return int(found)

    def prune(self, limits: KeepLimits, exists: Callable[[str], bool], now: float) -> str:
        """Forget calls of runs that do not exist, and then, oldest stages first, what is too much; what went, or ""."""
        went: list[str] = []
        sources = self._database.rows("SELECT id, run, at FROM sources ORDER BY at, id")
        gone = {run for run in {run for _, run, _ in sources} if not exists(run)}
        old = now - limits.days * _DAY_S
        went += self._forget([number for number, run, _ in sources if run in gone], "of runs that were removed")
        went += self._forget(
            [number for number, run, at in sources if run not in gone and at < old], f"older than {limits.days:g} days"
        )
        kept = [number for number, run, at in sources if run not in gone and at >= old]
        pages, page, free = (self._database.rows(f"PRAGMA {name}")[0][0] for name in _PAGES)
        calls, size = self.count(), (pages - free) * page
        if calls > limits.calls or size > limits.size:
            counts = dict(self._database.rows("SELECT source, count(*) FROM calls GROUP BY source"))
            most = _MARGIN * min(limits.calls, limits.size / size * calls)
            doomed = []
            for number in kept[:-1] if calls else []:  # never what has just been written
                if calls <= most:
                    break
                doomed.append(number)
                calls -= counts.get(number, 0)
            went += self._forget(doomed, f"the oldest of more than {limits.calls} calls or {limits.size:g} bytes")
        return "; ".join(went)

    def _forget(self, sources: Sequence[int], why: str) -> list[str]:
        if not sources:
            return []
        count = 0
        with self._database.transaction() as connection:
            for first in range(0, len(sources), _ASKED):
                some = sources[first : first + _ASKED]
                marks = ",".join("?" * len(some))
                count += connection.execute(f"DELETE FROM calls WHERE source IN ({marks})", some).rowcount
                connection.execute(f"DELETE FROM sources WHERE id IN ({marks})", some)
        return [f"{count} calls {why} are forgotten"] if count else []

    def close(self) -> None:
        self._database.close()


_PAGES = ("page_count", "page_size", "freelist_count")


def _crc(key: bytes, source: int, task: int, value: bytes, files: bytes) -> int:
    return crc32(files, crc32(value, crc32(b"%d %d" % (source, task), crc32(key))))
