"""Waits that a log has, beside those of its jobs under the simulator's dispatchers, as tables.

    python -m benchmarks.observed_waits theta_argonne_2023_norm.swf.gz HPC2N-2002-2.2-cln.swf.gz

The simulator knows of the machine how many processors it has, and of the queue nothing but its jobs. How much of a
difference between it and the log can come from what it does not know (reservations, limits per user, partitions, nodes
that were down, jobs held by their owners) shows in the last table: for how long jobs waited while as many processors
as they asked for were idle, so that no dispatcher was what they waited for.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.lab.core.workload import Workload
from asa.lab.metrics.schedule import level, utilisation
from asa.lab.simulator.run import simulate
from asa.lab.traces.load import load_trace
from benchmarks.measure import show
from tests.agreement import spearman

RULES = (("easy", "clip"), ("easy", "allow"), ("conservative", "clip"), ("conservative", "allow"), ("fcfs", "clip"))
"""Dispatchers, and what becomes of jobs that run past their request."""

QUANTILES = (50, 75, 90, 99)
HOUR = 3600.0

WAITED_S = 300.0
"""Who waited longer has waited [s]: on Theta a job needs a minute to start on an empty machine."""

PROBES = 50
"""Moments of each job's wait that are looked at for idle processors."""


def spread(what: str, jobs: Workload, capacity: int, start: Floats, run: Floats) -> dict[str, Any]:
    """How waits are spread, and how they go with the observed ones."""
    wait = start - jobs.submit
    quantiles = np.percentile(wait / HOUR, QUANTILES).tolist()
    window = float(jobs.submit[0]), float(jobs.submit[-1])
    return {
        "waits [h]": what,
        "mean": float(wait.mean()) / HOUR,
        **{f"{q} %": value for q, value in zip(QUANTILES, quantiles, strict=True)},
        "waited > 5 min": float((wait > WAITED_S).mean()),
        "utilisation": utilisation(start, start + run, jobs.cores, capacity, begin=window[0], until=window[1]),
        "rank correlation": spearman(jobs.wait, wait),
    }


def reasons(what: str, jobs: Workload, capacity: int, start: Floats, run: Floats) -> dict[str, Any]:
    """How much of all waiting passed while the job would have fitted, and how few jobs it is."""
    wait, share = start - jobs.submit, idle_while_waiting(jobs, capacity, start, run)
    waited = wait > WAITED_S
    return {
        "waits": what,
        "waiting in all [job-h]": float(wait.sum()) / HOUR,
        "of it while the job would have fitted": float(share @ wait) / float(wait.sum()),
        "of those that waited, always fitted": float((share[waited] == 1).mean()),
        "longest 1 % of waits, of all waiting": float(np.sort(wait)[-(len(wait) // 100) :].sum()) / float(wait.sum()),
    }


def idle_while_waiting(jobs: Workload, capacity: int, start: Floats, run: Floats) -> Floats:
    """Share of each job's wait during which as many processors as it wants were idle, shape (n,); from probes."""
    times, used = level(start, start + run, jobs.cores)
    times, used = np.append(-np.inf, times), np.append(0, used)
    share = np.zeros(len(start))
    for probe in (np.arange(PROBES) + 0.5) / PROBES:
        at = jobs.submit + probe * (start - jobs.submit)
        share += used[np.searchsorted(times, at, side="right") - 1] + jobs.cores <= capacity
    return share / PROBES


def compare(path: Path) -> None:
    trace = load_trace(path)
    if trace.cluster is None:
        raise SystemExit(f"{path} does not say how many processors the machine has")
    jobs, capacity = trace.workload, trace.cluster.cores
    known = ~np.isnan(jobs.wait)
    schedules = {"observed": (jobs.submit + jobs.wait, jobs.run)}
    for rule, overrun in RULES:
        done = simulate(jobs, trace.cluster, rule, overrun=overrun, keep_nodes=False)
        known &= done.ran
        schedules[f"{rule}, overrun={overrun}"] = done.start, done.end - done.start
    chosen = jobs.take(known)
    rows = [(what, chosen, capacity, start[known], run[known]) for what, (start, run) in schedules.items()]
    name = path.name.removesuffix(".gz").removesuffix(".swf")
    show(f"{name}: {len(chosen)} jobs on {capacity} processors", [spread(*each) for each in rows])
    show(f"{name}: waiting beside idle processors", [reasons(*each) for each in rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="+", type=Path, help="a log with observed waits, such as an SWF file")
    for path in parser.parse_args().log:
        compare(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
