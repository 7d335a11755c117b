"""Conformance of backends, continued: job arrays and their throttles, parked jobs, and a look at the queue.

`asa.testing.backends.BatchSemantics` contains these checks. One that needs what a backend says it lacks is skipped.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from asa.core.errors import BackendError
from asa.core.job import JobChanges, JobHandle, JobState
from asa.testing.backend_site import Site

__all__ = ["KeptPlaces"]


class KeptPlaces:
    """What a batch system does with jobs that are held back and keep their places."""

    def test_elements_of_an_array_run_one_after_another(self, site: Site) -> None:
        _need_arrays(site)
        requests = [site.request() for _ in range(3)]
        handles = site.submit_array(*requests)
        assert [handle.token for handle in handles] == [request.token for request in requests]
        assert len({_identity(handle) for handle in handles}) == 3
        ended = [site.reach(handle, JobState.COMPLETED) for handle in handles]
        # Slurm now and then starts the second one first.
        for before, after in itertools.pairwise(sorted(ended, key=lambda status: status.started or 0.0)):
            assert site.later(before.ended, after.started), "two elements ran at a time"

    def test_a_wider_throttle_lets_the_next_element_go(self, site: Site) -> None:
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

    def test_a_narrower_throttle_holds_the_next_element_back(self, site: Site) -> None:
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

    def test_an_element_that_has_ended_names_its_array(self, site: Site) -> None:
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

    def test_cancelling_an_element_lets_the_others_go_on(self, site: Site) -> None:
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

    def test_an_element_that_fails_does_not_stop_the_next(self, site: Site) -> None:
        _need_arrays(site)
        handles = site.submit_array(site.request(exit_code=1), site.request(exit_code=1))
        ended = [site.reach(handle, JobState.FAILED) for handle in handles]
        before, after = sorted(ended, key=lambda status: status.started or 0.0)
        assert site.later(before.ended, after.started)

    def test_elements_differ_in_size_and_wall_time(self, site: Site) -> None:
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

    def test_elements_are_found_by_their_tokens(self, site: Site) -> None:
        _need_arrays(site)
        handles = site.submit_array(*[site.request(run_s=site.walltime_s / 2) for _ in range(3)])
        found = site.backend.find(["nobody", *(handle.token for handle in handles)])
        assert {token: _identity(handle) for token, handle in found.items()} == {
            handle.token: _identity(handle) for handle in handles
        }
        site.backend.cancel(list(found.values()))
        for handle in handles:
            site.reach(handle, JobState.CANCELLED)

    def test_a_throttled_element_ages_from_its_begin_time(self, site: Site) -> None:
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

    def test_a_throttle_needs_an_array(self, site: Site) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        _cannot(site, handle, JobChanges(throttle=2))
        site.backend.cancel([handle])

    def test_a_throttle_needs_an_element_that_has_not_ended(self, site: Site) -> None:
        _need_arrays(site)
        first, second = site.submit_array(site.request(), site.request())
        for handle in (first, second):
            site.reach(handle, JobState.COMPLETED)
        _cannot(site, first, JobChanges(throttle=2))

    def test_a_throttle_of_nothing_is_an_error(self, site: Site) -> None:
        _need_arrays(site)
        first, second = site.submit_array(site.request(run_s=site.walltime_s / 2), site.request())
        _cannot(site, first, JobChanges(throttle=0))
        site.backend.cancel([first, second])

    def test_a_parked_job_starts_once_it_is_let_go(self, site: Site) -> None:
        _need_parking(site)
        first = site.submit(site.request(resources=site.whole, run_s=site.walltime_s / 2))
        second = site.submit(site.request())
        site.reach(first, JobState.RUNNING)
        site.backend.update(second, JobChanges(parked=True))
        site.backend.cancel([first])
        site.reach(first, JobState.CANCELLED)
        site.sleep(2 * site.run_s)
        status = site.status(second)
        assert status.state is JobState.PENDING, "a parked job started on a free machine"
        assert status.reason
        site.backend.update(second, JobChanges(parked=False))
        site.reach(second, JobState.COMPLETED)

    def test_a_parked_job_goes_on_ageing(self, site: Site) -> None:
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

    def test_what_cannot_be_parked_is_an_error(self, site: Site) -> None:
        if site.backend.capabilities().parks:
            pytest.skip("this backend parks jobs")
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        _cannot(site, handle, JobChanges(parked=True))
        site.backend.cancel([handle])

    def test_a_look_shows_what_runs_and_what_waits(self, site: Site) -> None:
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


def _running_first(site: Site, *elements: JobHandle) -> list[JobHandle]:
    """Wait until one of these runs; that one, then the others. (Slurm now and then starts the second one first.)"""
    running: list[JobHandle] = []

    def one_runs() -> bool:
        running[:] = [each for each in elements if site.status(each).state is JobState.RUNNING]
        return bool(running)

    site.until(one_runs)
    return [*running, *(each for each in elements if each not in running)]


def _need_arrays(site: Site) -> None:
    if not site.backend.capabilities().arrays:
        pytest.skip("this backend has no job arrays")


def _need_parking(site: Site) -> None:
    if not site.backend.capabilities().parks:
        pytest.skip("this backend does not park jobs")


def _need_ages(site: Site, handle: JobHandle) -> None:
    """Wait until it is told since when a job ages; skip the check where that is not told."""
    deadline = site.clock.now() + 5 * site.run_s
    while site.status(handle).ages_since is None:
        if site.clock.now() > deadline:
            pytest.skip("this backend does not tell since when a job ages")
        site.sleep(site.backend.capabilities().poll_s)


def _cannot(site: Site, handle: JobHandle, changes: JobChanges) -> None:
    with pytest.raises(BackendError) as caught:
        site.backend.update(handle, changes)
    assert not caught.value.transient


def _identity(handle: JobHandle) -> tuple[str, int | None]:
    return handle.job_id, handle.array_index
