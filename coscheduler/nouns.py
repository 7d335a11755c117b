"""Jobs that share cores: what a sharing rule sees, what it decides, and what it learns from; rules and experts.

A *host* is a running job that holds cores of its own; its *guests* run on those cores too. A guest's *share* is what
the kernel keeps to when both want the cores: a weight (what is not used goes to the other jobs) or a hard quota.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.decision import Start
from asa.core.errors import InvalidInput, UnknownName

Why = Mapping[str, Any]
"""JSON-able record of how a decision was made."""

ACTIONS = tuple(number / 10 for number in range(10))
"""Shares of a host's cores that experts vote on: 0 %, 10 % ... 90 %."""

FLOOR = 0.05
"""No share of a host's cores, the host's own included, is ever below this."""

ON_TIME = 1.0
"""Happiness of a job that does not report its progress, within its wall time: exactly on time."""

ALONE = -1
"""Row of the host of a job that is no guest."""


@dataclass(frozen=True, eq=False, slots=True)
class JobStates:
    """What experts see of running jobs, a row each; arrays of shape (n,), read-only.

    Parameters
    ----------
    cpu
        CPU time used lately, as a share of what the job's cores could give, in [0, 1].
    memory
        Memory in use, as a share of what belongs to the job's cores, in [0, 1].
    parallel
        True in a stage that uses all cores, False in one that uses a single core.
    elapsed
        Share of the wall time that has passed; above 1 once it is over.
    happiness
        The rate at which tasks are done, over the one that just meets the wall time; `inf` when none is left.
    """

    cpu: Floats
    memory: Floats
    parallel: Bools
    elapsed: Floats
    happiness: Floats

    def __post_init__(self) -> None:
        sizes = {getattr(self, each.name).shape for each in fields(self)}
        if len(sizes) != 1 or len(next(iter(sizes))) != 1:
            raise InvalidInput(f"columns of shapes {sorted(sizes)}: all of the same shape (n,) expected")
        for each in fields(self):
            getattr(self, each.name).flags.writeable = False

    def __len__(self) -> int:
        return len(self.cpu)

    def take(self, rows: Ints) -> Self:
        return type(self)(*(getattr(self, each.name)[rows] for each in fields(self)))

    def features(self) -> Floats:
        """All columns as numbers, shape (n, 5), in the order above; an infinite happiness is 1e9."""
        found = np.stack([getattr(self, each.name).astype(np.float64) for each in fields(self)], axis=1)
        return np.asarray(np.minimum(found, 1e9))

    @classmethod
    def of(cls, features: Sequence[float]) -> Self:
        """One job's state from a row of `features`."""
        cpu, memory, parallel, elapsed, happiness = (np.array([value]) for value in features)
        return cls(cpu, memory, parallel > 0, elapsed, happiness)

    def record(self, row: int) -> dict[str, float | bool | None]:
        """One row, JSON-able; None for an infinite happiness."""
        found: dict[str, float | bool | None] = {
            each.name: getattr(self, each.name)[row].item() for each in fields(self)
        }
        return found | ({} if np.isfinite(self.happiness[row]) else {"happiness": None})


BY_PROGRESS, BY_PRESSURE, BY_INSTRUCTIONS = "progress", "pressure", "instructions"
"""What a host's bound goes by: its own reports, which show whatever slows it down. Where it makes none: how long it
waits for CPUs, which shows neither caches nor memory bandwidth; or how many instructions it executes, which shows
these, but not that a program only spins while it waits."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job of the queue.

    Raises `InvalidInput` when the bound is not above 0, or goes by something else than is known.

    Parameters
    ----------
    exclusive
        It must not share its cores, neither as a host nor as a guest.
    bound
        By how much guests may slow it down while it has cores of its own, as a share of its run time alone: above 0,
        infinite where nothing was promised.
    bound_by
        `BY_PROGRESS`; or what its bound goes by while it makes no reports: `BY_PRESSURE`, on contention for CPUs only,
        or `BY_INSTRUCTIONS`.
    """

    name: str
    application: str
    cores: int
    walltime_s: float
    submitted: float = 0.0
    exclusive: bool = False
    bound: float = math.inf
    bound_by: str = BY_PROGRESS

    def __post_init__(self) -> None:
        if self.bound_by not in (known := (BY_PROGRESS, BY_PRESSURE, BY_INSTRUCTIONS)):
            expected = ", ".join(map(repr, known))
            raise InvalidInput(f"job {self.name!r}: bound_by is {self.bound_by!r}: one of {expected} expected")
        if not self.bound > 0:
            raise InvalidInput(f"job {self.name!r}: its slowdown bound is {self.bound!r}: a share above 0 expected")

    def bounded(self, bound: float) -> Self:
        """The same job; with this bound, if it has none of its own."""
        return self if math.isfinite(self.bound) else replace(self, bound=bound)


@dataclass(frozen=True, eq=False, slots=True)
class RunningJobs:
    """Running jobs, a row each, in order of their start; arrays of shape (n,), read-only.

    Parameters
    ----------
    names
        What each job is called.
    applications, application
        The applications that run, and each job's place among them.
    cores
        Cores of its allocation; of a guest, those it asks for.
    walltime, started
        Wall time [s] and start [s].
    states
        What was measured.
    host
        Row of the job whose cores it runs on; `ALONE` for one that holds its own.
    share
        Of a guest: its share of the host's cores, in [`FLOOR`, 1 - `FLOOR`]. Of others: what guests leave.
    exclusive
        True where no guest is allowed.
    bound
        By how much guests may slow it down: see `WaitingJob`.
    by_pressure
        Where its bound goes by CPU pressure while it does not report: see `WaitingJob`.
    done
        Share of its work that it has reported as done, in [0, 1]; NaN where it does not report.
    unhindered
        For how long it has run without waiting for CPUs, at least and at most: no thread of it waited, and its mean
        thread did not; shape (n, 2) [s], NaN where that is not measured.
    instructions
        How many it has executed, of each of its cores [1e9]; NaN where its bound does not go by them, or they are not
        counted.
    """

    names: tuple[str, ...]
    applications: tuple[str, ...]
    application: Ints
    cores: Ints
    walltime: Floats
    started: Floats
    states: JobStates
    host: Ints
    share: Floats
    exclusive: Bools
    bound: Floats
    by_pressure: Bools
    done: Floats
    unhindered: Floats
    instructions: Floats

    def __post_init__(self) -> None:
        numbers = (self.application, self.cores, self.walltime, self.started)
        shares = (self.share, self.exclusive, self.bound, self.by_pressure, self.done, self.unhindered)
        columns = (*numbers, self.host, *shares, self.instructions)
        sizes = {len(self.names), len(self.states), *(len(column) for column in columns)}
        if len(sizes) != 1:
            raise InvalidInput(f"columns of lengths {sorted(sizes)}: one row for each running job expected")
        for column in columns:
            column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.names)

    def guests(self) -> Ints:
        """How many guests each job has, shape (n,)."""
        return np.bincount(self.host[self.host != ALONE], minlength=len(self)).astype(np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class SharingView:
    """A machine at one instant. Immutable.

    Parameters
    ----------
    now
        [s].
    cores, free
        Cores of the machine, and those that no job holds.
    queue
        Waiting jobs, first come first.
    stops
        Whether guests can be stopped: not on nodes that keep no limits.
    """

    now: float
    cores: int
    free: int
    queue: tuple[WaitingJob, ...]
    running: RunningJobs
    stops: bool = True


@dataclass(frozen=True, slots=True)
class StartGuest:
    """Sharing rule: start this job on `host`'s cores, with this share of them; `hard`: as a quota, not a weight."""

    job: str
    host: str
    share: float
    hard: bool = False
    why: Why | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SetShare:
    """Sharing rule: from now on this guest has this share of its host's cores; 0: it is stopped where it is, and goes
    on when it has a share again, or its host has ended."""

    guest: str
    share: float
    why: Why | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Evict:
    """Sharing rule: end this guest; it goes back to its place in the queue, and begins anew."""

    guest: str
    why: Why | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Keep:
    """Sharing rule: nothing changes; the host keeps its cores to itself. Here for its record of `why`."""

    host: str
    why: Why | None = field(default=None, compare=False)


LOOK_S = 1.0
"""Least time between two looks at running jobs [s]."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Sharing rule: ask again at this time [s] at the latest, but no sooner than in `LOOK_S`."""

    at: float


SharingDecision = Start | StartGuest | SetShare | Evict | Keep | LookAgain


@dataclass(frozen=True, slots=True)
class SharedRun:
    """A job that ran to its end, as sharing rules learn from it.

    Parameters
    ----------
    run_time_s
        From its start to its end [s].
    alone_s
        How long it would have run on cores of its own [s], as far as that is known; else None.
    cpu_s
        CPU time it used [s].
    parallel
        Share of its work, by time alone, done in stages that use all its cores.
    memory
        Most memory in use, as a share of what belongs to its cores.
    """

    job: str
    application: str
    cores: int
    walltime_s: float
    run_time_s: float
    alone_s: float | None
    cpu_s: float
    parallel: float
    memory: float

    @property
    def slowdown(self) -> float | None:
        """Run time over the run time alone, at least 1; None where that is not known."""
        return None if self.alone_s is None else max(1.0, self.run_time_s / self.alone_s)


def first_fit(queue: tuple[WaitingJob, ...], free: int) -> Iterator[WaitingJob]:
    """Jobs of the queue that start now on `free` cores: in order, each as a gang, those that do not fit passed over.

    >>> queue = tuple(WaitingJob(name, "a", cores, 60.0) for name, cores in (("a", 8), ("b", 4), ("c", 2)))
    >>> [job.name for job in first_fit(queue, 7)]
    ['b', 'c']
    """
    for job in queue:
        if job.cores <= free:
            free -= job.cores
            yield job


class LazyReason(Mapping[str, Any]):
    """A record that is made when it is first read: for most decisions it never is.

    >>> dict(LazyReason(lambda: {"harm": 0.1}))
    {'harm': 0.1}
    >>> LazyReason(lambda: {"harm": 0.1})
    {'harm': 0.1}
    """

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make

    @cached_property
    def _record(self) -> dict[str, Any]:
        return self._make()

    def __getitem__(self, name: str) -> Any:
        return self._record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)

    def __repr__(self) -> str:
        return repr(self._record)


class Expert(Protocol):
    """How much of a job's cores another job may have, by its state alone. A pure function, for many jobs at once."""

    def vote(self, states: JobStates) -> Floats:
        """A distribution over `ACTIONS` for each of n jobs, shape (n, m)."""


@runtime_checkable
class LearningExpert(Expert, Protocol):
    """An expert that learns; `vote` changes nothing."""

    def learn(self, states: JobStates, action: int, loss: float) -> None:
        """Jobs in these states gave the action of this number, and lost `loss` in [0, 1] each."""

    def state(self) -> dict[str, Any]:
        """All that was learned, as JSON-able values."""

    def restore(self, state: Mapping[str, Any]) -> None: ...


class SharingRule(Protocol):
    """Which jobs start on cores of their own, which on those of others, and with what share.

    `decide` never changes the view; what it remembers is its own. `learn` is called once for every job, at its end.

    A rule that keeps the bounds of hosts says so by an attribute ``keeps_bounds = True``; without it, users who state a
    bound are warned.
    """

    def decide(self, view: SharingView) -> Sequence[SharingDecision]: ...
    def learn(self, run: SharedRun) -> None: ...
    def state(self) -> dict[str, Any]:
        """All that was learned, as JSON-able values; under ``"pending"`` and ``"random"`` what belongs to this run."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what was learned; ``"pending"`` and ``"random"`` may be missing."""


FORMS = ("rate", "literal")

HORIZON_S = 300.0
"""Time constant of the averages that monitoring keeps [s]."""


def happiness(walltime_s: Floats, elapsed_s: Floats, remaining: Floats, rate: Floats, form: str = "rate") -> Floats:
    """Hp(t) of jobs, shape (n,); 1 or more where the wall time will be met if nothing changes.

    Parameters
    ----------
    walltime_s, elapsed_s
        Wall time, and time since the start [s].
    remaining
        Tasks that are left, or any other measure of work, >= 0.
    rate
        Tasks done per second, an average of the last minutes; >= 0.
    form
        ``"rate"``: time left per task left, times the rate; infinite where no task is left, else 0 once the wall time
        is over. ``"literal"``: the paper's equation (1), Hp(t) = abs(t_walltime - t) * remaining tasks / (tasks per
        second). It has the unit s², grows with the work that is left and falls with speed, which is the opposite of
        what the text below it says; here to be compared with.

    References
    ----------
    ASA_X, section 3.1, equation (1).

    Examples
    --------
    >>> one = np.ones(1)
    >>> happiness(100 * one, 50 * one, 20 * one, 0.5 * one).item()  # 50 s left for 20 tasks of 2 s
    1.25
    >>> happiness(100 * one, 50 * one, 20 * one, 0.5 * one, "literal").item()
    2000.0
    """
    if form == "literal":
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.abs(walltime_s - elapsed_s) * remaining / rate
        return np.where(remaining > 0, np.where(rate > 0, found, np.inf), 0.0)
    if form != "rate":
        raise UnknownName("form of happiness", form, FORMS)
    left_s = np.maximum(walltime_s - elapsed_s, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(remaining > 0, left_s / remaining * rate, np.inf)


def smoothed(average: float, value: float, over_s: float, horizon_s: float = HORIZON_S) -> float:
    """The average after a time `over_s` [s] at this `value`: what is `horizon_s` ago counts 1/e.

    An average that is NaN begins with the value.

    >>> smoothed(1.0, 0.0, 300.0) == math.exp(-1)
    True
    """
    return value if math.isnan(average) else value + (average - value) * math.exp(-over_s / horizon_s)


Loss = Callable[[SharedRun], float | None]
"""The loss of a job in [0, 1], or None where it cannot be known."""


def walltime(run: SharedRun) -> float:
    """By how much it overran its wall time, as a share of that: min(1, max(0, T - W) / W).

    >>> walltime(SharedRun("a", "blast", 8, 100.0, 140.0, None, 0.0, 1.0, 0.1))
    0.4
    """
    return min(1.0, max(0.0, run.run_time_s - run.walltime_s) / run.walltime_s)


def slowdown(run: SharedRun) -> float | None:
    """Twice by how much slower it was than alone: min(1, 2 max(0, T / T_alone - 1)); None where that is not known.

    >>> slowdown(SharedRun("a", "blast", 8, 200.0, 125.0, 100.0, 0.0, 1.0, 0.1))
    0.5
    """
    return None if run.slowdown is None else min(1.0, 2 * (run.slowdown - 1))


LOSSES: dict[str, Loss] = {"slowdown": slowdown, "walltime": walltime}
