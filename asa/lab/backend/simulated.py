"""A batch system in virtual time: the simulator's queue, with other people's jobs in it, behind the Backend port.

``sim:hpc2n`` is a site model, ``sim:trace=log.swf.gz`` a log, ``sim:nodes=16,cores=8,load=0.7`` a machine under that
load, ``sim:nodes=4,cores=8`` one without other users. Nothing takes real time but the computing.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from asa.backends.queue import only_throttles
from asa.core.errors import BackendError, InvalidInput, Starved
from asa.core.job import (
    Capabilities,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Options,
    QueueRegime,
    Refused,
    Resources,
)
from asa.core.ports import Executor, Work
from asa.core.registry import DISPATCHERS
from asa.core.units import brief
from asa.core.view import QueueView
from asa.lab.backend.jobs import Books, Job, in_single_cores, partition_in, state_of, status_of
from asa.lab.backend.scene import QueueScene, SimulationOptions
from asa.lab.core.workload import Workload
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import DispatchLoop, check_walltimes
from asa.lab.simulator.state import StopReason

# -- Clock ------------------------------------------------------------------------------------------------------------


class EngineClock:
    """Virtual time of an engine, in which a dispatcher serves the queue. Deterministic; one thread waits at a time.

    Parameters
    ----------
    notice
        Called at the very instant at which something happens to a watched job of the engine, which stands still
        meanwhile.

    Notes
    -----
    Of what is due at one instant, the machine's own events come first. Calls that are due at the same instant run all
    together, whether or not one of them sets the signal that is waited for.
    """

    def __init__(self, engine: Engine, rule: Any, notice: Callable[[], None] = lambda: None) -> None:
        self.engine, self._notice = engine, notice
        self._served = DispatchLoop(engine, rule)
        self._order = itertools.count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self.engine.now

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (max(when, self.engine.now), next(self._order), call))

    def wait(self, signal: threading.Event, until: float = math.inf) -> bool:
        """Let time pass until `signal` is set or the time `until` [s] has come; True when the signal was set.

        Raises
        ------
        RuntimeError
            When nothing is due any more and `until` is infinite: the wait would never end.
        Starved
            When jobs wait on an idle machine, and nothing will happen any more.
        """
        while not signal.is_set():
            due = self._calls[0][0] if self._calls else math.inf
            if self._advance(min(due, until)):
                self._notice()
            elif due <= until and due < math.inf:
                while self._calls and self._calls[0][0] <= due:
                    heapq.heappop(self._calls)[2]()
                    if self._changed():  # it changed a job: that is reported before any question
                        break
            elif until == math.inf:
                raise RuntimeError("virtual time has no event left to wait for: the program would hang")
            else:
                return False
        return True

    def _changed(self) -> bool:
        """Whether something has happened to a watched job that was not reported yet."""
        return bool(self.engine.state.world[0]["job_changed"])

    def _advance(self, until: float) -> bool:
        """Let the machine go on; True when it stopped before `until` [s] because of a watched job."""
        noticed = self._served.run(until, promise=True) is StopReason.JOB_CHANGED
        if not noticed:
            self._check_alive()
        return noticed

    def _check_alive(self) -> None:
        """Raise where the clock could only tick for ever."""
        world = self.engine.state.world[0]
        if self._served.due < math.inf:  # a window is open
            return
        if world["waiting"] and not world["running"] and not world["events"] and world["arrival"] == world["arrivals"]:
            self.engine.check_starved()
            raise Starved(f"{world['waiting']} jobs wait on an idle machine, and nothing will happen any more")


# -- Backend ----------------------------------------------------------------------------------------------------------


def _nothing(*_event: Any) -> None:
    """No listener."""


class SimulatedProgram(Protocol):
    """What a job's program will do: run for so long [s], then exit with this code."""

    @property
    def run_time_s(self) -> float: ...
    @property
    def exit_code(self) -> int: ...


class OneRunAtATime(ABC):
    """What a backend shares that brings its own clock and executor: it belongs to one run at a time."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Belong to no run."""
        self._lock = threading.Lock()
        self._news: Callable[[], None] = _nothing
        self.watch: Callable[[JobRequest, JobStatus], None] = _nothing
        """Called with every change of a job's state, right after it; the executor sets it."""

    @property
    @abstractmethod
    def clock(self) -> EngineClock:
        """Virtual time."""

    def enter(self, patience_s: float = 60.0) -> EngineClock:
        """Its clock. Until `close` it belongs to one run; waits so long [s, real time] for the run before to end."""
        if not self._lock.acquire(timeout=patience_s):
            raise BackendError(f"{self!r} is busy with another run: let that end first, or give each run its own")
        return self.clock

    def listen(self, call: Callable[[], None]) -> None:
        """Call this whenever something has happened to a job of the run."""
        self._news = call

    def executor(self, work: Work) -> Executor:
        """The executor of its running jobs."""
        from asa.lab.backend.executor import VirtualExecutor

        return VirtualExecutor(self, work)

    @abstractmethod
    def cores_on(self, token: str) -> tuple[int, ...]:
        """Cores that a running job has on each of its nodes."""

    @abstractmethod
    def end(self, token: str, exit_code: int = 0) -> None:
        """The program of this running job exits."""

    def close(self) -> None:
        """Let the next run have it; jobs go on."""
        self._news = self.watch = _nothing
        if self._lock.locked():
            self._lock.release()


class Simulated(OneRunAtATime):
    """A simulated queue; satisfies the Backend port, and brings its own clock and executor. Deterministic.

    The machine is made, and its queue filled, when the clock is first looked at.

    Parameters
    ----------
    run
        What a job's program will do. One of which it says None runs until it is ended, or out of wall time.
    engine
        A machine to go on with, at whatever moment it is, instead of a new one.
    options
        Fields of `asa.lab.backend.scene.SimulationOptions`.

    Raises
    ------
    InvalidInput
        When options cannot be used, or do not go together.

    Examples
    --------
    A job that fills an empty machine; no real time passes.

    >>> queue = Simulated(nodes=4, cores=8, warmup=0)
    >>> (handle,) = queue.submit([JobRequest("a", Resources(cores=32), walltime_s=60.0, argv=("true",))])
    >>> queue.sleep(600.0)
    >>> status = queue.query([handle])[0]
    >>> status.state.value, str(status.reason), status.ended
    ('timeout', 'TimeLimit', 60.0)
    """

    def __init__(
        self,
        site: Any = "",
        *,
        run: Callable[[JobRequest], SimulatedProgram | None] = _nothing,
        engine: Engine | None = None,
        **options: Any,
    ) -> None:
        self.options = SimulationOptions.read({"site": site, **options} if site else options)
        self._run, self._engine = run, engine
        self.scene = self.options.scene() if engine is None else _scene_of(engine, self.options)
        self._settings = self.options.settings(self.scene) if engine is None else engine.settings
        self._forget()
        scene = self.scene
        check_walltimes(scene.workload, scene.cluster, self._rule, self._settings, scene.dispatcher)

    def _forget(self) -> None:
        """Begin with empty books, and a dispatcher of one's own; belong to no run."""
        self._rule = DISPATCHERS.create(self.scene.dispatcher)
        single_cores, longest_s = in_single_cores(self.scene.workload), self.options.longest_s or math.inf
        self._books = Books(self.scene.cluster, single_cores, longest_s)
        super()._forget()

    # -- the port --------------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        """What the machine can do, or the partition that jobs go to which name none."""
        return self._at(())

    def _at(self, options: Options) -> Capabilities:
        cluster = self.scene.cluster
        partition = partition_in(options, cluster)
        limits = cluster.all_partitions[partition]
        constraint = dict(options).get("constraint", "")
        if not (nodes := cluster.allowed(partition, constraint)).any():
            raise InvalidInput(f"no node is {constraint!r}: features of nodes are {', '.join(cluster.features)}")
        sizes = np.sort(cluster.capacity[nodes], axis=0)[::-1]
        total = dict(zip(cluster.resources, sizes[: limits.max_nodes or None].sum(axis=0).tolist(), strict=True))
        largest_node, longest_s = int(sizes[0, 0]), self._books.longest_in(partition)
        return Capabilities(
            self.scene.name,
            partition=[*cluster.partitions][partition] if cluster.partitions else "",
            apart=self._at if cluster.partitions or cluster.features else None,
            regime=QueueRegime(self._settings.model.regime),
            largest=Resources(total["cores"], memory=total.get("memory"), gpus=total.get("gpus", 0)),
            # Nodes of one core are how logs say that they tell of no nodes.
            cores_per_node=None if self._books.single_cores and largest_node == 1 else largest_node,
            longest_s=longest_s if longest_s < math.inf else None,
            poll_s=self.options.poll_s,
            arrays=True,
            parks=True,
            details={
                "machine": str(cluster),
                "others": _in_words(self.scene.workload),
                "dispatcher": str(self.scene.dispatcher),
            },
        )

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """Submit jobs; they reach the queue as soon as time passes.

        Raises
        ------
        BackendError
            When other people have ceased to submit theirs: waits would mean nothing.
        """
        if self.clock.now() > self.scene.end:
            raise BackendError(
                f"other people's jobs on {self.scene.name} end at {self.scene.end:.0f} s, and it is "
                f"{self.clock.now():.0f} s: from now on waits would mean nothing. Give more days="
            )
        return self._books.submit(self.engine, requests)

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        return [
            JobStatus(handle, JobState.LOST, "no such job") if job is None else status_of(self.engine, job)
            for handle, job in zip(handles, map(self._books.find, handles), strict=True)
        ]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """The latest job of each token."""
        return {token: job.handle for token in tokens if (job := self._books.tokens.get(token))}

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits, or the throttle of its array."""
        job = self._books.find(handle)
        state = None if job is None else state_of(self.engine, job)
        if job is None or not (state is JobState.PENDING or only_throttles(changes)):
            raise BackendError(
                f"job {handle.token!r} is {state.value if state else 'unknown'}: only a job that waits can be changed"
            )
        try:
            self._books.change(self.engine, job, changes)
        except InvalidInput as error:
            raise BackendError(f"job {handle.token!r} cannot be changed: it {error}") from error

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        for job in filter(None, map(self._books.find, handles)):
            if not (state := state_of(self.engine, job)).final:
                job.why = f"cancelled while it {'ran' if state is JobState.RUNNING else 'waited'}"
                operations.cancel(self.engine, job.row)

    def look(self) -> QueueView:
        """What the dispatcher sees, jobs of all users included: a `TableView`, to be read before time passes."""
        view: Any = self.engine.view()
        found: QueueView = view
        return found

    # -- virtual time ----------------------------------------------------------------------------------------------

    @cached_property
    def clock(self) -> EngineClock:
        """Virtual time; begins when the queue has filled."""
        if self._engine is not None:
            return EngineClock(self._engine, self._rule, self.notice)
        engine = Engine(self.scene.workload, self.scene.cluster, self._settings)
        operations.fail_nodes(engine)
        clock = EngineClock(engine, self._rule, self.notice)
        clock.wait(threading.Event(), self.scene.start)
        return clock

    @property
    def engine(self) -> Engine:
        """The machine; `asa.lab.simulator.operations` does things to it."""
        return self.clock.engine

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass [s], and everything happen that is due meanwhile."""
        self.clock.wait(threading.Event(), self.clock.now() + seconds)

    def copy(self) -> Simulated:
        """The same queue at the same moment, to try something else with.

        Raises
        ------
        InvalidInput
            When jobs of one's own are there, or run times are predicted by what learns as it goes: neither is copied.
        """
        if self._books.live or self._settings.learner is not None:
            raise InvalidInput(
                f"{self!r} cannot be copied: one's own jobs are on it, or its predictor learns. Copy a queue first, "
                "then run on the copy"
            )
        engine = self.engine.copy()
        other: Simulated = object.__new__(type(self))
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name != "clock"})
        other._engine = engine
        other._forget()
        return other

    @property
    def compute(self) -> bool:
        """Whether tasks really call their functions."""
        return self.options.compute

    @property
    def times(self) -> str | Path | None:
        """An earlier run, whose run times tasks have where nothing else tells."""
        return self.options.times

    def cores_on(self, token: str) -> tuple[int, ...]:
        return self._books.tokens[token].cores

    def end(self, token: str, exit_code: int = 0) -> None:
        job = self._books.tokens.get(token)
        state = None if job is None else state_of(self.engine, job)
        if job is None or state is not JobState.RUNNING:
            raise InvalidInput(f"job {token!r} is {state.value if state else 'unknown'}: only one that runs can end")
        job.exit_code = exit_code
        operations.end(self.engine, job.row, JobState.FAILED if exit_code else JobState.COMPLETED)

    def requeue(self, handle: JobHandle, restarts: int) -> None:
        """Requeue a job that runs and was started anew so many times; one that has gone on since stays as it is."""
        job = self._books.find(handle)
        if job is not None and (state_of(self.engine, job), job.restarts) == (JobState.RUNNING, restarts):
            operations.requeue(self.engine, job.row)

    def notice(self) -> None:
        """Something has happened to a job: start its program, and tell those who want to know."""
        changed = self._books.news(self.engine)
        if changed:
            self._news()
        for job in changed:
            if job.state is JobState.RUNNING and (program := self._run(job.request)) is not None:
                exits = partial(self._exit, job, job.restarts, program.exit_code)
                self.clock.call_at(self.clock.now() + program.run_time_s, exits)
            self.watch(job.request, status_of(self.engine, job))

    # -- mechanics -------------------------------------------------------------------------------------------------

    def _exit(self, job: Job, restarts: int, exit_code: int) -> None:
        """A program exits, unless its job has ended or was started anew since."""
        if (state_of(self.engine, job), job.restarts) == (JobState.RUNNING, restarts):
            self.end(job.request.token, exit_code)

    def __reduce__(self) -> tuple[Any, ...]:
        """Only what it was made with travels: elsewhere, the queue begins anew."""
        return _again, (dict(vars(self.options)), self._run)

    def __repr__(self) -> str:
        return f"<Simulated {self.scene.name}>"


def _in_words(others: Workload) -> str:
    """Other people's jobs: how many there are, and over how long."""
    if not len(others):
        return "no other jobs"
    return f"{len(others):,} jobs over {brief(float(others.submit[-1] - others.submit[0]))}"


def _again(options: dict[str, Any], run: Callable[[JobRequest], SimulatedProgram | None]) -> Simulated:
    return Simulated(run=run, **options)


def _scene_of(engine: Engine, options: SimulationOptions) -> QueueScene:
    cluster = engine.cluster
    name = options.name or f"sim-{cluster.nodes}x{int(cluster.capacity[0, 0])}"
    rule = options.dispatcher or "easy"
    return QueueScene(name, cluster, engine.workload, rule, engine.settings.model, engine.now)
