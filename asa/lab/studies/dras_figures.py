"""``asa figure dras-6`` to ``dras-9`` and ``dras-table4``: dispatchers side by side, as in DRAS's paper.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section V.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asa.core.units import DAY, HOUR
from asa.lab.metrics.job import by_class, class_names, size_classes
from asa.lab.studies.dras_case import Compared, DrasFigure, compared, read_compared
from asa.lab.studies.dras_modes import MODES
from asa.lab.studies.dras_picture import draw_kiviat, draw_modes, draw_shares, draw_sizes, draw_weeks


def dras_6(*, source: str | None = None, **options: Any) -> DrasFigure:
    """Figure 6: a Kiviat graph of all metrics; takes what `asa.lab.studies.dras_case.compared` takes.

    Parameters
    ----------
    source
        What this or another one of these figures wrote with ``--json``; it is shown, and nothing is run.
    """
    return DrasFigure(_found(source, options), overall, draw_kiviat)


def dras_7(*, source: str | None = None, **options: Any) -> DrasFigure:
    """Figure 7: waits by job size and mode, where starvation shows; takes what `dras_6` takes."""
    return DrasFigure(_found(source, options), by_size, draw_sizes)


def dras_8(*, source: str | None = None, **options: Any) -> DrasFigure:
    """Figure 8: mean waits by mode; takes what `dras_6` takes."""
    return DrasFigure(_found(source, options), by_mode, draw_modes)


def dras_9(*, source: str | None = None, **options: Any) -> DrasFigure:
    """Figure 9: load and mean wait, week by week; takes what `dras_6` takes."""
    return DrasFigure(_found(source, options), by_week, draw_weeks)


def dras_table4(*, source: str | None = None, **options: Any) -> DrasFigure:
    """Table IV: shares of jobs and core-hours by mode; takes what `dras_6` takes."""
    return DrasFigure(_found(source, options), by_mode, draw_shares)


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
