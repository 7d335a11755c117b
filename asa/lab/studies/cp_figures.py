"""``asa figure cp-times``, ``cp-quality`` and ``cp-ratios``: tables and figures of the CP dispatching paper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from asa.core.errors import InvalidInput
from asa.lab.studies.cp_case import case
from asa.lab.studies.cp_loop import PREDICTORS_SHOWN, LoopRow, loop
from asa.lab.studies.cp_picture import draw_quality, draw_ratios, draw_times
from asa.lab.studies.cp_saved import SavedRow, on_saved, ratios, sampled
from asa.lab.studies.figure import Figure, read_rows

PAPER = ("pcp20", "pcp19", "hcp19")
"""The paper's dispatchers."""

BESIDE = ("listplan", "listplan:scheme=non-delay", "easy:order=sjf")
"""What stands beside them; the first two plan whole queues as well."""


def cp_times(*, source: str | None = None, **options: Any) -> Figure:
    """Tables 1 and 2: how long decisions take; takes what `measured_loop` takes.

    Parameters
    ----------
    source
        What ``asa figure cp-times`` or ``cp-quality`` wrote with ``--json``; its rows are shown, and nothing is run.
    """
    return Figure(_loop_rows(source, options), times_table, draw_times)


def cp_quality(*, source: str | None = None, **options: Any) -> Figure:
    """Figures 4 and 5: slowdown and wait, with their deviation; takes what `cp_times` takes."""
    return Figure(_loop_rows(source, options), quality_table, draw_quality)


def cp_ratios(*, source: str | None = None, **options: Any) -> Figure:
    """Figures 6 and 7: variables and time, the first dispatcher's over the second's; takes what `measured_saved` takes.

    Parameters
    ----------
    source
        What ``asa figure cp-ratios`` wrote with ``--json``; its rows are shown, and nothing is run.
    """
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
) -> list[LoopRow]:
    """Dispatchers in a closed loop.

    Parameters
    ----------
    dispatchers, predictors
        Specs; by default the paper's dispatchers with some beside them, and the paper's predictors.
    trace, from_day, to_day, seed
        As of `asa.lab.studies.cp_case.case`.
    dispatch_time
        As of `asa.lab.simulator.run.simulate`.
    """
    what = case(trace, from_day=from_day, to_day=to_day, seed=seed)
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
    """Planners on saved decisions; see `measured_loop`.

    Parameters
    ----------
    decisions
        How many; all where there are no more.
    time_limit
        For each plan [s].
    """
    what = case(trace, from_day=from_day, to_day=to_day, seed=seed)
    chosen = dispatchers or (*PAPER, *BESIDE[:2])
    return on_saved(sampled(what, decisions, seed), chosen, time_limit)


def _loop_rows(source: str | None, options: Any) -> list[LoopRow]:
    return measured_loop(**options) if source is None else read_rows(source, LoopRow)


def times_table(rows: Sequence[LoopRow]) -> list[dict[str, Any]]:
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


def quality_table(rows: Sequence[LoopRow]) -> list[dict[str, Any]]:
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
