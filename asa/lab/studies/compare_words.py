"""A comparison's tables as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from asa.core.command import table
from asa.lab.studies.compare_row import METRICS
from asa.lab.studies.interval import LEVEL, Estimate
from asa.lab.studies.table2 import DAYS, PAPER

HEADINGS = {"total_wait_s": "total wait [s]", "makespan_s": "makespan [s]", "core_hours": "core-hours"}

_MORE = {"overhead_core_hours": "overhead [core-h]", "misses": "misses", "outstanding": "in queue"}

_TABLE2 = {
    "real_h": "WT [h]", "predicted_h": "predicted [h]", "perceived_h": "PWT [h]", "hit": "hit", "miss": "miss",
    "overhead_core_hours": "OH [core-h]", "idle_core_hours": "idle [core-h]", "hit_exact": "exact",
    "within_one": "within one", "not_over": "not over", "mae_h": "MAE [h]", "regret": "regret",
}  # fmt: skip

_PROTOCOLS = {PAPER: "the paper's protocol (60 jobs, a minute apart)", DAYS: "over days, so that feedback arrives"}

_LEGEND = """\
WT: real wait; PWT: what is left of it after the predicted lead; miss: came so much too early that it is given back;
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
        parts.append(_judged(table2))
        parts.append(_LEGEND)
    return "\n\n".join(parts)


def _seeds(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"{seeds} seeds [{100 * LEVEL:.0f} % interval, bootstrap over seeds]"


def _runs(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        {"workflow": row["workflow"], "cores": row["cores"], "strategy": row["strategy"]}
        | {heading: str(row[name]) for name, heading in {**HEADINGS, **_MORE}.items()}
        for row in rows
    ]
    return table(lines, "nothing was run")


def _normalised(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        {"workflow": row["workflow"], "strategy": row["strategy"]}
        | {HEADINGS[name].partition(" [")[0]: _percent(row[name]) for name in METRICS}
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
    return _percent(found) if metric == "core_hours" else str(found)


def _judged(rows: Sequence[Mapping[str, Any]]) -> str:
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


def _percent(found: Estimate) -> str:
    """How far above 1, as the paper prints it."""
    if not math.isfinite(found.value):
        return "-"
    value, low, high = (
        None if part is None else f"{100 * (part - 1):+.1f}".replace("-0.0", "+0.0")
        for part in (found.value, found.low, found.high)
    )
    return f"{value} %" if low is None or low == value == high else f"{value} % [{low}, {high}]"
