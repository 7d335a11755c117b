"""Learned dispatchers beside rules: on days that they have not seen, and on machines that they were not trained on.

    python benchmarks/learned.py FOLDER [theta] [others] [--seeds 5] [--logs NAME ...] [--days 72-107]
        [--dispatchers NAME ...]

FOLDER has logs in the Standard Workload Format. Theta: all that was submitted from day 120 on, once as it was and then
with jobs up to half an hour later, drawn anew for each seed; numbers are in shares of EASY's on the same jobs, with
intervals of 95 % over the seeds. Others: stretches of other logs, or all jobs of some days, likewise. By default the
rules alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import show

from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.metrics.schedule import summarise
from asa.lab.simulator.run import simulate
from asa.lab.study import estimate
from asa.lab.traces.load import load_trace

RULES = ("easy:order=sjf,threshold=60h", "easy:order=sjf", "easy:order=wfp3", "easy:order=f1", "conservative")
UNORDERED = ("binpacking", "random", "knapsack")
THETA = "theta_argonne_2023_norm.swf.gz"
OTHERS = {
    "KTH-SP2-1996-2.swf.gz": (0, 100),
    "CTC-SP2-1996-3.1-cln.swf.gz": (0, 100),
    "HPC2N-2002-2.2-cln.swf.gz": (0, 400),
    "lublin_256.swf.gz": (0,),
    "CEA-Curie-2011-2.1-cln.swf.gz": (60, 100, 150, 200),
}
"""Logs, and the days from which jobs are taken."""
JOBS = 10_000
"""How many."""
COLUMNS = ("mean_wait_s", "mean_bounded_slowdown", "max_wait_s", "utilisation_while_submitting")


def versions(log: Workload, seeds: int) -> Iterator[Workload]:
    """The log, and the same with delays."""
    yield log
    for seed in range(1, seeds):
        yield delayed(log, np.random.default_rng(seed))


def numbers(log: Workload, cluster: Cluster, dispatcher: Any) -> list[float]:
    found = summarise(simulate(log, cluster, dispatcher, keep_nodes=False))
    return [found[name] for name in COLUMNS]


def against_easy(log: Workload, cluster: Cluster, names: Sequence[str], seeds: int) -> list[dict[str, Any]]:
    """A row for each dispatcher: what it has in shares of what EASY has."""
    logs = list(versions(log, seeds))
    easy = np.array([numbers(each, cluster, "easy") for each in logs])
    rows = []
    for name in ("easy", *names):
        found = easy if name == "easy" else np.array([numbers(each, cluster, name) for each in logs])
        wait, slowdown, longest, use = (
            estimate(lambda values: values.mean((-2, -1)), shares[:, None]) for shares in (found / easy).T
        )
        row = {
            "dispatcher": f"`{name}`",
            "mean wait [s]": round(found[:, 0].mean()),
            "wait": str(wait),
            "slowdown": str(slowdown),
        }
        rows.append(row | {"longest wait": str(longest), "utilisation": str(use)})
    return rows


def stretches(name: str, days: str) -> Iterator[tuple[float, float, int | None]]:
    """First day, last day and number of jobs of what is taken from a log."""
    if days:
        begin, _, end = days.partition("-")
        yield float(begin), float(end), None
    else:
        yield from ((day, np.inf, JOBS) for day in OTHERS[name])


def with_walltimes(log: Workload, begin: float, end: float, most: int | None) -> Workload:
    """Jobs of these days that have a wall time; where none has any, run times are taken for them."""
    log = log.between(*(log.submit[0] + DAY * np.array([begin, end])).tolist())
    known = np.isfinite(log.walltime)
    if not known.any():
        log, known = replace(log, walltime=np.maximum(log.run, 1.0)), ~known
    return log.take(np.flatnonzero(known)[:most])


def delayed(jobs: Workload, draw: np.random.Generator, most_s: float = 1800.0) -> Workload:
    """The same jobs, each submitted up to `most_s` [s] later, drawn alike."""
    submit = jobs.submit + draw.uniform(0.0, most_s, len(jobs))
    order = np.argsort(submit, kind="stable")
    together = replace(jobs, submit=np.zeros(len(jobs)))  # rows must be in order of submission all the while
    return replace(together.take(order), submit=submit[order])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", nargs="*", default=["theta", "others"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--logs", nargs="*", default=[*OTHERS])
    parser.add_argument("--days", default="", help="of these logs all jobs of these days, as in 72-107")
    parser.add_argument("--dispatchers", nargs="*", default=[*RULES, *UNORDERED])
    options = parser.parse_args()
    theta = load_trace(options.folder / THETA)
    if "theta" in options.what:
        log = theta.workload.between(120 * DAY, np.inf)
        show("Theta, day 120 to the end", against_easy(log, theta.machine(), options.dispatchers, options.seeds))
    for name in options.logs if "others" in options.what else ():
        trace = load_trace(options.folder / name)
        for begin, end, most in stretches(name, options.days):
            log = with_walltimes(trace.workload, begin, end, most)
            rows = against_easy(log, trace.machine(), options.dispatchers, options.seeds)
            show(f"{name}, {len(log)} jobs from day {begin:g}", rows)


if __name__ == "__main__":
    main()
