"""The same tasks of 100 ms, two at a time, with and without agents around the processes that run them.

python benchmarks/through_agents.py [TASKS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time

from measure import show

import asa

REPEATS = 5
TASK_S = 0.1


@asa.stage(cores=2)
def nap(x: int) -> int:
    time.sleep(TASK_S)
    return x


def seconds(executor: str, tasks: int) -> float:
    """From the stage's first task launched to its end."""
    with tempfile.TemporaryDirectory() as state:
        run = asa.run(nap.map(range(tasks)), backend="local:cores=2", executor=executor, state=state)
        (stage,) = run.summary.stages
        assert run.result() == list(range(tasks))
        return float(stage.ended - stage.started)


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    rows = []
    for without, through in (("local", "mesos"), ("dask", "mesos:tasks=dask")):
        pairs = [(seconds(without, tasks), seconds(through, tasks)) for _ in range(REPEATS)]  # in turn: loads differ
        ratios = [two / one for one, two in pairs]
        rows.append(
            {
                "tasks": without,
                "without agents [s]": statistics.median(one for one, _ in pairs),
                "through agents [s]": statistics.median(two for _, two in pairs),
                "ratio": statistics.median(ratios),
                "min": min(ratios),
                "max": max(ratios),
            }
        )
    show(f"{tasks} tasks of {TASK_S:g} s through agents, {REPEATS} pairs", rows)


if __name__ == "__main__":
    main()
