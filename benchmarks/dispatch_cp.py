"""What constraint programming adds to a list plan: PCP'20, PCP'19 and HCP'19 on instances, warm and cold.

    python benchmarks/dispatch_cp.py FOLDER [--match Eurora_10_] [--limit 20] [--workers 2]

FOLDER has instances, SYSTEM_JOBS_NUMBER.json[.gz]. A row for each instance and planner: mean slowdown, what is proven,
size of the model, time, and who found the plan; in front of them what a list plan reaches after as long, and the bound.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from measure import show

from asa.core.registry import DISPATCHERS
from asa.dispatchers.listplan import ListPlan
from asa.dispatchers.planning.bound import lower_bound
from asa.dispatchers.planning.instance import Instance
from asa.dispatchers.planning.sources import read_instance
from asa.dispatchers.planning.verify import violations

NAMES = ("pcp20", "pcp19", "hcp19")


def row(instance: Instance, spec: str, limit: float) -> dict[str, Any]:
    began = time.perf_counter()
    found = DISPATCHERS.create(spec).solve(instance, limit)
    seconds = time.perf_counter() - began
    if found.plan is not None:
        broken = violations(instance, found.plan)
        assert not broken, broken[0]
    notes = found.notes
    return {
        "planner": spec, "slowdown": _four(None if found.plan is None else found.plan.objective(instance)),
        "bound": _four(found.bound), "status": found.status, "by": notes.get("by"), "variables": notes.get("variables"),
        "build [s]": notes.get("build_s"), "time [s]": seconds,
    }  # fmt: skip


def _four(value: float | None) -> str:
    """With four places: plans differ in the last ones."""
    return "" if value is None else f"{value:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="What constraint programming adds to a list plan.")
    parser.add_argument("folder", type=Path, help="instances: SYSTEM_JOBS_NUMBER.json[.gz]")
    parser.add_argument("--match", default="", help="only instances whose names begin so")
    parser.add_argument("--limit", type=float, default=20.0, help="time for each plan [s] (20)")
    parser.add_argument("--workers", type=int, default=2, help="threads of the solver (2)")
    options = parser.parse_args()
    rows = []
    for path in sorted(options.folder.glob(f"{options.match}*.json*")):
        instance = read_instance(path)
        name = path.name.partition(".")[0]
        for planner in NAMES:  # the first plan of a process compiles
            DISPATCHERS.create(planner).solve(instance, 0.5)
        plan = ListPlan().solve(instance, options.limit).plan
        assert plan is not None
        listed = {"slowdown": _four(plan.objective(instance)), "bound": _four(lower_bound(instance))}
        rows.append(
            {"instance": name, "planner": "listplan", **listed, "status": "feasible", "time [s]": options.limit}
        )
        for planner in NAMES:
            for warm in ("true", "false"):
                spec = f"{planner}:warm={warm},workers={options.workers}"
                rows.append({"instance": name, **row(instance, spec, options.limit)})
    show(f"Plans by constraint programming, at most {options.limit:g} s each", rows)


if __name__ == "__main__":
    main()
