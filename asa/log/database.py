"""One SQLite file: made whole, safe on shared file systems, with errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from asa.core.errors import StateError
from asa.log.filesystem import is_local
from asa.security.files import cannot, check_private

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
    version
        Version of the schema, >= 1; kept in the file.
    busy_s
        How long to wait for other processes [s].

    Raises
    ------
    StateError
        When the file cannot be made or opened, is open to other users, or has another version.
    """

    def __init__(self, path: Path, schema: Sequence[str], version: int, *, busy_s: float = 30.0) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._busy_s = busy_s
        self._journal, self._synchronous = ("wal", "normal") if is_local(path.parent) else ("delete", "full")
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
        """All rows of a query, at once: a reader that dawdles never keeps a writer waiting."""
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
        """Make the file under another name and link it into place: nobody ever sees one without its tables."""
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
            connection.execute(f"PRAGMA journal_mode = {self._journal}")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
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
