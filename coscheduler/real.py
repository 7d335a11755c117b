"""The real world: a queue of commands on nodes that run containers, and jobs that share their cores.

What a rule decides is law for `coscheduler.ledger` first, as in the simulated world; then gangs of containers are
started and ended, and have other shares. Guests have containers on the nodes of their host.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from asa.core.decision import Start
from asa.core.errors import InvalidInput, Starved
from asa.core.sharing import Evict, Keep, SharedRun, SharingDecision, SharingView, StartGuest, WaitingJob
from coscheduler.gangs import Gang, Gangs
from coscheduler.happiness import FORMS
from coscheduler.history import History
from coscheduler.ledger import Ledger
from coscheduler.machine import Machine
from coscheduler.monitor import Monitor, Watched
from coscheduler.places import Places
from coscheduler.queuefile import Command
from coscheduler.queuelog import Entry, ended
from coscheduler.result import SharedQueue

PERIOD_S = 5.0
"""How often a rule is asked, besides when a job was submitted or has ended [s]."""
MONITOR_S = 1.0
"""How often containers are looked at [s]."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class RealWorld:
    """Jobs on a machine.

    Parameters
    ----------
    jobs
        Commands that will be submitted, at the times they say, counted from now.
    machine
        Nodes.
    directory
        Private one; each job gets one below it, where its output is.
    period_s
        How often a rule is asked at least [s].
    sampled
        Whether to keep what is measured, each time.
    happiness_form
        ``"rate"`` or ``"literal"``: see `coscheduler.happiness.happiness`.
    log
        Told of every decision, and of jobs that start and end, as it happens.
    clock
        Returns a time [s] that only grows.

    Raises
    ------
    InvalidInput
        When two jobs have one name, or a name cannot be that of a directory, or a job never fits.
    """

    def __init__(
        self,
        jobs: Iterable[Command],
        machine: Machine,
        directory: Path,
        *,
        period_s: float = PERIOD_S,
        sampled: bool = False,
        happiness_form: str = FORMS[0],
        log: Callable[[Entry], None] = lambda _entry: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        nodes = machine.nodes
        self._ledger, self._places = Ledger(sum(node.cores for node in nodes)), Places(nodes)
        self._commands: dict[str, Command] = {}
        for job in jobs:
            _check(job.request, self._commands, self._ledger.cores)
            self._commands[job.request.name] = job
        self._coming = sorted(self._commands.values(), key=lambda job: job.request.submitted)[::-1]
        self._machine, self._log = machine, log
        self._gangs, self._monitor = Gangs(machine, directory), Monitor(happiness_form)
        self._history = History((job.request, job.alone_s) for job in self._commands.values())
        self._ended: list[SharedRun] = []
        self._period_s, self._sampled = period_s, sampled
        self._clock, self._origin = clock, clock()
        self._look_at = self._monitor_at = 0.0

    # ------------------------------------------------------- the three calls

    def advance(self) -> SharingView | None:
        """Wait for the next moment at which a rule is asked; None once all jobs have ended.

        Raises
        ------
        Starved
            When jobs wait, none runs and none will be submitted: the rule has started nobody.
        """
        news = self._submit()
        while not news and self._now() < self._look_at:
            if not self._ledger.running and not self._coming:
                if self._ledger.queue:
                    raise Starved(f"job {self._ledger.queue[0].name!r} waits on an idle machine: start it")
                return None
            news = self._wait()
        self._look_at = self._now() + self._period_s
        return self._view()

    def apply(self, decisions: Iterable[SharingDecision]) -> None:
        """Do what a rule has decided, in order. A guest for whom there are no cores beside other guests is passed over.

        Raises
        ------
        IllegalDecision
            When one breaks a law; those before it were done.
        """
        for asked in decisions:
            now, decision = self._now(), asked
            self._ledger.apply(decision, now)
            match decision:
                case Start():
                    name = str(decision.job)
                    self._places.own(name, self._commands[name].request.cores)
                    self._start(name, now)
                case StartGuest():
                    decision = self._start_guest(decision, now)
                case Evict():
                    self._history.jobs[decision.guest].evictions += 1
                    self._gone(decision.guest)
            self._log(self._history.decided(decision, now).to_json())
            if isinstance(decision, Start | StartGuest):
                name = str(decision.job)
                nodes = [place.node for place in self._places[name]]
                self._log({"at": now, "event": "started", "job": name, "nodes": nodes})
        self._placed()

    def learned(self) -> tuple[SharedRun, ...]:
        """Jobs that have ended well since this was asked last, for the rule to learn from."""
        ended, self._ended = tuple(self._ended), []
        return ended

    def result(self) -> SharedQueue:
        """What came of the jobs that have ended."""
        return self._history.result(self._ledger.cores)

    # ------------------------------------------------------- time

    def _now(self) -> float:
        return self._clock() - self._origin

    def _submit(self) -> bool:
        """Jobs whose time has come join the queue; whether there were any."""
        before = len(self._coming)
        while self._coming and self._coming[-1].request.submitted <= self._now():
            self._ledger.submit(self._coming.pop().request)
        return len(self._coming) < before

    def _wait(self) -> bool:
        """Until something happens, or it is time for something; whether a rule is to be told of it."""
        until = min(self._look_at, self._monitor_at, self._gangs.next_renewal())
        if self._coming:
            until = min(until, self._coming[-1].request.submitted)
        over = self._gangs.hear(self._machine.news(max(0.0, until - self._now())))
        now = self._now()
        if now >= self._monitor_at or over:
            self._monitor_at = now + MONITOR_S
            self._monitor.look(now, self._machine.used(), self._ledger)
            if self._sampled:
                self._history.sample(self._view().running, self._monitor.busy(), now)
        for gang in over:
            self._end(gang)
        changed = self._count_nodes()
        self._gangs.renew(now)
        return self._submit() or bool(over) or changed

    # ------------------------------------------------------- jobs

    def _start(self, name: str, now: float) -> None:
        placed = self._ledger.running[name]
        hard = placed.share if placed.hard else 1.0
        gang = self._gangs.start(self._commands[name], self._places[name], guest=placed.host is not None, hard=hard)
        self._monitor.begin(placed.job, gang.directory, self._gangs.watched(name), now)

    def _start_guest(self, decision: StartGuest, now: float) -> SharingDecision:
        """What was done: nothing where other guests have the cores that it would need to keep when the host ends."""
        guests = [guest for guest in self._ledger.running[decision.host].guests if guest != decision.job]
        cores = self._commands[decision.job].request.cores
        if self._places.beside(decision.job, cores, decision.host, guests) is None:
            self._ledger.requeue(decision.job)
            return Keep(decision.host, {"passed over": decision.job, "because": "other guests have the cores"})
        self._start(decision.job, now)
        return decision

    def _end(self, gang: Gang) -> None:
        """All containers of a job have ended: by itself, by a failure, or with a node."""
        if gang.lost:
            self._lose(gang.job)
            return
        name, now, past = gang.job, self._now(), self._history.jobs[gang.job]
        past.ended = now
        watched = self._gone(name)
        if gang.problem:
            past.problem = f"{gang.problem}; its output is in {gang.directory}"
            self._log({"at": now, "event": "ended", "job": name, "problem": past.problem})
        else:
            if past.alone_s is None and not past.shared():
                past.alone_s = now - past.since
            run = _shared_run(watched, now - past.since, past.alone_s)
            self._ended.append(run)
            self._log({"at": now} | ended(run))
        self._leave(self._ledger.end(name))

    def _lose(self, name: str) -> None:
        """A job has lost a node: it is to run anew."""
        self._history.jobs[name].evictions += 1
        self._gone(name)
        self._leave(self._ledger.requeue(name))
        self._log({"at": self._now(), "event": "requeued", "job": name, "because": "a node of it was lost"})

    def _leave(self, heirs: Iterable[str]) -> None:
        """A host has given up its cores; these guests keep what they have."""
        for heir in heirs:
            self._places.inherit(heir)
            self._gangs.inherit(heir)
        self._placed()

    def _gone(self, name: str) -> Watched:
        """A job does not run any more, or is not to; what was seen of it."""
        self._gangs.stop(name)
        watched, past = self._monitor.jobs.pop(name), self._history.jobs[name]
        past.cpu_s += watched.cpu_s
        past.busy_s += watched.busy_s
        past.memory_s += watched.memory_s
        self._history.left(name, self._now())
        self._places.leave(name)
        return watched

    def _placed(self) -> None:
        """Somebody may have other cores, or another share of them, than before."""
        now, running = self._now(), self._ledger.running
        self._history.placed(self._ledger, now)
        for name, placed in running.items():
            if placed.host is None:
                shares = {guest: running[guest].share for guest in placed.guests}
                hard = any(running[guest].hard for guest in placed.guests)
                self._gangs.share_out(name, shares, hard=hard, now=now)

    # ------------------------------------------------------- nodes

    def _count_nodes(self) -> bool:
        """Nodes may come and go; whether any has."""
        there, known = {node.name: node for node in self._machine.nodes}, self._gangs.nodes
        gone, come = known.keys() - there.keys(), there.keys() - known.keys()
        for name in sorted(gone):
            for job in self._places.on(name):
                self._lose(job)
            self._places.lose(name)
            self._resize(-known.pop(name).cores)
        for name in sorted(come):
            known[name] = there[name]
            self._places.join(there[name])
            self._resize(there[name].cores)
        return bool(gone or come)

    def _resize(self, cores: int) -> None:
        """The machine has so many more cores, or fewer; jobs that are too large for it now have failed."""
        for job in self._ledger.resize(cores):
            now, past = self._now(), self._history.jobs[job.name]
            past.first = now if math.isnan(past.first) else past.first
            past.ended, past.problem = now, f"it needs {job.cores} cores, of which {self._ledger.cores} are left"
            self._log({"at": now, "event": "ended", "job": job.name, "problem": past.problem})

    def _view(self) -> SharingView:
        now = self._now()
        return self._ledger.view(now, self._monitor.states(self._ledger, now))


def _shared_run(watched: Watched, run_time_s: float, alone_s: float | None) -> SharedRun:
    asked = watched.asked
    parallel = watched.parallel_s / watched.watched_s if watched.watched_s else 1.0
    return SharedRun(
        asked.name, asked.application, asked.cores, asked.walltime_s, run_time_s, alone_s, watched.cpu_s, parallel,
        watched.most,
    )  # fmt: skip


def _check(job: WaitingJob, known: Mapping[str, Command], cores: int) -> None:
    if not _NAME.fullmatch(job.name):
        raise InvalidInput(f"job {job.name!r}: a name of letters, digits, '_', '-' and '.' expected, for its directory")
    if job.name in known:
        raise InvalidInput(f"there are two jobs called {job.name!r}: each needs a name of its own")
    if job.cores > cores:
        raise InvalidInput(f"job {job.name!r} asks for {job.cores} cores: the machine has {cores}")
