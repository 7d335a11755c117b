"""One queue with one seed: every workflow of a comparison under every strategy, from the same moment on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from asa.core.errors import InvalidInput
from asa.core.job import Capabilities
from asa.core.ports import Strategy
from asa.core.registry import STRATEGIES
from asa.core.stage import StageSpec
from asa.core.units import DAY
from asa.lab.studies.case import Case, cases
from asa.lab.studies.compare_learned import learned as learned_waits
from asa.lab.studies.compare_row import ORACLE, Row, row_of, time_covered
from asa.lab.studies.oracle import Need, oracle
from asa.lab.studies.probes import Kind, watch
from asa.lab.studies.published import PAPER_ESTIMATOR
from asa.lab.studies.scene import Queue, Scene, set_scene
from asa.lab.studies.table2 import DAYS, PAPER, PAPER_EVERY_S, PAPER_PROBES, Judged, judge
from asa.lab.virtual import MemoryWaits, run_virtual
from asa.metrics.workflow import summarise
from asa.workflows.graph import Graph, make_graph

REFERENCE = "per-stage"
"""The strategy that gives each stage just the cores that it asks for: how long stages run is known from it."""


@dataclass(frozen=True)
class Unit:
    """What begins at one moment of one queue.

    Parameters
    ----------
    queue
        The queue.
    target, cores, arguments
        Workflow, scales and names with values, as `asa.lab.studies.case.cases` takes them.
    strategies
        Specs; ``oracle`` is one.
    table2
        Whether predictions are judged, too.
    """

    queue: Queue
    target: str
    cores: tuple[int, ...]
    strategies: tuple[str, ...]
    table2: bool = False
    arguments: tuple[tuple[str, Any], ...] = ()

    def cases(self) -> list[Case]:
        """The workflow at each of the scales."""
        return cases(self.target, self.cores, dict(self.arguments))


@dataclass(frozen=True)
class Part:
    """A case of a comparison, and the stages it has on a machine."""

    case: Case
    graph: Graph
    stages: tuple[StageSpec, ...]

    @property
    def kinds(self) -> set[Kind]:
        """What its stages' jobs are like."""
        return {Kind(stage.resources.cores, stage.walltime_s) for stage in self.stages}


def run_unit(unit: Unit, tell: Callable[[], None] = lambda: None) -> tuple[list[Row], list[Judged]]:
    """All rows of a unit; `tell` is called after each run.

    Each run begins at the same moment of a copy of the same queue, so that strategies are compared in pairs. What
    estimators know then, they have learned from probes whose waits had become known (see `Scene.learned`). How long
    their stages will run, workflows know exactly: it is not what is compared here.

    Raises
    ------
    InvalidInput
        When something is not known, or a workflow does not fit the machine.
    RunFailed
        When a run does not come to its end.
    """
    parts: list[Part] = []

    def kinds(site: Capabilities) -> Iterable[Kind]:
        for case in unit.cases():
            graph = make_graph(case.workflow)
            parts.append(Part(case, graph, graph.specs(site)))
        return set().union(*(part.kinds for part in parts))

    scene = set_scene(unit.queue, kinds)
    learned: dict[str, MemoryWaits] = {}
    rows: list[Row] = []
    for part in parts:
        rows += _rows(unit, scene, part, learned, tell)
    return rows, _judged(unit, scene, parts, learned) if unit.table2 else []


def _rows(unit: Unit, scene: Scene, part: Part, learned: dict[str, MemoryWaits], tell: Callable[[], None]) -> list[Row]:
    reference = _run(unit, scene, part, REFERENCE, times={}, learned=learned)
    times = {stage.name: stage.run_time_s for stage in reference.stages}
    rows = []
    for strategy in unit.strategies:
        if strategy == REFERENCE:
            rows.append(reference)
        elif strategy == ORACLE:
            rows.append(_oracle(unit, scene, part, times))
        else:
            rows.append(_run(unit, scene, part, strategy, times=times, learned=learned))
        _check_end(scene, rows[-1], unit.queue.days)
        tell()
    return rows


def _check_end(scene: Scene, row: Row, days: float) -> None:
    """A run that goes on when other people have ceased to submit jobs says nothing."""
    if scene.engine.now + row.makespan_s > scene.end:
        raise InvalidInput(
            f"{row.workflow} on {row.cores} cores of {row.system} under {row.strategy} (seed {row.seed}) takes "
            f"{row.makespan_s / DAY:.1f} days, but other people's jobs go on for {days:g} days only: give more days"
        )


def _run(
    unit: Unit, scene: Scene, part: Part, strategy: str, *, times: dict[str, float], learned: dict[str, MemoryWaits]
) -> Row:
    """A run under a strategy that expects these run times, and their wall times of stages that are not there."""
    chosen: Strategy = STRATEGIES.create(strategy)
    if chosen.estimator not in learned:
        learned[chosen.estimator] = learned_waits(scene, chosen.estimator, unit.queue.seed)
    events = run_virtual(
        part.graph,
        scene.queue(),
        strategy,
        waits=learned[chosen.estimator].copy(),
        pool="per-stage",
        run_time=lambda stage, walltime_s: times.get(stage, walltime_s),
        name=part.case.name,
    )
    return row_of(
        summarise(events),
        system=scene.name,
        regime=scene.regime,
        workflow=part.case.name,
        cores=part.case.cores,
        strategy=strategy,
        seed=unit.queue.seed,
    )


def _oracle(unit: Unit, scene: Scene, part: Part, times: dict[str, float]) -> Row:
    needs = [
        Need(stage.name, Kind(stage.resources.cores, stage.walltime_s), times[stage.name], stage.predecessors)
        for stage in part.stages
    ]
    plan = oracle(scene.engine, scene.rule, needs)
    return Row(
        system=scene.name,
        regime=scene.regime,
        workflow=part.case.name,
        cores=part.case.cores,
        strategy=ORACLE,
        seed=unit.queue.seed,
        makespan_s=max(stage.ended for stage in plan) - scene.engine.now,
        total_wait_s=time_covered((stage.ready, stage.started) for stage in plan),
        core_hours=sum(stage.need.kind.cores * stage.need.run_time_s for stage in plan) / 3600.0,
        overhead_core_hours=0.0,
        misses=0,
        stages=tuple(stage.span for stage in plan),
    )


def _judged(unit: Unit, scene: Scene, parts: Sequence[Part], learned: dict[str, MemoryWaits]) -> list[Judged]:
    """Table 2, by both protocols: over the days before the runs, and at the moment at which they begin."""
    of = {(part.case.name, part.case.cores): max(part.kinds) for part in parts}  # the largest stage, then the longest
    times = [scene.engine.now + PAPER_EVERY_S * k for k in range(PAPER_PROBES)]
    protocols = {PAPER: watch(scene.engine.copy(), scene.rule, set(of.values()), times), DAYS: scene.probes}
    return [
        Judged(
            scene.name, scene.regime, workflow, cores, protocol, estimator, unit.queue.seed,
            judge(estimator, probes[kind], kind, unit.queue.seed),
        )
        for (workflow, cores), kind in of.items()
        for protocol, probes in protocols.items()
        for estimator in dict.fromkeys([PAPER_ESTIMATOR, *learned])
    ]  # fmt: skip
