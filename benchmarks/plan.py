"""What planning costs: a stage of 100,000 tasks, the driver's work per event; whole runs of many stages; the plan alone
under strategies that ask for an allocation for each stage.

python -m benchmarks.plan [TASKS [STAGES]]
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asa
from asa.core.decision import Amend, Cancel, Predict
from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    Cancelled,
    Event,
    JobEnded,
    Learned,
    NodeJoined,
    Predicted,
    Released,
    RunEnded,
    RunStarted,
    Submitted,
    Submitting,
    TaskDone,
    TasksLaunched,
)
from asa.core.job import Capabilities, JobHandle, JobRequest, JobState, QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.strategies.perstage import PerStage
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads
from asa.workflows.plan import Action, Finish, LaunchTasks, Plan, Release, Submit, Teach
from benchmarks.measure import show

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


def plan_alone(strategy: str, regime: str, shape: str, stages: int) -> None:
    """Let a plan have a workflow run in a queue where a job waits 15 to 45 s, in virtual time and without any I/O;
    print as `run_stages`. Waits are predicted to be 30 s; in a regime like ``limits+arrays`` there are job arrays."""
    name, _, arrays = regime.partition("+")
    most = Resources(1_000_000, memory=2**50)
    site = Capabilities(site="benchmark", regime=QueueRegime(name), arrays=bool(arrays), largest=most)
    graph = make_graph(SHAPES[shape](stages))
    plan, chance, count = Plan(STRATEGIES.create(strategy), site), random.Random(1), itertools.count()
    now, ahead = NOW, list[tuple[float, int, Event]]()  # a heap
    plan.on(RunStarted(now, "run", "w", graph.specs(site), "", strategy, "", "shared", "", "", regime=site.regime))

    def later(seconds: float, made: Callable[[float], Event]) -> None:
        heapq.heappush(ahead, (now + seconds, next(count), made(now + seconds)))

    def start(key: str) -> None:
        later(chance.uniform(15.0, 45.0), lambda at: AllocationStarted(at, key, at))

    behind: dict[str, dict[str, None]] = {}  # job that has not ended -> those that wait for it
    left: dict[str, set[str]] = {}  # job that waits -> for which

    def wait(key: str, after: tuple[str, ...]) -> None:
        left[key] = {other for other in after if other in plan.pool.held}
        for other in left[key]:
            behind.setdefault(other, {})[key] = None
        if not left[key]:
            del left[key]
            start(key)

    def carry_out(action: Action) -> None:
        match action:
            case Submit(key, ask):
                request = JobRequest(key, ask.resources, ask.walltime_s, (), array=ask.array)
                waits = ask.predicted_wait_s, ask.soon_wait_s
                plan.on(Submitting(now, key, request, ask.stages, ask.after, *waits))
                later(0.1, lambda at: Submitted(at, key, JobHandle(key, key, now)))
                wait(key, ask.after)
            case Predict():
                plan.on(Predicted(now, action.stage, 30.0, None if action.soon is None else 15.0))
            case LaunchTasks(stage, ranges, key):
                plan.on(TasksLaunched(now, stage, ranges, key))
                for index in itertools.chain.from_iterable(itertools.starmap(range, ranges)):
                    began, took = now, chance.uniform(30.0, 60.0)
                    later(took, lambda at, i=index, t=began: TaskDone(at, stage, i, key, "n", t, b""))  # type: ignore[misc]
            case Release(key, reason):
                plan.on(Released(now, key, reason))
                later(1.0, lambda at: JobEnded(at, key, JobState.COMPLETED))
            case Cancel(key, reason, displaced):
                plan.on(Cancelled(now, key, reason, displaced))
                later(1.0, lambda at: JobEnded(at, key, JobState.CANCELLED))
            case Amend(key, after, throttle, parked, size, walltime_s):
                plan.on(Amending(now, key, after, throttle, parked, size, walltime_s))
                later(0.1, lambda at: Amended(at, key))
                if after == () and left.pop(key, None):
                    start(key)
            case Teach(lesson, wait_s, censored):
                plan.on(Learned(now, lesson.request.token, lesson.stage, wait_s, lesson.predicted_s, censored))
            case Finish(state, message, stage):
                plan.on(RunEnded(now, state, message, stage))
            case _:
                raise AssertionError(action)

    while not plan.closed:
        while actions := plan.decide(now):
            for action in actions:
                carry_out(action)
        now = min(plan.wake_at(now), ahead[0][0] if ahead else math.inf)
        while ahead and ahead[0][0] <= now:
            event = heapq.heappop(ahead)[2]
            key = getattr(event, "allocation", "")
            held = plan.pool.held.get(key)
            if held is None or (isinstance(event, AllocationStarted) and held.cancelled is not None):
                continue
            plan.on(event)
            if isinstance(event, AllocationStarted):
                later(1.0, lambda at, k=key, c=held.cores: NodeJoined(at, k, "n", c))  # type: ignore[misc]
            elif isinstance(event, JobEnded):
                for other in behind.pop(key, ()):
                    if other in left:
                        left[other].discard(key)
                        if not left[other]:
                            del left[other]
                            start(other)
    assert plan.outcome.value == "succeeded", plan.message
    print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


SHAPES = {"chain": chain, "wide": wide, "dag": dag}


ALONE = [("per-stage", "limits"), ("asa", "fifo"), ("hold", "multifactor"), ("auto", "fifo"), ("auto", "multifactor")]
"""Strategies that decide by stage, and regimes where they do."""


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
            words = [sys.executable, "-m", "benchmarks.plan", "--run", shape, str(count)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            cpu_s, peak = map(float, done.stdout.split())
            rows.append({"what": f"{shape} of {count:,} stages", "driver [CPU s]": cpu_s,
                         "a stage [ms]": 1e3 * cpu_s / count, "peak [MB]": peak})  # fmt: skip
    show("Whole runs of many stages of one task", rows)


def many_allocations(stages: int) -> None:
    rows = []
    for strategy, regime in ALONE:
        for shape in SHAPES:
            for count in (stages // 10, stages):
                words = [sys.executable, "-m", "benchmarks.plan", "--alone", strategy, regime, shape, str(count)]
                done = subprocess.run(words, check=True, capture_output=True, text=True)
                cpu_s, peak = map(float, done.stdout.split())
                rows.append({"what": f"{strategy}, {regime}: {shape} of {count:,}", "CPU [s]": cpu_s,
                             "a stage [ms]": 1e3 * cpu_s / count, "peak [MB]": peak})  # fmt: skip
    show("The plan alone, an allocation for each stage", rows)


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run_stages(sys.argv[2], int(sys.argv[3]))
        return
    if sys.argv[1:2] == ["--alone"]:
        plan_alone(*sys.argv[2:5], int(sys.argv[5]))
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
    many_allocations(int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)


if __name__ == "__main__":
    main()
