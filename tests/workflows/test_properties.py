"""Whatever the workflow, the strategy, the queue and the faults: a run ends, and ends with the right result."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asa
from asa.core.errors import BackendError
from asa.core.event import (
    CoresUnused,
    DriverStarted,
    Event,
    HoldAsked,
    JobEnded,
    Learned,
    Leased,
    LeaseEnded,
    Recalled,
    Released,
    SubmitRefused,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksKept,
    TasksLaunched,
    Wanted,
)
from asa.core.event import RunState as State
from asa.core.job import JobState, QueueRegime
from asa.core.task import Task
from asa.workflows.plan import Action, Plan, StageViews, Submit
from coscheduler.torture.case import each, evaluate, gather
from tests.workflows import world
from tests.workflows.world import LONG_S, CountingPlan, Crash, Terms, World, picture

pytestmark = pytest.mark.slow

STRATEGIES = [
    "big-job",
    "per-stage",
    "asa:dependency=upfront",
    "asa:dependency=predicted",
    "asa:dependency=none",
    "asa:dependency=none,grace_s=20",
    "asa-naive:grace_s=30",
    "cascade",
    "cascade:dependency=upfront",
    "hold:technique=aged-afterok",
    "hold:technique=aged-afterok,lead_s=30",
    "hold:technique=array",
    "hold:technique=array,lead_s=30",
    "hold:technique=parked,grace_s=20",
    "stagger:grace_s=30,spacing_s=20",
    "stagger:patience=2,max_overhead=50%",
    "auto:grace_s=30",
]
EXAMPLES = 1000 if settings.get_current_profile_name() == "long" else 30
AWAY = BackendError("the controller does not answer", transient=True)


@dataclass(frozen=True)
class Step:
    """A stage: what it makes of which stages before it, and what it needs."""

    mapped: bool
    count: int
    sources: tuple[int, ...]
    cores: int
    task_cores: int
    walltime_s: float
    retries: int
    run_times: tuple[float, ...]
    shares: bool = False


@dataclass(frozen=True)
class Case:
    """A workflow in a world."""

    steps: tuple[Step, ...]
    strategy: str
    regime: QueueRegime
    ages: bool
    waits: tuple[float, ...]
    predicted_wait_s: float
    shared: bool
    silent: bool
    joins_s: float
    faults: tuple[tuple[float, str, int], ...]
    failing: frozenset[tuple[int, int]]
    lends: Terms | None = None


@st.composite
def steps(draw: st.DrawFn, most: int = 5) -> tuple[Step, ...]:
    found: list[Step] = []
    for number in range(draw(st.integers(1, most))):
        before = st.lists(st.integers(0, number - 1), max_size=3, unique=True) if number else st.just([])
        cores = draw(st.sampled_from([1, 2, 4]))
        found.append(
            Step(
                mapped=draw(st.booleans()),
                count=draw(st.integers(0, 6)),
                sources=tuple(draw(before)),
                cores=cores,
                task_cores=draw(st.sampled_from([1, cores])),
                walltime_s=draw(st.sampled_from([60.0, 200.0])),
                retries=draw(st.integers(0, 2)),
                run_times=tuple(draw(st.lists(st.floats(1.0, 40.0), min_size=1, max_size=4))),
            )
        )
    return tuple(found)


FAULTS = st.tuples(
    st.floats(0.0, 400.0),
    st.sampled_from(["fail", "requeue", "vanish", "submit", "update", "query", "cancel", "find", "unheard"]),
    st.integers(0, 5),
)

CASES = st.builds(
    Case,
    steps=steps(),
    strategy=st.sampled_from(STRATEGIES),
    regime=st.sampled_from(list(QueueRegime)),
    ages=st.booleans(),
    waits=st.lists(st.floats(0.0, 300.0), min_size=1, max_size=4).map(tuple),
    predicted_wait_s=st.floats(0.0, 300.0),
    shared=st.booleans(),
    silent=st.booleans(),
    joins_s=st.sampled_from([0.0, 0.0, 2.0]),
    faults=st.lists(FAULTS, max_size=2).map(tuple),  # a stage gives up after three allocations that were of no use
    failing=st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=3),
)

TERMS = st.builds(
    Terms,
    cores=st.integers(1, 6),
    delay_s=st.sampled_from([0.0, 1.0, 20.0]),
    joins_s=st.sampled_from([0.0, 2.0]),
    recall_s=st.sampled_from([math.inf, 3.0, 30.0]),
    lasts_s=st.sampled_from([35.0, 50.0, LONG_S]),
)

LENT = st.builds(
    replace,
    CASES.filter(lambda case: not case.strategy.startswith("asa-naive")),
    lends=TERMS,
    shared=st.just(True),
    faults=st.lists(FAULTS, max_size=1).map(tuple),
    waits=st.lists(st.floats(40.0, 300.0), min_size=1, max_size=4).map(tuple),
)


def sharing(step: Step) -> st.SearchStrategy[Step]:
    """The same, or more likely to be a host, or a guest beside one."""
    both = {"sources": st.sampled_from([(), step.sources]), "cores": st.just(4), "shares": st.just(True)}
    host = {"task_cores": st.just(4), "walltime_s": st.just(200.0), "run_times": st.just((40.0, 30.0))}
    guest = {"task_cores": st.sampled_from([1, 1, 2, 4]), "walltime_s": st.just(60.0), "run_times": st.just((3.0, 9.0))}
    kinds = [st.builds(replace, st.just(step), **both, **kind) for kind in (host, guest)]
    return st.one_of(st.builds(replace, st.just(step), shares=st.booleans()), *kinds)


SHARING = st.builds(
    replace,
    CASES,
    steps=steps().flatmap(lambda found: st.tuples(*map(sharing, found))),
    strategy=st.sampled_from(["big-job", "per-stage", *STRATEGIES]),
    waits=st.lists(st.floats(0.0, 300.0), min_size=2, max_size=4).map(tuple),
    shared=st.just(True),
)


BY_STAGE = [
    "per-stage",
    "asa:dependency=upfront",
    "asa:dependency=none,grace_s=20",
    "asa-naive:grace_s=30",
    "hold:technique=aged-afterok,grace_s=20",
    "hold:technique=parked,grace_s=20",
    "stagger:grace_s=30,spacing_s=20",
    "stagger:patience=2",
    "cascade",
]
CHANGING = (
    st.builds(
        replace,
        CASES,
        steps=steps(10),
        strategy=st.sampled_from(BY_STAGE) | st.sampled_from(STRATEGIES),
        predicted_wait_s=st.floats(20.0, 60.0),  # stages of 60 s may be done before: their jobs are asked for meanwhile
    )
    | st.builds(replace, LENT, steps=steps(10))
    | SHARING
)


def build(found: Sequence[Step]) -> Any:
    """The workflow, as nodes."""
    nodes: list[Any] = []
    for step in found:
        needs = {"cores": step.cores, "task_cores": step.task_cores, "walltime": step.walltime_s}
        needs |= {"retries": step.retries}
        if any(each.shares for each in found):  # memory of all, or none
            needs |= {"memory": f"{64 * step.cores}M", "shares": step.shares}
        sources = [nodes[source] for source in step.sources]
        number = len(nodes)
        if step.mapped:
            stage = asa.stage(**needs)(each).options(name=f"each{number}")
            first = sources[0] if sources else range(step.count)
            nodes.append(stage.map(first, extra=sources[1]) if sources[1:] else stage.map(first))
            nodes[-1].after(*sources[2:])
        else:
            nodes.append(asa.stage(**needs)(gather).options(name=f"gather{number}")(step.count, *sources))
    return nodes


def make_world(case: Case, directory: Path) -> World:
    def step_of(stage: str) -> int:
        return int(stage[-1])

    def run_time(task: Task) -> float:
        times = case.steps[step_of(task.stage)].run_times
        return times[task.index % len(times)]

    def fault(task: Task, attempt: int) -> str | None:
        number = step_of(task.stage)
        failing = (number, task.index) in case.failing and attempt <= case.steps[number].retries
        return "as planned" if failing else None

    world = World(
        directory,
        build(case.steps),
        case.strategy,
        regime=case.regime,
        ages=lambda _request: case.ages,
        wait=lambda request: case.waits[int(request.token.split(".")[1]) % len(case.waits)],
        run_time=run_time,
        shared=case.shared,
        silent=case.silent,
        joins=lambda _token: case.joins_s,
        predicted_wait_s=case.predicted_wait_s,
        fault=fault,
        lends=case.lends,
        horizon_s=50_000.0,
        decisions=3000,
    )
    for at, kind, which in case.faults:
        world.at(at, partial(strike, world, kind, which))
    return world


def strike(world: World, kind: str, which: int) -> None:
    """Let something go wrong now."""
    if kind in ("submit", "update", "query", "cancel", "find"):
        world.batch.break_next(kind, AWAY, times=1 + which // 3)  # longer than CLOSING_S would be too long
    elif kind == "unheard":
        world.batch.break_next("submit", AWAY, after=True)
    else:
        states = [JobState.RUNNING] if kind != "vanish" else [JobState.RUNNING, JobState.PENDING]
        live = [request.token for request, status in world.batch.jobs() if status.state in states]
        if kind == "requeue" and world.silent:  # the port does not allow silence then: the job does not end
            kind = "fail"
        if live:
            getattr(world.batch, kind)(live[which % len(live)])


def check(world: World, case: Case) -> None:
    assert world.result() == evaluate(case.steps)
    done = Counter((event.stage, event.index) for event in world.events(TaskDone))
    widths = {name: stage.width for name, stage in world.runner.plan.stages.items()}
    assert done == Counter((name, index) for name, width in widths.items() for index in range(width or 0))
    assert all(status.state.final for _, status in world.batch.jobs()), "no job is left behind"
    asked = [event.allocation for event in world.events(Submitting)]
    assert sorted(asked) == sorted(event.allocation for event in world.events(JobEnded, SubmitRefused))
    jobs = [request.token for request, _ in world.batch.jobs()]
    assert len(jobs) == len(set(jobs)) and set(jobs) <= set(asked), "no job is submitted twice"
    learned = [event.allocation for event in world.events(Learned)]
    assert len(learned) == len(set(learned)), "a job teaches once"
    assert picture(world.replay()) == picture(world.runner.plan), "the log has it all"
    check_room(world)
    check_leases(world)


def check_leases(world: World) -> None:
    """Powers of two are asked for, and only what differs from what was; in the end nothing, and leases are let go."""
    last = nothing = (None, 0)
    leases: set[str] = set()
    for event in world.events(Wanted, Leased, Released, LeaseEnded, DriverStarted):
        match event:
            case Wanted():
                assert (event.task, event.count) != last and event.count & (event.count - 1) == 0
                last = event.task, event.count
            case Leased():
                leases.add(event.allocation)
            case Released() | LeaseEnded():
                leases.discard(event.allocation)
            case DriverStarted():
                last, leases = nothing, set()
    assert last == nothing and not leases


def check_room(world: World) -> None:
    """No allocation is given more than it holds, nor anything after it was released or recalled or has ended."""
    cores = {event.allocation: event.request.resources.cores for event in world.events(Submitting)}
    cores |= {event.allocation: event.resources.cores for event in world.events(Leased)}
    needs = {name: stage.spec.task.cores for name, stage in world.runner.plan.stages.items()}
    shares = {name for name, stage in world.runner.plan.stages.items() if stage.spec.shares}
    busy: dict[str, dict[tuple[str, int], int]] = {}
    guests: dict[tuple[str, int], str] = {}  # task -> the stage that is its host
    unused: dict[tuple[str, str], int] = {}
    over: set[str] = set()
    ends = (JobEnded, Released, Recalled, LeaseEnded)
    for event in world.events(TasksLaunched, TasksKept, TaskDone, TaskFailed, DriverStarted, CoresUnused, *ends):
        match event:
            case TasksLaunched():
                assert event.allocation not in over
                given = busy.setdefault(event.allocation, {})
                for start, stop in event.ranges:
                    for index in range(start, stop):
                        assert (event.stage, index) not in given
                        given[event.stage, index] = needs[event.stage]
                        if event.host:
                            guests[event.stage, index] = event.host
                spare = sum(left for (key, _), left in unused.items() if key == event.allocation)
                visiting = {task: size for task, size in given.items() if task in guests}
                if event.host:
                    assert event.host != event.stage and {event.host, event.stage} <= shares
                    of_host = sum(size for task, size in visiting.items() if guests[task] == event.host)
                    assert len(visiting) <= unused[event.allocation, event.host]
                    if len(visiting) > 1:  # the first may ask for more
                        assert of_host <= unused[event.allocation, event.host] and sum(visiting.values()) <= spare
                    continue
                own = sum(size for task, size in given.items() if task not in guests)
                assert own + max(0, sum(visiting.values()) - spare) <= cores[event.allocation]
            case CoresUnused():
                unused[event.allocation, event.stage] = event.cores
            case TaskDone() | TaskFailed():
                if guests.pop((event.stage, event.index), None) is None:
                    unused.pop((event.allocation, event.stage), None)
                busy.get(event.allocation, {}).pop((event.stage, event.index), None)
            case JobEnded() | Released() | Recalled() | LeaseEnded():
                over.add(event.allocation)
            case TasksKept():
                kept = set(event.tasks)
                busy[event.allocation] = {task: n for task, n in busy.get(event.allocation, {}).items() if task in kept}
            case DriverStarted():
                unused.clear()
                for allocation in busy.keys() & {event.allocation for event in world.events(Leased)}:
                    del busy[allocation]


def check_whole_and_torn(case: Case, moment: float, after: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        for part in ("whole", "torn"):
            Path(name, part).mkdir(mode=0o700)
        whole = make_world(case, Path(name, "whole"))
        assert whole.drive() is State.SUCCEEDED, whole.runner.plan.message
        check(whole, case)

        torn = make_world(case, Path(name, "torn"))
        with contextlib.suppress(Crash):
            torn.drive(int(moment * whole.logged), after=after)
        assert torn.drive() is State.SUCCEEDED, torn.runner.plan.message
        check(torn, case)


@settings(deadline=None, derandomize=settings.get_current_profile_name() != "long")
@given(case=CASES, moment=st.floats(0.0, 1.0), after=st.booleans())
def test_any_run_ends_with_the_result(case: Case, moment: float, after: bool) -> None:
    check_whole_and_torn(case, moment, after)


@settings(deadline=None, derandomize=settings.get_current_profile_name() != "long")
@given(case=LENT, moment=st.floats(0.0, 1.0), after=st.booleans())
def test_any_run_that_borrows_ends_with_the_result(case: Case, moment: float, after: bool) -> None:
    check_whole_and_torn(case, moment, after)


@settings(deadline=None, derandomize=settings.get_current_profile_name() != "long")
@given(case=SHARING, moment=st.floats(0.0, 1.0), after=st.booleans())
def test_any_run_with_guests_ends_with_the_result(case: Case, moment: float, after: bool) -> None:
    check_whole_and_torn(case, moment, after)


class Plain(Plan):
    """Looks at everything each time, and asks its strategy about all stages."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._kept = None

    def _sort_out(self) -> None:
        held = self.pool.held
        self._views = StageViews(self._order, self.pool)
        self._restless, self._roomy = dict(held), dict(held)
        self._unused = {key: item for key, item in held.items() if item.used is None}
        self._hosting = dict(held)
        behind = [key for item in held.values() if not item.ending for key in item.after]
        self._dependents = dict(Counter(behind))
        for item in held.values():
            self._overdue.note(item)
            self._drains.note(item)


class Compared(CountingPlan):
    """Decides what the plain one does."""

    looked_at = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.plain = Plain(*args, **options)

    def on(self, event: Event) -> None:
        super().on(event)
        self.plain.on(event)

    def decide(self, now: float) -> list[Action]:
        self._wake = self.plain._wake = min(self._wake, self.plain._wake)  # both are asked, or neither
        found, expected = super().decide(now), self.plain.decide(now)
        assert Counter(map(_content, found)) == Counter(map(_content, expected))
        assert [*self.view(now).stages] == [*self.plain.view(now).stages]
        Compared.looked_at += len(found)
        return found

    def wake_at(self, now: float) -> float:
        return min(super().wake_at(now), self.plain.wake_at(now))


def _content(action: Action) -> str:
    """An action without the number of its job: of several that are asked for at once the order may differ."""
    return repr(action.ask if isinstance(action, Submit) else action)


@settings(deadline=None, derandomize=settings.get_current_profile_name() != "long", max_examples=EXAMPLES)
@pytest.mark.timeout(400)
@given(case=CHANGING, moment=st.floats(0.0, 1.0))
def test_what_has_not_changed_need_not_be_looked_at(case: Case, moment: float) -> None:
    """A plan that looks at what has changed decides at any time what one decides that looks at everything."""
    with tempfile.TemporaryDirectory() as name, patch.object(world, "CountingPlan", Compared):
        Compared.looked_at = 0
        made = make_world(case, Path(name))
        with contextlib.suppress(Crash):
            made.drive(int(moment * 200))
        made.drive()
        assert Compared.looked_at


def test_another_stage_may_become_the_last_one_before_a_stage(tmp_path: Path) -> None:
    """Its job started so late that it was to end after the one that was expected to, and then it took no time."""

    def step(cores: int, walltime_s: float, run_time: float, *sources: int) -> Step:
        return Step(False, 0, sources, cores, 1, walltime_s, 0, (run_time,))

    steps = (
        step(1, 60.0, 24.0),
        step(1, 60.0, 1.0, 0),
        Step(True, 0, (), 2, 1, 60.0, 0, (1.0,)),
        step(1, 60.0, 1.0, 0),
        step(1, 200.0, 25.0),
        step(4, 60.0, 1.0, 0, 3, 4),
    )
    strategy, waits = "stagger:grace_s=30,spacing_s=20", (77.0, 0.0, 154.0, 0.0)
    faults = ((0.0, "fail", 0), (24.537741080088047, "fail", 0))
    regime = QueueRegime.IMMEDIATE
    case = Case(steps, strategy, regime, False, waits, 21.0, False, False, 0.0, faults, frozenset())
    with patch.object(world, "CountingPlan", Compared):
        made = make_world(case, tmp_path)
        with contextlib.suppress(Crash):
            made.drive(0)
        made.drive()


def test_the_check_of_room_notices(tmp_path: Path) -> None:
    """The property above is only worth something if it can fail."""
    world = World(tmp_path, asa.stage(each).map(range(3)), "per-stage")
    world.drive()
    (launched, *_rest) = world.events(TasksLaunched)
    world.log.append([launched, launched])
    with pytest.raises(AssertionError):
        check_room(world)


def test_the_check_of_leases_notices(tmp_path: Path) -> None:
    world = World(tmp_path, asa.stage(each).map(range(3)), "per-stage", wait=50.0, lends=Terms())
    world.drive()
    check_leases(world)
    world.log.append(world.events(Leased)[:1])
    with pytest.raises(AssertionError):
        check_leases(world)


HOLDS = st.lists(st.tuples(st.floats(0.0, 300.0), st.floats(1.0, 500.0)), min_size=1, max_size=2)


@settings(deadline=None, max_examples=2 * EXAMPLES, derandomize=settings.get_current_profile_name() != "long")
@given(CASES | LENT, HOLDS)
def test_a_run_that_is_held_starts_nothing_meanwhile_and_ends_as_others(
    case: Case, holds: list[tuple[float, float]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        there = make_world(replace(case, faults=()), Path(name))
        for begin, lasts in holds:
            there.at(begin, lambda: there.runner.hold(True))
            there.at(begin + lasts, lambda: there.runner.hold(False))
        assert there.drive() is State.SUCCEEDED, there.runner.plan.message
        check(there, case)
        held = False
        for event in there.events(HoldAsked, Submitting, TasksLaunched):
            if isinstance(event, HoldAsked):
                held = event.held
            else:
                assert not held, event
