"""The real world: a queue of commands on nodes that run containers, and jobs that share their cores.

What a rule decides is law for `coscheduler.ledger` first, as in the simulated world; then gangs of containers are
started and ended, and have other shares. Guests have containers on the nodes of their host.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from asa.core.decision import Start
from asa.core.errors import Starved
from asa.core.sharing import Evict, SharedRun, SharingDecision, SharingView, StartGuest, WaitingJob
from coscheduler.happiness import FORMS
from coscheduler.history import History
from coscheduler.ledger import Ledger
from coscheduler.queuefile import Command, check
from coscheduler.queuelog import Entry, ended
from coscheduler.real.gangs import Gang, Gangs
from coscheduler.real.machine import Machine
from coscheduler.real.monitor import Monitor, Watched
from coscheduler.real.places import Places
from coscheduler.result import SharedQueue

PERIOD_S = 5.0
"""How often a rule is asked, besides when a job was submitted or has ended [s]."""
MONITOR_S = 1.0
"""How often containers are looked at [s]."""
NODES_S = 60.0
"""How long an idle machine waits for nodes that were lost [s]."""
KILLED = "signal Killed"
"""How the end of a container is told that somebody has killed, the kernel for want of memory for example."""


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
        jobs: Sequence[Command],
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
        check(jobs, self._ledger.cores)
        self._commands = {job.request.name: job for job in jobs}
        self._coming = sorted(self._commands.values(), key=lambda job: job.request.submitted)[::-1]
        self._machine, self._log = machine, log
        self._gangs, self._monitor = Gangs(machine, directory), Monitor(happiness_form)
        self._history = History((job.request, job.alone_s) for job in self._commands.values())
        self._ended: list[SharedRun] = []
        self._period_s, self._sampled = period_s, sampled
        self._clock, self._origin = clock, clock()
        self._look_at = self._monitor_at = self._changed_at = 0.0

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
                if not self._ledger.queue:
                    return None
                self._check_idle()
            news = self._wait()
        self._look_at = self._now() + self._period_s
        return self._view()

    def apply(self, decisions: Iterable[SharingDecision]) -> None:
        """Do what a rule has decided, in order.

        Raises
        ------
        IllegalDecision
            When one breaks a law; those before it were done.
        """
        for decision in decisions:
            now = self._now()
            self._ledger.apply(decision, now)
            match decision:
                case Start():
                    name = str(decision.job)
                    self._places.own(name, self._commands[name].request.cores)
                    self._start(name, now)
                case StartGuest():
                    guests = [guest for guest in self._ledger.running[decision.host].guests if guest != decision.job]
                    self._places.beside(
                        decision.job, self._commands[decision.job].request.cores, decision.host, guests
                    )
                    self._start(decision.job, now)
                case Evict():
                    self._history.jobs[decision.guest].evictions += 1
                    self._gone(decision.guest)
            self._log(self._history.decided(decision, now).to_json())
            if isinstance(decision, Start | StartGuest):
                name = str(decision.job)
                nodes = [place.node for place in self._places[name]]
                self._log({"at": now, "event": "started", "job": name, "nodes": nodes})
        self._placed()

    def _check_idle(self) -> None:
        """Jobs wait, and nothing runs: the rule is to blame, or nodes that were lost and do not come back."""
        for job in self._ledger.queue:
            if job.cores <= self._ledger.cores:
                raise Starved(f"job {job.name!r} waits on an idle machine: start it")
        if self._now() >= self._changed_at + NODES_S:
            for job in self._ledger.queue:
                self._give_up(self._ledger.withdraw(job.name))

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
        changed = bool(over) | self._count_nodes()
        self._changed_at = now if changed else self._changed_at
        self._guard_memory()
        self._gangs.renew(now)
        return self._submit() or changed

    # ------------------------------------------------------- jobs

    def _start(self, name: str, now: float) -> None:
        placed, limits = self._ledger.running[name], None
        if placed.host is not None:
            share = {place.node: placed.share * place.cores for place in self._places[placed.host]}
            whole = {node.name: float(node.cores) for node in self._gangs.nodes.values()}
            limits = share if placed.hard else whole
        gang = self._gangs.start(self._commands[name], self._places[name], limits)
        self._monitor.begin(placed.job, gang.directory, self._gangs.watched(name), now)

    def _end(self, gang: Gang) -> None:
        """All containers of a job have ended: by itself, by a failure, or with a node."""
        if gang.lost:
            self._lose(gang.job, "a node of it was lost")
            return
        if gang.problem.endswith(KILLED) and self._ledger.running[gang.job].host is not None:
            self._lose(gang.job, "it was killed as a guest, for want of memory perhaps")
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
            run = _shared_run(watched, past.since, now, past.alone_s)
            self._ended.append(run)
            self._log({"at": now} | ended(run))
        self._leave(self._ledger.end(name))

    def _lose(self, name: str, why: str) -> None:
        """A job has lost its cores, and is not to blame: it is to run anew."""
        self._history.jobs[name].evictions += 1
        self._gone(name)
        self._leave(self._ledger.requeue(name))
        self._log({"at": self._now(), "event": "requeued", "job": name, "because": why})

    def _leave(self, heirs: Iterable[str]) -> None:
        """A host has given up its cores; these guests keep what they have."""
        for heir in heirs:
            self._places.inherit(heir)
            self._gangs.inherit(heir, self._now())
        self._placed()

    def _gone(self, name: str) -> Watched:
        """A job does not run any more, or is not to; what was seen of it."""
        self._gangs.stop(name)
        watched, past = self._monitor.jobs.pop(name), self._history.jobs[name]
        past.cpu_s += watched.cpu_by(self._now())
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
        """Nodes may come, grow and go; whether any has."""
        there, known = {node.name: node for node in self._machine.nodes}, self._gangs.nodes
        gone = [name for name in known if name not in there]
        for name in gone:
            for job in self._places.on(name):
                self._lose(job, "a node of it was lost")
            self._places.lose(name)
            self._ledger.resize(-known.pop(name).cores)
        more = [node for name, node in there.items() if name not in known or node.cores > known[name].cores]
        for node in more:
            before = known[node.name].cores if node.name in known else 0
            known[node.name] = node
            self._places.join(node.name, node.cores - before)
            self._ledger.resize(node.cores - before)
        return bool(gone or more)

    def _give_up(self, job: WaitingJob) -> None:
        """A job is too large for what is left of the machine, and nothing else is left to do."""
        now, past = self._now(), self._history.jobs[job.name]
        past.first = now if math.isnan(past.first) else past.first
        past.ended, past.problem = now, f"it needs {job.cores} cores, of which {self._ledger.cores} are left"
        self._log({"at": now, "event": "ended", "job": job.name, "problem": past.problem})

    def _guard_memory(self) -> None:
        """Where containers have more memory than their node, its last guest goes, whatever the rule."""
        used = dict.fromkeys(self._gangs.nodes, 0)
        for name, watched in self._monitor.jobs.items():
            for place, container in zip(self._places[name], watched.where, strict=True):
                used[place.node] += watched.resident.get(container.container, 0)
        for node in (node for node in self._gangs.nodes.values() if used[node.name] > node.memory):
            here = set(self._places.on(node.name))
            guests = [name for name, placed in self._ledger.running.items() if placed.host and name in here]
            if guests:
                self.apply([Evict(guests[-1], {"node": node.name, "memory": used[node.name] / node.memory})])

    def _view(self) -> SharingView:
        now = self._now()
        return self._ledger.view(now, self._monitor.states(self._ledger, now))


def _shared_run(watched: Watched, since: float, now: float, alone_s: float | None) -> SharedRun:
    asked = watched.asked
    parallel = watched.parallel_s / watched.watched_s if watched.watched_s else 1.0
    return SharedRun(
        asked.name, asked.application, asked.cores, asked.walltime_s, now - since, alone_s, watched.cpu_by(now),
        parallel, watched.most,
    )  # fmt: skip
