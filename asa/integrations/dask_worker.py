"""A dask worker as a call: it runs in an allocation until the scheduler closes it, or the wall time is near."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Worker

from asa.core.allocation import drain_margin
from asa.security.ca import dask_security

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
    left_s = _began() + walltime_s - 2 * drain_margin(walltime_s) - time.time()
    return asyncio.run(_work(scheduler, certificates, max(_LEAST_S, left_s), options))


def _began() -> float:
    """When the allocation began, as nearly as can be told [s since the epoch]: our parent is its supervisor."""
    return psutil.Process(os.getppid()).create_time()


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
