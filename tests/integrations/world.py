"""A world for `Elastic`: carries out what it decides, in virtual time, and keeps to nothing but its word."""

from __future__ import annotations

from dataclasses import dataclass, field

from asa.core.event import (
    AllocationStarted,
    Cancelled,
    Event,
    JobEnded,
    Learned,
    NodeJoined,
    Released,
    RunEnded,
    RunStarted,
    StageExpanded,
    Submitted,
    Submitting,
    TaskDone,
    TasksLaunched,
)
from asa.core.job import JobHandle, JobRequest, JobState, Resources
from asa.core.run import CALLS
from asa.core.stage import StageSpec
from asa.integrations.elastic import Elastic, Limits
from asa.workflows.plan import Cancel, Finish, LaunchTasks, Release, Submit, Teach


def spec(cores: int = 2, walltime_s: float = 3600.0) -> StageSpec:
    return StageSpec("calls", Resources(cores), Resources(1), walltime_s, walltime_s, width=None)


@dataclass
class World:
    """Jobs start `wait_s` after they were asked for, calls take `call_s`.

    At most `most` were held at a time, without those about to end.
    """

    elastic: Elastic
    wait_s: float = 10.0
    call_s: float = 1.0
    now: float = 0.0
    width: int = 0
    asked: int = 0
    most: int = 0
    ended: list[int] = field(default_factory=list)
    given_up: dict[int, str] = field(default_factory=dict)
    due: list[tuple[float, Event]] = field(default_factory=list)
    log: list[Event] = field(default_factory=list)

    def tell(self, event: Event) -> None:
        self.log.append(event)
        self.elastic.on(event)
        self.given_up = dict(self.elastic.calls.given_up)
        if isinstance(event, TaskDone):
            self.ended.append(event.index)

    def call(self, count: int) -> None:
        self.width += count
        self.tell(StageExpanded(self.now, "calls", self.width))
        self.settle()

    def settle(self) -> None:
        """Do what is decided, until nothing is."""
        for _ in range(1000):
            actions = self.elastic.decide(self.now)
            for action in actions:
                self.do(action)
            held = self.elastic.pool.held.values()
            self.most = max(self.most, sum(not each.leaving(self.now) for each in held))
            if not actions:
                return
        raise AssertionError(f"it never ends: {actions}")

    def do(self, action: object) -> None:
        now = self.now
        match action:
            case Submit(token=token, ask=ask):
                self.asked += 1
                self.tell(Submitting(now, token, JobRequest(token, ask.resources, ask.walltime_s, ()), ask.stages))
                self.tell(Submitted(now, token, JobHandle(token, token, now)))
                start = now + self.wait_s
                self.due += [(start, AllocationStarted(start, token, start))]
                self.due += [(start, NodeJoined(start, token, "n1", ask.resources.cores))]
            case LaunchTasks(ranges=ranges, allocation=key):
                self.tell(TasksLaunched(now, "calls", ranges, key))
                held = self.elastic.pool.held[key]
                assert held.cores_busy <= held.request.resources.cores * (1 + self.elastic.calls.ahead)
                for start, stop in ranges:
                    for index in range(start, stop):
                        end = now + self.call_s
                        self.due.append((end, TaskDone(end, "calls", index, key, "n1", now)))
            case Release(allocation=key) | Cancel(allocation=key):
                ending = Released if isinstance(action, Release) else Cancelled
                self.tell(ending(now, key, action.reason))
                self.due = [(at, event) for at, event in self.due if getattr(event, "allocation", "") != key]
                self.due.append((now, JobEnded(now, key, JobState.COMPLETED)))
            case Teach(wait=wait):
                self.tell(Learned(now, wait.request.token, "calls", action.wait_s))
            case Finish():
                self.tell(RunEnded(now, action.state, action.message))

    def run(self, until: float) -> None:
        """Let time pass."""
        while True:
            self.due.sort(key=lambda item: item[0])
            at = min(self.due[0][0] if self.due else until, self.elastic.wake_at(self.now), until)
            self.now = max(self.now, at)
            while self.due and self.due[0][0] <= self.now:
                self.tell(self.due.pop(0)[1])
            self.settle()
            if self.now >= until and not (self.due and self.due[0][0] <= until):
                return


def world(limits: Limits | None = None, cores: int = 2, wait_s: float = 10.0, call_s: float = 1.0) -> World:
    elastic = Elastic(limits or Limits(maximum=4))
    elastic.on(RunStarted(0.0, "run", "calls", (spec(cores),), "fake", CALLS, "fake", "shared", "here", ""))
    return World(elastic, wait_s, call_s)
