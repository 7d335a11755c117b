"""Montage, BLAST and Statistics: what the ASA paper printed of them, and models of them without what they compute.

Each model is a real workflow, whose stages ask for cores and wall times as the paper's did, and whose tasks take a
declared time and do nothing. The times follow from Table 1: from the makespan of a Per-Stage run without its waits, and
from its core-hours, follows how long it ran on all its cores and how long on one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.asa_paper.published import TABLE1, PublishedRun
from asa.workflows.graph import make_graph
from asa.workflows.settings import load_workflow
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
class WorkflowModel:
    """A workflow of the paper at one scale."""

    name: str
    stages: tuple[ModelStage, ...]

    @property
    def cores(self) -> int:
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
            stage = Stage(_do_nothing, needs, item.name)
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


def model(name: str, cores: int) -> WorkflowModel:
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
    return WorkflowModel(
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


def _do_nothing(_index: int) -> None:
    """What every task does."""


ALL = "all"
"""Stands for every workflow of the paper."""


@dataclass(frozen=True)
class WorkflowCase:
    """A workflow at one scale."""

    name: str
    cores: int
    workflow: Any


def cases(target: str, cores: Sequence[int] = (), arguments: Mapping[str, Any] | None = None) -> list[WorkflowCase]:
    """The cases that a word of the command line and some scales stand for.

    Parameters
    ----------
    target
        A workflow of the paper (`MODELS`), ``all`` of them, or ``FILE[:NAME]`` as in ``asa run``.
    cores
        Scales. A function in a file gets each as its argument ``cores``; a workflow that takes none has one scale, its
        own, and needs none here.
    """
    names = MODELS if target == ALL else (target,)
    if target != ALL and target not in MODELS:
        return _from_file(target, cores, arguments or {})
    if arguments:
        raise InvalidInput(f"{target} takes no --set: it is a model of the paper's workflow, and has a scale only")
    if not cores:
        raise InvalidInput(f"{target} can be run at many scales: say at which with --cores, as in --cores 28,56,112")
    return [WorkflowCase(name, count, model(name, count).workflow()) for name in names for count in cores]


def _from_file(target: str, cores: Sequence[int], arguments: Mapping[str, Any]) -> list[WorkflowCase]:
    path = Path(target.partition(":")[0])
    if not path.is_file() and ":" not in target and not path.suffix:
        raise InvalidInput(
            f"there is no workflow {target!r}: give {', '.join(MODELS)}, {ALL}, or a Python file, as in 'flow.py:main'"
        )
    name = path.resolve().parent.name if path.stem == "workflow" else path.stem
    if not cores:
        workflow = load_workflow(target, arguments)
        return [WorkflowCase(name, _largest(workflow), workflow)]
    if "cores" in arguments:
        raise InvalidInput("--set cores= and --cores both say at which scale: give one of them")
    found = []
    for count in cores:
        try:
            found.append(WorkflowCase(name, count, load_workflow(target, {"cores": count, **arguments})))
        except InvalidInput as error:
            raise InvalidInput(f"--cores {count}: {target} has no such scale: {error}") from error
    return found


def _largest(workflow: Any) -> int:
    return max(node.stage.needs.resources.cores for node in make_graph(workflow).nodes.values())
