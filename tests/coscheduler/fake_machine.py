"""Nodes in virtual time: containers use their cores in full, and end when their work is done."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from asa.core.decision import Start
from asa.core.errors import StateError
from coscheduler.nouns import first_fit
from coscheduler.real.gangs import STOPPED_CPUS
from coscheduler.real.machine import ContainerEnded, ContainerProgram, ContainerStarted, ContainerUsage, SharedNode
from executors.cgroup import probe


def has_weights() -> bool:
    try:
        return probe.best(f"test-{os.getpid()}").name.startswith("cgroup")
    except StateError:
        return False


needs_weights = pytest.mark.skipif(not has_weights(), reason="needs control groups that may be written")


@dataclass
class Container:
    """What runs, or has run; times in [s]."""

    name: str
    node: str
    program: ContainerProgram
    request: float
    limit: float
    started: float
    ends: float
    base: tuple[float, float] = (0.0, 0.0)
    until: float = math.inf
    stopped: bool = False
    cpu_s: float = 0.0  # used before `at`
    at: float = 0.0
    left_s: float | None = None  # of its work, while its limit lets it do none
    memory: int | None = None  # what it may have
    memory_until: float = math.inf

    @property
    def job(self) -> str:
        return self.program.environment["ASA_JOB"]


@dataclass
class FakeMachine:
    """As `coscheduler.real.machine.Machine`; `run_time` says how long a container of a job runs.

    Requests on a node never exceed its cores; what was asked for is kept in `asked`.
    """

    nodes: tuple[SharedNode, ...]
    run_time: dict[str, float]
    problems: dict[str, str] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)  # of a container of each job, as a share of its node's
    limits: bool = True  # whether they are kept
    stalled: dict[str, float] = field(default_factory=dict)  # share of the time that a job waits for memory
    waits: Callable[[FakeMachine, str], float] | None = None  # for which share of the time a job waits for CPUs
    waited: dict[str, tuple[float, float]] = field(default_factory=dict)  # of containers: so long, up to then [s]
    held: list[tuple[str, int | None]] = field(default_factory=list)
    signals: list[tuple[float, str, str]] = field(default_factory=list)
    on_signal: Callable[[Container], None] = lambda container: None
    now: float = 1000.0
    running: dict[str, Container] = field(default_factory=dict)
    past: list[Container] = field(default_factory=list)
    asked: list[tuple[float, str, float, float, float | None]] = field(default_factory=list)
    pending: list = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def start(self, container, node, program, request, limit):
        assert container not in {each.name for each in [*self.running.values(), *self.past]}, "a new name"
        job = program.environment["ASA_JOB"]
        cores = {each.name: each.cores for each in self.nodes}[node]
        here = Container(container, node, program, request, limit, self.now, self.now + self.run_time[job])
        here.base, here.at = (request, limit), self.now
        self.running[container] = here
        taken = sum(each.base[0] for each in self.running.values() if each.node == node)
        assert taken <= cores + 1e-9, f"{taken} of {cores} cores of {node} are requested"
        self.pending.append(ContainerStarted(container))

    def stop(self, container):
        if container in self.running:
            self.end_container(container, "", stopped=True)

    def share(self, container, request, limit, lease_s):
        self.asked.append((self.now, container, request, limit, lease_s))
        if container in {each.name for each in self.past}:
            return
        here = self.running[container]
        if lease_s is None:
            here.base, here.until = (request, limit), math.inf
        self.give(here, *(here.base if lease_s == 0 else (request, limit)))
        if lease_s:
            here.until = self.now + lease_s

    def give(self, here, request, limit):
        """Under a limit of next to nothing a container stands still."""
        here.cpu_s, here.at = self.cpu_s(here), self.now
        here.request, here.limit = request, limit
        stands = self.limits and limit <= STOPPED_CPUS
        if stands and here.left_s is None:
            here.left_s, here.ends = here.ends - self.now, math.inf
        elif not stands and here.left_s is not None:
            here.left_s, here.ends = None, self.now + here.left_s

    def hold_memory(self, container, memory, lease_s):
        if here := self.running.get(container):
            again = here.memory == memory and memory is not None
            here.memory, here.memory_until = memory, math.inf if lease_s is None else self.now + lease_s
            if not again:
                self.held.append((container, memory))

    def signal(self, container, name):
        if container in self.running:
            self.signals.append((self.now, container, name))
            self.on_signal(self.running[container])

    def cpu_s(self, here):
        return here.cpu_s + (0.0 if here.left_s is not None else self.now - here.at)

    def used(self):
        there = {node.name: node for node in self.nodes}
        return {
            each.name: ContainerUsage(
                self.cpu_s(each) * there[each.node].speed,
                int(there[each.node].memory * self.memory.get(each.job, 0.001)),
                None if each.job not in self.stalled else self.stalled[each.job] * (self.now - each.started),
                waited_s=self.wait(each),
            )
            for each in self.running.values()
        }

    def wait(self, here):
        """For how long others had its processors [s], None where that is not counted; called whenever that changes."""
        if self.waits is None:
            return None
        waited, at = self.waited.get(here.name, (0.0, here.started))
        self.waited[here.name] = waited + self.waits(self, here.job) * (self.now - at), self.now
        return self.waited[here.name][0]

    def news(self, timeout_s):
        if not self.pending:
            ends = min((each.ends for each in self.running.values()), default=math.inf)
            leases = min((min(each.until, each.memory_until) for each in self.running.values()), default=math.inf)
            wait = max(timeout_s, 1e-6)  # as if clocks were that fine: a difference of times may round to nothing
            self.now = min(self.now + wait, max(self.now, ends), max(self.now, leases))
            for each in list(self.running.values()):
                if each.until <= self.now:
                    self.give(each, *each.base)
                    each.until = math.inf
                if each.memory_until <= self.now:
                    each.memory, each.memory_until = None, math.inf
                if each.ends <= self.now + 1e-9:
                    self.end_container(each.name, self.problems.get(each.job, ""))
        news, self.pending = self.pending, []
        return news

    def lose(self, node):
        """A node dies, with all that is on it."""
        self.nodes = tuple(each for each in self.nodes if each.name != node)
        for each in [each for each in self.running.values() if each.node == node]:
            self.end_container(each.name, "the node is gone", lost=True)

    def close(self):
        for container in list(self.running):
            self.stop(container)

    def end_container(self, container, problem, *, lost=False, stopped=False, killed=False):
        here = self.running.pop(container)
        here.stopped, here.ends = stopped, self.now
        self.past.append(here)
        self.pending.append(ContainerEnded(container, problem, lost, killed))


def nodes(count, cores=1, speed=1.0):
    return tuple(SharedNode(f"n{place}", cores, 1 << 30, speed) for place in range(count))


class Script:
    """Decisions at given looks, then first fit; `at` does something to the machine when it is asked an nth time."""

    def __init__(self, *steps, at=()):
        self.steps, self.at, self.views, self.runs = list(steps), dict(at), [], []

    def decide(self, view):
        self.views.append(view)
        self.at.get(len(self.views), lambda: None)()
        return self.steps.pop(0) if self.steps else [Start(job.name) for job in first_fit(view.queue, view.free)]

    def learn(self, run):
        self.runs.append(run)
