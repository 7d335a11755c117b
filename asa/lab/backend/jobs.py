"""One's own jobs on a simulated machine: submitted, refused, changed, found again, and how they stand in Slurm's words.

Throttles of job arrays, and requests for nodes that are not to be had, are settled here, whenever something happens
to a job and before the dispatcher is asked again: the engine knows gates and no arrays. Such jobs go on ageing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from asa.backends.queue import throttle_problem
from asa.core.errors import InvalidInput
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Options,
    QueueRegime,
    Reason,
    Refused,
    Resources,
)
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import Workload
from asa.lab.simulator import loop, operations
from asa.lab.simulator import state as codes
from asa.lab.simulator.engine import Engine

# -- Jobs -------------------------------------------------------------------------------------------------------------

_ENDS = {
    JobState.TIMEOUT: Reason.TIME_LIMIT,
    JobState.NODE_FAIL: Reason.NODE_FAIL,
    JobState.CANCELLED: Reason.NEVER,  # one that a user cancelled has a reason of its own
}
_GATES = (
    (codes.DEPENDENCY, Reason.DEPENDENCY),
    (codes.HOLD, Reason.HELD),
    (codes.BEGIN, Reason.BEGIN),
    (codes.BARRED, Reason.BARRED),
    (codes.THROTTLED, Reason.THROTTLED),
)


@dataclass
class Array:
    """A job array: its `number`, and how many of its elements may run at a time."""

    number: int
    throttle: int = 1


@dataclass
class Job:
    """The books of a job: `row` in the engine's tables, `nodes` since it last started, with its `cores` on each,
    `why` it ended, if known.

    `array` is the one that it is an element of, `parked` whether it asks for nodes that are not to be had.
    """

    row: int
    request: JobRequest
    handle: JobHandle
    state: JobState = JobState.PENDING
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    exit_code: int | None = None
    why: str = ""
    array: Array | None = None
    parked: bool = False

    @property
    def needs(self) -> Resources:
        return self.request.resources


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job as identical units: what one takes of the cluster's resources, and how many may share a node (0: all)."""

    units: int
    need: tuple[int, ...]
    per_node: int = 0


def in_single_cores(workload: Workload) -> bool:
    """Whether other people's jobs take single cores, wherever they are: then one's own do, too."""
    demands = workload.demands[np.unique(workload.kind)]
    return bool(len(demands) and (demands[:, 0] == 1).all() and (demands[:, 1:] == 0).all())


def shape_of(
    needs: Resources, cluster: Cluster, single_cores: bool, partition: int = 0, constraint: str = ""
) -> JobShape:
    """A request as units, for the cluster's partition of that number and nodes with such features.

    Where other people's jobs take single cores, wherever they are, so does this one, whatever nodes it asks for: it
    would wait longer than its like if it had to find whole nodes among theirs. Otherwise it has the nodes it asks for,
    or its units wherever they are; or, when it says nothing of that, as few equal parts of nodes as hold it, or single
    cores where there are no such parts.
    Memory is not counted where the cluster does not state it.

    Raises
    ------
    InvalidInput
        When these could never run it, or the constraint is none.
    """
    if needs.gpus and "gpus" not in cluster.resources:
        raise InvalidInput(f"asks for {needs.gpus} GPUs: there are none")
    one_core = JobShape(needs.cores, _part(needs, needs.cores, cluster))
    if single_cores and not any(one_core.need[1:]):
        shape = one_core
    elif needs.unit is not None:
        shape = JobShape(needs.cores // needs.unit, _part(needs, needs.cores // needs.unit, cluster))
    else:
        counts = range(1, min(needs.cores, cluster.nodes) + 1) if needs.nodes is None else [needs.nodes]
        shapes = [JobShape(n, _part(needs, n, cluster), 1) for n in counts if needs.cores % n == 0]
        if needs.nodes is None and not needs.gpus:
            shapes.append(one_core)
        shape = next((shape for shape in shapes if fits(shape, cluster, partition, constraint)), shapes[0])
    if not fits(shape, cluster, partition, constraint):
        where = f"partition {[*cluster.partitions][partition]!r} of {cluster}" if cluster.partitions else f"{cluster}"
        where = f"nodes {constraint!r} of {where}" if constraint and cluster.features else where
        raise InvalidInput(f"asks for {needs}, which {where} could never give to one job")
    return shape


def _part(needs: Resources, parts: int, cluster: Cluster) -> tuple[int, ...]:
    """What one of so many equal parts takes of the cluster's resources."""
    each = needs.on_each(parts)
    asked = {"cores": each.cores, "memory": each.memory or 0, "gpus": each.gpus}
    return tuple(asked.get(name, 0) for name in cluster.resources)


def fits(shape: JobShape, cluster: Cluster, partition: int = 0, constraint: str = "") -> bool:
    """Whether the empty machine holds such a job in the partition of that number, on nodes with such features."""
    nodes, limits = cluster.allowed(partition, constraint), cluster.all_partitions[partition]
    return shape.units <= cluster.most_units(np.array(shape.need), nodes, shape.per_node, limits.max_nodes)


def partition_in(options: Options, cluster: Cluster) -> int:
    """The number of the partition that a job names among its options; the first unless it does.

    Raises
    ------
    InvalidInput
        When there is no such partition.
    """
    return cluster.partition_number(dict(options).get("partition"))


def places(engine: Engine, job: Job, single_cores: bool) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names for the nodes of a running job, and its cores on each.

    One that may be anywhere has those on which it lies, with the cores that it has there. Others have as many as they
    asked for, with the names of those on which they lie, and equal shares. Where all jobs are of single cores one may
    lie on more nodes than it asked for, or on fewer; then one name stands for several.
    """
    slot, units = int(engine.state.job_states["held"][job.row]), dict[int, int]()
    while slot != codes.NONE:
        held = engine.state.slots[slot]
        for number in range(int(held["first"]), int(held["last"]) + 1):
            units[number] = units.get(number, 0) + int(held["units"])
        slot = int(held["next"])
    names = [engine.cluster.name(number) for number in sorted(units)]
    needs = job.request.resources
    if needs.unit is not None and not single_cores:
        return tuple(names), tuple(units[number] * needs.unit for number in sorted(units))
    count = job.request.resources.nodes or (len(names) if engine.state.jobs["per_node"][job.row] else 1)
    found = tuple(names[k] if k < len(names) else f"{names[k % len(names)]}-{k}" for k in range(count))
    return found, (needs.cores // count,) * count


def status_of(engine: Engine, job: Job) -> JobStatus:
    """How a job stands."""
    row, job_state = engine.state.jobs[job.row], engine.state.job_states[job.row]
    state = state_of(engine, job)
    return JobStatus(
        job.handle,
        state,
        reason=job.why or (_why_waiting(engine, job) if state is JobState.PENDING else _ENDS.get(state, "")),
        eligible=_known(row["eligible"]),
        started=_known(row["started"]),
        ended=_known(job_state["ended"]),
        planned=_known(row["planned"]) if job_state["status"] == codes.WAITING else None,
        ages_since=_ages_since(engine, job) if state is JobState.PENDING else None,
        nodes=() if state is JobState.PENDING else job.nodes,
        exit_code=0 if state is JobState.COMPLETED else job.exit_code,
        restarts=int(row["restarts"]),
    )


def state_of(engine: Engine, job: Job) -> JobState:
    """Its state alone."""
    job_state = engine.state.job_states[job.row]
    if job_state["status"] == codes.ENDED:
        return OUTCOMES[int(job_state["outcome"])]
    return JobState.RUNNING if job_state["status"] == codes.RUNNING else JobState.PENDING


def _why_waiting(engine: Engine, job: Job) -> str:
    """``RESOURCES`` for one that was promised a start, ``PRIORITY`` for one behind it."""
    row, job_state = engine.state.jobs[job.row], engine.state.job_states[job.row]
    gates = int(job_state["gates"])
    if job_state["status"] == codes.NOT_SUBMITTED:  # it reaches the machine as soon as time passes
        gates |= codes.DEPENDENCY * bool(job_state["unmet"]) | codes.BEGIN * bool(job_state["begin"] > engine.now)
        gates |= codes.BARRED * job.parked
    words = [word for gate, word in _GATES if gates & gate]
    return words[0] if words else Reason.PRIORITY if math.isnan(row["planned"]) else Reason.RESOURCES


def _ages_since(engine: Engine, job: Job) -> float | None:
    """Since when it has aged; None before it has reached the machine, and before a time in the future."""
    since = _known(engine.state.jobs["accrue"][job.row])
    unborn = engine.state.job_states["status"][job.row] == codes.NOT_SUBMITTED
    return None if unborn or since is None or since > engine.now else since


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# -- Places -----------------------------------------------------------------------------------------------------------

_OURS = codes.BARRED | codes.THROTTLED


def settle(engine: Engine, jobs: Iterable[Job]) -> None:
    """Hold back parked jobs and the elements that are beyond the throttles of their arrays; let the others go.

    A job that waits for another one, or for its begin time, is neither: it takes no room in its array, and begins to
    age when that is over, parked or not. Of the others those go first that have aged longest, and of equal ones those
    of lower index; under FIFO, those that came first. Slurm goes by all of the priority; size, fair share and QOS of
    the elements of one array are left out here.
    """
    room: dict[int, int] = {}
    turns: dict[int, list[Job]] = {}
    for job in jobs:
        if job.array is None and not job.parked:
            continue
        job_state = engine.state.job_states[job.row]
        if job.array is not None:
            number = job.array.number
            room[number] = room.get(number, job.array.throttle) - int(job_state["status"] == codes.RUNNING)
        if job_state["status"] not in (codes.HELD, codes.WAITING):
            continue
        if job_state["gates"] & ~_OURS:
            job_state["gates"] &= ~_OURS
        elif job.parked:
            loop.block(engine.state, job.row, codes.BARRED)
        elif job.array is not None:
            turns.setdefault(job.array.number, []).append(job)
    for number, waiting in turns.items():
        waiting.sort(key=lambda job: _turn(engine, job))
        free = max(0, room[number])
        for job in waiting[:free]:
            if engine.state.job_states["gates"][job.row]:
                engine.room()
                loop.unblock(engine.state, job.row, codes.THROTTLED)
        for job in waiting[free:]:
            loop.block(engine.state, job.row, codes.THROTTLED)


def _turn(engine: Engine, job: Job) -> tuple[float, int]:
    """Who comes first among the elements of an array."""
    row = engine.state.jobs[job.row]
    if QueueRegime(engine.settings.model.regime) is QueueRegime.FIFO:
        return float(row["place"] + row["nice"]), job.row
    since = float(row["accrue"])
    return math.inf if math.isnan(since) else since, job.row


# -- Books ------------------------------------------------------------------------------------------------------------


@dataclass
class Books:
    """Jobs by id and by token, those that have not ended apart."""

    cluster: Cluster
    single_cores: bool
    longest_s: float
    live: dict[str, Job] = field(default_factory=dict)
    tokens: dict[str, Job] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)

    def find(self, handle: JobHandle) -> Job | None:
        """The job of a handle, or None when its id, token and time of submission belong to no job."""
        job = self._jobs.get(handle.job_id)
        return job if job and job.handle == handle else None

    def submit(self, engine: Engine, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """Put jobs into the queue, as soon as time passes; their programs run until they are ended."""
        arrays: dict[str, list[Job]] = {}
        return [self._submit(engine, request, arrays) for request in requests]

    def _submit(self, engine: Engine, request: JobRequest, arrays: dict[str, list[Job]]) -> JobHandle | Refused:
        try:
            partition = partition_in(request.options, self.cluster)
            self._check_walltime(request.walltime_s, partition)
            constraint = dict(request.options).get("constraint", "")
            shape = shape_of(request.resources, self.cluster, self.single_cores, partition, constraint)
            after = self._rows(request.dependencies)
        except InvalidInput as error:
            return Refused(request.token, f"job {request.token!r} {error}")
        row = operations.submit(
            engine,
            run=math.inf,
            walltime=request.walltime_s,
            units=shape.units,
            need=shape.need,
            per_node=shape.per_node,
            partition=partition,
            constraint=constraint,
            after=after,
            begin=-math.inf if request.begin is None else request.begin,
        )
        engine.state.job_states["stop"][row] = request.walltime_s  # even where other people's jobs may run on
        job = Job(row, request, JobHandle(str(row), request.token, engine.now))
        if request.array:
            elements = arrays.setdefault(request.array, [])
            job.handle = replace(job.handle, array_index=len(elements))
            job.array = elements[0].array if elements else Array(row)
            elements.append(job)
        self._jobs[job.handle.job_id] = self.live[job.handle.job_id] = self.tokens[request.token] = job
        return job.handle

    def change(self, engine: Engine, job: Job, changes: JobChanges) -> None:
        """Change a job that waits, or the throttle of its array.

        Raises
        ------
        InvalidInput
            When the machine could never run it as changed, or when there is no throttle to change; then nothing is.
        """
        lives = any(other.array is job.array and not state_of(engine, other).final for other in self.live.values())
        if problem := throttle_problem(changes.throttle, job.array is not None, lives):
            raise InvalidInput(problem)
        after = None if changes.dependencies is None else self._rows(changes.dependencies)
        units, partition = None, int(engine.state.jobs["partition"][job.row])
        if changes.resources is not None:
            given = self.cluster, self.single_cores, partition, dict(job.request.options).get("constraint", "")
            shape, now = (shape_of(needs, *given) for needs in (changes.resources, job.needs))
            if replace(shape, units=now.units) != now:
                raise InvalidInput(f"may have more or fewer units of {now.need}, not others")
            units = shape.units
        if changes.walltime_s is not None:
            self._check_walltime(changes.walltime_s, partition)
            operations.set_walltime(engine, job.row, changes.walltime_s)
            engine.state.job_states["stop"][job.row] = changes.walltime_s
        if units is not None:
            operations.set_units(engine, job.row, units)
        if after is not None:
            operations.set_dependencies(engine, job.row, after)
        if changes.begin is not None:
            operations.set_begin(engine, job.row, changes.begin)
        if changes.throttle is not None and job.array is not None:
            job.array.throttle = changes.throttle
        if changes.parked is False and job.parked:
            operations.unbar(engine, job.row)
        job.parked = job.parked if changes.parked is None else changes.parked
        settle(engine, self.live.values())
        kept = {item.name: getattr(changes, item.name) for item in fields(JobRequest) if hasattr(changes, item.name)}
        job.request = replace(job.request, **{name: value for name, value in kept.items() if value is not None})

    def news(self, engine: Engine) -> list[Job]:
        """Jobs whose state has changed since the last call; what is to be held back from now on, is."""
        settle(engine, self.live.values())
        changed = []
        for job in list(self.live.values()):
            state, restarts = state_of(engine, job), int(engine.state.jobs["restarts"][job.row])
            if (state, restarts) != (job.state, job.restarts):
                job.state, job.restarts = state, restarts
                changed.append(job)
                if state.final:
                    del self.live[job.handle.job_id]
                elif state is JobState.RUNNING:
                    job.nodes, job.cores = places(engine, job, self.single_cores)
        return changed

    def longest_in(self, partition: int) -> float:
        """Longest wall time in the partition of that number [s]; infinite for no limit."""
        return min(self.longest_s, self.cluster.all_partitions[partition].max_time_s)

    def _check_walltime(self, walltime_s: float, partition: int) -> None:
        longest_s = self.longest_in(partition)
        if not 0 < walltime_s <= longest_s:
            raise InvalidInput(f"has a wall time of {walltime_s!r} s: above 0, up to {longest_s:g} expected")

    def _rows(self, dependencies: Sequence[Dependency]) -> list[tuple[int, DependencyKind]]:
        rows = []
        for dependency in dependencies:
            if (job := self.find(dependency.on)) is None:
                raise InvalidInput(f"depends on job {dependency.on.job_id}, which is not known here")
            rows.append((job.row, dependency.kind))
        return rows
