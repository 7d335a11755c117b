"""A task longer than its wall time, in a real queue in which others wait: it goes on in places held for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.event import Submitting, TaskDone, TaskFailed, TaskPaused
from tests.cluster import host
from tests.cluster.cluster import running
from tests.cluster.processes import wait_until
from tests.integration.conftest import leave_nothing
from tests.integration.load import BackgroundLoad
from tests.integration.shell import Shell

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

FLOW = Path(__file__).with_name("checkpoint_flows.py")
SECONDS = float(os.environ.get("ASA_TEST_LONG_S", "130"))
"""How long the task takes; minutes, for the figures in docs/benchmarks.md."""
GAP_S = 15.0
"""Between two allocations, at most, where the place of the second is held: others wait for a minute."""


@pytest.fixture(scope="module", params=["fifo", "limits"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    database = request.param != "fifo"
    if (reason := host.obstacle(database=database)) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp(request.param)
    config = host.configure(folder / "cluster", nodes=2, cores_per_node=2, regime=request.param, database=database)
    with running(config) as cluster:
        yield Shell(cluster, folder)


def test_a_task_goes_on_in_held_places(home: Shell, tmp_path: Path) -> None:
    shell = Shell(home.cluster, tmp_path)
    load = BackgroundLoad(home.cluster, 7, offered_load=1.2, mean_run_s=20.0, backlog_s=60.0, most_cores=1)
    with load:
        assert wait_until(lambda: len(shell.queue()) > 4, 60), "others wait"
        known = () if home.cluster.config.regime == "fifo" else ("--set", f"predicted={SECONDS}")
        words = f"{FLOW}:long", "--set", f"seconds={SECONDS}", *known, "--quiet", "--backend", "slurm:poll_s=1"
        done = shell.asa("run", *words, timeout=580)
        waiting = len(shell.queue())
    assert done.code == 0, done.err
    pauses, (end,) = shell.events(TaskPaused), shell.events(TaskDone)
    assert len(pauses) >= int(SECONDS // 57), "in as many allocations as it takes"
    begun = [*(pause.started for pause in pauses[1:]), end.started]
    gaps = [start - pause.at for pause, start in zip(pauses, begun, strict=True)]
    jobs = len(shell.events(Submitting))
    print(json.dumps({"gaps_s": [round(gap, 2) for gap in gaps], "jobs": jobs, "waiting": waiting}))
    assert not shell.events(TaskFailed) and waiting > 4
    assert max(gaps) <= GAP_S, gaps
    leave_nothing(shell)
