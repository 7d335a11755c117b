import json
import math
import os

import pytest

from asa.core.errors import StateError
from asa.log.rundir import state_directory
from coscheduler.history import JobRun, Stay, ended
from coscheduler.nouns import SharedRun
from coscheduler.queuefile import NAME, SharedQueueLog, ended_well, logs, new_directory, read

RUN = SharedRun("a", "blast", 8, 100.0, 140.0, 112.0, 0.0, 1.0, 0.1)


def test_entries_come_back(tmp_path):
    with SharedQueueLog(tmp_path / "queue") as log:
        log.write({"at": 0.0, "event": "started", "job": "a"})
        log.write({"at": 1.5, "decision": "Keep", "host": "a", "why": None})
        assert [entry["at"] for entry in read(log.path)] == [0.0, 1.5], "written at once"
    assert oct((tmp_path / "queue" / NAME).stat().st_mode)[-3:] == "600"


def test_a_line_that_was_cut_off(tmp_path):
    with SharedQueueLog(tmp_path / "queue") as log:
        log.write({"at": 0.0})
    with open(log.path, "a") as file:
        file.write('{"at": 1')
    assert read(log.path) == [{"at": 0.0}]


def test_one_that_is_gone_on_with(tmp_path):
    with SharedQueueLog(tmp_path / "queue") as log:
        log.write({"at": 0.0})
    with open(log.path, "a") as file:
        file.write('{"at": 1')
    with SharedQueueLog(tmp_path / "queue", resume=True) as log:
        assert log.before == [{"at": 0.0}]
        log.write({"at": 2.0})
    assert read(log.path) == [{"at": 0.0}, {"at": 2.0}]
    with pytest.raises(StateError, match="No such file"):
        SharedQueueLog(tmp_path / "none", resume=True)


def test_what_came_of_jobs_that_ended_well():
    stays = (Stay(1.0, 4.0, "b", 0.1), Stay(4.0, 9.0, None, 1.0))
    well = JobRun("a", "blast", 8, 140.0, 0.0, 1.0, 9.0, math.nan, 4.0, 40.0, 5.0, 2.0, stays, 1)
    entries = [
        {"at": 1.0, "event": "started", "job": "a", "nodes": ["n0"]},
        {"at": 8.0, "event": "ended", "job": "b", "problem": "it is broken"},
        {"at": 9.0} | ended(RUN, well),
    ]
    (found,) = ended_well(json.loads(json.dumps(entries, allow_nan=False))).items()
    assert repr(found) == repr(("a", well)), "NaN is not equal to itself"
    with pytest.raises(StateError, match="older version"):
        ended_well([{"at": 1.0, "event": "ended", "job": "a", "problem": ""}])


def test_what_is_no_log(tmp_path):
    path = tmp_path / NAME
    path.write_text("hello\n")
    with pytest.raises(StateError, match="open to other users"):
        read(path)
    path.chmod(0o600)
    with pytest.raises(StateError, match=r"no log of a queue .*give another --work"):
        read(path)
    with pytest.raises(StateError):
        read(tmp_path / "nothing")


def test_one_log_for_one_queue(tmp_path):
    with SharedQueueLog(tmp_path / "queue"), pytest.raises(StateError, match="log of another queue"):
        SharedQueueLog(tmp_path / "queue")


def test_a_disk_that_is_full_is_told(tmp_path):
    """Once: what could not be written does not come again when the log is closed."""
    with SharedQueueLog(tmp_path) as log:
        with open("/dev/full", "wb") as full:
            os.dup2(full.fileno(), log._file.fileno())
        with pytest.raises(StateError, match=r"cannot write .*log.jsonl: .*No space left"):
            log.write({"at": 0.0})
    assert read(log.path) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(StateError, match=r"cannot make the directory .*name-1: .*File name too long"):
        new_directory("a long " * 40 + "name")


def test_directories_of_queues(tmp_path, monkeypatch):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    first, second = new_directory("night"), new_directory("night")
    assert (first.name, second.name) == ("night-1", "night-2")
    for age, directory in ((0, first), (50, second)):
        with SharedQueueLog(directory) as log:
            log.write({"at": 0.0})
        os.utime(log.path, (1e9 - age, 1e9 - age))
    assert [path.parent for path in logs(state_directory())] == [first, second], "the newest first"


def test_the_end_of_a_job():
    entry = ended(RUN, JobRun("a", "blast", 8, 100.0, 0.0, 0.0, 140.0, 112.0, 0.0, 0.0, 0.0, 0.0, ()))
    assert entry["slowdown"] == pytest.approx(1.25)
    assert entry["loss"] == {"slowdown": pytest.approx(0.5), "walltime": pytest.approx(0.4)}
