"""``asa figure tjap-5``, ``tjap-6``, ``tjap-table3``, ``tjap-table4`` and ``tjap-loop``: placements side by side.

In the closed loop each dispatcher has a cluster of its own. Which jobs start when is the same for all that look at
windows of one length, for that depends only on how many nodes are idle. So what differs is where jobs are.

References
----------
Z. Lan et al., tables III and IV; the figures behind figure 6 are files ``simanneal/comm_wait_cost_*.txt`` of
github.com/lzk23/hpcschedule, here as means over their ten epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS, parse_spec, with_options
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Workload
from asa.lab.nsa_paper.windows import (
    GEOMETRIES,
    MOST,
    PERIOD_S,
    PERIODS,
    NetworkGeometry,
    alone,
    costs,
    epochs,
    machine,
    moved,
    recorded,
    workload,
)
from asa.lab.placement.tjap.instance import Window, cost
from asa.lab.placement.tjap.nsa import MODEL
from asa.lab.simulator.run import simulate
from asa.lab.study import Estimate, Figure, TimedDispatcher, clocked, estimate, reaches, read_rows
from asa.report.picture import (
    BUSY,
    LINE,
    WIDTH_IN,
    charts,
    heading,
    legend_above,
    marker,
    new_figure,
    save_figure,
    series_colour,
)

TABLES: dict[str, tuple[float, float | None]] = {
    "seq": (105_023.5, None),
    "sa:as_published=yes,iterations=500": (91_813.2, 0.76),
    "sa:as_published=yes,iterations=1000": (90_809.7, 1.55),
    "nsa": (89_588.7, 1.54),
    "scas": (83_092.3, 18.96),
}
"""Placement method: cost by period, and time for a window [s]; means of ten epochs. SCAS was solved by SCIP."""

FIGURE_6: dict[str, tuple[float, float]] = {
    "fcfs": (34_902.4, 165.4),
    "easy": (34_892.5, 163.3),
    "nwp 10 s": (31_351.9, 185.6),
    "nwp 20 s": (31_255.5, 198.1),
    "nwp 30 s": (31_011.1, 211.7),
    "nwp 40 s": (30_845.6, 225.6),
    "nwp 50 s": (30_679.9, 244.7),
    "nwp 60 s": (30_598.5, 259.2),
}
"""Dispatcher and window: cost of a job, and its wait [s]; windows with the paper's neural method."""


Ran = tuple[Schedule, list[float]]
"""A schedule, and how long each decision took that started jobs [s]."""

ALONE = "alone"
"""Not a dispatcher: every job placed as on an empty machine. Nothing can cost less."""


@dataclass(frozen=True)
class EpochRow:
    """A dispatcher in one epoch.

    Parameters
    ----------
    epoch, jobs
        The epoch's number, and how many jobs have started in it.
    cost
        What these pay for hops, in sum, by the epoch's number of periods.
    job_cost, wait_s
        Means over jobs: cost, and wait [s].
    decisions, mean_s, max_s
        Decisions that start jobs, and how long one takes [s], compilation excluded; 0 for `ALONE`.
    """

    dispatcher: str
    geometry: str
    epoch: int
    jobs: int
    cost: float
    job_cost: float
    wait_s: float
    decisions: int
    mean_s: float
    max_s: float


def in_windows(dispatcher: str, geometry: NetworkGeometry, window: float = PERIOD_S) -> str:
    """The spec with what belongs to the case: the network and, for nwp, windows and how many jobs they take."""
    if dispatcher.partition(":")[0] != "nwp":
        return dispatcher
    return with_options(dispatcher, window=window, most=MOST, topology=geometry.widths, hops=geometry.hops)


def loop(
    jobs: Iterable[Workload],
    dispatchers: Sequence[str],
    geometry: NetworkGeometry,
    *,
    periods: int = PERIODS,
) -> list[EpochRow]:
    """Simulate each epoch under each dispatcher; rows of `ALONE` first."""
    all_jobs = list(jobs)
    rows: list[EpochRow] = []
    for place, dispatcher in enumerate(dispatchers):
        spec, until = in_windows(dispatcher, geometry), periods * PERIOD_S
        for epoch, each in enumerate(all_jobs):
            ran = run(spec, each, warm=epoch == 0)
            if place == 0:
                rows.append(row(ALONE, geometry, epoch, (ran[0], []), until))
            rows.append(row(dispatcher, geometry, epoch, ran, until))
    return sorted(rows, key=lambda each: each.dispatcher != ALONE)


def run(dispatcher: Any, jobs: Workload, *, warm: bool) -> Ran:
    """Simulate one dispatcher; with `warm` twice, so that what is compiled is compiled before."""
    if warm:
        simulate(jobs, machine(), DISPATCHERS.create(dispatcher))
    timed = TimedDispatcher(DISPATCHERS.create(dispatcher))
    schedule = simulate(jobs, machine(), timed)
    return schedule, [each.seconds for each in timed.timings if each.decided]


def row(name: str, geometry: NetworkGeometry, epoch: int, ran: Ran, until: float | None = None) -> EpochRow:
    """What an epoch comes to, of jobs that start until then [s]; None: of all."""
    schedule, seconds = ran
    until = float(np.nanmax(schedule.start)) if until is None else until
    counted = schedule.start <= until
    paid = alone(geometry)[schedule.workload.cores] if name == ALONE else costs(schedule, geometry)
    return EpochRow(
        dispatcher=name,
        geometry=geometry.name,
        epoch=epoch,
        jobs=int(counted.sum()),
        cost=float(paid[counted].sum() / (until / PERIOD_S)),
        job_cost=float(paid[counted].mean()),
        wait_s=float(schedule.wait[counted].mean()),
        decisions=len(seconds),
        mean_s=float(np.mean(seconds)) if seconds else 0.0,
        max_s=float(max(seconds, default=0.0)),
    )


DRIVER = "scas"
"""Whose placements the clusters have. The paper says that of its neural method; its authors' code (``test`` of
``simanneal/test_sa.py``) takes what SCIP has found within 30 s where that is better, which it mostly is."""


@dataclass(frozen=True)
class WindowsRow:
    """A method on the windows of one epoch.

    Parameters
    ----------
    windows
        How many there are; the epoch's other periods have no jobs of several nodes.
    mean_s, max_s
        How long a window takes [s], compilation excluded.
    """

    method: str
    epoch: int
    windows: int
    cost: float
    mean_s: float
    max_s: float


def on_windows(epochs: Iterable[Sequence[Window]], methods: Sequence[str], periods: int = PERIODS) -> list[WindowsRow]:
    """Every method on all windows of each epoch."""
    made = {spec: PLACEMENT_METHODS.create(spec) for spec in methods}
    rows, cold = [], {*made}
    for epoch, windows in enumerate(epochs):
        for spec, method in made.items():
            if windows and spec in cold:
                cold.remove(spec)
                for window in windows:  # what is compiled differs from window to window
                    method.place(window)
            paid, seconds = 0.0, [0.0] * len(windows)
            for place, window in enumerate(windows):
                found, seconds[place], _ = clocked(method.place, window)
                paid += cost(window, found)
            mean, most = (sum(seconds) / len(windows), max(seconds)) if windows else (0.0, 0.0)
            rows.append(WindowsRow(spec, epoch, len(windows), paid / periods, mean, most))
    return rows


STEPS = (500, 600, 700, 800, 900, 1000)
"""Iterations of the neural method in figure 5; plain annealing has twice as many."""

CHANGE, PUBLISHED = "change [%]", "published [%]"
"""Columns that pictures show: an `Estimate`, and a number or None."""
CORRECTED = "against corrected sa [%]"
"""Another: the change against annealing that takes rejected moves back."""

Rows = Sequence[Any]


def plain(steps: int) -> tuple[str, str]:
    """What figure 5 compares so many iterations with: annealing of twice as many, as published, and corrected."""
    return f"sa:as_published=yes,iterations={2 * steps}", f"sa:iterations={2 * steps}"


def neural(steps: int, model: str | None = None) -> str:
    """The neural method with so many iterations and this network; None: the installed one, `MODEL`."""
    return with_options("nsa", iterations=steps, model=model)


def by_name(rows: Rows, name: str, value: str) -> dict[str, Floats]:
    """A column of the rows of each dispatcher or method, by epoch."""
    found: dict[str, list[float]] = {}
    for each in rows:
        found.setdefault(getattr(each, name), []).append(getattr(each, value))
    return {key: np.array(values) for key, values in found.items()}


def change(mine: Floats, other: Floats) -> Estimate:
    """How much more than `other` this is, in sum over epochs [%], with an interval over pairs of epochs."""

    def in_percent(values: Floats) -> Floats:
        sums = values.sum(axis=-2)
        found: Floats = 100 * (sums[..., 0] / sums[..., 1] - 1)
        return found

    return estimate(in_percent, np.column_stack([mine, other]))


def loop_table(rows: Rows) -> list[dict[str, Any]]:
    """The closed loop: against the first dispatcher, and how far above what jobs cost alone."""
    lines = []
    for geometry in dict.fromkeys(each.geometry for each in rows):
        here = [each for each in rows if each.geometry == geometry]
        cost, mean, most = (by_name(here, "dispatcher", what) for what in ("cost", "mean_s", "max_s"))
        first = next(name for name in cost if name != ALONE)
        lines += [
            {
                "geometry": geometry,
                "dispatcher": name,
                "cost": round(float(paid.mean())),
                CHANGE: change(paid, cost[first]),
                "above alone [%]": 100 * (paid.sum() / cost[ALONE].sum() - 1),
                "mean [ms]": 1e3 * mean[name].mean(),
                "most [ms]": 1e3 * most[name].max(),
            }
            for name, paid in cost.items()
        ]
    return lines


def table_6(rows: Rows) -> list[dict[str, Any]]:
    """Figure 6."""
    cost, wait = (by_name(rows, "dispatcher", what) for what in ("job_cost", "wait_s"))
    return [
        {
            "dispatcher": name,
            "cost of a job": round(float(paid.mean())),
            CHANGE: change(paid, cost["fcfs"]),
            "published": round(FIGURE_6[name][0]),
            PUBLISHED: 100 * (FIGURE_6[name][0] / FIGURE_6["fcfs"][0] - 1),
            "wait [s]": wait[name].mean(),
            "published [s]": FIGURE_6[name][1],
        }
        for name, paid in cost.items()
    ]


def windows_table(rows: Rows) -> list[dict[str, Any]]:
    """Tables III and IV: beside what was published."""
    cost, mean, most = (by_name(rows, "method", what) for what in ("cost", "mean_s", "max_s"))
    first = next(iter(cost))
    lines = []
    for name, paid in cost.items():
        published, seconds = TABLES.get(name, (None, None))
        lines.append(
            {
                "method": name,
                "cost": round(float(paid.mean())),
                CHANGE: change(paid, cost[first]),
                "published": published and round(published),
                PUBLISHED: published and 100 * (published / TABLES[first][0] - 1),
                "mean [ms]": 1e3 * mean[name].mean(),
                "most [ms]": 1e3 * most[name].max(),
                "published [ms]": seconds and 1e3 * seconds,
            }
        )
    return lines


def gain_table(rows: Rows) -> list[dict[str, Any]]:
    """Figure 5: each network with each number of iterations."""
    cost, mean = (by_name(rows, "method", what) for what in ("cost", "mean_s"))
    lines = []
    for name in cost:
        method, options = parse_spec(name)
        if method != "nsa":
            continue
        steps = options["iterations"]
        published, corrected = plain(steps)
        lines.append(
            {
                "network": Path(str(options.get("model", MODEL))).stem,
                "iterations": steps,
                "of sa": 2 * steps,
                CHANGE: change(cost[name], cost[published]),
                CORRECTED: change(cost[name], cost[corrected]),
                "windows": sum(each.windows for each in rows if each.method == name),
                "mean [ms]": 1e3 * mean[name].mean(),
                "sa [ms]": 1e3 * mean[corrected].mean(),
            }
        )
    return lines


def draw_change(rows: Sequence[Any], path: str | Path) -> None:
    """Draw the closed loop, or tables III and IV: how much less than the first one all cost, with intervals."""
    is_loop = hasattr(rows[0], "geometry")
    lines = loop_table(rows) if is_loop else windows_table(rows)
    groups = list(dict.fromkeys(line.get("geometry", "") for line in lines))
    names = list(dict.fromkeys(line["dispatcher" if is_loop else "method"] for line in lines))
    figure = new_figure(WIDTH_IN, 0.9 + 0.24 * len(names))
    made = charts(figure, 1, len(groups), sharey=True)
    for axes, group in zip(made, groups, strict=True):
        here = [line for line in lines if line.get("geometry", "") == group]
        found = [line[CHANGE] for line in here]
        style = {"elinewidth": 0.7, "capsize": 1.5}
        middle = [each.value for each in found]
        axes.barh(range(len(here)), middle, 0.7, xerr=reaches(found), color=BUSY, error_kw=style)
        if known := [(line[PUBLISHED], at) for at, line in enumerate(here) if line.get(PUBLISHED) is not None]:
            axes.plot(*zip(*known, strict=True), "D", color=LINE, markersize=4, label="published", clip_on=False)
        axes.set_xlabel(f"cost against {names[1 if is_loop else 0]} [%]")
        axes.set_yticks(range(len(here)), names, parse_math=False)
        heading(axes, group and f"geometry: {group}")
    made[0].invert_yaxis()
    legend_above(figure, made[0].get_legend_handles_labels()[0])
    save_figure(figure, path)


def draw_figure_6(rows: Sequence[Any], path: str | Path) -> None:
    """Draw figure 6: cost and wait of each epoch as boxes, and the means that were published as marks."""
    names = list(dict.fromkeys(row.dispatcher for row in rows))
    figure = new_figure(WIDTH_IN, 2.9)
    made = charts(figure, 1, 2, grid="y")
    for place, (axes, what, title) in enumerate(
        zip(made, ("job_cost", "wait_s"), ("cost of hops of a job", "wait [s]"), strict=True)
    ):
        boxes = [[getattr(row, what) for row in rows if row.dispatcher == name] for name in names]
        axes.boxplot(boxes, widths=0.5, medianprops={"color": series_colour(0)}, flierprops={"markersize": 3})
        published = [FIGURE_6[name][place] for name in names]
        axes.plot(
            range(1, len(names) + 1), published, "D", color=series_colour(1), markersize=4, label="published mean"
        )
        axes.set_xticks(range(1, len(names) + 1), [name.replace("nwp ", "") for name in names])
        axes.set_xlabel("dispatcher, or window of nwp")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        heading(axes, title)
        axes.set_ylim(bottom=0)
    legend_above(figure, made[0].get_legend_handles_labels()[0])
    save_figure(figure, path)


def draw_gain(rows: Sequence[Any], path: str | Path) -> None:
    """Draw figure 5: the neural method's cost over that of both kinds of plain annealing, a line for each network."""
    lines = gain_table(rows)
    figure = new_figure(WIDTH_IN, 2.8)
    made = charts(figure, 1, 2)
    titles = {CHANGE: "against sa as published", CORRECTED: "against sa that takes moves back"}
    for axes, (column, title) in zip(made, titles.items(), strict=True):
        for place, network in enumerate(dict.fromkeys(line["network"] for line in lines)):
            mine = [line for line in lines if line["network"] == network]
            found = [line[column] for line in mine]
            look: dict[str, Any] = {"color": series_colour(place), "markersize": 3, "linewidth": 1, "label": network}
            at, middle = [line["iterations"] for line in mine], [each.value for each in found]
            axes.errorbar(at, middle, reaches(found), fmt=f"{marker(place)}-", capsize=1.5, elinewidth=0.6, **look)
        axes.axhline(0.0, color=LINE, linewidth=0.6)
        axes.set_xlabel("iterations of nsa; sa has twice as many")
        heading(axes, title)
    made[0].set_ylabel("change of cost [%]")
    legend_above(figure, made[0].get_legend_handles_labels()[0])
    save_figure(figure, path)


SEQ = "nwp:method=seq"
FORESIGHTED = (
    "nwp:method=together,fade=120,leaf=0.1,pod=0.015",
    "nwp:method=together,fade=100,leaf=0.08,pod=0.003",
)
"""With what was found by evolution strategies on other epochs of the authors' workload: one for each geometry."""
LOOP = (
    SEQ,
    "nwp:method=sa,as_published=yes",
    "nwp:method=sa",
    "nwp:method=scas",
    "nwp:method=dcas-alns,iterations=1000",
    "nwp:method=free,iterations=300",
    "nwp:method=free,iterations=100,leaf=0.07,pod=0.007",
    *FORESIGHTED,
)
TABLE_3 = (
    "seq",
    "sa:as_published=yes,iterations=500",
    "sa:as_published=yes,iterations=1000",
    "sa:iterations=500",
    "nsa",
)
TABLE_4 = ("seq", "scas", "nsa", "dcas-alns", "free")
LENGTHS = (10, 20, 30, 40, 50, 60)
"""Windows of figure 6 [s]."""
EPOCHS, JOBS = 10, 300
"""Epochs, and jobs of one in figure 6."""


def tjap_loop(
    *,
    source: str | None = None,
    trace: str | None = None,
    dispatchers: Sequence[str] = LOOP,
    epochs_shown: int = EPOCHS,
    overestimate: float = 1.0,
    seed: int = 0,
) -> Figure:
    """Each dispatcher on clusters of its own, in both geometries, against the first one.

    Parameters
    ----------
    trace
        The authors' workload; None for one that is made up in the same way.
    overestimate
        Requested times are up to so many times the run times, each equally likely; 1: they are the run times. >= 1.
    """
    if source is not None:
        return Figure(read_rows(source, EpochRow), loop_table, draw_change)
    if not overestimate >= 1:
        raise InvalidInput(f"run times overestimated {overestimate:g} times: at least 1 expected")
    jobs = workload(trace, seed=seed)
    factors = np.random.default_rng(seed).uniform(1.0, overestimate, len(jobs))
    chosen = list(epochs(replace(jobs, walltime=jobs.walltime * factors), 0, epochs_shown))
    rows = [each for geometry in GEOMETRIES.values() for each in loop(chosen, dispatchers, geometry)]
    return Figure(rows, loop_table, draw_change)


def tjap_6(
    *,
    source: str | None = None,
    trace: str | None = None,
    method: str = "free:iterations=300",
    epochs_shown: int = EPOCHS,
    seed: int = 0,
) -> Figure:
    """Figure 6: FCFS and EASY backfilling, job by job on the first idle nodes, and windows of 10 to 60 s."""
    if source is not None:
        return Figure(read_rows(source, EpochRow), table_6, draw_figure_6)
    jobs, geometry = workload(trace, seed=seed), GEOMETRIES["code"]
    nwp = f"nwp:method={method.replace(':', ',')}"
    dispatchers = {"fcfs": "fcfs", "easy": "easy"}
    dispatchers |= {f"nwp {length} s": in_windows(nwp, geometry, length) for length in LENGTHS}
    rows = []
    for epoch in range(epochs_shown):
        here = three_hundred(jobs, epoch)
        for name, spec in dispatchers.items():
            rows.append(row(name, geometry, epoch, run(spec, here, warm=epoch == 0)))
    return Figure(rows, table_6, draw_figure_6)


def three_hundred(jobs: Workload, epoch: int) -> Workload:
    """The jobs of an epoch of figure 6, as the authors' code cuts them; see `asa.lab.nsa_paper.windows.epochs`."""
    if len(jobs) < (epoch + 1) * JOBS:
        raise InvalidInput(f"the workload has {len(jobs)} jobs: epoch {epoch} takes those up to {(epoch + 1) * JOBS}")
    here = jobs.take(np.arange(epoch * JOBS, (epoch + 1) * JOBS))
    return moved(here, float(here.submit[0]) - 0.5)


def tjap_table3(**options: Any) -> Figure:
    """Table III: simulated annealing and the neural method; takes what `same_windows` takes."""
    return Figure(same_windows(TABLE_3, **options), windows_table, draw_change)


def tjap_table4(**options: Any) -> Figure:
    """Table IV: the proven best of neighbours, which the paper has SCIP find; takes what `same_windows` takes."""
    return Figure(same_windows(TABLE_4, **options), windows_table, draw_change)


def tjap_5(*, models: Sequence[str] = (), **options: Any) -> Figure:
    """Figure 5: the neural method against plain annealing of twice its iterations; takes what `same_windows` takes.

    Parameters
    ----------
    models
        Files of networks that ``asa train nsa`` wrote, as the paper has six of; none: the installed one, `MODEL`.
    """
    methods = [method for steps in STEPS for method in plain(steps)]
    methods += [neural(steps, model) for model in models or (None,) for steps in STEPS]
    return Figure(same_windows(list(dict.fromkeys(methods)), **options), gain_table, draw_gain)


def same_windows(
    methods: Sequence[str],
    *,
    source: str | None = None,
    trace: str | None = None,
    epochs_shown: int = EPOCHS,
    seed: int = 0,
) -> list[WindowsRow]:
    """Placement methods on the windows of one cluster, in the geometry of the authors' code; see `tjap_loop`."""
    if source is not None:
        return read_rows(source, WindowsRow)
    geometry = GEOMETRIES["code"]
    jobs = epochs(workload(trace, seed=seed), 0, epochs_shown)
    driver = PLACEMENT_METHODS.create(DRIVER)
    return on_windows((recorded(each, geometry, driver) for each in jobs), methods)
