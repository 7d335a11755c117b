"""``asa figure cp-times``, ``cp-quality`` and ``cp-ratios``: Tables 1 and 2 and Figures 4 to 7.

In the closed loop, as in the paper, a dispatcher is asked once when something has changed. Slowdown is the plain one,
turnaround over run time, and not the bounded one of `asa.lab.metrics`; jobs that ran for less than a second count as
one second long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.decision import DispatchDecision, Start
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.dispatchers.planning.instance import Planner
from asa.lab.dispatchers.planning.verify import violations
from asa.lab.metrics.schedule import bounded_slowdown
from asa.lab.simulator.decisions import Decision, DecisionSample
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import rehearse, simulate
from asa.lab.simulator.settings import MachineSettings
from asa.lab.study import Figure, LogCase, TimedDispatcher, clocked, log_case, read_rows
from asa.report.picture import (
    LINE,
    SMALL_PT,
    WIDTH_IN,
    charts,
    heading,
    legend_above,
    marker,
    new_figure,
    save_figure,
    series_colour,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PREDICTORS_SHOWN = ("heuristic", "last-two", "oracle")
"""The paper's, with its suffixes -D, -L2 and -R."""

LEAST_RUN_S = 1.0


@dataclass(frozen=True)
class DispatchRow:
    """A dispatcher with one predictor, from the first submission to the last end.

    Parameters
    ----------
    case, jobs, charged
        What was simulated, how many jobs ran, and whether the time of decisions delayed them.
    mean_waiting
        Mean number of jobs that waited then.
    mean_s, p99_s, max_s
        Time [s] that a decision took, compilation excluded.
    mean_cpu_s
        Mean processor time [s] of a decision, of all threads. This is what the paper tells.
    mean_wait_s, std_wait_s, mean_slowdown, std_slowdown, mean_bounded_slowdown
        Over all jobs that ran; means and standard deviations.
    """

    dispatcher: str
    predictor: str
    case: str
    jobs: int
    charged: bool
    decisions: int
    mean_waiting: float
    mean_s: float
    p99_s: float
    max_s: float
    mean_cpu_s: float
    total_s: float
    mean_wait_s: float
    std_wait_s: float
    mean_slowdown: float
    std_slowdown: float
    mean_bounded_slowdown: float


class OnChange:
    """A dispatcher that is not asked where no job waits, nor again before something has changed."""

    def __init__(self, rule: Any) -> None:
        self._rule, self.needs_estimates = rule, getattr(rule, "needs_estimates", False)
        self._left = (-1, -1)

    def decide(self, view: Any) -> Sequence[DispatchDecision]:
        """What it decides; nothing where all is as it has left it."""
        waiting, running = len(view.waiting), len(view.active)
        if not waiting or (waiting, running) == self._left:
            return ()
        found: Sequence[DispatchDecision] = self._rule.decide(view)
        starts = sum(isinstance(each, Start) for each in found)
        self._left = waiting - starts, running + starts
        return found


def loop(
    case: LogCase,
    dispatchers: Sequence[str],
    predictors: Sequence[str] = PREDICTORS_SHOWN,
    *,
    dispatch_time: str = "ignore",
) -> list[DispatchRow]:
    """Simulate each dispatcher with each predictor."""
    return [
        _dispatch_row(case, dispatcher, predictor, dispatch_time)
        for dispatcher in dispatchers
        for predictor in predictors
    ]


def _dispatch_row(case: LogCase, dispatcher: str, predictor: str, dispatch_time: str) -> DispatchRow:
    rehearse(Engine(case.workload, case.cluster, MachineSettings(predictor=predictor)), DISPATCHERS.create(dispatcher))
    timed = TimedDispatcher(DISPATCHERS.create(dispatcher))
    schedule = simulate(case.workload, case.cluster, OnChange(timed), predictor=predictor, dispatch_time=dispatch_time)
    ran = schedule.ran
    wait = schedule.wait[ran]
    run = (schedule.end - schedule.start)[ran]
    slowdown = slowdowns(wait, run)
    waiting, _, times, cpu = np.array(timed.timings).T
    return DispatchRow(
        dispatcher=dispatcher,
        predictor=predictor,
        case=case.name,
        jobs=int(ran.sum()),
        charged=dispatch_time == "charge",
        decisions=len(times),
        mean_waiting=float(waiting.mean()),
        mean_s=float(times.mean()),
        p99_s=float(np.percentile(times, 99)),
        max_s=float(times.max()),
        mean_cpu_s=float(cpu.mean()),
        total_s=schedule.seconds,
        mean_wait_s=float(wait.mean()),
        std_wait_s=float(wait.std()),
        mean_slowdown=float(slowdown.mean()),
        std_slowdown=float(slowdown.std()),
        mean_bounded_slowdown=float(bounded_slowdown(wait + run, run).mean()),
    )


def slowdowns(wait: Floats, run: Floats) -> Floats:
    """Turnaround over run time.

    >>> slowdowns(np.array([30.0, 2.0]), np.array([10.0, 0.0])).tolist()
    [4.0, 3.0]
    """
    length = np.maximum(run, LEAST_RUN_S)
    found: Floats = (wait + length) / length
    return found


SAVED_UNDER = "listplan:scheme=non-delay"
"""Whose decisions are saved. The paper saved PCP'19's; this one is quick."""

SAVED_PREDICTOR = "heuristic"


@dataclass(frozen=True)
class SavedRow:
    """A planner on one decision.

    Parameters
    ----------
    queue, running
        Waiting jobs, and runs of nodes that are held.
    status
        Of the plan; ``"broken"`` where it breaks a law of the machine.
    seconds, cpu_s
        What it took [s], and the processor time of all its threads [s], compilation excluded.
    objective
        Mean slowdown of the plan; None without one.
    variables, constraints
        Size of its model; None where it has none, does not tell, or ran out of time while it built it.
    """

    dispatcher: str
    decision: int
    queue: int
    running: int
    status: str
    seconds: float
    cpu_s: float
    objective: float | None
    variables: int | None
    constraints: int | None


def sampled(case: LogCase, count: int, seed: int) -> DecisionSample:
    """Decisions of a simulated case, each with the same chance."""
    sample = DecisionSample(count, seed)
    simulate(case.workload, case.cluster, SAVED_UNDER, predictor=SAVED_PREDICTOR, watch=sample)
    return sample


def on_saved(decisions: Iterable[Decision], dispatchers: Sequence[str], time_limit: float) -> list[SavedRow]:
    """Let each planner plan each decision."""
    planners = {spec: planner(spec) for spec in dispatchers}
    warm: set[str] = set()
    found = []
    for decision in decisions:
        for spec, one in planners.items():
            if spec not in warm:
                one.solve(decision.instance, time_limit)  # compiles
                warm.add(spec)
            found.append(_saved_row(spec, one, decision, time_limit))
    return found


def planner(spec: str) -> Planner:
    """The planner of a spec."""
    made: Planner = DISPATCHERS.create(spec)
    if not hasattr(made, "solve"):
        raise InvalidInput(f"dispatcher {spec!r} makes no plans of whole queues, which saved decisions are for")
    return made


def _saved_row(spec: str, one: Planner, decision: Decision, time_limit: float) -> SavedRow:
    instance = decision.instance
    planned, seconds, cpu_s = clocked(one.solve, instance, time_limit)
    status, objective = planned.status, None
    if planned.plan is not None:
        objective = planned.plan.objective(instance)
        status = "broken" if violations(instance, planned.plan) else status
    built = "out of time" not in planned.notes
    return SavedRow(
        dispatcher=spec,
        decision=decision.number,
        queue=len(instance),
        running=len(instance.release),
        status=status,
        seconds=seconds,
        cpu_s=cpu_s,
        objective=objective,
        variables=_whole(planned.notes.get("variables")) if built else None,
        constraints=_whole(planned.notes.get("constraints")) if built else None,
    )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


@dataclass(frozen=True)
class Ratio:
    """One planner over another on the decisions of one queue size; medians with extremes, None where not known.

    Parameters
    ----------
    variables, cpu_s, objective
        Least, median and largest ratio. That of the objective is over decisions on which both found a plan; the time
        of one without a plan is what it took in vain.
    """

    least: int
    most: int
    decisions: int
    solved: tuple[int, int]
    variables: tuple[float, float, float] | None
    cpu_s: tuple[float, float, float] | None
    objective: tuple[float, float, float] | None


def pairs(rows: Sequence[SavedRow], one: str, other: str) -> list[tuple[SavedRow, SavedRow]]:
    """Rows of the two on the same decisions."""
    theirs = {row.decision: row for row in rows if row.dispatcher == other}
    return [(row, theirs[row.decision]) for row in rows if row.dispatcher == one and row.decision in theirs]


def ratios(rows: Sequence[SavedRow], one: str, other: str) -> list[Ratio]:
    """How `one` compares to `other`, by classes of queue sizes that end at powers of two."""
    both = pairs(rows, one, other)
    classes = np.array([(mine.queue - 1).bit_length() for mine, _ in both], dtype=np.int64)
    found = []
    for size in np.unique(classes).tolist():
        chosen = [pair for pair, of in zip(both, classes.tolist(), strict=True) if of == size]
        mine, theirs = ([pair[side].objective is not None for pair in chosen] for side in (0, 1))
        measured = (spread_of(chosen, what) for what in ("variables", "cpu_s", "objective"))
        found.append(Ratio(2**size // 2 + 1 if size else 1, 2**size, len(chosen), (sum(mine), sum(theirs)), *measured))
    return found


def spread_of(chosen: Sequence[tuple[SavedRow, SavedRow]], what: str) -> tuple[float, float, float] | None:
    """Least, median and largest ratio of a column, where both have it."""
    values = [(getattr(mine, what), getattr(theirs, what)) for mine, theirs in chosen]
    known = [mine / theirs for mine, theirs in values if mine is not None and theirs]
    return (min(known), float(np.median(known)), max(known)) if known else None


def draw_times(rows: Sequence[DispatchRow], path: str | Path) -> None:
    """Draw Tables 1 and 2: the mean time of decisions, with a line up to the 99th percentile."""
    _bars(rows, path, [("dispatch time [ms], line: to the 99th percentile", "mean_s", "p99_s", 1e3)])


def draw_quality(rows: Sequence[DispatchRow], path: str | Path) -> None:
    """Draw Figures 4 and 5: means, and a line up to one standard deviation above them."""
    slowdown = ("slowdown, line: + one standard deviation", "mean_slowdown", "std_slowdown", 1.0)
    wait = ("wait [min], line: + one standard deviation", "mean_wait_s", "std_wait_s", 1 / 60)
    _bars(rows, path, [slowdown, wait])


def draw_ratios(names: Sequence[str], rows: Sequence[SavedRow], path: str | Path) -> None:
    """Draw Figures 6 and 7: a mark for each decision, all dispatchers over the second one."""
    figure = new_figure(WIDTH_IN, 3.2)
    other = names[1]
    made = charts(figure, 1, 2)
    for axes, (what, title) in zip(made, (("variables", "variables"), ("cpu_s", "dispatch time (CPU)")), strict=True):
        marks = [
            _marks(axes, pairs(rows, name, other), what, (place, f"{name} / {other}"))
            for place, name in enumerate(names)
            if name != other
        ]
        if any(marks):
            axes.axhline(1.0, color=LINE, linewidth=0.6)
            axes.set(xscale="log", yscale="log")
            axes.set_xlabel("waiting jobs")
        else:
            axes.text(0.5, 0.5, "not known", ha="center", transform=axes.transAxes, fontsize=SMALL_PT)
            axes.set_axis_off()
        heading(axes, f"ratio of {title}")
    legend_above(figure, made[1].get_legend_handles_labels()[0], markerscale=2)
    save_figure(figure, path)


def _marks(axes: Axes, both: Sequence[tuple[Any, Any]], what: str, series: tuple[int, str]) -> int:
    """Draw what both tell of; how many marks that makes."""
    place, label = series
    known = [(one, two) for one, two in both if getattr(one, what) is not None and getattr(two, what)]
    axes.plot(
        [one.queue for one, _ in known],
        [getattr(one, what) / getattr(two, what) for one, two in known],
        marker(place),
        color=series_colour(place),
        markersize=2.5,
        alpha=0.6,
        label=label,
    )
    return len(known)


def _bars(rows: Sequence[DispatchRow], path: str | Path, shown: Sequence[tuple[str, str, str, float]]) -> None:
    """A chart of horizontal bars for each (title, column, line, scale): a group for each dispatcher.

    The line ends at that column where it is a quantile (``p99_...``), else so far above the bar.
    """
    dispatchers = list(dict.fromkeys(row.dispatcher for row in rows))
    predictors = list(dict.fromkeys(row.predictor for row in rows))
    figure = new_figure(WIDTH_IN, 1.2 + 0.22 * len(rows))
    height = 0.8 / len(predictors)
    for axes, (title, column, line, scale) in zip(
        charts(figure, 1, len(shown), grid="x", sharey=True), shown, strict=True
    ):
        for place, predictor in enumerate(predictors):
            chosen = [row for row in rows if row.predictor == predictor]
            values = np.array([getattr(row, column) for row in chosen]) * scale
            reach = np.array([getattr(row, line) for row in chosen]) * scale
            above = np.maximum(reach - values, 0) if line.startswith("p99") else reach
            axes.barh(
                [dispatchers.index(row.dispatcher) + (place - (len(predictors) - 1) / 2) * height for row in chosen],
                values,
                height,
                xerr=[np.zeros(len(chosen)), above],
                error_kw={"elinewidth": 0.6, "capsize": 1.5},
                color=series_colour(place),
                label=predictor,
            )
        axes.set_xlabel(title)
        axes.set_yticks(range(len(dispatchers)), dispatchers, parse_math=False)
    axes.invert_yaxis()
    legend_above(figure, axes.get_legend_handles_labels()[0])
    save_figure(figure, path)


PAPER = ("pcp20", "pcp19", "hcp19")
"""The paper's dispatchers."""

BESIDE = ("listplan", "listplan:scheme=non-delay", "easy:order=sjf")
"""What stands beside them; the first two plan whole queues as well."""


def cp_times(*, source: str | None = None, **options: Any) -> Figure:
    """Tables 1 and 2: how long decisions take; takes what `measured_loop` takes."""
    return Figure(_loop_rows(source, options), times_table, draw_times)


def cp_quality(*, source: str | None = None, **options: Any) -> Figure:
    """Figures 4 and 5: slowdown and wait, with their deviation; takes what `cp_times` takes."""
    return Figure(_loop_rows(source, options), quality_table, draw_quality)


def cp_ratios(*, source: str | None = None, **options: Any) -> Figure:
    """Figures 6 and 7: ratios of variables and time to the second dispatcher's; takes what `measured_saved` takes."""
    rows = measured_saved(**options) if source is None else read_rows(source, SavedRow)
    names = list(dict.fromkeys(row.dispatcher for row in rows))
    if len(names) < 2:
        raise InvalidInput(f"cp-ratios compares dispatchers that plan whole queues, and there is only {names[0]}")
    return Figure(rows, partial(ratios_table, names), partial(draw_ratios, names))


def measured_loop(
    *,
    dispatchers: Sequence[str] | None = None,
    predictors: Sequence[str] = PREDICTORS_SHOWN,
    trace: str | None = None,
    from_day: float = 0.0,
    to_day: float = 1.0,
    dispatch_time: str = "ignore",
    seed: int = 0,
) -> list[DispatchRow]:
    """Dispatchers in a closed loop."""
    what = log_case(trace, from_day=from_day, to_day=to_day, seed=seed)
    return loop(what, dispatchers or (*PAPER, *BESIDE), predictors, dispatch_time=dispatch_time)


def measured_saved(
    *,
    dispatchers: Sequence[str] | None = None,
    trace: str | None = None,
    from_day: float = 0.0,
    to_day: float = 1.0,
    decisions: int = 200,
    time_limit: float = 1.0,
    seed: int = 0,
) -> list[SavedRow]:
    """Planners on saved decisions; see `measured_loop`."""
    what = log_case(trace, from_day=from_day, to_day=to_day, seed=seed)
    chosen = dispatchers or (*PAPER, *BESIDE[:2])
    return on_saved(sampled(what, decisions, seed), chosen, time_limit)


def _loop_rows(source: str | None, options: Any) -> list[DispatchRow]:
    return measured_loop(**options) if source is None else read_rows(source, DispatchRow)


def times_table(rows: Sequence[DispatchRow]) -> list[dict[str, Any]]:
    """Tables 1 and 2."""
    return [
        {
            "dispatcher": row.dispatcher,
            "predictor": row.predictor,
            "decisions": row.decisions,
            "waiting": row.mean_waiting,
            "CPU [ms]": 1e3 * row.mean_cpu_s,
            "mean [ms]": 1e3 * row.mean_s,
            "p99 [ms]": 1e3 * row.p99_s,
            "most [ms]": 1e3 * row.max_s,
            "simulation [s]": row.total_s,
        }
        for row in rows
    ]


def quality_table(rows: Sequence[DispatchRow]) -> list[dict[str, Any]]:
    """Figures 4 and 5."""
    return [
        {
            "dispatcher": row.dispatcher,
            "predictor": row.predictor,
            "jobs": row.jobs,
            "slowdown": row.mean_slowdown,
            "deviation": row.std_slowdown,
            "wait [s]": row.mean_wait_s,
            "deviation [s]": row.std_wait_s,
            "bounded slowdown": row.mean_bounded_slowdown,
        }
        for row in rows
    ]


def ratios_table(names: Sequence[str], rows: Sequence[SavedRow]) -> list[dict[str, Any]]:
    """Figures 6 and 7: each dispatcher over the second one, by queue size; median (least to most)."""
    other = names[1]
    return [
        {
            "ratio": f"{name} / {other}",
            "queue": f"{size.least}-{size.most}" if size.most > size.least else f"{size.most}",
            "decisions": size.decisions,
            "with a plan": f"{size.solved[0]} / {size.solved[1]}",
            "variables": _shown(size.variables),
            "CPU time": _shown(size.cpu_s),
            "mean slowdown": _shown(size.objective),
        }
        for name in names
        if name != other
        for size in ratios(rows, name, other)
    ]


def _shown(spread: tuple[float, float, float] | None) -> str:
    return "-" if spread is None else "{1:.3g} ({0:.3g} to {2:.3g})".format(*spread)
