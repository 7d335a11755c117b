"""The co-scheduler's machine on Mesos-compatible agents: a framework that withholds all offers of a pool.

The driver's callbacks only queue events; they are handled on the thread that asks for news, so nothing here is locked.
"""

from __future__ import annotations

import getpass
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple, Self

from asa.core.errors import AsaError, BackendError, InvalidInput, StateError
from asa.log.messages import notify
from coscheduler.agents.containers import AgentContainers, AgentDecision, HoldCall, ShareCall, SignalCall
from coscheduler.agents.groups import AgentGroup
from coscheduler.real.machine import ContainerEnded, ContainerEvent, ContainerProgram, ContainerUsage, SharedNode
from coscheduler.standing import LeftQueue, container_name
from executors.mesos.codec import BadMessage, Message
from executors.mesos.driver import SchedulerDriver
from executors.mesos.framework import Accept, Kill, Reconcile
from executors.mesos.messages import TERMINAL, field, identity, value_of
from executors.mesos.operator import CallRefused, Operator
from executors.mesos.pool_directory import PoolDirectory

ANSWER_S = 1.0
"""How long an agent may take to say what its containers have used [s]; then it is left out this time."""

AGAIN_S = 1.0
_ATTEMPTS = 5

_log = logging.getLogger(__name__)


class AgentCalls:
    """Calls the agents of a pool; those to one agent are made in order."""

    def __init__(self, directory: PoolDirectory, now: Callable[[], float] = time.monotonic) -> None:
        self._directory, self._now = directory, now
        self._lines: dict[str, _Line] = {}

    def share(self, share: ShareCall) -> None:
        """Change what a container may have; returns at once. One that has ended is passed over."""
        line = self._line(share.agent)

        def update() -> None:
            lease_s = None if share.until is None else max(0.0, share.until - self._now())
            line.operator.update_limits(share.agent, share.id, share.limit, lease_s, request=share.request)

        # A leased share is tried once: the next renewal tries again.
        line.submit(lambda: _make(line, update, share, 1 if share.until is not None else _ATTEMPTS))

    def tell(self, call: HoldCall | SignalCall) -> None:
        """Hold a container's memory back, or pass a signal on; returns at once. One that has ended is passed over."""
        line = self._line(call.agent)
        make = line.operator.hold_memory if isinstance(call, HoldCall) else line.operator.signal
        line.submit(lambda: _make(line, lambda: make(*call), call, _ATTEMPTS))

    def containers(self, agents: Iterable[str]) -> list[Message]:
        """What these agents say of their containers; those that do not answer in time are left out."""
        asked = [found for agent in agents if (found := self._line(agent).ask()) is not None]
        done, _ = wait(asked, ANSWER_S)
        answers: list[Message] = []
        for answer in done:
            with suppress(AsaError, BadMessage):
                answers += answer.result()
        return answers

    def forget(self, agent: str) -> None:
        """An agent is gone, and not called any more."""
        if (line := self._lines.pop(agent, None)) is not None:
            line.close()

    def close(self) -> None:
        for agent in list(self._lines):
            self.forget(agent)

    def _line(self, agent: str) -> _Line:
        if agent not in self._lines:
            self._lines[agent] = _Line(agent, Operator(self._directory))
        return self._lines[agent]


class _Line:
    """One agent, and the thread that calls it."""

    def __init__(self, agent: str, operator: Operator) -> None:
        self.operator, self.closing = operator, threading.Event()
        self._agent = agent
        self._thread = ThreadPoolExecutor(1, f"asa-agent-{agent}")
        self._asked: Future[list[Message]] | None = None

    def submit(self, call: Callable[[], None]) -> None:
        """Make a call, after those before it."""
        self._thread.submit(lambda: None if self.closing.is_set() else call()).add_done_callback(_report)

    def ask(self) -> Future[list[Message]] | None:
        """Ask for its containers; None while it has not answered the last time."""
        if self._asked is not None and not self._asked.done():
            return None
        self._asked = self._thread.submit(self._containers)
        return self._asked

    def close(self) -> None:
        self.closing.set()
        self._thread.submit(self.operator.close)
        self._thread.shutdown(wait=False)

    def _containers(self) -> list[Message]:
        return [] if self.closing.is_set() else self.operator.containers(self._agent)


def _make(line: _Line, call: Callable[[], object], about: ShareCall | HoldCall | SignalCall, attempts: int) -> None:
    """Make a call on the agent's thread, again while the agent does not answer."""
    for attempt in range(attempts):
        try:
            call()
            _log.info("agent %s has taken %s", about.agent, about)
            return
        except InvalidInput as error:
            if not (isinstance(error, CallRefused) and error.status == HTTPStatus.NOT_FOUND):
                _log.error("agent %s has refused %s: %s", about.agent, about, error)
            return
        except (BackendError, BadMessage) as error:
            _log.warning("agent %s has not taken %s: %s", about.agent, about, error)
        if attempt + 1 < attempts and line.closing.wait(AGAIN_S):
            return


def _report(call: Future[None]) -> None:
    """Log the failure of a call whose result is not read."""
    if (error := call.exception()) is not None:
        _log.error("a call to an agent has failed", exc_info=error)


_NAME = "asa cosched"
_ROLE = "cosched"
MASTER_S = 30.0
_FAILOVER_S = 30.0  # a connection may break; leases protect hosts meanwhile
BACK_S = 5.0  # how long nodes of a queue that is taken over may take to offer what they had
_ENDING_S = 10.0
_LOOK_S = 0.5
_LONGEST_S = 3600.0
_CALLBACKS = frozenset(
    (
        "registered",
        "reregistered",
        "resourceOffers",
        "offerRescinded",
        "statusUpdate",
        "slaveLost",
        "callRefused",
        "error",
    )
)


class AgentMachine:
    """Agents as a `coscheduler.real.machine.SharedMachine`; a context manager.

    The constructor returns once the group's nodes are there. The master counts requests as they were when containers
    started: those of a node never sum to more than its cores, whatever `share` has changed since.

    Raises `StateError` when the master does not take the framework, or nodes do not come.

    Parameters
    ----------
    group
        From `coscheduler.agents.groups`; it is closed at the end, and also when this fails.
    outlives_s
        How long containers may go on without this process [s], where the group does; at an orderly end, Ctrl-C
        included, they end at once. An end is acknowledged at the next call of `news`: the master repeats to the next
        co-scheduler what this one may not have recorded.
    left
        What is taken over: containers that another machine has started on this group.
    """

    def __init__(self, group: AgentGroup, *, outlives_s: float = 0.0, left: LeftQueue | None = None) -> None:
        self._group, self._outlives = group, group.lasts and outlives_s > 0
        self.callbacks = DriverEvents()
        """What the driver calls, from its thread."""
        self._containers, self._problem = AgentContainers(takes_over=left is not None), ""
        self._calls = AgentCalls(group.directory)
        self._last: dict[str, ContainerUsage] = {}
        self._heard: list[Message] = []  # ends
        self._returned: list[Message] = []  # those that `news` has returned
        info = _framework(max(outlives_s, _FAILOVER_S) if self._outlives else _FAILOVER_S)
        if left is not None:
            info |= {"id": identity(left.begun.framework or "")}
            self._take_over(left)
        self._driver = SchedulerDriver(self.callbacks, info, group.directory, implicit_acknowledgements=False)
        try:
            self._driver.start()
            self._await_master()
            self._await_nodes(() if left is None else left.nodes)
        except BaseException as error:
            self.close(leave=left is not None and isinstance(error, Exception))
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if leave := self._outlives and isinstance(error, Exception):
            notify(f"the queue's jobs go on in the pool {self._group.directory.path}, until --resume takes them over")
        self.close(leave=leave)

    # ------------------------------------------------------- the machine

    @property
    def framework(self) -> str | None:
        """What the master calls this machine; None where its containers end with this process."""
        return self._driver.framework_id if self._outlives else None

    @property
    def nodes(self) -> tuple[SharedNode, ...]:
        self._hear()
        return self._containers.offers.nodes

    def start(self, container: str, node: str, program: ContainerProgram, request: float, limit: float) -> None:
        """Start a container; `news` says what becomes of it. See `SharedMachine.start`."""
        self._hear()
        self._do(self._containers.start(container, node, program, request, limit, now=time.monotonic()))

    def stop(self, container: str) -> None:
        """End a container: SIGTERM, and SIGKILL after 3 s."""
        self._do(self._containers.stop(container))

    def share(self, container: str, request: float, limit: float, lease_s: float | None) -> None:
        """Change what a container may have. See `SharedMachine.share`.

        Returns at once. A permanent change is retried for some seconds when the agent does not answer, a leased one is
        not. A lease of 0 s ends the present one.
        """
        self._hear()
        until = None if lease_s is None else time.monotonic() + lease_s
        self._do(self._containers.share(container, request, limit, until))

    def hold_memory(self, container: str, memory: int | None, lease_s: float | None) -> None:
        """See `SharedMachine.hold_memory`; returns at once."""
        self._do(self._containers.hold_memory(container, memory, lease_s))

    def signal(self, container: str, name: str) -> None:
        """See `SharedMachine.signal`; returns at once."""
        self._do(self._containers.signal(container, name))

    def used(self) -> Mapping[str, ContainerUsage]:
        """What the containers that run have used; those of an agent that does not answer are left out."""
        self._hear()
        running = self._containers.running()
        answers = self._calls.containers(dict.fromkeys(running.values()))
        found = {}
        for item in answers:
            name = field(item, "executor_id.value", str, "")
            if field(item, "framework_id.value", str, "") == self._driver.framework_id and name in running:
                found[name] = _used(item) or self._last.get(name, ContainerUsage(0.0, None))
        self._last = {name: used for name, used in self._last.items() if name in running} | found
        return found

    def news(self, timeout_s: float) -> list[ContainerEvent]:
        """What has happened since this was asked last, in order; waits for something at most so long [s].

        Raises `StateError` when all of it was returned, and there will be no more: the master has ended the framework.
        """
        deadline = time.monotonic() + timeout_s
        for status in self._returned:
            self._driver.acknowledgeStatusUpdate(status)
        self._returned = []
        self._hear()
        while not self._containers.news and (left := deadline - time.monotonic()) > 0:
            self._hear(left)
        found, self._containers.news = list(map(_on_our_clock, self._containers.news)), []
        self._returned, self._heard = self._heard, []
        if self._problem and not found:
            raise StateError(
                f"the pool's master does not know the co-scheduler any more: {self._problem}. Its jobs are ended: "
                "go on with asa cosched run --work DIR --resume"
            )
        return found

    def close(self, *, leave: bool = False) -> None:
        """End all; `leave` lets containers go on, for who takes over."""
        try:
            if not leave:
                self._end_containers()
        finally:
            self._driver.stop(failover=leave)
            with suppress(Exception):  # `news` has raised it already
                self._driver.join(_ENDING_S)
            self._calls.close()
            self._group.close()

    # ------------------------------------------------------- inside

    def _await_master(self) -> None:
        deadline = time.monotonic() + MASTER_S
        while not self._driver.connected:
            self._hear(_LOOK_S / 10)
            if self._problem or time.monotonic() > deadline:
                what = self._problem or f"it has not answered for {MASTER_S:g} s"
                raise StateError(f"the master of {self._group.directory.path} does not take the co-scheduler: {what}")

    def _take_over(self, left: LeftQueue) -> None:
        nodes, own = {node.name: node for node in left.nodes}, Counter[str]()
        for job, run in ((job, job.run) for job in left.jobs):
            for rank, (node, cores, request) in enumerate(zip(run.nodes, run.cores, run.requests, strict=True)):
                own[node] += cores if job.host is None else 0
                if rank not in job.ended:
                    self._containers.take_over(container_name(job.job, run.number, rank), nodes[node], request)
        for name, most in own.items():
            self._containers.offers.take_over(nodes[name], most)

    def _await_nodes(self, known: Iterable[SharedNode]) -> None:
        back = time.monotonic() + BACK_S
        while time.monotonic() < back:
            cores = {node.agent: node.cores for node in self._containers.offers.nodes}
            if all(cores.get(node.agent, 0) >= node.cores for node in known):
                break
            self._hear(_LOOK_S)
        deadline = time.monotonic() + self._group.patience_s
        while len(there := self._containers.offers.nodes) < self._group.nodes:
            self._hear(_LOOK_S)
            self._group.check()
            if self._problem or time.monotonic() > deadline:
                what = self._problem or f"all were expected within {self._group.patience_s:g} s"
                problem = f"{len(there)} of {self._group.nodes} nodes have come, and no job was run: {what}"
                raise StateError(f"{problem}. {self._group.last_words()}")

    def _end_containers(self) -> None:
        deadline = time.monotonic() + _ENDING_S
        for container in self._containers.left():
            self.stop(container)
        while self._containers.left() and (left := deadline - time.monotonic()) > 0:
            self._hear(left)

    def _hear(self, timeout_s: float = 0.0) -> None:
        """Handle queued events; wait for one at most so long [s]."""
        wait = min(timeout_s, self._containers.due() - time.monotonic(), _LONGEST_S)
        with suppress(queue.Empty):
            self._handle(self.callbacks.queue.get(timeout=wait) if wait > 0 else self.callbacks.queue.get_nowait())
            while True:
                self._handle(self.callbacks.queue.get_nowait())
        self._containers.wake(time.monotonic())

    def _handle(self, event: _Event) -> None:
        known = self._containers
        _log.debug("the master: %s", event.name)
        try:
            match event:
                case _Event("registered" | "reregistered"):
                    self._do(known.subscribed())
                case _Event("resourceOffers", (offers,)):
                    self._do(known.offered(offers, time.monotonic()))
                case _Event("offerRescinded", (offer,)):
                    known.offers.rescinded(field(offer, "value", str))
                case _Event("statusUpdate", (status,)):
                    if field(status, "state", str) in TERMINAL:
                        self._heard.append(status)
                    else:
                        self._driver.acknowledgeStatusUpdate(status)
                    self._do(known.update(status))
                case _Event("slaveLost", (agent,)):
                    _log.warning("an agent is lost: %s", agent)
                    known.lost(field(agent, "value", str))
                    self._calls.forget(field(agent, "value", str))
                case _Event("callRefused", (call, status, reason)):
                    _log.warning("the master has refused a call: %s (%s)", reason, status)
                    known.refused(call, f"{reason} ({status})")
                case _Event("error", (text,)):
                    self._problem = text
                    _log.error("the master has ended the framework: %s", text)
                    known.over(f"the pool's master has ended the co-scheduler's framework: {text}")
        except BadMessage as error:
            _log.error("a message of the master makes no sense, and is ignored: %s", error)

    def _do(self, decisions: Iterable[AgentDecision]) -> None:
        for decision in decisions:
            match decision:
                case Accept(offers, tasks):
                    _log.info("launch: %s", ", ".join(value_of(task, "task_id") for task in tasks))
                    # what is left of the offers is offered again at once
                    self._driver.launchTasks([identity(offer) for offer in offers], tasks, {"refuse_seconds": 0})
                case Kill(task, agent):
                    _log.info("kill: %s", task)
                    self._driver.killTask(identity(task), identity(agent) if agent else None)
                case Reconcile(tasks):
                    asked = [{"task_id": identity(task), "agent_id": identity(agent)} for task, agent in tasks]
                    self._driver.reconcileTasks(asked)
                case ShareCall():
                    self._calls.share(decision)
                case HoldCall() | SignalCall():
                    self._calls.tell(decision)


class _Event(NamedTuple):
    """A call of one of the driver's callbacks: its name, and arguments."""

    name: str
    payload: tuple[Any, ...] = ()


class DriverEvents:
    """A scheduler for `SchedulerDriver` whose callbacks only queue what they are called with."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[_Event] = queue.SimpleQueue()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in _CALLBACKS:
            raise AttributeError(name)
        return lambda driver, *payload: self.queue.put(_Event(name, payload))


def _on_our_clock(event: ContainerEvent) -> ContainerEvent:
    """With the time of its end as it is by `time.monotonic`; agents report seconds since the epoch, or none."""
    if isinstance(event, ContainerEnded) and event.ended is not None:
        return event._replace(ended=time.monotonic() - max(0.0, time.time() - event.ended))
    return event


def _framework(failover_s: float) -> Message:
    """Its containers end when it is gone for long: without it their shares would not change."""
    capabilities = ("MULTI_ROLE", "PARTITION_AWARE", "GPU_RESOURCES")
    return {
        "user": getpass.getuser(),
        "name": _NAME,
        "roles": [_ROLE],
        "failover_timeout": failover_s,
        "checkpoint": True,
        "capabilities": [{"type": name} for name in capabilities],
    }


def _used(item: Message) -> ContainerUsage | None:
    """What an agent says of one container; None while it has counted nothing."""
    statistics = field(item, "resource_statistics", dict, {})
    parts = [field(statistics, f"cpus_{kind}_time_secs", float, None) for kind in ("user", "system")]
    counted = [part for part in parts if part is not None]
    if not counted:
        return None
    return ContainerUsage(
        sum(counted),
        field(statistics, "mem_rss_bytes", int, None),
        field(statistics, "asa_memory_stalled_secs", float, None),
        field(statistics, "asa_node_available_bytes", int, None),
        field(statistics, "asa_cpus_waited_secs", float, None),
        field(statistics, "cpus_throttled_time_secs", float, None),
    )
