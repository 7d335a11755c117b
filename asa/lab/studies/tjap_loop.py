"""Dispatchers that place jobs near together, each on a cluster of its own: what jobs pay for hops, and how they wait.

Which jobs start when is the same for all that look at windows of one length, for that depends only on how many nodes
are idle. So what differs is where jobs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asa.core.registry import DISPATCHERS, with_options
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Workload
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import rehearse, simulate
from asa.lab.studies.timing import TimedDispatcher
from asa.lab.studies.tjap_case import alone, costs
from asa.lab.training.windows import MOST, PERIOD_S, PERIODS, Geometry, machine

Ran = tuple[Schedule, list[float]]
"""A schedule, and how long each decision took that started jobs [s]."""

ALONE = "alone"
"""Not a dispatcher: every job placed as on an empty machine. Nothing can cost less."""


@dataclass(frozen=True)
class LoopRow:
    """A dispatcher in one epoch.

    Parameters
    ----------
    dispatcher, geometry
        Its spec, or `ALONE`; and the name of the geometry.
    epoch, jobs
        The epoch's number, and how many jobs have started in it.
    cost
        What these pay for hops, in sum, by the epoch's number of periods.
    job_cost, wait_s
        Means over jobs: cost, and wait [s].
    decisions, mean_s, max_s
        Decisions that start jobs, and how long one takes [s], compilation excluded; 0 for `ALONE`.
    """

    dispatcher: str
    geometry: str
    epoch: int
    jobs: int
    cost: float
    job_cost: float
    wait_s: float
    decisions: int
    mean_s: float
    max_s: float


def in_windows(dispatcher: str, geometry: Geometry, window: float = PERIOD_S) -> str:
    """The spec with what belongs to the case: the network and, for nwp, windows and how many jobs they take."""
    if dispatcher.partition(":")[0] != "nwp":
        return dispatcher
    return with_options(dispatcher, window=window, most=MOST, topology=geometry.widths, hops=geometry.hops)


def loop(
    jobs: Iterable[Workload],
    dispatchers: Sequence[str],
    geometry: Geometry,
    *,
    periods: int = PERIODS,
) -> list[LoopRow]:
    """Simulate each epoch under each dispatcher; rows of `ALONE` first.

    Parameters
    ----------
    jobs
        Workload of each epoch.
    dispatchers
        Specs; what `in_windows` adds may be left out.
    periods
        Only jobs that start until the end of so many periods are counted.
    """
    all_jobs = list(jobs)
    rows: list[LoopRow] = []
    for place, dispatcher in enumerate(dispatchers):
        spec, until = in_windows(dispatcher, geometry), periods * PERIOD_S
        for epoch, each in enumerate(all_jobs):
            ran = run(spec, each, warm=epoch == 0)
            if place == 0:
                rows.append(row(ALONE, geometry, epoch, (ran[0], []), until))
            rows.append(row(dispatcher, geometry, epoch, ran, until))
    return sorted(rows, key=lambda each: each.dispatcher != ALONE)


def run(dispatcher: Any, jobs: Workload, *, warm: bool) -> Ran:
    """Simulate one dispatcher; with `warm`, what is compiled is compiled before."""
    if warm:
        rehearse(Engine(jobs, machine()), DISPATCHERS.create(dispatcher))
    timed = TimedDispatcher(DISPATCHERS.create(dispatcher))
    schedule = simulate(jobs, machine(), timed)
    return schedule, [each.seconds for each in timed.timings if each.decided]


def row(name: str, geometry: Geometry, epoch: int, ran: Ran, until: float | None = None) -> LoopRow:
    """What an epoch comes to, of jobs that start until then [s]; None: of all."""
    schedule, seconds = ran
    until = float(np.nanmax(schedule.start)) if until is None else until
    counted = schedule.start <= until
    paid = alone(geometry)[schedule.workload.cores] if name == ALONE else costs(schedule, geometry)
    return LoopRow(
        dispatcher=name,
        geometry=geometry.name,
        epoch=epoch,
        jobs=int(counted.sum()),
        cost=float(paid[counted].sum() / (until / PERIOD_S)),
        job_cost=float(paid[counted].mean()),
        wait_s=float(schedule.wait[counted].mean()),
        decisions=len(seconds),
        mean_s=float(np.mean(seconds)) if seconds else 0.0,
        max_s=float(max(seconds, default=0.0)),
    )
