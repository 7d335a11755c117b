"""A few hundred jobs on a real Slurm and in the simulator: in which order they start, as tables.

    python -m benchmarks.slurm_agreement --keep runs               # 10 to 16 minutes for each of eight sites
    python -m benchmarks.slurm_agreement --from runs               # the tables once more
    python -m benchmarks.slurm_agreement partitions --jobs 200 --repeat 2 --keep runs      # 17 minutes

It boots clusters of its own (see docs/howto/test-cluster.md), one for each way to configure a site, of eight nodes of
one core each, or as many as the site's machine has. Jobs sleep. The simulator gets them as they were submitted, with
the run times that they had on Slurm.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats
from asa.core.job import JobState
from asa.core.view import QueuedJob
from asa.lab.core.cluster import Cluster as Machine
from asa.lab.core.cluster import Qos
from asa.lab.core.schedule import Schedule
from asa.lab.dispatchers.backfill import Backfill
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import Multifactor
from benchmarks.measure import show
from tests.agreement import displacement, equal_positions, kendall, spearman
from tests.cluster import host, layout
from tests.cluster.cluster import running
from tests.integration import replay

LOAD, BACKLOG, RUN_S = 0.9, 30, (2.0, 16.0)
DISPATCHERS = ("fcfs", "easy", "backfill:depth=2", "backfill:depth=4", "backfill:depth=8", "conservative")
CALCULATES_S = 60.0
"""How often Slurm calculates priorities [s]: the least that it takes."""
CHANCES = 20
"""Simulations beside each run on Slurm, in each of which the seconds begin at another moment, by chance."""

_SIZE, _SHARE, _QOS, _HOUR = 12_000, 40_000, 1_000_000, 3600.0
_ACCOUNTED: dict[str, Any] = {"regime": "multifactor", "database": True, "users": ("daemon", "nobody")}


def _ageing(per_second: int) -> dict[str, str]:
    """Slurm's weights of age and size."""
    ages = {"PriorityWeightAge": f"{3600 * per_second}", "PriorityMaxAge": "0-01:00:00"}
    return ages | {"PriorityWeightJobSize": f"{_SIZE}"}


def _model(per_second: int, fairshare: float = 0.0) -> Multifactor:
    """The same in the simulator."""
    return Multifactor(age=_HOUR * per_second, max_age_s=_HOUR, size=_SIZE, fairshare=fairshare, regime="multifactor")


@dataclass(frozen=True)
class Site:
    """A way to configure Slurm, and the simulator alike."""

    says: str
    settings: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, Any] = field(default_factory=dict)
    priority: Any = "fifo"
    machine: Machine | None = None
    """With partitions and QOS, of nodes of one core; None: `replay.NODES` nodes."""


SITES = {
    "fifo": Site("first come first served, all jobs that wait have reservations"),
    "fifo-one": Site(
        "first come first served, one reservation",
        {"SchedulerParameters": f"{replay.SCHEDULER},bf_job_part_count_reserve=1"},
    ),
    "age": Site(
        "priority by age and size, a second counts 100 and a node 1500, all jobs that wait have reservations",
        _ageing(100),
        _ACCOUNTED,
        _model(100),
    ),
    "size": Site(
        "priority by age and size, a second counts 10 and a node 1500, all jobs that wait have reservations",
        _ageing(10),
        _ACCOUNTED,
        _model(10),
    ),
    # Slurm's classic factor is 2 ** -(usage / shares). Of two accounts one is root's, so that each of the other's two
    # users has a quarter of the shares, and his usage u of that account's counts as (1 + u) / 2: the factor is
    # 2 ** -(2 + 2 u), a quarter of the simulator's 2 ** -(2 u).
    "fair-share": Site(
        "priority by age, size and two users' fair share, all jobs that wait have reservations",
        _ageing(10) | {"PriorityWeightFairshare": f"{4 * _SHARE}", "PriorityFlags": "NO_FAIR_TREE"},
        _ACCOUNTED | {"regime": "limits"},  # otherwise it misses what jobs used that end between two calculations
        _model(10, _SHARE),
    ),
    "partitions": Site(
        "partitions that overlap, one of a higher tier; QOS with limits of users and of all; priority by QOS, then age",
        _ageing(10)
        | {
            "PriorityWeightJobSize": "0",
            "PriorityWeightQOS": f"{_QOS}",
            "AccountingStorageEnforce": "limits,qos",
            "SlurmctldDebug": "debug",  # else 26.05 does not say when backfill starts a job
        },
        {"regime": "limits", "database": True, "users": replay.USERS},
        Multifactor(age=_HOUR * 10, max_age_s=_HOUR, qos=_QOS, regime="limits"),
        replay.PARTITIONED,
    ),
    "fair-tree": Site(
        "Fair Tree of accounts with different shares, one below another; priority by it, then age",
        _ageing(10)
        | {
            "PriorityWeightJobSize": "0",
            "PriorityWeightFairshare": f"{_QOS}",
            "AccountingStorageEnforce": "limits",
            "SlurmctldDebug": "debug",
        },
        {"regime": "limits", "database": True, "users": replay.USERS},
        Multifactor(
            age=_HOUR * 10, max_age_s=_HOUR, fairshare=_QOS, tree=True, calc_period_s=CALCULATES_S, regime="limits"
        ),
        replay.SHARED,
    ),
    "preemption": Site(
        "QOS of which one preempts two, whose jobs are requeued or cancelled; a reservation for maintenance; priority "
        "by QOS, then age",
        _ageing(10)
        | {
            "PriorityWeightJobSize": "0",
            "PriorityWeightQOS": f"{_QOS}",
            "PreemptType": "preempt/qos",
            "PreemptMode": "REQUEUE",
            "AccountingStorageEnforce": "limits,qos",
            "SlurmctldDebug": "debug",
        },
        {"regime": "limits", "database": True, "users": replay.USERS},
        Multifactor(age=_HOUR * 10, max_age_s=_HOUR, qos=_QOS, regime="limits"),
        replay.PREEMPTING,
    ),
}


def measure(site: Site, seed: int, count: int) -> list[replay.Record]:
    """Run the jobs on a Slurm that is configured so."""
    settings = {"SchedulerParameters": replay.SCHEDULER, **site.settings}
    machine = site.machine or Machine.of(replay.NODES)
    config = host.configure(nodes=machine.nodes, cores_per_node=1, settings=tuple(settings.items()), **site.cluster)
    users = len(site.cluster.get("users", ())) or 2
    jobs = replay.sleepers(seed, count, run_s=RUN_S, load=LOAD, backlog=BACKLOG, users=users, nodes=machine.nodes)
    with running(config) as cluster:
        if site.machine:
            replay.arrange(cluster, machine)
            jobs = replay.sent_to(machine, jobs, seed, users) if machine.qos else jobs
        records = replay.run(cluster, jobs, timeout=1800)
    layout.remove(config)
    return records


def row(slurm: Schedule, what: str, start: Floats) -> dict[str, Any]:
    """How well starts agree with Slurm's."""
    return {
        "simulator": what,
        "Spearman": spearman(slurm.start, start),
        "Kendall": kendall(slurm.start, start),
        "equal positions": equal_positions(slurm.start, start),
        "places off, mean": float(np.abs(displacement(slurm.start, start)).mean()),
        "start off, median [s]": float(np.median(np.abs(slurm.start - start))),
        "mean wait [s]": float((start - slurm.workload.submit).mean()),
    }


def steps(slurm: Schedule, dispatcher: Any, priority: Any) -> dict[str, float]:
    """How well decisions agree with Slurm's."""
    followed, foreseen = replay.same_state(slurm, dispatcher, priority=priority)
    return {"its starts that Slurm makes": followed, "Slurm's starts that it makes": foreseen}


def rows(site: Site, runs: Sequence[Sequence[replay.Record]]) -> list[dict[str, Any]]:
    """How well the simulator agrees with the first of some runs on Slurm, and the other runs with that."""
    slurm, *others = map(replay.schedule_of, runs)
    named = replay.on_named_nodes(slurm)

    def compare(what: str, dispatcher: Any, like: Schedule = slurm) -> dict[str, Any]:
        done = simulate(like.workload, like.cluster, dispatcher, overrun="allow", priority=site.priority)
        return row(slurm, what, done.start)

    table = [row(slurm, "(order of submission)", slurm.workload.submit)]
    table += [compare(rule, rule) | steps(slurm, rule, site.priority) for rule in DISPATCHERS]
    for rule, depth in (("easy", 1), ("conservative", math.inf)):
        table.append(compare(f"{rule}, looking every second", f"backfill:depth={depth},interval=1.003s"))
        table.append(compare(f"{rule}, on named nodes", rule, named) | steps(named, rule, site.priority))
    if isinstance(site.priority, Multifactor):
        aged = Backfill(math.inf, order=minute_old(site.priority, slurm))
        table.append({"simulator": "the last, priorities a minute old", **steps(named, aged, "fifo")})
    return table + [row(slurm, "(Slurm once more)", other.start) for other in others]


class Whole(NamedTuple):
    """How a whole run differs from one on Slurm: mean wait and makespan, as shares of Slurm's, and which of the pairs
    that start more than two seconds apart there do so in another order, shape (n, n)."""

    wait: float
    makespan: float
    other: npt.NDArray[np.bool_]
    preempted: tuple[int, int]
    """How often jobs were requeued, and how many were cancelled for others."""

    @classmethod
    def of(cls, slurm: Schedule, other: Schedule) -> Whole:
        wait = other.wait.mean() / slurm.wait.mean()
        makespan, its = (each.end.max() - each.workload.submit.min() for each in (other, slurm))
        turned = replay.pairs_apart(slurm.start) & ~replay.same_order(slurm.start, other.start)
        preempted = int(other.restarts.sum()), other.count(JobState.PREEMPTED)
        return cls(float(wait) - 1, float(makespan / its) - 1, turned, preempted)


def simulated(site: Site, slurm: Schedule, rule: str = replay.DISPATCHER, **changed: Any) -> list[Whole]:
    """Runs of the simulator beside one on Slurm."""
    priority, rng = changed.pop("priority", site.priority), np.random.default_rng(0)
    slurm, found = dataclasses.replace(slurm, cluster=dataclasses.replace(slurm.cluster, **changed)), []
    for _ in range(CHANCES if "interval" in rule else 1):
        jobs, machine = replay.later(slurm, rng.uniform(0, 1) if "interval" in rule else 0.0)
        found.append(Whole.of(slurm, simulate(jobs, machine, rule, overrun="allow", priority=priority)))
    return found


def whole_runs(site: Site, runs: Sequence[Schedule]) -> list[dict[str, Any]]:
    """Mean wait, makespan and order of the simulator's runs beside each run on Slurm, and of one of these beside
    another. What is off cancels out in the mean; typically it is the root of the mean square."""
    unlimited = {name: Qos(priority=each.priority) for name, each in runs[0].cluster.qos.items()}
    level = {name: dataclasses.replace(each, tier=1) for name, each in runs[0].cluster.partitions.items()}
    ways: dict[str, dict[str, Any]] = {
        "both schedulers once a second": {},
        "so, at the same moments": {"rule": "backfill:depth=inf,interval=1s"},
        "at each event": {"rule": "conservative"},
        "so, `easy`": {"rule": "backfill:depth=1,interval=1.003s"},
        "so, first come first served": {"priority": "fifo"},
    }
    if runs[0].cluster.partitions:
        ways |= {"so, without limits of QOS": {"qos": unlimited}, "so, without tiers": {"partitions": level}}
    if runs[0].cluster.preempts_by_qos:
        stay = {name: dataclasses.replace(each, preempts=()) for name, each in runs[0].cluster.qos.items()}
        ways |= {
            "so, without preemption": {"qos": stay},
            "so, requeued jobs start again at once": {"requeue_delay_s": 0.0},
            "so, without the reservation": {"windows": ()},
        }
    if runs[0].cluster.accounts:
        model = site.priority
        ways |= {
            "so, factors at each decision": {"priority": dataclasses.replace(model, calc_period_s=0.0)},
            "so, classic formula, equal shares": {"priority": dataclasses.replace(model, tree=False)},
        }
    table = {"Slurm beside Slurm": [Whole.of(a, b) for a in runs for b in runs if a is not b]}
    table |= {what: [one for each in runs for one in simulated(site, each, **way)] for what, way in ways.items()}
    apart = [replay.pairs_apart(each.start).sum() for each in runs]
    return [
        {
            "simulator": what,
            "mean wait, off": f"{np.mean([each.wait for each in found]):+.1%}",
            "typically": f"{np.sqrt(np.mean([each.wait**2 for each in found])):.1%}",
            "makespan, off": f"{np.mean([each.makespan for each in found]):+.1%}",
            "typically ": f"{np.sqrt(np.mean([each.makespan**2 for each in found])):.1%}",
            "pairs in order": 1 - float(np.mean([each.other.sum() for each in found]) / np.mean(apart)),
        }
        | (dict(zip(("requeued", "cancelled"), preempted(found), strict=True)) if any(preempted(found)) else {})
        for what, found in table.items()
        if found
    ]


def by_seed(site: Site, runs: Mapping[str, Sequence[Schedule]]) -> list[dict[str, Any]]:
    """How far the simulator is off from Slurm with each workload, and in the mean of all."""
    rows, apart = [], {seed: sum(replay.pairs_apart(each.start).sum() for each in of) for seed, of in runs.items()}
    for seed, of in runs.items():
        found = [one for each in of for one in simulated(site, each)]
        rows.append(
            {
                "workload": seed,
                "jobs": sum(map(len, of)),
                "mean wait [s]": float(np.mean([each.wait.mean() for each in of])),
                "mean wait, off": float(np.mean([each.wait for each in found])),
                "makespan, off": float(np.mean([each.makespan for each in found])),
                "pairs in order": 1 - float(np.mean([each.other.sum() for each in found]) * len(of) / apart[seed]),
            }
            | (dict(zip(("requeued", "cancelled"), preempted(found), strict=True)) if any(preempted(found)) else {})
        )
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0] if name != "workload"}
    return [*rows, {"workload": "mean"} | mean | {"jobs": sum(row["jobs"] for row in rows)}]


def preempted(found: Sequence[Whole]) -> list[float]:
    """How many jobs were requeued and cancelled for others, in the mean."""
    means: list[float] = np.mean([each.preempted for each in found], axis=0).tolist()
    return means


def pairs(site: Site, runs: Sequence[Schedule]) -> list[dict[str, Any]]:
    """Which pairs of jobs start in another order than on Slurm, by what the two have in common."""
    rows = []
    for what in ("Slurm beside Slurm", "simulator"):
        counts: dict[str, list[float]] = {}
        for slurm in runs:
            others = [Whole.of(slurm, each) for each in runs if each is not slurm]
            found = others if what.startswith("Slurm") else simulated(site, slurm)
            apart = replay.pairs_apart(slurm.start)
            part, qos = (np.equal.outer(each, each) for each in (slurm.workload.partition, slurm.workload.qos))
            kinds = {"partition and QOS": part & qos, "partition": part & ~qos, "QOS": ~part & qos}
            for kind, of in (kinds | {"neither": ~part & ~qos}).items():
                counts.setdefault(kind, []).extend(float(each.other[apart & of].mean()) for each in found)
        rows.append({"simulator": what} | {f"same {kind}": float(np.mean(of)) for kind, of in counts.items() if of})
    return rows


def decisions(site: Site, runs: Sequence[Sequence[replay.Record]]) -> list[dict[str, Any]]:
    """How well decisions agree with Slurm's, in the very state in which it was, on the very nodes."""
    found = {}
    for rule in (*DISPATCHERS, replay.DISPATCHER):
        of_rule = [
            replay.same_state(
                replay.schedule_of(records, site.machine), rule, [each.on for each in records], priority=site.priority
            )
            for records in runs
        ]
        found[rule] = np.mean(of_rule, axis=0)
    return [
        {"simulator": rule, "its starts that Slurm makes": followed, "Slurm's starts that it makes": foreseen}
        for rule, (followed, foreseen) in found.items()
    ]


def minute_old(model: Multifactor, slurm: Schedule) -> Callable[[QueuedJob, float], float]:
    """Slurm's priorities where they are calculated once a minute; a cluster here is up just before its first job."""
    jobs = slurm.workload
    user = dict(enumerate(jobs.user.tolist()))

    @functools.cache
    def shares(at: float) -> Floats:
        used = np.bincount(jobs.user, jobs.cores * np.clip(at - slurm.start, 0.0, jobs.run), minlength=2)
        factors: Floats = 2.0 ** -(2 * used / max(1.0, used.sum()))
        return factors

    def key(job: QueuedJob, now: float) -> float:
        at = now // CALCULATES_S * CALCULATES_S
        age, size = max(0.0, at - job.submitted) / model.max_age_s, job.resources.cores / replay.NODES
        return -(model.age * age + model.size * size + model.fairshare * float(shares(at)[user[int(job.key)]]))

    return key


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", nargs="*", default=[], help=f"which of {', '.join(SITES)}; all if none is named")
    parser.add_argument("--jobs", type=int, default=300, help="how many (300)")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="of the workload (1); more: each runs once")
    parser.add_argument("--repeat", type=int, default=1, help="how often (1); Slurm is then compared with itself, too")
    parser.add_argument("--keep", type=Path, help="folder for what Slurm did")
    parser.add_argument("--from", dest="kept", type=Path, help="folder of what Slurm did earlier: it is not run again")
    options = parser.parse_args()
    if unknown := set(options.site) - set(SITES):
        parser.error(f"unknown site {min(unknown)!r}: choose from {', '.join(SITES)}")
    for name in options.site or SITES:
        site = SITES[name]
        if options.kept:
            runs = [replay.read_records(path) for path in sorted(options.kept.glob(f"{name}.[0-9].csv"))]
            seeds = {path.stem: replay.read_records(path) for path in sorted(options.kept.glob(f"{name}.seed*.csv"))}
        else:
            first, *more = options.seed
            runs = [measure(site, first, options.jobs) for _ in range(options.repeat)]
            seeds = {f"{name}.seed{seed}": measure(site, seed, options.jobs) for seed in more}
        if options.keep:
            options.keep.mkdir(exist_ok=True)
            for stem, records in ({f"{name}.{number}": each for number, each in enumerate(runs)} | seeds).items():
                replay.write_records(options.keep / f"{stem}.csv", records)
        if runs:
            backfilled = np.mean([record.scheduler == "backfill" for record in runs[0]])
            wait = np.mean([record.start - record.submit for record in runs[0]])
            of = f"{len(runs[0])} jobs, mean wait {wait:.3g} s, {backfilled:.0%} started by the backfill scheduler"
            if site.machine is None:
                show(f"{site.says}: {of}", rows(site, runs))
                continue
            schedules = [replay.schedule_of(records, site.machine) for records in runs]
            show(f"{site.says}: {of}", whole_runs(site, schedules))
            if seeds:
                others = {stem: [replay.schedule_of(records, site.machine)] for stem, records in seeds.items()}
                show("Several workloads", by_seed(site, {f"{name}.0 and on": schedules} | others))
            if site.machine.partitions:
                show(
                    "Share of the pairs of jobs that start in another order, by what the two have in common",
                    pairs(site, schedules),
                )
            if runs[0][0].on and not site.machine.preempts_by_qos:
                show("Decisions in the same state", decisions(site, runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
