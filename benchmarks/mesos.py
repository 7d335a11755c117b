"""The Mesos-compatible master, agents and driver: how soon, how many, how large. Each is a process of its own.

python benchmarks/mesos.py [PART ...] [--plain | --tls] [--tasks N]

Parts: offer launch throughput streams gang quota; without any, all. Processor time is of whole processes, all threads.
"""

from __future__ import annotations

import argparse
import getpass
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
from measure import show

from executors.cgroup import throttle
from executors.mesos.codec import Message
from executors.mesos.driver import SchedulerDriver
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, WRITER, PoolDirectory

PEERS = Path(__file__).with_name("mesos_peers.py")
ROOT = Path(__file__).parents[1]
PATIENCE_S = 60.0
FEW, SOME = 30, 200
AGENTS, STREAMS, GANG = 2000, 5000, 256
IDLE_S = 20.0
NOTHING: Message = {"refuse_seconds": 0}
Row = dict[str, Any]


class Pool:
    """A master in a directory of its own, agents, and whoever else is started; all end with the block."""

    def __init__(self, stack: ExitStack, tls: bool) -> None:
        self.path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="asa-bench-")))
        self.directory = PoolDirectory.create(self.path / "pool", "bench")
        self.plain = [] if tls else ["--plain-http"]
        self._stack = stack
        asa = "import sys; from asa.cli.main import main; sys.exit(main())"
        where = ["--directory", str(self.directory.path)]
        self.master = self.start("-c", asa, "master", *where, *self.plain)
        wait_for(self.directory.master)

    def start(self, *words: str, **options: Any) -> psutil.Popen:
        """A Python process; it is ended when the pool is."""
        log = self._stack.enter_context((self.path / f"log{time.monotonic_ns()}").open("w"))
        process = psutil.Popen([sys.executable, *words], cwd=ROOT, stderr=log, **options)
        self._stack.callback(_end, process)
        return process

    def agent(self, cores: int) -> psutil.Popen:
        """A real agent that says it has so many cores; returns once the master knows it."""
        words = ["--directory", str(self.directory.path), "--cores", str(cores), "--work", str(self.path / "work")]
        process = self.start("-P", "-m", "executors.mesos.agent", *words, *self.plain)
        with Operator(self.directory, READER) as operator:
            wait_for(operator.get_agents)
        return process

    def nodes(self, agents: int, schedulers: int = 0) -> psutil.Popen:
        """Agents that run nothing and schedulers that want nothing, in one process; returns once all are there."""
        words = [str(PEERS), "nodes", str(self.directory.path), str(agents), str(schedulers)]
        process = self.start(*words, stdout=subprocess.PIPE)
        assert process.stdout.readline()
        return process


class Scheduler:
    """Puts what it is told into queues, each with the moment when it came."""

    def __init__(self) -> None:
        self.offers: queue.SimpleQueue[tuple[float, list[Message]]] = queue.SimpleQueue()
        self.updates: queue.SimpleQueue[tuple[float, str, str]] = queue.SimpleQueue()

    def resourceOffers(self, driver: SchedulerDriver, offers: list[Message]) -> None:  # noqa: N802
        self.offers.put((time.perf_counter(), offers))

    def statusUpdate(self, driver: SchedulerDriver, status: Message) -> None:  # noqa: N802
        self.updates.put((time.perf_counter(), status["task_id"]["value"], status["state"]))

    def until(self, task: str, state: str) -> float:
        """When the task got there; others are passed over."""
        while True:
            at, name, found = self.updates.get(timeout=PATIENCE_S)
            if (name, found) == (task, state):
                return at
            assert found in ("TASK_RUNNING", "TASK_FINISHED", "TASK_KILLED"), found


@contextmanager
def framework(pool: Pool, scheduler: Any) -> Iterator[SchedulerDriver]:
    info = {"user": getpass.getuser(), "name": "bench", "roles": ["bench"], "capabilities": [{"type": "MULTI_ROLE"}]}
    driver = SchedulerDriver(scheduler, info, pool.directory)
    driver.start()
    try:
        yield driver
    finally:
        driver.stop()
        driver.join()


def task(name: str, agent: Message, program: str | None, cpus: float = 1.0) -> Message:
    """A TaskInfo: a shell command or, for None, one for the executor that only says so."""
    resources = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": cpus}}]
    found: Message = {"name": name, "task_id": {"value": name}, "agent_id": agent, "resources": resources}
    if program is not None:
        return found | {"command": {"value": program}}
    command = {"value": f"exec {sys.executable} {PEERS} executor"}
    return found | {"executor": {"executor_id": {"value": "saying"}, "command": command}}


def first_offers(tls: bool) -> list[Row]:
    """From the start of a driver to its first offer."""
    seconds = []
    with ExitStack() as stack:
        pool = Pool(stack, tls)
        pool.agent(4)
        for _ in range(FEW):
            began, scheduler = time.perf_counter(), Scheduler()
            with framework(pool, scheduler):
                seconds.append(scheduler.offers.get(timeout=PATIENCE_S)[0] - began)
    return [_times("first offer", seconds, 20)]


def launches(tls: bool) -> list[Row]:
    """From the call that launches a task to its TASK_RUNNING, one after the other."""
    rows = []
    with ExitStack() as stack:
        pool = Pool(stack, tls)
        pool.agent(1000)
        for what, program, target in (("message-only executor", None, 2), ("process", "exec sleep 0.01", 10)):
            seconds, scheduler = [], Scheduler()
            with framework(pool, scheduler) as driver:
                for number in range(SOME + 1):
                    _, (offer, *_) = scheduler.offers.get(timeout=PATIENCE_S)
                    began, name = time.perf_counter(), f"{what[:1]}{number}"
                    driver.launchTasks(offer["id"], [task(name, offer["agent_id"], program)], {"refuse_seconds": 3600})
                    seconds.append(scheduler.until(name, "TASK_RUNNING") - began)
                    scheduler.until(name, "TASK_FINISHED")
                    driver.reviveOffers()
            rows.append(_times(f"running, {what}", seconds[1:], target))  # the first starts the executor
    return rows


class Flood(Scheduler):
    """Launches as many tasks as are offered, until there have been enough."""

    def __init__(self, tasks: int, program: str | None, cpus: float) -> None:
        super().__init__()
        self.left = self.unfinished = tasks
        self.program, self.cpus = program, cpus
        self.began = 0.0

    def resourceOffers(self, driver: SchedulerDriver, offers: list[Message]) -> None:  # noqa: N802
        self.began = self.began or time.perf_counter()
        for offer in offers:
            cores = sum(item["scalar"]["value"] for item in offer["resources"] if item["name"] == "cpus")
            first, self.left = self.left, self.left - min(self.left, int(cores / self.cpus + 1e-6))
            tasks = [task(f"t{n}", offer["agent_id"], self.program, self.cpus) for n in range(self.left, first)]
            driver.launchTasks(offer["id"], tasks, NOTHING if tasks else None)  # memory alone is of no use
        if not self.left:
            driver.suppressOffers()

    def statusUpdate(self, driver: SchedulerDriver, status: Message) -> None:  # noqa: N802
        assert status["state"] in ("TASK_RUNNING", "TASK_FINISHED"), status
        self.unfinished -= status["state"] == "TASK_FINISHED"
        if not self.unfinished:
            self.updates.put((time.perf_counter(), "", ""))


def throughput(tls: bool, tasks: int) -> list[Row]:
    """Tasks that are launched, run, end, and have both updates acknowledged."""
    rows = []
    with ExitStack() as stack:
        pool = Pool(stack, tls)
        agent = pool.agent(64)
        for what, program, count, target in (
            ("message-only executor", None, tasks, 1000),
            ("processes", "exec true", tasks // 10, None),
        ):
            with framework(pool, warm := Flood(1, program, 0.25)):
                warm.updates.get(timeout=PATIENCE_S)
                flood = Flood(count, program, 0.25)
                processes = {"master": pool.master, "agent": agent, "driver": psutil.Process()}
                before = {name: _cpu(process) for name, process in processes.items()}
                with framework(pool, flood):
                    ended, _, _ = flood.updates.get(timeout=PATIENCE_S)
            row: Row = {"what": what, "tasks/s": count / (ended - flood.began), "target": target}
            used = {name: _cpu(process) - before[name] for name, process in processes.items()}
            rows.append(row | {f"{name} [ms/task]": 1000 * cpu / count for name, cpu in used.items()})
    return [_kind(tls) | row for row in rows]


def streams(tls: bool) -> list[Row]:
    """What streams of agents and schedulers cost the master."""
    rows = []
    for agents, schedulers in ((0, STREAMS), (AGENTS, STREAMS - AGENTS)):
        with ExitStack() as stack:
            pool = Pool(stack, tls)
            pool.nodes(1, 1)  # what is made once
            before = pool.master.memory_info().rss
            began = time.perf_counter()
            pool.nodes(agents, schedulers)
            took = time.perf_counter() - began
            time.sleep(2.0)
            kilobytes = (pool.master.memory_info().rss - before) / STREAMS / 1000
            began_s = _cpu(pool.master)
            time.sleep(IDLE_S)
            idle = (_cpu(pool.master) - began_s) / IDLE_S
            row: Row = {"agents": agents, "schedulers": schedulers, "connected in [s]": took}
            rows.append(_kind(tls) | row | {"kB each": kilobytes, "idle [% of a core]": 100 * idle})
    return rows


def gangs(tls: bool) -> list[Row]:
    """One task on each of many agents that run nothing: from the first ACCEPT until all are running."""
    seconds, offered = [], []
    with ExitStack() as stack:
        pool = Pool(stack, tls)
        pool.nodes(GANG)
        scheduler = Scheduler()
        with framework(pool, scheduler) as driver:
            for number in range(FEW // 3):
                asked, offers = time.perf_counter(), []
                while len(offers) < GANG:
                    offers += scheduler.offers.get(timeout=PATIENCE_S)[1]
                began = time.perf_counter()
                for rank, offer in enumerate(offers):
                    one = task(f"g{number}.{rank}", offer["agent_id"], "true", 64.0)
                    driver.launchTasks(offer["id"], [one], {"refuse_seconds": 3600})
                _count(scheduler, "TASK_RUNNING", GANG)
                seconds.append(time.perf_counter() - began)
                offered.append(began - asked)
                for rank in range(GANG):
                    driver.killTask({"value": f"g{number}.{rank}"})
                _count(scheduler, "TASK_KILLED", GANG)
                driver.reviveOffers()
    return [_times("all offers there", offered[1:], None), _times(f"gang over {GANG} agents runs", seconds, 500)]


def quota(tls: bool) -> list[Row]:
    """From an operator's call to a container that is held, or goes on."""
    held, freed = [], []
    with ExitStack() as stack:
        pool = Pool(stack, tls)
        pool.agent(4)
        scheduler = Scheduler()
        with framework(pool, scheduler) as driver, Operator(pool.directory, WRITER) as operator:
            _, (offer, *_) = scheduler.offers.get(timeout=PATIENCE_S)
            burner = "exec sh -c 'while :; do :; done'"
            driver.launchTasks(offer["id"], [task("burner", offer["agent_id"], burner)])
            scheduler.until("burner", "TASK_RUNNING")
            agent = offer["agent_id"]["value"]
            (container,) = operator.containers(agent)
            name, pid = container["container_id"]["value"], container["container_status"]["executor_pid"]
            for _ in range(FEW):
                began = time.monotonic()
                operator.update_limits(agent, name, 0.05, 3600)
                held.append(_until(pid, began, runs=False))
                time.sleep(0.3)
                began = time.monotonic()
                operator.update_limits(agent, name, 1.0, 0)
                freed.append(_until(pid, began, runs=True))
                time.sleep(0.1)
    return [_times("quota lowered, held", held, 50), _times("quota raised, runs", freed, 50)]


def wait_for(found: Callable[[], Any]) -> Any:
    """What is true at last."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := found()):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return value


def _until(pid: int, began: float, *, runs: bool) -> float:
    """When a window of 10 ms first shows that a process is held, or that it runs: the window's begin [s]."""
    while True:
        start, before = time.monotonic(), throttle.clock(pid) or 0.0
        time.sleep(0.01)
        part = ((throttle.clock(pid) or 0.0) - before) / (time.monotonic() - start)
        if part > 0.8 if runs else part < 0.2:
            return start - began


def _count(scheduler: Scheduler, state: str, wanted: int) -> None:
    while wanted:
        _, _, found = scheduler.updates.get(timeout=PATIENCE_S)
        assert found == state, found
        wanted -= 1


def _end(process: psutil.Popen) -> None:
    process.terminate()
    process.wait(PATIENCE_S)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _kind(tls: bool) -> Row:
    return {"HTTP": "TLS" if tls else "plain"}


def _times(what: str, seconds: list[float], target: float | None) -> Row:
    spread = {"median [ms]": 1000 * statistics.median(seconds), "min": 1000 * min(seconds), "max": 1000 * max(seconds)}
    return {"what": what} | spread | {"target": target}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended then, too
    parts = {"offer": first_offers, "launch": launches, "throughput": None, "streams": streams}
    parts |= {"gang": gangs, "quota": quota}
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*parts, []])
    parser.add_argument("--plain", dest="kinds", action="store_const", const=[False], default=[False, True])
    parser.add_argument("--tls", dest="kinds", action="store_const", const=[True])
    parser.add_argument("--tasks", type=int, default=5000)
    options = parser.parse_args()
    tables: dict[str, list[Row]] = {}
    for name in options.parts or parts:
        for tls in options.kinds:
            part = parts[name]
            rows = throughput(tls, options.tasks) if part is None else [_kind(tls) | row for row in part(tls)]
            table = {"throughput": "Throughput", "streams": "Streams"}.get(name, "Latency")
            tables.setdefault(table, []).extend(rows)
    for title, rows in tables.items():
        show(title, rows)


if __name__ == "__main__":
    main()
