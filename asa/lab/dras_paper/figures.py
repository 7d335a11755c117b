"""``asa figure dras-4`` to ``dras-9`` and ``dras-table4``: training curves, and dispatchers side by side on a log.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, sections III-B (execution modes), IV-D and
V.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.decision import DispatchDecision, JobKey, Reserve, Start
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.metrics.schedule import by_class, class_names, size_classes, summarise
from asa.lab.report.charts import NamedCurve, curves_figure, draw_curve, save_comparison
from asa.lab.simulator.run import simulate
from asa.lab.study import Figure, LogCase, log_case
from asa.report.picture import (
    BUSY,
    LABEL_PT,
    WIDTH_IN,
    charts,
    heading,
    legend_above,
    new_figure,
    save_figure,
    series_colour,
)
from asa.report.words import shortened


@dataclass(frozen=True)
class EpisodePoint:
    """An episode.

    Parameters
    ----------
    reward, actions, updates
        Sum of the rewards while it learned, and how many actions and changes of the network there were.
    cpu_s
        Processor time of the episode [s].
    validation_reward
        Sum of the rewards of the model after it, on the validation jobs; these are the same for all episodes.
    """

    episode: int
    phase: str
    jobs: int
    reward: float
    actions: int
    updates: int
    cpu_s: float
    validation_reward: float
    mean_wait_s: float
    max_wait_s: float
    mean_bounded_slowdown: float
    utilisation: float


def draw_curves(curves: Mapping[str, Sequence[EpisodePoint]], path: str | Path) -> None:
    """Draw the reward on the validation jobs over episodes, a line for each training."""
    lines = [
        NamedCurve(name, [point.episode for point in curve], [point.validation_reward for point in curve])
        for name, curve in curves.items()
    ]
    save_figure(curves_figure(lines, x="episode", y="reward on validation jobs"), path)


READY, RESERVED, BACKFILLED = "ready", "reserved", "backfilled"
MODES = (READY, RESERVED, BACKFILLED)


class ModeRecorder:
    """A dispatcher whose decisions are watched.

    A job is *reserved* when it was promised a start before it started, *backfilled* when it starts at a decision at
    which another one has been promised a start already, in the order in which the dispatcher decides; else it is
    *ready*. Of EASY these are the jobs before the first one that is blocked, that job, and those after it.
    """

    def __init__(self, rule: Any) -> None:
        self._rule, self.needs_estimates = rule, getattr(rule, "needs_estimates", False)
        self._promised: set[JobKey] = set()
        self.modes: dict[JobKey, str] = {}

    def decide(self, view: Any) -> Sequence[DispatchDecision]:
        decisions, blocked = list(self._rule.decide(view)), False
        for each in decisions:
            if isinstance(each, Reserve):
                self._promised.add(each.job)
                blocked = True
            elif isinstance(each, Start):
                late = BACKFILLED if blocked else READY
                self.modes[each.job] = RESERVED if each.job in self._promised else late
        return decisions


COMPARED = ("easy", "binpacking", "random", "knapsack")
"""The paper's methods that need no training: FCFS with EASY backfilling, BinPacking, Random and Optimization."""
Strings = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class ComparedJobs:
    """The jobs that ran under all dispatchers: submission and run time [s], and cores; shape (n,) each."""

    submit: Floats
    run: Floats
    cores: Ints

    def weeks(self) -> tuple[Ints, Floats]:
        """The week in which each was submitted, shape (n,), and the core-hours submitted in each week, (weeks,)."""
        week: Ints = np.floor((self.submit - self.submit.min()) / WEEK).astype(np.int64)
        hours: Floats = np.bincount(week, weights=self.run * self.cores / HOUR).astype(np.float64)
        return week, hours


@dataclass(frozen=True, eq=False)
class DispatcherOutcome:
    """What became of them under one dispatcher.

    Parameters
    ----------
    numbers
        What `asa.lab.metrics.schedule.summarise` says.
    wait
        Of each job [s], shape (n,).
    mode
        Of each job, one of `MODES`, shape (n,).
    """

    dispatcher: str
    numbers: dict[str, Any]
    wait: Floats
    mode: Strings

    def means(self, jobs: ComparedJobs) -> dict[str, tuple[float, float, float]]:
        """Of each mode: share of the jobs, share of their core-seconds, and mean wait [s] (0 where there is none)."""
        work, found = jobs.run * jobs.cores, {}
        for mode in MODES:
            mine = self.mode == mode
            mean = float(self.wait[mine].mean()) if mine.any() else 0.0
            found[mode] = (float(mine.mean()), float(work[mine].sum() / work.sum()), mean)
        return found


@dataclass(frozen=True, eq=False)
class Compared:
    """Dispatchers side by side: what was simulated, its jobs, and what became of them."""

    case: str
    jobs: ComparedJobs
    outcomes: tuple[DispatcherOutcome, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able; waits to the second, and modes as their first letters."""
        jobs = self.jobs
        columns = {"submit_s": jobs.submit.tolist(), "run_s": jobs.run.tolist(), "cores": jobs.cores.tolist()}
        rows = [
            {
                **each.numbers,
                "dispatcher": each.dispatcher,
                "wait_s": np.round(each.wait).tolist(),
                "modes": "".join(_LETTERS[mode] for mode in each.mode.tolist()),
            }
            for each in self.outcomes
        ]
        return {"case": self.case, "jobs": columns, "rows": rows}


_LETTERS = {"ready": "s", "reserved": "r", "backfilled": "b"}
_NAMES = {letter: mode for mode, letter in _LETTERS.items()}


def compared(
    *,
    trace: str | None = None,
    from_day: float = 0.0,
    to_day: float = float("inf"),
    dispatchers: Sequence[str] | None = None,
    seed: int = 0,
) -> Compared:
    """Simulate a log under each dispatcher."""
    if trace is None:
        raise InvalidInput("DRAS is compared on a log: give --trace, or --from with what was measured before")
    what = log_case(trace, from_day=from_day, to_day=to_day, seed=seed)
    specs = tuple(dict.fromkeys(dispatchers or COMPARED))
    return side_by_side(what, {spec: DISPATCHERS.create(spec, seed=seed) for spec in specs})


def side_by_side(what: LogCase, dispatchers: dict[str, Any]) -> Compared:
    """The same of any case, and dispatchers by name."""
    schedules, modes = {}, {}
    for spec, rule in dispatchers.items():
        watched = ModeRecorder(rule)
        schedules[spec] = simulate(what.workload, what.cluster, watched)
        modes[spec] = np.array([watched.modes.get(row, "") for row in range(len(what.workload))])
    ran = np.logical_and.reduce([schedule.ran for schedule in schedules.values()])
    if not ran.any():
        raise InvalidInput(f"{what.name}: no job ran under all dispatchers")
    one = next(iter(schedules.values()))
    jobs = ComparedJobs(what.workload.submit[ran], (one.end - one.start)[ran], what.workload.cores[ran])
    outcomes = [
        DispatcherOutcome(spec, summarise(schedule), schedule.wait[ran], modes[spec][ran])
        for spec, schedule in schedules.items()
    ]
    return Compared(what.name, jobs, tuple(outcomes))


def read_compared(path: str | Path) -> Compared:
    """What ``asa figure dras-6`` (or any of 7 to 9, or table4) wrote with ``--json``.

    Raises
    ------
    InvalidInput
        When it cannot be read, or is something else.
    """
    try:
        found = json.loads(Path(path).read_text())
        columns = found["jobs"]
        jobs = ComparedJobs(
            np.array(columns["submit_s"], float), np.array(columns["run_s"], float), np.array(columns["cores"])
        )
        outcomes = tuple(_outcome(dict(row)) for row in found["rows"])
        if not outcomes or any(len(each.wait) != len(jobs.submit) for each in outcomes):
            raise ValueError("rows that do not fit the jobs, or none")
        return Compared(found["case"], jobs, outcomes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not what asa figure dras-6 --json writes: {error!r}") from error


def _outcome(row: dict[str, Any]) -> DispatcherOutcome:
    wait, modes = np.array(row.pop("wait_s"), float), np.array([_NAMES[letter] for letter in row.pop("modes")])
    return DispatcherOutcome(row["dispatcher"], row, wait, modes)


_ACROSS = 3


def draw_kiviat(found: Compared, path: str | Path) -> None:
    """Figure 6, with the numbers behind it; the graph itself is the simulator's own."""
    save_comparison([{**each.numbers, "dispatcher": each.dispatcher} for each in found.outcomes], path)


def draw_sizes(found: Compared, path: str | Path) -> None:
    """Figure 7: a chart for each dispatcher, a point for each job; colours are modes. All have the same axes."""
    rows = -(-len(found.outcomes) // _ACROSS)
    figure = new_figure(WIDTH_IN, 0.6 + 1.9 * rows)
    made = charts(figure, rows, _ACROSS, sharex=True, sharey=True)
    for axes, each in zip(made, found.outcomes, strict=False):
        for place, mode in enumerate(MODES):
            mine = each.mode == mode
            axes.plot(
                found.jobs.cores[mine], each.wait[mine] / DAY, ".", markersize=2, color=series_colour(place),
                alpha=0.5, label=mode, linestyle="none",
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        heading(axes, shortened(each.dispatcher, 30))
    for place, axes in enumerate(made):
        axes.set_visible(place < len(found.outcomes))
        axes.tick_params(labelbottom=place + _ACROSS >= len(found.outcomes))  # of the lowest chart of each column
    figure.supxlabel("job size [cores]", fontsize=LABEL_PT)
    figure.supylabel("wait [d]", fontsize=LABEL_PT)
    legend_above(figure, made[0].get_legend_handles_labels()[0], markerscale=4)
    save_figure(figure, path)


def draw_modes(found: Compared, path: str | Path) -> None:
    """Figure 8: mean wait of each mode, a bar for each dispatcher."""
    means = [each.means(found.jobs) for each in found.outcomes]
    _grouped(found, path, {"mean wait [h]": [[mean[mode][2] / HOUR for mode in MODES] for mean in means]})


def draw_shares(found: Compared, path: str | Path) -> None:
    """Table IV: shares of jobs and of core-hours."""
    means = [each.means(found.jobs) for each in found.outcomes]
    shares = {
        "jobs [%]": [[100 * mean[mode][0] for mode in MODES] for mean in means],
        "core-hours [%]": [[100 * mean[mode][1] for mode in MODES] for mean in means],
    }
    _grouped(found, path, shares)


def draw_weeks(found: Compared, path: str | Path) -> None:
    """Figure 9: core-hours submitted above, mean waits below, week by week."""
    figure = new_figure(WIDTH_IN, 4.2)
    above, below = charts(figure, 2, sharex=True, height_ratios=[1, 2])
    week, hours = found.jobs.weeks()
    there = np.flatnonzero(np.bincount(week))
    above.bar(there, hours[there] / 1e3, color=BUSY)
    above.set_ylabel("submitted\n[1000 core-hours]")
    for place, each in enumerate(found.outcomes):
        waits = [each.wait[week == one].mean() / HOUR for one in there]
        draw_curve(below, place, NamedCurve(shortened(each.dispatcher, 40), there.tolist(), waits))
    below.set_ylabel("mean wait [h]")
    below.set_xlabel("week")
    below.locator_params(axis="x", integer=True)
    legend_above(figure, below.get_legend_handles_labels()[0])
    save_figure(figure, path)


def _grouped(found: Compared, path: str | Path, shown: dict[str, list[list[float]]]) -> None:
    """Charts of bars, grouped by mode, one for each dispatcher in each group."""
    figure = new_figure(WIDTH_IN, 2.8)
    width = 0.8 / len(found.outcomes)
    for axes, (title, heights) in zip(charts(figure, 1, len(shown), grid="y"), shown.items(), strict=True):
        for place, (each, mine) in enumerate(zip(found.outcomes, heights, strict=True)):
            at = np.arange(len(MODES)) + (place - (len(found.outcomes) - 1) / 2) * width
            axes.bar(at, mine, width, color=series_colour(place), label=shortened(each.dispatcher, 40))
        axes.set_xticks(range(len(MODES)), MODES)
        axes.set_ylabel(title)
    legend_above(figure, axes.get_legend_handles_labels()[0])
    save_figure(figure, path)


def dras_6(*, source: str | None = None, **options: Any) -> Figure:
    """Figure 6: a Kiviat graph of all metrics; takes what `asa.lab.dras_paper.figures.compared` takes."""
    return Figure(_found(source, options), overall, draw_kiviat)


def dras_7(*, source: str | None = None, **options: Any) -> Figure:
    """Figure 7: waits by job size and mode, where starvation shows; takes what `dras_6` takes."""
    return Figure(_found(source, options), by_size, draw_sizes)


def dras_8(*, source: str | None = None, **options: Any) -> Figure:
    """Figure 8: mean waits by mode; takes what `dras_6` takes."""
    return Figure(_found(source, options), by_mode, draw_modes)


def dras_9(*, source: str | None = None, **options: Any) -> Figure:
    """Figure 9: load and mean wait, week by week; takes what `dras_6` takes."""
    return Figure(_found(source, options), by_week, draw_weeks)


def dras_table4(*, source: str | None = None, **options: Any) -> Figure:
    """Table IV: shares of jobs and core-hours by mode; takes what `dras_6` takes."""
    return Figure(_found(source, options), by_mode, draw_shares)


def _found(source: str | None, options: Any) -> Compared:
    return compared(**options) if source is None else read_compared(source)


def overall(found: Compared) -> list[dict[str, Any]]:
    """Figure 6: the numbers themselves."""
    return [
        {
            "dispatcher": each.dispatcher,
            "jobs": len(each.wait),
            "mean wait [h]": each.numbers["mean_wait_s"] / HOUR,
            "longest [d]": each.numbers["max_wait_s"] / DAY,
            "bounded slowdown": each.numbers["mean_bounded_slowdown"],
            "turnaround [h]": each.numbers["mean_turnaround_s"] / HOUR,
            "utilisation [%]": 100 * each.numbers["utilisation"],
        }
        for each in found.outcomes
    ]


def by_size(found: Compared) -> list[dict[str, Any]]:
    """Figure 7: mean and longest wait of each class of sizes."""
    bounds = size_classes(int(found.jobs.cores.max()))
    rows = []
    for each in found.outcomes:
        for name, spread in zip(class_names(bounds), by_class(each.wait, found.jobs.cores, bounds), strict=True):
            if spread.count:
                rows.append(
                    {
                        "dispatcher": each.dispatcher,
                        "cores": name,
                        "jobs": spread.count,
                        "mean wait [h]": spread.mean / HOUR,
                        "longest [d]": spread.max / DAY,
                    }
                )
    return rows


def by_mode(found: Compared) -> list[dict[str, Any]]:
    """Table IV and Figure 8: shares of jobs and of core-hours, and mean wait, of each mode."""
    rows = []
    for each in found.outcomes:
        means = each.means(found.jobs)
        row: dict[str, Any] = {"dispatcher": each.dispatcher}
        for mode in MODES:
            jobs, hours, wait = means[mode]
            row |= {f"{mode} [% jobs]": 100 * jobs, f"{mode} [% hours]": 100 * hours, f"{mode} wait [h]": wait / HOUR}
        rows.append(row)
    return rows


def by_week(found: Compared) -> list[dict[str, Any]]:
    """Figure 9: core-hours submitted, and the mean wait under each dispatcher [h], week by week."""
    week, hours = found.jobs.weeks()
    counts = np.bincount(week)
    rows = []
    for number in np.flatnonzero(counts).tolist():
        row: dict[str, Any] = {"week": number, "jobs": int(counts[number]), "core-hours": float(hours[number])}
        for each in found.outcomes:
            row[f"{each.dispatcher} [h]"] = float(each.wait[week == number].mean()) / HOUR
        rows.append(row)
    return rows


LAST = 10
"""Episodes over which a row tells the mean of the end."""


@dataclass(frozen=True)
class Training:
    """A training."""

    training: str
    plan: Mapping[str, Any]
    curve: Sequence[EpisodePoint]


def dras_4(*, source: str | None = None, seed: int = 0) -> Figure:
    """Figure 4: the same learner with the phases in several orders.

    Parameters
    ----------
    source
        What ``asa train dras --json`` wrote, several files with commas between them.
    """
    return _figure(source, lambda plan: ", ".join(plan["order"]))


def dras_5(*, source: str | None = None, seed: int = 0) -> Figure:
    """Figure 5: several learners; takes what `dras_4` takes. Rewards can be compared where they are of one kind."""
    return _figure(source, "{0[kind]}, {0[objective]}, seed {0[seed]}".format)


def trainings_table(rows: Sequence[Training]) -> list[dict[str, Any]]:
    """A line for each training."""
    lines = []
    for each in rows:
        rewards = [point.validation_reward for point in each.curve]
        best = each.curve[int(np.argmax(rewards))]
        lines.append(
            {
                "training": each.training,
                "episodes": len(each.curve),
                "first reward": rewards[0],
                f"mean of the last {LAST}": float(np.mean(rewards[-LAST:])),
                "best": best.validation_reward,
                "of episode": best.episode,
                "its mean wait [s]": best.mean_wait_s,
                "CPU [s]": sum(point.cpu_s for point in each.curve),
            }
        )
    return lines


def draw_trainings(rows: Sequence[Training], path: str | Path) -> None:
    """Draw the rewards on the validation jobs over episodes."""
    draw_curves({each.training: each.curve for each in rows}, path)


def _figure(source: str | None, name: Callable[[Any], str]) -> Figure:
    if not source:
        raise InvalidInput("trainings take long: train with asa train dras --json, and give these files with --from")
    found: dict[str, Training] = {}
    for path in source.split(","):
        each = _read(path.strip(), name)
        if each.training in found:
            each = replace(each, training=f"{each.training} ({Path(path).stem})")
        found[each.training] = each
    return Figure(list(found.values()), trainings_table, draw_trainings)


def _read(path: str, name: Callable[[Any], str]) -> Training:
    try:
        kept = json.loads(Path(path).read_text())
        curve = [EpisodePoint(**point) for point in kept["curve"]]
        if not curve:
            raise ValueError("no episode")
        return Training(name(kept["plan"]), kept["plan"], curve)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not what asa train dras --json writes: {error!r}") from error
