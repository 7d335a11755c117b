"""A comparison of sharing rules as text: the ASA_X paper's Tables 3 and 2, and what they leave out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from asa.core.command import table
from asa.lab.studies.interval import LEVEL, Estimate
from coscheduler.studies.published import TABLE2, TABLE3

_Workflows = Mapping[str, Mapping[str, Estimate]]
Line = tuple[str, int, Mapping[str, Estimate], _Workflows]
"""Rule, cores, metrics, and figures of each workflow."""


def in_words(lines: Sequence[Line], seeds: int, queues: int) -> str:
    """All tables, over so many seeds of so many queues each."""
    over = f"{100 * LEVEL:.0f} % interval, bootstrap over {seeds} seeds" if seeds > 1 else "one seed"
    return "\n\n".join(
        [
            f"The queue (the paper's Table 3 and more): means of {queues} queues in a row [{over}]\n{_queue(lines)}",
            f"Workflows (the paper's Table 2): run time, and use of the cores that they held\n{_workflows(lines)}",
            "in brackets (): against the first row of a machine; paper: as printed there, on another machine",
        ]
    )


def _queue(lines: Sequence[Line]) -> str:
    first: dict[int, Mapping[str, Estimate]] = {}
    rows = []
    for rule, cores, metrics, _ in lines:
        base = first.setdefault(cores, metrics)
        paper = TABLE3.get((rule, cores))
        rows.append(
            {
                "cores": cores,
                "rule": rule,
                "wait [h]": _against(metrics, base, "mean_wait_h"),
                "CPU [%]": _per_cent(metrics["cpu_utilisation"]),
                "response [h]": _against(metrics, base, "mean_response_h"),
                "makespan [h]": _against(metrics, base, "makespan_h"),
                "slowdown": f"{metrics['mean_slowdown'].value:.3f}{_interval(metrics['mean_slowdown'], 3)}",
                "over wall time [%]": _per_cent(metrics["over_walltime"]),
                "paper: wait, CPU, response": "-"
                if paper is None
                else f"{paper[0]:g} h, {paper[1]:g} %, {paper[2]:g} h",
            }
        )
    return table(rows, "nothing was run")


def _workflows(lines: Sequence[Line]) -> str:
    rows = []
    for rule, cores, _, workflows in lines:
        for name, found in workflows.items():
            paper = TABLE2.get((rule, cores, name))
            rows.append(
                {
                    "cores": cores,
                    "rule": rule,
                    "workflow": name,
                    "run time [h]": f"{found['run_time_h'].value:.2f}{_interval(found['run_time_h'], 2)}",
                    "CPU [%]": _per_cent(found["cpu"]),
                    "memory [%]": _per_cent(found["memory"]),
                    "paper": "-" if paper is None else f"{paper[0]:.2f} h, {paper[1]:g} %, {paper[2]:g} %",
                }
            )
    return table(rows, "nothing was run")


def _against(metrics: Mapping[str, Estimate], base: Mapping[str, Estimate], name: str) -> str:
    found, other = metrics[name], base[name].value
    change = "" if found is base[name] or not other else f" ({100 * (found.value / other - 1):+.0f} %)"
    return f"{found.value:.2f}{_interval(found, 2)}{change}"


def _per_cent(found: Estimate) -> str:
    if math.isnan(found.value):
        return "-"
    low, high = (None if part is None else 100 * part for part in (found.low, found.high))
    scaled = Estimate(100 * found.value, low, high)
    return f"{scaled.value:.0f}{_interval(scaled, 0)}"


def _interval(found: Estimate, digits: int) -> str:
    if found.low is None or found.high is None or found.low == found.high:
        return ""
    return f" [{found.low:.{digits}f}, {found.high:.{digits}f}]"
