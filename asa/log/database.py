"""SQLite files, made whole, with errors that say what to do; and what was learned, which is kept in one of them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import sqlite3
import threading
from binascii import crc32
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from asa.core.errors import StateError
from asa.security.files import cannot, check_private

_LOCAL = {
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs",
}  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/self/mountinfo``."""

    number: int
    parent: int
    point: PurePosixPath
    kind: str


@lru_cache(maxsize=2)
def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """The mounts that a text in the format of ``/proc/self/mountinfo`` lists.

    References
    ----------
    proc_pid_mountinfo(5).

    Examples
    --------
    >>> parse_mounts(r"36 35 98:0 / /my\\040disk rw,noatime master:1 - ext3 /dev/root rw")
    (Mount(number=36, parent=35, point=PurePosixPath('/my disk'), kind='ext3'),)
    """
    mounts = []
    for line in mountinfo.splitlines():
        mounted, _, source = line.partition(" - ")
        number, parent, _, _, point, *_ = mounted.split(" ")
        path = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point)
        mounts.append(Mount(int(number), int(parent), PurePosixPath(path), source.split(" ")[0]))
    return tuple(mounts)


def mount_of(path: PurePosixPath, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that holds an absolute `path` free of links, or None when none of them does.

    Follows the tree of mounts as a path is walked, so that a mount hidden under a later one does not count.
    """
    numbers = {mount.number for mount in mounts}
    above = {path, *path.parents}
    covering = [mount for mount in mounts if mount.point in above]
    within: Mount | None = None
    met = [mount for mount in covering if mount.parent not in numbers or mount.parent == mount.number]
    while met:
        within = min(met, key=lambda mount: len(mount.point.parts))
        met = [mount for mount in covering if mount.parent == within.number and mount is not within]
    return within


def is_local(path: Path) -> bool:
    """Whether `path` lies on a file system of this machine alone, such as SQLite's write-ahead log needs.

    False for network and parallel file systems (NFS, Lustre, GPFS, BeeGFS), for FUSE, and for whatever is not known.
    """
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    return _is_on_local_mount(path.resolve(), mountinfo)


@lru_cache(maxsize=16)
def _is_on_local_mount(path: PurePosixPath, mountinfo: str) -> bool:
    mount = mount_of(path, parse_mounts(mountinfo))
    return mount is not None and mount.kind in _LOCAL


_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space in {directory}, then try again",
    sqlite3.SQLITE_IOERR: "the disk failed, or a quota or file-size limit (ulimit -f) is used up in {directory}",
    sqlite3.SQLITE_READONLY: "it cannot be written: check the permissions of {directory}, or set ASA_STATE_DIR",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check the permissions of {directory}, or set ASA_STATE_DIR",
    sqlite3.SQLITE_BUSY: "another process keeps it locked: wait for that process, or stop it",
    sqlite3.SQLITE_PROTOCOL: "{directory} does not support file locks: set ASA_STATE_DIR to one that does",
    sqlite3.SQLITE_CORRUPT: "it is damaged: move it away, or restore it from a copy",
    sqlite3.SQLITE_NOTADB: "it is no database of ASA: move it away, or choose another place",
}


class Database:
    """A connection that may be used from any thread; made, with its tables, when the file is missing.

    On a local file system it keeps a write-ahead log, synchronised at checkpoints: a commit survives the death of the
    process, and a `lasting` one that of the machine, with all before it. Elsewhere it keeps a rollback journal,
    synchronised at each commit.

    Parameters
    ----------
    path
        The file, mode 0600.
    schema
        Statements that make the tables.
    version
        Of what is made.
    reads
        Older versions that the caller knows, too.
    busy_s
        How long to wait for other processes [s].
    outlasts
        Whether it is to outlast the machine. If not, nothing is ever synchronised: that of a temporary directory.

    Attributes
    ----------
    version
        Of the file.

    Raises
    ------
    StateError
        When the file cannot be made or opened, is open to other users, or has another version.
    """

    def __init__(
        self,
        path: Path,
        schema: Sequence[str],
        version: int,
        *,
        reads: Sequence[int] = (),
        busy_s: float = 30.0,
        outlasts: bool = True,
    ) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._busy_s = busy_s
        self._journal, self._synchronous = ("wal", "normal") if is_local(path.parent) else ("delete", "full")
        if not outlasts:
            self._synchronous = "off"
        with self._explained():
            if not path.exists():
                self._create(schema, version)
            check_private(path)
            self._connection = self._connect(path)
            try:
                self.version = self._check_version(version, reads)
                self._file = _identity(path)
            except BaseException:
                self._connection.close()
                raise

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        """All rows of a query, at once: a slow reader never keeps a writer waiting."""
        with self._lock, self._explained():
            return self._connection.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def transaction(self, *, lasting: bool = False) -> Iterator[sqlite3.Connection]:
        """All of the block is written, or, when it raises, nothing. Other writers wait from its first line on.

        Parameters
        ----------
        lasting
            Return only when it would survive a power failure.

        Raises
        ------
        StateError
            When it cannot be written; when the file was deleted or moved meanwhile, which SQLite does not notice.
        """
        with self._lock, self._explained():
            syncs = lasting and self._synchronous == "normal"
            if syncs:
                self._connection.execute("PRAGMA synchronous = full")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
                if _identity(self.path) != self._file:
                    raise StateError(f"{self.path} was deleted or moved while it was in use: what is written is lost")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                if syncs:
                    self._connection.execute("PRAGMA synchronous = normal")

    def problems(self) -> list[str]:
        """What SQLite finds wrong with the structure of the file; empty when it is whole."""
        try:
            found = [str(line) for (line,) in self.rows("PRAGMA integrity_check(20)")]
        except StateError as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def close(self) -> None:
        with self._lock, self._explained():
            self._connection.close()

    def _create(self, schema: Sequence[str], version: int) -> None:
        """Make the file under another name and link it into place: no process ever sees one without its tables."""
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            os.mknod(draft, 0o600)  # SQLite would make it with the umask's mode
            try:
                self._fill(draft, schema, version)
                with contextlib.suppress(FileExistsError):  # another process was faster: its file is as good
                    os.link(draft, self.path)
            finally:
                for leftover in ("", "-wal", "-shm", "-journal"):
                    draft.with_name(draft.name + leftover).unlink(missing_ok=True)
        except OSError as error:
            raise cannot("write", self.path, error) from error

    def _fill(self, path: Path, schema: Sequence[str], version: int) -> None:
        connection = self._connect(path)
        try:
            connection.execute("BEGIN")
            for statement in (*schema, f"PRAGMA user_version = {version:d}"):
                connection.execute(statement)
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA journal_mode = {self._journal}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_version(self, version: int, reads: Sequence[int]) -> int:
        ((found,),) = self._connection.execute("PRAGMA user_version").fetchall()
        if found != version and found not in reads:
            writer = "a newer" if found > version else "an older"
            raise StateError(
                f"{self.path} has format {found}, this version of ASA reads {version}: {writer} version wrote it, so "
                "use that one, or move the file away"
            )
        return int(found)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except (UnicodeDecodeError, OverflowError) as error:  # of names and numbers in a damaged file
            advice = _ADVICE[sqlite3.SQLITE_CORRUPT]
            raise StateError(f"{self.path}: {advice} ({error})") from error
        except sqlite3.DatabaseError as error:
            primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
            advice = _ADVICE.get(primary, "SQLite refused").format(directory=self.path.parent)
            raise StateError(f"{self.path}: {advice} ({error})") from error


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


Record = dict[str, Any]
Change = Callable[[Record | None], Record | None]
"""From what is stored under a key (None: nothing) to what is to be stored (None: nothing). No process waits for it. It
may be called again, with what another process has stored meanwhile, so it must come to the same each time."""

_STORE_VERSION = 3
"""1 had no checksums, 2 none of lessons."""
_STORE_SCHEMA = (
    "CREATE TABLE records (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE seen (key TEXT NOT NULL, token TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (key, token))"
    " WITHOUT ROWID",
)
TRIES = 5
"""How often a change is made before a store is locked for it: others may be faster, but not for ever."""

_log = logging.getLogger(__name__)


class LearnedStore:
    """A table from keys to JSON records, each with a checksum. May be used from any thread, by any number of processes.

    A record that is damaged counts as none, which is logged; so does a lesson, which may be learned again. `problems`
    names both.

    Raises
    ------
    StateError
        When the file cannot be made, opened, read or written. Nothing is half written.
    """

    def __init__(self, path: Path, *, busy_s: float = 30.0) -> None:
        self._database = Database(path, _STORE_SCHEMA, _STORE_VERSION, reads=(1, 2), busy_s=busy_s)
        if self._database.version != _STORE_VERSION:
            self._add_checksums()

    def get(self, key: str) -> Record | None:
        found: Record | None = self._read(key)[1]
        return found

    def keys(self, prefix: str = "") -> list[str]:
        sql = "SELECT CAST(key AS BLOB) FROM records WHERE substr(key, 1, ?) = ? ORDER BY key"
        rows = self._database.rows(sql, len(prefix), prefix)
        return [(key or b"").decode(errors="replace") for (key,) in rows]  # one that is damaged hides no other

    def update(self, key: str, change: Change) -> Record | None:
        """Store what `change` makes of the record, and return it. No other process changes it in between."""
        return self._change(key, None, change)[1]

    def learn_once(self, key: str, token: str, change: Change) -> bool:
        """As `update`, but only the first time that this `token` teaches this `key`; whether this was the first time.

        The token of a job makes learning idempotent: a run that is resumed may report a job again.
        """
        return self._change(key, token, change)[0]

    def damaged(self) -> list[str]:
        """Keys of records that cannot be read."""
        rows = self._database.rows("SELECT CAST(key AS BLOB), CAST(value AS BLOB), crc FROM records ORDER BY key")
        return [str(key or b"", errors="replace") for key, value, crc in rows if _crc(key, value) != crc]

    def problems(self) -> list[str]:
        """What is wrong with the file, in lines; empty when it is whole."""
        path, found = self._database.path, self._database.problems()
        if not found:
            found = [f"{path}: the record {key!r} is damaged" for key in self.damaged()]
            lessons = self._lessons()
            if damaged := len(lessons) - len(_whole(lessons)):
                found.append(f"{path}: which jobs have been learned from is damaged for {damaged} of them")
        return found

    def _lessons(self) -> list[Any]:
        return self._database.rows("SELECT CAST(key AS BLOB), CAST(token AS BLOB), crc FROM seen")

    def copy_to(self, other: LearnedStore) -> int:
        """Give another store every record that can be read, and every lesson that was counted; how many records."""
        readable = 0
        for key in self.keys():
            if (record := self.get(key)) is not None:
                other.update(key, lambda _, record=record: record)  # type: ignore[misc]
                readable += 1
        with contextlib.suppress(StateError):
            seen = [(key.decode(), token.decode(), crc) for key, token, crc in _whole(self._lessons())]
            with other._database.transaction() as connection:
                connection.executemany("INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING", seen)
        return readable

    def close(self) -> None:
        self._database.close()

    def _change(self, key: str, token: str | None, change: Change) -> tuple[bool, Record | None]:
        """Whether a lesson was news, and what is stored now."""
        for _ in range(TRIES):
            if token is not None and self._database.rows("SELECT 1 FROM seen WHERE key = ? AND token = ?", key, token):
                return False, None
            before, record = self._read(key)
            record = change(record)
            with self._database.transaction() as connection:
                if connection.execute(_READ, (key,)).fetchone() == before:
                    return _store(connection, key, token, record), record
        with self._database.transaction() as connection:  # with so many writers only a lock helps
            record = change(self._read(key)[1])
            return _store(connection, key, token, record), record

    def _read(self, key: str) -> tuple[tuple[Any, ...] | None, Record | None]:
        """A record as it is stored, and as it is meant: None where it is damaged."""
        rows = self._database.rows(_READ, key)
        if not rows:
            return None, None
        value, crc = rows[0]
        if value is None or _crc(key.encode(), value) != crc:
            _log.warning("%s: what is stored under %r is damaged, and counts as nothing", self._database.path, key)
            return rows[0], None
        found: Record = json.loads(value)
        return rows[0], found

    def _add_checksums(self) -> None:
        """Make a store of an older version one of this version."""
        with self._database.transaction() as connection:
            ((found,),) = connection.execute("PRAGMA user_version").fetchall()
            for table, second, since in (("records", "value", 2), ("seen", "token", 3)):
                if found < since:  # no other process was faster
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
                    sql = f"SELECT CAST(key AS BLOB), CAST({second} AS BLOB), key, {second} FROM {table}"
                    sums = [(_crc(*row[:2]), *row[2:]) for row in connection.execute(sql).fetchall()]
                    connection.executemany(f"UPDATE {table} SET crc = ? WHERE key = ? AND {second} = ?", sums)
            connection.execute(f"PRAGMA user_version = {_STORE_VERSION:d}")


_READ = "SELECT CAST(value AS BLOB), crc FROM records WHERE key = ?"


def _crc(key: bytes | None, value: bytes | None) -> int:
    return crc32(value or b"", crc32(key or b""))  # a damaged row may have nothing there


def _whole(rows: Sequence[Any]) -> list[Any]:
    """Those rows of a key, what belongs to it and their checksum in which that is right."""
    return [row for row in rows if _crc(row[0], row[1]) == row[2]]


def _store(connection: sqlite3.Connection, key: str, token: str | None, record: Record | None) -> bool:
    """Write a record; whether it was news."""
    if token is not None:
        lesson = key, token, _crc(key.encode(), token.encode())
        done = connection.execute("INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING", lesson).rowcount
        if not done:
            return False
    if record is None:
        connection.execute("DELETE FROM records WHERE key = ?", (key,))
    else:
        value = json.dumps(record)
        sql = "ON CONFLICT (key) DO UPDATE SET value = excluded.value, crc = excluded.crc"
        crc = _crc(key.encode(), value.encode())
        connection.execute(f"INSERT INTO records VALUES (?, ?, ?) {sql}", (key, value, crc))
    return True
