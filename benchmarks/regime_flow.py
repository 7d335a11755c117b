"""A workflow of four stages in turn, on one core and on many, whose tasks sleep: all that matters of it is its jobs."""

from __future__ import annotations

import time

import asa


def rest(index: int, seconds: float) -> int:
    time.sleep(seconds)
    return index


def workflow(seconds: float = 4.0, cores: int = 8) -> asa.Node:
    """Prepare, work, gather, work again: each stage takes so many seconds [s]."""
    one = asa.stage(cores=1, walltime="1m", run_time=seconds)(rest)
    wide = asa.stage(cores=cores, walltime="1m", run_time=seconds)(rest)
    first = one.options(name="prepare")(0, seconds)
    second = wide.options(name="work").map(range(cores), seconds=seconds).after(first)
    third = one.options(name="gather")(0, seconds).after(second)
    return wide.options(name="work-again").map(range(cores), seconds=seconds).after(third)
