"""Conformance suite of backends, in two halves: what a batch system does with jobs, and with real programs.

Subclass a half in a test module and give it the fixture ``site``::

    class TestMine(BatchSemantics, RealPrograms):
        @pytest.fixture
        def site(self, tmp_path):
            backend = Mine()
            yield TestedSite(backend, SystemClock(), tmp_path)
            backend.close()

The first half waits only through the clock, so a batch system in virtual time can pass it; its programs are those of
`program`, which `run_of` reads. It needs at least two cores, and no other jobs on the machine. Checks of what a backend
says it lacks (job arrays, parking) are skipped.
"""

from __future__ import annotations

import itertools
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import BackendError
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
from asa.core.ports import Backend, Clock
from asa.testing.backend_fake import FakeRun

__all__ = ["BatchSemantics", "RealPrograms", "TestedSite", "program", "run_of"]

_PROGRAM = re.compile(r"sleep (\S+); exit (\d+)")


def program(run_time_s: float, exit_code: int = 0) -> tuple[str, ...]:
    """A program that runs for `run_time_s` [s] and exits with `exit_code`."""
    return ("sh", "-c", f"sleep {run_time_s}; exit {exit_code}")


def run_of(request: JobRequest) -> FakeRun:
    """What a job made with `program` will do; for batch systems that run nothing.

    >>> run_of(JobRequest("a", Resources(), 60.0, program(1.5, exit_code=3)))
    FakeRun(run_time_s=1.5, exit_code=3)
    """
    match = _PROGRAM.fullmatch(request.argv[-1])
    assert match, f"not one of the suite's programs: {request.argv}"
    return FakeRun(float(match[1]), int(match[2]))


@dataclass
class TestedSite:
    """A batch system under test, and how fast it is.

    Parameters
    ----------
    backend, clock
        The batch system, and the time it lives in.
    directory
        Where programs write; its nodes see it too.
    whole
        A job that fills the machine; the largest one that the backend knows of unless given. An even number of cores.
    run_s
        How long a short program runs [s]; well above `resolution_s`.
    resolution_s
        How exact the times of the batch system are [s].
    walltime_s
        Wall time of jobs that are not meant to reach it [s].
    shortest_s
        Shortest wall time that the batch system enforces [s].
    patience_s
        How long anything may take, besides reaching a wall time [s]: a few short programs in a row, a start, a kill.
    """

    backend: Backend
    clock: Clock
    directory: Path
    whole: Resources = field(default_factory=Resources)
    run_s: float = 0.2
    resolution_s: float = 0.01
    walltime_s: float = 60.0
    shortest_s: float = 0.3
    patience_s: float = 20.0
    __test__ = False  # for pytest

    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        if self.whole == Resources():
            largest = self.backend.capabilities().largest
            assert largest, "the backend does not say how large its largest job is: give the site `whole`"
            self.whole = Resources(cores=largest.cores)
        assert self.whole.cores >= 2, "the suite needs a machine of two cores at least"

    @property
    def half(self) -> Resources:
        """A job of which two fit at a time."""
        return Resources(cores=self.whole.cores // 2)

    def request(self, *argv: str, run_s: float = 0.0, exit_code: int = 0, **fields: Any) -> JobRequest:
        """A job of one core that runs `argv`, or else a short program; `fields` are those of `JobRequest`."""
        default = JobRequest(
            token=f"suite-{secrets.token_hex(4)}-{next(self._numbers)}",
            resources=Resources(),
            walltime_s=self.walltime_s,
            argv=argv or program(run_s or self.run_s, exit_code),
            workdir=str(self.directory),
        )
        return replace(default, **fields)

    def submit(self, request: JobRequest) -> JobHandle:
        """Submit one job, which must be taken."""
        (outcome,) = self.backend.submit([request])
        assert isinstance(outcome, JobHandle), f"refused: {outcome}"
        return outcome

    def submit_array(self, *requests: JobRequest) -> list[JobHandle]:
        """Submit jobs as the elements of one array, all of which must be taken."""
        name = f"suite-array-{secrets.token_hex(4)}"
        outcomes = self.backend.submit([replace(request, array=name) for request in requests])
        handles = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
        assert len(handles) == len(requests), f"refused: {outcomes}"
        return handles

    def status(self, handle: JobHandle) -> JobStatus:
        (status,) = self.backend.query([handle])
        assert status.handle == handle, "a status must be that of the job asked for"
        return status

    def until(self, condition: Callable[[], Any], patience_s: float | None = None) -> None:
        """Wait until a condition holds, asking as often as the backend stands."""
        deadline = self.clock.now() + (self.patience_s if patience_s is None else patience_s)
        while not condition():
            assert self.clock.now() < deadline, f"{condition} does not become true"
            self.sleep(self.backend.capabilities().poll_s)

    def reach(self, handle: JobHandle, *states: JobState, patience_s: float | None = None) -> JobStatus:
        """Wait until a job is in one of these states; fail at once if it ends in another."""

        def there() -> bool:
            status = self.status(handle)
            assert status.state in states or not status.state.final, f"expected {states}, not {status}"
            return status.state in states

        self.until(there, patience_s)
        return self.status(handle)

    def sleep(self, seconds: float) -> None:
        self.clock.wait(threading.Event(), self.clock.now() + seconds)

    def later(self, first: float | None, second: float | None) -> bool:
        """Whether `second` is not before `first` [s], as exactly as the batch system says."""
        assert first is not None, "a time is missing"
        assert second is not None, "a time is missing"
        return second >= first - self.resolution_s


class Pulse:
    """Signs of life of a process, wherever it runs: a file that grows."""

    def __init__(self, site: TestedSite) -> None:
        self._site = site
        self.every_s = site.run_s / 10
        self.file = site.directory / f"pulse-{secrets.token_hex(4)}"

    def stopped(self) -> bool:
        """Whether the file has ceased to grow."""
        size = self.file.stat().st_size
        self._site.sleep(self._site.run_s)
        return self.file.stat().st_size == size


def unknown(site: TestedSite) -> JobHandle:
    """The handle of a job that never was."""
    return JobHandle("99999999", "nobody", site.clock.now())


class BatchSemantics:
    """What any batch system does with jobs."""

    def test_a_job_that_exits_with_0_is_completed(self, site: TestedSite) -> None:
        handle = site.submit(site.request())
        status = site.reach(handle, JobState.COMPLETED)
        assert status.exit_code == 0
        assert status.nodes
        assert site.later(handle.submitted, status.eligible)
        assert site.later(status.eligible, status.started)
        assert status.ended is not None
        assert status.started is not None
        assert status.ended - status.started >= site.run_s - site.resolution_s

    def test_a_job_that_exits_with_another_code_is_failed(self, site: TestedSite) -> None:
        status = site.reach(site.submit(site.request(exit_code=3)), JobState.FAILED)
        assert status.exit_code == 3

    def test_a_running_job_has_a_start_and_nodes_but_no_end(self, site: TestedSite) -> None:
        handle = site.submit(site.request(run_s=site.walltime_s / 2))
        status = site.reach(handle, JobState.RUNNING)
        assert status.started is not None
        assert status.nodes
        assert (status.ended, status.exit_code) == (None, None)
        site.backend.cancel([handle])

    def test_a_job_waits_for_room(self, site: TestedSite) -> None:
        first = site.submit(site.request(resources=site.whole, run_s=3 * site.run_s))
        second = site.submit(site.request(resources=site.whole))
        site.reach(first, JobState.RUNNING)
        status = site.status(second)
        assert status.state is JobState.PENDING
        assert status.started is None
        site.until(lambda: site.status(second).reason)  # once the batch system has looked at it
        started = site.reach(second, JobState.COMPLETED).started
        assert site.later(site.status(first).ended, started)

    def test_jobs_never_hold_more_than_there_is(self, site: TestedSite) -> None:
        handles = [site.submit(site.request(resources=site.half)) for _ in range(5)]
        ended = [site.reach(handle, JobState.COMPLETED) for handle in handles]
        for status in ended:
            assert status.started is not None
            at = status.started + 2 * site.resolution_s
            together = [job for job in ended if job.started and job.ended and job.started <= at < job.ended]
            assert len(together) <= 2, "three halves do not fit"

    def test_afterok_waits_for_success(self, site: TestedSite) -> None:
        first = site.submit(site.request())
        second = site.submit(site.request(dependencies=(Dependency(first, DependencyKind.AFTER_OK),)))
        assert site.status(second).state is JobState.PENDING
        status = site.reach(second, JobState.COMPLETED)
        assert site.later(site.status(first).ended, status.started)

    def test_afterok_of_a_job_that_fails_is_cancelled(self, site: TestedSite) -> None:
        first = site.submit(site.request(exit_code=1, begin=site.clock.now() + 2 * site.run_s))
        second = site.submit(site.request(dependencies=(Dependency(first, DependencyKind.AFTER_OK),)))
        third = site.submit(site.request(dependencies=(Dependency(second, DependencyKind.AFTER_OK),)))
        assert site.reach(second, JobState.CANCELLED).started is None
        assert site.reach(third, JobState.CANCELLED).started is None

    def test_afterok_of_a_job_that_has_failed_is_refused_or_cancelled(self, site: TestedSite) -> None:
        first = site.submit(site.request(exit_code=1))
        site.reach(first, JobState.FAILED)
        request = site.request(dependencies=(Dependency(first, DependencyKind.AFTER_OK),))
        (outcome,) = site.backend.submit([request])
        if isinstance(outcome, JobHandle):
            assert site.reach(outcome, JobState.CANCELLED).started is None
        else:
            assert (outcome.token, bool(outcome.reason)) == (request.token, True)

    def test_afterany_waits_for_the_end(self, site: TestedSite) -> None:
        first = site.submit(site.request(exit_code=1))
        second = site.submit(site.request(dependencies=(Dependency(first, DependencyKind.AFTER_ANY),)))
        status = site.reach(second, JobState.COMPLETED)
        assert site.later(site.status(first).ended, status.started)

    def test_after_waits_for_the_start(self, site: TestedSite) -> None:
        begin = site.clock.now() + 2 * site.run_s
        first = site.submit(site.request(begin=begin, run_s=site.walltime_s / 2))
        second = site.submit(site.request(dependencies=(Dependency(first, DependencyKind.AFTER),)))
        status = site.reach(second, JobState.COMPLETED)
        assert site.later(site.status(first).started, status.started)
        assert site.status(first).state is JobState.RUNNING
        site.backend.cancel([first])

    def test_a_job_does_not_start_before_its_begin_time(self, site: TestedSite) -> None:
        begin = site.clock.now() + 2 * site.run_s
        handle = site.submit(site.request(begin=begin))
        assert site.status(handle).state is JobState.PENDING
        assert site.later(begin, site.reach(handle, JobState.COMPLETED).started)

    def test_cancelling_a_job_that_waits(self, site: TestedSite) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        site.backend.cancel([handle])
        assert site.reach(handle, JobState.CANCELLED).started is None

    def test_cancelling_a_job_that_runs_makes_room(self, site: TestedSite) -> None:
        first = site.submit(site.request(resources=site.whole, run_s=site.walltime_s / 2))
        second = site.submit(site.request(resources=site.whole))
        site.reach(first, JobState.RUNNING)
        site.backend.cancel([first])
        ended = site.reach(first, JobState.CANCELLED).ended
        assert site.later(ended, site.reach(second, JobState.COMPLETED).started)

    def test_cancelling_what_has_ended_or_never_was_is_passed_over(self, site: TestedSite) -> None:
        ended = site.submit(site.request())
        site.reach(ended, JobState.COMPLETED)
        other = site.submit(site.request(begin=site.clock.now() + 3600))
        site.backend.cancel([ended, unknown(site), other])
        assert site.status(ended).state is JobState.COMPLETED
        site.reach(other, JobState.CANCELLED)

    def test_a_job_that_reaches_its_wall_time_is_ended(self, site: TestedSite) -> None:
        handle = site.submit(site.request(run_s=100 * site.shortest_s, walltime_s=site.shortest_s))
        status = site.reach(handle, JobState.TIMEOUT, patience_s=site.shortest_s + site.patience_s)
        assert status.started is not None
        assert site.later(status.started + site.shortest_s, status.ended)

    def test_what_can_never_run_is_refused_and_the_rest_taken(self, site: TestedSite) -> None:
        too_large = site.request(resources=Resources(cores=1000 * site.whole.cores))
        first, second, third = site.backend.submit([site.request(), too_large, site.request()])
        assert isinstance(second, Refused), "a job larger than the machine must be refused"
        assert second.token == too_large.token
        assert second.reason
        for outcome in (first, third):
            assert isinstance(outcome, JobHandle)
            site.reach(outcome, JobState.COMPLETED)

    def test_submitting_nothing_and_asking_for_nothing(self, site: TestedSite) -> None:
        assert site.backend.submit([]) == []
        assert site.backend.query([]) == []
        assert site.backend.find([]) == {}
        site.backend.cancel([])

    def test_handles_are_in_the_order_of_the_requests(self, site: TestedSite) -> None:
        requests = [site.request() for _ in range(3)]
        outcomes = site.backend.submit(requests)
        handles = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
        assert [handle.token for handle in handles] == [request.token for request in requests]
        assert len({handle.job_id for handle in handles}) == 3

    def test_statuses_are_in_the_order_of_the_handles(self, site: TestedSite) -> None:
        first, second = site.submit(site.request()), site.submit(site.request())
        asked = [second, unknown(site), first, second]
        assert [status.handle for status in site.backend.query(asked)] == asked

    def test_a_job_is_found_by_its_token(self, site: TestedSite) -> None:
        waiting, ended = site.submit(site.request(begin=site.clock.now() + 3600)), site.submit(site.request())
        site.reach(ended, JobState.COMPLETED)
        found = site.backend.find([ended.token, "nobody", waiting.token])
        assert {token: handle.job_id for token, handle in found.items()} == {
            waiting.token: waiting.job_id,
            ended.token: ended.job_id,
        }
        site.backend.cancel([found[waiting.token]])
        site.reach(waiting, JobState.CANCELLED)

    def test_a_job_that_never_was_is_lost(self, site: TestedSite) -> None:
        assert site.status(unknown(site)).state is JobState.LOST

    def test_an_id_that_belongs_to_another_job_is_lost(self, site: TestedSite) -> None:
        handle = site.submit(site.request())
        assert site.status(replace(handle, token="somebody-else")).state is JobState.LOST

    def test_a_begin_time_can_be_moved(self, site: TestedSite) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        site.backend.update(handle, JobChanges(begin=site.clock.now()))
        site.reach(handle, JobState.COMPLETED)

    def test_a_dependency_can_be_added_and_taken_away(self, site: TestedSite) -> None:
        begin = site.clock.now() + 3600
        first = site.submit(site.request(begin=begin))
        second = site.submit(site.request(begin=begin))
        site.backend.update(
            second, JobChanges(dependencies=(Dependency(first, DependencyKind.AFTER_OK),), begin=site.clock.now())
        )
        site.sleep(site.run_s)
        assert site.status(second).state is JobState.PENDING
        site.backend.update(second, JobChanges(dependencies=()))
        site.reach(second, JobState.COMPLETED)
        site.backend.cancel([first])

    def test_a_job_can_be_made_smaller(self, site: TestedSite) -> None:
        first = site.submit(site.request(resources=site.half, run_s=site.walltime_s / 2))
        second = site.submit(site.request(resources=site.whole))
        site.reach(first, JobState.RUNNING)
        assert site.status(second).state is JobState.PENDING
        site.backend.update(second, JobChanges(resources=site.half))
        site.reach(second, JobState.COMPLETED)
        assert site.status(first).state is JobState.RUNNING
        site.backend.cancel([first])

    def test_a_job_that_has_ended_cannot_be_changed(self, site: TestedSite) -> None:
        handle = site.submit(site.request())
        site.reach(handle, JobState.COMPLETED)
        with pytest.raises(BackendError) as caught:
            site.backend.update(handle, JobChanges(begin=site.clock.now()))
        assert not caught.value.transient

    def test_capabilities_allow_what_was_just_run(self, site: TestedSite) -> None:
        capabilities = site.backend.capabilities()
        assert capabilities.site
        assert capabilities.poll_s > 0
        assert capabilities.largest is None or site.whole.fits(capabilities.largest)
        assert capabilities.dependencies

    # -- arrays, parking, a look at the queue

    def test_elements_of_an_array_run_one_after_another(self, site: TestedSite) -> None:
        _need_arrays(site)
        requests = [site.request() for _ in range(3)]
        handles = site.submit_array(*requests)
        assert [handle.token for handle in handles] == [request.token for request in requests]
        assert len({_identity(handle) for handle in handles}) == 3
        ended = [site.reach(handle, JobState.COMPLETED) for handle in handles]
        # Slurm now and then starts the second one first.
        for before, after in itertools.pairwise(sorted(ended, key=lambda status: status.started or 0.0)):
            assert site.later(before.ended, after.started), "two elements ran at a time"

    def test_a_wider_throttle_lets_the_next_element_go(self, site: TestedSite) -> None:
        _need_arrays(site)
        handles = site.submit_array(*[site.request(run_s=site.walltime_s / 2) for _ in range(3)])
        first, second, third = _running_first(site, *handles)
        site.until(lambda: site.status(second).reason)  # once the batch system has looked at it
        assert [status.state for status in site.backend.query([first, second, third])] == [
            JobState.RUNNING, JobState.PENDING, JobState.PENDING,
        ]  # fmt: skip
        site.backend.update(first, JobChanges(throttle=2))
        second, third = _running_first(site, second, third)
        assert site.status(first).state is JobState.RUNNING
        assert site.status(third).state is JobState.PENDING
        site.backend.cancel([first, second, third])

    def test_a_narrower_throttle_holds_the_next_element_back(self, site: TestedSite) -> None:
        _need_arrays(site)
        long = [site.request(run_s=site.walltime_s / 2) for _ in range(2)]
        *long_ones, third = site.submit_array(*long, site.request())
        first, second = _running_first(site, *long_ones)
        site.backend.update(second, JobChanges(throttle=2))
        site.reach(second, JobState.RUNNING)
        site.backend.update(third, JobChanges(throttle=1))
        site.backend.cancel([first])
        site.reach(first, JobState.CANCELLED)
        site.sleep(2 * site.run_s)
        assert site.status(third).state is JobState.PENDING, "one element runs already"
        site.backend.cancel([second])
        site.reach(third, JobState.COMPLETED)

    def test_an_element_that_has_ended_names_its_array(self, site: TestedSite) -> None:
        _need_arrays(site)
        handles = site.submit_array(*[site.request(run_s=site.walltime_s / 2) for _ in range(3)])
        first, *others = _running_first(site, *handles)
        site.backend.cancel([first])
        site.reach(first, JobState.CANCELLED)
        second, third = _running_first(site, *others)
        site.backend.update(first, JobChanges(throttle=2))
        site.reach(third, JobState.RUNNING)
        assert site.status(second).state is JobState.RUNNING
        site.backend.cancel([second, third])

    def test_cancelling_an_element_lets_the_others_go_on(self, site: TestedSite) -> None:
        _need_arrays(site)
        first, second, third = site.submit_array(
            site.request(run_s=site.walltime_s / 2), site.request(), site.request()
        )
        site.backend.cancel([second])
        assert site.reach(second, JobState.CANCELLED).started is None
        began, last = site.reach(first, JobState.RUNNING).started, site.status(third)
        waits = last.state is JobState.PENDING or site.later(last.ended, began)  # Slurm may change their order
        assert waits, "the first element runs"
        site.backend.cancel([first])
        site.reach(third, JobState.COMPLETED)  # perhaps long ago: then nothing says that the first one has ended by now
        site.reach(first, JobState.CANCELLED)

    def test_an_element_that_fails_does_not_stop_the_next(self, site: TestedSite) -> None:
        _need_arrays(site)
        handles = site.submit_array(site.request(exit_code=1), site.request(exit_code=1))
        ended = [site.reach(handle, JobState.FAILED) for handle in handles]
        before, after = sorted(ended, key=lambda status: status.started or 0.0)
        assert site.later(before.ended, after.started)

    def test_elements_differ_in_size_and_wall_time(self, site: TestedSite) -> None:
        _need_arrays(site)
        small = site.request()
        whole = site.request(resources=site.whole, walltime_s=2 * site.walltime_s, run_s=site.walltime_s / 2)
        first, second, third = site.submit_array(small, whole, site.request(resources=site.half))
        site.reach(first, JobState.COMPLETED)
        started = site.reach(second, JobState.RUNNING).started
        other = site.submit(site.request())
        site.sleep(2 * site.run_s)
        assert site.status(other).state is JobState.PENDING, "the second element fills the machine"
        if (view := site.backend.look()) is not None and started is not None:
            (ends,) = (job.ends for job in view.running)
            assert ends - started > 1.5 * site.walltime_s
        site.backend.cancel([second])
        site.reach(other, JobState.COMPLETED)
        site.reach(third, JobState.COMPLETED)

    def test_elements_are_found_by_their_tokens(self, site: TestedSite) -> None:
        _need_arrays(site)
        handles = site.submit_array(*[site.request(run_s=site.walltime_s / 2) for _ in range(3)])
        found = site.backend.find(["nobody", *(handle.token for handle in handles)])
        assert {token: _identity(handle) for token, handle in found.items()} == {
            handle.token: _identity(handle) for handle in handles
        }
        site.backend.cancel(list(found.values()))
        for handle in handles:
            site.reach(handle, JobState.CANCELLED)

    def test_a_throttled_element_ages_from_its_begin_time(self, site: TestedSite) -> None:
        _need_arrays(site)
        begin = site.clock.now() + max(site.run_s, 4 * site.resolution_s)
        requests = [site.request(begin=begin), site.request(begin=begin, run_s=site.walltime_s / 2), site.request()]
        first, second, third = site.submit_array(*requests[:2], replace(requests[2], begin=begin))
        site.reach(second, JobState.RUNNING)
        assert site.later(begin, site.status(first).started)
        _need_ages(site, third)
        since = site.status(third).ages_since
        assert site.later(since, begin), "it ages from the moment on from which it could have run alone"
        site.backend.cancel([second, third])

    def test_a_throttle_needs_an_array(self, site: TestedSite) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        _cannot(site, handle, JobChanges(throttle=2))
        site.backend.cancel([handle])

    def test_a_throttle_needs_an_element_that_has_not_ended(self, site: TestedSite) -> None:
        _need_arrays(site)
        first, second = site.submit_array(site.request(), site.request())
        for handle in (first, second):
            site.reach(handle, JobState.COMPLETED)
        _cannot(site, first, JobChanges(throttle=2))

    def test_a_throttle_of_nothing_is_an_error(self, site: TestedSite) -> None:
        _need_arrays(site)
        first, second = site.submit_array(site.request(run_s=site.walltime_s / 2), site.request())
        _cannot(site, first, JobChanges(throttle=0))
        site.backend.cancel([first, second])

    def test_a_parked_job_starts_once_it_is_let_go(self, site: TestedSite) -> None:
        _need_parking(site)
        first = site.submit(site.request(resources=site.whole, run_s=site.walltime_s / 2))
        second = site.submit(site.request())
        site.reach(first, JobState.RUNNING)
        site.backend.update(second, JobChanges(parked=True))
        site.backend.cancel([first])
        site.reach(first, JobState.CANCELLED)
        site.sleep(2 * site.run_s)
        assert site.status(second).state is JobState.PENDING, "a parked job started on a free machine"
        site.until(lambda: bool(site.status(second).reason))  # Slurm has one once its scheduler has looked at the job
        assert site.status(second).state is JobState.PENDING, "a parked job started on a free machine"
        site.backend.update(second, JobChanges(parked=False))
        site.reach(second, JobState.COMPLETED)

    def test_a_parked_job_goes_on_ageing(self, site: TestedSite) -> None:
        _need_parking(site)
        first = site.submit(site.request(resources=site.whole, run_s=site.walltime_s / 2))
        second = site.submit(site.request())
        site.reach(first, JobState.RUNNING)
        _need_ages(site, second)
        since = site.status(second).ages_since
        site.backend.update(second, JobChanges(parked=True))
        site.sleep(2 * site.run_s)
        assert site.status(second).ages_since == since
        site.backend.cancel([first, second])

    def test_what_cannot_be_parked_is_an_error(self, site: TestedSite) -> None:
        if site.backend.capabilities().parks:
            pytest.skip("this backend parks jobs")
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        _cannot(site, handle, JobChanges(parked=True))
        site.backend.cancel([handle])

    def test_a_look_shows_what_runs_and_what_waits(self, site: TestedSite) -> None:
        if site.backend.look() is None:
            pytest.skip("this backend does not show its queue")
        running = site.submit(site.request(resources=site.whole, run_s=site.walltime_s / 2))
        waiting = site.submit(site.request(resources=site.half))
        site.reach(running, JobState.RUNNING)

        def seen() -> bool:
            view = site.backend.look()
            return view is not None and bool(view.queue) and bool(view.running)

        site.until(seen)
        view = site.backend.look()
        assert view is not None
        assert view.capacity.cores >= site.whole.cores
        assert site.later(view.now, site.clock.now())
        assert [job.resources.cores for job in view.running] == [site.whole.cores]
        assert [(job.resources.cores, job.walltime_s) for job in view.queue] == [(site.half.cores, site.walltime_s)]
        assert view.running[0].ends > view.now
        assert site.later(waiting.submitted, view.queue[0].submitted)
        site.backend.cancel([running, waiting])


def _running_first(site: TestedSite, *elements: JobHandle) -> list[JobHandle]:
    """Wait until one of these runs; that one, then the others. (Slurm now and then starts the second one first.)"""
    running: list[JobHandle] = []

    def one_runs() -> bool:
        running[:] = [each for each in elements if site.status(each).state is JobState.RUNNING]
        return bool(running)

    site.until(one_runs)
    return [*running, *(each for each in elements if each not in running)]


def _need_arrays(site: TestedSite) -> None:
    if not site.backend.capabilities().arrays:
        pytest.skip("this backend has no job arrays")


def _need_parking(site: TestedSite) -> None:
    if not site.backend.capabilities().parks:
        pytest.skip("this backend does not park jobs")


def _need_ages(site: TestedSite, handle: JobHandle) -> None:
    """Wait until the backend says since when a job ages; skip the check where it never does."""
    deadline = site.clock.now() + 5 * site.run_s
    while site.status(handle).ages_since is None:
        if site.clock.now() > deadline:
            pytest.skip("this backend does not say since when a job ages")
        site.sleep(site.backend.capabilities().poll_s)


def _cannot(site: TestedSite, handle: JobHandle, changes: JobChanges) -> None:
    with pytest.raises(BackendError) as caught:
        site.backend.update(handle, changes)
    assert not caught.value.transient


def _identity(handle: JobHandle) -> tuple[str, int | None]:
    return handle.job_id, handle.array_index


class RealPrograms:
    """What a batch system does with the programs of its jobs."""

    def test_output_and_error_go_to_the_file(self, site: TestedSite) -> None:
        assert self._output(site, "sh", "-c", "echo out; echo err >&2") == "out\nerr\n"

    def test_arguments_arrive_as_they_are(self, site: TestedSite) -> None:
        arguments = ("two words", "", "'\"`$HOME`", "*", "a\\nb", "-n", "two\nlines", "grün")
        printed = self._output(site, "printf", "%s\\037", *arguments)
        assert printed.split("\037") == [*arguments, ""]

    def test_it_starts_in_the_working_directory(self, site: TestedSite) -> None:
        assert self._output(site, "pwd", "-P").strip() == str(site.directory.resolve())

    def test_it_has_nothing_to_read(self, site: TestedSite) -> None:
        assert self._output(site, "cat") == ""

    def test_it_has_a_search_path(self, site: TestedSite) -> None:
        assert self._output(site, "printenv", "PATH").strip()

    def test_a_program_that_is_not_there(self, site: TestedSite) -> None:
        status = site.reach(site.submit(site.request("no-such-program-anywhere")), JobState.FAILED)
        assert status.exit_code not in (None, 0)

    def test_output_may_be_discarded(self, site: TestedSite) -> None:
        before = set(site.directory.iterdir())
        site.reach(site.submit(site.request("echo", "nobody reads this")), JobState.COMPLETED)
        assert set(site.directory.iterdir()) == before

    def test_a_cancelled_job_leaves_no_process(self, site: TestedSite) -> None:
        handle, pulse = self._family(site, site.walltime_s)
        site.backend.cancel([handle])
        site.reach(handle, JobState.CANCELLED)
        assert pulse.stopped(), "a process of the job outlived it"

    def test_a_program_that_ignores_being_asked_is_killed(self, site: TestedSite) -> None:
        handle, pulse = self._family(site, site.walltime_s, before="trap '' TERM; ")
        site.backend.cancel([handle])
        site.reach(handle, JobState.CANCELLED)
        assert pulse.stopped(), "a process of the job outlived it"

    def test_a_job_out_of_wall_time_leaves_no_process(self, site: TestedSite) -> None:
        handle, pulse = self._family(site, site.shortest_s)
        site.reach(handle, JobState.TIMEOUT, patience_s=site.shortest_s + site.patience_s)
        assert pulse.stopped(), "a process of the job outlived it"

    def test_what_a_program_leaves_behind_is_ended(self, site: TestedSite) -> None:
        handle, pulse = self._family(site, site.walltime_s, after="exit 0")
        site.reach(handle, JobState.COMPLETED)
        assert pulse.stopped(), "a process of the job outlived it"

    def _output(self, site: TestedSite, *argv: str) -> str:
        path = site.directory / "output"
        site.reach(site.submit(site.request(*argv, output=str(path))), JobState.COMPLETED)
        return path.read_text()

    def _family(
        self, site: TestedSite, walltime_s: float, before: str = "", after: str = "wait"
    ) -> tuple[JobHandle, Pulse]:
        """A job that runs a program with a child; the child gives signs of life."""
        pulse = Pulse(site)
        child = f"(while :; do echo >>'{pulse.file}'; sleep {pulse.every_s}; done) & "
        alive = f"while ! [ -s '{pulse.file}' ]; do sleep {pulse.every_s}; done; "
        handle = site.submit(site.request("sh", "-c", before + child + alive + after, walltime_s=walltime_s))
        site.until(lambda: pulse.file.exists())
        return handle, pulse
