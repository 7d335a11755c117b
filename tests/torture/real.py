"""What `asa torture` does in virtual time, on real processes and a real Slurm: ``make torture-real``, or::

    python -m tests.torture.real --seed 0 --time 1h       # or --trials 20 --where local

A trial is drawn from its seed: one to three runs of small workflows at once, on this machine or on a test cluster of
its own, and two to ten faults. What has been killed is resumed until it is done. Then results are right, no task whose
result was reported began again, no job and no process is left, and no file has the secret. A trial that fails keeps its
directory. The same seed draws the same trial, but real time has its own mind: it may pass when it is repeated.

It takes root for tmpfs (full disks) and for the cluster; without, it says what is left out.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asa
from asa.core.command import duration, positive
from asa.core.errors import AsaError, StateError
from asa.core.event import ResultsLost, TaskDone
from asa.log import proc
from asa.log.events import EventLog
from asa.log.rundir import list_runs
from asa.testing.runlogs import contradictions
from asa.workflows.run import open_run
from coscheduler.torture import case as cases
from coscheduler.torture.case import SECRET, VARIABLE, Fault, StageShape, evaluate
from tests.cluster import daemons, faults, host
from tests.cluster.cluster import Cluster, running
from tests.cluster.processes import wait_until

ASA = Path(sys.executable).with_name("asa")
ROOT = Path(__file__).parent.parent.parent
MARK = "TORTURE_TRIAL"
"""Variable that every process of a trial inherits."""
DISK_MIB = 64
"""What a state directory may hold in trials whose disk gets full."""
PATIENCE_S = 900.0
"""How long after the last fault all runs must have ended: long, for a machine that is busy with other things."""
GONE_S = 120.0
"""How long after the end jobs and processes may take to be gone, besides the grace of orphans."""
RESUMES_MOST = 25

# ---------------------------------------------------------------- the workflow: what drivers and tasks run


def _work(folder: str, name: str, key: int, seconds: float, licensed: bool) -> None:
    """Leave a line, take some time, leave another."""
    if licensed and len(os.environ["TORTURE_LICENSE"]) != 28:
        raise ValueError("this is not the license")
    with open(f"{folder}/{name}.{key}", "a") as file:
        print("started", time.time(), file=file, flush=True)
        time.sleep(seconds)
        print("ended", time.time(), file=file, flush=True)


def traced_gather(count: int, *sources: Sequence[int], **about: Any) -> list[int]:
    """`coscheduler.torture.case.gather`, which leaves a trace."""
    _work(key=0, **about)
    return [sum(map(sum, sources)) % 1_000_003 + number for number in range(count)]


def traced_each(x: int, *, extra: Sequence[int] = (), **about: Any) -> int:
    """`coscheduler.torture.case.each`, which leaves a trace: its arguments are different for each task."""
    _work(key=x, **about)
    return (3 * x + 1 + sum(extra)) % 1_000_003


def workflow(seed: int = 0, run: int = 0, folder: str = ".", where: str = "both") -> list[Any]:
    """One of the trial's workflows; traces go to `folder`."""
    trial, nodes = draw(seed, where), list[Any]()
    for number, step in enumerate(trial.workflows[run]):
        licensed = number % 3 == 0 and trial.executors[run] != "dask"  # which keeps no secrets
        about = {"name": f"{run}-{number}", "folder": folder, "seconds": trial.seconds[run][number]}
        secrets = [VARIABLE] * licensed
        stage = asa.stage(cores=step.cores, task_cores=step.task_cores, walltime=step.walltime_s, secrets=secrets)
        sources = [nodes[source] for source in step.sources]
        if step.mapped:
            mapped = stage(traced_each).options(name=f"each{number}")
            first = sources[0] if sources else range(step.count)
            extra = {"extra": sources[1]} if sources[1:] else {}
            nodes.append(mapped.map(first, **extra, **about, licensed=licensed))
            nodes[-1].after(*sources[2:])
        else:
            gather = stage(traced_gather).options(name=f"gather{number}")
            nodes.append(gather(step.count, *sources, **about, licensed=licensed))
    return nodes


# ---------------------------------------------------------------- what is drawn


@dataclass(frozen=True)
class Trial:
    """What a seed stands for."""

    seed: int
    slurm: bool
    workflows: tuple[tuple[StageShape, ...], ...]
    seconds: tuple[tuple[float, ...], ...]
    strategies: tuple[str, ...]
    executors: tuple[str, ...]
    begins: tuple[float, ...]
    grace_s: int
    faults: tuple[Fault, ...]


@functools.cache
def draw(seed: int, where: str = "both") -> Trial:
    """The trial of a seed, on ``local``, ``slurm``, or one of ``both``: the workflows of `asa torture`, cut short."""
    rng, drawn = random.Random(f"real {seed}"), cases.draw(seed)
    slurm = rng.random() < 0.65 if where == "both" else where == "slurm"
    workflows = tuple(tuple(replace(step, walltime_s=1800.0) for step in steps[:6]) for steps in drawn.workflows)
    struck = [
        Fault(rng.choice(ON_SLURM if slurm else FAULTS), rng.uniform(0.5, 20.0), rng.randrange(1000), rng.random())
        for _ in range(rng.randint(2, 10))
    ]
    return Trial(
        seed=seed,
        slurm=slurm,
        workflows=workflows,
        seconds=tuple(tuple(rng.choice([0.0, rng.uniform(0.5, 6.0)]) for _ in steps) for steps in workflows),
        strategies=drawn.strategies,
        executors=tuple(rng.choices(["mesos", "local", "dask"], [5, 4, 1])[0] for _ in workflows),
        begins=tuple(rng.choice([0.0, rng.uniform(0.0, 10.0)]) for _ in workflows),
        grace_s=rng.choice([5, 15, 40]),
        faults=tuple(sorted(struck, key=lambda fault: fault.at)),
    )


# ---------------------------------------------------------------- a trial while it goes on


@dataclass
class DrivenRun:
    """A run, and the process that drives it now."""

    number: int
    due: float
    driver: subprocess.Popen[bytes] | None = None
    drivers: int = 0
    done: bool = False


@dataclass
class TrialState:
    """A trial that goes on: where it is, its runs, what has to be undone when, and how often which fault came."""

    trial: Trial
    folder: Path
    state: Path
    traces: Path
    where: str
    cluster: Cluster | None
    runs: list[DrivenRun] = field(default_factory=list)
    undo: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    seen: dict[int, str] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        heapq.heappush(self.undo, (time.monotonic() + seconds, len(self.undo) + time.monotonic_ns(), what))

    def name(self, run: DrivenRun) -> str | None:
        """The run's, once its directory is there."""
        with suppress(OSError):
            found = [each.name for each in list_runs(self.state) if each.name.startswith(f"run{run.number}-")]
            return found[-1] if found else None
        return None

    def environment(self, run: DrivenRun | None = None) -> dict[str, str]:
        own = {"ASA_STATE_DIR": str(self.state), MARK: str(self.folder), "PYTHONPATH": str(ROOT)}
        if run is not None and self.trial.executors[run.number] != "dask":  # which keeps no secrets: nothing hides it
            own[VARIABLE] = SECRET
        if self.cluster is not None:
            own["SLURM_CONF"] = str(self.cluster.config.slurm_conf)
        return os.environ | own

    def asa(self, *words: str, run: DrivenRun | None = None) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        return subprocess.run(
            [str(ASA), *words], cwd=self.folder, env=self.environment(run), capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def start(self, run: DrivenRun) -> None:
        """A driver: the first, or one that resumes."""
        out, trial = self.folder / f"run{run.number}.out", self.trial
        # A driver that died before it had anything in its log has left nothing to resume: and says so.
        began = not (
            out.exists() and "run the workflow again" in out.read_text(errors="replace").rpartition("\n== ")[2]
        )
        name = self.name(run) if began else None
        words: list[str] = ["resume", name, "--quiet"] if name else [
            "run", f"{__file__}:workflow", "--name", f"run{run.number}", "--quiet",
            "--set", f"seed={trial.seed}", "--set", f"run={run.number}", "--set", f"folder={self.traces}",
            "--set", f"where={self.where}", "--backend", "slurm:poll_s=1" if trial.slurm else "local:cores=8",
            "--strategy", trial.strategies[run.number], "--executor", trial.executors[run.number],
            "--orphan-grace", f"{trial.grace_s}s",
        ]  # fmt: skip
        with out.open("ab", buffering=0) as printed:
            printed.write(f"\n== {time.time():.3f} asa {' '.join(words)}\n".encode())
            run.driver = subprocess.Popen(
                [str(ASA), *words], cwd=self.folder, env=self.environment(run), stdout=printed, stderr=printed,
                start_new_session=True,
            )  # fmt: skip
        run.drivers += 1

    def drivers(self) -> list[int]:
        return [run.driver.pid for run in self.runs if run.driver is not None and run.driver.poll() is None]

    def processes(self) -> dict[int, proc.Stat]:
        """Those of the trial that live, drivers and what they have called included; their command lines are noted."""
        found = living(self.folder)
        self.seen |= {pid: line for pid, (_, line) in found.items()}
        return {pid: stat for pid, (stat, _) in found.items()}

    def of_nodes(self, first: bool) -> list[int]:
        """Processes of allocations: the first on each node (agent or supervisor), or others (workers among them)."""
        found = self.processes()
        ours = {pid for pid in found if "-m executors." in self.seen[pid]}
        return sorted(pid for pid in ours if (found[pid].parent not in ours) is first)

    def jobs(self) -> list[str]:
        with suppress(subprocess.SubprocessError, OSError):  # the controller may be away
            return self.cluster.run("squeue", "--noheader", "--format=%A").split() if self.cluster else []
        return []


def living(folder: Path) -> dict[int, tuple[proc.Stat, str]]:
    """Processes of the trial in this folder, with their command lines."""
    mark, found = f"{MARK}={folder}\0".encode(), {}
    for pid, stat in proc.living():
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if mark in (proc.environment(pid) or b"") or os.fsencode(folder) in line:
                found[pid] = stat, line.replace(b"\0", b" ").decode(errors="replace")
    return found


def _pick(found: Sequence[Any], fault: Fault) -> Any:
    return found[fault.which % len(found)] if found else None


# ---------------------------------------------------------------- what goes wrong

FAULTS = (
    "driver dies", "driver stopped", "agent or supervisor dies", "agent or supervisor stopped",
    "worker or its like dies", "worker or its like stopped", "event log locked", "disk full", "finished run damaged",
)  # fmt: skip
ON_SLURM = (
    *FAULTS, "controller restarted", "controller killed", "controller stopped", "job cancelled", "job requeued",
    "node dies", "node set down", "learned waits locked", "learned waits damaged",
)  # fmt: skip
"""Where there is no queue, nothing is learned."""
_HOLD = "import sqlite3, sys, time; sqlite3.connect(sys.argv[1], 60).execute('BEGIN IMMEDIATE'); time.sleep(99)"


def strike(now: TrialState, fault: Fault) -> bool:
    """Let it happen, and note what undoes it; False if there is nothing for it to happen to."""
    share, run = fault.share, now.runs[fault.which % len(now.runs)]
    match fault.kind.split():
        case ["driver", what]:
            return _to_process(now, now.drivers(), what, fault)
        case ["agent" | "worker" as which, *_, what]:
            return _to_process(now, now.of_nodes(first=which == "agent"), what, fault)
        case ["event", "log", _]:
            name = now.name(run)
            return name is not None and _lock(now, now.state / "runs" / name / "events.db", share)
        case ["learned", "waits", what]:
            path = now.state / "learned.db"
            return path.exists() and (_lock(now, path, share) if what == "locked" else _flip(path, fault))
        case ["disk", "full"] if os.path.ismount(now.state):
            filler = now.state / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
            now.later(2.0 + 18.0 * share, lambda: filler.unlink(missing_ok=True))
            return True
    return now.cluster is not None and _to_cluster(now, now.cluster, fault)


def _to_cluster(now: TrialState, cluster: Cluster, fault: Fault) -> bool:
    node, controller = _pick(cluster.nodes, fault), daemons.noted(cluster.config)["slurmctld"]
    match fault.kind:
        case "controller restarted" | "controller killed":
            faults.restart_controller(cluster, kill9=fault.kind == "controller killed")
        case "controller stopped":
            controller.signal(signal.SIGSTOP)
            now.later(2.0 + 38.0 * fault.share, lambda: controller.signal(signal.SIGCONT))
        case "job cancelled" | "job requeued":
            if (job := _pick(now.jobs(), fault)) is None:
                return False
            cluster.run(*(["scancel"] if fault.kind == "job cancelled" else ["scontrol", "requeue"]), job, check=False)
        case "node dies":
            faults.kill_node(cluster, node)
            now.later(5.0 + 40.0 * fault.share, lambda: daemons.start_slurmd(cluster.config, node))
        case "node set down":
            update = ("scontrol", "update", f"NodeName={node}")
            cluster.run(*update, "State=DOWN", "Reason=torture", check=False)
            now.later(5.0 + 25.0 * fault.share, lambda: cluster.run(*update, "State=RESUME", check=False))
        case _:
            return False
    return True


def _to_process(now: TrialState, pids: Sequence[int], what: str, fault: Fault) -> bool:
    if not pids or not _signalled(_pick(pids, fault), signal.SIGKILL if what == "dies" else signal.SIGSTOP):
        return False
    if what == "stopped":
        pid = _pick(pids, fault)
        now.later(1.0 + 40.0 * fault.share**2, lambda: _signalled(pid, signal.SIGCONT))
    return True


def _signalled(pid: int, number: signal.Signals) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _lock(now: TrialState, path: Path, share: float) -> bool:
    """Another process holds the write lock for a while."""
    if not path.exists():
        return False
    other = subprocess.Popen([sys.executable, "-c", _HOLD, path], stderr=subprocess.DEVNULL)
    now.later(2.0 + 28.0 * share**2, lambda: (other.kill(), other.wait()))
    return True


def _flip(path: Path, fault: Fault) -> bool:
    """Change one bit of a file."""
    at = int(fault.share * path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1 << fault.which % 8]) if byte else b"")
    return bool(byte)


# ---------------------------------------------------------------- going through a trial


def go_through(trial: Trial, where: str, folder: Path, cluster: Cluster | None) -> tuple[TrialState, list[str]]:
    """A trial from its start to its end: how it went, and what must hold and does not."""
    now, problems = TrialState(trial, folder, folder / "state", folder / "traces", where, cluster), list[str]()
    now.traces.mkdir(parents=True)
    now.state.mkdir(mode=0o700)
    with ExitStack() as stack:
        if os.geteuid() == 0 and any(fault.kind == "disk full" for fault in trial.faults):
            size = f"size={DISK_MIB}m,mode=0700"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", now.state], check=True)
            stack.callback(_kept, now.state)
        began = time.monotonic()
        now.runs += [DrivenRun(number, began + due) for number, due in enumerate(trial.begins)]
        try:
            problems += _until_done(now, began)
            problems += [] if problems else _left(now)
            problems += [] if problems else _damage(now)
            problems += [] if problems else [*_wrong(now), *_exposed(now)]
        except (OSError, subprocess.SubprocessError, daemons.DaemonError, AsaError) as error:
            problems.append(f"the trial itself failed: {error!r}")
        finally:
            while now.undo:
                heapq.heappop(now.undo)[2]()
            for pid in now.processes() if problems else ():
                _signalled(pid, signal.SIGKILL)
    return now, problems


def _kept(state: Path) -> None:
    """What is on a disk of its own, on that of all."""
    aside = state.with_name("state.kept")
    subprocess.run(["cp", "--archive", state, aside], check=True)
    subprocess.run(["umount", "--lazy", state], check=True)
    state.rmdir()
    aside.rename(state)


def _until_done(now: TrialState, began: float) -> Iterator[str]:
    rng, pending, deadline = random.Random(now.trial.seed), list(now.trial.faults), began + PATIENCE_S
    looked = began
    while not all(run.done for run in now.runs) or now.undo:
        at = time.monotonic()
        if at > deadline:
            yield f"not done {PATIENCE_S:g} s after the last fault: runs {[r.number for r in now.runs if not r.done]}"
            return
        while now.undo and now.undo[0][0] <= at:
            heapq.heappop(now.undo)[2]()
            deadline = at + PATIENCE_S
        if pending and began + pending[0].at <= at:
            fault = pending.pop(0)
            if not all(run.done for run in now.runs) and strike(now, fault):
                now.struck[fault.kind] += 1
                deadline = time.monotonic() + PATIENCE_S
        if at > looked + 1.0:
            now.processes()
            looked = at
        for run in now.runs:
            if run.done or at < run.due:
                continue
            if run.driver is None:
                now.start(run)
            elif (code := run.driver.poll()) == 0:
                run.done = True
            elif code is not None:
                if run.drivers > RESUMES_MOST:
                    yield f"run{run.number} has had {run.drivers} drivers: see run{run.number}.out"
                    return
                run.driver, run.due = None, at + rng.choice([0.0, 1.0, 5.0])
        time.sleep(0.05)


def _left(now: TrialState, damaged: bool = False) -> Iterator[str]:
    """Jobs and processes that are still there when all is over and cleaned up; of a damaged run it says so."""
    if now.cluster is not None:
        faults.heal(now.cluster)
    clean = now.asa("clean", "--cancel")
    if clean.returncode and not (damaged and "damaged" in clean.stderr):
        yield f"asa clean ended with {clean.returncode}: {clean.stderr[-400:]}"
    if not wait_until(lambda: not now.jobs(), GONE_S, poll=0.5):
        yield f"jobs are left: {now.jobs()}"
    if not wait_until(lambda: not now.processes(), now.trial.grace_s + GONE_S, poll=0.5):
        yield f"processes are left: {[(pid, now.seen[pid]) for pid in now.processes()]}"


def _damage(now: TrialState) -> Iterator[str]:
    """A bit of a finished run's files flips: its results are right, or an error names what is damaged."""
    for fault in [fault for fault in now.trial.faults if fault.kind == "finished run damaged"]:
        run = now.runs[fault.which % len(now.runs)]
        name = now.name(run)
        folder = now.state / "runs" / (name or "")
        files = sorted(path for path in [folder / "events.db", *folder.glob("values/*")] if path.is_file())
        damaged = _pick(files, fault)
        if damaged is None or not _flip(damaged, fault):
            continue
        now.struck[fault.kind] += 1
        now.damaged.add(str(name))
        told, done = now.asa("doctor", "--runs"), now.asa("resume", str(name), "--quiet", run=run)
        run.done = done.returncode == 0  # else it says that it cannot go on
        if "Traceback" in told.stderr + done.stderr or not (run.done or "damaged" in done.stderr):
            yield f"a bit of {damaged.name} of {name} was flipped: {told.stderr[-400:]}{done.stderr[-400:]}"
        yield from _left(now, damaged=True)


def _wrong(now: TrialState) -> Iterator[str]:
    """What must hold of runs that have ended, and does not."""
    for run, steps in zip(now.runs, now.trial.workflows, strict=True):
        out = (now.folder / f"run{run.number}.out").read_text(errors="replace")
        if "Traceback (most recent call last)" in out:
            yield f"run{run.number} printed a traceback: {out[out.index('Traceback') :][:600]}"
        if not run.done or (name := now.name(run)) is None:
            continue
        try:
            if (result := open_run(name, state=now.state).result()) != evaluate(steps):
                yield f"{name} has a wrong result: {result}"
        except AsaError as error:
            yield f"{name} has no result: {error}"
            continue
        try:
            with EventLog(now.state / "runs" / name / "events.db") as log:
                events = [event for _, event in log.read()]
        except StateError as error:  # what its result was made of is another matter
            yield from () if name in now.damaged else [f"the log of {name}: {error}"]
            continue
        yield from (f"{name} {found}" for found in contradictions(events))
        yield from _again(now, run, events)


def _again(now: TrialState, run: DrivenRun, events: Sequence[Any]) -> Iterator[str]:
    """Tasks that began once more after their result was in the log."""
    lost = {task for event in events if isinstance(event, ResultsLost) for task in event.tasks}
    values = evaluate(now.trial.workflows[run.number])
    for event in events:
        if not isinstance(event, TaskDone) or (event.stage, event.index) in lost:
            continue
        number = int(event.stage.removeprefix("each").removeprefix("gather"))
        step = now.trial.workflows[run.number][number]
        items = values[step.sources[0]] if step.sources else range(step.count)
        trace = now.traces / f"{run.number}-{number}.{items[event.index] if step.mapped else 0}"
        lines = [line.split() for line in trace.read_text().splitlines()]
        if late := [float(at) for word, at in lines if word == "started" and float(at) > event.at]:
            yield f"{event.stage}-{event.index} of run{run.number} was done at {event.at}, and began again at {late}"


def _exposed(now: TrialState) -> Iterator[str]:
    """Where the secret of some stages can be read."""
    places = [now.folder]
    if now.cluster is not None:
        places += [Path(now.cluster.config.base, name) for name in ("log", "spool", "state", "tmp")]
    for path in (path for place in places for path in place.rglob("*")):
        with suppress(OSError):  # a folder, or it has just been removed
            if path.is_file() and SECRET.encode() in path.read_bytes():
                yield f"the secret is in {path}"
    yield from (f"the secret is in a command line: {line}" for line in now.seen.values() if SECRET in line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Go through trials, a line for each; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.real", description="runs under faults, for real")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first trial; later ones follow (0)")
    parser.add_argument("--time", type=duration, default=3600.0, metavar="T", help="begin no trial after so long (1h)")
    parser.add_argument("--trials", type=positive, default=sys.maxsize, metavar="N", help="end after so many")
    parser.add_argument("--where", choices=("both", "local", "slurm"), default="both")
    options = parser.parse_args(arguments)
    where, until = options.where, time.monotonic() + options.time
    if where == "both" and (reason := host.obstacle()) is not None:
        print(f"SKIPPED: TRIALS ON SLURM: {reason}")
        where = "local"
    struck, failed, seed, resumes = Counter[str](), list[int](), options.seed, 0
    with ExitStack() as stack:
        base = Path(tempfile.mkdtemp(prefix="asa-real-"))
        cluster: Cluster | None = None
        while time.monotonic() < until and seed < options.seed + options.trials:
            trial, folder, began = draw(seed, where), base / f"seed-{seed}", time.monotonic()
            if trial.slurm and cluster is None:
                config = host.configure(base / "slurm", nodes=3, cores_per_node=4, node_timeout=5)
                cluster = stack.enter_context(running(config))
            now, problems = go_through(trial, where, folder, cluster if trial.slurm else None)
            again = sum(max(0, run.drivers - 1) for run in now.runs)
            what = ", ".join(f"{kind} {count}" for kind, count in sorted(now.struck.items())) or "none"
            print(
                f"seed {seed}: {'slurm' if trial.slurm else 'local'}, {len(now.runs)} runs "
                f"({', '.join(map(' '.join, zip(trial.strategies, trial.executors, strict=True)))}); faults: {what}; "
                f"{again} resumes, {time.monotonic() - began:.0f} s: {'FAILED' if problems else 'ok'}",
                *problems, sep="\n  ", flush=True,
            )  # fmt: skip
            struck, resumes, seed = struck + now.struck, resumes + again, seed + 1
            if not problems:
                shutil.rmtree(folder)
                continue
            failed.append(trial.seed)
            again_by = f"python -m tests.torture.real --seed {trial.seed} --trials 1 --where {where}"
            print(f"  kept in {folder}; once more (it may pass): {again_by}", flush=True)
            if cluster is not None:
                cluster.run("scancel", "--signal=KILL", "--user=root", check=False)
                faults.heal(cluster)
    trials = seed - options.seed
    print(f"{trials} trials, {sum(struck.values())} faults, {resumes} resumes: {len(failed)} failed {failed or ''}")
    print(*(f"{count:6d}  {kind}" for kind, count in struck.most_common()), sep="\n")
    if not failed:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # else a cluster would be left
    sys.exit(main())
