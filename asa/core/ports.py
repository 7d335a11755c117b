"""Every seam between ASA's packages as a Protocol.

Providers satisfy them structurally: there is nothing to inherit. Where others may provide one there is a how-to
in ``docs/howto`` and a conformance suite in `asa.testing`. What only the modules of one package know stays with them.
"""

from __future__ import annotations

import argparse
import enum
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from asa.core.allocation import Allocation
from asa.core.command import CommandResult
from asa.core.context import Context
from asa.core.decision import Amend, Ask, DispatchDecision, NodeRun, StrategyDecision
from asa.core.event import Event
from asa.core.job import Capabilities, JobChanges, JobHandle, JobRequest, JobStatus, Options, Refused, Resources
from asa.core.stage import StageSpec
from asa.core.task import Task, Value
from asa.core.view import AllocationView, QueuedJob, QueueView, StageView, WorkflowView

if TYPE_CHECKING:  # annotations only: NumPy takes a tenth of a second to import
    import numpy as np
    import numpy.typing as npt

Post = Callable[[Sequence[Event]], None]
"""How the job watch reports what happened; may be called from any thread."""


class Report(Protocol):
    """How an executor reports what happened; may be called from any thread."""

    def __call__(self, events: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
        """Hand events over; `logged` is called, on the run's own thread, once they are safe in the log."""


class Clock(Protocol):
    """Where time comes from, and the only way to wait."""

    def now(self) -> float: ...
    def wait(self, signal: threading.Event, until: float = ...) -> bool:
        """Let time pass until `signal` is set or the time `until` [s] has come; True when the signal was set."""


class Backend(Protocol):
    """A batch system.

    Calls may block for a while; they raise `BackendError`, ``transient`` when trying again may help.
    """

    def capabilities(self) -> Capabilities: ...
    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """One outcome per request, in order. A dependency on a handle of an earlier call is allowed.

        When it raises, some may have been taken: before submitting again, ask `find`.
        """

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order, with one question to the batch system however many there are."""

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under; a token that no job carries is left out.

        An array that an interrupted `submit` left half made is ended, and left out.
        """

    def update(self, handle: JobHandle, changes: JobChanges) -> None: ...
    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; jobs that have ended already are passed over."""

    def look(self) -> QueueView | None:
        """What an ordinary user can see of the queue, other people's jobs included; None where nothing can be seen."""

    def close(self) -> None:
        """Let go of what this object holds; jobs go on."""


@dataclass(frozen=True)
class RunContext:
    """What an executor must know of the run it serves.

    Parameters
    ----------
    run
        The run's name.
    directory
        The run's own directory (0700), shared with the nodes.
    workdir
        Where tasks run.
    sys_path
        Import path of the driver, so that workers find the modules the user's file imports.
    orphan_grace_s
        How long a supervisor waits for a new driver before it ends its job [s].
    local
        True when all nodes are this machine.
    pool
        Directory of the pool that this run shares with others; None for one of its own.
    secrets
        Names of variables that only tasks of some stages get.
    now
        The run's time [s since the epoch]; None for the machine's.
    output_limit
        How much is kept of what a task prints [bytes]; None for the executor's own default.
    generation
        Number of this driver; each later driver of the run has a larger one. 0 where there is but one.
    newest
        Asks for the generation of the run's newest driver, wherever that is: it may be above ours.
    """

    run: str
    directory: Path
    workdir: str
    sys_path: tuple[str, ...]
    orphan_grace_s: float = 60.0
    local: bool = False
    pool: Path | None = None
    secrets: tuple[str, ...] = ()
    now: Callable[[], float] | None = None
    output_limit: int | None = None
    generation: int = 0
    newest: Callable[[], int] = lambda: 0

    def is_replaced(self) -> bool:
        """Whether the run has a later driver, so that this one must do nothing more."""
        return self.newest() > self.generation


class Executor(Protocol):
    """Runs tasks inside allocations. Reports `NodeJoined`, `NodeLost`, `TasksKept`, `TaskDone`, `TaskFailed`.

    A task is reported once. Tasks given to a node that is lost are reported as `TaskFailed` with ``infrastructure``,
    before its `NodeLost`; tasks of an allocation whose job never started, or that was released, are not reported.
    A driver may die at any moment: what of its tasks goes on, and what has ended and was not logged, is the next one's.
    """

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """The program that the batch job runs on each of its nodes; pure, may be called before `start`."""

    def recover(self, tasks: Sequence[Task], allocation: str, context: RunContext) -> Sequence[Event]:
        """How tasks that an earlier driver gave to this allocation have ended, if they did so without a driver.

        That is known even if the allocation is gone. May be called before `start`.
        """

    def start(self, context: RunContext, post: Report) -> None:
        """Begin to listen for the nodes of this run's allocations."""

    def adopt(self, tasks: Sequence[Task], allocation: str, nodes: Collection[str]) -> None:
        """An earlier driver gave these tasks to this allocation, which had these nodes: report on them.

        Called once, when the first of its nodes has joined. Which tasks there are still is reported as `TasksKept`, if
        there were `tasks`; whatever else its nodes have of an earlier driver ends.
        """

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order, as its nodes have room."""

    def release(self, allocation: str) -> None:
        """End this allocation's job with exit code 0; running tasks are killed."""

    def close(self) -> None:
        """Stop listening. Supervisors wait for a new driver; those that were released end, even if they come later."""


@runtime_checkable
class KeepsSecrets(Protocol):
    """What an executor has as well that can give secrets to the tasks of one stage alone."""

    def exposes(self) -> str:
        """Why others could see them as it is set up, and what to do; "" when they cannot."""


@runtime_checkable
class SharesProcesses(Protocol):
    """What an executor has as well whose tasks may be threads of one process, with one environment for all."""

    def mingles(self) -> str:
        """Why tasks cannot each have GPUs of their own as it is set up, and what to do; "" when they can."""

    def outlasts(self) -> str:
        """Why a task that takes too long cannot be ended alone, and what to do; "" when it can."""


@runtime_checkable
class TakesGuests(Protocol):
    """What an executor has as well that reports, as `CoresUnused`, what tasks leave idle whose `Task.shares` says so,
    and runs a `Task.guest` there, after everything else."""

    def crowds(self) -> str:
        """Why it cannot as it is set up, and what to do; "" when it can."""


@runtime_checkable
class Sharing(Protocol):
    """What an executor has as well that can share a pool with other runs (`RunContext.pool`).

    What it borrows it reports as `Leased`, then like an allocation, at last as `LeaseEnded`; `Recalled` says that no
    more tasks are to be given to a lease. Its own nodes that it lends are `NodeLost`, and join again.
    """

    def want(self, task: Resources | None, count: int) -> None:
        """So many more tasks of this size could run now, if there were room; None when no task waits for room."""


class VirtualClock(Clock, Protocol):
    """A clock that stands still until a wait, and then runs the calls that are due."""

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Run `call` when it is `when` [s], now if that is past; calls of one time run in the order of registration."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended: with a value, or with an error; `seconds` is how long the call really took [s], `cause`
    is `asa.core.task.PAUSED` where the task is to go on."""

    seconds: float
    value: Value | None
    error: str = ""
    traceback: str = ""
    cause: str = ""


class Work(Protocol):
    """What tasks do in virtual time, and how long that takes."""

    def seconds(self, task: Task) -> float | None:
        """Virtual run time of a task [s]; None for as long as the call really takes."""

    def used(self, task: Task) -> tuple[float, int] | None:
        """How many cores, and how much memory [bytes], it uses of what it holds, where that is known."""

    def call(self, task: Task) -> Outcome:
        """Run a task, here and now; never raises for what the task itself does."""


@runtime_checkable
class Previews(Protocol):
    """What a backend has as well that can say how it would submit."""

    def preview(self, requests: Sequence[JobRequest]) -> list[str]:
        """The commands that submit these, in the batch system's words; nothing is run. No value of the environment."""


@runtime_checkable
class CountsQuestions(Protocol):
    """What a backend has as well that knows how often it has asked the batch system something."""

    @property
    def questions(self) -> int:
        """All calls so far, but for submissions, changes and cancellations."""


@runtime_checkable
class ShowsQueues(Protocol):
    """What a backend has as well that can show the queues of several partitions, with as many questions as `look`."""

    def looks(self, queues: Sequence[Options]) -> list[QueueView | None]:
        """The queue that jobs with each of these options would be in; None for one that cannot be seen."""


@runtime_checkable
class VirtualBackend(Backend, Protocol):
    """A backend in virtual time brings its own clock, and the executor that lives in it."""

    @property
    def compute(self) -> bool:
        """Whether tasks really call their functions."""

    @property
    def times(self) -> str | Path | None:
        """An earlier run, whose run times tasks have where they are not declared."""

    def enter(self) -> VirtualClock:
        """Its clock. From now on until `close`, it belongs to one run; waits for the one before to close."""

    def executor(self, work: Work) -> Executor:
        """The executor of its running jobs; no other one can run there."""

    def listen(self, call: Callable[[], None]) -> None:
        """Call this whenever something has happened to a job of the run, so that polling is not needed."""


class Strategy(Protocol):
    """When to ask for which allocation. A pure function of the view.

    `estimator` is the spec of what learns and predicts waits for it; `own_pools` says that it needs each stage's tasks
    to stay in the stage's own allocation.
    """

    estimator: str
    own_pools: bool

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]: ...


@runtime_checkable
class Explains(Protocol):
    """What a strategy that chooses has as well."""

    def explain(self, view: WorkflowView) -> str:
        """A line of plain words for `asa explain`: what it does, and why."""


class Reach(enum.IntEnum):
    """From what a decision about a stage follows, besides the time."""

    ITSELF = 0
    EXPECTED = 1  # and from what is expected of all before it, none of which it expects earlier as time passes
    BEFORE = 2  # and from the stages right before it
    AHEAD = 3  # and from both
    ALL = 4  # from any


@runtime_checkable
class DecidesByStage(Strategy, Protocol):
    """A strategy that need not look at all stages at each change.

    About a stage that is over it decides nothing, and that it is over is all that others see of it.
    """

    def reach(self, view: WorkflowView) -> Reach:
        """From what follows what it decides about the only stage of this view: then it is asked about it again when
        that may have changed, with the others in reach. Follows from that stage alone, and from the time."""


class PlaceHolding(Protocol):
    """How jobs stand in the queue, and age, before they are wanted. Pure functions of the view.

    `name` is what users call it.
    """

    name: str

    def ask(self, stages: Sequence[StageView], view: WorkflowView) -> Sequence[Ask]:
        """Jobs for these stages, as far as they can be asked for now."""

    def tend(self, view: WorkflowView, wanted: frozenset[str]) -> Sequence[Amend]:
        """What to change of the jobs, so that those of the stages `wanted` may start and no others."""

    def kept(self, item: AllocationView, view: WorkflowView) -> bool:
        """False when what the batch system says of a job shows that it lost its place."""


@dataclass(frozen=True, slots=True)
class HostTasks:
    """Tasks of a stage in an allocation, as a guest rule sees them.

    Parameters
    ----------
    stage
        It.
    cores, unused
        What they hold, and what of that they do not use.
    memory, elapsed
        Which parts of their memory are used, and of the allocation's wall time have passed.
    guests
        Cores of the guests that run there: stage -> how many.
    """

    stage: StageSpec
    cores: int
    unused: int
    memory: float
    elapsed: float
    guests: Mapping[str, int]


class GuestRule(Protocol):
    """How many cores that tasks of a stage leave idle go to tasks of others."""

    def cores(self, host: HostTasks, guest: StageSpec, now: float) -> int:
        """How many cores all guests of the host may have when tasks of this stage are to be such; never more than
        `unused` of them are given. Asked at a time [s since the epoch] when `unused` is another than before."""


ChangeRecord = Callable[[dict[str, Any] | None], dict[str, Any] | None]
"""From what is kept under a key (None: nothing) to what is to be kept; may be called again."""


class Estimator(Protocol):
    """Learns queue waits, a job at a time: those of one geometry or, with ``pooled = True`` in the class, of a queue.

    A pooled estimator distinguishes geometries by the context; others may ignore it.
    """

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """The wait [s] to plan with; may sample.

        `quantile` of the wait's distribution, in (0, 1), None for the estimator's own choice; an estimator that knows
        no distribution returns what it has.
        """

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        """A job waited `wait_s` [s]; comes late and out of order.

        `predicted_s` is what `predict` had said for it, `context` what was known when it was submitted. Raises
        `InvalidInput` when a time is negative or not finite.
        """

    def state(self) -> dict[str, Any]:
        """All that was learned, as JSON-able values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the `state` of another one of the kind; raises `InvalidInput` when it is none, or does not fit."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to ask for, and what it follows from.

    Parameters
    ----------
    amount
        What to ask for [bytes or s].
    tasks
        From how many tasks it follows.
    largest
        The largest use among these [bytes or s].
    above
        How many of them would have had too little.
    which
        Which tasks these are, where it is not all that are known: words that go after "tasks".
    """

    amount: float
    tasks: int
    largest: float
    above: int = 0
    which: str = ""


class RequestEstimator(Protocol):
    """Learns what tasks of one stage use, of memory or wall time, a task at a time, and says what to ask for."""

    def learn(self, used: float, weight: float = 1.0, size: float | None = None, tasks: int = 1) -> None:
        """A task used so much [bytes or s].

        `weight` is for how long it had it [s], 1 for wall time; `size` how large its input was [bytes], if known;
        `tasks` for how many it stands, the others having used less. Raises `InvalidInput` when one is not finite, or
        `used` or `weight` not above 0.
        """

    def ask(self, size: float | None = None) -> Advice | None:
        """What to ask for, for a task with an input of this size [bytes]; None while there is nothing to go by."""


class RecordStore(Protocol):
    """Where estimators keep JSON records, as `asa.log.database.LearnedStore` does."""

    def get(self, key: str) -> dict[str, Any] | None: ...
    def keys(self, prefix: str = "") -> list[str]: ...
    def update(self, key: str, change: ChangeRecord) -> dict[str, Any] | None: ...
    def learn_once(self, key: str, token: str, change: ChangeRecord) -> bool: ...


class RunTimePredictor(Protocol):
    """How long a stage or job will run, from how long its like ran before.

    Methods raise `InvalidInput` when a time is not finite, a run time below 0, or a wall time not above 0.
    """

    def predict(self, key: str, walltime_s: float) -> float:
        """Expected run time [s]; at most the wall time."""

    def learn(self, key: str, run_time_s: float) -> None: ...


class Command(Protocol):
    """A word of the command line, such as ``asa run``; third parties add some by entry point (``asa.commands``)."""

    help: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare what the command takes; ``--json`` is there already."""

    def run(self, options: argparse.Namespace) -> CommandResult: ...


class Dispatcher(Protocol):
    """Which queued jobs start now. A pure function of the view."""

    def decide(self, view: QueueView) -> Sequence[DispatchDecision]: ...


class Placement(Protocol):
    """On which nodes a job runs."""

    def choose(
        self, free: npt.NDArray[np.int64], need: npt.NDArray[np.int64], units: int, per_node: int
    ) -> Sequence[NodeRun]:
        """Nodes for `units` units, at most `per_node` on each (0: no limit); () when there is no room.

        `free`, shape (nodes, resources), is what the nodes have left (zeros where the job may not run); `need`, shape
        (resources,), is what one unit takes.
        """


class JobPredictor(Protocol):
    """How long queued jobs will run, for dispatchers. Told of every job's end, in order of time.

    One with a true attribute `renews` is asked again for a job that waits when another of its user ends.
    """

    def predict(self, job: QueuedJob) -> float:
        """Expected run time [s]; asked when the job is submitted. Its `walltime_s` is NaN where none was given."""

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """`job` ran for `run_time_s` [s]."""
