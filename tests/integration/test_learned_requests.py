"""Memory and wall time that are learned, on a real cluster; a task that has more memory than its job is killed, as the
kernel does where Slurm confines jobs, what the cluster of the tests cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.event import RunStarted, StageGrown, Submitting, TaskFailed
from asa.log.events import EventLog
from tests.cluster import host
from tests.cluster.cluster import Cluster, running
from tests.integration.shell import Shell

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(420)]

FLOW = """
import asa

@asa.stage(memory="auto", walltime="auto")
def hungry(size):
    import os, resource, signal, subprocess, time

    held = bytearray(size)
    asked = subprocess.check_output(["squeue", "-h", "-o", "%m", "-j", os.environ["SLURM_JOB_ID"]], text=True)
    units = {"M": 1024, "G": 1024**2}
    number, unit = asked.strip()[:-1], asked.strip()[-1]
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > float(number) * units[unit]:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)
    return len(held)

def workflow():
    return hungry(700_000_000)
"""


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node of eight cores, with 512 MiB for each."""
    if (reason := host.obstacle()) is not None:
        pytest.skip(reason)
    base, settings = tmp_path_factory.mktemp("slurm"), (("SelectTypeParameters", "CR_Core_Memory"),)
    with running(host.configure(base, nodes=1, settings=settings)) as cluster:
        yield cluster


@pytest.mark.parametrize("strategy", ["auto", "big-job"])
def test_a_task_that_is_killed_for_memory_asks_for_more_and_the_next_run_at_once(
    strict: Cluster, tmp_path: Path, strategy: str
) -> None:
    shell = Shell(strict, tmp_path)
    (shell.folder / "flow.py").write_text(FLOW)
    asked = []
    for failures in (1, 0):
        done = shell.asa("run", "flow.py", "--backend", "slurm", "--strategy", strategy, "--quiet")
        assert done.code == 0, done.err
        with EventLog(shell.state / "runs" / done.data["run"] / "events.db") as log:
            (started,) = log.each(RunStarted)
            assert [event.cause for event in log.each(TaskFailed)] == ["memory"] * failures
            assert len(list(log.each(StageGrown))) == failures
            jobs = [event.request for event in log.each(Submitting)]
        asked.append([(job.resources.memory or 0) >> 20 for job in jobs])
        assert jobs[0].walltime_s == started.stages[0].walltime_s == (3600.0 if failures else 120.0)
    assert asked[0] == [512, 1024]
    (second,) = asked[1]
    assert 700_000_000 >> 20 < second < 2000
    said = shell.asa("explain", done.data["run"]).out
    assert f"asks for memory {second}" in said.replace(f"{second / 1024:.4g} GiB", f"{second}")
    assert "largest of 1 task 6" in said and "wall time 2 min: largest of 1 task " in said
