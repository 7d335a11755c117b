"""A table of replayed waits as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from asa.core.command import table
from asa.lab.studies.interval import LEVEL

if TYPE_CHECKING:
    from asa.lab.studies.replay_table import Row, Table

_COLUMNS = {
    "mae_h": "MAE [h]", "log10_error": "log10", "within_one": "within one", "not_over": "not over",
    "late_h": "late [h]", "early_h": "early [h]", "regret": "regret",
}  # fmt: skip

_LEGEND = f"""\
MAE: mean distance of prediction and wait, which is late and early together; /last: over that of the last wait,
[{100 * LEVEL:.0f} % interval, bootstrap over stretches of the log]; log10: mean distance of the logarithms; within one:
at most one alternative of the grid off; not over: at most a minute above the wait; regret: loss beyond the best
alternative in hindsight; under: share of the waits not above what was predicted for each quantile, - for estimators
that do not heed quantiles; us: time of a prediction and of learning"""


def in_words(found: Table) -> str:
    """A table for each log, and one over all."""
    traces = list(dict.fromkeys(row.trace for row in found.rows))
    parts = []
    for trace in traces:
        rows = [row for row in found.rows if row.trace == trace]
        sizes = rows[0].errors.shape[1]
        heading = f"{trace}: {rows[0].seeds[0].jobs} jobs, means over {sizes} {'size' if sizes == 1 else 'sizes'}"
        parts.append(f"{heading}\n{table(lines(rows, found.quantiles), 'nothing')}")
    if len(traces) > 1:
        overall = [{"estimator": name, "MAE/last": str(value)} for name, value in found.overall.items()]
        parts.append(f"geometric mean over {len(traces)} logs\n{table(overall, 'nothing')}")
    return "\n\n".join([*parts, _LEGEND])


def lines(rows: Sequence[Row], quantiles: Sequence[float]) -> list[dict[str, Any]]:
    """What is shown of each row, by heading."""
    return [
        {"estimator": row.estimator, "/last": str(row.relative)}
        | {heading: f"{row.mean(name):.3f}" for name, heading in _COLUMNS.items()}
        | {f"under {q:g}": _share(row.means("calibration"), place) for place, q in enumerate(quantiles)}
        | {"us": round(row.step_us)}
        for row in rows
    ]


def _share(shares: Sequence[float] | None, place: int) -> str:
    return "-" if shares is None else f"{shares[place]:.2f}"
