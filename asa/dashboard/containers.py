"""Containers on the agents of a run: from its log or, where that has none, from its pool's master."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from asa.core.errors import AsaError
from asa.core.event import ContainersSeen, ContainerUse, DriverStarted
from asa.core.registry import Registry
from asa.dashboard.document import plain
from asa.log.rundir import RunDirectory

_CONTAINERS = Registry("source of containers", {}, group="asa.containers")
"""Functions that take a pool's directory and return a row for each of its containers."""
_SHOWN = ("node", "container", "state", "limit_cores", "cpu_s", "periods", "throttled", "throttled_s", "memory_mib")


def pool_of(directory: RunDirectory, pool: str) -> Path:
    """Where the pool of a run is: in its own directory, or, under a name, in the state directory.

    >>> pool_of(RunDirectory(Path("/state/runs/r-1")), "shared:night").relative_to("/state")
    PosixPath('pools/night')
    """
    _, _, name = pool.partition(":")
    return directory.state / "pools" / name if name else directory.path / "pool"


def containers(pool: Path) -> list[dict[str, Any]] | None:
    """A row for each container of the pool in this directory; None where there is no pool, or it does not answer.

    ``cpu_s`` and the throttled times count from the container's start: what is used now is a difference of two looks.
    """
    if not pool.is_dir():
        return None
    try:
        rows = [row for name in _CONTAINERS for row in _CONTAINERS.load(name)(pool)]
        return [{name: _plain(row[name]) for name in _SHOWN} for row in rows]
    except (AsaError, OSError, ValueError):  # BadMessage is a ValueError: what makes no sense is no answer
        return None


class Containers:
    """A run's containers by some time, with their quotas and use, as logged; a fold of the log."""

    def __init__(self) -> None:
        self.logged = False
        self._now: dict[str, tuple[float, ContainerUse]] = {}

    def on(self, event: ContainersSeen | DriverStarted) -> None:
        """Fold an event: a new driver logs all containers again."""
        if isinstance(event, DriverStarted):
            self._now = {}
            return
        self.logged = True
        self._now |= {use.container: (event.at, use) for use in event.seen}
        for name in event.gone:
            self._now.pop(name, None)

    def table(self, nodes: Collection[str]) -> dict[str, dict[str, Any]]:
        """Rows by container, of those on these nodes; ``at`` is when it was seen to be so [s since the epoch].

        On a node that has left there are none, although no look since has said so.
        """
        return {
            name: {
                "node": use.node,
                "container": name,
                "state": "running",
                "limit_cores": use.limit_cores,
                "used": use.used_cores,
                "throttled_share": use.throttled,
                "at": plain(at),
            }
            for name, (at, use) in self._now.items()
            if use.node in nodes
        }


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, float) else value
