"""What jobs would wait in a simulated queue, each with all that an ordinary user sees of it at that moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats
from asa.core.context import Context
from asa.lab.dispatchers.backfill import Rule
from asa.lab.forecast.futures import Ahead
from asa.lab.forecast.lookahead import Lookahead
from asa.lab.forecast.visible import visible
from asa.lab.simulator.engine import Engine
from asa.lab.studies.probes import PROBE_RUN_S, Kind, started, submit
from asa.lab.studies.waits_seen import Record


class Watched(NamedTuple):
    """A job, and the wait [s] that somebody foretells who knows how long all jobs run, but not which will come."""

    record: Record
    runs_known_s: float


def watched(engine: Engine, rule: Rule, kinds: Iterable[Kind], times: Sequence[float]) -> list[Watched]:
    """Waits of jobs of each kind at each of `times` [s], with their contexts, in order of submission.

    Every job has a copy of the machine for itself, so that it is in nobody's way; the machine itself is driven to the
    last of the times. A context's `pending_s` is that of the earlier jobs of its kind.

    Raises
    ------
    InvalidInput
        When a job never starts.
    """
    mine: dict[Kind, list[Record]] = {kind: [] for kind in sorted(set(kinds))}
    found: list[Watched] = []
    for at in times:
        engine.drive(rule, until=at)
        view, (left_s, run_s) = engine.view().plain(), _runs(engine)
        for kind, before in mine.items():
            copy = engine.copy()
            (start,) = started(copy, rule, [submit(copy, kind, PROBE_RUN_S)])
            pending = next((at - each.submitted for each in before if each.started > at), 0.0)
            context = Context(at, kind.cores, kind.walltime_s, pending_s=pending).looked(view)
            ahead = Ahead.of(visible(view), kind.cores, kind.walltime_s)
            before.append(Record(kind.cores, at, start - at, replace(context, planned_s=ahead.planned())))
            found.append(Watched(before[-1], ahead.wait(rule, left_s, run_s)))
    return found


def _runs(engine: Engine) -> tuple[Floats, Floats]:
    """What running jobs will go on for, and what waiting ones will run [s]: what no user sees."""
    view, fates = engine.view(), engine.state.fates
    runs = np.minimum(fates["run"], fates["stop"])
    left: Floats = view.jobs["started"][view.active] + runs[view.active] - view.now
    return left, runs[view.waiting]


class Watcher(Lookahead):
    """A forecast that looks at the queue whenever it is asked, as a run does that polls its jobs anyway."""

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """The wait [s]; the queue of the context has been looked at before."""
        if context is not None and context.queue is not None:
            self.see(context.queue)
        return super().predict(context, quantile)
