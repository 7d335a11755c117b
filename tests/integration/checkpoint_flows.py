"""A task that outlives its allocations, and says where it goes on."""

from __future__ import annotations

import time

import asa


def count(seconds: float) -> list[int]:
    """Count tenths of seconds; from which number on, each time that it was begun."""
    saved = asa.checkpoint()
    at, begun = 0, []
    if saved.last:
        at, *begun = map(int, (saved.last / "state").read_text().split())
    begun.append(at)
    while at < seconds * 10:
        time.sleep(0.1)
        at += 1
        if at % 10 == 0:
            with saved.save() as folder:
                (folder / "state").write_text(" ".join(map(str, (at, *begun))))
    return begun


def long(seconds: float = 130.0, walltime: str = "1m", predicted: float = 0.0) -> asa.Node:
    """One such task, of so many seconds; `predicted` says so beforehand."""
    stage = asa.stage(checkpoint=True, walltime=walltime, run_time=predicted or None)
    return stage(count)(seconds)


def yielding(seconds: float = 20.0, queues: str = "low|core") -> asa.Node:
    """One that may run where its nodes can be taken from it."""
    return asa.stage(cores=8, checkpoint=True, walltime="5m", name="count", partition=queues)(count)(seconds)
