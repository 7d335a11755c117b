"""Learned dispatchers beside rules: on days that they have not seen, and on machines that they were not trained on.

    python benchmarks/learned.py FOLDER [theta] [others] [--seeds 5] [--logs NAME ...] [--days 72-107]
        [--dispatchers NAME ...]
    python benchmarks/learned.py FOLDER rollout --seeds 3 [--logs NAME ...]

FOLDER has logs in the Standard Workload Format. Theta: all that was submitted from day 120 on, once as it was and then
with jobs up to half an hour later, drawn anew for each seed; numbers are in shares of EASY's on the same jobs, with
intervals of 95 % over the seeds. Others: stretches of other logs, or all jobs of some days, likewise. By default the
rules alone. Rollout: `rollout` beside rules, on the first 5,000 jobs of the last 20 % of six logs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import show

from asa.core.decision import DispatchDecision
from asa.core.units import DAY, HOUR
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy, decide_on_tables
from asa.lab.forecast.rollout import Rollout
from asa.lab.metrics.schedule import summarise
from asa.lab.simulator.run import simulate
from asa.lab.study import clocked, estimate
from asa.lab.traces.load import load_trace
from asa.lab.tuning import CHOOSE

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
SIX = (
    "KTH-SP2-1996-2.swf.gz",
    "CTC-SP2-1996-3.1-cln.swf.gz",
    "HPC2N-2002-2.2-cln.swf.gz",
    THETA,
    "KIT-FH2-2016-1_first25k-derived.swf.gz",
    "lf50k.swf.gz",
)
BESIDE_ROLLOUT = ("easy:order=sjf,threshold=60h", "easy:order=wfp3", "easy++")
ROLLOUT_JOBS = 5000
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


class LateRollout:
    """`rollout` from `begin` [s] on, behind ``easy:order=sjf,threshold=60h``; it has seen all jobs. Times its choices.

    What a choice takes is in `ms`: processor time [ms] of the hour's first decision with more than one waiting job.
    """

    needs_estimates = True

    def __init__(self, begin: float, seed: int) -> None:
        self._begin, self._rollout, self._chosen = begin, Rollout(seed=seed), -np.inf
        self._until_then = Easy(order="sjf", threshold="60h")
        self.predictor, self.ms = self._rollout.predictor, list[float]()

    def decide(self, view: TableView) -> list[DispatchDecision]:
        if view.now < self._begin:
            return decide_on_tables(self._until_then, view)
        decisions, _, cpu_s = clocked(self._rollout.decide, view)
        if len(view.waiting) > 1 and view.now >= self._chosen + HOUR:
            self._chosen = view.now
            self.ms.append(1e3 * cpu_s)
        return decisions


def late_rollout(log: Workload, cluster: Cluster, seeds: int) -> list[dict[str, Any]]:
    """Mean wait and bounded slowdown, 99th percentile and longest wait in shares of EASY's; `rollout`: over seeds."""
    first = int(CHOOSE * len(log))
    jobs = log.take(np.arange(min(len(log), first + ROLLOUT_JOBS)))

    def numbers(dispatcher: Any) -> np.ndarray:
        schedule = simulate(jobs, cluster, dispatcher, keep_nodes=False)
        mine = np.flatnonzero(schedule.ran)
        mine = mine[mine >= first]
        wait, run = schedule.wait[mine], (schedule.end - schedule.start)[mine]
        slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, 10.0))
        return np.array([wait.mean(), slowdown.mean(), np.percentile(wait, 99), wait.max()])

    easy = numbers("easy")
    shares = {name: [numbers(name) / easy] for name in BESIDE_ROLLOUT}
    late = [LateRollout(float(jobs.submit[first]), seed) for seed in range(seeds)]
    shares["rollout"] = [numbers(each) / easy for each in late]
    columns = ("wait", "slowdown", "p99", "longest")
    rows = [
        {"dispatcher": name}
        | {column: f"{of.mean():.2f}" for column, of in zip(columns, np.transpose(found), strict=True)}
        for name, found in shares.items()
    ]
    for column, of in zip(columns[:2], np.transpose(shares["rollout"]), strict=False):
        rows[-1][f"{column} by seed"] = f"{of.min():.2f} to {of.max():.2f}"
    ms = [each for rule in late for each in rule.ms[1:]]  # the first one compiles
    return [*rows[:-1], rows[-1] | {"a choice [CPU ms]": np.mean(ms), "95 % [CPU ms]": np.percentile(ms, 95)}]


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
    parser.add_argument("--logs", nargs="*", help="of others or rollout (all that these have)")
    parser.add_argument("--days", default="", help="of these logs all jobs of these days, as in 72-107")
    parser.add_argument("--dispatchers", nargs="*", default=[*RULES, *UNORDERED])
    options = parser.parse_args()
    if "theta" in options.what:
        theta = load_trace(options.folder / THETA)
        log = theta.workload.between(120 * DAY, np.inf)
        show("Theta, day 120 to the end", against_easy(log, theta.machine(), options.dispatchers, options.seeds))
    for name in (options.logs or SIX) if "rollout" in options.what else ():
        trace = load_trace(options.folder / name)
        show(f"{name}, rollout", late_rollout(trace.workload, trace.machine(), options.seeds))
    for name in (options.logs or OTHERS) if "others" in options.what else ():
        trace = load_trace(options.folder / name)
        for begin, end, most in stretches(name, options.days):
            log = with_walltimes(trace.workload, begin, end, most)
            rows = against_easy(log, trace.machine(), options.dispatchers, options.seeds)
            show(f"{name}, {len(log)} jobs from day {begin:g}", rows)


if __name__ == "__main__":
    main()
