"""What constraint programming adds to a list plan: PCP'20, PCP'19 and HCP'19 on instances, warm and cold.

    python benchmarks/dispatch_cp.py FOLDER [--match Eurora_10_] [--limit 20] [--workers 2] [--planner pcp20,hcp19]

FOLDER has instances, SYSTEM_JOBS_NUMBER.json[.gz]. A table for each, with a row for each planner: mean slowdown, what
is proven, size of the model, time, processor time of all threads, and who found the plan; in front of them a list plan,
and what it becomes in as long. Then a table of all: how many plans each way, and how far from the best bound.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from measure import show

from asa.core.registry import DISPATCHERS
from asa.lab.dispatchers.planning.bound import lower_bound
from asa.lab.dispatchers.planning.instance import Instance, read_instance
from asa.lab.dispatchers.planning.verify import violations

NAMES = ("pcp20", "pcp19", "hcp19")
WAYS = ("cp", "improved", "warm start", "none")


def row(instance: Instance, spec: str, limit: float) -> dict[str, Any]:
    """A planner on an instance, with exact numbers."""
    began, cpu = time.perf_counter(), time.process_time()
    found = DISPATCHERS.create(spec).solve(instance, limit)
    took = time.perf_counter() - began, time.process_time() - cpu
    if found.plan is not None:
        broken = violations(instance, found.plan)
        assert not broken, broken[0]
    notes = found.notes
    return {
        "planner": spec, "slowdown": None if found.plan is None else found.plan.objective(instance),
        "bound": found.bound, "status": found.status, "by": notes.get("by"), "variables": notes.get("variables"),
        "constraints": notes.get("constraints"), "build [s]": notes.get("build_s"),
        "time [s]": took[0], "CPU [s]": took[1],
    }  # fmt: skip


def rows_of(instance: Instance, planners: list[str], limit: float, workers: int) -> list[dict[str, Any]]:
    """All planners on an instance; each row knows the best bound of all."""
    found = [row(instance, "listplan", 0.0), row(instance, "listplan", limit)]
    found[1]["planner"] += f", {limit:g} s"
    specs = [f"{planner}:warm={warm},workers={workers}" for planner in planners for warm in ("true", "false")]
    found += [row(instance, spec, limit) for spec in specs]
    best = max([lower_bound(instance), *(each["bound"] for each in found if each["bound"] is not None)])
    return [each | {"best bound": best} for each in found]


def shown(each: dict[str, Any]) -> dict[str, Any]:
    """With four places: plans differ in the last ones."""
    four = {name: each[name] for name in ("slowdown", "bound", "best bound")}
    return each | {name: "" if value is None else f"{value:.4f}" for name, value in four.items()}


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By planner: who found the plans, how many are proven, gap to the best bound, and time."""
    found = []
    for name in dict.fromkeys(each["planner"] for each in rows):
        chosen = [each for each in rows if each["planner"] == name]
        ways = Counter(each["by"] or "none" for each in chosen)
        gaps = [each["slowdown"] / each["best bound"] - 1 for each in chosen if each["slowdown"] is not None]
        times = [each["time [s]"] for each in chosen]
        found.append({
            "planner": name, "instances": len(chosen), **({way: ways[way] for way in WAYS} if "warm" in name else {}),
            "optimal": sum(each["status"] == "optimal" for each in chosen), "mean gap": _percent(gaps),
            "mean time [s]": float(np.mean(times)), "most [s]": max(times),
        })  # fmt: skip
    return found


def _percent(shares: list[float]) -> str | None:
    return f"{np.mean(shares):.2%}" if shares else None


def main() -> None:
    parser = argparse.ArgumentParser(description="What constraint programming adds to a list plan.")
    parser.add_argument("folder", type=Path, help="instances: SYSTEM_JOBS_NUMBER.json[.gz]")
    parser.add_argument("--match", default="", help="only instances whose names begin so")
    parser.add_argument("--limit", type=float, default=20.0, help="time for each plan [s] (20)")
    parser.add_argument("--workers", type=int, default=2, help="threads of the solver (2)")
    parser.add_argument("--planner", default=",".join(NAMES), help=f"several, with commas ({','.join(NAMES)})")
    options = parser.parse_args()
    planners, everything = options.planner.split(","), []
    paths = sorted(options.folder.glob(f"{options.match}*.json*"))
    for planner in ("listplan", *planners) if paths else ():  # the first plan of a process compiles
        DISPATCHERS.create(planner).solve(read_instance(paths[0]), 0.5)
    for path in paths:
        rows = rows_of(read_instance(path), planners, options.limit, options.workers)
        name = path.name.partition(".")[0]
        show(f"{name}: plans by constraint programming, at most {options.limit:g} s each", [*map(shown, rows)])
        everything += [{"group": name.rpartition("_")[0], **each} for each in rows]
    for group in dict.fromkeys(each["group"] for each in everything):
        show(f"{group}: who found the plans", summary([each for each in everything if each["group"] == group]))


if __name__ == "__main__":
    main()
