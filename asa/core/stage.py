"""A stage as the plan sees it: needs, order and expectations, but no function."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace

from asa.core.errors import InvalidInput
from asa.core.job import Resources


class StageState(enum.Enum):
    """Where a stage stands."""

    WAITING = "waiting"  # a predecessor has not ended
    READY = "ready"  # may start; no task has been launched
    RUNNING = "running"
    DONE = "done"
    PARTIAL = "partial"  # some of its tasks are done; the others failed for good, or were skipped
    FAILED = "failed"
    SKIPPED = "skipped"  # a predecessor failed

    @property
    def final(self) -> bool:
        return self in (StageState.DONE, StageState.PARTIAL, StageState.FAILED, StageState.SKIPPED)


def kind_of(name: str) -> str:
    """What stages have in common that tasks add in the same way: their names without numbers.

    >>> kind_of("sweep[3].fit-2"), kind_of("fit-2"), kind_of("fit.fit-7")
    ('sweep.fit', 'fit-2', 'fit.fit')
    """
    plain = re.sub(r"\[\d+\]", "", name)
    return re.sub(r"-\d+$", "", plain) if "." in plain else plain


def again(asked: float, largest: float) -> float:
    """What a task gets that used more than it had `asked` for: the `largest` use known, or twice as much."""
    return largest if largest > asked else 2 * asked


@dataclass(frozen=True, slots=True)
class LearnedRequest:
    """What a stage asks for follows from what its tasks used in earlier runs, and is raised when one has too little.

    Parameters
    ----------
    reason
        What is asked for, and why, in words; a line for each of memory and wall time.
    memory
        The most memory that one of its tasks has used [bytes], 0 where that is not known; None where memory is not
        learned.
    run_time_s
        The longest that one has run [s], 0 where that is not known; None where wall time is not learned.
    """

    reason: str
    memory: int | None = None
    run_time_s: float | None = None

    def covers(self, what: str) -> bool:
        """Whether what a task had too little of is learned: then it is raised, and no retry is used up."""
        return (self.memory if what == "memory" else self.run_time_s if what == "walltime" else None) is not None


@dataclass(frozen=True, slots=True)
class Width:
    """A size that a stage may have: what its job, and one of its tasks, hold then; the wall time, and how long the
    stage is expected to run [s]."""

    resources: Resources
    task: Resources
    walltime_s: float
    run_time_s: float


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One node of a workflow.

    Parameters
    ----------
    name
        Unique in the workflow.
    resources
        What an allocation for this stage holds.
    task
        What one of its tasks needs; fits in `resources`.
    walltime_s
        Wall time of an allocation for this stage [s].
    run_time_s
        How long the stage is expected to run [s]; at most the wall time.
    predecessors
        Names of the stages it waits for.
    retries
        How often a task that failed by its own fault is tried again.
    width
        Number of tasks, or None while only a predecessor's result will tell.
    reuse
        Whether results of earlier runs may stand for its tasks: they are looked for before any is launched.
    continues
        Whether its other tasks go on when one has failed for good.
    accepts_failed
        Whether it runs although tasks before it failed: `asa.core.task.Failed` stands for what they did not return.
    alike, parts, lists
        Which of its tasks need which predecessors, where that is not all of them. `alike`: each needs the task at its
        own place. `parts`: only these tasks need it. `lists`: what it returns is the list that is mapped over.
    timeout_s
        How long one task may run [s], or None.
    retry_delay_s
        How long a task that failed waits until it is tried again [s]: twice as long each time.
    growth
        By how much memory, or time, is raised when a task is tried again that had too little; 1 for not at all.
    expands
        Whether its tasks may add stages to the run: it is over when it is known which ones they add.
    expect
        What is likely where only the run will tell: how many tasks it has, or, where it expands, how many stages like
        it follow on it, one after another; less than none where more have come.
    most
        How many tasks its allocation holds at most where that goes by how many it has, or is expected to have; 0 where
        it was said how large that is.
    shares
        The rule by which its tasks take guests, which run on cores that they leave idle; it may be a guest itself then.
        "" where it does neither.
    checkpoint
        Whether its tasks go on in another allocation when theirs ends.
    notice_s
        How long before that they get a signal [s].
    total_s
        How long such a task is expected to run in all [s], or None.
    widths
        The sizes that its job may have, from the narrowest on, where there are several: the needs above are those of
        the narrowest until one was chosen.
    tried
        The cores of the one of these that is not to be taken, or None: no other was measured yet.
    speedup
        What is to be said of how its run times on these are known, or "".
    code
        A number for what it does, in letters; "" where that is unknown.
    learned
        Why it asks for what it asks, where that is learned; None where it is as declared.

    Raises
    ------
    InvalidInput
        When one task does not fit in the stage's resources.
    """

    name: str
    resources: Resources
    task: Resources
    walltime_s: float
    run_time_s: float
    predecessors: tuple[str, ...] = ()
    retries: int = 0
    width: int | None = 1
    reuse: bool = False
    continues: bool = False
    accepts_failed: bool = False
    alike: tuple[str, ...] = ()
    parts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    lists: tuple[str, ...] = ()
    timeout_s: float | None = None
    retry_delay_s: float = 0.0
    growth: float = 1.0
    expands: bool = False
    expect: int | None = None
    checkpoint: bool = False
    notice_s: float = 0.0
    total_s: float | None = None
    widths: tuple[Width, ...] = ()
    tried: int | None = None
    speedup: str = ""
    code: str = ""
    learned: LearnedRequest | None = None
    most: int = 0
    shares: str = ""

    def __post_init__(self) -> None:
        if not self.task.fits(self.resources):
            raise InvalidInput(
                f"stage {self.name!r}: one task needs {self.task}, more than the stage's {self.resources}: "
                "lower the task's needs or raise the stage's"
            )

    @property
    def rounds(self) -> int:
        """How many stages like it are expected to follow on it."""
        return max(0, self.expect or 0) if self.expands else 0

    def is_followed_by(self, other: StageSpec) -> bool:
        """Whether a stage that it adds is the next one of those that are expected."""
        return self.expands and other.expands and self.expect is not None and other.expect == self.expect - 1

    def holding(self, tasks: int) -> StageSpec:
        """The same with an allocation for so many tasks at once, where the size of that was left open."""
        if not self.most:
            return self
        count, task = max(1, min(tasks, self.most)), self.task
        memory = None if task.memory is None else count * task.memory
        sized = replace(self.resources, cores=count * task.cores, memory=memory, gpus=count * task.gpus)
        return replace(self, resources=sized)
