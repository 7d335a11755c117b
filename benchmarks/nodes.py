"""What thousands of nodes cost the driver: real supervisors, connection by connection, whose tasks are timers.

python -m benchmarks.nodes [--nodes 2048] [--slots 100] [--seconds 60] [--minutes 5] [--lose 0.1] [--profile FILE]

One process has the hub, behind its TLS port, and launches a task for each that ends; another has all supervisors
(`tests/executors/fleet.py`). The first task of each slot is shorter by chance, so that later ends are spread evenly.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.core.task import Task
from benchmarks.measure import show
from executors.hub import Hub, HubExecutor
from tests.executors import fleet

ALLOCATION = "a"
ONE = Resources(cores=1)
_TOGETHER = 1024
_SHORT_S = 0.1  # of shorter ones several travel together


def resident() -> int:
    """Resident memory of this process [bytes]."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Feeder:
    """Takes the run's part: what ends is replaced by another task, what is lost is launched again."""

    def __init__(self, executor: HubExecutor, seconds: float) -> None:
        self._executor, self._seconds = executor, seconds
        self._next = 0
        self.joined = self.lost = self.done = self.failed = 0
        self.again: set[int] = set()
        """Tasks that were lost with their node, and have not ended since."""
        self.wanted = True

    def task(self, index: int, seconds: float) -> Task:
        return Task("s", index, "/function", pickle.dumps(((seconds,), {})), (), ONE, identity=f"{index:032x}")

    def begin(self, count: int) -> None:
        rng = random.Random(1)
        self._next = count
        for first in range(0, count, _TOGETHER):
            part = range(first, min(count, first + _TOGETHER))
            made = [self.task(index, _SHORT_S + rng.uniform(0.0, self._seconds)) for index in part]
            self._executor.launch(made, ALLOCATION)

    def post(self, events: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
        launch: list[Task] = []
        for event in events:
            if isinstance(event, TaskDone):
                self.done += 1
                if self.again:
                    self.again.discard(event.index)
                if self.wanted:
                    launch.append(self.task(self._next, self._seconds))
                    self._next += 1
            elif isinstance(event, TaskFailed):
                assert event.infrastructure, event
                self.failed += 1
                self.again.add(event.index)
                launch.append(self.task(event.index, self._seconds))
            elif isinstance(event, NodeJoined):
                self.joined += 1
            elif isinstance(event, NodeLost):
                self.lost += 1
        if logged is not None:
            logged()
        if launch:
            self._executor.launch(launch, ALLOCATION)


class Look:
    """One second of both processes."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.fleet, self.cpu_s, self.resident = said, time.process_time(), resident()


class Measured:
    """Hub and supervisors while they run; the supervisors' process ends with this."""

    def __init__(self, directory: Path, slots: int, seconds: float) -> None:
        self.slots, self.seconds = slots, seconds
        self._executor = HubExecutor("tests.executors.fleet:Timers")
        self.feeder = Feeder(self._executor, seconds)
        context = RunContext("nodes", directory / "run", str(directory), tuple(sys.path))
        self._executor.start(context, self.feeder.post)
        self._directory, self._looks = context.directory, queue.SimpleQueue[Look]()
        self._fleet: subprocess.Popen[str] | None = None

    def join(self, nodes: int) -> None:
        words = [fleet.__name__, str(self._directory), ALLOCATION, str(nodes), str(self.slots)]
        self._fleet = subprocess.Popen(
            [sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()
        while self.feeder.joined < nodes:
            self.look()

    def _read(self) -> None:
        assert self._fleet and self._fleet.stdout
        for line in self._fleet.stdout:
            self._looks.put(Look(json.loads(line)))

    def look(self) -> Look:
        """The next second's."""
        return self._looks.get(timeout=60)

    def begin(self) -> None:
        assert self._fleet
        self.feeder.begin(self.feeder.joined * self.slots)

    def lose(self, count: int) -> None:
        assert self._fleet and self._fleet.stdin
        print(count, file=self._fleet.stdin, flush=True)

    def during(self, seconds: float) -> tuple[Look, Look]:
        first = last = self.look()
        while last.fleet["at"] < first.fleet["at"] + seconds:
            last = self.look()
            if os.environ.get("SHOW"):
                print(last.fleet, f"{last.cpu_s:.2f} {last.resident / 1e6:.0f} MB", file=sys.stderr)
        return first, last

    def close(self) -> None:
        self.feeder.wanted = False
        self._executor.release(ALLOCATION)
        self._executor.close()
        if self._fleet:
            self._fleet.communicate(timeout=120)


def profiled(path: str) -> None:
    """Have the hub's thread write a profile of itself when it ends."""
    import cProfile

    run, profile = Hub._run, cProfile.Profile()

    def with_profile(hub: Hub) -> None:
        profile.runcall(run, hub)
        profile.dump_stats(path)

    Hub._run = with_profile  # type: ignore[method-assign]


def rows(name: str, slots: int, first: Look, last: Look) -> list[dict[str, Any]]:
    """What happened between two looks."""
    a, b = first.fleet, last.fleet
    wall, tasks = b["at"] - a["at"], b["ended"] - a["ended"]
    share = (b["busy_s"] - a["busy_s"]) / (wall * slots)
    return [
        {"what": f"{name}: tasks/s", "value": tasks / wall},
        {"what": f"{name}: slots busy [%]", "value": round(100 * share, 3)},
        {"what": f"{name}: driver, CPU of a task [us]", "value": 1e6 * (last.cpu_s - first.cpu_s) / max(1, tasks)},
        {"what": f"{name}: driver, share of a core [%]", "value": 100 * (last.cpu_s - first.cpu_s) / wall},
        {"what": f"{name}: supervisors, share of a core [%]", "value": 100 * (b["cpu_s"] - a["cpu_s"]) / wall},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2048)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--lose", type=float, default=0.1)
    parser.add_argument("--profile", help="file for a profile of the hub's thread")
    options = parser.parse_args()
    if options.profile:
        profiled(options.profile)
    nodes, slots, found = options.nodes, options.slots, list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        measured = Measured(Path(name), slots, options.seconds)
        bare, cpu_s, began = resident(), time.process_time(), time.monotonic()
        measured.join(nodes)
        joined = measured.look()
        found += [
            {"what": "all nodes have joined after [s]", "value": time.monotonic() - began},
            {"what": "driver, CPU of a node that joins [ms]", "value": 1e3 * (joined.cpu_s - cpu_s) / nodes},
            {"what": "driver, memory of a node that has joined [kB]", "value": (joined.resident - bare) / nodes / 1e3},
        ]
        measured.begin()
        measured.during(1.2 * options.seconds)
        first, last = measured.during(60 * options.minutes)
        found += rows("steady", nodes * slots, first, last)
        found.append({"what": "driver, memory of a busy node [kB]", "value": (last.resident - bare) / nodes / 1e3})
        if lost := int(options.lose * nodes):
            feeder, left = measured.feeder, (nodes - lost) * slots
            measured.lose(lost)
            first, last = measured.during(options.seconds / 4)
            assert feeder.lost == lost, f"{feeder.lost} of {lost} nodes were reported lost"
            found.append({"what": "tasks lost with a tenth of the nodes", "value": feeder.failed})
            found += rows("loss", left, *measured.during(1.2 * options.seconds))
            deadline = time.monotonic() + 2 * options.seconds
            while feeder.again and time.monotonic() < deadline:
                measured.look()
            found.append({"what": "of these not done since", "value": len(feeder.again)})
        measured.close()
    show(f"{nodes} nodes of {slots} slots, tasks of {options.seconds:g} s", found)


if __name__ == "__main__":
    main()
