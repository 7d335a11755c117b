"""Runs in a named pool: `coscheduler.torture.case`, whose jobs run agents that lend their nodes to other runs.

What runs there is the product: that of `coscheduler.torture.site`, with the executor ``mesos`` in the drivers, a master
that they start when they miss it, its watch over orphans, and agents, shims and supervisors on the nodes. Simulated are
the machines, as in `coscheduler.torture.mesos`.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from asa.core.errors import AsaError
from asa.core.job import Resources
from asa.core.ports import Executor, Report, RunContext
from asa.testing.simulated_loop import SimulatedLoop, SimulatedPorts
from asa.testing.simulation import SimulatedProcess, Simulation
from coscheduler.torture import case as cases
from coscheduler.torture import site as sites
from coscheduler.torture.case import HARMLESS, STRATEGIES, Case, Fault, ScheduleOutcome, StageShape, TortureWorld, pick
from coscheduler.torture.mesos import SimulatedPoolHost, SimulatedQuotas, SimulatedShim, dies, master_dies
from coscheduler.torture.site import LOGIN, SimulatedExecutor, SimulatedHost, SimulatedSite
from executors import supervisor
from executors.mesos import agent, driver_side, master_command, sharing
from executors.mesos.agent.command import AgentCommand, agent_options, agent_service, appears
from executors.mesos.agent.service import NO_MASTER, AgentService
from executors.mesos.agent.storage import WorkDirectory
from executors.mesos.driver_side import DriverSide
from executors.mesos.executor import Mesos
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.sharing import OrphanWatch

POOL = "ours"
"""The pool of all runs."""

_log = logging.getLogger(__name__)


class NamedPoolHost(SimulatedPoolHost):
    """The machine of a driver, a master, or an agent."""

    _site: NamedPoolSite  # type: ignore[assignment]
    loop: SimulatedLoop | None = None
    service: AgentService | None = None
    received = 0
    """The signal that has ended its agent, or 0."""

    def start_master(self, directory: PoolDirectory, *, local: bool, withheld: Collection[str] = ()) -> None:
        self._site.start_master(directory)

    def signal(self, number: int) -> None:
        if self.process.dead:
            return
        if self.service is None:
            self.received = self.received or number
            self._simulation.kill(self.process)
        elif not self.received and self.loop is not None and not self.loop.is_closed():
            self.received = number
            self.loop.call_soon_threadsafe(self.service.end, f"it was ended by signal {number}")


class SimulatedMesos(Mesos):
    """As executor `mesos`, on a simulated host."""

    def __init__(self, host: NamedPoolHost) -> None:
        super().__init__()
        self._host, self._inner = host, SimulatedExecutor(host)

    def _made_side(self, context: RunContext, post: Report) -> DriverSide:
        start_master, path = self._host.start_master, context.pool
        assert path is not None, "all runs are in a named pool"
        return DriverSide(path, context, self._inner, self._released, post, self._host, start_master)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, ("mesos",)

    def __repr__(self) -> str:
        return "mesos"


@dataclass(eq=False)
class SupervisorContainer:
    """A container, in which a supervisor runs."""

    pid: int
    birth: int
    task: str
    shim: SimulatedShim
    host: SimulatedHost

    @property
    def machine(self) -> str:
        return self.host.process.machine


class NamedPoolSite(SimulatedSite):
    """Everything there is.

    Attributes
    ----------
    containers
        Those that run, by their process.
    started
        How often each task of the pool was started.
    master
        The last one.
    """

    pool = f"shared:{POOL}"

    def __init__(self, simulation: Simulation, directory: Path, **options: Any) -> None:
        super().__init__(simulation, directory, **options)
        self.ports = SimulatedPorts(simulation)
        self.containers: dict[int, SupervisorContainer] = {}
        self.started: Counter[str] = Counter()
        self.shims: dict[SimulatedProcess, SimulatedProcess] = {}
        self.master: SimulatedProcess | None = None
        self.masters = 0

    def host(self, process: SimulatedProcess, environ: Mapping[str, str]) -> NamedPoolHost:
        return NamedPoolHost(self, process, environ)  # type: ignore[arg-type]

    def _executor(self, host: Any) -> Executor:
        return SimulatedMesos(host)

    def spread(self, resources: Resources) -> list[int]:
        """Where its cores may be anywhere, they are on one to three nodes, of which some are idle at times."""
        unit = resources.unit
        if resources.nodes is not None or unit is None or resources.cores == unit:
            return super().spread(resources)
        units, rng = resources.cores // unit, self.simulation.random
        cuts = sorted(rng.sample(range(1, units), min(units - 1, rng.randint(0, 2))))
        return [unit * (end - begin) for begin, end in pairwise([0, *cuts, units])]

    def programs(self) -> Mapping[str, Callable[[Any, Sequence[str]], int]]:
        return {agent.__name__: partial(run_agent, self)}

    def problem(self, text: str) -> None:
        self.note(text)

    def disk(self, machine: str) -> tuple[float, float]:
        """Until when the disk of this machine is full, and slow [s]: of nodes, they are not."""
        return (self.full, self.laggard) if machine == LOGIN else (0.0, 0.0)

    def sprung(self, event: str) -> list[Callable[[SimulatedProcess], None]]:
        """What was to happen at such an event."""
        return []

    # ------------------------------------------------------- the master

    def start_master(self, directory: PoolDirectory) -> None:
        """A driver starts one, which outlives it."""
        self.masters += 1
        process = SimulatedProcess(f"master {self.masters}", LOGIN)
        host = self.host(process, {})
        self.simulation.start(process, partial(self._run_master, host, directory), "main")

    def _run_master(self, host: NamedPoolHost, directory: PoolDirectory) -> None:
        """As `executors.mesos.master_command.MasterCommand.run`."""
        if self.master is None or self.master.dead:  # else it finds that one's lock
            self.master = host.process
            service = MasterService(directory, MasterOptions(), tls=False, idle_s=master_command.IDLE_S, node=host)
            loop = SimulatedLoop(self.ports, host.process, self.problem)
            started: Future[None] = Future()
            host.start(partial(self._watch_orphans, host, directory, started), "orphans")
            try:
                loop.run(service.serve(started))
                directory.withdraw(service.address)
            except AsaError as error:
                _log.warning("%s ends: %s", host.process.name, error)
        self.simulation.kill(host.process)

    def _watch_orphans(self, host: NamedPoolHost, directory: PoolDirectory, started: Future[None]) -> None:
        if self.simulation.wait(started.done):
            OrphanWatch(directory, host).__enter__()

    # ------------------------------------------------------- containers

    def start_container(self, shim: SimulatedShim, order: Mapping[str, Any]) -> int:
        """A supervisor, as shims of agents fork them."""
        environ, argv = order["environment"], order["argv"]
        task = environ["MESOS_EXECUTOR_ID"]
        process = SimulatedProcess(f"{task} on {shim.process.machine}", shim.process.machine)
        host = SimulatedHost(self, process, environ)
        container = SupervisorContainer(host.pid, next(self.pids), task, shim, host)
        self.containers[host.pid] = container
        self.started[task] += 1
        if self.started[task] > 1:
            self.note(f"{task} was started twice")
        process.at_death.append(partial(self.ended, container, signal.SIGKILL))
        self.simulation.start(process, partial(self._run_container, container, argv), process.name)
        return host.pid

    def _run_container(self, container: SupervisorContainer, argv: Sequence[str]) -> None:
        at = argv.index("-m")
        assert argv[at + 1] == supervisor.__name__
        code = sites.run_supervisor(container.host, argv[at + 2 :])
        self.ended(container, code << 8)
        self.simulation.kill(container.host.process)

    def ended(self, container: SupervisorContainer, status: int) -> None:
        """Its process has ended, with this status as ``wait`` has it."""
        if self.containers.pop(container.pid, None) is not None and not container.shim.process.dead:
            container.shim.over.append((container.pid, status))
            container.shim.bell.ring()

    def end(self, container: SupervisorContainer, status: int) -> None:
        """Its process is killed."""
        self.simulation.kill(container.host.process)

    def interrupt(self, container: SupervisorContainer, number: int) -> None:
        """It receives this signal."""
        container.host.signal(number)


def run_agent(site: NamedPoolSite, host: NamedPoolHost, words: Sequence[str]) -> int:
    """What ``python -m executors.mesos.agent`` does."""
    parser = argparse.ArgumentParser()
    AgentCommand().configure(parser)
    options = parser.parse_args([*words, "--plain-http", "--quotas", "none"])
    if not appears(PoolDirectory(options.directory), options.patience, host):
        return NO_MASTER
    work = WorkDirectory(site.directory / "nodes" / host.process.machine)
    work.path.parent.mkdir(exist_ok=True, mode=0o700)
    work.hold()
    host.process.at_death.append(work.release)
    given = agent_options(options, host.environ["SLURMD_NODENAME"], host)
    service = host.service = agent_service(options, given, SimulatedQuotas(site), work, host=host)  # type: ignore[arg-type]
    loop = host.loop = SimulatedLoop(site.ports, host.process, site.problem)
    try:
        code = loop.run(service.serve(Future()))
    except AsaError as error:
        _log.warning("%s ends: %s", host.process.name, error)
        return 1
    return 128 + host.received if host.received else code


# ---------------------------------------------------------------- what goes wrong


def _master_stopped(site: NamedPoolSite, fault: Fault) -> None:
    if site.master is not None and not site.master.dead:
        site.master.stopped = site.simulation.now + 300.0 * fault.share**2


def _shim_dies(site: NamedPoolSite, fault: Fault) -> None:
    dies(pick([shim for shim in site.shims.values() if not shim.dead], fault), fault, 10)


def _container_dies(site: NamedPoolSite, fault: Fault) -> None:
    """A supervisor in a container, which is one that a run has borrowed, perhaps."""
    if container := pick([*site.containers.values()], fault):
        process = container.host.process
        process.dies_at = process.turns + 1 + int(20 * fault.share)


def _container_stopped(site: NamedPoolSite, fault: Fault) -> None:
    if container := pick([*site.containers.values()], fault):
        container.host.process.stopped = site.simulation.now + 300.0 * fault.share**2


def _reset(site: NamedPoolSite, fault: Fault) -> None:
    """All connections of a process to other machines break."""
    if process := pick(site.processes(), fault):
        site.simulation.network.reset(process)


FAULTS: Mapping[str, Callable[[Any, Fault], None]] = {
    ("agent dies" if kind == "supervisor dies" else kind): act
    for kind, act in cases.FAULTS.items()
    if kind not in ("supervisor hangs",)
} | {
    "master dies": master_dies,
    "master stopped": _master_stopped,
    "shim dies": _shim_dies,
    "supervisor dies": _container_dies,
    "supervisor stopped": _container_stopped,
    "connections reset": _reset,
}
"""What can go wrong."""

WORLD = TortureWorld(
    NamedPoolSite,
    FAULTS,
    (*(kind for kind in HARMLESS if kind != "files late"), "master dies"),
    tuple(strategy for strategy in STRATEGIES if not strategy.startswith("asa-naive")),
    (2, 2, 2, 3, 3, 1),
    ((2, 8), (8, 16), (16, 40)),
    longest_s=120.0,
)


smaller = cases.smaller


def draw(seed: int) -> Case:
    """The schedule of this seed: one to three runs in one pool, many with wide stages that end late."""
    case, rng = cases.draw(seed, WORLD), random.Random(f"named {seed}")

    def changed(step: StageShape) -> StageShape:
        if rng.random() < 0.4:
            return step
        walltime_s = max(600.0, step.walltime_s)
        return replace(step, count=rng.randint(3, 12), cores=4, task_cores=1, walltime_s=walltime_s)

    workflows = tuple(tuple(changed(step) for step in steps) for steps in case.workflows)
    return replace(case, workflows=workflows, cores=rng.choice([8, 12, 16]))


def run(case: Case, keep: Path | None = None, *, fingerprint: bool = False) -> ScheduleOutcome:
    """As `coscheduler.torture.case.run`."""
    with _rarely():
        return cases.run(case, keep, fingerprint=fingerprint, world=WORLD)


@contextmanager
def _rarely() -> Iterator[None]:
    """Drivers and masters look at their pool less often: most of what a schedule costs is that."""
    modules, names = (driver_side, driver_side, sharing), ("LOOK_EVERY_S", "WATCH_EVERY_S", "ORPHANS_EVERY_S")
    before = [getattr(module, name) for module, name in zip(modules, names, strict=True)]
    for module, name, seconds in zip(modules, names, (3.0, 20.0, 5.0), strict=True):
        setattr(module, name, seconds)
    try:
        yield
    finally:
        for module, name, seconds in zip(modules, names, before, strict=True):
            setattr(module, name, seconds)
