"""A stage as the plan sees it: needs, order and expectations, but no function."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

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
    checkpoint
        Whether its tasks go on in another allocation when theirs ends.
    notice_s
        How long before that they get a signal [s].
    total_s
        How long such a task is expected to run in all [s], or None.
    code
        A number for what it does, in letters; "" where that cannot be told.

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

    @property
    def rounds(self) -> int:
        """How many stages like it are expected to follow on it."""
        return max(0, self.expect or 0) if self.expands else 0

    def is_followed_by(self, other: StageSpec) -> bool:
        """Whether a stage that it adds is the next one of those that are expected."""
        return self.expands and other.expands and self.expect is not None and other.expect == self.expect - 1
    checkpoint: bool = False
    notice_s: float = 0.0
    total_s: float | None = None
    code: str = ""

    def __post_init__(self) -> None:
        if not self.task.fits(self.resources):
            raise InvalidInput(
                f"stage {self.name!r}: one task needs {self.task}, more than the stage's {self.resources}: "
                "lower the task's needs or raise the stage's"
            )
