"""The energy of a schedule, and its CO2: exact integrals of the power that is declared for the machine's nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.energy import KWH
from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule

Weight = Callable[[Floats], Floats]
"""From times [s] to what a watt has come to by then: constant power comes to its watts times the difference."""

Stretches = tuple[Floats, Floats, Ints]
"""From when to when [s], and how many, shape (n,) each."""

NODES_AT_ONCE = 1024
"""Nodes whose idle times are in memory at a time."""


def energy(schedule: Schedule) -> dict[str, float]:
    """What a machine drew from the first submission to the last end; empty where no power of nodes is declared.

    Returns
    -------
    dict
        `energy_kwh` of all nodes, idle ones too; `energy_jobs_kwh`, that part of it which busy cores add. With an
        intensity also `co2_kg` and `co2_jobs_kg`.

    Raises
    ------
    InvalidInput
        When nodes are powered down and it was not recorded where jobs ran; when the intensity does not tell of all
        that time.

    Notes
    -----
    All cores of a job are busy while it runs. Of a requeued job only the last run is in a schedule. A node is up again
    when a job needs it: what booting takes, in time and energy, is not counted.
    """
    power = schedule.cluster.power
    if power is None:
        return {}
    nodes, (start, end, cores) = schedule.cluster.nodes, schedule.used
    core_w = (power.busy_w - power.idle_w) / int(schedule.cluster.capacity[0, 0])
    watts = cores * core_w
    whole = np.array([schedule.workload.submit.min(initial=math.inf)]), np.array([end.max(initial=-math.inf)])
    found: dict[str, float] = {}
    down = list(_down(schedule, float(whole[0][0]), float(whole[1][0]))) if len(end) else []
    for name, weight in _weights(schedule.cluster).items():
        quantity, unit = name.split("_")
        jobs = _weighed(weight, start, end, watts)
        idle = _weighed(weight, *whole, power.idle_w * nodes) if len(end) else 0.0
        saved = sum(_weighed(weight, *each, power.idle_w - (power.off_w or 0.0)) for each in down)
        found[name] = idle + jobs - saved
        found[f"{quantity}_jobs_{unit}"] = jobs
    return found


def energy_of_cores(cluster: Cluster, held: Stretches, busy: Stretches) -> dict[str, float]:
    """What a part of a machine's nodes drew: cores that were held, their share of idle nodes, and those that were busy.

    Parameters
    ----------
    held, busy
        From when to when [s], and how many cores, shape (n,) each; what is busy is held as well.

    Returns
    -------
    dict
        `energy_kwh`, and `co2_kg` where there is an intensity; empty where no power of nodes is declared.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from asa.core.energy import NodePower
    >>> half = (np.zeros(1), np.full(1, 3600.0), np.full(1, 5))
    >>> energy_of_cores(replace(Cluster.of(1, 10), power=NodePower(1000, 3000)), half, half)
    {'energy_kwh': 1.5}
    """
    power = cluster.power
    if power is None:
        return {}
    cores = int(cluster.capacity[0, 0])
    return {
        name: _weighed(weight, *held[:2], held[2] * (power.idle_w / cores))
        + _weighed(weight, *busy[:2], busy[2] * ((power.busy_w - power.idle_w) / cores))
        for name, weight in _weights(cluster).items()
    }


def _weights(cluster: Cluster) -> Mapping[str, Weight]:
    """What a watt comes to: energy, and CO2 where an intensity is declared."""
    found: dict[str, Weight] = {"energy_kwh": lambda when: when / KWH}
    if (grid := cluster.intensity) is not None:
        found["co2_kg"] = lambda when: grid.integral(when) / KWH / 1e3
    return found


def _weighed(weight: Weight, begin: Floats, end: Floats, watts: npt.ArrayLike) -> float:
    """The sum over stretches of constant power [W], shape (n,) each, from `begin` to `end` [s]."""
    return float(np.sum(np.asarray(watts) * (weight(end) - weight(begin))))


def _down(schedule: Schedule, first: float, last: float) -> Iterator[tuple[Floats, Floats]]:
    """From when to when nodes are powered down [s], a block of nodes at a time."""
    power = schedule.cluster.power
    if power is None or power.off_w is None:
        return
    if schedule.placements is None:
        raise InvalidInput(
            "nodes are powered down (off_w), and it was not recorded where jobs ran: keep_nodes expected, and "
            "no job that is resized"
        )
    job, runs = schedule.placements.job, schedule.placements.runs
    chosen = schedule.ran[job]
    job, runs = job[chosen], runs[chosen]
    for low in range(0, schedule.cluster.nodes, NODES_AT_ONCE):
        high = min(low + NODES_AT_ONCE, schedule.cluster.nodes)
        inside = (runs[:, 0] < high) & (runs[:, 1] >= low)
        firsts, lasts = np.maximum(runs[inside, 0], low), np.minimum(runs[inside, 1], high - 1)
        count = lasts - firsts + 1
        row = np.repeat(np.arange(len(count)), count)
        node = firsts[row] + np.arange(len(row)) - (np.cumsum(count) - count)[row]
        begins, ends = _idle(
            node, schedule.start[job[inside]][row], schedule.end[job[inside]][row], low, high, first, last
        )
        begins = begins + power.off_after_s
        yield begins[ends > begins], ends[ends > begins]


def _idle(
    node: Ints, start: Floats, end: Floats, low: int, high: int, first: float, last: float
) -> tuple[Floats, Floats]:
    """From when to when each of the nodes `low` to `high` - 1 is idle [s], between `first` and `last`."""
    edge = np.arange(low, high)  # what nodes are busy with before the first and after the last moment
    node = np.concatenate([edge, node, edge])
    start = np.concatenate([np.full(len(edge), first), start, np.full(len(edge), last)])
    end = np.concatenate([np.full(len(edge), first), end, np.full(len(edge), last)])
    order = np.lexsort((end, start, node))
    node, start, end = node[order], start[order], end[order]
    times, place = np.unique(end, return_inverse=True)  # the latest end so far on each node, by its rank
    latest = times[np.maximum.accumulate(node * len(times) + place) % len(times)]
    same = node[1:] == node[:-1]
    begins, ends = latest[:-1][same], start[1:][same]
    return begins[ends > begins], ends[ends > begins]
