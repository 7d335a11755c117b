"""Simulated runs as rows, and what is made of them: Table 1, ratios of strategies, and Figures 6 to 9 of the paper."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats
from asa.core.command import table
from asa.core.errors import InvalidInput, RunFailed
from asa.core.event import RunState
from asa.lab.asa_paper.accuracy import DAYS, PAPER
from asa.lab.report.charts import Bar, BarPart, Panel, save_stacked
from asa.lab.study import LEVEL, Estimate, Figure, Statistic, estimate, percent
from asa.metrics.workflow import JobSummary, RunSummary

METRICS = ("total_wait_s", "makespan_s", "core_hours")
"""The three numbers of the paper's Table 1."""

ORACLE = "oracle"
"""Strategy that no one can have: see `asa.lab.asa_paper.oracle`."""


class StageSpan(NamedTuple):
    """How long a stage waited once it was ready, and how long it ran [s]."""

    name: str
    wait_s: float
    run_time_s: float


@dataclass(frozen=True)
class RunRow:
    """One run.

    Parameters
    ----------
    makespan_s
        From the run's begin to the end of its last stage [s].
    total_wait_s
        Time during which any stage was ready and had not begun [s]: the sum of the stages' waits in a chain.
    overhead_core_hours
        What they held idle because they came before their stage.
    misses
        Jobs that came before their stage and were released unused, to be asked for again.
    outstanding
        Jobs of a stage that were in the queue at a time, at most.
    energy_kwh, co2_kg
        What its allocations drew, see `asa.lab.metrics.energy.energy_of_cores`; None where the site declares no power
        of its nodes, or no intensity.
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
    energy_kwh: float | None = None
    co2_kg: float | None = None

    @property
    def case(self) -> tuple[str, str, int]:
        """What strategies are compared on: system, workflow and cores."""
        return self.system, self.workflow, self.cores

    def to_json(self) -> dict[str, Any]:
        made = {name: value for name, value in asdict(self).items() if value is not None}
        return made | {"stages": [stage._asdict() for stage in self.stages]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunRow:
        """A row from what `to_json` gave."""
        try:
            stages = tuple(StageSpan(**stage) for stage in values["stages"])
            return cls(**{**values, "stages": stages})
        except (KeyError, TypeError) as error:
            raise InvalidInput(f"this is no row of a comparison: {type(error).__name__}: {error}") from error


def row_of(run: RunSummary, *, system: str, regime: str, workflow: str, cores: int, strategy: str, seed: int) -> RunRow:
    """The row of a run, without its energy.

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
    return RunRow(
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


BASELINES = ("big-job", "per-stage", ORACLE)
"""What every strategy is compared with, where it was run."""

CaseKey = tuple[str, str, int]


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows laid out: the same cases under the same strategies with the same seeds.

    Parameters
    ----------
    values
        Number -> its values, shape (seeds, cases, strategies).
    """

    cases: tuple[CaseKey, ...]
    strategies: tuple[str, ...]
    values: dict[str, Floats]

    @classmethod
    def of(cls, rows: Sequence[RunRow]) -> Grid:
        """Lay rows out, in the order in which they first name their cases and strategies."""
        seeds = list(dict.fromkeys(row.seed for row in rows))
        cases = tuple(dict.fromkeys(row.case for row in rows))
        strategies = tuple(dict.fromkeys(row.strategy for row in rows))
        found = {(row.seed, row.case, row.strategy): row for row in rows}
        if not rows or len(found) != len(rows) or len(rows) != len(seeds) * len(cases) * len(strategies):
            raise InvalidInput(
                f"{len(rows)} rows for {len(seeds)} seeds, {len(cases)} cases and {len(strategies)} strategies: "
                "one row for each combination expected"
            )
        drawn = [name for name in _ENERGY if all(getattr(row, name) is not None for row in rows)]
        names = (*METRICS, "overhead_core_hours", "misses", "outstanding", *drawn)
        return cls(
            cases,
            strategies,
            {
                name: np.array(
                    [
                        [
                            [float(getattr(found[seed, case, strategy], name)) for strategy in strategies]
                            for case in cases
                        ]
                        for seed in seeds
                    ]
                )
                for name in names
            },
        )

    def estimate(
        self,
        metric: str,
        statistic: Statistic,
        cases: Sequence[int] | None = None,
        strategies: Sequence[int] | None = None,
    ) -> Estimate:
        """A statistic of the means over seeds, shape (..., cases, strategies), of some of either (default: all)."""
        chosen = self.values[metric] if cases is None else self.values[metric][:, list(cases)]
        chosen = chosen if strategies is None else chosen[:, :, list(strategies)]
        shape = chosen.shape[1:]

        def of_means(values: Floats) -> Floats:
            return statistic(values.mean(axis=-2).reshape(*values.shape[:-2], *shape))

        return estimate(of_means, chosen.reshape(len(chosen), -1))


def table1(grid: Grid) -> list[dict[str, Any]]:
    """Means over seeds: a row for each case and strategy, with an `Estimate` of each number."""
    return [
        dict(zip(("system", "workflow", "cores"), case, strict=True))
        | {"strategy": strategy}
        | {name: grid.estimate(name, lambda means: means[..., 0, 0], [c], [k]) for name in grid.values}
        for c, case in enumerate(grid.cases)
        for k, strategy in enumerate(grid.strategies)
    ]


def normalised(grid: Grid) -> list[dict[str, Any]]:
    """Normalised averages: a row for each workflow and strategy.

    An average of 1.05 says: in the mean over the workflow's rows, 5 % above the best strategy of the row. The oracle is
    not taken for a strategy, so its averages can be below 1.

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", section 4.7 and Table 1, whose averages are met to within
    1.5 points, the sums of its seconds being rounded.
    """
    workflows = dict.fromkeys(workflow for _, workflow, _ in grid.cases)
    real = [k for k, strategy in enumerate(grid.strategies) if strategy != ORACLE]

    def average(k: int) -> Statistic:
        return lambda means: _ratio(means[..., k], means[..., real].min(axis=-1)).mean(axis=-1)

    return [
        {"workflow": workflow, "strategy": strategy}
        | {
            name: grid.estimate(name, average(k), [c for c, case in enumerate(grid.cases) if case[1] == workflow])
            for name in METRICS
        }
        for workflow in workflows
        for k, strategy in enumerate(grid.strategies)
    ]


def ratios(grid: Grid) -> dict[str, Any]:
    """Each strategy over each of `BASELINES`: strategy -> baseline -> number -> two kinds of ratio.

    ``ratio_of_sums`` weighs cases by their size, as the paper's "43 % reduction" of core-hours and "2 % increase" of
    the makespan do; ``mean_of_ratios`` takes all cases alike.
    """
    places = {name: k for k, name in enumerate(grid.strategies)}

    def both(metric: str, k: int, base: int) -> dict[str, Any]:
        two = [k, base]
        return {
            "ratio_of_sums": grid.estimate(metric, ratio_of_sums, strategies=two),
            "mean_of_ratios": grid.estimate(metric, _mean_of_ratios, strategies=two),
        }

    return {
        strategy: {
            base: {metric: both(metric, k, places[base]) for metric in METRICS}
            for base in BASELINES
            if base in places and base != strategy
        }
        for strategy, k in places.items()
    }


def ratio_of_sums(means: Floats) -> Floats:
    """The first strategy's sum over all cases over the second's; means of shape (..., cases, 2)."""
    return _ratio(means[..., 0].sum(-1), means[..., 1].sum(-1))


def _mean_of_ratios(means: Floats) -> Floats:
    made: Floats = _ratio(means[..., 0], means[..., 1]).mean(-1)
    return made


def _ratio(over: Floats, under: Floats) -> Floats:
    """Of two numbers that may be 0: 1 when both are, not a number when only the second is."""
    safe = np.where(under > 0, under, 1.0)
    made: Floats = np.where(under > 0, over / safe, np.where(over > 0, np.nan, 1.0))
    return made


@dataclass(frozen=True)
class Beside:
    """One strategy's mean makespan over another's in one case.

    Parameters
    ----------
    ratio
        Of the means over seeds; 1 where both are alike.
    slower
        Share of the seeds in which it was slower by more than a second, in [0, 1].
    """

    regime: str
    case: CaseKey
    strategy: str
    ratio: Estimate
    slower: float


def beside(rows: Sequence[RunRow], strategy: str, other: str = "per-stage") -> list[Beside]:
    """A strategy beside another in each case of each regime, the worst first.

    Raises
    ------
    InvalidInput
        When one of the two was not run.

    Examples
    --------
    >>> def row(strategy, seed, makespan_s):
    ...     return RunRow("here", "fifo", "chain", 8, strategy, seed, makespan_s, 0.0, 1.0, 0.0, 0, ())
    >>> rows = [row("asa", 0, 90.0), row("asa", 1, 120.0), row("per-stage", 0, 100.0), row("per-stage", 1, 100.0)]
    >>> (one,) = beside(rows, "asa")
    >>> print(one.case, one.ratio, one.slower)
    ('here', 'chain', 8) 1.05 [0.9, 1.2] 0.5
    """
    found = []
    for regime in dict.fromkeys(row.regime for row in rows):
        grid = Grid.of([row for row in rows if row.regime == regime and row.strategy in (strategy, other)])
        if {*grid.strategies} != {strategy, other}:
            raise InvalidInput(f"runs of {strategy!r} and {other!r} expected, not of {', '.join(grid.strategies)} only")
        two = [grid.strategies.index(name) for name in (strategy, other)]
        for place, case in enumerate(grid.cases):
            one, reference = (grid.values["makespan_s"][:, place, k] for k in two)
            ratio = grid.estimate("makespan_s", ratio_of_sums, [place], two)
            found.append(Beside(regime, case, strategy, ratio, float((one > reference + 1.0).mean())))
    return sorted(found, key=lambda each: -each.ratio.value)


HEADINGS = {"total_wait_s": "total wait [s]", "makespan_s": "makespan [s]", "core_hours": "core-hours"}

_MORE = {"overhead_core_hours": "overhead [core-h]", "misses": "misses", "outstanding": "in queue"}

_ENERGY = {"energy_kwh": "energy [kWh]", "co2_kg": "CO2 [kg]"}

_TABLE2 = {
    "real_h": "WT [h]", "predicted_h": "predicted [h]", "perceived_h": "PWT [h]", "hit": "hit", "miss": "miss",
    "overhead_core_hours": "OH [core-h]", "idle_core_hours": "idle [core-h]", "hit_exact": "exact",
    "within_one": "within one", "not_over": "not over", "mae_h": "MAE [h]", "regret": "regret",
}  # fmt: skip

_PROTOCOLS = {PAPER: "the paper's protocol (60 jobs, a minute apart)", DAYS: "over days, so that feedback arrives"}

_LEGEND = """\
WT: real wait; PWT: what is left of it after the predicted lead; miss: came so much too early that it is released;
OH, idle: core-hours a job held idle until then, and if it were kept; exact, within one: closest alternatives of the
grid; ±: half the interval"""


def in_words(sections: Sequence[Mapping[str, Any]], table2: Sequence[Mapping[str, Any]], seeds: int) -> str:
    """All tables of a comparison over so many seeds."""
    several = any(section["system"] is None for section in sections)
    parts = []
    for section in sections:
        where = f"{section['system'] or 'all systems'}, {section['regime']}"
        if section["system"] is not None or not several:
            parts.append(f"{where}: means of {_seeds(seeds)}\n{_runs(section['table1'])}")
        parts.append(
            f"{where}: normalised averages (mean over the scales of value / best strategy's)\n"
            + _normalised(section["normalised"])
        )
        if any(section["ratios"].values()):
            parts.append(f"{where}: ratios over all cases\n{_ratios(section['ratios'])}")
    if table2:
        parts.append(_judged_words(table2))
        parts.append(_LEGEND)
    return "\n\n".join(parts)


def _seeds(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"{seeds} seeds [{100 * LEVEL:.0f} % interval, bootstrap over seeds]"


def _runs(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        {"workflow": row["workflow"], "cores": row["cores"], "strategy": row["strategy"]}
        | {heading: str(row[name]) for name, heading in {**HEADINGS, **_MORE, **_ENERGY}.items() if name in row}
        for row in rows
    ]
    return table(lines, "nothing was run")


def _normalised(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        {"workflow": row["workflow"], "strategy": row["strategy"]}
        | {HEADINGS[name].partition(" [")[0]: percent(row[name], above=1.0) for name in METRICS}
        for row in rows
    ]
    return table(lines, "nothing was run")


def _ratios(ratios: Mapping[str, Any]) -> str:
    kinds = {"ratio_of_sums": "of sums", "mean_of_ratios": "mean of all"}
    lines = [
        {"strategy": strategy, "over": base, "ratio": words}
        | {HEADINGS[name].partition(" [")[0]: _over(name, metrics[name][kind]) for name in METRICS}
        for strategy, bases in ratios.items()
        for base, metrics in bases.items()
        for kind, words in kinds.items()
    ]
    return table(lines, "nothing to compare with")


def _over(metric: str, found: Estimate) -> str:
    """A ratio; of core-hours what is charged more, because one per cent of them matters."""
    return percent(found, above=1.0) if metric == "core_hours" else str(found)


def _judged_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table for each regime, protocol and estimator."""
    together: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        lines = together.setdefault((row["regime"], row["protocol"], row["estimator"]), [])
        lines.append(
            {name: row[name] for name in ("system", "workflow", "cores")}
            | {heading: _narrow(row[name]) for name, heading in _TABLE2.items()}
        )
    return "\n\n".join(
        f"predictions of {estimator}, {regime}, {_PROTOCOLS[protocol]}\n{table(lines, '')}"
        for (regime, protocol, estimator), lines in together.items()
    )


def _narrow(found: Estimate) -> str:
    """A number, and half its interval."""
    value = f"{found.value:.3g}" if abs(found.value) < 1000 else f"{found.value:.0f}"
    if found.low is None or found.high is None or found.low == found.high:
        return value
    half = (found.high - found.low) / 2
    return f"{value}±{half:.1g}" if half < 10 else f"{value}±{half:.0f}"


LONG_S = 4 * 3600.0
"""Systems on which any run takes longer are drawn in hours [s]."""

_EARLY = 6  # of the palette: what is held too early
_COLOURS = (0, 2, 5, 8, 1, 3, 7, 4, 6)  # of the palette, so that neighbouring waits differ


def _draw_panels(
    panel: Callable[[str, str, Sequence[RunRow]], Panel], title: str, rows: Sequence[RunRow], path: str | Path
) -> None:
    """Draw a row of charts for each workflow, a column for each system."""
    systems, workflows = dict.fromkeys(row.system for row in rows), dict.fromkeys(row.workflow for row in rows)
    panels = [
        [panel(workflow, system, [row for row in rows if (row.workflow, row.system) == (workflow, system)])
         for system in systems]
        for workflow in workflows
    ]  # fmt: skip
    save_stacked(panels, path, title=title)


def _run_lines(rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.to_json().items() if name != "stages"} for row in rows]


def makespan_figure(rows: Sequence[RunRow]) -> Figure:
    """Figures 6 to 8: makespans, in means over seeds, with the waits between stages stacked in order of time."""
    long = {row.system for row in rows if row.makespan_s > LONG_S}
    title = f"makespan and the waits in it{_averaged_over(rows)}"
    return Figure(rows, _run_lines, partial(_draw_panels, partial(makespan_panel, long), title))


def corehours_figure(rows: Sequence[RunRow]) -> Figure:
    """Figure 9: core-hours, in means over seeds; what was held idle because it came too early on top."""
    return Figure(
        rows, _run_lines, partial(_draw_panels, core_hours_panel, f"core-hours charged{_averaged_over(rows)}")
    )


def makespan_panel(long: Container[str], workflow: str, system: str, rows: Sequence[RunRow]) -> Panel:
    """Makespans of a workflow on a system, in hours on the systems in `long`."""
    unit, seconds = ("h", 3600.0) if system in long else ("min", 60.0)
    bars = []
    for group in _groups(rows):
        parts = []
        for place in range(len(group[0].stages)):
            wait = float(np.mean([row.stages[place].wait_s for row in group]))
            run = float(np.mean([row.stages[place].run_time_s for row in group]))
            parts.append(BarPart(wait / seconds, f"wait {place + 1}", _COLOURS[place % len(_COLOURS)]))
            parts.append(BarPart(run / seconds, "running"))
        bars.append(_bar(group, parts, [row.makespan_s / seconds for row in group]))
    return Panel(f"{workflow}, {system}", f"makespan [{unit}]", bars)


def core_hours_panel(workflow: str, system: str, rows: Sequence[RunRow]) -> Panel:
    """Core-hours of a workflow on a system, with what was held too early on top."""
    bars = []
    for group in _groups(rows):
        charged = float(np.mean([row.core_hours for row in group]))
        early = float(np.mean([row.overhead_core_hours for row in group]))
        parts = [BarPart(charged - early, "for the workflow"), BarPart(early, "held too early", _EARLY)]
        bars.append(_bar(group, parts, [row.core_hours for row in group]))
    return Panel(f"{workflow}, {system}", "core-hours", bars)


def _groups(rows: Sequence[RunRow]) -> list[list[RunRow]]:
    """Rows that differ in their seed only."""
    found: dict[tuple[int, str], list[RunRow]] = {}
    for row in rows:
        found.setdefault((row.cores, row.strategy), []).append(row)
    return list(found.values())


def _bar(group: Sequence[RunRow], parts: Sequence[BarPart], totals: Sequence[float]) -> Bar:
    found = estimate(lambda values: values.mean((-2, -1)), np.array(totals)[:, None])
    interval = None if found.low is None or found.high is None else (found.low, found.high)
    return Bar(f"{group[0].cores} cores", group[0].strategy, tuple(parts), interval)


def _averaged_over(rows: Sequence[RunRow]) -> str:
    seeds, regimes = len({row.seed for row in rows}), ", ".join(dict.fromkeys(row.regime for row in rows))
    return f" ({regimes}; mean of {seeds} seeds, lines: 95 % interval)" if seeds > 1 else f" ({regimes})"
