"""The tables of cosched_real.py: rules beside space sharing, with the noise of that, and the paper's figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coscheduler.compare import TABLE3

SPACE = "space"
TIMED = "mean_wait_s", "mean_response_s", "makespan_s"
COMPARED = *TIMED, "cpu_utilisation", "mean_slowdown", "host_slowdown", "over_walltime"
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
