"""How long a queue would make jobs wait, without disturbing it: probes go their own way in copies of the machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from asa.core.errors import InvalidInput
from asa.core.job import DependencyKind
from asa.lab.dispatchers.backfill import Rule
from asa.lab.simulator import edits
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.state import Why
from asa.lab.studies.accuracy import Probe

PROBE_RUN_S = 1.0
"""How long a probe runs [s]: it asks for its wall time and ends at once, so that it is in nobody's way."""


class Kind(NamedTuple):
    """A kind of job: its cores and its wall time [s]."""

    cores: int
    walltime_s: float


def watch(engine: Engine, rule: Rule, kinds: Iterable[Kind], times: Sequence[float]) -> dict[Kind, list[Probe]]:
    """Waits of jobs of each kind, submitted at each of `times` [s]; the machine itself is driven to the last of them.

    All jobs of one time are submitted to the same copy, the smallest first: none has a larger one before it.

    Raises
    ------
    InvalidInput
        When times do not increase, one has passed, or a job never starts.
    """
    found: dict[Kind, list[Probe]] = {kind: [] for kind in sorted(set(kinds))}
    for at in times:
        if at < engine.now:
            raise InvalidInput(f"nothing can be submitted at {at:g} s: it is {engine.now:g} s already")
        engine.drive(rule, until=at)
        copy = engine.copy()
        rows = {kind: submit(copy, kind, PROBE_RUN_S) for kind in found}
        starts = started(copy, rule, list(rows.values()))
        for kind, start in zip(rows, starts, strict=True):
            found[kind].append(Probe(at, start - at))
    return found


def submit(engine: Engine, kind: Kind, run_time_s: float, at: float | None = None, after: Sequence[int] = ()) -> int:
    """Submit a job of single cores, now or at a later time [s], which waits for the jobs of some rows; its row."""
    return edits.submit(
        engine,
        run=run_time_s,
        walltime=kind.walltime_s,
        units=kind.cores,
        need=(1,) + (0,) * (len(engine.cluster.resources) - 1),
        after=[(row, DependencyKind.AFTER_OK) for row in after],
        at=at,
    )


def started(engine: Engine, rule: Rule, rows: Sequence[int]) -> list[float]:
    """When the jobs of these rows start [s]; lets time pass until all of them have.

    Raises
    ------
    InvalidInput
        When one never does.
    """
    while math.isnan(max(starts := engine.state.jobs["started"][list(rows)].tolist(), key=math.isnan)):
        if engine.drive(rule) is Why.OVER:
            raise InvalidInput("a job would never start in this queue: nothing more happens in it")
    return [float(start) for start in starts]
