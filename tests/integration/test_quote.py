"""A quote of a workflow on a real Slurm, before and after runs of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from asa.core.event import Quoted, RunEnded
from asa.log.events import EventLog
from asa.log.rundir import list_runs
from tests.cluster.cluster import Cluster
from tests.integration.shell import Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]
FLOW = """
import time
import asa

@asa.stage(cores=2, task_cores=1, walltime="5m")
def rest(x):
    time.sleep(3)
    return x

@asa.stage(cores=1, walltime="5m")
def total(xs):
    time.sleep(2)
    return sum(xs)

workflow = total(rest.map(range(4)))
"""
BACKEND = "slurm:poll_s=1"


def test_a_quote_and_what_becomes_of_it(slurm_cluster: Cluster, tmp_path: Path) -> None:
    flow, shell = tmp_path / "flow.py", Shell(slurm_cluster, tmp_path)
    flow.write_text(FLOW)
    before = slurm_cluster.run("squeue", "-h", "-o", "%j").split()
    (unknown,) = shell.asa("quote", str(flow), "--backend", BACKEND, "--only").data["rows"]
    assert {*slurm_cluster.run("squeue", "-h", "-o", "%j").split()} <= {*before}, "nothing was submitted"
    assert any("wall time" in note for note in unknown["notes"])
    assert any("no waits of such jobs have been learned" in note for note in unknown["notes"])
    for _ in range(2):
        outcome = shell.asa("run", str(flow), "--backend", BACKEND)
        assert outcome.code == 0 and outcome.out.strip().splitlines()[-1] == "6", outcome.err
        assert "expected: done" in outcome.err
    with EventLog(list_runs(shell.state)[-1].events) as log:
        quoted, ended = log.latest(Quoted), log.latest(RunEnded)
    assert isinstance(quoted, Quoted) and isinstance(ended, RunEnded)
    low, done, high = (time - quoted.at for time in (quoted.low, quoted.done, quoted.high))
    took = ended.at - quoted.at
    assert low / 2 - 30 <= took <= 2 * high + 60, (low, done, high, took)
    known = shell.asa("quote", str(flow), "--backend", BACKEND)
    rows = known.data["rows"]
    assert rows[0]["done_s"] < unknown["done_s"] / 4  # it goes by what stages took, not by their wall times
    assert rows[0]["high_s"] - rows[0]["low_s"] < (unknown["high_s"] - unknown["low_s"]) / 4
    assert {row["strategy"] for row in rows} == {"auto", "auto:patience=50.0", "per-stage", "big-job"}
    assert "quoted: done" in shell.asa("explain").out
