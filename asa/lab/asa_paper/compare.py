"""Strategies side by side, on simulated queues: the ASA paper's Tables 1 and 2, over many seeds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Capabilities
from asa.core.ports import Strategy
from asa.core.registry import STRATEGIES
from asa.core.stage import StageSpec
from asa.core.units import DAY
from asa.lab.asa_paper.accuracy import DAYS, PAPER, PAPER_EVERY_S, PAPER_PROBES, Judged, judge, means_over_seeds
from asa.lab.asa_paper.oracle import StageNeed, oracle
from asa.lab.asa_paper.probes import JobKind, QueueSnapshot, WatchedQueue, snapshot, watch
from asa.lab.asa_paper.probes import learned_waits as learned_waits
from asa.lab.asa_paper.published import PAPER_ESTIMATOR, SCALES, STRATEGIES_SHOWN
from asa.lab.asa_paper.tables import (
    ORACLE,
    Grid,
    RunRow,
    corehours_figure,
    in_words,
    makespan_figure,
    normalised,
    ratios,
    row_of,
    table1,
    time_covered,
)
from asa.lab.asa_paper.workflows import ALL, MODELS, WorkflowCase, cases
from asa.lab.metrics.energy import Stretches, energy_of_cores
from asa.lab.study import Estimate
from asa.lab.virtual import MemoryWaits, run_virtual
from asa.metrics.workflow import RunSummary, summarise
from asa.workflows.graph import Graph, make_graph

REFERENCE = "per-stage"
"""The strategy that gives each stage just the cores that it asks for: how long stages run is known from it."""


@dataclass(frozen=True)
class Unit:
    """What begins at one moment of one queue."""

    queue: WatchedQueue
    target: str
    cores: tuple[int, ...]
    strategies: tuple[str, ...]
    table2: bool = False
    arguments: tuple[tuple[str, Any], ...] = ()

    def cases(self) -> list[WorkflowCase]:
        return cases(self.target, self.cores, dict(self.arguments))


@dataclass(frozen=True)
class StagedCase:
    """A case of a comparison, and the stages it has on a machine."""

    case: WorkflowCase
    graph: Graph
    stages: tuple[StageSpec, ...]

    @property
    def kinds(self) -> set[JobKind]:
        """What its stages' jobs are like."""
        return {JobKind(stage.resources.cores, stage.walltime_s) for stage in self.stages}


def run_unit(unit: Unit, tell: Callable[[], None] = lambda: None) -> tuple[list[RunRow], list[Judged]]:
    """All rows of a unit; `tell` is called after each run.

    Each run begins at the same moment of a copy of the same queue, so that strategies are compared in pairs. What
    estimators know then, they have learned from probes whose waits had become known (`learned_waits`). How long their
    stages will run, workflows know exactly: it is not what is compared here.
    """
    parts: list[StagedCase] = []

    def kinds(site: Capabilities) -> Iterable[JobKind]:
        for case in unit.cases():
            graph = make_graph(case.workflow)
            parts.append(StagedCase(case, graph, graph.specs(site)))
        return set().union(*(part.kinds for part in parts))

    scene = snapshot(unit.queue, kinds)
    learned: dict[str, MemoryWaits] = {}
    rows: list[RunRow] = []
    for part in parts:
        rows += _rows(unit, scene, part, learned, tell)
    return rows, _judged(unit, scene, parts, learned) if unit.table2 else []


def _rows(
    unit: Unit, scene: QueueSnapshot, part: StagedCase, learned: dict[str, MemoryWaits], tell: Callable[[], None]
) -> list[RunRow]:
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


def _check_end(scene: QueueSnapshot, row: RunRow, days: float) -> None:
    """A run that goes on when other people have ceased to submit jobs says nothing."""
    if scene.engine.now + row.makespan_s > scene.end:
        raise InvalidInput(
            f"{row.workflow} on {row.cores} cores of {row.system} under {row.strategy} (seed {row.seed}) takes "
            f"{row.makespan_s / DAY:.1f} days, but other people's jobs go on for {days:g} days only: give more days"
        )


def _run(
    unit: Unit,
    scene: QueueSnapshot,
    part: StagedCase,
    strategy: str,
    *,
    times: dict[str, float],
    learned: dict[str, MemoryWaits],
) -> RunRow:
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
    found = summarise(events)
    row = row_of(
        found,
        system=scene.name,
        regime=scene.regime,
        workflow=part.case.name,
        cores=part.case.cores,
        strategy=strategy,
        seed=unit.queue.seed,
    )
    return _with_energy(scene, row, *_spans(found, scene.engine.now - found.start.at))


def _spans(run: RunSummary, past: float) -> tuple[Stretches, Stretches]:
    """When a run held cores, and when these were busy, on a clock that is `past` its own [s]."""
    runs = [(begin + past, end + past, job.cores) for job in run.jobs for begin, end in job.runs]
    begin, end, cores = np.array(runs, dtype=np.float64).reshape(-1, 3).T
    tasks = run.attempts
    return (begin, end, cores.astype(np.int64)), (tasks.started + past, tasks.ended + past, tasks.cores)


def _with_energy(scene: QueueSnapshot, row: RunRow, held: Stretches, busy: Stretches) -> RunRow:
    found = energy_of_cores(scene.engine.cluster, held, busy)
    return replace(row, energy_kwh=found.get("energy_kwh"), co2_kg=found.get("co2_kg"))


def _oracle(unit: Unit, scene: QueueSnapshot, part: StagedCase, times: dict[str, float]) -> RunRow:
    needs = [
        StageNeed(stage.name, JobKind(stage.resources.cores, stage.walltime_s), times[stage.name], stage.predecessors)
        for stage in part.stages
    ]
    plan = oracle(scene.engine, scene.rule, needs)
    spans = np.array([(stage.started, stage.ended) for stage in plan]).T
    held = (spans[0], spans[1], np.array([stage.need.kind.cores for stage in plan]))
    row = RunRow(
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
    return _with_energy(scene, row, held, held)


def _judged(
    unit: Unit, scene: QueueSnapshot, parts: Sequence[StagedCase], learned: dict[str, MemoryWaits]
) -> list[Judged]:
    """Table 2, by both protocols: over the days before the runs, and at the moment at which they begin."""
    of = {(part.case.name, part.case.cores): max(part.kinds) for part in parts}  # the largest stage, then the longest
    times = [scene.engine.now + PAPER_EVERY_S * k for k in range(PAPER_PROBES)]
    protocols = {PAPER: watch(scene.engine.copy(), scene.rule, set(of.values()), times), DAYS: scene.probes}
    return [
        Judged(
            scene.name, scene.regime, workflow, cores, protocol, estimator, unit.queue.seed,
            judge(estimator, probes[kind], kind.cores, unit.queue.seed),
        )
        for (workflow, cores), kind in of.items()
        for protocol, probes in protocols.items()
        for estimator in dict.fromkeys([PAPER_ESTIMATOR, *learned])
    ]  # fmt: skip


@dataclass(frozen=True)
class StrategyComparison:
    """What came of it."""

    rows: tuple[RunRow, ...]
    judged: tuple[Judged, ...] = ()

    def sections(self) -> list[dict[str, Any]]:
        """The tables: for each regime those of all systems together and, where there are several, of each alone."""
        made = []
        for regime in dict.fromkeys(row.regime for row in self.rows):
            inside = [row for row in self.rows if row.regime == regime]
            systems = list(dict.fromkeys(row.system for row in inside))
            for system in [None, *systems] if len(systems) > 1 else systems:
                grid = Grid.of([row for row in inside if system in (None, row.system)])
                made.append(
                    {
                        "regime": regime,
                        "system": system,
                        "table1": table1(grid),
                        "normalised": normalised(grid),
                        "ratios": ratios(grid),
                    }
                )
        return made

    def to_json(self) -> dict[str, Any]:
        """Rows and tables, JSON-able. ``ratios`` are those of the first section."""
        sections = _plain(self.sections())
        return {
            "rows": [row.to_json() for row in self.rows],
            "ratios": sections[0]["ratios"],
            "sections": sections,
            "table2": {
                "rows": [each.to_json() for each in self.judged],
                "means": _plain(means_over_seeds(self.judged)),
            },
        }

    def text(self) -> str:
        return in_words(self.sections(), means_over_seeds(self.judged), len({row.seed for row in self.rows}))

    def draw(self, path: str | Path) -> None:
        """Draw the makespans to a file, and the core-hours to one beside it (``x.png`` and ``x-corehours.png``).

        Rows of the first regime only.
        """
        path = Path(path)
        rows = [row for row in self.rows if row.regime == self.rows[0].regime]
        makespan_figure(rows).draw(path)
        corehours_figure(rows).draw(path.with_stem(f"{path.stem}-corehours"))


def compare(
    workflow: str = ALL,
    *,
    arguments: Mapping[str, Any] | None = None,
    systems: Sequence[Any] = ("hpc2n",),
    cores: Sequence[int] = (),
    strategies: Sequence[str] = STRATEGIES_SHOWN,
    regimes: Sequence[str | None] = (None,),
    seeds: int = 10,
    seed: int = 0,
    oracle: bool = True,
    table2: bool = False,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> StrategyComparison:
    """Run a workflow under several strategies on simulated queues, over several seeds.

    Parameters
    ----------
    workflow
        A workflow of the paper (``montage``, ``blast``, ``statistics``), ``all`` of them, or ``FILE[:NAME]``, whose
        stages declare their run times.
    systems
        Site models: names, files, or `Site` objects.
    cores
        Scales; by default those that the paper ran on a system, or a file's own.
    strategies
        Specs, as in ``"asa:estimator=algorithm1,sampling=tuned"``.
    regimes
        What becomes of a dependent job's place in the queue: ``accrue-always``, ``fifo``, ``multifactor``, ``limits``;
        None for what the site does.
    seeds, seed
        How many queues of each system, and the first one's seed.
    oracle
        Whether to add what perfect prediction would reach, as a strategy of that name.
    table2
        Whether to judge predictions, too; under the first regime, for they are the same under all.
    processes
        How many to use. The result is the same for any number of them. Scripts that use more than one must be
        importable (``if __name__ == "__main__":``), as `multiprocessing` asks.

    Raises
    ------
    InvalidInput
        When a name is not known, or nothing is left to compare.
    RunFailed
        When a run does not come to its end.
    """
    chosen = [*dict.fromkeys(strategies), *([ORACLE] if oracle and ORACLE not in strategies else [])]
    for strategy in chosen:
        if strategy != ORACLE:
            STRATEGIES.create(strategy)  # a misspelt one is found before the others have run
    if seeds < 1 or not chosen or not systems or not regimes:
        raise InvalidInput(
            f"nothing to compare: {seeds} seeds, {len(chosen)} strategies, {len(systems)} systems and {len(regimes)} "
            "regimes: at least one of each expected"
        )
    known = [item.name for item in fields(WatchedQueue)]
    if unknown := set(options) - set(known):
        raise UnknownName("option of a comparison", min(unknown), known)
    units = [
        Unit(
            WatchedQueue(system, regime, seed + each, **options),
            workflow,
            tuple(cores) or _scales(workflow, system),
            tuple(chosen),
            table2 and regime == regimes[0],  # no probe depends on another job
            tuple((arguments or {}).items()),
        )
        for regime, system, each in itertools.product(dict.fromkeys(regimes), dict.fromkeys(systems), range(seeds))
    ]
    runs = [len(unit.cases()) * len(chosen) for unit in units]
    found = dict(_results(units, processes, runs, progress or (lambda _done, _all: None)))
    parts = [found[place] for place in range(len(units))]
    return StrategyComparison(
        tuple(row for rows, _ in parts for row in rows), tuple(each for _, judged in parts for each in judged)
    )


Result = tuple[list[RunRow], list[Judged]]


@contextmanager
def _safe_path() -> Iterator[None]:
    """Have no process that starts meanwhile find modules in the working directory: a workflow may be ``queue.py``."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        os.environ |= {} if before is None else {"PYTHONSAFEPATH": before}


def _results(
    units: Sequence[Unit], processes: int, runs: Sequence[int], progress: Callable[[int, int], None]
) -> Iterator[tuple[int, Result]]:
    """What came of each unit, with its place, as they come."""
    done, total = 0, sum(runs)

    def tell() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    if processes == 1 or len(units) == 1:
        for place, unit in enumerate(units):
            yield place, run_unit(unit, tell)
        return
    # Spawned, not forked: the numerical libraries have threads, which a fork does not survive.
    with _safe_path(), ProcessPoolExecutor(min(processes, len(units)), get_context("spawn")) as pool:
        waiting = {pool.submit(run_unit, unit): place for place, unit in enumerate(units)}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    place = waiting.pop(future)
                    yield place, future.result()
                    done += runs[place]
                    progress(done, total)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _scales(workflow: str, system: Any) -> tuple[int, ...]:
    """The paper's scales on one of its systems."""
    if workflow not in (*MODELS, ALL):
        return ()
    return SCALES.get(system if isinstance(system, str) else system.name, ())


def _plain(value: Any) -> Any:
    """With numbers in the place of estimates."""
    if isinstance(value, Estimate):
        return value.to_json()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
