"""The `mesos` executor: an agent on every node of every allocation, one pool of them, and tasks inside.

::

    driver                                              node
    ------------------------------------------------    -----------------------------------------------
    Mesos (here)                                        agent (agent_command.py), the job's own program
      MasterService            <-- asa/v1/agent -->       supervisor, a Mesos task in a container of its own
      Scheduler, Framework     <-- v1 scheduler -->         workers
      Local or Dask            <---- wire ------------------'

The agent is what the batch job runs. The framework takes all that an agent offers for one task, the supervisor that the
`local` and `dask` executors start directly; from there on tasks run as they do without agents.
"""

from __future__ import annotations

import getpass
import queue
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.core.allocation import Allocation
from asa.core.errors import AsaError, InvalidInput, StateError
from asa.core.job import Resources
from asa.core.ports import Executor, Post, RunContext
from asa.core.task import Task
from asa.security.files import write_private
from executors.dask import Dask
from executors.local import Local
from executors.mesos.codec import Message
from executors.mesos.decisions import Outcome
from executors.mesos.framework import Crew, Framework
from executors.mesos.offered import Offered, Program, all_of
from executors.mesos.pool_directory import PoolDirectory
from executors.station import command, share

if TYPE_CHECKING:  # with the HTTP libraries that they need, imported when a run starts
    from executors.mesos.driver import SchedulerDriver
    from executors.mesos.master.service import MasterService
    from executors.mesos.operator import Operator
    from executors.mesos.scheduler import Scheduler

POOL = "pool"
"""The pool's directory, in the run's."""
ALLOCATION = "allocation"
"""Attribute of an agent: the key of the allocation that it belongs to."""

_INNER = {"local": Local, "dask": Dask}
_FRAMEWORK = "framework"
_READY_S = 30.0
_CLOSING_S = 5.0
_FAILOVER_S = 3600.0


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
            self._inner: Executor = _INNER[tasks](heartbeat_s=heartbeat_s, **options)
        except TypeError as error:
            raise InvalidInput(f"executor 'mesos' with tasks={tasks!r}: {error}") from error
        self._released: set[str] = set()
        self._letters: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._side: _Side | None = None

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """The agent's command line."""
        options = {
            "directory": context.directory / POOL,
            "attribute": f"{ALLOCATION}={allocation.key}",
            "lasts": allocation.walltime_s,
            "patience": context.orphan_grace_s,
            "orphan-grace": 0,  # nobody starts an agent again inside a batch job
            "margin": 0,  # the plan sees to it that nothing is cut off by the wall time
        }
        return command("executors.mesos.agent_command", options | share(allocation, context))

    def start(self, context: RunContext, post: Post) -> None:
        """Start the master and the framework, and listen for nodes.

        Raises
        ------
        InvalidInput
            When what the tasks need is not installed.
        StateError
            When the run's directory cannot be used, or the master does not start.
        """
        side = _Side(
            context, self._inner, self._released, self._letters
        )  # agents find the master while the rest starts
        try:
            self._inner.start(context, post)
            side.subscribe()
        except BaseException:
            self._inner.close()
            side.close()
            raise
        self._side = side

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order, as its nodes have room."""
        self._inner.launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        """End this allocation's job with exit code 0; running tasks are killed."""
        self._inner.release(allocation)
        self._released.add(allocation)
        self._letters.put(allocation)

    def close(self) -> None:
        """Stop listening, and end the master. Agents that are not released wait for a new one."""
        if self._side is not None:
            self._inner.close()
            self._side.close()
            self._side = None


class _Side:
    """Master, framework and operator of one driver.

    Parameters
    ----------
    released
        Allocations whose agents are to go.
    letters
        Each of these, once; None for no more of them.
    """

    def __init__(
        self, context: RunContext, inner: Executor, released: set[str], letters: queue.SimpleQueue[str | None]
    ) -> None:
        from executors.mesos.operator import Operator

        self._context, self._inner, self._released, self._letters = context, inner, released, letters
        self._directory = PoolDirectory.create(context.directory / POOL, context.run)
        self._master = self._start_master()
        self._operator: Operator = Operator(self._directory)
        self._scheduler: Scheduler | None = None
        self._driver: SchedulerDriver | None = None
        self._thread = threading.Thread(target=self._dismiss, name="asa-pool", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all of them."""
        self._letters.put(None)
        self._thread.join(_CLOSING_S)
        if self._driver is not None:
            self._driver.stop(True)
            self._driver.join()
        if self._scheduler is not None:
            self._scheduler.close()
        self._operator.close()
        self._master.close()

    def _start_master(self) -> MasterService:
        from executors.mesos.master.service import MasterService
        from executors.mesos.master.state import Options

        user = getpass.getuser()
        service = MasterService(self._directory, Options(user=user), host="127.0.0.1" if self._context.local else "")
        service.start()
        return service

    def subscribe(self) -> None:
        """Make our framework known to the master, under the id that it had before, if it had one.

        Raises
        ------
        StateError
            When the master does not take it.
        """
        from executors.mesos.driver import SchedulerDriver
        from executors.mesos.scheduler import Scheduler

        kept: Path = self._directory.path / _FRAMEWORK
        framework = Framework(name=secrets.token_hex(4))
        scheduler = self._scheduler = Scheduler(framework, self._heed, self._is_wanted)
        info: Message = {
            "user": getpass.getuser(),
            "name": f"asa {self._context.run}",
            "roles": ["asa"],
            "failover_timeout": _FAILOVER_S,
            "checkpoint": True,
            "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}, {"type": "GPU_RESOURCES"}],
        }
        if kept.exists():
            info["id"] = {"value": kept.read_text()}
        # before the master tells of tasks that an earlier driver has left: they are this crew's
        scheduler.want(lambda framework, now: framework.crew(Crew("nodes", self._program, {}), now))
        self._driver = SchedulerDriver(scheduler, info, self._directory)
        self._driver.start()
        if not scheduler.ready.wait(_READY_S) or scheduler.error_text:
            raise StateError(f"the master does not take our framework: {scheduler.error_text or 'it does not answer'}")
        if scheduler.framework_id:
            write_private(kept, scheduler.framework_id.encode())

    def _program(self, offer: Offered) -> Program:
        """The supervisor, for all that an agent offers."""
        need = all_of(offer.resources)
        resources = Resources(int(need.cpus), memory=need.memory, gpus=need.gpus)
        allocation = Allocation(offer.attributes[ALLOCATION], resources, 0.0)
        argv = self._inner.bootstrap(allocation, self._context)
        return Program(argv, (("SLURMD_NODENAME", offer.hostname),))

    def _is_wanted(self, offer: Message) -> bool:
        """False for an agent that came after its allocation was released: it is sent away."""
        key = next((item["text"]["value"] for item in offer.get("attributes", ()) if item["name"] == ALLOCATION), None)
        if key in self._released:
            self._letters.put(key)
        return key is not None and key not in self._released

    def _heed(self, outcomes: Sequence[Outcome]) -> None:
        """The hub tells of nodes that come and go; here is why a supervisor could not run."""
        for outcome in outcomes:
            if outcome.state == "failed":
                who = f"agent {outcome.agent}" if outcome.agent else f"our {outcome.key}"
                print(f"asa: {who}: {outcome.reason}", file=sys.stderr, flush=True)

    def _dismiss(self) -> None:
        """Send the agents of released allocations home."""
        while (key := self._letters.get()) is not None:
            with suppress(AsaError, OSError):  # the master is gone, so the agents are going, too
                for agent in self._operator.get_agents():
                    attributes = agent["agent_info"].get("attributes", ())
                    if any(item["name"] == ALLOCATION and item["text"]["value"] == key for item in attributes):
                        self._operator.call("MARK_AGENT_GONE", agent_id=agent["agent_info"]["id"])
