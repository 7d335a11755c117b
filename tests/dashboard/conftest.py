from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.dashboard.site import Dashboard
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from tests.runlogs import montage, run_log


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with one run, montage-3fa1, that has ended."""
    tmp_path.chmod(0o700)
    with EventLog(RunDirectory.create(tmp_path, "montage-3fa1").events) as log:
        log.append(run_log(montage(2)))
    return tmp_path


@pytest.fixture
def dashboard(state: Path) -> Iterator[Dashboard]:
    with Dashboard(state) as running:
        yield running
