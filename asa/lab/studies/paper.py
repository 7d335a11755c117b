"""Montage, BLAST and Statistics as models: the ASA paper's workflows, without what they compute.

Each is a real workflow, whose stages ask for cores and wall times as the paper's did, and whose tasks take a declared
time and do nothing. The times follow from Table 1: what a Per-Stage run took beyond its waits, and what it was charged,
tell how long it ran on all its cores and how long on one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.studies.published import TABLE1, PublishedRun
from asa.workflows.stage import Node, Stage, make_needs

MERGE_S = 12.0
"""Run time of BLAST's sequential stage [s]."""

SLACK, STEP_S = 1.5, 300.0
"""Wall times are so many times the run time, rounded up to a multiple of `STEP_S` [s]."""


TASK_CORES = 4
"""Cores of a parallel stage's tasks: nodes of both systems, and all scales, are multiples of it."""


class ModelStage(NamedTuple):
    """A stage of a model: tasks of up to `TASK_CORES` fill its cores, all side by side, for `run_time_s` [s]."""

    name: str
    cores: int
    run_time_s: float

    @property
    def walltime_s(self) -> float:
        """What is asked for [s]. The paper does not tell; people ask for more than they need."""
        return math.ceil(SLACK * self.run_time_s / STEP_S) * STEP_S


@dataclass(frozen=True)
class Model:
    """A workflow of the paper at one scale.

    Parameters
    ----------
    name
        Which.
    stages
        In order; each waits for the one before.
    """

    name: str
    stages: tuple[ModelStage, ...]

    @property
    def cores(self) -> int:
        """Cores of its largest stage."""
        return max(stage.cores for stage in self.stages)

    def workflow(self) -> Node:
        """The workflow, as `asa.run` takes it."""
        before: list[Node] = []
        for item in self.stages:
            of_one = math.gcd(item.cores, TASK_CORES)
            needs = make_needs(
                item.name,
                cores=item.cores,
                task_cores=of_one,
                walltime=item.walltime_s,
                run_time=item.run_time_s,
            )
            stage = Stage(_nothing, needs, item.name)
            node = stage.map(range(item.cores // of_one)) if item.cores > 1 else stage(0)
            before = [node.after(*before)]
        return before[0]


class _Group(NamedTuple):
    """A stage: whether it runs on all cores or on one, and its share of the time spent so."""

    name: str
    parallel: bool
    share: float


_GROUPS = {
    "montage": (
        _Group("project", True, 0.6),
        _Group("model", False, 0.4),
        _Group("background", True, 0.4),
        _Group("add", False, 0.6),
    ),
    "blast": (_Group("search", True, 1.0), _Group("merge", False, 1.0)),
    "statistics": (
        _Group("split", False, 0.5),
        _Group("means", True, 0.5),
        _Group("join", False, 0.5),
        _Group("deviations", True, 0.5),
    ),
}

MODELS = tuple(_GROUPS)
"""Names of the workflows."""


def model(name: str, cores: int) -> Model:
    """A workflow of the paper at a scale.

    ``montage``
        Its nine programs are taken together as the paper does, "into two parallel (first two, and fifth) and two
        sequential (third and fourth, and last three) stages", each of which asks for an allocation: mProject and
        mDiffFit; mConcatFit and mBgModel; mBackground; and mImgtbl (the sixth, not mentioned there), mAdd, mShrink and
        mJPEG.
    ``blast``
        One long parallel stage and one of `MERGE_S`, too short to be seen in whole core-hours.
    ``statistics``
        "Two sequential and two parallel stages, intertwined", a quarter of the time each.

    Parameters
    ----------
    cores
        Cores of its parallel stages; 28 to 640. Between the paper's six scales the times follow a power law.

    Raises
    ------
    InvalidInput
        When there is no such workflow, or the scale is outside the paper's.

    Notes
    -----
    Not in the paper, and chosen here: how Montage's parallel time divides between its two parallel stages (60 and
    40 %) and its sequential time between the other two (40 and 60 %), that Statistics begins with a sequential stage,
    and the wall times. That its quarters are equal explains all its core-hours but those on 28 cores, where the
    paper's are twice as many under every strategy.

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", section 4.3 and Table 1.

    Examples
    --------
    >>> for stage in model("blast", 112).stages:
    ...     print(stage, stage.walltime_s)
    ModelStage(name='search', cores=112, run_time_s=759.0) 1200.0
    ModelStage(name='merge', cores=1, run_time_s=12.0) 300.0
    """
    if name not in _GROUPS:
        raise UnknownName("workflow of the paper", name, MODELS)
    runs = [run for run in TABLE1 if run.workflow == name and run.strategy == "per-stage"]
    scales = [run.cores for run in runs]
    if not scales[0] <= cores <= scales[-1]:
        raise InvalidInput(f"{name} on {cores} cores: the paper ran it on {scales[0]} to {scales[-1]} cores")
    parallel, sequential = (
        float(np.exp(np.interp(math.log(cores), np.log(scales), np.log(seconds))))
        for seconds in zip(*map(_spent, runs), strict=True)
    )
    return Model(
        name,
        tuple(
            ModelStage(
                group.name,
                cores if group.parallel else 1,
                round(group.share * (parallel if group.parallel else sequential), 3),
            )
            for group in _GROUPS[name]
        ),
    )


def _spent(run: PublishedRun) -> tuple[float, float]:
    """How long a Per-Stage run ran on all its cores, and how long on one [s]."""
    total = run.makespan_s - run.total_wait_s
    if run.workflow == "blast":
        return total - MERGE_S, MERGE_S
    if run.workflow == "statistics":
        return total / 2, total / 2
    parallel = (run.core_hours * 3600.0 - total) / (run.cores - 1)  # cores x parallel + sequential = core-seconds
    return parallel, total - parallel


def _nothing(_index: int) -> None:
    """What every task does."""
