"""The agent without I/O: what happens goes in, what is to be done comes out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from executors.cgroup.group import Usage
from executors.mesos.agent import (
    calls,
    departure,
    executors,
    instances,
    launch,
    leases,
    operator,
    recovery,
    tasks,
    updates,
    views,
)
from executors.mesos.agent import rows as kept
from executors.mesos.agent.command import identifier
from executors.mesos.agent.core import Core
from executors.mesos.agent.effects import Effect, Up
from executors.mesos.agent.options import Options
from executors.mesos.agent.state import State, Verdict
from executors.mesos.codec import BadMessage, Message
from executors.mesos.effects import Keep
from executors.mesos.messages import VERSION, base64_of, field, message, octets, value_of


def _sixteen() -> bytes:
    return os.urandom(16)


class Agent:
    """One node: it runs tasks in containers, and sees to it that frameworks hear what becomes of them.

    All times are seconds since the epoch. Each method returns what is to be done: first every `Keep`, in one
    transaction, and then the rest, in order.

    Parameters
    ----------
    rows
        What the journal of the agent that was here before has kept.
    fresh
        Gives 16 bytes that nobody has had before.
    """

    def __init__(
        self, options: Options, now: float, rows: Iterable[Keep] = (), *, fresh: Callable[[], bytes] = _sixteen
    ) -> None:
        self._core = Core(options, kept.restored(rows, now), fresh, now)
        self._ran = recovery.running(self._core.state)
        recovery.resume(self._core)
        departure.plan(self._core)

    @property
    def state(self) -> State:
        """What the agent knows; to be read only."""
        return self._core.state

    @property
    def options(self) -> Options:
        """What it was started with."""
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
        register = Up(views.registration(self._core.state, self._core.options, VERSION))
        return [register, *self._taken()]

    def disconnected(self, now: float) -> list[Effect]:
        """The stream to the master broke."""
        self._core.now, self._core.state.registered = now, False
        return self._taken()

    def from_master(self, item: Message, now: float) -> list[Effect]:
        """What the master says. Of what makes no sense nothing remains but a count."""
        self._core.now = now
        try:
            self._heed(field(item, "type", str), item)
        except BadMessage:
            self._core.count("invalid_master_messages")
        return self._taken()

    def _heed(self, kind: str, item: Message) -> None:
        core, said = self._core, field(item, kind.lower(), dict, {})
        if kind == "PING":
            core.do(Up(message("PONG")))
        elif kind == "REGISTERED":
            self._registered(identifier(said, "agent_id"))
        elif kind == "SHUTDOWN":
            departure.begin(core, field(said, "message", str, ""), core.now + core.options.grace_s + 5.0, told=True)
        elif core.state.id is not None:
            self._obey(kind, said)

    def _obey(self, kind: str, said: Message) -> None:
        core = self._core
        if kind == "RUN":
            launch.run(core, said)
        elif kind == "KILL":
            launch.kill(core, said)
        elif kind == "ACKNOWLEDGE":
            self._acknowledged(value_of(said, "framework_id"), value_of(said, "task_id"), octets(said, "uuid"))
        elif kind == "FRAMEWORK":
            launch.update_framework(core, field(said, "framework_info", dict))
        elif kind == "SHUTDOWN_FRAMEWORK":
            if (framework := core.state.frameworks.get(value_of(said, "framework_id"))) is not None:
                departure.abandon(core, framework)
        elif kind in ("MESSAGE", "SHUTDOWN_EXECUTOR"):
            ids = value_of(said, "framework_id"), value_of(said, "executor_id")
            executor, task = core.state.executor(*ids), core.state.task(*ids)
            if executor is not None and kind == "MESSAGE":
                core.send(executor.stream, message("MESSAGE", data=field(said, "data", str, "")))
            elif executor is not None:
                text = "its executor was told to end"
                executors.shutdown(core, executor, Verdict("TASK_FAILED", "REASON_EXECUTOR_TERMINATED", text))
            elif task is not None and task.executor is None and kind == "SHUTDOWN_EXECUTOR":
                tasks.kill(core, task, None)  # a command task has itself for an executor
        else:
            raise BadMessage(f"the master never says {kind!r:.80}")

    def _registered(self, agent_id: str) -> None:
        state = self._core.state
        if state.id != agent_id:
            state.id = agent_id
            kept.keep_agent(self._core)
        state.registered = True
        updates.resend(self._core)

    def _acknowledged(self, framework_id: str, task_id: str, uuid: bytes) -> None:
        core = self._core
        if (task := core.state.task(framework_id, task_id)) is None:
            return
        status = updates.acknowledge(core, task, base64_of(uuid))
        if status is None:
            return
        executor = core.state.executor(framework_id, task.executor or "")
        if executor is not None and status["source"] == "SOURCE_EXECUTOR":
            calls.acknowledged(core, executor, task_id, status["uuid"])
        if task.over and not task.pending:
            tasks.forget(core, core.state.frameworks[framework_id], task)

    # ------------------------------------------------------- executors

    def subscribe(self, call: Message, stream: str, now: float) -> list[Effect]:
        """An executor opens a stream; raises `HTTPError` or `BadMessage`, and then there is none."""
        self._core.now = now
        calls.subscribe(self._core, call, stream)
        return self._taken()

    def call(self, call: Message, now: float) -> list[Effect]:
        """Any other call of an executor; raises `HTTPError` or `BadMessage`."""
        self._core.now = now
        calls.call(self._core, call)
        return self._taken()

    def closed(self, stream: str, now: float) -> list[Effect]:
        """An executor's stream broke."""
        self._core.now = now
        calls.closed(self._core, stream)
        return self._taken()

    # ------------------------------------------------------- containers

    def started(self, container_id: str, pid: int, birth: int, now: float) -> list[Effect]:
        """A container runs.

        Parameters
        ----------
        birth
            When its process started, as ``/proc/PID/stat`` has it [clock ticks since the machine did].
        """
        self._core.now = now
        instance = instances.begun(self._core, container_id, pid, birth)
        if instance is not None and instance.task is not None:
            task = self._core.state.task(instance.framework, instance.task)
            if task is not None:
                tasks.started(self._core, task)
        return self._taken()

    def exited(self, container_id: str, code: int | None, reason: str, now: float) -> list[Effect]:
        """A container has ended, or could not be started.

        Parameters
        ----------
        code
            The exit status; negative for the signal that ended it; None where it is not known.
        reason
            For people, or `executors.mesos.agent.effects.OUT_OF_MEMORY`; empty for none.
        """
        self._core.now = now
        recovery.ended(self._core, container_id, code, reason)
        return self._taken()

    # ------------------------------------------------------- operators, time

    def operate(
        self, call: Message, usage: Callable[[str], Usage | None], now: float
    ) -> tuple[Message | None, list[Effect]]:
        """A call of an operator, and the answer, None for an empty one; raises `HTTPError` or `BadMessage`.

        Parameters
        ----------
        usage
            What a container has used; None when nobody knows.
        """
        self._core.now = now
        answer = operator.operate(self._core, call, usage)
        return answer, self._taken()

    def leave(self, reason: str, now: float, *, told: bool = False) -> list[Effect]:
        """End everything that runs here, tell the master, and then end: the last effect of all is `Exit`.

        With `told`, there is no master that could be told: nothing waits for it.
        """
        self._core.now = now
        departure.begin(self._core, reason, now + self._core.options.grace_s + departure.SPARE_S, told=told)
        return self._taken()

    def due(self) -> float:
        """When `wake` is wanted; infinite when it is not."""
        return self._core.timers.due()

    def wake(self, now: float) -> list[Effect]:
        """Do what is due."""
        core = self._core
        core.now = now
        for what, *ids in core.timers.expired(now):
            if what == "retry":
                updates.retry(core, *ids)
            elif what == "heartbeat":
                calls.heartbeat(core, *ids)
            elif what == "complete":
                tasks.timed_out(core, *ids)
            elif what in ("lease", "request"):
                leases.over(core, what, *ids)
            elif what == "ends":
                departure.run_out(core)
            elif what in ("register", "return", "shutdown"):
                executors.overdue(core, what, *ids)
        return self._taken()

    def _taken(self) -> list[Effect]:
        departure.finish(self._core)
        return self._core.taken()
