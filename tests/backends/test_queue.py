"""The queue, its two drivers (the embedded batch system has a file of its own), and the conformance suite over both."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from asa.backends.local import Local
from asa.backends.queue import BatchQueue, QueueEntry
from asa.core.clock import ManualClock, SystemClock
from asa.core.decision import DispatchDecision, Reject, Start
from asa.core.errors import BackendError
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    Reason,
    Refused,
    Resources,
)
from asa.core.serial import from_json, to_json
from asa.core.view import QueueView
from asa.lab.dispatchers.backfill import Easy, Fcfs
from asa.testing.backend_fake import FakeBatch
from asa.testing.backends import BatchSemantics, RealPrograms, TestedSite, run_of

CAPACITY = Resources(cores=4, memory=100, gpus=1)


def request(token: str = "a", cores: int = 1, walltime_s: float = 10.0, **fields: Any) -> JobRequest:
    return replace(JobRequest(token, Resources(cores=cores), walltime_s, ("true",)), **fields)


def put(queue: BatchQueue, job: JobRequest, now: float = 0.0) -> JobHandle:
    (outcome,) = queue.submit([job], now)
    assert isinstance(outcome, JobHandle)
    return outcome


def started(queue: BatchQueue, now: float) -> list[str]:
    return [entry.request.token for entry in queue.tick(now).start]


def array(queue: BatchQueue, *jobs: JobRequest, now: float = 0.0) -> list[JobHandle]:
    outcomes = queue.submit([replace(job, array="a") for job in jobs], now)
    handles = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
    assert len(handles) == len(jobs)
    return handles


@pytest.fixture
def queue() -> BatchQueue:
    return BatchQueue(CAPACITY, Easy())


def test_jobs_start_in_order_and_the_others_say_why_they_wait(queue: BatchQueue) -> None:
    put(queue, request("a", cores=3))
    whole, small = put(queue, request("whole", cores=4)), put(queue, request("long", walltime_s=11.0))
    short = put(queue, request("short"))
    assert started(queue, 0.0) == ["a", "short"]
    assert (queue.status(whole).reason, queue.status(whole).planned) == ("Resources", 10.0)
    assert (queue.status(small).reason, queue.status(small).planned) == ("Priority", None)
    assert queue.status(short).state is JobState.RUNNING


def test_a_rejected_job_is_cancelled_with_its_dependents() -> None:
    class Picky:
        name = "picky"

        def decide(self, view: QueueView) -> list[DispatchDecision]:
            wide = [job.key for job in view.queue if job.resources.cores > 1]
            return [Reject(key, "not on a Sunday") for key in wide] + [
                Start(job.key) for job in view.queue if job.key not in wide
            ]

    queue = BatchQueue(CAPACITY, Picky())
    wide, small = put(queue, request("wide", cores=2)), put(queue, request("small"))
    after = put(queue, request("after", dependencies=(Dependency(wide, DependencyKind.AFTER_OK),)))
    assert started(queue, 3.0) == ["small"]
    assert queue.status(small).state is JobState.RUNNING
    status = queue.status(wide)
    assert (status.state, status.started, status.ended) == (JobState.CANCELLED, None, 3.0)
    assert status.reason == "not on a Sunday"
    assert (queue.status(after).state, queue.status(after).reason) == (JobState.CANCELLED, Reason.NEVER)


def test_wall_time_kills_once_and_room_is_free_when_the_program_is_gone(queue: BatchQueue) -> None:
    handle = put(queue, request("a", cores=4))
    put(queue, request("b", cores=4))
    queue.tick(0.0)
    assert [entry.request.token for entry in queue.tick(10.0).kill] == ["a"]
    assert queue.status(handle).state is JobState.RUNNING
    assert "timeout" in queue.status(handle).reason
    second = queue.tick(11.0)
    assert (second.kill, second.start) == ([], [])
    queue.ended(handle.job_id, 12.0, 0)
    status = queue.status(handle)
    assert (status.state, status.ended, status.reason) == (JobState.TIMEOUT, 12.0, "TimeLimit")
    assert started(queue, 12.0) == ["b"]


def test_a_cancelled_job_that_exits_well_is_cancelled_all_the_same(queue: BatchQueue) -> None:
    handle = put(queue, request())
    queue.tick(0.0)
    assert [entry.job_id for entry in queue.cancel(handle, 1.0)] == [handle.job_id]
    assert queue.cancel(handle, 1.0) == [], "once is enough"
    queue.ended(handle.job_id, 2.0, 0)
    assert queue.status(handle).state is JobState.CANCELLED


def test_a_dependent_job_is_eligible_from_the_end_of_the_other_and_keeps_its_place() -> None:
    queue = BatchQueue(CAPACITY, Fcfs())
    first = put(queue, request("first", cores=4))
    queue.tick(0.0)
    dependent = put(queue, request("dependent", cores=4, dependencies=(Dependency(first),)), 1.0)
    put(queue, request("later", cores=4), 2.0)
    queue.tick(2.0)
    assert queue.status(dependent).reason == "Dependency"
    queue.ended(first.job_id, 5.0, 0)
    assert started(queue, 6.0) == ["dependent"]
    assert queue.status(dependent).eligible == 5.0


def test_a_chain_on_a_failed_job_is_cancelled_at_once(queue: BatchQueue) -> None:
    first = put(queue, request("first"))
    second = put(queue, request("second", dependencies=(Dependency(first),)))
    third = put(queue, request("third", dependencies=(Dependency(second),)))
    anyway = put(queue, request("anyway", dependencies=(Dependency(third, DependencyKind.AFTER_ANY),)))
    queue.tick(0.0)
    queue.ended(first.job_id, 1.0, 1)
    assert started(queue, 1.0) == ["anyway"]
    for handle in (second, third):
        assert (queue.status(handle).state, queue.status(handle).reason) == (JobState.CANCELLED, Reason.NEVER)
    assert queue.status(anyway).state is JobState.RUNNING


def test_a_chain_against_the_order_of_submission_is_cancelled_at_once_too(queue: BatchQueue) -> None:
    last, middle, first = (put(queue, request(token, begin=1.0)) for token in ("last", "middle", "first"))
    queue.update(last, JobChanges(dependencies=(Dependency(middle),)))
    queue.update(middle, JobChanges(dependencies=(Dependency(first),)))
    queue.cancel(first, 0.0)
    queue.tick(0.0)
    assert {queue.status(handle).state for handle in (last, middle, first)} == {JobState.CANCELLED}


def test_after_is_satisfied_by_a_start_or_by_a_cancellation(queue: BatchQueue) -> None:
    late = put(queue, request("late", begin=100.0))
    after = put(queue, request("after", dependencies=(Dependency(late, DependencyKind.AFTER),)))
    assert started(queue, 0.0) == []
    queue.cancel(late, 1.0)
    assert started(queue, 1.0) == ["after"]
    assert queue.status(after).eligible == 1.0


def test_begin_time_is_the_time_of_eligibility(queue: BatchQueue) -> None:
    handle = put(queue, request(begin=50.0))
    queue.tick(49.0)
    assert queue.status(handle).reason == "BeginTime"
    assert started(queue, 51.0) == ["a"]
    assert queue.status(handle).eligible == 50.0


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (request(resources=Resources(cores=5)), "5 cores"),
        (request(resources=Resources(memory=101)), "101 bytes of memory"),
        (request(resources=Resources(gpus=2)), "2 GPUs"),
        (request(walltime_s=0.0), "wall time"),
        (request(walltime_s=math.nan), "wall time"),
        (request(dependencies=(Dependency(JobHandle("7", "unknown", 0.0)),)), "'unknown'"),
    ],
)
def test_a_job_that_could_never_run_is_refused(queue: BatchQueue, job: JobRequest, words: str) -> None:
    (outcome,) = queue.submit([job], 0.0)
    assert isinstance(outcome, Refused) and words in outcome.reason


def test_a_handle_of_another_time_is_lost(queue: BatchQueue) -> None:
    handle = put(queue, request())
    assert queue.status(replace(handle, submitted=1.0)).state is JobState.LOST


def test_only_waiting_jobs_can_be_changed_and_only_to_what_can_run(queue: BatchQueue) -> None:
    running, waiting = put(queue, request("running", cores=4)), put(queue, request("waiting", cores=4))
    queue.tick(0.0)
    with pytest.raises(BackendError, match="'running' is running"):
        queue.update(running, JobChanges(walltime_s=5.0))
    with pytest.raises(BackendError, match="5 cores"):
        queue.update(waiting, JobChanges(resources=Resources(cores=5)))
    queue.update(waiting, JobChanges(walltime_s=3.0, begin=20.0))
    queue.ended(running.job_id, 10.0, 0)
    assert started(queue, 10.0) == []
    assert started(queue, 20.0) == ["waiting"]
    assert queue.tick(23.0).kill, "the new wall time counts"


def test_a_job_that_was_eligible_can_be_made_to_wait(queue: BatchQueue) -> None:
    first, second = put(queue, request("first", cores=4)), put(queue, request("second"))
    third = put(queue, request("third"))
    queue.tick(0.0)
    queue.update(second, JobChanges(begin=50.0))
    queue.update(third, JobChanges(dependencies=(Dependency(second),)))
    queue.ended(first.job_id, 1.0, 0)
    assert started(queue, 1.0) == []
    assert [queue.status(handle).reason for handle in (second, third)] == ["BeginTime", "Dependency"]


def test_a_requeued_job_starts_again_and_counts_it(queue: BatchQueue) -> None:
    handle = put(queue, request(cores=4))
    put(queue, request("b", cores=4))
    queue.tick(0.0)
    queue.requeued(handle.job_id, "NodeFail")
    status = queue.status(handle)
    assert (status.state, status.reason, status.started, status.restarts) == (JobState.PENDING, "NodeFail", None, 1)
    assert started(queue, 5.0) == ["a"], "it has kept its place"
    assert queue.status(handle).started == 5.0


def test_a_forgotten_job_is_lost_and_frees_its_room(queue: BatchQueue) -> None:
    handle = put(queue, request(cores=4))
    put(queue, request("b", cores=4))
    put(queue, request("ok", dependencies=(Dependency(handle),)))
    put(queue, request("any", dependencies=(Dependency(handle, DependencyKind.AFTER_ANY),)))
    queue.tick(0.0)
    queue.forget(handle.job_id)
    assert queue.status(handle).state is JobState.LOST
    assert started(queue, 1.0) == ["b"]
    queue.ended("2", 2.0, 0)
    assert started(queue, 2.0) == ["any"], "how it ended is not known"


def test_an_end_is_never_before_its_start(queue: BatchQueue) -> None:
    handle = put(queue, request())
    queue.tick(5.0)
    queue.ended(handle.job_id, 4.99, 0)
    assert queue.status(handle).ended == 5.0


def test_a_parked_job_keeps_its_place() -> None:
    queue = BatchQueue(CAPACITY, Fcfs())
    first, parked = put(queue, request("first", cores=4)), put(queue, request("parked", cores=4), 1.0)
    put(queue, request("later", cores=4), 2.0)
    queue.tick(2.0)
    queue.update(parked, JobChanges(parked=True))
    queue.ended(first.job_id, 5.0, 0)
    assert started(queue, 5.0) == ["later"]
    assert (queue.status(parked).reason, queue.status(parked).ages_since) == ("BadConstraints", 1.0)
    put(queue, request("last", cores=4), 6.0)
    queue.update(parked, JobChanges(parked=False))
    queue.ended("3", 7.0, 0)
    assert started(queue, 7.0) == ["parked"]
    assert queue.status(parked).ages_since is None, "it runs"


def test_a_look_shows_what_the_dispatcher_sees_and_changes_nothing(queue: BatchQueue) -> None:
    handles = array(queue, request("a", cores=3), request("b", cores=4), request("c"))
    waiting, _ = put(queue, request("waiting", cores=2)), put(queue, request("later", begin=50.0))
    queue.tick(0.0)
    view = queue.look(3.0)
    assert view.now == 3.0
    assert [(job.key, job.ends) for job in view.running] == [(handles[0].job_id, 10.0)]
    assert [job.key for job in view.queue] == [waiting.job_id]
    assert (queue.status(waiting).reason, queue.status(waiting).planned) == ("Resources", 10.0)


def test_elements_have_places_of_their_own_and_names_hold_for_one_call(queue: BatchQueue) -> None:
    first = array(queue, request("a"), request("b", walltime_s=5.0))
    alone, *second = queue.submit([request("c"), *(request(name, array="a") for name in "de")], 0.0)
    assert [handle.array_index for handle in first] == [0, 1]
    assert [outcome.array_index for outcome in (alone, *second) if isinstance(outcome, JobHandle)] == [None, 0, 1]
    assert started(queue, 0.0) == ["a", "c", "d"], "one of each array"
    assert queue.status(first[1]).reason == "JobArrayTaskLimit"
    assert queue.status(first[1]).ages_since == 0.0


def test_elements_that_need_not_start_in_order_start_where_they_find_room() -> None:
    queue = BatchQueue(CAPACITY, Easy(), ordered=False)
    put(queue, request("before", cores=2))
    short = (request(name, walltime_s=5.0) for name in "cd")
    first, *others = array(queue, request("a", cores=3), request("b", cores=2), *short)
    assert started(queue, 0.0) == ["before", "b"], "one of the array"
    assert [queue.status(handle).state for handle in (first, *others[1:])] == [JobState.PENDING] * 3
    queue.update(first, JobChanges(throttle=2))
    queue.ended(others[0].job_id, 1.0, 0)
    assert started(queue, 1.0) == ["c", "d"], "two, and the first has no room yet"


def test_a_throttle_counts_what_runs_and_what_goes_next(queue: BatchQueue) -> None:
    first, second, third = array(queue, request("a", cores=3), request("b", cores=2), request("c", walltime_s=99.0))
    assert started(queue, 0.0) == ["a"]
    queue.update(third, JobChanges(throttle=2))
    assert started(queue, 1.0) == [], "it is the turn of b, for which there is no room"
    assert [queue.status(handle).reason for handle in (second, third)] == ["Resources", "JobArrayTaskLimit"]
    queue.update(second, JobChanges(begin=50.0))
    assert started(queue, 2.0) == ["c"], "who waits for a time takes no room"
    queue.update(first, JobChanges(throttle=1))
    queue.ended(first.job_id, 3.0, 0)
    assert started(queue, 51.0) == [], "c runs"
    assert [entry.job_id for entry in queue.cancel(third, 52.0)] == [third.job_id]
    queue.ended(third.job_id, 53.0, None)
    assert started(queue, 53.0) == ["b"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (JobChanges(throttle=0), "at least 1 element may run, not 0"),
        (JobChanges(throttle=2, resources=Resources(cores=5)), "5 cores"),
    ],
)
def test_a_throttle_that_cannot_be_is_refused_and_nothing_changes(
    changes: JobChanges, words: str, queue: BatchQueue
) -> None:
    first, second = array(queue, request("a"), request("b"))
    with pytest.raises(BackendError, match=words):
        queue.update(second, changes)
    assert started(queue, 0.0) == ["a"]
    queue.ended(first.job_id, 1.0, 0)
    assert started(queue, 1.0) == ["b"]


def test_a_throttle_needs_an_array_that_lives(queue: BatchQueue) -> None:
    alone = put(queue, request("alone"))
    with pytest.raises(BackendError, match="'alone' cannot be changed: it is no element"):
        queue.update(alone, JobChanges(throttle=2))
    first, second = array(queue, request("a"), request("b"))
    queue.tick(0.0)
    queue.ended(first.job_id, 1.0, 0)
    queue.cancel(second, 1.0)
    with pytest.raises(BackendError, match="have all ended"):
        queue.update(first, JobChanges(throttle=2))
    with pytest.raises(BackendError, match="'a' is completed"):
        queue.update(first, JobChanges(throttle=2, begin=5.0))


class Books(RuleBasedStateMachine):
    """Whatever happens: the machine is not overfull, no order is broken, and the journal alone rebuilds the queue."""

    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.queue = BatchQueue(CAPACITY, Easy())
        self.now = 0.0
        self.journal: dict[str, Any] = {}
        self.dying: set[str] = set()

    @rule(target=handles, cores=st.integers(1, 4), walltime=st.integers(1, 5), begin=st.none() | st.integers(0, 20))
    def submit(self, cores: int, walltime: int, begin: int | None) -> JobHandle:
        return put(self.queue, request("x", cores, float(walltime), begin=begin), self.now)

    @rule(target=handles, on=handles, kind=st.sampled_from(DependencyKind))
    def submit_dependent(self, on: JobHandle, kind: DependencyKind) -> JobHandle:
        return put(self.queue, request("x", dependencies=(Dependency(on, kind),)), self.now)

    @rule(target=handles, cores=st.lists(st.integers(1, 4), min_size=2, max_size=4))
    def submit_array(self, cores: list[int]) -> Any:
        return multiple(*array(self.queue, *(request("x", count) for count in cores), now=self.now))

    @rule(handle=handles, throttle=st.integers(1, 3))
    def widen_or_narrow(self, handle: JobHandle, throttle: int) -> None:
        with contextlib.suppress(BackendError):
            self.queue.update(handle, JobChanges(throttle=throttle))

    @rule(handle=handles, parked=st.booleans())
    def park(self, handle: JobHandle, parked: bool) -> None:
        if self.queue.status(handle).state is JobState.PENDING:
            self.queue.update(handle, JobChanges(parked=parked))

    @rule(handle=handles)
    def cancel(self, handle: JobHandle) -> None:
        self.dying |= {entry.job_id for entry in self.queue.cancel(handle, self.now)}

    @rule(handle=handles, exit_code=st.integers(0, 1))
    def end(self, handle: JobHandle, exit_code: int) -> None:
        if self.queue.status(handle).state is JobState.RUNNING:
            self.queue.ended(handle.job_id, self.now, exit_code)
            self.dying.discard(handle.job_id)

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        actions = self.queue.tick(self.now)
        for entry in actions.start:
            for dependency in entry.request.dependencies:
                other = self.queue.status(dependency.on)
                if dependency.kind is DependencyKind.AFTER_OK:
                    assert other.state is JobState.COMPLETED
                elif dependency.kind is DependencyKind.AFTER_ANY:
                    assert other.state.final
                else:
                    assert other.started is not None or other.state.final
            assert entry.request.begin is None or entry.request.begin <= self.now
            assert not entry.parked
            if entry.array:
                assert sum(other.running for other in self.queue.live() if other.array == entry.array) <= entry.throttle
        for entry in actions.kill:
            assert entry.job_id not in self.dying, "killed once"
            assert entry.ends <= self.now
            self.dying.add(entry.job_id)

    @invariant()
    def not_overfull(self) -> None:
        assert sum(entry.request.resources.cores for entry in self.queue.live() if entry.running) <= CAPACITY.cores

    @invariant()
    def times_are_in_order(self) -> None:
        for entry in self.queue.entries():
            status = entry.status
            known = [status.handle.submitted, status.eligible, status.started, status.ended]
            times = [time for time in known if time is not None]
            assert times == sorted(times)

    @rule()
    def restart(self) -> None:
        kept = [from_json(QueueEntry, text) for text in self.journal.values()]
        assert kept == self.queue.entries()
        self.queue = BatchQueue(CAPACITY, Easy(), kept, first_id=len(kept) + 1)

    @invariant()
    def write_journal(self) -> None:
        for entry in self.queue.changes():
            self.journal[entry.job_id] = to_json(entry)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


# Conformance.


class TestLocal(BatchSemantics, RealPrograms):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[TestedSite]:
        directory = tmp_path / "work"
        directory.mkdir()
        backend = Local(cores=4, directory=tmp_path / "jobs", poll_s=0.01, grace_s=0.3)
        # An end is the time of a file, which is that of the last tick: up to 10 ms ago.
        yield TestedSite(backend, SystemClock(), directory, run_s=0.1, shortest_s=0.2, resolution_s=0.01)
        backend.close()


class TestFake(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        clock = ManualClock(1000.0)
        batch = FakeBatch(clock, cores=4, run=run_of)
        return TestedSite(batch, clock, tmp_path, run_s=10.0, shortest_s=60.0, walltime_s=600.0, patience_s=200.0)
