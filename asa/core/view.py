"""What deciders see: immutable pictures of a queue (dispatchers) and of a run (strategies).

Dispatchers of large simulated machines see a queue whose jobs are columns as well; it has all that a `QueueView` has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from asa.core.decision import JobKey
from asa.core.job import Options, QueueRegime, Resources
from asa.core.stage import StageSpec, StageState


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits, eligible to start. `walltime_s` is its wall time, or a prediction of its run time [s].

    `user` and `name` are "" where they are not known.
    """

    key: JobKey
    resources: Resources
    walltime_s: float
    submitted: float
    user: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs and is expected to end at `ends` [s]: when its wall time [s] is over, or as predicted.

    `walltime_s` is None where it is not known.
    """

    key: JobKey
    resources: Resources
    ends: float
    walltime_s: float | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """What sites show of a queue even where they show no jobs: the fields of `asa.core.context.Context` of these names.

    Jobs without a wall time count for nothing where work is summed up. No core is free where more are held than there
    are (a machine that shrank).
    """

    backlog_s: float
    queued: int
    free_cores: int
    oldest_s: float
    left_s: float


@dataclass(frozen=True, slots=True)
class QueueView:
    """A batch system's queue, in order of priority, and its running jobs, on `capacity` resources."""

    now: float
    capacity: Resources
    queue: tuple[QueuedJob, ...]
    running: tuple[RunningJob, ...]

    def counters(self) -> Counters:
        """The queue in a few numbers.

        Examples
        --------
        Half of four cores run something; one job of two cores wants an hour.

        >>> waiting, running = QueuedJob("a", Resources(2), 3600.0, 40.0), RunningJob("b", Resources(2), 160.0)
        >>> QueueView(100.0, Resources(4), (waiting,), (running,)).counters()
        Counters(backlog_s=1800.0, queued=1, free_cores=2, oldest_s=60.0, left_s=30.0)
        """
        cores, now = self.capacity.cores, self.now
        work = sum(job.resources.cores * job.walltime_s for job in self.queue if math.isfinite(job.walltime_s))
        left = sum(job.resources.cores * max(0.0, job.ends - now) for job in self.running if math.isfinite(job.ends))
        busy = sum(job.resources.cores for job in self.running)
        oldest = now - min((job.submitted for job in self.queue), default=now)
        return Counters(work / cores, len(self.queue), max(0, cores - busy), max(0.0, oldest), left / cores)

    def plain(self) -> QueueView:
        """This view. Views of other kinds, such as the tables of a simulated queue, return one of plain objects."""
        return self


@dataclass(frozen=True, slots=True)
class AllocationView:
    """An allocation that was asked for and has not ended.

    Parameters
    ----------
    key
        Its name.
    stages
        Stages it is meant for.
    submitted
        When it was submitted [s since the epoch].
    queued
        True once the batch system has taken it, so that others can depend on it.
    started
        When it started [s since the epoch], or None while it waits.
    ends
        When its wall time is over [s since the epoch], or None while it waits.
    leaving
        True once it takes no more tasks: released, cancelled, or too near its wall time.
    busy
        True while tasks run in it.
    resources, walltime_s
        Its size and wall time [s].
    predicted_wait_s, soon_wait_s
        The wait it was planned with [s], and how soon it may be over; None where nothing was asked.
    after
        Keys of the allocations that its job waits for.
    array
        Name of the job array that it is an element of, or "".
    throttle
        How many elements of that array may run at a time.
    parked
        Whether it stands in the queue without being able to start.
    amending
        Whether a change of its job, or of its array, is on its way.
    refused
        The batch system's words when it last refused such a change, or "".
    reason
        Why its job waits, in the batch system's words; "" while nothing is known.
    ages_since
        Since when its job has grown older in the queue [s since the epoch], or None.
    """

    key: str
    stages: tuple[str, ...]
    submitted: float
    queued: bool
    started: float | None
    ends: float | None
    leaving: bool
    busy: bool
    resources: Resources
    walltime_s: float
    predicted_wait_s: float | None = None
    soon_wait_s: float | None = None
    after: tuple[str, ...] = ()
    array: str = ""
    throttle: int = 1
    parked: bool = False
    amending: bool = False
    refused: str = ""
    reason: str = ""
    ages_since: float | None = None


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage of a run.

    Parameters
    ----------
    spec
        Its needs and order.
    state
        Where it stands.
    allocations
        Those meant for it that have not ended.
    started, ended
        When its first task was launched and its last one ended [s since the epoch], or None.
    expected_end
        For a running stage, when it is expected to end [s since the epoch]; never in the past. None otherwise.
    predicted_wait_s, soon_wait_s
        What the estimator said for the next job of this stage [s]: the wait to plan with, and how soon it may be over;
        None when it was not asked.
    predicted_at
        When that was [s since the epoch], or None.
    attempts
        Jobs asked for this stage so far.
    displaced
        How many of them did not keep their places in the queue.
    rest_s
        Of a stage with checkpoints, how long its tasks are expected to run yet, counted from when they last began [s];
        None where that was not said.
    unlaunched
        Whether it has tasks, or may yet have tasks, that no allocation was given.
    """

    spec: StageSpec
    state: StageState
    allocations: tuple[AllocationView, ...]
    started: float | None
    ended: float | None
    expected_end: float | None
    predicted_wait_s: float | None
    attempts: int
    unlaunched: bool
    soon_wait_s: float | None = None
    predicted_at: float | None = None
    displaced: int = 0
    rest_s: float | None = None


class Extent(NamedTuple):
    """How large a run is: the cores that its stages are charged for times run times [s], and those of the widest; with
    which options of the batch system its stages are to run; whether tasks of some go on in another allocation."""

    core_s: float
    widest: int
    kinds: tuple[Options, ...] = ()
    goes_on: bool = False

    @classmethod
    def of(cls, specs: Iterable[StageSpec], charged: Callable[[Resources], int]) -> Extent:
        specs = list(specs)
        sizes = [(charged(spec.resources), spec.run_time_s, spec.resources.options) for spec in specs]
        core_s = sum(cores * run_time_s for cores, run_time_s, _ in sizes)
        kinds = dict.fromkeys(options for _, _, options in sizes)
        widest = max((cores for cores, _, _ in sizes), default=0)
        return cls(core_s, widest, tuple(kinds), any(spec.checkpoint for spec in specs))

    def plus(self, more: Extent) -> Extent:
        kinds = tuple(dict.fromkeys((*self.kinds, *more.kinds)))
        widest, goes_on = max(self.widest, more.widest), self.goes_on or more.goes_on
        return Extent(self.core_s + more.core_s, widest, kinds, goes_on)


@dataclass(frozen=True)
class WorkflowView:
    """A run, and what matters of the site.

    Parameters
    ----------
    now
        Time of the decision [s since the epoch].
    stages
        In topological order.
    regime
        What becomes of a dependent job's place in the queue.
    dependencies
        Whether the batch system understands job dependencies.
    longest_s
        Longest wall time a job may ask for [s]; infinite when there is no limit.
    arrays, unordered, parks
        Whether it has job arrays whose throttle can be changed and whose elements start in their order; the setting by
        which they would not, or ""; whether waiting jobs can be parked.
    poll_s
        Longest time until it is noticed that a job has started [s].
    idle_core_s
        Says what allocations that came before their stage have cost by now: cores times the time they held nothing [s].
    cores_per_node
        Cores of the largest node, or None.
    largest
        The most that a job may ask for, or None.
    fixed_s
        How long an allocation on one node, and one on several, is charged for beside its tasks [s]: until its nodes
        have joined, and from its last task to its end. Zeros where that is not known.
    wide_first
        Whether a wider job starts before a narrower one, however long that has waited.
    find
        Finds any stage of the run by its name, where `stages` may be only those to decide about; None where these are
        all.
    after
        Finds the names of the stages that wait for one; None where `stages` are all.
    extent
        What does not change of the run; None to sum it up over `stages`.
    charged
        How many cores a job of a size is charged for: where it gets whole nodes, all of theirs.
    """

    now: float
    stages: Sequence[StageView]
    regime: QueueRegime
    dependencies: bool
    longest_s: float
    arrays: bool = False
    unordered: str = ""
    parks: bool = False
    poll_s: float = 0.0
    idle_core_s: Callable[[], float] = float
    cores_per_node: int | None = None
    largest: Resources | None = None
    fixed_s: tuple[float, float] = (0.0, 0.0)
    wide_first: bool = False
    find: Callable[[str], StageView] | None = None
    after: Callable[[str], Sequence[str]] | None = None
    extent: Extent | None = None
    charged: Callable[[Resources], int] = attrgetter("cores")

    def __getitem__(self, name: str) -> StageView:
        return self._named[name] if self.find is None else self.find(name)

    def followers(self, name: str) -> Sequence[str]:
        """Names of the stages that wait for one."""
        return self._after.get(name, ()) if self.after is None else self.after(name)

    def about(self, stage: StageView) -> WorkflowView:
        """This view, to decide about one of its stages."""
        made = object.__new__(WorkflowView)  # many are made: `replace` would take longer than most decisions
        made.__dict__.update(self.__dict__, stages=(stage,), find=self.__getitem__, extent=self._extent, memo=self.memo)
        made.__dict__["after"] = self.followers
        for name in ("_named", "allocations"):
            made.__dict__.pop(name, None)
        return made

    @cached_property
    def memo(self) -> dict[str, Any]:
        """What strategies worked out from this view, by stage: those about one of its stages have it, too."""
        return {}

    @cached_property
    def _named(self) -> dict[str, StageView]:
        return {stage.spec.name: stage for stage in self.stages}

    @cached_property
    def _after(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for stage in self.stages:
            for name in stage.spec.predecessors:
                found.setdefault(name, []).append(stage.spec.name)
        return found

    @cached_property
    def core_s(self) -> float:
        """What the whole workflow is charged if every stage holds just its own cores, cores times run time [s]."""
        return self._extent.core_s

    @cached_property
    def widest(self) -> int:
        """Cores that an allocation for the largest stage is charged for."""
        return self._extent.widest

    @property
    def kinds(self) -> tuple[Options, ...]:
        """Options of the batch system with which stages are to run, each once."""
        return self._extent.kinds

    @property
    def goes_on(self) -> bool:
        """Whether there are tasks with checkpoints."""
        return self._extent.goes_on

    @cached_property
    def _extent(self) -> Extent:
        return self.extent or Extent.of((stage.spec for stage in self.stages), self.charged)

    @cached_property
    def allocations(self) -> tuple[AllocationView, ...]:
        """All allocations that have not ended, each once, in order of submission."""
        found = {item.key: item for stage in self.stages for item in stage.allocations}
        return tuple(sorted(found.values(), key=lambda item: item.submitted))
