"""The right queue: of several partitions, QOS or accounts that a job may go to, the one that is expected to be best.

A pure function of what is known of each: limits, the expected wait, the price, and how often jobs there are preempted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from asa.core.errors import InvalidInput
from asa.core.job import QUEUE, Capabilities, Options, Resources, queue_name
from asa.core.units import HOUR, brief, check_number, clock

EQUAL_SHARE, EQUAL_S = 0.05, 60.0
"""Ends count as equal that are apart by less than this share of the time until then, or this [s]: where the user's time
has no price, the cheapest of them is taken."""

PRIOR_PER_HOUR, PRIOR_HOURS = 0.25, 4.0
"""How often an hour a job is taken to be preempted where jobs may be, and for how many hours of jobs that counts."""

_FEW_HOURS = 24.0  # in a queue whose jobs are not said to be preempted, one that was is taken for an accident


class Sized(Protocol):
    """A job that was, or is to be, asked for."""

    @property
    def resources(self) -> Resources: ...
    @property
    def walltime_s(self) -> float: ...


@dataclass(frozen=True)
class QueueTerms:
    """What the user says of queues.

    Parameters
    ----------
    price
        Price of a core-hour, by name: that of a partition, a QOS or an account, or several with ``+`` between; 1 where
        nothing is said.
    preempted
        How often an hour jobs there are preempted, by name; learned where nothing is said.
    twice
        Whether the same is asked for in the second best queue, too, and withdrawn when one of both starts.

    Raises
    ------
    InvalidInput
        When a number is negative or not finite.
    """

    price: Mapping[str, float] | None = None
    preempted: Mapping[str, float] | None = None
    twice: bool = True

    def __post_init__(self) -> None:
        for what, numbers in (("price", self.price), ("preempted", self.preempted)):
            if numbers is not None and not isinstance(numbers, Mapping):
                raise InvalidInput(f"{what}={numbers!r}: numbers by queue expected, such as {{'core': 1.0}}")
            for name, number in (numbers or {}).items():
                check_number(f"{what}[{name!r}]", number, 0)

    def check(self, queues: Iterable[Options]) -> None:
        """Refuse names that no job of the run can go to.

        Raises
        ------
        InvalidInput
            When there is one.
        """
        known = dict.fromkeys(name for options in queues for name in _names(options))
        for what, numbers in (("price", self.price), ("preempted", self.preempted)):
            if unknown := [name for name in numbers or () if name not in known]:
                there = ", ".join(known) or "none: say partition= of a stage"
                raise InvalidInput(f"{what} names {unknown[0]!r}, and no stage may go there; queues of stages: {there}")

    def price_in(self, options: Options) -> float:
        """Price of a core-hour there."""
        return next((self.price[name] for name in _names(options) if name in self.price), 1.0) if self.price else 1.0

    def preempted_in(self, options: Options, preemptible: bool, times: int, hours: float) -> float:
        """How often an hour jobs there are preempted: as said, or as `times` in so many `hours` of jobs make likely."""
        said = self.preempted or {}
        if (name := next((name for name in _names(options) if name in said), None)) is not None:
            return said[name]
        before, kept = (PRIOR_PER_HOUR * PRIOR_HOURS, PRIOR_HOURS) if preemptible else (0.0, _FEW_HOURS)
        return (before + times) / (kept + hours)


def _names(options: Options) -> list[str]:
    """What a queue may be called, the most exact name first."""
    asked = dict(options)
    return [name for name in dict.fromkeys((queue_name(options), *(asked.get(each, "") for each in QUEUE))) if name]


class QueueProspect(NamedTuple):
    """What is expected of a job in one queue.

    Parameters
    ----------
    options
        The queue.
    misfit
        Why it could never start there, or "".
    wait_s
        How long it is expected to wait [s], or None where nothing is known.
    basis
        What that follows from, in plain words.
    cores
        Cores that it is charged for there.
    price
        Price of a core-hour there.
    preempted
        How often an hour it is preempted there.
    """

    options: Options
    misfit: str = ""
    wait_s: float | None = None
    basis: str = "not known"
    cores: int = 1
    price: float = 1.0
    preempted: float = 0.0

    @property
    def name(self) -> str:
        return queue_name(self.options)


class ExpectedEnd(NamedTuple):
    """When a job will have done its work [s from now], and what that costs in core-hours at their price."""

    end_s: float
    cost: float


class QueueChoice(NamedTuple):
    """The queues that a job fits, the best one first; why that is so in plain words; the wait that is expected in the
    best one [s], or None."""

    ranked: tuple[Options, ...]
    why: str
    wait_s: float | None = None


def expect(prospect: QueueProspect, wait_s: float, run_s: float, piece_s: float) -> ExpectedEnd:
    """When work of so many seconds [s], of which at most a piece [s] is lost at a time, is over in one queue.

    Preemptions come by chance: a piece of s seconds takes (exp(r s) - 1) / r of running where they come at rate r, and
    each costs another wait.

    >>> calm, rough = QueueProspect((), cores=10), QueueProspect((), cores=10, preempted=1.0)
    >>> [round(each) for each in expect(calm, 60.0, 3600.0, 3600.0)]
    [3660, 10]
    >>> [round(each) for each in expect(rough, 60.0, 3600.0, 3600.0)], round(expect(rough, 60.0, 3600.0, 60.0).end_s)
    ([6349, 17], 3751)
    """
    rate, times = prospect.preempted / HOUR, 0.0
    if rate > 0.0:
        piece_s = min(piece_s, run_s) or run_s
        if rate * piece_s > 50.0:
            return ExpectedEnd(math.inf, math.inf if prospect.price else 0.0)
        times = run_s / piece_s * math.expm1(rate * piece_s)
        run_s = max(run_s, times / rate)
    return ExpectedEnd(wait_s * (1.0 + times) + run_s, prospect.price * prospect.cores * run_s / HOUR)


def choose(
    prospects: Sequence[QueueProspect], run_s: float, piece_s: float, patience: float | None = None
) -> QueueChoice:
    """The best queue for a job: where it is expected to be done first, or where that and the price are worth most.

    Parameters
    ----------
    prospects
        Of each queue, in the order that the user named them; the first of equal ones is taken.
    run_s, piece_s
        How long its work takes [s], and how much of it is lost when it is preempted [s].
    patience
        Core-hours that an hour of the user's time is worth; None to take the cheapest of those that end soonest.

    Examples
    --------
    >>> core = QueueProspect((("partition", "core"),), wait_s=7200.0, basis="its queue as it is seen")
    >>> low = QueueProspect((("partition", "low"),), wait_s=60.0, basis="its queue as it is seen", price=0.2)
    >>> choose([core, low], 3600.0, 3600.0).ranked[0]
    (('partition', 'low'),)
    """
    fitting = [each for each in prospects if not each.misfit]
    known = [each.wait_s for each in fitting if each.wait_s is not None]
    least_s = min(known, default=0.0)  # where nothing is known, it may be as good as anywhere
    found = [expect(each, least_s if each.wait_s is None else each.wait_s, run_s, piece_s) for each in fitting]
    first_s = min((each.end_s for each in found), default=0.0)
    most_s = first_s + max(EQUAL_S, EQUAL_SHARE * first_s)

    def rank(at: int) -> tuple[float, float, float]:
        end_s, cost = found[at]
        if patience is not None:
            return patience * end_s / HOUR + cost, end_s, at
        return (-1.0, cost, at) if end_s <= most_s else (end_s, cost, at)

    order = sorted(range(len(fitting)), key=rank)
    said = [_said(fitting[at], found[at]) for at in order]
    out = [f"{each.name} is left out: {each.misfit}" for each in prospects if each.misfit]
    by = "" if patience is None else f", an hour worth {patience:g} core-hours"
    words = f"queue {said[0]}{by}" if said else "no queue takes it"
    wait_s = fitting[order[0]].wait_s if order else None
    return QueueChoice(tuple(fitting[at].options for at in order), "; ".join([words, *said[1:], *out]), wait_s)


def _said(prospect: QueueProspect, expected: ExpectedEnd) -> str:
    """What is expected of one queue, in words."""
    wait = "an unknown wait" if prospect.wait_s is None else f"start in {brief(prospect.wait_s)}"
    basis = f" ({prospect.basis})" if prospect.wait_s is not None else ""
    end = f"end in {brief(expected.end_s)}" if expected.end_s < math.inf else "no end, so often is it preempted"
    risk = f", preempted {prospect.preempted:.2g} times an hour" if prospect.preempted else ""
    price = f", price {prospect.price:g} a core-hour" if prospect.price != 1.0 else ""
    return f"{prospect.name}: {wait}{basis}, {end}{risk}{price}"


def misfit(request: Sized, site: Capabilities, kind: str, *, spreads: bool = False) -> str | None:
    """Why a job could never start there, or None.

    Parameters
    ----------
    kind
        The system's word for a partition.
    spreads
        Whether a job that leaves the number of nodes open may have several.
    """
    need, largest = request.resources, site.largest
    where = f"{kind} {site.partition!r} of {site.site!r}"
    if largest is not None and not need.fits(largest):
        return f"{where} has room for {_size(largest)} at most, and the job asks for {_size(need)}"
    if largest is not None and largest.nodes is not None and (need.nodes or 1) > largest.nodes:
        return f"a job in {where} may have {largest.nodes} nodes, and this one asks for {need.nodes}"
    each = need.unit or (1 if spreads and need.nodes is None else need.cores // (need.nodes or 1))
    if site.cores_per_node is not None and each > site.cores_per_node:
        return f"nodes of {where} have {site.cores_per_node} cores at most, and the job asks for {each} on each"
    if site.longest_s is not None and request.walltime_s > site.longest_s:
        allowed, asked = clock(site.longest_s), clock(request.walltime_s)
        return f"{where} allows a wall time of {allowed}, and the job asks for {asked}"
    return None


def _size(resources: Resources) -> str:
    parts = [f"{resources.cores} cores"]
    if resources.nodes is not None:
        parts.append(f"{resources.nodes} nodes")
    if resources.memory is not None:
        parts.append(f"{resources.memory >> 20} MiB")
    if resources.gpus:
        parts.append(f"{resources.gpus} GPUs")
    return ", ".join(parts)
