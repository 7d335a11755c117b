"""Strategies side by side, on simulated queues: the ASA paper's Tables 1 and 2, over many seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import STRATEGIES
from asa.lab.studies.case import ALL
from asa.lab.studies.compare_row import ORACLE, Row
from asa.lab.studies.compare_unit import Unit, run_unit
from asa.lab.studies.compare_words import in_words
from asa.lab.studies.figures_asa import corehours_figure, makespan_figure
from asa.lab.studies.interval import Estimate
from asa.lab.studies.paper import MODELS
from asa.lab.studies.published import SCALES, STRATEGIES_SHOWN
from asa.lab.studies.scene import Queue
from asa.lab.studies.table1 import Grid, normalised, ratios, table1
from asa.lab.studies.table2 import Judged, means_over_seeds


@dataclass(frozen=True)
class Comparison:
    """What came of it.

    Parameters
    ----------
    rows
        One for each system, regime, workflow, scale, strategy and seed.
    judged
        How good predictions were; empty unless it was asked for.
    """

    rows: tuple[Row, ...]
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
        """The tables, for people."""
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
) -> Comparison:
    """Run a workflow under several strategies on simulated queues, over several seeds.

    Parameters
    ----------
    workflow
        A workflow of the paper (``montage``, ``blast``, ``statistics``), ``all`` of them, or ``FILE[:NAME]``, whose
        stages declare their run times.
    arguments
        For a function in a file, beside ``cores``.
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
    progress
        Told how many runs of how many are done.
    options
        More fields of `asa.lab.studies.scene.Queue`.

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
    known = [item.name for item in fields(Queue)]
    if unknown := set(options) - set(known):
        raise UnknownName("option of a comparison", min(unknown), known)
    units = [
        Unit(
            Queue(system, regime, seed + each, **options),
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
    return Comparison(
        tuple(row for rows, _ in parts for row in rows), tuple(each for _, judged in parts for each in judged)
    )


Result = tuple[list[Row], list[Judged]]


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
    with ProcessPoolExecutor(min(processes, len(units)), get_context("spawn")) as pool:
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
