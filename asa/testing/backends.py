"""Conformance suite of backends, in two halves: what a batch system does with jobs, and with real programs.

Subclass a half in a test module and give it the fixture ``site``::

    class TestMine(BatchSemantics, RealPrograms):
        @pytest.fixture
        def site(self, tmp_path):
            backend = Mine()
            yield Site(backend, SystemClock(), tmp_path)
            backend.close()

The first half waits only through the clock, so a batch system in virtual time can pass it; its programs are those of
`program`, whose meaning `run_of` tells. It needs at least two cores, and nobody else on the machine. Checks of what a
backend says it lacks (job arrays, parking) are skipped.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from asa.core.errors import BackendError
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobState, Refused, Resources
from asa.testing.backend_places import KeptPlaces
from asa.testing.backend_site import Pulse, Site, program, run_of, unknown

__all__ = ["BatchSemantics", "RealPrograms", "Site", "program", "run_of"]


class BatchSemantics(KeptPlaces):
    """What any batch system does with jobs."""

    def test_a_job_that_exits_with_0_is_completed(self, site: Site) -> None:
        handle = site.submit(site.request())
        status = site.reach(handle, JobState.COMPLETED)
        assert status.exit_code == 0
        assert status.nodes
        assert site.later(handle.submitted, status.eligible)
        assert site.later(status.eligible, status.started)
        assert status.ended is not None
        assert status.started is not None
        assert status.ended - status.started >= site.run_s - site.resolution_s

    def test_a_job_that_exits_with_another_code_is_failed(self, site: Site) -> None:
        status = site.reach(site.submit(site.request(exit_code=3)), JobState.FAILED)
        assert status.exit_code == 3

    def test_a_running_job_has_a_start_and_nodes_but_no_end(self, site: Site) -> None:
        handle = site.submit(site.request(run_s=site.walltime_s / 2))
        status = site.reach(handle, JobState.RUNNING)
        assert status.started is not None
        assert status.nodes
        assert (status.ended, status.exit_code) == (None, None)
        site.backend.cancel([handle])

    def test_a_job_waits_for_room(self, site: Site) -> None:
        first = site.submit(site.request(resources=site.whole, run_s=3 * site.run_s))
        second = site.submit(site.request(resources=site.whole))
        site.reach(first, JobState.RUNNING)
        status = site.status(second)
        assert status.state is JobState.PENDING
        assert status.started is None
        site.until(lambda: site.status(second).reason)  # once the batch system has looked at it
        started = site.reach(second, JobState.COMPLETED).started
        assert site.later(site.status(first).ended, started)

    def test_jobs_never_hold_more_than_there_is(self, site: Site) -> None:
        handles = [site.submit(site.request(resources=site.half)) for _ in range(5)]
        ended = [site.reach(handle, JobState.COMPLETED) for handle in handles]
        for status in ended:
            assert status.started is not None
            at = status.started + 2 * site.resolution_s
            together = [job for job in ended if job.started and job.ended and job.started <= at < job.ended]
            assert len(together) <= 2, "three halves do not fit"

    def test_afterok_waits_for_success(self, site: Site) -> None:
        first = site.submit(site.request())
        second = site.submit(site.request(dependencies=(Dependency(first, DependencyKind.AFTER_OK),)))
        assert site.status(second).state is JobState.PENDING
        status = site.reach(second, JobState.COMPLETED)
        assert site.later(site.status(first).ended, status.started)

    def test_afterok_of_a_job_that_failed_is_cancelled(self, site: Site) -> None:
        first = site.submit(site.request(exit_code=1))
        second = site.submit(site.request(dependencies=(Dependency(first, DependencyKind.AFTER_OK),)))
        third = site.submit(site.request(dependencies=(Dependency(second, DependencyKind.AFTER_OK),)))
        assert site.reach(second, JobState.CANCELLED).started is None
        assert site.reach(third, JobState.CANCELLED).started is None

    def test_afterany_waits_for_the_end(self, site: Site) -> None:
        first = site.submit(site.request(exit_code=1))
        second = site.submit(site.request(dependencies=(Dependency(first, DependencyKind.AFTER_ANY),)))
        status = site.reach(second, JobState.COMPLETED)
        assert site.later(site.status(first).ended, status.started)

    def test_after_waits_for_the_start(self, site: Site) -> None:
        begin = site.clock.now() + 2 * site.run_s
        first = site.submit(site.request(begin=begin, run_s=site.walltime_s / 2))
        second = site.submit(site.request(dependencies=(Dependency(first, DependencyKind.AFTER),)))
        status = site.reach(second, JobState.COMPLETED)
        assert site.later(site.status(first).started, status.started)
        assert site.status(first).state is JobState.RUNNING
        site.backend.cancel([first])

    def test_a_job_does_not_start_before_its_begin_time(self, site: Site) -> None:
        begin = site.clock.now() + 2 * site.run_s
        handle = site.submit(site.request(begin=begin))
        assert site.status(handle).state is JobState.PENDING
        assert site.later(begin, site.reach(handle, JobState.COMPLETED).started)

    def test_cancelling_a_job_that_waits(self, site: Site) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        site.backend.cancel([handle])
        assert site.reach(handle, JobState.CANCELLED).started is None

    def test_cancelling_a_job_that_runs_makes_room(self, site: Site) -> None:
        first = site.submit(site.request(resources=site.whole, run_s=site.walltime_s / 2))
        second = site.submit(site.request(resources=site.whole))
        site.reach(first, JobState.RUNNING)
        site.backend.cancel([first])
        ended = site.reach(first, JobState.CANCELLED).ended
        assert site.later(ended, site.reach(second, JobState.COMPLETED).started)

    def test_cancelling_what_has_ended_or_never_was_is_passed_over(self, site: Site) -> None:
        ended = site.submit(site.request())
        site.reach(ended, JobState.COMPLETED)
        other = site.submit(site.request(begin=site.clock.now() + 3600))
        site.backend.cancel([ended, unknown(site), other])
        assert site.status(ended).state is JobState.COMPLETED
        site.reach(other, JobState.CANCELLED)

    def test_a_job_that_reaches_its_wall_time_is_ended(self, site: Site) -> None:
        handle = site.submit(site.request(run_s=100 * site.shortest_s, walltime_s=site.shortest_s))
        status = site.reach(handle, JobState.TIMEOUT, patience_s=site.shortest_s + site.patience_s)
        assert status.started is not None
        assert site.later(status.started + site.shortest_s, status.ended)

    def test_what_can_never_run_is_refused_and_the_rest_taken(self, site: Site) -> None:
        too_large = site.request(resources=Resources(cores=1000 * site.whole.cores))
        first, second, third = site.backend.submit([site.request(), too_large, site.request()])
        assert isinstance(second, Refused), "a job larger than the machine must be refused"
        assert second.token == too_large.token
        assert second.reason
        for outcome in (first, third):
            assert isinstance(outcome, JobHandle)
            site.reach(outcome, JobState.COMPLETED)

    def test_submitting_nothing_and_asking_for_nothing(self, site: Site) -> None:
        assert site.backend.submit([]) == []
        assert site.backend.query([]) == []
        assert site.backend.find([]) == {}
        site.backend.cancel([])

    def test_handles_are_in_the_order_of_the_requests(self, site: Site) -> None:
        requests = [site.request() for _ in range(3)]
        outcomes = site.backend.submit(requests)
        handles = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
        assert [handle.token for handle in handles] == [request.token for request in requests]
        assert len({handle.job_id for handle in handles}) == 3

    def test_statuses_are_in_the_order_of_the_handles(self, site: Site) -> None:
        first, second = site.submit(site.request()), site.submit(site.request())
        asked = [second, unknown(site), first, second]
        assert [status.handle for status in site.backend.query(asked)] == asked

    def test_a_job_is_found_by_its_token(self, site: Site) -> None:
        waiting, ended = site.submit(site.request(begin=site.clock.now() + 3600)), site.submit(site.request())
        site.reach(ended, JobState.COMPLETED)
        found = site.backend.find([ended.token, "nobody", waiting.token])
        assert {token: handle.job_id for token, handle in found.items()} == {
            waiting.token: waiting.job_id,
            ended.token: ended.job_id,
        }
        site.backend.cancel([found[waiting.token]])
        site.reach(waiting, JobState.CANCELLED)

    def test_a_job_that_never_was_is_lost(self, site: Site) -> None:
        assert site.status(unknown(site)).state is JobState.LOST

    def test_an_id_that_belongs_to_another_job_is_lost(self, site: Site) -> None:
        handle = site.submit(site.request())
        assert site.status(replace(handle, token="somebody-else")).state is JobState.LOST

    def test_a_begin_time_can_be_moved(self, site: Site) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        site.backend.update(handle, JobChanges(begin=site.clock.now()))
        site.reach(handle, JobState.COMPLETED)

    def test_a_dependency_can_be_added_and_taken_away(self, site: Site) -> None:
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

    def test_a_job_can_be_made_smaller(self, site: Site) -> None:
        first = site.submit(site.request(resources=site.half, run_s=site.walltime_s / 2))
        second = site.submit(site.request(resources=site.whole))
        site.reach(first, JobState.RUNNING)
        assert site.status(second).state is JobState.PENDING
        site.backend.update(second, JobChanges(resources=site.half))
        site.reach(second, JobState.COMPLETED)
        assert site.status(first).state is JobState.RUNNING
        site.backend.cancel([first])

    def test_a_job_that_has_ended_cannot_be_changed(self, site: Site) -> None:
        handle = site.submit(site.request())
        site.reach(handle, JobState.COMPLETED)
        with pytest.raises(BackendError) as caught:
            site.backend.update(handle, JobChanges(begin=site.clock.now()))
        assert not caught.value.transient

    def test_capabilities_allow_what_was_just_run(self, site: Site) -> None:
        capabilities = site.backend.capabilities()
        assert capabilities.site
        assert capabilities.poll_s > 0
        assert capabilities.largest is None or site.whole.fits(capabilities.largest)
        assert capabilities.dependencies


class RealPrograms:
    """What a batch system does with the programs of its jobs."""

    def test_output_and_error_go_to_the_file(self, site: Site) -> None:
        assert self._output(site, "sh", "-c", "echo out; echo err >&2") == "out\nerr\n"

    def test_arguments_arrive_as_they_are(self, site: Site) -> None:
        arguments = ("two words", "", "'\"`$HOME`", "*", "a\\nb", "-n", "two\nlines", "grün")
        printed = self._output(site, "printf", "%s\\037", *arguments)
        assert printed.split("\037") == [*arguments, ""]

    def test_it_starts_in_the_working_directory(self, site: Site) -> None:
        assert self._output(site, "pwd", "-P").strip() == str(site.directory.resolve())

    def test_it_has_nothing_to_read(self, site: Site) -> None:
        assert self._output(site, "cat") == ""

    def test_it_has_a_search_path(self, site: Site) -> None:
        assert self._output(site, "printenv", "PATH").strip()

    def test_a_program_that_is_not_there(self, site: Site) -> None:
        status = site.reach(site.submit(site.request("no-such-program-anywhere")), JobState.FAILED)
        assert status.exit_code not in (None, 0)

    def test_output_may_be_discarded(self, site: Site) -> None:
        before = set(site.directory.iterdir())
        site.reach(site.submit(site.request("echo", "nobody reads this")), JobState.COMPLETED)
        assert set(site.directory.iterdir()) == before

    def test_a_cancelled_job_leaves_no_process(self, site: Site) -> None:
        handle, pulse = self._family(site, site.walltime_s)
        site.backend.cancel([handle])
        site.reach(handle, JobState.CANCELLED)
        assert pulse.stopped(), "a process of the job outlived it"

    def test_a_program_that_ignores_being_asked_is_killed(self, site: Site) -> None:
        handle, pulse = self._family(site, site.walltime_s, before="trap '' TERM; ")
        site.backend.cancel([handle])
        site.reach(handle, JobState.CANCELLED)
        assert pulse.stopped(), "a process of the job outlived it"

    def test_a_job_out_of_wall_time_leaves_no_process(self, site: Site) -> None:
        handle, pulse = self._family(site, site.shortest_s)
        site.reach(handle, JobState.TIMEOUT, patience_s=site.shortest_s + site.patience_s)
        assert pulse.stopped(), "a process of the job outlived it"

    def test_what_a_program_leaves_behind_is_ended(self, site: Site) -> None:
        handle, pulse = self._family(site, site.walltime_s, after="exit 0")
        site.reach(handle, JobState.COMPLETED)
        assert pulse.stopped(), "a process of the job outlived it"

    def _output(self, site: Site, *argv: str) -> str:
        path = site.directory / "output"
        site.reach(site.submit(site.request(*argv, output=str(path))), JobState.COMPLETED)
        return path.read_text()

    def _family(self, site: Site, walltime_s: float, before: str = "", after: str = "wait") -> tuple[JobHandle, Pulse]:
        """A job that runs a program with a child; the child gives signs of life."""
        pulse = Pulse(site)
        child = f"(while :; do echo >>'{pulse.file}'; sleep {pulse.every_s}; done) & "
        alive = f"while ! [ -s '{pulse.file}' ]; do sleep {pulse.every_s}; done; "
        handle = site.submit(site.request("sh", "-c", before + child + alive + after, walltime_s=walltime_s))
        site.until(lambda: pulse.file.exists())
        return handle, pulse
