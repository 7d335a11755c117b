"""Instances for planners, and a plain way of planning to compare them with."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from asa.lab.dispatchers.planning.instance import Instance


def instance(capacity, jobs, running=(), *, members=None, shared=()):
    """Jobs are (need, units, duration, waited[, per_node[, partition[, draws]]]), what runs is (node, need, units,
    end[, draws]); `draws` is of `shared`, nothing unless given.
    """
    capacity = np.array(capacity, dtype=np.int64)
    kinds: dict[tuple[int, ...], int] = {}
    rest = [(*job[4:], *(0, 0, [0] * len(shared))[len(job) - 4 :]) for job in jobs]
    kind = [kinds.setdefault((*job[0], *draws), len(kinds)) for job, (_, _, draws) in zip(jobs, rest, strict=True)]
    held = []
    for node, need, units, end, *draws in running:
        drawn = draws[0] if draws else [0] * len(shared)
        held.append((end, node, units, kinds.setdefault((*need, *drawn), len(kinds))))
    held.sort()
    demands = np.array(list(kinds), dtype=np.int64).reshape(-1, capacity.shape[1] + len(shared))
    return Instance(
        capacity,
        tuple(f"r{k}" for k in range(capacity.shape[1])),
        demands[:, : capacity.shape[1]],
        np.ones((1, len(capacity)), dtype=np.int64) if members is None else np.array(members, dtype=np.int64),
        tuple(range(len(jobs))),
        np.array([job[1] for job in jobs], dtype=np.int64),
        np.array(kind, dtype=np.int64),
        np.array([each[0] for each in rest], dtype=np.int64),
        np.array([each[1] for each in rest], dtype=np.int64),
        np.array([job[2] for job in jobs], dtype=np.float64),
        np.array([job[3] for job in jobs], dtype=np.float64),
        np.array([each[0] for each in held], dtype=np.float64),
        np.array([(node, node, units, kind) for _, node, units, kind in held], dtype=np.int64).reshape(-1, 4),
        np.array(shared, dtype=np.int64),
        tuple(f"s{k}" for k in range(len(shared))),
        demands[:, capacity.shape[1] :],
    )


@st.composite
def instances(draw, most_jobs=8, most_nodes=3, most_units=3):
    """Small machines of two resources and maybe a cap on power, with something running, and jobs that can run there."""
    nodes = draw(st.integers(1, most_nodes))
    capacity = [[draw(st.integers(1, 4)), draw(st.integers(0, 4))] for _ in range(nodes)]
    partitions = draw(st.sampled_from([1, 2]))
    members = [[1] * nodes] if partitions == 1 else [[1] * nodes, [int(node == 0) for node in range(nodes)]]
    shared = [draw(st.integers(2, 8))] if draw(st.booleans()) else []
    running, left, power = [], [list(row) for row in capacity], sum(shared)
    for node in range(nodes):
        if draw(st.booleans()):
            need = [draw(st.integers(1, left[node][0])), draw(st.integers(0, left[node][1]))]
            draws = [draw(st.integers(0, power)) for _ in shared]
            power -= sum(draws)
            running.append((node, need, 1, draw(st.integers(1, 6)), draws))
    jobs = []
    for _ in range(draw(st.integers(1, most_jobs))):
        need = [draw(st.integers(1, 4)), draw(st.integers(0, 3))]
        per_node, partition = draw(st.integers(0, 2)), draw(st.integers(0, partitions - 1))
        holds = [
            min([amount // n for amount, n in zip(row, need, strict=True) if n] + ([per_node] if per_node else []))
            for row, member in zip(capacity, members[partition], strict=True)
            if member
        ]
        if sum(holds):
            units = draw(st.integers(1, min(most_units, sum(holds))))
            draws = [draw(st.integers(0, amount // units)) for amount in shared]
            jobs.append((need, units, draw(st.integers(1, 9)), draw(st.integers(0, 20)), per_node, partition, draws))
    return instance(capacity, jobs, running, members=members, shared=shared)


WHOLE = -1
"""The machine, in the place of one of its nodes."""


class Slowly:
    """What nodes have left over time, looked up by going through all that was planned."""

    def __init__(self, problem: Instance) -> None:
        self.problem = problem
        self.planned: list[tuple[int, float, float, np.ndarray]] = []  # node or WHOLE, from, to, what
        for at, (first, last, units, kind) in zip(problem.release_at, problem.release, strict=True):
            for node in range(first, last + 1):
                self.planned.append((node, 0.0, at, units * problem.demands[kind]))
                self.planned.append((WHOLE, 0.0, at, units * problem.shared_demands[kind]))

    def times(self) -> list[float]:
        return sorted({0.0, *(end for _, _, end, _ in self.planned)})

    def free(self, node: int, start: float, end: float) -> np.ndarray:
        """The least that a node, or the machine as a whole, has left between two times."""
        has = self.problem.shared if node == WHOLE else self.problem.capacity[node]
        looks = {start, *(begin for _, begin, _, _ in self.planned if start < begin < end)}
        left = []
        for at in looks:
            used = sum((what for n, begin, stop, what in self.planned if n == node and begin <= at < stop), start=0)
            left.append(has - used)
        return np.min(left, axis=0)

    def holds(self, job: int, start: float) -> list[int]:
        """Units of a job that each node can hold from `start` until it ends; none when it would draw too much."""
        problem, need = self.problem, self.problem.demands[self.problem.kind[job]]
        found, draws = [], problem.units[job] * problem.shared_demands[problem.kind[job]]
        if (draws > self.free(WHOLE, start, start + problem.duration[job])).any():
            return [0] * len(problem.capacity)
        for node in range(len(problem.capacity)):
            free = self.free(node, start, start + problem.duration[job])
            most = min(int(left // n) for left, n in zip(free, need, strict=True) if n)
            most = max(0, min(most, problem.per_node[job] or most))
            found.append(most if problem.members[problem.partition[job], node] else 0)
        return found

    def take(self, job: int, start: float, given: dict[int, int]) -> None:
        problem, end = self.problem, start + self.problem.duration[job]
        need, draws = problem.demands[problem.kind[job]], problem.shared_demands[problem.kind[job]]
        self.planned += [(node, start, end, units * need) for node, units in given.items()]
        self.planned.append((WHOLE, start, end, sum(given.values()) * draws))

    def first_fit(self, job: int, holds: list[int]) -> dict[int, int]:
        left, given = int(self.problem.units[job]), {}
        for node, most in enumerate(holds):
            if left and most:
                given[node] = min(left, most)
                left -= given[node]
        return given


def active_slowly(problem: Instance, order) -> np.ndarray:
    """Starts of an active plan, by trying all times at which something ends."""
    machine, start = Slowly(problem), np.full(len(problem), np.nan)
    for job in order:
        for at in machine.times():
            holds = machine.holds(job, at)
            if sum(holds) >= problem.units[job]:
                machine.take(job, at, machine.first_fit(job, holds))
                start[job] = at
                break
    return start


def nondelay_slowly(problem: Instance, order) -> np.ndarray:
    """Starts of a non-delay plan: at every time at which something ends, whatever fits."""
    machine, start, at = Slowly(problem), np.full(len(problem), np.nan), 0.0
    while np.isnan(start).any():
        for job in order:
            if np.isnan(start[job]):
                holds = machine.holds(job, at)
                if sum(holds) >= problem.units[job]:
                    machine.take(job, at, machine.first_fit(job, holds))
                    start[job] = at
        later = [time for time in machine.times() if time > at]
        if not later:
            break
        at = later[0]
    return start


def reserving_slowly(problem: Instance, order, may) -> np.ndarray:
    """Starts of a non-delay plan in which some may have a reservation."""
    machine, start, at = Slowly(problem), np.full(len(problem), np.nan), 0.0
    while np.isnan(start).any():
        for job in order:
            if np.isnan(start[job]):
                for time in [time for time in machine.times() if time >= at and (time == at or may[job])]:
                    holds = machine.holds(job, time)
                    if sum(holds) >= problem.units[job]:
                        machine.take(job, time, machine.first_fit(job, holds))
                        start[job] = time
                        break
        later = [time for time in machine.times() if time > at]
        if not later:
            break
        at = later[0]
    return start


def best(problem: Instance) -> float:
    """The least mean slowdown of all plans: every order, every choice of nodes, each job as early as it can."""
    found = [np.inf]

    def go(machine: Slowly, left: tuple[int, ...], cost: float) -> None:
        if cost >= found[0]:
            return
        if not left:
            found[0] = cost
            return
        for job in left:
            rest = tuple(other for other in left if other != job)
            for at in machine.times():
                holds = machine.holds(job, at)
                if sum(holds) < problem.units[job]:
                    continue
                for given in itertools.product(*(range(most + 1) for most in holds)):
                    if sum(given) == problem.units[job]:
                        other = Slowly(problem)
                        other.planned = list(machine.planned)
                        other.take(job, at, {node: units for node, units in enumerate(given) if units})
                        slow = (problem.waited[job] + at + problem.duration[job]) / problem.duration[job]
                        go(other, rest, cost + slow)
                break

    go(Slowly(problem), tuple(range(len(problem))), 0.0)
    return found[0] / len(problem)
