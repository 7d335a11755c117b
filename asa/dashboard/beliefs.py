"""What estimators believe of queue waits, a distribution for each geometry: by now, and by any time of a log."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from asa.core.context import Context
from asa.core.event import Believed, Learned
from asa.core.ports import Estimator
from asa.dashboard.document import plain
from asa.workflows.learned import WAITS, estimator_of, weights

Row = dict[str, Any]


def beliefs(learned: Path, site: str, partition: str) -> list[Row]:
    """A row for each estimator of each geometry of a queue, from the store of what was learned.

    ``weights`` has pairs of a wait [s] and how likely it is thought to be, where an estimator weighs alternatives;
    those below 0.1 % are left out. Else it is empty. ``predicted_s`` is the wait that it would plan with now.
    """
    from asa.estimators.waits import Waits  # here: importing it takes longer than all that is shown before
    from asa.log.database import LearnedStore

    if not learned.exists():
        return []
    rows = []
    with contextlib.closing(LearnedStore(learned)) as store:
        for row in Waits(store).table():
            geometry = row.geometry
            if (geometry.site, geometry.partition) != (site, partition):
                continue
            states = (store.get(WAITS + str(geometry)) or {}).get("states", {})
            for spec, predicted in row.predictions.items():
                rows.append(
                    {
                        "geometry": str(geometry),
                        "estimator": spec,
                        "jobs": row.jobs,
                        "last_wait_s": plain(row.last_wait_s),
                        "predicted_s": plain(predicted),
                        "weights": weights(states.get(spec, {})),
                    }
                )
    return rows


class Beliefs:
    """What was believed by some time, by geometry, as the log of a run has it; a fold of it.

    Logs without beliefs, as older ones, have the run's own waits: `replay` teaches them to estimators that know
    nothing else. What other runs had taught before is missing then.

    Parameters
    ----------
    estimator
        Spec of the run's estimator; None where the log does not say which.
    """

    def __init__(self, estimator: str | None) -> None:
        self._estimator = estimator
        self._logged: dict[str, Believed] = {}
        self._lessons: list[tuple[str, Learned, Context | None]] = []

    @property
    def logged(self) -> bool:
        """Whether the log has had beliefs so far."""
        return bool(self._logged)

    def believe(self, event: Believed) -> None:
        """From now on this is believed."""
        self._logged[event.geometry] = event

    def learn(self, geometry: str, event: Learned, context: Context | None) -> None:
        """A job of this geometry, submitted in this context, has started, so its wait is known."""
        if not event.censored:
            self._lessons.append((geometry, event, context))

    def table(self) -> dict[str, Row]:
        """Rows by geometry, as logged: as `beliefs` has them, with the time from when that was believed."""
        return {name: _row(event, replayed=False) for name, event in self._logged.items()}

    def replay(self) -> dict[str, Row]:
        """The same, as the run's own waits would have it."""
        if (spec := self._estimator) is None:
            return {}
        made: dict[str, Estimator | None] = {}
        found: dict[str, Believed] = {}
        for geometry, event, context in self._lessons:
            if geometry not in made:
                made[geometry] = estimator_of(spec, {})
            if (estimator := made[geometry]) is not None:
                estimator.learn(event.wait_s, event.predicted_s, context)
            jobs = found[geometry].jobs + 1 if geometry in found else 1
            found[geometry] = Believed(event.at, geometry, spec, jobs, event.wait_s, event.predicted_s)
        return {name: _row(_asked(event, made[name]), replayed=True) for name, event in found.items()}


def _asked(event: Believed, estimator: Estimator | None) -> Believed:
    """With what the estimator says; of a pooled one there is only what it said last."""
    if estimator is None:
        return event
    said, weighed = estimator.predict(), weights(estimator.state())
    return replace(event, predicted_s=said, weights=tuple(weighed))


def _row(event: Believed, *, replayed: bool) -> Row:
    return {
        "geometry": event.geometry,
        "estimator": event.estimator,
        "jobs": event.jobs,
        "last_wait_s": plain(event.last_wait_s),
        "predicted_s": plain(event.predicted_s),
        "weights": [list(pair) for pair in event.weights],
        "at": plain(event.at),
        "replayed": replayed,
    }
