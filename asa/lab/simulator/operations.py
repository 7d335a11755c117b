"""Job operations: users submit one more job, change it, hold it, cancel it; and nodes fail.

What becomes of a job's place in the queue then depends on the site, as measured on Slurm 22.05 (`docs/queue-age.md`):
which jobs age while something holds them back, and which operations take the age away. Under FIFO the place is a number
that a hold, or a constraint that could not be met for a while, replaces by the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from asa.core.arrays import Bools
from asa.core.errors import InvalidInput
from asa.core.job import DependencyKind, JobState, QueueRegime
from asa.lab.core.cluster import ROOT
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import UNKNOWN
from asa.lab.simulator import loop
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.limits import CORE_MINUTES, GPUS, KINDS, MEMORY, NODES, WORDS, Whose, limits_of_one, longest_s
from asa.lab.simulator.settings import FIFO, NICED
from asa.lab.simulator.state import (
    AFTER,
    AFTER_ANY,
    AFTER_OK,
    BARRED,
    BEGIN,
    CANCEL,
    CANCELLED,
    COMPLETED,
    DEPENDENCY,
    ENDED,
    HOLD,
    NODE_DOWN,
    NODE_UP,
    NONE,
    OPEN,
    SUBMIT,
)

_KINDS = {DependencyKind.AFTER: AFTER, DependencyKind.AFTER_OK: AFTER_OK, DependencyKind.AFTER_ANY: AFTER_ANY}
After = Sequence[tuple[int, DependencyKind]]
"""Rows of the jobs that one waits for, and how."""


def submit(
    engine: Engine,
    *,
    run: float,
    walltime: float,
    units: int,
    need: Sequence[int] = (1,),
    per_node: int = 0,
    user: int = UNKNOWN,
    partition: int = 0,
    constraint: str = "",
    after: After = (),
    begin: float = -math.inf,
    held: bool = False,
    qos: float = 0.0,
    nice: float = 0.0,
    at: float | None = None,
    watched: bool = True,
) -> int:
    """Submit one more job, now or at a later time `at` [s]; its row.

    Parameters
    ----------
    run, walltime
        Run time at full speed, and wall time [s]; a job whose `run` is infinite runs until it is ended.
    units, need, per_node
        Identical units, what one takes (amounts of the cluster's resources, in order), and how many may share a node.
    user, partition, constraint, qos, nice
        Whose it is, the number of its partition, the features that it asks for, and what its priority is made of. It
        has the machine's first QOS, and is in no account but `ROOT`; the factor of Fair Tree is 1.
    after
        Rows of the jobs that it waits for, and how.
    watched
        Whether `Engine.dispatch` comes back when something happens to it.

    Raises
    ------
    InvalidInput
        When the machine could never run it, its partition does not allow it, its constraint is none, or its
        time has passed.
    """
    at = engine.now if at is None else at
    if at < engine.now:
        raise InvalidInput(f"a job cannot be submitted at {at:g} s: it is {engine.now:g} s already")
    kind = _kind(engine, need)
    limits, nodes = engine.cluster.all_partitions[partition], engine.cluster.allowed(partition, constraint)
    most = engine.cluster.most_units(engine.state.demands[kind], nodes, per_node, limits.max_nodes)
    if not 1 <= units <= most:
        raise InvalidInput(f"a job of {units} units of {tuple(need)}: the machine could run {most} at most")
    cores = units * int(need[0])
    demand = dict(zip(engine.cluster.resources, map(int, need), strict=True))
    fewest = engine.cluster.fewest_nodes(np.array([units]), engine.state.demands[kind], nodes, per_node)
    memory, gpus = (units * demand.get(name, 0) for name in KINDS[MEMORY : GPUS + 1])
    amounts = 1, 1, cores, int(fewest[0]), memory, gpus, cores, gpus, cores, gpus, 1
    whose, most_of_nodes = 0, limits.max_nodes
    if engine.cluster.has_limits:
        whose = 1 + (user if user <= engine.workload.user.max(initial=UNKNOWN) else UNKNOWN)
        mine = Whose(next(iter(engine.cluster.qos), ""), ROOT, engine.workload.text("user", whose - 1))
        for what, allowed, reason in limits_of_one(engine.cluster, mine):
            if what == NODES and not 0 < most_of_nodes < allowed:
                most_of_nodes = allowed
            asks = amounts[what] * walltime / 60 if what >= CORE_MINUTES and amounts[what] else amounts[what]
            if asks > allowed:
                raise InvalidInput(f"a job of {asks:.12g} {WORDS[what]}: at most {allowed} expected ({reason})")
        most_s, word = longest_s(engine.cluster, mine)
        if walltime > most_s:
            raise InvalidInput(f"a job of {walltime:g} s: at most {most_s:g} s expected ({word})")
    if walltime > limits.max_time_s:
        raise InvalidInput(f"a job of {walltime:g} s: its partition allows {limits.max_time_s:g} s")
    allowed = _row(engine, nodes)
    engine.grow()
    s = engine.state
    world = s.world[0]
    row = int(world["jobs"])
    world["jobs"] += 1
    job, job_state = s.jobs[row], s.job_states[row]
    nan = math.nan
    job["submit"] = at
    job["walltime"] = job["estimate"] = job["predicted"] = walltime
    job["eligible"] = job["accrue"] = job["started"] = job["planned"] = nan
    job["units"], job["kind"], job["per_node"], job["cores"] = units, kind, per_node, cores
    job["user"], job["group"], job["name"], job["partition"], job["number"] = user, UNKNOWN, UNKNOWN, partition, row + 1
    job["qos"], job["nice"] = qos, nice
    job["allowed"] = allowed
    job["max_nodes"], job["tier"] = most_of_nodes, limits.tier
    job["standing"] = 0 if engine.cluster.preempts_by_qos else partition
    job_state["whose"] = whose
    if len(s.counts):
        s.amounts[row] = amounts
    job_state["association"] = NONE if len(s.tree) or user >= len(s.usage) else user
    job_state["run"], job_state["speed"], job_state["ended"], job_state["begin"] = run, 1.0, nan, begin
    job_state["stop"] = walltime if engine.settings.overrun == "clip" else math.inf
    job_state["event"] = job_state["held"] = job_state["children"] = NONE
    job_state["watched"], job_state["gates"] = watched, HOLD * held
    _depend(engine, row, after)
    if nice and engine.weights[0] == FIFO:
        engine.weights[0] = NICED
    engine.room()
    loop.push(engine.state, at, SUBMIT, row)
    return row


def cancel(engine: Engine, row: int) -> None:
    """End a job that has not ended, waiting or running."""
    if engine.state.job_states["status"][row] != ENDED:
        engine.room()
        loop.finish(engine.state, row, CANCELLED)


def end(engine: Engine, row: int, state: JobState = JobState.COMPLETED) -> None:
    """A running job's program ends by itself, now."""
    engine.room()
    loop.finish(engine.state, row, OUTCOMES.index(state))


def requeue(engine: Engine, row: int) -> None:
    """A running job waits again: at the end of the queue, its age gone."""
    engine.room()
    loop.requeue(engine.state, row)


def hold(engine: Engine, row: int) -> None:
    """Hold a waiting job. Its age is gone where limits are enforced."""
    loop.block(engine.state, row, HOLD)
    _lose_age(engine, row)


def release(engine: Engine, row: int) -> None:
    """Let a held job go. Under FIFO it goes to the end of the queue."""
    _lose_place(engine, row)
    _open(engine, row, HOLD)


def bar(engine: Engine, row: int) -> None:
    """Ask for nodes that are not to be had, as by excluding all of them: the job cannot start, and goes on ageing."""
    loop.block(engine.state, row, BARRED)


def unbar(engine: Engine, row: int) -> None:
    """Ask for nodes that there are. Under FIFO the job goes to the end of the queue."""
    _lose_place(engine, row)
    _open(engine, row, BARRED)


def set_nice(engine: Engine, row: int, nice: float) -> None:
    """Take so much off a job's priority; under FIFO, stand so many places behind. Its age is not touched."""
    engine.state.jobs["nice"][row] = nice
    if engine.weights[0] == FIFO:
        engine.weights[0] = NICED
    engine.state.world[0]["dirty"] = 1


def set_begin(engine: Engine, row: int, begin: float) -> None:
    """Let a waiting job start at `begin` [s] at the earliest. Its age is gone where limits are enforced."""
    job_state = engine.state.job_states[row]
    job_state["begin"] = begin
    _lose_age(engine, row)
    engine.room()
    if begin > engine.now:
        loop.block(engine.state, row, BEGIN)
        loop.push(engine.state, begin, OPEN, row)
    else:
        loop.unblock(engine.state, row, BEGIN)


def set_dependencies(engine: Engine, row: int, after: After) -> None:
    """Let a waiting job wait for these others, and for none else. Its age is gone where limits are enforced."""
    s = engine.state
    used = s.edges[: s.world[0]["edges"]]
    used["child"][used["child"] == row] = NONE
    s.job_states["unmet"][row] = 0
    _depend(engine, row, after)
    _lose_age(engine, row)
    if engine.state.job_states["unmet"][row]:
        loop.block(engine.state, row, DEPENDENCY)
    else:
        _open(engine, row, DEPENDENCY)


def set_walltime(engine: Engine, row: int, walltime: float) -> None:
    """Change a waiting job's wall time [s]."""
    s = engine.state
    for name in ("walltime", "estimate", "predicted"):
        s.jobs[name][row] = walltime
    if engine.settings.overrun == "clip":
        s.job_states["stop"][row] = walltime
    s.world[0]["dirty"] = 1


def set_units(engine: Engine, row: int, units: int) -> None:
    """Change how many units a waiting job has."""
    job = engine.state.jobs[row]
    job["cores"] = job["cores"] // job["units"] * units
    job["units"] = units
    engine.state.world[0]["dirty"] = 1


def fail_node(engine: Engine, node: int, at: float, back: float = math.inf) -> None:
    """Let a node fail at `at` [s], and be back at `back` [s]."""
    if not engine.now <= at < back:
        raise InvalidInput(f"node {node} cannot fail at {at:g} s and be back at {back:g} s: it is {engine.now:g} s")
    if not 0 <= node < engine.cluster.nodes:
        raise InvalidInput(f"there is no node {node}: nodes go from 0 to {engine.cluster.nodes - 1}")
    engine.room()
    loop.push(engine.state, at, NODE_DOWN, node)
    if back < math.inf:
        loop.push(engine.state, back, NODE_UP, node)


def fail_nodes(engine: Engine) -> None:
    """Let nodes fail as the cluster says, from the first submission of its jobs to the last."""
    submit, failures = engine.workload.submit, engine.cluster.failures
    if failures is not None and len(submit):
        for node, at, back in failures.drawn(engine.cluster.nodes, float(submit[0]), float(submit[-1])):
            fail_node(engine, node, at, back)


# -- rules -----------------------------------------------------------------------------------------------------------


def _open(engine: Engine, row: int, gate: int) -> None:
    engine.room()
    loop.unblock(engine.state, row, gate)


def _lose_age(engine: Engine, row: int) -> None:
    if QueueRegime(engine.settings.model.regime) is QueueRegime.LIMITS:
        engine.state.jobs["accrue"][row] = math.nan


def _lose_place(engine: Engine, row: int) -> None:
    if QueueRegime(engine.settings.model.regime) is QueueRegime.FIFO:
        world = engine.state.world[0]
        engine.state.jobs["place"][row] = world["place"]
        world["place"] += 1.0


def _kind(engine: Engine, need: Sequence[int]) -> int:
    """Number of the kind of unit that takes so much; a new one may end the machine of slots."""
    s = engine.state
    same = np.flatnonzero((s.demands == np.asarray(need, dtype=np.int64)).all(axis=1))
    if len(same):
        kind = int(same[0])
    else:
        engine.extend(demands=np.concatenate([s.demands, [need]]).astype(np.int64))
        kind = len(s.demands)
    if s.world[0]["slots"] >= 0 and kind != s.world[0]["kind"]:
        s.world[0]["slots"] = NONE
    return kind


def _row(engine: Engine, nodes: Bools) -> int:
    """Row of these nodes in the table of those that jobs may have."""
    s = engine.state
    same = np.flatnonzero((s.allowed == nodes).all(axis=1))
    if len(same):
        return int(same[0])
    s.world[0]["special"], s.world[0]["slots"] = 1, NONE
    engine.extend(allowed=np.concatenate([s.allowed, [nodes]]).astype(np.int64))
    return len(s.allowed)


def _depend(engine: Engine, row: int, after: After) -> None:
    """Write down whom a job waits for; what has come already is not waited for, what cannot come dooms it."""
    for parent, kind in after:
        s = engine.state
        job_state, code = s.job_states[parent], _KINDS[kind]
        ended, started = job_state["status"] == ENDED, not math.isnan(s.jobs["started"][parent])
        if ended or (code == AFTER and started):
            if code == AFTER_OK and job_state["outcome"] != COMPLETED:
                engine.room()
                loop.push(engine.state, engine.now, CANCEL, row)
            continue
        engine.grow()
        s = engine.state
        world = s.world[0]
        number = int(world["edges"])
        world["edges"] += 1
        edge = s.edges[number]
        edge["child"], edge["kind"], edge["think"] = row, code, 0.0
        edge["next"], s.job_states["children"][parent] = s.job_states["children"][parent], number
        s.job_states["unmet"][row] += 1
