"""All that a simulated machine knows, as arrays: the compiled engine works on them, Python grows them and reads them.

Rows of the tables are jobs, in order of submission; jobs that are submitted on the way are appended. Nothing here holds
a decision: what happens is in `asa.lab.simulator.machine`, and when in `asa.lab.simulator.engine`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import JOB
from asa.lab.placement.native import BLOCK

Table = npt.NDArray[np.void]


class Why(IntEnum):
    """What `advance` and `drive` came back for."""

    OVER = 0
    """Nothing more will happen."""
    DECIDE = 1
    """Jobs wait, and something has changed."""
    UNTIL = 2
    """The time has come that was asked for."""
    GROW = 3
    """The tables lack room; to be called again when they have more."""
    NOTICE = 4
    """Something has happened to a watched job."""


OVER, DECIDE, UNTIL, GROW, NOTICE = map(int, Why)  # plain numbers, for compiled code

# Where a job stands.
UNBORN, HELD, WAITING, RUNNING, ENDED = range(5)

# Why a job that was submitted may not start yet; bits of `FATE.gates`.
DEPENDENCY, BEGIN, HOLD, BARRED, THROTTLED = 1, 2, 4, 8, 16

# Kinds of events, in the order in which those of one instant take effect.
END, NODE_UP, NODE_DOWN, CANCEL, SUBMIT, OPEN, EARLY_END = range(7)

# Kinds of lines in the log.
SUBMITTED, ELIGIBLE, STARTED, FINISHED, REQUEUED, UP, DOWN, SPEED = range(8)

# When a dependent job may start; codes of `EDGE.kind`.
AFTER, AFTER_OK, AFTER_ANY = range(3)

NONE = -1

FATE = np.dtype(
    [
        ("run", "f8"),  # work [s at full speed]
        ("left", "f8"),  # work that was left at `since` [s at full speed]
        ("since", "f8"),
        ("speed", "f8"),
        ("stop", "f8"),  # the machine ends it after so long [s]; infinite when never
        ("begin", "f8"),  # not before [s]
        ("ended", "f8"),
        ("event", "i8"),  # number of its END event that counts; others are void
        ("status", "i8"),
        ("outcome", "i8"),
        ("gates", "i8"),
        ("unmet", "i8"),  # dependencies that are not fulfilled yet
        ("children", "i8"),  # first edge to a job that waits for this one
        ("held", "i8"),  # first of the slots it holds
        ("watched", "i8"),  # whether the driver wants to know at once what becomes of it
    ],
    align=True,
)
"""A row of the table of fates: what is to become of a job, which no dispatcher may see."""

EVENT = np.dtype([("at", "f8"), ("kind", "i8"), ("number", "i8"), ("what", "i8")], align=True)
EDGE = np.dtype([("child", "i8"), ("next", "i8"), ("kind", "i8"), ("think", "f8")], align=True)
SLOT = np.dtype([("first", "i8"), ("last", "i8"), ("units", "i8"), ("next", "i8")], align=True)
PLACED = np.dtype([("job", "i8"), ("first", "i8"), ("last", "i8"), ("units", "i8")], align=True)
LINE = np.dtype([("at", "f8"), ("kind", "i4"), ("what", "i4"), ("value", "f8")], align=True)

WORLD = np.dtype(
    [
        ("now", "f8"),
        ("jobs", "i8"),  # rows in use of the tables of jobs and fates
        ("arrival", "i8"),  # the next row to be submitted of those known from the start
        ("arrivals", "i8"),  # rows known from the start
        ("events", "i8"),  # in the heap
        ("number", "i8"),  # of the next event
        ("waiting", "i8"),
        ("running", "i8"),
        ("edges", "i8"),
        ("lines", "i8"),  # of the log
        ("placed", "i8"),
        ("vacant", "i8"),  # first slot that nobody holds
        ("vacancies", "i8"),
        ("place", "f8"),  # of the next job to join the queue
        ("free", "i8"),  # units free, on a machine of slots
        ("slots", "i8"),  # units of a machine of slots; -1 on others
        ("kind", "i8"),  # kind of the units of a machine of slots
        ("dirty", "i8"),  # something has changed since the last decision
        ("notice", "i8"),  # something has happened to a watched job
        ("decisions", "i8"),
        # Settings.
        ("placement", "i8"),
        ("regime", "i8"),
        ("half_life", "f8"),  # of what users have used [s]
        ("keeps_nodes", "i8"),
        ("special", "i8"),  # there are partitions or shareable resources
        ("requeues", "i8"),  # jobs of a node that fails wait again, instead of failing with it
        ("one_by_one", "i8"),  # decide after every event, instead of after all of an instant
        ("stops_often", "i8"),  # come back after every instant at which a job came or went
    ],
    align=True,
)
"""The one row of the table of the world: the clock, counters and settings."""


class State(NamedTuple):
    """The tables. See the dtypes above for their columns; `world` has one row."""

    world: Table
    jobs: Table
    fates: Table
    heap: Table
    edges: Table
    log: Table
    slots: Table
    placed: Table
    queue: Ints  # rows that wait and may start, by place
    active: Ints  # rows that run, by expected end
    ends: Floats  # their expected ends [s]
    free: Ints  # shape (nodes, resources)
    capacity: Ints  # shape (nodes, resources); zeros for a node that is down
    full: Ints  # shape (nodes, resources); what it has when up
    shared: Ints  # shape (resources,); 1 where jobs may hold more than there is
    blocks: Ints  # nodes with a free core in each block
    demands: Ints  # shape (kinds, resources)
    partitions: Ints  # shape (partitions, nodes); 1 where a node belongs to it
    runs: Ints  # scratch, shape (nodes, 3)
    usage: Floats  # shape (users, 2): decayed core-seconds, and when that was right [s]


def new_state(cluster: Cluster, jobs: int, demands: Ints, users: int) -> State:
    """An empty machine with room for so many jobs."""
    nodes = cluster.nodes
    partitions = np.zeros((max(1, len(cluster.partitions)), nodes), dtype=np.int64)
    partitions[:, :] = not cluster.partitions
    for row, members in enumerate(cluster.partitions.values()):
        partitions[row, list(members)] = 1
    room = max(1, jobs)
    state = State(
        world=np.zeros(1, WORLD),
        jobs=np.zeros(room, JOB),
        fates=np.zeros(room, FATE),
        heap=np.zeros(1024, EVENT),
        edges=np.zeros(16, EDGE),
        log=np.zeros(max(1024, 4 * room), LINE),
        slots=np.zeros(1024, SLOT),
        placed=np.zeros(1024, PLACED),
        queue=np.zeros(1024, np.int64),
        active=np.zeros(1024, np.int64),
        ends=np.zeros(1024),
        free=cluster.capacity.copy(),
        capacity=cluster.capacity.copy(),
        full=cluster.capacity.copy(),
        shared=np.array([name in cluster.shareable for name in cluster.resources], dtype=np.int64),
        blocks=np.add.reduceat((cluster.capacity[:, 0] > 0).astype(np.int64), np.arange(0, nodes, BLOCK)),
        demands=np.ascontiguousarray(demands),
        partitions=partitions,
        runs=np.zeros((nodes, 3), np.int64),
        usage=np.zeros((max(1, users), 2)),
    )
    world = state.world[0]
    world["vacant"] = NONE
    world["special"] = bool(cluster.partitions) or bool(cluster.shareable)
    _chain(state, 0)
    return state


def grown(state: State) -> State:
    """The same state with more room wherever it is scarce."""
    world = state.world[0]
    most = int(world["edges"] + world["running"])  # what one event may bring: all dependants, all jobs of a node
    changed: dict[str, Any] = {}
    for name, used, needed in (
        ("heap", world["events"], world["waiting"] + most + 64),
        ("log", world["lines"], world["waiting"] + most + 64),
        ("queue", world["waiting"], most + 64),
        ("active", world["running"], world["waiting"] + 64),
        ("ends", world["running"], world["waiting"] + 64),
        ("edges", world["edges"], 16),
        ("jobs", world["jobs"], 16),
        ("fates", world["jobs"], 16),
        ("placed", world["placed"], len(state.runs) + 64),
    ):
        table = getattr(state, name)
        if len(table) - used < needed:
            changed[name] = _longer(table, int(used + 2 * needed))
    if world["vacancies"] < len(state.runs) + 64:
        changed["slots"] = _longer(state.slots, len(state.slots) + 2 * len(state.runs) + 128)
    new = state._replace(**changed)
    if "slots" in changed:
        _chain(new, len(state.slots))
    return new


def _longer(table: npt.NDArray[Any], least: int) -> npt.NDArray[Any]:
    longer = np.zeros(max(2 * len(table), least), table.dtype)
    longer[: len(table)] = table
    return longer


def _chain(state: State, first: int) -> None:
    """Put the slots from `first` on at the head of the list of vacant ones."""
    world = state.world[0]
    rows = np.arange(first, len(state.slots))
    state.slots["next"][rows] = rows + 1
    state.slots["next"][-1] = world["vacant"]
    world["vacant"] = first
    world["vacancies"] += len(rows)
