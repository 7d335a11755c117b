"""What holds one's own jobs back on a simulated machine for a while, without costing them their age.

The throttle of a job array, and nodes that are not to be had. The engine knows gates and no arrays: who of an array may
go is settled here, whenever something has happened to a job and before the dispatcher is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from asa.core.job import QueueRegime
from asa.lab.backend.jobs import Job
from asa.lab.simulator import state as codes
from asa.lab.simulator import waitlist
from asa.lab.simulator.engine import Engine

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
        fate = engine.state.fates[job.row]
        if job.array is not None:
            number = job.array.number
            room[number] = room.get(number, job.array.throttle) - int(fate["status"] == codes.RUNNING)
        if fate["status"] not in (codes.HELD, codes.WAITING):
            continue
        if fate["gates"] & ~_OURS:
            fate["gates"] &= ~_OURS
        elif job.parked:
            waitlist.shut(engine.state, job.row, codes.BARRED)
        elif job.array is not None:
            turns.setdefault(job.array.number, []).append(job)
    for number, waiting in turns.items():
        waiting.sort(key=lambda job: _turn(engine, job))
        free = max(0, room[number])
        for job in waiting[:free]:
            if engine.state.fates["gates"][job.row]:
                engine.room()
                waitlist.unshut(engine.state, job.row, codes.THROTTLED)
        for job in waiting[free:]:
            waitlist.shut(engine.state, job.row, codes.THROTTLED)


def _turn(engine: Engine, job: Job) -> tuple[float, int]:
    """Who comes first among the elements of an array."""
    row = engine.state.jobs[job.row]
    if QueueRegime(engine.settings.model.regime) is QueueRegime.FIFO:
        return float(row["place"] + row["nice"]), job.row
    since = float(row["accrue"])
    return math.inf if math.isnan(since) else since, job.row
