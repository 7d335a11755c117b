"""Queues as files and pictures, the commands, and comparisons of rules."""

import argparse
import dataclasses
import doctest
import json
import math
import os
import re
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from asa.core.errors import InvalidInput, StateError, UnknownName
from asa.lab.study import Estimate
from asa.log.rundir import DriverLock, state_directory
from coscheduler.cli import Cosched
from coscheduler.compare import RULES, RuleComparison, RuleRow, compare
from coscheduler.drive import drive
from coscheduler.history import JobRun, SharedQueue, Stay, ended
from coscheduler.nouns import SharedRun
from coscheduler.queuefile import (
    LOCK,
    NAME,
    SharedQueueLog,
    describe,
    ended_well,
    explain,
    explain_if_known,
    logs,
    new_directory,
    read,
    read_commands,
    read_queue,
    status,
)
from coscheduler.run import figure, shown, summary
from coscheduler.sharing.asax import AsaX
from coscheduler.sharing.scavenger import ScavengerOptions
from coscheduler.sharing.starter import Space, Static
from coscheduler.standing import Standings
from coscheduler.workload import LoadPhase, paper_queue
from coscheduler.world import SimulatedWorld

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


def test_a_resumed_log_leaves_out_a_line_that_was_cut_off(tmp_path):
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


def test_results_of_jobs_that_ended_well_are_read():
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


def test_a_file_that_is_no_log_is_refused(tmp_path):
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


def test_a_full_disk_is_an_error_once(tmp_path):
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


PAPER = "cores = 64\npaper = true\n"


def asa_cosched(*words):
    parser = argparse.ArgumentParser()
    command = Cosched()
    command.configure(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def queue(tmp_path):
    path = tmp_path / "queue.toml"
    path.write_text(PAPER)
    return path


def test_run(queue):
    found = asa_cosched("run", queue, "--sharing", "asax:seed=1")
    data = json.loads(json.dumps(found.data, allow_nan=False))
    assert len(data["jobs"]) == 15
    assert {"mean_wait_h", "makespan_h", "mean_slowdown"} <= set(data["metrics"])
    guests = [each for each in data["decisions"] if each["decision"] == "StartGuest"]
    assert guests and {"at", "job", "host", "share", "why"} <= set(guests[0])
    assert {"state", "votes", "weights", "mixture", "action"} == set(guests[0]["why"])
    assert "guest of" in found.text and "blast-64" in found.text


def test_the_summary_is_in_units_that_suit_it():
    """A queue of 16 s, of which nothing is known of how long its jobs run alone."""
    runs = [
        JobRun(name, "blast", 8, 140.0, 0.0, 1.0, 16.0, math.nan, 60.0, 120.0, 60.0, 2.0, (), 0, problem)
        for name, problem in (("a", ""), ("b", "no"))
    ]
    text = summary(SharedQueue(8, tuple(runs)))
    names, values = (re.split(r"\s{2,}", line.strip()) for line in text.splitlines())
    assert dict(zip(names, values, strict=True)) == {
        "jobs": "1", "mean wait": "1 s", "CPU utilisation [%]": "93.8", "mean response": "16 s", "makespan": "16 s",
        "mean slowdown": "-", "over wall time [%]": "0",
    }  # fmt: skip
    assert summary(SharedQueue(8, (runs[1],))) == "no job has ended well"


def test_run_remembers(queue, tmp_path):
    learned = tmp_path / "learned.db"
    first = asa_cosched("run", queue, "--learned", learned).data["metrics"]
    second = asa_cosched("run", queue, "--learned", learned).data["metrics"]
    assert first != second
    assert learned.stat().st_mode & 0o777 == 0o600


def test_run_draws(queue, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "shares.svg"
    asa_cosched("run", queue, "--plot", picture)
    assert all(word in picture.read_text() for word in ("<svg", "Guests", "Happiness", "statistics"))


def test_interrupted_before_a_job_has_ended_it_draws_nothing(queue, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")

    def interrupted(world, rule):
        for _ in range(3):
            world.apply(rule.decide(world.advance()))
        assert world.result().samples and not world.result().jobs
        raise KeyboardInterrupt

    monkeypatch.setattr("coscheduler.run.drive", interrupted)
    found = asa_cosched("run", queue, "--plot", tmp_path / "shares.svg")
    assert found.exit_code == 130
    assert found.text.startswith("no job has ended\n\ninterrupted: jobs that had not ended"), "and no empty lines"
    assert f"{tmp_path}/shares.svg is not drawn: no job has ended" in capsys.readouterr().err
    assert not (tmp_path / "shares.svg").exists()


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_queue_runs(queue, tmp_path):
    with pytest.raises(InvalidInput, match=r"end the name with \.png"):
        asa_cosched("run", queue, "--plot", tmp_path / "shares.txt", "--work", tmp_path / "work")
    assert not (tmp_path / "work").exists()


COMMAND = 'cores = 1\n[[jobs]]\nname = "one"\ncores = 1\nwalltime = "1m"\ncommand = "true"\n'


@pytest.mark.parametrize(
    ("where", "error", "told"),
    [
        ("pool:none", StateError, "no pool with a master in none: asa master --directory none makes one"),
        ("slrum", UnknownName, "did you mean 'slurm'"),
    ],
)
def test_without_nodes_no_directory_is_left_but_one_that_was_asked_for(tmp_path, monkeypatch, where, error, told):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    queue = tmp_path / "queue.toml"
    queue.write_text(COMMAND)
    for words in ((), ("--work", tmp_path / "work")):
        with pytest.raises(error, match=told):
            asa_cosched("run", queue, "--on", where, *words)
    assert list(tmp_path.glob("state/cosched/*")) == []
    assert (tmp_path / "work" / "log.jsonl").exists()


def test_explain(queue, tmp_path):
    asa_cosched("run", queue, "--work", tmp_path / "work")
    found = asa_cosched("explain", "blast-8", "--work", tmp_path / "work")
    assert found.text.startswith(f"blast-8 in {tmp_path}/work\n")
    assert found.data["entries"][-1]["event"] == "ended"


@pytest.mark.parametrize(("words", "told"), [((), "run anew"), (("--on", "local"), "Give its directory, too")])
def test_a_queue_that_cannot_be_resumed_is_refused(tmp_path, words, told):
    queue = tmp_path / "queue.toml"
    queue.write_text('cores = 1\n[[jobs]]\ncores = 1\nwalltime = "1m"\ncommand = "true"\n')
    with pytest.raises(InvalidInput, match=told):
        asa_cosched("run", queue, "--resume", *words)


def test_compare(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    found = asa_cosched("compare", "--rules", "space,static:hard=true", "--cores", "64", "--seeds", "2")
    assert capsys.readouterr().err.split("\r")[1:] == ["1 of 4 runs", "2 of 4 runs", "3 of 4 runs", "4 of 4 runs\n"]
    assert [row["rule"] for row in found.data["rows"]] == ["space", "static:hard=true"]
    for words in ("Table 3", "Table 2", "static:hard=true", "statistics", "3.5 h, 53 %, 4.4 h"):
        assert words in found.text


def test_compare_refuses_what_is_no_number():
    with pytest.raises(InvalidInput, match="whole numbers"):
        asa_cosched("compare", "--cores", "64,many")


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def explained(state):
    """The paper's queue under the paper's rule."""
    directory = new_directory("paper")
    with SharedQueueLog(directory) as log:
        world = SimulatedWorld(paper_queue(64, np.random.default_rng(0)), 64, log=log.write)
        drive(world, AsaX())
    return directory, world.result()


def test_a_host_and_its_guest(explained):
    directory, result = explained
    guest = next(job for job in result.jobs if job.stays[0].host is not None)
    host = guest.stays[0].host
    text = explain(guest.name).text
    assert text.splitlines()[0] == f"{guest.name} in {directory}"
    assert f"started as a guest of {host}, with a weight of {guest.stays[0].share:.0%} of its cores" in text
    for words in (
        "state: cpu",
        "votes:",
        "weights: ",
        "mixture ",
        "action ",
        "times as long as alone",
        "  loss by slowdown",
        " of its cores idle",
        "      details:",
    ):
        assert words in text
    assert f"{guest.name} became its guest" in explain(host, directory).text


def test_a_run_says_who_is_whose_guest_and_who_is_stopped(capsys):
    """Shares that change without a stop are in the log."""
    kept = []
    note, why = shown(kept.append), {"host": "host"}
    started = {"event": "started", "nodes": ["n0"]}
    entries = [
        {"decision": "Start", "job": "host"},
        started | {"job": "host"},
        {"decision": "StartGuest", "job": "guest", "host": "host", "share": 0.05},
        started | {"job": "guest"},
        {"decision": "SetShare", "guest": "guest", "share": 0.1, "why": why},
        {"event": "slowdown", "job": "host", "guests": ["guest"], "slower": 0.1, "bound": None},
        {"decision": "SetShare", "guest": "guest", "share": 0.0, "why": why | {"lost": 4.0, "bound": 0.1}},
        {"decision": "SetShare", "guest": "guest", "share": 0.05, "why": why},
        {"decision": "SetShare", "guest": "guest", "share": 0.1, "why": why},
        {"decision": "Evict", "guest": "guest", "why": {"because": "host's memory is short"}},
        {"decision": "Start", "job": "guest"},
        started | {"job": "guest"},
        {"event": "closed"},
    ]
    for at, entry in enumerate(entries, 1):
        note({"at": float(at)} | entry)
    assert len(kept) == len(entries)
    assert capsys.readouterr().err.splitlines() == [
        "asa: at 2 s: host runs on n0",
        "asa: at 4 s: guest runs on n0 as a guest of host",
        "asa: at 7 s: guest stopped: host may have lost to guests what its bound of 10% allows "
        "(4 s by the best estimate)",
        "asa: at 8 s: guest has 5% of its host's cores from now on: host may lose more",
        "asa: at 10 s: guest evicted: goes back to the queue; host's memory is short",
        "asa: at 12 s: guest runs on n0",
    ]


def test_a_job_that_is_not_there(explained, tmp_path):
    with pytest.raises(InvalidInput, match="no job 'census' in any of 1 queues"):
        explain("census")
    assert explain_if_known("census") is None


def test_logs_that_cannot_be_read_are_passed_over(explained):
    directory, _ = explained
    bad = new_directory("paper")
    (bad / NAME).write_text("{}")
    assert str(directory) in explain("blast-8").text
    with pytest.raises(StateError, match="open to other users"):
        explain("blast-8", bad)


def test_without_queues(state):
    assert explain_if_known("census") is None


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"decision": "Start"}, "started on cores of its own"),
        ({"decision": "StartGuest", "job": "a", "host": "b", "share": 0.3, "hard": True}, "at most 30% of its cores"),
        ({"decision": "SetShare", "share": 0.05}, "has 5% of its host's cores from now on"),
        ({"decision": "SetShare", "share": 0.0}, "stopped: its host must lose no more"),
        ({"decision": "SetShare", "guest": "g", "share": 0.0, "why": {"host": "a", "lost": 12.3, "bound": 0.1}},
         "its guest g is stopped: a may have lost to guests what its bound of 10% allows (12 s by the best estimate)"),
        ({"decision": "SetShare", "guest": "a", "share": 0.0, "why": {"host": "h", "lost": -1.0, "bound": 0.1}},
         "stopped: h may have lost to guests what its bound of 10% allows (0 s by the best estimate)"),
        ({"decision": "SetShare", "guest": "a", "share": 0.05, "why": {"host": "h"}}, "from now on: h may lose more"),
        ({"decision": "SetShare", "guest": "g", "share": 0.05, "why": {"host": "a", "happiness": 0.8}},
         "its guest g has 5% of its cores from now on: a is late for its wall time"),
        ({"decision": "Evict", "guest": "g", "why": {"host": "a"}},
         "its guest g is evicted: goes back to the queue; it was stopped, and ends sooner on free cores"),
        ({"decision": "Evict", "guest": "a", "why": {"because": "h's memory is short"}}, "; h's memory is short"),
        ({"decision": "Evict", "guest": "a", "why": {"host": "h", "memory": 2}}, "; h and its guests"),
        ({"decision": "Evict", "guest": "a", "why": {"host": "h", "used": 1.2}}, "; it went on though it was stopped"),
        ({"decision": "StartGuest", "job": "a", "host": "b", "why": {"rate": 0.93, "state": {"cpu": 0.2}}},
         "b left 80% of its cores idle, and a is expected to run at 93% of its speed alone"),
        ({"event": "slowdown", "job": "h", "guests": ["a"], "slower": 0.021, "bound": 0.1},
         "its host h is 2.1% slower than alone so far, by an estimate from its own reports; its bound is 10%"),
        ({"event": "slowdown", "job": "a", "guests": ["g"], "slower": -0.01, "bound": None},
         "it is no slower than alone so far, by an estimate from its own reports"),
        ({"decision": "Evict"}, "evicted: goes back to the queue"),
        ({"decision": "Keep"}, "keeps its cores to itself"),
        ({"event": "started", "nodes": ["n1", "n2"]}, "runs on n1, n2"),
        ({"event": "requeued", "because": "a node of it was lost"}, "goes back to the queue: a node of it was lost"),
        ({"event": "ended", "problem": "no"}, "failed: no"),
        ({"event": "moved"}, "moved"),  # by a later version
        ({"event": "ended", "problem": "", "run_time_s": 60.0}, "ended after 1 min; how long it runs alone"),
    ],
)  # fmt: skip
def test_every_entry_has_words(entry, words):
    assert words in describe({"at": 1.0, "job": "a"} | entry, "a")


def test_what_is_not_known_is_a_dash_and_no_number():
    """A workflow whose jobs were guests all the time has held no cores."""
    metrics = {"mean_wait_h": 1.0, "cpu_utilisation": 0.5, "mean_response_h": 2.0, "makespan_h": 3.0}
    metrics = {
        name: Estimate(value) for name, value in (metrics | {"mean_slowdown": 1.1, "over_walltime": 0.0}).items()
    }
    blast = {"run_time_h": Estimate(0.25), "cpu": Estimate(math.nan), "memory": Estimate(0.125, 0.1, 0.25)}
    text = RuleComparison((RuleRow("static", 16, metrics, {"blast": blast}),), seeds=1).text()
    (row,) = (line.split() for line in text.splitlines() if "blast" in line)
    assert row == ["16", "static", "blast", "0.25", "-", "12", "[10,", "25]", "-"]


def simulated(rule, scale=1.0):
    loads = [
        dataclasses.replace(
            load, phases=tuple(LoadPhase(each.alone_s * scale, each.demand, each.parallel) for each in load.phases)
        )
        for load in paper_queue(64, np.random.default_rng(0))
    ]
    world = SimulatedWorld(loads, 64, sampled=True)
    drive(world, rule)
    return world.result()


def test_three_charts():
    found = simulated(Static())
    made = figure(found, "static")
    cpu, shares, happiness = made.axes
    assert cpu.get_title(loc="left") == "CPU"
    assert cpu.get_title(loc="right") == f"dashed: mean, {100 * found.metrics()['cpu_utilisation']:.0f} %"
    guests = [line for line in shares.lines if len(line.get_xdata())]
    assert len(guests) == sum(stay.host is not None for job in found.jobs for stay in job.stays)
    assert {value for line in guests for value in line.get_ydata()} == {50.0}
    assert len(happiness.lines) == len(found.jobs) + 1
    assert happiness.get_xlabel() == "time [h]"
    assert happiness.get_xlim()[1] == pytest.approx(found.makespan_s)
    assert happiness.get_xticks()[1] == 3600 and happiness.get_xticklabels()[1].get_text() == "1"
    names = [text.get_text() for text in made.legends[0].get_texts()]
    assert names == sorted({job.application for job in found.jobs})


def test_short_queues_and_such_without_guests():
    made = figure(simulated(Space(), 1 / 50))
    assert made.axes[1].get_title(loc="left") == "Guests: none"
    assert made.axes[2].get_xlabel() == "time [min]"


def test_nothing_to_draw():
    with pytest.raises(InvalidInput, match="nothing to draw"):
        figure(dataclasses.replace(simulated(Space()), samples=()))
    with pytest.raises(InvalidInput, match=r"no job has ended\. Let the queue run for longer"):
        figure(dataclasses.replace(simulated(Space()), jobs=()))


DOCS = Path(__file__).parents[2] / "docs"


def test_the_howto_runs_as_printed():
    page = DOCS / "howto" / "write-a-sharing-rule.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 5 and not failed


def test_the_page_has_every_option_of_the_scavenger():
    page = (DOCS / "coscheduler-rules.md").read_text()
    for option in fields(ScavengerOptions):
        assert f"`{option.name}`" in page


# wait h, CPU, response h, makespan h: an independent fluid simulation in steps of 10 s, other random queues
REFERENCE = {
    64: (1.63, 0.57, 2.19, 4.42),
    128: (0.64, 0.52, 1.20, 2.24),
    256: (0.20, 0.42, 0.74, 1.25),
}
METRICS = ("mean_wait_h", "cpu_utilisation", "mean_response_h", "makespan_h")


@pytest.fixture(scope="module")
def rows():
    found = compare(seeds=4, seed=100).to_json()["rows"]
    return {(row["rule"], row["cores"]): row for row in found}


@pytest.mark.slow
def test_every_row_is_there_with_its_intervals(rows):
    assert set(rows) == {(rule, cores) for rule in RULES for cores in REFERENCE}
    for row in rows.values():
        for metric in (*METRICS, "mean_slowdown", "over_walltime"):
            low, high = row["intervals"][metric]
            assert low <= row[metric] <= high


@pytest.mark.slow
@pytest.mark.parametrize("cores", REFERENCE)
def test_space_sharing_reproduces_the_reference(rows, cores):
    row = rows["space", cores]
    assert [row[metric] for metric in METRICS] == pytest.approx(REFERENCE[cores], rel=0.07, abs=0.02)
    assert row["mean_slowdown"] == pytest.approx(1)
    assert row["over_walltime"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("cores", REFERENCE)
def test_rules_stand_as_the_reference_has_them(rows, cores):
    """The literal rules shorten waits and slow jobs down, many beyond their wall times; the scavenger does not."""
    space, static, asax, scavenger = (rows[rule, cores] for rule in RULES)
    for literal in (static, asax):
        assert literal["mean_wait_h"] < space["mean_wait_h"]
        assert literal["mean_slowdown"] > 1.2
        assert literal["over_walltime"] > 0.1
        assert literal["makespan_h"] > scavenger["makespan_h"]
        assert literal["mean_response_h"] > scavenger["mean_response_h"]


@pytest.mark.slow
@pytest.mark.parametrize("cores", REFERENCE)
def test_the_scavenger_is_quicker_and_hurts_little(rows, cores):
    """With queues that its options were not chosen on."""
    space, scavenger = rows["space", cores], rows["scavenger", cores]
    assert scavenger["mean_response_h"] <= 0.86 * space["mean_response_h"]
    assert scavenger["makespan_h"] <= 0.85 * space["makespan_h"]
    assert scavenger["mean_slowdown"] <= 1.08
    assert scavenger["over_walltime"] <= 0.08


@pytest.mark.slow
def test_comparisons_of_nothing_are_refused():
    with pytest.raises(UnknownName, match="sharing rule"):
        compare(["spaced"])
    with pytest.raises(InvalidInput, match="0 seeds"):
        compare(seeds=0)
    with pytest.raises(InvalidInput, match="expected one of 64"):
        compare(cores=[100], seeds=1)
    with pytest.raises(UnknownName, match="contention"):
        compare(["space"], cores=[64], seeds=1, contention="none")


def test_rules_that_have_no_name_can_be_compared() -> None:
    seeds = list[int]()

    def plain(seed: int) -> Space:
        seeds.append(seed)
        return Space()

    rows = [row.to_json() for row in compare(["space", plain], cores=[64], seeds=2, seed=3).rows]
    assert [row.pop("rule") for row in rows] == ["space", "plain"] and seeds == [3, 4]
    assert json.dumps(rows[0]) == json.dumps(rows[1])


def entries_of(*parts: str):
    """Entries as in a log: time, kind, and the rest."""
    found = [
        {"at": 0.0, "event": "queued", "job": name, "cores": 4, "bound": 0.1} for name in ("host", "guest", "last")
    ]
    found += [
        {"at": 0.0, "decision": "Start", "job": "host"},
        {"at": 0.0, "event": "started", "job": "host", "nodes": ["n0"]},
        {"at": 2.0, "decision": "StartGuest", "job": "guest", "host": "host", "share": 0.3, "hard": False},
        {"at": 3.0, "decision": "SetShare", "guest": "guest", "share": 0.05},
    ]
    more = {
        "stopped": {"at": 3.5, "decision": "SetShare", "guest": "guest", "share": 0.0},
        "Evict": {"at": 4.0, "decision": "Evict", "guest": "guest"},
        "requeued": {"at": 4.0, "event": "requeued", "job": "guest", "because": "its node is lost"},
        "host ends": {"at": 5.0, "event": "ended", "job": "host", "problem": ""},
        "guest fails": {"at": 6.0, "event": "ended", "job": "guest", "problem": "exit code 1"},
        "keep": {"at": 6.0, "decision": "Keep", "host": "host"},
    }
    return found + [more[part] for part in parts]


@pytest.mark.parametrize(
    ("parts", "host", "guest"),
    [
        ((), ("running", 0.0, None, None), ("running", 2.0, "host", 0.05)),
        (("keep",), ("running", 0.0, None, None), ("running", 2.0, "host", 0.05)),
        (("stopped",), ("running", 0.0, None, None), ("running", 2.0, "host", 0.0)),
        (("Evict",), ("running", 0.0, None, None), ("waiting", 4.0, None, None)),
        (("requeued",), ("running", 0.0, None, None), ("waiting", 4.0, None, None)),
        (("host ends",), ("ended", 5.0, None, None), ("running", 2.0, None, None)),
        (("host ends", "guest fails"), ("ended", 5.0, None, None), ("failed", 6.0, None, None)),
    ],
)
def test_how_jobs_stand_follows_from_the_log(parts, host, guest):
    found = Standings(entries_of(*parts), Path("log")).jobs
    stand = {name: (job.state, job.since, job.host, job.share) for name, job in found.items()}
    assert stand == {"host": host, "guest": guest, "last": ("waiting", 0.0, None, None)}


def test_status_of_a_queue(tmp_path):
    with SharedQueueLog(tmp_path) as log:
        for entry in entries_of():
            log.write(entry)
    with DriverLock(tmp_path / LOCK):
        found = status(tmp_path)
    assert found.text.startswith(
        f"queue {tmp_path}: 2 running, 1 waiting\nits co-scheduler is process {os.getpid()} on "
    )
    assert "since (queue's clock)" in found.text
    assert re.search(r"^host +4 +running +0 s +- +guest \(5%\) +- +10 %$", found.text, re.MULTILINE)
    gone = status(tmp_path)
    assert (
        f": 2 interrupted, 1 waiting\nits co-scheduler is gone: asa cosched run QUEUE.toml --on WHERE --work {tmp_path}"
        in gone.text
    )
    assert [job["state"] for job in gone.data["jobs"]] == ["interrupted", "interrupted", "waiting"]
    with pytest.raises(StateError, match="no-queue"):
        status(tmp_path / "no-queue")


def test_while_both_run_it_is_said_how_much_slower_the_host_is_and_why_its_guest_was_stopped(tmp_path):
    slowdown = {"event": "slowdown", "job": "host", "guests": ["guest"], "bound": 0.1}
    stop = {"at": 9.0, "decision": "SetShare", "guest": "guest", "share": 0.0,
            "why": {"host": "host", "lost": 3.0, "expected": 0.0, "bound": 0.1}}  # fmt: skip
    with SharedQueueLog(tmp_path) as log:
        for entry in [
            *entries_of(),
            slowdown | {"at": 8.0, "slower": 0.5},
            slowdown | {"at": 8.5, "slower": 0.043},
            stop,
        ]:
            log.write(entry)
        with DriverLock(tmp_path / LOCK):
            found = status(tmp_path)
        assert re.search(r"^host +4 +running +0 s +- +guest \(stopped\) +4\.3 % +10 %$", found.text, re.MULTILINE)
        assert found.data["jobs"][0]["slower"] == 0.043
        for job, who in (("host", "it is"), ("guest", "its host host is")):
            said = explain(job, tmp_path).text
            assert said.count("slower than alone") == 1, "the last one"
            assert f"at 8.5 s: {who} 4.3% slower than alone so far, by an estimate" in said
        assert "at 9 s: its guest guest is stopped: host may have lost" in explain("host", tmp_path).text
        log.write({"at": 10.0, "event": "ended", "job": "host", "problem": "", "run_time_s": 10.0})
    for job in ("host", "guest"):
        assert "slower than alone" not in explain(job, tmp_path).text
    assert status(tmp_path).data["jobs"][0]["slower"] is None


def test_without_a_queue_status_says_how_to_run_one(monkeypatch, tmp_path):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "nothing"))
    with pytest.raises(StateError, match="no queue has run here"):
        status()
