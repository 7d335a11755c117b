"""The conformance suite over every backend that needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.backends.local import Local
from asa.core.clock import ManualClock, SystemClock
from asa.testing.backend_fake import FakeBatch
from asa.testing.backends import BatchSemantics, RealPrograms, TestedSite, run_of


class TestLocal(BatchSemantics, RealPrograms):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[TestedSite]:
        directory = tmp_path / "work"
        directory.mkdir()
        backend = Local(cores=4, directory=tmp_path / "jobs", poll_s=0.01, grace_s=0.3)
        # Ends are told by the time of a file, which is that of the last tick: up to 10 ms ago.
        yield TestedSite(backend, SystemClock(), directory, run_s=0.1, shortest_s=0.2, resolution_s=0.01)
        backend.close()


class TestFake(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        clock = ManualClock(1000.0)
        batch = FakeBatch(clock, cores=4, run=run_of)
        return TestedSite(batch, clock, tmp_path, run_s=10.0, shortest_s=60.0, walltime_s=600.0, patience_s=200.0)
