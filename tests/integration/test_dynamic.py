"""A loop, a branch and a sweep on a real cluster: jobs are asked for as stages are added."""

from __future__ import annotations

import pytest

from asa.core.event import ExpectationMissed, StagesAdded
from asa.log.events import EventLog
from tests.integration.shell import Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(300)]

FLOW = """
import asa

@asa.stage(walltime="5m")
def halve(x): return x / 2

@asa.stage(walltime="5m")
def found(x): return list(range(int(x)))

@asa.stage(cores=2, walltime="5m")
def square(x): return x * x

@asa.stage(walltime="5m", expands=True)
def survey(xs): return square.map(xs)

@asa.stage(walltime="5m")
def total(xs): return sum(xs)

def workflow():
    small = asa.loop(halve, until=lambda x: x < 6, most=20, expect=6)(40)
    return total(survey(found(small))), asa.branch(lambda x: x > 4, square, halve, walltime="5m")(small)
"""


@pytest.mark.parametrize("strategy", ["auto", "per-stage", "big-job"])
def test_what_is_added_runs_in_jobs_of_the_run(shell: Shell, strategy: str) -> None:
    (shell.folder / "flow.py").write_text(FLOW)
    done = shell.asa("run", "flow.py", "--backend", "slurm", "--strategy", strategy, "--quiet")
    assert done.code == 0, done.err
    assert "(30, 25.0)" in done.out
    names = {stage["name"] for stage in done.data["stages"]}
    assert {"halve.halve-2", "survey.square", "branch.square"} <= names
    with EventLog(shell.state / "runs" / done.data["run"] / "events.db") as log:
        assert sum(len(event.specs) for event in log.each(StagesAdded)) == 4
        assert [(event.expected, event.came) for event in log.each(ExpectationMissed)] == [(5, 2)]
    assert "halve: done, 1 task, added 1 stage" in shell.asa("explain", done.data["run"]).out
    assert not shell.queue(), "every job has ended"
