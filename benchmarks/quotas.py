"""That quotas are also reached, and how soon a changed one is: on an idle machine, with whatever works here.

python benchmarks/quotas.py [MEANS ...]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from measure import show

from asa.core.errors import StateError
from executors.cgroup import probe, throttle
from executors.cgroup.group import Group, Quotas

WINDOW_S = 3.0
STEP_S = 0.01
CHANGES = 20
HELD = 0.2
"""A container with a quota of .05 of a core uses less of it than this in most windows, one without a quota more."""
BURN = "while :; do :; done"


class Burner:
    """A container whose processes want a core each."""

    def __init__(self, quotas: Quotas, name: str, cores: float | None, processes: int) -> None:
        self.group: Group = quotas.group(name, weight=1.0, cores=cores, memory=None)
        script = f"sh -c '{BURN}' & " * processes + "wait"
        self.process = subprocess.Popen(self.group.wrap(["/bin/sh", "-c", script]), start_new_session=True)
        self.group.adopt(self.process.pid)
        while len(self.group.pids()) <= processes or not used(self.group.pids()):
            time.sleep(0.001)

    def __enter__(self) -> Burner:
        return self

    def __exit__(self, *_: object) -> None:
        self.group.kill()
        self.process.wait()
        self.group.close()


def used(pids: list[int]) -> float:
    """CPU time of these processes [s]."""
    return sum(throttle.clock(pid) or 0.0 for pid in pids)


def share(burner: Burner, window_s: float) -> float:
    """Cores that it uses."""
    members = burner.group.pids()
    began, before = time.monotonic(), used(members)
    time.sleep(window_s)
    return (used(members) - before) / (time.monotonic() - began)


def reached(quotas: Quotas) -> list[dict[str, Any]]:
    """What containers with a quota get, one after the other."""
    rows = []
    for cores in (0.25, 0.5, 0.75, 1.0, 1.5):
        for processes in (1, 3):
            if cores <= min(processes, os.cpu_count() or 1):
                with Burner(quotas, f"b{len(rows)}", cores, processes) as burner:
                    row = {"means": quotas.name, "quota [cores]": cores, "processes": processes}
                    rows.append(row | {"used [cores]": round(share(burner, WINDOW_S), 3)})
    return rows


def changed(quotas: Quotas) -> dict[str, Any]:
    """How long until a container that runs without limit is held, and until one that is held goes on [ms]."""
    held, freed = [], []
    with ExitStack() as stack:
        burner = stack.enter_context(Burner(quotas, "changed", None, 1))
        members = burner.group.pids()
        for _ in range(CHANGES):
            began = time.monotonic()
            burner.group.limit(0.05)
            held.append(until(members, began, runs=False))
            time.sleep(0.3)
            began = time.monotonic()
            burner.group.limit(None)
            freed.append(until(members, began, runs=True))
            time.sleep(0.1)
    row = {"means": quotas.name, "held [ms]": statistics.median(held), "worst": max(held)}
    return row | {"free [ms]": statistics.median(freed), "worst ": max(freed)}


def until(members: list[int], began: float, *, runs: bool) -> float:
    """When a window of 10 ms first shows that it is held, or that it runs: the window's begin [ms]."""
    while True:
        start, before = time.monotonic(), used(members)
        time.sleep(STEP_S)
        part = (used(members) - before) / (time.monotonic() - start)
        if part > HELD if runs else part < HELD:
            return 1000 * (start - began)


def main() -> None:
    rows, changes = [], []
    for found in probe.means(f"bench-{os.getpid()}"):
        if found.quotas is None or (sys.argv[1:] and found.name not in sys.argv[1:]):
            print(f"{found.name}: {found.why}", file=sys.stderr)
            continue
        try:
            rows += reached(found.quotas)
            changes.append(changed(found.quotas))
        except StateError as error:
            print(f"{found.name}: {error}", file=sys.stderr)
    show(f"CPU used in {WINDOW_S:g} s under a quota", rows)
    show(f"From a changed quota to its effect, {CHANGES} times", changes)


if __name__ == "__main__":
    main()
