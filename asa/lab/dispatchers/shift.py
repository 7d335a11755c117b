"""Work without a deadline is held until hours in which the grid is less intense, within a bound on its delay.

References
----------
P. Wiesner, I. Behnke, D. Scheinert, K. Gontarska and L. Thamsen, "Let's wait awhile: how temporal workload shifting
can reduce carbon emissions in the cloud", Middleware 2021: jobs that cannot be interrupted, with perfect forecasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats
from asa.core.energy import KWH
from asa.core.errors import InvalidInput
from asa.core.intensity import Intensity
from asa.core.units import HOUR, check_number, duration
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import UNKNOWN, Workload

ROWS_AT_ONCE, MOST_STEPS = 2048, 10_000_000
"""Jobs whose possible begins are in memory at a time; steps of the intensity from the first job to the last."""
_ALIKE = 1e-6  # g/kWh


@dataclass(frozen=True)
class Shift:
    """For how long jobs are held at most.

    Parameters
    ----------
    most_s
        From their submission [s], or as text like ``"12h"``; > 0. Then they are in the queue as all others are.
    gain
        How much CO2 an hour's delay of a job has to save [g]; >= 0.
    qos
        Only jobs that name this QOS are held; "" for all.

    Raises
    ------
    InvalidInput
        When a value is out of its bounds.
    """

    most_s: float | str
    gain: float = 0.0
    qos: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "most_s", duration(self.most_s, what="shift"))
        check_number("gain", self.gain, 0)

    def releases(self, workload: Workload, walltime: Floats, cluster: Cluster) -> Floats:
        """When each job is let into the queue [s], shape (n,): from its submission on, at most `most_s` later.

        It is the first moment at which the CO2 of its cores over its wall time, shape (n,) [s], and what its delay has
        to save are least together; without a wall time it counts as a second. The trace is the forecast, and what it
        does not tell of is not waited for.

        Raises
        ------
        InvalidInput
            When the machine has no intensity, or no power.
        """
        grid, power = cluster.intensity, cluster.power
        if grid is None or power is None:
            raise InvalidInput("the machine has no power or no intensity: give both, to hold jobs for better hours")
        found = workload.submit.copy()
        chosen = np.ones(len(workload), np.bool_)
        if self.qos:
            codes = [code for code in np.unique(workload.qos).tolist() if code != UNKNOWN]
            named = [code for code in codes if workload.label("qos", int(np.argmax(workload.qos == code))) == self.qos]
            chosen = np.isin(workload.qos, named)
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return found
        lasts = np.maximum(np.nan_to_num(walltime, nan=1.0), 1.0)
        core_w = (power.busy_w - power.idle_w) / int(cluster.capacity[0, 0])
        worth = self.gain / HOUR * KWH / np.maximum(workload.cores * core_w, 1e-9)  # g/kWh that a second's delay costs
        edges = self._edges(grid, float(found[rows[0]]), float((found + lasts)[rows].max()))
        for part in np.array_split(rows, -(-len(rows) // ROWS_AT_ONCE)):
            found[part] = self._first_best(found[part], lasts[part], worth[part], grid, edges)
        return found

    def _edges(self, grid: Intensity, first: float, last: float) -> Floats:
        """Times at which the intensity changes, from `first` until `most_s` after `last` at least [s]."""
        if not grid.repeats:
            return grid.times
        period = float(grid.times[-1] - grid.times[0])
        begin, end = ((at - grid.times[0]) // period for at in (first, last + float(self.most_s)))
        if (end - begin + 1) * len(grid.g_per_kwh) > MOST_STEPS:
            raise InvalidInput(
                f"the intensity has more than {MOST_STEPS:,} steps while jobs come: longer ones expected"
            )
        turns = np.arange(begin, end + 1)
        edges: Floats = (turns[:, None] * period + grid.times[:-1]).ravel()
        return edges

    def _first_best(self, submit: Floats, lasts: Floats, worth: Floats, grid: Intensity, edges: Floats) -> Floats:
        """Of some jobs. It is best to begin or end with a step of the intensity, at once, or as late as may be."""
        until = submit + float(self.most_s)
        begins = [submit[:, None], until[:, None]]
        for ahead in (np.zeros_like(lasts), lasts):
            first = np.searchsorted(edges, submit + ahead)
            most = int((np.searchsorted(edges, until + ahead) - first).max())
            places = np.minimum(first[:, None] + np.arange(most), len(edges) - 1)
            begins.append(np.clip(edges[places] - ahead[:, None], submit[:, None], until[:, None]))
        begin = np.sort(np.concatenate(begins, axis=1), axis=1)
        end = begin + lasts[:, None]
        known = np.ones_like(begin, np.bool_) if grid.repeats else (begin >= edges[0]) & (end <= edges[-1])
        cost = np.full_like(begin, np.inf)  # [g/kWh * s]
        cost[known] = grid.integral(end[known]) - grid.integral(begin[known])
        cost += worth[:, None] * (begin - submit[:, None])
        best = np.argmax(cost <= cost.min(axis=1, keepdims=True) + _ALIKE * lasts[:, None], axis=1)
        return np.where(known[:, 0], begin[np.arange(len(submit)), best], submit)
