from __future__ import annotations

import pytest

from asa.core.event import (
    CancelAsked,
    JobEnded,
    NodeJoined,
    RunState,
    StageExpanded,
    SubmitRefused,
    TaskFailed,
)
from asa.core.job import JobRequest, JobState, Resources
from asa.core.run import LOSSES_MOST, Held
from asa.core.stage import StageSpec
from asa.integrations.elastic import slots as calls_at_once
from tests.integrations.world import World, world


def lose(there: World, index: int, at: float) -> None:
    (key,) = there.elastic.pool.held
    there.due.clear()
    there.now = at
    there.tell(TaskFailed(at, "calls", index, key, "n1", 0.0, "the node was lost", infrastructure=True))


def one_call(wait_s: float = 0.0) -> World:
    there = world(wait_s=wait_s, call_s=100.0)
    there.call(1)
    there.run(1.0)
    return there


def test_a_call_that_was_lost_runs_again_before_the_others() -> None:
    there = one_call()
    there.width = 1
    there.elastic.on(StageExpanded(1.0, "calls", 2))
    lose(there, 0, 2.0)
    assert list(there.elastic.calls.waiting()) == [0, 1] and not there.given_up


def test_a_call_that_is_lost_again_and_again_is_given_up() -> None:
    there = one_call()
    for number in range(LOSSES_MOST + 1):
        lose(there, 0, 2.0 + number)
        there.settle()
    assert "lost 4 times" in there.given_up[0]
    assert there.elastic.unfinished == 0


def test_a_call_that_had_the_whole_wall_time_does_not_get_another() -> None:
    there = one_call()
    (key,) = there.elastic.pool.held
    there.tell(JobEnded(3600.0, key, JobState.TIMEOUT))
    assert "raise walltime=" in there.given_up[0]


def test_what_is_told_of_an_allocation_that_is_gone_changes_nothing_there() -> None:
    there = one_call()
    (key,) = there.elastic.pool.held
    for event in (JobEnded(5.0, key, JobState.FAILED), JobEnded(5.0, key, JobState.FAILED)):
        there.tell(event)
    assert list(there.elastic.calls.waiting()) == [0] and not there.elastic.pool.held
    there.tell(TaskFailed(6.0, "calls", 0, key, "n1", 1.0, "the node was lost", infrastructure=True))
    assert list(there.elastic.calls.waiting()) == [0] and not there.given_up


def test_a_failure_of_its_own_ends_a_call() -> None:
    there = one_call()
    (key,) = there.elastic.pool.held
    there.tell(TaskFailed(2.0, "calls", 0, key, "n1", 1.0, "the worker process was killed"))
    assert there.elastic.unfinished == 0 and not there.given_up


def test_what_ran_in_a_job_that_ended_runs_again() -> None:
    there = one_call()
    (key,) = there.elastic.pool.held
    there.tell(JobEnded(2.0, key, JobState.NODE_FAIL))
    assert list(there.elastic.calls.waiting()) == [0]


def test_a_refused_job_breaks_the_executor() -> None:
    there = world()
    there.call(2)
    (key, *_) = there.elastic.pool.held
    there.tell(SubmitRefused(0.0, key, "no such partition"))
    assert there.given_up.keys() == {0, 1} and "no such partition" in there.elastic.broken
    there.run(10.0)
    assert there.elastic.outcome is RunState.FAILED and there.elastic.closed


def test_jobs_that_end_before_a_node_joins_break_it_the_third_time() -> None:
    there = world(wait_s=1e9)
    there.call(1)
    for number in range(3):
        assert not there.elastic.broken
        (key,) = there.elastic.pool.held
        there.tell(JobEnded(float(number), key, JobState.FAILED, 0.0, 1, "NonZeroExitCode"))
        there.settle()
    assert "NonZeroExitCode" in there.elastic.broken and there.given_up.keys() == {0}


def test_a_job_whose_node_joined_was_of_use() -> None:
    there = world(wait_s=1e9)
    there.call(1)
    for number in range(4):
        (key,) = there.elastic.pool.held
        there.tell(NodeJoined(number, key, "n1", 2))
        there.tell(JobEnded(number, key, JobState.FAILED, number))
        there.settle()
    assert not there.elastic.broken


def test_who_wants_it_to_end_is_heard() -> None:
    there = one_call()
    there.tell(CancelAsked(2.0, "enough"))
    there.run(3.0)
    assert there.elastic.outcome is RunState.CANCELLED and there.elastic.closed


@pytest.mark.parametrize(
    ("whole", "one", "slots"),
    [
        (Resources(8), Resources(3), 2),
        (Resources(8, memory=100), Resources(2, memory=30), 3),
        (Resources(8, memory=100), Resources(2), 4),
        (Resources(8, gpus=1), Resources(2, gpus=1), 1),
        (Resources(8, gpus=2), Resources(2), 4),
    ],
)
def test_what_there_is_least_of_bounds_the_calls_that_run_at_once(whole: Resources, one: Resources, slots: int) -> None:
    held = Held(JobRequest("job", whole, 60.0, ()), ("calls",), (), 0.0, None, nodes={"n1": whole.cores})
    assert calls_at_once(StageSpec("calls", whole, one, 60.0, 60.0, width=None)) == held.room(one, ahead=0.0) == slots
