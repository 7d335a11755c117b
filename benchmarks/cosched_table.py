"""The tables of cosched_real.py: rules beside space sharing, with the noise of that, and the paper's figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asa.lab.study import Estimate, estimate, percent
from coscheduler.compare import TABLE3

SPACE = "space"
TIMED = "mean_wait_s", "mean_response_s", "makespan_s"
COMPARED = *TIMED, "cpu_utilisation", "mean_slowdown", "over_walltime"
COSTS = "agent_cpu", "cosched_cpu"

Row = dict[str, Any]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over seeds; the difference from `space` counts where it exceeds the noise. Only of whole queues."""
    ran, found = dict[tuple[str, str], dict[int, list[Row]]](), []
    for row in rows:
        ran.setdefault((row["load"], row["rule"]), {}).setdefault(row["seed"], []).append(row)
    whole = {
        key: {seed: runs for seed, runs in seeds.items() if not any(run["unfinished"] for run in runs)}
        for key, seeds in ran.items()
    }
    for (load, spec), mine in whole.items():
        base = {seed: runs for seed, runs in whole.get((load, SPACE), {}).items() if seed in mine}
        row = {"load": load, "rule": spec, "seeds": len(mine)}
        for name in (*COMPARED, *COSTS) if mine else ():
            row[name] = {"mean": mean(run[name] for runs in mine.values() for run in runs)}
            if set(base) == set(mine) and name in COMPARED:
                of_space = mean(run[name] for runs in base.values() for run in runs)
                apart = [abs(runs[0][name] - runs[-1][name]) for runs in base.values() if len(runs) > 1]
                noise = max(apart, default=math.nan)
                counts = abs(row[name]["mean"] - of_space) > noise
                row[name] |= {"space": of_space, "noise": noise, "counts": counts}
        found.append(row)
    return found


def mean(values: Iterator[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.mean(known) if known else math.nan


def cell(name: str, found: Any) -> Any:
    """A mean, its difference from `space` (in per cent of times), and a star where that counts."""
    if not isinstance(found, Mapping):
        return found
    text = f"{found['mean']:.3g}"
    if math.isnan(apart := found["mean"] - found.get("space", math.nan)):
        return text
    scale, unit = (100 / found["space"], " %") if name in TIMED and found["space"] > 0 else (1.0, "")
    return f"{text} ({scale * apart:+.2g} ± {scale * found['noise']:.2g}{unit}){'*' if found['counts'] else ''}"


def in_pairs(rows: Sequence[Row]) -> dict[str, list[tuple[Row, list[Row]]]]:
    """The queues of each rule that ran whole, each with the same queue's runs under `space`."""
    space, found = dict[tuple[str, int], list[Row]](), dict[str, list[tuple[Row, list[Row]]]]()
    for row in rows:
        if row["rule"] == SPACE and not row["unfinished"]:
            space.setdefault((row["load"], row["seed"]), []).append(row)
    for row in rows:
        base = space.get((row["load"], row["seed"]))
        if row["rule"] != SPACE and base and not row["unfinished"]:
            found.setdefault(row["rule"], []).append((row, base))
    return found


def ratios(pairs: Sequence[tuple[Row, list[Row]]], name: str) -> str:
    """By how much a figure differs from that under `space`, in the mean of queues, and its interval."""
    return percent(_over_queues([mine[name] / mean(each[name] for each in base) for mine, base in pairs]), above=1.0)


def points(pairs: Sequence[tuple[Row, list[Row]]], name: str) -> str:
    """As `ratios`, of a share: the difference, in points."""
    found = _over_queues([mine[name] - mean(each[name] for each in base) for mine, base in pairs])
    return percent(found).replace(" %", "")


def _over_queues(values: Sequence[float]) -> Estimate:
    return estimate(lambda drawn: np.nanmean(drawn, axis=(-2, -1)), np.array(values)[:, None])


def overall(rows: Sequence[Row]) -> list[Row]:
    """Each rule over all queues."""
    return [
        {
            "rule": rule,
            "queues": len(pairs),
            **{name.removesuffix("_s"): ratios(pairs, name) for name in TIMED},
            "CPU [points]": points(pairs, "cpu_utilisation"),
            "over wall time": f"{mean(mine['over_walltime'] for mine, _ in pairs):.0%}",
        }
        for rule, pairs in in_pairs(rows).items()
    ]


def applications(rows: Sequence[Row]) -> list[Row]:
    """Run times and use of cores of each application under each rule, over all queues."""
    found = []
    for rule, pairs in in_pairs(rows).items():
        for name in sorted({name for mine, _ in pairs for name in mine["applications"]}):
            ran = [
                (mine["applications"][name], [each["applications"][name] for each in base])
                for mine, base in pairs
                if name in mine["applications"]
            ]
            found.append(
                {
                    "rule": rule,
                    "application": name,
                    "queues": len(ran),
                    "run time": ratios(ran, "run_time_h"),
                    "CPU [points]": points(ran, "cpu"),
                    "memory [points]": points(ran, "memory"),
                }
            )
    return found


def hosts(rows: Sequence[Row]) -> list[Row]:
    """How much slower hosts were than alone, of each rule and load: the median, what 90 % stay below, the worst."""
    found = []
    for load, rule in dict.fromkeys((row["load"], row["rule"]) for row in rows):
        runs = [row for row in rows if (row["load"], row["rule"]) == (load, rule)]
        slower = [100 * (each - 1) for row in runs for each in row["slowdowns"]]
        line: Row = {"load": load, "rule": rule, "hosts": len(slower)}
        if slower:
            low, middle, high = np.quantile(slower, [0.1, 0.5, 0.9]).tolist()
            line |= {"10 %": low, "median": middle, "90 %": high, "most": max(slower)}
            line["more than 10 % slower"] = sum(each > 10 for each in slower)
        bounded = sum(row["bounded"] for row in runs)
        line["bounds broken"] = f"{sum(row['broken'] for row in runs)} of {bounded}" if bounded else "-"
        found.append(line)
    return found


def published() -> list[Row]:
    """The paper's Table 3, against its Slurm."""
    found = []
    for (rule, cores), line in TABLE3.items():
        if rule == SPACE:
            continue
        base = TABLE3[SPACE, cores]
        row = {"rule": rule, "cores": cores, "wait [%]": 100 * (line.wait_h / base.wait_h - 1)}
        found.append(
            row | {"response [%]": 100 * (line.response_h / base.response_h - 1), "CPU [points]": line.cpu - base.cpu}
        )
    return found
