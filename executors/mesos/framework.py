"""Our framework: takes offers, runs a program on every node of an allocation, and starts gangs all at once. No I/O.

In a pool that several runs share it borrows, too: cores serve the run whose allocation they are, as long as it has work
for them. So an offer of another run's agent is declined at first: the master offers the same to that run at once. What
is offered again a little later no other run wanted, or those that did have more already, since the master serves first
the one that has least.

It withholds offers while a gang waits for more of them, for a limited time, so that other frameworks do not starve. A
gang that has waited for long is not overtaken by others any more. With nothing to start it suppresses offers.

What goes in are the events of the scheduler API, in any order the master may send them; what comes out are calls for a
driver, and `Framework.outcomes`. Workflows do without gangs: their tasks of several nodes start
inside supervisors. Gangs are for programs with a framework of their own.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from asa.core.units import MIB
from executors.mesos.codec import Message
from executors.mesos.messages import TERMINAL, identity, value_of
from executors.mesos.messages import field as field_of
from executors.mesos.resources import CAPACITY, Resources, parse, scalars, to_json

_log = logging.getLogger(__name__)

NEVER_S = 3600.0 * 24 * 30


class Accept(NamedTuple):
    """Launch these tasks from one agent's offers."""

    offers: tuple[str, ...]
    tasks: tuple[Message, ...]


class Decline(NamedTuple):
    """Give offers back, not to be offered the same for `refuse_s` [s]."""

    offers: tuple[str, ...]
    refuse_s: float


class Kill(NamedTuple):
    """End a task."""

    task: str
    agent: str


class Reconcile(NamedTuple):
    """Report the state of these tasks, as (task, agent); without any, of all tasks of the framework."""

    tasks: tuple[tuple[str, str], ...]


class Revive(NamedTuple):
    """All offers again, please."""


class Suppress(NamedTuple):
    """No offers for now."""


Call = Accept | Decline | Kill | Reconcile | Revive | Suppress


class FrameworkOutcome(NamedTuple):
    """What became of a gang, of a lease, or of a node program's task on one agent.

    `state` is ``started`` (all of it), ``retried`` (rolled back, waits again), ``leased``, ``finished`` or ``failed``;
    `reason` says in words why it did not go well.
    """

    key: str
    state: str
    reason: str = ""
    agent: str = ""


@dataclass(frozen=True)
class Offered:
    """What one agent offers: `resources` is what is left of it, `made` when it was made [s since the epoch].

    `ends` is when the agent becomes unavailable [s since the epoch], None when that is not known.
    """

    id: str
    agent: str
    hostname: str
    role: str
    resources: Resources
    attributes: Mapping[str, str]
    ends: float | None
    made: float

    @property
    def capacity(self) -> float | None:
        """Cores of the processor behind what the agent offers; None where it does not say, or makes no sense."""
        with suppress(ValueError):
            cores = float(self.attributes.get(CAPACITY, "nan"))
            return cores if 0 < cores < math.inf else None
        return None

    def has(self, wanted: Mapping[str, str]) -> bool:
        return all(self.attributes.get(name) == value for name, value in wanted.items())

    def lasts(self, until: float) -> bool:
        """Whether the agent is expected to be there for so long [s since the epoch]."""
        return self.ends is None or self.ends >= until

    def without(self, taken: Resources) -> Offered:
        """The same offer, less what a task takes."""
        return replace(self, resources=self.resources - taken)


class TaskNeed(NamedTuple):
    """What one task takes: cores, memory [bytes], GPUs."""

    cpus: float
    memory: int = 0
    gpus: int = 0

    def of(self, resources: Resources) -> Resources | None:
        """These amounts out of `resources`; None when there is not enough."""
        wanted = scalars(cpus=self.cpus, mem=self.memory / MIB, gpus=self.gpus)
        return wanted if resources.covers(wanted) else None


def all_of(resources: Resources) -> TaskNeed:
    """All cores, memory and GPUs that are there."""
    return TaskNeed(resources.scalar("cpus"), int(resources.scalar("mem") * MIB), int(resources.scalar("gpus")))


def parse_offer(offer: Message, now: float) -> Offered:
    """An Offer message, parsed; raises `BadMessage` when it lacks what every offer has."""
    begins = field_of(offer, "unavailability.start.nanoseconds", int, None)
    attributes = {
        field_of(item, "name", str): _attribute_text(item)
        for item in field_of(offer, "attributes", list, [])
        if isinstance(item, dict)
    }
    return Offered(
        id=value_of(offer, "id"),
        agent=value_of(offer, "agent_id"),
        hostname=field_of(offer, "hostname", str, ""),
        role=field_of(offer, "allocation_info.role", str, "*"),
        resources=parse(field_of(offer, "resources", list, [])),
        attributes=attributes,
        ends=None if begins is None else begins / 1e9,
        made=now,
    )


def _attribute_text(attribute: Message) -> str:
    for kind in ("text", "scalar"):
        if kind in attribute:
            return str(attribute[kind].get("value", "") if isinstance(attribute[kind], dict) else "")
    return ""


class TaskProgram(NamedTuple):
    """What a task runs: a program with its arguments, and variables for its environment."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def task_info(task_id: str, name: str, offer: Offered, program: TaskProgram, taken: Resources) -> Message:
    """The TaskInfo of a command task on the agent of an offer."""
    variables = [{"name": key, "value": value} for key, value in program.environment]
    command: Message = {"shell": False, "value": program.argv[0], "arguments": list(program.argv)}
    if variables:
        command["environment"] = {"variables": variables}
    return {
        "name": name,
        "task_id": identity(task_id),
        "agent_id": identity(offer.agent),
        "resources": to_json(taken, offer.role),
        "command": command,
    }


_NOT_STARTED = ("TASK_STAGING", "TASK_STARTING")


@dataclass(frozen=True)
class TaskGang:
    """What is to start together: one member for each program, each of which takes `need`.

    Agents without `attributes`, and those that become unavailable before `wall_s` [s] are over, are not used. `apart`
    gives each member an agent of its own.
    """

    key: str
    programs: tuple[TaskProgram, ...]
    need: TaskNeed
    wall_s: float = 0.0
    attributes: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False


class GangPhase(Enum):
    """Where a gang stands."""

    WAITING = "waiting"
    LAUNCHING = "launching"
    RUNNING = "running"
    ROLLING_BACK = "rolling back"
    """One could not start: the others end, then it waits again."""
    ENDING = "ending"
    """One has failed, or it was withdrawn: the others end, then it is over."""


GANG_TRANSITIONS: Mapping[tuple[GangPhase, str], GangPhase] = {
    (GangPhase.WAITING, "placed"): GangPhase.LAUNCHING,
    (GangPhase.LAUNCHING, "all started"): GangPhase.RUNNING,
    (GangPhase.LAUNCHING, "member failed"): GangPhase.ROLLING_BACK,
    (GangPhase.ROLLING_BACK, "all ended"): GangPhase.WAITING,  # if it may be tried again
    (GangPhase.RUNNING, "member failed"): GangPhase.ENDING,
} | {(phase, "withdrawn"): GangPhase.ENDING for phase in GangPhase}
"""(Phase, event) -> phase. A gang of which no member runs is over when it is RUNNING or ENDING."""


@dataclass
class GangMember:
    """A task of an attempt to start a gang."""

    rank: int
    task: str
    agent: str
    state: str = "TASK_STAGING"

    def ended(self, terminal: frozenset[str]) -> bool:
        return self.state in terminal


@dataclass
class GangAttempt:
    """A gang asked for at `since` [s since the epoch], in the attempt of this `number`; `members` by task id."""

    gang: TaskGang
    since: float
    number: int = 0
    phase: GangPhase = GangPhase.WAITING
    members: dict[str, GangMember] = field(default_factory=dict)
    reason: str = ""

    def begin(self, places: Sequence[Offered], name: str) -> list[GangMember]:
        """The members of the next attempt, each with the agent of its place; `name` is part of their tasks' ids."""
        self.number += 1
        self.transition("placed")
        members = [
            GangMember(rank, f"{self.gang.key}.{name}.{self.number}.{rank}", place.agent)
            for rank, place in enumerate(places)
        ]
        self.members = {member.task: member for member in members}
        return members

    def transition(self, event: str, reason: str = "") -> None:
        """Enter the next phase by `GANG_TRANSITIONS`."""
        before, self.phase, self.reason = self.phase, GANG_TRANSITIONS[self.phase, event], reason
        _log.info("gang %s: %s -> %s, %s %s", self.gang.key, before.value, self.phase.value, event, reason)

    def all_started(self) -> bool:
        """Whether every member has run, if only for a moment."""
        return all(member.state not in _NOT_STARTED for member in self.members.values())


def together(offers: Iterable[Offered]) -> list[Offered]:
    """Offers of one agent as one, with the id of the first: its cores may come in pieces, and never as a whole."""
    found: dict[tuple[str, str], Offered] = {}
    for offer in offers:
        key = offer.agent, offer.role
        known = found.get(key)
        found[key] = offer if known is None else replace(known, resources=known.resources + offer.resources)
    return [*found.values()]


def first_fit(gang: TaskGang, offers: Sequence[Offered], now: float) -> list[tuple[Offered, Resources]] | None:
    """A place for every member, offers in their order; None when there are not enough."""
    places: list[tuple[Offered, Resources]] = []
    for offer in offers:
        if not (offer.has(gang.attributes) and offer.lasts(now + gang.wall_s)):
            continue
        left = offer
        while len(places) < len(gang.programs):
            taken = gang.need.of(left.resources)
            if taken is None:
                break
            places.append((offer, taken))
            left = left.without(taken)
            if gang.apart:
                break
        if len(places) == len(gang.programs):
            return places
    return None


RUN = "run"
"""Attribute of an agent: the run that its allocation belongs to."""

PASS_S = 2.0
"""How long an offer of another run's agent is left to others before it is taken [s]."""

LEAST_S = 60.0
"""How much longer an agent must be there to be worth a lease [s]."""

_STALE_S = 30.0  # its owner may have used what was passed so long ago


class Lease(NamedTuple):
    """Part of an agent of another run, for a supervisor of this run; `key` is also the name of its task.

    The agent becomes unavailable at `until` [s since the epoch].
    """

    key: str
    agent: str
    lender: str
    need: TaskNeed
    until: float


@dataclass
class Borrower:
    """Takes what others leave, as long as more is wanted; `leases` are those that have not ended, by key.

    They are named by our run, by `name`, which is that of the framework, and by a number.
    """

    run: str
    name: str
    program: Callable[[Lease, Offered], TaskProgram]
    leases: dict[str, Lease] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._task, self._count = TaskNeed(1.0), 0
        self._serial = 0
        self._passed: dict[str, float] = {}  # agent -> when its offer was left to others

    @property
    def prefix(self) -> str:
        """What the keys of all our leases begin with, and nothing else's."""
        return f"{self.run}.lease-"

    def want(self, task: TaskNeed, count: int) -> None:
        """Take room for so many tasks of this size, and no more."""
        self._task, self._count = task, count
        if not count:
            self._passed.clear()

    def take(self, offers: Iterable[Offered], now: float) -> Iterator[tuple[Accept | Decline, Lease | None]]:
        """What to do with some of these offers, and the leases that come of it."""
        for offer in offers:
            lender = offer.attributes.get(RUN, self.run)
            if lender == self.run or not self._count or not offer.lasts(now + LEAST_S):
                continue
            if (count := self._fits(offer)) == 0:
                continue
            passed = self._passed.get(offer.agent, -math.inf)
            if now > passed + _STALE_S:
                passed = self._passed[offer.agent] = now
            if now < passed + PASS_S:
                yield Decline((offer.id,), passed + PASS_S - now), None
                continue
            lease = self._lease(offer, lender, count, now)
            yield Accept((offer.id,), (self._info(lease, offer),)), lease

    def ended(self, key: str) -> Lease | None:
        """A task has ended; its lease, if it was one."""
        lease = self.leases.pop(key, None)
        if lease is not None:
            self._passed.pop(lease.agent, None)
        return lease

    def _fits(self, offer: Offered) -> int:
        """How many of the wanted tasks there is room for."""
        there = (offer.resources.scalar(name) for name in ("cpus", "mem", "gpus"))
        needs = (self._task.cpus, self._task.memory / MIB, self._task.gpus)
        return min(
            [self._count, *(int(amount / need + 1e-9) for amount, need in zip(there, needs, strict=True) if need)]
        )

    def _lease(self, offer: Offered, lender: str, count: int, now: float) -> Lease:
        self._serial += 1
        self._count -= count
        cpus, memory, gpus = self._task
        need = TaskNeed(count * cpus, count * memory, count * gpus)
        if not need.memory:  # as much as goes with the cores
            share = need.cpus / offer.resources.scalar("cpus")
            need = need._replace(memory=int(share * offer.resources.scalar("mem")) * MIB)
        key = f"{self.prefix}{self.name}-{self._serial}"
        lease = Lease(key, offer.agent, lender, need, now + NEVER_S if offer.ends is None else offer.ends)
        self.leases[key] = lease
        del self._passed[offer.agent]
        return lease

    def _info(self, lease: Lease, offer: Offered) -> Message:
        taken = lease.need.of(offer.resources)
        assert taken is not None, "it fits"
        return task_info(lease.key, "lease", offer, self.program(lease, offer), taken)


_OVER = TERMINAL | {"TASK_UNKNOWN"}  # the last: neither task nor agent are known to the master


@dataclass(frozen=True)
class NodeProgram:
    """A program that is to run once on every agent with these attributes, and take all that the agent offers.

    Where it has ended well it does not run again before that is asked for; where it failed, it is tried a few times.
    """

    key: str
    program: Callable[[Offered], TaskProgram]
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class Patience:
    """How a framework treats offers.

    Parameters
    ----------
    hold_s
        How long offers are withheld for a gang that waits for more [s], at most.
    pause_s
        How long they are left to others after that [s].
    passed_s
        A gang that has waited for so long is not passed by later ones any more [s].
    attempts
        How often a gang's start, or a node program on one agent, is tried before it has failed.
    silence_s
        How long to wait for news of a task that starts or is to end, before its state is asked for [s].
    """

    hold_s: float = 10.0
    pause_s: float = 5.0
    passed_s: float = 60.0
    attempts: int = 3
    silence_s: float = 30.0


@dataclass
class Framework:
    """See the module. Every method returns the calls to make, in order.

    `name` is part of the ids of its tasks: those of an earlier life of the framework must have had another.
    """

    name: str = "1"
    patience: Patience = field(default_factory=Patience)
    borrower: Borrower | None = None
    outcomes: list[FrameworkOutcome] = field(default_factory=list)
    """What became of gangs and node programs; the reader empties the list."""

    def __post_init__(self) -> None:
        self._programs: dict[str, NodeProgram] = {}
        self._program_of: dict[str, tuple[str, str]] = {}  # task -> program, agent
        self._tried: dict[tuple[str, str], int] = {}  # program, agent -> how often its program has failed there
        self._finished: set[tuple[str, str]] = set()  # program, agent: where it has ended well
        self._serial = 0
        self._gangs: dict[str, GangAttempt] = {}
        self._gang_of: dict[str, str] = {}  # task -> gang
        self._held: dict[str, Offered] = {}
        self._rounds = 0  # how often offers were declined while a gang waited
        self._suppressed = False
        self._fresh: dict[str, str] = {}  # tasks of node programs and leases without an update so far -> agent
        self._asked: float | None = None  # since when it is waited for news

    # ---------------------------------------------------------------- what is wanted

    def add_program(self, program: NodeProgram, now: float) -> list[Call]:
        """Run a program on every agent that has, or will have, its attributes."""
        self._programs[program.key] = program
        return self._use(now)

    def renew(self, now: float) -> list[Call]:
        """Run the node programs again where they have ended well."""
        self._finished.clear()
        return [Revive(), *self._use(now)]

    def borrow(self, task: TaskNeed, count: int, now: float) -> list[Call]:
        """Borrow room for so many tasks of this size; there must be a borrower."""
        assert self.borrower, "only in a pool that is shared"
        self.borrower.want(task, count)
        return [*([Revive()] if count else []), *self._use(now)]

    def gang(self, gang: TaskGang, now: float) -> list[Call]:
        """Start a gang as soon as there is room for all of it."""
        self._gangs[gang.key] = GangAttempt(gang, now)
        return self._use(now)

    def withdraw(self, key: str, now: float) -> list[Call]:
        """End a node program's tasks, or a gang, and start no more of them."""
        calls: list[Call] = []
        if self._programs.pop(key, None):
            calls += [Kill(task, agent) for task, (program, agent) in self._program_of.items() if program == key]
        attempt = self._gangs.get(key)
        if attempt is not None:
            calls += self._end(attempt, "withdrawn", "it was withdrawn")
            self._settle(attempt)
        return [*calls, *self._use(now)]

    # ---------------------------------------------------------------- what happens

    def offers(self, messages: Iterable[Message], now: float) -> list[Call]:
        for message in messages:
            offer = parse_offer(message, now)
            self._held[offer.id] = offer
        return self._use(now)

    def rescinded(self, offer: str) -> None:
        """An offer is not valid any more."""
        self._held.pop(offer, None)

    def subscribed(self, now: float) -> list[Call]:
        """The stream is new: offers of the old one are void, what it suppressed may be forgotten, calls be lost.

        What is believed to run is asked for by name, since of a launch that was lost the master knows nothing; and then
        all there is, since there may be tasks of an earlier life.
        """
        self._held.clear()
        self._suppressed = False
        program_tasks = ((task, agent) for task, (_, agent) in self._program_of.items())
        leased = ((lease.key, lease.agent) for lease in self.borrower.leases.values()) if self.borrower else ()
        believed = (*program_tasks, *leased, *self._members())
        asked: list[Call] = [Reconcile(believed)] if believed else []
        return [Revive(), *asked, Reconcile(()), *self._use(now)]

    def update(self, status: Message, now: float) -> list[Call]:
        """A task's state has changed."""
        task, state = value_of(status, "task_id"), field_of(status, "state", str)
        agent = value_of(status, "agent_id", "")
        why = field_of(status, "message", str, "") or field_of(status, "reason", str, state)
        self._adopt(task, agent)
        self._fresh.pop(task, None)
        if self.borrower and task in self.borrower.leases:
            if state in _OVER and (lease := self.borrower.ended(task)):
                well = state == "TASK_FINISHED"
                self.outcomes.append(
                    FrameworkOutcome(lease.key, "finished" if well else "failed", "" if well else why, agent)
                )
            return []
        if task in self._program_of:
            if state in _OVER:
                self._program_ended(task, state == "TASK_FINISHED", why)
            return []
        attempt = self._gangs.get(self._gang_of.get(task, ""))
        member = attempt.members.get(task) if attempt else None
        if attempt is None or member is None:  # of an attempt that was given up while its agent was out of reach
            # The master answers a KILL there by saying so once more; when the agent is back, it says that, too.
            return [] if state in _OVER or state == "TASK_UNREACHABLE" else [Kill(task, agent)]
        if member.ended(_OVER):
            return []
        member.state = state
        calls = self._judge(attempt, member, why)
        self._settle(attempt)
        return [*calls, *self._use(now)]

    def wake(self, now: float) -> list[Call]:
        return self._use(now)

    def due(self) -> float | None:
        """When to `wake` it at the latest [s since the epoch]; None when that does not matter."""
        times = [offer.made + self._hold_s() for offer in self._held.values()]
        if self._asked is not None:
            times.append(self._asked + self.patience.silence_s)
        return min(times, default=None)

    # ---------------------------------------------------------------- node programs

    def _adopt(self, task: str, agent: str) -> None:
        """A node program's task that an earlier driver of this framework has started is its task still."""
        for key in self._programs:
            if task.startswith(f"{key}.{agent}."):
                self._program_of.setdefault(task, (key, agent))

    def _program_ended(self, task: str, well: bool, why: str) -> None:
        key, agent = place = self._program_of.pop(task)
        if well:
            self._finished.add(place)
        else:
            self._tried[place] = self._tried.get(place, 0) + 1
        self.outcomes.append(FrameworkOutcome(key, "finished" if well else "failed", "" if well else why, agent))

    def _start_programs(self, now: float) -> list[Call]:
        calls: list[Call] = []
        taken = {*self._program_of.values(), *self._finished}
        for program in self._programs.values():
            for offer in [offer for offer in self._held.values() if offer.has(program.attributes)]:
                place, need = (program.key, offer.agent), all_of(offer.resources)
                tried = self._tried.get(place, 0)
                # Whether it is over by our clock, which may be minutes ahead of the batch system's, does not matter.
                if place in taken or tried >= self.patience.attempts or need.cpus <= 0:
                    continue
                self._serial += 1
                task = f"{program.key}.{offer.agent}.{self.name}-{self._serial}"
                self._program_of[task] = place
                self._fresh[task] = offer.agent
                taken.add(place)
                del self._held[offer.id]
                resources = need.of(offer.resources)
                assert resources is not None, "what is offered is there"
                calls.append(
                    Accept((offer.id,), (task_info(task, program.key, offer, program.program(offer), resources),))
                )
        return calls

    # ---------------------------------------------------------------- offers

    def _use(self, now: float) -> list[Call]:
        calls: list[Call] = [*self._start_programs(now), *self._start_gangs(now), *self._borrow(now)]
        waiting = any(attempt.phase is GangPhase.WAITING for attempt in self._gangs.values())
        wanted = waiting or bool(self._programs)
        # All together, so that they come back together: each by itself, some would be away at any time.
        if any(not waiting or now >= offer.made + self._hold_s() for offer in self._held.values()):
            calls.append(Decline(tuple(self._held), self.patience.pause_s if waiting else NEVER_S))
            self._held.clear()
            self._rounds = self._rounds + 1 if waiting else 0
        if wanted is self._suppressed:  # a gang that was rolled back is waiting again, too
            self._suppressed = not wanted
            calls.append(Revive() if wanted else Suppress())
        return [*calls, *self._inquire(now)]

    def _hold_s(self) -> float:
        """For how long offers are withheld [s]: as long as is allowed at first, and then by chance at least half of it.

        Else two frameworks that each withhold what the other one waits for would exchange it, time and again.
        """
        share = zlib.crc32(f"{self.name} {self._rounds}".encode()) / 2**32 if self._rounds else 1.0
        return self.patience.hold_s * (0.5 + 0.5 * share)

    def _inquire(self, now: float) -> list[Call]:
        """Ask for tasks that start, or are to end, and had no update for long: calls and answers get lost."""
        unsure = (*self._fresh.items(), *self._members(GangPhase.LAUNCHING, GangPhase.ROLLING_BACK, GangPhase.ENDING))
        if not unsure:
            self._asked = None
            return []
        if self._asked is None:
            self._asked = now
        if now < self._asked + self.patience.silence_s:
            return []
        self._asked = now
        return [Reconcile(unsure)]

    def _members(self, *phases: GangPhase) -> tuple[tuple[str, str], ...]:
        """Tasks of gangs, in these phases or any, that have not ended."""
        return tuple(
            (member.task, member.agent)
            for attempt in self._gangs.values()
            if not phases or attempt.phase in phases
            for member in attempt.members.values()
            if not member.ended(_OVER)
        )

    def _borrow(self, now: float) -> list[Call]:
        calls: list[Call] = []
        for call, lease in self.borrower.take([*self._held.values()], now) if self.borrower else ():
            calls.append(call)
            for offer in call.offers:
                del self._held[offer]
            if lease is not None:
                self._fresh[lease.key] = lease.agent
                self.outcomes.append(FrameworkOutcome(lease.key, "leased", agent=lease.agent))
        return calls

    def _start_gangs(self, now: float) -> list[Call]:
        calls: list[Call] = []
        for attempt in self._gangs.values():
            if attempt.phase is not GangPhase.WAITING:
                continue
            places = first_fit(attempt.gang, together(self._held.values()), now)
            if places is not None:
                calls += self._launch(attempt, places)
            elif now - attempt.since >= self.patience.passed_s:
                break
        return calls

    def _launch(self, attempt: GangAttempt, places: Sequence[tuple[Offered, Resources]]) -> list[Call]:
        """One ACCEPT for each agent. What is left of an offer is offered anew."""
        gang, accepted = attempt.gang, dict[str, list[Message]]()
        members = attempt.begin([offer for offer, _ in places], self.name)
        for member, (offer, taken), program in zip(members, places, gang.programs, strict=True):
            self._gang_of[member.task] = gang.key
            info = task_info(member.task, gang.key, offer, program, taken)
            accepted.setdefault(offer.id, []).append(info)
        calls: list[Call] = []
        for first, tasks in accepted.items():
            place = self._held[first]
            used = [id for id, held in self._held.items() if (held.agent, held.role) == (place.agent, place.role)]
            for id in used:
                del self._held[id]
            calls.append(Accept(tuple(used), tuple(tasks)))
        return calls

    # ---------------------------------------------------------------- gangs

    def _judge(self, attempt: GangAttempt, member: GangMember, why: str) -> list[Call]:
        """What one member's new state means for all of it."""
        rank, state = member.rank, member.state
        bad = state in _OVER and state != "TASK_FINISHED"
        bad |= state == "TASK_UNREACHABLE"
        if bad and attempt.phase is GangPhase.LAUNCHING:
            return self._end(attempt, "member failed", f"rank {rank} did not start: {why}")
        if bad and attempt.phase is GangPhase.RUNNING:
            return self._end(attempt, "member failed", f"rank {rank} has ended: {why}")
        if attempt.phase in (GangPhase.ROLLING_BACK, GangPhase.ENDING) and state == "TASK_RUNNING":
            return [Kill(member.task, member.agent)]  # once more: the first may not have arrived
        if attempt.phase is GangPhase.LAUNCHING and attempt.all_started():
            attempt.transition("all started")
            self.outcomes.append(FrameworkOutcome(attempt.gang.key, "started"))
        return []

    def _end(self, attempt: GangAttempt, event: str, reason: str) -> list[Call]:
        attempt.transition(event, reason)
        return [Kill(item.task, item.agent) for item in attempt.members.values() if not item.ended(_OVER)]

    def _settle(self, attempt: GangAttempt) -> None:
        """A gang of which nothing runs any more is over, or waits again."""
        if attempt.phase is GangPhase.WAITING or attempt.phase is GangPhase.LAUNCHING:
            return
        if any(not member.ended(_OVER | {"TASK_UNREACHABLE"}) for member in attempt.members.values()):
            return
        for task in attempt.members:
            self._gang_of.pop(task, None)
        key = attempt.gang.key
        if attempt.phase is GangPhase.ROLLING_BACK and attempt.number < self.patience.attempts:
            self.outcomes.append(FrameworkOutcome(key, "retried", attempt.reason))
            attempt.members = {}
            attempt.transition("all ended", attempt.reason)
            return
        del self._gangs[key]
        good = attempt.phase is GangPhase.RUNNING
        self.outcomes.append(FrameworkOutcome(key, "finished" if good else "failed", attempt.reason))
