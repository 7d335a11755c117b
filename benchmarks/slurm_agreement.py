"""A few hundred jobs on a real Slurm and in the simulator: in which order they start, as tables.

    python -m benchmarks.slurm_agreement --keep runs               # 15 minutes for each of five sites
    python -m benchmarks.slurm_agreement --from runs               # the tables once more

It boots clusters of its own (see docs/howto/test-cluster.md), eight nodes of one core each, one for each way to
configure a site. Jobs sleep. The simulator gets them as they were submitted, with the run times that they had on Slurm.
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
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.view import QueuedJob
from asa.lab.core.schedule import Schedule
from asa.lab.dispatchers.backfill import Backfill
from asa.lab.metrics.agreement import displacement, equal_positions, kendall, spearman
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import Multifactor
from benchmarks.measure import show
from tests.cluster import host, layout
from tests.cluster.cluster import running
from tests.integration import replay

LOAD, BACKLOG, RUN_S = 0.9, 30, (2.0, 16.0)
DISPATCHERS = ("fcfs", "easy", "backfill:depth=2", "backfill:depth=4", "backfill:depth=8", "conservative")
LOOKS_S, CALCULATES_S = 1.0, 60.0
"""How often Slurm looks at its queue here, and how often it calculates priorities [s]: the least that it takes."""

_SIZE, _SHARE, _HOUR = 12_000, 40_000, 3600.0
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
}


def measure(site: Site, seed: int, count: int) -> list[replay.Record]:
    """Run the jobs on a Slurm that is configured so."""
    settings = {"SchedulerParameters": replay.SCHEDULER, **site.settings}
    config = host.configure(nodes=replay.NODES, cores_per_node=1, settings=tuple(settings.items()), **site.cluster)
    jobs = replay.sleepers(seed, count, run_s=RUN_S, load=LOAD, backlog=BACKLOG, users=2)
    with running(config) as cluster:
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
    seldom = dataclasses.replace(slurm, workload=replay.ticking(slurm.workload, LOOKS_S))
    named = replay.on_named_nodes(slurm)

    def compare(what: str, dispatcher: Any, like: Schedule = slurm) -> dict[str, Any]:
        done = simulate(like.workload, like.cluster, dispatcher, overrun="allow", priority=site.priority)
        return row(slurm, what, done.start)

    table = [row(slurm, "(order of submission)", slurm.workload.submit)]
    table += [compare(rule, rule) | steps(slurm, rule, site.priority) for rule in DISPATCHERS]
    for rule in ("easy", "conservative"):
        table.append(compare(f"{rule}, looking every second", rule, seldom))
        table.append(compare(f"{rule}, on named nodes", rule, named) | steps(named, rule, site.priority))
    if isinstance(site.priority, Multifactor):
        aged = Backfill(math.inf, order=minute_old(site.priority, slurm))
        table.append({"simulator": "the last, priorities a minute old", **steps(named, aged, "fifo")})
    return table + [row(slurm, "(Slurm once more)", other.start) for other in others]


def minute_old(model: Multifactor, slurm: Schedule) -> Callable[[QueuedJob, float], float]:
    """Slurm's priorities where they are calculated once a minute; a cluster here is up just before its first job."""
    jobs, work = slurm.workload, slurm.workload.run * slurm.workload.cores
    user = dict(enumerate(jobs.user.tolist()))

    @functools.cache
    def shares(at: float) -> Floats:
        used = np.bincount(jobs.user, work * (slurm.end <= at), minlength=2)
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
    parser.add_argument("--seed", type=int, default=1)
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
        else:
            runs = [measure(site, options.seed, options.jobs) for _ in range(options.repeat)]
        for number, records in enumerate(runs if options.keep else ()):
            options.keep.mkdir(exist_ok=True)
            replay.write_records(options.keep / f"{name}.{number}.csv", records)
        if runs:
            backfilled = np.mean([record.scheduler == "backfill" for record in runs[0]])
            wait = np.mean([record.start - record.submit for record in runs[0]])
            of = f"{len(runs[0])} jobs, mean wait {wait:.3g} s, {backfilled:.0%} started by the backfill scheduler"
            show(f"{site.says}: {of}", rows(site, runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
