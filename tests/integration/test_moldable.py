"""Stages that may have several widths on a real cluster: jobs of the chosen size, and tasks that find it."""

from __future__ import annotations

import pytest

from asa.core.event import AllocationStarted, Submitting, WidthChosen
from asa.log.events import EventLog
from tests.integration.shell import Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(300)]

FLOW = """
import os
import asa

@asa.stage(cores=(1, 4), walltime="10m", speedup=0.99)
def solve(x): return int(os.environ["OMP_NUM_THREADS"])

@asa.stage(cores=(1, 4), walltime="10m")
def square(x): return x * x

@asa.stage(cores=[2, 4], walltime="10m", speedup={2: 60, 4: 31}, launcher="srun")
def ranks(x): return int(os.environ["SLURM_NTASKS"])

def workflow():
    return [solve(1), square.map(range(6)), ranks(1)]
"""


@pytest.mark.parametrize("strategy", ["auto", "per-stage"])
def test_jobs_are_as_wide_as_was_chosen(shell: Shell, strategy: str) -> None:
    (shell.folder / "flow.py").write_text(FLOW)
    done = shell.asa("run", "flow.py", "--backend", "slurm", "--strategy", strategy, "--quiet")
    assert done.code == 0, done.err
    with EventLog(shell.state / "runs" / done.data["run"] / "events.db") as log:
        chosen = {event.stage: event.width for event in log.each(WidthChosen)}
        asked = {event.allocation: event for event in log.each(Submitting)}
        started = list(log.each(AllocationStarted))
    cores = {name: width.resources.cores for name, width in chosen.items()}
    assert set(cores) == {"solve", "square", "ranks"}
    assert f"[{cores['solve']}, [0, 1, 4, 9, 16, 25], {cores['ranks']}]" in done.out
    for event in asked.values():
        (name,) = event.stages
        assert event.request.resources == chosen[name].resources
        assert event.request.walltime_s == chosen[name].walltime_s
    for event in started:
        (name,) = asked[event.allocation].stages
        assert event.cores is None or event.cores >= cores[name]
    assert f"solve: {cores['solve']} of 1 to " in shell.asa("explain", done.data["run"]).out
    assert not shell.queue(), "every job has ended"


def test_what_no_job_may_have_is_refused_before_anything_is_submitted(shell: Shell) -> None:
    (shell.folder / "flow.py").write_text(FLOW.replace("(1, 4)", "(1000, 4000)"))
    done = shell.asa("run", "flow.py", "--backend", "slurm", "--quiet")
    assert done.code != 0 and "asks for 1000 cores, more than" in done.err
    assert not shell.queue()
