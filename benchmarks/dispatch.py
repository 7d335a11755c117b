"""How good and how quick plans of queues are: list planning on instances, beside plain rules and a lower bound.

    python benchmarks/dispatch.py FOLDER [--budget 0.25] [--decisions 300]
    python benchmarks/dispatch.py FOLDER --match Eurora_500

FOLDER has instances, SYSTEM_JOBS_NUMBER.json[.gz]. For each system and number of jobs, means over the instances of the
mean slowdown and of the time: of each scheme; of the better plan of both, and how often that is the non-delay one; of a
search; and the gaps to the bound. With `--match` that is all. Then ten of the largest side by side as one; and what one
decision of the dispatcher takes in a simulated queue, glue included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import show

from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.bound import lower_bound
from asa.lab.dispatchers.planning.instance import Instance, QueuePlan, read_instance
from asa.lab.dispatchers.planning.schemes import active, keys, nondelay, order_of
from asa.lab.dispatchers.planning.verify import violations
from asa.lab.simulator.engine import Engine

REPEATS = 5


def best_of(call: Callable[[], Any], repeats: int = REPEATS) -> tuple[Any, float]:
    """What a call returns, and the least time that it takes [s], after a first one that may compile."""
    found, times = call(), []
    for _ in range(repeats):
        began = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - began)
    return found, min(times)


def checked(instance: Instance, plan: QueuePlan) -> float:
    """The objective of a plan that keeps all laws."""
    broken = violations(instance, plan)
    assert not broken, broken[0]
    return plan.objective(instance)


def instances(folder: Path, budget: float, match: str) -> list[dict[str, Any]]:
    groups: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"{match}*_*.json*")):
        groups.setdefault(path.name.rsplit("_", 1)[0], []).append(path)
    rows = []
    for name in sorted(groups, key=lambda name: (name.split("_")[0], int(name.split("_")[1]))):
        found = []
        for path in groups[name]:
            instance = read_instance(path)
            row: dict[str, float] = {}
            for rule in ("pcp", "dense", "sjf"):
                order = order_of(keys(instance, rule))
                plan, seconds = best_of(lambda instance=instance, order=order: nondelay(instance, order))
                row[f"non-delay, {rule}"] = checked(instance, plan)
            row["[ms]"] = seconds * 1e3
            order = order_of(keys(instance, "dense"))
            plan, seconds = best_of(lambda instance=instance, order=order: active(instance, order), 2)
            row["active, dense"], row["active [ms]"] = checked(instance, plan), seconds * 1e3
            row["both, dense"] = min(row["active, dense"], row["non-delay, dense"])
            row["non-delay is better"] = float(row["non-delay, dense"] < row["active, dense"])
            found_by = ListPlan(scheme="both").solve(instance, budget)
            assert found_by.plan is not None
            row[f"after {budget:g} s"], row["tries"] = checked(instance, found_by.plan), found_by.notes["tries"]
            row["bound"], seconds = best_of(lambda instance=instance: lower_bound(instance), 1)
            row["bound [ms]"] = seconds * 1e3
            found.append(row)
        means = {column: float(np.mean([row[column] for row in found])) for column in found[0]}
        at_once, later = (f"{means[of] / means['bound'] - 1:.1%}" for of in ("both, dense", f"after {budget:g} s"))
        rows.append({"instances": name, **means, "gap at once": at_once, "gap": later})
    return rows


def joined(parts: list[Instance]) -> Instance:
    """Machines and queues side by side, as one."""
    before = np.cumsum([0, *(len(part.capacity) for part in parts)])
    kinds = np.cumsum([0, *(len(part.demands) for part in parts)])
    demands, row = np.unique(np.concatenate([part.demands for part in parts]), axis=0, return_inverse=True)
    row = row.reshape(-1)
    release, kind, release_at = [], [], np.concatenate([part.release_at for part in parts])
    for part, node, first in zip(parts, before, kinds, strict=False):
        release.append(part.release + np.array([node, node, 0, 0]))
        release[-1][:, 3] = row[part.release[:, 3] + first]
        kind.append(row[part.kind + first])
    order = np.argsort(release_at, kind="stable")
    units, duration, waited = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("units", "duration", "waited")
    )
    return Instance(
        np.concatenate([part.capacity for part in parts]), parts[0].resources, demands,
        np.ones((1, before[-1]), dtype=np.int64), tuple(range(len(units))), units, np.concatenate(kind),
        np.zeros_like(units), np.zeros_like(units), duration, waited, release_at[order], np.concatenate(release)[order],
    )  # fmt: skip


def large(folder: Path, count: int) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("KIT_500_*.json*"))
    instance = joined([read_instance(paths[number % len(paths)]) for number in range(count)])
    rows = []
    for scheme, plan_by in (("non-delay", nondelay), ("active", active)):
        order = order_of(keys(instance, "dense"))
        plan, seconds = best_of(lambda plan_by=plan_by, order=order: plan_by(instance, order))
        rows.append({
            "scheme": scheme, "nodes": len(instance.capacity), "jobs": len(instance),
            "mean slowdown": checked(instance, plan), "[ms]": seconds * 1e3,
        })  # fmt: skip
    return rows


def decisions(scheme: str, waiting: int, nodes: int, count: int) -> dict[str, Any]:
    """What decisions take while about so many jobs wait, on nodes of 16 cores and two GPUs."""
    draw = np.random.default_rng(1)
    jobs = waiting + count
    run = np.exp(draw.uniform(np.log(30), np.log(20_000), jobs))
    submit = np.concatenate([np.zeros(waiting), np.arange(1, count + 1) * 1.0])
    demands = np.array([[1, 2, 0], [4, 2, 0], [16, 8, 0], [2, 4, 1], [8, 16, 2]])
    workload = Workload.of(
        submit=submit, run=run, walltime=run * draw.uniform(1, 2, jobs), units=draw.integers(1, nodes // 8 + 2, jobs),
        demands=demands, kind=draw.integers(0, len(demands), jobs), resources=("cores", "memory", "gpus"),
    )  # fmt: skip
    cluster = Cluster(np.tile([[16, 32, 2]], (nodes, 1)), ("cores", "memory", "gpus"))
    engine, dispatcher, times, queues = Engine(workload, cluster), ListPlan(scheme=scheme), [], []
    while len(times) < count and (view := engine.advance()) is not None:
        began = time.perf_counter()
        found = dispatcher.decide(view)
        times.append(time.perf_counter() - began)
        queues.append(len(view.waiting))
        engine.apply(found)
    ms = np.array(times[3:]) * 1e3  # the first ones compile
    return {
        "scheme": scheme, "nodes": nodes, "decisions": len(ms), "mean queue": float(np.mean(queues[3:])),
        "mean [ms]": float(ms.mean()), "p99 [ms]": float(np.percentile(ms, 99)), "most [ms]": float(ms.max()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Plans of queues: how good, and how quick.")
    parser.add_argument("folder", type=Path, help="instances: SYSTEM_JOBS_NUMBER.json[.gz]")
    parser.add_argument("--budget", type=float, default=0.25, help="time to look for better orders [s] (0.25)")
    parser.add_argument("--decisions", type=int, default=300, help="of the dispatcher (300)")
    parser.add_argument("--match", default="", help="only instances whose names begin so, and nothing else")
    options = parser.parse_args()
    rows = instances(options.folder, options.budget, options.match)
    show("Plans: mean slowdown (means over instances), and time", rows)
    if options.match:
        return
    show("Ten of KIT_500 as one, rule dense", large(options.folder, 10))
    rows = [
        decisions(scheme, 100, nodes, options.decisions) for nodes in (64, 1173) for scheme in ("non-delay", "active")
    ]
    show("Decisions in a simulated queue", rows)


if __name__ == "__main__":
    main()
