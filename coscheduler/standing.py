"""How the jobs of a queue stand by its log, and which of them run on when their co-scheduler has died.

A job's entries are written before its containers are started or ended, and an agent's report of an end is acknowledged
only after it was written: so the log names all that may run, and what it does not know of is reported again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from asa.core.errors import StateError
from coscheduler.history import Entry, Stay
from coscheduler.real.machine import SharedNode

QUEUE_LOG_VERSION = 3
"""Of a queue's log. One of version 1 says nowhere which it is, and has none of the entries below: jobs begin anew."""


class Begun(NamedTuple):
    """A co-scheduler has begun, or gone on; `time` is `at` in seconds since the epoch.

    `pool` is the directory of a pool that outlives it, `framework` its name there; None for agents that end with it.
    """

    at: float
    version: int
    time: float
    pool: str | None
    framework: str | None


class GangStarted(NamedTuple):
    """A job is about to be started, for the `number`-th time: a container on each of these nodes, with so many cores
    there and this request [cores]."""

    at: float
    job: str
    number: int
    nodes: tuple[str, ...]
    cores: tuple[int, ...]
    requests: tuple[float, ...]
    command: str


class RankEnded(NamedTuple):
    """A container of a job has ended, and others of it have not; see `ContainerEnded`."""

    at: float
    job: str
    rank: int
    problem: str
    lost: bool
    killed: bool


NOT_STARTED = GangStarted(0.0, "", 0, (), (), (), "")

ENTRIES = {Begun: "begun", GangStarted: "started", RankEnded: "rank"}
"""What such an entry is called in the log."""


def entry_of(what: Begun | GangStarted | RankEnded) -> dict[str, Any]:
    """As it is in the log."""
    return {"at": what.at, "event": ENTRIES[type(what)]} | what._asdict()


def container_name(job: str, run: int, rank: int) -> str:
    """Of a rank's container; its task is called the same."""
    return f"{job}.{run}.{rank}"


@dataclass(slots=True)
class JobStanding:
    """How a job of a queue stands. Times are [s], since the start of the queue.

    Parameters
    ----------
    state
        ``waiting``, ``running``, ``ended`` or ``failed``; ``interrupted`` if it ended with its co-scheduler.
    since
        From when on.
    host, share, hard
        On whose cores it runs, and with which share of them, 0 while it is stopped; None on cores of its own.
    bound
        By how much guests may slow it down; None where nothing was promised.
    slower
        By how much they have so far, an estimate; None where it has none, and while that is not known.
    asked
        When it was asked to save its state; None for never.
    first, evictions, stays
        As in `JobRun`; the end of the stay that lasts is NaN.
    run, ended
        Its containers, and those that have ended.
    """

    job: str
    cores: int | None = None
    state: str = "waiting"
    since: float = 0.0
    host: str | None = None
    share: float | None = None
    bound: float | None = None
    slower: float | None = None
    hard: bool = False
    first: float = math.nan
    evictions: int = 0
    stays: list[Stay] = field(default_factory=list)
    asked: float | None = None
    run: GangStarted = NOT_STARTED
    ended: dict[int, RankEnded] = field(default_factory=dict)

    def come_to(self, state: str, at: float) -> None:
        self.state, self.since, self.run, self.ended = state, at, NOT_STARTED, {}
        self.host = self.share = self.asked = self.slower = None

    def to_json(self) -> dict[str, Any]:
        shown = ("job", "cores", "state", "since", "host", "share", "bound", "slower")
        return {name: getattr(self, name) for name in shown}

    def start(self, at: float, host: str | None, share: float | None, hard: bool) -> None:
        self.come_to("running", at)
        self.host, self.share, self.hard = host, share, hard
        self.first = at if math.isnan(self.first) else self.first

    def stay(self, at: float, share: float) -> None:
        """It runs, with this share of its host's cores, or of its own."""
        if not self.stays or not math.isnan(self.stays[-1].until) or self.stays[-1][2:] != (self.host, share):
            self.leave(at)
            self.stays.append(Stay(at, math.nan, self.host, share))

    def leave(self, at: float) -> None:
        if self.stays and math.isnan(self.stays[-1].until):
            self.stays[-1:] = [self.stays[-1]._replace(until=at)] if self.stays[-1].since < at else []


class LeftQueue(NamedTuple):
    """What runs without its co-scheduler, hosts before their guests; and the nodes as they were."""

    begun: Begun
    nodes: tuple[SharedNode, ...]
    jobs: tuple[JobStanding, ...]

    def at(self, time: float) -> float:
        """A time since the epoch on the queue's clock [s]."""
        return self.begun.at + time - self.begun.time


class Standings:
    """Entries of a log, folded.

    Raises `StateError` when an entry makes no sense after those before it.

    Parameters
    ----------
    path
        Of the log, for errors.
    """

    def __init__(self, entries: Iterable[Entry], path: Path) -> None:
        self.jobs: dict[str, JobStanding] = {}
        """By name, in order of submission."""
        self._running: dict[str, JobStanding] = {}
        self._begun: Begun | None = None
        self._nodes: dict[str, SharedNode] = {}
        for number, entry in enumerate(entries, 1):
            try:
                self._on(entry)
            except (KeyError, TypeError, AttributeError) as error:
                raise StateError(
                    f"{path} is damaged: entry {number} makes no sense ({error!r}). Jobs that it names may still run: "
                    "end them, and give another --work directory"
                ) from error

    def left(self) -> LeftQueue | None:
        """What may run without its co-scheduler; None where nothing does, or cannot be known: see the version."""
        if self._begun is None:
            return None
        jobs = [job for job in self._running.values() if job.run is not NOT_STARTED]
        jobs.sort(key=lambda job: (job.host is not None, job.since))
        return LeftQueue(self._begun, tuple(self._nodes.values()), tuple(jobs))

    def _on(self, entry: Entry) -> None:
        at, kind = entry["at"], entry.get("decision") or entry.get("event")
        name = entry.get("job") or entry.get("guest")
        if kind in ("begun", "closed"):
            before, self._begun = self._begun, _read(Begun, entry) if kind == "begun" else None
            goes_on = before and self._begun and before.framework == self._begun.framework is not None
            if not goes_on:
                for job in self._running.values():
                    job.come_to("interrupted", job.since)
                    job.leave(at)
                self._running, self._nodes = {}, {}
        elif kind == "node":
            self._nodes[entry["node"]["name"]] = SharedNode(**entry["node"])
        elif name is not None:
            self._happened(self.jobs.setdefault(name, JobStanding(name)), str(kind), entry, at)

    def _happened(self, job: JobStanding, kind: str, entry: Entry, at: float) -> None:
        match kind:
            case "queued":
                job = self.jobs[job.job] = JobStanding(job.job, entry["cores"], since=at, bound=entry["bound"])
            case "Start" | "StartGuest":
                job.start(at, entry.get("host"), entry.get("share"), entry.get("hard", False))
                self._running[job.job] = job
            case "started" if self._begun is not None:
                job.run = _read(GangStarted, entry)
            case "rank":
                job.ended[entry["rank"]] = _read(RankEnded, entry)
            case "asked":
                job.asked = at
            case "slowdown":
                job.slower = entry["slower"]
            case "SetShare":
                job.share = entry["share"]
            case "Evict" | "requeued":
                job.come_to("waiting", at)
                job.evictions += 1
            case "ended":
                job.come_to("failed" if entry["problem"] else "ended", at)
        if job.state != "running":
            job.leave(at)
            self._running.pop(job.job, None)
        given: defaultdict[str, float] = defaultdict(float)
        for each in self._running.values():
            if each.host == job.job and job.state != "running":  # it has the cores to itself
                each.host, each.share, each.hard = None, None, False
            if each.host is not None:
                given[each.host] += each.share or 0.0
        for each in self._running.values():
            each.stay(at, 1.0 - given[each.job] if each.host is None else each.share or 0.0)


def _read(kind: Any, entry: Entry) -> Any:
    values = (entry[name] for name in kind._fields)
    return kind(*(tuple(value) if isinstance(value, list) else value for value in values))
