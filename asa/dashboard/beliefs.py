"""What estimators believe of queue waits by now: a distribution for each geometry, from what all runs have taught."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asa.dashboard.document import plain

_PREFIX = "waits "  # as `asa.estimators.waits` has it
_LEAST = 1e-3


def beliefs(learned: Path, site: str, partition: str) -> list[dict[str, Any]]:
    """A row for each estimator of each geometry of a queue, from the store of what was learned.

    ``weights`` has pairs of a wait [s] and how likely it is thought to be, where an estimator weighs alternatives;
    those below 0.1 % are left out. Else it is empty. ``predicted_s`` is the wait that it would plan with now.

    Raises
    ------
    StateError
        When the store cannot be read.
    """
    from asa.estimators.waits import Waits  # here: importing it takes longer than all that is shown before
    from asa.log.store import LearnedStore

    if not learned.exists():
        return []
    rows = []
    with contextlib.closing(LearnedStore(learned)) as store:
        for row in Waits(store).table():
            geometry = row.geometry
            if (geometry.site, geometry.partition) != (site, partition):
                continue
            states = (store.get(_PREFIX + str(geometry)) or {}).get("states", {})
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


def weights(state: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Pairs of alternative and weight in what an estimator has learned, if it is made of such.

    >>> weights({"grid": [0.0, 10.0, 20.0], "weights": [0.5, 1.5, 0.0]}), weights({"waits": [1.0]})
    ([(0.0, 0.25), (10.0, 0.75)], [])
    """
    grid, found = state.get("grid"), state.get("weights")
    if found is None and (logs := state.get("log_weights")):
        found = [math.exp(value - max(logs)) for value in logs]
    if not isinstance(grid, list) or not isinstance(found, list) or len(grid) != len(found):
        return []
    total = sum(found)
    return [
        (wait, round(weight / total, 4)) for wait, weight in zip(grid, found, strict=True) if weight > _LEAST * total
    ]
