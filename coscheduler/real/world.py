"""The real world: a queue of commands on nodes that run containers, and jobs that share their cores.

The ledger applies each decision first, as in the simulated world, and refuses illegal ones; then gangs of containers
are started, ended, and given other shares. Guests have containers on the nodes of their host.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from asa.core.decision import Start
from asa.estimators.checks import check_positive
from coscheduler.history import Entry, History, SharedQueue
from coscheduler.ledger import Arrivals, Ledger, PlacedJob
from coscheduler.nouns import (
    FLOOR,
    LOOK_S,
    Evict,
    LookAgain,
    SetShare,
    SharedRun,
    SharingDecision,
    SharingView,
    StartGuest,
)
from coscheduler.queuefile import QueuedCommand, check
from coscheduler.real.gangs import Gangs, JobGang, NodeCores, Places
from coscheduler.real.machine import SharedMachine, SharedNode
from coscheduler.real.memory import MemoryGuard
from coscheduler.real.monitor import Monitor, WatchedJob
from coscheduler.standing import GangStarted, JobStanding, LeftQueue, RankEnded, entry_of

_log = logging.getLogger(__name__)

PERIOD_S = 5.0
"""How often a rule is asked, besides when a job was submitted or has ended [s]."""
STOPS_S = 5.0
"""So long after it was stopped a guest may still run [s]: the message may be late."""
NODES_S = 60.0
"""How long an idle machine waits for nodes that were lost [s]."""


class RealWorld:
    """Jobs on a machine.

    Parameters
    ----------
    jobs
        Commands that will be submitted, at the times they say.
    directory
        Private one; each job gets one below it, where its output is.
    period_s
        How often a rule is asked at least [s].
    sampled
        Whether to keep what is measured, each time.
    log
        Called with every decision, and with jobs that start and end, as it happens.
    since
        The time now [s]: where a queue that is gone on with has stopped, else 0.
    left
        What runs already, and is looked after from now on; the machine knows its containers.
    """

    def __init__(
        self,
        jobs: Sequence[QueuedCommand],
        machine: SharedMachine,
        directory: Path,
        *,
        period_s: float = PERIOD_S,
        sampled: bool = False,
        log: Callable[[Entry], None] | None = None,
        since: float = 0.0,
        left: LeftQueue | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        there, before = ((), ()) if left is None else (left.jobs, left.nodes)
        known = {node.name: node for node in (*before, *machine.nodes)}  # a node that was lost is there at first
        nodes = tuple(known.values())
        self._period_s, self._sampled = check_positive(period_s, "period_s"), sampled
        cores, whole = (sum(node.cores for node in some) for some in (nodes, before))
        self._ledger, self._places = Ledger(max(cores, whole)), Places(nodes)
        check(jobs, self._ledger.cores)
        self._ledger.resize(cores - self._ledger.cores)  # the rest may come back
        self._commands = {job.request.name: job for job in jobs}
        running = {job.job for job in there}
        self._arrivals = Arrivals((job.request for job in jobs if job.request.name not in running), self._ledger)
        self._machine, self._gangs, self._monitor = machine, Gangs(machine, directory), Monitor()
        self._history = History(((job.request, job.alone_s) for job in jobs), log)
        self._clock, self._origin = clock, clock() - since
        self._since = self._look_at = self._monitor_at = self._changed_at = since
        self._memory = MemoryGuard(self._commands)
        self._stopped: dict[str, float] = {}  # guest -> since when [s]
        self._stops = True  # until one went on running
        for node in machine.nodes:
            self._note_node(node)
        self._gangs.nodes = known
        for job in there:
            self._take_over(job)
        if there:
            self._placed()
            self._count_nodes()

    def advance(self) -> SharingView | None:
        news = self._arrivals.submit(self._now())
        while not news and self._now() < self._look_at:
            if not self._ledger.running and math.isinf(self._arrivals.next):
                if not self._ledger.queue:
                    return None
                self._check_idle()
            news = self._wait()
        self._look_at = self._now() + self._period_s
        return self._view()

    def apply(self, decisions: Iterable[SharingDecision]) -> None:
        for decision in decisions:
            now = self._now()
            if isinstance(decision, LookAgain):
                self._look_at = min(self._look_at, max(decision.at, now + LOOK_S))
                continue
            started = self._ledger.apply(decision, now)
            _log.info("at %.1f s: %s", now, _in_words(decision))
            self._history.decided(decision, now, started)  # before it is done: see `coscheduler.standing`
            if started is not None:
                self._start(started, now)
            if isinstance(decision, Evict):
                self._history.evicted(decision.guest, now, self._gone(decision.guest).used(now))
        self._placed()

    def _check_idle(self) -> None:
        """Jobs wait, and nothing runs: the rule is at fault, or nodes were lost and do not come back."""
        self._ledger.check_idle()
        if self._now() >= self._changed_at + NODES_S:
            for job in self._ledger.queue:
                self._ledger.withdraw(job.name)
                problem = f"it needs {job.cores} cores, of which {self._ledger.cores} are left"
                _log.warning("job %s will not run: %s", job.name, problem)
                self._history.failed(job.name, self._now(), problem)

    def learned(self) -> tuple[SharedRun, ...]:
        """Jobs that have ended well since this was asked last, for the rule to learn from."""
        return self._history.learned()

    def result(self) -> SharedQueue:
        return self._history.result(self._ledger.cores)

    def _now(self) -> float:
        return self._clock() - self._origin

    def _wait(self) -> bool:
        """Wait for the next event or time limit; whether the rule is to be asked."""
        until = min(self._look_at, self._monitor_at, self._gangs.leases.due(), self._arrivals.next)
        news = self._machine.news(max(0.0, until - self._now()))
        now = self._now()
        for gang, rank, end in self._gangs.parts(news):
            self._history.note(entry_of(RankEnded(now, gang.job, rank, end.problem, end.lost, end.killed)))
        over = self._gangs.on(news)
        if now >= self._monitor_at or over:
            self._monitor_at = now + LOOK_S
            self._monitor.look(now, self._machine.used(), self._ledger)
            if self._sampled:
                self._history.sample(self._view().running, self._monitor.busy(), now)
        for gang in over:
            self._end(gang)
        changed = bool(over) | self._count_nodes()
        self._changed_at = now if changed else self._changed_at
        self._guard_memory()
        self._guard_stopped()
        self._gangs.leases.renew(now)
        return self._arrivals.submit(self._now()) or changed

    def _start(self, name: str, now: float) -> None:
        placed = self._ledger.running[name]
        if placed.host is None:
            self._places.own(name, placed.job.cores)
        else:
            others = [guest for guest in self._ledger.running[placed.host].guests if guest != name]
            self._places.beside(name, placed.job.cores, placed.host, others)
        command = self._commands[name]

        def note(gang: JobGang) -> None:
            nodes, cores = zip(*gang.places, strict=True)
            requests = tuple(request for request, _ in gang.asked)
            self._history.note(entry_of(GangStarted(now, name, gang.run, nodes, cores, requests, command.line)))

        gang = self._gangs.start(command, self._places[name], self._limits(placed), note)
        self._monitor.begin(placed.job, gang.directory, self._gangs.watched(name), now)

    def _limits(self, placed: PlacedJob) -> dict[str, float] | None:
        """What a guest has on each node at most when nothing is leased; None for a job with cores of its own."""
        if placed.host is None:
            return None
        if placed.hard and placed.share:
            return {place.node: placed.share * place.cores for place in self._places[placed.host]}
        return {node.name: float(node.cores) for node in self._gangs.nodes.values()}

    def _take_over(self, job: JobStanding) -> None:
        """Look after a job that runs already, from its start on as if it had always been looked after."""
        name, share = job.job, job.share or 0.0
        self._ledger.submit(self._commands[name].request)
        start = Start(name) if job.host is None else StartGuest(name, job.host, max(share, FLOOR), job.hard)
        self._ledger.apply(start, job.since)
        if share < FLOOR and job.host is not None:
            self._ledger.apply(SetShare(name, share), job.since)
        places = tuple(map(NodeCores, job.run.nodes, job.run.cores))
        self._places.have(name, places, guest=job.host is not None)
        gang = self._gangs.take_over(job, places, self._limits(self._ledger.running[name]), self._since)
        watched = self._gangs.watched(name)
        self._monitor.begin(self._commands[name].request, gang.directory, watched, job.since, unseen=True)
        if job.asked is not None:
            self._memory.take_over(name, job.asked)
        self._history.taken_over(name, job.first, job.since, job.stays, job.evictions)
        self._history.note({"at": self._since, "event": "taken over", "job": name, "started": job.since})

    def _note_node(self, node: SharedNode) -> None:
        self._history.note({"at": self._now(), "event": "node", "node": asdict(node)})

    def _end(self, gang: JobGang) -> None:
        """All containers of a job have ended: by itself, by a failure, or with a node."""
        if gang.lost:
            self._lose(gang.job, "a node of it was lost")
            return
        name, now = gang.job, self._now()
        if gang.ended is not None:
            now = min(now, max(self._ledger.running[name].started, gang.ended - self._origin))
        if self._memory.asked(name, now):  # it need not be done, however it ended
            self._lose(name, "it ended after it was asked to save its state", away=True)
            return
        if gang.killed and self._ledger.running[name].host is not None:
            self._lose(name, "it was killed as a guest, for want of memory perhaps", away=True)
            return
        _log.info("at %.1f s: job %s has ended: %s", now, name, gang.problem or "well")
        seen = self._gone(name)
        if gang.problem:
            self._history.failed(name, now, f"{gang.problem}; its output is in {gang.directory}", seen.used(now))
        else:
            used, was_seen, lost_s = seen.used(now), now >= self._since, seen.lost_by_end_s(now)
            self._history.ended(name, now, used, parallel=seen.parallel, memory=seen.most, seen=was_seen, lost_s=lost_s)
        self._leave(self._ledger.end(name))

    def _lose(self, name: str, why: str, *, away: bool = False) -> None:
        """A job has lost its cores, and is not to blame: it is to run anew, but `away` from others' for a while."""
        now = self._now()
        if away:
            self._memory.send_away(name, now)
        _log.warning("at %.1f s: job %s goes back to the queue: %s", now, name, why)
        self._history.note({"at": now, "event": "requeued", "job": name, "because": why})
        self._history.evicted(name, now, self._gone(name).used(now))
        self._leave(self._ledger.requeue(name))

    def _leave(self, guests: Iterable[str]) -> None:
        """A host has given up its cores; these guests of it keep theirs."""
        for guest in guests:
            self._places.inherit(guest)
            self._gangs.inherit(guest, self._now())
            for node in self._memory.inherit(guest):
                self._gangs.hold_memory(guest, node, None, self._now())
        self._placed()

    def _gone(self, name: str) -> WatchedJob:
        """Stop a job, or clear up after one that has ended; what was measured of it."""
        self._gangs.stop(name)
        self._memory.gone(name)
        self._places.leave(name)
        return self._monitor.jobs.pop(name)

    def _placed(self) -> None:
        """Give every job its present share."""
        now, running = self._now(), self._ledger.running
        self._history.placed(self._ledger, now)
        self._monitor.have_guests(now, self._ledger)
        awake = {name for name in running if self._memory.asked(name, now)}
        stopped = [name for name, placed in running.items() if not placed.share and name not in awake]
        self._stopped = {name: self._stopped.get(name, now) for name in stopped}
        for name, placed in running.items():
            if placed.host is None:
                shares = {guest: running[guest].share for guest in placed.guests}
                hard = any(running[guest].hard for guest in placed.guests)
                if placed.guests and (lost_s := self._monitor.jobs[name].lost_s(now)) is not None:
                    self._history.slowed(name, now, lost_s, placed.guests)
                until = placed.started + placed.job.walltime_s
                self._gangs.share_out(name, shares, hard=hard, now=now, until=until, awake=awake)

    def _count_nodes(self) -> bool:
        """Take note of nodes that have come, grown or gone; whether any has."""
        there, known = {node.name: node for node in self._machine.nodes}, self._gangs.nodes
        gone = [name for name in known if name not in there]
        for name in gone:
            _log.warning("node %s is lost", name)
            for job in self._places.on(name):
                self._lose(job, "a node of it was lost")
            self._places.lose(name)
            self._ledger.resize(-known.pop(name).cores)
        more = [node for name, node in there.items() if name not in known or node.cores > known[name].cores]
        for node in more:
            before = known[node.name].cores if node.name in known else 0
            _log.info("node %s has %d cores", node.name, node.cores)
            known[node.name] = node
            self._note_node(node)
            self._places.join(node.name, node.cores - before)
            self._ledger.resize(node.cores - before)
        return bool(gone or more)

    def _guard_memory(self) -> None:
        """Have guests give way where a host's memory is short, whatever the rule."""
        now = self._now()
        nodes = self._memory.view(self._gangs.nodes, self._monitor.jobs, self._places, self._ledger, self._gangs.runs)
        steps = self._memory.steps(now, nodes, self._ledger)
        for step in steps:
            if step.to == "evicted":
                self._memory.send_away(step.guest, now)
                self.apply([Evict(step.guest, {"because": step.because})])
                continue
            event = "eased" if step.to == "running" else step.to
            self._history.note({"at": now, "event": event, "job": step.guest, "because": step.because})
            _log.info("at %.1f s: guest %s is %s: %s", now, step.guest, event, step.because)
        for guest, node, most in self._memory.limits(nodes, self._ledger):
            self._gangs.hold_memory(guest, node, most, now)
        for guest in (step.guest for step in steps if step.to == "asked"):
            self._placed()  # one that was stopped has to run for that
            saves = self._commands[guest].saves
            assert saves is not None, "others are not asked"
            self._gangs.signal(guest, saves.signal)

    def _guard_stopped(self) -> None:
        """Evict a guest that runs though it was stopped: its node keeps no limits, and no other is stopped."""
        for name, since in [*self._stopped.items()]:
            job = self._monitor.jobs[name]
            if job.at >= since + STOPS_S and job.cores > FLOOR * job.asked.cores:
                _log.warning("guest %s goes on though it was stopped: guests are evicted from now on", name)
                self._stops = False
                self.apply([Evict(name, {"host": self._ledger.running[name].host, "used": job.cores})])

    def _view(self) -> SharingView:
        now = self._now()
        states, done = self._monitor.states(self._ledger, now), self._monitor.reported(self._ledger)
        unhindered, instructions = self._monitor.unhindered(self._ledger, now), self._monitor.instructions(self._ledger)
        view = self._ledger.view(now, states, done, unhindered, instructions, stops=self._stops)
        queue = [replace(job, exclusive=True) if self._memory.is_away(job.name, now) else job for job in view.queue]
        return replace(view, queue=tuple(queue))


def _in_words(decision: SharingDecision) -> str:
    parts = (f"{each.name}={getattr(decision, each.name)}" for each in fields(decision) if each.name != "why")
    return f"{type(decision).__name__} {' '.join(parts)}"
