import numpy as np
import pytest

from asa.core.errors import InvalidInput, StateError
from coscheduler.drive import drive
from coscheduler.queuefile import NAME, SharedQueueLog, describe, explain, explain_if_known, new_directory
from coscheduler.sharing.asax import AsaX
from coscheduler.workload import paper_queue
from coscheduler.world import SimulatedWorld


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def queue(state):
    """The paper's queue under the paper's rule."""
    directory = new_directory("paper")
    with SharedQueueLog(directory) as log:
        world = SimulatedWorld(paper_queue(64, np.random.default_rng(0)), 64, log=log.write)
        drive(world, AsaX())
    return directory, world.result()


def test_a_host_and_its_guest(queue):
    directory, result = queue
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


def test_a_job_that_is_not_there(queue, tmp_path):
    with pytest.raises(InvalidInput, match="no job 'census' in any of 1 queues"):
        explain("census")
    assert explain_if_known("census") is None


def test_logs_that_cannot_be_read_are_passed_over(queue):
    directory, _ = queue
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
