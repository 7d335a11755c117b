"""The suite that every backend passes, over a PBS that exists only in `tests.backends.pbs.fake`."""

from __future__ import annotations

from pathlib import Path

import pytest

from asa.backends.pbs import Pbs
from asa.core.clock import ManualClock
from asa.testing.backends import BatchSemantics, TestedSite
from tests.backends.pbs.fake import FakePbs


class TestPbs(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        clock = ManualClock(1_700_000_000.0)
        backend = Pbs(clock=clock, ask=FakePbs(clock), poll_s=1.0)
        return TestedSite(
            backend, clock, tmp_path, run_s=10.0, resolution_s=1.0, shortest_s=60.0, walltime_s=600.0, patience_s=200.0
        )
