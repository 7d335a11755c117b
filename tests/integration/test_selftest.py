"""``asa selftest`` on a real Slurm: as it is, and where nothing starts."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_until
from tests.integration.shell import Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]
RUNS = ("a run", "a held place", "a resume after kill -9")


def test_it_runs_holds_and_resumes(shell: Shell) -> None:
    outcome = shell.asa("selftest", "--backend", "slurm:poll_s=1")
    rows = {row["what"]: row for row in outcome.data["rows"]}
    assert outcome.code == 0, outcome.data
    assert [rows[name]["ok"] for name in RUNS] == [True] * 3
    assert rows["a resume after kill -9"]["found"].startswith("no task that was done ran again")
    assert "in the queue from the start" in rows["a held place"]["found"]


def test_what_does_not_start_is_not_reached_and_leaves_no_job(shell: Shell, slurm_cluster: Cluster) -> None:
    nodes = ",".join(slurm_cluster.config.nodes)
    slurm_cluster.run("scontrol", "update", f"NodeName={nodes}", "State=DRAIN", "Reason=test")
    try:
        outcome = shell.asa("selftest", "--backend", "slurm:poll_s=1", "--wait", "5s")
    finally:
        slurm_cluster.run("scontrol", "update", f"NodeName={nodes}", "State=RESUME")
    rows = {row["what"]: row for row in outcome.data["rows"]}
    assert outcome.code == 0, outcome.data
    assert [rows[name]["ok"] for name in RUNS] == [None] * 3
    assert rows["a run"]["found"] == "its jobs have not started within 5 s"
    assert wait_until(lambda: not shell.queue(), 30)
