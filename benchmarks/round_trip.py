"""How long one task takes, there and back, while its worker is warm: 200 of them, one after the other.

python benchmarks/round_trip.py [TASKS]
"""

from __future__ import annotations

import os
import pickle
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from measure import show

from asa.core.allocation import Allocation
from asa.core.event import Event, NodeJoined, TaskDone
from asa.core.job import Resources
from asa.core.ports import Executor, RunContext
from asa.core.registry import EXECUTORS
from asa.core.task import Task


def no_op(x: int) -> int:
    return x


def pool(tasks: int) -> list[float]:
    with ProcessPoolExecutor(1) as pool:
        return _timed(lambda x: pool.submit(no_op, x).result(), tasks)


def dask(tasks: int) -> list[float]:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        return _timed(lambda x: client.submit(no_op, x, pure=False).result(), tasks)


def with_asa(name: str) -> Callable[[int], list[float]]:
    """Through `launch`, and back through what the executor posts: plan and log are not its matter."""

    def measure(tasks: int) -> list[float]:
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()

        def post(batch: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
            for event in batch:
                events.put(event)
            if logged is not None:
                logged()

        with tempfile.TemporaryDirectory() as directory:
            executor: Executor = EXECUTORS.create(name)
            context = RunContext("r", Path(directory, "run"), directory, tuple(sys.path), local=True)
            context.directory.mkdir(mode=0o700)
            function = context.directory / "function"
            function.write_bytes(pickle.dumps(pow))
            executor.start(context, post)
            argv = executor.bootstrap(Allocation("a", Resources(cores=1), 600.0), context)
            with subprocess.Popen(argv, env=os.environ | {"SLURMD_NODENAME": "n1"}) as program:
                assert isinstance(events.get(timeout=60), NodeJoined)

                def there_and_back(x: int) -> None:
                    executor.launch([Task("s", x, str(function), pickle.dumps(((x, 1), {})), (), Resources())], "a")
                    assert isinstance(events.get(timeout=60), TaskDone)

                seconds = _timed(there_and_back, tasks)
                executor.release("a")
                executor.close()
                assert program.wait(60) == 0
        return seconds

    return measure


def _timed(call: Callable[[int], Any], tasks: int) -> list[float]:
    for x in range(20):
        call(x)
    seconds = []
    for x in range(20, 20 + tasks):
        began = time.perf_counter()
        call(x)
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rows = []
    for name, measure in (
        ("process pool", pool),
        ("asa, local executor", with_asa("local")),
        ("dask.distributed", dask),
        ("asa, dask executor", with_asa("dask")),
    ):
        each = sorted(1000 * seconds for seconds in measure(tasks))
        rows.append({"what": name, "median [ms]": statistics.median(each), "95 % [ms]": each[int(0.95 * len(each))]})
    show(f"Round trip of one warm task, {tasks} times", rows)


if __name__ == "__main__":
    main()
