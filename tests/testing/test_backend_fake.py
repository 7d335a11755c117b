from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Refused,
    Resources,
)
from asa.testing.backend_fake import FakeBatch, FakeRun


def request(token: str, cores: int = 4, **fields: Any) -> JobRequest:
    return replace(JobRequest(token, Resources(cores=cores), 100.0, ("true",)), **fields)


def put(batch: FakeBatch, job: JobRequest) -> JobHandle:
    (outcome,) = batch.submit([job])
    assert isinstance(outcome, JobHandle)
    return outcome


def status(batch: FakeBatch, handle: JobHandle) -> JobStatus:
    return batch.query([handle])[0]


def test_a_program_of_which_nothing_is_said_runs_until_it_is_ended() -> None:
    batch = FakeBatch(ManualClock())
    handle = put(batch, request("a"))
    batch.sleep(99.0)
    assert status(batch, handle).state is JobState.RUNNING
    batch.end("a", exit_code=2)
    assert (status(batch, handle).state, status(batch, handle).exit_code) == (JobState.FAILED, 2)
    assert status(batch, handle).ended == 99.0


def test_or_until_its_wall_time() -> None:
    batch = FakeBatch(ManualClock())
    handle = put(batch, request("a"))
    batch.sleep(500.0)
    assert (status(batch, handle).state, status(batch, handle).ended) == (JobState.TIMEOUT, 100.0)


def test_a_program_that_ends_with_its_wall_time_has_ended_well() -> None:
    batch = FakeBatch(ManualClock(), run=lambda _: FakeRun(100.0))
    handle = put(batch, request("a"))
    batch.sleep(100.0)
    assert status(batch, handle).state is JobState.COMPLETED


def test_waits_are_scripted_per_job() -> None:
    batch = FakeBatch(ManualClock(5.0), run=lambda _: FakeRun(1.0), wait=lambda job: {"a": 30.0, "b": 10.0}[job.token])
    first, second = put(batch, request("a")), put(batch, request("b"))
    batch.sleep(100.0)
    assert [status(batch, handle).started for handle in (first, second)] == [35.0, 15.0]


def test_a_job_may_wait_until_it_is_admitted() -> None:
    batch = FakeBatch(ManualClock(), wait=math.inf)
    handle = put(batch, request("a"))
    batch.sleep(1000.0)
    assert status(batch, handle).state is JobState.PENDING
    batch.admit("a")
    assert status(batch, handle).started == 1000.0


def test_a_job_that_waits_for_a_start_starts_with_it() -> None:
    batch = FakeBatch(ManualClock())
    first = put(batch, request("a", cores=1, begin=10.0))
    second = put(batch, request("b", cores=1, dependencies=(Dependency(first, DependencyKind.AFTER),)))
    batch.sleep(10.0)
    assert status(batch, second).started == 10.0


def test_failures_name_their_state() -> None:
    batch = FakeBatch(ManualClock())
    handle = put(batch, request("a"))
    batch.fail("a", JobState.PREEMPTED, "Preempted")
    assert (status(batch, handle).state, status(batch, handle).reason) == (JobState.PREEMPTED, "Preempted")
    assert status(batch, handle).exit_code is None


def test_a_requeued_job_runs_its_program_from_the_start() -> None:
    clock = ManualClock()
    batch = FakeBatch(clock, run=lambda _: FakeRun(10.0))
    handle = put(batch, request("a"))
    clock.call_at(4.0, lambda: batch.requeue("a"))
    batch.sleep(11.0)
    found = status(batch, handle)
    assert (found.state, found.started, found.restarts) == (JobState.RUNNING, 4.0, 1)
    batch.sleep(5.0)
    assert status(batch, handle).ended == 14.0


def test_a_vanished_job_is_lost_and_makes_room() -> None:
    batch = FakeBatch(ManualClock(), run=lambda _: FakeRun(10.0))
    first, second = put(batch, request("a")), put(batch, request("b"))
    batch.vanish("a")
    assert status(batch, first).state is JobState.LOST
    assert batch.find(["a", "b"]) == {"b": second}
    batch.sleep(20.0)
    assert status(batch, second).state is JobState.COMPLETED
    assert [job.token for job, _ in batch.jobs()] == ["b"]


def test_refusals_are_scripted() -> None:
    batch = FakeBatch(ManualClock(), refuse=lambda job: "not on Sundays" if job.token == "a" else None)
    refused, taken = batch.submit([request("a"), request("b")])
    assert refused == Refused("a", "not on Sundays")
    assert isinstance(taken, JobHandle)


def test_a_broken_call_has_no_effect() -> None:
    batch = FakeBatch(ManualClock())
    batch.break_next("submit", BackendError("busy", transient=True), times=2)
    for _ in range(2):
        with pytest.raises(BackendError, match="busy"):
            batch.submit([request("a")])
    assert batch.jobs() == []
    put(batch, request("a"))


def test_a_lost_answer_leaves_the_job_to_be_found() -> None:
    batch = FakeBatch(ManualClock())
    batch.break_next("submit", BackendError("timed out", transient=True), after=True)
    with pytest.raises(BackendError, match="timed out"):
        batch.submit([request("a")])
    assert batch.find(["a"])["a"].job_id == "1"


@pytest.mark.parametrize("call", ["query", "find", "update", "cancel"])
def test_any_call_can_be_broken(call: str) -> None:
    batch = FakeBatch(ManualClock())
    batch.break_next(call, BackendError("no answer"))
    with pytest.raises(BackendError, match="no answer"):
        getattr(batch, call)(*[[]] * (2 if call == "update" else 1))


def test_every_change_of_state_is_reported_once() -> None:
    told: list[tuple[str, JobState]] = []
    batch = FakeBatch(ManualClock(), run=lambda _: FakeRun(10.0))
    batch.watch = lambda job, found: told.append((job.token, found.state))
    put(batch, request("a"))
    handle = put(batch, request("b"))
    batch.sleep(15.0)
    batch.cancel([handle])
    assert told == [
        ("a", JobState.RUNNING),
        ("b", JobState.PENDING),
        ("a", JobState.COMPLETED),
        ("b", JobState.RUNNING),
        ("b", JobState.CANCELLED),
    ]


def test_a_watcher_may_act_at_once() -> None:
    batch = FakeBatch(ManualClock())
    batch.watch = lambda job, found: batch.end(job.token) if found.state is JobState.RUNNING else None
    handles = [put(batch, request(token)) for token in ("a", "b")]
    assert [status(batch, handle).state for handle in handles] == [JobState.COMPLETED] * 2


def test_the_world_goes_on_without_a_driver_and_is_the_same_each_time() -> None:
    def story() -> list[tuple[JobRequest, JobStatus]]:
        batch = FakeBatch(ManualClock(), run=lambda job: FakeRun(float(len(job.token)), len(job.token) % 2))
        for token in ("a", "bb", "ccc"):
            put(batch, request(token, cores=2))
        batch.sleep(100.0)
        return batch.jobs()

    assert story() == story()
    assert all(found.state.final for _, found in story())


def test_a_job_that_is_not_there_is_named() -> None:
    batch = FakeBatch(ManualClock(), wait=math.inf)
    put(batch, request("a"))
    with pytest.raises(InvalidInput, match="no job 'b'"):
        batch.vanish("b")
    with pytest.raises(InvalidInput, match="no running job 'a'"):
        batch.end("a")


def test_whether_jobs_age_is_scripted() -> None:
    batch = FakeBatch(ManualClock(5.0), ages=lambda job: not job.dependencies)
    first, second = put(batch, request("a")), put(batch, request("b"))
    assert (status(batch, first).ages_since, status(batch, second).ages_since) == (None, 5.0)
    batch.update(second, JobChanges(dependencies=(Dependency(first),)))
    assert status(batch, second).ages_since is None
    batch.update(second, JobChanges(dependencies=()))
    assert status(batch, second).ages_since == 5.0


def test_an_element_that_is_refused_takes_no_index() -> None:
    batch = FakeBatch(ManualClock(), refuse=lambda job: "no" if job.token == "b" else None)
    outcomes = batch.submit([request(token, array="x") for token in ("a", "b", "c")])
    assert outcomes[1] == Refused("b", "no")
    assert [outcome.array_index for outcome in outcomes if isinstance(outcome, JobHandle)] == [0, 1]


def test_a_batch_system_without_arrays_and_parking_says_so() -> None:
    batch = FakeBatch(ManualClock(), arrays=False, parks=False)
    capabilities = batch.capabilities()
    assert (capabilities.arrays, capabilities.parks) == (False, False)
    handle = put(batch, request("a", begin=50.0))
    for changes, words in ((JobChanges(throttle=2), "no job arrays"), (JobChanges(parked=True), "does not park")):
        with pytest.raises(BackendError, match=words):
            batch.update(handle, changes)


def test_a_look_may_fail_like_any_call() -> None:
    batch = FakeBatch(ManualClock())
    put(batch, request("a"))
    batch.break_next("look", BackendError("no answer", transient=True))
    with pytest.raises(BackendError, match="no answer"):
        batch.look()
    assert [job.resources.cores for job in batch.look().running] == [4]
