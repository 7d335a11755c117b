"""A pool in one process: a master, agents on some nodes, frameworks that run tasks; what is drawn, and what must hold.

What runs there is the product: the services of master and agent with their journals, HTTP server, RecordIO, state
machines, container bookkeeping and shim, the agents' link, and the scheduler driver. Simulated are machines, the
network, and what containers run. Frameworks are those of a user (`Customer`): they write down what they launch before
they launch it, and what they were told before they acknowledge it.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import logging
import math
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from asa.core.errors import AsaError, StateError
from asa.testing.simulated_loop import SimulatedLoop, SimulatedPorts
from asa.testing.simulation import START_S, SimulatedBell, SimulatedProcess, SimulatedSelector, Simulation, Stuck
from coscheduler.torture.case import Fault, ScheduleOutcome, clock_faults, in_directory, log_uniform, pick
from coscheduler.torture.site import LOGIN, SimulatedHost
from executors.cgroup.group import Group, GroupUsage
from executors.mesos.agent.containers import AgentHost
from executors.mesos.agent.service import AgentService
from executors.mesos.agent.shim import Shim
from executors.mesos.agent.state import AgentOptions
from executors.mesos.agent.storage import WorkDirectory
from executors.mesos.agent.task_info import KILL_GRACE_S
from executors.mesos.codec import Message
from executors.mesos.driver import SchedulerDriver
from executors.mesos.framework import (
    RUN,
    Borrower,
    Framework,
    FrameworkOutcome,
    Lease,
    Offered,
    TaskGang,
    TaskNeed,
    TaskProgram,
)
from executors.mesos.journal import Entry, Journal
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions, MasterState
from executors.mesos.messages import TERMINAL, identity, value_of
from executors.mesos.messages import field as field_of
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.resources import parse, scalars
from executors.mesos.scheduler import FrameworkScheduler

HEAD = "head"
"""The machine of the master; frameworks are on `LOGIN`."""
PROGRAM = "/work"
"""What tasks run: its words are how long it takes [s], its exit code, how many cores it takes, and "deaf", if so."""
GIVEN_UP_S = 200.0
"""How long a framework waits for a task on an agent that is out of reach [s]."""
ASKED_S = 60.0
"""How long a framework waits for news of a task that may have been lost with a stream, before it asks once more [s]."""

AVOIDED_S = 20.0
"""How long a framework launches nothing on an agent that could not start a task, or tries no gang that failed [s]."""

REPORTS_MOST = 100
"""How often a task may be reported to be in one state."""

_SURELY_OVER = frozenset({"TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_ERROR", "TASK_DROPPED"})
"""What is reported of a task once; nothing else follows."""
_ENDED = TERMINAL | {"TASK_UNKNOWN"}
_log = logging.getLogger(__name__)


# ---------------------------------------------------------------- machines


class SimulatedPoolHost(SimulatedHost, AgentHost):
    """What a process of the pool sees of its machine."""

    _site: PoolSite  # type: ignore[assignment]

    def __init__(self, site: PoolSite, process: SimulatedProcess, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(site, process, environ or {})  # type: ignore[arg-type]

    def wait(self, event: Any, timeout: float | None = None) -> bool:
        until = math.inf if timeout is None else self._simulation.now + timeout
        return self._simulation.wait(event.is_set, until)

    def uniform(self, least: float, most: float) -> float:
        return self._simulation.random.uniform(least, most)

    def random_bytes(self, count: int) -> bytes:
        return self._simulation.random.randbytes(count)

    def journal(self, path: Path, holds: str, *, outlasts: bool = True) -> Journal:
        return TorturedJournal(self._site, self.process, path, holds)

    def listening_socket(self, address: str, port: int) -> Any:
        return self._site.ports.listen(self.process, port)

    def dial(self, address: str, port: int, timeout: float) -> Any:
        seconds, problem = self._site.ports.delay(self.process, port)
        self._simulation.sleep(min(seconds, timeout))
        if problem is not None:
            raise problem("timed out")
        return self._site.ports.connect(self.process, port)

    def is_ours(self, connection: Any) -> bool:
        return True

    def start_shim(self, log: Path) -> Any:
        return SimulatedShimProcess(self._site, self.process)

    def birth_of(self, pid: int) -> int | None:
        found = self._site.containers.get(pid)
        return None if found is None else found.birth

    def signal_process(self, pid: int, number: int) -> None:
        if (found := self._site.containers.get(pid)) is None:
            raise ProcessLookupError(pid)
        self._site.interrupt(found, number)

    def kill_sessions(self, sessions: AbstractSet[int]) -> None:
        for pid in sorted(sessions):
            if (found := self._site.containers.get(pid)) is not None:
                self._site.end(found, signal.SIGKILL)


class TorturedJournal(Journal):
    """A journal on a disk that may be slow or full."""

    def __init__(self, site: PoolSite, process: SimulatedProcess, path: Path, holds: str) -> None:
        super().__init__(path, holds, outlasts=False)
        self._site, self._process = site, process

    def write(self, entries: Sequence[Entry]) -> None:
        simulation, machine = self._site.simulation, self._process.machine
        simulation.turn()
        full, slow = self._site.disk(machine)
        if full > simulation.now:
            raise StateError("the disk is full")
        if slow > simulation.now:
            simulation.sleep(simulation.random.uniform(0.01, 2.0))
        super().write(entries)
        simulation.turn()


@dataclass(eq=False)
class Container:
    """What one container runs."""

    pid: int
    birth: int
    machine: str
    task: str
    cpus: float
    shim: SimulatedShim
    deaf: bool


class SimulatedShim(Shim):
    """A shim whose children are simulated."""

    def __init__(self, site: PoolSite, process: SimulatedProcess, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, programs={}, **options)
        self.site, self.process = site, process
        self.over: list[tuple[int, int]] = []
        self.returned = False
        self.bell = SimulatedBell(site.simulation.network)
        self._selector = SimulatedSelector(site.simulation)

    def node_open(self) -> None:
        self._selector.register(self.bell, 1)
        self._selector.register(self._peer, 1)
        self._watched = self._peer

    def node_monotonic(self) -> float:
        return self.site.simulation.now

    def node_wait(self, peer: Any, timeout: float | None) -> tuple[bool, bool]:
        if peer is None and self._watched is not None:
            self._selector.unregister(self._watched)
            self._watched = None
        ready = {key.fileobj for key, _ in self._selector.select(timeout)}
        if self.bell in ready:
            self.bell.hush()
        return peer is not None and peer in ready, self.bell in ready

    def node_start(self, order: dict[str, Any]) -> int:
        return self.site.start_container(self, order)

    def _send(self, **what: Any) -> None:
        if "pid" in what and self.site.sprung("begin"):  # it dies before it says that it has started it
            self.site.simulation.kill(self.process)
        super()._send(**what)

    def node_birth(self, pid: int) -> int | None:
        found = self.site.containers.get(pid)
        return None if found is None else found.birth

    def node_ended(self) -> tuple[int, int] | None:
        return self.over.pop(0) if self.over else None

    def node_kill(self, sessions: set[int]) -> None:
        for pid in sorted(sessions):
            if (found := self.site.containers.get(pid)) is not None:
                self.site.end(found, signal.SIGKILL)


class SimulatedShimProcess:
    """A shim's process, and the agent's end of its socket."""

    def __init__(self, site: PoolSite, agent: SimulatedProcess) -> None:
        self._site = site
        self.process = SimulatedProcess(f"shim of {agent.name}", agent.machine)
        before, site.shims[agent] = site.shims.get(agent), self.process
        if before is not None and not before.dead:
            site.problem(f"{agent.name} has a shim, and starts another one")
        self.socket, theirs = site.simulation.network.connect(agent, self.process)
        host = SimulatedPoolHost(site, self.process)
        self._thread = site.simulation.start(self.process, partial(self._begin, host, theirs), "main")

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended."""
        self._site.simulation.wait(lambda: self.process.dead, self._site.simulation.now + (timeout or math.inf))

    def _begin(self, host: SimulatedPoolHost, peer: Any) -> None:
        """As `executors.mesos.agent.shim.begin`."""
        import json

        selector, line = host.selector(), bytearray()
        selector.register(peer, 1)
        while not line.endswith(b"\n"):
            selector.select()
            piece = peer.recv(1)
            if not piece:
                return self._site.simulation.kill(self.process)
            line += piece
        selector.unregister(peer)
        given = json.loads(line)
        run, lock, grace_s = Path(given.pop("run")), Path(given.pop("lock")), given.pop("grace_s")
        shim = SimulatedShim(self._site, self.process, peer, run, lock, grace_s, **given)
        shim.serve()
        shim.returned = True
        return self._site.simulation.kill(self.process)


class SimulatedQuotas:
    """As `executors.mesos.agent.containers.Unlimited`."""

    name, why = "none", "its containers are simulated"

    def __init__(self, site: PoolSite) -> None:
        self._site = site

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> Group:
        return SimulatedGroup(self._site)

    def bound(self, cores: float) -> None: ...

    def recover(self, name: str, pid: int) -> Group | None:
        if pid not in self._site.containers:
            return None
        found = SimulatedGroup(self._site)
        found.adopt(pid)
        return found

    def sweep(self, keep: Collection[str]) -> None: ...


class SimulatedGroup:
    """The one process of a container."""

    gates: tuple[str, ...] | None = ()

    def __init__(self, site: PoolSite) -> None:
        self._site, self._pid = site, 0

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        return tuple(argv)

    def adopt(self, pid: int) -> None:
        self._pid = pid

    def limit(self, cores: float | None) -> None: ...
    def weigh(self, weight: float) -> None: ...
    def hold_memory(self, memory: int | None) -> None: ...

    def usage(self) -> GroupUsage:
        return GroupUsage(0.0, 0.0, None, None, None, None, None, len(self.pids()), None)

    def starved(self) -> bool:
        return False

    def pids(self) -> list[int]:
        return [self._pid] if self._pid in self._site.containers else []

    def kill(self) -> None:
        if (found := self._site.containers.get(self._pid)) is not None:
            self._site.end(found, signal.SIGKILL)

    def close(self) -> None: ...


# ---------------------------------------------------------------- the pool


@dataclass(eq=False)
class AgentNode:
    """A node with its agent; another machine takes its place once it is lost."""

    name: str
    cpus: int
    work: Path
    machine: str = ""
    machines: int = 0
    agents: int = 0
    process: SimulatedProcess | None = None
    service: AgentService | None = None
    loop: SimulatedLoop | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and not self.process.dead


class PoolSite:
    """Everything there is.

    Attributes
    ----------
    full, laggard
        Until when the disk of a machine is full, or slow [s].
    stubborn
        Until when what containers run does not heed SIGTERM [s].
    containers
        Those that run, by their process.
    starts, completed
        How often each task was started, and ended well.
    problems
        What must not happen, and did.
    struck
        Which faults there were so far.
    shims
        The last one of each agent.
    forgetful
        Whether what an agent has kept was lost.
    traps
        What is to happen right after the next launch, update or start of a container.
    """

    def __init__(self, simulation: Simulation, directory: Path, case: PoolCase) -> None:
        self.simulation, self.directory, self.case = simulation, directory, case
        self.ports = SimulatedPorts(simulation)
        self.pids, self._births = itertools.count(100), itertools.count(1)
        self.full: dict[str, float] = defaultdict(lambda: -math.inf)
        self.laggard: dict[str, float] = defaultdict(lambda: -math.inf)
        self.stubborn = -math.inf
        self.containers: dict[int, Container] = {}
        self.starts: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()
        self.reported: dict[str, list[str]] = defaultdict(list)
        self.history: list[str] = []
        self.problems: list[str] = []
        self.struck: set[str] = set()
        self.shims: dict[SimulatedProcess, SimulatedProcess] = {}
        self.traps: list[tuple[str, Callable[[SimulatedProcess], None]]] = []
        self.closing = self.forgetful = False
        self._processes: list[SimulatedProcess] = []
        self._loops: list[SimulatedLoop] = []
        self.pool = PoolDirectory.create(directory / "pool", "torture")
        self.master: SimulatedProcess | None = None
        self.masters = 0
        self.master_service: MasterService | None = None
        self.master_loop: SimulatedLoop | None = None
        self.nodes = [
            AgentNode(f"n{number}", cpus, directory / f"work{number}") for number, cpus in enumerate(case.cpus)
        ]
        self.customers = [
            (GangCustomer if shape.gangs or shape.borrows else Customer)(self, number, shape)
            for number, shape in enumerate(case.customers)
        ]

    def add(self, process: SimulatedProcess) -> None:
        self._processes.append(process)

    def processes(self) -> list[SimulatedProcess]:
        """Those that are not dead."""
        self._processes = [process for process in self._processes if not process.dead]
        return list(self._processes)

    def disk(self, machine: str) -> tuple[float, float]:
        """Until when the disk of this machine is full, and slow [s]."""
        return self.full[machine], self.laggard[machine]

    def problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)
            self.note(f"PROBLEM: {text}")

    def note(self, text: str) -> None:
        self.history.append(f"{self.simulation.now - START_S:.6f} {text}")
        _log.debug("%s", self.history[-1])

    def calm(self, *faults: str) -> bool:
        """Whether there were no faults but these."""
        return self.struck <= set(faults) and not self.closing

    def sprung(self, event: str) -> list[Callable[[SimulatedProcess], None]]:
        """What was to happen at such an event."""
        sprung = [act for kind, act in self.traps if kind == event]
        self.traps = [trap for trap in self.traps if trap[0] != event]
        return sprung

    def spring(self, event: str, process: SimulatedProcess) -> None:
        """This has just been done by that process."""
        for act in self.sprung(event):
            self.simulation.soon(self.simulation.random.uniform(0.0, 0.01), partial(act, process))

    @property
    def over(self) -> bool:
        return all(customer.over for customer in self.customers)

    # ------------------------------------------------------- the master

    def start_master(self) -> None:
        if self.closing or (self.master is not None and not self.master.dead):
            return
        self.masters += 1
        process = self.master = SimulatedProcess(f"master {self.masters}", HEAD)
        host = SimulatedPoolHost(self, process)
        process.at_death.append(self._master_ended)
        self.simulation.start(process, partial(self._run_master, host), "main")

    def _run_master(self, host: SimulatedPoolHost) -> None:
        options = MasterOptions(agent_reregister_s=self.case.reregister_s, offer_timeout_s=self.case.offer_timeout_s)
        service = self.master_service = MasterService(self.pool, options, tls=False, node=host)
        loop = self.master_loop = MasterLoop(self, host.process)
        self._loops.append(loop)
        try:
            loop.run(service.serve(Future()))
        except AsaError as error:
            self.note(f"the master ends: {error}")
            if "damaged" in str(error):
                _move_away(self.pool.path / "master.db")
        self.simulation.kill(host.process)

    def _master_ended(self) -> None:
        self.note("the master is gone")
        if not self.closing:
            away_s = self.simulation.random.choice([0.5, 5.0, 30.0, self.simulation.random.uniform(0.0, 400.0)])
            self.simulation.soon(away_s, self.start_master)

    def check_master(self, state: MasterState) -> None:
        """Resources that are taken and offered are there, on every agent."""
        for agent in state.agents.values():
            if agent.stream is None and agent.offers:
                self.problem(f"agent {agent.id} is not connected, and is offered")
            used = offered = 0
            for task in agent.tasks.values():
                used += 0 if task.state in TERMINAL else int(1000 * task.resources.scalar("cpus"))
            for offer in agent.offers.values():
                offered += int(1000 * offer.resources.scalar("cpus"))
            if used + offered > int(1000 * agent.total.scalar("cpus")):
                self.problem(
                    f"agent {agent.id} has {agent.total.scalar('cpus'):g} cores: {used} used, {offered} offered"
                )

    # ------------------------------------------------------- agents

    def start_agent(self, node: AgentNode) -> None:
        if self.closing or node.alive:
            return
        if not node.machine:
            node.machines += 1
            node.machine = f"{node.name}.{node.machines}"
        node.agents += 1
        process = node.process = SimulatedProcess(f"agent {node.agents} on {node.machine}", node.machine)
        host = SimulatedPoolHost(self, process)
        self.simulation.start(process, partial(self._run_agent, node, host), "main")

    def _run_agent(self, node: AgentNode, host: SimulatedPoolHost) -> None:
        work = WorkDirectory(node.work)
        work.hold()
        host.process.at_death.append(work.release)
        host.process.at_death.append(partial(self._agent_ended, node, host.process))
        run = {"name": RUN, "type": "TEXT", "text": {"value": f"r{self.nodes.index(node) % 2}"}}
        options = AgentOptions(node.name, 0, scalars(cpus=node.cpus, mem=1024.0), "", "", attributes=[run])
        service = node.service = AgentService(
            self.pool, options, SimulatedQuotas(self), work=work, tls=False,
            patience_s=600.0, orphan_grace_s=self.case.orphan_grace_s, node=host,
        )  # fmt: skip
        loop = node.loop = SimulatedLoop(self.ports, host.process, self.problem)
        self._loops.append(loop)
        try:
            code = loop.run(service.serve(Future()))
            self.note(f"{host.process.name} ends with {code}")
        except AsaError as error:
            self.note(f"{host.process.name} ends: {type(error).__name__}")
            if "damaged" in str(error):
                _move_away(node.work / "agent.db")
        self.simulation.kill(host.process)

    def _agent_ended(self, node: AgentNode, process: SimulatedProcess) -> None:
        self.note(f"{process.name} is gone")
        if node.machine == process.machine and process.stopped <= self.simulation.now:
            late_s = self.case.orphan_grace_s + 5.0
            self.simulation.soon(late_s, partial(self._check_orphans, node, process, node.agents))
        if not self.closing and node.process is process:
            away_s = self.simulation.random.choice([0.5, 5.0, 60.0, self.simulation.random.uniform(0.0, 400.0)])
            self.simulation.soon(away_s, partial(self.start_agent, node))

    def _check_orphans(self, node: AgentNode, process: SimulatedProcess, agents: int) -> None:
        """The grace period of an agent's containers is over."""
        here = (each for each in self.containers.values() if each.machine == process.machine)
        shims = {container.task: container.shim for container in here}
        stopped = self.simulation.now - 310.0
        left = [
            task
            for task, shim in shims.items()
            if shim.returned or not (shim.process.dead or shim.process.stopped > stopped)
        ]
        if left and node.agents == agents:
            self.problem(f"{left} outlive {process.name} by {self.case.orphan_grace_s:g} s")

    def lose(self, node: AgentNode) -> None:
        """A machine is gone with all that ran there, and another one takes its place."""
        machine = node.machine
        if not machine:
            return
        self.note(f"{machine} is lost")
        self.forgetful = True
        self.simulation.network.lose(machine)
        node.work = self.directory / f"work-{node.name}-{node.machines + 1}"
        node.machine = ""
        for process in self.processes():
            if process.machine == machine:
                self.simulation.kill(process)
        for pid, container in list(self.containers.items()):
            if container.machine == machine:
                del self.containers[pid]

    # ------------------------------------------------------- containers

    def start_container(self, shim: SimulatedShim, order: Mapping[str, Any]) -> int:
        task, argv = order["environment"]["MESOS_EXECUTOR_ID"], order["argv"]
        if list(argv[:1]) != [PROGRAM]:
            raise FileNotFoundError(2, "No such file or directory", argv[0])
        _, seconds, code, cpus, *deaf = argv
        machine = shim.process.machine
        container = Container(next(self.pids), next(self._births), machine, task, float(cpus), shim, bool(deaf))
        self.containers[container.pid] = container
        self.starts[task] += 1
        self.note(f"{task} starts on {machine}")
        if self.starts[task] > 1:
            self.problem(f"{task} was started twice")
        if over := [state for state in self.reported[task] if state in _ENDED]:
            self.problem(f"{task} was started after it was reported as {over[0]}")
        total = next(node.cpus for node in self.nodes if machine.startswith(f"{node.name}."))
        if sum(found.cpus for found in self.containers.values() if found.machine == machine) > total:
            self.problem(f"{machine} has {total} cores, and containers of more")
        if (agent := next((node.process for node in self.nodes if node.machine == machine), None)) is not None:
            self.spring("start", agent)
        self.simulation.soon(float(seconds), partial(self._over, container, int(code)))
        return container.pid

    def _over(self, container: Container, code: int) -> None:
        if container.pid in self.containers:
            if not code:
                self.completed[container.task] += 1
            self.end(container, code << 8)

    def interrupt(self, container: Container, number: int) -> None:
        if self.stubborn <= self.simulation.now and not container.deaf:
            self.simulation.soon(0.05, partial(self.end, container, number))

    def end(self, container: Container, status: int) -> None:
        """Its process has ended, with this status as ``wait`` has it."""
        if self.containers.pop(container.pid, None) is None:
            return
        self.note(f"{container.task} ends with {status}")
        if not container.shim.process.dead:
            container.shim.over.append((container.pid, status))
            container.shim.bell.ring()

    # ------------------------------------------------------- the end

    def shut_down(self) -> None:
        """The allocation is over: SIGTERM to all agents, then to the master."""
        self.closing = True
        for node in self.nodes:
            if node.alive and node.loop is not None and node.service is not None and not node.loop.is_closed():
                node.loop.call_soon_threadsafe(node.service.end, "the allocation is over")

    def stop_master(self) -> None:
        if self.master is not None and not self.master.dead:
            assert self.master_loop is not None and self.master_service is not None
            if not self.master_loop.is_closed():
                self.master_loop.call_soon_threadsafe(self.master_service.stop)

    def close(self) -> None:
        self.simulation.close()


class MasterLoop(SimulatedLoop):
    """Looks at what the master knows after each of its steps."""

    def __init__(self, site: PoolSite, process: SimulatedProcess) -> None:
        super().__init__(site.ports, process, site.problem)
        self._site, self._known = site, math.inf

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        service = self._site.master_service
        if service is not None and service.state is not None:
            self._site.check_master(service.state)
            before, self._known = self._known, sum(service.state.serial.get(name, 0) for name in ("agent", "framework"))
            if self._known > before:
                self._site.spring("registration", self._process)


def _move_away(database: Path) -> None:
    """As the error message advises."""
    for path in database.parent.glob(f"{database.name}*"):
        if not path.name.endswith(".old"):
            path.rename(path.with_name(f"{path.name}.old"))


# ---------------------------------------------------------------- frameworks


@dataclass(frozen=True)
class WorkShape:
    """A piece of work: cores, seconds, and how often it fails before it succeeds.

    It is killed so often when it has just begun, and may be one that does not heed SIGTERM.
    """

    cpus: int
    seconds: float
    failures: int
    kills: int = 0
    deaf: bool = False


@dataclass(frozen=True)
class GangShape:
    """What is to start together: so many members, of so many cores, for so many seconds."""

    members: int
    cpus: int
    seconds: float
    apart: bool


@dataclass(frozen=True)
class CustomerShape:
    """A framework: its work, its failover time [s], and how long it refuses what it does not need [s].

    Or a framework of ours, with gangs, and with pieces of work of one core each that it runs on agents of other runs.
    """

    works: tuple[WorkShape, ...]
    failover_s: float
    refuse_s: float
    gangs: tuple[GangShape, ...] = ()
    borrows: int = 0


def program(seconds: float, cpus: float, *, fails: bool, deaf: bool = False) -> list[str]:
    """The words of a task's command."""
    return [PROGRAM, f"{seconds:g}", "1" if fails else "0", f"{cpus:g}", *["deaf"] * deaf]


@dataclass(eq=False)
class LaunchedTask:
    """A task that was launched, or is about to be."""

    task: str
    agent: str
    asked: float
    state: str = ""
    since: float = 0.0
    given_up: bool = False
    killed: bool = False
    unsure: bool = False  # whether the stream broke since its launch, and nothing was heard of it after that

    @property
    def ended(self) -> bool:
        return self.state in _ENDED


@dataclass(eq=False)
class WorkPiece:
    """A piece of work, and what was tried."""

    shape: WorkShape
    attempts: list[LaunchedTask] = field(default_factory=list)
    done: bool = False
    failures: int = 0
    kills: int = 0

    @property
    def current(self) -> LaunchedTask | None:
        """The attempt that counts, if there is one."""
        last = self.attempts[-1] if self.attempts else None
        return None if last is None or last.ended or last.given_up else last

    @property
    def waits(self) -> bool:
        return not self.done and self.current is None


class Customer:
    """A framework with a ledger that survives it: what it has launched, and what it was told."""

    def __init__(self, site: PoolSite, number: int, shape: CustomerShape) -> None:
        self.site, self.name, self.shape = site, f"f{number}", shape
        self.works = [WorkPiece(work) for work in shape.works]
        self.framework_id = ""
        self.tasks: dict[str, tuple[WorkPiece, LaunchedTask]] = {}
        self.process: SimulatedProcess | None = None
        self.lives = 0
        self.avoided: dict[str, float] = {}
        self.away_s: float | None = None
        self.subscribed = -math.inf
        self.here = False
        self.left = math.inf
        """When it was gone after it had been subscribed."""
        self._updates: set[str] = set()
        self._repeated: Counter[tuple[str, str]] = Counter()

    @property
    def done(self) -> bool:
        return all(work.done for work in self.works)

    @property
    def over(self) -> bool:
        return self.done and (self.process is None or self.process.dead)

    def start(self) -> None:
        """Begin a life, beside another one perhaps."""
        if self.site.closing:
            return
        self.lives += 1
        process = self.process = SimulatedProcess(f"{self.name} life {self.lives}", LOGIN)
        host = SimulatedPoolHost(self.site, process)
        process.at_death.append(partial(self._ended, process))
        self.site.simulation.start(process, partial(self._live, host), "main")

    def info(self) -> Message:
        found: Message = {
            "user": "", "name": self.name, "roles": ["asa"], "failover_timeout": self.shape.failover_s,
            "checkpoint": True, "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}],
        }  # fmt: skip
        return found | ({"id": identity(self.framework_id)} if self.framework_id else {})

    def told(self, status: Message) -> None:
        """What is reported is true, and nothing that goes on follows what is surely over."""
        task, state = value_of(status, "task_id"), field_of(status, "state", str)
        why = f"{field_of(status, 'reason', str, '')} {field_of(status, 'message', str, '')[:100]}"
        self.site.note(f"{self.name} receives {task} {state} {why}")
        reported = self.site.reported[task]
        self._check_times(status, task, state)
        lost = state == "TASK_UNREACHABLE" and self.site.forgetful  # the report was not known to a journal, perhaps
        if state not in _ENDED and not lost and any(before in _SURELY_OVER for before in reported):
            self.site.problem(f"{task} is reported as {state} after {reported[-1]}")
        if not reported or reported[-1] != state:
            reported.append(state)
        if state == "TASK_FINISHED" and not self.site.completed[task]:
            self.site.problem(f"{task} is reported as finished, and is not")
        if state in _SURELY_OVER and any(found.task == task for found in self.site.containers.values()):
            self.site.problem(f"{task} is reported as {state}, and runs")

    def _check_times(self, status: Message, task: str, state: str) -> None:
        """Updates come once while nothing goes wrong, and those that were missed as soon as a framework is back."""
        self._repeated[task, state] += 1
        if self._repeated[task, state] > REPORTS_MOST:
            self.site.problem(f"{task} is reported as {state} more than {REPORTS_MOST} times")
        if "uuid" not in status:
            return
        uuid, now = field_of(status, "uuid", str), self.site.simulation.now
        if uuid in self._updates and self.site.calm():
            self.site.problem(f"{task} is reported as {state} twice")
        self._updates.add(uuid)
        made: float = field_of(status, "timestamp", float)
        if made < self.subscribed - 0.1 and now > self.subscribed + 2.0 and self.site.calm(*LOCAL):
            self.site.problem(f"{task} is reported as {state} {now - self.subscribed:.1f} s after {self.name} was back")

    def came(self) -> None:
        """It is subscribed."""
        now = self.site.simulation.now
        away_s = now - self.left
        if self.framework_id and away_s > self.shape.failover_s + 5.0 and self.site.calm(*LOCAL):
            self.site.problem(f"{self.name} was away for {away_s:.0f} s, and is known still")
        self.subscribed, self.here, self.left = now, True, math.inf

    def refused(self, call: Message, status: int, reason: str) -> None:
        self.site.note(f"{self.name}: {call['type']} is answered with {status} {reason}")
        if status != 503:  # its journal cannot be written
            self.site.problem(f"{call['type']} is answered with {status}: {reason}")

    def _live(self, host: SimulatedPoolHost) -> None:
        life = CustomerLife(self, host)
        life.driver.start()
        self.site.simulation.wait(lambda: self.done or life.driver.aborted)
        life.driver.stop()
        life.driver.join()
        self.site.simulation.kill(host.process)

    def _ended(self, process: SimulatedProcess) -> None:
        if self.process is process and self.here:
            self.here, self.left = False, self.site.simulation.now
        if self.process is process and not self.done:
            away_s, self.away_s = self.away_s, None
            if away_s is None:
                away_s = self.site.simulation.random.choice([0.1, 5.0, self.shape.failover_s / 2])
            self.site.simulation.soon(away_s, self._again)

    def _again(self) -> None:
        if not self.done and (self.process is None or self.process.dead):
            self.start()


class CustomerLife:
    """One process of a framework: the callbacks of a scheduler driver."""

    def __init__(self, customer: Customer, host: SimulatedPoolHost) -> None:
        self._customer, self._site = customer, customer.site
        self._simulation, self._random = customer.site.simulation, customer.site.simulation.random
        self._held: list[Message] = []
        self._refused: dict[str, list[float]] = defaultdict(list)
        self._process = host.process
        self.driver = SchedulerDriver(self, customer.info(), customer.site.pool, host=host)

    # ------------------------------------------------------- callbacks

    def registered(self, driver: SchedulerDriver, framework_id: Message, master_info: Message) -> None:
        self._customer.framework_id, self._customer.left = framework_id["value"], math.inf
        self._site.note(f"{self._customer.name} is {framework_id['value']}")
        self.reregistered(driver, master_info)

    def reregistered(self, driver: SchedulerDriver, master_info: Message) -> None:
        self._customer.came()
        self._held.clear()
        asked = [attempt for work in self._customer.works for attempt in work.attempts if not attempt.ended]
        for attempt in asked:
            attempt.unsure = True
        self._reconcile(asked)
        self._simulation.turn()
        driver.reconcileTasks([])
        self._revive()

    def resourceOffers(self, driver: SchedulerDriver, offers: Sequence[Message]) -> None:
        self._check_refused(offers)
        for offer in offers:
            if self._random.random() < 0.08:
                self._held.append(offer)
            else:
                self._use(offer)

    def _check_refused(self, offers: Sequence[Message]) -> None:
        """What is refused, even for no time, is not offered again at once, over and over."""
        for offer in offers:
            agent, now = value_of(offer, "agent_id"), self._simulation.now
            recent = self._refused[agent] = [when for when in self._refused[agent] if when > now - 0.5]
            if len(recent) > 20 and self._site.calm(*LOCAL):
                self._site.problem(f"{agent} was offered to {self._customer.name} 20 times within half a second")

    def offerRescinded(self, driver: SchedulerDriver, offer_id: Message) -> None:
        if self._random.random() < 0.8:  # else it is taken all the same, as if that had come too late
            self._held = [offer for offer in self._held if offer["id"] != offer_id]

    def statusUpdate(self, driver: SchedulerDriver, status: Message) -> None:
        self._simulation.turn()
        task, state = value_of(status, "task_id"), field_of(status, "state", str)
        agent = value_of(status, "agent_id", "")
        customer, now = self._customer, self._simulation.now
        customer.told(status)
        found = customer.tasks.get(task)
        if found is None:
            self._site.problem(f"{customer.name} receives an update of {task}, which it has not launched")
            return
        work, attempt = found
        before, current = attempt.state, work.current
        if before not in _SURELY_OVER:
            attempt.state = state
            attempt.asked, attempt.unsure = now, False
            attempt.since = now if state != before else attempt.since
        if state == "TASK_FINISHED":
            work.done = True
            if current is not None and current is not attempt:
                driver.killTask(identity(current.task), identity(current.agent))
        elif state == "TASK_KILLED" and before != state and attempt.killed:
            work.kills += 1
        elif state == "TASK_FAILED" and before != state:
            if field_of(status, "reason", str, "") == "REASON_CONTAINER_LAUNCH_FAILED":
                customer.avoided[attempt.agent] = now + AVOIDED_S
            else:
                work.failures += 1
        elif state not in _ENDED and state != "TASK_UNREACHABLE" and (attempt.given_up or work.done):
            driver.killTask(identity(task), identity(agent or attempt.agent))
        elif state == "TASK_RUNNING" and before != state and work.kills < work.shape.kills:
            attempt.killed = True
            driver.killTask(identity(task))
            self._expect(lambda: attempt.ended, KILL_GRACE_S + 2.0, f"{task} was killed", "SIGTERM not heeded")
        if work.waits:
            self._revive()
        self._simulation.turn()
        self._site.spring("update", self._process)

    def processHeartBeat(self, driver: SchedulerDriver) -> None:
        now = self._simulation.now
        silent: list[LaunchedTask] = []
        for work in self._customer.works:
            for attempt in work.attempts:
                if attempt.ended or attempt.given_up:
                    continue
                if attempt.state == "TASK_UNREACHABLE" and now > attempt.since + GIVEN_UP_S:
                    attempt.given_up = True
                    self._revive()
                if (attempt.unsure or attempt.state == "TASK_UNREACHABLE") and now > attempt.asked + ASKED_S:
                    silent.append(attempt)
        if silent:
            self._reconcile(silent)
        held, self._held = self._held, []
        for offer in held:
            self._use(offer)

    def callRefused(self, driver: SchedulerDriver, call: Message, status: int, reason: str) -> None:
        self._customer.refused(call, status, reason)

    def error(self, driver: SchedulerDriver, message: str) -> None:
        self._site.note(f"{self._customer.name} has given up: {message}")
        if "removed" in message:  # it was away for too long: its tasks are killed, and it begins anew
            self._customer.framework_id = ""
            for work in self._customer.works:
                for attempt in work.attempts:
                    attempt.given_up = True

    # ------------------------------------------------------- inside

    def _expect(self, done: Callable[[], bool], seconds: float, what: str, *faults: str) -> None:
        """That something is reported in time [s], unless something goes wrong meanwhile."""

        def check() -> None:
            if not done() and self._site.calm(*faults):
                self._site.problem(f"{what} {seconds:g} s ago, and nothing was reported")

        if self._site.calm(*faults):
            self._simulation.soon(seconds, check)

    def _revive(self) -> None:
        self._refused.clear()
        self.driver.reviveOffers()

    def _reconcile(self, attempts: Sequence[LaunchedTask]) -> None:
        if attempts:
            for attempt in attempts:
                attempt.asked = self._simulation.now
            tasks = [{"task_id": identity(each.task), "agent_id": identity(each.agent)} for each in attempts]
            self.driver.reconcileTasks(tasks)

    def _use(self, offer: Message) -> None:
        """Launch what fits, and decline the rest."""
        customer, driver = self._customer, self.driver
        left = int(parse(offer["resources"]).scalar("cpus"))
        agent, infos = value_of(offer, "agent_id"), []
        if customer.avoided.get(agent, -math.inf) > self._simulation.now:
            left = 0
        for work in customer.works:
            greedy = self._random.random() < 0.05  # a mistake of the framework's, which is answered
            if work.waits and (work.shape.cpus <= left or (greedy and left > 0)):
                left -= work.shape.cpus
                infos.append(self._launched(work, agent))
        self._simulation.turn()
        if infos:
            driver.launchTasks([offer["id"]], infos, {"refuse_seconds": 0.0})
            self._site.spring("launch", self._process)
        else:
            self._refused[agent].append(self._simulation.now)
            driver.declineOffer([offer["id"]], {"refuse_seconds": customer.shape.refuse_s})
            if not any(work.waits for work in customer.works):
                driver.suppressOffers()

    def _launched(self, work: WorkPiece, agent: str) -> Message:
        customer = self._customer
        number = customer.works.index(work)
        task = f"{customer.name}.{number}.{len(work.attempts)}"
        attempt = LaunchedTask(task, agent, self._simulation.now)
        work.attempts.append(attempt)
        customer.tasks[task] = work, attempt
        self._site.note(f"{customer.name} launches {task} on {agent}")
        shape = work.shape
        words = program(shape.seconds, shape.cpus, fails=work.failures < shape.failures, deaf=shape.deaf)
        self._expect(lambda: bool(attempt.state), 2.0, f"{task} was launched")
        return {
            "name": task, "task_id": identity(task), "agent_id": identity(agent),
            "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": shape.cpus}}],
            "command": {"shell": False, "value": PROGRAM, "arguments": words},
        }  # fmt: skip


class GangCustomer(Customer):
    """A framework of ours: gangs, and work that it does with cores that agents of other runs leave."""

    def __init__(self, site: PoolSite, number: int, shape: CustomerShape) -> None:
        super().__init__(site, number, shape)
        self.tries = dict.fromkeys(range(len(shape.gangs)), 0)
        """How often each gang was begun that is not done yet."""
        self.units = shape.borrows
        """How much borrowed work is left."""
        self.leases: dict[str, int] = {}
        self.again: list[int] = []

    @property
    def done(self) -> bool:
        return not self.tries and self.units <= 0

    def _live(self, host: SimulatedPoolHost) -> None:
        name = f"{self.name}-{self.lives}"
        self.leases.clear()
        borrower = Borrower("r1", name, self._lease)
        scheduler = ToldScheduler(self, Framework(name, borrower=borrower), host)
        driver = SchedulerDriver(scheduler, self.info(), self.site.pool, host=host)
        driver.start()
        self.again = list(self.tries)
        borrowed = False
        while not self.done and not driver.aborted:
            again, self.again = self.again, []
            for number in again:
                self._begin(scheduler, self._gang(number))
            if (self.units > 0) is not borrowed or (self.units > 0 and not self.leases):
                borrowed = self.units > 0
                self._borrow(scheduler, self.units)
            self._wait(driver, self.units)
        driver.stop()
        driver.join()
        scheduler.close()
        self.site.simulation.kill(host.process)

    def _begin(self, scheduler: FrameworkScheduler, gang: TaskGang) -> None:
        scheduler.want(lambda framework, now: framework.gang(gang, now))

    def _borrow(self, scheduler: FrameworkScheduler, count: int) -> None:
        scheduler.want(lambda framework, now: framework.borrow(TaskNeed(1.0), count, now))

    def _wait(self, driver: SchedulerDriver, left: int) -> None:
        simulation = self.site.simulation
        simulation.wait(
            lambda: bool(self.again) or self.done or driver.aborted or self.units != left, simulation.now + 30.0
        )

    def _gang(self, number: int) -> TaskGang:
        shape = self.shape.gangs[number]
        self.tries[number] += 1
        words = TaskProgram(tuple(program(shape.seconds, shape.cpus, fails=False)))
        key = f"{self.name}.g{number}.{self.lives}.{self.tries[number]}"
        return TaskGang(key, (words,) * shape.members, TaskNeed(shape.cpus), apart=shape.apart)

    def _lease(self, lease: Lease, offer: Offered) -> TaskProgram:
        self.leases[lease.key] = int(lease.need.cpus)
        return TaskProgram(tuple(program(5.0, lease.need.cpus, fails=False)))

    def on_outcomes(self, outcomes: Sequence[FrameworkOutcome]) -> None:
        """What became of gangs and leases."""
        for key, state, reason, _ in outcomes:
            self.site.note(f"{self.name}: {key} {state} {reason[:100]}")
            if key in self.leases and state in ("finished", "failed"):
                cores = self.leases.pop(key)
                self.units -= cores if state == "finished" else 0
            elif key.startswith(f"{self.name}.g") and state in ("started", "finished", "failed"):
                number = int(key.split(".")[1][1:])
                if state == "failed":
                    self.site.simulation.soon(AVOIDED_S, partial(self._retry, number, self.lives))
                elif number in self.tries:
                    self._check(
                        key, self.shape.gangs[number], self.site.starts if state == "started" else self.site.completed
                    )
                    if state == "finished":
                        del self.tries[number]

    def _retry(self, number: int, life: int) -> None:
        if life == self.lives:
            self.again.append(number)

    def _check(self, key: str, shape: GangShape, found: Counter[str]) -> None:
        ranks = {task.rpartition(".")[2] for task, times in found.items() if times and task.startswith(f"{key}.")}
        if ranks != {str(rank) for rank in range(shape.members)}:
            self.site.problem(f"of gang {key} only members {sorted(ranks)} have run")


class ToldScheduler(FrameworkScheduler):
    """As it is, and looks at what it receives."""

    def __init__(self, customer: GangCustomer, framework: Framework, host: SimulatedPoolHost) -> None:
        super().__init__(framework, customer.on_outcomes, host=host)
        self._customer, self._process = customer, host.process

    def registered(self, driver: Any, framework_id: Message, master_info: Message) -> None:
        self._customer.framework_id, self._customer.left = framework_id["value"], math.inf
        super().registered(driver, framework_id, master_info)

    def reregistered(self, driver: Any, master_info: Message) -> None:
        self._customer.came()
        super().reregistered(driver, master_info)

    def statusUpdate(self, driver: Any, status: Message) -> None:
        self._customer.told(status)
        if status["state"] == "TASK_UNREACHABLE":  # what was done there is done elsewhere
            self._customer.leases.pop(value_of(status, "task_id"), None)
        super().statusUpdate(driver, status)
        self._customer.site.simulation.turn()

    def resourceOffers(self, driver: Any, offers: Sequence[Message]) -> None:
        super().resourceOffers(driver, offers)
        self._customer.site.spring("launch", self._process)

    def callRefused(self, driver: Any, call: Message, status: int, reason: str) -> None:
        self._customer.refused(call, status, reason)

    def error(self, driver: Any, text: str) -> None:
        self._customer.site.note(f"{self._customer.name} has given up: {text}")
        if "removed" in text:
            self._customer.framework_id = ""
        super().error(driver, text)


# ---------------------------------------------------------------- what is drawn


@dataclass(frozen=True)
class PoolCase:
    """One schedule: `run` gives the same each time. Its `repr` makes it again."""

    seed: int
    cpus: tuple[int, ...]
    customers: tuple[CustomerShape, ...]
    reregister_s: float
    orphan_grace_s: float
    offer_timeout_s: float | None
    faults: tuple[Fault, ...]


def draw(seed: int) -> PoolCase:
    """The schedule of this seed: 1 to 6 nodes, 1 to 3 frameworks of 1 to 30 pieces of work, 1 to 20 faults."""
    rng = random.Random(seed)
    cpus = tuple(rng.choice([2, 4, 8]) for _ in range(rng.randint(1, 6)))
    customers = tuple(
        _gangs(rng, cpus)
        if rng.random() < 0.3
        else CustomerShape(
            tuple(
                WorkShape(
                    rng.choice([1, 1, 2, min(4, max(cpus))]),
                    round(rng.choice([rng.uniform(0.0, 1.0), rng.uniform(1.0, 60.0), rng.uniform(10.0, 200.0)]), 3),
                    rng.choice([0, 0, 0, 0, 1, 2]),
                    rng.choice([0, 0, 0, 0, 0, 1]),
                    rng.random() < 0.2,
                )
                for _ in range(log_uniform(rng, 1, 30))
            ),
            rng.choice([30.0, 120.0, 600.0]),
            rng.choice([0.0, 1.0, 5.0, 5.0, 60.0]),
        )
        for _ in range(rng.choice([1, 1, 2, 3]))
    )
    work_s = sum(work.cpus * work.seconds for customer in customers for work in customer.works)
    work_s += sum(gang.members * gang.cpus * gang.seconds for customer in customers for gang in customer.gangs)
    length = 60.0 + 1.5 * work_s / sum(cpus)
    among = HARMLESS if rng.random() < 0.3 else sorted(FAULTS)
    kinds = rng.sample(among, rng.randint(1, len(among)))
    faults = tuple(
        Fault(rng.choice(kinds), round(rng.uniform(0.0, length), 3), rng.randrange(1000), round(rng.random(), 4))
        for _ in range(log_uniform(rng, 1, 20))
    )
    faults = tuple(replace(one, at=one.at % 20.0) if one.kind == REGISTRATION else one for one in faults)
    return PoolCase(
        seed=seed,
        cpus=cpus,
        customers=customers,
        reregister_s=rng.choice([60.0, 300.0]),
        orphan_grace_s=rng.choice([5.0, 60.0, 300.0]),
        offer_timeout_s=rng.choice([None, None, 5.0]),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def _gangs(rng: random.Random, cpus: Sequence[int]) -> CustomerShape:
    """A framework with gangs for which there is room, if all nodes are there."""
    gangs = []
    for _ in range(log_uniform(rng, 1, 8)):
        size, apart = rng.choice([1, 1, 2]), rng.random() < 0.3
        room = len(cpus) if apart else sum(count // size for count in cpus)
        gangs.append(GangShape(rng.randint(1, min(room, 6)), size, round(rng.uniform(0.5, 60.0), 3), apart))
    lent = sum(cpus[::2])  # agents of run r0
    return CustomerShape(
        (), rng.choice([30.0, 120.0, 600.0]), 0.0, tuple(gangs), rng.choice([0, min(lent, 2), lent * 3])
    )


# ---------------------------------------------------------------- what goes wrong


def dies(process: SimulatedProcess | None, fault: Fault, within: int) -> None:
    """It dies within so many of its turns."""
    if process is not None and not process.dead:
        process.dies_at = process.turns + 1 + int(within * fault.share**2)


def master_dies(site: Any, fault: Fault) -> None:
    """The master that runs, of a pool or of several runs."""
    dies(site.master, fault, 200)


def _agent_dies(site: PoolSite, fault: Fault) -> None:
    if node := pick([node for node in site.nodes if node.alive], fault):
        dies(node.process, fault, 100)


def _framework_dies(site: PoolSite, fault: Fault) -> None:
    dies(pick(site.customers, fault).process, fault, 100)


def _framework_away(site: PoolSite, fault: Fault) -> None:
    """It is gone for as long as its tasks may go on without it, or longer."""
    customer = pick(site.customers, fault)
    if customer.process is not None and not customer.process.dead and not customer.done:
        customer.away_s = customer.shape.failover_s * (0.5 + fault.share)
        site.simulation.kill(customer.process)


def _two_schedulers(site: PoolSite, fault: Fault) -> None:
    """A second scheduler takes the place of the first, which lives."""
    customer = pick(site.customers, fault)
    if customer.process is not None and not customer.process.dead and not customer.done and customer.framework_id:
        customer.start()


def _shim_dies(site: PoolSite, fault: Fault) -> None:
    if process := pick([each for each in site.processes() if each.name.startswith("shim")], fault):
        dies(process, fault, 10)


def _task_dies(site: PoolSite, fault: Fault) -> None:
    if container := pick([*site.containers.values()], fault):
        site.end(container, signal.SIGKILL)


def _machine_lost(site: PoolSite, fault: Fault) -> None:
    site.lose(pick(site.nodes, fault))


def _process_stopped(site: PoolSite, fault: Fault) -> None:
    if process := pick(site.processes(), fault):
        process.stopped = site.simulation.now + 300.0 * fault.share**2


def _network_cut(site: PoolSite, fault: Fault) -> None:
    machine = pick([LOGIN, *(node.machine for node in site.nodes if node.machine)], fault)
    site.simulation.network.cut(HEAD, machine, 300.0 * fault.share**2)


def _connection_stalled(site: PoolSite, fault: Fault) -> None:
    if process := pick([each for each in site.processes() if not each.name.startswith("shim")], fault):
        site.simulation.network.stall(process)


def _connections_reset(site: PoolSite, fault: Fault) -> None:
    """All connections of a process break, with what is on them."""
    if process := pick([each for each in site.processes() if not each.name.startswith("shim")], fault):
        site.simulation.network.reset(process)


def _for_a_while(attribute: str, longest_s: float) -> Callable[[PoolSite, Fault], None]:
    def begin(site: PoolSite, fault: Fault) -> None:
        machine = pick([HEAD, *(node.machine for node in site.nodes)], fault)
        getattr(site, attribute)[machine] = site.simulation.now + longest_s * fault.share

    return begin


def _stubborn(site: PoolSite, fault: Fault) -> None:
    site.stubborn = site.simulation.now + 200.0 * fault.share


def _agent_damaged(site: PoolSite, fault: Fault) -> None:
    """The agent dies, and its journal with it, which is moved away when it is started again."""
    node = pick(site.nodes, fault)
    if node.machine:
        if node.alive:
            site.simulation.kill(node.process)
        site.forgetful = True
        _damage(node.work / "agent.db", fault)


def _damage(database: Path, fault: Fault) -> None:
    """Only a part of the file is left."""
    if database.exists():
        data = database.read_bytes()
        for path in database.parent.glob(f"{database.name}-*"):
            path.unlink()
        database.unlink()  # a new file: a dead process keeps the old one
        database.write_bytes(data[: int(fault.share * len(data))] or b"\0" * 100)
        database.chmod(0o600)


def _trap(event: str, act: Callable[[PoolSite, SimulatedProcess], None]) -> Callable[[PoolSite, Fault], None]:
    """Something goes wrong within a hundredth of a second of the next such event."""

    def lay(site: PoolSite, fault: Fault) -> None:
        site.traps.append((event, partial(act, site)))

    return lay


def _reset(site: PoolSite, process: SimulatedProcess) -> None:
    site.simulation.network.reset(process)


def _kill(site: PoolSite, process: SimulatedProcess) -> None:
    site.simulation.kill(process)


def _kill_master(site: PoolSite, _process: SimulatedProcess) -> None:
    if site.master is not None:
        site.simulation.kill(site.master)


def _registration(site: PoolSite, fault: Fault) -> None:
    """The master dies when it has given away an id, of which its disk does not know yet, perhaps."""
    site.laggard[HEAD] = site.simulation.now + 30.0
    _trap("registration", _kill)(site, fault)


def _out_of_reach(site: PoolSite, fault: Fault) -> None:
    """A node is away for so long that it is given up, and frameworks come back meanwhile."""
    if machine := pick(site.nodes, fault).machine:
        site.simulation.network.cut(HEAD, machine, 120.0 + 300.0 * fault.share)
        for customer in site.customers:
            if customer.process is not None:
                site.simulation.soon(110.0, partial(_reset, site, customer.process))


REGISTRATION = "master dies at a registration"

FAULTS: Mapping[str, Callable[[PoolSite, Fault], None]] = {
    "stream lost with an ACCEPT": _trap("launch", _reset),
    "stream lost with an update": _trap("update", _reset),
    "master dies at an ACCEPT": _trap("launch", _kill_master),
    "master dies at an update": _trap("update", _kill_master),
    "framework dies at an ACCEPT": _trap("launch", _kill),
    "agent dies at a start": _trap("start", _kill),
    "shim dies at a start": _trap("begin", lambda _site, _process: None),
    REGISTRATION: _registration,
    "node out of reach": _out_of_reach,
    "master dies": master_dies,
    "agent dies": _agent_dies,
    "framework dies": _framework_dies,
    "framework away": _framework_away,
    "two schedulers": _two_schedulers,
    "shim dies": _shim_dies,
    "task dies": _task_dies,
    "machine lost": _machine_lost,
    "process stopped": _process_stopped,
    **clock_faults(lambda site: [HEAD, LOGIN, *(node.machine for node in site.nodes)]),
    "network cut": _network_cut,
    "connection stalled": _connection_stalled,
    "connections reset": _connections_reset,
    "disk full": _for_a_while("full", 200.0),
    "disk slow": _for_a_while("laggard", 200.0),
    "SIGTERM not heeded": _stubborn,
    "agent's journal damaged": _agent_damaged,
}
"""What can go wrong."""

HARMLESS = (
    "stream lost with an ACCEPT",
    "stream lost with an update",
    "master dies at an ACCEPT",
    "master dies at an update",
    "framework dies at an ACCEPT",
    "clock jumps",
    "clock drifts",
    "connections reset",
    "disk slow",
    "framework dies",
    "master dies",
    REGISTRATION,
    "SIGTERM not heeded",
)
"""Faults that cost no work: nothing is started twice, and what was done is reported."""

LOCAL = (
    "stream lost with an ACCEPT",
    "stream lost with an update",
    "framework dies at an ACCEPT",
    "framework dies",
    "framework away",
    "SIGTERM not heeded",
    "task dies",
)
"""Faults of frameworks alone: master and agents are there all the time, and connected."""


# ---------------------------------------------------------------- a schedule, and what must hold


def run(case: PoolCase, keep: Path | None = None) -> ScheduleOutcome:
    """Go through a schedule.

    Parameters
    ----------
    keep
        A directory for what the pool leaves; else it is removed.
    """
    return in_directory(partial(_run, case), keep)


class _Faults(logging.Handler):
    """Takes what the product logs as a fault of its own."""

    def __init__(self, site: PoolSite) -> None:
        super().__init__(logging.ERROR)
        self._site = site

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not self._site.simulation.ending:
            _log.debug("a fault", exc_info=record.exc_info)
            self._site.problem(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def _watched(site: PoolSite) -> Iterator[None]:
    handler, loggers = _Faults(site), [logging.getLogger(name) for name in ("asa", "executors")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _run(case: PoolCase, directory: Path) -> ScheduleOutcome:
    simulation, found = Simulation(case.seed), ScheduleOutcome()
    site = PoolSite(simulation, directory, case)
    with _watched(site):
        try:
            _go_through(case, site, found)
        except Stuck as stuck:
            found.violations.append(f"stuck: {stuck}; {_standing(site)}")
        except Exception as error:
            _log.debug("a program failed", exc_info=True)
            found.violations.append(f"a program ended with {type(error).__name__}: {error}")
        else:
            found.violations += _problems(case, site)
        finally:
            found.violations = site.problems + found.violations
            found.fingerprint = hashlib.sha256("\n".join(site.history).encode()).hexdigest()[:16]
            site.close()
    found.seconds, found.steps = simulation.now - START_S, simulation.steps
    found.resumes = site.masters - 1 + sum(customer.lives - 1 for customer in site.customers)
    found.resumes += sum(max(0, node.agents - 1) for node in site.nodes)
    return found


def _go_through(case: PoolCase, site: PoolSite, found: ScheduleOutcome) -> None:
    simulation = site.simulation
    simulation.soon(0.0, site.start_master)
    for node in site.nodes:
        simulation.soon(simulation.random.uniform(0.0, 5.0), partial(site.start_agent, node))
    for customer in site.customers:
        simulation.soon(simulation.random.uniform(0.0, 20.0), customer.start)

    def strike(fault: Fault) -> None:
        if not site.over:
            found.struck[fault.kind] += 1
            site.struck.add(fault.kind)
            site.note(f"fault: {fault.kind}")
            FAULTS[fault.kind](site, fault)

    last = START_S
    for fault in case.faults:
        last = START_S + fault.at
        simulation.call_at(last, partial(strike, fault))
    simulation.run(lambda: site.over, last + patience_s(case))
    gc.collect()  # or when asyncio says that an exception was never looked at would depend on earlier schedules
    if not site.over:
        raise Stuck(f"{patience_s(case):g} s after the last fault not all work is done")
    site.shut_down()
    agents = [node.process for node in site.nodes if node.process is not None]
    simulation.run(lambda: all(process.dead for process in agents), simulation.now + 1000.0)
    site.stop_master()
    simulation.run(lambda: not site.processes() and not site.containers, simulation.now + 1000.0 + case.orphan_grace_s)


def patience_s(case: PoolCase) -> float:
    """How long after the last fault all work must be done [s]."""
    works = [work for customer in case.customers for work in customer.works]
    work_s = sum(work.seconds * (work.failures + 1) for work in works)
    work_s += sum(3.0 * gang.seconds + 100.0 for customer in case.customers for gang in customer.gangs)
    return 4000.0 + 2.0 * work_s + 2.0 * max(customer.failover_s for customer in case.customers)


def _standing(site: PoolSite) -> str:
    parts = []
    for customer in site.customers:
        states = Counter(
            "done" if work.done else work.current.state or "launched" if work.current else "waits"
            for work in customer.works
        )
        parts.append(f"{customer.name} (life {customer.lives}): {dict(states)}")
        if isinstance(customer, GangCustomer):
            parts.append(f"gangs {customer.tries}, borrowed work {customer.units}")
    return "; ".join(parts)


def _problems(case: PoolCase, site: PoolSite) -> Iterator[str]:
    """What must hold once all work is done."""
    if {fault.kind for fault in case.faults} <= set(HARMLESS):
        for customer in site.customers:
            for number, work in enumerate(customer.works):
                ran = sum(site.starts[attempt.task] for attempt in work.attempts)
                expected = 1 + work.shape.failures + work.kills
                if ran != expected:
                    yield f"work {number} of {customer.name} ran {ran} times, and should {expected}"
    if site.containers:
        yield f"containers are left: {sorted(container.task for container in site.containers.values())}"
    if alive := sorted(process.name for process in site.processes()):
        yield f"processes are left: {alive}"


# ---------------------------------------------------------------- smaller ones that fail, too


def smaller(case: PoolCase) -> Iterator[PoolCase]:
    """Cases with less in them, the smallest first."""
    if len(case.customers) > 1:
        for number in range(len(case.customers)):
            yield replace(case, customers=(case.customers[number],))
    for parts in (2, 4, 8, len(case.faults)):
        size = max(1, len(case.faults) // max(1, parts))
        for first in range(0, len(case.faults), size):
            yield replace(case, faults=case.faults[:first] + case.faults[first + size :])
    for number, customer in enumerate(case.customers):
        for fewer in (replace(customer, gangs=customer.gangs[:-1]), replace(customer, borrows=0)):
            if fewer != customer and (fewer.gangs or fewer.borrows):
                yield replace(case, customers=(*case.customers[:number], fewer, *case.customers[number + 1 :]))
        for length in sorted({1, len(customer.works) // 2, len(customer.works) - 1} - {0, len(customer.works)}):
            less = replace(customer, works=customer.works[:length])
            yield replace(case, customers=(*case.customers[:number], less, *case.customers[number + 1 :]))
    for cpus in (case.cpus[:-1], case.cpus[1:]):
        if cpus and all(_has_room(cpus, customer) for customer in case.customers):
            yield replace(case, cpus=cpus)


def _has_room(cpus: Sequence[int], customer: CustomerShape) -> bool:
    """Whether these nodes, all of them, are enough for each piece of its work by itself."""
    for gang in customer.gangs:
        rooms = [count // gang.cpus for count in cpus]
        if sum(map(bool, rooms) if gang.apart else rooms) < gang.members:
            return False
    return all(work.cpus <= max(cpus) for work in customer.works)
