"""The `dask` executor: tasks in dask workers that join one scheduler from all allocations of the run.

::

    driver                                                    node
    ------                                                    -------------------------------------------------
    Dask (dask.py)                                            supervisor.py
      Hub (hub.py), one thread                                  Crew (dask_crew.py)
        Front (dask_relay.py)                                     Member (member.py), for each core
      Cluster (dask_cluster.py), one thread                         worker process, which runs
        Relay (dask_relay.py)  <---------- wire ------------>         serve (dask_worker.py): a dask worker
          Bench (dask_bench.py), for each node
        Farm (dask_scheduler.py): dask's scheduler  <-- dask --> tasks
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput
from asa.core.ports import Post, RunContext
from asa.core.task import Task
from asa.security.files import private_directory
from executors.dask_wire import WORKER
from executors.hub import Hub
from executors.station import VALUES, Rendezvous, listen, program
from executors.transport import CERTIFICATES
from executors.wire import Welcome

if TYPE_CHECKING:
    from executors.dask_cluster import Cluster

_PORT = 8787


class Dask:
    """Runs tasks as tasks of dask.distributed, which a task may itself use: ``distributed.worker_client()``.

    Each core of a node has a dask worker of one thread. Which worker runs a task is decided as for the `local`
    executor; a task that needs several cores runs in one worker, beside which others stay idle. Dask never runs a task
    again on its own. All traffic is under mutual TLS 1.3, on one machine too.

    Parameters
    ----------
    dashboard
        Serve dask's dashboard (needs bokeh). It has no password: it listens on this machine's loopback interface only.
    port
        The dashboard's port, if it is free.
    heartbeat_s
        A node that was silent for so long [s] is lost; > 0.

    Raises
    ------
    InvalidInput
        When an option is out of range.
    """

    def __init__(self, dashboard: bool = False, port: int = _PORT, heartbeat_s: float = 60.0) -> None:
        if not 0 <= port <= 65535:
            raise InvalidInput(f"port={port!r} must be a port number, or 0 for any that is free")
        if not heartbeat_s > 0:
            raise InvalidInput(f"heartbeat_s={heartbeat_s!r} must be a positive number of seconds")
        self._dashboard = f"127.0.0.1:{port}" if dashboard else None
        self._heartbeat = heartbeat_s
        self._cluster: Cluster | None = None
        self._hub: Hub | None = None

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """The supervisor's command line."""
        return program(allocation, context)

    def start(self, context: RunContext, post: Post) -> None:
        """Start the scheduler, listen, and say where in the run's directory.

        Raises
        ------
        InvalidInput
            When dask.distributed, or what the dashboard needs, is not installed.
        StateError
            When the run's directory cannot be used.
        """
        _require("distributed", "asa-hpc[dask]", "the dask executor")
        if self._dashboard:
            _require("bokeh", "bokeh", "dask's dashboard")
        directory = private_directory(context.directory)
        values, certificates = private_directory(directory / VALUES), directory / CERTIFICATES
        if not all((certificates / name).exists() for name in (WORKER, "node.pem")):
            from asa.security.ca import create

            create(certificates, context.run)
        listener = listen(directory, context)
        address = listener.address()
        host, hosts = ("127.0.0.1", ("127.0.0.1",)) if context.local else ("", tuple(address["addresses"]))
        welcome = Welcome(
            "executors.dask_crew:Crew",
            {"certificates": str(certificates)},
            str(values),
            context.workdir,
            context.sys_path,
            self._heartbeat / 4,
        )
        from executors.dask_cluster import Cluster  # here, with what they import: a run that waits needs neither yet
        from executors.dask_relay import Front

        self._cluster = Cluster(str(certificates), host, hosts, self._dashboard)
        front = Front(listener, self._cluster.adopt)
        self._hub = Hub(front, welcome, post, self._heartbeat, spanning=not context.local)
        self._rendezvous = Rendezvous(directory, listener)
        try:
            self._rendezvous.publish()  # nodes that come begin to load dask, too
            self._cluster.wait()
        except BaseException:
            self.close()
            raise

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order, as its nodes have room."""
        self._started().launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        """End this allocation's job with exit code 0; running tasks are killed."""
        self._started().release(allocation)

    def dismiss_idle(self, idle_s: float) -> None:
        """End the supervisors of nodes that have had nothing to do for so long [s]; their allocations go on."""
        self._started().dismiss_idle(idle_s)

    def close(self) -> None:
        """Stop listening, and end the scheduler. Supervisors that are not released wait for a new driver."""
        if self._hub is None or self._cluster is None:
            return
        self._rendezvous.withdraw()
        self._hub.close()
        self._cluster.close()
        self._hub = self._cluster = None

    def _started(self) -> Hub:
        if self._hub is None:
            raise InvalidInput("this executor has not been started, or is closed: call start() first")
        return self._hub


def _require(package: str, install: str, what: str) -> None:
    if find_spec(package) is None:
        raise InvalidInput(f"{what} needs {package}, which is not installed here: pip install {install}")
