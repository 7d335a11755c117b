"""One's own jobs on a simulated machine: their shape there, and how they stand in a batch system's words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.job import JobHandle, JobRequest, JobState, JobStatus, Resources
from asa.core.reason import Reason
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import Workload
from asa.lab.simulator import state as codes
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.load import most_units

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
    """The books of a job: `row` in the engine's tables, `nodes` since it last started, `why` it ended, if told.

    `array` is the one that it is an element of, `parked` whether it asks for nodes that are not to be had.
    """

    row: int
    request: JobRequest
    handle: JobHandle
    state: JobState = JobState.PENDING
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    why: str = ""
    array: Array | None = None
    parked: bool = False

    @property
    def needs(self) -> Resources:
        return self.request.resources


@dataclass(frozen=True, slots=True)
class Shape:
    """A job as identical units: what one takes of the cluster's resources, and how many may share a node (0: all)."""

    units: int
    need: tuple[int, ...]
    per_node: int = 0


def in_single_cores(workload: Workload) -> bool:
    """Whether other people's jobs take single cores, wherever they are: then one's own do, too."""
    demands = workload.demands[np.unique(workload.kind)]
    return bool(len(demands) and (demands[:, 0] == 1).all() and (demands[:, 1:] == 0).all())


def shape_of(needs: Resources, cluster: Cluster, single_cores: bool) -> Shape:
    """A request as units.

    Where other people's jobs take single cores, wherever they are, so does this one, whatever nodes it asks for: it
    would wait longer than its like if it had to find whole nodes among theirs. Otherwise it has the nodes it asks for;
    or, when it asks for none, as few equal parts of nodes as hold it, or single cores where there are no such parts.
    Memory is not counted where the cluster does not state it.

    Raises
    ------
    InvalidInput
        When the machine could never run it.
    """
    if needs.gpus and "gpus" not in cluster.resources:
        raise InvalidInput(f"asks for {needs.gpus} GPUs: there are none")
    one_core = Shape(needs.cores, _part(needs, needs.cores, cluster))
    if single_cores and not any(one_core.need[1:]):
        shape = one_core
    else:
        counts = range(1, min(needs.cores, cluster.nodes) + 1) if needs.nodes is None else [needs.nodes]
        shapes = [Shape(n, _part(needs, n, cluster), 1) for n in counts if needs.cores % n == 0]
        if needs.nodes is None and not needs.gpus:
            shapes.append(one_core)
        shape = next((shape for shape in shapes if fits(shape, cluster)), shapes[0])
    if not fits(shape, cluster):
        raise InvalidInput(f"asks for {needs}, which {cluster} could never give to one job")
    return shape


def _part(needs: Resources, parts: int, cluster: Cluster) -> tuple[int, ...]:
    """What one of so many equal parts takes of the cluster's resources."""
    each = needs.on_each(parts)
    asked = {"cores": each.cores, "memory": each.memory or 0, "gpus": each.gpus}
    return tuple(asked.get(name, 0) for name in cluster.resources)


def fits(shape: Shape, cluster: Cluster) -> bool:
    """Whether the empty machine holds such a job."""
    kind, per_node, first = (np.array([value]) for value in (0, shape.per_node, 0))
    return shape.units <= int(most_units(cluster, np.array([shape.need]), kind, per_node, first)[0])


def node_names(engine: Engine, job: Job) -> tuple[str, ...]:
    """Names for the nodes of a running job: as many as it asked for, with the names of those on which it lies.

    A job of single cores may lie on more nodes than it asked for, or on fewer; then one name stands for several.
    """
    slot, numbers = int(engine.state.fates["held"][job.row]), set[int]()
    while slot != codes.NONE:
        held = engine.state.slots[slot]
        numbers.update(range(int(held["first"]), int(held["last"]) + 1))
        slot = int(held["next"])
    names = [engine.cluster.name(number) for number in sorted(numbers)]
    count = job.request.resources.nodes or (len(names) if engine.state.jobs["per_node"][job.row] else 1)
    return tuple(names[k] if k < len(names) else f"{names[k % len(names)]}-{k}" for k in range(count))


def status_of(engine: Engine, job: Job) -> JobStatus:
    """How a job stands."""
    row, fate = engine.state.jobs[job.row], engine.state.fates[job.row]
    state = state_of(engine, job)
    return JobStatus(
        job.handle,
        state,
        reason=job.why or (_why_waiting(engine, job) if state is JobState.PENDING else _ENDS.get(state, "")),
        eligible=_known(row["eligible"]),
        started=_known(row["started"]),
        ended=_known(fate["ended"]),
        planned=_known(row["planned"]) if fate["status"] == codes.WAITING else None,
        ages_since=_ages_since(engine, job) if state is JobState.PENDING else None,
        nodes=() if state is JobState.PENDING else job.nodes,
        exit_code=0 if state is JobState.COMPLETED else job.exit_code,
        restarts=int(row["restarts"]),
    )


def state_of(engine: Engine, job: Job) -> JobState:
    """Its state alone."""
    fate = engine.state.fates[job.row]
    if fate["status"] == codes.ENDED:
        return OUTCOMES[int(fate["outcome"])]
    return JobState.RUNNING if fate["status"] == codes.RUNNING else JobState.PENDING


def _why_waiting(engine: Engine, job: Job) -> str:
    """``RESOURCES`` for one that was promised a start, ``PRIORITY`` for one behind it."""
    row, fate = engine.state.jobs[job.row], engine.state.fates[job.row]
    gates = int(fate["gates"])
    if fate["status"] == codes.UNBORN:  # it reaches the machine as soon as time passes
        gates |= codes.DEPENDENCY * bool(fate["unmet"]) | codes.BEGIN * bool(fate["begin"] > engine.now)
        gates |= codes.BARRED * job.parked
    words = [word for gate, word in _GATES if gates & gate]
    return words[0] if words else Reason.PRIORITY if math.isnan(row["planned"]) else Reason.RESOURCES


def _ages_since(engine: Engine, job: Job) -> float | None:
    """Since when it has aged; None before it has reached the machine, and before a time in the future."""
    since = _known(engine.state.jobs["accrue"][job.row])
    unborn = engine.state.fates["status"][job.row] == codes.UNBORN
    return None if unborn or since is None or since > engine.now else since


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
