"""The `mesos` executor: an agent on every node of every allocation, one pool of them, and tasks inside.

::

    driver                                              node
    ------------------------------------------------    -----------------------------------------------
    Mesos (here), DriverSide (driver_side.py)           agent (agent/command.py), the job's own program
      MasterService            <-- asa/v1/agent -->       supervisor, a Mesos task in a container of its own
      Scheduler, Framework     <-- v1 scheduler -->         workers
      HubExecutor (hub.py)     <---- wire ------------------'

The agent is what the batch job runs. The framework takes all that an agent offers for one task, the supervisor that the
`local` and `dask` executors start directly; from there on tasks run as they do without agents.

The master of a pool that several runs share is a process of its own (`start_master`), and the framework also takes what
other runs leave idle (`tenant`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput
from asa.core.event import Event
from asa.core.job import Resources
from asa.core.ports import Report, RunContext
from asa.core.task import Task
from executors.dask import dask
from executors.hub import HubExecutor, local, node_program, node_resources
from executors.wire import RELEASED

if TYPE_CHECKING:  # with the HTTP libraries that it needs, imported when a run starts
    from executors.mesos.driver_side import DriverSide

POOL = "pool"
"""The directory of a run's own pool, in the run's."""

_MASTER_S = 60.0
_INNER: dict[str, Callable[..., HubExecutor]] = {"local": local, "dask": dask}


class Mesos:
    """Runs tasks through Mesos-compatible agents, which make the nodes of all allocations one pool.

    Parameters
    ----------
    tasks
        ``"local"``: each node's tasks run in worker processes, as with the `local` executor. ``"dask"``: as tasks of
        dask.distributed, as with the `dask` executor.
    heartbeat_s
        A node that was silent for so long [s] is lost; > 0.
    **options
        Those of the executor of that name.

    Raises
    ------
    InvalidInput
        When an option is not known or out of range.
    """

    def __init__(self, tasks: str = "local", heartbeat_s: float = 60.0, **options: Any) -> None:
        if tasks not in _INNER:
            raise InvalidInput(f"tasks={tasks!r}: choose 'local' or 'dask'")
        try:
            self._inner = _INNER[tasks](heartbeat_s=heartbeat_s, **options)
        except TypeError as error:
            raise InvalidInput(f"executor 'mesos' with tasks={tasks!r}: {error}") from error
        self._released: set[str] = set()
        self._wanted: tuple[Resources | None, int] = (None, 0)
        self._lock = threading.Lock()
        self._side: DriverSide | None = None

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """The agent's command line."""
        attributes = {"allocation": allocation.key, "run": context.run, "grace": f"{context.orphan_grace_s:g}"}
        options = {
            "directory": _pool(context),
            "attribute": tuple(f"{name}={value}" for name, value in attributes.items()),
            "lasts": allocation.walltime_s,
            # a run that misses the master of a shared pool starts another one
            "patience": max(context.orphan_grace_s, _MASTER_S) if context.pool else context.orphan_grace_s,
            "released": context.directory / RELEASED / allocation.key,
            "orphan-grace": 0,  # an agent is not started again inside a batch job
            "margin": 0,  # the plan sees to it that nothing is cut off by the wall time
        }
        return node_program("executors.mesos.agent", options | node_resources(allocation, context))

    def start(self, context: RunContext, post: Report) -> None:
        """Start the master and the framework, and listen for nodes.

        Raises `InvalidInput` when what the tasks need is not installed, and `StateError` when the run's directory
        cannot be used, or the master does not start.
        """
        # agents find the master while the rest starts
        side = self._made_side(context, post)
        try:
            self._inner.start(context, post)
            side.subscribe()
        except BaseException:
            self._inner.close()
            side.close()
            raise
        with self._lock:
            self._side = side
            self._want()

    def recover(self, tasks: Sequence[Task], allocation: str, context: RunContext) -> Sequence[Event]:
        return self._inner.recover(tasks, allocation, context)

    def adopt(self, tasks: Sequence[Task], allocation: str, nodes: Collection[str]) -> None:
        self._inner.adopt(tasks, allocation, nodes)

    def exposes(self) -> str:
        """Why others than their tasks could see secrets, or "": they do not go through master and agents."""
        return self._inner.exposes()

    def outlasts(self) -> str:
        return self._inner.outlasts()

    def crowds(self) -> str:
        return self._inner.crowds()

    def mingles(self) -> str:
        return self._inner.mingles()

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        self._inner.launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        self._inner.release(allocation)
        self._released.add(allocation)
        if self._side is not None:
            self._side.allocation_released()

    def want(self, task: Resources | None, count: int) -> None:
        with self._lock:
            self._wanted = task, count
            self._want()

    def close(self) -> None:
        """Stop listening, and end the master. Agents that are not released wait for a new one."""
        if self._side is not None:
            self._inner.close()
            self._side.close()
            self._side = None

    def _made_side(self, context: RunContext, post: Report) -> DriverSide:
        from executors.mesos.driver_side import DriverSide

        return DriverSide(_pool(context), context, self._inner, self._released, post)

    def _want(self) -> None:
        if self._side is not None and self._side.tenant is not None:
            self._side.tenant.want(*self._wanted)


def _pool(context: RunContext) -> Path:
    return context.pool or context.directory / POOL
