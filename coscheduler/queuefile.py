"""A queue's files: the TOML file that describes it, and the log of what happened, as JSON lines.

The TOML format is described in docs/coscheduler.md.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from asa.core.command import CommandResult, table
from asa.core.errors import InvalidInput, StateError, cause
from asa.core.task import DEFAULT_SIGNAL, default_notice_s, signal_name
from asa.core.units import brief, duration, share
from asa.log.rundir import DriverLock, state_directory
from asa.report.words import counted
from asa.security.files import cannot, check_private, private_directory
from coscheduler.history import Entry, JobRun
from coscheduler.nouns import BY_INSTRUCTIONS, BY_PRESSURE, BY_PROGRESS, WaitingJob
from coscheduler.standing import QUEUE_LOG_VERSION, Begun, JobStanding, Standings, entry_of
from coscheduler.workload import Load, LoadPhase, paper_queue, phases

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_QUEUE = {"cores", "contention", "paper", "seed", "jobs"}
_JOB = {"name", "application", "cores", "walltime", "submit", "exclusive", "slowdown_bound", "bound_by"}
_JOB |= {"run_time", "cpu", "phases", "memory", "command", "checkpoint", "signal", "signal_before"}
_ABOUT = ("job", "host", "guest")


@dataclass(frozen=True, slots=True)
class SimulatedQueue:
    """A machine of so many cores, what sharing costs on it, and its jobs."""

    cores: int
    contention: str
    loads: tuple[Load, ...]


class StateSaving(NamedTuple):
    """How a job saves its state: upon this signal, named without ``SIG``, within so long [s]."""

    signal: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """A job that really runs.

    Parameters
    ----------
    line
        What a shell is given on each of its nodes.
    alone_s
        Its run time on cores of its own [s], None where that is not known.
    saves
        How it saves its state in ``$ASA_CHECKPOINT``, to go on from there; None for a job that cannot.
    """

    request: WaitingJob
    line: str
    alone_s: float | None = None
    saves: StateSaving | None = None


@dataclass(frozen=True, slots=True)
class CommandQueue:
    """Jobs that really run, on so many cores."""

    cores: int
    jobs: tuple[QueuedCommand, ...]


def read_commands(path: str | Path) -> CommandQueue:
    """Read a queue whose jobs have a `command`."""
    return _read(path, commands_of)


def read_queue(path: str | Path) -> SimulatedQueue:
    """Read a queue to be simulated."""
    return _read(path, _queue)


def _read(path: str | Path, parse: Callable[[Mapping[str, Any]], T]) -> T:
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"queue {path}: {cause(error)}. Expected a TOML file with cores and [[jobs]]") from error
    try:
        _only(data, _QUEUE, "the file")
        return parse(data)
    except InvalidInput as error:
        raise InvalidInput(f"queue {path}: {error}") from error


def commands_of(data: Mapping[str, Any]) -> CommandQueue:
    """A queue whose jobs have a `command`, of what is in its file.

    Raises `InvalidInput` when something is missing, out of range, or twice there.
    """
    if data.get("paper"):
        raise InvalidInput("paper = true is a simulated queue: [[jobs]] tables with a command expected")
    jobs = tuple(_command(job, f"job {place}") for place, job in enumerate(data.get("jobs", []), 1))
    if not jobs:
        raise InvalidInput("it has no jobs: [[jobs]] tables expected")
    cores = _whole(data, "cores", "the file")
    check(jobs, cores)
    return CommandQueue(cores, jobs)


def check(jobs: Iterable[QueuedCommand], cores: int) -> None:
    """Make sure that jobs can really run on so many cores.

    Raises `InvalidInput` when two have one name, or a name cannot be that of a directory, or a job never fits.
    """
    known = set()
    for name, asked in ((job.request.name, job.request.cores) for job in jobs):
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"job {name!r}: a name of letters, digits, '_', '-' and '.' expected, for its directory")
        if name in known:
            raise InvalidInput(f"there are two jobs called {name!r}: each needs a name of its own")
        if asked > cores:
            raise InvalidInput(f"job {name!r} asks for {asked} cores: the machine has {cores}")
        known.add(name)


def _command(job: Mapping[str, Any], where: str) -> QueuedCommand:
    _only(job, _JOB, where)
    alone = job.get("run_time")
    return QueuedCommand(
        _request(job, where),
        _shell_command(job, where),
        None if alone is None else duration(alone, what=f"{where}: run_time"),
        _saving(job, where),
    )


def _saving(job: Mapping[str, Any], where: str) -> StateSaving | None:
    """As stages of workflows declare it, with the same defaults."""
    checkpoint = job.get("checkpoint", False)
    if not isinstance(checkpoint, bool):
        raise InvalidInput(f"{where}: checkpoint is {checkpoint!r}: true or false expected")
    given = {name: job[name] for name in ("signal", "signal_before") if name in job}
    if not checkpoint:
        if given:
            raise InvalidInput(f"{where}: {min(given)} is for jobs that save their state: say checkpoint = true, too")
        return None
    walltime_s = duration(_given(job, "walltime", where), what=f"{where}: walltime")
    try:
        signal = signal_name(given.get("signal", DEFAULT_SIGNAL))
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from error
    before = given.get("signal_before")
    grace_s = default_notice_s(walltime_s) if before is None else duration(before, what=f"{where}: signal_before")
    return StateSaving(signal, grace_s)


def _shell_command(job: Mapping[str, Any], where: str) -> str:
    command = _given(job, "command", where)
    if not isinstance(command, str) or not command.strip():
        raise InvalidInput(f'{where}: command is {command!r}: text for a shell expected, such as "sleep 4"')
    return command


def _queue(data: Mapping[str, Any]) -> SimulatedQueue:
    cores = _whole(data, "cores", "the file")
    contention = str(data.get("contention", "paper-like"))
    if data.get("paper"):
        return SimulatedQueue(cores, contention, paper_queue(cores, np.random.default_rng(int(data.get("seed", 0)))))
    jobs = data.get("jobs", [])
    if not jobs:
        raise InvalidInput("it has no jobs: [[jobs]] tables expected, or paper = true")
    return SimulatedQueue(cores, contention, tuple(_load(job, f"job {place}") for place, job in enumerate(jobs, 1)))


def _load(job: Mapping[str, Any], where: str) -> Load:
    _only(job, _JOB, where)
    request = _request(job, where)
    memory = share(job.get("memory", 0.1), what=f"{where}: memory")
    return Load(request, _phases(job, request.cores, where), memory)


def _request(job: Mapping[str, Any], where: str) -> WaitingJob:
    name = str(job.get("name", where.replace(" ", "-")))
    return WaitingJob(
        name=name,
        application=str(job.get("application", name)),
        cores=_whole(job, "cores", where),
        walltime_s=duration(_given(job, "walltime", where), what=f"{where}: walltime"),
        submitted=0.0 if not job.get("submit") else duration(job["submit"], what=f"{where}: submit"),
        exclusive=bool(job.get("exclusive", False)),
        bound=bound_of(job.get("slowdown_bound"), f"{where}: slowdown_bound"),
        bound_by=str(job.get("bound_by", BY_PROGRESS)),
    )


def bound_of(value: float | str | None, what: str = "--bound") -> float:
    """A bound on a host's slowdown, as a share of its run time alone; infinite for None.

    Raises `InvalidInput` when it is no share above 0.
    """
    if value is None:
        return math.inf
    bound = share(value, what=what, most=math.inf)
    if not bound:
        raise InvalidInput(
            f"{what} {value!r}: a share above 0 expected, such as '10%'; for no guests: exclusive = true"
        )
    return bound


def _phases(job: Mapping[str, Any], cores: int, where: str) -> tuple[LoadPhase, ...]:
    """Phases as they are given, or those of a job that uses so much CPU on average."""
    if "phases" not in job:
        if "run_time" not in job and "command" in job:
            raise InvalidInput(f"{where} has no 'run_time', which a simulation needs; --on local runs its command")
        run_time_s = duration(_given(job, "run_time", where), what=f"{where}: run_time")
        return phases(run_time_s, share(job.get("cpu", 1.0), what=f"{where}: cpu"), cores)
    found = []
    for phase in job["phases"]:
        _only(phase, {"time", "cpu"}, f"{where}: a phase")
        time_s = duration(_given(phase, "time", where), what=f"{where}: time")
        cpu = share(phase.get("cpu", 1.0), what=f"{where}: cpu")
        found.append(LoadPhase(time_s, cpu, cpu * cores > 1))
    return tuple(found)


def _only(table: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := set(table) - known:
        raise InvalidInput(f"{where} has {min(unknown)!r}, which is none of {', '.join(sorted(known))}")


def _given(table: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in table:
        raise InvalidInput(f"{where} has no {name!r}")
    return table[name]


def _whole(table: Mapping[str, Any], name: str, where: str) -> int:
    value = _given(table, name, where)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"{where}: {name} is {value!r}: a whole number of at least 1 expected")
    return value


NAME, LOCK, AGENTS_LOCK, AGENTS_JOB = "log.jsonl", "queue.lock", "agents.lock", "agents.json"
_QUEUES = "cosched"  # directory, in the state directory, of queues for which no other was given


class SharedQueueLog:
    """A log; a context manager. An entry that was written is there even if we are killed.

    Raises `StateError` when there is a log in the directory already, or none to go on with, or it cannot be read or
    written.

    Parameters
    ----------
    resume
        Go on with the one that is there; a last line that was not written to its end goes. Else it is a new one.
    """

    def __init__(self, directory: Path, *, resume: bool = False) -> None:
        self.path = private_directory(directory) / NAME
        self.before = read(self.path) if resume else []
        """Entries that are gone on with."""
        self._begun: Begun | None = None
        try:
            if resume:
                os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (0 if resume else os.O_CREAT | os.O_EXCL)
            # without a buffer: what the disk did not take must not come again when the log is closed
            self.file = os.fdopen(os.open(self.path, flags, 0o600), "wb", buffering=0)
        except FileExistsError as error:
            raise StateError(
                f"{directory} has the log of another queue: give another --work directory, or go on with --resume"
            ) from error
        except OSError as error:
            raise cannot("write", self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        with suppress(StateError):  # the next co-scheduler asks the pool
            if kind is None and self._begun is not None:
                at = self._begun.at + time.time() - self._begun.time
                self.write({"at": at, "event": "closed"})
        self.file.close()

    def begin(self, at: float, pool: Path | None = None, framework: str | None = None) -> None:
        """A co-scheduler begins, as `Begun` says. Without an error, the end of this context is that of all jobs."""
        where = None if pool is None or framework is None else str(pool)
        self._begun = Begun(at, QUEUE_LOG_VERSION, time.time(), where, framework)
        self.write(entry_of(self._begun))

    def write(self, entry: Entry) -> None:
        """Add an entry. Raises `StateError` when the disk is full, say."""
        line = json.dumps(entry).encode() + b"\n"
        try:
            while line:
                line = line[self.file.write(line) :]
        except OSError as error:
            raise cannot("write", self.path, error) from error


def read(path: Path) -> list[Entry]:
    """All entries of a log; a last line that was not written to its end is left out.

    Raises `StateError` when it is not one's own private file, or no log.
    """
    check_private(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        newest = max((entry["version"] for entry in found if entry.get("event") == "begun"), default=0)
    except OSError as error:
        raise cannot("read", path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(
            f"{path} is damaged, or no log of a queue ({error!r}): give another --work directory"
        ) from error
    if newest > QUEUE_LOG_VERSION:
        raise StateError(
            f"{path} has version {newest} of a queue's log, and this version of ASA reads {QUEUE_LOG_VERSION} at most: "
            "use the one that wrote it, or give another --work directory"
        )
    return found


def ended_well(entries: Iterable[Entry]) -> dict[str, JobRun]:
    """What came of the jobs that have ended well, by name.

    Raises `StateError` when these entries do not say: they were written by an older version.
    """
    found = [entry for entry in entries if entry.get("event") == "ended" and not entry["problem"]]
    if not all("result" in entry for entry in found):
        raise StateError("the log was written by an older version: run the queue with another --work directory")
    return {entry["job"]: JobRun.of(entry["result"]) for entry in found}


def new_directory(name: str) -> Path:
    """A directory for a queue of this name that no other has: ``NAME-1``, ``NAME-2`` ..."""
    base, number = private_directory(state_directory() / _QUEUES), 1
    while True:
        path = base / f"{name}-{number}"
        try:
            path.mkdir(0o700)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise cannot("make the directory", path, error) from error


def logs(state: Path) -> list[Path]:
    """Logs of all queues in this state directory, the newest first."""
    found = (state / _QUEUES).glob(f"*/{NAME}")
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def queued(job: WaitingJob, at: float = 0.0) -> Entry:
    """The entry of a job that waits, from this time [s] or its submission on."""
    bound = job.bound if math.isfinite(job.bound) else None
    found = {"at": max(at, job.submitted), "event": "queued", "job": job.name, "cores": job.cores, "bound": bound}
    return found if job.bound_by == BY_PROGRESS else found | {"bound_by": job.bound_by}


def status(directory: Path | None = None) -> CommandResult:
    """How the jobs of the queue in this directory stand, or of the newest queue.

    Raises `StateError` when there is no queue there, or its log cannot be read.
    """
    newest = logs(state_directory())[:1] if directory is None else [directory / NAME]
    if not newest:
        raise StateError("no queue has run here: asa cosched run QUEUE.toml --on WHERE (simulated queues keep no log)")
    directory = newest[0].parent
    found = Standings(read(newest[0]), newest[0])
    jobs, left = found.jobs, found.left()
    lasting = {job.job for job in left.jobs} if left is not None and left.begun.pool else set()
    holder = DriverLock(directory / LOCK).holder()
    for job in jobs.values():
        if holder is None and job.state == "running" and job.job not in lasting:
            job.state = "interrupted"
    counts = Counter(job.state for job in jobs.values())
    if holder is not None:
        who = f"its co-scheduler is process {holder.pid} on {holder.host}"
    elif left is not None and lasting:
        on = f"pool:{left.begun.pool}"
        who = f"its co-scheduler is gone, jobs go on: asa cosched run QUEUE.toml --on {on} --work {directory} --resume"
        if any(job.host is not None and not job.share for job in left.jobs):
            who += f"\n{_STAYS_STOPPED}"
    elif counts["waiting"] + counts["interrupted"]:
        who = f"its co-scheduler is gone: asa cosched run QUEUE.toml --on WHERE --work {directory} --resume"
    else:
        who = "it is over"
    text = f"queue {directory}: {', '.join(f'{count} {state}' for state, count in counts.items())}\n{who}"
    rows = [_standing_row(job, jobs.values()) for job in jobs.values()]
    data = {
        "directory": str(directory),
        "driver": holder and asdict(holder),
        "jobs": [job.to_json() for job in jobs.values()],
    }
    return CommandResult(data, f"{text}\n\n{table(rows, '')}".rstrip())


_STAYS_STOPPED = "guests that are stopped stay so until the wall time of their host is over, for a day at most"


def _standing_row(job: JobStanding, others: Iterable[JobStanding]) -> dict[str, Any]:
    shares = {each.job: each.share for each in others if each.host == job.job}
    guests = [f"{name} ({f'{share:.0%}' if share else 'stopped'})" for name, share in shares.items()]
    return {
        "job": job.job,
        "cores": job.cores,
        "state": job.state,
        "since (queue's clock)": brief(job.since),
        "guest of": job.host or "-",
        "its guests": ", ".join(guests) or "-",
        "slower (estimate)": "-" if job.slower is None else f"{100 * job.slower:.1f} %",
        "bound": "-" if job.bound is None else f"{100 * job.bound:.3g} %",
    }


def explain(job: str, directory: Path | None = None) -> CommandResult:
    """Explain a job of the queue in this directory, or of the newest queue that has one of this name.

    In the state directory, logs that cannot be read are passed over.
    """
    paths = logs(state_directory()) if directory is None else [directory / NAME]
    for path in paths:
        try:
            entries = read(path)
        except StateError:
            if directory:
                raise
            continue
        if found := sorted([*_about(entries, job), *_slowdown_now(entries, job)], key=_time):
            text = "\n".join([f"{job} in {path.parent}", *(line for entry in found for line in _lines(entry, job))])
            return CommandResult({"job": job, "log": str(path), "entries": found}, text)
    where = str(directory) if directory else f"any of {len(paths)} queues"
    raise InvalidInput(
        f"no job {job!r} in {where}: a job's name, as in its queue file, expected (simulated queues keep no log)"
    )


def explain_if_known(job: str) -> CommandResult | None:
    """The same for ``asa explain``; None where no queue has such a job."""
    try:
        return explain(job)
    except InvalidInput:
        return None


def _time(entry: Entry) -> float:
    return float(entry["at"])


def _about(entries: Iterable[Entry], job: str) -> Iterable[Entry]:
    for entry in entries:
        if entry.get("event") != "slowdown" and job in (*map(entry.get, _ABOUT), (entry.get("why") or {}).get("host")):
            yield entry


def _slowdown_now(entries: Iterable[Entry], job: str) -> list[Entry]:
    """By how much the job, or its host, is slower now, while both run."""
    last: list[Entry] = []
    for entry in entries:
        if entry.get("event") == "slowdown" and job in (entry["job"], *entry["guests"]):
            last = [entry]
        elif last and (entry.get("decision") or entry.get("event")) in ("ended", "requeued", "Evict", "closed"):
            there = (last[0]["job"], job, None)
            last = [] if entry.get("job") in there and entry.get("guest") in there else last
    return last


def _lines(entry: Entry, job: str) -> Iterable[str]:
    yield f"  {describe_time(entry)}: {describe(entry, job)}"
    details = [*_shown(entry.get("why") or {})]
    if losses := [f"{name} {value:.2f}" for name, value in (entry.get("loss") or {}).items() if value is not None]:
        details.append(f"loss by {', '.join(losses)}")
    if details:
        yield "      details:"
        yield from (f"        {line}" for line in details)


def describe_time(entry: Entry) -> str:
    """The time of an entry, in words."""
    return f"at {brief(entry['at'])}" if entry["at"] >= 0.1 else "at once"


def describe(entry: Entry, job: str) -> str:
    """An entry about a job, in words."""
    share = f"{entry['share']:.0%}" if entry.get("share") is not None else ""
    kind = "at most" if entry.get("hard") else "a weight of"
    match entry.get("decision") or entry.get("event"):
        case "Start":
            return "started on cores of its own"
        case "StartGuest" if entry["job"] == job:
            return f"started as a guest of {entry['host']}, with {kind} {share} of its cores{_expected(entry)}"
        case "StartGuest":
            return f"{entry['job']} became its guest, with {kind} {share} of its cores{_expected(entry)}"
        case "SetShare" | "Evict" as what:
            guest = entry.get("guest", job)
            who, is_, its = ("", "", "its host's") if guest == job else (f"its guest {guest} ", "is ", "its")
            if what == "Evict":
                return f"{who}{is_}evicted: goes back to the queue{_because(entry, '; ')}"
            if not entry["share"]:
                return f"{who}{is_}stopped: {_because(entry) or 'its host must lose no more'}"
            return f"{who}has {share} of {its} cores from now on{_because(entry, ': ')}"
        case "slowdown":
            who = "it is" if entry["job"] == job else f"its host {entry['job']} is"
            bound = f"; its bound is {entry['bound']:.0%}" if entry["bound"] is not None else ""
            return f"{who} {_slower(entry['slower'])} so far, by an estimate from its own reports{bound}"
        case "Keep":
            return "keeps its cores to itself"
        case "queued":
            by = _SILENT.get(entry.get("bound_by", ""), "") if entry["bound"] is not None else ""
            return f"waits for {counted(entry['cores'], 'core')}{by}"
        case "started":
            return f"runs on {', '.join(entry['nodes'])}"
        case "taken over":
            return f"taken over by another co-scheduler: it runs since {brief(entry['started'])}"
        case "rank":
            return f"its container {entry['rank']} has ended{entry['problem'] and ': '}{entry['problem']}"
        case "squeezed":
            return f"memory is taken back from it: {entry['because']}"
        case "eased":
            return "may have its memory again"
        case "asked":
            return f"asked to save its state: {entry['because']}"
        case "requeued":
            return f"goes back to the queue: {entry['because']}"
        case "ended":
            return _end(entry)
        case other:
            return str(other)


def _slower(slower: float) -> str:
    return f"{slower:.1%} slower than alone" if slower >= 0.0005 else "no slower than alone"


def _expected(entry: Entry) -> str:
    """What a rule has seen of the host, and expects of the guest, where it says so."""
    why = entry.get("why") or {}
    cpu = (why.get("state") or {}).get("cpu")
    idle = "" if cpu is None else f": {entry['host']} left {1 - cpu:.0%} of its cores idle"
    if why.get("rate") is None:
        return idle
    return f"{idle}{', and' if idle else ':'} {entry['job']} is expected to run at {why['rate']:.0%} of its speed alone"


def _because(entry: Entry, before: str = "") -> str:
    """Why a guest is stopped, evicted, or has another share; "" where the rule does not say."""
    why = entry.get("why") or {}
    host, happy = why.get("host", "its host"), why.get("happiness")
    match why:
        case {"because": because}:
            return f"{before}{because}"
        case {"lost": lost, "bound": bound}:
            about = f"{max(0.0, lost):.0f} s by the best estimate"
            return f"{before}{host} may have lost to guests what its bound of {bound:.0%} allows ({about})"
        case {"memory": _}:
            return f"{before}{host} and its guests use more memory than belongs to its cores"
        case {"happiness": _}:
            return f"{before}{host} is {'late' if happy is not None and happy < 1 else 'on time'} for its wall time"
        case {"used": _}:
            return f"{before}it went on though it was stopped"
        case {"host": _} if entry["decision"] == "Evict":
            return f"{before}it was stopped, and ends sooner on free cores"
        case {"host": _}:
            return f"{before}{host} may lose more"
    return ""


_SILENT = {
    BY_PRESSURE: "; without progress reports its bound is on contention for CPUs only: not for caches or memory "
    "bandwidth",
    BY_INSTRUCTIONS: "; without progress reports its bound goes by the instructions that it executes",
}
"""What a bound means, by what it goes by."""


def _end(entry: Entry) -> str:
    if entry["problem"]:
        return f"failed: {entry['problem']}"
    slowdown = entry.get("slowdown")
    ran = f"ended after {brief(entry['run_time_s'])}"
    alone = "; how long it runs alone is not known" if slowdown is None else f", {slowdown:.2f} times as long as alone"
    result = entry.get("result") or {}
    slower, bound = result.get("host_slowdown"), result.get("bound")
    kept = f"; its guests slowed it down by {max(0.0, slower - 1):.1%}" if slower is not None else ""
    kept += " (an estimate from its own reports)" if kept and result.get("estimated") else ""
    kept += f", its bound is {bound:.0%}" if kept and bound is not None else ""
    if result and JobRun.of(result).unjudged:
        kept = f"; how much its guests slowed it down is not known, its bound is {bound:.0%}"
    return ran + alone + kept


def _shown(why: Mapping[str, Any]) -> Iterable[str]:
    """A record, a line for each entry; tables below their names.

    >>> list(_shown({"rate": 0.93, "state": {"cpu": 0.5}, "votes": {"cpu": [0.1, 0.9]}}))
    ['rate 0.93 of its speed alone', 'state: cpu 0.5', 'votes:', '  cpu 0.1 0.9']
    >>> list(_shown({"node": "n7", "memory": 1.02, "hard": False}))
    ['node n7', 'memory 1.02', 'hard no']
    """
    for name, value in why.items():
        if isinstance(value, Mapping) and any(isinstance(each, Sequence) for each in value.values()):
            yield f"{name}:"
            yield from (f"  {line}" for line in _shown(value))
        elif isinstance(value, Mapping):
            yield f"{name}: " + ", ".join(f"{key} {_number(each)}" for key, each in value.items())
        else:
            yield f"{name} {_number(value)}{_UNITS.get(name, '')}"


_UNITS = {
    "rate": " of its speed alone",
    "harm": " added to the slowdowns of all concerned",
    "gain": " of a mean job's core-seconds saved",
    "lost": " s to guests so far",
    "expected": " s more",
    "waited_least": " of its time beside them, by its mean thread",
    "waited_most": " of its time beside them, by any of its threads",
    "bound": " of its run time alone",
}


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return " ".join(map(_number, value))
    return "unlimited" if value is None else f"{value:.3g}"


class QueuePage(NamedTuple):
    """How `asa dashboard` finds and reads the logs of queues."""

    logs: Callable[[Path], list[Path]]
    read: Callable[[Path], list[Entry]]


PAGE = QueuePage(logs, read)
