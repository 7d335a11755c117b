"""What the driver pays where others reach: workers of one machine, tasks that sleep.

python -m benchmarks.nodes_peers [WORKERS [TASKS [SECONDS]]]

Parsl's HighThroughputExecutor, executorlib and ASA, each in a process of its own, where it is installed. Processor time
is that of all processes, start and end included.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
KINDS = ("asa", "executorlib", "parsl")


def nap(seconds: float) -> None:
    import time  # Parsl sends the function alone

    time.sleep(seconds)


def with_asa(workers: int, tasks: int, seconds: float) -> float:
    import asa

    stage = asa.stage(cores=workers)(nap)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as state:
        began = time.monotonic()
        asa.run(stage.map([0.01] * workers + [seconds] * tasks), backend=f"local:cores={workers}", state=state).result()
        return time.monotonic() - began


def through(submit: Callable[[Callable[[float], None], float], Any], workers: int, tasks: int, seconds: float) -> float:
    began = time.monotonic()
    for future in [submit(nap, each) for each in [0.01] * workers + [seconds] * tasks]:
        future.result()
    return time.monotonic() - began


def with_executorlib(workers: int, tasks: int, seconds: float) -> float:
    from executorlib import SingleNodeExecutor

    with SingleNodeExecutor(max_workers=workers, block_allocation=True) as pool:
        return through(pool.submit, workers, tasks, seconds)


def with_parsl(workers: int, tasks: int, seconds: float) -> float:
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        executor = HighThroughputExecutor(
            address="127.0.0.1",
            max_workers_per_node=workers,
            cores_per_worker=1e-3,
            encrypted=True,
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
        with parsl.load(Config(executors=[executor], run_dir=folder)):
            return through(lambda call, each: executor.submit(call, {}, each), workers, tasks, seconds)


def spent() -> float:
    """Processor time of all processes that have ended and were ours [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        kind, (workers, tasks), seconds = sys.argv[2], map(int, sys.argv[3:5]), float(sys.argv[5])
        call = {"asa": with_asa, "executorlib": with_executorlib, "parsl": with_parsl}[kind]
        wall = call(workers, tasks, seconds)
        print(f"| {kind} | {wall:.1f} | {100 * tasks * seconds / workers / wall:.1f}", end=" | ", flush=True)
        return
    words = [*sys.argv[1:], *("64", "1280", "1.0")[len(sys.argv) - 1 :]]
    print(f"{words[0]} workers, {words[1]} tasks of {words[2]} s; load {os.getloadavg()[0]:.1f}\n")
    print("| | wall [s] | slots busy [%] | CPU of all processes [s] |\n|---|---:|---:|---:|", flush=True)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what others leave behind ends as our child
    for kind in KINDS:
        before = spent()
        failed = subprocess.run([sys.executable, "-m", "benchmarks.nodes_peers", "--one", kind, *words]).returncode
        with suppress(ChildProcessError):
            while True:
                os.wait()
        print(f"| {kind} | is not installed, or failed |" if failed else f"{spent() - before:.1f} |", flush=True)


if __name__ == "__main__":
    main()
