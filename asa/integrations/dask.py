"""A cluster for dask's own client: ``Client(ASACluster("slurm:partition=core"))``."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Scheduler, Worker
from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import ProcessInterface, SpecCluster

from asa.core.allocation import drain_margin
from asa.core.errors import RunFailed
from asa.integrations.futures import PoolExecutor
from asa.security.ca import create, dask_security

logger = logging.getLogger(__name__)

_MOST = 1000
_FAILURES_MOST = 3
_CLOSING_S = 10.0
_WHY = "asa-cluster-closes-worker"


class ASACluster(SpecCluster):
    """A dask cluster whose workers are calls in allocations of an `asa.integrations.futures.PoolExecutor`.

    `scale` and `adapt` say how many workers there are, as in any cluster of dask. How many allocations are held for
    them is another matter: one that no worker needs any more is kept for as long as it waited in the queue (or for
    ``idle``). So workers come and go with the load, and jobs do not.

    Parameters
    ----------
    backend
        Where jobs go, as for `asa.run`.
    n_workers
        Workers to begin with.
    maximum
        Allocations at most.
    worker
        Options of `distributed.Worker`; by default ``nthreads`` is the call's ``task_cores``.
    host
        Where the scheduler listens; by default the loopback interface when all nodes are this machine, else all.
    dashboard
        Where to serve dask's dashboard, as ``":8787"``; by default nowhere. It has no password.
    asynchronous
        As dask says.
    options
        The other parameters of `asa.integrations.futures.PoolExecutor`, above all the sizes of an allocation
        (``cores``) and of a worker (``task_cores``).

    Notes
    -----
    All traffic is under mutual TLS 1.3 with certificates of the cluster's own, which the client is given. A worker
    closes before its allocation's wall time is over, when it has handed over what it holds, and starts again in
    another; so does one that is lost.

    Examples
    --------
    >>> from distributed import Client
    >>> with ASACluster("local", n_workers=2) as cluster, Client(cluster) as client:  # doctest: +SKIP
    ...     client.submit(abs, -1).result()
    1
    """

    def __init__(
        self,
        backend: Any = "local",
        *,
        n_workers: int = 0,
        maximum: int | None = _MOST,
        worker: Mapping[str, Any] | None = None,
        host: str | None = None,
        dashboard: str | None = None,
        asynchronous: bool = False,
        **options: Any,
    ) -> None:
        defaults: dict[str, Any] = {"name": "dask", "worth": 0}
        self.executor = PoolExecutor(backend, maximum=maximum, **defaults | options)
        spec = self.executor.spec
        try:
            certificates = self.executor.directory.path / "dask"
            create(certificates, self.executor.name)
            tls = dask_security(certificates)
            local = self.executor.local
            scheduler = {
                "host": ("127.0.0.1" if local else "") if host is None else host,
                "protocol": "tls",
                "port": 0,
                "security": tls,
                "dashboard": dashboard is not None,
                "dashboard_address": dashboard or "127.0.0.1:0",
            }
            options_of = {"nthreads": spec.task.cores, "memory_limit": spec.task.memory or "auto"} | dict(worker or {})
            place = {
                "executor": self.executor,
                "call": (str(certificates), spec.walltime_s),
                "options": options_of,
                "nthreads": options_of["nthreads"],
                "memory_limit": options_of["memory_limit"],
            }
            super().__init__(
                workers={number: {"cls": DaskPlace, "options": place} for number in range(n_workers)},
                scheduler={"cls": Scheduler if dashboard else _bare, "options": scheduler},
                worker={"cls": DaskPlace, "options": place},
                security=tls,
                asynchronous=asynchronous,
                silence_logs=logging.WARNING,
                name=self.executor.name,
            )
        except BaseException:
            self.executor.terminate_workers()
            raise

    def _update_worker_status(self, op: str, msg: Any) -> None:
        """Of a worker that is gone its place takes care: it has asked for another already."""
        Cluster._update_worker_status(self, op, msg)

    async def _close(self) -> None:
        await super()._close()
        await asyncio.to_thread(self.executor.terminate_workers, _CLOSING_S)


def _bare(**options: Any) -> Scheduler:
    """A scheduler whose HTTP server, which cannot be left out, serves nothing."""
    with dask.config.set({"distributed.scheduler.http.routes": []}):
        return Scheduler(**options)


class DaskPlace(ProcessInterface):
    """One worker of the cluster, from call to call.

    Parameters
    ----------
    call
        What `asa.integrations.dask.serve` takes after the address.
    options
        Of the worker. ``nthreads`` and ``memory_limit`` are among them; dask looks for these in a cluster's own terms.
    """

    def __init__(
        self,
        scheduler: str,
        name: Any,
        *,
        executor: PoolExecutor,
        call: tuple[str, float],
        options: Mapping[str, Any],
        **_seen_by_dask: Any,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.name = name
        self._executor = executor
        self._call = (scheduler, *call, {**options, "name": name})
        self._failures = 0
        self._future: Future[str] | None = None

    async def start(self) -> None:
        """Ask for a worker; it comes when there is an allocation for it."""
        self._loop, self._gone = asyncio.get_running_loop(), asyncio.Event()
        self._submit()
        await super().start()

    async def close(self) -> None:
        """Do without the worker; what it holds goes to the others first."""
        if self.status is Status.closed:
            return
        self.status, future = Status.closed, self._future
        if future is not None and not future.cancel():
            cluster = self._cluster() if hasattr(self, "_cluster") else None
            if cluster is not None and cluster.scheduler.status is Status.running:
                await self._retire(cluster.scheduler)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), _CLOSING_S)
        await super().close()

    async def _retire(self, scheduler: Scheduler) -> None:
        await scheduler.retire_workers(names=[self.name], remove=True, close_workers=True, stimulus_id=_WHY)
        if (address := scheduler.aliases.get(self.name)) is not None:  # no other worker could take what it holds
            await scheduler.remove_worker(str(address), stimulus_id=_WHY, close=True)

    def _submit(self) -> None:
        self._future = self._executor.submit(serve, *self._call)
        self._future.add_done_callback(self._ended)

    def _ended(self, future: Future[str]) -> None:
        """In whichever thread: the worker is gone. Unless it was closed, there is to be another."""
        with suppress(RuntimeError):  # the loop is over, and with it the cluster
            self._loop.call_soon_threadsafe(self._again, future)

    def _again(self, future: Future[str]) -> None:
        if self.status is not Status.running or future.cancelled():
            self._gone.set()
            return
        error = future.exception()
        # That a task has killed it, or a node has gone, says nothing against the next one.
        self._failures = self._failures + 1 if error and not isinstance(error, RunFailed) else 0
        if self._failures < _FAILURES_MOST:
            with suppress(RuntimeError):  # the executor has ended
                self._submit()
        else:
            self.status = Status.failed
            self._gone.set()
            logger.error("worker %s of %s failed %d times: %s", self.name, self._executor.name, self._failures, error)


_PATIENCE_S = 60.0
_LEAST_S = 1.0


def serve(scheduler: str, certificates: str, walltime_s: float, options: Mapping[str, Any]) -> str:
    """Be a worker of the scheduler at this address, and return why that is over.

    Parameters
    ----------
    certificates
        Directory, as `asa.security.ca.dask_security` takes it.
    walltime_s
        Of the allocation [s]. Before it is over the worker hands over what it has, and closes.
    options
        Of `distributed.Worker`.
    """
    began = psutil.Process(os.getppid()).create_time()  # our parent is the allocation's supervisor
    left_s = began + walltime_s - 2 * drain_margin(walltime_s) - time.time()
    return asyncio.run(_work(scheduler, certificates, max(_LEAST_S, left_s), options))


async def _work(scheduler: str, certificates: str, left_s: float, options: Mapping[str, Any]) -> str:
    logging.getLogger("distributed").setLevel(logging.WARNING)
    # Its HTTP server cannot be left out, but need not serve anything.
    dask.config.set({"distributed.worker.http.routes": []})
    settings: dict[str, Any] = {
        "security": dask_security(Path(certificates)),
        "death_timeout": _PATIENCE_S,
        "dashboard_address": "127.0.0.1:0",
        "lifetime": left_s,
    }
    async with Worker(scheduler, **settings | dict(options)) as worker:
        await worker.finished()
    return str(worker.status)
