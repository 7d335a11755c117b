"""Guests: tasks on cores that those of another stage of the run hold and leave idle."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import InvalidInput, UnknownName
from asa.core.event import (
    CoresUnused,
    DriverStarted,
    Event,
    JobEnded,
    NodeJoined,
    RunStarted,
    Submitted,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import Capabilities, JobHandle, JobRequest, JobState, QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.core.stage import StageSpec
from asa.metrics.workflow import summarise
from asa.workflows.explain import explain
from asa.workflows.plan import Action, LaunchTasks, Plan
from asa.workflows.run import Run

pytestmark = pytest.mark.timeout(300)

JOB, GIB = "run.0", 1 << 30
WHOLE = Resources(4, memory=4 * GIB)
HOST = StageSpec("host", WHOLE, WHOLE, 600.0, 100.0, shares="idle")
GUEST = StageSpec("guest", WHOLE, Resources(1, memory=GIB // 4), 600.0, 100.0, width=8, shares="idle")


def plan_of(host: StageSpec = HOST, guest: StageSpec = GUEST) -> Plan:
    """The host's task runs in the only allocation, of four cores."""
    plan = Plan(STRATEGIES.create("big-job"), Capabilities(site="x", regime=QueueRegime.FIFO))
    job = JobRequest(JOB, WHOLE, 600.0, ("x",))
    return tell(
        plan,
        RunStarted(0.0, "run", "w", (host, guest), "fake", "s", "fake", "shared", "x", ""),
        DriverStarted(0.0, 1, "host"),
        Submitting(1.0, JOB, job, ("host", "guest"), ()),
        Submitted(1.0, JOB, JobHandle("7", JOB, 1.0)),
        NodeJoined(2.0, JOB, "n1", 4),
        TasksLaunched(2.0, "host", ((0, 1),), JOB),
    )


def tell(plan: Plan, *events: Event) -> Plan:
    for event in events:
        plan.on(event)
    return plan


def unused(cores: int, memory: int = 2 * GIB) -> CoresUnused:
    return CoresUnused(5.0, JOB, "n1", "host", cores, memory)


def launches(plan: Plan) -> list[Action]:
    return [action for action in plan.decide(6.0) if isinstance(action, LaunchTasks)]


INVITED = TasksLaunched(6.0, "guest", ((0, 3),), JOB, "host")
HOST_DONE = TaskDone(8.0, "host", 0, JOB, "n1", 2.0)

# ------------------------------------------------------------------------------------------------ the decision


@pytest.mark.parametrize(
    ("host", "guest", "left", "expected"),
    [
        (HOST, GUEST, unused(3), 3),
        (HOST, GUEST, unused(0), 0),
        (HOST, GUEST, unused(3, GIB // 2), 2),
        (HOST, replace(GUEST, shares=""), unused(3), 0),
        (replace(HOST, shares=""), GUEST, unused(0), 0),
        (HOST, replace(GUEST, task=Resources(1)), unused(3), 0),
        (HOST, replace(GUEST, timeout_s=60.0), unused(3), 0),
        (HOST, replace(GUEST, task=Resources(2, memory=GIB // 4)), unused(3), 1),
        (HOST, replace(GUEST, task=Resources(4, memory=GIB // 4)), unused(3), 1),
        (HOST, replace(GUEST, run_time_s=400.0), unused(3), 0),
        (replace(HOST, shares="cosched:rule=space"), GUEST, unused(3), 0),
        (replace(HOST, shares="cosched:rule=static"), GUEST, unused(3), 3),
        (replace(HOST, shares="cosched:rule=static:hard=yes"), GUEST, unused(3), 2),
    ],
)
def test_guests_get_what_is_idle_where_both_stages_share(
    host: StageSpec, guest: StageSpec, left: CoresUnused, expected: int
) -> None:
    found = launches(tell(plan_of(host, guest), left))
    assert found == ([LaunchTasks("guest", ((0, expected),), JOB, "host")] if expected else [])


def test_there_are_never_more_guests_than_idle_cores() -> None:
    plan = tell(plan_of(), unused(3), INVITED)
    assert launches(plan) == []
    assert launches(tell(plan, unused(1))) == [], "those that are there stay"
    assert launches(tell(plan, TaskDone(7.0, "guest", 0, JOB, "n1", 6.0), unused(3))) == [
        LaunchTasks("guest", ((3, 4),), JOB, "host")
    ]


def test_guests_keep_as_many_cores_as_they_hold_when_their_host_has_ended() -> None:
    plan = tell(plan_of(), unused(3), INVITED, HOST_DONE)
    assert launches(plan) == [LaunchTasks("guest", ((3, 4),), JOB)]


@pytest.mark.parametrize(
    "ends",
    [
        TaskFailed(7.0, "guest", 1, JOB, "n1", 6.0, "killed", infrastructure=True, exit=-9),
        JobEnded(7.0, JOB, JobState.TIMEOUT),
    ],
)
def test_a_guest_that_is_ended_because_of_its_host_is_not_to_blame_and_is_none_again(ends: Event) -> None:
    plan = tell(plan_of(), unused(3), INVITED, ends, unused(3))
    stage = plan.stages["guest"]
    assert not stage.failures and stage.unlaunched == 8 - 3 + (3 if isinstance(ends, JobEnded) else 1)
    assert launches(plan) == []


def test_the_log_says_who_was_whose_guest() -> None:
    plan = tell(plan_of(), unused(3), INVITED)
    assert "guest: running, 0 of 8 tasks done" in explain(plan, 7.0)
    assert "3 tasks as guests on idle cores of host" in explain(plan, 7.0)


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({"shares": True}, "shares= needs memory="),
        ({"shares": True, "memory": "1G", "gpus": 1}, "shares= does not go with gpus=1"),
        ({"shares": True, "memory": "1G", "launcher": "srun"}, "shares= does not go with launcher='srun'"),
        ({"shares": 2, "memory": "1G"}, "shares must be True, False or a guest rule"),
    ],
)
def test_what_cannot_share_is_named(needs: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        asa.stage(**needs)(len)


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(UnknownName, match="guest rule of stage 'len': 'idl'"):
        asa.stage(shares="idl", memory="1G")(len)


@pytest.mark.parametrize(
    ("executor", "words"), [("local:workers=threads", "workers='processes'"), ("dask", "executor='local', or 'mesos'")]
)
def test_executors_that_cannot_are_named(tmp_path: Path, executor: str, words: str) -> None:
    node = asa.stage(shares=True, memory="1G")(len)("x")
    with pytest.raises(InvalidInput, match=f"run guests on cores of 'len'.*{words}"):
        asa.run(node, backend="local:cores=2", state=tmp_path, executor=executor)


# ------------------------------------------------------------------------------------------------ real processes

TASKS = 4


def work(folder: Path, least: int) -> bool:
    """One core's work, until so many guests have come, or for some minutes; whether they have."""
    end = time.monotonic() + 200
    while (count := len([*folder.glob("done-*")])) < least and time.monotonic() < end:
        sum(range(100_000))
    return count >= least


def visit(number: int, folder: Path) -> tuple[int, int]:
    (folder / f"done-{number}").touch()
    return number**2, os.getpriority(os.PRIO_PROCESS, 0)


def die_once(number: int, folder: Path) -> int:
    """Ends with its process where it is a guest, as one does that the kernel ends for the host's memory."""
    (folder / f"done-{number}").touch()
    if os.environ.get("ASA_GUEST"):
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def go(tmp_path: Path, visitor: Any, least: int) -> Run:
    host = asa.stage(cores=4, cpus=4, memory="1G", walltime="5m", shares=True)(work)
    guest = asa.stage(cores=4, memory="256M", walltime="1m", shares=True)(visitor)
    both = [host(tmp_path, least), guest.map(range(TASKS), folder=tmp_path)]
    return asa.run(both, backend="local:cores=4", strategy="big-job", state=tmp_path / "state")


@pytest.mark.filterwarnings("ignore::asa.AsaWarning")
def test_guests_run_while_their_host_does_and_all_over_again_in_virtual_time(tmp_path: Path) -> None:
    run = go(tmp_path, visit, TASKS)
    assert run.result() == [True, [(number**2, 19) for number in range(TASKS)]]
    events = [event for _, event in run.events()]
    assert {event.host for event in events if isinstance(event, TasksLaunched) and event.stage == "visit"} == {"work"}
    assert run.explain().count(f"{TASKS} tasks as guests on idle cores of work")

    def again(shares: bool) -> tuple[float, float]:
        host = asa.stage(cores=4, cpus=4, memory="1G", walltime="5m", shares=shares)(work)
        guest = asa.stage(cores=4, memory="256M", walltime="1m", run_time=1.0, shares=shares)(visit)
        both = [host(tmp_path, 0), guest.map(range(3), folder=tmp_path)]  # all at once, on three idle cores
        queue = f"sim:nodes=1,cores=4,memory=4G,compute=false,times={run.name}"
        virtual = asa.run(both, backend=queue, strategy="big-job", state=tmp_path / "state")
        virtual.wait()
        found = summarise([event for _, event in virtual.events()])
        return found.makespan_s, found.core_hours_charged

    without, shared = again(False), again(True)
    assert shared < without and shared[1] < without[1]


@pytest.mark.filterwarnings("ignore::asa.AsaWarning")
def test_guests_that_the_kernel_ends_run_again_on_cores_of_their_own(tmp_path: Path) -> None:
    run = go(tmp_path, die_once, 1)
    assert run.result() == [True, [number**2 for number in range(TASKS)]]
    failed = [event for _, event in run.events() if isinstance(event, TaskFailed)]
    assert failed and all(event.infrastructure for event in failed)
