"""A plan without a workflow: calls come as they come, and allocations follow them.

It decides for the runner as `asa.workflows.plan` does: `on` folds an event, `decide` returns what should be done.

Notes
-----
How many allocations are wanted follows from the calls that have not ended. One that is not wanted any more is kept for
as long as it took to get: who releases it too early pays its wait again, who keeps it too long pays the same in idle
cores, so the loss is at most twice what it had to be (the rule of the ski rental).

Calls of another size are tasks of another stage, in the same allocations: larger ones are placed first, and where one
finds no room and no other allocation is coming, the cores that fall free are kept for it.

Where calls are announced, allocations for them are asked for as long ahead as the queue is expected to make wait.

References
----------
A. R. Karlin, M. S. Manasse, L. Rudolph, D. D. Sleator, "Competitive snoopy caching", Algorithmica 3 (1988), 79-119.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from asa.core.allocation import takes
from asa.core.decision import Ask, Cancel, Predict
from asa.core.errors import InvalidInput
from asa.core.event import Event, Predicted, RunState, TasksDone
from asa.core.job import Resources
from asa.core.run import FoldedRun, Held, StageProgress
from asa.core.stage import StageSpec
from asa.core.units import check_number
from asa.workflows.plan import Action, Finish, LaunchTasks, Release, Submit, Teach

_KEPT_LEAST_S = 5.0
_PREDICTED_FOR_S = 60.0  # how long a predicted wait is planned with


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
            if value is not None:
                check_number(name, value, 0)


@dataclass(frozen=True)
class Expected:
    """So many calls, by the name of their size, are expected to be there together at a time [s since the epoch]."""

    at: float
    calls: Mapping[str, int]


class Elastic(FoldedRun):
    """What should be done for calls: a run of one stage for each size of a call, whose numbers of tasks grow.

    Parameters
    ----------
    teaches
        Whether waits are worth learning.

    Attributes
    ----------
    closing
        No more calls will come.
    expected
        Calls that are announced, the next first.
    """

    def __init__(self, limits: Limits, *, teaches: bool = True) -> None:
        super().__init__()
        self.limits, self.closing = limits, False
        self.expected: tuple[Expected, ...] = ()
        self._teaches = teaches
        self._surplus: float | None = None  # since when there are more allocations than are wanted
        self._wait: Predicted | None = None

    @property
    def calls(self) -> StageProgress:
        """Calls of the size that was given first."""
        return next(iter(self.stages.values()))

    @property
    def spec(self) -> StageSpec:
        """The size of an allocation and of such a call."""
        return self.calls.spec

    @property
    def broken(self) -> str:
        return next((stage.error for stage in self.stages.values() if stage.error), "")

    @property
    def unfinished(self) -> int:
        """Calls that have not ended."""
        return sum(stage.unlaunched + stage.running for stage in self.stages.values())

    def target(self, now: float) -> int:
        """How many allocations the calls are worth, now or when one that is asked for now will have started."""
        if self._is_over:
            return 0
        counts = [(stage, stage.unlaunched + stage.running) for stage in self.stages.values()]
        wanted = max([self._worth(counts), *(self._worth(self._sized(each)) for each in self._due(now))])
        return max(self.limits.minimum, min(wanted, self.limits.maximum))

    def on(self, event: Event | TasksDone) -> None:
        super().on(event)
        if isinstance(event, Predicted):
            self._wait = event
        self._note_surplus(event.at[-1] if isinstance(event, TasksDone) else event.at)

    def decide(self, now: float) -> list[Action]:
        self._note_surplus(now)
        changes: list[Action] = [*self._predict(now), *self._ask(now), *self._let_go(now)]
        return changes or self._fill(now, ahead=False) or self._fill(now, ahead=True) or [*self._rest()]

    def wake_at(self, now: float) -> float:
        """When to decide again although nothing happened [s since the epoch]; infinite when there is no need."""
        times = [] if self.full is None else [self.full.again]
        if not self._is_over:
            for each in self.expected:
                times += [each.at - self._lead_s, each.at + _KEPT_LEAST_S]
            if self._wait is not None and self.expected and self.expected[-1].at > now:
                times.append(self._wait.at + _PREDICTED_FOR_S)
        for held in self.pool.held.values():
            times.append(held.overdue_at)
            if not held.ending:
                times += [held.drains or math.inf, self._kept_until(held)]
        return min((time for time in times if time > now), default=math.inf)

    def _worth(self, counts: Iterable[tuple[StageProgress, int]]) -> int:
        """How many allocations so many calls are worth: as many as hold them if they are packed well."""
        some, alone, most, whole = False, 0.0, 0.0, self.spec.resources
        cores = memory = gpus = 0.0
        for stage, count in counts:
            worth, task, at_once = float(count), stage.spec.task, slots(self.spec, stage.spec.task)
            if stage.mean_s is not None and self.limits.worth_s:
                worth = min(worth, count * stage.mean_s / self.limits.worth_s)
            some |= count > 0
            alone += worth * (at_once == 1)  # no two of these share one
            most = max(most, worth / at_once)
            cores += worth * task.cores / whole.cores
            memory += worth * (task.memory or 0) / (whole.memory or math.inf)
            gpus += worth * task.gpus / (whole.gpus or math.inf)
        return max(math.ceil(round(max(alone, most, cores, memory, gpus), 9)), some)

    def _sized(self, expected: Expected) -> Iterator[tuple[StageProgress, int]]:
        return ((self.stages[name], count) for name, count in expected.calls.items() if name in self.stages)

    def _due(self, now: float) -> Iterator[Expected]:
        """Calls that are expected so soon that an allocation for them is to be asked for, or kept."""
        return (each for each in self.expected if now < each.at + _KEPT_LEAST_S and each.at <= now + self._lead_s)

    @property
    def _lead_s(self) -> float:
        """How long ahead of calls allocations are asked for [s]."""
        return 0.0 if self._wait is None else self._wait.wait_s

    def _predict(self, now: float) -> Iterator[Action]:
        """Ask how long the queue would make wait, where calls are announced."""
        old = self._wait is None or now >= self._wait.at + _PREDICTED_FOR_S
        if self._teaches and old and not self._is_over and any(each.at > now for each in self.expected):
            yield Predict(self.spec.name)

    @property
    def _is_over(self) -> bool:
        done = self.closing and not self.unfinished
        return self.outcome is not RunState.RUNNING or bool(self.cancelling or self.broken) or done

    def _note_surplus(self, now: float) -> None:
        if not self.stages:
            return
        if self._useful(now) <= self.target(now):
            self._surplus = None
        elif self._surplus is None:
            self._surplus = now

    def _useful(self, now: float) -> int:
        return sum(self._is_of_use(held, now) for held in self.pool.held.values())

    def _is_of_use(self, held: Held, now: float) -> bool:
        """Whether it runs calls and takes more, or will."""
        if held.leaving(now):
            return False
        if held.running or held.ends is None:
            return True
        waiting = [stage for stage in self.stages.values() if stage.unlaunched]
        return any(self._may_take(held, stage, now) for stage in waiting or self.stages.values())

    def _may_take(self, held: Held, stage: StageProgress, now: float) -> bool:
        longest_s = stage.longest_s if stage.done else stage.spec.timeout_s or 0.0
        return held.ends is not None and takes(longest_s, now, held.ends, held.request.walltime_s)

    def _kept_until(self, held: Held) -> float:
        """Until when an allocation is kept that is not wanted [s since the epoch]; infinite while it is."""
        if held.running or self._surplus is None:
            return math.inf
        keep = self.limits.idle_s
        if keep is None:
            keep = max(_KEPT_LEAST_S, (self._surplus if held.started is None else held.started) - held.asked)
        return max(self._surplus, (held.asked if held.idle_since is None else held.idle_since)) + keep

    def _ask(self, now: float) -> Iterator[Action]:
        target = self.target(now)
        wanted = int(min(target - self._useful(now), self.room(now)))
        if wanted <= 0:
            return
        planned_s = None if next(self._due(now), None) is None else self._lead_s
        ask = Ask((self.spec.name,), self.spec.resources, self.spec.walltime_s, predicted_wait_s=planned_s)
        for number in range(self.asked, self.asked + wanted):
            yield Submit(f"{self.run}.{number}", ask)

    def _let_go(self, now: float) -> Iterator[Action]:
        """Release or cancel allocations that are not needed any more, those that wait first."""
        surplus = self._useful(now) - self.target(now)
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
        waiting = [stage for stage in self.stages.values() if stage.unlaunched]
        if self._is_over or not waiting:
            return launches
        held = [item for item in self.pool.held.values() if item.nodes and not item.leaving(now)]
        taken: dict[str, list[tuple[Resources, int]]] = {item.key: [] for item in held}
        for stage in sorted(waiting, key=lambda stage: slots(self.spec, stage.spec.task)):
            task, left = stage.spec.task, stage.unlaunched
            takers = [item for item in held if self._may_take(item, stage, now)]
            numbers = stage.waiting()
            for position, taker in enumerate(takers):
                count = min(left, taker.room(task, stage.ahead if ahead else 0.0, taken[taker.key]))
                if ahead:
                    count = min(count, math.ceil(left / (len(takers) - position)))
                if count:
                    launches.append(LaunchTasks(stage.spec.name, ranges(islice(numbers, count)), taker.key))
                    taken[taker.key].append((task, count))
                    left -= count
            if left and takers and not self._more_come(now):
                best = max(takers, key=lambda item: item.cores - item.cores_busy)
                taken[best.key].append((task, 1))  # else smaller ones might take its cores for ever
        return launches

    def _more_come(self, now: float) -> bool:
        """Whether more allocations are on their way, or may be asked for."""
        waits = any(held.started is None and not held.ending for held in self.pool.held.values())
        return waits or self._useful(now) < self.limits.maximum

    def _rest(self) -> Iterator[Action]:
        """What can wait until there is nothing else to do."""
        for wait in self.untaught.values() if self._teaches else ():
            yield Teach(wait, *wait.lesson(dependents_age=True))
        if self.outcome is RunState.RUNNING and self._is_over:
            if self.broken:
                yield Finish(RunState.FAILED, self.broken, self.spec.name)
            else:
                yield Finish(RunState.CANCELLED if self.cancelling else RunState.SUCCEEDED, self.cancelling)


def slots(spec: StageSpec, task: Resources | None = None) -> int:
    """Calls that run at once in one allocation; of another size, that of a `task`."""
    whole, one = spec.resources, task or spec.task
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
