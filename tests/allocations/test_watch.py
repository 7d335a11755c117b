"""The job watch, and who calls it: the clock in virtual time, else a thread."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from asa.allocations.budget import SUBMIT
from asa.allocations.watch import DOUBT_S, JobWatch, WatchCalls, WatchThread
from asa.backends.slurm.backend import Slurm
from asa.core.clock import ManualClock, SystemClock
from asa.core.errors import BackendError
from asa.core.event import (
    AllocationStarted,
    Amended,
    Event,
    JobEnded,
    Queued,
    Requeued,
    SubmitRefused,
    Submitted,
    Trouble,
)
from asa.core.job import JobChanges, JobHandle, JobRequest, JobState, JobStatus, Options, Resources
from asa.core.view import QueueView
from asa.testing.backend_fake import FakeBatch, FakeRun
from tests.backends.slurm.fake import NOW, FakeSlurm

AWAY = BackendError("the controller does not answer", transient=True)
NEVER = BackendError("you may not do this")


def request(token: str, run_s: float = 30.0) -> JobRequest:
    return JobRequest(token, Resources(1), 60.0, (str(run_s),))


class Desk:
    """A watch, its batch system, and the events that came."""

    def __init__(self, wait: float = 10.0, poll: float = 8.0) -> None:
        self.clock = ManualClock()
        self.batch = FakeBatch(self.clock, 8, run=lambda job: FakeRun(float(job.argv[0])), wait=wait, poll=poll)
        self.events: list[Event] = []
        self.woken = 0
        self.watch = JobWatch(self.batch, self.clock, self.events.extend, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def until(self, when: float) -> None:
        """Let the watch do all that is due before this time [s]."""
        while (due := self.watch.step()) <= when:
            self.clock.wait(threading.Event(), due)
        self.clock.wait(threading.Event(), when)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_job_from_submission_to_its_end(desk: Desk) -> None:
    desk.watch.submit([request("a")])
    assert desk.woken == 1
    desk.until(100.0)
    handle = JobHandle("1", "a", 0.0)
    ended = JobEnded(40.0, "a", JobState.COMPLETED, 10.0, 0, "")
    assert desk.events[0] == Submitted(0.0, "a", handle)
    assert desk.events[2:] == [ended]
    started = desk.events[1]
    assert isinstance(started, AllocationStarted)
    assert (started.started, started.nodes) == (10.0, ("fake1",)), "as the batch system reports it"
    assert 10.0 <= started.at <= 18.0, "as soon as the question is asked"
    assert desk.watch.step() == math.inf, "nothing is left to watch"


def test_jobs_are_submitted_and_asked_for_together(desk: Desk) -> None:
    calls: list[tuple[str, int]] = []
    submit, query = desk.batch.submit, desk.batch.query

    def count_submit(requests: Sequence[JobRequest]) -> object:
        calls.append(("submit", len(requests)))
        return submit(requests)

    def count_query(handles: Sequence[JobHandle]) -> list[JobStatus]:
        calls.append(("query", len(handles)))
        return query(handles)

    desk.batch.submit, desk.batch.query = count_submit, count_query
    for token in "abc":
        desk.watch.submit([request(token)])
    desk.until(4.0)
    assert calls[0] == ("submit", 3)
    assert set(calls[1:]) == {("query", 3)}


def test_questions_become_rarer_up_to_what_the_backend_stands_and_more_frequent_when_it_hurries() -> None:
    desk = Desk(wait=1000.0)
    desk.watch.submit([request("a")])
    times = []
    query = desk.batch.query

    def note(handles: Sequence[JobHandle]) -> list[JobStatus]:
        times.append(desk.clock.now())
        return query(handles)

    desk.batch.query = note
    desk.until(30.0)
    assert times == [0.5, 1.5, 3.5, 7.5, 15.5, 23.5]
    desk.watch.hurry()
    desk.until(33.0)
    assert times[6:] == [30.0, 31.0, 33.0]


def test_a_job_that_waits_for_a_limit_is_reported_and_one_that_waits_for_its_turn_is_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = iter(["Priority", "AssocMaxJobsLimit", "AssocMaxJobsLimit", "Resources", "Priority"])
    ask = desk.batch.query

    def query(handles: Sequence[JobHandle]) -> list[JobStatus]:
        return [replace(status, reason=next(reasons, "Priority")) for status in ask(handles)]

    monkeypatch.setattr(desk.batch, "query", query)
    desk.watch.submit([request("a")])
    desk.until(9.0)
    assert [event.reason for event in desk.of(Queued)] == ["AssocMaxJobsLimit", ""]  # type: ignore[attr-defined]


def test_refusals_have_the_sites_words(desk: Desk) -> None:
    desk.batch.refuse = lambda job: "Invalid account" if job.token == "b" else None
    for token in "abc":
        desk.watch.submit([request(token)])
    desk.until(1.0)
    assert [type(event) for event in desk.events[:3]] == [Submitted, SubmitRefused, Submitted]
    assert desk.events[1] == SubmitRefused(0.0, "b", "Invalid account")


def test_a_batch_system_that_will_never_take_a_job(desk: Desk) -> None:
    desk.batch.break_next("submit", NEVER)
    desk.watch.submit([request("a")])
    desk.until(1.0)
    assert desk.events == [SubmitRefused(0.0, "a", "you may not do this")]


def test_cancelling(desk: Desk) -> None:
    desk.watch.submit([request("a")])
    desk.until(20.0)
    desk.watch.cancel(JobHandle("1", "a", 0.0))
    desk.until(21.0)
    assert desk.events[-1] == JobEnded(20.0, "a", JobState.CANCELLED, 10.0, None, "cancelled while it ran")


# ---------------------------------------------------------------------------------------------------- trouble


def test_retries_become_slower_and_trouble_has_the_reason(desk: Desk) -> None:
    desk.batch.break_next("submit", AWAY, times=8)
    desk.watch.submit([request("a")])
    gaps = []
    for _ in range(8):
        due = desk.watch.step()
        assert desk.watch.trouble == "the controller does not answer"
        gaps.append(due - desk.clock.now())
        desk.clock.wait(threading.Event(), due)
    assert gaps == [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 60.0]
    desk.watch.step()
    assert desk.watch.trouble == ""
    assert len(desk.of(Submitted)) == 1


def test_what_a_job_drew_is_told_with_its_end(desk: Desk) -> None:
    query = desk.batch.query
    desk.batch.query = lambda handles: [replace(status, energy_j=5e6) for status in query(handles)]
    desk.watch.submit([request("a")])
    desk.until(100.0)
    assert desk.of(JobEnded) == [JobEnded(40.0, "a", JobState.COMPLETED, 10.0, 0, energy_j=5e6)]


@pytest.mark.parametrize("error", [AWAY, OSError("Too many open files"), ValueError("what is this?")])
def test_whatever_a_backend_raises_does_not_end_the_watch(error: Exception, desk: Desk) -> None:
    desk.watch.submit([request("a")])
    desk.until(0.25)
    query, failing = desk.batch.query, True

    def fail(handles: Sequence[JobHandle]) -> list[JobStatus]:
        if failing:
            raise error
        return query(handles)

    desk.batch.query = fail
    desk.until(20.0)
    assert str(error) in desk.watch.trouble
    failing = False
    desk.until(100.0)
    assert desk.of(JobEnded) == [JobEnded(40.0, "a", JobState.COMPLETED, 10.0, 0, "")]
    said, over = (event.error for event in desk.events if isinstance(event, Trouble))
    assert str(error) in said and over == "", "once, however often it was tried"


def test_a_lost_answer_does_not_make_two_jobs(desk: Desk) -> None:
    desk.batch.break_next("submit", AWAY, times=3, after=True)
    desk.watch.submit([request("a")])
    desk.watch.submit([request("b")])
    desk.until(0.5)
    desk.watch.submit([request("c")])
    desk.until(20.0)
    assert [job.token for job, _ in desk.batch.jobs()] == ["a", "b", "c"]
    assert {event.allocation: event.handle.job_id for event in desk.of(Submitted)} == {
        "a": "1",
        "b": "2",
        "c": "3",
    }


class Turns:
    """A budget of calls: three at once, then one each second."""

    def __init__(self) -> None:
        self.submissions = 0

    def reserve(self, kind: str, now: float, spare: float = 0.0) -> float:
        self.submissions += kind == SUBMIT
        return max(now, float(self.submissions - 3)) if kind == SUBMIT else now

    def charge(self, kind: str, now: float, count: int) -> None:
        """No question is counted."""


def test_a_lost_answer_does_not_make_two_jobs_of_those_whose_turn_comes_later() -> None:
    """Torture, seed 2004421: once the first of them was found, the others were sent again unasked."""
    desk = Desk()
    desk.watch = JobWatch(desk.batch, desk.clock, desk.events.extend, desk.wake, budget=Turns())
    desk.batch.break_next("submit", AWAY, after=True)
    desk.watch.submit([request(token) for token in "abc"])
    desk.until(20.0)
    assert [job.token for job, _ in desk.batch.jobs()] == ["a", "b", "c"]
    assert {event.allocation for event in desk.of(Submitted)} == {"a", "b", "c"}


def test_a_cancellation_that_the_site_forbids_holds_up_nothing(desk: Desk) -> None:
    desk.watch.submit([request("a")])
    desk.until(5.0)
    desk.batch.break_next("cancel", NEVER)
    desk.watch.cancel(JobHandle("1", "a", 0.0))
    desk.watch.submit([request("b")])
    desk.until(100.0)
    assert [event.allocation for event in desk.of(JobEnded)] == ["a", "b"]


def test_a_cancellation_without_an_answer_is_tried_again(desk: Desk) -> None:
    desk.watch.submit([request("a", run_s=900.0)])
    desk.until(1.0)
    desk.batch.break_next("cancel", AWAY)
    desk.watch.cancel(JobHandle("1", "a", 0.0))
    desk.until(30.0)
    assert [event.error for event in desk.of(Trouble)] == [str(AWAY), ""]
    assert [event.state for event in desk.of(JobEnded)] == [JobState.CANCELLED]


@pytest.mark.parametrize("moment", ["queued", "being submitted", "without an answer", "not yet submitted"])
def test_a_withdrawn_watch_leaves_no_job_behind(desk: Desk, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    submit = desk.batch.submit

    def submit_meanwhile(requests: Sequence[JobRequest]) -> object:
        taken = submit(requests)
        desk.watch.withdraw()
        return taken

    if moment == "being submitted":
        monkeypatch.setattr(desk.batch, "submit", submit_meanwhile)
    elif moment == "without an answer":
        desk.batch.break_next("submit", AWAY, after=True)
    desk.watch.submit([request("a")])
    if moment != "not yet submitted":
        desk.watch.step()
    if moment != "being submitted":
        desk.watch.withdraw()
    desk.until(60.0)
    jobs = [(item.token, status.state) for item, status in desk.batch.jobs()]
    assert jobs == ([] if moment == "not yet submitted" else [("a", JobState.CANCELLED)])
    assert not desk.watch.busy


def test_a_job_that_vanished_is_lost(desk: Desk) -> None:
    desk.watch.submit([request("a")])
    desk.until(12.0)
    desk.batch.vanish("a")
    desk.until(100.0)
    (lost,) = desk.of(JobEnded)
    assert isinstance(lost, JobEnded)
    assert (lost.state, lost.reason) == (JobState.LOST, "no such job")


# ----------------------------------------------------------------------------------------------------- arrays

ELEMENTS = [JobRequest(f"r.{at}", Resources(), 60.0, ("true",), output=f"r.{at}", array="r+3") for at in range(4)]
SILENCES = [("submit", "r.0"), *(("update", f"1_{at}") for at in (2, 3, 0, 1))]


class SlurmDesk:
    """A watch over the Slurm backend, on a controller that one of its calls gets no answer from."""

    def __init__(self, call: str, key: str, *, late: bool) -> None:
        self.fake, self.events = FakeSlurm(), list[Event]()
        getattr(self.fake, f"{'after' if late else 'before'}_{call}")[key] = AWAY
        self.restart()

    def restart(self) -> None:
        self.clock = ManualClock(NOW)
        self.watch = JobWatch(Slurm(transport=self.fake, clock=self.clock), self.clock, self.events.extend)

    def until(self, when: float) -> None:
        while (due := self.watch.step()) <= when:
            self.clock.wait(threading.Event(), due)

    def waiting(self) -> dict[str, str]:
        """Names of the jobs in the queue, by key."""
        return {key: record.name for key, record in self.fake.queued.items() if record.word == "PENDING"}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("call", "key"), SILENCES)
def test_an_array_whose_submission_got_no_answer_is_in_the_queue_once_and_whole(
    call: str, key: str, late: bool
) -> None:
    desk = SlurmDesk(call, key, late=late)
    desk.watch.submit(ELEMENTS)
    desk.until(NOW + 5)
    handles = {event.allocation: event.handle for event in desk.events if isinstance(event, Submitted)}
    assert sorted(handles) == [request.token for request in ELEMENTS]
    assert {f"{handle.job_id}_{handle.array_index}": token for token, handle in handles.items()} == desk.waiting()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("call", "key"), SILENCES)
def test_an_array_that_a_driver_left_half_made_is_cancelled_and_a_whole_one_found(
    call: str, key: str, late: bool
) -> None:
    desk = SlurmDesk(call, key, late=late)
    desk.watch.submit(ELEMENTS)
    desk.watch.step()  # and the driver is gone
    desk.restart()
    desk.watch.adopt({}, {request.token: NOW - DOUBT_S for request in ELEMENTS})
    desk.until(NOW + 5)
    lost = {event.allocation for event in desk.events if isinstance(event, JobEnded)}
    whole = late and key == "1_3"  # the last one that is edited
    assert lost == (set() if whole else {request.token for request in ELEMENTS})
    assert list(desk.waiting()) == ([f"1_{at}" for at in range(4)] if whole else [])


# ---------------------------------------------------------------------------------------------------- requeue


def test_a_requeued_job_starts_twice(desk: Desk) -> None:
    desk.watch.submit([request("a")])
    desk.until(20.0)
    desk.batch.requeue("a", "NodeFail")
    desk.until(100.0)
    kinds = [type(event) for event in desk.events]
    assert kinds == [Submitted, AllocationStarted, Requeued, AllocationStarted, JobEnded]
    assert [event.started for event in desk.of(AllocationStarted)] == [10.0, 20.0]


# ------------------------------------------------------------------------------------------------------ adopt


def test_jobs_of_an_earlier_driver(desk: Desk) -> None:
    """One is known; of three it is not known whether they were submitted: one was, one may still come."""
    known, found = desk.batch.submit([request("known"), request("found")])
    assert isinstance(known, JobHandle)
    desk.until(15.0)
    desk.watch.adopt({"known": known}, {"found": 0.0, "never": 15.0 - DOUBT_S, "late": 10.0, "later": 10.0})
    assert desk.woken == 1
    desk.until(16.0)
    assert Submitted(15.0, "found", found) in desk.events
    assert JobEnded(15.0, "never", JobState.LOST, reason="never submitted") in desk.events
    assert len(desk.of(AllocationStarted)) == 2
    (late,) = desk.batch.submit([request("late")])
    desk.until(10.0 + DOUBT_S)
    assert Submitted(10.0 + DOUBT_S, "late", late) in desk.events
    assert JobEnded(10.0 + DOUBT_S, "later", JobState.LOST, reason="never submitted") in desk.events
    desk.until(100.0)
    assert {event.allocation for event in desk.of(JobEnded)} == {"known", "found", "never", "late", "later"}


def test_a_job_that_was_requeued_while_no_driver_was_there(desk: Desk) -> None:
    (handle,) = desk.batch.submit([request("a")])
    assert isinstance(handle, JobHandle)
    desk.watch.adopt({"a": handle}, {}, {"a"})
    desk.until(1.0)
    assert [type(event) for event in desk.events] == [Requeued]
    desk.until(100.0)
    assert [type(event) for event in desk.events] == [Requeued, AllocationStarted, JobEnded]


def test_no_question_is_asked_without_jobs(desk: Desk) -> None:
    for call in ("submit", "query", "cancel", "find"):
        desk.batch.break_next(call, AWAY)
    desk.watch.hurry()
    assert desk.watch.step() == math.inf
    assert desk.watch.trouble == ""


# ------------------------------------------------------------------------------------------------------ places


def test_a_change_is_made_and_the_state_of_the_place_is_reported(desk: Desk) -> None:
    desk.watch.submit([request("a"), request("b")])
    desk.until(1.0)
    handle = desk.batch.find(["b"])["b"]
    desk.watch.amend(handle, JobChanges(parked=True))
    desk.until(4.0)
    assert [event.refused for event in desk.of(Amended)] == [""]
    assert [(event.allocation, event.reason) for event in desk.of(Queued)] == [("b", "BadConstraints")]
    desk.until(60.0)
    assert len(desk.of(Queued)) == 1, "it is reported when it changes"


def test_a_refused_change_is_reported_and_one_without_an_answer_is_tried_again(desk: Desk) -> None:
    desk.watch.submit([request("a")])
    desk.until(1.0)
    handle = desk.batch.find(["a"])["a"]
    desk.batch.break_next("update", BackendError("away", transient=True))
    desk.watch.amend(handle, JobChanges(throttle=2))
    desk.until(5.0)
    (event,) = desk.of(Amended)
    assert "array" in event.refused


def test_a_change_of_a_job_that_is_not_watched_is_made_all_the_same(desk: Desk) -> None:
    (handle,) = desk.batch.submit([request("a")])
    assert isinstance(handle, JobHandle)
    desk.watch.amend(handle, JobChanges(parked=True))
    desk.until(4.0)
    assert [event.refused for event in desk.of(Amended)] == [""]


# Looks at the queue.


def test_the_queue_is_looked_at_where_looks_are_enabled(desk: Desk) -> None:
    assert desk.watch.seen() is None
    looks = JobWatch(desk.batch, desk.clock, lambda _events: None, looks=True)
    looks.step()
    assert looks.seen() == desk.batch.look()


def test_a_look_without_an_answer_is_tried_again(desk: Desk) -> None:
    desk.batch.break_next("look", AWAY)
    looks = JobWatch(desk.batch, desk.clock, desk.events.extend, looks=True)
    looks.submit([request("a")])
    again = looks.step()
    assert looks.trouble == str(AWAY) and looks.seen() is None
    desk.clock.wait(threading.Event(), again)
    looks.step()
    assert looks.trouble == "" and looks.seen() is not None


def test_a_site_that_shows_no_queue_holds_up_no_job(desk: Desk) -> None:
    desk.batch.break_next("look", BackendError("Access denied"))
    looks = JobWatch(desk.batch, desk.clock, lambda _events: None, looks=True)
    looks.submit([request("a")])
    looks.step()
    assert looks.trouble == "" and looks.seen() is None
    assert [item.token for item, _ in desk.batch.jobs()] == ["a"]


def test_queues_are_looked_at_together_from_the_next_look_on() -> None:
    """A backend that shows its own queue only shows nothing of others."""
    clock = ManualClock()
    seen = {name: QueueView(0.0, Resources(size), (), ()) for name, size in (("core", 4), ("long", 8))}
    low: Options = (("partition", "long"),)

    class Shows(FakeBatch):
        asked: ClassVar[list[Sequence[Options]]] = []

        def looks(self, queues: Sequence[Options]) -> list[QueueView | None]:
            self.asked.append(queues)
            return [seen[dict(options).get("partition", "core")] for options in queues]

    watch = JobWatch(Shows(clock, poll=15.0), clock, lambda _events: None, looks=True, queues=[low])
    watch.step()
    assert watch.seen() == seen["core"] and watch.seen(low) == seen["long"]
    other: Options = (("partition", "core"),)
    assert watch.seen(other) is None
    clock.wait(threading.Event(), 15.0)
    watch.step()
    assert watch.seen(other) == seen["core"]
    assert [len(queues) for queues in Shows.asked] == [2, 3]
    plain = JobWatch(FakeBatch(clock), clock, lambda _events: None, looks=True, queues=[low])
    plain.step()
    assert plain.seen() is not None and plain.seen(low) is None


# Who calls it.


JOB = JobRequest("a", Resources(), 60.0, ("true",))


class Bench:
    def __init__(self) -> None:
        self.clock, self.events = ManualClock(), list[Event]()
        self.batch = FakeBatch(self.clock, run=lambda _request: FakeRun(10.0), poll=4.0)
        self.calls = WatchCalls(self.clock)
        self.watch = JobWatch(self.batch, self.clock, self.events.extend, self.calls.wake)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_steps_are_called_when_they_are_due(bench: Bench) -> None:
    bench.calls.start(bench.watch)
    bench.watch.submit([JOB])
    bench.batch.sleep(30)
    assert [type(event) for event in bench.events] == [Submitted, AllocationStarted, JobEnded]
    assert bench.events[1].at == 0.5, "half a second after the submission"


def test_an_earlier_time_replaces_a_later_one(bench: Bench) -> None:
    bench.calls.start(bench.watch)
    bench.watch.submit([JOB])
    asked: list[float] = []
    query = bench.batch.query
    bench.batch.query = lambda handles: asked.append(bench.clock.now()) or query(handles)  # type: ignore
    bench.batch.sleep(2.2)  # asked at 0.5, 1, 2; the next time would be at 4
    bench.watch.hurry()
    bench.watch.hurry()
    bench.batch.sleep(2.5)
    assert asked == [0.5, 1.0, 2.0, 2.2, 3.2]


def test_after_its_close_it_does_nothing(bench: Bench) -> None:
    bench.calls.start(bench.watch)
    bench.calls.close()
    bench.watch.submit([JOB])
    bench.batch.sleep(30)
    assert bench.events == []


def test_an_error_reaches_the_waiting_caller(bench: Bench) -> None:
    bench.batch.break_next("submit", BackendError("no such account", transient=True))
    bench.calls.start(bench.watch)
    bench.watch.submit([JOB])
    with pytest.raises(BackendError, match="no such account"):
        bench.batch.sleep(30)


def test_the_thread_steps_when_it_is_woken_and_ends_when_it_is_closed() -> None:
    posted, before = threading.Event(), set(threading.enumerate())
    clock = SystemClock()
    thread = WatchThread(clock)
    batch = FakeBatch(ManualClock(time.time()), 4)
    watch = JobWatch(batch, clock, lambda _events: posted.set(), thread.wake)
    thread.start(watch)
    watch.submit([JOB])
    assert posted.wait(10.0)
    thread.close()
    assert not set(threading.enumerate()) - before


def test_a_thread_that_was_never_started_can_be_closed() -> None:
    WatchThread(SystemClock()).close()


def test_a_driver_that_was_replaced_calls_the_batch_system_for_nothing(desk: Desk) -> None:
    replaced = False
    watch = JobWatch(desk.batch, desk.clock, desk.events.extend, is_replaced=lambda: replaced)
    watch.submit([request("a")])
    watch.step()
    (submitted,) = desk.of(Submitted)
    assert isinstance(submitted, Submitted)
    replaced = True
    watch.submit([request("b")])
    watch.cancel(submitted.handle)
    watch.step()
    assert desk.batch.find(["b"]) == {} and not watch.busy
    assert not desk.batch.query([submitted.handle])[0].state.final


@pytest.mark.parametrize("may_be_late", [False, True])
def test_what_an_earlier_driver_submits_late_is_cancelled_within_half_a_minute(desk: Desk, may_be_late: bool) -> None:
    desk.watch = JobWatch(desk.batch, desk.clock, desk.events.extend, may_be_late=may_be_late)
    desk.watch.adopt({}, {"late": 0.0})
    desk.until(100.0)
    assert [event.state for event in desk.of(JobEnded) if isinstance(event, JobEnded)] == [JobState.LOST]
    desk.batch.wait = lambda _request: 1e6
    (handle,) = desk.batch.submit([request("late")])
    assert isinstance(handle, JobHandle)
    desk.until(130.0)
    assert (desk.batch.query([handle])[0].state is JobState.CANCELLED) is may_be_late
    desk.until(3 * 3600.0)
    assert desk.watch.step() == math.inf, "it is not looked for for ever"
