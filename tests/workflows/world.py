"""A whole run in virtual time: real plan, runner, log and payloads; fake batch system, nodes and lender."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import asa
from asa.allocations.watch import JobWatch
from asa.core.clock import ManualClock
from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.event import (
    Event,
    JobEnded,
    Leased,
    LeaseEnded,
    NodeLost,
    Recalled,
    RunEnded,
    RunStarted,
    RunState,
    StagesAdded,
    SubmitRefused,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksKept,
    TasksLaunched,
    decode,
    encode,
)
from asa.core.job import (
    Capabilities,
    DependencyKind,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Options,
    QueueRegime,
    Resources,
)
from asa.core.ports import Post, Report, RunContext, Strategy
from asa.core.queues import QueueTerms
from asa.core.registry import STRATEGIES
from asa.core.stage import StageSpec
from asa.core.task import Task, Value
from asa.log.events import EventLog
from asa.log.values import load
from asa.security.files import private_directory
from asa.testing.backend_fake import FakeBatch
from asa.workflows.expand import Growth
from asa.workflows.graph import Graph, make_graph
from asa.workflows.payload import Payloads
from asa.workflows.plan import Action, Plan
from asa.workflows.requests import LearnedRequests
from asa.workflows.runner import Inbox, Runner
from asa.workflows.stage import replace_nodes
from executors import hub
from executors.worker import Caller
from tests.workflows.nodes import FakeExecutor, FakeNodes

# Another run in the same pool.


LONG_S = 1e5


@dataclass(frozen=True)
class Terms:
    """How it lends.

    Parameters
    ----------
    cores
        At most so many at a time.
    delay_s, joins_s
        From being asked to a lease, and from that to its node [s].
    recall_s
        After how long it wants a lease back [s].
    lasts_s
        After how long the first lease of a driver ends whatever runs in it [s], and how long it is said to last; later
        ones last for long. A run gives up when it loses too much.
    """

    cores: int = 4
    delay_s: float = 1.0
    joins_s: float = 0.5
    recall_s: float = math.inf
    lasts_s: float = LONG_S


class Lender:
    """The part of it that a driver sees.

    Parameters
    ----------
    reach
        Called as the nodes are for jobs: when a lease begins and when it has ended.
    lose
        Called with the lease that is gone, and why, before the driver learns of it.
    """

    def __init__(
        self,
        clock: ManualClock,
        terms: Terms,
        reach: Callable[[JobRequest, JobStatus], None],
        lose: Callable[[str, str], None],
    ) -> None:
        self._clock, self._terms, self._reach, self._lose = clock, terms, reach, lose
        self._post: Post | None = None
        self._serial = itertools.count(1)
        self._wanted: tuple[Resources | None, int] = (None, 0)
        self._lasts_s = terms.lasts_s
        self.leases: dict[str, JobRequest] = {}
        self.asked: list[tuple[Resources | None, int]] = []

    def meet(self, post: Post | None) -> None:
        """A driver comes, or goes and its leases with it."""
        for key in list(self.leases):
            self._drop(key)
        self._post, self._wanted, self._lasts_s = post, (None, 0), self._terms.lasts_s

    def want(self, task: Resources | None, count: int) -> None:
        """As `asa.core.ports.Sharing.want`."""
        self.asked.append((task, count))
        self._wanted = task, count
        self._soon(self._terms.delay_s, self._lend)

    def release(self, key: str) -> None:
        """A lease is returned; what runs in it is killed."""
        if key in self.leases:
            self._end(key, "")

    def _soon(self, delay_s: float, act: Callable[[], None]) -> None:
        """Unless the driver is another one by then."""
        post = self._post
        if delay_s < math.inf:
            self._clock.call_at(self._clock.now() + delay_s, lambda: act() if self._post is post else None)

    def _lend(self) -> None:
        task, count = self._wanted
        if task is None or (task.nodes or 1) > 1 or self._post is None:
            return
        room = self._terms.cores - sum(lease.resources.cores for lease in self.leases.values())
        given = min(count, room // task.cores)
        if given <= 0:
            return
        self._wanted = task, count - given
        now, resources = self._clock.now(), Resources(given * task.cores)
        lasts_s, self._lasts_s = self._lasts_s, LONG_S
        lease = JobRequest(f"run.lease-{next(self._serial)}", resources, lasts_s, ("lease",))
        self.leases[lease.token] = lease
        self._post([Leased(now, lease.token, resources, "other", now + lasts_s)])
        self._soon(self._terms.joins_s, partial(self._join, lease))
        self._soon(self._terms.recall_s, partial(self._recall, lease.token))
        self._soon(lasts_s, partial(self._cut, lease.token))

    def _join(self, lease: JobRequest) -> None:
        if lease.token in self.leases:
            self._reach(lease, _status(lease, JobState.RUNNING))

    def _recall(self, key: str) -> None:
        if key in self.leases and self._post is not None:
            self._post([Recalled(self._clock.now(), key, "run other needs it")])

    def _cut(self, key: str) -> None:
        if key in self.leases:
            self._lose(key, "the agent is gone")
            self._end(key, "the agent is gone")

    def _end(self, key: str, reason: str) -> None:
        self._drop(key)
        if self._post is not None:
            self._post([LeaseEnded(self._clock.now(), key, reason)])
        self._soon(self._terms.delay_s, self._lend)

    def _drop(self, key: str) -> None:
        lease = self.leases.pop(key)
        self._reach(lease, _status(lease, JobState.COMPLETED))


def _status(lease: JobRequest, state: JobState) -> JobStatus:
    return JobStatus(JobHandle("lease", lease.token, 0.0), state)


# The run.


class Crash(BaseException):
    """The driver dies here."""


class Stuck(BaseException):
    """The run does not get on: too much virtual time has passed, or too much was decided."""


def call(task: Task, values: Path) -> bytes:
    """Run a task as a worker does; its pickled value."""
    outcome = Caller(str(values)).run(hub.task_order(task, 0, spanning=False))
    if outcome.value is None:
        raise RuntimeError(outcome.error)
    assert isinstance(outcome.value, bytes)
    return outcome.value


class FakeWaits:
    """Predicts what a test says; remembers what it learns, as a store does: of each job once."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        self.asked = 0
        self.learned: dict[str, float] = {}

    def predict(
        self, resources: Resources, walltime_s: float, context: Context, quantiles: Sequence[float | None]
    ) -> list[float]:
        self.asked += 1
        return [self.wait_s] * len(quantiles)

    def learn(
        self, job: JobRequest, wait_s: float, predicted_s: float | None = None, context: Context | None = None
    ) -> None:
        self.learned.setdefault(job.token, wait_s)

    def known(self, resources: Resources, walltime_s: float) -> int:
        return 0

    def survival(self, options: Options) -> tuple[int, float]:
        return 0, 0.0


class MemoryLog:
    """As `EventLog`, JSON and all, but forgotten with the test: hundreds of runs in a second instead of dozens."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str]] = []
        self._results: dict[tuple[str, int], Value] = {}

    @property
    def last(self) -> int:
        return len(self._rows)

    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            kind, fields = encode(event)
            self._rows.append((kind, json.dumps(fields)))
            for task in event.void:
                self._results.pop(task, None)
            if isinstance(event, TaskDone):
                value = event.path if event.value is None else event.value
                assert value is not None, "fake nodes report values"
                self._results.setdefault((event.stage, event.index), value)

    def read(self) -> Iterator[tuple[int, Event]]:
        for number, (kind, fields) in enumerate(self._rows, start=1):
            yield number, decode(kind, json.loads(fields))

    def value(self, stage: str, index: int) -> Value:
        return self._results[stage, index]

    def all_values(self, stage: str) -> list[Value]:
        return [value for (name, _), value in sorted(self._results.items()) if name == stage]


class CrashingLog:
    """An event log whose driver dies right before, or right after, it has written event number `at`."""

    def __init__(
        self, log: EventLog | MemoryLog, at: int | None, after: bool, after_event: Callable[[Event], None]
    ) -> None:
        self.log, self.at, self.after, self.after_event = log, at, after, after_event
        self.count = 0

    def append(self, events: Sequence[Event]) -> None:
        dies = self.at is not None and self.count <= self.at < self.count + len(events)
        if dies:
            assert self.at is not None
            events = events[: self.at - self.count + self.after]
        self.log.append(events)
        self.count += len(events)
        if dies:
            raise Crash
        for event in events:
            self.after_event(event)


class Site(FakeBatch):
    """A `FakeBatch` with limits of its own."""

    limits: dict[str, Any]

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), **self.limits)

    def requeue_for(self, token: str, pause_s: float) -> None:
        """Requeue this running job, and let it wait at least so long again [s]."""
        now = self._clock.now()
        self._waits.until[self._named(token, running=True).job_id] = now + pause_s
        self._clock.call_at(now + pause_s, self._step)
        self.requeue(token)


class Driver(FakeExecutor):
    """The executor of one driver. Unless `silent`, it reports tasks of a node that is lost, as the port says."""

    def __init__(self, world: World) -> None:
        super().__init__(world.nodes)
        self._world = world
        self._post: Report | None = None
        self._given: dict[str, dict[tuple[str, int], float]] = {}

    def start(self, context: RunContext, post: Report) -> None:
        self._post = post
        super().start(context, self._heard)
        self._world.lender.meet(self._heard)

    def want(self, task: Resources | None, count: int) -> None:
        self._world.lender.want(task, count)

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        given = self._given.setdefault(allocation, {})
        given.update({(task.stage, task.index): self._world.clock.now() for task in tasks})
        super().launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        self._given.pop(allocation, None)
        self._world.lender.release(allocation)
        with contextlib.suppress(InvalidInput):  # the batch system has forgotten the job
            super().release(allocation)

    def close(self) -> None:
        self._post = None
        self._world.lender.meet(None)
        super().close()

    def lose(self, allocation: str, reason: str) -> None:
        """The node of this allocation is gone."""
        if self._post is not None and (given := self._given.pop(allocation, None)) is not None:
            now = self._world.clock.now()
            lost: list[Event] = [
                TaskFailed(now, stage, index, allocation, "node", at, reason, infrastructure=True)
                for (stage, index), at in given.items()
            ]
            self._post([*lost, NodeLost(now, allocation, "node", reason)])

    def _heard(self, events: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
        for event in events:
            if isinstance(event, TaskDone | TaskFailed):
                self._given.get(event.allocation, {}).pop((event.stage, event.index), None)
            elif isinstance(event, TasksKept):
                self._given[event.allocation] = dict.fromkeys(event.tasks, event.at)
        if self._post is not None:
            self._post(events, logged)


class CountingPlan(Plan):
    """A plan that gives up when it is asked too often."""

    most = 0
    decided = 0

    def decide(self, now: float) -> list[Action]:
        self.decided += 1
        if self.decided > self.most:
            raise Stuck(f"{self.most} decisions, and no end")
        return super().decide(now)


@dataclass
class World:
    """What outlives a driver.

    Parameters
    ----------
    fault
        Why the n-th attempt (from 1) of a task fails, or None; "MemoryError" is one.
    joins
        How long after its job's start a node joins [s], by token; None for never.
    silent
        Whether lost tasks go unreported until their job has ended.
    lends
        How another run of the same pool lends; None when there is none.
    after_event
        Called with every event once it is logged, with the world as it is then.
    most_jobs, known
        How many jobs may be in the queue; whether the run knows that.
    on_disk
        Whether the log is a real one.
    keep_going
        As in `asa.run`.
    queues, terms
        What differs of the site in each queue, by partition; none where options mean nothing. As in `asa.run`.
    learns
        Whether stages ask for what the history in `directory` says, as far as they say so.
    limits
        What else the site says of itself.
    horizon_s, decisions
        When a run counts as stuck.
    """

    directory: Path
    workflow: Any
    strategy: str | Strategy = "per-stage"
    cores: int = 8
    regime: QueueRegime = QueueRegime.FIFO
    wait: Callable[[JobRequest], float] | float = 0.0
    run_time: Callable[[Task], float] = lambda _task: 1.0
    shared: bool = True
    predicted_wait_s: float = 0.0
    longest_s: float | None = None
    dependencies: frozenset[DependencyKind] = frozenset(DependencyKind)
    refuse: Callable[[JobRequest], str | None] = lambda _request: None
    ages: Callable[[JobRequest], bool] = lambda _request: True
    fault: Callable[[Task, int], str | None] = lambda _task, _attempt: None
    joins: Callable[[str], float | None] = lambda _token: 0.0
    silent: bool = False
    lends: Terms | None = None
    after_event: Callable[[Event], None] = lambda _event: None
    most_jobs: int | None = None
    known: bool = True
    on_disk: bool = False
    keep_going: bool = False
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    terms: QueueTerms = field(default_factory=QueueTerms)
    learns: bool = False
    limits: dict[str, Any] = field(default_factory=dict)
    horizon_s: float = 1e6
    decisions: int = 20_000
    clock: ManualClock = field(default_factory=lambda: ManualClock(1000.0))

    def __post_init__(self) -> None:
        for name in ("functions", "values"):
            private_directory(self.directory / name)
        self.graph = make_graph(self.workflow)
        self.batch = Site(
            self.clock, cores=self.cores, wait=self.wait, regime=self.regime, refuse=self.refuse, ages=self.ages
        )
        self.batch.limits = {"longest_s": self.longest_s, "dependencies": self.dependencies}
        self.batch.most_jobs = self.most_jobs
        self.batch.limits |= {} if self.known else {"most_jobs": None}
        self.batch.limits |= {"apart": self._at} if self.queues else {}
        self.batch.limits |= self.limits | ({} if self.known else {"most_jobs": None})
        self.nodes = FakeNodes(self.clock, self.batch, self._call, self.run_time)
        self._reach_nodes, self.batch.watch = self.batch.watch, self._on_job
        self.lender = Lender(self.clock, self.lends or Terms(cores=0), self._reach_nodes, self._lose)
        self.log = EventLog(self.directory / "events.db") if self.on_disk else MemoryLog()
        self.waits = FakeWaits(self.predicted_wait_s)
        self.attempts: dict[tuple[str, int], int] = {}
        self.fixed_s = 0.0, 0.0  # as in `WorkflowView`
        self.logged = 0
        self._driver: Driver | None = None
        self._runner: Runner | None = None

    def _at(self, options: Options) -> Capabilities:
        """The site as it is in one queue."""
        partition = dict(options)["partition"]
        return replace(self.batch.capabilities(), partition=partition, **self.queues[partition])

    @property
    def runner(self) -> Runner:
        """Of the last driver."""
        assert self._runner is not None, "no driver has been there yet"
        return self._runner

    def drive(self, crash_at: int | None = None, *, after: bool = True) -> RunState:
        """One driver, from the start or from what the log says, to the end or to its death."""
        plan = self.replay()
        plan.most = self.decisions
        self.graph = make_graph(self.workflow)
        payloads = Payloads(
            self.graph, self.directory / "functions", self.directory / "values", self.log.value, run=plan
        )
        payloads.regrow(self.events(StagesAdded))
        if self.log.last == 0:
            payloads.save()
            site = self.batch.capabilities()
            specs = self.graph.specs(site, keep_going=self.keep_going)
            specs = LearnedRequests(self.directory, site).ask(self.graph, specs) if self.learns else specs
            started = RunStarted(
                self.clock.now(), "run", "w", specs, "fake", "s", "fake", "shared", "fake", "", fixed_s=self.fixed_s,
                most_jobs=site.most_jobs,
            )  # fmt: skip
            self.log.append([started])
            plan.on(started)
        inbox, alive, until = Inbox(), True, self.clock.now() + self.horizon_s
        due = math.inf

        def come_at(when: float) -> None:
            nonlocal due
            if when < due:
                due = when
                self.clock.call_at(when, lambda: step(when))

        def step(when: float) -> None:
            nonlocal due
            if alive and when == due:
                if self.clock.now() > until:
                    raise Stuck(f"{self.horizon_s} s, and no end")
                due = math.inf
                come_at(watch.step())

        def post(events: Sequence[Event]) -> None:
            if alive:
                inbox.post(events)

        watch = JobWatch(self.batch, self.clock, post, lambda: come_at(self.clock.now()))
        context = RunContext("run", self.directory, str(self.directory), ())
        self._driver = executor = Driver(self)
        log = CrashingLog(self.log, crash_at, after, self.after_event)
        self._runner = Runner(
            plan, payloads, executor, watch, log, self.waits, self.clock, context, str(self.directory), inbox,
            site=self.batch.capabilities(), terms=self.terms,
        )  # fmt: skip
        self._runner.add = Growth(self.graph, plan, self.log.value, partial(self._admit, payloads)).add
        executor.start(context, inbox.post)
        try:
            self._runner.run()
        finally:
            alive = False
            executor.close()
            self.logged = log.count
        return plan.outcome

    def _admit(self, payloads: Payloads, part: Graph) -> tuple[StageSpec, ...]:
        """As when a run is put together."""
        site = self.batch.capabilities()
        part.check(site)
        part.outputs()
        payloads.extend(part, {})
        return part.specs(site, keep_going=self.keep_going)

    def succeed(self) -> Any:
        """Drive it to its end, with nothing left behind; the workflow's value."""
        assert self.drive() is RunState.SUCCEEDED, self.message
        check_clean(self)
        return self.result()

    def fail(self) -> str:
        """Drive it until it fails; what it says then."""
        assert self.drive() is RunState.FAILED
        check_clean(self)
        return self.message

    @property
    def message(self) -> str:
        """What the run ended with."""
        return str(self.events(RunEnded)[-1].message)

    def replay(self) -> CountingPlan:
        """The plan as the log has it."""
        strategy: Strategy = STRATEGIES.create(self.strategy)
        shared = self.shared and not strategy.own_pools
        borrows = shared and self.lends is not None
        plan = CountingPlan(strategy, self.batch.capabilities(), shared=shared, borrows=borrows)
        for _, event in self.log.read():
            plan.on(event)
        return plan

    def at(self, seconds: float, call: Callable[[], Any]) -> None:
        """Let something happen so many seconds from now [s]."""
        self.clock.call_at(self.clock.now() + seconds, call)

    def result(self) -> Any:
        """The workflow's value, from the log."""

        def value_at(name: str, index: int) -> Any:
            name, index, made = self.graph.end_of(name, index)
            return load(self.log.value(name, index)) if made is None else replace_nodes(made, value)

        def value(node: Any) -> Any:
            name = self.graph.names[node]
            values = [value_at(name, index) for index, _ in enumerate(self.log.all_values(name))]
            return values if node.mapped else values[0]

        return replace_nodes(self.graph.result, value)

    def events(self, *kinds: type[Event]) -> list[Any]:
        return [event for _, event in self.log.read() if isinstance(event, kinds)]

    def states(self) -> list[str]:
        """How every job stands, in order of submission."""
        return [status.state.value for _, status in self.batch.jobs()]

    def _call(self, task: Task) -> bytes:
        key = (task.stage, task.index)
        self.attempts[key] = attempt = self.attempts.get(key, 0) + 1
        if reason := self.fault(task, attempt):
            raise MemoryError if reason == "MemoryError" else RuntimeError(reason)
        return call(task, self.directory / "values")

    def _lose(self, allocation: str, reason: str) -> None:
        if self._driver is not None and not self.silent:
            self._driver.lose(allocation, reason)

    def _on_job(self, request: JobRequest, status: JobStatus) -> None:
        self._lose(request.token, f"its job is {status.state.value}")  # running may mean running again
        if status.state is not JobState.RUNNING:
            self._reach_nodes(request, status)
        elif (delay := self.joins(request.token)) is not None:
            self.clock.call_at(self.clock.now() + delay, lambda: self._join(request, status))

    def _join(self, request: JobRequest, status: JobStatus) -> None:
        running = [(now.handle, now.restarts) for _, now in self.batch.jobs() if now.state is JobState.RUNNING]
        if (status.handle, status.restarts) in running:
            self._reach_nodes(request, status)


def picture(plan: Plan) -> dict[str, Any]:
    """All of a plan's state that matters, to be compared."""
    return {
        "stages": {name: {**asdict(stage), "again": list(stage.again)} for name, stage in plan.stages.items()},
        "held": {key: asdict(held) for key, held in plan.pool.held.items()},
        "outcome": (plan.outcome, plan.message, plan.cancelling, plan.asked),
        "untaught": dict(plan.untaught),
        "wanted": plan.wanted,
    }


# A workflow of two stages, and what must hold of its runs however they went.


@asa.stage(cores=2, walltime=60)
def square(x: int) -> int:
    return x * x


@asa.stage(walltime=60)
def total(xs: list[int]) -> int:
    return sum(xs)


def squares(count: int) -> Any:
    return square.map(range(count))


def launches(world: World) -> Counter[tuple[str, int]]:
    return Counter(
        (event.stage, index)
        for event in world.events(TasksLaunched)
        for start, stop in event.ranges
        for index in range(start, stop)
    )


def check_clean(world: World) -> None:
    """Nothing done twice, nothing left behind, every allocation ended."""
    assert max(Counter((event.stage, event.index) for event in world.events(TaskDone)).values(), default=1) == 1
    assert all(status.state.final for _, status in world.batch.jobs())
    asked = [event.allocation for event in world.events(Submitting)]
    assert len(asked) == len(set(asked))
    assert sorted(asked) == sorted(event.allocation for event in world.events(JobEnded, SubmitRefused))
