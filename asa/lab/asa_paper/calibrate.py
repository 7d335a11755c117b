"""A site model out of a site's log, and how well it does on a part of the log that it was not made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.command import table
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.metrics.schedule import by_class, class_names, size_classes, spread, utilisation
from asa.lab.simulator.run import simulate
from asa.lab.simulator.state import REFUSALS, why_refused
from asa.lab.traces.patterns import work
from asa.lab.traces.records import placed
from asa.lab.traces.site import SiteModel, fit_site

SLACK_S = 60.0
"""Added to mean waits before they are compared as ratios [s]: whether it was one second or ten does not matter."""
FEWEST = 30
"""Size classes of a log with fewer jobs are not compared."""


@dataclass(frozen=True)
class WaitSample:
    """What jobs waited and how busy the machine was: in a log, or in a simulation.

    Parameters
    ----------
    wait, cores
        Of each job, shape (n,); waits in s.
    load
        Work that was offered, likewise.
    """

    wait: Floats
    cores: Ints
    utilisation: float
    load: float


GONE = {
    "unknown-partition": "of a partition that is not there",
    "unknown-qos": "of a QOS that is not there",
    "unreadable-constraint": "of a constraint that cannot be read",
    "unknown-resource": "of a resource that is not there",
}
"""What is said of jobs that `asa.lab.traces.records.placed` finds."""


def taken(log: Workload, cluster: Cluster) -> tuple[Workload, dict[str, int]]:
    """The jobs of a log that a machine has all for that they name, and takes, and how many it does not, by reason.

    Raises
    ------
    InvalidInput
        When none is left.
    """
    left, counted = dict[str, int](), np.zeros(len(log), dtype=bool)
    log, gone = placed(log, cluster)
    for rule, wrong in gone.items():
        left[GONE[rule]] = int((wrong & ~counted).sum())
        counted |= wrong
    if cluster.partitions or cluster.has_limits or cluster.features or len(cluster.resources) > 1:
        why = why_refused(log, cluster)
        left |= {reason: int((why == code).sum()) for code, reason in enumerate(REFUSALS) if code}
        log = log.take(why == 0)
    if not len(log):
        raise InvalidInput(f"the machine takes no job of the log: {_counts(left)}")
    return log, {reason: count for reason, count in left.items() if count}


def observed(log: Workload, cluster: Cluster, begin: float, until: float) -> WaitSample:
    """What a log tells of the jobs submitted from `begin` to `until` [s] whose waits it knows."""
    known = log.take(~np.isnan(log.wait))
    jobs = known.between(begin, until)
    if len(jobs) < FEWEST:
        raise InvalidInput(f"only {len(jobs)} jobs with known waits in a part of the log: at least {FEWEST} expected")
    start = known.submit + known.wait
    used = utilisation(start, start + known.run, known.cores, cluster.cores, begin=begin, until=until)
    return WaitSample(jobs.wait, jobs.cores, used, work(log.between(begin, until)) / (cluster.cores * (until - begin)))


def simulated(site: SiteModel, duration_s: float, seeds: range, warmup_s: float) -> WaitSample:
    """What a model says, of jobs submitted after the warm-up; all seeds together."""
    found = []
    for seed in seeds:
        workload = site.workload(warmup_s + duration_s, seed)
        rules = {"dispatcher": site.dispatcher, "priority": site.priority}
        found.append(_run(workload, site.cluster(), warmup_s, warmup_s + duration_s, **rules))
    return WaitSample(
        np.concatenate([each.wait for each in found]),
        np.concatenate([each.cores for each in found]),
        float(np.mean([each.utilisation for each in found])),
        float(np.mean([each.load for each in found])),
    )


def replayed(
    log: Workload, cluster: Cluster, begin: float, until: float, *, warmup_s: float, dispatcher: str, priority: str
) -> WaitSample:
    """What the simulator makes of a log's own jobs from `begin` to `until` [s]; those of the warm-up before run first.

    Jobs without a request count as if they had asked for what they ran.
    """
    jobs = log.between(begin - warmup_s, until)
    asked = np.where(np.isnan(jobs.walltime), np.maximum(jobs.run, 1.0), jobs.walltime)
    return _run(replace(jobs, walltime=asked), cluster, begin, until, dispatcher=dispatcher, priority=priority)


def distance(one: WaitSample, other: WaitSample, cores: int) -> tuple[float, float]:
    """How much longer (and by how much wrong) mean waits are than the other's: mean logarithms over the size classes.

    Weighted by the other's jobs; 0 for the same waits. The first number may cancel out over the classes, the second
    does not.
    """
    bounds = size_classes(cores)
    pairs = list(zip(by_class(one.wait, one.cores, bounds), by_class(other.wait, other.cores, bounds), strict=True))
    pairs = [(a, b) for a, b in pairs if a.count and b.count >= FEWEST]
    if not pairs:
        pairs = [(spread(one.wait), spread(other.wait))]
    weights = np.array([b.count for _, b in pairs]) / sum(b.count for _, b in pairs)
    logs = np.array([math.log((a.mean + SLACK_S) / (b.mean + SLACK_S)) for a, b in pairs])
    return float(weights @ logs), float(weights @ np.abs(logs))


def _run(jobs: Workload, cluster: Cluster, begin: float, until: float, *, dispatcher: str, priority: str) -> WaitSample:
    """Jobs submitted from `begin` until before `until` [s], and the machine between these."""
    schedule = simulate(jobs, cluster, dispatcher, priority=priority, overrun="allow", keep_nodes=False)
    ran = schedule.ran
    inside = ran & (jobs.submit >= begin) & (jobs.submit < until)
    used = utilisation(schedule.start[ran], schedule.end[ran], jobs.cores[ran], cluster.cores, begin=begin, until=until)
    load = work(jobs.between(begin, until)) / (cluster.cores * (until - begin))
    return WaitSample(schedule.wait[inside], jobs.cores[inside], used, load)


LONGEST_S = 60 * DAY
"""Longest stretch that is simulated to find the load [s]."""
MOST_LOAD = 1.1
"""Highest load that is tried."""
STEP = 0.85
"""From one load to the next while waits are always too long, or always too short."""
NEAR = 0.05
"""Waits that are so much too long or short, on a logarithmic scale, are near enough."""


@dataclass(frozen=True)
class SiteCalibration:
    """A site model and how it compares.

    Parameters
    ----------
    factor
        Its load relative to that of the part of the log it was made from.
    before, unseen
        What that part and the rest of the log tell.
    model, replay
        What the model says of the rest; and what the simulator makes of the rest's own jobs, so that one can tell the
        dispatcher's error from the workload's.
    left_out
        How many jobs of the log the machine has no place for, by reason.
    """

    site: SiteModel
    factor: float
    before: WaitSample
    unseen: WaitSample
    model: WaitSample
    replay: WaitSample
    left_out: Mapping[str, int] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Waits [s] by size class, and of all jobs."""
        bounds = size_classes(self.site.cores)
        seen = {name: getattr(self, name) for name in ("unseen", "model", "replay", "before")}
        found = {name: [spread(each.wait), *by_class(each.wait, each.cores, bounds)] for name, each in seen.items()}
        rows = []
        for k, cores in enumerate(["all", *class_names(bounds)]):
            if found["unseen"][k].count < FEWEST:
                continue
            row: dict[str, Any] = {"cores": cores, "jobs": found["unseen"][k].count}
            for name, spreads in found.items():
                for what in ("mean", "median", "p90"):
                    value = getattr(spreads[k], what)
                    row[f"{name}_{what}_wait_s"] = None if math.isnan(value) else round(value, 1)
            rows.append(row)
        return rows

    def summary(self) -> dict[str, Any]:
        """Loads, utilisations, and by which factor mean waits are missed: over the size classes, weighted by jobs."""
        found: dict[str, Any] = {"site": self.site.name, "load_factor": round(self.factor, 4)}
        for name in ("before", "unseen", "model", "replay"):
            seen: WaitSample = getattr(self, name)
            found |= {f"{name}_load": round(seen.load, 4), f"{name}_utilisation": round(seen.utilisation, 4)}
            if name != "unseen":
                found[f"{name}_off_by"] = round(math.exp(distance(seen, self.unseen, self.site.cores)[1]), 3)
        return found | ({"left_out": _counts(self.left_out)} if self.left_out else {})

    def to_json(self) -> dict[str, Any]:
        """All of it, the model included."""
        return {**self.summary(), "rows": self.rows(), "model": self.site.to_dict()}

    def __str__(self) -> str:
        shown = "mean_wait_s", "median_wait_s", "p90_wait_s"
        kept = [
            {"cores": row["cores"], "jobs": row["jobs"]}
            | {
                f"{who} {what.split('_')[0]}": row[f"{who}_{what}"]
                for what in shown
                for who in ("unseen", "model", "replay")
            }
            for row in self.rows()
        ]
        return "\n".join([table(kept, "no job in the unseen part"), "", *_lines(self.summary())])


def calibrate(
    log: Workload,
    cluster: Cluster,
    name: str,
    *,
    dispatcher: str = "easy",
    priority: str = "fifo",
    share: float = 0.7,
    seeds: int = 5,
    tries: int = 7,
    warmup_s: float = 7 * DAY,
    progress: Callable[[float], None] | None = None,
) -> SiteCalibration:
    """Make a model of a site from the first part of its log, and compare it with the rest.

    The mixture of jobs, their arrivals and the load are measured (`asa.lab.traces.site.fit_site`). The load is then
    varied until the simulated mean waits are as long as those of the same part of the log: over the size classes,
    weighted by their jobs, on a logarithmic scale. Nothing of the rest of the log is used for the model.

    Parameters
    ----------
    log
        Jobs with observed waits; others are left out of what is compared. So are jobs that the machine has no
        partition or QOS for, or would refuse by their limits.
    dispatcher, priority
        How the simulated machine is run.
    share
        How much of the log's time makes the model; in (0, 1).
    seeds, tries
        Workloads simulated for each load, and loads tried; >= 1.
    warmup_s
        What is left out of the begin of each simulation [s], and simulated before the unseen part's own jobs; >= 0.

    Raises
    ------
    InvalidInput
        When the log has no observed waits, a part of it is too small, or a number is out of its bounds.
    """
    if not 0 < share < 1 or seeds < 1 or tries < 1 or warmup_s < 0:
        raise InvalidInput(
            f"share={share!r}, seeds={seeds!r}, tries={tries!r}, warmup_s={warmup_s!r}: a share in (0, 1), at least "
            "one seed and one try, and no negative warm-up expected"
        )
    if np.isnan(log.wait).all():
        raise InvalidInput("the log tells of no waits: there is nothing to calibrate a model to")
    log, left = taken(log, cluster)
    tell = progress or (lambda done: None)
    cut = float(log.submit[0] + share * (log.submit[-1] - log.submit[0]))
    begin, until = float(log.submit[0]), float(np.nextafter(log.submit[-1], math.inf))
    before, unseen = observed(log, cluster, begin, cut), observed(log, cluster, cut, until)
    measured = fit_site(log.between(begin, cut), cluster, name, dispatcher=dispatcher, priority=priority)
    span = min(cut - begin, LONGEST_S)

    def longer(factor: float) -> float:
        """By how much waits are too long under a load; the median of the seeds, for some are struck by luck."""
        site = replace(measured, load=measured.load * factor)
        made = [simulated(site, span, range(seed, seed + 1), warmup_s) for seed in range(seeds)]
        return float(np.median([distance(each, before, cluster.cores)[0] for each in made]))

    tried: list[tuple[float, float]] = []
    while len(tried) < tries and not (tried and min(abs(off) for _, off in tried) < NEAR):
        factor = next_factor(tried, min(1.0, MOST_LOAD / measured.load), MOST_LOAD / measured.load)
        tried.append((factor, longer(factor)))
        tell(len(tried) / (tries + 2))
    best = min(tried, key=lambda each: abs(each[1]))[0]
    site = replace(measured, load=round(measured.load * best, 6), note=f"{measured.note}, calibrated to its waits")
    model = simulated(site, until - cut, range(seeds, 2 * seeds), warmup_s)
    tell((tries + 1) / (tries + 2))
    replay = replayed(log, cluster, cut, until, warmup_s=warmup_s, dispatcher=dispatcher, priority=priority)
    tell(1.0)
    return SiteCalibration(site, best, before, unseen, model, replay, left)


def next_factor(tried: Sequence[tuple[float, float]], first: float, most: float) -> float:
    """Which load to try next, from pairs of loads and by how much waits were too long under them.

    Where both too short and too long waits were found, the line through the nearest two says; else a step down or up.

    >>> next_factor([(1.0, 0.4)], first=1.0, most=1.5), round(next_factor([(1.0, 0.4), (0.85, -0.2)], 1.0, 1.5), 2)
    (0.85, 0.9)
    """
    if not tried:
        return first
    short, long = [each for each in tried if each[1] <= 0], [each for each in tried if each[1] > 0]
    if not short:
        return min(tried)[0] * STEP
    if not long:
        return min(max(tried)[0] / STEP, most)
    (low, under), (high, over) = max(short), min(long)
    if low >= high:  # chance has them cross
        return math.sqrt(low * high)
    place = min(max(-under / (over - under), 0.1), 0.9)
    return float(low * (high / low) ** place)


def _counts(left: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left.items() if count)


def _lines(summary: dict[str, Any]) -> list[str]:
    return [f"{key.replace('_', ' ')}: {value}" for key, value in summary.items()]
