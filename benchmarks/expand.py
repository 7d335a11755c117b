"""What it costs that tasks add stages to a run: rounds that follow on one another, and a sweep that adds many at once.

``python -m benchmarks.expand [COUNT]`` runs a loop of so many rounds, each of one task, and a sweep whose tasks add one
stage each, on this machine, and prints milliseconds of CPU time for each, of driver, supervisor and workers together;
beside them the same number of tasks of one stage, and of stages that follow on one another, which nothing adds.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from typing import Any

import asa


@asa.stage
def step(x: int) -> int:
    return x + 1


@asa.stage(expands=True)
def one_more(x: int) -> Any:
    return step(x)


@asa.stage
def last(xs: Any) -> Any:
    return xs


def used_s() -> float:
    """CPU time of this process, and of those that it has waited for [s]."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in both)


def measure(what: str, workflow: Any, count: int, expected: Any) -> None:
    """Run it, and print what it took."""
    with tempfile.TemporaryDirectory() as state:
        before, began = used_s(), time.monotonic()
        run = asa.run(workflow, state=state)
        assert run.result() == expected, what
        run.wait()
        took = time.monotonic() - began
        print(f"{what}: {1e3 * (used_s() - before) / count:.2f} ms of CPU time a piece, {took:.1f} s for {count}")


def main(count: int) -> None:
    """All four."""
    measure("plain tasks", last(step.map(range(count))), count, list(range(1, count + 1)))
    chain: Any = 0
    for _ in range(count):
        chain = step(chain)
    measure("stages one after another", last(chain), count, count)
    measure("sweep", last(one_more.map(range(count))), count, list(range(1, count + 1)))
    measure("rounds of a loop", last(asa.loop(step, most=count)(0)), count, count)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
