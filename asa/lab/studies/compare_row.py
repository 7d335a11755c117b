"""One simulated run of a workflow, as a row of a comparison."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from asa.core.errors import InvalidInput, RunFailed
from asa.core.event import RunState
from asa.metrics.workflow import JobSummary, RunSummary

METRICS = ("total_wait_s", "makespan_s", "core_hours")
"""The three numbers of the paper's Table 1."""

ORACLE = "oracle"
"""Strategy that no one can have: see `asa.lab.studies.oracle`."""


class StageSpan(NamedTuple):
    """How long a stage waited once it was ready, and how long it ran [s]."""

    name: str
    wait_s: float
    run_time_s: float


@dataclass(frozen=True)
class Row:
    """One run.

    Parameters
    ----------
    system, regime, workflow, cores, strategy, seed
        What was run, and where.
    makespan_s
        From the run's begin to the end of its last stage [s].
    total_wait_s
        Time during which any stage was ready and had not begun [s]: the sum of the stages' waits in a chain.
    core_hours
        What its jobs were charged.
    overhead_core_hours
        What they held idle because they came before their stage.
    misses
        Jobs that came before their stage and were given back unused, to be asked for again.
    stages
        In order of the workflow.
    outstanding
        Jobs of a stage that were in the queue at a time, at most.
    """

    system: str
    regime: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    makespan_s: float
    total_wait_s: float
    core_hours: float
    overhead_core_hours: float
    misses: int
    stages: tuple[StageSpan, ...]
    outstanding: int = 1

    @property
    def case(self) -> tuple[str, str, int]:
        """What strategies are compared on: system, workflow and cores."""
        return self.system, self.workflow, self.cores

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return asdict(self) | {"stages": [stage._asdict() for stage in self.stages]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Row:
        """A row from what `to_json` gave.

        Raises
        ------
        InvalidInput
            When it is none.
        """
        try:
            stages = tuple(StageSpan(**stage) for stage in values["stages"])
            return cls(**{**values, "stages": stages})
        except (KeyError, TypeError) as error:
            raise InvalidInput(f"this is no row of a comparison: {type(error).__name__}: {error}") from error


def row_of(run: RunSummary, *, system: str, regime: str, workflow: str, cores: int, strategy: str, seed: int) -> Row:
    """The row of a run.

    Raises
    ------
    RunFailed
        When it did not come to its end: a comparison with it would say nothing.
    """
    if run.state is not RunState.SUCCEEDED:
        raise RunFailed(
            f"{workflow} on {cores} cores of {system} under {strategy} with seed {seed} is {run.state.value}: "
            f"{run.message}"
        )
    ready = {stage.name: stage.ready for stage in run.stages}
    return Row(
        system=system,
        regime=regime,
        workflow=workflow,
        cores=cores,
        strategy=strategy,
        seed=seed,
        makespan_s=run.makespan_s,
        total_wait_s=run.total_perceived_wait_s,
        core_hours=run.core_hours_charged,
        overhead_core_hours=run.overhead_core_hours,
        misses=sum(_missed(job, ready) for job in run.jobs),
        stages=tuple(
            StageSpan(stage.name, stage.perceived_wait_s or 0.0, stage.run_time_s or 0.0) for stage in run.stages
        ),
        outstanding=max((most_waiting(run.jobs, stage.name) for stage in run.stages), default=0),
    )


def time_covered(spans: Iterable[tuple[float, float]]) -> float:
    """Time during which any of these spans is on, from its begin to its end [s]: stages that wait together count once.

    >>> time_covered([(0.0, 10.0), (5.0, 12.0), (20.0, 21.0)])
    13.0
    """
    total, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(until, begin))
        until = max(until, end)
    return total


def most_waiting(jobs: Iterable[JobSummary], stage: str) -> int:
    """How many jobs of a stage were in the queue at a time, at most.

    A job is in it from its submission until it starts or ends; one that comes at the moment another leaves is not there
    with it.
    """
    changes: list[tuple[float, int]] = []
    for job in jobs:
        if stage in job.stages and (left := job.ended if job.started is None else job.started) is not None:
            changes += [(job.submitted, 1), (left, -1)] if left > job.submitted else []
    return max(itertools.accumulate((change for _, change in sorted(changes)), initial=0))


def _missed(job: JobSummary, ready: dict[str, float | None]) -> bool:
    """Whether a job came before any of its stages was ready, and did nothing."""
    if job.started is None or job.core_hours_used > 0:
        return False
    return all((time := ready[name]) is None or job.started < time for name in job.stages)
