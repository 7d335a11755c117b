"""Containers of a run's agents, as the page shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from asa.dashboard.containers import containers
from asa.log.rundir import list_runs
from tests.waiting import until

WORKFLOW = """
import time
import asa

@asa.stage(cores=2, walltime="5m")
def work(number):
    deadline = time.time() + 60
    while time.time() < deadline:
        pass

workflow = work.map(range(2))
"""


def test_where_there_is_no_pool_there_are_none(tmp_path: Path) -> None:
    assert containers(tmp_path / "pool") is None


def test_a_pool_that_does_not_answer_has_none(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "pool").mkdir(0o700)
    assert containers(tmp_path / "pool") is None


@pytest.mark.slow
def test_quotas_and_use_are_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "work.py").write_text(WORKFLOW)
    command = [sys.executable, "-P", "-m", "asa", "run", "work.py", "--backend", "local:cores=2", "--executor", "mesos"]
    environment = os.environ | {"ASA_STATE_DIR": str(tmp_path)}
    with subprocess.Popen([*command, "--quiet"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as run:
        try:
            (directory,) = until(lambda: list_runs(tmp_path), "the run")

            def used() -> float:
                rows = containers(directory.path / "pool") or [{"cpu_s": None, "limit_cores": None}]
                assert rows[0]["limit_cores"] in (None, 2.0)
                return rows[0]["cpu_s"] or 0.0

            first = until(used, "CPU time")
            assert until(lambda: used() > first, "more of it")
        finally:
            run.terminate()
            run.wait(60)
