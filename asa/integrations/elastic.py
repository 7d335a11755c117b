"""A plan without a workflow: calls come as they come, and allocations follow them.

It decides for the runner as `asa.workflows.plan` does: `on` folds an event, `decide` returns what should be done.

Notes
-----
How many allocations are wanted follows from the calls that have not ended. One that is not wanted any more is kept for
as long as it took to get: whoever gives it back too early pays its wait again, whoever keeps it too long pays the same
in idle cores, so the loss is at most twice what it had to be (the rule of the ski rental).

References
----------
A. R. Karlin, M. S. Manasse, L. Rudolph, D. D. Sleator, "Competitive snoopy caching", Algorithmica 3 (1988), 79-119.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from asa.core.allocation import takes
from asa.core.decision import Ask, Cancel
from asa.core.errors import InvalidInput
from asa.core.event import Event, RunState, TasksDone
from asa.core.run import FoldedRun, Held, StageProgress
from asa.core.stage import StageSpec
from asa.workflows.plan import Action, Finish, LaunchTasks, Release, Submit, Teach

_KEPT_LEAST_S = 5.0


@dataclass(frozen=True)
class Limits:
    """How far allocations follow calls.

    Parameters
    ----------
    minimum, maximum
        Allocations, pending ones included, but not those that are about to end; 0 <= minimum <= maximum, maximum >= 1.
    idle_s
        How long an allocation is kept that is not wanted any more [s]; >= 0, or None for as long as it waited in the
        queue, and 5 s at least.
    worth_s
        Work that makes one more allocation worth while [s of all its cores]; >= 0. Until a call has ended, each is
        taken to be long.

    Raises
    ------
    InvalidInput
        When a number is out of range.
    """

    minimum: int = 0
    maximum: int = 1
    idle_s: float | None = None
    worth_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise InvalidInput(
                f"minimum={self.minimum} and maximum={self.maximum} allocations cannot be used: 0 <= minimum <= "
                "maximum expected, and maximum >= 1"
            )
        for name, value in (("idle", self.idle_s), ("worth", self.worth_s)):
            if value is not None and not 0 <= value < math.inf:
                raise InvalidInput(f"{name} must be a time of at least 0 s, not {value!r}")


class Elastic(FoldedRun):
    """What should be done for calls of one size: a run of one stage, whose number of tasks grows.

    Parameters
    ----------
    teaches
        Whether waits are worth learning.

    Attributes
    ----------
    closing
        No more calls will come.
    """

    def __init__(self, limits: Limits, *, teaches: bool = True) -> None:
        super().__init__()
        self.limits, self.closing = limits, False
        self._teaches = teaches
        self._surplus: float | None = None  # since when there are more allocations than are wanted

    @property
    def calls(self) -> StageProgress:
        (stage,) = self.stages.values()
        return stage

    @property
    def spec(self) -> StageSpec:
        """The size of an allocation and of a call; its name stands for all calls."""
        return self.calls.spec

    @property
    def width(self) -> int:
        return self.calls.width or 0

    @property
    def broken(self) -> str:
        return self.calls.error

    @property
    def unfinished(self) -> int:
        """Calls that have not ended."""
        return self.calls.unlaunched + self.calls.running

    @property
    def target(self) -> int:
        """How many allocations the calls are worth."""
        if self._is_over:
            return 0
        calls = self.unfinished
        worth = float(calls)
        if self.calls.mean_s is not None and self.limits.worth_s:
            worth = min(worth, calls * self.calls.mean_s / self.limits.worth_s)
        wanted = max(math.ceil(worth / slots(self.spec)), min(calls, 1))
        return max(self.limits.minimum, min(wanted, self.limits.maximum))

    def on(self, event: Event | TasksDone) -> None:
        super().on(event)
        self._note_surplus(event.at[-1] if isinstance(event, TasksDone) else event.at)

    def decide(self, now: float) -> list[Action]:
        changes: list[Action] = [*self._ask(now), *self._let_go(now)]
        return changes or self._fill(now, ahead=False) or self._fill(now, ahead=True) or [*self._rest()]

    def wake_at(self, now: float) -> float:
        """When to decide again although nothing happened [s since the epoch]; infinite when there is no need."""
        times = [] if self.full is None else [self.full.again]
        for held in self.pool.held.values():
            times.append(held.overdue_at)
            if not held.ending:
                times += [held.drains or math.inf, self._kept_until(held)]
        return min((time for time in times if time > now), default=math.inf)

    @property
    def _is_over(self) -> bool:
        done = self.closing and not self.unfinished
        return self.outcome is not RunState.RUNNING or bool(self.cancelling or self.broken) or done

    def _note_surplus(self, now: float) -> None:
        if self._useful(now) <= self.target:
            self._surplus = None
        elif self._surplus is None:
            self._surplus = now

    def _useful(self, now: float) -> int:
        return sum(self._is_of_use(held, now) for held in self.pool.held.values())

    def _is_of_use(self, held: Held, now: float) -> bool:
        """Whether it runs calls and takes more, or will."""
        return not held.leaving(now) and (bool(held.running) or held.ends is None or self._may_take(held, now))

    def _may_take(self, held: Held, now: float) -> bool:
        return held.ends is not None and takes(self.calls.longest_s, now, held.ends, held.request.walltime_s)

    def _kept_until(self, held: Held) -> float:
        """Until when an allocation is kept that is not wanted [s since the epoch]; infinite while it is."""
        if held.running or self._surplus is None:
            return math.inf
        keep = self.limits.idle_s
        if keep is None:
            keep = max(_KEPT_LEAST_S, (self._surplus if held.started is None else held.started) - held.asked)
        return max(self._surplus, (held.asked if held.idle_since is None else held.idle_since)) + keep

    def _ask(self, now: float) -> Iterator[Action]:
        wanted = min(self.target - self._useful(now), self.room(now))
        for number in range(self.asked, self.asked + int(wanted)):
            yield Submit(f"{self.run}.{number}", Ask((self.spec.name,), self.spec.resources, self.spec.walltime_s))

    def _let_go(self, now: float) -> Iterator[Action]:
        """Release or cancel allocations that are not needed any more, those that wait first."""
        surplus = self._useful(now) - self.target
        for held in sorted(self.pool.held.values(), key=lambda held: held.started is not None):
            if held.handle is None or held.cancelled is not None:
                continue
            if now >= held.overdue_at:
                yield Cancel(held.key, held.overdue)
            elif held.released is not None:
                continue
            elif self._is_over:
                yield _end(held, "no more calls will come")
            elif held.running:
                continue
            elif not self._is_of_use(held, now):
                yield Release(held.key, "too little of its wall time is left")
            elif surplus > 0 and now >= self._kept_until(held):
                surplus -= 1
                yield _end(held, "there are too few calls for it")

    def _fill(self, now: float, *, ahead: bool) -> list[Action]:
        """Launches of what waits; older allocations first, so that younger ones fall idle when there is little.

        Every core first; only when all are busy do short calls queue up in the allocations.
        """
        launches: list[Action] = []
        if self._is_over or not self.calls.unlaunched:
            return launches
        held = [item for item in self.pool.held.values() if item.nodes and not item.leaving(now)]
        takers = [item for item in held if self._may_take(item, now)]
        waiting, left = self.calls.waiting(), self.calls.unlaunched
        for position, taker in enumerate(takers):
            count = min(left, taker.room(self.spec.task, self.calls.ahead if ahead else 0.0))
            if ahead:
                count = min(count, math.ceil(left / (len(takers) - position)))
            if count:
                launches.append(LaunchTasks(self.spec.name, ranges(islice(waiting, count)), taker.key))
                left -= count
        return launches

    def _rest(self) -> Iterator[Action]:
        """What can wait until there is nothing else to do."""
        for wait in self.untaught.values() if self._teaches else ():
            yield Teach(wait, *wait.lesson(dependents_age=True))
        if self.outcome is RunState.RUNNING and self._is_over:
            if self.broken:
                yield Finish(RunState.FAILED, self.broken, self.spec.name)
            else:
                yield Finish(RunState.CANCELLED if self.cancelling else RunState.SUCCEEDED, self.cancelling)


def slots(spec: StageSpec) -> int:
    """Calls that run at once in one allocation."""
    whole, one = spec.resources, spec.task
    counts = [whole.cores // one.cores]
    if one.memory and whole.memory:
        counts.append(whole.memory // one.memory)
    if one.gpus:
        counts.append(whole.gpus // one.gpus)
    return min(counts)


def _end(held: Held, reason: str) -> Action:
    return Cancel(held.key, reason) if held.started is None else Release(held.key, reason)


def ranges(numbers: Iterator[int]) -> tuple[tuple[int, int], ...]:
    """Numbers, in order, as half-open ranges.

    >>> ranges(iter([7, 0, 1, 2, 5]))
    ((7, 8), (0, 3), (5, 6))
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)
