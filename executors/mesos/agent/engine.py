"""Runs the agent's state machine: carries out its effects, and passes to it what happens then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from asa.core.errors import StateError
from asa.web.server import Durable, ResponseStream
from executors.cgroup.group import GroupUsage, Quotas
from executors.mesos.agent.containers import AGENT_HOST, AgentHost, NodeContainers, OrphanPolicy
from executors.mesos.agent.link import MasterLink
from executors.mesos.agent.machine import NodeAgent
from executors.mesos.agent.state import (
    AgentEffect,
    Effect,
    ExitAgent,
    HoldMemory,
    LimitCpu,
    RemoveContainer,
    SignalContainer,
    StartContainer,
    StopContainer,
    ToMaster,
    WeighCpu,
)
from executors.mesos.clockwork import Clockwork
from executors.mesos.codec import Message
from executors.mesos.commit import GroupCommit, StreamRecord
from executors.mesos.journal import Journal
from executors.mesos.pool_directory import PoolDirectory

_FLUSH_S = 2.0

_log = logging.getLogger(__name__)


class AgentEngine:
    """Runs one machine.

    While the journal cannot be written (a full disk, say) no container is started, since a later agent would not know
    of it: the task fails with the reason. All else goes on and is written once that is possible again; only the answers
    to executors wait for it. Parameters are those of `MasterLink` and `NodeContainers`; nothing else calls `machine`.
    """

    def __init__(
        self,
        machine: NodeAgent,
        journal: Journal,
        directory: PoolDirectory,
        quotas: Quotas,
        *,
        run: Path,
        lock: Path,
        orphans: OrphanPolicy,
        patience_s: float,
        over: Path | None = None,
        node: AgentHost = AGENT_HOST,
    ) -> None:
        self._machine = machine
        self._commit: GroupCommit[AgentEffect] = GroupCommit(journal, self._deliver, strict=False)
        self._committing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._clock = Clockwork(machine.due, lambda: self.step(machine.wake), node.time)
        self.link = MasterLink(
            directory,
            connected=self.connected,
            disconnected=lambda: self._step_safely(machine.disconnected),
            received=self.received,
            patience_s=patience_s,
            over=over,
            node=node,
        )
        self.containers = NodeContainers(
            quotas,
            run,
            lock,
            orphans,
            started=self.started,
            exited=self.exited,
            node=node,
        )
        self.streams: dict[str, ResponseStream] = {}
        """Open streams of executors, by id."""
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """Set to the exit code once the agent's work is over."""
        self._stopped = False

    async def open(self) -> None:
        """Take over what an earlier agent has left."""
        self._committing = asyncio.create_task(self._commit.run())
        await self.containers.open(self._machine.recovered())
        self._clock.arm()

    async def close(self) -> None:
        """End all containers and streams, and send what is still to be sent."""
        self._flush()
        await self.link.flush(_FLUSH_S)
        self._stop()
        await self.containers.close()
        self._flush()
        for stream in list(self.streams.values()):
            stream.end()

    def abandon(self) -> None:
        self._stop()
        self.containers.abandon()

    def step(self, step: Callable[[float], Sequence[Effect]], *, lazily: bool = False) -> None:
        """Have the machine take a step, and carry out its effects; raises what the machine raises."""
        if not self._stopped:
            self._carry_out(step(self._clock.now()), lazily=lazily)

    async def durable(self) -> None:
        """Until all that has happened so far is written."""
        await self._commit.durable()

    async def operate(self, call: Message) -> Message:
        """A call of an operator; raises what the machine raises."""
        found: dict[str, GroupUsage] = {}
        if call.get("type") == "GET_CONTAINERS":
            found = await asyncio.to_thread(self.containers.usage)
        answer, effects = self._machine.operate(call, found.get, self._clock.now())
        self._carry_out(effects)
        await self.durable()
        return answer

    def subscribe(self, call: Message, stream: ResponseStream) -> None:
        """An executor opens a stream; raises what the machine raises."""
        self.streams[stream.id] = stream
        try:
            self.step(lambda now: self._machine.subscribe(call, stream.id, now))
        except BaseException:
            del self.streams[stream.id]
            raise

    def call(self, call: Message) -> Durable | None:
        """Any other call of an executor: what to wait for until it is durable; raises what the machine raises."""
        self.step(lambda now: self._machine.call(call, now))
        return self._commit.pending

    def closed(self, stream: ResponseStream) -> None:
        del self.streams[stream.id]
        if not stream.ended:
            self._step_safely(lambda now: self._machine.closed(stream.id, now))

    def leave(self, reason: str, patience_s: float, *, notified: bool = False) -> None:
        """End all that runs, unregister, and end, after `patience_s` [s] in any case; see `NodeAgent.leave`."""
        self._step_safely(lambda now: self._machine.leave(reason, now, notified=notified))
        self._loop.call_later(patience_s, self._over, 0)

    def _over(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    # ------------------------------------------------------- called by the link

    def connected(self) -> None:
        self._flush()
        self.link.clear()  # there was no connection for that
        self._step_safely(self._machine.connected)
        self._flush()

    def received(self, item: Message) -> None:
        # No caller waits for what an acknowledgement changes: an agent that forgets it sends the update again.
        self._step_safely(lambda now: self._machine.from_master(item, now), lazily=item.get("type") == "ACKNOWLEDGE")

    # ------------------------------------------------------- called by containers

    def started(self, container: str, pid: int, birth: int) -> None:
        self._step_safely(lambda now: self._machine.started(container, pid, birth, now))

    def exited(self, container: str, code: int | None, reason: str) -> None:
        self._step_safely(lambda now: self._machine.exited(container, code, reason, now))

    # ------------------------------------------------------- effects

    def _step_safely(self, step: Callable[[float], Sequence[Effect]], *, lazily: bool = False) -> None:
        """As `step`; a fault is logged, since no caller could handle it."""
        try:
            self.step(step, lazily=lazily)
        except Exception:  # a fault of ours: what runs here goes on all the same
            _log.exception("the agent's machine failed")

    def _carry_out(self, effects: Sequence[Effect], *, lazily: bool = False) -> None:
        self._commit.carry_out(effects, lazily=lazily)
        self._clock.arm()

    def _flush(self) -> None:
        """Carry out now what else would be soon."""
        with suppress(StateError):  # it is tried again
            self._commit.flush()

    def _deliver(self, effects: Sequence[StreamRecord | AgentEffect]) -> None:
        for effect in effects:
            try:
                self._do(effect)
            except Exception:  # a fault of ours: what runs here goes on all the same
                _log.exception("an effect of the agent's machine failed")

    def _do(self, effect: StreamRecord | AgentEffect) -> None:
        match effect:
            case ToMaster(item):
                self.link.send(item)
            case StreamRecord(stream, record):
                if (found := self.streams.get(stream)) is not None:
                    found.end() if record is None else found.put(record)
            case StartContainer(container) if self._commit.trouble is None:
                self.containers.start(container)
            case StartContainer(container):
                reason = f"nothing is started while the agent's journal cannot be written: {self._commit.trouble}"
                self._loop.call_soon(self.exited, container.id, None, reason)
            case StopContainer(id, grace_s):
                self.containers.stop(id, grace_s)
            case LimitCpu(id, cpus):
                _log.info("container %s: at most %s cores", id, cpus)
                self.containers.limit(id, cpus)
            case WeighCpu(id, cpus):
                _log.info("container %s: weight of %s cores", id, cpus)
                self.containers.weigh(id, cpus)
            case HoldMemory(id, memory):
                _log.info("container %s: memory beyond %s bytes is taken back", id, memory)
                self.containers.hold_memory(id, memory)
            case SignalContainer(id, number):
                _log.info("container %s: signal %d", id, number)
                self.containers.signal(id, number)
            case RemoveContainer(id):
                self.containers.remove(id)
            case ExitAgent(code):
                self._over(code)

    def _stop(self) -> None:
        self._stopped = True
        self._clock.stop()
        if self._committing is not None:
            self._committing.cancel()
