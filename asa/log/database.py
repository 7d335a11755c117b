"""SQLite files, made whole, with errors that say what to do; and what was learned, which is kept in one of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The mounts that a text in the format of ``/proc/self/mountinfo`` lists.

    References
    ----------
    proc_pid_mountinfo(5).

    Examples
    --------
    >>> parse_mounts(r"36 35 98:0 / /my\\040disk rw,noatime master:1 - ext3 /dev/root rw")
    [Mount(number=36, parent=35, point=PurePosixPath('/my disk'), kind='ext3')]
    """
    mounts = []
    for line in mountinfo.splitlines():
        mounted, _, source = line.partition(" - ")
        number, parent, _, _, point, *_ = mounted.split(" ")
        path = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point)
        mounts.append(Mount(int(number), int(parent), PurePosixPath(path), source.split(" ")[0]))
    return mounts


def mount_of(path: PurePosixPath, mounts: list[Mount]) -> Mount | None:
    """The mount that holds an absolute `path` free of links, or None when none of them does.

    Follows the tree of mounts as a path is walked, so that a mount hidden under a later one does not count.
    """
    numbers = {mount.number for mount in mounts}
    covering = [mount for mount in mounts if path.is_relative_to(mount.point)]
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
    mount = mount_of(PurePosixPath(path.resolve()), parse_mounts(mountinfo))
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
    process. Elsewhere it keeps a rollback journal, synchronised at each commit.

    Parameters
    ----------
    path
        The file, mode 0600.
    schema
        Statements that make the tables.
    busy_s
        How long to wait for other processes [s].
    outlasts
        Whether it is to outlast the machine. If not, nothing is ever synchronised: that of a temporary directory.

    Raises
    ------
    StateError
        When the file cannot be made or opened, is open to other users, or has another version.
    """

    def __init__(
        self, path: Path, schema: Sequence[str], version: int, *, busy_s: float = 30.0, outlasts: bool = True
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
                self._check_version(version)
            except BaseException:
                self._connection.close()
                raise

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        """All rows of a query, at once: a slow reader never keeps a writer waiting."""
        with self._lock, self._explained():
            return self._connection.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of the block is written, or, when it raises, nothing. Other writers wait from its first line on."""
        with self._lock, self._explained():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise

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

    def _check_version(self, version: int) -> None:
        ((found,),) = self._connection.execute("PRAGMA user_version").fetchall()
        if found != version:
            writer = "a newer" if found > version else "an older"
            raise StateError(
                f"{self.path} has format {found}, this version of ASA reads {version}: {writer} version wrote it, so "
                "use that one, or move the file away"
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.DatabaseError as error:
            primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
            advice = _ADVICE.get(primary, "SQLite refused").format(directory=self.path.parent)
            raise StateError(f"{self.path}: {advice} ({error})") from error


Record = dict[str, Any]
Change = Callable[[Record | None], Record | None]
"""From what is stored under a key (None: nothing) to what is to be stored (None: nothing). Other processes wait for it:
it must be quick."""

_STORE_VERSION = 1
_STORE_SCHEMA = (
    "CREATE TABLE records (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE seen (key TEXT NOT NULL, token TEXT NOT NULL, PRIMARY KEY (key, token)) WITHOUT ROWID",
)


class LearnedStore:
    """A table from keys to JSON records. May be used from any thread, by any number of processes.

    Raises
    ------
    StateError
        When the file cannot be made, opened, read or written. Nothing is half written.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _STORE_SCHEMA, _STORE_VERSION)

    def get(self, key: str) -> Record | None:
        rows = self._database.rows("SELECT value FROM records WHERE key = ?", key)
        found: Record | None = json.loads(rows[0][0]) if rows else None
        return found

    def keys(self, prefix: str = "") -> list[str]:
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
