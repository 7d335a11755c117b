"""Free resources over time: what backfilling plans with.

A profile is a step function. It starts with what is free now, rises where running jobs are expected to end, and each
reservation cuts a box out of it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from asa.core.errors import InvalidInput
from asa.core.job import Resources

Amount = tuple[int, float, int]
"""Cores, bytes of memory (infinite where the machine does not tell) and GPUs."""


class Profile:
    """Resources that are free from `start` [s] on.

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
