"""Our framework: takes offers, starts a crew's program on every agent of an allocation, and gangs all at once. No I/O.

In a pool that runs share it borrows, too (`borrowing`).

It withholds offers while a gang waits for more of them, for a limited time, so that other frameworks do not starve. One
that has waited for long is not passed by others any more. With nothing to start it suppresses offers.

What goes in are the events of the scheduler API, in any order the master may send them; what comes out are calls for a
driver, and `outcomes` for whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from executors.mesos.borrowing import Borrower
from executors.mesos.codec import Message
from executors.mesos.decisions import NEVER_S, Accept, Call, Decline, Kill, Outcome, Reconcile, Revive, Suppress
from executors.mesos.gang import Attempt, Gang, Member, Phase, first_fit
from executors.mesos.messages import TERMINAL, value_of
from executors.mesos.messages import field as part
from executors.mesos.offered import Need, Offered, Program, all_of, offered, task_info
from executors.mesos.resources import Resources

_OVER = TERMINAL | {"TASK_UNKNOWN"}  # the last: neither task nor agent are known to the master


@dataclass(frozen=True)
class Crew:
    """A program that is to run once on every agent with these attributes, and take all that the agent offers.

    Where it has ended well it does not run again before that is asked for; where it failed, it is tried a few times.

    Parameters
    ----------
    key
        Its name, which nothing else in the framework has.
    program
        Makes the program for an agent from its offer.
    attributes
        Which agents.
    """

    key: str
    program: Callable[[Offered], Program]
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class Patience:
    """How a framework treats offers.

    Parameters
    ----------
    hold_s
        How long offers are withheld for a gang that waits for more [s].
    pause_s
        How long they are left to others after that [s].
    passed_s
        A gang that has waited for so long is not passed by later ones any more [s].
    attempts
        How often a gang's start, or a crew's program on one agent, is tried before it has failed.
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

    Parameters
    ----------
    name
        Part of the ids of its tasks: those of an earlier life of the framework must have had another.
    patience
        How offers are treated.
    borrower
        Takes what other runs lend, if there are any.
    """

    name: str = "1"
    patience: Patience = field(default_factory=Patience)
    borrower: Borrower | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    """What is to be told; whoever reads them empties the list."""

    def __post_init__(self) -> None:
        self._crews: dict[str, Crew] = {}
        self._crewed: dict[str, tuple[str, str]] = {}  # task -> crew, agent
        self._tried: dict[tuple[str, str], int] = {}  # crew, agent -> how often its program has failed there
        self._rested: set[tuple[str, str]] = set()  # crew, agent: where it has ended well
        self._serial = 0
        self._gangs: dict[str, Attempt] = {}
        self._gang_of: dict[str, str] = {}  # task -> gang
        self._held: dict[str, Offered] = {}
        self._suppressed = False
        self._fresh: dict[str, str] = {}  # tasks of crews and leases that nothing has been heard of -> agent
        self._asked: float | None = None  # since when it is waited for news

    # ---------------------------------------------------------------- what is wanted

    def crew(self, crew: Crew, now: float) -> list[Call]:
        """Run a crew's program on every agent that has, or will have, its attributes."""
        self._crews[crew.key] = crew
        return self._use(now)

    def renew(self, now: float) -> list[Call]:
        """Run the crews' programs anew where they have ended well."""
        self._rested.clear()
        return [Revive(), *self._use(now)]

    def borrow(self, task: Need, count: int, now: float) -> list[Call]:
        """Borrow room for so many tasks of this size; there must be a borrower."""
        assert self.borrower, "only in a pool that is shared"
        self.borrower.want(task, count)
        return [*([Revive()] if count else []), *self._use(now)]

    def gang(self, gang: Gang, now: float) -> list[Call]:
        """Start a gang as soon as there is room for all of it."""
        self._gangs[gang.key] = Attempt(gang, now)
        return self._use(now)

    def withdraw(self, key: str, now: float) -> list[Call]:
        """End a crew's tasks, or a gang, and start no more of them."""
        calls: list[Call] = []
        if self._crews.pop(key, None):
            calls += [Kill(task, agent) for task, (crew, agent) in self._crewed.items() if crew == key]
        attempt = self._gangs.get(key)
        if attempt is not None:
            calls += self._end(attempt, "it was withdrawn", Phase.ENDING)
            self._settle(attempt)
        return [*calls, *self._use(now)]

    # ---------------------------------------------------------------- what happens

    def offers(self, messages: Iterable[Message], now: float) -> list[Call]:
        """Offers have come."""
        for message in messages:
            offer = offered(message, now)
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
        crewed = ((task, agent) for task, (_, agent) in self._crewed.items())
        leased = ((lease.key, lease.agent) for lease in self.borrower.leases.values()) if self.borrower else ()
        believed = (*crewed, *leased, *self._members())
        asked: list[Call] = [Reconcile(believed)] if believed else []
        return [Revive(), *asked, Reconcile(()), *self._use(now)]

    def update(self, status: Message, now: float) -> list[Call]:
        """A task's state has changed."""
        task, state = value_of(status, "task_id"), part(status, "state", str)
        agent = value_of(status, "agent_id", "")
        why = part(status, "message", str, "") or part(status, "reason", str, state)
        self._adopt(task, agent)
        self._fresh.pop(task, None)
        if self.borrower and task in self.borrower.leases:
            if state in _OVER and (lease := self.borrower.ended(task)):
                well = state == "TASK_FINISHED"
                self.outcomes.append(Outcome(lease.key, "finished" if well else "failed", "" if well else why, agent))
            return []
        if task in self._crewed:
            if state in _OVER:
                self._crew_ended(task, state == "TASK_FINISHED", why)
            return []
        attempt = self._gangs.get(self._gang_of.get(task, ""))
        member = attempt.members.get(task) if attempt else None
        if attempt is None or member is None:  # of an attempt that was given up while its agent was out of reach
            return [] if state in _OVER else [Kill(task, agent)]
        if member.ended(_OVER):
            return []
        member.state = state
        calls = self._judge(attempt, member, why)
        self._settle(attempt)
        return [*calls, *self._use(now)]

    def wake(self, now: float) -> list[Call]:
        """Time has passed."""
        return self._use(now)

    def due(self) -> float | None:
        """When to `wake` it at the latest [s since the epoch]; None when that does not matter."""
        times = [offer.made + self.patience.hold_s for offer in self._held.values()]
        if self._asked is not None:
            times.append(self._asked + self.patience.silence_s)
        return min(times, default=None)

    # ---------------------------------------------------------------- crews

    def _adopt(self, task: str, agent: str) -> None:
        """A crew's task of an earlier life of this framework is a crew's task still."""
        for key in self._crews:
            if task.startswith(f"{key}.{agent}."):
                self._crewed.setdefault(task, (key, agent))

    def _crew_ended(self, task: str, well: bool, why: str) -> None:
        key, agent = place = self._crewed.pop(task)
        if well:
            self._rested.add(place)
        else:
            self._tried[place] = self._tried.get(place, 0) + 1
        self.outcomes.append(Outcome(key, "finished" if well else "failed", "" if well else why, agent))

    def _start_crews(self, now: float) -> list[Call]:
        calls: list[Call] = []
        taken = {*self._crewed.values(), *self._rested}
        for crew in self._crews.values():
            for offer in [offer for offer in self._held.values() if offer.has(crew.attributes)]:
                place, need = (crew.key, offer.agent), all_of(offer.resources)
                tried = self._tried.get(place, 0)
                if place in taken or tried >= self.patience.attempts or need.cpus <= 0 or not offer.lasts(now):
                    continue
                self._serial += 1
                task = f"{crew.key}.{offer.agent}.{self.name}-{self._serial}"
                self._crewed[task] = place
                self._fresh[task] = offer.agent
                taken.add(place)
                del self._held[offer.id]
                resources = need.of(offer.resources)
                assert resources is not None, "what is offered is there"
                calls.append(Accept((offer.id,), (task_info(task, crew.key, offer, crew.program(offer), resources),)))
        return calls

    # ---------------------------------------------------------------- offers

    def _use(self, now: float) -> list[Call]:
        calls: list[Call] = [*self._start_crews(now), *self._start_gangs(now), *self._borrow(now)]
        waiting = any(attempt.phase is Phase.WAITING for attempt in self._gangs.values())
        stale = [offer.id for offer in self._held.values() if not waiting or now >= offer.made + self.patience.hold_s]
        wanted = waiting or bool(self._crews)
        if stale:
            calls.append(Decline(tuple(stale), self.patience.pause_s if waiting else NEVER_S))
            for key in stale:
                del self._held[key]
        if wanted is self._suppressed:  # a gang that was rolled back is waiting again, too
            self._suppressed = not wanted
            calls.append(Revive() if wanted else Suppress())
        return [*calls, *self._inquire(now)]

    def _inquire(self, now: float) -> list[Call]:
        """Ask for tasks that start, or are to end, and have not been heard of for long: calls and answers get lost."""
        unsure = (*self._fresh.items(), *self._members(Phase.LAUNCHING, Phase.ROLLING_BACK, Phase.ENDING))
        if not unsure:
            self._asked = None
            return []
        if self._asked is None:
            self._asked = now
        if now < self._asked + self.patience.silence_s:
            return []
        self._asked = now
        return [Reconcile(unsure)]

    def _members(self, *phases: Phase) -> tuple[tuple[str, str], ...]:
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
                self.outcomes.append(Outcome(lease.key, "leased", agent=lease.agent))
        return calls

    def _start_gangs(self, now: float) -> list[Call]:
        calls: list[Call] = []
        for attempt in self._gangs.values():
            if attempt.phase is not Phase.WAITING:
                continue
            places = first_fit(attempt.gang, list(self._held.values()), now)
            if places is not None:
                calls += self._launch(attempt, places)
            elif now - attempt.since >= self.patience.passed_s:
                break
        return calls

    def _launch(self, attempt: Attempt, places: Sequence[tuple[Offered, Resources]]) -> list[Call]:
        """One ACCEPT for each agent. What is left of an offer is offered anew."""
        gang, accepted = attempt.gang, dict[str, list[Message]]()
        members = attempt.begin([offer for offer, _ in places], self.name)
        for member, (offer, taken), program in zip(members, places, gang.programs, strict=True):
            self._gang_of[member.task] = gang.key
            info = task_info(member.task, gang.key, offer, program, taken)
            accepted.setdefault(offer.id, []).append(info)
        for used in accepted:
            del self._held[used]
        return [Accept((offer,), tuple(tasks)) for offer, tasks in accepted.items()]

    # ---------------------------------------------------------------- gangs

    def _judge(self, attempt: Attempt, member: Member, why: str) -> list[Call]:
        """What one member's new state means for all of it."""
        rank, state = member.rank, member.state
        bad = state in _OVER and state != "TASK_FINISHED"
        bad |= state == "TASK_UNREACHABLE"
        if bad and attempt.phase is Phase.LAUNCHING:
            return self._end(attempt, f"rank {rank} did not start: {why}", Phase.ROLLING_BACK)
        if bad and attempt.phase is Phase.RUNNING:
            return self._end(attempt, f"rank {rank} has ended: {why}", Phase.ENDING)
        if attempt.phase in (Phase.ROLLING_BACK, Phase.ENDING) and state == "TASK_RUNNING":
            return [Kill(member.task, member.agent)]  # once more: the first may not have arrived
        if attempt.phase is Phase.LAUNCHING and attempt.all_started():
            attempt.phase = Phase.RUNNING
            self.outcomes.append(Outcome(attempt.gang.key, "started"))
        return []

    def _end(self, attempt: Attempt, reason: str, phase: Phase) -> list[Call]:
        attempt.reason, attempt.phase = reason, phase
        return [Kill(item.task, item.agent) for item in attempt.members.values() if not item.ended(_OVER)]

    def _settle(self, attempt: Attempt) -> None:
        """A gang of which nothing runs any more is over, or waits again."""
        if attempt.phase is Phase.WAITING or attempt.phase is Phase.LAUNCHING:
            return
        if any(not member.ended(_OVER | {"TASK_UNREACHABLE"}) for member in attempt.members.values()):
            return
        for task in attempt.members:
            self._gang_of.pop(task, None)
        key = attempt.gang.key
        if attempt.phase is Phase.ROLLING_BACK and attempt.number < self.patience.attempts:
            attempt.members, attempt.phase = {}, Phase.WAITING
            self.outcomes.append(Outcome(key, "retried", attempt.reason))
            return
        del self._gangs[key]
        good = attempt.phase is Phase.RUNNING
        self.outcomes.append(Outcome(key, "finished" if good else "failed", attempt.reason))
