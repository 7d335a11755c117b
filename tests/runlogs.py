"""Event logs of runs that never were, for tests of whatever reads logs.

The logs conform: a job's tasks fit into its cores and its time, every event follows from those before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from asa.core.event import (
    AllocationStarted,
    DriverStarted,
    Event,
    JobEnded,
    Learned,
    NodeJoined,
    NodeLost,
    Released,
    RunEnded,
    RunStarted,
    RunState,
    Submitted,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobHandle, JobRequest, JobState, Resources
from asa.core.stage import StageSpec

NODE_CORES = 28


@dataclass(frozen=True, slots=True)
class MadeStage:
    """A stage of a made-up run.

    Parameters
    ----------
    cores, tasks, task_s
        Size of its allocation, number of its one-core tasks, and how long one takes on average [s].
    after
        Stages before it.
    wait_s, predicted_wait_s
        How long its job waits in the queue, and how long that was predicted to be [s].
    lead_s
        How long before the stages before it end its job is submitted [s]; never before the run starts.
    lost_after_s
        When given, a first job loses its node this long after its tasks were launched [s]; another is asked for.
    bad_tasks
        Tasks that fail once before they succeed.
    """

    name: str
    cores: int
    tasks: int = 1
    task_s: float = 60.0
    after: tuple[str, ...] = ()
    wait_s: float = 60.0
    predicted_wait_s: float | None = None
    lead_s: float = 0.0
    lost_after_s: float | None = None
    bad_tasks: int = 0

    @property
    def spec(self) -> StageSpec:
        """What the log's first event says of it."""
        rounds = 2 * -(-(self.tasks + self.bad_tasks) // self.cores)
        walltime_s = 600.0 + rounds * self.task_s * 2
        return StageSpec(
            self.name, Resources(self.cores), Resources(), walltime_s, walltime_s / 4, self.after, 1, self.tasks
        )


def montage(tiles: int = 56) -> tuple[MadeStage, ...]:
    """Nine stages in the shape of the Montage workflow: wide ones and narrow ones in turn. One allocation comes early,
    one stage loses its first, and in one stage tasks fail and are tried again."""
    return (
        MadeStage("mProject", 112, tiles * 6, 95, (), 410, None),
        MadeStage("mImgtbl", 1, 1, 60, ("mProject",), 30, 45, 45),
        MadeStage("mOverlaps", 1, 1, 70, ("mImgtbl",), 20, 45, 45),
        MadeStage("mDiff", 84, tiles * 8, 26, ("mOverlaps",), 240, 400, 400),
        MadeStage("mFitplane", 84, tiles * 8, 18, ("mDiff",), 380, 180, 180, lost_after_s=30),
        MadeStage("mBgModel", 1, 1, 260, ("mFitplane",), 35, 45, 45),
        MadeStage("mBackground", 56, tiles * 6, 30, ("mBgModel",), 190, 180, 180, bad_tasks=3),
        MadeStage("mAdd", 1, 1, 210, ("mBackground",), 25, 45, 45),
        MadeStage("mShrink", 28, 28, 40, ("mAdd",), 95, 120, 120),
    )


def stage_spec(
    name: str, cores: int, width: int | None, *after: str, task_cores: int = 1, retries: int = 0
) -> StageSpec:
    """A stage of an hour's wall time, for logs written by hand."""
    return StageSpec(name, Resources(cores), Resources(task_cores), 3600.0, 600.0, after, retries, width)


def run_begins(*stages: StageSpec, at: float = 0.0) -> list[Event]:
    """The first two events of a log."""
    return [
        RunStarted(at, "run-1", "example", stages, "slurm", "asa", "local", "shared", "site", "batch"),
        DriverStarted(at, 4711, "login1"),
    ]


def job_asked(at: float, token: str, cores: int, *stages: str, predicted: float | None = None) -> list[Event]:
    """A job is submitted; the batch system knows it by its token in capitals."""
    request = JobRequest(token, Resources(cores), 3600.0, ("supervisor",))
    return [
        Submitting(at, token, request, stages, (), predicted),
        Submitted(at, token, JobHandle(token.upper(), token, at)),
    ]


def run_log(stages: Sequence[MadeStage], *, start: float = 1_700_000_000.0, seed: int = 0) -> list[Event]:
    """Events of a run that succeeds, every stage in its own allocation, in order of time.

    Parameters
    ----------
    start
        When the run starts [s since the epoch].
    """
    return sorted(_events(stages, start, np.random.default_rng(seed)), key=lambda event: event.at)


def _events(stages: Sequence[MadeStage], start: float, rng: np.random.Generator) -> Iterator[Event]:
    specs = tuple(stage.spec for stage in stages)
    yield RunStarted(start, "montage-3fa1", "montage", specs, "slurm", "asa", "local", "shared", "hpc2n", "batch")
    yield DriverStarted(start, 4711, "login1")
    ends: dict[str, float] = {}
    number = 0
    for stage in stages:
        ready = max((ends[name] for name in stage.after), default=start)
        submit = max(start, ready - stage.lead_s)
        if stage.lost_after_s is not None:
            job = _Job(stage, f"montage-3fa1.{number}", number)
            lost = max(ready, submit + stage.wait_s) + stage.lost_after_s
            yield from job.begin(submit)
            yield from job.lose(max(ready, submit + stage.wait_s), lost)
            number, submit = number + 1, lost
        job = _Job(stage, f"montage-3fa1.{number}", number)
        number += 1
        yield from job.begin(submit)
        events = list(job.work(max(ready, submit + stage.wait_s), rng))
        yield from events
        ends[stage.name] = end = max(event.at for event in events)
        yield Released(end + 0.1, job.token)
        yield JobEnded(end + 2.0, job.token, JobState.COMPLETED, submit + stage.wait_s, 0)
    yield RunEnded(max(ends.values()) + 2.5, RunState.SUCCEEDED)


@dataclass(frozen=True)
class _Job:
    stage: MadeStage
    token: str
    number: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"b-cn{self.number + 1:02d}{node:02d}" for node in range(-(-self.stage.cores // NODE_CORES)))

    def begin(self, submit: float) -> Iterator[Event]:
        stage, spec = self.stage, self.stage.spec
        started = submit + stage.wait_s
        request = JobRequest(self.token, spec.resources, spec.walltime_s, ("supervisor",))
        yield Submitting(submit, self.token, request, (stage.name,), (), stage.predicted_wait_s)
        yield Submitted(submit, self.token, JobHandle(str(810_000 + self.number), self.token, submit))
        yield AllocationStarted(started, self.token, started, self.nodes)
        yield Learned(started, self.token, stage.name, stage.wait_s, stage.predicted_wait_s)
        for node in self.nodes:
            yield NodeJoined(started, self.token, node, NODE_CORES)

    def lose(self, launch: float, lost: float) -> Iterator[Event]:
        count = min(self.stage.tasks, self.stage.cores)
        yield TasksLaunched(launch, self.stage.name, ((0, count),), self.token)
        for index in range(count):
            yield TaskFailed(
                lost, self.stage.name, index, self.token, self.nodes[0], launch, "node lost", infrastructure=True
            )
        yield NodeLost(lost, self.token, self.nodes[0], "it does not answer")
        yield JobEnded(lost, self.token, JobState.NODE_FAIL, reason="NodeFail")

    def work(self, launch: float, rng: np.random.Generator) -> Iterator[Event]:
        stage = self.stage
        yield TasksLaunched(launch, stage.name, ((0, stage.tasks),), self.token)
        free = [(launch, core) for core in range(stage.cores)]
        failed: dict[int, float] = {}
        for index in [*range(stage.tasks), *range(stage.bad_tasks)]:
            begun, core = heapq.heappop(free)
            started = max(begun, failed.get(index, begun))
            ended = started + stage.task_s * float(rng.uniform(0.6, 1.4))
            heapq.heappush(free, (ended, core))
            where = (stage.name, index, self.token, self.nodes[core // NODE_CORES])
            if index < stage.bad_tasks and index not in failed:
                failed[index] = ended
                trace = 'Traceback (most recent call last):\n  File "tile.py", line 12, in background'
                yield TaskFailed(
                    ended, *where, started, "ValueError: tile <3, 7> is empty", trace, "no overlap & no sky"
                )
                yield TasksLaunched(ended, stage.name, ((index, index + 1),), self.token)
            else:
                yield TaskDone(ended, *where, started)
