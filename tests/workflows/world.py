"""A whole run in virtual time: real plan, runner, log and payloads; fake batch system and nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asa.core.clock import ManualClock
from asa.core.event import Event, RunStarted, RunState
from asa.core.job import QueueRegime, Resources
from asa.core.ports import RunContext, Strategy
from asa.core.registry import STRATEGIES
from asa.core.task import Task
from asa.log.events import EventLog
from asa.pool.watch import JobWatch
from asa.security.files import private_directory
from asa.testing.backend_fake import FakeBatch
from asa.testing.executor_fake import FakeExecutor, FakeNodes
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads, load
from asa.workflows.plan import Plan
from asa.workflows.runner import Inbox, Runner
from asa.workflows.stage import replace_nodes
from executors.call import Caller
from executors.wire import Order


class Crash(BaseException):
    """The driver dies here."""


def call(task: Task, values: Path) -> bytes:
    """Run a task as a worker does; its pickled value."""

    def stored(value: Any) -> Any:
        return value.path if value.data is None else value.data

    order = Order(
        ticket=0,
        stage=task.stage,
        index=task.index,
        function=task.function,
        arguments=stored(task.arguments),
        inputs=tuple(map(stored, task.inputs)),
        cores=1,
        memory=0,
        gpus=0,
        nodes=1,
    )
    outcome = Caller(values).run(order)
    if outcome.value is None:
        raise RuntimeError(outcome.error)
    assert isinstance(outcome.value, bytes)
    return outcome.value


class FakeWaits:
    """Predicts what it is told to; remembers what it is taught."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        self.learned: dict[str, float] = {}

    def predict(self, resources: Resources, walltime_s: float) -> float:
        return self.wait_s

    def learn(
        self, resources: Resources, walltime_s: float, token: str, wait_s: float, predicted_s: float | None
    ) -> None:
        self.learned.setdefault(token, wait_s)  # as the real one: once per token


class CrashingLog:
    """An event log whose driver dies right before, or right after, it has written event number `at`."""

    def __init__(self, log: EventLog, at: int | None, after: bool) -> None:
        self.log, self.at, self.after = log, at, after
        self.count = 0

    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            if self.at is not None and self.count == self.at and not self.after:
                raise Crash
            self.log.append([event])
            self.count += 1
            if self.at is not None and self.count - 1 == self.at and self.after:
                raise Crash


@dataclass
class World:
    """What outlives a driver."""

    directory: Path
    workflow: Any
    strategy: str | Strategy = "per-stage"
    cores: int = 8
    regime: QueueRegime = QueueRegime.FIFO
    wait: Callable[[Any], float] | float = 0.0
    run_time: Callable[[Task], float] = lambda _task: 1.0
    shared: bool = True
    predicted_wait_s: float = 0.0
    clock: ManualClock = field(default_factory=lambda: ManualClock(1000.0))

    def __post_init__(self) -> None:
        for name in ("functions", "values"):
            private_directory(self.directory / name)
        self.graph = make_graph(self.workflow)
        self.batch = FakeBatch(self.clock, cores=self.cores, wait=self.wait, regime=self.regime)
        self.nodes = FakeNodes(
            self.clock, self.batch, lambda task: call(task, self.directory / "values"), self.run_time
        )
        self.log = EventLog(self.directory / "events.db")
        self.waits = FakeWaits(self.predicted_wait_s)
        self.runner: Runner | None = None

    def drive(self, crash_at: int | None = None, *, after: bool = True) -> RunState:
        """One driver, from the start or from what the log says, to the end or to its death."""
        strategy = STRATEGIES.create(self.strategy)
        plan = Plan(strategy, self.batch.capabilities(), shared=self.shared and not strategy.own_pools)
        payloads = Payloads(self.graph, self.directory / "functions", self.directory / "values", self.log.value)
        if self.log.last == 0:
            payloads.save()
            started = RunStarted(
                self.clock.now(), "run", "w", self.graph.specs(self.batch.capabilities()), "fake", "s", "fake", "shared", "fake", ""
            )
            self.log.append([started])
        for _, event in self.log.read():
            plan.on(event)
        inbox, alive = Inbox(), True

        def step() -> None:
            if alive:
                due = watch.step()
                if due < float("inf"):
                    self.clock.call_at(due, step)

        def wake() -> None:
            self.clock.call_at(self.clock.now(), step)

        watch = JobWatch(self.batch, self.clock, lambda events: alive and inbox.post(events), wake)
        context = RunContext("run", self.directory, str(self.directory), ())
        executor = FakeExecutor(self.nodes)
        log = CrashingLog(self.log, crash_at, after)
        self.runner = Runner(
            plan, payloads, executor, watch, log, self.waits, self.clock, context, str(self.directory), inbox
        )
        executor.start(context, inbox.post)
        try:
            self.runner.run()
        finally:
            alive = False
            executor.close()
            self.logged = log.count
        return plan.outcome

    def result(self) -> Any:
        """The workflow's value, from the log."""

        def value(node: Any) -> Any:
            values = [load(item) for item in self.log.all_values(self.graph.names[node])]
            return values if node.mapped else values[0]

        return replace_nodes(self.graph.result, value)

    def events(self, kind: type[Event]) -> list[Any]:
        return [event for _, event in self.log.read() if isinstance(event, kind)]
