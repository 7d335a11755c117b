"""A workload on a real Slurm, what its controller's log tells of it, and the same jobs in the simulator.

The controller writes milliseconds into its log; its accounting keeps whole seconds, too coarse for jobs of seconds.
Jobs have whole nodes. A job that sleeps for so many seconds asks for one to five times as many *minutes*: Slurm knows
no shorter limits, and so limits are to each other as they are on a machine whose jobs run for hours.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from asa.core.decision import Start
from asa.core.job import JobState
from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import Cluster as Machine
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import Workload
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import MachineSettings
from tests.cluster.cluster import Cluster

NODES = 8
"""Nodes of the machine, of one core each."""

SCHEDULER = "batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1,bf_window_linear=1,bf_continue"
"""Slurm looks at its queue every second, and plans as exactly as it can. That every waiting job gets a reservation is
its default; with ``bf_job_part_count_reserve=1`` only the first one does."""

PASS_S, LOOK_S = 0.1, 1.2
"""Starts so close together belong to one pass over the queue; after so long, Slurm has passed over it once more [s]."""

_LARGEST = 0.03  # share of jobs that want the whole machine
_LINE = re.compile(
    r"\[(?P<when>[-\dT:.]+)\] (?:"
    r"_slurm_rpc_submit_batch_job: JobId=(?P<submit>\d+) "
    r"|sched: Allocate JobId=(?P<main>\d+) "
    r"|sched/backfill: _start_job: Started JobId=(?P<backfill>\d+) "
    r"|_job_complete: JobId=(?P<end>\d+) done)"
)


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A job that sleeps: when [s since the first], whose, on how many nodes, how long [s], and its limit [min]."""

    at: float
    user: int
    nodes: int
    run_s: float
    limit_min: int


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a job: its times [s since the first submission], and which of Slurm's schedulers started it."""

    user: int
    nodes: int
    limit_min: int
    submit: float
    start: float
    end: float
    scheduler: str


def sleepers(
    seed: int, count: int, *, run_s: tuple[float, float], load: float, backlog: int, users: int = 1
) -> list[Sleeper]:
    """A seeded workload: sizes and run times log-uniform, a queue from the start, then Poisson arrivals.

    Parameters
    ----------
    run_s
        Shortest and longest run time [s].
    load
        Work that arrives per second and node after the first `backlog` jobs, which come at once.
    users
        The first has three quarters of the jobs, the next three quarters of the rest, and so on.
    """
    rng = Random(seed)
    shapes = [
        (
            NODES if rng.random() < _LARGEST else min(NODES, int(2 ** rng.uniform(0, math.log2(NODES + 1)))),
            math.exp(rng.uniform(*map(math.log, run_s))),
            rng.uniform(1, 5),
            min(users - 1, int(rng.expovariate(math.log(4)))),
        )
        for _ in range(count)
    ]
    rate = load * NODES / (sum(nodes * run for nodes, run, _, _ in shapes) / count)
    at, jobs = 0.0, []
    for number, (nodes, run, slack, user) in enumerate(shapes):
        at += rng.expovariate(rate) if number >= backlog else 0.0
        jobs.append(Sleeper(at, user, nodes, run, math.ceil(run * slack)))
    return jobs


def run(cluster: Cluster, jobs: Sequence[Sleeper], timeout: float) -> list[Record]:
    """Submit jobs when they are due, wait until all have ended, and tell what the log has of them, in that order.

    Raises
    ------
    TimeoutError
        When they have not all ended `timeout` [s] after the last submission.
    """
    users = cluster.config.users or (None,)
    began = time.monotonic()
    numbers = []
    for job in jobs:
        time.sleep(max(0.0, began + job.at - time.monotonic()))
        output = cluster.run(
            "sbatch", "--parsable", "--output=/dev/null", "--chdir=/", f"--nodes={job.nodes}",
            f"--time={job.limit_min}", f"--wrap=exec sleep {job.run_s:.3f}", user=users[job.user % len(users)],
        )  # fmt: skip
        numbers.append(int(output))
    log = Path(cluster.config.base, "log", "slurmctld.log")
    deadline = time.monotonic() + timeout
    while len(lives := read_log(log.read_text())) < len(jobs):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(lives)} of {len(jobs)} jobs have ended, {timeout} s after the last submission")
        time.sleep(0.5)
    zero, last, records = lives[numbers[0]][0], 0.0, []
    for job, number in zip(jobs, numbers, strict=True):
        submit, start, end = (round(moment - zero, 3) for moment in lives[number][:3])
        last = max(last, submit)  # a line may be written a millisecond late
        records.append(Record(job.user, job.nodes, job.limit_min, last, start, end, lives[number][3]))
    return records


def read_log(text: str) -> dict[int, tuple[float, float, float, str]]:
    """Submission, start and end [s since the epoch] and scheduler of all jobs that have ended, by number.

    From the text of a ``slurmctld.log``.
    """
    moments: dict[tuple[str, int], float] = {}
    schedulers: dict[int, str] = {}
    for found in _LINE.finditer(text):
        kind, when = str(found.lastgroup), datetime.datetime.fromisoformat(found["when"]).timestamp()
        job = int(found[kind])
        if kind in ("main", "backfill"):
            kind, schedulers[job] = "start", kind
        moments[kind, job] = when
    return {
        job: (moments["submit", job], moments["start", job], when, schedulers[job])
        for (kind, job), when in moments.items()
        if kind == "end"
    }


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Keep records as comma-separated values."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(field.name for field in dataclasses.fields(Record))
        table.writerows(map(dataclasses.astuple, records))


def read_records(path: Path) -> list[Record]:
    """Records that were kept."""
    with path.open(newline="") as file:
        return [
            Record(
                user=int(row["user"]),
                nodes=int(row["nodes"]),
                limit_min=int(row["limit_min"]),
                submit=float(row["submit"]),
                start=float(row["start"]),
                end=float(row["end"]),
                scheduler=row["scheduler"],
            )
            for row in csv.DictReader(file)
        ]


def schedule_of(records: Sequence[Record]) -> Schedule:
    """Slurm's schedule in the simulator's terms: jobs ran as long as they did, and asked for what they did."""
    columns = {name: np.array([getattr(record, name) for record in records]) for name in Record.__slots__}
    submit, start, end = columns["submit"], columns["start"], columns["end"]
    workload = Workload.of(
        submit=submit,
        run=end - start,
        cores=columns["nodes"],
        walltime=60.0 * columns["limit_min"],
        user=columns["user"],
        wait=start - submit,
    )
    outcome = np.full(len(records), OUTCOMES.index(JobState.COMPLETED), dtype=np.int8)
    return Schedule(workload, Machine.of(NODES), submit, start, end, outcome, np.zeros(len(records), dtype=np.int64))


def ticking(workload: Workload, every_s: float) -> Workload:
    """The same jobs for a scheduler that looks at the queue only now and then: it sees them come and go late."""
    late = {name: np.ceil(getattr(workload, name) / every_s) * every_s for name in ("submit", "run")}
    return dataclasses.replace(workload, **late)


def on_named_nodes(slurm: Schedule) -> Schedule:
    """The same jobs for a simulator that reserves certain nodes, as Slurm does, rather than so many.

    It counts nodes where all jobs are of a kind, so every other job here is of a second kind that nothing depends on.
    """
    kinds: dict[str, Any] = {"demands": np.array([[1, 0], [1, 1]]), "kind": np.arange(len(slurm)) % 2}
    workload = dataclasses.replace(slurm.workload, resources=("cores", "memory"), **kinds)
    return dataclasses.replace(slurm, workload=workload, cluster=Machine.of(slurm.cluster.nodes, memory=1))


def same_state(slurm: Schedule, dispatcher: Any, **settings: Any) -> tuple[float, float]:
    """How often a dispatcher decides as Slurm did, put before each pass in the very state that Slurm was in.

    The simulator's machine goes through Slurm's own schedule, so that a difference does not lead to others.

    Returns
    -------
    followed, foreseen
        Share of the dispatcher's starts that Slurm made, too, then or in its next pass; share of Slurm's starts that
        are the dispatcher's.
    """
    rule: Any = DISPATCHERS.create(dispatcher)
    engine = Engine(slurm.workload, slurm.cluster, MachineSettings(overrun="allow", **settings))
    asked = followed = foreseen = 0
    chosen: set[int] = set()
    passed = -math.inf
    for row in np.argsort(slurm.start, kind="stable").tolist():
        at = float(slurm.start[row])
        while engine.advance(at) is not None:
            engine.apply([])
        if at - passed > PASS_S:
            decisions = rule.decide(engine.view())
            chosen = {int(decision.job) for decision in decisions if isinstance(decision, Start)}
            asked += len(chosen)
            followed += sum(bool(slurm.start[job] <= at + LOOK_S) for job in chosen)
        passed = at
        foreseen += row in chosen
        engine.apply([Start(row)])
    return followed / asked, foreseen / len(slurm)
