"""A decision to be planned: a machine, what runs on it and which jobs wait; from a view, a file, or as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.view import QueueView
from asa.lab.core.compiled import compiled
from asa.lab.core.files import LARGEST, check_keys, read_json, shortened
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import amounts_of
from asa.lab.placement.nodes import most_units

# -- Instances --------------------------------------------------------------------------------------------------------

LEAST_S = 1.0
"""What a job that should be over, or that has no length, is still expected to run [s]; section 2.2 of PCP'20."""


@dataclass(frozen=True, eq=False)
class Instance:
    """A machine and its queue. Times are [s] from now on.

    Parameters
    ----------
    capacity
        What the nodes have, shape (nodes, resources).
    demands
        What one unit of a job of each kind needs, shape (kinds, resources).
    members
        Nodes of each partition, shape (partitions, nodes): 1 where a node belongs to it.
    units, kind, per_node, partition
        Of the waiting jobs, shape (n,): how many units, a row of `demands`, most units that may share a node (0: no
        limit), a row of `members`.
    duration
        How long they are expected to run, shape (n,); above 0.
    waited
        How long they have waited by now, shape (n,); at least 0.
    release_at, release
        When what runs is expected to end, in order, and what comes back then, shape (k,) and (k, 4): first node, last
        node, units of each, kind.
    shared, shared_names, shared_demands
        What the machine has as a whole, such as power or licences: amounts, shape (s,), their names, and what one unit
        of a job of each kind draws while it runs, shape (kinds, s). None unless given.
    """

    capacity: Ints
    resources: tuple[str, ...]
    demands: Ints
    members: Ints
    names: tuple[str | int, ...]
    units: Ints
    kind: Ints
    per_node: Ints
    partition: Ints
    duration: Floats
    waited: Floats
    release_at: Floats
    release: Ints
    shared: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    shared_names: tuple[str, ...] = ()
    shared_demands: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def __post_init__(self) -> None:
        if not self.shared_names:
            object.__setattr__(self, "shared_demands", np.zeros((len(self.demands), 0), dtype=np.int64))

    def check(self) -> None:
        """Raise `InvalidInput` when something makes no sense; who makes an instance of a checked machine need not."""
        self._refuse(self.units < 1, "units", self.units)
        self._refuse(~((self.duration > 0) & (self.duration < np.inf)), "seconds as its duration", self.duration)
        for sort, need in enumerate(self.need):
            room = self.capacity * self.members[self.sorts[sort, 2]][:, None]
            most = int(most_units(room, need, int(self.sorts[sort, 1])))
            for job in np.flatnonzero((self.sort == sort) & (self.units > most))[:1].tolist():
                raise InvalidInput(
                    f"job {self.names[job]!r} can never run here: it has {self.units[job]} units of "
                    f"{amounts(self.resources, need.tolist())}, of which the empty machine holds {most}"
                )
        draws = self.units[:, None] * self.shared_demands[self.kind]
        for job in np.flatnonzero((draws > self.shared).any(axis=1))[:1].tolist():
            raise InvalidInput(
                f"job {self.names[job]!r} can never run here: it draws "
                f"{amounts(self.shared_names, draws[job].tolist())}"
                f", but the machine has {amounts(self.shared_names, self.shared.tolist())}"
            )

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def free(self) -> Ints:
        """What nodes have left, shape (nodes, resources)."""
        return self.capacity - held(self.release, self.demands, len(self.capacity))

    @property
    def drawn(self) -> Ints:
        """What each row of `release` draws of what is shared, shape (k, s)."""
        first, last, units, kind = self.release.T
        found: Ints = ((last - first + 1) * units)[:, None] * self.shared_demands[kind]
        return found

    @property
    def pool(self) -> Ints:
        """What is left of what is shared, shape (s,)."""
        return np.asarray(self.shared - self.drawn.sum(axis=0))

    @cached_property
    def sorts(self) -> Ints:
        """The different (kind, `per_node`, partition) of the waiting jobs, shape (sorts, 3)."""
        return self._sorted[0]

    @cached_property
    def sort(self) -> Ints:
        """Which of them each job is, shape (n,)."""
        return self._sorted[1]

    @property
    def need(self) -> Ints:
        """What a unit of each sort needs, shape (sorts, resources)."""
        return self.demands[self.sorts[:, 0]]

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        asked = self.kind, self.per_node, self.partition
        span = tuple(int(column.max(initial=0)) + 1 for column in asked)
        codes, sort = np.unique(np.ravel_multi_index(asked, span), return_inverse=True)
        return np.column_stack(np.unravel_index(codes, span)).astype(np.int64), sort.astype(np.int64)

    def slowdown(self, start: Floats) -> Floats:
        """Response over duration of jobs that start then, shape (n,)."""
        found: Floats = (self.waited + start + self.duration) / self.duration
        return found

    def _refuse(self, wrong: Any, what: str, values: Any) -> None:
        for job in np.flatnonzero(wrong)[:1].tolist():
            raise InvalidInput(f"job {self.names[job]!r} has {values[job]:g} {what}: more than 0 expected")


@compiled
def held(release: Ints, demands: Ints, nodes: int) -> Ints:
    """What running jobs, as in `Instance.release`, hold of each node; shape (nodes, resources)."""
    found = np.zeros((nodes, demands.shape[1]), np.int64)
    for row in range(len(release)):
        for node in range(release[row, 0], release[row, 1] + 1):
            for k in range(demands.shape[1]):
                found[node, k] += release[row, 2] * demands[release[row, 3], k]
    return found


def amounts(resources: Sequence[str], of_each: Sequence[int]) -> str:
    """Amounts of resources, in words."""
    return ", ".join(f"{amount} {name}" for name, amount in zip(resources, of_each, strict=True))


@dataclass(frozen=True, eq=False)
class QueuePlan:
    """When all jobs of an instance start [s], shape (n,), and where: job, node and units on it, shape (rows, 3)."""

    start: Floats
    where: Ints

    def objective(self, instance: Instance) -> float:
        """Mean slowdown; 0 where no job waits."""
        return float(instance.slowdown(self.start).mean()) if len(instance) else 0.0

    def nodes(self, job: int) -> list[tuple[int, int]]:
        """Nodes of a job, and units on each."""
        rows = self.where[self.where[:, 0] == job]
        return [(node, units) for _, node, units in rows.tolist()]


@dataclass(frozen=True, eq=False)
class PlannedJob:
    """What a planner has come to.

    Parameters
    ----------
    plan
        None where there was no time to find one.
    status
        ``"optimal"`` when there is no better one, ``"feasible"``, or ``"unknown"`` without a plan.
    bound
        What the planner itself has proven: no plan has a smaller mean slowdown; None where it proves nothing.
    """

    plan: QueuePlan | None
    status: str
    bound: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


class Planner(Protocol):
    """A dispatcher that plans whole instances."""

    def solve(self, instance: Instance, seconds: float) -> PlannedJob:
        """Plan all waiting jobs, within about so many seconds."""


def example() -> Instance:
    """Two nodes of two cores, one of them busy for 10 s; three jobs wait: long, wide, and short.

    >>> len(example()), example().free.tolist()
    (3, [[0], [2]])
    """
    demands, none = np.array([[1], [2]]), np.zeros(3, dtype=np.int64)
    return Instance(
        np.array([[2], [2]]), ("cores",), demands, np.ones((1, 2), dtype=np.int64), ("long", "wide", "short"),
        np.array([1, 2, 1]), np.array([0, 1, 0]), none, none, np.array([20.0, 5.0, 8.0]), np.array([0.0, 3.0, 1.0]),
        np.array([10.0]), np.array([[0, 0, 1, 1]]),
    )  # fmt: skip


# -- Where instances come from ----------------------------------------------------------------------------------------


def from_view(view: QueueView | TableView) -> Instance:
    """The problem that a machine has now. One whose nodes do not matter is a single node.

    Who is late is expected to run `LEAST_S` more; a job that asks for no time is expected to run as long. Tiers are the
    order in which the jobs stand, and no more.

    Raises
    ------
    InvalidInput
        When a partition limits the nodes of its jobs, or windows keep nodes from them.
    """
    if isinstance(view, QueueView):
        return _from_queue(view)
    if view.column("max_nodes").any():
        raise InvalidInput("plans know no limit of nodes: take a backfilling rule, or partitions without max_nodes")
    if len(view.windows):
        raise InvalidInput("plans know no windows: take a backfilling rule, or a site without them")
    rows = view.waiting
    units = np.asarray(view.column("units"), dtype=np.int64)
    duration = np.maximum(np.nan_to_num(np.asarray(view.column("estimate"), dtype=np.float64), posinf=1e9), LEAST_S)
    waited = view.now - np.asarray(view.column("submit"), dtype=np.float64)
    if view.slots >= 0:
        none, running = np.zeros(len(rows), dtype=np.int64), np.asarray(view.jobs["units"][view.active], dtype=np.int64)
        return Instance(
            np.array([[view.slots + int(running.sum())]]), ("units",), np.array([[1]]),
            np.ones((1, 1), dtype=np.int64), tuple(rows.tolist()), units, none, none, none, duration, waited,
            np.maximum(view.ends - view.now, LEAST_S), _on_one_node(running, np.zeros_like(running)),
        )  # fmt: skip
    shared = np.array([name in view.cluster.shareable for name in view.cluster.resources])
    demands = np.where(shared, 0, view.demands)  # what jobs share is never used up
    capacity = view.free + held(view.release, demands, len(view.free))  # of nodes that are down, nothing
    return Instance(
        capacity, view.cluster.resources, demands, view.allowed, tuple(rows.tolist()), units,
        np.asarray(view.column("kind"), dtype=np.int64), np.asarray(view.column("per_node"), dtype=np.int64),
        np.asarray(view.column("allowed"), dtype=np.int64), duration, waited,
        np.maximum(view.release_at - view.now, LEAST_S), view.release,
    )  # fmt: skip


def _from_queue(view: QueueView) -> Instance:
    needs = [*(job.resources for job in view.queue), *(job.resources for job in view.running)]
    demands, kinds = np.unique([amounts_of(need, view.capacity) for need in needs], axis=0, return_inverse=True)
    kinds, count = kinds.reshape(-1), len(view.queue)
    ends = np.maximum(np.array([job.ends for job in view.running]) - view.now, LEAST_S)
    order = np.argsort(ends, kind="stable")
    running = kinds[count:][order]
    none, ones = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    return Instance(
        np.array([amounts_of(view.capacity, view.capacity)], dtype=np.int64),
        ("cores", "gpus", "memory")[: demands.shape[1]], demands, np.ones((1, 1), dtype=np.int64),
        tuple(job.key for job in view.queue), ones, kinds[:count], none, none,
        np.maximum(np.array([job.walltime_s for job in view.queue]), LEAST_S),
        view.now - np.array([job.submitted for job in view.queue]), ends[order],
        _on_one_node(np.ones_like(running), running),
    )  # fmt: skip


def _on_one_node(units: Ints, kind: Ints) -> Ints:
    """What runs, of a machine that is a single node."""
    none = np.zeros_like(units)
    return np.column_stack([none, none, units, kind])


def read_instance(path: str | Path) -> Instance:
    """An instance from a JSON file, gzipped or not.

    ``cap``: what each node has. ``running``: for each job ``req``, what a unit needs, ``rn``, how many units it has,
    ``end`` [s] and ``alloc``, pairs of node and units. ``queue``: for each job ``req``, ``rn``, ``d``, its duration
    [s], and ``q``, when it was submitted [s], at most 0. Optional: ``resources``, their names, and ``id`` of a job;
    ``shared``, what the machine has as a whole, by name, and of a job what each of its units draws of that.

    Raises
    ------
    InvalidInput
        When it is no such file, a job can never run on this machine, a demand is negative or nothing, a duration is not
        above 0, a running job should be over, draws what the machine does not have, or more runs than there is; names
        the job.
    """
    path = Path(path)
    found = read_json(path, "'cap', 'running' and 'queue'")
    try:
        made = _made(found)
        made.check()
        return made
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{path}: {error!r}. Expected cap, running, queue as docs/lab/plans.md has them") from error


_MACHINE = ("cap", "running", "queue", "resources", "shared", "system", "at", "note")
_WAITING = ("id", "req", "rn", "d", "q", "shared", "note")
_RUNNING = ("id", "req", "rn", "end", "alloc", "shared", "note")
_SHORTEST_S = 1e-6
"""The shortest duration of a file [s]: slowdowns of shorter jobs mean nothing."""

_LONGEST_NAME = 200
"""Characters of a name in a file, at most: error messages repeat it."""


def _made(found: Mapping[str, Any]) -> Instance:
    check_keys(found, _MACHINE, "the file")
    capacity = _capacity(found.get("cap"))
    width = capacity.shape[1]
    _check_jobs(found.get("running"), "running", _RUNNING, ("end",), len(capacity))
    _check_jobs(found.get("queue"), "queue", _WAITING, ("d", "q"), len(capacity))
    names = _resources(found.get("resources"), width)
    shared = _whole(found.get("shared", {}), "the machine")
    kinds: dict[tuple[int, ...], int] = {}
    ends, release, left, pool = [], [], capacity.copy(), np.array(list(shared.values()), dtype=np.int64)
    for number, job in enumerate(found["running"]):
        name, need, draws = job.get("id", number), _need(job, number, names), _draws(job, number, shared)
        pool -= job["rn"] * np.array(draws, dtype=np.int64)
        _refuse_if_too_much(name, "the machine", list(shared), list(shared.values()), pool.tolist())
        for first, last, units in _places(job, name, len(capacity)):
            left[first : last + 1] -= units * np.array(need)
            for node in range(first, last + 1):
                _refuse_if_too_much(name, f"node {node}", names, capacity[node].tolist(), left[node].tolist())
            ends.append(float(job["end"]))
            release.append((first, last, units, kinds.setdefault((*need, *draws), len(kinds))))
    queue: Sequence[Mapping[str, Any]] = found["queue"]
    order = np.argsort(np.array(ends), kind="stable")
    none = np.zeros(len(queue), dtype=np.int64)
    wants = [(*_need(job, number, names), *_draws(job, number, shared)) for number, job in enumerate(queue)]
    kind_of = [kinds.setdefault(each, len(kinds)) for each in wants]
    for number, job in enumerate(queue):
        if not job["q"] <= 0:
            raise InvalidInput(f"job {job.get('id', number)!r} is submitted after now: q must be at most 0")
    demands = np.array(list(kinds), dtype=np.int64).reshape(-1, width + len(shared))
    return Instance(
        capacity, names, demands[:, :width],
        np.ones((1, len(capacity)), dtype=np.int64),
        tuple(job.get("id", number) for number, job in enumerate(queue)),
        np.array([job["rn"] for job in queue], dtype=np.int64), np.array(kind_of, dtype=np.int64), none, none,
        np.array([job["d"] for job in queue], dtype=np.float64),
        -np.array([job["q"] for job in queue], dtype=np.float64),
        np.array(ends)[order], np.array(release, dtype=np.int64).reshape(-1, 4)[order],
        np.array(list(shared.values()), dtype=np.int64), tuple(shared), demands[:, width:],
    )  # fmt: skip


def _capacity(given: object) -> Ints:
    """What each node has, shape (nodes, resources)."""
    rows = given if isinstance(given, list) else []
    width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    for node, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width or not all(type(each) is int and each >= 0 for each in row):
            raise InvalidInput(
                f"cap of node {node} is {shortened(row)}: {width or 'some'} whole numbers, at least 0, expected, as of "
                "every node"
            )
    if not width:
        raise InvalidInput(f"cap is {shortened(given)}: a list of nodes, each a list of what it has, expected")
    if any(sum(amounts) >= LARGEST for amounts in zip(*rows, strict=True)):
        raise InvalidInput(f"cap of all nodes together: less than {LARGEST:.1e} of each resource expected")
    return np.array(rows, dtype=np.int64)


def _resources(given: object, width: int) -> tuple[str, ...]:
    """What a node's amounts are called."""
    if given is None:
        return ("cores", "memory", *(f"resource {k}" for k in range(2, width)))[:width]
    words = isinstance(given, list) and all(isinstance(name, str) and len(name) <= _LONGEST_NAME for name in given)
    if not isinstance(given, list) or not words or len(set(given)) != width or len(given) != width:
        raise InvalidInput(f"resources are {shortened(given)}: {width} different names expected, as nodes have amounts")
    return tuple(given)


def _check_jobs(jobs: object, of: str, known: Sequence[str], keys: Sequence[str], nodes: int) -> None:
    """Refuse what is no list of jobs with their own names, units, and these numbers."""
    if not isinstance(jobs, list):
        raise InvalidInput(f"Expected cap, running, queue as docs/lab/plans.md has them: {of} is {shortened(jobs)}")
    who, seen = "running job" if of == "running" else "job", set()
    for number, job in enumerate(jobs):
        check_keys(job, known, f"{who} {number}")
        name = job.get("id", number)
        if isinstance(name, bool) or not isinstance(name, int | str) or len(str(name)) > _LONGEST_NAME:
            raise InvalidInput(
                f"{who} {number} has id {shortened(name)}: a text of at most {_LONGEST_NAME} characters, or a whole "
                "number, expected"
            )
        if name in seen:
            raise InvalidInput(f"{who} {number} has id {name!r}, as one before it: each its own expected")
        seen.add(name)
        for key in keys:
            if isinstance(value := job.get(key), bool) or not isinstance(value, int | float):
                raise InvalidInput(f"{who} {name!r} has {key} {shortened(value)}: a number expected")
        if type(units := job.get("rn")) is not int or not 0 <= units <= nodes * MOST:
            most = f"from 1 to {MOST:.0f} for each node"
            raise InvalidInput(f"{who} {name!r} has rn {shortened(units)}: a whole number of units, {most}, expected")
        if "d" in keys and 0 < job["d"] < _SHORTEST_S:
            raise InvalidInput(f"{who} {name!r} has d {job['d']}: at least {_SHORTEST_S} s expected")


def _whole(shared: Mapping[str, Any], who: str) -> Mapping[str, int]:
    """What the machine has as a whole, or what a unit of a job draws of that."""
    if not isinstance(shared, Mapping):
        raise InvalidInput(f"{who} has shared {shortened(shared)}: amounts by name expected")
    for name, amount in shared.items():
        if len(name) > _LONGEST_NAME:
            raise InvalidInput(f"{who} shares {shortened(name)}: a name of at most {_LONGEST_NAME} characters expected")
        if type(amount) is not int or amount < 0:
            raise InvalidInput(
                f"{who} has {shortened(amount)} of the shared resource {name!r}: a whole number, at least 0, expected"
            )
    return shared


def _draws(job: Mapping[str, Any], number: int, shared: Mapping[str, int]) -> tuple[int, ...]:
    """What a unit of a job draws of what the machine has as a whole."""
    name = job.get("id", number)
    draws = _whole(job.get("shared", {}), f"a unit of job {name!r}")
    if unknown := [each for each in draws if each not in shared]:
        raise InvalidInput(f"job {name!r} draws {unknown[0]!r}, which the machine does not have: expected {[*shared]}")
    return tuple(draws.get(each, 0) for each in shared)


def _refuse_if_too_much(
    job: str | int, who: str, names: Sequence[str], has: Sequence[int], left: Sequence[int]
) -> None:
    if any(amount < 0 for amount in left):
        raise InvalidInput(
            f"running job {job!r} needs more than {who} has: with those before it, of {amounts(names, has)} are left "
            f"{amounts(names, left)}"
        )


def _need(job: Mapping[str, Any], number: int, names: Sequence[str]) -> tuple[int, ...]:
    given, name = job.get("req"), job.get("id", number)
    need = tuple(given) if isinstance(given, list) else ()
    if len(need) != len(names) or not all(type(amount) is int for amount in need):
        raise InvalidInput(f"job {name!r} has req {shortened(given)}: {len(names)} whole numbers expected")
    if min(need) < 0 or not any(need):
        raise InvalidInput(
            f"a unit of job {name!r} needs {amounts(names, need)}: no amount below 0, and one above it, expected"
        )
    return need


def _places(job: Mapping[str, Any], name: str | int, nodes: int) -> list[tuple[int, int, int]]:
    """Nodes of a running job, as runs: first, last, and units on each."""
    if not job["end"] > 0:
        raise InvalidInput(
            f"running job {name!r} is expected to end at {job['end']} s, which is not after now (0 s): give one that "
            f"is late {LEAST_S:g} s more"
        )
    given = job.get("alloc")
    pairs: list[Any] = given if isinstance(given, list) else [given]
    if wrong := [each for each in pairs if not isinstance(each, list) or [type(part) for part in each] != [int, int]]:
        raise InvalidInput(
            f"running job {name!r} has {shortened(wrong[0])} in alloc: pairs of node and units, whole numbers, expected"
        )
    places = [(node, units) for node, units in pairs]
    for node, units in places:
        if not 0 <= node < nodes or units < 1:
            raise InvalidInput(
                f"running job {name!r} has {units} units on node {node}: at least 1, and a node from 0 to {nodes - 1} "
                "expected"
            )
    if (there := sum(units for _, units in places)) != job["rn"]:
        raise InvalidInput(f"running job {name!r} has {job['rn']} units, and {there} on its nodes")
    runs: list[tuple[int, int, int]] = []
    for node, units in places:
        if runs and runs[-1][1:] == (node - 1, units):
            runs[-1] = (runs[-1][0], node, units)
        else:
            runs.append((node, node, units))
    return runs


# -- Tables for compiled planners -------------------------------------------------------------------------------------

MOST = 2.0**20
"""More units than any node holds: what it holds of a job that needs nothing of a resource."""


class Problem(NamedTuple):
    """What does not change while jobs are planned.

    `need` and `inverse` have shape (resources, sorts), `draws` (s, sorts), `most` (most units on a node) and `part`
    (sorts,), `members` (partitions, nodes); `sort`, `units`, `duration`, `weight` and `first` (where its rows begin)
    (n,). `back_at`, in order, and `back`, shape (k, 4) (first node, last node, units of each, row of `demands`) are
    what runs, and `drawn`, shape (k, s), what that takes of what is shared; `demands` has shape (kinds, resources).
    """

    need: Floats
    inverse: Floats
    draws: Floats
    most: Floats
    part: Ints
    members: Ints
    sort: Ints
    units: Ints
    duration: Floats
    weight: Floats
    first: Ints
    back_at: Floats
    back: Ints
    drawn: Ints
    demands: Ints


class Starts(NamedTuple):
    """When jobs start, and where.

    `start` (n,) is NaN for those that were not planned [s]. Of `node` and `given` (nodes, and units on each) a job has
    so many `rows` (n,), from its `Problem.first` on.
    """

    start: Floats
    rows: Ints
    node: Ints
    given: Ints


def problem(instance: Instance) -> Problem:
    """The same as tables; a second of a job's wait weighs one over its duration, as it adds to the slowdown."""
    need = np.ascontiguousarray(instance.need.T, dtype=np.float64)
    inverse = np.divide(1.0, need, out=np.zeros_like(need), where=need > 0)
    per_node = instance.sorts[:, 1].astype(np.float64)
    rows = np.minimum(instance.units, len(instance.capacity))
    return Problem(
        need,
        inverse,
        np.ascontiguousarray(instance.shared_demands[instance.sorts[:, 0]].T, dtype=np.float64),
        np.where(per_node > 0, per_node, MOST),
        np.ascontiguousarray(instance.sorts[:, 2]),
        np.ascontiguousarray(instance.members, dtype=np.int64),
        instance.sort,
        np.ascontiguousarray(instance.units, dtype=np.int64),
        instance.duration,
        1.0 / instance.duration,
        np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
        instance.release_at,
        np.ascontiguousarray(instance.release, dtype=np.int64),
        instance.drawn,
        np.ascontiguousarray(instance.demands, dtype=np.int64),
    )


def starts(p: Problem) -> Starts:
    """Nothing is planned yet."""
    jobs, rows = len(p.sort), int(p.first[-1])
    return Starts(np.full(jobs, np.nan), np.zeros(jobs, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def plan_of(p: Problem, found: Starts) -> QueuePlan:
    """A plan of what was found."""
    jobs = np.repeat(np.arange(len(found.start)), found.rows)
    used = np.arange(len(jobs)) - np.repeat(np.cumsum(found.rows) - found.rows, found.rows) + p.first[jobs]
    return QueuePlan(found.start.copy(), np.column_stack([jobs, found.node[used], found.given[used]]))
