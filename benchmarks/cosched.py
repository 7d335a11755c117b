"""How long a sharing rule takes to decide, and how long the simulated comparison takes: CPU time.

python benchmarks/cosched.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from measure import row, show

from coscheduler.compare import RULES, compare
from coscheduler.nouns import ALONE, JobStates, RunningJobs, SharingView, WaitingJob
from coscheduler.registry import SHARING_RULES
from coscheduler.workload import APPLICATIONS

NAMES = tuple(APPLICATIONS)


def busy_machine(running: int, waiting: int, seed: int = 0) -> SharingView:
    """No core is free, nobody has a guest, and everybody in the queue might be one: the most there is to decide."""
    rng = np.random.default_rng(seed)
    cores = rng.choice([8, 16, 32, 64], running)
    hosts = RunningJobs(
        names=tuple(f"run{number}" for number in range(running)),
        applications=NAMES,
        application=rng.integers(len(NAMES), size=running),
        cores=cores,
        walltime=rng.uniform(1800, 7200, running),
        started=np.zeros(running),
        states=JobStates(
            rng.random(running),
            rng.random(running),
            rng.random(running) < 0.5,
            rng.random(running),
            rng.uniform(0.9, 3, running),
        ),
        host=np.full(running, ALONE),
        share=np.ones(running),
        exclusive=np.zeros(running, dtype=bool),
        bound=np.full(running, np.inf),
        by_pressure=np.zeros(running, dtype=np.bool_),
        done=np.full(running, np.nan),
        unhindered=np.full((running, 2), np.nan),
        instructions=np.full(running, np.nan),
    )
    queue = tuple(
        WaitingJob(f"wait{number}", NAMES[number % len(NAMES)], int(rng.choice([8, 16, 32])), 3600.0)
        for number in range(waiting)
    )
    return SharingView(300.0, int(cores.sum()), 0, queue, hosts)


def seconds(work: Callable[[], object], repeats: int = 51) -> list[float]:
    found = []
    for _ in range(repeats + 1):
        began = time.process_time()  # the machine is shared
        work()
        found.append(time.process_time() - began)
    return found[1:]


def main() -> None:
    rows = []
    for running, waiting in ((100, 100), (1000, 100), (1000, 1000)):
        view = busy_machine(running, waiting)
        for name in RULES:
            spec = f"{name}:patience_s=0.001" if name == "asax" else name  # asks every time
            rule = SHARING_RULES.create(spec)
            times = [1e3 * each for each in seconds(lambda rule=rule, view=view: rule.decide(view))]
            rows.append(row(f"{name}: {running} running, {waiting} waiting [ms]", times, target=1.0))
    began = time.process_time()
    compare(seeds=8)
    rows.append(row("compare: 4 rules, 3 sizes, 8 seeds [s]", [time.process_time() - began], target=60.0))
    show("Co-scheduling", rows)


if __name__ == "__main__":
    main()
