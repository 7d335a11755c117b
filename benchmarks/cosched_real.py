"""How jobs that share cores fare on agents of this machine, rule by rule, what monitoring costs, and how fast guests
are stopped.

    python benchmarks/cosched_real.py --nodes 8 --seconds 20 --loads 8,15,idle:8,io:8 --seeds 2 --out results.json
    python benchmarks/cosched_real.py --cpu-cost
    python benchmarks/cosched_real.py --stops 25 --nodes 2

Jobs are made by cosched_queue.py, once. A load is a number of jobs of the paper's mix; ``idle:`` before it for such as
leave CPUs idle only (Montage and Statistics), ``io:`` for such as wait for the disk (files and Statistics). Each kind
of job first runs once alone; wall times are 1.1 to 1.6 times what that took. Then, for each seed and load, all rules
run the same queue, with the first seed ``space`` once more in the end: by how much its two runs differ is the noise.
What rules learn is kept from seed to seed, for each load. A ``--bound`` is promised to all jobs, and `scavenger` alone
keeps to it; how much slower hosts are is set beside how jobs vary under ``space``, where they have no guests.

Nodes have one core each. Unless ``--speed`` says otherwise, a tenth of the machine is left to master, agents and
co-scheduler: with all of it, nobody who ran beside others would be as fast as alone, whatever the rule.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import itertools
import json
import math
import os
import platform
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from cosched_queue import FEWEST, FILES, SIZES
from cosched_table import COSTS, SPACE, Row, applications, cell, hosts, overall, published, summary
from measure import show

from asa.core.errors import AsaError, StateError
from asa.core.units import duration
from asa.log.database import LearnedStore
from asa.security.files import private_directory
from coscheduler.agents.groups import LocalAgents
from coscheduler.agents.machine import AgentMachine
from coscheduler.compare import workflow_figures
from coscheduler.drive import Remembered, drive
from coscheduler.history import SharedQueue
from coscheduler.nouns import LOOK_S, SetShare, SharedRun, SharingDecision, SharingRule, SharingView, WaitingJob
from coscheduler.queuefile import QueuedCommand, SharedQueueLog, bound_of, read, read_commands
from coscheduler.real.gangs import STOPPED_CPUS
from coscheduler.real.machine import ContainerProgram, ContainerStarted
from coscheduler.real.world import PERIOD_S, RealWorld
from coscheduler.registry import SHARING_RULES
from coscheduler.sharing.promise import HostAccounts
from executors.cgroup import probe
from executors.cgroup.kernel import own_groups, quota_us

MIXES = {"": tuple(SIZES), "idle": ("montage", "statistics"), "io": (*FILES, "statistics")}
HELD_BACK = 0.1  # of the machine, for those who look after it
PADDING = 1.1, 1.6  # wall time, in run times alone
PATIENCE_S, TIMES = 60.0, 3.0  # a queue may take so long, and so many times as long as its jobs alone, one by one
START_S, LOOSE = 10.0, 1.5  # a queue is likely to take: to begin with, and in times that its nodes are busy alone
DETAILS = "slowdowns", "applications"  # of a row: in tables of their own
LOOKS_S = 20.0  # how long agents are looked at, or not

Kind = tuple[str, int]  # application and nodes


@dataclass
class Experiment:
    """Nodes, what each is worth in cores, where files go, when all must be over [s], how often rules are asked [s]."""

    nodes: int
    speed: float
    work: Path
    ends: float
    period_s: float = PERIOD_S
    bound: float = math.inf  # on how much slower guests may make a job
    templates: dict[Kind, QueuedCommand] = field(default_factory=dict)
    alone: dict[Kind, float] = field(default_factory=dict)

    def pool(self) -> LocalAgents:
        return LocalAgents(self.nodes, 1, self.speed if self.speed < 1 else None)

    def drive(
        self, jobs: Sequence[QueuedCommand], machine: AgentMachine, directory: Path, rule: Any, bound_s: float
    ) -> SharedQueue:
        """What becomes of jobs within a time [s]."""
        with SharedQueueLog(directory) as log:
            world = RealWorld(jobs, machine, directory / "jobs", period_s=self.period_s, log=log.write)
            ends = min(self.ends, time.monotonic() + bound_s)
            drive(world, rule, until=lambda: time.monotonic() >= ends)
            return world.result()

    def run_alone(self, kinds: Sequence[Kind]) -> None:
        """One job after the other, each on a machine of its own."""
        rule = SHARING_RULES.create(SPACE)
        with AgentMachine(self.pool()) as machine:
            for place, kind in enumerate(kinds, 1):
                command, directory = self.templates[kind], self.work / "alone" / slug(*kind)
                bound_s = PATIENCE_S + 10 * command.request.walltime_s
                jobs = self.drive([command], machine, directory, rule, bound_s).jobs
                if not jobs or jobs[0].problem:
                    problem = jobs[0].problem if jobs else f"it has not ended within {bound_s:.0f} s, or time is over"
                    raise StateError(f"job {command.request.name!r}, which ran alone: {problem}")
                self.alone[kind] = jobs[0].alone_s
                used = jobs[0].cpu_s / jobs[0].cores / jobs[0].alone_s
                tell(f"alone, {place} of {len(kinds)}: {slug(*kind)}, {jobs[0].alone_s:.1f} s, CPU {used:.0%}")
                shutil.rmtree(directory / "jobs", ignore_errors=True)

    def write_queue(self, path: Path, jobs: Sequence[Kind], random_: random.Random) -> None:
        """A queue's file; it can be run by hand, too."""
        lines, count = [f"cores = {self.nodes}"], dict[Kind, int]()
        for kind in jobs:
            count[kind] = count.get(kind, 0) + 1
            alone_s = self.alone[kind]
            lines += ["", "[[jobs]]", f"name = {json.dumps(slug(*kind, count[kind]))}", f"cores = {kind[1]}"]
            lines += [f"application = {json.dumps(kind[0])}", f"command = {json.dumps(self.templates[kind].line)}"]
            lines += [f"walltime = {alone_s * random_.uniform(*PADDING):.2f}", f"run_time = {alone_s:.3f}"]
            lines += [f"slowdown_bound = {self.bound}"] if math.isfinite(self.bound) else []
        path.write_text("\n".join(lines) + "\n")

    def run_queue(self, queue: Path, spec: str, directory: Path, learned: Path) -> Row:
        """What came of a queue under a rule."""
        jobs = read_commands(queue).jobs
        bound_s = PATIENCE_S + TIMES * sum(job.alone_s or 0.0 for job in jobs)
        run = f"{directory.name} {os.getpid()}"
        with AgentMachine(pool := self.pool()) as machine:
            agents = [psutil.Process(agent.pid) for agent in pool.agents.values()]
            began, before = time.monotonic(), (sum(map(cpu_time, agents)), time.process_time())
            with Remembered(SHARING_RULES.create(spec), LearnedStore(learned), spec, run) as rule:
                found = self.drive(jobs, machine, directory, rule, bound_s)
            over_s = time.monotonic() - began
            spent = sum(map(cpu_time, agents)) - before[0], time.process_time() - before[1]
        (directory / "result.json").write_text(json.dumps(found.to_json()))
        well = [job for job in found.jobs if not job.problem]
        for job in found.jobs:
            if job.problem:
                tell(f"{job.name} has failed: {job.problem}")
        if len(well) == len(found.jobs):
            shutil.rmtree(directory / "jobs", ignore_errors=True)
        costs = dict(zip(COSTS, (spent[0] / over_s / self.nodes, spent[1] / over_s), strict=True))
        return {"jobs": len(jobs), "unfinished": len(jobs) - len(well)} | measured(found, spec) | costs


def measured(found: SharedQueue, spec: str) -> Row:
    """A queue's metrics: times in [s]; by how much hosts were slower, under `space` all jobs."""
    metrics = found.metrics()
    row = {name.removesuffix("_h") + "_s": metrics.pop(name) * 3600 for name in list(metrics) if name.endswith("_h")}
    slower = [job.slowdown if spec == SPACE else job.host_slowdown for job in found.jobs if not job.problem]
    bounded, broken = found.promises()
    row |= metrics | {"slowdowns": [each for each in slower if not math.isnan(each)]}
    return row | {"bounded": bounded, "broken": len(broken), "applications": workflow_figures(found)}


def make_jobs(options: argparse.Namespace, experiment: Experiment) -> None:
    """One job of each kind that fits, and its data."""
    path = options.jobs
    if path is None:
        made = {"nodes": max(FEWEST, options.nodes), "speed": f"{experiment.speed:.4g}", "seconds": options.seconds}
        folder = experiment.work / "data"
        words = [word for name, value in (made | {"out": folder}).items() for word in (f"--{name}", str(value))]
        words += ["--files"] if any(load.startswith("io:") for load in options.loads) else []
        bounded([sys.executable, str(Path(__file__).with_name("cosched_queue.py")), *words], experiment.ends)
        path = folder / "queue.toml"
    for command in read_commands(path).jobs:
        if (asked := command.request).cores <= (options.largest or options.nodes):
            experiment.templates.setdefault((asked.application, asked.cores), command)


def bounded(argv: Sequence[str], until: float) -> None:
    """Run a program, until a moment [s] at most; it and those that it starts end with this."""
    with subprocess.Popen(argv, stdout=sys.stderr, start_new_session=True) as process:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise StateError(f"{argv[1]} has ended with exit code {process.returncode}")


def chosen(load: str, kinds: Sequence[Kind], random_: random.Random) -> list[Kind]:
    """All kinds equally often, for the rest as many of one application as of another; in random order."""
    mix, _, count = load.rpartition(":")
    wanted = [kind for kind in kinds if kind[0] in MIXES[mix]]
    if not wanted:
        raise StateError(f"no job of load {load} fits on the nodes: give more --nodes")
    mixed = random_.sample(wanted, len(wanted))
    groups = [[kind for kind in mixed if kind[0] == name] for name in dict.fromkeys(name for name, _ in mixed)]
    turns = [kind for turn in itertools.zip_longest(*groups) for kind in turn if kind is not None]
    found = list(itertools.islice(itertools.cycle(turns), int(count)))
    random_.shuffle(found)
    return found


def loads(text: str) -> list[str]:
    found = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(rf"(({'|'.join(filter(None, MIXES))}):)?[1-9]\d?", word) for word in found):
        raise argparse.ArgumentTypeError(f"{text!r}: numbers of jobs from 1 to 99 expected, such as 8,idle:8,io:8")
    return found


def run_all(experiment: Experiment, options: argparse.Namespace, keep: Callable[[Row], None]) -> None:
    """All queues under all rules; each row is kept at once."""
    rules = SHARING_RULES.split([options.rules])
    for spec in rules:
        SHARING_RULES.create(spec)  # a wrong one is an error before anything else takes its time
    make_jobs(options, experiment)
    planned = []
    for seed, load in itertools.product(range(1, options.seeds + 1), options.loads):
        random_ = random.Random(f"{seed} {load}")
        planned.append((seed, load, chosen(load, sorted(experiment.templates), random_), random_))
    experiment.run_alone(sorted({kind for _, _, jobs, _ in planned for kind in jobs}))
    for seed, load, jobs, random_ in planned:
        name, runs = slug(load, seed), rules + [SPACE] * (options.repeat_space and seed == 1)
        experiment.write_queue(experiment.work / f"{name}.toml", jobs, random_)
        busy_s = sum(experiment.alone[kind] * kind[1] for kind in jobs) / options.nodes
        if time.monotonic() + len(runs) * (START_S + LOOSE * busy_s) > experiment.ends:
            tell(f"load {load}, seed {seed}: left out, there is too little time left")
            continue
        for place, spec in enumerate(runs, 1):
            if time.monotonic() > experiment.ends:
                raise StateError("time is over: give more than --within, or fewer loads and seeds")
            directory, learned = experiment.work / slug(name, place, spec), experiment.work / f"{slug(load)}.db"
            row = experiment.run_queue(experiment.work / f"{name}.toml", spec, directory, learned)
            keep({"rule": spec, "load": load, "seed": seed} | row)


def cpu_cost() -> list[Row]:
    """CPU time of an agent with two containers that sleep, looked at and not, and that of who looks."""
    rows = []
    with AgentMachine(pool := LocalAgents(1, 2)) as machine:
        agent = psutil.Process(pool.agents["node0"].pid)
        for number in range(2):
            machine.start(f"sleep{number}", "node0", ContainerProgram(("/bin/sleep", "600"), {}), 1.0, 2.0)
        deadline, running = time.monotonic() + PATIENCE_S, 0
        while running < 2:
            running += sum(isinstance(news, ContainerStarted) for news in machine.news(1.0))
            if time.monotonic() > deadline:
                raise StateError(f"containers have not started within {PATIENCE_S:g} s")
        for looks in (False, True, False, True):
            began, before, seen = time.monotonic(), (cpu_time(agent), time.process_time()), 0
            for look in range(round(LOOKS_S / LOOK_S)):
                seen += len(machine.used()) if looks else 0
                while (left := began + (look + 1) * LOOK_S - time.monotonic()) > 0:
                    machine.news(left)
            spent, over_s = (cpu_time(agent) - before[0], time.process_time() - before[1]), time.monotonic() - began
            row = {"looks [1/s]": 1 / LOOK_S if looks else 0.0, "containers seen": seen, "over [s]": over_s}
            rows.append(row | dict(zip(COSTS, (part / over_s for part in spent), strict=True)))
    return rows


# A host that works and reports all the time, and a guest that works all the time on the same core.
REPORTS = """
import os, sys, time
path, reports = os.environ["ASA_PROGRESS"], open("reports", "w", 1)
for done in range(1, UNITS):
    sum(range(2_000_000))
    with open(path + ".new", "w") as file: print(done, UNITS, file=file)
    os.replace(path + ".new", path)
    print(time.monotonic(), done / UNITS, file=reports)
""".replace("UNITS", "40_000")
BURNS = """
import os
with open("pid.new", "w") as file: print(os.getpid(), file=file)
os.rename("pid.new", "pid")
while True: sum(range(100_000))
"""
STOPS_BOUND = 2.0  # a guest goes on again some seconds after it was stopped
STOPS_RULE = "scavenger:min_rate=0.01,worth=1e6,share=0.95"
DAYS_S, HOURS_S = 1e6, 7200.0  # wall times: no host gets late by its guest
PEEK_S, GRID_S = 0.005, 0.01  # how often the kernel is asked, and accounts are looked at again afterwards
STILL_S, STILL = 1.0, 0.015  # a guest is stopped when for so long it uses no more than this share of a core


class Stopped(NamedTuple):
    """A guest that was stopped: by a decision on what was seen at this time [s], and the rule's state before it."""

    guest: str
    host: str
    seen: float
    before: dict[str, Any]


@dataclass
class Watched:
    """A rule, and the guests that it has stopped."""

    rule: SharingRule
    stops: list[Stopped] = field(default_factory=list)

    def decide(self, view: SharingView) -> Sequence[SharingDecision]:
        before = self.rule.state()
        decisions = self.rule.decide(view)
        for each in decisions:
            if isinstance(each, SetShare) and not each.share:
                self.stops.append(Stopped(each.guest, each.why["host"], view.now, before))
        return decisions

    def learn(self, run: SharedRun) -> None:
        self.rule.learn(run)


class KernelWatch(threading.Thread):
    """What the kernel says of so many guests, each `PEEK_S`: when [s], quota [us], and CPU time so far [s]."""

    def __init__(self, jobs: Path, guests: int) -> None:
        super().__init__(daemon=True)
        self.jobs, self.guests, self.over = jobs, guests, threading.Event()
        self.seen: defaultdict[str, list[tuple[float, str, float]]] = defaultdict(list)
        self._files: dict[str, tuple[int, int]] = {}

    def run(self) -> None:
        while not self.over.wait(PEEK_S):
            there = {path.parts[-3] for path in self.jobs.glob("*/1/pid")} if len(self._files) < self.guests else set()
            for name in there - self._files.keys():
                self._files[name] = self._open(int((self.jobs / name / "1/pid").read_text()))
            for name, (quota, used) in self._files.items():
                with contextlib.suppress(OSError):  # it has ended
                    now, words = time.monotonic(), os.pread(used, 4096, 0).split()
                    used_s = int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6
                    self.seen[name].append((now, os.pread(quota, 64, 0).split()[0].decode(), used_s))

    def _open(self, pid: int) -> tuple[int, int]:
        """The files of its group: version 1, or 2."""
        groups = own_groups(Path("/proc/self/mountinfo").read_text(), Path(f"/proc/{pid}/cgroup").read_text())
        if "cpu" in groups:
            files = groups["cpu"] / "cpu.cfs_quota_us", groups["cpuacct"] / "cpuacct.usage"
        else:
            files = groups[""] / "cpu.max", groups[""] / "cpu.stat"
        return os.open(files[0], os.O_RDONLY), os.open(files[1], os.O_RDONLY)

    def after(self, guest: str, decided: float) -> tuple[float, float]:
        """How long after a decision [s] the kernel had the new quota, and the guest stood still [s]."""
        seen = self.seen[guest]
        times = [each[0] for each in seen]
        later = range(bisect_left(times, decided), bisect_right(times, times[-1] - STILL_S))
        limit = next((at for at in later if seen[at][1] == str(quota_us(STOPPED_CPUS))), None)
        quiet = (at for at in later if at >= (limit or 0) and _used_s(seen, times, at) <= STILL * STILL_S)
        if limit is None or (still := next(quiet, None)) is None:
            raise StateError(f"{guest} was stopped, and has no such quota, or goes on")
        return times[limit] - decided, times[still] - decided


def _used_s(seen: Sequence[tuple[float, str, float]], times: Sequence[float], at: int) -> float:
    """CPU time in the `STILL_S` after a sample [s]."""
    return seen[bisect_left(times, times[at] + STILL_S)][2] - seen[at][2]


def used_up(stop: Stopped, reports: Sequence[tuple[float, float]]) -> float | None:
    """When a host's account was used up by what the host had reported by then [s]; None if it was not yet, when its
    guest was stopped: the co-scheduler had not read the last report.

    The time with the guest is counted from the look before.
    """
    accounts = HostAccounts()
    accounts.restore(stop.before["noise"])
    accounts.restore_pending({stop.host: stop.before["pending"]["accounts"][stop.host]})
    before, times = accounts.of[stop.host], [at for at, _ in reports]
    for now in np.arange(before.at, stop.seen, GRID_S).tolist():
        accounts.of[stop.host] = account = replace(before)
        account.look(now, reports[bisect_right(times, now) - 1][1])
        if accounts.balance([stop.host], np.array([STOPS_BOUND])).slack_s()[0] <= 0:
            return float(now)
    return None


def stop_times(count: int, nodes: int, speed: float, within_s: float) -> tuple[list[Row], list[Row]]:
    """How long it takes until a guest that takes its host's core is stopped: all times, and a table of them [s]."""
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="asa-bench-")))
        jobs = []
        for name, code, walltime_s, bound in (
            ("host", REPORTS, DAYS_S, STOPS_BOUND),
            ("guest", BURNS, HOURS_S, math.inf),
        ):
            line = f"exec {shlex.join([sys.executable, '-I', '-S', '-c', code])}"
            asked = [WaitingJob(f"{name}{place}", name, 1, walltime_s, bound=bound) for place in range(nodes)]
            jobs += [QueuedCommand(each, line) for each in asked]
        machine = stack.enter_context(AgentMachine(LocalAgents(nodes, 1, speed if speed < 1 else None)))
        log = stack.enter_context(SharedQueueLog(work / "queue"))
        kernel, rule = KernelWatch(work / "queue/jobs", nodes), Watched(SHARING_RULES.create(STOPS_RULE))
        stack.callback(kernel.join)
        stack.callback(kernel.over.set)
        kernel.start()
        began = time.monotonic()
        world = RealWorld(jobs, machine, kernel.jobs, log=log.write)

        def done() -> bool:
            now = time.monotonic() - began
            return now > within_s or (len(rule.stops) >= count and now > rule.stops[-1].seen + 2 * STILL_S)

        drive(world, rule, until=done)
        decided = [
            entry["at"] for entry in read(log.path) if entry.get("decision") == "SetShare" and not entry["share"]
        ]
        if len(decided) < count:
            raise StateError(
                f"{len(decided)} guests were stopped within {within_s:g} s: give more --within, or fewer --stops"
            )
        reports = {}
        for host in {stop.host for stop in rule.stops}:
            whole = (kernel.jobs / host / "1/reports").read_text().rpartition("\n")[0]
            lines = map(str.split, whole.splitlines())
            reports[host] = [(float(at) - began, float(share)) for at, share in lines]
        rows = []
        for stop, at in list(zip(rule.stops, decided, strict=True))[:count]:
            evidence, (limit_s, still_s) = used_up(stop, reports[stop.host]), kernel.after(stop.guest, began + at)
            rows.append({"guest": stop.guest, "at": at, "evidence": evidence, "limit_s": limit_s, "still_s": still_s})
    late = [0.0 if row["evidence"] is None else row["at"] - row["evidence"] for row in rows]
    table = {"account used up, to decision": late}
    table |= {"decision, to quota in the kernel": [row["limit_s"] for row in rows]}
    table |= {"decision, to guest stopped": [row["still_s"] for row in rows]}
    table |= {"account used up, to guest stopped": [one + row["still_s"] for one, row in zip(late, rows, strict=True)]}
    return rows, [
        {"time [s]": name, "median": statistics.median(times), "worst": max(times), "stops": len(times)}
        for name, times in table.items()
    ]


def cpu_time(process: psutil.Process) -> float:
    """User and system time of a process, without its children [s]."""
    times = process.cpu_times()
    return float(times.user + times.system)


def surroundings() -> Row:
    """Date, machine and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    machine = {"cores": len(os.sched_getaffinity(0)), "model": model or platform.machine(), "load": os.getloadavg()[0]}
    machine |= {"kernel": platform.release(), "memory": psutil.virtual_memory().total}
    machine["quotas"] = probe.best(f"bench-{os.getpid()}").name
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in ("asa-hpc", "numpy")}
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": date, "machine": machine, "versions": versions}


def slug(*words: object) -> str:
    """A name for a job or a file."""
    return re.sub(r"[^\w.]+", "-", "-".join(map(str, words)))


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run queues of real jobs under sharing rules.")
    parser.add_argument("--nodes", type=int, default=8, help="of one core each (8)")
    parser.add_argument("--largest", type=int, help="nodes of the largest jobs (all)")
    parser.add_argument("--speed", type=float, help="what the core of a node is worth, in cores (see above)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that each job takes alone, at least [s] (20)")
    parser.add_argument("--loads", type=loads, default="15", help="numbers of jobs, such as 8,idle:8,io:8 (15)")
    parser.add_argument("--seeds", type=int, default=2, help="how many queues of each load (2)")
    parser.add_argument("--rules", default="space,static,asax,scavenger", help="(space,static,asax,scavenger)")
    parser.add_argument("--period", type=float, default=PERIOD_S, help=f"how often rules are asked [s] ({PERIOD_S:g})")
    parser.add_argument(
        "--bound", type=bound_of, default=math.inf, help="on how much slower jobs may get, such as 10%% (none)"
    )
    both = argparse.BooleanOptionalAction
    parser.add_argument("--repeat-space", action=both, default=True, help="one of each load once more: the noise")
    parser.add_argument("--jobs", type=Path, help="queue file that has a job of each kind (is made)")
    parser.add_argument("--within", type=duration, default="4h", help="queues that would take longer are left out (4h)")
    parser.add_argument("--work", type=Path, help="folder for queues, logs and results, new (one that is removed)")
    parser.add_argument("--out", type=Path, help="JSON file for what is found")
    parser.add_argument("--cpu-cost", action="store_true", help="measure what monitoring costs, and nothing else")
    parser.add_argument("--stops", type=int, help="measure how fast so many guests are stopped, and nothing else")
    options = parser.parse_args()
    counts = options.nodes, options.largest or options.nodes, options.seeds, options.seconds, options.period
    counts += (1 if options.stops is None else options.stops,)
    if min(counts) <= 0 or not 0 < (options.speed or 1) <= 1:
        parser.error(
            "positive numbers of nodes, seeds, seconds and stops expected, a positive period, and a speed in (0, 1]"
        )
    return options


def main() -> int:
    options = parsed()
    for number in (signal.SIGINT, signal.SIGTERM):  # what was started is ended then, too
        signal.signal(number, signal.default_int_handler)
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    found: Row = surroundings() | {"options": vars(options)}
    found["speed"] = options.speed or min(1.0, (1 - HELD_BACK) * found["machine"]["cores"] / options.nodes)
    if options.stops is not None:
        found["stops"], rows = stop_times(options.stops, options.nodes, found["speed"], options.within)
        code = 0
        show(f"Guests that are stopped, on {options.nodes} nodes, each worth {found['speed']:.3g} of a core", rows)
    elif options.cpu_cost:
        found["cpu_cost"], code = cpu_cost(), 0
        show(f"Monitoring: shares of a core used by an agent, for {LOOKS_S:g} s each", found["cpu_cost"])
    else:
        code = queues(options, found)
    save(options, found)
    return code


def queues(options: argparse.Namespace, found: Row) -> int:
    """Run them, as far as we are let."""
    began, code = time.monotonic(), 0
    work = private_directory((options.work or Path(tempfile.mkdtemp(prefix="asa-bench-"))).absolute())
    experiment = Experiment(options.nodes, found["speed"], work, began + options.within, options.period, options.bound)
    found["rows"] = []

    def keep(row: Row) -> None:
        found["alone"] = {slug(*kind): time_s for kind, time_s in experiment.alone.items()}
        found["rows"].append(row)
        save(options, found)
        words = [f"{name} {value:.3g}" for name, value in row.items() if isinstance(value, float)]
        tell(f"{row['rule']}, load {row['load']}, seed {row['seed']}: {', '.join(words)}")

    try:
        run_all(experiment, options, keep)
    except KeyboardInterrupt:
        tell("interrupted")
        code = 130
    except (AsaError, subprocess.SubprocessError) as error:
        tell(f"given up: {error}")
        code = 1
    finally:
        if options.work is None and not any(row["unfinished"] for row in found["rows"]):
            shutil.rmtree(work, ignore_errors=True)
        else:
            tell(f"queues, logs and results of runs are in {work}")
    code = code or int(not found["rows"] or any(row["unfinished"] for row in found["rows"]))
    found["summary"] = summary(found["rows"])
    if found["rows"]:
        plain = [{name: value for name, value in row.items() if name not in DETAILS} for row in found["rows"]]
        show(f"Queues on {options.nodes} nodes, each worth {experiment.speed:.3g} of a core", plain)
        cells = [{name: cell(name, each) for name, each in row.items()} for row in found["summary"]]
        show("Means over seeds (against space ± noise; * where that counts)", cells)
        show("All queues, against space in the same queue [95 % over queues]", overall(found["rows"]))
        show("Applications (the paper's Table 2), against space", applications(found["rows"]))
        show("Slowdowns of hosts; under space, of all jobs, which had no guests", hosts(found["rows"]))
        show("The paper, against its Slurm", published())
    return code


def save(options: argparse.Namespace, found: Row) -> None:
    """Write what was found so far; what is not known is null."""
    if options.out is not None:
        plain = json.loads(json.dumps(found, default=str), parse_constant=lambda _: None)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
