"""The suite that every backend passes, over a Flux that exists only in `tests.backends.flux.fake`."""

from __future__ import annotations

from pathlib import Path

import pytest

from asa.backends.flux import Flux
from asa.core.clock import ManualClock
from asa.core.errors import BackendError
from asa.core.job import Dependency, JobChanges, JobState
from asa.testing.backends import BatchSemantics, TestedSite
from tests.backends.flux.fake import FakeFlux


class TestFlux(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        clock = ManualClock(1_700_000_000.0)
        backend = Flux(clock=clock, ask=FakeFlux(clock), poll_s=1.0)
        return TestedSite(
            backend, clock, tmp_path, run_s=10.0, resolution_s=1.0, shortest_s=60.0, walltime_s=600.0, patience_s=200.0
        )

    # Flux changes nothing of a job that waits but its wall time, and says so.

    def test_a_begin_time_can_be_moved(self, site: TestedSite) -> None:
        self._refused(site, JobChanges(begin=site.clock.now()))

    def test_a_dependency_can_be_added_and_taken_away(self, site: TestedSite) -> None:
        first = site.submit(site.request(begin=site.clock.now() + 3600))
        self._refused(site, JobChanges(dependencies=(Dependency(first),)))

    def test_a_job_can_be_made_smaller(self, site: TestedSite) -> None:
        self._refused(site, JobChanges(resources=site.half))

    def test_a_wall_time_can_be_changed(self, site: TestedSite) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 5, run_s=200.0))
        site.backend.update(handle, JobChanges(walltime_s=site.shortest_s))
        site.reach(handle, JobState.TIMEOUT)

    def _refused(self, site: TestedSite, changes: JobChanges) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        with pytest.raises(BackendError, match="only the wall time") as caught:
            site.backend.update(handle, changes)
        assert not caught.value.transient
        assert site.status(handle).state is JobState.PENDING
