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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats
from asa.core.decision import NodeRun, Start
from asa.core.hostlist import expand
from asa.core.job import JobState
from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import ROOT, Association, ClusterAccount, NodeWindow, Partition, Qos
from asa.lab.core.cluster import Cluster as Machine
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import decide_on_tables
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import MachineSettings
from tests.cluster.cluster import Cluster
from tests.cluster.config import ACCOUNT

NODES = 8
"""Nodes of the machine, of one core each."""

SCHEDULER = "batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1,bf_window_linear=1,bf_continue"
"""Slurm looks at its queue every second, and plans as exactly as it can. That every waiting job gets a reservation is
its default; with ``bf_job_part_count_reserve=1`` only the first one does."""

DISPATCHER = "backfill:depth=inf,interval=1.003s"
"""The same in the simulator, as `asa calibrate` reads it."""

PARTITIONED = dataclasses.replace(
    Machine.of(16),
    partitions={
        "main": Partition(tuple(range(16)), max_time_s=86400.0, default_time_s=300.0),
        "fast": Partition(tuple(range(8)), max_time_s=3600.0, max_nodes=4, tier=10),
        "upper": Partition(tuple(range(6, 16)), max_time_s=86400.0),
    },
    qos={
        "normal": Qos(max_jobs_per_user=5, max_cores_per_user=10),
        "high": Qos(grp_cores=6, priority=100),
        "wide": Qos(max_jobs_per_user=1, priority=50),
    },
)
"""Partitions that overlap, one of which goes first, and QOS of which each has another limit."""

USERS = ("daemon", "bin", "sys", "games")
SHARED = dataclasses.replace(
    Machine.of(16),
    accounts={
        ROOT: ClusterAccount(users={"root": 1}),
        ACCOUNT: ClusterAccount(users=dict.fromkeys(USERS, 1)),
        "bio": ClusterAccount(3, users={"daemon": 2, "bin": 1}),
        "cells": ClusterAccount(2, parent="bio", users={"sys": 1}),
        "geo": ClusterAccount(1, users={"games": 1}),
    },
)
"""Accounts with different shares, one below another; in the last three each user has his jobs."""

LIMITED = dataclasses.replace(
    Machine.of(12),
    qos={"normal": Qos(), "free": Qos(max_jobs_per_user=3, grp_cores=9)},
    accounts={
        ROOT: ClusterAccount(users={"root": 1}, max_jobs=4),
        ACCOUNT: ClusterAccount(users=dict.fromkeys(USERS, 1)),
        "bio": ClusterAccount(users={"daemon": 1, "bin": 1}, user_limits={"bin": Association(max_jobs=1)}, grp_cores=7),
        "cells": ClusterAccount(parent="bio", users={"sys": 1}, grp_jobs=2),
        "geo": ClusterAccount(users={"games": 1}, user_limits={"games": Association(grp_nodes=4)}),
        "short": ClusterAccount(max_time_s=120.0),
        "shut": ClusterAccount(grp_jobs=0),
        "still": ClusterAccount(max_jobs=0),
        "empty": ClusterAccount(grp_cores=0),
        "narrow": ClusterAccount(grp_nodes=3),
        "small": ClusterAccount(max_nodes=2, grp_nodes=3),
    },
)
"""Accounts with limits, one below another, and a QOS whose own take the place of some of them."""

PREEMPTING = dataclasses.replace(
    Machine.of(16),
    qos={
        "normal": Qos(priority=50, preempt_mode="requeue"),
        "spare": Qos(preempt_mode="cancel"),
        "high": Qos(priority=100, preempts=("normal", "spare")),
    },
    windows=(NodeWindow(60.0, 120.0, (12, 13, 14, 15), "maintenance"),),
    requeue_delay_s=6.0,
)
"""QOS whose jobs give way to those of another, and nodes that are kept from all jobs for a minute."""

TIMED = dataclasses.replace(
    Machine.of(12),
    qos={"normal": Qos()},
    accounts={
        ROOT: ClusterAccount(users={"root": 1}),
        ACCOUNT: ClusterAccount(users=dict.fromkeys(USERS, 1)),
        "bio": ClusterAccount(users={"daemon": 1}, grp_core_minutes=10),
        "cells": ClusterAccount(parent="bio", users={"bin": 1}, grp_core_run_minutes=6),
        "geo": ClusterAccount(users={"sys": 1}, grp_wall_minutes=2),
        "sea": ClusterAccount(users={"games": 1}, max_core_minutes=4),
    },
)
"""Accounts with limits of time: a budget; below it, of what running jobs may still use; of run times; and of a job."""

PASS_S, LOOK_S = 0.1, 1.2
"""Starts so close together belong to one pass over the queue; after so long, Slurm has passed over it once more [s]."""

_LARGEST = 0.03  # share of jobs that want the whole machine
_LINE = re.compile(
    r"\[(?P<when>[-\dT:.]+)\] (?:"
    r"_slurm_rpc_submit_batch_job: JobId=(?P<submit>\d+) "
    r"|sched: Allocate JobId=(?P<main>\d+) "
    r"|sched/backfill: _start_job: Started JobId=(?P<backfill>\d+) "
    r"|debug:  slurm_cred_create: creating credential for JobId=(?P<launch>\d+)"
    r"|preempted JobId=(?P<requeue>\d+) has been requeued"
    r"|preempted JobId=(?P<cancel>\d+) has been killed"
    r"|_job_complete: JobId=(?P<end>\d+) done)"
)


_FIRST = re.compile(r"^\[([-\dT:.]+)\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A job that sleeps: when [s since the first], whose, on how many nodes, how long [s], its limit [min], where."""

    at: float
    user: int
    nodes: int
    run_s: float
    limit_min: int
    partition: str = ""
    qos: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a job, and which of Slurm's schedulers started it.

    Its times are those since Slurm has been up [s], from when on it makes priorities anew each minute; in records of
    before 2026-11-28 they are those since the first submission.
    """

    user: int
    nodes: int
    limit_min: int
    submit: float
    start: float
    end: float
    scheduler: str
    partition: str = ""
    qos: str = ""
    on: str = ""
    """Numbers of its nodes, with blanks between them; where there is a database."""
    restarts: int = 0
    """How often it was requeued; its start is the last one."""
    cancelled_of_s: float = 0.0
    """How long it would have run, if it was cancelled for another, else 0 [s]."""


def sleepers(
    seed: int, count: int, *, run_s: tuple[float, float], load: float, backlog: int, users: int = 1, nodes: int = NODES
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
    nodes
        Those of the machine.
    """
    rng = Random(seed)
    shapes = [
        (
            nodes if rng.random() < _LARGEST else min(nodes, int(2 ** rng.uniform(0, math.log2(nodes + 1)))),
            math.exp(rng.uniform(*map(math.log, run_s))),
            rng.uniform(1, 5),
            min(users - 1, int(rng.expovariate(math.log(4)))),
        )
        for _ in range(count)
    ]
    rate = load * nodes / (sum(wide * run for wide, run, _, _ in shapes) / count)
    at, jobs = 0.0, []
    for number, (wide, run, slack, user) in enumerate(shapes):
        at += rng.expovariate(rate) if number >= backlog else 0.0
        jobs.append(Sleeper(at, user, wide, run, math.ceil(run * slack)))
    return jobs


def sent_to(machine: Machine, jobs: Sequence[Sleeper], seed: int, users: int) -> list[Sleeper]:
    """The same jobs, each in any of those partitions, and with any of those QOS, that would take it, and any user's."""
    rng, sent = Random(seed), []
    for job in jobs:
        partitions = [
            name
            for name, each in machine.partitions.items()
            if job.nodes <= min(each.max_nodes or machine.nodes, len(each.nodes))
            and 60 * job.limit_min <= each.max_time_s
        ]
        qos = [
            name
            for name, each in machine.qos.items()
            if all(job.nodes <= most for most in (each.max_cores_per_user, each.grp_cores) if most is not None)
        ]
        sent.append(
            dataclasses.replace(
                job, user=rng.randrange(users), partition=rng.choice(partitions or [""]), qos=rng.choice(qos)
            )
        )
    return sent


def arrange(cluster: Cluster, machine: Machine) -> None:
    """Give a Slurm of as many nodes the machine's partitions, QOS and accounts, and let all its users have the QOS.

    The cluster needs its database, and ``AccountingStorageEnforce=limits,qos``.
    """
    cluster.run("scontrol", "delete", "PartitionName=share")
    for name, each in machine.partitions.items():
        settings = {
            "Nodes": ",".join(cluster.nodes[node] for node in each.nodes),
            "MaxTime": f"{math.ceil(each.max_time_s / 60)}",
            "MaxNodes": f"{each.max_nodes or 'UNLIMITED'}",
            "PriorityTier": f"{each.tier}",
        }
        verb = "update" if name == "main" else "create"
        cluster.run("scontrol", verb, f"PartitionName={name}", *(f"{key}={value}" for key, value in settings.items()))
    for name, limits in machine.qos.items():
        if name != "normal":  # which is there from the start
            cluster.run("sacctmgr", "--immediate", "add", "qos", name)
        words = {"Preempt": ",".join(limits.preempts), "PreemptMode": limits.preempt_mode}
        changed = [f"Priority={limits.priority}", *_limits(limits), *(f"{k}={v}" for k, v in words.items() if v)]
        cluster.run("sacctmgr", "--immediate", "modify", "qos", name, "set", *changed)
    for name, account in machine.accounts.items():
        if name in (ROOT, ACCOUNT):  # which are there from the start
            continue
        own = f"parent={account.parent}", f"fairshare={account.shares}"
        cluster.run("sacctmgr", "--immediate", "add", "account", name, *own)
        for user, shares in account.users.items():
            cluster.run("sacctmgr", "--immediate", "add", "user", user, f"account={name}", f"fairshare={shares}")
            cluster.run("sacctmgr", "--immediate", "modify", "user", user, "set", f"defaultaccount={name}")
    for name in {ACCOUNT, *machine.accounts} - {ROOT} if machine.qos else ():
        cluster.run("sacctmgr", "--immediate", "modify", "account", name, "set", f"qos={','.join(machine.qos)}")
    for name, account in machine.accounts.items():
        if account.has_limits:
            cluster.run("sacctmgr", "--immediate", "modify", "account", name, "set", *_limits(account))
        for user, association in account.user_limits.items():
            of_user = "modify", "user", user, "where", f"account={name}", "set", *_limits(association)
            cluster.run("sacctmgr", "--immediate", *of_user)
    time.sleep(2.0)  # the database tells the controller
    up = _up_since(cluster)
    for window in machine.windows:
        start, end = (datetime.datetime.fromtimestamp(up + at) for at in (window.start, window.end))
        cluster.run(
            "scontrol", "create", "reservation", f"ReservationName={window.name}", "Users=root", "Flags=MAINT",
            f"StartTime={start:%Y-%m-%dT%H:%M:%S}", f"EndTime={end:%Y-%m-%dT%H:%M:%S}",
            f"Nodes={','.join(cluster.nodes[node] for node in window.nodes)}",
        )  # fmt: skip


def _limits(limits: Association | Qos) -> list[str]:
    """As sacctmgr sets them."""
    found = []
    for word, name in _AMOUNTS.items():
        of = {tres: what.removesuffix("s") if name.endswith("minutes") else what for tres, what in _TRES.items()}
        given = ((tres, getattr(limits, name.format(what), None)) for tres, what in of.items())
        if amounts := ",".join(f"{tres}={most // _IN.get(tres, 1)}" for tres, most in given if most is not None):
            found.append(f"{word}={amounts}")
    for word, name in _COUNTS.items():
        if (most := getattr(limits, name, None)) is not None:
            found.append(f"{word}={most}")
    if (longest_s := limits.max_time_s) is not None:
        found.append(f"MaxWall={longest_s / 60:.0f}")
    return found


_AMOUNTS = {
    "GrpTRES": "grp_{}", "MaxTRESPerUser": "max_{}_per_user", "MaxTRES": "max_{}", "GrpTRESMins": "grp_{}_minutes",
    "GrpTRESRunMins": "grp_{}_run_minutes", "MaxTRESMins": "max_{}_minutes",
}  # fmt: skip
_TRES = {"cpu": "cores", "node": "nodes", "mem": "memory", "gres/gpu": "gpus"}
_IN = {"mem": 2**20}
_COUNTS = {
    "GrpJobs": "grp_jobs", "GrpSubmitJobs": "grp_submit_jobs", "MaxJobs": "max_jobs",
    "MaxSubmitJobs": "max_submit_jobs", "MaxJobsPerUser": "max_jobs_per_user",
    "MaxSubmitJobsPerUser": "max_submit_jobs_per_user", "GrpWall": "grp_wall_minutes",
}  # fmt: skip


def log_of(cluster: Cluster) -> Path:
    """The controller's log."""
    return Path(cluster.config.base, "log", "slurmctld.log")


def _up_since(cluster: Cluster) -> float:
    """When the controller wrote its first line [s since the epoch]."""
    return datetime.datetime.fromisoformat(_FIRST.search(log_of(cluster).read_text())[1]).timestamp()


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
            f"--time={job.limit_min}", f"--wrap=exec sleep {job.run_s:.3f}",
            *([f"--partition={job.partition}"] if job.partition else []), *([f"--qos={job.qos}"] if job.qos else []),
            user=users[job.user % len(users)],
        )  # fmt: skip
        numbers.append(int(output))
    deadline = time.monotonic() + timeout
    while len(lives := read_log(log_of(cluster).read_text())) < len(jobs):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(lives)} of {len(jobs)} jobs have ended, {timeout} s after the last submission")
        time.sleep(0.5)
    nodes = _nodes(cluster) if cluster.config.database else {}
    zero, last, records = _up_since(cluster), 0.0, []
    for job, number in zip(jobs, numbers, strict=True):
        life = lives[number]
        submit, start, end = (round(moment - zero, 3) for moment in life[:3])
        last = max(last, submit)  # a line may be written a millisecond late
        where = job.partition, job.qos, nodes.get(number, ""), life.restarts, job.run_s if life.cancelled else 0.0
        records.append(Record(job.user, job.nodes, job.limit_min, last, start, end, life.scheduler, *where))
    return records


def _nodes(cluster: Cluster) -> dict[int, str]:
    """`Record.on` of all jobs, by number."""
    time.sleep(3.0)  # until the database has the last one
    said = cluster.run("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--format=JobID,NodeList")
    rows = (line.split("|") for line in said.splitlines())
    return {int(job): " ".join(str(cluster.nodes.index(node)) for node in expand(hosts)) for job, hosts in rows}


class Life(NamedTuple):
    """Submission, last start and end of a job [s since the epoch], the scheduler that started it, how often it was
    requeued for others, and whether it was cancelled for one."""

    submit: float
    start: float
    end: float
    scheduler: str
    restarts: int = 0
    cancelled: bool = False


def read_log(text: str) -> dict[int, Life]:
    """Lives of all jobs that have ended, by number.

    From the text of a ``slurmctld.log``. From Slurm 26.05 on it says of jobs that backfill starts only, at the level
    ``debug``, that a credential was made.
    """
    moments: dict[tuple[str, int], float] = {}
    schedulers: dict[int, str] = {}
    restarts, cancelled = Counter[int](), set[int]()
    for found in _LINE.finditer(text):
        kind, when = str(found.lastgroup), datetime.datetime.fromisoformat(found["when"]).timestamp()
        job = int(found[kind])
        if kind == "launch":
            if ("start", job) in moments:
                continue
            kind = "backfill"
        if kind == "requeue":
            restarts[job] += 1
            moments.pop(("start", job), None)
            continue
        if kind == "cancel":
            cancelled.add(job)
            kind = "end"
        if kind in ("main", "backfill"):
            kind, schedulers[job] = "start", kind
        moments[kind, job] = when
    return {
        job: Life(moments["submit", job], moments["start", job], when, schedulers[job], restarts[job], job in cancelled)
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
                partition=row.get("partition", ""),
                qos=row.get("qos", ""),
                on=row.get("on", ""),
                restarts=int(row.get("restarts", 0)),
                cancelled_of_s=float(row.get("cancelled_of_s", 0)),
            )
            for row in csv.DictReader(file)
        ]


def schedule_of(records: Sequence[Record], machine: Machine | None = None) -> Schedule:
    """Slurm's schedule in the simulator's terms: jobs ran as long as they did, and asked for what they did.

    `machine` is the one of `arrange`, or `NODES` nodes.
    """
    machine = machine or Machine.of(NODES)
    where: dict[str, Any] = {"labels": {}}
    for column, names in (("partition", machine.partitions), ("qos", machine.qos)):
        if names:
            where["labels"][column] = tuple(names)
            where[column] = np.array([list(names).index(getattr(record, column)) for record in records])
    if names := tuple(machine.accounts):
        where["labels"] |= {"group": names, "user": USERS}
        of = [max(names.index(name) for name in names if user in machine.accounts[name].users) for user in USERS]
        where["group"] = np.array([of[record.user] for record in records])
    columns = {name: np.array([getattr(record, name) for record in records]) for name in Record.__slots__}
    submit, start, end = columns["submit"], columns["start"], columns["end"]
    workload = Workload.of(
        submit=submit,
        run=np.where(columns["cancelled_of_s"] > 0, columns["cancelled_of_s"], end - start),
        cores=columns["nodes"],
        walltime=60.0 * columns["limit_min"],
        user=columns["user"],
        wait=start - submit,
        **where,
    )
    completed, preempted = (OUTCOMES.index(state) for state in (JobState.COMPLETED, JobState.PREEMPTED))
    outcome = np.where(columns["cancelled_of_s"] > 0, preempted, completed).astype(np.int8)
    return Schedule(workload, machine, submit, start, end, outcome, columns["restarts"])


def later(slurm: Schedule, by_s: float) -> tuple[Workload, Machine]:
    """The same jobs and machine for a simulator whose seconds begin at another moment than Slurm's may have."""
    jobs, machine = slurm.workload, slurm.cluster
    windows = [dataclasses.replace(each, start=each.start + by_s, end=each.end + by_s) for each in machine.windows]
    return dataclasses.replace(jobs, submit=jobs.submit + by_s), dataclasses.replace(machine, windows=tuple(windows))


def on_named_nodes(slurm: Schedule) -> Schedule:
    """The same jobs for a simulator that reserves certain nodes, as Slurm does, rather than so many.

    It counts nodes where all jobs are of a kind, so every other job here is of a second kind that nothing depends on.
    """
    kinds: dict[str, Any] = {"demands": np.array([[1, 0], [1, 1]]), "kind": np.arange(len(slurm)) % 2}
    workload = dataclasses.replace(slurm.workload, resources=("cores", "memory"), **kinds)
    return dataclasses.replace(slurm, workload=workload, cluster=Machine.of(slurm.cluster.nodes, memory=1))


def pairs_apart(start: Floats, apart_s: float = 2.0) -> npt.NDArray[np.bool_]:
    """Of n start times [s], which pairs are more than `apart_s` apart, the first of them earlier; shape (n, n)."""
    later: npt.NDArray[np.bool_] = np.subtract.outer(start, start) < -apart_s
    return later


def same_order(a: Floats, b: Floats) -> npt.NDArray[np.bool_]:
    """Which pairs of n jobs start in the same order in both, shape (n, n)."""
    same: npt.NDArray[np.bool_] = np.less.outer(a, a) == np.less.outer(b, b)
    return same


def same_state(
    slurm: Schedule, dispatcher: Any, on: Sequence[str] | None = None, **settings: Any
) -> tuple[float, float]:
    """How often a dispatcher decides as Slurm did, put before each pass in the very state that Slurm was in.

    The simulator's machine goes through Slurm's own schedule, so that a difference does not lead to others; on the very
    nodes that Slurm took where `on` says which (`Record.on`).

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
            decisions = decide_on_tables(rule, engine.view())  # gaps are filled now, whatever its interval
            chosen = {int(decision.job) for decision in decisions if isinstance(decision, Start)}
            asked += len(chosen)
            followed += sum(bool(slurm.start[job] <= at + LOOK_S) for job in chosen)
        passed = at
        foreseen += row in chosen
        nodes = [int(node) for node in on[row].split()] if on else []
        engine.apply([Start(row, tuple(NodeRun(node, node, 1) for node in nodes))])
    return followed / asked, foreseen / len(slurm)
