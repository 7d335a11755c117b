"""A site in one process: drivers on a login node, a batch system, and the machines that it gives to jobs.

What runs there is the product: `assemble`, runner, watch, event log, hub, wire, supervisor, worker pool. Simulated is
what stands below them: machines (`SimulatedHost`), the network, worker processes, and the batch system, which is that
of `asa.testing` with its controller between (`Controller`). `coscheduler.torture.case` draws what goes wrong.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from asa.allocations.watch import JobWatch, WatchThread
from asa.core.clock import Joinable, ManualClock, SystemClock
from asa.core.errors import AsaError, BackendError, InvalidInput, RunNotFound, StateError
from asa.core.event import (
    AllocationStarted,
    Cancelled,
    Event,
    JobEnded,
    Released,
    Requeued,
    RunEnded,
    RunState,
    Submitted,
    Submitting,
)
from asa.core.job import (
    Capabilities,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    QueueRegime,
    Refused,
    Resources,
)
from asa.core.ports import Executor, RunContext
from asa.core.run import Held
from asa.core.task import PAUSED
from asa.core.view import QueueView
from asa.log.database import TRIES, Change, LearnedStore, Record
from asa.log.events import EventLog
from asa.log.messages import logged_in
from asa.log.rundir import RunDirectory
from asa.log.running import Checkpoint
from asa.security.files import write_private
from asa.testing.backend_fake import FakeBatch
from asa.testing.simulation import (
    Killed,
    SimulatedBell,
    SimulatedProcess,
    SimulatedSelector,
    SimulatedStream,
    Simulation,
    Watched,
)
from asa.workflows.assemble import Assembly, Timing, assemble
from asa.workflows.graph import make_graph
from asa.workflows.plan import Plan
from asa.workflows.runner import LATEST_S
from asa.workflows.settings import Settings, load_settings, make_settings
from executors import supervisor, wire
from executors.host import Host
from executors.hub import HubExecutor
from executors.output import OutputFile
from executors.wire import Channel, Hello, OrderOutcome, RunOrders, SlotEnded, TaskOrder, Welcome
from executors.worker import Caller, SlotBoard

LOGIN = "login"
"""The machine of all drivers."""
POOL = "executors.worker_pool:ProcessPool"
PROLOG_S = 300.0
"""How long the prolog of a job may take, which begins before its program [s]: Slurm's PrologTimeout."""
KILL_WAIT_S = 30.0
"""Between SIGTERM and SIGKILL to a job that is ended [s]: Slurm's default."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class SimulatedHost(Host):
    """What a process sees of its simulated machine."""

    weigh_s = math.inf  # no process of it has memory of its own

    def __init__(self, site: SimulatedSite, process: SimulatedProcess, environ: Mapping[str, str]) -> None:
        self._site, self._simulation = site, site.simulation
        self.process, self._environ = process, dict(environ)
        self._pid = next(site.pids)
        self._signals: SimulatedStream | None = None
        self._children: dict[int, tuple[SimulatedProcess, int | None]] = {}
        process.at_death.append(self._orphan)
        site.add(process)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def environ(self) -> Mapping[str, str]:
        return self._environ

    def time(self) -> float:
        return self._simulation.clocks.time(self.process.machine)

    def monotonic(self) -> float:
        return self._simulation.now

    def sleep(self, seconds: float) -> None:
        self._simulation.sleep(seconds)

    def start(self, call: Callable[[], None], name: str) -> Joinable:
        return self._simulation.start(self.process, call, f"{self.process.name} {name}")

    def thread_id(self) -> int:
        return id(self._simulation.thread)

    def selector(self) -> SimulatedSelector:
        return SimulatedSelector(self._simulation)

    def bell(self) -> Any:
        return SimulatedBell(self._simulation.network)

    def listen(self, context: RunContext) -> Any:
        return SimulatedListener(self._site, self.process)

    def newest_driver(self, directory: str) -> int:
        return 0 if self._site.hidden > self._simulation.now else super().newest_driver(directory)

    def connect(self, directory: str, newest: int = 0) -> Channel:
        """As `executors.wire.connect`: it takes a while, and fails for the same reasons."""
        if self._site.hidden > self._simulation.now:
            raise FileNotFoundError("a network file system does not show it yet")
        address = json.loads(Path(directory, wire.RENDEZVOUS).read_bytes())
        wire.check_current(address, newest)
        listener = self._site.listeners.get(address["number"])
        here, there = self.process.machine, LOGIN
        if not self._simulation.network.reaches(here, there):
            self._simulation.sleep(5.0)
            raise TimeoutError("timed out")
        if listener is None or not listener.listens():
            raise ConnectionRefusedError("connection refused")
        self._simulation.sleep(self._simulation.random.uniform(1e-3, 2e-2))
        if not listener.listens():
            raise ConnectionRefusedError("connection refused")
        ours, theirs = self._simulation.network.connect(self.process, listener.process)
        listener.pending.append(theirs)
        listener.changed()
        return Channel(ours, peer=f"the driver of {directory}")  # type: ignore[arg-type]

    @contextmanager
    def signals(self, numbers: Iterable[int]) -> Iterator[Any]:
        inner, self._signals = self._simulation.network.connect(self.process, self.process)
        yield inner

    def socketpair(self) -> tuple[Any, Any]:
        return self._simulation.network.connect(self.process, self.process)

    def scratch(self) -> None:
        """None of its disks is simulated."""

    def open_output(self, hello: Hello, welcome: Welcome) -> OutputFile:
        return OutputFile.nowhere()

    def start_worker(
        self, link: Any, output: OutputFile, board: SlotBoard, welcome: Welcome, variables: dict[str, str]
    ) -> int:
        process = SimulatedProcess(f"worker of {self.process.name}", self.process.machine)
        host = SimulatedHost(self._site, process, {**self._environ, **variables})
        self._children[host.pid] = process, None
        end = link.move(process)
        worker = partial(run_worker, self._site, host, Channel(end), board, Caller(welcome.values), welcome.values)
        self._site.workers.append(process)
        thread = self._simulation.start(process, worker, process.name)
        process.at_death.append(lambda: self._child_ended(host.pid, -signal.SIGKILL if not thread.over else 0))
        return host.pid

    def ended(self, pid: int) -> tuple[int, int] | None:
        if (found := self._children.get(pid)) is None or found[1] is None:
            return None
        del self._children[pid]
        return found[1], 0

    def ended_child(self) -> int | None:
        return next((pid for pid, (_, code) in self._children.items() if code is not None), None)

    def reap(self, pid: int) -> None:
        self.ended(pid)

    def adopt(self) -> None:
        """No child of it has children."""

    def kill_children(self) -> None:
        self.kill_sessions(set(self._children))

    def kill_sessions(self, sessions: AbstractSet[int]) -> None:
        for pid in sorted(sessions):
            if (found := self._children.get(pid)) is not None:
                self._simulation.kill(found[0])

    def kill_tree(self, pid: int) -> None:
        self.kill_sessions({pid})

    def session_guard(self) -> Any:
        return NoGuard()

    def worker_pool(self, name: str) -> Callable[..., Any]:
        return partial(super().worker_pool(name), host=self)

    def signal(self, number: int) -> None:
        """Send a signal to this process."""
        if self._signals is not None and not self.process.dead:
            self._signals.send(bytes([number]))

    def _child_ended(self, pid: int, code: int) -> None:
        if pid in self._children:
            self._children[pid] = self._children[pid][0], code
            self.signal(signal.SIGCHLD)

    def _orphan(self) -> None:
        """Its children end with it: the session guard sees to that."""
        for process, code in list(self._children.values()):
            if code is None:
                self._simulation.kill(process)


class NoGuard:
    """A session guard where children end with their parent in any case."""

    def guard(self, session: int) -> None: ...
    def forget(self, session: int) -> None: ...
    def reap(self) -> None: ...
    def close(self) -> None: ...


class SimulatedListener(Watched):
    """As `executors.wire.ChannelListener`, of a simulated driver."""

    def __init__(self, site: SimulatedSite, process: SimulatedProcess) -> None:
        super().__init__()
        self.process, self.pending, self.closed = process, list[SimulatedStream](), False
        self._number = site.simulation.network.number(self)
        site.listeners[self._number] = self

    def fileno(self) -> int:
        return self._number

    def address(self) -> dict[str, Any]:
        return {"number": self._number}

    def listens(self) -> bool:
        """Whether connections are accepted."""
        return not self.closed and not self.process.dead

    def accept(self) -> Channel | None:
        if not self.pending:
            return None
        stream = self.pending.pop(0)
        return Channel(stream, peer=stream.peer.process.name)  # type: ignore[arg-type]

    def close(self) -> None:
        self.closed = True
        for stream in self.pending:
            stream.close()

    def readable(self) -> bool:
        return bool(self.pending)


def run_worker(
    site: SimulatedSite, host: SimulatedHost, channel: Channel, board: SlotBoard, caller: Caller, run: str
) -> None:
    """The life of a worker: as `executors.worker`, but each task takes its time in the simulation."""
    selector = host.selector()
    selector.register(channel, 1)
    channel.largest = wire.LARGEST
    try:
        while True:
            selector.select()
            for message in channel.receive():
                assert isinstance(message, RunOrders)
                for position, order in enumerate(message.orders):
                    if position and not board.take(message.slot):
                        break
                    board.begin(message.slot, position, host.time(), 0)
                    if site.fatal and len(message.orders) > position + 1:
                        site.fatal = False
                        site.simulation.kill(host.process)
                    outcome = run_order(site, host, caller, order, run)
                    channel.send(SlotEnded(message.slot, [outcome], free=False))
                channel.send(SlotEnded(message.slot, [], free=True))
    except OSError:
        site.simulation.kill(host.process)


def run_supervisor(host: SimulatedHost, words: Sequence[str]) -> int:
    """What ``python -m executors.supervisor`` does."""
    return supervisor.Supervisor(*supervisor.arguments(words, host), host=host).run()


FAILING_MOST = 4
"""Tasks that fail in a stage that does: without `keep_going` the run is resumed for each."""


def run_order(site: SimulatedSite, host: SimulatedHost, caller: Caller, order: TaskOrder, run: str) -> OrderOutcome:
    """One task."""
    started, machine = host.time(), host.process.machine
    site.began[run, order.stage, order.number] += 1
    if ".lease-" in host.process.name:
        site.borrowed.add((run, order.stage, order.number))
    site.worked[machine] = site.simulation.now
    name = Path(run).parent.name.rpartition("-")[0]
    if order.checkpoints is None:
        site.simulation.sleep(site.run_time(order))
    elif not run_on(site, machine, order, run, name):
        return OrderOutcome(order.ticket, started, host.time(), None, "it pauses", infrastructure=True, cause=PAUSED)
    site.worked[machine] = site.simulation.now
    outcome = caller.run(order)._replace(started=started, ended=host.time())
    failing = site.failing.get((name, order.stage), 0) if order.number < FAILING_MOST else 0
    if site.began[run, order.stage, order.number] <= failing:
        outcome = outcome._replace(value=None, error="ValueError: it fails, as was drawn")
    if outcome.value is not None:
        site.completed[run, order.stage, order.number] += 1
    return outcome


def run_on(site: SimulatedSite, machine: str, order: TaskOrder, run: str, name: str) -> bool:
    """A task with checkpoints goes on from the last, and saves now and then, slowly; whether it is done, and has not
    paused by itself."""
    assert order.checkpoints is not None
    key, lasting = (run, order.stage, order.number), site.lasting[name, order.stage]
    kept = Checkpoint(Path(order.checkpoints.directory))
    ran_s = float((kept.last / "ran").read_text()) if kept.last else 0.0
    if ran_s < site.saved.get(key, 0.0):
        site.note(f"{key[1:]} begins again at {ran_s:g} s, and had saved at {site.saved[key]:g} s")
    site.lasted.add(key)
    while ran_s < lasting.total_s:
        until_s = min(ran_s + lasting.every_s, lasting.total_s)
        site.simulation.sleep(until_s - ran_s)
        site.worked[machine] = site.simulation.now
        ran_s = until_s
        if lasting.stalls:
            continue
        with kept.save() as folder:
            site.simulation.sleep(site.simulation.random.choice([0.0, 0.5]))
            (folder / "ran").write_text(repr(ran_s))
        site.saved[key] = ran_s
        if ran_s < lasting.total_s and site.simulation.random.random() < lasting.pauses:
            return False
    return True


class Controller:
    """The backend port of a run's driver: a batch system behind a controller, which may be slow or away."""

    def __init__(self, site: SimulatedSite, run: TorturedRun) -> None:
        self._site, self._run = site, run
        self.questions = 0
        self._said: dict[str, JobStatus] = {}  # what was answered last, and is to be heard of before the next call
        self._found: set[str] = set()
        self._running: set[str] = set()

    def watched_by(self, watch: JobWatch, held: Iterable[Held]) -> None:
        """What becomes known of jobs must be what was answered, from now on; jobs that are held are known already."""
        post, self._running = watch._post, {item.key for item in held if item.started is not None}

        def heard(events: Sequence[Event], *logged: Any) -> None:
            for event in events:
                if isinstance(event, AllocationStarted):
                    self._running.add(event.allocation)
                elif isinstance(event, Requeued):
                    self._running.discard(event.allocation)
                elif isinstance(event, JobEnded):
                    self._check_end(event)
            post(events, *logged)

        watch._post = heard

    def _check_end(self, event: JobEnded) -> None:
        said = self._said.pop(event.allocation, None)
        if said is None and event.allocation in self._found:
            self._site.note(f"job {event.allocation} was found, and is reported as {event.state.value}: {event.reason}")
        if said is not None and said.state is not event.state:
            self._site.note(f"job {event.allocation} is {said.state.value}, and is reported as {event.state.value}")

    def _check_heard(self) -> None:
        """What was answered last has been reported by now."""
        for token, status in self._said.items() if self._run.ended is None else ():
            running = token in self._running
            if status.state.final or running is not (status.state is JobState.RUNNING):
                self._site.note(f"job {token} is {status.state.value}, which its driver was told and does not report")
        self._said = {}

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, ("simulated",)  # in a run's settings

    def __repr__(self) -> str:
        return "simulated"

    def capabilities(self) -> Capabilities:
        return self._site.batch.capabilities()

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        def effect() -> list[JobHandle | Refused]:
            if self._site.doubled > self._site.simulation.now:  # a retry below us: the first answer was lost
                self._site.twice.update(request.token for request in requests)
                self._site.batch.submit(requests)
            return self._site.batch.submit(requests)

        return self._call("submit", effect)

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        found = self._call("query", lambda: self._site.statuses(handles))
        self._said = {status.handle.token: status for status in found}
        return found

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        found = self._call("find", lambda: self._site.batch.find(tokens))
        self._found = (self._found - set(tokens)) | found.keys()
        return found

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        self._call("update", lambda: self._site.batch.update(handle, changes))

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        self._call("cancel", lambda: self._site.batch.cancel(handles))

    def look(self) -> QueueView | None:
        return None

    def close(self) -> None:
        """Nothing is held."""

    def _call(self, name: str, effect: Callable[[], T]) -> T:
        """Run a command; it is a process of its own, and goes on when the driver dies meanwhile."""
        site, simulation = self._site, self._site.simulation
        self._check_heard()
        site.calls.append((simulation.now, name))
        self.questions += name in ("query", "find")
        slow = site.slow > simulation.now
        took = simulation.random.uniform(1.0, 60.0) if slow else simulation.random.uniform(0.01, 0.1)
        answers: list[T | BackendError] = []

        def act() -> None:
            try:
                if site.away > simulation.now:
                    raise BackendError(f"{name}: the controller does not answer", transient=True)
                answers.append(effect())
            except BackendError as error:
                answers.append(error)

        simulation.soon(took / 2, act)
        self._run.reach(f"{name} is on its way")
        simulation.wait(lambda: bool(answers))
        self._run.reach(f"{name} has been done")
        simulation.sleep(took / 2)
        if isinstance(answer := answers[0], BackendError):
            raise answer
        if site.mute > simulation.now:
            raise BackendError(f"{name}: the answer is lost", transient=True)
        return answer


class SimulatedStore(LearnedStore):
    """What was learned: to make up a lesson takes a while, as where much is imported for it first."""

    def __init__(self, site: SimulatedSite, path: Path, *, busy_s: float) -> None:
        self._site = site
        super().__init__(path, busy_s=busy_s)

    def learn_once(self, key: str, token: str, change: Change) -> bool:
        made = itertools.count(1)

        def slowly(record: Record | None) -> Record | None:
            if next(made) <= TRIES:  # at last it is made while others wait
                self._site.simulation.sleep(self._site.simulation.random.choice([0.0, 0.5, 5.0]))
            return change(record)

        with self._site.alone_with_store():
            return super().learn_once(key, token, slowly)


class SimulatedClock:
    """The wall clock of a driver's process."""

    def __init__(self, host: SimulatedHost, simulation: Simulation) -> None:
        self._clock, self._simulation = SystemClock(host.time, host.monotonic), simulation

    def now(self) -> float:
        return self._clock.now()

    def wait(self, signal: threading.Event, until: float = math.inf) -> bool:
        left = until - self.now()
        return self._simulation.wait(signal.is_set, self._simulation.now + max(0.0, left))


class SimulatedExecutor(HubExecutor):
    """As executor `local`, on a simulated host."""

    def __init__(self, host: SimulatedHost) -> None:
        super().__init__(POOL, {"workers": "processes"}, host=host)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, ("local",)

    def __repr__(self) -> str:
        return "local"


class TorturedLog:
    """The event log of a driver, on a disk that may be slow or full; what the log has is known here."""

    def __init__(self, site: SimulatedSite, run: TorturedRun, log: EventLog) -> None:
        self._site, self._run, self._log = site, run, log
        self._synchronises = self._synchronised = False
        if run.durable is not None:
            log._database._connection.set_trace_callback(self._traced)

    def _traced(self, statement: str) -> None:
        """SQLite does this: it synchronises its file where it commits and has been told to be that careful."""
        if statement == "COMMIT":
            self._synchronised = self._synchronised or self._synchronises
        elif statement.startswith("PRAGMA synchronous"):
            self._synchronises = statement.endswith("full")

    def append(self, events: Sequence[Event]) -> None:
        simulation = self._site.simulation
        simulation.turn()
        if self._site.full > simulation.now:
            raise StateError("the disk is full")
        if self._site.laggard > simulation.now:
            simulation.sleep(simulation.random.uniform(0.1, 20.0))
        self._synchronised = False
        self._log.append(events)
        for result in (result for event in events for result in event.results):
            self._site.forget_saved(self._run, result.stage, result.task)
        if self._synchronised:
            self._run.durable = self._run.files()
        for event in events:
            self._check(event)
            self._run.on(event, simulation.now)
            if isinstance(event, RunEnded) and NEVER_ENDS in event.message:
                self._site.unblock(self._run.name, event.message)
        for event in events:
            self._run.reach(f"{type(event).__name__} is logged")
        simulation.turn()

    def _check(self, event: Event) -> None:
        """What must not happen where nothing is in the way."""
        now, run = self._site.simulation.now, self._run
        if isinstance(event, Cancelled) and (released := run.released.get(event.allocation)) is not None:
            quiet = max(self._site.disturbed, run.since, released)
            if self._site.harmless and quiet < now - 20.0 and self._site.goes_on(event.allocation):
                self._site.note(f"{event.allocation} was released, and goes on for {now - quiet:.0f} s")


@dataclass
class Lasting:
    """Tasks with checkpoints: how long each runs in all, how often it saves [s], how often it pauses by itself after
    that, and whether it saves nothing, until its run has ended for that reason."""

    total_s: float
    every_s: float
    pauses: float
    stalls: bool


NEVER_ENDS = "so it would never end: save more often, or raise walltime="
"""What is said of a task that saves nothing."""


@dataclass
class TorturedRun:
    """One run of a user: its directory, its drivers, and what its log has said."""

    name: str
    workflow: Any
    strategy: Any
    grace_s: float
    keep_going: bool = False
    directory: RunDirectory = field(init=False)
    driver: SimulatedProcess | None = None
    handed_over: bool = False  # whether the next driver waits already
    drivers: int = 0
    begun: bool = False
    assembly: Assembly[Plan] | None = None
    durable: tuple[bytes, bytes] | None = None
    """The log's files when they were last synchronised, where the power may fail; else None."""
    ended: RunState | None = None
    decided: float = math.inf  # when its outcome was logged [s]
    message: str = ""
    result: Any = None  # what it has returned, or why that cannot be read, once it has ended
    released: dict[str, float] = field(default_factory=dict)
    """Its allocations that were released, by the log, and when [s]."""
    cancelled: set[str] = field(default_factory=set)  # its allocations that were cancelled, by the log
    unknown: set[str] = field(default_factory=set)
    """Its allocations of which the log has no job id, so that no other job can wait for them."""
    since: float = math.inf  # when its driver began [s]
    away_s: float = 0.0  # the longest time that it had no driver [s]
    gone: float = math.inf  # when its last driver ended [s]
    gave_up: bool = False
    """Whether its driver, the run being over, has ended before the batch system had taken all its cancellations."""
    doomed: tuple[str, Callable[[], None]] | None = None
    """At which moment of its driver something is to happen, and what."""

    def reach(self, moment: str) -> None:
        """The driver has come to this moment."""
        if self.doomed is not None and self.doomed[0] == moment:
            (_, strike), self.doomed = self.doomed, None
            strike()

    @property
    def lock(self) -> Path:
        """What says who drives it."""
        return self.directory.path / "driver.lock.holder"

    def files(self) -> tuple[bytes, bytes]:
        """The event log and its write-ahead log, as they are."""
        path = self.directory.events
        ahead = path.with_name(f"{path.name}-wal")
        return path.read_bytes(), ahead.read_bytes() if ahead.exists() else b""

    def lose_writes(self, share: float) -> None:
        """The power has failed: a part of what was not synchronised is lost."""
        assert self.durable is not None
        whole, ahead = self.files()
        least = len(self.durable[1])
        if ahead[:32] == self.durable[1][:32] and len(ahead) >= least:
            self.durable = whole, ahead[: least + int((len(ahead) - least) * (1.0 - share))]
        path = self.directory.events  # new files: connections of dead drivers keep the old ones
        for ending in ("-wal", "-shm"):
            path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
        write_private(path, self.durable[0])
        if self.durable[1]:
            write_private(path.with_name(f"{path.name}-wal"), self.durable[1])

    def on(self, event: Event, now: float) -> None:
        """Its log has this since now [s]."""
        if isinstance(event, RunEnded):
            self.ended, self.message, self.decided = event.state, event.message, now
        elif isinstance(event, Released):
            self.released[event.allocation] = now
        elif isinstance(event, Cancelled):
            self.cancelled.add(event.allocation)
        elif isinstance(event, Submitting):
            self.unknown.add(event.allocation)
        elif isinstance(event, Submitted):
            self.unknown.discard(event.allocation)


class SimulatedSite:
    """Everything there is.

    Parameters
    ----------
    simulation
        Time, threads and network.
    directory
        A temporary one: the state directory of the user.
    cores, regime, wait
        Of the batch system; see `FakeBatch`.
    run_time
        How long a task takes [s], given its stage and index.
    joins_s
        After how long the program of a job that has started begins [s].

    Attributes
    ----------
    away, mute, slow, stale, doubled
        Until when calls to the batch system fail, only their answers are lost, take long, are answered with what was
        true a minute ago, or submit all jobs twice [s].
    full, laggard
        Until when the disk of the event log is full, or slow [s].
    hidden, hung
        Until when nodes do not see where the driver listens, and jobs start without their program [s].
    locks
        Of another process that keeps what was learned locked, or None.
    struck
        When something went wrong last [s].
    supervisors, tokens
        What runs of the programs of each job, and its token, by its id.
    calls
        When which call to the batch system was made.
    twice
        Tokens of jobs that were submitted twice.
    began, completed
        How often each task began, and ended well, on some worker.
    borrowed
        Tasks that were on a node of another run, which may take it back, and of which the next driver knows nothing.
    failing
        How often tasks of a stage fail, by the names of run and stage.
    lasting
        Stages with checkpoints, by the names of run and stage.
    lasted, saved
        Tasks of these that have begun; how long each had run in all when it saved last [s], until its result is in the
        log.
    worked
        When a worker of each machine last had a task [s].
    hanging
        Machines whose supervisors do nothing for long: they end with their jobs, or late if those are forgotten.
    fatal
        Whether the next worker dies that has several orders.
    harmless
        Whether nothing goes wrong that costs work, or moves a clock.
    wrong
        What has happened and must not.
    """

    def __init__(
        self,
        simulation: Simulation,
        directory: Path,
        *,
        cores: int,
        regime: QueueRegime,
        wait: Callable[[JobRequest], float],
        run_time: Callable[[str, int], float],
        joins_s: Callable[[], float],
    ) -> None:
        self.simulation, self.directory = simulation, directory
        self.began: Counter[tuple[str, str, int]] = Counter()
        self.completed: Counter[tuple[str, str, int]] = Counter()
        self.borrowed: set[tuple[str, str, int]] = set()
        self.failing: dict[tuple[str, str], int] = {}
        self.lasting: dict[tuple[str, str], Lasting] = {}
        self.saved: dict[tuple[str, str, int], float] = {}
        self.lasted: set[tuple[str, str, int]] = set()
        self.worked: dict[str, float] = {}
        self.hanging: set[str] = set()
        self.lost: set[str] = set()
        self.twice: set[str] = set()
        self.harmless = self.fatal = False
        self.wrong: list[str] = []
        self._processes: list[SimulatedProcess] = []
        self.listeners: dict[int, SimulatedListener] = {}
        self.workers: list[SimulatedProcess] = []
        self.supervisors: dict[str, list[SimulatedHost]] = {}
        self.tokens: dict[str, str] = {}
        self.pids = iter(range(1000, 10**9))
        self._machines = itertools.count(1)
        self.away = self.mute = self.slow = self.stale = self.doubled = -math.inf
        self.full = self.laggard = self.hidden = self.hung = self.struck = -math.inf
        self.calls: list[tuple[float, str]] = []
        self.runs: list[TorturedRun] = []
        self.locks: sqlite3.Connection | None = None
        self.on_end: dict[str, Callable[[], None]] = {}
        self.assemblies: list[Assembly[Plan]] = []
        self._run_time, self._joins_s = run_time, joins_s
        self._seen: list[tuple[float, dict[str, JobStatus]]] = []
        clock = SiteClock(simulation)
        self.batch = FakeBatch(
            clock, cores=cores, wait=wait, regime=regime, watch=self._on_job, poll=15.0, ordered=False
        )

    # ------------------------------------------------------- drivers

    def submit(self, run: TorturedRun) -> None:
        """A user starts a run, as `asa run`; the same call later is `asa resume`."""
        process = run.driver = SimulatedProcess(f"driver {run.drivers} of {run.name}", LOGIN)
        run.drivers += 1
        run.ended, run.since = None, self.simulation.now
        run.away_s = max(run.away_s, run.since - run.gone)
        host = self.host(process, {})
        process.at_death.append(partial(self._driver_ended, run, process))
        self.simulation.start(process, partial(self._drive, run, host), "main")

    def _driver_ended(self, run: TorturedRun, process: SimulatedProcess) -> None:
        if run.driver is process:
            run.gone = self.simulation.now
            if run.ended is RunState.SUCCEEDED and run.assembly is not None:
                run.gave_up = run.assembly.runner.watch.busy
            if run.begun:
                run.lock.unlink(missing_ok=True)
            if run.name in self.on_end:
                self.on_end[run.name]()

    def _drive(self, run: TorturedRun, host: SimulatedHost) -> None:
        clock = SimulatedClock(host, self.simulation)
        timing = Timing(clock, WatchThread(clock, host.start))
        fresh = run.drivers == 1 or not run.begun
        if fresh:  # as `asa run`; else as `asa resume`
            run.directory = RunDirectory.create(self.directory, f"{run.name}-{run.drivers}")
        with logged_in(run.directory.log):
            try:
                found = self._settings(run) if fresh else load_settings(run.directory)
                controller, executor = Controller(self, run), self._executor(host)
                settings = replace(found, backend=controller, executor=executor, strategy=run.strategy)
                graph = make_graph(settings.result)
                assembly = assemble(run.directory, graph, settings, timing)
                run.begun, run.assembly = True, assembly
                self.assemblies.append(assembly)
                controller.watched_by(assembly.runner.watch, assembly.plan.pool.held.values())
                if run.durable is not None:
                    run.durable = run.files()
                assembly.runner.log = TorturedLog(self, run, assembly.runner.log)  # type: ignore[arg-type]
                if assembly.plan.outcome is not RunState.SUCCEEDED:
                    driving = host.start(partial(self._run, run, assembly), "run")
                    assembly.runner.start_executor()
                    driving.join()
                assembly.close()
                self.assemblies.remove(assembly)
            except RunNotFound:
                run.begun = False  # it never began, as the message says: the user runs the workflow again
            except AsaError as error:
                _log.warning("%s ends: %s", host.process.name, error)
        self.simulation.kill(host.process)

    def _settings(self, run: TorturedRun) -> Settings:
        graph = make_graph(run.workflow)
        place = str(self.directory)
        options: dict[str, Any] = {"workdir": place, "sys_path": (), "keep_going": run.keep_going, "pool": self.pool}
        return make_settings(graph, run.name, orphan_grace=run.grace_s, **options)

    def _run(self, run: TorturedRun, assembly: Assembly[Plan]) -> None:
        try:
            assembly.runner.run()
        except AsaError as error:
            _log.warning("the run ends: %s", error)
        else:
            if self.simulation.now < run.decided + LATEST_S / 2 and not run.handed_over:
                for held in assembly.plan.pool.held.values():
                    if held.handle is not None and self.status(held.handle).state is JobState.PENDING:
                        self.note(f"the driver of {run.name} ends, and its job {held.key} waits")

    # ------------------------------------------------------- nodes

    def _on_job(self, request: JobRequest, status: JobStatus) -> None:
        """A job has started, or has ended or been requeued, or waits."""
        token = request.token
        known = token in self.twice or any(token in run.released or token in run.unknown for run in self.runs)
        if status.state is JobState.COMPLETED and not known:
            self.note(f"job {request.token} ended well, as others wait for, and was not released")
        hosts = self.supervisors.pop(status.handle.job_id, ())
        if status.state is JobState.RUNNING:
            self._check_order(request, status)
            self.simulation.soon(self._joins_s(), partial(self._start_programs, request, status))
        again = self.tokens.get(status.handle.job_id) == token  # else they are of a forgotten job whose id it has
        if again or status.state is not JobState.RUNNING:
            for host in hosts:
                host.signal(signal.SIGTERM)
                self.simulation.soon(KILL_WAIT_S, partial(self._clear, host.process.machine))

    def _check_order(self, request: JobRequest, status: JobStatus) -> None:
        """Elements of a job array start in order where nothing has gone wrong."""
        if request.array and self.harmless:
            for other, there in self.batch.jobs():
                if (other.array, there.handle.submitted) == (request.array, status.handle.submitted):
                    if there.handle == status.handle:
                        return
                    if there.state is JobState.PENDING and not any(other.token in run.cancelled for run in self.runs):
                        self.note(f"{request.token} has started before {other.token}, which stands before it")

    def _start_programs(self, request: JobRequest, status: JobStatus) -> None:
        """Run the job's program on each of its nodes, as `srun` does."""
        now = self.status(status.handle)
        if now.state is not JobState.RUNNING or now.restarts != status.restarts or now.started != status.started:
            return
        if self.hung > self.simulation.now:
            self.simulation.soon(PROLOG_S, partial(self._give_up, request, status))
            return
        job, codes = status.handle.job_id, dict[int, int]()
        self.tokens[job] = request.token
        self.supervisors[job] = hosts = []
        for number, cores in enumerate(self.spread(request.resources)):
            machine = f"n{next(self._machines)}"  # a name of its own: ids of jobs may come again
            process = SimulatedProcess(f"supervisor of {request.token} on {machine}", machine)
            host = self.host(process, {"SLURMD_NODENAME": machine, "SLURM_CPUS_ON_NODE": str(cores)})
            hosts.append(host)
            ended = partial(self._program_ended, job, hosts, codes, number)
            self.simulation.start(process, partial(self._program, request, host, ended), process.name)
            process.at_death.append(partial(ended, 137))

    def _give_up(self, request: JobRequest, status: JobStatus) -> None:
        """The prolog of a job hangs: it is put back into the queue."""
        now = self.status(status.handle)
        if now.state is JobState.RUNNING and now.restarts == status.restarts:
            with suppress(InvalidInput):  # one of two jobs of this name
                self.batch.requeue(request.token)

    def _program(self, request: JobRequest, host: SimulatedHost, ended: Callable[[int], None]) -> None:
        """What the job's command line names."""
        at = request.argv.index("-m")
        ended(self.programs()[request.argv[at + 1]](host, request.argv[at + 2 :]))
        self.simulation.kill(host.process)

    # ------------------------------------------------------- what sites of other kinds have of their own

    pool = "shared"
    """Which pool runs ask for."""

    def host(self, process: SimulatedProcess, environ: Mapping[str, str]) -> SimulatedHost:
        """The machine of a driver or a job's program."""
        return SimulatedHost(self, process, environ)

    def _executor(self, host: Any) -> Executor:
        return SimulatedExecutor(host)

    def spread(self, resources: Resources) -> list[int]:
        """Cores of a job on each of its nodes."""
        nodes = resources.nodes or 1
        return [resources.on_each(nodes).cores] * nodes

    def programs(self) -> Mapping[str, Callable[[Any, Sequence[str]], int]]:
        """What modules do that command lines name: given the machine and the other words, they return an exit code."""
        return {supervisor.__name__: run_supervisor}

    # ------------------------------------------------------- their ends

    def _program_ended(
        self, job: str, hosts: list[SimulatedHost], codes: dict[int, int], number: int, code: int
    ) -> None:
        if hosts[number].process.machine in self.lost or self.supervisors.get(job) is not hosts or number in codes:
            return
        codes[number] = code
        if code or len(codes) == len(hosts):  # srun --kill-on-bad-exit
            with suppress(InvalidInput, KeyError):  # the batch system has forgotten it
                self.batch.end(self.tokens[job], code, job_id=job)

    def add(self, process: SimulatedProcess) -> None:
        self._processes.append(process)

    def lose(self, machine: str) -> None:
        """A node is gone, with all that ran there; its peers, and the batch system, are not told."""
        self.lost.add(machine)
        self.simulation.network.lose(machine)
        self._clear(machine)

    def _clear(self, machine: str) -> None:
        """Nothing that runs there goes on."""
        for process in self.processes():
            if process.machine == machine:
                self.simulation.kill(process)

    # ------------------------------------------------------- what is known

    def note(self, wrong: str) -> None:
        """Something has happened that must not."""
        if wrong not in self.wrong:
            self.wrong.append(wrong)

    @contextmanager
    def alone_with_store(self) -> Iterator[None]:
        """What was learned is locked by none of us meanwhile, but for moments in which nothing else happens."""
        try:
            yield
        except StateError as error:
            if "locked" in str(error) and self.locks is None:
                self.note(f"another run has kept what was learned locked: {error}")
            raise

    def forget_saved(self, run: TorturedRun, stage: str, index: int) -> None:
        """A task has returned, as its run's log says: what it has saved is removed then."""
        self.saved.pop((str(run.directory.values), stage, index), None)

    def unblock(self, run: str, message: str) -> None:
        """It was said that tasks of the run save nothing: the user has mended that."""
        for (name, stage), lasting in self.lasting.items():
            if name == run and f"{stage!r} failed" in message:
                lasting.stalls = False

    def repeated(
        self, times: Mapping[tuple[str, str, int], int], but: AbstractSet[tuple[str, str, int]] = frozenset()
    ) -> list[tuple[str, int]]:
        """Of these tasks, stage and index of those that were there more than once, and on their run's own nodes."""
        other = self.borrowed | but
        return [key[1:] for key, count in times.items() if count > 1 and key not in other]

    def goes_on(self, token: str) -> bool:
        """Whether a job of this name runs, and its programs do."""
        jobs = [status for request, status in self.batch.jobs() if request.token == token]
        running = [status.handle.job_id for status in jobs if status.state is JobState.RUNNING]
        return any(not host.process.dead for job in running for host in self.supervisors.get(job, ()))

    def processes(self) -> list[SimulatedProcess]:
        """All that were ever started but for those that are long dead."""
        self._processes = [process for process in self._processes if not process.dead]
        return list(self._processes)

    @property
    def over(self) -> bool:
        """Whether all runs have succeeded, and their drivers ended."""
        for run in self.runs:  # asked at each turn: a generator takes twice as long
            if run.ended is not RunState.SUCCEEDED or run.driver is None or not run.driver.dead:
                return False
        return True

    @property
    def waiting(self) -> list[str]:
        """Tokens of jobs that wait, but for those that were doubled behind the back of a driver."""
        jobs = [request.token for request, status in self.batch.jobs() if status.state is JobState.PENDING]
        return [token for token in jobs if token not in self.twice]

    @property
    def superfluous(self) -> list[str]:
        """Jobs and processes that no run needs, once all have ended; but for jobs of which no driver can know."""
        jobs = [request.token for request, status in self.batch.jobs() if not status.state.final]
        known = [token for token in jobs if token not in self.twice]
        left = [process.name for process in self.processes() if process.machine not in self.hanging]
        return [f"job {token}" for token in known] + (left if len(known) == len(jobs) else [])

    @property
    def empty(self) -> bool:
        """Whether no process is left and no job."""
        ended = all(status.state.final for _, status in self.batch.jobs())
        return ended and all(process.machine in self.hanging for process in self.processes())

    @property
    def disturbed(self) -> float:
        """Until when, or since when not any more, something is out of order [s]."""
        network, alive = self.simulation.network, self.processes()
        return max(
            self.struck, self.away, self.mute, self.slow, self.stale, self.doubled, self.full, self.laggard,
            self.hidden, self.hung + PROLOG_S,
            *(process.stopped for process in alive if process.machine not in self.hanging),
            *(network.healed(LOGIN, process.machine) for process in alive),
        )  # fmt: skip

    def status(self, handle: JobHandle) -> JobStatus:
        return self.batch.query([handle])[0]

    def statuses(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """What the controller says of these jobs."""
        found = self.batch.query(handles)
        now = self.simulation.now
        self._seen = [item for item in self._seen if item[0] > now - 120.0]
        self._seen.append((now, {status.handle.token: status for status in found}))
        if self.stale > now:
            old = next((known for at, known in reversed(self._seen) if at <= now - 60.0), {})
            found = [old.get(status.handle.token, status) for status in found]
        return found

    def run_time(self, order: TaskOrder) -> float:
        return self._run_time(order.stage, order.number)

    def unlock(self) -> None:
        """Give up the lock on what was learned."""
        if self.locks is not None:
            self.locks.close()
            self.locks = None

    def close(self) -> None:
        """End all that is left."""
        self.unlock()
        self.simulation.close()
        for assembly in self.assemblies:
            with suppress(Killed, AsaError):
                assembly.close()


class SiteClock(ManualClock):
    """The simulation's time for the batch system."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def now(self) -> float:
        return self._simulation.now

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        if when < math.inf:
            self._simulation.call_at(when, call)
