"""The fold of a run: stages, allocations, and the whole."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.allocation import drain_margin, takes
from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    Cancelled,
    DriverStarted,
    Event,
    JobEnded,
    Leased,
    LeaseEnded,
    NodeJoined,
    NodeLost,
    Queued,
    Recalled,
    Released,
    Requeued,
    ResultsLost,
    StageExpanded,
    StageLookedUp,
    SubmitRefused,
    Submitted,
    Submitting,
    TaskCancelled,
    TaskDone,
    TaskFailed,
    TaskPaused,
    TasksDone,
    TasksKept,
    TasksLaunched,
    packed,
)
from asa.core.job import JobHandle, JobRequest, JobState, Resources
from asa.core.run import (
    ALLOCATION,
    CALLS,
    FAILURES_KEPT,
    JOB,
    STAGE,
    TASK,
    FoldedRun,
    Held,
    Pool,
    StageProgress,
    Table,
    TaskState,
)
from asa.core.stage import StageSpec, StageState
from tests.core.diagrams import drawn
from tests.runlogs import MadeStage, job_asked, run_begins, run_log, stage_spec

# ------------------------------------------------------------------------------------------------ stages


def stage(width: int | None = 10, state: StageState = StageState.READY, *, run_time_s: float = 600.0) -> StageProgress:
    return StageProgress(StageSpec("s", Resources(4), Resources(), 600.0, run_time_s, width=width), width, state=state)


def test_fresh_tasks_come_in_order() -> None:
    progress = stage()
    assert progress.next_ranges(4) == ((0, 4),)
    assert progress.next_ranges(4, skip=4) == ((4, 8),)
    assert progress.next_ranges(4, skip=8) == ((8, 10),)
    assert progress.next_ranges(4, skip=10) == ()
    assert progress.unlaunched == 10


def test_lost_tasks_come_first() -> None:
    progress = stage()
    progress.launch(0, 6, 1.0)
    progress.lose(4)
    progress.lose(1)
    assert progress.unlaunched == 6
    assert progress.next_ranges(3) == ((4, 5), (1, 2), (6, 7))
    assert progress.next_ranges(3, skip=1) == ((1, 2), (6, 8))
    assert progress.next_ranges(3, skip=3) == ((7, 10),)
    progress.launch(4, 5, 2.0)
    assert progress.next_ranges(2) == ((1, 2), (6, 7))


def test_a_stage_is_done_with_its_last_task() -> None:
    progress = stage(2)
    progress.launch(0, 2, 1.0)
    assert (progress.state, progress.started, progress.unlaunched) == (StageState.RUNNING, 1.0, 0)
    progress.finish(1, 5.0, 6.0)
    assert not progress.is_done(0) and progress.is_done(1)
    progress.finish(0, 9.0, 10.0)
    assert (progress.state, progress.ended, progress.longest_s) == (StageState.DONE, 10.0, 9.0)


def test_a_task_that_is_done_is_neither_done_again_nor_lost() -> None:
    progress = stage(2)
    progress.launch(0, 2, 1.0)
    progress.finish(0, 5.0, 6.0)
    progress.finish(0, 7.0, 8.0)
    progress.lose(0)
    assert (progress.done, progress.longest_s, progress.unlaunched) == (1, 5.0, 0)


def test_a_late_launch_does_not_revive_a_failed_stage() -> None:
    progress = stage()
    progress.fail("one", 1.0)
    progress.fail("two", 2.0)
    progress.launch(0, 2, 3.0)
    assert (progress.state, progress.error, progress.ended, progress.unlaunched) == (StageState.FAILED, "one", 1.0, 0)


def test_a_new_driver_gives_a_failed_stage_another_go() -> None:
    progress = stage(2)
    progress.launch(0, 2, 1.0)
    progress.failures[0] = 1
    progress.barren = 2
    progress.fail("why", 3.0)
    progress.finish(1, 1.0, 4.0)
    progress.reopen()
    assert (progress.state, progress.error, progress.ended) == (StageState.WAITING, "", None)
    assert (progress.failures, progress.barren, progress.done) == ({}, 0, 1)


@given(st.integers(1, 40), st.data())
def test_of_tasks_that_are_reused_none_is_launched_and_of_the_others_each_once(width: int, data: st.DataObject) -> None:
    """However many are looked for at once, and launched at once."""
    reused = data.draw(st.sets(st.integers(0, width - 1)))
    run = folded(*run_begins(replace(stage_spec("s", 4, width), reuse=True)))
    start = 0
    while start < width:
        assert run.unlooked and not [*run.launchable], "nothing is launched before all were looked for"
        stop = data.draw(st.integers(start + 1, width))
        ranges = tuple((index, index + 1) for index in sorted(reused) if start <= index < stop)
        run.on(StageLookedUp(1.0, "s", stop, (("before", ranges),) if ranges else ()))
        start = stop
    progress, launched = run.stages["s"], list[int]()
    assert not run.unlooked and (progress.done, progress.reused) == (len(reused), len(reused))
    assert progress.unlaunched == width - len(reused)
    while found := progress.next_ranges(data.draw(st.integers(1, 5))):
        for first, last in found:
            launched += range(first, last)
            progress.launch(first, last, 2.0)
    assert sorted(launched) == [index for index in range(width) if index not in reused]
    assert progress.state is (StageState.RUNNING if launched else StageState.DONE)
    assert not run.illegal and len(run.attempts) == 0


def test_nothing_may_be_launched_before_the_width_is_known_or_the_stage_is_ready() -> None:
    assert stage(None).unlaunched == 0
    assert stage(4, StageState.WAITING).unlaunched == 0
    assert stage(4, StageState.FAILED).unlaunched == 0


def test_only_short_tasks_queue_up_inside_allocations() -> None:
    progress = stage()
    assert progress.ahead == 0.0, "nothing is known yet"
    progress.mean_s = 0.05
    assert progress.ahead == 10.0, "half a second of work"
    progress.mean_s = 0.0
    assert progress.ahead == 256.0
    progress.mean_s = 0.5
    assert progress.ahead == 0.0


def test_the_end_is_expected_by_the_run_time_until_a_fifth_is_done() -> None:
    progress = stage(10, run_time_s=300.0)
    assert progress.expected_end(50.0) is None, "it has not started"
    progress.launch(0, 10, 100.0)
    assert progress.expected_end(150.0) == 400.0
    progress.finish(0, 20.0, 120.0)
    assert progress.expected_end(500.0) == 500.0, "never in the past"
    progress.finish(1, 20.0, 120.0)
    assert progress.expected_end(120.0) == 200.0, "a fifth in 20 s"
    assert progress.expected_end(150.0) == 350.0


# ------------------------------------------------------------------------------------------------ allocations


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


def test_a_node_that_joins_first_marks_the_start_until_the_batch_system_reports_it() -> None:
    assert held_after(NodeJoined(61.0, "run.0", "n1", 4)).started == 61.0
    late = (NodeJoined(61.0, "run.0", "n1", 4), AllocationStarted(62.0, "run.0", 50.0))
    assert held_after(*late).started == 50.0


@pytest.mark.parametrize("ahead_s", [600.0, -600.0])
def test_where_clocks_are_apart_an_allocation_ends_by_that_of_the_driver(ahead_s: float) -> None:
    submitted = AllocationStarted(60.0, "run.0", 50.0 - ahead_s, submitted=10.5 - ahead_s)
    by_report = held_after(Submitted(11.0, "run.0", HANDLE), submitted)
    handle = replace(HANDLE, submitted=10.5 - ahead_s)
    by_handle = held_after(Submitted(11.0, "run.0", handle), AllocationStarted(60.0, "run.0", 50.0 - ahead_s))
    for held in (by_report, by_handle):
        seen = held.view(60.0)
        assert (seen.submitted, seen.started, seen.ends) == pytest.approx((10.5, 50.0, 1050.0), abs=0.6)
        assert held.idle_core_s(60.0) == pytest.approx(10.0 * held.cores, abs=0.6 * held.cores)
        assert not held.leaving(1000.0) and held.leaving(1021.0)
    again = held_after(*JOINED[:1], submitted, Requeued(80.0, "run.0", "NodeFail"), NodeJoined(90.0, "run.0", "n1", 4))
    assert again.ends == 1090.0  # by the driver's clock, until the batch system says when it started


def test_a_requeued_job_waits_again_and_its_nodes_go_when_the_executor_says_so() -> None:
    again = held_after(*JOINED, Requeued(80.0, "run.0", "NodeFail"))
    assert (again.started, again.requeued, again.leaving(9999.0)) == (None, True, False)
    lost = held_after(*JOINED, Requeued(80.0, "run.0", "NodeFail"), NodeLost(81.0, "run.0", "n1", "gone"))
    assert lost.nodes == {}


def test_a_draining_released_or_cancelled_allocation_takes_no_more_tasks() -> None:
    running = held_after(*JOINED)
    assert not running.leaving(1019.0) and running.leaving(1020.0)
    assert held_after(*JOINED, Released(62.0, "run.0")).leaving(63.0)
    assert held_after(Submitted(11.0, "run.0", HANDLE), Cancelled(62.0, "run.0", "why")).leaving(63.0)
    assert not held_after().leaving(1e9)


def test_room_is_counted_by_cores() -> None:
    held = held_after(*JOINED)
    assert (held.room(ONE, 0.0), held.room(TWO, 0.0), held.room(Resources(5), 0.0)) == (4, 2, 0)
    held.take("a", 0, 1, TWO, 70.0)
    assert (held.room(ONE, 0.0), held.room(TWO, 0.0), held.room(Resources(4), 0.0)) == (2, 1, 0)
    assert held.drop(("a", 0), 80.0) == 70.0
    assert held.room(ONE, 0.0) == 4
    assert held.drop(("a", 0), 80.0) is None
    assert held.room(ONE, 0.0) == 4, "a task goes once"


def pieces(asked: Resources, *cores: int, complete: bool = True) -> Held:
    """An allocation whose nodes have so many cores."""
    nodes = [f"n{number}" for number, _ in enumerate(cores)]
    joined = (NodeJoined(61.0, "run.0", node, count) for node, count in zip(nodes, cores, strict=True))
    started = AllocationStarted(60.0, "run.0", 50.0, tuple(nodes) if complete else (*nodes, "late"))
    job = JobRequest("run.0", asked, 1000.0, ("x",))
    return held_after(Submitted(11.0, "run.0", HANDLE), started, *joined, job=job)


def test_uneven_pieces_are_used_whole_and_tasks_are_not_parted() -> None:
    held = pieces(Resources(8, unit=1), 1, 3, 4)
    assert [held.room(Resources(cores), 0.0) for cores in (1, 2, 3, 4, 5)] == [8, 3, 2, 1, 0]
    assert held.room(Resources(8, unit=1), 0.0) == 1, "ranks are anywhere"
    assert held.room(Resources(8, unit=2), 0.0) == 0 and held.room(Resources(6, unit=2), 0.0) == 1
    held.take("a", 0, 1, TWO, 70.0)
    assert (held.room(TWO, 0.0), held.room(ONE, 0.0)) == (2, 6)


def test_less_than_was_asked_for_is_used_all_the_same() -> None:
    ranks = Resources(8, unit=2)
    assert pieces(ranks, 2, 2, 2).room(ranks, 0.0) == 1
    assert pieces(ranks, 2, 2, complete=False).room(ranks, 0.0) == 0, "another node is to come"
    assert pieces(ranks, 2, 2, 2).room(Resources(8, unit=4), 0.0) == 0, "it is another stage's"
    assert pieces(Resources(4, unit=4), 3, 1).room(Resources(4), 0.0) == 1


def test_without_nodes_there_is_no_room() -> None:
    assert held_after(Submitted(11.0, "run.0", HANDLE)).room(ONE, 100.0) == 0


def test_room_ahead_is_a_multiple_of_the_capacity() -> None:
    held = held_after(*JOINED)
    assert (held.room(ONE, 2.0), held.room(TWO, 0.5)) == (12, 3)


def test_memory_and_gpus_may_be_what_is_short() -> None:
    held = held_after(*JOINED, job=request(memory=100, gpus=2))
    assert held.room(Resources(1, memory=40), 0.0) == 2
    assert held.room(Resources(1, gpus=1), 0.0) == 2
    held.take("a", 0, 1, Resources(1, memory=80, gpus=2), 70.0)
    assert held.room(Resources(1, memory=40), 0.0) == 0
    assert held.room(Resources(1, gpus=1), 0.0) == 0
    assert held.room(Resources(1), 0.0) == 3
    assert held_after(*JOINED).room(Resources(1, gpus=1), 0.0) == 0
    assert held_after(*JOINED).room(Resources(1, memory=10**15), 0.0) == 4, "not counted where it was not asked for"


def test_a_new_driver_knows_no_nodes() -> None:
    pool = pool_after(*JOINED)
    pool.held["run.0"].take("a", 0, 1, ONE, 70.0)
    pool.forget_nodes(80.0, keeps=False)
    held = pool.held["run.0"]
    assert (held.nodes, held.running, held.cores_busy, held.started) == ({}, {}, 0, 50.0)


def test_what_runs_is_unseen_by_a_new_driver_that_keeps_it() -> None:
    pool = pool_after(*JOINED)
    pool.held["run.0"].take("a", 0, 1, ONE, 70.0)
    pool.forget_nodes(80.0, keeps=True)
    held = pool.held["run.0"]
    assert (held.nodes, list(held.away), list(held.unseen), held.cores_busy) == ({}, ["n1"], [("a", 0)], 1)
    held.drop(("a", 0), 90.0)
    assert not held.unseen


def test_view_of_an_allocation() -> None:
    view = held_after().view(100.0)
    assert (view.key, view.submitted, view.queued, view.started, view.busy) == ("run.0", 10.0, False, None, False)
    held = held_after(*JOINED)
    held.take("a", 0, 1, ONE, 70.0)
    view = held.view(100.0)
    assert (view.submitted, view.queued, view.started, view.ends, view.busy) == (11.0, True, 50.0, 1050.0, True)
    held.dependable = False
    assert not held.view(100.0).queued


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


def test_the_reason_of_a_held_place_is_asked_anew_after_a_change() -> None:
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
    pool.forget_nodes(80.0, keeps=True)
    assert not pool.held["run.0"].view(13.0).amending


def test_core_hours_before_the_first_task_are_counted() -> None:
    held = held_after(*JOINED)
    assert held.idle_core_s(90.0) == 4 * (90.0 - 50.0)
    held.take("a", 0, 1, ONE, 70.0)
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


def test_a_lease_that_came_too_late_has_no_time() -> None:
    lease = pool_after(Leased(20.0, "run.lease-1", ONE, "other", 19.0)).held["run.lease-1"]
    assert lease.ends == 20.0 and lease.leaving(20.0)


# ------------------------------------------------------------------------------------------------ tasks that span nodes


SPANNING = Resources(8, nodes=2)


@pytest.mark.parametrize(
    ("nodes", "room"),
    [
        ({}, 0),
        ({"n1": 8}, 0),
        ({"n1": 4, "n2": 4}, 1),
        ({"n1": 7, "n2": 2}, 0),
        ({"n1": 8, "n2": 8}, 2),
        ({"n1": 2, "n2": 4, "n3": 4}, 1),
    ],
)
def test_room_for_a_spanning_task(nodes: dict[str, int], room: int) -> None:
    held = Held(JobRequest("k", Resources(16, nodes=2), 100.0, ("x",)), ("s",), (), 0.0, None, nodes=nodes)
    assert held.room(SPANNING, 0.0) == room


def test_a_task_that_spans_none_is_counted_in_cores() -> None:
    held = Held(JobRequest("k", Resources(8), 100.0, ("x",)), ("s",), (), 0.0, None, nodes={"n1": 8})
    assert held.room(Resources(8), 0.0) == 1


# ------------------------------------------------------------------------------------------------ the run


def folded(*events: Event) -> FoldedRun:
    run = FoldedRun()
    for event in events:
        run.on(event)
    return run


@st.composite
def graphs(draw: st.DrawFn) -> list[StageSpec]:
    """Stages in topological order, of one-core and two-core tasks; of some the number of tasks is not known."""
    specs: list[StageSpec] = []
    for number in range(draw(st.integers(1, 7))):
        after = draw(st.lists(st.sampled_from([spec.name for spec in specs]), unique=True)) if specs else []
        width, cores = draw(st.sampled_from([0, 1, 1, 2, None])), draw(st.sampled_from([1, 1, 2]))
        specs.append(stage_spec(f"s{number}", 4, width, *after, task_cores=cores))
    return specs


def check_order(run: FoldedRun) -> None:
    """Each stage is where those before it, all of which are looked at, let it be; and what can be launched is known."""
    for stage in run.stages.values():
        before = {run.stages[name].state for name in stage.spec.predecessors}
        if stage.state is StageState.DONE and stage.done == stage.width:
            continue  # its own results are there, whatever has become of those that it was made of
        if before & {StageState.FAILED, StageState.SKIPPED}:
            assert stage.state in (StageState.SKIPPED, StageState.FAILED)
        elif before <= {StageState.DONE}:
            goes_on = StageState.READY, StageState.RUNNING, StageState.FAILED
            assert stage.state in ((StageState.DONE,) if stage.done == stage.width else goes_on)
        else:
            assert stage.state in (StageState.WAITING, StageState.FAILED)
    waiting = [stage for stage in run.stages.values() if stage.unlaunched]
    assert list(run.launchable.those(lambda _: True)) == waiting
    assert list(run.launchable.those(lambda task: task.cores == 2)) == [s for s in waiting if s.spec.task.cores == 2]
    assert [s for s in run.launchable.begun() if s.state is StageState.RUNNING] == [
        stage for stage in waiting if stage.state is StageState.RUNNING
    ]
    unknown = {s.spec.name for s in run.stages.values() if s.state is StageState.READY and s.width is None}
    assert unknown == run.unexpanded.keys()


@given(graphs(), st.data())
@settings(max_examples=150, deadline=None)
def test_stages_follow_one_another_whatever_happens(specs: list[StageSpec], data: st.DataObject) -> None:
    run = folded(*run_begins(*specs), *job_asked(1.0, "j0", 4, *(spec.name for spec in specs)))
    run.on(NodeJoined(2.0, "j0", "n1", 4))
    check_order(run)
    jobs = 1
    for now in map(float, range(3, 3 + data.draw(st.integers(0, 14)))):
        (key,) = run.pool.held
        held = run.pool.held[key]
        can: list[Event] = [DriverStarted(now, 4712, "login1", keeps=data.draw(st.booleans()))]
        can += [StageExpanded(now, name, data.draw(st.integers(0, 2))) for name in run.unexpanded]
        can += [
            TasksLaunched(now, stage.spec.name, stage.next_ranges(1), key)
            for stage in run.launchable.those(lambda _: True)
        ]
        for name, index in held.running:
            can += [TaskDone(now, name, index, key, "n1", now - 1, b"")] * 3
            can += [TaskFailed(now, name, index, key, "n1", now - 1, "broken", "", "", infrastructure=lost)
                    for lost in (True, True, False)]  # fmt: skip
        can += [
            ResultsLost(now, ((name, index),), "damaged")
            for name, stage in run.stages.items()
            for index in range(len(stage.tasks))
            if stage.is_done(index)
        ]
        can += [JobEnded(now, key, JobState.NODE_FAIL, 2.0, 1)] if held.nodes else []
        event = data.draw(st.sampled_from(can))
        run.on(event)
        if isinstance(event, JobEnded):
            for other in job_asked(now, f"j{jobs}", 4, *(spec.name for spec in specs)):
                run.on(other)
            jobs += 1
        if not run.pool.held[f"j{jobs - 1}"].nodes:
            run.on(NodeJoined(now, f"j{jobs - 1}", "n1", 4))
        check_order(run)


def test_stages_become_ready_one_by_one() -> None:
    diamond = [
        MadeStage("a", 1),
        MadeStage("b", 1, task_s=10, after=("a",)),
        MadeStage("c", 1, task_s=90, after=("a",)),
        MadeStage("d", 1, after=("b", "c")),
    ]
    run = folded(*run_log(diamond, start=0.0))
    stages = run.stages
    assert stages["b"].ready == stages["c"].ready == stages["a"].ended
    assert stages["d"].ready == stages["c"].ended
    assert all(stage.state is StageState.DONE for stage in stages.values())


def test_node_that_joins_before_the_batch_system_says_so_starts_the_job() -> None:
    run = folded(*run_begins(stage_spec("a", 1, 1)), *job_asked(0.0, "j0", 1, "a"), NodeJoined(7.0, "j0", "n", 1))
    assert run.pool.ever["j0"].started == 7.0 and run.pool.ever["j0"].job is JobState.RUNNING


def test_report_that_comes_after_the_jobs_end_is_not_counted_out_twice() -> None:
    run = folded(
        *run_begins(stage_spec("a", 2, 2)),
        *job_asked(0.0, "j0", 2, "a"),
        TasksLaunched(1.0, "a", ((0, 2),), "j0"),
        JobEnded(5.0, "j0", JobState.TIMEOUT, 1.0),
        TaskDone(5.1, "a", 0, "j0", "n", 1.0),
    )
    assert run.stages["a"].running == 0 and run.stages["a"].done == 1


def test_events_of_unknown_jobs_change_nothing() -> None:
    run = folded(*run_begins(stage_spec("a", 1, 1)), JobEnded(5.0, "other", JobState.COMPLETED, 1.0))
    assert run.pool.ever == {} and run.last == 5.0


@pytest.mark.parametrize("bad", [3, FAILURES_KEPT + 50])
def test_number_of_failures_kept_is_bounded(bad: int) -> None:
    run = folded(*run_log([MadeStage("a", 300, bad, bad_tasks=bad)]))
    assert run.failed == bad and len(run.failures) == min(bad, FAILURES_KEPT)


def test_a_call_that_is_cancelled_never_runs_unless_it_runs_already() -> None:
    calls = run_begins(stage_spec("calls", 2, None))
    calls[0] = replace(calls[0], strategy=CALLS)
    launched = TasksLaunched(2.0, "calls", ((0, 1),), "j0")
    run = folded(*calls, StageExpanded(1.0, "calls", 2), *job_asked(1.0, "j0", 2, "calls"), launched)
    for index in (0, 1, 3):  # the last one before it was counted
        run.on(TaskCancelled(3.0, "calls", index))
    (stage,) = run.stages.values()
    assert (stage.width, stage.running, list(stage.waiting()), stage.unlaunched) == (4, 1, [2], 1)
    run.on(StageExpanded(4.0, "calls", 5))
    run.on(TaskDone(5.0, "calls", 0, "j0", "n", 2.0))
    assert (stage.done, list(stage.waiting()), stage.unlaunched, run.illegal) == (1, [2, 4], 2, [])


LEASE = (
    *run_begins(stage_spec("a", 2, 2)),
    Leased(10.0, "l1", Resources(2), "other", 500.0),
    NodeJoined(12.0, "l1", "n", 2),
    TasksLaunched(12.0, "a", ((0, 2),), "l1"),
)


def test_a_lease_runs_from_when_it_was_given() -> None:
    lease = folded(*LEASE).pool.ever["l1"]
    assert (lease.lender, lease.job, lease.started, lease.request.walltime_s) == (
        "other",
        JobState.RUNNING,
        10.0,
        490.0,
    )


@pytest.mark.parametrize(("reason", "state"), [("", JobState.COMPLETED), ("the agent is gone", JobState.FAILED)])
def test_tasks_of_a_lease_that_ends_run_again(reason: str, state: JobState) -> None:
    run = folded(*LEASE, TaskDone(15.0, "a", 0, "l1", "n", 12.0), LeaseEnded(20.0, "l1", reason))
    lease = run.pool.ever["l1"]
    assert (lease.job, lease.runs, lease.ended, lease.why_ended) == (state, [(10.0, 20.0, 2)], 20.0, reason)
    assert (run.stages["a"].running, run.stages["a"].done) == (0, 1)


def test_what_the_nodes_have_not_kept_waits_again() -> None:
    asked = Submitting(10.0, "run.0", request(), ("a",), ())
    began = (*run_begins(stage_spec("a", 4, 4)), asked, *JOINED, TasksLaunched(70.0, "a", ((0, 4),), "run.0"))
    run = folded(*began, TaskDone(75.0, "a", 0, "run.0", "n1", 70.0), DriverStarted(90.0, 2, "host", keeps=True))
    stage, held = run.stages["a"], run.pool.held["run.0"]
    assert (stage.running, stage.unlaunched, list(held.unseen)) == (3, 0, [("a", 1), ("a", 2), ("a", 3)])
    for event in (NodeJoined(91.0, "run.0", "n1", 4), TasksKept(92.0, "run.0", (("a", 1), ("a", 3)))):
        run.on(event)
    assert (stage.running, stage.unlaunched, list(stage.waiting())) == (2, 1, [2])
    assert list(held.running) == [("a", 1), ("a", 3)] and not held.unseen
    assert run.illegal == []


def test_leases_end_with_their_driver() -> None:
    run = folded(*LEASE, DriverStarted(90.0, 2, "host"), LeaseEnded(95.0, "unknown"))
    lease = run.pool.ever["l1"]
    assert (lease.job, lease.runs, lease.ended) == (JobState.LOST, [(10.0, 12.0, 2)], 12.0), "it was last seen then"
    again = folded(*LEASE, LeaseEnded(20.0, "l1"), DriverStarted(90.0, 2, "host")).pool.ever["l1"]
    assert (again.job, again.ended) == (JobState.COMPLETED, 20.0), "what has ended stays as it was"


TABLES: dict[str, Table] = {"stage": STAGE, "task": TASK, "job": JOB, "allocation": ALLOCATION}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_whatever_a_table_leads_to_can_be_left_or_is_an_end(table: Table) -> None:
    known, left = {state for state, _ in table}, set(table.values())
    ends = left - known
    assert all(getattr(end, "final", True) or end is TaskState.FAILED for end in ends)


@pytest.mark.parametrize("name", TABLES)
def test_the_documentation_has_the_tables_as_they_are(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "states.md"
    assert f"## {name.capitalize()}\n\n```mermaid\n{drawn(TABLES[name])}\n```" in page.read_text()


def test_an_illegal_event_changes_no_state_and_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    begun = (*run_begins(stage_spec("a", 2, 2)), *job_asked(0.0, "j0", 2, "a"), NodeJoined(1.0, "j0", "n", 2))
    twice = TasksLaunched(2.0, "a", ((0, 1),), "j0")
    with caplog.at_level(logging.DEBUG, "asa.core.run"):
        assert folded(*begun, twice).illegal == []
        assert "stage a: ready -> running (tasks launched)" in caplog.messages
        assert "allocation j0: queued -> running (NodeJoined)" in caplog.messages
        run = folded(*begun, twice, twice, Submitted(3.0, "j0", HANDLE))
    assert len(run.illegal) == 1 and "only 0 waited" in run.illegal[0]
    assert run.illegal[0] in caplog.messages
    again = folded(*run_begins(stage_spec("a", 2, 2)), *job_asked(0.0, "j0", 2, "a"), LeaseEnded(1.0, "j0"))
    assert again.illegal == ["allocation j0 is queued: LeaseEnded", "job of j0 is pending: LeaseEnded"]


def test_the_numbers_of_the_fold_do_not_depend_on_when_it_is_looked_at() -> None:
    events = list(run_log([MadeStage("a", 3), MadeStage("b", 40, 50, after=("a",), bad_tasks=4)]))
    once, often = folded(*events), FoldedRun()
    for event in events:
        often.on(event)
        assert len(often.attempts) == len(often.attempts.records) // 36
        assert all(stage.running >= 0 for stage in often.stages.values())
    assert once.attempts.records == often.attempts.records and not often.illegal


# ------------------------------------------------------------------------------------------------ wall times


@pytest.mark.parametrize(("walltime_s", "margin_s"), [(20.0, 1.0), (600.0, 30.0), (601.0, 30.0), (864000.0, 30.0)])
def test_the_margin_is_a_share_of_the_wall_time_up_to_a_limit(walltime_s: float, margin_s: float) -> None:
    assert drain_margin(walltime_s) == margin_s


def test_a_task_has_to_be_done_before_the_margin() -> None:
    assert takes(470.0, now=1000.0, ends=1500.0, walltime_s=3600.0)
    assert not takes(471.0, now=1000.0, ends=1500.0, walltime_s=3600.0)
    assert takes(0.0, now=1470.0, ends=1500.0, walltime_s=3600.0)
    assert not takes(0.0, now=1471.0, ends=1500.0, walltime_s=3600.0)


@pytest.mark.parametrize("task_s", [96.0, 100.0, 1e9])
def test_a_fresh_allocation_takes_any_task(task_s: float) -> None:
    """A newer one would be no better; if the task is too long it fails there, with a reason."""
    assert takes(task_s, now=0.0, ends=100.0, walltime_s=100.0)
    assert takes(task_s, now=15.0, ends=100.0, walltime_s=100.0)
    assert not takes(task_s, now=16.0, ends=100.0, walltime_s=100.0)


# ------------------------------------------------------------------------------------------------ tasks together


def state_of(run: FoldedRun) -> tuple[object, ...]:
    """All that follows from a run's events; where a task is counted in does not depend on the order in a dictionary."""
    held = [repr(replace(each)) + repr(sorted(each.running.items())) for each in run.pool.held.values()]
    return list(map(repr, run.stages.values())), held, bytes(run.attempts.records), run.last, run.changes, run.outcome


@st.composite
def logs_of_tasks(draw: st.DrawFn) -> list[Event]:
    """Two stages in two allocations: tasks are launched, and return in any order, twice, late, or not at all."""
    widths = {"a": draw(st.sampled_from([30, 2000])), "b": 40}  # of the wide one, few tasks are news
    events: list[Event] = run_begins(stage_spec("a", 8, widths["a"]), stage_spec("b", 8, 40, "a"))
    for token in ("j0", "j1"):
        events += job_asked(1.0, token, 8, "a", "b")
        events += [AllocationStarted(2.0, token, 2.0), NodeJoined(2.0, token, "n", 8)]
    now, fresh, out = 3.0, {"a": 0, "b": 0}, list[tuple[str, int, str]]()
    some_fail, some_twice = draw(st.booleans()), draw(st.booleans())
    for _ in range(draw(st.integers(1, 12))):
        name, token = draw(st.sampled_from("ab")), draw(st.sampled_from(["j0", "j1"]))
        stop = min(widths[name], fresh[name] + draw(st.integers(1, 30)))
        if stop > fresh[name]:
            events.append(TasksLaunched(now, name, ((fresh[name], stop),), token))
            out += [(name, index, token) for index in range(fresh[name], stop)]
            fresh[name] = stop
        for _ in range(draw(st.integers(0, 3))):
            now += 1.0
            if not out:
                break
            first = draw(st.integers(0, len(out) - 1))
            batch = out[first : first + draw(st.integers(1, 20))]
            out = [each for each in out if each not in batch]
            batch = draw(st.permutations(batch)) + batch[: int(some_twice)]
            for each in batch:
                took = draw(st.floats(-1.0, 9.0))
                if some_fail and draw(st.integers(0, 15)) == 0:
                    events.append(TaskFailed(now, each[0], each[1], each[2], "n", now - took, "e", infrastructure=True))
                else:
                    events.append(TaskDone(now, each[0], each[1], each[2], "n", now - took))
    return events


@settings(max_examples=100, deadline=None)
@given(logs_of_tasks())
def test_tasks_that_are_folded_together_make_the_same_run(events: list[Event]) -> None:
    one_by_one, together = FoldedRun(), FoldedRun()
    for event in events:
        one_by_one.on(event)
    items = list(packed(events))
    for item in items:
        together.on(item)
    assert state_of(one_by_one) == state_of(together)
    assert [event for item in items for event in (item.events() if isinstance(item, TasksDone) else [item])] == events


def long_run(*, retries: int = 0) -> FoldedRun:
    """A run with one task with checkpoints, of 100 s wall time, that runs since 0 s."""
    spec = replace(stage_spec("s", 1, 1), walltime_s=100.0, checkpoint=True, retries=retries)
    run = folded(*run_begins(spec))
    begin(run, 0, 0.0)
    return run


def begin(run: FoldedRun, number: int, at: float) -> None:
    for event in job_asked(at, f"j{number}", 1, "s"):
        run.on(
            replace(event, request=replace(event.request, walltime_s=100.0)) if isinstance(event, Submitting) else event
        )
    run.on(AllocationStarted(at, f"j{number}", at, ("n",)))
    run.on(NodeJoined(at, f"j{number}", "n", 1))
    run.on(TasksLaunched(at, "s", ((0, 1),), f"j{number}"))


def pause(run: FoldedRun, number: int, started: float, at: float, saved: str, lost: str = "") -> None:
    run.on(TaskPaused(at, "s", 0, f"j{number}", "n", started, saved, lost))
    run.on(JobEnded(at, f"j{number}", JobState.COMPLETED, started, 0))


def test_a_task_that_pauses_is_the_same_and_its_time_adds_up() -> None:
    run = long_run()
    for number in range(5):
        pause(run, number, 100.0 * number, 100.0 * number + 95, str(number))
        assert run.stages["s"].unlaunched == 1 and not run.stages["s"].failures
        begin(run, number + 1, 100.0 * number + 100)
    run.on(TaskDone(510.0, "s", 0, "j5", "n", 500.0))
    progress = run.stages["s"]
    assert (progress.state, progress.longest_s, progress.pauses) == (StageState.DONE, 5 * 95 + 10.0, 5)
    assert progress.active_s == 5 * 95 + 10.0 and len(run.attempts) == 6
    assert not run.illegal and not run.failed and not progress.barren


@pytest.mark.parametrize(("retries", "allocations"), [(0, 2), (1, 3)])
def test_one_that_saves_nothing_new_in_a_whole_allocation_has_failed(retries: int, allocations: int) -> None:
    run = long_run(retries=retries)
    pause(run, 0, 0.0, 95.0, "1")
    for number in range(1, allocations):
        assert run.stages["s"].state is StageState.RUNNING
        begin(run, number, 100.0 * number)
        pause(run, number, 100.0 * number, 100.0 * number + 95, "1")
    assert run.stages["s"].state is StageState.FAILED
    assert "ran for 1 min 35 s and saved nothing new" in run.stages["s"].error


def test_what_was_lost_early_does_not_count_against_it_but_at_the_end_it_does() -> None:
    run = long_run()
    for number, ran in enumerate((50.0, 60.0)):
        pause(run, number, 100.0 * number, 100.0 * number + ran, "", "its node died")
        assert run.stages["s"].state is StageState.RUNNING
        begin(run, number + 1, 100.0 * number + 100)
    pause(run, 2, 200.0, 299.0, "", "its job was killed")
    assert run.stages["s"].state is StageState.FAILED


def test_a_pause_of_what_runs_elsewhere_by_now_changes_nothing() -> None:
    run = long_run()
    pause(run, 0, 0.0, 95.0, "1")
    begin(run, 1, 100.0)
    run.on(TaskPaused(101.0, "s", 0, "j0", "n", 0.0, "2"))
    assert run.stages["s"].running == 1 and run.stages["s"].pauses == 1 and len(run.attempts) == 1
