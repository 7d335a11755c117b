"""The plan of a run: what should be done next. A state machine without I/O.

`FoldedRun.on` folds an event and decides nothing; `Plan.decide` looks at the state and returns what should be done,
changing nothing of it; all that it keeps is the strategy's answer, until the state changes. Every action, once done,
comes back as an event. So the same plan is replayed from a log, and runs on real clocks and in virtual time."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, starmap
from operator import attrgetter
from typing import TYPE_CHECKING, overload

from asa.core.allocation import takes
from asa.core.decision import SOONEST_S, Amend, Ask, Cancel, Predict, StrategyDecision, Wake
from asa.core.event import RunState, WidthChosen
from asa.core.job import Capabilities, DependencyKind, Options, QueueRegime, Resources
from asa.core.ports import DecidesByStage, GuestRule, HostTasks, Reach, Strategy
from asa.core.registry import GUEST_RULES
from asa.core.run import NOTHING, UNRESPONSIVE_S, FoldedRun, Held, Launchable, Pool, StageProgress, Wait
from asa.core.stage import LearnedRequest, StageSpec, StageState, Width, again
from asa.core.units import brief
from asa.core.view import AllocationView, Extent, StageView, WorkflowView

if TYPE_CHECKING:
    from asa.core.width import PricedWidth

_WORTHWHILE = 0.2  # the part of a wall time that has to be left for a task that goes on elsewhere afterwards

CHOSEN_S = 600.0
"""How long it stands how wide a stage is to be [s], until its job is asked for."""

LOOKED_UP_MOST = 10_000
"""Tasks for which results are looked for at once."""


_LOOKED_AT_MOST = 50
"""Stages of an allocation that are looked at to find one that keeps it from ending."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a job under this token; into this `queue` if it is a second request, `instead` of that of this name."""

    token: str
    ask: Ask
    queue: Options | None = None
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """Let an allocation end with exit code 0."""

    allocation: str
    reason: str


@dataclass(frozen=True, slots=True)
class LaunchTasks:
    """Give tasks of a stage to an allocation, as half-open index ranges; as guests of the `host` if there is one."""

    stage: str
    ranges: tuple[tuple[int, int], ...]
    allocation: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class Expand:
    """Find out how many tasks a stage has: its predecessors are done."""

    stage: str


@dataclass(frozen=True, slots=True)
class Add:
    """Find out which stages a task, which is done, adds to the run."""

    stage: str
    index: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look for results of earlier runs that stand for the tasks `start` to `stop` - 1 of a stage, which is ready."""

    stage: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Retry:
    """Let tasks of a stage that failed be tried again: they have waited for long enough."""

    stage: str
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Grow:
    """Raise what a stage needs: a task of it had too little. `bounded` says why it is not raised by more, or ""."""

    stage: str
    resources: Resources
    task: Resources
    walltime_s: float
    timeout_s: float | None
    bounded: str


@dataclass(frozen=True, slots=True)
class Mold:
    """Choose how wide a stage is to be, which is ready in `ready_s` [s]: see `asa.core.width.choose`.

    `estimated` says how waits of these widths are found: by the estimator, if that looks ahead by itself (True); else
    by a plan of the queue, where it can be seen, which tells sizes apart better than what was learned of a few (False);
    not at all where there is no queue (None).
    """

    stage: str
    options: tuple[PricedWidth, ...]
    ready_s: float
    patience: float
    estimated: bool | None

    def chosen(self, now: float, wait_s: Callable[[Width], float] | None = None) -> WidthChosen:
        """What comes of it, where jobs of these widths wait so long [s]; not at all by default."""
        from asa.core.width import choose  # here: most stages have one width

        options = self.options
        if wait_s is not None and self.estimated is not None:
            options = tuple(option._replace(wait_s=wait_s(option.width)) for option in options)
        option, why = choose(options, self.ready_s, self.patience)
        return WidthChosen(now, self.stage, option.width, why)


@dataclass(frozen=True, slots=True)
class Teach:
    """Tell the estimator how long the queue made a job wait [s], unless that is `censored`: then only log it."""

    wait: Wait
    wait_s: float
    censored: bool


@dataclass(frozen=True, slots=True)
class Want:
    """Say how many more tasks of which size could run now; None when no task waits for room."""

    task: Resources | None
    count: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The outcome is known. Jobs may still be ending."""

    state: RunState
    message: str = ""
    stage: str = ""


Action = (
    Submit
    | Cancel
    | Amend
    | Release
    | LaunchTasks
    | Expand
    | Add
    | LookUp
    | Retry
    | Grow
    | Mold
    | Predict
    | Teach
    | Want
    | Finish
)
"""What the runner carries out; `Cancel`, `Amend` and `Predict` are the strategy's own decisions, when they may be."""


class StageViews(Sequence[StageView]):
    """Stages as a strategy sees them, each made when it is looked at, and again when something of it has changed.

    Parameters
    ----------
    stages
        All of a run, in topological order.
    pool
        Its allocations.
    """

    def __init__(self, stages: Sequence[StageProgress], pool: Pool) -> None:
        self._stages, self._pool, self._now = stages, pool, -math.inf
        self._made: dict[str, StageView] = {}
        self._current: dict[str, StageView] = {}  # those looked at since anything changed
        self._allocations: dict[str, AllocationView] = {}
        self._running: set[str] = set()  # stages whose views change as time passes
        self._draining: set[str] = set()  # such allocations

    def __len__(self) -> int:
        return len(self._stages)

    @overload
    def __getitem__(self, index: int) -> StageView: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StageView, ...]: ...
    def __getitem__(self, index: int | slice) -> StageView | tuple[StageView, ...]:
        found = self._stages[index]
        return self.of(found) if isinstance(found, StageProgress) else tuple(map(self.of, found))

    def __iter__(self) -> Iterator[StageView]:
        return map(self.of, self._stages)

    def of(self, stage: StageProgress) -> StageView:
        """One of them."""
        name = stage.spec.name
        if (current := self._current.get(name)) is not None:
            return current
        there = self._pool.meant_for(name)
        meant = tuple([self._view(held) for held in there if not (held.twin and self._pool.is_spare(held))])
        if (made := self._made.get(name)) is None or made.allocations != meant:
            made = self._made[name] = stage.view(self._now, meant)
            if stage.state is StageState.RUNNING:
                self._running.add(name)
        self._current[name] = made
        return made

    def at(self, now: float) -> StageViews:
        """These, at another time [s since the epoch]."""
        if now != self._now:
            self._now = now
            self.forget(self._running, self._draining)
            self._running.clear()
            self._draining.clear()
        return self

    def forget(self, stages: Iterable[str], allocations: Iterable[str]) -> None:
        """Something has changed of these."""
        self._current.clear()
        for name in stages:
            self._made.pop(name, None)
        for key in allocations:
            self._allocations.pop(key, None)

    def _view(self, held: Held) -> AllocationView:
        if (made := self._allocations.get(held.key)) is None:
            made = held.view(self._now, self._pool.throttles.get(held.request.array, 1))
            self._allocations[held.key] = made
            if held.started is not None and not held.ending:
                self._draining.add(held.key)
        return made


class Alarms:
    """When something becomes of allocations as time passes.

    Parameters
    ----------
    held
        All that have not ended, by key.
    when
        Says of one when that is [s since the epoch]: None, or infinite, for never.
    """

    def __init__(self, held: Mapping[str, Held], when: Callable[[Held], float | None]) -> None:
        self._held, self._when = held, when
        self._heap: list[tuple[float, str]] = []

    def note(self, held: Held) -> None:
        """It may be another time than before."""
        if (at := self._when(held)) is not None and at < math.inf:
            heapq.heappush(self._heap, (at, held.key))

    @property
    def soonest(self) -> float:
        """The next of these times, or infinite."""
        while self._heap:
            at, key = self._heap[0]
            if (held := self._held.get(key)) is not None and self._when(held) == at:
                return at
            heapq.heappop(self._heap)  # it has ended, or it is another time now
        return math.inf

    def due(self, now: float) -> Iterator[Held]:
        """Those whose time has come since this was last asked."""
        while self.soonest <= now:
            yield self._held[heapq.heappop(self._heap)[1]]


class Claims:
    """What allocations are to leave to the stages that they are meant for, as long as these have tasks to run.

    Parameters
    ----------
    stages
        All, by name.
    launchable
        Those that may have tasks to launch.
    may_take
        Whether an allocation has time enough left for tasks of a stage.
    """

    def __init__(
        self,
        stages: Mapping[str, StageProgress],
        launchable: Launchable,
        may_take: Callable[[Held, StageProgress], bool],
    ) -> None:
        self._stages, self._launchable, self._may_take = stages, launchable, may_take
        self._found: dict[str, list[tuple[Resources, int]]] = {}

    def room(self, held: Held, stage: StageProgress, ahead: float) -> int:
        """How many more tasks of a stage an allocation takes, with `ahead` times its capacity queued up."""
        if stage.spec.name in held.meant_for:
            return held.room(stage.spec.task, ahead)
        claims = self.of(held)
        return 0 if claims and ahead else held.room(stage.spec.task, ahead, claims)

    def are_possible(self, held: Held) -> bool:
        """Whether it is meant for some stages only, so that others may have to leave them room."""
        return bool(held.stages) and len(held.stages) < len(self._stages)

    def of(self, held: Held) -> Sequence[tuple[Resources, int]]:
        """Tasks that its own stages wait with, as many as it could run beside those of them that run: maybe none."""
        if not self.are_possible(held):
            return ()
        if (found := self._found.get(held.key)) is None:
            found, left = [], sum(held.nodes.values())
            for owner in self.owners(held):
                task, name = owner.spec.task, owner.spec.name
                running = sum(stage == name for stage, _ in held.running) if owner.running else 0
                if held.most(task) and self._may_take(held, owner):
                    count = max(0, min(owner.unlaunched, held.most(task) - running))
                    found.append((task, count))
                    left -= count * task.cores
                if left <= 0:
                    break  # there is nothing for others
            self._found[held.key] = found
        return found

    def owners(self, held: Held) -> Iterator[StageProgress]:
        """The stages that it is meant for which have tasks to launch: found where there are fewer to look at."""
        if len(self._launchable) < len(held.stages):
            return (stage for stage in self._launchable if stage.spec.name in held.meant_for)
        return (stage for name in held.stages if (stage := self._stages[name]).unlaunched)


class Kept:
    """What a strategy that decides by stage has decided about each, until that may have changed.

    Where it goes by what is expected, stages after those within the horizon are not looked at: as nothing is expected
    earlier as time passes, and a stage no earlier than the last of those before it, theirs is the next change that
    counts.

    Parameters
    ----------
    strategy
        It.
    stages
        The run's, by name.
    """

    def __init__(self, strategy: DecidesByStage, stages: Mapping[str, StageProgress]) -> None:
        self._strategy, self._stages = strategy, stages
        self._found: dict[str, list[StrategyDecision]] = {}
        self._over: set[str] = set()
        self._reach: dict[str, int] = {}  # of those that are not over
        self._many = [0] * len(Reach)
        self._restless: dict[str, None] = {}  # where anything that is expected otherwise may count at once
        self._times: dict[str, float] = {}  # stage -> when it is to be asked about it again
        self._heap: list[tuple[float, str]] = []
        self._longest_s = self._horizon_s = 0.0  # the longest wait that was predicted
        self._near: set[str] = set()  # stages that are expected to end within the horizon
        self._last: dict[str, str] = {}  # stage -> the one before it that ends last, or after the horizon
        self._edge: list[tuple[float, str]] = []  # a heap: when stages that are not near, after near ones, will end
        self._asking: dict[str, dict[str, None]] = {}  # stage -> others for which its wait is to be predicted

    def decide(self, view: WorkflowView, changed: Iterable[str]) -> list[StrategyDecision]:
        """What it decides now about all stages, when something of those `changed` has changed."""
        due: dict[str, None] = {}
        for name in changed:
            stage = self._stages[name]
            self._longest_s = max(self._longest_s, stage.predicted_wait_s or 0.0)
            if name not in self._over or not stage.state.final:
                due[name] = None
        begin = [*due]
        for name in begin:
            for follower in self._stages[name].followers:
                if self._reach.get(follower, 0) & Reach.BEFORE:
                    due[follower] = None
            due |= self._asking.pop(name, {})
        # A time at which to look again is never nearer than this, but what it waits for may be.
        while self._heap and self._heap[0][0] <= view.now + SOONEST_S:
            at, name = heapq.heappop(self._heap)
            if self._times.get(name) == at and not self._is_far(name):
                due[name] = None
        if self._expects:
            due |= self._restless
            due.update(dict.fromkeys(self._ahead(view, begin)))
        for name in due:
            self._look(view, self._stages[name])
        if self._many[Reach.ALL]:
            return list(self._strategy.decide(view))
        names = sorted(self._found, key=lambda name: self._stages[name].number)
        found = [item for name in names for item in self._found[name]]
        if self._asking:
            found = [*dict.fromkeys(found)]  # several may go by the same prediction
        if lost := [item for item in found if isinstance(item, Cancel) and item.displaced]:
            found = [*lost]  # before other jobs are made to wait for those
        times = [at for at, _ in self._heap[:1]]
        if self._expects:  # a job may be asked for because of several
            found = [*{item.stages if isinstance(item, Ask) else id(item): item for item in found}.values()]
            times += [max(end - self._horizon_s, view.now + SOONEST_S) for end, _ in self._edge[:1]]
        return [*found, *map(Wake, times)]

    @property
    def _expects(self) -> int:
        return self._many[Reach.EXPECTED] + self._many[Reach.AHEAD]

    def _ahead(self, view: WorkflowView, begin: Iterable[str]) -> Iterator[str]:
        """Stages to look at because of what is expected of these, and of those that time has brought near."""
        from asa.strategies.ahead import horizon_s

        self._horizon_s = horizon_s(self._longest_s)
        todo = [name for name in begin if self._is_near(view, name)]
        due = list[str]()  # a stage may be back at the edge at once, if its end is still a moment too late
        while self._edge and self._edge[0][0] <= view.now + self._horizon_s + SOONEST_S:
            due.append(heapq.heappop(self._edge)[1])
        todo += [name for name in due if name not in self._near and self._is_near(view, name)]
        while todo:
            before = todo.pop()
            for name in self._stages[before].followers:
                if self._last.get(name, before) == before:
                    near = self._is_near(view, name)
                    if self._reach.get(name, 0) & Reach.EXPECTED and not self._is_far(name):
                        yield name
                    if near:
                        todo.append(name)

    def _is_near(self, view: WorkflowView, name: str) -> bool:
        """Whether a stage is expected to end within the horizon; found out if that may be."""
        from asa.strategies.ahead import expected

        stage = self._stages[name]
        self._near.discard(name)
        if stage.state is StageState.WAITING and not self._is_far(name):
            others = (other for other in reversed(stage.spec.predecessors) if self._is_late(other))
            self._last[name] = next(others, "")
        if self._is_far(name):
            return False
        found = expected(view, name)
        self._last[name] = found.last
        if found.end <= view.now + self._horizon_s:
            self._near.add(name)
            return True
        heapq.heappush(self._edge, (found.end, name))
        return False

    def _is_far(self, name: str) -> bool:
        """Whether one of those before a stage is known to end after the horizon."""
        return self._is_late(last) if (last := self._last.get(name)) else False

    def _is_late(self, name: str) -> bool:
        return name not in self._near and not self._stages[name].state.final

    def _look(self, view: WorkflowView, stage: StageProgress) -> None:
        from asa.strategies.ahead import expected

        name = stage.spec.name
        self._found.pop(name, None)
        self._times.pop(name, None)
        self._restless.pop(name, None)
        if (before := self._reach.pop(name, None)) is not None:
            self._many[before] -= 1
        if stage.state.final:
            self._over.add(name)
            return
        self._over.discard(name)
        whole, view = view, view.about(view[name])
        self._reach[name] = reach = int(self._strategy.reach(view))
        self._many[reach] += 1
        if reach & Reach.EXPECTED:  # others may have become the last one meanwhile, as their start was late
            self._last[name] = expected(whole, name).last
        found = self._strategy.decide(view) if reach != Reach.ALL else ()
        kept: list[StrategyDecision] = [item for item in found if not isinstance(item, Wake)]
        if kept:
            self._found[name] = kept
            for item in kept:
                if isinstance(item, Predict) and item.stage != name:
                    self._asking.setdefault(item.stage, {})[name] = None
        if times := [item.at for item in found if isinstance(item, Wake)]:
            self._times[name] = min(times)
            heapq.heappush(self._heap, (min(times), name))
        if reach & Reach.EXPECTED and (kept or any(item.started for item in view.stages[0].allocations)):
            self._restless[name] = None


class Plan(FoldedRun):
    """A run's state, and what follows from it.

    Parameters
    ----------
    strategy
        Decides when to ask for which allocation.
    site
        What matters of the backend.
    shared
        Whether a ready task may run in any allocation with room; otherwise only in one meant for its stage.
    borrows
        Whether other runs are in the same pool, which may lend us room.
    """

    def __init__(self, strategy: Strategy, site: Capabilities, *, shared: bool = True, borrows: bool = False) -> None:
        super().__init__()
        self.strategy, self.site, self.shared, self.borrows = strategy, site, shared, borrows
        self._measured = 0, Extent(0.0, 0)
        self._measured_at = 0  # how often widths were chosen then
        self._decisions: list[StrategyDecision] = []  # of the strategy, kept until something it looks at changes
        self._asked_at = -1  # how many changes there were when it was asked
        self._wake = math.inf  # when to ask it again although nothing changed
        self._views = StageViews(self._order, self.pool)
        self._kept = Kept(strategy, self.stages) if isinstance(strategy, DecidesByStage) else None
        self._changed: dict[str, None] = {}  # stages of which, or of whose allocations, something changed since
        self._drains = Alarms(self.pool.held, attrgetter("drains"))
        self._restless: dict[str, Held] = {}  # allocations that may have to end although nothing happens to them
        self._overdue = Alarms(self.pool.held, attrgetter("overdue_at"))
        self._roomy: dict[str, Held] = {}  # those with nodes that have cores left
        self._after: dict[str, tuple[str, ...]] = {}  # jobs that wait for others -> for which
        self._dependents: dict[str, int] = {}  # jobs that others wait for -> how many
        self._unused: dict[str, Held] = {}  # those that have started and got no task yet
        self._rules: dict[str, GuestRule] = {}
        self._hosting: dict[str, Held] = {}  # those whose tasks leave cores to guests
        self._allowed: dict[tuple[str, str, str], tuple[int, int]] = {}  # what a rule has said, of so many unused cores

    def decide(self, now: float) -> list[Action]:
        """What should be done now."""
        self._sort_out()
        if self._is_over:
            return [*self._conclude(), *self._let_go(now), *self._want(lambda: NOTHING), *self._teach()]
        # Jobs come in the round after it is known what there is to do, tasks in the one after it is settled which
        # allocations stay.
        unknown = [*self._expand(), *starmap(Add, self.unadded), *self._look_up(), *self._retry(now)]
        if unknown := [*unknown, *map(self._grow, self.growing)]:
            return unknown
        asked = [each for each in self._ask(now) if self.on_hold is None or isinstance(each, Predict)]
        changes = [*asked, *self._let_go(now, _arrays(asked, self.pool, now))]
        if self.on_hold is not None:
            return changes or [*self._want(lambda: NOTHING), *self._conclude(), *self._teach()]
        return changes or self._launch(now) or [*self._want(self._missing), *self._conclude(), *self._teach()]

    def wake_at(self, now: float) -> float:
        """When to decide again although nothing happened [s since the epoch]; infinite when there is no need."""
        self._sort_out()
        again = [] if self.full is None else [self.full.again]
        again += [min(self.stages[name].later.values()) for name in self.delayed]
        times = [self._wake, *again, self._overdue.soonest]
        return min((time for time in times if time > now), default=math.inf)

    def _extent(self) -> Extent:
        """That of all stages; of those that were added since it was last asked for, one of them added to it."""
        if self._measured_at != self.widths:
            self._measured, self._measured_at = (0, Extent(0.0, 0)), self.widths
        count, known = self._measured
        if count < len(self.stages):
            new = (stage.spec for stage in islice(reversed(self.stages.values()), len(self.stages) - count))
            known = known.plus(Extent.of(new, self.site.charged))
            self._measured = len(self.stages), known
        return known

    def _sort_out(self) -> None:
        """Look at the allocations of which, or of whose stages, something has changed: the others are as they were."""
        for name in self.touched:
            self.pool.moved |= {held.key: held for held in self.pool.meant_for(name)}
        if self._kept is not None:
            self._changed |= self.touched
        if self.touched or self.pool.moved:
            self._views.forget(self.touched, self.pool.moved)
        self.touched.clear()
        for held in list(self.pool.moved.values()):
            self._count_dependents(held)
        for key, held in self.pool.moved.items():
            if self._kept is not None:
                self._changed |= dict.fromkeys(held.stages)
            self._drains.note(held)
            self._overdue.note(held)
            there = key in self.pool.held
            for found, belongs in (
                (self._restless, there and not self._rests(held)),
                (self._roomy, there and held.nodes and not 0 < held.cores_busy >= sum(held.nodes.values())),
                (self._unused, there and held.started is not None and held.used is None),
                (self._hosting, there and any(cores for cores, _ in held.unused.values())),
            ):
                if belongs:
                    found[key] = held
                else:
                    found.pop(key, None)
        self.pool.moved.clear()

    def _count_dependents(self, held: Held) -> None:
        """Note which others a job waits for, as far as it is not about to end itself."""
        after = held.after if held.key in self.pool.held and not held.ending else ()
        before = self._after.pop(held.key, ())
        for key in after:
            self._dependents[key] = self._dependents.get(key, 0) + 1
        for key in before:
            self._dependents[key] -= 1
            if not self._dependents[key]:
                del self._dependents[key]
                if (other := self.pool.held.get(key)) is not None:
                    self._restless[key] = other
        if after:
            self._after[held.key] = after

    def _rests(self, held: Held) -> bool:
        """Whether an allocation need not end before something changes of it or of its stages."""
        if held.lender:
            return False
        if held.released is not None:
            return True
        if held.running:
            return any(not self.stages[name].state.final for name, _ in held.running)
        if held.cancelled is not None:
            return True
        if held.twin and self._is_beaten(held):
            return False
        if self.grown and self._is_too_small(held):
            return False
        if held.drains is not None and held.drains <= self.last:
            return False
        some = map(self.stages.__getitem__, islice(reversed(held.stages), _LOOKED_AT_MOST))
        left = (stage for stage in some if not stage.state.final)
        return any(not (held.nodes and held.useful and stage.unlaunched) for stage in left) or (
            held.started is None and held.key in self._dependents
        )

    def view(self, now: float) -> WorkflowView:
        """What the strategy sees, until the next event is folded."""
        self._sort_out()
        stages = self._views.at(now)
        return WorkflowView(
            now=now,
            stages=stages,
            find=lambda name: stages.of(self.stages[name]),
            after=lambda name: self.stages[name].followers,
            extent=self._extent(),
            charged=self.site.charged,
            regime=self.site.regime,
            dependencies=DependencyKind.AFTER_OK in self.site.dependencies,
            longest_s=math.inf if self.site.longest_s is None else self.site.longest_s,
            arrays=self.site.arrays,
            unordered=self.site.unordered,
            parks=self.site.parks,
            poll_s=self.site.poll_s,
            cores_per_node=self.site.cores_per_node,
            largest=self.site.largest,
            fixed_s=(0.0, 0.0) if self.start is None else self.start.fixed_s,
            wide_first=self.site.wide_first,
            idle_core_s=lambda: self.pool.idle_core_s + sum(held.idle_core_s(now) for held in self._unused.values()),
        )

    def _teach(self) -> Iterator[Action]:
        """Waits that became known. Where there is no queue, there is nothing to learn."""
        for wait in () if self.site.regime is QueueRegime.IMMEDIATE else self.untaught.values():
            yield Teach(wait, *wait.lesson(dependents_age=self.site.regime.dependents_age))

    def _expand(self) -> Iterator[Action]:
        return map(Expand, self.unexpanded)

    def _look_up(self) -> Iterator[Action]:
        for name in self.unlooked:
            stage = self.stages[name]
            yield LookUp(name, stage.looked, min(stage.looked + LOOKED_UP_MOST, stage.width or 0))

    def _retry(self, now: float) -> Iterator[Action]:
        for name in self.delayed:
            if due := tuple(index for index, at in self.stages[name].later.items() if at <= now):
                yield Retry(name, due)

    def _grow(self, name: str) -> Action:
        """Raise what a stage needs as far as the site has that."""
        stage = self.stages[name]
        spec, bounds = stage.spec, list[str]()
        site = self.site.for_jobs(spec.resources.options)
        whole, task, walltime_s, timeout_s = spec.resources, spec.task, spec.walltime_s, spec.timeout_s
        learned = spec.learned or LearnedRequest("")
        if "memory" in stage.lacks and whole.memory is not None and task.memory is not None:
            most = math.inf if site.largest is None or site.largest.memory is None else site.largest.memory
            growth = _raised(task.memory, spec.growth, learned.memory)
            memory = min(math.ceil(whole.memory * growth), most)
            each = memory * task.memory // whole.memory if memory < most else min(math.ceil(task.memory * growth), most)
            if each == most:  # before that, fewer of its tasks run at a time
                bounds.append(f"{site.site} gives no job more memory than {memory / 2**30:.3g} GiB")
            whole, task = replace(whole, memory=int(memory)), replace(task, memory=int(each))
        if "time" in stage.lacks and timeout_s is not None:
            timeout_s *= spec.growth
        if "walltime" in stage.lacks or (timeout_s or 0.0) > walltime_s:
            most_s = math.inf if site.longest_s is None else site.longest_s
            growth = _raised(walltime_s, spec.growth, learned.run_time_s if "walltime" in stage.lacks else None)
            walltime_s = max(walltime_s, min(walltime_s * growth, most_s))
            if walltime_s == most_s:
                bounds.append(f"{site.site} allows no wall time longer than {brief(walltime_s)}")
        return Grow(name, whole, task, walltime_s, timeout_s, "; ".join(bounds))

    def _ask(self, now: float) -> Iterator[Action]:
        if self.changes != self._asked_at or now >= self._wake:
            self._asked_at = self.changes
            for drained in self._drains.due(now):
                self._changed |= dict.fromkeys(drained.stages)
                self._restless[drained.key] = drained
            if self.goes_on and self._kept is not None:
                self._decisions = self._decide_ahead(now)
            elif self._kept is None:
                self._decisions = list(self.strategy.decide(self.view(now)))
            else:
                self._decisions = self._kept.decide(self.view(now), self._changed)
            self._changed.clear()
            wakes = [item.at for item in self._decisions if isinstance(item, Wake)]
            self._wake = min([*wakes, self._drains.soonest])
        number, admitted = self.asked, self._admitted(now)
        for decision in self._decisions:
            match decision:
                case Ask():
                    if id(decision) not in admitted:
                        continue
                    if loose := [name for name in decision.stages if self._may_bend(name, now)]:
                        yield from (self._mold(name, now) for name in loose)
                    else:
                        yield Submit(f"{self.run}.{number}", decision)
                        number += 1
                case Predict():
                    yield self._mold(decision.stage, now) if self._may_bend(decision.stage, now) else decision
                case Amend():
                    held = self.pool.held.get(decision.allocation)
                    free = held is not None and held.handle and not held.amending
                    if free and self._are_queued(decision.after or ()):
                        yield decision
                case Cancel():
                    held = self.pool.held.get(decision.allocation)
                    if held is not None and held.handle and not held.running and not held.ending:
                        yield decision

        for held in list(self.pool.seconds.values()):
            if held.handle is not None and self.room(now) > number - self.asked:
                again = Ask(held.stages, held.request.resources, held.request.walltime_s, (), held.predicted_wait_s)
                yield Submit(f"{self.run}.{number}", again, held.second, held.key)
                number += 1
        yield from self._let_follow() if self.pool.twins else ()

    def _let_follow(self) -> Iterator[Amend]:
        """Have jobs that wait for an allocation which another one has replaced wait for that."""
        for key, after in self._after.items():
            if (held := self.pool.held.get(key)) is None:
                continue
            there = tuple(
                other.twin if (other := self.pool.held.get(name)) and self._is_beaten(other) else name for name in after
            )
            if there != after and held.handle and not held.amending and not held.refused:
                yield Amend(key, after=there)

    def _may_bend(self, name: str, now: float) -> bool:
        """Whether it is to be chosen, maybe anew, how wide a stage is: as long as no job of it is in the queue, and no
        task of it runs."""
        stage = self.stages[name]
        if not stage.spec.widths or stage.grown or stage.running:
            return False
        if stage.width_chosen is not None and now < stage.width_chosen + CHOSEN_S:
            return False
        return all(held.leaving(now) for held in self.pool.meant_for(name))

    def _mold(self, name: str, now: float) -> Mold:
        """A stage's widths, with what they cost there; all with the whole wall time after less was not enough."""
        from asa.core.registry import looks_ahead
        from asa.core.width import PricedWidth, are_rounds, for_tasks, patience_for
        from asa.strategies.ahead import expected

        stage, fixed_s = self.stages[name], (0.0, 0.0) if self.start is None else self.start.fixed_s
        widths, tasks = stage.spec.widths, stage.unlaunched or stage.width
        patience = getattr(self.strategy, "patience", None) or patience_for(widths)
        if are_rounds(widths) and tasks:
            widths = for_tasks(widths, tasks)
        else:
            widths = tuple(width for width in widths if width.resources.cores != stage.spec.tried)
        if stage.short:
            longest_s = stage.spec.widths[0].walltime_s
            widths = tuple(replace(width, walltime_s=longest_s) for width in widths)
        options = (
            PricedWidth(
                width,
                self.site.charged(width.resources),
                fixed_s[(width.resources.packed(self.site.cores_per_node).nodes or 1) > 1],
            )
            for width in widths
        )
        ready_s = max(0.0, expected(self.view(now), name).ready - now)
        queued = self.site.regime is not QueueRegime.IMMEDIATE
        estimated = looks_ahead(self.strategy.estimator) if queued else None
        return Mold(name, tuple(options), ready_s, patience, estimated)

    def _decide_ahead(self, now: float) -> list[StrategyDecision]:
        """What the strategy decides where tasks go on in further allocations."""
        from asa.strategies.continuing import continued, of_stages

        view = self.view(now)
        ahead, links = continued(view)
        return of_stages(self.strategy.decide(ahead), links, ahead, view)

    def _admitted(self, now: float) -> set[int]:
        """Which of the jobs that are asked for can be submitted now, as far as there is room for more.

        Those of stages that need them at once come first; of a job array there may be the first elements only.
        """
        asks = [item for item in self._decisions if isinstance(item, Ask) and self._are_queued(item.after)]
        if (room := self.room(now)) < len(asks):
            asks.sort(key=lambda ask: all(self.stages[name].state is StageState.WAITING for name in ask.stages))
            del asks[int(room) :]
        return {id(ask) for ask in asks}

    def _are_queued(self, keys: Iterable[str]) -> bool:
        """Whether the batch system has all of these jobs, as far as they have not ended."""
        return all(held is None or held.handle is not None for held in map(self.pool.held.get, keys))

    def _let_go(self, now: float, changing: Collection[str] = ()) -> Iterator[Action]:
        """Release allocations whose work is done, cancel pending ones that no stage needs.

        An element of a job array that is about to be throttled otherwise ends only afterwards: before that, the room
        that it leaves might go to the wrong one.
        """
        self._restless |= {held.key: held for held in self._overdue.due(now)}
        looked_at = self.pool.held if self._is_over else self._restless
        for held in sorted(looked_at.values(), key=_number):
            if now >= held.overdue_at:
                if held.handle:
                    yield Cancel(held.key, held.overdue)
            elif held.released is not None:
                continue
            elif held.lender:
                if reason := self._why_return(held, now):
                    yield Release(held.key, reason)
            elif held.handle and held.cancelled is None and (reason := self._why_end(held, now)):
                if held.started is None:
                    # those that wait for it have their place in the queue through it
                    if self._is_over or held.key not in self._dependents:
                        yield Cancel(held.key, reason)
                elif held.request.array not in changing:
                    yield Release(held.key, reason)  # its supervisor, which may yet join, ends it with code 0

    @property
    def _is_over(self) -> bool:
        return self.outcome is not RunState.RUNNING or bool(self.cancelling)

    def _why_end(self, held: Held, now: float) -> str:
        """Why an allocation of the run's own is not needed any more, or "" while it is."""
        if self._is_over:
            return "the run is over"
        if any(not self.stages[name].state.final for name, _ in held.running):
            return ""
        if self._is_beaten(held):
            return f"the same was asked for elsewhere, and {held.twin} started first"
        if all(self.stages[name].state.final for name in reversed(held.stages)):  # the last ones are over last
            return "no stage needs it any more"
        if self.grown and not held.running and self._is_too_small(held):
            return "tasks that are tried again need more than it has"
        spent = held.leaving(now) or self._is_spent(held, now)
        return "too little of its wall time is left" if spent else ""

    def _is_beaten(self, held: Held) -> bool:
        """Whether another allocation for the same work has started, which is used instead."""
        other = self.pool.held.get(held.twin)
        return other is not None and other.started is not None and self.pool.is_spare(held)

    def _is_too_small(self, held: Held) -> bool:
        """Whether it was asked for before its stages needed more, so that it takes none of the tasks that wait."""
        waiting = [stage for stage in map(self.stages.__getitem__, held.stages) if stage.unlaunched]
        return bool(waiting) and not any(self._holds(held, stage) for stage in waiting)

    def _holds(self, held: Held, stage: StageProgress) -> bool:
        """Whether an allocation is as large, and as long, as its stages need by now."""
        if not stage.grown or held.lender:
            return True
        return held.request.walltime_s >= stage.spec.walltime_s and stage.spec.task.fits(held.request.resources)

    def _why_return(self, lease: Held, now: float) -> str:
        """Why a lease is to be returned, or "" while it is not: nothing must run in it, unless the run is over."""
        if self._is_over:
            return "the run is over"
        if lease.running:
            return ""
        if lease.recalled:
            return "its lender recalled it"
        waiting = [*self.launchable]
        takes_some = any(self._may_take(lease, stage.spec.name, stage, now) for stage in waiting)
        return "it takes none of the tasks that wait" if lease.nodes and waiting and not takes_some else ""

    def _is_spent(self, held: Held, now: float) -> bool:
        """Whether an idle allocation has too little time left for any task that its stages wait with.

        How much is left is not known of one that has nodes although its job is said to wait: a batch system that was
        killed and restarted may have forgotten, for a while, that it had started it.
        """
        if held.running or not held.nodes or held.ends is None or not held.useful:
            return False
        left = (stage for name in reversed(held.stages) if not (stage := self.stages[name]).state.final)
        return all(stage.unlaunched and not self._may_take(held, stage.spec.name, stage, now) for stage in left)

    def _launch(self, now: float) -> list[Action]:
        """Fill every core first; only when all are busy let short tasks queue up in the allocations.

        Each allocation is used at most once, by its own stages first: others get what these cannot use now.
        """
        used: set[str] = set()
        given: dict[str, int] = {}
        rooms: dict[Resources, list[Held]] = {}
        claims = Claims(
            self.stages, self.launchable, lambda held, stage: self._may_take(held, stage.spec.name, stage, now)
        )

        def free(among: Iterable[Held]) -> list[Held]:
            return sorted((item for item in among if item.nodes and item.ends and not item.leaving(now)), key=_number)

        def unused(task: Resources) -> list[Held]:
            if task not in rooms:
                rooms[task] = [item for item in free(self._roomy.values()) if item.room(task, 0.0, claims.of(item))]
            rooms[task] = [item for item in rooms[task] if item.key not in used]
            return rooms[task]

        def fill(stage: StageProgress, there: Iterable[Held], ahead: float = 0.0) -> Iterator[LaunchTasks]:
            return self._fill(stage, there, used, given, now, claims, ahead)

        launches: list[Action] = []
        for held in filter(claims.are_possible, free(self._roomy.values())):
            for owner in sorted(claims.owners(held), key=_number):
                if held.key not in used:
                    launches += fill(owner, [held])
        for stage in self.launchable.those(unused):
            launches += fill(stage, unused(stage.spec.task))
        launches = launches or [*self._invite(free(self._hosting.values()), now)]
        if not launches:
            for stage in self.launchable.begun():
                if stage.ahead:  # what has guests is busy for longer than a short task would wait elsewhere
                    there = [item for item in free(self.pool.held.values()) if item.key not in used and not item.unused]
                    launches += fill(stage, there, stage.ahead)
        return launches

    def _invite(self, there: Sequence[Held], now: float) -> Iterator[LaunchTasks]:
        """Tasks of stages that share, on cores that those of others which share leave idle.

        They are to be done before their hosts: else a whole allocation may be kept for them, and charged, or what needs
        all of it may have to wait for them. Not so those that are as large in an allocation that is meant for them.
        """
        used: set[str] = set()
        sharing = [stage for stage in self.launchable if stage.spec.shares and not stage.ousted] if there else []
        for stage in sorted(sharing, key=_number):
            name, left, task_s = stage.spec.name, stage.unlaunched, stage.task_s
            # one with a timeout does not wait for others: that would count
            for held in there if stage.spec.timeout_s is None else ():
                if held.key in used or not self._may_take(held, name, stage, now):
                    continue
                for host in dict.fromkeys(host for _, host in held.unused if host != name):
                    large = name in held.meant_for and stage.spec.task.cores >= self.stages[host].spec.task.cores
                    if not large and now + task_s > (self.stages[host].expected_end(now) or now):
                        continue
                    room = held.guest_room(stage.spec.task, host, self._cores_for(held, host, stage, now))
                    if count := min(room, left):
                        yield LaunchTasks(name, stage.next_ranges(count, stage.unlaunched - left), held.key, host)
                        used.add(held.key)
                        left -= count
                        break

    def _cores_for(self, held: Held, host: str, stage: StageProgress, now: float) -> int:
        """How many cores the host's rule lets its guests have when tasks of a stage are to be such."""
        key, left = (held.key, host, stage.spec.name), [each for (_, of), each in held.unused.items() if of == host]
        unused = sum(cores for cores, _ in left)
        before, cores = self._allowed.get(key, (-1, 0))
        if before != unused:
            spec = self.stages[host].spec
            if spec.shares not in self._rules:
                self._rules[spec.shares] = GUEST_RULES.create(spec.shares)
            own = [size for task, (size, _) in held.running.items() if task[0] == host and task not in held.guests]
            guests = Counter[str]()
            for task, its in held.guests.items():
                guests[task[0]] += held.running[task][0].cores * (its == host)
            assert held.began is not None, "it has nodes"
            tasks = HostTasks(
                stage=spec,
                cores=sum(size.cores for size in own),
                unused=unused,
                memory=1 - sum(memory for _, memory in left) / max(1, sum(size.memory or 0 for size in own)),
                elapsed=(now - held.began) / held.request.walltime_s,
                guests=+guests,
            )
            cores = self._rules[spec.shares].cores(tasks, stage.spec, now)
            self._allowed[key] = unused, cores
        return min(cores, unused)

    def _fill(
        self,
        stage: StageProgress,
        there: Iterable[Held],
        used: set[str],
        given: dict[str, int],
        now: float,
        claims: Claims,
        ahead: float,
    ) -> Iterator[LaunchTasks]:
        """Launches of one stage in allocations with room, which are then used, after those of it that were `given`."""
        name = stage.spec.name
        takers = [item for item in there if self._may_take(item, name, stage, now)]
        takers.sort(key=lambda item: name not in item.meant_for)
        for position, item in enumerate(takers):
            waiting = stage.unlaunched - given.get(name, 0)
            count = min(waiting, claims.room(item, stage, ahead))
            if ahead:
                count = min(count, math.ceil(waiting / (len(takers) - position)))
            if count:
                yield LaunchTasks(name, stage.next_ranges(count, given.get(name, 0)), item.key)
                used.add(item.key)
                given[name] = given.get(name, 0) + count

    def _may_take(self, held: Held, name: str, stage: StageProgress, now: float) -> bool:
        if not self.shared and name not in held.stages:
            return False
        if stage.grown and not self._holds(held, stage):
            return False
        assert held.ends is not None
        # what is left of another run's wall time is short by chance: a longer task finds a better place
        walltime_s = math.inf if held.lender else held.request.walltime_s
        longest_s = stage.longest_s
        if stage.spec.checkpoint:  # some of it is done in any: but it takes a while to begin where it was
            longest_s = max(_WORTHWHILE * held.request.walltime_s, 2 * stage.spec.notice_s)
        return takes(longest_s, now, held.ends, walltime_s)

    def _want(self, missing: Callable[[], tuple[Resources | None, int]]) -> Iterator[Action]:
        if self.borrows and (wanted := missing()) != self.wanted:
            yield Want(*wanted)

    def _missing(self) -> tuple[Resources | None, int]:
        """Tasks of one size that wait for room, less those for which leases are on their way.

        Rounded down to a power of two, so that it changes seldom and nothing is borrowed in vain. Tasks that span nodes
        count only when there are no others: they need an allocation of their own.
        """
        if not (waiting := sorted(self.launchable, key=_number)):
            return NOTHING
        task = min((stage.spec.task for stage in waiting), key=lambda task: (task.unit is not None, task.nodes or 1))
        leases = [held for held in self.pool.held.values() if held.lender and not held.ending]
        coming = sum(lease.request.resources.cores for lease in leases if not lease.nodes)
        count = sum(stage.unlaunched for stage in waiting if stage.spec.task == task) - coming // task.cores
        return task, 1 << count.bit_length() - 1 if count > 0 else 0

    def _conclude(self) -> Iterator[Action]:
        if self.outcome is not RunState.RUNNING:
            return
        if self.cancelling:
            yield Finish(RunState.CANCELLED, self.cancelling)
        elif all(stage.state.final for stage in reversed(self.stages.values())):
            failed = [name for name, stage in self.stages.items() if stage.failed or stage.state is StageState.FAILED]
            if not failed:
                yield Finish(RunState.SUCCEEDED)
                return
            skipped = [name for name, stage in self.stages.items() if stage.state is StageState.SKIPPED]
            parts = [(name, stage) for name, stage in self.stages.items() if stage.state is StageState.PARTIAL]
            message = "\n".join(f"stage {name!r} failed: {self.stages[name].story}" for name in failed)
            message += f"\nskipped because of it: {', '.join(skipped)}" if skipped else ""
            some = [f"{stage.skipped} of {stage.width} tasks of {name}" for name, stage in parts if stage.skipped]
            message += f"\nskipped because of them: {', '.join(some)}" if some else ""
            tolerated = all(self.stages[name].spec.continues for name in failed)
            some_done = any(stage.done for stage in self.stages.values())
            state = RunState.PARTIAL if tolerated and some_done else RunState.FAILED
            yield Finish(state, message, failed[0])


class Idle:
    """The guest rule for `shares=True`: guests may have whatever cores their host leaves idle."""

    def cores(self, host: HostTasks, guest: StageSpec, now: float) -> int:
        return host.unused


def _raised(asked: float, growth: float, used: float | None) -> float:
    """By how much what a task had too little of is raised: where it is learned, to the most that one is known to have
    used, then to twice as much."""
    return growth if used is None else again(asked, used) / asked


def _number(item: Held | StageProgress) -> int:
    return item.number


def _arrays(actions: Iterable[Action], pool: Pool, now: float) -> set[str]:
    """Job arrays that are about to be changed, or are being changed, unless the batch system does not answer."""
    keys = {action.allocation for action in actions if isinstance(action, Amend)}
    held = [item for item in pool.held.values() if item.request.array] if pool.throttles else []
    being = (item for item in held if item.amending and now < item.amending.at + UNRESPONSIVE_S)
    return {item.request.array for item in (*being, *(item for item in held if item.key in keys))}
