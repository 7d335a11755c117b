"""Jobs as gangs of containers: one on each of a job's nodes, all of which run its command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from asa.security.files import private_directory
from coscheduler.queuefile import Command
from coscheduler.real.leases import Leases
from coscheduler.real.machine import Ended, Machine, News, Node, Program
from coscheduler.real.monitor import PROGRESS, Where
from coscheduler.real.places import Place

# Guests are the first whom the kernel ends when memory runs out. A shell is given the line as $0.
_SCRIPT = """\
[ "$ASA_GUEST" = 0 ] || echo 500 2>/dev/null >/proc/self/oom_score_adj
cd "$ASA_JOB_DIRECTORY" && exec >"stdout.$ASA_RANK" 2>"stderr.$ASA_RANK" && exec /bin/sh -c "$0"
"""


@dataclass(slots=True)
class Gang:
    """The containers of a job that runs.

    Parameters
    ----------
    job
        Its name.
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
    """

    job: str
    containers: tuple[str, ...]
    places: tuple[Place, ...]
    directory: Path
    left: set[str] = field(default_factory=set)
    problem: str = ""
    killed: bool = False
    lost: bool = False


class Gangs:
    """Starts gangs, hears of their ends, and sees to it that each has its share.

    Parameters
    ----------
    machine
        Runs the containers.
    directory
        Private one; below it each run of a job has a directory of its own, ``JOB/NUMBER``.
    """

    def __init__(self, machine: Machine, directory: Path) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in machine.nodes}
        self._machine, self._directory = machine, directory
        self._leases = Leases(machine)
        self._gangs: dict[str, Gang] = {}
        self._owners: dict[str, Gang] = {}
        self._runs: dict[str, int] = {}

    def start(self, command: Command, places: tuple[Place, ...], limits: Mapping[str, float] | None = None) -> Gang:
        """Start a job on these places.

        Parameters
        ----------
        limits
            Of a guest: cores that it has on each node at most; None for a job with cores of its own.

        Raises
        ------
        StateError
            When its directory cannot be made.
        """
        name = command.request.name
        number = self._runs.get(name, 0) + 1
        while (self._directory / name / str(number)).exists():  # the queue was run before, and is gone on with
            number += 1
        self._runs[name] = number
        containers = tuple(f"{name}.{number}.{rank}" for rank in range(len(places)))
        directory = private_directory(self._directory / name / str(number))
        gang = self._gangs[name] = Gang(name, containers, places, directory, set(containers))
        for rank, (container, place) in enumerate(zip(containers, places, strict=True)):
            self._owners[container] = gang
            limit = self.nodes[place.node].cores if limits is None else limits[place.node]
            request, limit = self._leases.begin(container, place.cores, guest=limits is not None, limit=float(limit))
            program = _program(command.line, gang, rank, limits is not None)
            self._machine.start(container, place.node, program, request, limit)
        return gang

    def stop(self, job: str) -> None:
        """A job is not to run any more; of its end nothing will be heard."""
        gang = self._gangs.pop(job)
        for container in gang.containers:
            self._owners.pop(container, None)
            self._leases.end(container)
        for container in gang.left:
            self._machine.stop(container)

    def hear(self, news: Iterable[News]) -> list[Gang]:
        """Gangs that have ended by this. When one container fails, the others are ended."""
        over = []
        for each in news:
            if not isinstance(each, Ended) or (gang := self._owners.pop(each.container, None)) is None:
                continue
            self._leases.end(each.container)
            gang.left.discard(each.container)
            gang.lost |= each.lost  # others of it may have failed because of that, and have been heard of before
            if each.problem and not gang.problem:
                gang.problem, gang.killed = each.problem, each.killed
                for container in gang.left:
                    self._machine.stop(container)
            if not gang.left:
                over.append(gang)
        return over

    def watched(self, job: str) -> list[Where]:
        """What monitoring must know of a job's containers."""
        gang = self._gangs[job]
        found = []
        for container, place in zip(gang.containers, gang.places, strict=True):
            node = self.nodes[place.node]
            found.append(Where(container, place.cores, node.speed, node.memory * place.cores / node.cores))
        return found

    # ------------------------------------------------------- shares

    def inherit(self, job: str, now: float) -> None:
        """A guest has the cores that it runs on to itself from now on [s]."""
        for container, place in self._alive(job):
            self._leases.inherit(container, place.cores, float(self.nodes[place.node].cores), now)

    def share_out(self, host: str, shares: Mapping[str, float], *, hard: bool, now: float) -> None:
        """Give every guest its share of its host's cores, on each of their nodes, and the host what is left there.

        Parameters
        ----------
        shares
            Guest -> share of the host's cores.
        hard
            Whether nobody may have more than that, be it idle.
        now
            [s].
        """
        cores = {place.node: place.cores for place in self._gangs[host].places}
        left = dict.fromkeys(cores, 1.0)
        for guest, share in shares.items():
            for place in self._gangs[guest].places:
                left[place.node] -= share
            self._want(guest, dict.fromkeys(cores, share), cores, hard=hard, now=now)
        self._want(host, left, cores, hard=hard, now=now)

    def next_renewal(self) -> float:
        """When `renew` is to be called again [s]; infinite while nothing is leased."""
        return self._leases.due()

    def renew(self, now: float) -> None:
        """Ask for shares again, lest they go back to what they were."""
        self._leases.renew(now)

    def _want(self, job: str, shares: Mapping[str, float], cores: Mapping[str, int], *, hard: bool, now: float) -> None:
        for container, place in self._alive(job):
            request = shares[place.node] * cores[place.node]
            limit = request if hard and shares[place.node] < 1 else float(self.nodes[place.node].cores)
            self._leases.want(container, request, limit, now)

    def _alive(self, job: str) -> list[tuple[str, Place]]:
        gang = self._gangs[job]
        return [pair for pair in zip(gang.containers, gang.places, strict=True) if pair[0] in gang.left]


def _program(line: str, gang: Gang, rank: int, guest: bool) -> Program:
    told = {
        "ASA_JOB": gang.job,
        "ASA_RANK": rank,
        "ASA_RANKS": len(gang.places),
        "ASA_CORES": gang.places[rank].cores,
        "ASA_JOB_DIRECTORY": gang.directory,
        "ASA_PROGRESS": gang.directory / PROGRESS.format(rank=rank),
        "ASA_GUEST": int(guest),
    }
    return Program(("/bin/sh", "-c", _SCRIPT, line), {key: str(value) for key, value in told.items()})
