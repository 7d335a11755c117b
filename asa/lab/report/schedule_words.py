"""The numbers of a schedule in words, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from asa.core.command import table
from asa.core.units import brief
from asa.report.words import counted

COMPARED = (
    "mean_wait_s",
    "max_wait_s",
    "mean_bounded_slowdown",
    "max_bounded_slowdown",
    "utilisation",
    "makespan_s",
    "jain_index",
    "starved",
    "refused",
    "seconds",
)
"""What a comparison shows of each dispatcher."""


def title(row: Mapping[str, Any]) -> str:
    """What was simulated, on what."""
    return f"{row['trace']} on {counted(row['nodes'], 'node')}, {counted(row['cores'], 'core')}"


def comparison(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of dispatchers."""

    def short(value: Any) -> Any:
        return round(value) if isinstance(value, float) and abs(value) >= 1000 else value

    return table([{name: short(row[name]) for name in ("dispatcher", *COMPARED)} for row in rows], "nothing")


def in_words(row: Mapping[str, Any]) -> str:
    """All that matters of one schedule.

    Parameters
    ----------
    row
        What `asa.lab.metrics.schedule.summarise` returns, with `dispatcher`, `trace`, `nodes` and `cores`.
    """

    def times(name: str) -> str:
        mean, median, p90, most = (row[f"{which}_{name}"] for which in ("mean", "median", "p90", "max"))
        return f"mean {_span(mean)}, median {_span(median)}, 90 % within {_span(p90)}, longest {_span(most)}"

    slow = [row[f"{which}_bounded_slowdown"] for which in ("mean", "median", "p90", "max")]
    outcomes = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in row["outcomes"].items())
    lines = {
        "jobs": f"{row['jobs']:,}: {outcomes}",
        "wait": times("wait_s"),
        "turnaround": times("turnaround_s"),
        "bounded slowdown": "mean {}, median {}, 90 % within {}, largest {}".format(*map(_number, slow)),
        "utilisation": f"{_percent(row['utilisation'])}, until the last submission "
        f"{_percent(row['utilisation_while_submitting'])}",
        "makespan": f"{_span(row['makespan_s'])}, {_number(row['throughput_jobs_per_hour'])} jobs an hour",
        "queue": f"mean {_number(row['mean_queue_length'])} jobs, most {row['max_queue_length']:,}; "
        f"{row['starved']:,} waited longer than a week",
        "users": f"{row['users']:,}, mean bounded slowdown {_number(row['mean_user_bounded_slowdown'])}, worst "
        f"{_number(row['max_user_bounded_slowdown'])}; Jain's index {_number(row['jain_index'])}",
        "simulation": f"{_number(row['seconds'])} s, {_number(row['jobs_per_second'])} jobs a second, "
        f"{_number(row['peak_memory_mb'])} MB",
    }
    head = f"{row['dispatcher']}: {title(row)}"
    body = [f"  {name:16}  {text}" for name, text in lines.items()]
    sizes = [
        {
            "cores": entry["cores"],
            "jobs": entry["jobs"],
            "mean wait": _span(entry["mean_wait_s"]),
            "longest": _span(entry["max_wait_s"]),
            "mean slowdown": _number(entry["mean_bounded_slowdown"]),
        }
        for entry in row["by_size"]
    ]
    return "\n".join([head, *body, "", table(sizes, "no job ran")])


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else brief(seconds)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
