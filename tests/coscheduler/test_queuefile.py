"""Queues as files, and their logs."""

import json
import math
import os

import pytest

from asa.core.errors import InvalidInput, StateError
from asa.log.rundir import state_directory
from coscheduler.history import JobRun, Stay, ended
from coscheduler.nouns import SharedRun
from coscheduler.queuefile import NAME, SharedQueueLog, ended_well, logs, new_directory, read, read_commands, read_queue

QUEUE = """
cores = 16
[[jobs]]
name = "host"
application = "statistics"
cores = 16
walltime = "1h"
run_time = "30m"
cpu = "25%"
memory = 0.05
[[jobs]]
cores = 8
walltime = "20m"
submit = "5m"
exclusive = true
phases = [{time = "2m", cpu = 0.125}, {time = "8m"}]
"""


def write(tmp_path, text):
    path = tmp_path / "queue.toml"
    path.write_text(text)
    return path


def test_a_queue(tmp_path):
    queue = read_queue(write(tmp_path, QUEUE))
    host, other = queue.loads
    assert (queue.cores, queue.contention) == (16, "paper-like")
    assert host.request.application == "statistics"
    assert host.alone_s == 1800
    assert host.cpu_s == pytest.approx(0.25 * 16 * 1800)
    assert other.request.name == other.request.application == "job-2"
    assert (other.request.submitted, other.request.exclusive) == (300, True)
    assert [phase.parallel for phase in other.phases] == [False, True]


def test_the_papers_queue(tmp_path):
    queue = read_queue(write(tmp_path, "cores = 64\npaper = true\nseed = 3\n"))
    assert len(queue.loads) == 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cores = 16\n[", "["), "the file has no 'cores'"),
        (('walltime = "1h"', ""), "job 1 has no 'walltime'"),
        (('walltime = "1h"', 'wall_time = "1h"'), "job 1 has 'wall_time', which is none of"),
        (('run_time = "30m"', ""), "job 1 has no 'run_time'"),
        (("cores = 8", "cores = 0"), "job 2: cores is 0"),
        (("cpu = 0.125", "cpu = 2.0"), "job 2: cpu 2.0 is"),
        (('time = "2m"', 'time = "2 moons"'), "job 2: time '2 moons' is not a positive duration"),
        (("memory = 0.05", "memory = 50"), "job 1: memory 50 is"),
        (('cpu = "25%"', "cpu = ]"), "Invalid value"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, change, message):
    with pytest.raises(InvalidInput, match=message):
        read_queue(write(tmp_path, QUEUE.replace(*change)))


def test_files_and_queues_that_are_not_there(tmp_path):
    with pytest.raises(InvalidInput, match=r"none.toml: No such file or directory. Expected a TOML file"):
        read_queue(tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match="it has no jobs"):
        read_queue(write(tmp_path, "cores = 4\n"))
    with pytest.raises(InvalidInput, match="4 cores: expected one of 64, 128, 256"):
        read_queue(write(tmp_path, "cores = 4\npaper = true\n"))


COMMANDS = """
cores = 4
[[jobs]]
cores = 2
walltime = "1m"
command = "sleep 1"
run_time = "5s"
[[jobs]]
name = "other"
cores = 1
walltime = "1m"
command = "true"
"""


def test_commands(tmp_path):
    queue = read_commands(write(tmp_path, COMMANDS))
    first, other = queue.jobs
    assert queue.cores == 4
    assert (first.request.name, first.line, first.alone_s) == ("job-1", "sleep 1", 5.0)
    assert (other.request.application, other.alone_s) == ("other", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (QUEUE, "job 1 has no 'command'"),
        ("cores = 4\npaper = true\n", "paper = true is a simulated queue"),
        ("cores = 4\n", "it has no jobs"),
        (COMMANDS.replace("cores = 4", "core = 4"), "the file has 'core'"),
        (
            COMMANDS.replace('"sleep 1"', '["sleep", "1"]'),
            r"job 1: command is \['sleep', '1'\]: text for a shell expected",
        ),
        (COMMANDS.replace('"true"', '" "'), "job 2: command is ' ': text for a shell expected"),
        (COMMANDS.replace('"true"', "true"), "job 2: command is True: text"),
    ],
)
def test_commands_that_make_no_sense(tmp_path, text, words):
    with pytest.raises(InvalidInput, match=words):
        read_commands(write(tmp_path, text))


def test_commands_without_a_run_time_are_not_simulated(tmp_path):
    with pytest.raises(InvalidInput, match="job 2 has no 'run_time'"):
        read_queue(write(tmp_path, COMMANDS))


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
            os.dup2(full.fileno(), log.file.fileno())
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
