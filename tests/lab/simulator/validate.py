"""Checks of simulations, independent of the engine: laws of schedules, and the log replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.job import JobState
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.limits import (
    CORE_MINUTES,
    GPU_MINUTES,
    SUBMITTED_JOBS,
    WALL_MINUTES,
    WORDS,
    Counter,
    bounds,
    longest_s,
    whose,
)
from asa.lab.simulator.state import FINISHED, REQUEUED, STARTED, amounts, codes_of, walltimes

# -- Laws -------------------------------------------------------------------------------------------------------------

_COMPLETED, _REFUSED = OUTCOMES.index(JobState.COMPLETED), OUTCOMES.index(JobState.FAILED)


def violations(schedule: Schedule) -> list[str]:
    """Every law that a schedule breaks, in words; empty when it keeps them all.

    The laws: no job starts before it was submitted, or ends before it starts; one that completed ran for its run time,
    which a moldable job has of its width, a malleable one of all that it had; those that ran hold as many units as they
    asked for, moldable ones as many as one of their widths has, on nodes that there are, at most `per_node` on a node;
    and no node gives more than it has, unless the resource is shareable. A job that ran kept the limits of its
    partition: wall time, nodes, and which they are; its nodes have the features that it asks for; none started on nodes
    that a window keeps from it; and no QOS, account or user had more than its limits when a job started or came. Where
    jobs ran is checked only if the schedule tells.
    A schedule of a machine whose nodes failed, whose jobs changed speed, or where a resize takes time, breaks the law
    of run times.

    Examples
    --------
    >>> from asa.lab.core.cluster import Cluster
    >>> from asa.lab.core.workload import Workload
    >>> from asa.lab.simulator.run import simulate
    >>> violations(simulate(Workload.of(submit=[0], run=[5], cores=[1], walltime=[9]), Cluster.of(nodes=1)))
    []
    """
    laws = _times, _amounts, _places, _partitions, _features, _windows, _limits
    return [wrong for law in laws for wrong in law(schedule)]


def _times(schedule: Schedule) -> Iterator[str]:
    jobs = schedule.workload
    for row in np.flatnonzero(schedule.ran & (schedule.start < jobs.submit)):
        yield f"job {jobs.number[row]} starts at {schedule.start[row]:g} s, before it is submitted"
    for row in np.flatnonzero(schedule.end < schedule.start):
        yield f"job {jobs.number[row]} ends at {schedule.end[row]:g} s, before it starts"
    length, run = schedule.end - schedule.start, jobs.run.copy()
    if schedule.units is not None:
        rows, _, _, units = schedule.pieces
        for piece in np.flatnonzero(units != jobs.units[rows]).tolist():
            job, width = int(rows[piece]), int(units[piece])
            if width not in jobs.widths(job):
                yield f"job {jobs.number[job]} has {width} units: it may have {jobs.widths(job)}"
        for job in np.unique(schedule.resizes.job).tolist() if schedule.resizes else ():
            if jobs.moldable is None or not jobs.moldable.malleable[job]:
                yield f"job {jobs.number[job]} is resized: it is not malleable"
        some = length > 0
        run[some] *= length[some] / schedule.run_as_asked[some]
    wrong = (schedule.outcome == _COMPLETED) & ~np.isclose(length, run, rtol=1e-9, atol=1e-6)
    for row in np.flatnonzero(wrong):
        yield f"job {jobs.number[row]} completed after {length[row]:g} s instead of {run[row]:g} s"


def _amounts(schedule: Schedule) -> Iterator[str]:
    """The machine as a whole: what all running jobs take at any time."""
    jobs, cluster = schedule.workload, schedule.cluster
    pieces = schedule.pieces
    job, begin, end, units = (column[pieces[2] > pieces[1]] for column in pieces)
    times = np.concatenate([end, begin])  # at equal times, ends come first
    order = np.argsort(times, kind="stable")
    for column, name in enumerate(jobs.resources):
        if name not in cluster.resources or name in cluster.shareable:
            continue
        amount = units * jobs.demands[jobs.kind[job], column]
        used = np.cumsum(np.concatenate([-amount, amount])[order])
        there = int(cluster.capacity[:, cluster.resources.index(name)].sum())
        if len(used) and used.max() > there:
            yield f"{int(used.max())} {name} are in use at {times[order][np.argmax(used)]:g} s: there are {there}"


def _places(schedule: Schedule) -> Iterator[str]:
    """Every node for itself."""
    if schedule.placements is None:
        return
    jobs, cluster = schedule.workload, schedule.cluster
    held = np.zeros(len(jobs), dtype=np.int64)
    on_node = dict[tuple[int, int], int]()  # units of a job on a node, over all its runs of nodes
    changes: dict[int, list[tuple[float, int, int, int]]] = {}
    for row, run in schedule.placements:
        held[row] += run.units * (run.last - run.first + 1)
        if not 0 <= run.first <= run.last < cluster.nodes:
            number, last = jobs.number[row], cluster.nodes - 1
            yield f"job {number} holds nodes {run.first} to {run.last}: nodes go from 0 to {last}"
            continue
        ran = schedule.ran[row] and schedule.end[row] > schedule.start[row]
        for node in range(run.first, run.last + 1):
            on_node[row, node] = on_node.get((row, node), 0) + run.units
            if ran:
                changes.setdefault(node, []).append((schedule.start[row], 1, row, run.units))
                changes.setdefault(node, []).append((schedule.end[row], 0, row, -run.units))
    for (row, node), units in on_node.items():
        if 0 < jobs.per_node[row] < units:
            name = cluster.name(node)
            yield f"job {jobs.number[row]} has {units} units on node {name}: {jobs.per_node[row]} at most"
    wanted = jobs.units if schedule.units is None else schedule.units
    for other in np.flatnonzero(schedule.ran & (held != wanted)):
        yield f"job {jobs.number[other]} holds {held[other]} units: it asked for {wanted[other]}"
    columns = [(c, n) for c, n in enumerate(jobs.resources) if n in cluster.resources and n not in cluster.shareable]
    for node, steps in sorted(changes.items()):
        for column, name in columns:
            there, used = int(cluster.capacity[node, cluster.resources.index(name)]), 0
            for at, _, row, units in sorted(steps):
                used += units * int(jobs.demands[jobs.kind[row], column])
                if used > there:
                    yield f"node {cluster.name(node)} gives {used} {name} at {at:g} s: it has {there}"
                    break


def _partitions(schedule: Schedule) -> Iterator[str]:
    """Every job in its partition."""
    jobs, partitions = schedule.workload, schedule.cluster.partitions
    if not partitions:
        return
    names = [jobs.label("partition", row) or next(iter(partitions)) for row in range(len(jobs))]
    used: dict[int, set[int]] = {}
    for row, run in schedule.placements or ():
        used.setdefault(row, set()).update(range(run.first, run.last + 1))
    for row in np.flatnonzero(schedule.ran).tolist():
        limits, nodes, job = partitions[names[row]], used.get(row, set()), f"job {jobs.number[row]}"
        if outside := nodes - set(limits.nodes):
            yield f"{job} is on node {schedule.cluster.name(min(outside))}, which is not of partition {names[row]!r}"
        if 0 < limits.max_nodes < len(nodes):
            yield f"{job} has {len(nodes)} nodes: partition {names[row]!r} gives {limits.max_nodes} to a job"
        if jobs.walltime[row] > limits.max_time_s:
            yield f"{job} asks for {jobs.walltime[row]:g} s: partition {names[row]!r} allows {limits.max_time_s:g} s"


def _features(schedule: Schedule) -> Iterator[str]:
    """Every job on nodes that have what it asks for."""
    jobs, cluster = schedule.workload, schedule.cluster
    partition = codes_of("partition", jobs, cluster)
    for row, run in schedule.placements or () if cluster.features else ():
        if constraint := jobs.label("constraint", row):
            lacking = ~cluster.allowed(int(partition[row]), constraint)[run.first : run.last + 1]
            for node in np.flatnonzero(lacking)[:1] + run.first:
                yield f"job {jobs.number[row]} is on node {cluster.name(node)}, which is not {constraint!r}"


def _windows(schedule: Schedule) -> Iterator[str]:
    """Every job beside the windows that keep nodes from it."""
    jobs, cluster = schedule.workload, schedule.cluster
    until = schedule.start + np.nan_to_num(walltimes(jobs, cluster), nan=np.inf)
    for row, run in schedule.placements or () if cluster.windows else ():
        for window in cluster.windows:
            nodes = set(window.nodes or range(cluster.nodes)) & set(range(run.first, run.last + 1))
            within = window.start < until[row] and schedule.start[row] < window.end
            if nodes and within and jobs.label("user", row) not in window.users:
                yield (
                    f"job {jobs.number[row]} starts at {schedule.start[row]:g} s and may run until {until[row]:g} s: "
                    f"window {window.name!r} keeps some of its nodes from {window.start:g} to {window.end:g} s"
                )


def _limits(schedule: Schedule) -> Iterator[str]:
    """Every QOS, account and user: what they have when one of their jobs starts, or comes, that they bound.

    What is used in all is left out: how it decays, the machine's priorities say.
    """
    jobs, cluster = schedule.workload, schedule.cluster
    if not cluster.has_limits:
        return
    number, known = whose(jobs, codes_of("qos", jobs, cluster), cluster)
    longest = np.array([longest_s(cluster, each)[0] for each in known])[number]
    walltime = walltimes(jobs, cluster)
    for row in np.flatnonzero(schedule.ran & (walltime > longest)).tolist():
        yield f"job {jobs.number[row]} asks for {jobs.walltime[row]:g} s: a limit allows {longest[row]:g} s"
    has, there = amounts(jobs, cluster), ~(np.isnan(schedule.start) & (schedule.outcome == _REFUSED))
    limits: dict[Counter, Floats] = {}
    for place, each in enumerate(known):
        for counter, limit in bounds(cluster, each).items():
            most = limits.setdefault(counter, np.full(len(known), np.nan))
            most[place] = np.inf if limit.most is None else limit.most
    for counter, most in sorted(limits.items(), key=lambda each: each[0].words):
        if np.isfinite(most).any() and counter.kind not in (CORE_MINUTES, GPU_MINUTES, WALL_MINUTES):
            waits = counter.kind == SUBMITTED_JOBS
            mine = np.flatnonzero(~np.isnan(most[number]) & (there if waits else schedule.ran))
            begin, amount = (jobs.submit if waits else schedule.start)[mine], has[mine, counter.kind]
            end, until = schedule.end[mine], None
            if counter.kind >= CORE_MINUTES:
                until = np.where(np.isnan(walltime[mine]), end, begin + walltime[mine])
            yield from _most(counter, end, begin, amount, most[number[mine]], until)


def _most(
    counter: Counter, end: Floats, begin: Floats, amount: Ints, most: Floats, until: Floats | None
) -> Iterator[str]:
    """Where the sum of the amounts of these jobs is above the limit of one that begins; infinite: it has none. Amounts
    count times the minutes that are left `until` then [s], where that is given."""
    count, when = len(most), np.r_[end, begin]
    order = np.lexsort((np.r_[np.zeros(count), 1 + np.isinf(most)], when))  # those without come last
    used = np.cumsum(np.r_[-amount, amount][order]).astype(np.float64)
    if until is not None:
        left = np.cumsum((np.r_[-amount, amount] * np.r_[until, until])[order]) - used * when[order]
        used = np.floor(left / 60 + 1e-6)
    over = used - np.r_[np.zeros(count), most][order]
    over[order < count] = -np.inf
    if len(over) and over.max() > 0:
        at = int(np.argmax(over))
        row = order[at] - count
        what, allowed = WORDS[counter.kind], int(most[row])
        yield f"{counter.words} has {used[at]:.0f} {what} at {begin[row]:g} s: {allowed} allowed"


# -- The log ----------------------------------------------------------------------------------------------------------

KINDS = ("submitted", "eligible", "started", "finished", "requeued", "node up", "node down", "speed", "resized")
"""What the kinds of lines are called, by code."""


class Line(NamedTuple):
    """Something that happened: when [s], what, and to which job (or node). `value` is an end's outcome, or a speed."""

    at: float
    kind: str
    what: int
    value: float


def lines(engine: Engine, after: int = 0) -> Iterator[Line]:
    """What happened on a machine, from line `after` on, in order."""
    s = engine.state
    for line in s.log[after : s.world[0]["lines"]]:
        yield Line(float(line["at"]), KINDS[line["kind"]], int(line["what"]), float(line["value"]))


def replay(log: Iterable[Line], jobs: int) -> tuple[Floats, Floats]:
    """Last start and end of each job [s], NaN where there was none, from the log alone; shapes (n,)."""
    start, end = np.full(jobs, np.nan), np.full(jobs, np.nan)
    for line in log:
        if line.kind == KINDS[STARTED]:
            start[line.what] = line.at
        elif line.kind == KINDS[FINISHED]:
            end[line.what] = line.at
        elif line.kind == KINDS[REQUEUED]:
            start[line.what] = np.nan
    return start, end
