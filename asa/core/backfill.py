"""Backfilling in plain Python: the profile of free resources over time, and the rule that plans with it.

The laboratory's compiled rules (`asa.lab.dispatchers`) decide alike on the tables of a simulation.

References
----------
A. W. Mu'alem and D. G. Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the
IBM SP2 with backfilling", IEEE TPDS 12(6), 2001. D. A. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995 (EASY).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from asa.core.decision import DispatchDecision, Reserve, Start
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.units import DAY
from asa.core.view import QueuedJob, QueueView

Amount = tuple[int, float, int]
"""Cores, bytes of memory (infinite where the machine does not tell) and GPUs."""


class Profile:
    """Resources that are free from `start` [s] on: a step function of time.

    It begins with what is free at `start`, rises where running jobs are expected to end, and falls while reservations
    last.

    Parameters
    ----------
    capacity
        What the machine has. Memory that it does not state is taken to be unlimited, memory that a job does not state
        to be nothing.
    start
        Begin of the profile [s].
    held
        Resources in use at `start`, each with the time [s] at which it is expected back. One that is overdue is still
        in use: it is expected back in the very next moment. Held resources may exceed the capacity (a machine that
        shrank); nothing is free then until enough of them are back.

    Examples
    --------
    Two of four cores are busy until 10. A job of three cores must wait for them; one of two cores need not.

    >>> profile = Profile(Resources(cores=4), 0.0, held=[(Resources(cores=2), 10.0)])
    >>> profile.earliest(Resources(cores=3), duration=5.0), profile.earliest(Resources(cores=2), duration=50.0)
    (10.0, 0.0)
    >>> profile.reserve(Resources(cores=3), 10.0, 5.0)
    >>> profile.fits(Resources(cores=2), 0.0, 10.0), profile.fits(Resources(cores=2), 0.0, 10.5)
    (True, False)
    """

    def __init__(self, capacity: Resources, start: float, held: Iterable[tuple[Resources, float]] = ()) -> None:
        room = math.inf if capacity.memory is None else capacity.memory
        soonest = math.nextafter(start, math.inf)
        releases = sorted(
            ((max(until, soonest), _amount(resources)) for resources, until in held), key=lambda release: release[0]
        )
        free: Amount = (capacity.cores, room, capacity.gpus)
        for _, amount in releases:
            free = _minus(free, amount)
        self._times: list[float] = [start]
        self._free: list[Amount] = [free]
        for until, (cores, memory, gpus) in releases:
            if until > self._times[-1]:
                self._times.append(until)
                self._free.append(self._free[-1])
            self._free[-1] = _minus(self._free[-1], (-cores, -memory, -gpus))

    def steps(self) -> Sequence[tuple[float, Amount]]:
        """Each time [s] at which the free amount changes, with the amount from then on; the last one lasts for ever."""
        return list(zip(self._times, self._free, strict=True))

    def fits(self, need: Resources, start: float, duration: float) -> bool:
        """Whether `need` is free from `start` [s] for `duration` [s]; False before the profile begins."""
        if start < self._times[0]:
            return False
        wanted, end = _amount(need), start + duration
        index = bisect_right(self._times, start) - 1
        while _within(wanted, self._free[index]):
            index += 1
            if index == len(self._times) or self._times[index] >= end:
                return True
        return False

    def earliest(self, need: Resources, duration: float, after: float = -math.inf) -> float:
        """First time [s], not before `after` [s], from which `need` is free for `duration` [s]; infinite when never."""
        wanted = _amount(need)
        begin = max(after, self._times[0])
        index = bisect_right(self._times, begin) - 1
        while True:
            fitting = _within(wanted, self._free[index])
            index += 1
            if index == len(self._times):
                return begin if fitting else math.inf
            if not fitting:
                begin = self._times[index]
            elif self._times[index] >= begin + duration:
                return begin

    def reserve(self, need: Resources, start: float, duration: float) -> None:
        """Take `need` out from `start` [s] for `duration` [s].

        Raises
        ------
        InvalidInput
            When it is not free for that long.
        """
        if not self.fits(need, start, duration):
            raise InvalidInput(f"{need} is not free from {start} for {duration} s: ask `earliest` when it is")
        wanted = _amount(need)
        end = max(start + duration, math.nextafter(start, math.inf))  # a box too thin for a float still counts
        first, last = self._cut(start), self._cut(end)
        self._free[first:last] = [_minus(free, wanted) for free in self._free[first:last]]

    def _cut(self, time: float) -> int:
        """Index of the step that begins at `time`, made by cutting one in two if need be."""
        if time == math.inf:
            return len(self._times)
        index = bisect_right(self._times, time) - 1
        if self._times[index] < time:
            index += 1
            self._times.insert(index, time)
            self._free.insert(index, self._free[index - 1])
        return index


def _amount(resources: Resources) -> Amount:
    return resources.cores, resources.memory or 0, resources.gpus


def _minus(free: Amount, amount: Amount) -> Amount:
    return free[0] - amount[0], free[1] - amount[1], free[2] - amount[2]


def _within(wanted: Amount, free: Amount) -> bool:
    return wanted[0] <= free[0] and wanted[1] <= free[1] and wanted[2] <= free[2]


@dataclass(frozen=True, slots=True)
class ReservationRule:
    """Start jobs in the queue's order; the first `depth` that cannot start get reservations, later ones fill the gaps.

    A job starts when it fits, for its whole wall time, beside the running jobs and all reservations. With depth 0 the
    first job that cannot start holds all others back (first come, first served); with 1 only the first blocked job is
    protected (EASY: its reservation is the shadow time); with infinity every one is (conservative). A job larger than
    the machine is passed over.

    Parameters
    ----------
    depth
        How many blocked jobs get a reservation; a whole number >= 0, or infinite.
    limit
        How many waiting jobs are looked at, from the front of the queue; a whole number >= 0, or infinite.
    window_s
        A job that could not start within that time gets no reservation [s]; >= 0.

    Raises
    ------
    InvalidInput
        When `depth` or `limit` is negative or not a whole number.

    Examples
    --------
    Four cores. R holds two of them until 10. A needs all four: it is promised 10, when R ends. B is short enough to be
    gone by then; C is not.

    >>> from asa.core.view import RunningJob
    >>> view = QueueView(
    ...     now=0.0,
    ...     capacity=Resources(cores=4),
    ...     queue=(
    ...         QueuedJob("A", Resources(cores=4), walltime_s=5.0, submitted=0.0),
    ...         QueuedJob("C", Resources(cores=1), walltime_s=11.0, submitted=0.0),
    ...         QueuedJob("B", Resources(cores=2), walltime_s=10.0, submitted=0.0),
    ...     ),
    ...     running=(RunningJob("R", Resources(cores=2), ends=10.0),),
    ... )
    >>> ReservationRule(depth=0).decide(view)
    []
    >>> ReservationRule(depth=1).decide(view)
    [Reserve(job='A', at=10.0), Start(job='B', nodes=(), preempts=())]
    >>> ReservationRule(depth=math.inf).decide(view)
    [Reserve(job='A', at=10.0), Reserve(job='C', at=15.0), Start(job='B', nodes=(), preempts=())]
    """

    depth: float = 1
    limit: float = math.inf
    window_s: float = math.inf

    def __post_init__(self) -> None:
        for name, value in (("depth", self.depth), ("limit", self.limit)):
            if not (value == math.inf or (value >= 0 and float(value).is_integer())):
                raise InvalidInput(f"backfill {name} must be a whole number of at least 0, or inf, not {value!r}")

    def decide(self, view: QueueView) -> list[DispatchDecision]:
        """What to start now, and which later starts are promised; in the queue's order."""
        return self.decide_in_order(view, view.queue)

    def decide_in_order(self, view: QueueView, queue: Sequence[QueuedJob]) -> list[DispatchDecision]:
        """As `decide`, with the waiting jobs in another order than the view's."""
        profile = Profile(view.capacity, view.now, [(job.resources, job.ends) for job in view.running])
        decisions: list[DispatchDecision] = []
        reserved = 0
        for job in queue[: int(min(self.limit, len(queue)))]:
            if profile.fits(job.resources, view.now, job.walltime_s):
                profile.reserve(job.resources, view.now, job.walltime_s)
                decisions.append(Start(job.key))
            elif reserved < self.depth:
                at = profile.earliest(job.resources, job.walltime_s)
                if at < math.inf and at <= view.now + self.window_s:
                    profile.reserve(job.resources, at, job.walltime_s)
                    decisions.append(Reserve(job.key, at))
                    reserved += 1
            elif self.depth == 0 and job.resources.fits(view.capacity):
                break
        return decisions


EASY = ReservationRule(depth=1)
"""EASY backfilling: the first blocked job has a reservation, the others fill what it leaves."""


def planned(view: QueueView) -> Profile:
    """The cores that are free when each waiting job has got the first place that those before it leave, as conservative
    backfilling does; every job uses all of its wall time.

    A wall time that is not known is taken to be the longest one in the view, or a day; what should be over is so in a
    second.

    Examples
    --------
    >>> from asa.core.view import RunningJob
    >>> running = RunningJob("a", Resources(4), 300.0)
    >>> planned(QueueView(0.0, Resources(4), (), (running,))).earliest(Resources(2), 60.0)
    300.0
    """
    left = [max(job.ends - view.now, 1.0) for job in view.running]
    walltimes = [job.walltime_s for job in view.queue]
    longest = max([0.0, *filter(math.isfinite, (*left, *walltimes))]) or DAY
    left, walltimes = ([time if math.isfinite(time) else longest for time in times] for times in (left, walltimes))
    sizes = [Resources(job.resources.cores) for job in view.running]
    ends = [view.now + left_s for left_s in left]
    profile = Profile(Resources(view.capacity.cores), view.now, list(zip(sizes, ends, strict=True)))
    for job, walltime_s in zip(view.queue, walltimes, strict=True):
        size = Resources(job.resources.cores)
        if (at := profile.earliest(size, walltime_s)) < math.inf:
            profile.reserve(size, at, walltime_s)
    return profile
