"""Containers of an agent: started, watched, kept to their quotas, and ended with everything that they have started."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from asa.core.errors import StateError
from asa.log import proc
from asa.security.files import private_directory
from executors.cgroup.group import Group, GroupUsage, Quotas, unbounded
from executors.mesos.agent.shim import LOG, ForkedShim, StartedShim, birth_of, process_file, process_of, status_file
from executors.mesos.agent.state import OUT_OF_MEMORY, ContainerSpec
from executors.mesos.host import PoolHost
from executors.processes import kill_sessions

_log = logging.getLogger(__name__)

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class AgentHost(PoolHost):
    """What an agent asks of its node, beyond what masters ask, too."""

    def start_shim(self, log: Path) -> StartedShim:
        """The parent of its containers, which says there what it has to say; raises `OSError`."""
        return StartedShim(log)

    def birth_of(self, pid: int) -> int | None:
        """When a process was started, in the kernel's own count since boot; None when it has ended."""
        return birth_of(pid)

    def signal_process(self, pid: int, number: int) -> None:
        """Send a signal to any process; raises `OSError`."""
        os.kill(pid, number)


AGENT_HOST = AgentHost()


class Unlimited:
    """No limits, as `Quotas` has it; a process that leaves its session is not found any more."""

    name = "none"
    why = "quotas were not asked for"

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> Group:
        return SessionGroup()

    def bound(self, cores: float) -> None:
        raise unbounded(self.name)

    def recover(self, name: str, pid: int) -> Group | None:
        session = SessionGroup()
        session.adopt(pid)
        return session if session.pids() else None

    def sweep(self, keep: Collection[str]) -> None: ...


class SessionGroup:
    """The processes of one session."""

    gates: tuple[str, ...] | None = ()

    def __init__(self) -> None:
        self._leader = 0

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        return tuple(argv)

    def adopt(self, pid: int) -> None:
        self._leader = pid

    def limit(self, cores: float | None) -> None: ...
    def weigh(self, weight: float) -> None: ...
    def hold_memory(self, memory: int | None) -> None: ...

    def usage(self) -> GroupUsage:
        members = self._members().values()
        return GroupUsage(
            user_s=sum(each.user + each.children_user for each in members) * _TICK_S,
            system_s=sum(each.system + each.children_system for each in members) * _TICK_S,
            periods=None,
            throttled=None,
            throttled_s=None,
            memory=sum(each.resident for each in members) * _PAGE,
            memory_limit=None,
            processes=len(members),
            threads=sum(each.threads for each in members),
        )

    def starved(self) -> bool:
        return False

    def pids(self) -> list[int]:
        return list(self._members())

    def kill(self) -> None:
        if self._leader and self._members():
            kill_sessions({self._leader})

    def close(self) -> None: ...

    def _members(self) -> dict[int, proc.Stat]:
        return {pid: found for pid, found in proc.living() if found.session == self._leader} if self._leader else {}


@dataclass(frozen=True)
class OrphanPolicy:
    """What becomes of containers whose agent has died: parameters of `executors.mesos.agent.shim.Shim`.

    `forked` is the shim that sees to it, if one was forked in advance.
    """

    grace_s: float
    quotas: str = ""
    space: str = ""
    scratch: str = ""
    forked: ForkedShim | None = None


_LINE_MOST = 1 << 20
_ENDING_S = 5.0


class Launcher:
    """Starts containers through a shim; when that is killed, another one is started.

    `ended` is called with the id and the wait status of a container that has ended, `lost` with the ids of those whose
    shim was killed: how they end must be found out otherwise.
    """

    def __init__(
        self,
        run: Path,
        lock: Path,
        orphans: OrphanPolicy,
        *,
        ended: Callable[[str, int], None],
        lost: Callable[[list[str]], None],
        node: AgentHost = AGENT_HOST,
    ) -> None:
        self._node = node
        self._given = {
            "run": str(run),
            "lock": str(lock),
            "grace_s": orphans.grace_s,
            "quotas": orphans.quotas,
            "space": orphans.space,
            "scratch": orphans.scratch,
        }
        self._forked, self._log = orphans.forked, run / LOG
        self._ended, self._lost = ended, lost
        self._waiting: dict[str, asyncio.Future[tuple[int, int]]] = {}
        self._running: set[str] = set()
        self._shim: StartedShim | ForkedShim | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def open(self) -> None:
        """Have a shim, the one that was forked or a new one, before the first container; raises `StateError`."""
        shim, self._forked = self._forked, None
        try:
            self._shim = shim or self._node.start_shim(self._log)
        except OSError as error:
            raise StateError(f"cannot start the process that starts containers: {error}") from error
        reader, self._writer = await asyncio.open_connection(sock=self._shim.socket, limit=_LINE_MOST)
        self._writer.write(json.dumps(self._given).encode() + b"\n")
        self._reading = asyncio.create_task(self._read(reader, self._shim))

    async def launch(self, container: ContainerSpec, group: Group) -> tuple[int, int]:
        """Start a container, whose output goes to files in its sandbox: its first process and its start time.

        Raises `StateError` when it cannot be started; the text says why.
        """
        async with self._opening:  # of several containers, one has a new shim started
            if self._writer is None:
                await self.open()
        assert self._writer
        argv = group.wrap(container.argv)
        order = {
            "id": container.id,
            "argv": [*argv],
            "leads": len(argv) - len(container.argv),
            "gates": group.gates,
            "environment": {**container.environment},
            "sandbox": container.sandbox,
        }
        answer: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._waiting[container.id] = answer
        self._writer.write(json.dumps(order).encode() + b"\n")
        try:
            return await answer
        finally:
            self._waiting.pop(container.id, None)

    async def close(self) -> None:
        """Let go of the shim, which ends with its last container."""
        self._closed = True
        if self._writer:
            self._writer.write(b'{"end":true}\n')
            self._writer.close()
        if self._reading:
            with suppress(asyncio.CancelledError):
                await self._reading
        if self._shim and not self._running:
            await asyncio.to_thread(self._shim.wait, _ENDING_S)

    def abandon(self) -> None:
        self._closed = True
        if self._writer:
            self._writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, shim: StartedShim | ForkedShim) -> None:
        with suppress(OSError, ValueError):
            async for line in reader:
                self._received(json.loads(line))
        self._writer = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(StateError("the process that starts containers was killed; launch it again"))
        running, self._running = self._running, set()
        if not self._closed:
            _log.warning("the process that starts containers was killed: another takes its place")
            self._lost(sorted(running))
            await asyncio.to_thread(shim.wait)

    def _received(self, record: dict[str, Any]) -> None:
        container: str = record["id"]
        if "status" in record:
            self._running.discard(container)
            self._ended(container, record["status"])
            return
        answer = self._waiting.get(container)
        if "pid" in record:
            self._running.add(container)
        if answer is None or answer.done():
            return
        if "pid" in record:
            answer.set_result((record["pid"], record["birth"]))
        else:
            answer.set_exception(StateError(record["error"]))


_LOOK_S = 0.1
_STATUS_S = 1.0
_SETTLE_S = 0.005  # tasks that come and go change a limit back and forth: what is left of that is written
_LEAST_WEIGHT = 0.01
_UNKNOWN = "its exit status is not known"


class _CpuShare(NamedTuple):
    """A CPU limit, None for none, and a weight; negative for that of the start."""

    limit: float | None
    weight: float


_GIVEN = _CpuShare(-1.0, -1.0)


@dataclass(eq=False)
class _LiveContainer:
    """A container from `start` to `remove`."""

    id: str
    group: Group | None = None
    pid: int = 0
    birth: int = 0
    status: int | None = None
    wanted: _CpuShare = _GIVEN
    """Its CPU limit and its weight, or what these are about to become."""
    written: _CpuShare = _GIVEN
    """The same as they were changed to last."""
    changing: bool = False
    """Whether they are about to be changed."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """What is done to one container is done one thing after the other."""


class NodeContainers:
    """All containers of one agent.

    Parameters
    ----------
    run
        Directory, mode 0700, of what a later agent must know of them.
    lock
        The file that this agent holds locked.
    started
        Called with a container's id, its first process, and when that was started (`shim.birth_of`).
    exited
        Called once no process of a container is left, or it could not be started: with its id, its first process's exit
        code (the negative number of the signal that killed it; None when unknown), and what is known beyond that, in
        words, or `OUT_OF_MEMORY`; "" for nothing.
    """

    def __init__(
        self,
        quotas: Quotas,
        run: Path,
        lock: Path,
        orphans: OrphanPolicy,
        *,
        started: Callable[[str, int, int], object],
        exited: Callable[[str, int | None, str], object],
        node: AgentHost = AGENT_HOST,
    ) -> None:
        self._node, self._quotas, self._run, self._started, self._exited = node, quotas, run, started, exited
        self._launcher = Launcher(run, lock, orphans, ended=self._ended, lost=self._lost, node=node)
        self._all: dict[str, _LiveContainer] = {}
        self._jobs: set[asyncio.Task[None]] = set()

    async def open(self, earlier: Iterable[tuple[str, int, int]] = ()) -> None:
        """Take over containers that an earlier agent has started, and end those that are not known.

        Parameters
        ----------
        earlier
            Id, first process and its start time of each. Of those that have ended, `exited` is called before this
            returns.
        """
        await self._launcher.open()
        known: list[tuple[_LiveContainer, bool]] = []
        for container, pid, birth in earlier:
            running = self._all[container] = _LiveContainer(container, pid=pid, birth=birth)
            found = self._node.birth_of(pid)
            first = 0 if found not in (birth, None) else pid  # the number may be another process's by now
            with suppress(StateError, OSError):
                running.group = await asyncio.to_thread(self._quotas.recover, container, first)
            known.append((running, found == birth))
        # First of all: with the first end of a container, all that is known of one that was just starting is forgotten.
        await asyncio.to_thread(self._sweep)
        for running, lives in known:
            if lives:
                self._do(self._watch(running))
        await asyncio.gather(*(self._watch(running) for running, lives in known if not lives))

    def start(self, container: ContainerSpec) -> None:
        """Start a container; `started` is called, or `exited`."""
        running = self._all[container.id] = _LiveContainer(container.id)
        self._do(self._start(running, container))

    def stop(self, container: str, grace_s: float) -> None:
        """End a container: SIGTERM to its processes, SIGKILL after `grace_s` [s]; at once when that is 0."""
        if running := self._all.get(container):
            self._do(self._stop(running, grace_s))

    def limit(self, container: str, cores: float | None) -> None:
        """At most so many cores from now on."""
        if running := self._all.get(container):
            self._want(running, running.wanted._replace(limit=cores))

    def weigh(self, container: str, weight: float) -> None:
        """Cores it should have when others want theirs too, from now on."""
        if running := self._all.get(container):
            self._want(running, running.wanted._replace(weight=max(weight, _LEAST_WEIGHT)))

    def hold_memory(self, container: str, memory: int | None) -> None:
        """Take memory back from it while it has more than this [bytes]; None for no such limit."""
        if running := self._all.get(container):
            self._do(self._hold_memory(running, memory))

    def signal(self, container: str, number: int) -> None:
        """Send a signal to all of its processes."""
        if running := self._all.get(container):
            self._do(self._signal(running, number))

    def _want(self, running: _LiveContainer, share: _CpuShare) -> None:
        running.wanted = share
        if not running.changing:  # else the last of several counts
            running.changing = True
            self._do(self._change(running))

    def remove(self, container: str) -> None:
        """Forget a container that has ended."""
        self._all.pop(container, None)
        for path in (status_file(self._run, container), process_file(self._run, container)):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def usage(self) -> dict[str, GroupUsage]:
        """What those that run have used so far; may be called from any thread."""
        found, available = {}, proc.available_memory()
        for running in list(self._all.values()):
            if running.group and running.pid and not running.over.is_set():
                with suppress(StateError, OSError):  # it has just ended
                    found[running.id] = replace(running.group.usage(), available=available)
        return found

    async def close(self) -> None:
        """End all containers, at once, before returning."""
        for running in list(self._all.values()):
            self._do(self._stop(running, 0.0))
        while self._jobs:
            await asyncio.wait(self._jobs)
        await self._launcher.close()

    def abandon(self) -> None:
        """As if we had died: containers go on."""
        self._launcher.abandon()
        for job in self._jobs:
            job.cancel()

    # ------------------------------------------------------- one thing after the other

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _start(self, running: _LiveContainer, container: ContainerSpec) -> None:
        async with running.turn:
            try:
                group = running.group = await asyncio.to_thread(self._prepare, container)
                running.pid, running.birth = await self._launcher.launch(container, group)
                group.adopt(running.pid)
            except (StateError, OSError) as error:
                await self._finish(running, None, str(error))
                return
            self._started(running.id, running.pid, running.birth)

    async def _stop(self, running: _LiveContainer, grace_s: float) -> None:
        if grace_s > 0:
            await self._signal(running, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(running.over.wait(), grace_s)
        async with running.turn:
            if not running.over.is_set():
                await asyncio.to_thread(self._kill, running)

    async def _signal(self, running: _LiveContainer, number: int) -> None:
        async with running.turn:
            if not running.over.is_set():
                for pid in await asyncio.to_thread(self._pids, running):
                    with suppress(OSError):
                        self._node.signal_process(pid, number)

    async def _hold_memory(self, running: _LiveContainer, memory: int | None) -> None:
        async with running.turn:
            if running.group and not running.over.is_set():
                with suppress(StateError, OSError):  # it has just ended
                    await asyncio.to_thread(running.group.hold_memory, memory)

    async def _change(self, running: _LiveContainer) -> None:
        await asyncio.sleep(_SETTLE_S)
        async with running.turn:
            running.changing, wanted = False, running.wanted
            if running.group and not running.over.is_set():
                with suppress(StateError, OSError):  # it has just ended
                    if wanted.limit != running.written.limit:
                        await asyncio.to_thread(running.group.limit, wanted.limit)
                    if wanted.weight != running.written.weight:
                        await asyncio.to_thread(running.group.weigh, wanted.weight)
                    running.written = wanted

    async def _end(self, running: _LiveContainer, status: int | None) -> None:
        """Its first process has ended, so all of it has to."""
        async with running.turn:
            if running.over.is_set():
                return
            starved = status != 0 and await asyncio.to_thread(self._out_of_memory, running)
            code = None if status is None else os.waitstatus_to_exitcode(status)
            await self._finish(running, code, OUT_OF_MEMORY if starved else "" if status is not None else _UNKNOWN)

    async def _finish(self, running: _LiveContainer, code: int | None, reason: str) -> None:
        running.over.set()
        await asyncio.to_thread(self._clear, running)
        self._exited(running.id, code, reason)

    # ------------------------------------------------------- how containers end

    def _ended(self, container: str, status: int) -> None:
        if running := self._all.get(container):
            self._do(self._end(running, status))

    def _lost(self, containers: Iterable[str]) -> None:
        for container in containers:
            if running := self._all.get(container):
                self._do(self._watch(running))

    async def _watch(self, running: _LiveContainer) -> None:
        """Until a process that is not our shim's child has ended; its own shim, if that lives, writes its status."""
        while self._node.birth_of(running.pid) == running.birth:
            await asyncio.sleep(_LOOK_S)
        deadline = asyncio.get_running_loop().time() + _STATUS_S
        while (status := self._status(running.id)) is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_S)
        await self._end(running, status)

    def _status(self, container: str) -> int | None:
        try:
            return int(status_file(self._run, container).read_text())
        except (OSError, ValueError):
            return None

    # ------------------------------------------------------- in threads: these may take their time

    def _prepare(self, container: ContainerSpec) -> Group:
        private_directory(Path(container.sandbox))
        weight = max(container.cpus, _LEAST_WEIGHT)
        return self._quotas.group(container.id, weight=weight, cores=container.cpus_limit, memory=container.memory)

    def _sweep(self) -> None:
        """End what an earlier agent had started without living long enough to take note of it."""
        for path in self._run.glob("*.process"):
            if path.stem in self._all:
                continue
            if (pid := process_of(path, self._node.birth_of)) is not None:
                self._node.kill_sessions({pid})
            self.remove(path.stem)
        self._quotas.sweep(frozenset(self._all))

    def _pids(self, running: _LiveContainer) -> list[int]:
        if running.group is not None:
            return running.group.pids()
        return [running.pid] if self._node.birth_of(running.pid) == running.birth else []

    def _out_of_memory(self, running: _LiveContainer) -> bool:
        with suppress(StateError, OSError, ValueError):
            return running.group is not None and running.group.starved()
        return False

    def _kill(self, running: _LiveContainer) -> None:
        with suppress(StateError, OSError):
            if running.group is not None:
                running.group.kill()
        first = running.pid if running.pid and self._node.birth_of(running.pid) == running.birth else None
        if not running.pid:  # its shim was killed before it had said that it has started it
            first = process_of(process_file(self._run, running.id), self._node.birth_of)
        if first is not None:
            self._node.kill_sessions({first})

    def _clear(self, running: _LiveContainer) -> None:
        self._kill(running)
        with suppress(StateError, OSError):
            if running.group is not None:
                running.group.close()
