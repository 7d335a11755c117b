"""The right queue: a workflow whose jobs may go to several partitions, against the best of them in hindsight.

    python -m benchmarks.right_queue [--seeds 20] [--json OUT]

Each setting is a site of three simulated partitions with other users (`asa.lab.backend.queues`), whose loads differ
from seed to seed, so that no partition is the best one every time. The same workflow runs with the choice, with a
second request, and in each partition alone. Costs are hours until the result or, where the user has a patience,
core-hours: those charged, at their price, and the makespan at that patience. *Best fixed* is the partition whose mean
over all seeds is least, *best of each run* that with the least cost in each single run, which nobody knows beforehand.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import asa
from asa.core.event import Requeued, RunState
from asa.core.queues import QueueTerms
from asa.core.run import FoldedRun
from asa.core.units import HOUR
from asa.lab.backend.queues import SimulatedQueues
from asa.lab.backend.simulated import Simulated
from asa.lab.virtual import run_virtual
from asa.metrics.workflow import summary


@dataclass(frozen=True)
class Setting:
    """A site: of each partition its nodes of 8 cores and the bounds of its load; how they differ, and the patience."""

    queues: Mapping[str, tuple[int, float, float]]
    patience: float | None = None
    price: Mapping[str, float] = field(default_factory=dict)
    preempted: Mapping[str, float] = field(default_factory=dict)
    longest: Mapping[str, str] = field(default_factory=dict)

    def site(self, seed: int) -> dict[str, Simulated]:
        """The partitions, not yet filled."""
        random = np.random.default_rng(seed)
        return {
            name: Simulated(
                nodes=nodes,
                cores=8,
                load=float(random.uniform(least, most)),
                seed=10 * seed + at,
                warmup=5.5,
                days=10,
                longest=self.longest.get(name),
            )
            for at, (name, (nodes, least, most)) in enumerate(self.queues.items())
        }


SETTINGS = {
    "alike": Setting({"a": (32, 0.6, 0.95), "b": (32, 0.6, 0.95), "c": (32, 0.6, 0.95)}),
    "unlike": Setting({"core": (48, 0.85, 1.0), "long": (32, 0.7, 0.9), "small": (12, 0.5, 0.8)}),
    "one always best": Setting({"core": (48, 0.3, 0.6), "long": (32, 0.85, 1.0), "small": (12, 0.7, 0.9)}),
    "limits": Setting(
        {"core": (32, 0.8, 1.0), "short": (24, 0.3, 0.6), "long": (24, 0.8, 0.95)}, longest={"short": "1h"}
    ),
    "cheap, preempted": Setting(
        {"core": (32, 0.7, 0.95), "long": (32, 0.7, 0.95), "low": (32, 0.3, 0.9)},
        patience=40.0,
        price={"core": 1.0, "long": 0.8, "low": 0.2},
        preempted={"low": 0.3},
    ),
    "cheap, often preempted": Setting(
        {"core": (32, 0.5, 0.8), "long": (32, 0.5, 0.8), "low": (32, 0.2, 0.6)},
        patience=100.0,
        price={"core": 1.0, "long": 0.8, "low": 0.2},
        preempted={"low": 1.5},
    ),
}


STAGES = {  # cores, tasks, cores of a task, wall time, run time of a task [min]
    "first": (8, 1, 8, "30m", 12),
    "wide": (64, 64, 1, "1h", 25),
    "fit": (16, 32, 1, "3h", 35),
    "last": (32, 4, 8, "1h", 20),
}


def workflow(where: str) -> Any:
    """Four stages one after the other, of widths from 8 to 64 cores, one of which asks for more than an hour."""
    before = None
    for name, (cores, tasks, each, walltime, minutes) in STAGES.items():

        def work(*_: Any) -> None:
            """Nothing: its run time is declared."""

        made = asa.stage(
            cores=cores, task_cores=each, walltime=walltime, run_time=f"{minutes}m", partition=where, name=name
        )(work)
        before = made(before) if tasks == 1 else made.map([before] * tasks)
    return before


def run_time(name: str, walltime_s: float) -> float:
    """What is expected of a stage, as after a first run [s]."""
    cores, tasks, each, _, minutes = STAGES[name]
    return 60.0 * minutes * max(1, -(-tasks * each // cores))


def cost(setting: Setting, where: str, seed: int, twice: bool = False) -> dict[str, float]:
    """One run: its makespan [h], what it was charged at its prices [core-h], both as one cost, and unused jobs."""
    site = SimulatedQueues(setting.site(seed), preempted=setting.preempted, seed=seed)
    strategy = "auto" if setting.patience is None else f"auto:patience={setting.patience}"
    terms = QueueTerms(setting.price or None, None, twice)
    run = FoldedRun()
    events = run_virtual(workflow(where), site, strategy, run_time=run_time, terms=terms)
    for event in events:
        run.on(event)
    found = summary(run)
    if found.state is not RunState.SUCCEEDED:
        raise RuntimeError(f"the run in {where} {found.state.value}: {found.message}")
    jobs = [(job, run.pool.ever[job.token].request.options) for job in found.jobs]
    paid = sum(job.core_hours_charged * terms.price_in(options) for job, options in jobs)
    hours = found.makespan_s / HOUR
    spare = sum(job.core_hours_charged for job in found.jobs if "asked for elsewhere" in job.reason)
    requeued = sum(isinstance(event, Requeued) for event in events)
    whole = hours if setting.patience is None else setting.patience * hours + paid
    return {"makespan": hours, "paid": paid, "cost": whole, "spare": spare, "requeued": requeued}


def table(name: str, setting: Setting, seeds: int) -> dict[str, Any]:
    """All ways of one setting."""
    names = [queue for queue in setting.queues if queue not in setting.longest]
    ways: dict[str, tuple[str, bool]] = {queue: (queue, False) for queue in names}
    ways |= {way: ("|".join(setting.queues), way == "asked twice") for way in ("asked once", "asked twice")}
    runs = {way: [cost(setting, where, seed, twice) for seed in range(seeds)] for way, (where, twice) in ways.items()}
    mean = {way: {key: statistics.mean(run[key] for run in found) for key in found[0]} for way, found in runs.items()}
    best = min(names, key=lambda queue: mean[queue]["cost"])
    each = statistics.mean(min(runs[queue][seed]["cost"] for queue in names) for seed in range(seeds))
    return {"setting": name, "best": best, "best_each": each, "ways": mean, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--settings", default=";".join(SETTINGS), help="with ; between")
    parser.add_argument("--json")
    options = parser.parse_args()
    found = []
    print("setting | way | makespan h | paid | cost | of best fixed | of best of each run | requeued | unused core-h")
    for name in options.settings.split(";"):
        row = table(name, SETTINGS[name], options.seeds)
        found.append(row)
        least = row["ways"][row["best"]]["cost"]
        for way, mean in row["ways"].items():
            numbers = mean["cost"] / least, mean["cost"] / row["best_each"], mean["requeued"], mean["spare"]
            print(
                f"{name} | {way}{' (best fixed)' * (way == row['best'])} | {mean['makespan']:.2f} | {mean['paid']:.0f} "
                f"| {mean['cost']:.1f} | {numbers[0]:.2f} | {numbers[1]:.2f} | {numbers[2]:.1f} | {numbers[3]:.1f}",
                flush=True,
            )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{usage.ru_utime + usage.ru_stime:.0f} CPU seconds")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
