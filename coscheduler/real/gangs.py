"""Jobs as gangs of containers: one on each of a job's nodes; which cores they have there, and with which share."""

from __future__ import annotations

import logging
import math
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from asa.core.errors import AsaError
from asa.log.running import CHECKPOINT
from asa.security.files import private_directory
from coscheduler.nouns import BY_INSTRUCTIONS, FLOOR
from coscheduler.queuefile import QueuedCommand
from coscheduler.real.machine import ContainerEnded, ContainerEvent, ContainerProgram, SharedMachine, SharedNode
from coscheduler.real.monitor import INSTRUCTIONS, PROGRESS, ContainerPlace
from coscheduler.standing import JobStanding, container_name

_log = logging.getLogger(__name__)

STOPPED_CPUS = 0.01
"""What a container that is stopped may use at most [cores]: the least that agents give."""


class NodeCores(NamedTuple):
    """Cores of one node."""

    node: str
    cores: int


class Places:
    """Cores of all nodes, and who has them.

    Guests are on the nodes of their host, from its last one on, for what a job does alone it mostly does on its first.
    Two guests of one host never have the same cores, so that each can keep its own when the host ends.

    Examples
    --------
    >>> places = Places([SharedNode("a", 2, 1 << 30), SharedNode("b", 2, 1 << 30)])
    >>> places.own("host", 3)
    (NodeCores(node='a', cores=2), NodeCores(node='b', cores=1))
    >>> places.beside("guest", 2, "host", [])
    (NodeCores(node='b', cores=1), NodeCores(node='a', cores=1))
    >>> places.leave("host")
    >>> places.inherit("guest")
    >>> places.own("third", 2)
    (NodeCores(node='a', cores=1), NodeCores(node='b', cores=1))
    """

    def __init__(self, nodes: Iterable[SharedNode]) -> None:
        self._free = {node.name: node.cores for node in nodes}
        self._of: dict[str, tuple[NodeCores, ...]] = {}
        self._guests: set[str] = set()

    def __getitem__(self, job: str) -> tuple[NodeCores, ...]:
        return self._of[job]

    def own(self, job: str, cores: int) -> tuple[NodeCores, ...]:
        """Give a job free cores: the smallest gap that is large enough, else as few nodes as possible.

        There must be as many: `coscheduler.ledger` sees to that.
        """
        enough = [node for node, free in self._free.items() if free >= cores]
        if enough:
            order = [min(enough, key=self._free.__getitem__)]
        else:
            order = sorted(self._free, key=lambda node: -self._free[node])
        found = self._of[job] = _taken(((node, self._free[node]) for node in order), cores)
        self._take(found)
        return found

    def beside(self, job: str, cores: int, host: str, guests: Iterable[str]) -> tuple[NodeCores, ...]:
        """Give a job cores of its host that none of the other `guests` has.

        There must be as many: `coscheduler.ledger` sees to that.
        """
        left = {place.node: place.cores for place in self._of[host]}
        for place in (place for guest in guests for place in self._of[guest]):
            left[place.node] -= place.cores
        found = self._of[job] = _taken(reversed(left.items()), cores)
        self._guests.add(job)
        return found

    def have(self, job: str, places: tuple[NodeCores, ...], *, guest: bool) -> None:
        self._of[job] = places
        if guest:
            self._guests.add(job)
        else:
            self._take(places)

    def inherit(self, job: str) -> None:
        """The host of this guest has left: what the guest has is its own from now on."""
        self._guests.remove(job)
        self._take(self._of[job])

    def leave(self, job: str) -> None:
        places = self._of.pop(job)
        if job in self._guests:
            self._guests.remove(job)
            return
        for node, cores in places:
            self._free[node] += cores

    def join(self, node: str, cores: int) -> None:
        """A node has come, or come back, or has so many more cores."""
        self._free[node] = self._free.get(node, 0) + cores

    def lose(self, node: str) -> None:
        """A node is gone; no job may have cores of it any more."""
        assert all(place.node != node for places in self._of.values() for place in places), "jobs leave it first"
        del self._free[node]

    def on(self, node: str) -> list[str]:
        """Jobs that have cores of a node, guests first."""
        jobs = [job for job, places in self._of.items() if any(place.node == node for place in places)]
        return sorted(jobs, key=lambda job: job not in self._guests)

    def _take(self, places: Iterable[NodeCores]) -> None:
        for node, cores in places:
            self._free[node] -= cores


def _taken(offered: Iterable[tuple[str, int]], cores: int) -> tuple[NodeCores, ...]:
    """So many cores of what is offered, in that order."""
    found = []
    for node, free in offered:
        if taken := min(free, cores):
            found.append(NodeCores(node, taken))
            cores -= taken
    assert not cores, "as many are offered"
    return tuple(found)


LEASE_S = 5.0
"""For how long a node keeps a share that is not renewed [s]."""
STOP_MOST_S = 86400.0
"""For how long a node keeps a guest stopped at most [s]: no lease may be longer."""
RENEW_S = 2.0
"""How often a share is renewed [s]."""
AGAIN_S = 10.0
"""How often a permanent share is sent again [s]: nodes do not confirm it."""
RESERVED = 2 * FLOOR
"""Part of its cores that a host does not request: guests start with a request of `FLOOR` each."""
_NEAR = 0.15  # weights that differ by less are as good as the same


@dataclass(slots=True)
class _LeasedContainer:
    """What a container falls back to, what it has, and when that is to be renewed; [cores] and [s]."""

    request: float
    limit: float
    leased: tuple[float, float] | None = None
    until: float = 0.0
    """The lease lasts until then at least, if it is not renewed."""
    due: float = math.inf
    settled: bool = True
    """Whether it started with this: else it was sent to the node, which may not have received it."""
    memory: int | None = None
    """How much memory it may have before it is held up [bytes], while that is leased."""
    memory_due: float = math.inf

    def differs(self, request: float, limit: float) -> bool:
        return abs(request - self.request) > _NEAR * self.request or limit != self.limit


class Leases:
    """Requests and limits of the containers of a machine, leased, so that a dead co-scheduler harms no job for long.

    What a container starts with is what it falls back to: hosts to all but the reserve, without a limit, and guests to
    the least share. Anything else is leased, and renewed while it is wanted. A guest that is stopped stays so without a
    co-scheduler, too, until the wall time of its host is over: its host's bound holds for so long.
    """

    def __init__(self, machine: SharedMachine) -> None:
        self._machine = machine
        self._all: dict[str, _LeasedContainer] = {}

    def begin(self, container: str, cores: int, *, guest: bool, limit: float) -> tuple[float, float]:
        """Request and limit [cores] that a container is to be started with.

        Parameters
        ----------
        cores
            Of the node, that its job has there.
        limit
            What it may have at most [cores], to its end unless that is changed.
        """
        own = self._all[container] = _LeasedContainer(cores * (FLOOR if guest else 1 - RESERVED), limit)
        return own.request, own.limit

    def inherit(self, container: str, cores: int, limit: float, now: float) -> None:
        """A guest's container has the cores to itself from now on [s], for good."""
        self.take_over(container, cores, guest=False, limit=limit, now=now)

    def take_over(self, container: str, cores: int, *, guest: bool, limit: float, now: float) -> None:
        """A container that runs already has this from now on [s], for good: see `begin`."""
        self.begin(container, cores, guest=guest, limit=limit)
        self._all[container].settled = False
        self._renew(container, self._all[container], now)

    def want(self, container: str, request: float, limit: float, now: float, until: float = 0.0) -> None:
        """From now on [s], a container is to have this request and limit [cores].

        Parameters
        ----------
        until
            The node keeps to it until then [s], or for `LEASE_S` if that is longer, though nothing is renewed.
        """
        own = self._all[container]
        if not own.differs(request, limit):
            if own.leased is None:
                return
            if own.until > now + LEASE_S:  # it must not last because a message was lost
                own.settled = False
            own.leased, own.until = None, 0.0
            if own.settled:
                own.due = math.inf
                self._ask(container, own.request, own.limit, 0.0)
            else:
                self._renew(container, own, now)
        elif own.leased != (request, limit):
            own.leased, own.until = (request, limit), until
            self._renew(container, own, now)

    def hold_memory(self, container: str, memory: int | None, now: float) -> None:
        """From now on [s] a container may have so much memory before it is held up [bytes]; None for any amount."""
        own = self._all[container]
        own.memory, own.memory_due = memory, math.inf if memory is None else now + RENEW_S
        self._machine.hold_memory(container, memory, None if memory is None else LEASE_S)

    def end(self, container: str) -> None:
        self._all.pop(container, None)

    def due(self) -> float:
        """When `renew` is to be called again [s]; infinite while there is nothing to be asked for."""
        return min((min(own.due, own.memory_due) for own in self._all.values()), default=math.inf)

    def renew(self, now: float) -> None:
        """Renew what is leased, and send again what is permanent."""
        for container, own in self._all.items():
            if own.due <= now:
                self._renew(container, own, now)
            if own.memory_due <= now:
                self.hold_memory(container, own.memory, now)

    def _renew(self, container: str, own: _LeasedContainer, now: float) -> None:
        if own.leased is None:
            own.due = now + AGAIN_S
            self._ask(container, own.request, own.limit, None)
        else:
            own.due = now + RENEW_S
            self._ask(container, *own.leased, min(STOP_MOST_S, max(LEASE_S, own.until - now)))

    def _ask(self, container: str, request: float, limit: float, lease_s: float | None) -> None:
        try:
            self._machine.share(container, request, limit, lease_s)
        except AsaError as error:  # it has just ended, or its agent does not answer
            _log.debug("the share of %s was not changed, and is renewed later: %s", container, error)


# Guests are the first whom the kernel ends when memory runs out. A shell is given the line as $0.
_SCRIPT = """\
[ "$ASA_GUEST" = 0 ] || echo 500 2>/dev/null >/proc/self/oom_score_adj
cd "$ASA_JOB_DIRECTORY" && exec >"stdout.$ASA_RANK" 2>"stderr.$ASA_RANK" && exec "$@" /bin/sh -c "$0"
"""

EVENT = "instructions"
"""What is counted of a job whose bound goes by that: one of `coscheduler.counters.EVENTS`."""


@dataclass(slots=True)
class JobGang:
    """The containers of a job that runs.

    Parameters
    ----------
    containers, places
        In order of rank.
    directory
        Where it runs, and where its output is.
    left
        Containers that have not ended.
    problem, killed
        Why the first of them failed, "" while none has, and whether it was killed.
    lost
        Whether any has lost its node.
    run
        How often the job was started, this time included.
    asked
        Request and limit that each container starts with [cores]; empty for a job that was taken over.
    ended
        When the last one ended that was taken over, by `time.monotonic` [s].
    """

    job: str
    containers: tuple[str, ...]
    places: tuple[NodeCores, ...]
    directory: Path
    run: int
    asked: list[tuple[float, float]] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    problem: str = ""
    killed: bool = False
    lost: bool = False
    ended: float | None = None

    def take_note(self, end: ContainerEnded) -> None:
        """One of its containers has ended."""
        self.left.discard(end.container)
        self.lost |= end.lost  # other containers may have failed because of that, and have ended before
        if end.problem and not self.problem:
            self.problem, self.killed = end.problem, end.killed
        if end.ended is not None:
            self.ended = max(end.ended, self.ended or end.ended)


_On = tuple[NodeCores, ...]
_Limits = Mapping[str, float] | None


class Gangs:
    """Starts gangs, notices their ends, and gives each its share.

    Parameters
    ----------
    directory
        Private one; below it each run of a job has a directory of its own, ``JOB/NUMBER``.
    """

    def __init__(self, machine: SharedMachine, directory: Path) -> None:
        self.nodes: dict[str, SharedNode] = {node.name: node for node in machine.nodes}
        self._machine, self._directory = machine, directory
        self.leases = Leases(machine)
        self._gangs: dict[str, JobGang] = {}
        self._owners: dict[str, JobGang] = {}
        self._runs: dict[str, int] = {}

    def start(self, command: QueuedCommand, places: _On, limits: _Limits, note: Callable[[JobGang], None]) -> JobGang:
        """Start a job on these places.

        Parameters
        ----------
        limits
            Of a guest: cores that it has on each node at most; None for a job with cores of its own.
        note
            Called before anything is started.
        """
        name = command.request.name
        number = self._runs.get(name, 0) + 1
        while (self._directory / name / str(number)).exists():  # the queue was run before, and is gone on with
            number += 1
        gang = self._add(name, number, places)
        for container, place in zip(gang.containers, places, strict=True):
            limit = self.nodes[place.node].cores if limits is None else limits[place.node]
            gang.asked.append(self.leases.begin(container, place.cores, guest=limits is not None, limit=float(limit)))
        note(gang)
        for rank, (container, place) in enumerate(zip(gang.containers, places, strict=True)):
            program, (request, limit) = _program(command, gang, rank, limits is not None), gang.asked[rank]
            _log.info("container %s starts on %s: request %g, limit %g", container, place.node, request, limit)
            self._machine.start(container, place.node, program, request, limit)
        return gang

    def take_over(self, job: JobStanding, places: _On, limits: _Limits, now: float) -> JobGang:
        """Look after a job that another co-scheduler has started, with these limits (see `start`) from now on [s]."""
        gang = self._add(job.job, job.run.number, places)
        for rank, end in job.ended.items():
            container = gang.containers[rank]
            self._owners.pop(container)
            gang.take_note(ContainerEnded(container, end.problem, end.lost, end.killed))
        for container, place in self._alive(job.job):
            limit = float(self.nodes[place.node].cores) if limits is None else limits[place.node]
            self.leases.take_over(container, place.cores, guest=limits is not None, limit=limit, now=now)
            if gang.problem:
                self._machine.stop(container)
        return gang

    def _add(self, name: str, number: int, places: _On) -> JobGang:
        containers = tuple(container_name(name, number, rank) for rank in range(len(places)))
        directory = private_directory(self._directory / name / str(number))
        gang = self._gangs[name] = JobGang(name, containers, places, directory, number, left=set(containers))
        self._runs[name] = number
        self._owners |= dict.fromkeys(containers, gang)
        return gang

    def stop(self, job: str) -> None:
        """A job is not to run any more; its end is not reported."""
        gang = self._gangs.pop(job)
        for container in gang.containers:
            self._owners.pop(container, None)
            self.leases.end(container)
        for container in gang.left:
            self._machine.stop(container)

    def hold_memory(self, job: str, node: str, memory: int | None, now: float) -> None:
        """From now on [s] a job's container on this node may have so much [bytes] before it is held up; None: any
        amount.

        One that does not answer is held up less, or more, than it should be.
        """
        for container in (container for container, place in self._alive(job) if place.node == node):
            self.leases.hold_memory(container, memory, now)

    def signal(self, job: str, name: str) -> None:
        for container, _ in self._alive(job):
            self._machine.signal(container, name)

    def on(self, news: Iterable[ContainerEvent]) -> list[JobGang]:
        """Gangs that have ended by these events. When one container fails, the others are ended."""
        over = []
        for each in news:
            if not isinstance(each, ContainerEnded) or (gang := self._owners.pop(each.container, None)) is None:
                continue
            _log.info("container %s has ended: %s", each.container, each.problem or "well")
            self.leases.end(each.container)
            failed_before = bool(gang.problem)
            gang.take_note(each)
            if gang.problem and not failed_before:
                for container in gang.left:
                    self._machine.stop(container)
            if not gang.left:
                over.append(gang)
        return over

    def runs(self, container: str) -> bool:
        """Whether a container of a gang has not ended."""
        return container in self._owners

    def parts(self, news: Iterable[ContainerEvent]) -> list[tuple[JobGang, int, ContainerEnded]]:
        """Of these events, ends of ranks of gangs of which others are left: gang, rank, event."""
        ends = {each.container: each for each in news if isinstance(each, ContainerEnded)}
        found = [(self._owners[name], end) for name, end in ends.items() if name in self._owners]
        return [(gang, gang.containers.index(end.container), end) for gang, end in found if gang.left - ends.keys()]

    def watched(self, job: str) -> list[ContainerPlace]:
        """A job's containers, for `Monitor`."""
        gang = self._gangs[job]
        found = []
        for container, place in zip(gang.containers, gang.places, strict=True):
            node = self.nodes[place.node]
            found.append(ContainerPlace(container, place.cores, node.speed, node.memory * place.cores / node.cores))
        return found

    def inherit(self, job: str, now: float) -> None:
        """A guest has the cores that it runs on to itself from now on [s]."""
        for container, place in self._alive(job):
            self.leases.inherit(container, place.cores, float(self.nodes[place.node].cores), now)

    def share_out(
        self, host: str, shares: Mapping[str, float], *, hard: bool, now: float, until: float, awake: Collection[str]
    ) -> None:
        """Give every guest its share of its host's cores, on each of their nodes, and the host what is left there.

        Parameters
        ----------
        shares
            Guest -> share of the host's cores; 0: it is stopped.
        hard
            Whether no job may have more than that, be it idle.
        until
            The end of the host's wall time [s]. A stopped guest stays stopped until then, without a co-scheduler too.
        awake
            Guests that are not stopped, whatever their share: they save their state.
        """
        cores = {place.node: place.cores for place in self._gangs[host].places}
        left = dict.fromkeys(cores, 1.0)
        for guest, share in shares.items():
            for place in self._gangs[guest].places:
                left[place.node] -= share
            given = FLOOR if not share and guest in awake else share
            self._want(guest, dict.fromkeys(cores, given), cores, hard, now, until)
        self._want(host, left, cores, hard, now, until)

    def _want(
        self, job: str, shares: Mapping[str, float], cores: Mapping[str, int], hard: bool, now: float, until: float
    ) -> None:
        for container, place in self._alive(job):
            share, most = shares[place.node], cores[place.node]
            if share:
                limit = share * most if hard and share < 1 else float(self.nodes[place.node].cores)
                self.leases.want(container, share * most, limit, now)
            else:
                self.leases.want(container, FLOOR * most, STOPPED_CPUS, now, until)

    def _alive(self, job: str) -> list[tuple[str, NodeCores]]:
        gang = self._gangs[job]
        return [pair for pair in zip(gang.containers, gang.places, strict=True) if pair[0] in gang.left]


def _program(command: QueuedCommand, gang: JobGang, rank: int, guest: bool) -> ContainerProgram:
    variables = {
        "ASA_JOB": gang.job,
        "ASA_RANK": rank,
        "ASA_RANKS": len(gang.places),
        "ASA_CORES": gang.places[rank].cores,
        "ASA_JOB_DIRECTORY": gang.directory,
        "ASA_PROGRESS": gang.directory / PROGRESS.format(rank=rank),
        "ASA_GUEST": int(guest),
    }
    line = command.line
    if command.saves is not None:
        variables[CHECKPOINT] = private_directory(gang.directory.parent / "checkpoint")
        number = signal.Signals[f"SIG{command.saves.signal}"].value  # shells do not know all names
        line = f"trap : {number}\n{line}"  # it is for what the shell runs
    counts: tuple[str, ...] = ()
    if command.request.bound_by == BY_INSTRUCTIONS:
        counts = sys.executable, "-P", "-m", "coscheduler.counters", EVENT, INSTRUCTIONS.format(rank=rank)
    argv = "/bin/sh", "-c", _SCRIPT, line, *counts
    return ContainerProgram(argv, {key: str(value) for key, value in variables.items()})
