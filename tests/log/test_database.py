import multiprocessing
import os
import sqlite3
import stat

import pytest

from asa.core.errors import StateError
from asa.log import database
from asa.log.database import Database

SCHEMA = ("CREATE TABLE t (a INTEGER)", "CREATE TABLE u (b TEXT)")


def test_made_with_its_tables_private_and_without_leftovers(tmp_path):
    opened = Database(tmp_path / "x.db", SCHEMA, 3)
    assert opened.rows("SELECT name FROM sqlite_master ORDER BY name") == [("t",), ("u",)]
    with opened.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    opened.close()
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


def test_umask_does_not_open_the_file(tmp_path):
    before = os.umask(0)
    try:
        Database(tmp_path / "x.db", SCHEMA, 1)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(("local", "journal", "synchronous"), [(True, "wal", 1), (False, "delete", 2)])
def test_journal_depends_on_the_file_system(tmp_path, monkeypatch, local, journal, synchronous):
    monkeypatch.setattr(database, "is_local", lambda path: local)
    opened = Database(tmp_path / "x.db", SCHEMA, 1)
    assert opened.rows("PRAGMA journal_mode") == [(journal,)]
    assert opened.rows("PRAGMA synchronous") == [(synchronous,)]


def test_a_file_that_moved_to_a_shared_file_system_loses_its_write_ahead_log(tmp_path, monkeypatch):
    Database(tmp_path / "x.db", SCHEMA, 1).close()
    monkeypatch.setattr(database, "is_local", lambda path: False)
    assert Database(tmp_path / "x.db", SCHEMA, 1).rows("PRAGMA journal_mode") == [("delete",)]


def test_a_transaction_that_raises_writes_nothing(tmp_path):
    opened = Database(tmp_path / "x.db", SCHEMA, 1)

    def fail_halfway():
        with opened.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert opened.rows("SELECT * FROM t") == []
    with opened.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (2)")
    assert opened.rows("SELECT * FROM t WHERE a = ?", 2) == [(2,)]


def test_a_locked_file_says_so(tmp_path):
    first = Database(tmp_path / "x.db", SCHEMA, 1)
    second = Database(tmp_path / "x.db", SCHEMA, 1, busy_s=0.01)
    with first.transaction(), pytest.raises(StateError, match="keeps it locked"), second.transaction():
        pass


@pytest.mark.parametrize(("found", "age"), [(2, "a newer version"), (0, "an older version")])
def test_another_version_is_refused(tmp_path, found, age):
    Database(tmp_path / "x.db", SCHEMA, 1).close()
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute(f"PRAGMA user_version = {found}")
    connection.close()
    with pytest.raises(StateError, match=rf"x\.db has format {found}.* reads 1: {age}"):
        Database(tmp_path / "x.db", SCHEMA, 1)


def test_something_else_is_refused(tmp_path):
    (tmp_path / "x.db").write_bytes(b"no database at all\n" * 100)
    (tmp_path / "x.db").chmod(0o600)
    with pytest.raises(StateError, match=r"x\.db: it is no database of ASA"):
        Database(tmp_path / "x.db", SCHEMA, 1)


def test_damage_is_named(tmp_path):
    opened = Database(tmp_path / "x.db", SCHEMA, 1)
    with opened.transaction() as connection:
        connection.executemany("INSERT INTO u VALUES (?)", [("text" * 100,)] * 500)
    opened.close()
    content = bytearray((tmp_path / "x.db").read_bytes())
    content[4096 * 2 :] = b"\xff" * (len(content) - 4096 * 2)
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(StateError, match="it is damaged"):
        Database(tmp_path / "x.db", SCHEMA, 1).rows("SELECT * FROM u")


def test_open_to_others_and_links_are_refused(tmp_path):
    Database(tmp_path / "x.db", SCHEMA, 1).close()
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")
    with pytest.raises(StateError, match="symbolic link"):
        Database(tmp_path / "link.db", SCHEMA, 1)
    (tmp_path / "dangling.db").symlink_to(tmp_path / "absent.db")
    with pytest.raises(StateError, match="symbolic link"):
        Database(tmp_path / "dangling.db", SCHEMA, 1)
    (tmp_path / "x.db").chmod(0o640)
    with pytest.raises(StateError, match="open to other users"):
        Database(tmp_path / "x.db", SCHEMA, 1)


def test_read_only_directory(ordinary_user):
    opened = Database(ordinary_user / "x.db", SCHEMA, 1)
    opened.close()
    ordinary_user.chmod(0o500)
    with pytest.raises(StateError, match=r"cannot write .*new\.db: Permission denied.*ASA_STATE_DIR"):
        Database(ordinary_user / "new.db", SCHEMA, 1)
    with pytest.raises(StateError, match=r"x\.db: it cannot be (opened|written): check the permissions"):
        Database(ordinary_user / "x.db", SCHEMA, 1)


def test_absent_directory(tmp_path):
    with pytest.raises(StateError, match=r"cannot write .*x\.db: No such file"):
        Database(tmp_path / "absent" / "x.db", SCHEMA, 1)


def insert(path, barrier):
    barrier.wait()
    opened = Database(path, SCHEMA, 1)
    with opened.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")


def test_many_processes_make_the_same_file(tmp_path):
    context = multiprocessing.get_context("fork")
    for attempt in range(5):
        path, barrier = tmp_path / f"{attempt}.db", context.Barrier(4)
        processes = [context.Process(target=insert, args=(path, barrier)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 4
        assert Database(path, SCHEMA, 1).rows("SELECT count(*) FROM t") == [(4,)]
