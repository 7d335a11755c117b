"""What planning costs: a stage of 100,000 tasks, the driver's work per event; whole runs of many stages.

python benchmarks/plan.py [TASKS [STAGES]]
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import show

import asa
from asa.core.event import AllocationStarted, NodeJoined, RunStarted, Submitted, Submitting, TaskDone, TasksLaunched
from asa.core.job import Capabilities, JobHandle, JobRequest, Resources
from asa.strategies.perstage import PerStage
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads
from asa.workflows.plan import LaunchTasks, Plan, Submit

CORES = 1000
NOW = time.time()
"""For the plan it is always now [s since the epoch]."""


@asa.stage(cores=CORES)
def work(x: int) -> int:
    return x


def planned(tasks: int, folder: Path) -> tuple[Plan, Payloads]:
    """A plan whose only allocation has just got its node, and the tasks' payloads."""
    site = Capabilities(site="benchmark")
    graph = make_graph(work.map(range(tasks)))
    payloads = Payloads(graph, folder, folder, lambda stage, index: b"")
    payloads.save()
    plan = Plan(PerStage(), site)
    plan.on(RunStarted(NOW, "run", "w", graph.specs(site), "", "", "", "shared", "", ""))
    (submit,) = plan.decide(NOW)
    assert isinstance(submit, Submit)
    request = JobRequest(submit.token, submit.ask.resources, submit.ask.walltime_s, ())
    plan.on(Submitting(NOW, submit.token, request, submit.ask.stages))
    plan.on(Submitted(NOW, submit.token, JobHandle("1", submit.token, NOW)))
    plan.on(AllocationStarted(NOW, submit.token, NOW))
    plan.on(NodeJoined(NOW, submit.token, "node", CORES))
    return plan, payloads


def finish(plan: Plan, tasks: int) -> int:
    """Launch and fold at least so many tasks, in batches; how many there were."""
    done = 0
    (allocation,) = plan.pool.held.values()
    while done < tasks:
        for action in plan.decide(NOW):
            if isinstance(action, LaunchTasks):
                plan.on(TasksLaunched(NOW, action.stage, action.ranges, action.allocation))
        batch: list[Any] = list(allocation.running)[:500]
        for stage, index in batch:
            plan.on(TaskDone(NOW + 0.001, stage, index, allocation.key, "node", NOW, b""))
        done += len(batch)
    return done


@asa.stage
def add(*values: int) -> int:
    return 1 + max(values, default=0)


@asa.stage
def most(values: list[int]) -> int:
    return max(values)


def chain(stages: int) -> Any:
    node = add()
    for number in range(1, stages):
        node = add.options(name=f"s{number}")(node)
    return node


def wide(stages: int) -> Any:
    return most([add.options(name=f"s{number}")(number) for number in range(stages - 1)])


def dag(stages: int) -> Any:
    """Each stage after up to three of the two hundred before it."""
    nodes: list[Any] = []
    rng = random.Random(1)
    for number in range(stages - 1):
        before = rng.sample(nodes[-200:], min(len(nodes), rng.randint(0, 3)))
        nodes.append(add.options(name=f"s{number}")(*before))
    return most(nodes)


SHAPES = {"chain": chain, "wide": wide, "dag": dag}


def run_stages(shape: str, stages: int) -> None:
    """Run a workflow of so many stages on two cores; print the processor time [s] and memory [MB] of this process."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as state:  # the run ends while it is removed
        run = asa.run(SHAPES[shape](stages), backend="local:cores=2", state=state)
        run.result()
    print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def many_stages(stages: int) -> None:
    rows = []
    for shape in SHAPES:
        for count in (stages // 10, stages):
            words = [sys.executable, __file__, "--run", shape, str(count)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            cpu_s, peak = map(float, done.stdout.split())
            rows.append({"what": f"{shape} of {count:,} stages", "driver [CPU s]": cpu_s,
                         "a stage [ms]": 1e3 * cpu_s / count, "peak [MB]": peak})  # fmt: skip
    show("Whole runs of many stages of one task", rows)


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run_stages(sys.argv[2], int(sys.argv[3]))
        return
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        plan, payloads = planned(tasks, Path(directory))
        until_planned = time.perf_counter() - began

        began = time.perf_counter()
        made = [payloads.task("work", index, Resources()) for index in range(tasks)]
        payload = time.perf_counter() - began

        slices: list[float] = []
        done = 0
        while done < tasks:
            began = time.perf_counter()
            part = finish(plan, min(tasks - done, tasks // 10))
            slices.append((time.perf_counter() - began) / part)
            done += part
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    show(
        f"Planning {len(made)} tasks",
        [
            {"what": "graph, functions and plan until the first launch [s]", "value": until_planned},
            {"what": "making all tasks' payloads [s]", "value": payload},
            {"what": "launch and fold, per task, first tenth [us]", "value": 1e6 * slices[0]},
            {"what": "launch and fold, per task, last tenth [us]", "value": 1e6 * slices[-1]},
            {"what": "peak memory of the process [MB]", "value": peak},
        ],
    )
    many_stages(int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)


if __name__ == "__main__":
    main()
