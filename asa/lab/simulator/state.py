"""All that a simulated machine knows, as arrays: compiled code works on them, Python grows them and reads them.

Rows of the tables are jobs, in order of submission; jobs that are submitted on the way are appended. Nothing here holds
a decision: what happens is in `asa.lab.simulator.loop`, and when in `asa.lab.simulator.engine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.job import JobState, QueueRegime
from asa.lab.core.cluster import ROOT, Cluster
from asa.lab.core.schedule import OUTCOMES, Placements, Resizes, Schedule
from asa.lab.core.table import CANCELS, EXEMPT, JOB, PREEMPTS, RANK
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.placement.nodes import BLOCK, MOST
from asa.lab.simulator.limits import (
    CORE_MINUTES,
    CORE_RUN_MINUTES,
    CORES,
    GPU_MINUTES,
    GPU_RUN_MINUTES,
    GPUS,
    KINDS,
    MEMORY,
    NODES,
    RATE,
    REASONS,
    TOO_LONG,
    Whose,
    limit_tables,
    limits_of_one,
    longest_s,
    whose,
    with_accounts_of_partitions,
)
from asa.lab.simulator.settings import MachineSettings

# -- Tables -----------------------------------------------------------------------------------------------------------

Table = npt.NDArray[np.void]


class StopReason(IntEnum):
    """What `advance` and `dispatch_loop` came back for."""

    OVER = 0
    """Nothing more will happen."""
    DECIDE = 1
    """Jobs wait, and something has changed."""
    UNTIL = 2
    """The time has come that was asked for."""
    GROW = 3
    """The tables lack room; to be called again when they have more."""
    JOB_CHANGED = 4
    """Something has happened to a watched job."""


OVER, DECIDE, UNTIL, GROW, JOB_CHANGED = map(int, StopReason)  # plain numbers, for compiled code

# Where a job stands.
NOT_SUBMITTED, HELD, WAITING, RUNNING, ENDED = range(5)

# Why a job that was submitted may not start yet; bits of `JOB_STATE.gates`.
DEPENDENCY, BEGIN, HOLD, BARRED, THROTTLED = 1, 2, 4, 8, 16

# Kinds of events, in the order in which those of one instant take effect.
END, NODE_UP, NODE_DOWN, CANCEL, SUBMIT, OPEN, EARLY_END, LOOK = range(8)

# Kinds of lines in the log.
SUBMITTED, ELIGIBLE, STARTED, FINISHED, REQUEUED, UP, DOWN, SPEED, RESIZED = range(9)

# When a dependent job may start; codes of `EDGE.kind`.
AFTER, AFTER_OK, AFTER_ANY = range(3)

NONE = -1

# Columns of the fair-share tree: row of the parent, share of what it has, and how far below the root.
PARENT, SHARE, DEPTH = range(3)

# How a job ended: codes of `JOB_STATE.outcome`.
COMPLETED, TIMEOUT, CANCELLED, NODE_FAIL, FAILED, PREEMPTED = (
    OUTCOMES.index(state)
    for state in (
        JobState.COMPLETED, JobState.TIMEOUT, JobState.CANCELLED, JobState.NODE_FAIL, JobState.FAILED,
        JobState.PREEMPTED,
    )
)  # fmt: skip

JOB_STATE = np.dtype(
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
        ("association", "i8"),  # row of `usage`, of its user in its account; -1 where that is not known
        ("whose", "i8"),  # row of `spans`
        ("charged", "f8"),  # what it used until then is in `usage` [s]; of malleable jobs
        ("watched", "i8"),  # whether the driver wants to know at once what becomes of it
    ],
    align=True,
)
"""A row of the table of job states: what is to become of a job, which no dispatcher may see."""

EVENT = np.dtype([("at", "f8"), ("kind", "i8"), ("number", "i8"), ("what", "i8")], align=True)
EDGE = np.dtype([("child", "i8"), ("next", "i8"), ("kind", "i8"), ("think", "f8")], align=True)
SLOT = np.dtype([("first", "i8"), ("last", "i8"), ("units", "i8"), ("next", "i8")], align=True)
PLACED = np.dtype([("job", "i8"), ("restarts", "i8"), ("first", "i8"), ("last", "i8"), ("units", "i8")], align=True)
LINE = np.dtype([("at", "f8"), ("kind", "i4"), ("what", "i4"), ("value", "f8")], align=True)

WORLD = np.dtype(
    [
        ("now", "f8"),
        ("jobs", "i8"),  # rows in use of the tables of jobs and job_states
        ("arrival", "i8"),  # the next row to be submitted of those known from the start
        ("arrivals", "i8"),  # rows known from the start
        ("events", "i8"),  # in the heap
        ("number", "i8"),  # of the next event
        ("waiting", "i8"),
        ("running", "i8"),
        ("edges", "i8"),
        ("lines", "i8"),  # of the log
        ("placed", "i8"),
        ("vacant", "i8"),  # first slot that no job holds
        ("vacancies", "i8"),
        ("place", "f8"),  # of the next job to join the queue
        ("free", "i8"),  # units free, on a machine of slots
        ("slots", "i8"),  # units of a machine of slots; -1 on others
        ("kind", "i8"),  # kind of the units of a machine of slots
        ("dirty", "i8"),  # something has changed since the last decision
        ("job_changed", "i8"),  # something has happened to a watched job
        ("decisions", "i8"),
        ("malleable", "i8"),  # malleable jobs that run
        ("resizes", "i8"),  # decide also when no job waits, but malleable ones run
        ("fills", "f8"),  # when gaps are filled next, where that is done at intervals [s]
        ("filled", "f8"),  # when they were filled last, and jobs left for others that have not started [s]
        ("looks", "f8"),  # when jobs are started in order next, in between [s]
        # MachineSettings.
        ("placement", "i8"),
        ("regime", "i8"),
        ("half_life", "f8"),  # of what users have used [s]
        ("pause", "f8"),  # a job that changes its width does not get on for so long [s]
        ("calc_period", "f8"),  # how often fair-share factors are made anew [s]; 0 for each decision
        ("calculated", "f8"),  # when that was [s]
        ("safe", "i8"),  # a job waits that could use up what is left of a limit of minutes
        ("requeue_delay", "f8"),  # after so long a job that was requeued may start again [s]
        ("keeps_nodes", "i8"),
        ("special", "i8"),  # there are partitions, windows, shareable resources, or jobs that ask for features
        ("tiers", "i8"),  # partitions differ in their tiers
        ("requeues", "i8"),  # jobs of a node that fails wait again, instead of failing with it
        ("one_by_one", "i8"),  # decide after every event, instead of after all of an instant
        ("stops_often", "i8"),  # come back after every instant at which a job came or went
    ],
    align=True,
)
"""The one row of the table of the world: the clock, counters and settings."""


class SimulationState(NamedTuple):
    """The tables. See the dtypes above for their columns; `world` has one row."""

    world: Table
    jobs: Table
    job_states: Table
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
    allowed: Ints  # nodes that jobs may have, as in `TableView`
    spans: Ints  # this and the next three as in `asa.lab.simulator.limits.LimitTables`
    limits: Ints
    counts: Ints
    spent: Floats
    amounts: Ints  # shape (jobs, kinds): what they count for; no rows where there are no limits
    windows: Floats  # when nodes are kept from jobs, as in `TableView`
    preemption: Floats  # who preempts whom, as in `TableView`
    runs: Ints  # scratch, shape (nodes, 3)
    usage: Floats  # shape (associations, 3): decayed core-seconds, when that was right [s], fair-share factor
    molds: Ints  # which widths jobs may have: this and the next as in `TableView`
    widths: Floats
    asked: (
        Floats  # shape (n, 4), or no rows: run, walltime, estimate and stop of jobs with several widths, as asked [s]
    )
    tree: Floats  # Fair Tree, else no rows: associations, accounts, children before parents; see `PARENT`


def new_state(cluster: Cluster, jobs: int, demands: Ints, allowed: Ints) -> SimulationState:
    """An empty machine with room for so many jobs."""
    nodes = cluster.nodes
    room = max(1, jobs)
    state = SimulationState(
        world=np.zeros(1, WORLD),
        jobs=np.zeros(room, JOB),
        job_states=np.zeros(room, JOB_STATE),
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
        allowed=allowed,
        spans=np.zeros(2, np.int64),
        limits=np.zeros((0, 3), np.int64),
        counts=np.zeros(0, np.int64),
        spent=np.zeros((0, RATE + 1)),
        amounts=np.zeros((0, len(KINDS)), np.int64),
        windows=np.zeros((0, 2)),
        preemption=_preemption(cluster),
        runs=np.zeros((nodes, 3), np.int64),
        usage=np.zeros((0, 3)),
        molds=np.zeros(0, np.int64),
        widths=np.zeros((0, 2)),
        asked=np.zeros((0, 4)),
        tree=np.zeros((0, 3)),
    )
    world = state.world[0]
    world["vacant"], world["filled"] = NONE, np.nan
    world["special"] = any((cluster.partitions, cluster.shareable, cluster.windows, len(allowed) > 1))
    world["tiers"] = len({partition.tier for partition in cluster.partitions.values()}) > 1
    world["safe"], world["requeue_delay"] = cluster.safe_limits, cluster.requeue_delay_s
    _chain(state, 0)
    return state


def grown(state: SimulationState) -> SimulationState:
    """The same state with more room wherever it is scarce."""
    world = state.world[0]
    most = int(world["edges"] + 2 * world["running"])  # what one event may bring: see `asa.lab.simulator.loop.spare`
    changed: dict[str, Any] = {}
    for name, used, needed in (
        ("heap", world["events"], world["waiting"] + most + 64),
        ("log", world["lines"], world["waiting"] + most + 64),
        ("queue", world["waiting"], most + 64),
        ("active", world["running"], world["waiting"] + 64),
        ("ends", world["running"], world["waiting"] + 64),
        ("edges", world["edges"], 16),
        ("jobs", world["jobs"], 16),
        ("job_states", world["jobs"], 16),
        ("amounts", world["jobs"], 16),
        ("placed", world["placed"], len(state.runs) + 64),
    ):
        table = getattr(state, name)
        if name == "amounts" and not len(state.counts):
            continue
        if len(table) - used < needed:
            changed[name] = _longer(table, int(used + 2 * needed))
    if world["vacancies"] < len(state.runs) + 64:
        changed["slots"] = _longer(state.slots, len(state.slots) + 2 * len(state.runs) + 128)
    new = state._replace(**changed)
    if "slots" in changed:
        _chain(new, len(state.slots))
    return new


def _longer(table: npt.NDArray[Any], least: int) -> npt.NDArray[Any]:
    longer = np.zeros((max(2 * len(table), least), *table.shape[1:]), table.dtype)
    longer[: len(table)] = table
    return longer


def _chain(state: SimulationState, first: int) -> None:
    """Put the slots from `first` on at the head of the list of vacant ones."""
    world = state.world[0]
    rows = np.arange(first, len(state.slots))
    state.slots["next"][rows] = rows + 1
    state.slots["next"][-1] = world["vacant"]
    world["vacant"] = first
    world["vacancies"] += len(rows)


# -- A workload becomes tables ----------------------------------------------------------------------------------------


def load(workload: Workload, cluster: Cluster, settings: MachineSettings) -> SimulationState:
    """The tables of an empty machine to which a workload is going to be submitted."""
    n = len(workload)
    demands = aligned(workload.demands, workload.resources, cluster)
    allowed, row_of_job = node_sets(workload, cluster)
    state = new_state(cluster, n, demands, allowed)
    world, jobs, job_states = state.world[0], state.jobs[:n], state.job_states[:n]
    for name in ("submit", "units", "kind", "per_node", "user", "group", "name", "number"):
        jobs[name] = getattr(workload, name)
    jobs["cores"], jobs["walltime"] = workload.cores, walltimes(workload, cluster)
    partition = jobs["partition"] = codes_of("partition", workload, cluster)
    jobs["allowed"] = row_of_job
    for name in ("max_nodes", "tier"):
        jobs[name] = np.array([getattr(each, name) for each in cluster.all_partitions])[partition]
    limit = np.where(np.isnan(jobs["walltime"]), np.inf, jobs["walltime"])
    stop = limit if settings.overrun == "clip" else np.full(n, np.inf)
    longest = limit[limit < np.inf].max(initial=0.0) or np.inf  # expected of those that ask for no limit
    jobs["estimate"] = np.minimum(workload.run, stop) if settings.predictor == "oracle" else np.minimum(limit, longest)
    jobs["predicted"] = jobs["estimate"]
    for name in ("eligible", "accrue", "started", "planned"):
        jobs[name] = np.nan
    job_states["run"], job_states["stop"], job_states["speed"], job_states["ended"] = workload.run, stop, 1.0, np.nan
    job_states["begin"], job_states["event"], job_states["held"], job_states["children"] = -np.inf, NONE, NONE, NONE
    service = codes_of("qos", workload, cluster)
    jobs["standing"] = service if cluster.preempts_by_qos else partition
    if highest := max((each.priority for each in cluster.qos.values()), default=0):
        jobs["qos"] = np.array([each.priority for each in cluster.qos.values()])[service] / highest
    refused = why_refused(workload, cluster) > 0
    job_states["status"][refused] = ENDED
    job_states["outcome"][refused] = FAILED
    world["jobs"] = world["arrivals"] = n
    world["placement"] = NONE if settings.native is None else settings.native
    world["regime"] = list(QueueRegime).index(QueueRegime(settings.model.regime))
    world["half_life"] = getattr(settings.model, "half_life_s", np.inf)
    world["calc_period"], world["calculated"] = getattr(settings.model, "calc_period_s", 0.0), -np.inf
    associations = max(1, int(workload.user.max(initial=UNKNOWN)) + 1)
    job_states["association"], tree = workload.user, state.tree
    if getattr(settings.model, "tree", False):
        job_states["association"], tree, associations = _fair_tree(workload, cluster)
    world["keeps_nodes"], world["requeues"] = settings.keep_nodes, settings.node_failure == "requeue"
    world["one_by_one"], world["pause"] = settings.instant == "one-by-one", settings.resize_s
    world["now"] = workload.submit[0] if n else 0.0
    _count_slots(state, cluster, workload)
    if cluster.has_limits:
        job_states["whose"], known = whose(workload, service, cluster)
        has = amounts(workload, cluster)
        state = state._replace(**limit_tables(cluster, known, float(world["half_life"]))._asdict(), amounts=has)
        nodes = np.array([most_nodes(cluster, each) for each in known])[job_states["whose"]]
        jobs["max_nodes"] = np.where(
            (nodes > 0) & ((jobs["max_nodes"] == 0) | (nodes < jobs["max_nodes"])), nodes, jobs["max_nodes"]
        )
        if (has[nodes > 0, NODES] < jobs["units"][nodes > 0]).any():  # where nodes are chosen, not to choose more
            world["special"], world["slots"] = 1, NONE
    usage, windows = np.zeros((associations, 3)), _windows(cluster, workload)
    molds, widths = _widths(workload)
    asked = np.zeros((0, 4))
    if workload.moldable is not None and len(molds):
        jobs["malleable"] = workload.moldable.malleable & (np.diff(molds) > 0)
        asked = np.stack([job_states["run"], jobs["walltime"], jobs["estimate"], job_states["stop"]], axis=1)
    state = state._replace(usage=usage, tree=tree, windows=windows, molds=molds, widths=widths, asked=asked)
    return _tie(state, workload)


def _widths(workload: Workload) -> tuple[Ints, Floats]:
    """Which widths jobs may have, as in `TableView`."""
    moldable = workload.moldable
    if moldable is None or (moldable.least == moldable.most).all():
        return np.zeros(0, np.int64), np.zeros((0, 2))
    rows, counts = [], np.zeros(len(workload) + 1, dtype=np.int64)
    for job in np.flatnonzero(moldable.least < moldable.most).tolist():
        found = workload.widths(job)
        counts[job + 1] = len(found)
        rows += [(units, workload.stretch(job, units)) for units in found]
    return np.cumsum(counts), np.array(rows)


def _fair_tree(workload: Workload, cluster: Cluster) -> tuple[Ints, Floats, int]:
    """The association of each job; the tree of the accounts and users that the machine declares or jobs name; and how
    many of its first rows are associations."""
    workload = with_accounts_of_partitions(workload, cluster)
    pairs = np.stack([workload.group, workload.user])
    _, first, of_job = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
    named = [(workload.label("group", row) or ROOT, workload.label("user", row)) for row in first.tolist()]
    shares = {(name, user): count for name, each in cluster.accounts.items() for user, count in each.users.items()}
    shares |= {each: cluster.account(each[0]).users.get(each[1], 1) for each in named if each[1]}
    accounts = {above for name in {*cluster.accounts, *(name for name, _ in shares)} for above in cluster.lineage(name)}
    order = sorted(accounts, key=lambda name: (-len(cluster.lineage(name)), name))
    place = {name: row for row, name in enumerate([*order, ROOT], len(shares))}
    rows = [(place[name], count, len(cluster.lineage(name)) + 1) for (name, _), count in shares.items()]
    for name in order:
        account = cluster.account(name)
        rows.append((place[account.parent], account.shares, len(cluster.lineage(name))))
    tree = np.array([*rows, (NONE, 1, 0)], dtype=np.float64)
    parents = tree[:-1, PARENT].astype(np.int64)
    beside = np.bincount(parents, tree[:-1, SHARE], len(tree))[parents]
    tree[:-1, SHARE] /= np.where(beside > 0, beside, 1.0)
    association = {each: row for row, each in enumerate(shares)}
    numbers = np.array([association.get(each, NONE) for each in named], dtype=np.int64)
    return numbers[of_job.reshape(-1)], tree, len(shares)


def _preemption(cluster: Cluster) -> Floats:
    """Which rows may preempt which, as in `TableView`; no rows on a machine without preemption."""
    own: Any = cluster.qos if cluster.preempts_by_qos else cluster.partitions
    if not any(each.preempt_mode for each in own.values()):
        return np.zeros((0, PREEMPTS))
    found = np.zeros((len(own), PREEMPTS + len(own)))
    for row, each in zip(found, own.values(), strict=True):
        row[EXEMPT], row[CANCELS] = each.exempt_s, each.preempt_mode == "cancel"
        row[RANK] = each.priority if cluster.preempts_by_qos else each.tier
        for column, (name, other) in enumerate(own.items(), PREEMPTS):
            lower = name in each.preempts if cluster.preempts_by_qos else other.tier < each.tier
            row[column] = lower and other.preempt_mode != ""
    return found


def _windows(cluster: Cluster, workload: Workload) -> Floats:
    """The machine's windows, with the workload's codes of the users, as in `TableView`."""
    users = max(1, int(workload.user.max(initial=UNKNOWN)) + 1)
    names = workload.labels.get("user", [str(code) for code in range(users)])
    found = np.zeros((len(cluster.windows), 2 + cluster.nodes + users + 1))
    for row, window in zip(found, sorted(cluster.windows, key=lambda window: window.start), strict=True):
        row[:2] = window.start, window.end
        row[2 : 2 + cluster.nodes][list(window.nodes) or slice(None)] = 1.0
        row[3 + cluster.nodes :] = [name in window.users for name in names[:users]] or 0.0
    return found


def aligned(demands: Ints, resources: tuple[str, ...], cluster: Cluster) -> Ints:
    """Demands with the cluster's columns. Memory, and types of something, do not count where the cluster states none;
    where it has other types, no node has room for the job.

    Raises
    ------
    InvalidInput
        When anything else is asked for that the cluster does not have.
    """
    found = np.zeros((max(1, len(demands)), len(cluster.resources)), dtype=np.int64)
    for column, name in enumerate(resources):
        of, _, kind = name.partition(":")
        if name in cluster.resources:
            found[: len(demands), cluster.resources.index(name)] += demands[:, column]
        elif kind and of in cluster.resources:
            if any(each.startswith(f"{of}:") for each in cluster.resources):
                found[: len(demands), cluster.resources.index(of)] += np.where(demands[:, column] > 0, MOST, 0)
        elif name != "memory" and demands[:, column].any():
            raise InvalidInput(
                f"jobs ask for {name!r}, but the cluster has {', '.join(cluster.resources)}: give its nodes {name!r}"
            )
    return found


REFUSALS = (
    "", "larger than the machine", "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints",
    *dict.fromkeys(reason for each in REASONS.values() for reason in each if reason), *TOO_LONG,
    "limit of submitted jobs",
)  # fmt: skip
"""Why a job is refused at its submission, by code; with Slurm's words for what its partition, QOS or account does not
allow, or what no node of its partition has."""


def why_refused(workload: Workload, cluster: Cluster) -> Ints:
    """Codes of `REFUSALS`, shape (n,); 0 for a job that the machine takes, unless there are too many by then.

    A job beyond a limit of its partition is refused, as under ``EnforcePartLimits=ALL``. Without that, Slurm lets it
    wait for ever, which is the same to all others.
    """
    demands = aligned(workload.demands, workload.resources, cluster)
    partition, limits = codes_of("partition", workload, cluster), cluster.all_partitions
    sets, allowed = node_sets(workload, cluster)
    shapes = np.stack([workload.kind, workload.per_node, partition, allowed])
    groups, member = np.unique(shapes, axis=1, return_inverse=True)
    units, reason = np.zeros((2, groups.shape[1]), dtype=np.int64)
    for group, (kind, per_node, part, row) in enumerate(groups.T.tolist()):
        units[group] = cluster.most_units(demands[kind], sets[row] > 0, per_node, limits[part].max_nodes)
        lacking = row >= len(limits) or (cluster.partitions and units[group] == 0)
        word = (
            "BadConstraints" if lacking else "PartitionNodeLimit" if cluster.partitions else "larger than the machine"
        )
        reason[group] = REFUSALS.index(word)
    member = member.reshape(-1)
    why = np.where(workload.units > units[member], reason[member], 0)
    why[workload.walltime > np.array([each.max_time_s for each in limits])[partition]] = 3
    if cluster.has_limits:
        job, known = whose(workload, codes_of("qos", workload, cluster), cluster)
        has, most = asked(workload, cluster), np.full((len(REFUSALS), len(known)), np.inf)
        kinds = dict[int, int]()
        for row, each in enumerate(known):
            for what, least, word in limits_of_one(cluster, each):
                code = REFUSALS.index(word)
                kinds[code], most[code, row] = what, min(most[code, row], least)
        for code, what in sorted(kinds.items()):
            why[has[:, what] > most[code, job]] = code
        longest, words = zip(*(longest_s(cluster, each) for each in known), strict=True)
        allowed_s = np.array(longest)[job]
        too_long = (walltimes(workload, cluster) > allowed_s) | (allowed_s == 0)
        why[too_long] = np.array([REFUSALS.index(word) for word in words])[job][too_long]
    return why


def amounts(workload: Workload, cluster: Cluster) -> Ints:
    """How much each job has of each kind, shape (n, kinds), as `asa.lab.simulator.limits.KINDS` has them; of those in
    minutes, how much it uses in each."""
    found = np.ones((len(workload), len(KINDS)), dtype=np.int64)
    found[:, CORES] = workload.cores
    for kind in (MEMORY, GPUS):
        asked = workload.demands[:, [name == KINDS[kind] for name in workload.resources]].sum(axis=1)
        found[:, kind] = workload.units * asked[workload.kind]
    demands = aligned(workload.demands, workload.resources, cluster)
    sets, row = node_sets(workload, cluster)
    groups, member = np.unique(np.stack([workload.kind, workload.per_node, row]), axis=1, return_inverse=True)
    for group, (kind, per_node, which) in enumerate(groups.T.tolist()):
        mine = member.reshape(-1) == group
        found[mine, NODES] = cluster.fewest_nodes(workload.units[mine], demands[kind], sets[which] > 0, per_node)
    found[:, [CORE_MINUTES, CORE_RUN_MINUTES]] = found[:, [CORES]]
    found[:, [GPU_MINUTES, GPU_RUN_MINUTES]] = found[:, [GPUS]]
    return found


def asked(workload: Workload, cluster: Cluster) -> Floats:
    """The same, with what is in minutes for the whole wall time."""
    found = amounts(workload, cluster).astype(np.float64)
    minutes = np.nan_to_num(walltimes(workload, cluster), nan=np.inf)[:, None] / 60
    timed = found[:, CORE_MINUTES:]
    np.multiply(timed, minutes, out=timed, where=timed > 0)
    return found


def most_nodes(cluster: Cluster, job: Whose) -> int:
    """How many nodes limits allow a job; 0 for no limit."""
    return min((most for kind, most, _ in limits_of_one(cluster, job) if kind == NODES), default=0)


def node_sets(workload: Workload, cluster: Cluster) -> tuple[Ints, Ints]:
    """Nodes that jobs may have, as in `TableView.allowed`, and each job's row of them, shape (n,)."""
    row = codes_of("partition", workload, cluster)
    found = [cluster.allowed(partition) for partition in range(len(cluster.all_partitions))]
    asking = np.flatnonzero(workload.constraint != UNKNOWN)
    if len(asking) and cluster.features:
        asked = np.stack([row[asking], workload.constraint[asking]])
        _, first, which = np.unique(asked, axis=1, return_index=True, return_inverse=True)
        row[asking] = len(found) + which.reshape(-1)
        for job, partition in zip(asking[first].tolist(), asked[0, first].tolist(), strict=True):
            try:
                found.append(cluster.allowed(partition, workload.label("constraint", job)))
            except InvalidInput as error:
                raise InvalidInput(f"job {int(workload.number[job])} {error}") from None
    return np.array(found, dtype=np.int64), row


def walltimes(workload: Workload, cluster: Cluster) -> Floats:
    """Wall time of each job [s], shape (n,): what it asks for, its partition's default, or its limit; NaN for none."""
    if not np.isnan(workload.walltime).any():
        return workload.walltime
    partition = codes_of("partition", workload, cluster)
    usual = np.array([each.default_time_s or np.nan for each in cluster.all_partitions])[partition]
    most = np.array([each.max_time_s for each in cluster.all_partitions])[partition]
    if cluster.has_limits:
        job, known = whose(workload, codes_of("qos", workload, cluster), cluster)
        most = np.minimum(most, np.array([longest_s(cluster, each)[0] for each in known])[job])
        most = np.minimum(most, _minutes_allowed_s(workload, cluster, job, known))
    given = np.where(np.isnan(usual), np.where(np.isinf(most), np.nan, most), usual)
    found: Floats = np.where(np.isnan(workload.walltime), given, workload.walltime)
    return found


def _minutes_allowed_s(workload: Workload, cluster: Cluster, job: Ints, known: Sequence[Whose]) -> Floats:
    """For how long limits of minutes let each job run [s], in whole minutes, shape (n,); infinite where none does."""
    has, found = amounts(workload, cluster), np.full(len(workload), np.inf)
    for row, each in enumerate(known):
        for kind, most, _ in limits_of_one(cluster, each):
            mine = (job == row) & (has[:, kind] > 0)
            if kind >= CORE_MINUTES and mine.any():
                whole = 60.0 * (most // has[mine, kind])
                found[mine] = np.minimum(found[mine], np.where(whole > 0, whole, np.inf))
    return found


def codes_of(column: str, workload: Workload, cluster: Cluster) -> Ints:
    """The cluster's number of each job's partition or QOS; the first one where the job names none."""
    found, own = np.zeros(len(workload), dtype=np.int64), getattr(workload, column)
    number = cluster.partition_number if column == "partition" else cluster.qos_number
    known = cluster.partitions if column == "partition" else cluster.qos
    for code in np.unique(own) if known else ():
        row = int(np.argmax(own == code))
        try:
            found[own == code] = number(workload.label(column, row))
        except InvalidInput as error:
            raise InvalidInput(f"job {int(workload.number[row])} {error}") from None
    return found


def _count_slots(state: SimulationState, cluster: Cluster, workload: Workload) -> None:
    """Make it a machine of slots where one number tells what is free: equal nodes, and one kind of unit."""
    world = state.world[0]
    kinds = np.unique(workload.kind)
    special = world["special"] or len(state.preemption) > 0
    plain = len(kinds) <= 1 and cluster.uniform and not special
    need = state.demands[int(kinds[0]) if len(kinds) else 0]
    fitting = int((cluster.capacity[0][need > 0] // need[need > 0]).min()) if need.any() else 0
    limits = workload.per_node[workload.per_node > 0]
    if plain and fitting and (len(limits) == 0 or limits.min() >= fitting):
        world["kind"] = kinds[0] if len(kinds) else 0
        world["slots"] = world["free"] = fitting * cluster.nodes
    else:
        world["slots"] = NONE


def _tie(state: SimulationState, workload: Workload) -> SimulationState:
    """Let jobs wait for those they come after."""
    children = np.flatnonzero(workload.after != UNKNOWN)
    if not len(children):
        return state
    parents = workload.after[children]
    edges = np.zeros(len(children) + 16, state.edges.dtype)
    edges["child"][: len(children)], edges["think"][: len(children)] = children, workload.think[children]
    edges["kind"][: len(children)] = AFTER_ANY
    job_states = state.job_states
    for edge, parent in reversed(list(enumerate(parents.tolist()))):
        edges["next"][edge] = job_states["children"][parent]
        job_states["children"][parent] = edge
    done = job_states["status"][parents] == ENDED  # refused: no job waits for it
    job_states["unmet"][children[~done]] = 1
    state.world[0]["edges"] = len(children)
    return state._replace(edges=edges)


# -- Tables become a schedule -----------------------------------------------------------------------------------------

_PENDING, _RUNNING = OUTCOMES.index(JobState.PENDING), OUTCOMES.index(JobState.RUNNING)


def schedule_of(state: SimulationState, workload: Workload, cluster: Cluster) -> Schedule:
    """What has become of the workload's jobs by now."""
    n = len(workload)
    world, jobs, job_states = state.world[0], state.jobs[:n], state.job_states[:n]
    status = job_states["status"]
    outcome = np.full(n, _PENDING, dtype=np.int8)
    outcome[status == RUNNING] = _RUNNING
    outcome[status == ENDED] = job_states["outcome"][status == ENDED]
    resizes = _resizes(state) if jobs["malleable"].any() else None
    nodes = world["keeps_nodes"] and (resizes is None or not len(resizes.job))
    return Schedule(
        workload,
        cluster,
        jobs["eligible"].copy(),
        jobs["started"].copy(),
        job_states["ended"].copy(),
        outcome,
        jobs["restarts"].copy(),
        _placements(state) if nodes else None,
        int(world["decisions"]),
        units=jobs["units"].copy() if len(state.molds) else None,
        resizes=resizes,
    )


def _resizes(state: SimulationState) -> Resizes:
    """Which jobs changed their widths, in their last run."""
    log = state.log[: state.world[0]["lines"]]
    began = np.zeros(len(state.jobs), dtype=np.int64)  # the last line of a job's start
    starts = np.flatnonzero(log["kind"] == STARTED)
    np.maximum.at(began, log["what"][starts], starts)
    lines = np.flatnonzero(log["kind"] == RESIZED)
    lines = lines[lines > began[log["what"][lines]]]
    return Resizes(log["what"][lines].astype(np.int64), log["at"][lines], log["value"][lines].astype(np.int64))


def _placements(state: SimulationState) -> Placements:
    """Where each job ran last."""
    rows = state.placed[: state.world[0]["placed"]]
    rows = rows[rows["restarts"] == state.jobs["restarts"][rows["job"]]]
    runs = np.stack([rows["first"], rows["last"], rows["units"]], axis=1)
    return Placements(rows["job"].copy(), runs)
