"""Who calls the job watch: the clock in virtual time, else a thread."""

from __future__ import annotations

import threading
import time

import pytest

from asa.allocations.watch import JobWatch, WatchCalls, WatchThread
from asa.core.clock import ManualClock, SystemClock
from asa.core.errors import BackendError
from asa.core.event import AllocationStarted, Event, JobEnded, Submitted
from asa.core.job import JobRequest, Resources
from asa.testing.backend_fake import FakeBatch, FakeRun

JOB = JobRequest("a", Resources(), 60.0, ("true",))


class Ground:
    def __init__(self) -> None:
        self.clock, self.events = ManualClock(), list[Event]()
        self.batch = FakeBatch(self.clock, run=lambda _request: FakeRun(10.0), poll=4.0)
        self.calls = WatchCalls(self.clock)
        self.watch = JobWatch(self.batch, self.clock, self.events.extend, self.calls.wake)


def test_steps_are_called_when_they_are_due() -> None:
    ground = Ground()
    ground.calls.start(ground.watch)
    ground.watch.submit([JOB])
    ground.batch.sleep(30)
    assert [type(event) for event in ground.events] == [Submitted, AllocationStarted, JobEnded]
    assert ground.events[1].at == 0.5, "half a second after the submission"


def test_an_earlier_time_replaces_a_later_one() -> None:
    ground = Ground()
    ground.calls.start(ground.watch)
    ground.watch.submit([JOB])
    asked: list[float] = []
    query = ground.batch.query
    ground.batch.query = lambda handles: asked.append(ground.clock.now()) or query(handles)  # type: ignore
    ground.batch.sleep(2.2)  # asked at 0.5, 1, 2; the next time would be at 4
    ground.watch.hurry()
    ground.watch.hurry()
    ground.batch.sleep(2.5)
    assert asked == [0.5, 1.0, 2.0, 2.2, 3.2]


def test_after_its_close_it_does_nothing() -> None:
    ground = Ground()
    ground.calls.start(ground.watch)
    ground.calls.close()
    ground.watch.submit([JOB])
    ground.batch.sleep(30)
    assert ground.events == []


def test_an_error_reaches_whoever_waits() -> None:
    ground = Ground()
    ground.batch.break_next("submit", BackendError("no such account", transient=True))
    ground.calls.start(ground.watch)
    ground.watch.submit([JOB])
    with pytest.raises(BackendError, match="no such account"):
        ground.batch.sleep(30)


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
