"""What other dispatchers would do to a queue: a twin of its machine goes on from what can be seen of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.decision import JobKey, NodeRun
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.core.view import QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import EXEMPT
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.dispatchers.backfill import BackfillRule, rule_of
from asa.lab.forecast.futures import SHORTEST_S, Visible, visible
from asa.lab.simulator import loop
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.limits import COUNTER, KIND, MOST, NO_LIMIT, SUBMITTED_JOBS, counters, whose
from asa.lab.simulator.settings import FIFO, MachineSettings
from asa.lab.simulator.state import ENDED, LOOK, NONE, NOT_SUBMITTED, REFUSALS, StopReason, codes_of, why_refused
from asa.lab.traces.accounting import coded

COMPARED = ("fcfs", "easy", "conservative", "easy:order=sjf,threshold=60h", "easy++")
"""Dispatchers that are compared unless others are named. `easy++` has no log to predict from: it predicts limits, so
that the shortest limit fills a gap first."""

_SETTINGS = MachineSettings(keep_nodes=False)


@dataclass(frozen=True, eq=False, slots=True)
class DispatchOutcome:
    """What a dispatcher would do to the waiting jobs.

    Parameters
    ----------
    starts
        When each would start [s, as the view counts], NaN for one that needs more than the machine has; shape (w,).
    waits
        From their submission on, what they have waited by now included [s], NaN likewise; shape (w,).
    """

    dispatcher: str
    starts: Floats
    waits: Floats

    def to_json(self) -> dict[str, Any]:
        """A row: mean, 90 % quantile and longest of the waits [s], None where no job starts; jobs that never start."""
        waits = self.waits[~np.isnan(self.waits)]
        some = len(waits) > 0
        return {
            "dispatcher": self.dispatcher,
            "mean_wait_s": float(waits.mean()) if some else None,
            "p90_wait_s": float(np.quantile(waits, 0.9)) if some else None,
            "max_wait_s": float(waits.max()) if some else None,
            "never": len(self.waits) - len(waits),
        }


# -- A queue at one moment --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """A machine and its queue at one moment, as the simulator has them.

    Parameters
    ----------
    now
        The moment [s].
    jobs
        First those that run, then those that wait, in order of their priorities; their run times, and times of
        submission, do not count. A wall time that is not known is taken to be the longest one there, or a day.
    submitted
        When they were submitted [s], shape (n,).
    started
        When the running ones started [s], at most `now`, shape (r,).
    nodes
        The nodes of each of these, and how many units they give; with room for all.
    keys
        What the batch system calls the jobs.
    left_out
        What there is besides, but is not in here; a line each.
    """

    now: float
    cluster: Cluster
    jobs: Workload
    submitted: Floats
    started: Floats
    nodes: tuple[tuple[NodeRun, ...], ...]
    keys: tuple[JobKey, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, seen: Visible) -> Snapshot:
        """What a view shows: cores, on a machine of one node."""
        cores = np.concatenate([seen.running_cores, seen.waiting_cores])
        started = np.where(np.isnan(seen.started), seen.now, seen.started)
        walltime = np.concatenate([seen.now - started + seen.left_s, seen.walltime_s])
        # Jobs on nodes that are to go down hold cores that the view does not count.
        cluster = Cluster.of(nodes=1, cores=max(seen.cores, int(seen.running_cores.sum())))
        return cls(
            seen.now,
            cluster,
            Workload.of(submit=np.full(len(cores), seen.now), run=walltime, cores=cores, walltime=walltime),
            np.concatenate([started, seen.submitted]),
            started,
            tuple((NodeRun(0, 0, count),) for count in seen.running_cores.tolist()),
            (*seen.running, *seen.waiting),
        )

    @classmethod
    def of_view(cls, view: QueueView) -> Snapshot:
        """The same, with users and names."""
        made, blank = cls.of(visible(view)), [""] * len(view.running)
        columns: dict[str, Any] = {}
        labels = {}
        for column in ("user", "name"):
            texts = [*blank, *(getattr(job, column) for job in view.queue)]
            columns[column], labels[column] = coded(texts)
        walltime = made.jobs.walltime.copy()
        walltime[[*(False for _ in blank), *(not math.isfinite(job.walltime_s) for job in view.queue)]] = math.nan
        return replace(made, jobs=replace(made.jobs, labels=labels, walltime=walltime, **columns))

    @classmethod
    def of_engine(cls, engine: Engine) -> Snapshot:
        """A simulated machine, with nothing that only the simulator knows of it."""
        state, world, workload = engine.state, engine.state.world[0], engine.workload
        active, waiting = state.active[: world["running"]], state.queue[: world["waiting"]]
        if engine.weights[0] != FIFO:
            waiting = loop.prioritise(state, engine.weights)
        rows = np.concatenate([active, waiting])
        table = state.jobs[rows]
        known = rows < len(workload)  # others were submitted on the way: with the first QOS, for any node
        named = {
            name: np.where(known, getattr(workload, name)[np.where(known, rows, 0)] if len(workload) else 0, UNKNOWN)
            for name in ("qos", "constraint")
        }
        jobs = Workload.of(
            submit=np.full(len(rows), engine.now),
            run=table["estimate"],
            walltime=table["estimate"],
            demands=state.demands,
            resources=engine.cluster.resources,
            labels={**workload.labels, "partition": tuple(engine.cluster.partitions)},
            **{name: table[name] for name in ("units", "kind", "per_node", "number", "user", "group", "name")},
            partition=table["partition"] if engine.cluster.partitions else np.full(len(rows), UNKNOWN),
            **named,
        )
        started = state.jobs["started"][active]
        nodes = tuple(_held(engine, row) for row in active.tolist())
        return cls(engine.now, engine.cluster, jobs, table["submit"], started, nodes, tuple(rows.tolist()))

    def coarse(self) -> Snapshot:
        """The same where nodes that are alike are one node, with what all of them have: so plans are made much faster.

        Jobs then never wait because what is free is scattered over nodes, nor for the most nodes of a partition.
        """
        cluster, groups = self.cluster, dict[Any, int]()
        there = [*(each.nodes for each in cluster.partitions.values()), *cluster.features.values()]
        there += [each.nodes or tuple(range(cluster.nodes)) for each in cluster.windows]
        member = np.zeros((cluster.nodes, len(there)), dtype=np.bool_)
        for column, nodes in enumerate(there):
            member[list(nodes), column] = True
        keys = zip(map(tuple, cluster.capacity.tolist()), map(bytes, member), strict=True)
        group = np.array([groups.setdefault(key, len(groups)) for key in keys])
        capacity = np.zeros((len(groups), len(cluster.resources)), dtype=np.int64)
        np.add.at(capacity, group, cluster.capacity)

        def merged(nodes: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(np.unique(group[list(nodes)]).tolist())

        partitions = {
            name: replace(each, nodes=merged(each.nodes), max_nodes=0) for name, each in cluster.partitions.items()
        }
        machine = replace(
            cluster,
            capacity=capacity,
            names=(),
            partitions=partitions,
            features={name: merged(nodes) for name, nodes in cluster.features.items()},
            windows=tuple(replace(each, nodes=merged(each.nodes)) for each in cluster.windows),
        )
        held = []
        for runs in self.nodes:
            units = np.zeros(len(groups), dtype=np.int64)
            for first, last, count in runs:
                np.add.at(units, group[first : last + 1], count)
            held.append(tuple(NodeRun(node, node, int(units[node])) for node in np.flatnonzero(units).tolist()))
        jobs = replace(self.jobs, per_node=np.zeros(len(self.jobs), dtype=np.int64))
        return replace(self, cluster=machine, jobs=jobs, nodes=tuple(held))

    @property
    def running(self) -> int:
        return len(self.started)

    @property
    def walltime_s(self) -> Floats:
        """Wall times of all jobs [s], shape (n,); those of running ones go on for `SHORTEST_S` at least."""
        walltime = self.jobs.walltime.copy()
        walltime[np.isnan(walltime)] = np.nanmax(walltime, initial=0.0) or DAY
        ran = self.now - self.started
        walltime[: self.running] = ran + np.maximum(walltime[: self.running] - ran, SHORTEST_S)
        return walltime

    @property
    def cores_used(self) -> int:
        return int(self.jobs.cores[: self.running].sum())


def _held(engine: Engine, row: int) -> tuple[NodeRun, ...]:
    """The nodes of a running job."""
    found, slot = list[NodeRun](), int(engine.state.job_states["held"][row])
    while slot != NONE:
        first, last, units, slot = engine.state.slots[slot].tolist()
        found.append(NodeRun(first, last, units))
    return tuple(found)


# -- The twin ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Twin:
    """A queue on a machine of its own, at one moment; it can go on from there as often as one likes.

    Jobs that run already do so, on their nodes; the others stand in the order of the snapshot.

    Parameters
    ----------
    engine
        The machine at that moment, before anything is decided; it is only copied.
    foreseen
        Whether jobs run until their limits, and none comes: then plans are carried out as they are made.

    Examples
    --------
    Six of eight cores are taken for 100 s. The first job needs all; the second could fill the gap before it.

    >>> from asa.core.job import Resources
    >>> from asa.core.view import QueuedJob, QueueView, RunningJob
    >>> from asa.lab.forecast.futures import visible
    >>> waiting = QueuedJob("a", Resources(8), 50.0, -10.0), QueuedJob("b", Resources(2), 60.0, 0.0)
    >>> view = QueueView(0.0, Resources(8), waiting, (RunningJob("c", Resources(6), 100.0),))
    >>> twin = Twin.of(Snapshot.of(visible(view)))
    >>> [twin.under(name).starts.tolist() for name in ("fcfs", "easy")]
    [[100.0, 150.0], [100.0, 0.0]]
    >>> twin.under("fcfs").to_json()["mean_wait_s"]
    130.0
    """

    engine: Engine
    seen: Snapshot
    foreseen: bool

    @classmethod
    def of(
        cls,
        seen: Snapshot,
        *,
        left_s: Floats | None = None,
        run_s: Floats | None = None,
        coming: Workload | None = None,
    ) -> Twin:
        """The queue as it was seen.

        Parameters
        ----------
        left_s
            How long the running jobs go on [s], shape (r,); None: until their limits.
        run_s
            Run times of the waiting jobs [s], shape (w,); None: their limits. No job runs for longer than its limit.
        coming
            Jobs that will be submitted, with the demands and labels of the snapshot's; None: no jobs.

        Raises
        ------
        InvalidInput
            When `left_s` or `run_s` is of another shape, or holds a number that is not finite or below 0; or the
            machine does not know what jobs ask for.
        """
        running, walltime = seen.running, seen.walltime_s
        limits = walltime[:running] - (seen.now - seen.started)
        left, run = _checked("left_s", left_s, limits), _checked("run_s", run_s, walltime[running:])
        jobs = replace(
            seen.jobs,
            submit=np.full(len(seen.jobs), seen.now),
            run=np.concatenate([left, run]),
            walltime=np.concatenate([limits, walltime[running:]]),
        )
        engine = Engine(_followed(jobs, coming), seen.cluster, _SETTINGS)
        _resume(engine, seen, walltime)
        engine.state.jobs["submit"][: len(jobs)] = seen.submitted
        engine.state.world[0]["dirty"] = 1
        by_limits = np.array_equal(left, limits) and np.array_equal(run, walltime[running:])
        return cls(engine, seen, by_limits and not (coming is not None and len(coming)))

    def under(self, dispatcher: Any) -> DispatchOutcome:
        """What a backfilling rule would do; a dispatcher, or its name and options.

        Raises
        ------
        InvalidInput
            When it is not one that compiled loops know.
        UnknownName
            When there is none of this name.
        """
        rule, engine = rule_of(dispatcher), self.engine.copy()
        # It would make the same plan again at every end.
        planned = self.foreseen and rule == BackfillRule(math.inf) and engine.state.world[0]["slots"] >= 0
        planned = planned and not len(engine.state.limits)
        if planned:
            engine.dispatch(rule, promise=True, most=1)
        else:
            while engine.dispatch(rule) is not StopReason.OVER:
                pass
        jobs = engine.state.jobs[self.seen.running : len(self.seen.jobs)]
        starts: Floats = np.where(planned & np.isnan(jobs["started"]), jobs["planned"], jobs["started"])
        return DispatchOutcome(str(dispatcher), starts, starts - self.seen.submitted[self.seen.running :])

    def waits_for(self, place: int) -> str:
        """What keeps the waiting job at this place from starting now, apart from those before it.

        A limit, by name; ``"nodes"``, of those that it may have; ``"its turn"``, where there is room for it; or why the
        machine will never start it.
        """
        seen, row = self.seen, self.seen.running + place
        state = self.engine.copy().state  # where it finds nodes, it writes them down
        if state.job_states["status"][row] == ENDED:
            return f"never starts: {REFUSALS[why_refused(seen.jobs.take([row]), seen.cluster)[0]]}"
        loop.kept_back(state)  # counts what limits look at
        if (limit := loop.limited_by(state, row)) != NONE:
            _, known = whose(self.engine.workload, codes_of("qos", self.engine.workload, seen.cluster), seen.cluster)
            return f"limit of {counters(seen.cluster, known)[state.limits[limit, COUNTER]].words}"
        return "its turn" if loop.find(state, row) else "nodes"


def _followed(jobs: Workload, coming: Workload | None) -> Workload:
    """These jobs, and then others."""
    if coming is None or not len(coming):
        return jobs
    if coming.labels != jobs.labels or not np.array_equal(coming.demands, jobs.demands):
        raise InvalidInput("jobs to come with the demands and labels of those that are there expected")
    at = float(jobs.submit[0]) if len(jobs) else -math.inf
    columns = {
        item.name: np.concatenate([getattr(jobs, item.name), getattr(coming, item.name)])
        for item in fields(Workload)
        if item.name not in ("demands", "resources", "labels", "after", "moldable")
    }
    columns["submit"] = np.maximum(columns["submit"], at)
    after = np.where(coming.after == UNKNOWN, UNKNOWN, coming.after + len(jobs))
    return Workload.of(
        **columns,
        after=np.concatenate([jobs.after, after]),
        demands=jobs.demands,
        resources=jobs.resources,
        labels=jobs.labels,
    )


def _resume(engine: Engine, seen: Snapshot, walltime_s: Floats) -> None:
    """Let all jobs of this instant be submitted, and the first ones run on their nodes, as they do.

    They are there: so no limit of submitted jobs keeps them out, and none that run are refused.
    """
    count, now = seen.running, engine.now
    state = engine.state
    of_submitted = state.limits[:, KIND] == SUBMITTED_JOBS
    most, exempt = state.limits[of_submitted, MOST], state.preemption[:, EXEMPT].copy()
    state.limits[of_submitted, MOST], state.preemption[:, EXEMPT] = NO_LIMIT, 0.0
    state.job_states["status"][:count] = NOT_SUBMITTED
    engine.dispatch(BackfillRule(depth=0), now, most=0)
    for row, runs in enumerate(seen.nodes):
        engine.room()
        engine.state.runs[: len(runs)] = runs
        loop.leave(engine.state, row)
        loop.start(engine.state, row, len(runs))
    state = engine.state
    state.limits[of_submitted, MOST], state.preemption[:, EXEMPT] = most, exempt
    jobs, states, ran = state.jobs[:count], state.job_states[:count], now - seen.started
    jobs["started"] = seen.started  # by which plans go, and who is preempted
    jobs["walltime"] = jobs["estimate"] = jobs["predicted"] = states["stop"] = walltime_s[:count]
    states["run"] += ran
    active = state.active[:count].copy()
    ends = state.jobs["started"][active] + state.jobs["estimate"][active]
    order = np.argsort(ends, kind="stable")
    state.active[:count], state.ends[:count] = active[order], ends[order]
    if len(exempt):
        for at in (seen.started + exempt[jobs["standing"]]).tolist():
            if at > now:
                engine.room()
                loop.push(engine.state, at, LOOK, 0)


def _checked(name: str, given: Floats | None, limits: Floats) -> Floats:
    """Run times [s], no longer than the limits."""
    if given is None:
        return limits
    if given.shape != limits.shape or not (np.isfinite(given) & (given >= 0)).all():
        raise InvalidInput(f"{name}: {len(limits)} finite numbers of at least 0 expected, one for each job")
    return np.minimum(given, limits)
