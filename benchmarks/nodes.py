"""What thousands of nodes cost the driver: real supervisors, connection by connection, whose tasks are timers.

python -m benchmarks.nodes [--nodes 2048] [--slots 100] [--seconds 60] [--minutes 5] [--lose 0.1] [--pin] [--run]

One process has the hub, behind its TLS port, and launches a task for each that ends; another has all supervisors
(`tests/executors/fleet.py`). The first task of each slot is shorter by chance, so that later ends are spread evenly.
With ``--run`` the first process is a whole run, with plan, event log and all.
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

import asa
from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed
from asa.core.job import Capabilities, JobChanges, JobHandle, JobRequest, JobState, JobStatus, Refused, Resources
from asa.core.ports import RunContext
from asa.core.task import Task
from benchmarks.measure import show
from executors.hub import Hub, HubExecutor
from tests.executors import fleet

ALLOCATION = "a"


def timers() -> HubExecutor:
    """The executor whose tasks are timers."""
    return HubExecutor("tests.executors.fleet:Timers")


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


class Nodes:
    """The process of the supervisors, which says every second how they are; it ends once they are released."""

    def __init__(self, directory: str, allocation: str, nodes: int, slots: int) -> None:
        self._looks = queue.SimpleQueue[Look]()
        words = ["-m", fleet.__name__, directory, allocation, str(nodes), str(slots)]
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if os.sched_getaffinity(0) == {0}:
            os.sched_setaffinity(self.process.pid, {1})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._looks.put(Look(json.loads(line)))

    def look(self) -> Look:
        """The next second's."""
        return self._looks.get(timeout=60)

    def during(self, seconds: float) -> tuple[Look, Look]:
        first = last = self.look()
        while last.fleet["at"] < first.fleet["at"] + seconds:
            last = self.look()
            if os.environ.get("SHOW"):
                print(last.fleet, f"{last.cpu_s:.2f} {last.resident / 1e6:.0f} MB", file=sys.stderr)
        return first, last

    def lose(self, count: int) -> None:
        assert self.process.stdin
        print(count, file=self.process.stdin, flush=True)


class Site:
    """A batch system that starts each job at once, on simulated nodes."""

    def __init__(self, nodes: int, slots: int) -> None:
        self._nodes, self._slots = nodes, slots
        self._jobs: dict[str, tuple[Nodes, float]] = {}
        self.started = queue.SimpleQueue[Nodes]()

    def __reduce__(self) -> tuple[type[Site], tuple[int, int]]:
        return Site, (self._nodes, self._slots)  # in the run's settings

    def capabilities(self) -> Capabilities:
        return Capabilities("simulated nodes", cores_per_node=self._slots, poll_s=1.0)

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        found: list[JobHandle | Refused] = []
        for request in requests:
            options = dict(zip(request.argv[4::2], request.argv[5::2], strict=True))
            nodes = Nodes(options["--directory"], options["--allocation"], self._nodes, self._slots)
            handle = JobHandle(str(nodes.process.pid), request.token, time.time())
            self._jobs[handle.job_id] = nodes, time.time()
            self.started.put(nodes)
            found.append(handle)
        return found

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        found = []
        for handle in handles:
            nodes, started = self._jobs[handle.job_id]
            over = nodes.process.poll() is not None
            state = JobState.COMPLETED if over else JobState.RUNNING
            names = tuple(f"n{number:04}" for number in range(self._nodes))
            found.append(JobStatus(handle, state, started=started, ended=time.time() if over else None, nodes=names))
        return found

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        return {}

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        raise NotImplementedError("jobs start at once")

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        for handle in handles:
            self._jobs[handle.job_id][0].process.terminate()

    def look(self) -> None:
        return None

    def close(self) -> None:
        pass


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


def hub_alone(nodes: int, slots: int, seconds: float, minutes: float, lose: float) -> list[dict[str, Any]]:
    """The hub, fed with tasks."""
    with tempfile.TemporaryDirectory() as name:
        context = RunContext("nodes", Path(name, "run"), name, tuple(sys.path))
        executor = timers()
        feeder = Feeder(executor, seconds)
        executor.start(context, feeder.post)
        bare, cpu_s, began = resident(), time.process_time(), time.monotonic()
        others = Nodes(str(context.directory), ALLOCATION, nodes, slots)
        while feeder.joined < nodes:
            others.look()
        joined = others.look()
        found = [
            {"what": "all nodes have joined after [s]", "value": time.monotonic() - began},
            {"what": "driver, CPU of a node that joins [ms]", "value": 1e3 * (joined.cpu_s - cpu_s) / nodes},
            {"what": "driver, memory of a node that has joined [kB]", "value": (joined.resident - bare) / nodes / 1e3},
        ]
        feeder.begin(nodes * slots)
        others.during(1.2 * seconds)
        first, last = others.during(60 * minutes)
        found += rows("steady", nodes * slots, first, last)
        found.append({"what": "driver, memory of a busy node [kB]", "value": (last.resident - bare) / nodes / 1e3})
        if lost := int(lose * nodes):
            others.lose(lost)
            others.during(seconds / 4)
            assert feeder.lost == lost, f"{feeder.lost} of {lost} nodes were reported lost"
            found.append({"what": f"tasks lost with {lost} of the nodes", "value": feeder.failed})
            found += rows("after that", (nodes - lost) * slots, *others.during(1.2 * seconds))
            found.append({"what": "of these not done since", "value": len(feeder.again)})
        feeder.wanted = False
        executor.release(ALLOCATION)
        executor.close()
        others.process.communicate(timeout=120)
    return found


def whole_run(nodes: int, slots: int, seconds: float, minutes: float) -> list[dict[str, Any]]:
    """A workflow of one stage: plan, log and all."""
    site = Site(nodes, slots)
    count = int(nodes * slots * (3 + 60 * minutes / seconds))
    rng = random.Random(1)
    lengths = [_SHORT_S + rng.uniform(0.0, seconds) for _ in range(nodes * slots)]
    lengths += [rng.uniform(0.5, 1.5) * seconds for _ in lengths]  # nodes that come late begin with some of these
    lengths += [seconds] * (count - len(lengths))

    @asa.stage(cores=nodes * slots, nodes=nodes, walltime="2h")
    def wait(seconds: float) -> None:
        time.sleep(seconds)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as state:
        bare = resident()
        run = asa.submit(wait.map(lengths), backend=site, strategy="big-job", executor=timers(), state=state)
        others = site.started.get(timeout=60)
        while others.look().fleet["running"] < 0.9 * nodes * slots:
            pass
        others.during(1.2 * seconds)
        first, last = others.during(60 * minutes)
        found = rows("whole run", nodes * slots, first, last)
        found.append({"what": "driver, memory in all [MB]", "value": (last.resident - bare) / 1e6})
        run.cancel()
        run.wait()
        others.process.communicate(timeout=120)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2048)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--lose", type=float, default=0.1)
    parser.add_argument("--run", action="store_true", help="a whole run in place of the hub alone")
    parser.add_argument("--pin", action="store_true", help="the driver on one core, all supervisors on another")
    parser.add_argument("--profile", help="file for a profile of the hub's thread")
    given = parser.parse_args()
    if given.profile:
        profiled(given.profile)
    if given.pin:
        os.sched_setaffinity(0, {0})
    if given.run:
        found = whole_run(given.nodes, given.slots, given.seconds, given.minutes)
    else:
        found = hub_alone(given.nodes, given.slots, given.seconds, given.minutes, given.lose)
    show(f"{given.nodes} nodes of {given.slots} slots, tasks of {given.seconds:g} s", found)


if __name__ == "__main__":
    from benchmarks import nodes as loaded  # where settings of a run find the site

    loaded.main()
