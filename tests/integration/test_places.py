"""Places held in real queues of each regime: every job in from the start, none early, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.event import (
    AllocationStarted,
    Cancelled,
    JobEnded,
    Queued,
    Submitted,
    Submitting,
    TaskDone,
)
from asa.core.job import JobState
from tests.cluster import host
from tests.cluster.cluster import running
from tests.cluster.config import REGIMES
from tests.cluster.processes import wait_until
from tests.integration.conftest import leave_nothing
from tests.integration.shell import Shell

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

FLOW = Path(__file__).with_name("place_flows.py")
RUN = ("run", f"{FLOW}:chain", "--quiet", "--backend", "slurm:poll_s=1", "--strategy", "hold", "--executor", "local")
NAMES = [f"stage{number}" for number in range(4)]


@pytest.fixture(scope="module", params=REGIMES)
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str]]:
    """A shell on a cluster of one regime, which is the parameter."""
    database = request.param != "fifo"
    if (reason := host.obstacle(database=database)) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp(request.param)
    config = host.configure(folder / "cluster", nodes=2, cores_per_node=4, regime=request.param, database=database)
    with running(config) as cluster:
        yield Shell(cluster, folder), request.param


@pytest.fixture
def shell(home: tuple[Shell, str], tmp_path: Path) -> Iterator[Shell]:
    found = Shell(home[0].cluster, tmp_path)
    yield found
    leave_nothing(found)


def test_every_stage_is_in_the_queue_from_the_start_and_none_begins_early(
    shell: Shell, home: tuple[Shell, str]
) -> None:
    done = shell.asa(*RUN)
    assert done.code == 0, done.err
    asked = shell.events(Submitting)
    assert [event.stages for event in asked] == [(name,) for name in NAMES], "each is asked for once"
    taken = [event.at for event in sorted(shell.events(Submitted), key=lambda event: event.allocation)]
    starts = [event.started for event in sorted(shell.events(AllocationStarted), key=lambda event: event.allocation)]
    ends = [event.at for event in sorted(shell.events(JobEnded), key=lambda event: event.allocation)]
    assert all(at < end for at, end in zip(taken[1:], ends, strict=False)), "before the stage before it has ended"
    assert all(start >= end - 2 for end, start in zip(ends, starts[1:], strict=False)), "one after the other"
    assert not shell.events(Cancelled)
    assert done.data["overhead_core_hours"] < 0.003, "no stage has waited in its allocation"
    if home[1] == "limits":
        assert {event.handle.array_index for event in shell.events(Submitted)} == {0, 1, 2, 3}
    if home[1] in ("limits", "multifactor"):
        ages = {event.allocation for event in shell.events(Queued) if event.ages_since is not None}
        assert ages >= {event.allocation for event in asked[1:]}, "and they age"


def test_a_stage_behind_one_that_failed_does_not_run(shell: Shell) -> None:
    done = shell.asa(*RUN, "--set", "fails=stage1")
    assert done.code == 1
    assert "stage 'stage1' failed" in done.err
    assert not list(shell.folder.glob("stage2-*")) and not list(shell.folder.glob("stage3-*"))
    assert wait_until(lambda: not shell.queue(), 30), "nothing is left in the queue"


def test_when_the_driver_dies_the_queue_empties_by_itself(shell: Shell) -> None:
    with shell.started(*RUN, "--set", "seconds=3", "--orphan-grace", "2s") as driver:
        shell.await_events(TaskDone, 1)
        driver.kill()
        driver.wait()
    assert wait_until(lambda: not shell.queue(), 120), "no job waits or runs for ever"
    assert not list(shell.folder.glob("stage3-*")), "and no stage began without its driver"
    again = shell.asa("resume", shell.run, "--quiet")
    assert again.code == 0, again.err
    assert list(shell.folder.glob("stage3-*"))
    assert {event.state for event in shell.events(JobEnded)} >= {JobState.COMPLETED}


def test_where_size_counts_no_array_is_taken_for_a_place(tmp_path_factory: pytest.TempPathFactory) -> None:
    if (reason := host.obstacle(database=True)) is not None:
        pytest.skip(reason)
    sizes, folder = (("PriorityWeightJobSize", "100000"),), tmp_path_factory.mktemp("sizes")
    config = host.configure(
        folder / "cluster", nodes=2, cores_per_node=4, regime="limits", database=True, settings=sizes
    )
    with running(config) as cluster:
        shell = Shell(cluster, folder)
        told = {each["what"]: each["found"] for each in shell.asa("doctor", "--backend", "slurm").data["rows"]}
        assert "cannot be held" in told["slurm: places"]
        assert "PriorityWeightJobSize=100000" in told["slurm: job arrays"]
        done = shell.asa(*RUN)
        assert done.code == 0, done.err
        starts = sorted(shell.events(AllocationStarted), key=lambda event: event.started)
        asked = {event.allocation: event.stages for event in shell.events(Submitting)}
        assert [asked[event.allocation] for event in starts] == [(name,) for name in NAMES], "in order, each once"
        assert all(event.handle.array_index is None for event in shell.events(Submitted))
        assert not shell.events(Cancelled), "and none in vain"
        leave_nothing(shell)
