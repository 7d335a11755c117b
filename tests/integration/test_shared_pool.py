"""Two runs of one user in one pool on a real cluster: one uses what the other leaves idle, and does it no harm."""

from __future__ import annotations

import subprocess
from itertools import accumulate

import pytest

from asa.core.event import Event, JobEnded, Leased, LeaseEnded, NodeJoined, RunStarted, TaskDone
from asa.core.job import JobState
from asa.log.events import EventLog
from asa.log.rundir import list_runs
from tests.cluster.processes import wait_until
from tests.integration.flows import traces
from tests.integration.shell import FLOWS, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(200)]

NODE_CORES = 8


def words(flow: str, name: str, *more: str) -> tuple[str, ...]:
    """A run in the pool that both are in."""
    common = ("--quiet", "--backend", "slurm:poll_s=1", "--pool", "shared:ours", "--executor", "mesos")
    return ("run", f"{FLOWS}:{flow}", *common, "--name", name, *more)


WIDE = words("nodes", "wide", "--strategy", "big-job", "--set", "count=2", "--set", "tasks=1", "--set", "seconds=40")
MANY = words("tasks", "many", "--strategy", "big-job", "--set", "count=160", "--set", "cores=8", "--orphan-grace", "5s")

ONCE = dict.fromkeys(range(160), 1) | {0: 2}  # the wide run's only task has number 0, too


def log(shell: Shell, name: str) -> list[Event]:
    """What the run of this name has logged by now."""
    for directory in list_runs(shell.state):
        if directory.name.startswith(name) and directory.events.exists():
            with EventLog(directory.events) as events:
                return [event for _, event in events.read()]
    return []


def of(events: list[Event], kind: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


def await_some(shell: Shell, name: str, kind: type[Event], count: int = 1) -> None:
    """Wait until the run has logged so many events of a kind."""
    assert wait_until(lambda: len(of(log(shell, name), kind)) >= count, 60), f"{name}: no {kind.__name__}"


def most_at_once(*logs: list[Event]) -> dict[str, int]:
    """For each node, how many tasks of one core ran there at once."""
    changes: dict[str, list[tuple[float, int]]] = {}
    for event in (event for events in logs for event in events if isinstance(event, TaskDone)):
        # a task's end is told a moment after it; the next one may have started by then
        changes.setdefault(event.node, []).extend([(event.started, 1), (event.started + 0.9, -1)])
    return {node: max(accumulate(change for _, change in sorted(found))) for node, found in changes.items()}


def end(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.splitlines()[-1]


def test_an_idle_node_of_one_run_works_for_the_other(shell: Shell) -> None:
    with shell.started(*WIDE) as wide:
        await_some(shell, "wide", NodeJoined, 2)
        with shell.started(*MANY) as many:
            assert end(many) == str(sum(range(160)))
        end(wide)
    one, other = log(shell, "wide"), log(shell, "many")
    borrowed = {event.allocation for event in of(other, Leased) if isinstance(event, Leased)}
    inside = [event for event in of(other, TaskDone) if isinstance(event, TaskDone) and event.allocation in borrowed]
    assert len(inside) >= NODE_CORES, "the idle node was of use"
    assert traces(shell.folder, "ended") == ONCE
    assert max(most_at_once(other).values()) <= NODE_CORES
    assert len(of(other, LeaseEnded)) == len(borrowed)
    ends = [event for event in (*of(one, JobEnded), *of(other, JobEnded)) if isinstance(event, JobEnded)]
    assert {event.state for event in ends} == {JobState.COMPLETED}
    assert [event.pool for event in of(one, RunStarted) if isinstance(event, RunStarted)] == ["shared:ours"]
    assert shell.queue() == []


def test_a_driver_that_is_killed_harms_its_own_tasks_alone(shell: Shell) -> None:
    with shell.started(*WIDE, "--orphan-grace", "3s") as wide:
        await_some(shell, "wide", NodeJoined, 2)
        with shell.started(*MANY) as many:
            await_some(shell, "many", Leased)
            wide.kill()
            assert end(many) == str(sum(range(160)))
    assert traces(shell.folder, "started") == ONCE, "none was lost on the way"
    assert wait_until(lambda: not shell.queue(), 60), "the job whose driver is dead goes on"
