"""Containers on the agents of a run, as its pool's master tells now: the log of a run does not have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asa.core.errors import AsaError
from asa.core.registry import Registry
from asa.dashboard.document import plain
from asa.log.rundir import RunDirectory

_POOL = Registry(
    "part of a pool",
    {
        "operator": "executors.mesos.operator:Operator",
        "directory": "executors.mesos.pool_directory:PoolDirectory",
        "reader": "executors.mesos.pool_directory:READER",
        "containers": "executors.mesos.pool_rows:containers",
    },
)
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
        with _POOL.load("operator")(_POOL.load("directory")(pool), _POOL.load("reader")) as operator:
            return [{name: _plain(row[name]) for name in _SHOWN} for row in _POOL.load("containers")(operator)]
    except (AsaError, OSError, ValueError):  # BadMessage is a ValueError: what makes no sense is no answer
        return None


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, float) else value
