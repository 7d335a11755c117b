"""Calls without a workflow: their futures, and the allocations that follow them."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Cancel, Predict
from asa.core.errors import InvalidInput, RunFailed
from asa.core.event import (
    AllocationStarted,
    CallsAdded,
    CancelAsked,
    Cancelled,
    Event,
    JobEnded,
    Learned,
    NodeJoined,
    Predicted,
    Released,
    RunEnded,
    RunStarted,
    RunState,
    StageExpanded,
    SubmitRefused,
    Submitted,
    Submitting,
    TaskCancelled,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobHandle, JobRequest, JobState, Resources
from asa.core.run import CALLS, LOSSES_MOST, UNRESPONSIVE_S, Held
from asa.core.stage import StageSpec
from asa.integrations.book import CallBook
from asa.integrations.call import call, raised
from asa.integrations.elastic import Elastic, Expected, Limits, ranges
from asa.integrations.elastic import slots as calls_at_once
from asa.log.rundir import RunDirectory
from asa.log.values import dump, load
from asa.workflows.plan import Finish, LaunchTasks, Release, Submit, Teach


class Fragile(Exception):
    """Cannot be made anew, whatever libraries have taught pickle of exceptions."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("none",)


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [KeyError("band 7"), SystemExit(3)])
def test_what_is_raised_travels_with_where(error: BaseException) -> None:
    answer = call(fail, (error,), {})
    assert not answer[0]
    found = raised(answer)
    assert type(found) is type(error) and found.args == error.args
    said = str(found.__cause__)
    assert "raise error" in said and "function(*args" not in said


def test_an_exception_that_cannot_travel_is_a_runtime_error_with_its_words() -> None:
    found = raised(call(fail, (Fragile(1, 2),), {}))
    assert type(found) is RuntimeError and str(found) == "Fragile: 1 and 2"


def test_no_function_is_no_call() -> None:
    assert call(None, (), {}) == (True, None, "")


@pytest.fixture
def book(tmp_path: Path) -> CallBook:
    return CallBook("calls", RunDirectory.create(tmp_path, "run"))


def made(book: CallBook, index: int) -> object:
    """What a worker makes of a call."""
    task = book.task("calls", index, Resources(1))
    assert isinstance(task.arguments, bytes)
    args, kwargs = load(task.arguments)
    return load(Path(task.function).read_bytes())(*args, **kwargs)


def done(value: object, index: int = 0) -> TaskDone:
    return TaskDone(2.0, "calls", index, "a", "n1", 1.0, dump(value))


def test_a_call_is_made_and_answered(book: CallBook) -> None:
    future = book.add(divmod, (7, 2), {}, lambda _index: None)
    answer = made(book, 0)
    assert answer == (True, (3, 1), "") and future.running()
    book.settle(done(answer))
    assert future.result(0) == (3, 1)
    book.settle(done((True, "a second answer", "")))
    assert future.result(0) == (3, 1)


def test_a_call_that_is_cancelled_as_it_is_sent_does_nothing_there(book: CallBook) -> None:
    cancelled: list[int] = []
    future = book.add(divmod, (1, 0), {}, cancelled.append)
    assert future.cancel() and future.cancel()
    assert cancelled == [0]
    assert made(book, 0) == (True, None, "")
    book.settle(TaskCancelled(2.0, "calls", 0))  # after it was sent
    with pytest.raises(CancelledError):
        future.result(0)


def test_a_call_whose_node_was_lost_has_no_answer_yet(book: CallBook) -> None:
    future = book.add(divmod, (7, 2), {}, lambda _index: None)
    made(book, 0)
    book.settle(TaskFailed(2.0, "calls", 0, "a", "n1", 1.0, "the node was lost", infrastructure=True))
    assert not future.done()
    assert made(book, 0) == (True, (3, 1), "")


def test_an_answer_that_cannot_be_read_is_an_error(book: CallBook) -> None:
    future = book.add(divmod, (7, 2), {}, lambda _index: None)
    made(book, 0)
    book.settle(TaskDone(2.0, "calls", 0, "a", "n1", 1.0, b"cno_such_module\nthing\n."))
    assert isinstance(future.exception(0), ModuleNotFoundError)


def test_when_the_runner_is_gone_nothing_stays_open(book: CallBook) -> None:
    sent, waiting, cancelled = (book.add(divmod, (7, 2), {}, lambda _index: None) for _ in range(3))
    made(book, 0)
    cancelled.cancel()
    book.fail_all(RunFailed("the executor was shut down"))
    assert cancelled.cancelled()
    for future in (sent, waiting):
        assert "the executor was shut down" in str(future.exception(0))


def spec(cores: int = 2, walltime_s: float = 3600.0) -> StageSpec:
    return StageSpec("calls", Resources(cores), Resources(1), walltime_s, walltime_s, width=None)


@dataclass
class World:
    """Jobs start `wait_s` after they were asked for, calls take `call_s`.

    At most `most` were held at a time, without those about to end.
    """

    elastic: Elastic
    wait_s: float = 10.0
    call_s: float = 1.0
    predicted_s: float = 0.0
    now: float = 0.0
    width: int = 0
    asked: int = 0
    most: int = 0
    ended: list[int] = field(default_factory=list)
    given_up: dict[int, str] = field(default_factory=dict)
    due: list[tuple[float, Event]] = field(default_factory=list)
    log: list[Event] = field(default_factory=list)

    def tell(self, event: Event) -> None:
        self.log.append(event)
        self.elastic.on(event)
        self.given_up = dict(self.elastic.calls.given_up)
        if isinstance(event, TaskDone):
            self.ended.append(event.index)

    def call(self, count: int) -> None:
        self.width += count
        self.tell(StageExpanded(self.now, "calls", self.width))
        self.settle()

    def settle(self) -> None:
        """Do what is decided, until nothing is."""
        for _ in range(1000):
            actions = self.elastic.decide(self.now)
            for action in actions:
                self.do(action)
            held = self.elastic.pool.held.values()
            self.most = max(self.most, sum(not each.leaving(self.now) for each in held))
            if not actions:
                return
        raise AssertionError(f"it never ends: {actions}")

    def do(self, action: object) -> None:
        now = self.now
        match action:
            case Submit(token=token, ask=ask):
                self.asked += 1
                self.tell(Submitting(now, token, JobRequest(token, ask.resources, ask.walltime_s, ()), ask.stages))
                self.tell(Submitted(now, token, JobHandle(token, token, now)))
                start = now + self.wait_s
                self.due += [(start, AllocationStarted(start, token, start))]
                self.due += [(start, NodeJoined(start, token, "n1", ask.resources.cores))]
            case LaunchTasks(stage=stage, ranges=ranges, allocation=key):
                self.tell(TasksLaunched(now, stage, ranges, key))
                held = self.elastic.pool.held[key]
                ahead = max(each.ahead for each in self.elastic.stages.values())
                assert held.cores_busy <= held.request.resources.cores * (1 + ahead)
                for start, stop in ranges:
                    for index in range(start, stop):
                        end = now + self.call_s
                        self.due.append((end, TaskDone(end, stage, index, key, "n1", now)))
            case Release(allocation=key) | Cancel(allocation=key):
                ending = Released if isinstance(action, Release) else Cancelled
                self.tell(ending(now, key, action.reason))
                self.due = [(at, event) for at, event in self.due if getattr(event, "allocation", "") != key]
                self.due.append((now, JobEnded(now, key, JobState.COMPLETED)))
            case Predict(stage=stage):
                self.tell(Predicted(now, stage, self.predicted_s))
            case Teach(wait=wait):
                self.tell(Learned(now, wait.request.token, "calls", action.wait_s))
            case Finish():
                self.tell(RunEnded(now, action.state, action.message))

    def run(self, until: float) -> None:
        """Let time pass."""
        while True:
            self.due.sort(key=lambda item: item[0])
            at = min(self.due[0][0] if self.due else until, self.elastic.wake_at(self.now), until)
            self.now = max(self.now, at)
            while self.due and self.due[0][0] <= self.now:
                self.tell(self.due.pop(0)[1])
            self.settle()
            if self.now >= until and not (self.due and self.due[0][0] <= until):
                return


def world(
    limits: Limits | None = None,
    cores: int = 2,
    wait_s: float = 10.0,
    call_s: float = 1.0,
    most_jobs: int | None = None,
    predicted_s: float = 0.0,
) -> World:
    elastic = Elastic(limits or Limits(maximum=4))
    begun = RunStarted(0.0, "run", "calls", (spec(cores),), "fake", CALLS, "fake", "shared", "here", "")
    elastic.on(replace(begun, most_jobs=most_jobs))
    return World(elastic, wait_s, call_s, predicted_s)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"minimum": 2, "maximum": 1}, "minimum=2 and maximum=1"),
        ({"maximum": 0}, "maximum >= 1"),
        ({"idle_s": -1.0}, "idle=-1.0: a finite number of at least 0"),
        ({"worth_s": math.inf}, "worth=inf: a finite number of at least 0"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(limits: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Limits(**limits)  # type: ignore[arg-type]


def test_nothing_is_asked_for_without_calls() -> None:
    there = world()
    there.run(100.0)
    assert there.asked == 0


def test_a_minimum_is_held_without_calls() -> None:
    there = world(Limits(minimum=2, maximum=3))
    there.settle()
    there.run(1000.0)
    assert there.asked == 2 and len(there.elastic.pool.held) == 2


def test_calls_that_may_be_long_get_all_the_room_they_can_use() -> None:
    there = world()
    there.call(5)
    assert there.asked == 3  # of two cores each


def test_no_more_allocations_are_asked_for_than_jobs_may_be_in_the_queue() -> None:
    there = world(most_jobs=2)
    there.call(5)
    assert there.asked == 2
    there.run(100.0)
    assert there.ended == list(range(5))


def test_calls_that_are_short_are_not_worth_another_allocation() -> None:
    there = world(Limits(maximum=4, worth_s=5.0))
    there.call(1)
    there.run(20.0)
    there.call(8)  # of 1 s each: less than 5 s of two cores
    assert there.asked == 1
    there.call(100)
    assert there.asked == 4


def test_an_allocation_is_kept_for_as_long_as_it_was_waited_for() -> None:
    there = world(wait_s=60.0)
    there.call(1)
    there.run(61.0)
    assert there.ended == [0]
    there.run(61.0 + 59.0)
    assert not [event for event in there.log if isinstance(event, Released)]
    there.run(61.0 + 61.0)
    (released,) = [event for event in there.log if isinstance(event, Released)]
    assert released.at == 121.0


def test_a_job_that_was_released_and_does_not_end_is_cancelled() -> None:
    there = world(call_s=100.0)
    there.call(1)
    there.run(30.0)
    (key,) = there.elastic.pool.held
    there.tell(Released(40.0, key, "it is told to end"))
    assert Cancel(key, "it was released and did not end") not in there.elastic.decide(40.0 + UNRESPONSIVE_S - 1.0)
    assert Cancel(key, "it was released and did not end") in there.elastic.decide(40.0 + UNRESPONSIVE_S)


def test_jobs_are_kept_through_a_varying_load() -> None:
    there = world(Limits(maximum=4, worth_s=0.0), wait_s=60.0, call_s=20.0)
    for _ in range(10):
        there.call(8)
        there.run(there.now + 60.0)
    assert there.asked == 4
    thrashing = world(Limits(maximum=4, worth_s=0.0, idle_s=0.0), wait_s=60.0, call_s=20.0)
    for _ in range(10):
        thrashing.call(8)
        thrashing.run(thrashing.now + 100.0)
    assert thrashing.asked == 40


def test_waiting_jobs_are_cancelled_with_their_calls() -> None:
    there = world(wait_s=1000.0)
    there.call(4)
    assert there.asked == 2
    for index in range(4):
        there.tell(TaskCancelled(there.now, "calls", index))
    there.run(100.0)
    assert [event.at for event in there.log if isinstance(event, Cancelled)] == [5.0, 5.0]


def test_every_wait_teaches_once() -> None:
    there = world(wait_s=7.0)
    there.call(8)
    there.run(100.0)
    assert [event.wait_s for event in there.log if isinstance(event, Learned)] == [7.0] * 4


def test_near_its_wall_time_an_allocation_is_replaced() -> None:
    there = world(Limits(minimum=1, maximum=1))
    there.settle()
    there.run(3700.0)
    assert there.asked == 2
    (first, *_) = [event for event in there.log if isinstance(event, Released)]
    assert first.reason == "too little of its wall time is left" and first.at < 3610.0


def test_once_closed_it_ends_when_the_last_call_has() -> None:
    there = world()
    there.call(6)
    there.run(10.0)
    there.elastic.closing = True
    there.run(60.0)
    assert sorted(there.ended) == list(range(6))
    assert there.elastic.closed and there.elastic.outcome is RunState.SUCCEEDED
    (over,) = [event for event in there.log if isinstance(event, RunEnded)]
    assert over.at == max(event.at for event in there.log if isinstance(event, TaskDone))


@given(
    steps=st.lists(st.tuples(st.integers(0, 12), st.floats(0.1, 80.0)), min_size=1, max_size=8),
    minimum=st.integers(0, 2),
    more=st.integers(0, 3),
    wait_s=st.floats(0.0, 50.0),
    call_s=st.floats(0.01, 30.0),
    idle_s=st.none() | st.floats(0.0, 20.0),
)
def test_every_call_ends_once_and_every_job_is_let_go(
    steps: list[tuple[int, float]], minimum: int, more: int, wait_s: float, call_s: float, idle_s: float | None
) -> None:
    limits = Limits(minimum, max(1, minimum + more), idle_s)
    there = world(limits, wait_s=wait_s, call_s=call_s)
    for count, pause in steps:
        there.call(count)
        there.run(there.now + pause)
    there.elastic.closing = True
    there.settle()
    there.run(there.now + 3000.0)
    assert sorted(there.ended) == list(range(there.width))
    assert there.elastic.closed and not there.given_up
    assert there.most <= limits.maximum
    assert len([event for event in there.log if isinstance(event, JobEnded)]) == there.asked


@given(st.lists(st.integers(0, 30), unique=True))
def test_ranges_are_the_same_numbers(numbers: list[int]) -> None:
    found = [number for start, stop in ranges(iter(numbers)) for number in range(start, stop)]
    assert found == numbers


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


@pytest.mark.parametrize(
    ("end", "waiting", "given_up"),
    [
        (lambda key: JobEnded(3600.0, key, JobState.TIMEOUT), [], "raise walltime="),
        (lambda key: JobEnded(2.0, key, JobState.NODE_FAIL), [0], ""),
        (lambda key: TaskFailed(2.0, "calls", 0, key, "n1", 1.0, "the worker process was killed"), [], ""),
    ],
    ids=["wall time used up", "node failed", "process killed"],
)
def test_a_call_runs_again_unless_it_failed_or_used_the_wall_time(
    end: Callable[[str], Event], waiting: list[int], given_up: str
) -> None:
    there = one_call()
    (key,) = there.elastic.pool.held
    there.tell(end(key))
    assert list(there.elastic.calls.waiting()) == waiting and there.elastic.unfinished == len(waiting)
    assert given_up in there.given_up[0] if given_up else not there.given_up


def test_events_of_an_allocation_that_has_ended_change_nothing() -> None:
    there = one_call()
    (key,) = there.elastic.pool.held
    for event in (JobEnded(5.0, key, JobState.FAILED), JobEnded(5.0, key, JobState.FAILED)):
        there.tell(event)
    assert list(there.elastic.calls.waiting()) == [0] and not there.elastic.pool.held
    there.tell(TaskFailed(6.0, "calls", 0, key, "n1", 1.0, "the node was lost", infrastructure=True))
    assert list(there.elastic.calls.waiting()) == [0] and not there.given_up


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


def test_cancelling_ends_the_calls() -> None:
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
def test_the_scarcest_resource_bounds_the_calls_at_once(whole: Resources, one: Resources, slots: int) -> None:
    held = Held(JobRequest("job", whole, 60.0, ()), ("calls",), (), 0.0, None, nodes={"n1": whole.cores})
    assert calls_at_once(StageSpec("calls", whole, one, 60.0, 60.0, width=None)) == held.room(one, ahead=0.0) == slots


# Calls of several sizes, and calls that are announced.


def sized(there: World, name: str, cores: int, **more: object) -> None:
    task = Resources(cores, memory=more.pop("memory", None))  # type: ignore[arg-type]
    there.tell(CallsAdded(there.now, (replace(there.elastic.spec, name=name, task=task, **more),)))  # type: ignore[arg-type]


def calls_of(there: World, name: str, count: int) -> None:
    there.tell(StageExpanded(there.now, name, count))
    there.settle()


def test_calls_of_all_sizes_share_allocations() -> None:
    there = world(Limits(maximum=4), cores=8)
    sized(there, "wide", 6)
    calls_of(there, "wide", 1)
    there.call(2)
    assert there.asked == 1
    there.run(11.5)
    assert there.elastic.stages["wide"].done == 1 and sorted(there.ended) == [0, 0, 1]


def test_calls_of_another_size_are_worth_what_they_take() -> None:
    there = world(Limits(maximum=8, worth_s=0.0), cores=8)
    sized(there, "wide", 5)
    calls_of(there, "wide", 3)
    assert there.asked == 3, "two do not fit in one"
    there.call(9)
    assert there.asked == 3, "these fit beside them"
    there.call(1)
    assert there.asked == 4


def test_small_calls_do_not_keep_a_large_one_waiting_for_ever() -> None:
    there = world(Limits(maximum=1), cores=4, wait_s=0.0, call_s=10.0)
    sized(there, "wide", 4)
    there.call(1)
    there.run(5.0)
    calls_of(there, "wide", 1)
    for _ in range(5):  # a small one every 5 s, each of 10 s: without care one always runs
        there.call(1)
        there.run(there.now + 5.0)
    assert there.elastic.stages["wide"].done == 1


def test_a_call_that_may_take_longer_than_is_left_waits_for_the_next_allocation() -> None:
    there = world(Limits(minimum=1, maximum=1), wait_s=0.0)
    sized(there, "long", 1, timeout_s=1800.0)
    there.settle()
    there.run(2500.0)
    calls_of(there, "long", 1)
    there.run(2510.0)
    assert there.asked == 2 and there.elastic.stages["long"].done + there.elastic.stages["long"].running == 1


def test_allocations_that_do_work_of_any_size_are_of_use() -> None:
    there = world(wait_s=1e9, cores=4)
    sized(there, "wide", 4)
    calls_of(there, "wide", 5)
    for number in range(5):
        (key, *_) = there.elastic.pool.held
        if number % 2:
            there.tell(TasksLaunched(float(number), "wide", ((number, number + 1),), key))
            there.tell(TaskDone(float(number), "wide", number, key, "n1", float(number)))
        there.tell(JobEnded(float(number), key, JobState.FAILED, 0.0, 1, "NonZeroExitCode"))
        there.settle()
    assert not there.elastic.broken


def announced(there: World, *moments: tuple[float, int]) -> None:
    there.elastic.expected = tuple(Expected(there.now + in_s, {"calls": count}) for in_s, count in moments)
    there.settle()


def test_an_allocation_is_asked_for_as_long_ahead_as_the_queue_makes_wait() -> None:
    there = world(wait_s=100.0, predicted_s=100.0)
    announced(there, (300.0, 4))
    there.run(190.0)
    assert there.asked == 0
    there.run(201.0)
    assert there.asked == 2
    there.run(299.0)
    there.call(4)
    there.run(302.0)
    assert sorted(there.ended) == [0, 1, 2, 3], "they did not wait"


def test_where_nothing_waits_nothing_is_asked_for_ahead() -> None:
    there = world(wait_s=0.0)
    announced(there, (300.0, 4))
    there.run(299.0)
    assert there.asked == 0


def test_an_idle_allocation_is_kept_for_calls_that_are_expected_before_another_would_be_there() -> None:
    there = world(Limits(maximum=1, idle_s=1.0), wait_s=50.0, predicted_s=50.0)
    there.call(1)
    there.run(51.0)
    announced(there, (30.0, 1))
    there.run(81.0)
    assert not [event for event in there.log if isinstance(event, Released)]
    there.run(200.0)
    assert [event for event in there.log if isinstance(event, Released)], "they did not come"
    assert there.asked == 1


def test_what_is_announced_beside_what_there_is_counts_by_what_is_more() -> None:
    there = world(Limits(maximum=8), wait_s=100.0, predicted_s=100.0)
    there.call(4)
    announced(there, (50.0, 4), (90.0, 6))
    assert there.asked == 3


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["calls", "two", "four"]), st.integers(0, 8), st.floats(0.1, 60.0)),
        min_size=1,
        max_size=8,
    ),
    wait_s=st.floats(0.0, 50.0),
    call_s=st.floats(0.01, 30.0),
    maximum=st.integers(1, 4),
    moments=st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 9)), max_size=3),
)
def test_calls_of_every_size_end_once(
    steps: list[tuple[str, int, float]], wait_s: float, call_s: float, maximum: int, moments: list[tuple[float, int]]
) -> None:
    there = world(Limits(maximum=maximum), cores=4, wait_s=wait_s, call_s=call_s, predicted_s=20.0)
    sized(there, "two", 2)
    sized(there, "four", 4)
    widths = dict.fromkeys(there.elastic.stages, 0)
    for name, count, pause in steps:
        widths[name] += count
        if count:
            calls_of(there, name, widths[name])
        announced(there, *sorted(moments))
        there.run(there.now + pause)
    there.elastic.closing = True
    there.settle()
    there.run(there.now + 3000.0)
    assert {name: stage.done for name, stage in there.elastic.stages.items()} == widths
    assert there.elastic.closed and not there.elastic.broken and not there.elastic.illegal
    assert there.most <= maximum
