"""The commands, and what they say of a queue's log."""

import argparse
import json
import sys

import numpy as np
import pytest

from asa.core.errors import InvalidInput, StateError, UnknownName
from coscheduler.cli import Cosched
from coscheduler.drive import drive
from coscheduler.queuefile import NAME, SharedQueueLog, describe, explain, explain_if_known, new_directory
from coscheduler.sharing.asax import AsaX
from coscheduler.workload import paper_queue
from coscheduler.world import SimulatedWorld

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
    assert "no job has ended" in found.text and "interrupted" in found.text
    assert f"{tmp_path}/shares.svg is not drawn: no job has ended" in capsys.readouterr().err
    assert not (tmp_path / "shares.svg").exists()


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_queue_runs(queue, tmp_path):
    with pytest.raises(InvalidInput, match=r"end the name with \.png"):
        asa_cosched("run", queue, "--plot", tmp_path / "shares.txt", "--work", tmp_path / "work")
    assert not (tmp_path / "work").exists()


COMMANDS = 'cores = 1\n[[jobs]]\nname = "one"\ncores = 1\nwalltime = "1m"\ncommand = "true"\n'


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
    queue.write_text(COMMANDS)
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
def test_what_cannot_be_gone_on_with(tmp_path, words, told):
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
        "times as long as alone; loss by slowdown",
    ):
        assert words in text
    assert f"{guest.name} became its guest" in explain(host, directory).text


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
