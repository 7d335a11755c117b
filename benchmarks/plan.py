"""What planning costs: a stage of 100,000 tasks, and the driver's work per event as tasks finish.

python benchmarks/plan.py [TASKS]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import show

import asa
from asa.core.event import AllocationStarted, NodeJoined, RunStarted, Submitted, Submitting, TaskDone, TasksLaunched
from asa.core.job import Capabilities, JobHandle, JobRequest
from asa.core.task import Value
from asa.strategies.perstage import PerStage
from asa.workflows.action import Launch, Submit
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads
from asa.workflows.plan import Plan

CORES = 1000


@asa.stage(cores=CORES)
def work(x: int) -> int:
    return x


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    site = Capabilities(site="benchmark")
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        graph = make_graph(work.map(range(tasks)))
        payloads = Payloads(graph, Path(directory), Path(directory), lambda stage, index: Value(b""))
        payloads.save()
        plan = Plan(PerStage(), site)
        now = time.time()
        plan.on(RunStarted(now, "run", "w", graph.specs(site), "", "", "", "shared", "", ""))
        (submit,) = plan.decide(now)
        assert isinstance(submit, Submit)
        request = JobRequest(submit.token, submit.ask.resources, submit.ask.walltime_s, ())
        plan.on(Submitting(now, submit.token, request, submit.ask.stages))
        plan.on(Submitted(now, submit.token, JobHandle("1", submit.token, now)))
        plan.on(AllocationStarted(now, submit.token, now))
        plan.on(NodeJoined(now, submit.token, "node", CORES))
        planned = time.perf_counter() - began

        began = time.perf_counter()
        made = [payloads.task("work", index) for index in range(tasks)]
        payload = time.perf_counter() - began

        slices: list[float] = []
        done = 0
        while done < tasks:
            began, before = time.perf_counter(), done
            while done < min(tasks, before + tasks // 10):
                for action in plan.decide(now):
                    if isinstance(action, Launch):
                        plan.on(TasksLaunched(now, action.stage, action.ranges, action.allocation))
                batch: list[Any] = list(plan.pool.held[submit.token].running)[:500]
                for stage, index in batch:
                    plan.on(TaskDone(now + 0.001, stage, index, submit.token, "node", now, b""))
                done += len(batch)
            slices.append((time.perf_counter() - began) / (done - before))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    show(
        f"Planning {len(made)} tasks",
        [
            {"what": "graph, functions and plan until the first launch [s]", "value": planned},
            {"what": "making all tasks' payloads [s]", "value": payload},
            {"what": "launch and fold, per task, first tenth [us]", "value": 1e6 * slices[0]},
            {"what": "launch and fold, per task, last tenth [us]", "value": 1e6 * slices[-1]},
            {"what": "peak memory of the process [MB]", "value": peak},
        ],
    )


if __name__ == "__main__":
    main()
