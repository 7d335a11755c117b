"""What is made of jobs whichever batch system they are of."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends import batch
from asa.backends.asking import SiteRefusal
from asa.core.errors import BackendError
from asa.core.job import (
    Capabilities,
    Dependency,
    DependencyKind,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Refused,
    Resources,
)

_LIVE = (JobState.PENDING, JobState.RUNNING)
SITE = Capabilities("here", "short", largest=Resources(16), cores_per_node=8, longest_s=3600.0)


def handle(token: str = "a", submitted: float = 0.0) -> JobHandle:
    return JobHandle(f"7{token}", token, submitted)


def request(token: str = "a", cores: int = 1, nodes: int | None = None, hours: float = 1.0) -> JobRequest:
    return JobRequest(token, Resources(cores, nodes), 3600 * hours, ("true",))


class Table:
    """Statuses by handle; counts how often it is asked."""

    def __init__(self, *statuses: JobStatus) -> None:
        self.statuses = {status.handle: status for status in statuses}
        self.asked = 0

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        self.asked += 1
        return [self.statuses[each] for each in handles]


def expected(kind: DependencyKind, status: JobStatus) -> bool | None:
    """Whether it is fulfilled, as docs/howto/write-a-backend.md has it; None when it never will be."""
    if kind is DependencyKind.AFTER:
        return status.started is not None or status.state.final
    if kind is DependencyKind.AFTER_ANY:
        return status.state.final
    return status.state is JobState.COMPLETED if status.state in (JobState.COMPLETED, *_LIVE) else None


@pytest.mark.parametrize("kind", DependencyKind)
@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("started", [None, 5.0])
def test_which_dependencies_are_left(kind: DependencyKind, state: JobState, started: float | None) -> None:
    first, status = handle("first"), JobStatus(handle("a"), state, started=started)
    waits = JobStatus(first, JobState.PENDING)
    table = Table(waits, status)
    needed = [Dependency(first), Dependency(status.handle, kind)]
    fulfilled = expected(kind, status)
    if fulfilled is None:
        with pytest.raises(SiteRefusal, match=rf"to follow job 7a \(a\), which ended as {state.value}"):
            batch.unfulfilled(needed, table.query)
    else:
        assert batch.unfulfilled(needed, table.query) == tuple(needed[: 1 if fulfilled else 2])
    assert table.asked == 1


def test_a_request_is_told_in_full() -> None:
    done, runs = JobStatus(handle("a"), JobState.COMPLETED), JobStatus(handle("b"), JobState.RUNNING)
    asked = JobRequest("c", Resources(), 60.0, ("true",), "out", dependencies=tuple(map(Dependency, map(handle, "ab"))))
    found = batch.submittable(asked, SITE, Table(done, runs).query, "Mine")
    assert (found.workdir, found.dependencies) == (os.path.abspath("out"), (Dependency(runs.handle),))


def test_arrays_only_where_there_are_some() -> None:
    asked = JobRequest("c", Resources(), 60.0, ("true",), array="stages")
    with pytest.raises(SiteRefusal, match="the Mine backend has no job arrays"):
        batch.submittable(asked, SITE, Table().query, "Mine")
    assert batch.submittable(asked, Capabilities("here", arrays=True), Table().query, "Mine").array == "stages"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request(cores=8), None),
        (request(cores=16, nodes=2), None),
        (request(cores=17), "it asks for 17 cores, more than there is: 16 cores"),
        (request(cores=16), "it asks for 16 cores, and a node has 8 cores at most: give it more nodes"),
        (request(hours=2), "it asks for 2 h, more than the 1 h of queue short"),
    ],
)
def test_why_a_job_could_never_start(asked: JobRequest, why: str | None) -> None:
    assert batch.misfit(asked, SITE) == why
    assert batch.misfit(asked, Capabilities("here")) is None
    if why is not None:
        with pytest.raises(SiteRefusal) as caught:
            batch.submittable(asked, SITE, Table().query, "Mine")
        assert caught.value.reason == why


def test_a_refusal_holds_up_no_other() -> None:
    errors = {"b": SiteRefusal("no money", "qsub: no money"), "c": BackendError("qsub printed no job id")}

    def submit(asked: JobRequest) -> JobHandle:
        if asked.token in errors:
            raise errors[asked.token]
        return handle(asked.token)

    found = batch.outcomes(map(request, "abcd"), submit)
    assert found == [handle("a"), Refused("b", "no money"), Refused("c", "qsub printed no job id"), handle("d")]


def test_silence_ends_the_whole_call() -> None:
    silence = BackendError("timed out", transient=True)

    def submit(asked: JobRequest) -> JobHandle:
        raise silence

    with pytest.raises(BackendError) as caught:
        batch.outcomes([request()], submit)
    assert caught.value is silence


def test_submission_is_told_by_their_clock_where_it_answers() -> None:
    def submitted(handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        assert handles == [handle("a"), handle("c")]
        return {handles[0]: 12.0}

    def silent(handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        raise BackendError("timed out", transient=True)

    outcomes: list[batch.Outcome] = [handle("a"), Refused("b", "no"), handle("c")]
    assert batch.by_their_clock(outcomes, submitted) == [handle("a", 12.0), Refused("b", "no"), handle("c")]
    assert batch.by_their_clock(outcomes, silent) == outcomes


@given(st.permutations([JobHandle(str(at), token, float(at)) for at, token in enumerate("abacb")]))
def test_of_several_jobs_of_a_token_the_first_is_found(handles: list[JobHandle]) -> None:
    assert batch.first_submitted(handles, ["a", "b", "d"]) == {
        "a": JobHandle("0", "a", 0.0),
        "b": JobHandle("1", "b", 1.0),
    }


def test_jobs_that_have_not_ended() -> None:
    statuses = [JobStatus(JobHandle(state.value, "a", 0.0), state) for state in JobState]
    assert batch.live([*statuses, batch.lost(handle(), "Mine")]) == ["pending", "running"]


@pytest.mark.parametrize("state", JobState)
def test_only_a_job_that_waits_is_changed(state: JobState) -> None:
    status = JobStatus(handle(), state)
    if state is JobState.PENDING:
        batch.must_wait(status, "Mine")
    else:
        with pytest.raises(BackendError, match=rf"Mine job 7a \(a\) cannot be changed: it is {state.value}") as caught:
            batch.must_wait(status, "Mine")
        assert not caught.value.transient
