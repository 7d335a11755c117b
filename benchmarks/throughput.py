"""No-op tasks per second with two workers: a process pool, dask.distributed, and ASA; what it costs there that a task
meets nothing of what the one before it has changed.

python benchmarks/throughput.py [TASKS]
python benchmarks/throughput.py --costs [TASKS]  # of one run: processor time a task, of what is done with it, memory
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from measure import show

import asa
from executors.worker import ProcessState

REPEATS = 5


def no_op(x: int) -> int:
    return x


@asa.stage(cores=2)
def stage_of_no_op(x: int) -> int:
    return x


def pool(tasks: int) -> list[float]:
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(no_op, range(100)))
        return [
            _timed(lambda: [f.result() for f in [pool.submit(no_op, x) for x in range(tasks)]]) for _ in range(REPEATS)
        ]


def dask(tasks: int) -> list[float]:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.gather(client.map(no_op, range(100)))
        return [_timed(lambda: client.gather(client.map(no_op, range(tasks), pure=False))) for _ in range(REPEATS)]


def with_asa(executor: str) -> Callable[[int], list[float]]:
    def measure(tasks: int) -> list[float]:
        """From the stage's first task launched to its end: start-up is `start.py`'s matter."""
        seconds = []
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as state:
                run = asa.run(stage_of_no_op.map(range(tasks)), backend="local:cores=2", executor=executor, state=state)
                (stage,) = run.summary.stages
                assert run.result() == list(range(tasks))
                seconds.append(stage.ended - stage.started)
        return seconds

    return measure


def restoring(times: int = 5000) -> list[float]:
    """Time of the processor [us] to look at a worker's process after a task, and to put back what that has changed."""
    state, rounds = ProcessState(os.pipe()), []  # as it has its link and its permits
    for _ in range(REPEATS):
        began = time.process_time()
        for _ in range(times):
            assert not state.restore()
        rounds.append(1e6 * (time.process_time() - began) / times)
    return rounds


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


RUN = """
import sys, asa
@asa.stage(cores=2)
def no_op(x): return x
if __name__ == "__main__":
    run = asa.run(no_op.map(range(int(sys.argv[1]))), backend="local:cores=2", name="costs")
    run.wait()
"""
LARGE = """
import sys, asa
@asa.stage(cores=2)
def zeros(size): return b"0" * size
if __name__ == "__main__":
    run = asa.run(zeros.map([int(sys.argv[2])] * int(sys.argv[1])), backend="local:cores=2", name="large")
    run.wait()
"""


def costs(tasks: int) -> None:
    """Processor time [s] of all processes, and the most memory of the largest [MB]."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [_cost(folder, f"{tasks} tasks", "-c", RUN, str(tasks))]
        rows[0]["us a task"] = 1e6 * rows[0]["CPU s"] / tasks
        rows += [
            _cost(folder, f"asa {' '.join([command, *options])}", "-m", "asa", command, "costs", *options)
            for command, *options in (["resume"], ["report"], ["export"], ["export", "--format", "ro-crate"])
        ]
        rows.append(_cost(folder, "10,000 results of 100 kB", "-c", LARGE, "10000", "100000"))
        rows.append(_cost(folder, "asa resume of that", "-m", "asa", "resume", "large"))
        rows.append(_cost(folder, "one result of 2 GB", "-c", LARGE, "1", "2000000000"))
    show("what a run costs", rows)


def _cost(folder: str, what: str, *words: str) -> dict[str, Any]:
    environment = os.environ | {"ASA_STATE_DIR": f"{folder}/state"}
    process = subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, f"{what} failed"
    return {"what": what, "CPU s": used.ru_utime + used.ru_stime, "MB": used.ru_maxrss / 1024}


def main() -> None:
    if sys.argv[1:2] == ["--costs"]:
        costs(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
        return
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    spent = restoring()
    row = {"what": "asa, local executor", "median": statistics.median(spent), "min": min(spent), "max": max(spent)}
    show("what a task has changed of its worker [us a task]", [row])
    rows = []
    for name, measure in (
        ("process pool", pool),
        ("asa, local executor", with_asa("local")),
        ("dask.distributed", dask),
        ("asa, dask executor", with_asa("dask")),
    ):
        try:
            seconds = measure(tasks)
        except ImportError as error:
            rows.append({"what": name, "tasks/s": f"not installed: {error.name}"})
            continue
        rates = [tasks / each for each in seconds]
        rows.append({"what": name, "tasks/s": statistics.median(rates), "min": min(rates), "max": max(rates)})
    show(f"{tasks} no-op tasks, two workers", rows)


if __name__ == "__main__":
    main()
