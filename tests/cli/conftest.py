"""A user's folder with a workflow, and a state directory, for commands of their own process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.log.rundir import list_runs
from tests.waiting import until


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The state directory; the module's `FLOW` is ``flow.py``. In the end tasks that wait for the gate may go on, and
    drivers have ended."""
    (tmp_path / "flow.py").write_text(request.module.FLOW)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    yield tmp_path / "state"
    (tmp_path / "gate").touch()
    until(lambda: not any(run.is_driven() for run in list_runs(tmp_path / "state")), "the drivers' ends")
