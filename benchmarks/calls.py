"""Calls through `concurrent.futures`, two workers: ASA, a process pool, and dask's own cluster.

python benchmarks/calls.py [CALLS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from measure import show

from asa.integrations.futures import PoolExecutor

REPEATS, ROUND_TRIPS = 5, 50


def no_op(x: int) -> int:
    return x


@contextmanager
def asa() -> Iterator[Executor]:
    with tempfile.TemporaryDirectory() as state, PoolExecutor("local:cores=2", state=state) as executor:
        yield executor


@contextmanager
def dask() -> Iterator[Executor]:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        yield client.get_executor()


KINDS: dict[str, Callable[[], AbstractContextManager[Executor]]] = {
    "asa local": asa,
    "ProcessPoolExecutor": lambda: ProcessPoolExecutor(2),
    "dask's LocalCluster": dask,
}


def measure(kind: str, calls: int) -> dict[str, Any]:
    """Time from nothing to the first result [s], that of a call alone [ms], and calls a second; medians."""
    began = time.perf_counter()
    with KINDS[kind]() as executor:
        executor.submit(no_op, 0).result()
        first = time.perf_counter() - began
        alone = statistics.median(_timed(lambda: executor.submit(no_op, 1).result()) for _ in range(ROUND_TRIPS))
        many = statistics.median(_timed(lambda: list(executor.map(no_op, range(calls)))) for _ in range(REPEATS))
    return {"what": kind, "calls/s": calls / many, "one alone [ms]": 1e3 * alone, "first result [s]": first}


def _timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


if __name__ == "__main__":
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    show(f"{calls} calls that do nothing", [measure(kind, calls) for kind in KINDS])
