"""Which cores jobs held, counted through all nodes of a machine.

A schedule says how many units a job had on each node. Pictures and interval sets need to tell the jobs of a shared node
apart, so each gets cores of its own there: the lowest that are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Ints
from asa.lab.core.schedule import Schedule


@dataclass(frozen=True, eq=False)
class CoreRuns:
    """Runs of neighbouring cores that jobs held, in order of the jobs, then of the cores; shape (k,) each.

    Parameters
    ----------
    job
        Row of the workload.
    first, last
        Numbers of cores (inclusive): node 0 has the first ones, node 1 the next, and so on.
    """

    job: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.job)


def first_cores(schedule: Schedule) -> Ints:
    """Number of the first core of each node, and of one node more, shape (nodes + 1,)."""
    return np.concatenate([[0], np.cumsum(schedule.cluster.capacity[:, 0])]).astype(np.int64)


def core_runs(schedule: Schedule) -> CoreRuns:
    """Which cores the jobs held that ran; empty when that was not recorded.

    Where jobs share cores, those that find none free get the lowest ones of their node: then these numbers say how
    many, not which.
    """
    if schedule.placements is None:
        return CoreRuns(*np.zeros((3, 0), dtype=np.int64))
    job, runs = schedule.placements.job, schedule.placements.runs
    keep = schedule.ran[job]
    job, runs = job[keep], runs[keep]
    workload, cut = schedule.workload, first_cores(schedule)
    on_node = runs[:, 2] * workload.demands[workload.kind[job], 0]  # cores of each of the run's nodes
    whole = on_node * (runs[:, 1] - runs[:, 0] + 1) == cut[runs[:, 1] + 1] - cut[runs[:, 0]]
    parts = [np.stack([job[whole], cut[runs[whole, 0]], cut[runs[whole, 1] + 1] - 1])]
    if not whole.all():
        # whole nodes need no account: no other job has a core there, unless cores are shared
        some = ~whole & (on_node > 0)
        parts.append(np.array(list(_lowest_free(schedule, job[some], runs[some], on_node[some], cut))).T.reshape(3, -1))
    return _merged(*np.concatenate(parts, axis=1).astype(np.int64))


def _merged(job: Ints, first: Ints, last: Ints) -> CoreRuns:
    order = np.lexsort((first, job))
    job, first, last = job[order], first[order], last[order]
    new = np.ones(len(job), dtype=bool)
    new[1:] = (job[1:] != job[:-1]) | (first[1:] != last[:-1] + 1)
    end = np.append(new[1:], True) if len(job) else new
    return CoreRuns(job[new], first[new], last[end])


def _lowest_free(schedule: Schedule, job: Ints, runs: Ints, cores: Ints, cut: Ints) -> Iterator[tuple[int, int, int]]:
    """Job, first and last core, for runs of nodes of which jobs hold a part."""
    capacity = schedule.cluster.capacity[:, 0].tolist()
    every = [(1 << cores) - 1 for cores in capacity]  # a bit for each core of the node
    free = every.copy()
    held: dict[int, list[tuple[int, int]]] = {}
    where, amounts, offsets = runs.tolist(), cores.tolist(), cut.tolist()
    for row, starting in _events(schedule, job):
        if not starting:
            for node, mask in held.pop(row):
                free[node] |= mask
            continue
        first, last, _ = where[row]
        taken = []
        for node in range(first, last + 1):
            mask, lacking = _lowest(free[node], amounts[row])
            free[node] &= ~mask
            taken.append((node, mask))
            shared, _ = _lowest(every[node] & ~mask, lacking)
            yield from ((int(job[row]), offsets[node] + a, offsets[node] + b) for a, b in _ones(mask | shared))
        held[row] = taken


def _events(schedule: Schedule, job: Ints) -> Iterator[tuple[int, bool]]:
    """Rows of runs as they end (False) and start (True), in order of time; what ends makes room for what starts."""
    start, end = schedule.start[job], schedule.end[job]
    count = len(job)
    lasting = end > start
    times = np.concatenate([end, start])
    # at one instant: what ends, what starts and ends at once, what starts and goes on
    kind = np.concatenate([np.where(lasting, 0, 1), np.where(lasting, 2, 1)])
    starting = np.repeat([False, True], count)
    for event in np.lexsort((~starting, np.tile(np.arange(count), 2), kind, times)).tolist():
        yield event % count, event >= count


def _lowest(free: int, count: int) -> tuple[int, int]:
    """The lowest `count` bits set in `free`, and how many it lacks.

    >>> _lowest(0b10110, 2), _lowest(0b1, 3)
    ((6, 0), (1, 2))
    """
    low = (free & -free).bit_length() - 1
    if low >= 0 and (mask := ((1 << count) - 1) << low) & free == mask:
        return mask, 0
    mask = 0
    while count and free:
        bit = free & -free
        mask, free, count = mask | bit, free ^ bit, count - 1
    return mask, count


def _ones(mask: int) -> Iterator[tuple[int, int]]:
    """First and last bit of each run of ones.

    >>> list(_ones(0b110111))
    [(0, 2), (4, 5)]
    """
    start = 0
    while mask:
        low = (mask & -mask).bit_length() - 1
        mask >>= low
        length = (~mask & (mask + 1)).bit_length() - 1
        yield start + low, start + low + length - 1
        mask >>= length
        start += low + length
