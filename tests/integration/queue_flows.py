"""Workflows whose jobs may go to several partitions."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import asa


def where(index: int, seconds: float) -> tuple[int, str]:
    """The partition of the job that it ran in; it takes so many seconds, and leaves a file when it begins."""
    Path(f"began-{index}").touch()
    time.sleep(seconds)
    return index, os.environ["SLURM_JOB_PARTITION"]


def _both(*found: Any) -> list[Any]:
    return list(found)


def several(queues: str = "core|long|low", seconds: float = 1.0, walltime: str = "5m") -> asa.Node:
    """Four tasks side by side on two nodes, and one after them."""
    work = asa.stage(cores=8, task_cores=2, walltime=walltime, name="work", partition=queues)(where)
    last = asa.stage(walltime="2m", name="last", partition=queues)(_both)
    return last(work.map(range(4), [seconds] * 4))
