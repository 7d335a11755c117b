"""Offered load: what jobs ask of a machine, in shares of what it has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asa.core.errors import InvalidInput
from asa.lab.core.workload import Workload
from asa.lab.traces.cycle import Cycle


def work(workload: Workload) -> float:
    """Work [core-seconds] of all jobs together."""
    return float((workload.run * workload.cores).sum())


def span(workload: Workload) -> float:
    """Time [s] from the first submission to the last."""
    return float(workload.submit[-1] - workload.submit[0]) if len(workload) else 0.0


def offered_load(workload: Workload, cores: int) -> float:
    """Work per core of the machine and second between the first submission and the last; infinite for one instant.

    >>> offered_load(Workload.of(submit=[0, 100], run=[50, 50], cores=[1, 3]), cores=4)
    0.5
    """
    if cores < 1:
        raise InvalidInput(f"a machine of {cores} cores has no load: at least 1 core expected")
    return work(workload) / (cores * span(workload)) if span(workload) else np.inf


def at_load(workload: Workload, cores: int, load: float, cycle: Cycle | None = None) -> Workload:
    """The same jobs, with the times between them stretched or shrunk so that they offer exactly this load.

    Parameters
    ----------
    cores
        Cores of the machine; >= 1.
    load
        Offered load; > 0.
    cycle
        A daily or weekly cycle that the arrivals follow and shall keep: its operational time is stretched. Without one,
        days are stretched with everything else.

    Raises
    ------
    InvalidInput
        When the load is not above 0, or the jobs have no work or come all at once: no stretching gives them a load.
    """
    now = offered_load(workload, cores)
    if not 0 < load < np.inf:
        raise InvalidInput(f"load is {load!r}: a number above 0 expected")
    if not 0 < now < np.inf:
        raise InvalidInput(
            f"these jobs offer a load of {now}, which no stretching of the time between them can change: "
            "give two jobs or more, at different times, some of which run longer than 0 s"
        )
    submit = workload.submit
    until = submit[0] + span(workload) * (now / load)
    if cycle is None:
        stretched = submit[0] + (submit - submit[0]) * (now / load)
    else:
        done = cycle.operational(submit)
        last = cycle.operational(until)
        factor = (last - done[0]) / (done[-1] - done[0])
        stretched = cycle.clock(done[0] + (done - done[0]) * factor)
        stretched[[0, -1]] = submit[0], until  # not what rounding made of them
    return replace(workload, submit=np.maximum.accumulate(np.minimum(stretched, until)))
