from __future__ import annotations

import pytest

from asa.allocations.pool import Held, Pool
from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    Cancelled,
    Event,
    JobEnded,
    Learned,
    Leased,
    LeaseEnded,
    NodeJoined,
    NodeLost,
    Queued,
    Recalled,
    Released,
    Requeued,
    SubmitRefused,
    Submitted,
    Submitting,
)
from asa.core.job import JobHandle, JobRequest, JobState, Resources

HANDLE = JobHandle("7", "run.0", 11.0)
ONE, TWO = Resources(1), Resources(2)


def request(cores: int = 4, *, memory: int | None = None, gpus: int = 0) -> JobRequest:
    return JobRequest("run.0", Resources(cores, memory=memory, gpus=gpus), 1000.0, ("x",))


def pool_after(*events: Event, job: JobRequest | None = None) -> Pool:
    pool = Pool()
    for event in (Submitting(10.0, "run.0", job or request(), ("a", "b"), (), 5.0), *events):
        pool.on(event)
    return pool


def held_after(*events: Event, job: JobRequest | None = None) -> Held:
    return pool_after(*events, job=job).held["run.0"]


JOINED = (Submitted(11.0, "run.0", HANDLE), AllocationStarted(60.0, "run.0", 50.0), NodeJoined(61.0, "run.0", "n1", 4))


def test_an_allocation_from_asking_to_its_end() -> None:
    asked = held_after()
    assert (asked.key, asked.stages, asked.asked, asked.predicted_wait_s) == ("run.0", ("a", "b"), 10.0, 5.0)
    assert (asked.handle, asked.started, asked.ends, asked.drains) == (None, None, None, None)
    running = held_after(*JOINED)
    assert (running.handle, running.started, running.ends, running.drains) == (HANDLE, 50.0, 1050.0, 1020.0)
    assert running.nodes == {"n1": 4}
    assert not pool_after(*JOINED, JobEnded(70.0, "run.0", JobState.COMPLETED)).held
    assert not pool_after(SubmitRefused(10.0, "run.0", "no")).held


def test_what_concerns_no_allocation_that_is_held_changes_nothing() -> None:
    pool = pool_after(JobEnded(70.0, "run.0", JobState.LOST), NodeJoined(71.0, "run.0", "n1", 4))
    assert pool.held == {}


def test_a_node_that_joins_first_tells_the_start_until_the_batch_system_does() -> None:
    assert held_after(NodeJoined(61.0, "run.0", "n1", 4)).started == 61.0
    late = (NodeJoined(61.0, "run.0", "n1", 4), AllocationStarted(62.0, "run.0", 50.0))
    assert held_after(*late).started == 50.0


def test_a_requeued_job_waits_again_and_its_nodes_go_when_the_executor_says_so() -> None:
    again = held_after(*JOINED, Requeued(80.0, "run.0", "NodeFail"))
    assert (again.started, again.requeued, again.leaving(9999.0)) == (None, True, False)
    lost = held_after(*JOINED, Requeued(80.0, "run.0", "NodeFail"), NodeLost(81.0, "run.0", "n1", "gone"))
    assert lost.nodes == {}


def test_when_it_takes_no_more_tasks() -> None:
    running = held_after(*JOINED)
    assert not running.leaving(1019.0) and running.leaving(1020.0)
    assert held_after(*JOINED, Released(62.0, "run.0")).leaving(63.0)
    assert held_after(Cancelled(62.0, "run.0", "why")).leaving(63.0)
    assert not held_after().leaving(1e9)


def test_room_is_counted_by_cores() -> None:
    held = held_after(*JOINED)
    assert (held.room(ONE, 0.0), held.room(TWO, 0.0), held.room(Resources(5), 0.0)) == (4, 2, 0)
    held.take(("a", 0), TWO, 70.0)
    assert (held.room(ONE, 0.0), held.room(TWO, 0.0), held.room(Resources(4), 0.0)) == (2, 1, 0)
    assert held.drop(("a", 0)) == 70.0
    assert held.room(ONE, 0.0) == 4
    assert held.drop(("a", 0)) is None
    assert held.room(ONE, 0.0) == 4, "a task goes once"


def test_without_nodes_there_is_no_room() -> None:
    assert held_after(Submitted(11.0, "run.0", HANDLE)).room(ONE, 100.0) == 0


def test_room_ahead_is_a_multiple_of_the_capacity() -> None:
    held = held_after(*JOINED)
    assert (held.room(ONE, 2.0), held.room(TWO, 0.5)) == (12, 3)


def test_memory_and_gpus_may_be_what_is_short() -> None:
    held = held_after(*JOINED, job=request(memory=100, gpus=2))
    assert held.room(Resources(1, memory=40), 0.0) == 2
    assert held.room(Resources(1, gpus=1), 0.0) == 2
    held.take(("a", 0), Resources(1, memory=80, gpus=2), 70.0)
    assert held.room(Resources(1, memory=40), 0.0) == 0
    assert held.room(Resources(1, gpus=1), 0.0) == 0
    assert held.room(Resources(1), 0.0) == 3
    assert held_after(*JOINED).room(Resources(1, gpus=1), 0.0) == 0
    assert held_after(*JOINED).room(Resources(1, memory=10**15), 0.0) == 4, "not counted where it was not asked for"


def test_a_new_driver_knows_no_nodes() -> None:
    pool = pool_after(*JOINED)
    pool.held["run.0"].take(("a", 0), ONE, 70.0)
    pool.forget_nodes()
    held = pool.held["run.0"]
    assert (held.nodes, held.running, held.cores_busy, held.started) == ({}, {}, 0, 50.0)


def test_what_a_strategy_sees() -> None:
    view = held_after().view(100.0)
    assert (view.key, view.submitted, view.queued, view.started, view.busy) == ("run.0", 10.0, False, None, False)
    held = held_after(*JOINED)
    held.take(("a", 0), ONE, 70.0)
    view = held.view(100.0)
    assert (view.submitted, view.queued, view.started, view.ends, view.busy) == (11.0, True, 50.0, 1050.0, True)
    held.dependable = False
    assert not held.view(100.0).queued


@pytest.mark.parametrize("times", [1, 2])
def test_a_wait_that_was_learned_is_marked(times: int) -> None:
    assert held_after(*JOINED, *[Learned(70.0, "run.0", "a", 39.0)] * times).taught


# ------------------------------------------------------------------------------------------------ held places

QUEUED = Submitted(11.0, "run.0", HANDLE)


def test_a_change_shows_once_the_batch_system_has_made_it() -> None:
    asked = Amending(12.0, "run.0", after=("run.9",))
    on_its_way = held_after(QUEUED, asked).view(13.0)
    assert (on_its_way.amending, on_its_way.after) == (True, ())
    made = held_after(QUEUED, asked, Amended(13.0, "run.0"))
    assert (made.view(14.0).amending, made.after, made.gated) == (False, ("run.9",), True)
    refused = held_after(QUEUED, asked, Amended(13.0, "run.0", "denied"))
    assert (refused.view(14.0).refused, refused.after, refused.gated) == ("denied", (), False)


def test_what_was_said_of_the_place_is_asked_anew_after_a_change() -> None:
    said = Queued(12.0, "run.0", "Dependency", 11.0)
    held = held_after(QUEUED, said)
    assert (held.reason, held.ages_since) == ("Dependency", 11.0)
    held = held_after(QUEUED, said, Amending(13.0, "run.0", parked=True), Amended(14.0, "run.0"))
    assert (held.parked, held.reason, held.ages_since) == (True, "", None)


def test_a_throttle_is_the_array_s() -> None:
    job = JobRequest("run.0", ONE, 1000.0, ("x",), array="a+1")
    pool = pool_after(QUEUED, Amending(12.0, "run.0", throttle=2), job=job)
    assert pool.throttles == {"a+1": 1}
    pool.on(Amended(13.0, "run.0"))
    assert pool.throttles == {"a+1": 2}
    assert not pool.held["run.0"].gated, "the first element waits like any other job"
    second = Submitted(11.0, "run.0", JobHandle("7", "run.0", 11.0, array_index=1))
    assert pool_after(second, job=job).held["run.0"].gated


def test_a_new_driver_does_not_know_whether_a_change_was_made() -> None:
    pool = pool_after(QUEUED, Amending(12.0, "run.0", parked=True))
    pool.forget_nodes()
    assert not pool.held["run.0"].view(13.0).amending


def test_what_an_allocation_held_before_its_first_task_is_counted() -> None:
    held = held_after(*JOINED)
    assert held.idle_core_s(90.0) == 4 * (90.0 - 50.0)
    held.take(("a", 0), ONE, 70.0)
    assert held.idle_core_s(90.0) == 4 * (70.0 - 50.0)
    pool = pool_after(*JOINED, JobEnded(80.0, "run.0", JobState.CANCELLED))
    assert pool.idle_core_s == 4 * (80.0 - 50.0)
    assert pool_after(QUEUED, JobEnded(80.0, "run.0", JobState.CANCELLED)).idle_core_s == 0.0


# ------------------------------------------------------------------------------------------------ leases

LEASED = Leased(20.0, "run.lease-1", Resources(2, memory=100), "other", 520.0)
FAR = NodeJoined(21.0, "run.lease-1", "n9", 2)


def test_a_lease_is_there_at_once_and_until_it_is_over() -> None:
    pool = pool_after(LEASED)
    lease = pool.held["run.lease-1"]
    assert (lease.lender, lease.handle, lease.stages, lease.started, lease.ends) == ("other", None, (), 20.0, 520.0)
    assert lease.room(ONE, 0.0) == 0, "its node has not joined"
    pool.on(FAR)
    assert (lease.room(ONE, 0.0), lease.room(Resources(1, memory=60), 0.0)) == (2, 1)
    pool.on(LeaseEnded(30.0, "run.lease-1"))
    assert list(pool.held) == ["run.0"]


def test_a_lease_takes_no_more_near_its_end_nor_once_it_is_recalled() -> None:
    lease = pool_after(LEASED, FAR).held["run.lease-1"]
    assert not lease.leaving(494.0) and lease.leaving(495.0)
    recalled = pool_after(LEASED, FAR, Recalled(30.0, "run.lease-1", "why")).held["run.lease-1"]
    assert recalled.recalled and recalled.leaving(31.0)


def test_one_that_came_too_late_has_no_time() -> None:
    lease = pool_after(Leased(20.0, "run.lease-1", ONE, "other", 19.0)).held["run.lease-1"]
    assert lease.ends == 20.0 and lease.leaving(20.0)


def test_nobody_counts_what_a_lease_held_before_its_first_task() -> None:
    pool = pool_after(LEASED, FAR)
    assert pool.held["run.lease-1"].idle_core_s(90.0) == 0.0
    pool.on(LeaseEnded(90.0, "run.lease-1"))
    assert pool.idle_core_s == 0.0


def test_a_new_driver_knows_no_leases() -> None:
    pool = pool_after(*JOINED, LEASED, FAR)
    pool.forget_nodes()
    assert list(pool.held) == ["run.0"]
    pool.on(LeaseEnded(30.0, "run.lease-1"))
    assert list(pool.held) == ["run.0"]
