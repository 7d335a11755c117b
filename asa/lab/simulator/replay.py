"""The log of a simulation, and the schedule that it tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.state import FINISHED, REQUEUED, STARTED

KINDS = ("submitted", "eligible", "started", "finished", "requeued", "node up", "node down", "speed")
"""What the kinds of lines are called, by code."""


class Line(NamedTuple):
    """Something that happened: when [s], what, and to which job (or node). `value` is an end's outcome, or a speed."""

    at: float
    kind: str
    what: int
    value: float


def lines(engine: Engine, after: int = 0) -> Iterator[Line]:
    """What happened on a machine, from line `after` on, in order."""
    s = engine.state
    for line in s.log[after : s.world[0]["lines"]]:
        yield Line(float(line["at"]), KINDS[line["kind"]], int(line["what"]), float(line["value"]))


def replay(log: Iterable[Line], jobs: int) -> tuple[Floats, Floats]:
    """Last start and end of each job [s], NaN where there was none, from the log alone; shapes (n,)."""
    start, end = np.full(jobs, np.nan), np.full(jobs, np.nan)
    for line in log:
        if line.kind == KINDS[STARTED]:
            start[line.what] = line.at
        elif line.kind == KINDS[FINISHED]:
            end[line.what] = line.at
        elif line.kind == KINDS[REQUEUED]:
            start[line.what] = np.nan
    return start, end
