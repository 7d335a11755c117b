import json
import multiprocessing
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import StateError
from executors.mesos.effects import KeepRow
from executors.mesos.journal import Journal, entries

TABLES = st.sampled_from(["frameworks", "tasks"])
KEYS = st.text(st.characters() | st.sampled_from('"\\\0\ud800'), max_size=3)  # half a character, as JSON may have it
ROWS = st.none() | st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)
KEEPS = st.lists(st.builds(KeepRow, TABLES, KEYS, ROWS), max_size=6)


def modelled(transactions: list[list[KeepRow]]) -> list[KeepRow]:
    """The same with a dictionary: a row keeps its place until it is removed."""
    found: dict[tuple[str, str], Any] = {}
    for keeps in transactions:
        last = {(table, key): row for table, key, row in keeps}
        for place, row in last.items():
            if row is None:
                found.pop(place, None)
            else:
                found[place] = row
    return [KeepRow(*place, row) for place, row in found.items()]


@given(transactions=st.lists(KEEPS, max_size=5))
def test_what_was_kept_comes_back_in_order(
    transactions: list[list[KeepRow]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("pool") / "master.db"
    journal = Journal(path)
    for keeps in transactions:
        journal.keep(keeps)
    assert journal.rows() == modelled(transactions)
    journal.close()
    again = Journal(path)
    assert again.rows() == modelled(transactions)
    again.close()


def test_a_row_may_change_once_it_is_an_entry(tmp_path: Path) -> None:
    row = {"state": "TASK_STAGING"}
    made = entries([KeepRow("tasks", "t1", row)])
    row["state"] = "TASK_RUNNING"
    journal = Journal(tmp_path / "master.db")
    journal.write(made)
    assert journal.rows() == [KeepRow("tasks", "t1", {"state": "TASK_STAGING"})]
    journal.close()


def _keep_and_die(path: Path) -> None:
    journal = Journal(path)
    journal.keep([KeepRow("tasks", "t1", {"n": 1})])
    journal.keep([KeepRow("tasks", "t1", {"n": 2}), KeepRow("tasks", "t2", {"n": 1})])
    os.kill(os.getpid(), signal.SIGKILL)


def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_keep_and_die, args=(tmp_path / "master.db",))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    journal = Journal(tmp_path / "master.db")
    assert journal.rows() == [KeepRow("tasks", "t1", {"n": 2}), KeepRow("tasks", "t2", {"n": 1})]
    journal.close()


def test_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "master.db")
    journal.keep([KeepRow("tasks", "t1", {"n": 1})])
    with pytest.raises(ValueError, match="JSON"):
        journal.keep([KeepRow("tasks", "t1", {"n": 2}), KeepRow("tasks", "t2", {"n": float("nan")})])
    assert journal.rows() == [KeepRow("tasks", "t1", {"n": 1})]
    journal.close()


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"a":'])
def test_a_damaged_row_says_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    journal = Journal(path)
    journal.keep([KeepRow("tasks", "t1", {"n": 1})])
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE kept SET row = ?", (text,))
    connection.close()
    again = Journal(path, "what runs here")
    with pytest.raises(StateError, match=r"master\.db is damaged .* move it away, .* known of what runs here$"):
        again.rows()
    again.close()


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    path.write_bytes(b"no database" * 500)
    path.chmod(0o600)
    with pytest.raises(StateError, match="no database of ASA: move it away"):
        Journal(path)


def test_secrets_of_others_are_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    Journal(path).close()
    path.chmod(0o644)
    with pytest.raises(StateError, match="open to other users"):
        Journal(path)


def test_rows_are_json_for_people_to_read(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    journal = Journal(path)
    journal.keep([KeepRow("agents", "A-S0", {"hostname": "n1"})])
    journal.close()
    with sqlite3.connect(path) as connection:
        ((text,),) = connection.execute("SELECT row FROM kept").fetchall()
    connection.close()
    assert json.loads(text) == {"hostname": "n1"}
