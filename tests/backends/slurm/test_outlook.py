"""The queue as everybody can see it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends.slurm import backend
from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.words import NodeGroup, VisibleJob
from asa.core.clock import ManualClock
from asa.core.job import Resources
from asa.core.view import QueuedJob, RunningJob
from tests.backends.slurm.fake import NOW, FakeSlurm

CORE = {"PartitionName": "core", "Nodes": "n[1-4]"}
SHORT = {"PartitionName": "short", "Nodes": "n[4-5]"}
GROUPS = [NodeGroup("core", 4, 8, 2**32, 0, "mix")]
WAITS = VisibleJob("7", "name", "ada", "core", "PENDING", "Priority", 10, 4, 1, 600.0, 100.0, None)
RUNS = VisibleJob("6", "", "bob", "short", "RUNNING", "", 10, 8, 1, 600.0, 90.0, NOW + 60, ("n4",))


def queue(*jobs: VisibleJob) -> list[object]:
    view = backend.queue_view(NOW, jobs, GROUPS, [CORE])
    assert view is not None
    return [job.key for job in view.queue]


def test_what_is_told_of_a_job() -> None:
    view = backend.queue_view(NOW, [WAITS, RUNS], GROUPS, [CORE])
    assert view is not None
    assert (view.now, view.capacity) == (NOW, Resources(32, nodes=4))
    assert view.queue == (QueuedJob("7", Resources(4), 600.0, 100.0, "ada", "name"),)
    assert view.running == (RunningJob("6", Resources(8), NOW + 60),)


def test_the_highest_priority_comes_first_and_then_the_oldest() -> None:
    jobs = [replace(WAITS, key="8", submitted=99.0), replace(WAITS, key="9", priority=11), WAITS]
    elements = [replace(WAITS, key="5_10", priority=9), replace(WAITS, key="5_9", priority=9)]
    assert queue(*elements, *jobs) == ["9", "8", "7", "5_9", "5_10"]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=20))
def test_the_order_does_not_depend_on_that_of_the_answer(ranks: list[tuple[int, int]]) -> None:
    jobs = [
        replace(WAITS, key=str(at), priority=priority, submitted=float(submitted))
        for at, (priority, submitted) in enumerate(ranks)
    ]
    assert queue(*jobs) == queue(*reversed(jobs))


@pytest.mark.parametrize("reason", sorted(backend.NOT_ELIGIBLE))
def test_who_could_not_start_on_an_empty_machine_is_in_nobodys_way(reason: str) -> None:
    assert queue(replace(WAITS, reason=reason)) == []
    assert queue(replace(WAITS, priority=0)) == []


def test_running_jobs_count_where_their_nodes_are() -> None:
    elsewhere, late = replace(RUNS, held=("n5",)), replace(RUNS, key="5", word="COMPLETING", end=NOW - 5)
    endless = replace(RUNS, key="4", end=None)
    view = backend.queue_view(NOW, [elsewhere, late, endless], GROUPS, [CORE])
    assert view is not None
    assert [(job.key, job.ends) for job in view.running] == [("5", NOW), ("4", math.inf)]


def test_sizes_and_limits_of_those_that_wait() -> None:
    view = backend.queue_view(NOW, [replace(WAITS, nodes=2, limit=None), replace(WAITS, nodes=3)], GROUPS, [CORE])
    assert view is not None
    assert [(job.resources, job.walltime_s) for job in view.queue] == [
        (Resources(4, nodes=2), math.inf),
        (Resources(4), 600.0),
    ]


@pytest.mark.parametrize("state", ["down*", "drain", "drained", "idle+drain", "fail", "unk*"])
def test_nodes_that_do_not_work_are_not_counted(state: str) -> None:
    view = backend.queue_view(NOW, [], [*GROUPS, NodeGroup("core", 2, 8, 0, 0, state)], [CORE])
    assert view is not None
    assert view.capacity.cores == 32
    assert backend.queue_view(NOW, [], [NodeGroup("core", 2, 8, 0, 0, state)], [CORE]) is None


@pytest.mark.parametrize("state", ["idle", "mix", "alloc", "drng", "comp", "draining", "allocated+drain"])
def test_nodes_that_work_are(state: str) -> None:
    view = backend.queue_view(NOW, [], [NodeGroup("core", 3, 8, 0, 0, state)], [CORE])
    assert view is not None
    assert view.capacity == Resources(24, nodes=3)


def test_nodes_of_two_partitions_are_counted_once() -> None:
    groups = [*GROUPS, NodeGroup("short", 2, 8, 0, 0, "idle"), NodeGroup("gpu", 1, 4, 0, 4, "idle")]
    view = backend.queue_view(NOW, [], groups, [CORE, SHORT, {"PartitionName": "gpu", "Nodes": "g1"}])
    assert view is not None
    assert view.capacity.cores == 36


def test_the_backend_looks_at_its_partition() -> None:
    fake = FakeSlurm()
    fake.visible = [replace(WAITS, partition="main"), WAITS]
    slurm = Slurm(transport=fake, clock=ManualClock(NOW))
    view = slurm.look()
    assert view is not None
    assert (view.capacity, [job.user for job in view.queue]) == (Resources(32, nodes=4), ["ada"])
    fake.hidden = True
    assert slurm.look() is None
