"""The `dask` executor: tasks in dask workers that join one scheduler from all allocations of the run.

::

    driver                                            node
    ------                                            ----------------------------------------------
    HubExecutor (../hub.py)                           supervisor (../supervisor.py)
      Hub, one thread                                   DaskWorkerPool (node.py)
        ProxyListener (driver.py)                         WorkerProcess (../worker_pool.py), for each core
      DaskProxy (driver.py), one thread                     worker process, which runs
        NodeProxy, for each node  <------- wire ------>       serve (library.py): a dask worker
          WorkerAssignment
        DaskScheduler (library.py)  <----- dask ------>   tasks
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from asa.core.errors import InvalidInput

if TYPE_CHECKING:  # nodes load this module, too
    from asa.core.ports import RunContext
    from executors.dask.driver import DaskProxy
    from executors.hub import HubExecutor
    from executors.wire import ChannelListener

_PORT = 8787


def dask(dashboard: bool = False, port: int = _PORT, heartbeat_s: float = 60.0) -> HubExecutor:
    """Runs tasks as tasks of dask.distributed, which a task may itself use: ``distributed.worker_client()``.

    Each core of a node has a dask worker of one thread. Which worker runs a task is decided as for the `local`
    executor; a task that needs several cores runs in one worker, beside which others stay idle. Dask never runs a task
    again on its own. All traffic is under mutual TLS 1.3, on one machine too. Workers, and tasks that run in them, end
    with the driver, whose scheduler they belong to: the next driver runs those tasks again.

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
        When an option is out of range, or dask.distributed, or what the dashboard needs, is not installed.
    """
    from executors.hub import HubExecutor

    if not 0 <= port <= 65535:
        raise InvalidInput(f"port={port!r} must be a port number, or 0 for any that is free")
    _require("distributed", "asa-hpc[dask]", "the dask executor")
    if dashboard:
        _require("bokeh", "bokeh", "dask's dashboard")
    where = f"127.0.0.1:{port}" if dashboard else None
    return HubExecutor("executors.dask.node:DaskWorkerPool", heartbeat_s=heartbeat_s, proxy=partial(_cluster, where))


def _cluster(dashboard: str | None, context: RunContext, listener: ChannelListener) -> DaskProxy:
    from executors.dask.driver import DaskProxy  # loads asyncio, which a run that waits does not need yet
    from executors.wire import certificates

    host, hosts = ("127.0.0.1", ("127.0.0.1",)) if context.local else ("", tuple(listener.address()["addresses"]))
    return DaskProxy(str(certificates(context)), host, hosts, dashboard)


def _require(package: str, install: str, what: str) -> None:
    if find_spec(package) is None:
        raise InvalidInput(f"{what} needs {package}, which is not installed here: pip install {install}")
