"""The run's containers, looked at from the driver: what is new of them goes into the log, and can be replayed.

CPU times come as totals since a container's start: what is used is the difference of two looks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from asa.core.errors import AsaError
from asa.core.event import ContainersSeen, ContainerUse
from asa.core.ports import Post
from executors.mesos.codec import BadMessage
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from executors.mesos.pool_rows import containers

EVERY_S = 5.0
"""How often containers are looked at [s]."""
PER_AGENT_S = 0.5
"""At least so much time passes for each agent that is asked [s]: large pools are looked at less often."""
NEWS = 0.1
"""What use must change by to be news: a share of the quota, or of a core without one; of throttled periods likewise."""

_CLOSING_S = 2.0


@dataclass(frozen=True, slots=True)
class _Look:
    """A container when it was last seen: totals, and when [s]."""

    at: float
    cpu_s: float | None
    periods: float | None
    throttled: float | None


class Sightings:
    """What was told of containers; `step` says what is to be told next."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}
        self._told: dict[str, ContainerUse] = {}

    def step(self, rows: Iterable[Mapping[str, Any]], now: float) -> ContainersSeen | None:
        """Compare rows, as `pool_rows.containers` has them, to what was told; None when nothing is news.

        Containers on a node that does not answer are neither seen nor gone.
        """
        rows = list(rows)
        found = {row["container"]: self._use(row, now) for row in rows if row["container"] is not None}
        silent = {row["node"] for row in rows if row["container"] is None}
        gone = [name for name, use in self._told.items() if name not in found and use.node not in silent]
        for name in gone:
            del self._told[name]
            self._looks.pop(name, None)
        seen = {name: use for name, use in found.items() if _is_news(self._told.get(name), use)}
        self._told |= seen
        return ContainersSeen(now, tuple(seen.values()), tuple(gone)) if seen or gone else None

    def _use(self, row: Mapping[str, Any], now: float) -> ContainerUse:
        name, before = row["container"], self._looks.get(row["container"])
        look = _Look(now, row["cpu_s"], row["periods"], row["throttled"])
        self._looks[name] = look
        if before is None or now <= before.at:
            return ContainerUse(name, row["node"], row["limit_cores"])
        cpu_s, periods = _grown(before.cpu_s, look.cpu_s), _grown(before.periods, look.periods)
        throttled = _grown(before.throttled, look.throttled)
        return ContainerUse(
            name,
            row["node"],
            row["limit_cores"],
            None if cpu_s is None else round(cpu_s / (now - before.at), 2),
            None if throttled is None or not periods else round(min(1.0, throttled / periods), 2),
        )


class ContainerWatch:
    """Looks at the containers of one framework, on a thread of its own, and posts what is news.

    Parameters
    ----------
    directory
        The pool's.
    framework_id
        Whose containers; those of other runs in the same pool are none of ours.
    post
        Where events go.
    """

    def __init__(self, directory: PoolDirectory, framework_id: str, post: Post, every_s: float = EVERY_S) -> None:
        self._directory, self._framework_id, self._post, self._every_s = directory, framework_id, post, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asa-containers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join(_CLOSING_S)  # an agent that does not answer may keep it a little longer

    def _run(self) -> None:
        sightings, pause = Sightings(), self._every_s
        with Operator(self._directory, READER) as operator:
            while not self._over.wait(pause):
                with suppress(AsaError, OSError, BadMessage):  # the pool does not answer now: it is asked again
                    rows = containers(operator)
                    pause = max(self._every_s, PER_AGENT_S * len({row["node"] for row in rows}))
                    ours = [row for row in rows if row["framework"] in (self._framework_id, None)]
                    if (news := sightings.step(ours, time.time())) and not self._over.is_set():
                        self._post([news])


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _is_news(told: ContainerUse | None, use: ContainerUse) -> bool:
    if told is None or told.limit_cores != use.limit_cores:
        return True
    step = NEWS * (use.limit_cores or 1.0)
    return _differ(told.used_cores, use.used_cores, step) or _differ(told.throttled, use.throttled, NEWS)


def _differ(told: float | None, found: float | None, step: float) -> bool:
    if told is None or found is None:
        return told is not found
    return abs(told - found) > step
