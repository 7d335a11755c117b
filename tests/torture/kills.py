"""Kill -9 of a co-scheduler, again and again, while a real queue runs on real agents: ``make torture-real``, or::

    python -m tests.torture.kills --seed 0 --kills 50       # or --where pool, --where local

A trial is a queue, drawn from its seed, in a pool of two agents, each on a processor of its own, or on agents that the
co-scheduler starts itself. The co-scheduler is killed at a drawn time or right after (or in the middle of) an entry of
its log, and started again with ``--resume``; at some of these moments an agent or the master of the pool is killed,
too. An observer reads what the kernel says of the jobs' control groups, of version 1 or 2, and nothing of the
product: limits, weights, CPU time. Then limits of hosts were gone in time, hosts kept their cores, each job ended once
with its right result, and no process and no control group is left.

What a host loses is counted in CPU time: what its guests have got on its processors, against what it has got itself.
So it does not matter who else works on the machine; but a kernel that is a process of it takes for CPU time of its own
what the machine gives to others, and there this is not looked at.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from asa.log import proc
from tests.torture.real import MARK, ROOT, living

LEASE_S = 5.0
"""How long after a kill a host may be slower than its bound allows, or have less than its cores [s]."""
LATE_S = 1.0
"""What is added to that: an agent changes limits within tenths of a second, on a machine that others use, too [s]."""
PATIENCE_S, START_S = 900.0, 60.0
SAMPLE_S = 0.1
STEPS = 200_000
"""Of a unit of a job's work: some 30 ms."""
NODES = min(2, len(os.sched_getaffinity(0)))
"""Each has a processor of its own."""
_A, _C, _M = 6364136223846793005, 1442695040888963407, 1 << 64

# ---------------------------------------------------------------- what jobs run

WORKER = f"""
import os, signal, sys, time
name, units, idle, mib = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
rank, kept = os.environ.get("ASA_RANK", "0"), os.environ.get("ASA_CHECKPOINT")
x, done, blobs, saves = len(name) + int(rank), 0, [], []
trace = os.open(sys.argv[5] + "/" + name + "." + rank, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def say(*words): os.write(trace, (" ".join(map(str, words)) + "\\n").encode())
if kept:
    kept += "/state." + rank
    signal.signal(signal.SIGUSR1, lambda *_: saves.append(1))
    if os.path.exists(kept): done, x = map(int, open(kept).read().split())
say("began", time.time(), os.getpid(), done)
while done < units:
    began = time.process_time()
    for _ in range({STEPS}): x = (x * {_A} + {_C}) % {_M}
    done += 1
    time.sleep(idle * (time.process_time() - began))
    if len(blobs) < mib: blobs += [bytearray(b"x" * (1 << 20)) for _ in range(8)]
    if (path := os.environ.get("ASA_PROGRESS")):
        with open(path + ".new", "w") as file: file.write("%d %d" % (done, units))
        os.replace(path + ".new", path)
    if saves:
        with open(kept + ".new", "w") as file: file.write("%d %d" % (done, x))
        os.replace(kept + ".new", kept)
        say("saved", time.time(), os.getpid(), done)
        sys.exit(0)
say("ended", time.time(), os.getpid(), x)
"""


def result(name: str, rank: int, units: int) -> int:
    """What a rank's work comes to, by squaring: the affine map of a step, so often."""
    a, c, left = _A, _C, units * STEPS
    x = len(name) + rank
    while left:
        if left & 1:
            x = (a * x + c) % _M
        a, c, left = a * a % _M, (a * c + c) % _M, left >> 1
    return x


class DrawnJob(NamedTuple):
    """A job: its cores, its work in units, how long it sleeps for each second of CPU, and its memory [MiB]."""

    name: str
    cores: int
    units: int
    idle: float = 0.0
    mib: int = 0
    saves: bool = False

    def toml(self, folder: Path) -> str:
        words = [sys.executable, "-I", "-S", folder / "worker.py", self.name, self.units, self.idle, self.mib]
        line = shlex.join(map(str, [*words, folder / "traces"]))
        text = f'[[jobs]]\nname = "{self.name}"\ncores = {self.cores}\nwalltime = "20m"\ncommand = "{line}"\n'
        return text + ('checkpoint = true\nsignal_before = "10s"\n' if self.saves else "")


# ---------------------------------------------------------------- what is drawn


class Kill(NamedTuple):
    """When a co-scheduler is killed: so long after its start [s]; or, if it comes sooner, `delay` [s] after its
    `count`-th entry of a kind in the log, -1 in the middle of that entry's line. It is resumed after `pause` [s].

    `other`: what is killed at the same time, and started again: an agent, the master, or nothing.
    """

    at: float
    entry: str = ""
    count: int = 1
    delay: float = 0.0
    pause: float = 0.0
    other: str = ""

    def __str__(self) -> str:
        when = f"at {self.at:.1f} s"
        if self.entry:
            delay = "in the middle of" if self.delay < 0 else f"{1000 * self.delay:.0f} ms after"
            when = f"{delay} {self.entry} {self.count}"
        return when + (f", with {self.other}" if self.other else "")


@dataclass(frozen=True)
class KillTrial:
    """What a seed stands for."""

    seed: int
    kind: str
    jobs: tuple[DrawnJob, ...]
    sharing: str
    bound: float | None
    kills: tuple[Kill, ...]

    @property
    def on(self) -> str:
        return "local" if self.kind == "local" else "pool"


KINDS = ("quotas", "memory", "local", "bound")
"""Of trials. The last is drawn only by its name: on a busy machine a host with a bound takes guests after many minutes,
for its progress is uneven."""
_ENTRIES = {
    "quotas": ("Start", "StartGuest", "started", "queued", "node", "begun", "taken over", "SetShare", "ended", "rank"),
    "memory": ("StartGuest", "started", "squeezed", "asked", "requeued", "Evict", "taken over"),
    "bound": ("StartGuest", "SetShare", "taken over", "begun"),
    "local": ("Start", "StartGuest", "started", "begun", "rank", "ended"),
}


def draw(seed: int, where: str = "both", kills: int = 8, kind: str = "") -> KillTrial:
    """The trial of a seed."""
    rng = random.Random(f"kills {seed}")
    kinds = [each for each in KINDS[:-1] if where == "both" or (each == "local") is (where == "local")]
    kind = kind or kinds[seed % len(kinds)]
    count = min(kills, 5 if kind == "local" else 8)
    sharing = {
        "quotas": "static:share=0.5,hard=true",
        "memory": "static:share=0.5",
        "bound": "scavenger:min_rate=0.01,worth=1000,share=0.3",
        "local": "static:share=0.5,hard=true",
    }[kind]
    work = int({"local": 1.5, "bound": 6}.get(kind, 3) * count * 30)
    jobs: tuple[DrawnJob, ...]
    if kind == "memory":
        jobs = (DrawnJob("host", 2, work // 2), DrawnJob("eats", 1, work // 4, 0.0, 184, saves=True))
        jobs += (DrawnJob("more", 1, work // 4, 0.0, 184, saves=True),)
    elif kind == "bound":
        jobs = (DrawnJob("host", 2, 2 * work), DrawnJob("guest", 1, work), DrawnJob("tail", 1, work // 4))
    else:
        jobs = (
            DrawnJob("host", 2, work // 3, rng.choice([0.0, 0.5])),
            DrawnJob("guest", rng.choice([1, 2]), work // 4, rng.choice([0.0, 1.0])),
            DrawnJob("short", 1, rng.randint(20, 200)),
            DrawnJob("wide", 2, work // 4),
            DrawnJob("last", 1, work // 5),
        )
    jobs = tuple(job._replace(cores=min(job.cores, NODES)) for job in jobs)
    struck = [_draw_kill(rng, kind) for _ in range(count)]
    if (first := {"memory": "squeezed", "bound": "StartGuest"}.get(kind)) is not None:  # which takes a while to come
        struck[0] = Kill(150.0, first, delay=rng.choice([0.0, 0.3, 3.0]), pause=9.0)
    return KillTrial(seed, kind, jobs, sharing, 0.1 if kind == "bound" else None, tuple(struck))


def _draw_kill(rng: random.Random, kind: str) -> Kill:
    late = 8.0
    kill = Kill(
        rng.choice([rng.uniform(0.5, 4.0), rng.uniform(4.0, late)]), pause=rng.choice([0.0, 1.0, 3.0, 7.0, 9.0])
    )
    if rng.random() < 0.65:
        delay = rng.choice([-1.0, 0.0, 0.0, 0.003, 0.03, 0.3, 1.0])
        kill = kill._replace(at=late + 5.0, entry=rng.choice(_ENTRIES[kind]), count=rng.choice([1, 1, 2]), delay=delay)
    if kind != "local" and rng.random() < 0.25:
        kill = kill._replace(other=rng.choice([*(f"node{node}" for node in range(NODES)), "master"]))
    return kill


# ---------------------------------------------------------------- the one that is killed


def victim(kill: Kill, words: Sequence[str]) -> int:
    """Run the program, and end this process by SIGKILL as drawn: `Kill.entry` must be given."""
    from asa.cli.main import main as asa
    from coscheduler.queuefile import SharedQueueLog

    write, seen = SharedQueueLog.write, Counter[str]()

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def watched(log: SharedQueueLog, entry: Any) -> None:
        kind = entry.get("decision") or entry.get("event")
        seen[kind] += 1
        if kind != kill.entry or seen[kind] != kill.count:
            write(log, entry)
            return
        if kill.delay < 0:
            line = json.dumps(entry).encode()
            log.file.write(line[: len(line) // 2])
            die()
        write(log, entry)
        if kill.delay == 0:
            die()
        threading.Timer(kill.delay, die).start()

    with patch.object(SharedQueueLog, "write", watched):
        return asa(list(words))


# ---------------------------------------------------------------- the observer


class Seen(NamedTuple):
    """A job's control group at one time.

    `cores`: what it may use at most, infinite for no limit; `weight` as the kernel has it; `cpu_s`: what it has used;
    `soft`: how much memory it may have before it is held up [bytes]; `frozen`: whether it is; `done`: units of work.
    """

    cores: float
    weight: int
    cpu_s: float
    soft: float
    frozen: bool
    done: int = 0


class Container(NamedTuple):
    """Whose control group: the job, its run (a directory), its rank, whether it has started as a guest, and on which
    processors it is."""

    job: str
    run: str
    rank: int
    guest: bool
    processors: frozenset[int]

    def __str__(self) -> str:
        return f"{'guest' if self.guest else 'host'} {self.job}.{Path(self.run).name}.{self.rank}"


Sample = tuple[float, dict[Container, Seen]]
_CONTROLLERS = ("cpu", "cpuacct", "memory", "freezer")


class Observer(threading.Thread):
    """Looks at the control groups of a trial all the time, by the kernel's files alone.

    `mounted` is where control groups are, `own` says as ``/proc/self/cgroup`` in which this process is. The version is
    the one that has the CPU.
    """

    def __init__(self, folder: Path, mounted: Path = Path("/sys/fs/cgroup"), own: str = "") -> None:
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self.over = threading.Event()
        self._mark = f"{MARK}={folder}\0".encode()
        self._known: dict[Path, Container | None] = {}
        lines = [line.split(":", 2) for line in (own or Path("/proc/self/cgroup").read_text()).splitlines()]
        ours = {name: path for _, names, path in lines for name in names.split(",")}
        self.version = 1 if "cpu" in ours else 2
        if self.version == 1:
            self.bases = {name: Path(f"{mounted}/{name}{ours.get(name, '/')}") for name in _CONTROLLERS}
        else:  # an agent has moved what was in this group to one below it
            self.bases = dict.fromkeys(_CONTROLLERS, Path(f"{mounted}{ours['']}".removesuffix("/asa.self")))

    @property
    def counts(self) -> bool:
        """Whether CPU time is what the kernel says."""
        return "User Mode Linux" not in Path("/proc/cpuinfo").read_text()

    @property
    def sees(self) -> bool:
        """Whether there are control groups with limits here."""
        controllers = self.bases["cpu"] / "cgroup.controllers"
        with suppress(OSError):
            return self.version == 1 or "cpu" in controllers.read_text().split()
        return False

    def run(self) -> None:
        while not self.over.wait(SAMPLE_S):
            self.samples.append((time.time(), dict(self.look())))

    def groups(self) -> list[Path]:
        """Groups that agents below ours have made, by their path below that of the controller."""
        base = self.bases["cpu"]
        found = (each for top in base.glob("asa*") for each in os.walk(top))  # which passes over what has just gone
        return [Path(path).relative_to(base) for path, inside, _ in found if not inside]

    def left(self) -> list[Path]:
        """Groups of the trial's jobs that are still there."""
        known = (self.bases["cpu"] / path for path, container in self._known.items() if container is not None)
        return [path for path in known if path.exists()]

    def look(self) -> Iterator[tuple[Container, Seen]]:
        for path in self.groups():
            with suppress(OSError, ValueError):  # it has just ended
                if (container := self._whose(path)) is not None:
                    done = 0
                    with suppress(OSError, ValueError, IndexError):  # it has not said it yet, or is about to
                        done = int(Path(container.run, f"progress.{container.rank}").read_text().split()[0])
                    yield container, self.seen(path)._replace(done=done)

    def _whose(self, path: Path) -> Container | None:
        if self._known.get(path) is None:
            for pid in (self.bases["cpu"] / path / "cgroup.procs").read_text().split():
                found = proc.environment(int(pid)) or b""
                if self._mark in found and b"ASA_JOB_DIRECTORY=" in found:
                    own = dict(each.split("=", 1) for each in found.decode().split("\0") if "=" in each)
                    there = frozenset(os.sched_getaffinity(int(pid)))
                    self._known[path] = Container(
                        own["ASA_JOB"], own["ASA_JOB_DIRECTORY"], int(own["ASA_RANK"]), own["ASA_GUEST"] == "1", there
                    )
        return self._known.get(path)

    def seen(self, path: Path) -> Seen:
        def read(controller: str, file: str, missing: str = "") -> str:
            try:
                return (self.bases[controller] / path / file).read_text().replace("max", "inf")
            except OSError:
                if missing:
                    return missing
                raise

        if self.version == 2:
            most, period = map(float, read("cpu", "cpu.max").split())
            weight, used_s = read("cpu", "cpu.weight"), int(read("cpu", "cpu.stat").split()[1]) / 1e6
            soft, frozen = float(read("memory", "memory.high", "inf")), read("freezer", "cgroup.freeze", "0") == "1\n"
        else:
            most, period = (float(read("cpu", f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
            weight, used_s = read("cpu", "cpu.shares"), int(read("cpuacct", "cpuacct.usage")) / 1e9
            soft = float(read("memory", "memory.soft_limit_in_bytes", "inf"))
            frozen = read("freezer", "freezer.state", "THAWED").strip() != "THAWED"
        return Seen(
            math.inf if most < 0 else most / period, int(weight), used_s, math.inf if soft > 1e15 else soft, frozen
        )


# ---------------------------------------------------------------- a trial while it goes on


class Struck(NamedTuple):
    """A kill that has happened, at this time since the epoch.

    `until`: then the next co-scheduler looks after jobs; `back`: when an agent that was killed as well is there again.
    """

    at: float
    kill: Kill
    until: float
    back: float = 0.0


@dataclass
class Ongoing:
    """A trial that goes on: where it is, its processes, and what was done to it."""

    trial: KillTrial
    folder: Path
    observer: Observer
    others: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    struck: list[Struck] = field(default_factory=list)
    starts: int = 0
    worst: Worst = field(default_factory=lambda: Worst())

    @property
    def environment(self) -> dict[str, str]:
        own = {"ASA_STATE_DIR": str(self.folder / "state"), MARK: str(self.folder), "PYTHONPATH": str(ROOT)}
        return os.environ | own

    def program(self, name: str, *words: object, processor: int | None = None) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", *map(str, words)], cwd=self.folder, env=self.environment, stdout=out,
                stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        if processor is not None:
            os.sched_setaffinity(process.pid, {processor})
        return process

    def start(self, name: str) -> bool:
        """The master of the pool, or an agent of it, for the first time or again; whether it has started."""
        out, says = self.folder / f"{name}.out", "master of" if name == "master" else " offers "
        before = out.read_text().count(says) if out.exists() else 0
        words: list[object] = ["-m", "asa", "master" if name == "master" else "agent", "--directory", "pool"]
        words += ["--host", "127.0.0.1"]
        processor = None
        if name != "master":
            allowed = sorted(os.sched_getaffinity(0))
            processor = allowed[int(name.removeprefix("node")) % len(allowed)]
            words += ["--cores", 1, "--name", name, "--work", self.folder / name, "--memory", 200 << 20]
        self.others[name] = self.program(name, *words, processor=processor)
        return wait_for(lambda: out.read_text().count(says) > before, START_S)

    def cosched(self, kill: Kill | None) -> subprocess.Popen[bytes]:
        where = f"pool:{self.folder}/pool" if self.trial.on == "pool" else "local"
        words = ["cosched", "run", "queue.toml", "--on", where, "--work", "work", "--sharing", self.trial.sharing]
        words += ["--nodes", str(NODES)] if where == "local" else []
        words += ["--bound", f"{self.trial.bound:.0%}"] if self.trial.bound else []
        words += ["--resume"] if self.log.exists() else []
        self.starts += 1
        if kill is not None and kill.entry:
            return self.program("cosched", "-m", "tests.torture.kills", "--victim", json.dumps(kill), "--", *words)
        return self.program("cosched", "-m", "asa", *words)

    @property
    def log(self) -> Path:
        return self.folder / "work" / "log.jsonl"

    def entries(self) -> list[dict[str, Any]]:
        """The log, but for a line that was not written to its end."""
        lines = self.log.read_bytes().split(b"\n") if self.log.exists() else []
        found = []
        for line in lines:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def processes(self) -> dict[int, str]:
        """Those of the trial that live, with their command lines."""
        return {pid: line for pid, (_, line) in living(self.folder).items()}


def go_through(now: Ongoing) -> list[str]:
    """A trial from its start to its end: what must hold and does not."""
    trial, problems = now.trial, list[str]()
    for name in ("traces", "state"):
        (now.folder / name).mkdir(mode=0o700)
    (now.folder / "worker.py").write_text(WORKER)
    (now.folder / "queue.toml").write_text(f"cores = {NODES}\n" + "".join(job.toml(now.folder) for job in trial.jobs))
    now.observer.start()
    try:
        if trial.on == "pool":
            for name in ("master", *(f"node{node}" for node in range(NODES))):
                if not now.start(name):
                    return [f"{name} has not started within {START_S:g} s"]
        problems += _until_done(now)
        problems += [] if now.observer.is_alive() else ["the observer has failed"]
        problems += [] if problems else _left(now)
        problems += [*harmed(now, now.worst), *_twice(now), *_ended(now)] if not problems else []
    finally:
        now.observer.over.set()
        now.observer.join()
        for pid in now.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in now.others.values():
            process.wait()
    return problems


def wait_for(holds: Callable[[], object], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _until_done(now: Ongoing) -> Iterator[str]:
    for kill in [*now.trial.kills, None]:
        process, began = now.cosched(kill), time.monotonic()
        until = PATIENCE_S if kill is None else kill.at
        with suppress(subprocess.TimeoutExpired):
            process.wait(until)
        if process.poll() is None and kill is None:
            yield f"the queue was not done {until:g} s after the last kill"
        if process.poll() is None:
            process.kill()
        code, at = process.wait(), time.time()
        if code not in (0, -signal.SIGKILL):
            yield f"the co-scheduler ended with {code}, {time.monotonic() - began:.1f} s after start {now.starts}"
            return
        if kill is None or code == 0:
            return
        if kill.other:
            now.others[kill.other].kill()
            now.others[kill.other].wait()
        now.struck.append(Struck(at, kill, at))
        time.sleep(kill.pause / 2)
        if kill.other and not now.start(kill.other):
            yield f"{kill.other} has not started again within {START_S:g} s"
            return
        if kill.other.startswith("node"):  # leases are the agent's
            now.struck[-1] = now.struck[-1]._replace(back=time.time())
        time.sleep(kill.pause / 2)


# ---------------------------------------------------------------- what must hold


def _left(now: Ongoing) -> Iterator[str]:
    """Processes and control groups that are there when all is over."""
    pool = [process.pid for process in now.others.values()]
    if not wait_for(lambda: not dict(now.observer.look()), 20.0):
        yield f"jobs are left: {dict(now.observer.look())}"
    for process in now.others.values():
        process.terminate()
    for name, process in now.others.items():
        with suppress(subprocess.TimeoutExpired):
            process.wait(20.0)
        if process.poll() is None:
            yield f"{name} does not end"
    if not wait_for(lambda: not now.processes(), 20.0):
        yield f"processes are left, other than {pool}: {now.processes()}"
    if not wait_for(lambda: not now.observer.left(), 5.0):
        yield f"control groups are left: {now.observer.left()}"
    status = [sys.executable, "-P", "-m", "asa", "cosched", "status", "--work", "work"]
    said = subprocess.run(status, cwd=now.folder, env=now.environment, capture_output=True, text=True, check=False)
    if "it is over" not in said.stdout:
        yield f"asa cosched status says: {said.stdout}{said.stderr}"


def looked_after(now: Ongoing) -> list[Struck]:
    """The kills, each with when the next co-scheduler took over [s since the epoch], by the log."""
    entries = now.entries()
    begun = [entry["time"] for entry in entries if entry.get("event") == "begun"]
    end = time.time()
    return [each._replace(until=min((at for at in begun if at > each.at), default=end)) for each in now.struck]


@dataclass
class Worst:
    """The worst that was seen after a kill: how long until hosts had all of their cores, and were as fast as their
    bounds allow [s]; and by how much guests have slowed down a host later, as a share of its time alone."""

    throttled_s: float = 0.0
    slower_s: float = 0.0
    slowdown: float = 0.0
    held: int = 0
    """Kills while a host had less than its cores, or a guest less than its memory."""
    looks: int = 0
    """How often a control group was looked at between a kill and the next co-scheduler."""


def harmed(now: Ongoing, worst: Worst) -> Iterator[str]:
    """Hosts that had less than their cores, or were slowed down too much, for too long after a kill."""
    bound, idle = now.trial.bound or 0.1, {job.name: job.idle for job in now.trial.jobs}
    for struck in looked_after(now):
        after = [sample for sample in now.observer.samples if struck.at <= sample[0] < struck.until]
        before = [seen for at, seen in now.observer.samples if at < struck.at][-1:]
        worst.held += any(
            its.soft < math.inf or (its.cores < 1 and not container.guest)
            for seen in before
            for container, its in seen.items()
        )
        until = max(struck.at + LEASE_S, struck.back) + LATE_S
        for at, seen in after:
            for container, its in seen.items():
                worst.looks += 1
                if its.frozen or its.soft < math.inf or (its.cores < 1.0 and not container.guest):
                    worst.throttled_s = max(worst.throttled_s, at - struck.at)
                    if at > until:
                        yield f"{at - struck.at:.1f} s after the kill {struck.kill} {container} has {its}"
                        break
        for before, later in windows(after, 1.0) if now.observer.counts else ():
            for host, slow in slowdowns(before, later, idle).items():
                if before[0] > until:
                    worst.slowdown = max(worst.slowdown, slow)
                if slow > bound:
                    worst.slower_s = max(worst.slower_s, before[0] - struck.at)
                    if before[0] > until:
                        yield f"{later[0] - struck.at:.1f} s after the kill {struck.kill} {host} is {slow:.0%} slower"


def windows(samples: Sequence[Sample], width_s: float) -> Iterator[tuple[Sample, Sample]]:
    """Pairs of samples that are about so far apart [s], each beginning where the one before has ended."""
    first = samples[0] if samples else None
    for later in samples:
        if first is not None and later[0] >= first[0] + width_s:
            yield first, later
            first = later


def slowdowns(before: Sample, later: Sample, idle: Mapping[str, float]) -> dict[Container, float]:
    """By how much hosts were slowed down by who shares their processors.

    What a host has lost is the time that it neither ran nor slept, at most what the others have run meanwhile.
    """
    over_s = later[0] - before[0]
    used = {key: its.cpu_s - before[1][key].cpu_s for key, its in later[1].items() if key in before[1]}
    found = {}
    for host in (each for each in used if not each.guest):
        others_s = sum(used[each] for each in used if each.guest and each.processors & host.processors)
        lost_s = max(0.0, min(others_s, over_s - used[host] * (1 + idle[host.job])))
        found[host] = lost_s / max(over_s - lost_s, 0.01)
    return found


def _twice(now: Ongoing) -> Iterator[str]:
    """Jobs of which two runs were there at once."""
    since: dict[str, float] = {}
    for at, seen in now.observer.samples:
        runs = defaultdict[str, set[str]](set)
        for container in seen:
            runs[container.job].add(container.run)
        double = {job for job, numbers in runs.items() if len(numbers) > 1}
        since = {job: since.get(job, at) for job in double}
        for job, began in since.items():
            if at > began + LEASE_S:
                yield f"runs {sorted(runs[job])} of {job} were there at once for {at - began:.1f} s"
                return


def _ended(now: Ongoing) -> Iterator[str]:
    """Jobs that have not ended just once, or have another result than they should."""
    entries = now.entries()
    for job in now.trial.jobs:
        ends = [entry for entry in entries if entry.get("event") == "ended" and entry["job"] == job.name]
        if [entry["problem"] for entry in ends] != [""]:
            yield f"{job.name} has ended {len(ends)} times: {[entry['problem'] for entry in ends]}"
        for rank in range(job.cores):
            path = now.folder / "traces" / f"{job.name}.{rank}"
            lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
            results = [int(line[3]) for line in lines if line[0] == "ended"]
            if not results or set(results) != {result(job.name, rank, job.units)}:
                yield f"rank {rank} of {job.name} has the results {results}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Go through trials, a line for each; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.kills", description="kill -9 of co-schedulers")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first trial; later ones follow (0)")
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="begin no trial after so many (50)")
    parser.add_argument("--each", type=int, default=8, metavar="N", help="kills of a trial at most (8)")
    parser.add_argument("--where", choices=("both", "pool", "local"), default="both")
    parser.add_argument("--kind", choices=KINDS, default="")
    parser.add_argument("--victim", metavar="KILL", help=argparse.SUPPRESS)
    options, words = parser.parse_known_args(arguments)
    if options.victim:
        return victim(Kill(*json.loads(options.victim)), words[1:])
    base, seed, kills, failed = Path(tempfile.mkdtemp(prefix="asa-kills-")), options.seed, 0, list[int]()
    while kills < options.kills:
        trial = draw(seed, options.where, min(options.each, options.kills - kills), options.kind)
        folder, began = base / f"seed-{seed}", time.monotonic()
        folder.mkdir()
        now = Ongoing(trial, folder, Observer(folder))
        problems = go_through(now)
        kills += len(now.struck)
        for each in looked_after(now):
            print(f"  killed {each.kill}, resumed after {each.until - each.at:.1f} s")
        print(
            f"seed {seed}: {trial.kind}, {len(now.struck)} kills, {time.monotonic() - began:.0f} s, {now.worst}: "
            f"{'FAILED' if problems else 'ok'}", *problems, sep="\n    ", flush=True,
        )  # fmt: skip
        if problems:
            failed.append(seed)
            print(f"  kept in {folder}; once more (it may pass): python -m tests.torture.kills --seed {seed} --kills 1")
        else:
            shutil.rmtree(folder)
        seed += 1
    print(f"{kills} kills in {seed - options.seed} trials: {len(failed)} failed {failed or ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
