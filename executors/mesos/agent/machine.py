"""The agent without I/O: what happens goes in, what is to be done comes out; how it starts again, and how it ends."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from executors.cgroup.group import GroupUsage
from executors.mesos.agent import api, records, tasks
from executors.mesos.agent.state import (
    AgentCore,
    AgentFramework,
    AgentOptions,
    AgentState,
    Departure,
    Effect,
    ExitAgent,
    StopContainer,
    TaskEnd,
    ToMaster,
)
from executors.mesos.agent.task_info import path_id
from executors.mesos.codec import BadMessage, Message
from executors.mesos.effects import KeepRow
from executors.mesos.messages import VERSION, base64_of, field, message, octets, value_of

_RANDOM = partial(os.urandom, 16)
_log = logging.getLogger(__name__)


class NodeAgent:
    """One node: it runs tasks in containers, and reports to frameworks what becomes of them.

    All times are seconds since the epoch. Each method returns what is to be done: first every `KeepRow`, in one
    transaction, and then the rest, in order.

    Parameters
    ----------
    rows
        What the journal of the agent that was here before has kept.
    fresh
        Gives 16 random bytes.
    """

    def __init__(
        self, options: AgentOptions, now: float, rows: Iterable[KeepRow] = (), *, fresh: Callable[[], bytes] = _RANDOM
    ) -> None:
        self._core = AgentCore(options, records.restored(rows, now), fresh, now)
        state = self._core.state
        self._ran = [(item.id, item.pid, item.birth) for item in state.instances.values() if item.pid is not None]
        resume_after_restart(self._core)
        plan_departure(self._core)

    @property
    def state(self) -> AgentState:
        """What the agent knows; to be read only."""
        return self._core.state

    @property
    def options(self) -> AgentOptions:
        return self._core.options

    def recovered(self) -> list[tuple[str, int, int]]:
        """Containers that ran when the agent before this one ended: id, process, and when that had started.

        For those that have ended meanwhile `exited` is to be called, before `connected`.
        """
        return list(self._ran)

    # ------------------------------------------------------- the master

    def connected(self, now: float) -> list[Effect]:
        """A stream to the master can be opened; the first effect is what opens it. None once the agent has ended."""
        self._core.now, self._core.state.registered = now, False
        if self._core.state.left:
            return []
        register = ToMaster(records.registration(self._core.state, self._core.options, VERSION))
        return [register, *self._effects()]

    def disconnected(self, now: float) -> list[Effect]:
        self._core.now, self._core.state.registered = now, False
        return self._effects()

    def from_master(self, item: Message, now: float) -> list[Effect]:
        """The master has sent this; what is malformed is logged."""
        self._core.now = now
        try:
            self._receive(field(item, "type", str), item)
        except BadMessage as error:
            _log.warning("a message of the master makes no sense: %s", error)
        return self._effects()

    def _receive(self, kind: str, item: Message) -> None:
        core, payload = self._core, field(item, kind.lower(), dict, {})
        if kind == "PING":
            core.add(ToMaster(message("PONG")))
        elif kind == "REGISTERED":
            self._registered(path_id(payload, "agent_id"))
        elif kind == "SHUTDOWN":
            until = core.now + core.options.grace_s + SPARE_S
            begin_departure(core, field(payload, "message", str, ""), until, notified=True)
        elif core.state.id is None:
            return  # what an earlier agent was sent
        elif kind == "RUN":
            tasks.run_tasks(core, payload)
        elif kind == "KILL":
            tasks.kill_for_master(core, payload)
        elif kind == "ACKNOWLEDGE":
            self._acknowledged(value_of(payload, "framework_id"), value_of(payload, "task_id"), octets(payload, "uuid"))
        elif kind == "FRAMEWORK":
            tasks.update_framework(core, field(payload, "framework_info", dict))
        elif kind == "SHUTDOWN_FRAMEWORK":
            if (framework := core.state.frameworks.get(value_of(payload, "framework_id"))) is not None:
                abandon_framework(core, framework)
        elif kind in ("MESSAGE", "SHUTDOWN_EXECUTOR"):
            self._for_executor(kind, payload)
        else:
            raise BadMessage(f"{kind!r:.80} is no message of a master")

    def _for_executor(self, kind: str, payload: Message) -> None:
        core = self._core
        ids = value_of(payload, "framework_id"), value_of(payload, "executor_id")
        executor, task = core.state.executor(*ids), core.state.task(*ids)
        if executor is not None and kind == "MESSAGE":
            core.send(executor.stream, message("MESSAGE", data=field(payload, "data", str, "")))
        elif executor is not None:
            text = "its executor was asked to end"
            tasks.shut_down_executor(core, executor, TaskEnd("failed", "REASON_EXECUTOR_TERMINATED", text))
        elif task is not None and task.executor is None and kind == "SHUTDOWN_EXECUTOR":
            tasks.kill_task(core, task, None)  # a command task has itself for an executor

    def _registered(self, agent_id: str) -> None:
        state = self._core.state
        if state.id != agent_id:
            state.id = agent_id
            records.keep_agent(self._core)
        state.registered = True
        _log.info("registered as %s", agent_id)
        tasks.resend_updates(self._core)

    def _acknowledged(self, framework_id: str, task_id: str, uuid: bytes) -> None:
        core = self._core
        if (task := core.state.task(framework_id, task_id)) is None:
            return
        status = tasks.acknowledge_update(core, task, base64_of(uuid))
        if status is None:
            return
        executor = core.state.executor(framework_id, task.executor or "")
        if executor is not None and status["source"] == "SOURCE_EXECUTOR":
            api.send_acknowledged(core, executor, task_id, status["uuid"])
        if task.over and not task.pending:
            tasks.remove_task(core, core.state.frameworks[framework_id], task)

    # ------------------------------------------------------- executors

    def subscribe(self, call: Message, stream: str, now: float) -> list[Effect]:
        """An executor opens a stream; raises `HTTPError` or `BadMessage`, and then there is none."""
        return self._step(now, api.subscribe_executor, call, stream)

    def call(self, call: Message, now: float) -> list[Effect]:
        """Any other call of an executor; raises `HTTPError` or `BadMessage`."""
        return self._step(now, api.executor_call, call)

    def closed(self, stream: str, now: float) -> list[Effect]:
        return self._step(now, api.stream_closed, stream)

    # ------------------------------------------------------- containers

    def started(self, container_id: str, pid: int, birth: int, now: float) -> list[Effect]:
        """A container runs: its process, and when that started (`shim.birth_of`)."""
        return self._step(now, container_runs, container_id, pid, birth)

    def exited(self, container_id: str, code: int | None, reason: str, now: float) -> list[Effect]:
        """A container has ended, or could not be started.

        Parameters
        ----------
        code
            The exit status; negative for the signal that ended it; None where it is not known.
        reason
            For people, or `executors.mesos.agent.state.OUT_OF_MEMORY`; empty for none.
        """
        return self._step(now, container_ended, container_id, code, reason)

    # ------------------------------------------------------- operators, time

    def operate(
        self, call: Message, usage: Callable[[str], GroupUsage | None], now: float
    ) -> tuple[Message, list[Effect]]:
        """A call of an operator, and the answer; raises as `api.operate` does."""
        self._core.now = now
        answer = api.operate(self._core, call, usage)
        return answer, self._effects()

    def leave(self, reason: str, now: float, *, notified: bool = False) -> list[Effect]:
        """End everything that runs here, unregister, and then end: the last effect of all is `ExitAgent`.

        With `notified`, there is no master: nothing waits for its acknowledgements.
        """
        self._core.now = now
        begin_departure(self._core, reason, now + self._core.options.grace_s + SPARE_S, notified=notified)
        return self._effects()

    def due(self) -> float:
        """When `wake` is to be called; infinite for never."""
        return self._core.timers.due()

    def wake(self, now: float) -> list[Effect]:
        core = self._core
        core.now = now
        for what, *ids in core.timers.expired(now):
            if what == "retry":
                tasks.retry_update(core, *ids)
            elif what == "heartbeat":
                api.send_heartbeat(core, *ids)
            elif what in ("limit", "request", "memory"):
                tasks.lease_over(core, what, *ids)
            elif what == "ends":
                allocation_ends(core)
            elif what in ("register", "return", "shutdown"):
                tasks.executor_overdue(core, what, *ids)
        return self._effects()

    def _step(self, now: float, part: Callable[..., None], *arguments: Any) -> list[Effect]:
        self._core.now = now
        part(self._core, *arguments)
        return self._effects()

    def _effects(self) -> list[Effect]:
        finish_departure(self._core)
        return self._core.take_effects()


def container_runs(core: AgentCore, container_id: str, pid: int, birth: int) -> None:
    """A container has started: so has the command task in it."""
    instance = tasks.container_started(core, container_id, pid, birth)
    if instance is not None and (task := core.state.task(instance.framework, instance.task or "")) is not None:
        tasks.task_started(core, task)


def container_ended(core: AgentCore, container_id: str, code: int | None, reason: str) -> None:
    """A container has ended: say so for its task, or for the tasks of its executor."""
    instance = core.state.instances.get(container_id)
    if instance is None:
        return
    framework = core.state.frameworks.get(instance.framework)
    task = None if framework is None else framework.tasks.get(instance.task or "")
    if task is not None:
        tasks.task_exited(core, task, instance, code, reason)
    tasks.drop_container(core, instance, ": ".join(filter(None, (tasks.exit_text(code, "its process"), reason))))
    executor = None if framework is None else framework.executors.get(instance.executor)
    if instance.task is None and executor is not None and executor.container == container_id:
        tasks.executor_exited(core, executor, instance, code, reason)


def resume_after_restart(core: AgentCore) -> None:
    """Set going again what was kept; what is to be done is among the effects of the next call."""
    for framework in list(core.state.frameworks.values()):
        for executor in framework.executors.values():
            ids = (framework.id, executor.id)
            if executor.verdict is not None:
                core.add(StopContainer(executor.container, core.options.grace_s))
            elif executor.subscribed:
                core.timers.at(("return", *ids), core.now + core.options.recovery_s)
            else:
                core.timers.at(("register", *ids), core.now + core.options.registration_s)
            tasks.recount_limit(core, executor)
            for task in executor.tasks.values():
                task.delivered = executor.subscribed
        for task in framework.tasks.values():
            if task.verdict is not None:
                tasks.end_task(core, task, task.verdict, core.options.grace_s)
        if framework.over:
            abandon_framework(core, framework)
    for instance in list(core.state.instances.values()):
        if instance.pid is None:  # whether it started is not known: nothing that was left behind may go on
            container_ended(core, instance.id, None, "the agent ended while it was being started")
        else:
            tasks.resume_leases(core, instance)
    if core.effects:
        core.timers.at(("resume",), core.now)


SPARE_S = 5.0
"""How long before the end of an allocation everything has been stopped, to send the last updates [s]."""


def plan_departure(core: AgentCore) -> None:
    """Look to the end of the allocation, which is to find nothing running."""
    ends, margin_s = core.options.ends, core.options.margin_s
    if ends is not None and margin_s is not None:
        core.timers.at(("ends",), ends - margin_s)


def allocation_ends(core: AgentCore) -> None:
    """The allocation ends soon."""
    ends = core.now if core.options.ends is None else core.options.ends
    until = max(ends - SPARE_S, core.now + core.options.grace_s)  # with a small margin, it may be a little late
    begin_departure(core, "the agent's allocation ends", until)


def begin_departure(core: AgentCore, reason: str, until: float, *, notified: bool = False) -> None:
    """End everything, and then the agent (see `Departure`); the reason is reported to frameworks and master."""
    if core.state.departure is not None:
        return
    _log.info("the agent leaves: %s", reason)
    core.state.departure = Departure(reason, until, notified)
    core.timers.at(("leave",), until)
    for framework in list(core.state.frameworks.values()):
        end_framework(core, framework, TaskEnd("killed", "REASON_AGENT_DRAINING", reason))


def end_framework(core: AgentCore, framework: AgentFramework, verdict: TaskEnd) -> None:
    """End all that runs of a framework."""
    for executor in list(framework.executors.values()):
        tasks.shut_down_executor(core, executor, verdict)
    for task in list(framework.tasks.values()):
        tasks.end_task(core, task, verdict, core.options.grace_s)


def abandon_framework(core: AgentCore, framework: AgentFramework) -> None:
    """The framework is gone: end all that runs of it; the master is informed when it has ended, once."""
    framework.over = True
    records.keep(core, "frameworks", framework)
    end_framework(core, framework, TaskEnd("killed", "REASON_FRAMEWORK_REMOVED", "its framework is gone"))
    for task in list(framework.tasks.values()):
        task.pending.clear()
        core.timers.cancel("retry", framework.id, task.id)
        if task.over:
            tasks.remove_task(core, framework, task)
    tasks.remove_if_empty(core, framework)


def finish_departure(core: AgentCore) -> None:
    """End the agent once it is to, and nothing is left to wait for."""
    leaving, state = core.state.departure, core.state
    if leaving is None or state.left:
        return
    if core.now < leaving.until:
        unsaid = any(task.pending for framework in state.frameworks.values() for task in framework.tasks.values())
        if state.instances or (unsaid and not leaving.notified):
            return
    core.send_to_master("UNREGISTER", reason=leaving.reason)
    records.forget_all(core)
    state.left = True
    core.add(ExitAgent(0))
