"""Gangs: tasks that start together, each on an agent with room for it, or not at all. No I/O.

Workflows do without: their tasks of several nodes start inside supervisors. They are for programs with a framework of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from executors.mesos.offered import Need, Offered, Program
from executors.mesos.resources import Resources

_UNTOLD = ("TASK_STAGING", "TASK_STARTING")


@dataclass(frozen=True)
class Gang:
    """What is to start together.

    Parameters
    ----------
    key
        Its name, which nothing else in the framework has.
    programs
        One for each member.
    need
        What each member takes.
    wall_s
        How long it is expected to take [s]: agents that become unavailable sooner are not used.
    attributes
        Which agents may be used: those that have these.
    apart
        Whether every member must have an agent of its own.
    """

    key: str
    programs: tuple[Program, ...]
    need: Need
    wall_s: float = 0.0
    attributes: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False


class Phase(Enum):
    """Where a gang stands."""

    WAITING = "waiting"
    LAUNCHING = "launching"
    RUNNING = "running"
    ROLLING_BACK = "rolling back"
    """One could not start: the others end, then it waits again."""
    ENDING = "ending"
    """One has failed, or it was withdrawn: the others end, then it is over."""


@dataclass
class Member:
    """A task of an attempt to start a gang."""

    rank: int
    task: str
    agent: str
    state: str = "TASK_STAGING"

    def ended(self, terminal: frozenset[str]) -> bool:
        return self.state in terminal


@dataclass
class Attempt:
    """A gang, and how it stands.

    Parameters
    ----------
    since
        When it was asked for [s since the epoch].
    number
        How often its start has been tried.
    members
        Its tasks by id, in the attempt of that number.
    reason
        Why it is rolled back, or ends.
    """

    gang: Gang
    since: float
    number: int = 0
    phase: Phase = Phase.WAITING
    members: dict[str, Member] = field(default_factory=dict)
    reason: str = ""

    def begin(self, places: Sequence[Offered], name: str) -> list[Member]:
        """The members of the next attempt, each with the agent of its place; `name` is part of their tasks' ids."""
        self.number += 1
        self.phase, self.reason = Phase.LAUNCHING, ""
        members = [
            Member(rank, f"{self.gang.key}.{name}.{self.number}.{rank}", place.agent)
            for rank, place in enumerate(places)
        ]
        self.members = {member.task: member for member in members}
        return members

    def all_started(self) -> bool:
        """Whether every member has run, if only for a moment."""
        return all(member.state not in _UNTOLD for member in self.members.values())


def first_fit(gang: Gang, offers: Sequence[Offered], now: float) -> list[tuple[Offered, Resources]] | None:
    """A place for every member, offers in their order; None when there are not enough.

    Parameters
    ----------
    offers
        What is left of each.

    Returns
    -------
    list of (Offered, Resources)
        By rank: the offer, and what the member takes of it.
    """
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
