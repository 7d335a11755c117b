"""What requests that learn allocate, beside what tasks used: a replay of measured tasks, and of users' jobs.

    python -m benchmarks.right_sizing memory WfInstances.tar.xz
    python -m benchmarks.right_sizing tasks WfInstances.tar.xz
    python -m benchmarks.right_sizing jobs KTH-SP2-1996-2.swf.gz HPC2N-2002-2.2-cln.swf.gz --jobs 10000

Memory: all tasks of the archive's WfFormat instances that have memory and a run time, in stages (application and name
of the task without its number) of at least 8. In each stage their order is shuffled, once for each seed. A task that
had less than it needs costs its whole run time at what it had, and is tried again with the largest use known, then with
twice as much. The first task of a stage gets what a user asks who knows a bound: four times the stage's largest use.

Ponder and Sizey are their published rules, written anew (Lehmann et al., arXiv 2408.00047; Bader et al., arXiv
2407.16353): Ponder's regression is solved exactly; of Sizey's four models there are two, linear and nearest neighbours,
and their accuracy is that of their earlier predictions, not of ten folds. Both begin with the user's request; Ponder
never asks for more than that, and returns to it when a task fails.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.ports import Advice, RequestEstimator
from asa.core.stage import again
from asa.estimators import requests
from asa.estimators.requests import Linear, Nearest, Quantile
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate
from asa.lab.traces.load import load_trace
from asa.workflows.requests import IDLE_TIME
from benchmarks.measure import show

LEAST, USERS, SEEDS = 8, 4.0, 5
"""Tasks that a stage has at least; how many times the largest use a user asks for; orders of the tasks."""

Stages = dict[str, Floats]
"""Stage -> used, run time [s], size of the input [bytes], number of the instance; a row for each task."""


def read_tasks(path: str, least: int = LEAST) -> Stages:
    """Stages of an archive of WfFormat instances, with at least so many tasks with memory and a run time."""
    found: dict[str, list[tuple[float, float, float, int]]] = defaultdict(list)
    with tarfile.open(path) as archive:
        for number, member in enumerate(sorted(archive, key=lambda each: each.name)):
            if not member.name.endswith(".json") or (file := archive.extractfile(member)) is None:
                continue
            workflow = json.load(file)["workflow"]
            sizes = {each["id"]: each.get("sizeInBytes", 0) for each in workflow["specification"].get("files", [])}
            known = {each["id"]: each for each in workflow["specification"]["tasks"]}
            application = PurePosixPath(member.name).name.partition("-")[0]
            for task in workflow.get("execution", {}).get("tasks", []):
                used, seconds, about = task.get("memoryInBytes", 0), task.get("runtimeInSeconds", 0), known[task["id"]]
                if used > 0 and seconds > 0:
                    stage = f"{application} {re.sub(r'(_ID)?_?[0-9]+$', '', about['name'])}"
                    size = sum(sizes.get(name, 0) for name in about.get("inputFiles", []))
                    found[stage].append((used, seconds, size, number))
    return {name: np.array(rows, float) for name, rows in sorted(found.items()) if len(rows) >= least}


class Known:
    """The largest use of all, known before."""

    def __init__(self, amount: float) -> None:
        self._amount, self._tasks, self._largest = amount, 0, 0.0

    def learn(self, used: float, weight: float = 1.0, size: float | None = None, tasks: int = 1) -> None:
        self._tasks, self._largest = self._tasks + tasks, max(self._largest, used)

    def ask(self, size: float | None = None) -> Advice | None:
        return Advice(self._amount, self._tasks, self._largest)


class LargestTimes:
    """The largest use so far, times a factor."""

    def __init__(self, factor: float) -> None:
        self.factor, self.largest, self.tasks = factor, 0.0, 0

    def learn(self, used: float, weight: float = 1.0, size: float | None = None, tasks: int = 1) -> None:
        self.largest, self.tasks = max(self.largest, used), self.tasks + 1

    def ask(self, size: float | None = None) -> Advice | None:
        return Advice(self.factor * self.largest, self.tasks, self.largest) if self.tasks else None


class _Table:
    def __init__(self, user: float) -> None:
        self.user, self.rows = user, np.zeros((0, 2))

    def learn(self, used: float, weight: float = 1.0, size: float | None = None, tasks: int = 1) -> None:
        self.rows = np.vstack((self.rows, (size or 0.0, used)))


class LeastSquares(_Table):
    """A line fitted by least squares, and the largest residual above it."""

    def ask(self, size: float | None = None) -> Advice | None:
        x, y = self.rows.T
        if not len(x):
            return None
        slope = float(np.polyfit(x / 1e9, y, 1)[0]) / 1e9 if len(x) > 2 and np.ptp(x) > 0 else 0.0
        rest = y - slope * x
        return Advice(max(float(rest.max()) + slope * (size or 0.0), float(y.min())), len(x), float(y.max()))


class Ponder(_Table):
    """Ponder: an asymmetric line where uses grow with the input, else the largest; at least 128 MiB above it."""

    OVER, OFFSET, FIRST = 0.02, 128 * 2.0**20, 5

    def __init__(self, user: float) -> None:
        super().__init__(user)
        self.line = np.zeros(2)

    def ask(self, size: float | None = None) -> Advice | None:
        x, y = self.rows.T
        if not len(x):
            return None
        return Advice(min(self._predict(x, y, size or 0.0), self.user), len(x), float(y.max()))

    def _predict(self, x: Floats, y: Floats, size: float) -> float:
        if len(x) < self.FIRST:
            return float(y.max()) + self.OFFSET if (x > size).any() else self.user
        spread = np.ptp(x) > 0 and np.ptp(y) > 0
        if not spread or np.corrcoef(x, y)[0, 1] <= 0.3:
            return float(y.max()) + self.OFFSET
        design = np.column_stack((np.ones_like(x), x / 2.0**30))
        for _ in range(20):  # expectiles by reweighted least squares, from the last solution
            weight = np.sqrt(np.where(y > design @ self.line, 1.0, self.OVER))
            line = np.linalg.lstsq(design * weight[:, None], y * weight, rcond=None)[0]
            done, self.line = np.allclose(line, self.line, rtol=1e-9), line
            if done:
                break
        found = float(self.line @ (1.0, size / 2.0**30))
        if found < y.min():
            found = float(y.min())
        elif (found > y.max() and size < x.max()) or (size >= x.max() and found < y.max()):
            found = float(y.max())
        apart = np.abs(x - size)
        weight = 1 - apart / apart.max() + max(1 - len(x) / 10, 0) / 100 if apart.max() else np.ones_like(x)
        rest = y - design @ self.line
        total = weight.sum()
        variance = (weight * (rest - (weight * rest).sum() / total) ** 2).sum() / (total - (weight**2).sum() / total)
        return found + max(self.OFFSET, 2 * float(np.sqrt(variance)))


class Sizey(_Table):
    """Sizey's choice: models weighted by the softmax of their accuracy, each with the offset that wasted least."""

    FIRST, NEIGHBOURS, DEFAULT = 5, 5, 0.05

    def __init__(self, user: float) -> None:
        super().__init__(user)
        self.errors: tuple[list[float], list[float]] = ([], [])
        self.predicted = self.offsets = np.zeros(2)

    def learn(self, used: float, weight: float = 1.0, size: float | None = None, tasks: int = 1) -> None:
        if len(self.rows) >= self.FIRST:
            self.ask(size)
            for errors, each in zip(self.errors, self.predicted, strict=True):
                errors.append((used - each) / used)
        super().learn(used, weight, size)

    def ask(self, size: float | None = None) -> Advice | None:
        x, y = self.rows.T
        if len(x) < self.FIRST:
            return None
        line = np.polyfit(x / 1e9, y, 1) if np.ptp(x) > 0 else np.array((0.0, y.mean()))
        near = np.argsort(np.abs(x - (size or 0.0)), kind="stable")[: self.NEIGHBOURS]
        self.predicted = np.array((np.polyval(line, (size or 0.0) / 1e9), y[near].mean()))
        accuracy = [-np.clip(np.abs(each), None, 1).mean() if each else 0.0 for each in self.errors]
        share = np.exp(accuracy) / np.exp(accuracy).sum()
        offsets = np.array([self._offset(errors, y) for errors in self.errors])
        asked = float((share * self.predicted).sum() * (1 + (share * offsets).sum()))
        return Advice(asked if asked > 0 else float(y.min()) * self.DEFAULT, len(x), float(y.max()))

    def _offset(self, errors: Sequence[float], y: Floats) -> float:
        if not errors:
            return self.DEFAULT
        each = np.array(errors)
        under = each[each > 0]
        offsets = [
            float(np.abs(each).std()) if len(each) > 1 else self.DEFAULT,
            float(np.median(under)) if len(under) else self.DEFAULT,
            float(np.median(np.abs(each))),
            float(under.std()) if len(under) else self.DEFAULT,
        ]
        used = y[-len(each) :]
        asked = np.maximum((1 - each) * used, used.min() * self.DEFAULT)
        return min(offsets, key=lambda offset: _wasted(asked * (1 + offset), used))


def _wasted(asked: Floats, used: Floats) -> float:
    short = asked < used
    last = 2.0 ** np.ceil(np.log2(used[short] / asked[short]))
    return float((asked - used)[~short].sum() + (asked[short] * (1.5 * last) - used[short]).sum())


def replay(
    stages: Stages, make: Callable[[float], RequestEstimator], seeds: int, retry: Callable[[float, float, float], float]
) -> Iterator[tuple[str, float, float, int, int]]:
    """For each stage and seed: its name, what was allocated and used [byte s], failed attempts, tasks."""
    for seed in range(seeds):
        for name, rows in stages.items():
            user = USERS * float(rows[:, 0].max())
            estimator, largest, allocated, failures = make(user), 0.0, 0.0, 0
            for used, seconds, size, _ in rows[np.random.default_rng(seed).permutation(len(rows))].tolist():
                advice = estimator.ask(size)
                asked = user if advice is None else advice.amount
                allocated += asked * seconds
                while asked < used:
                    failures, asked = failures + 1, retry(asked, largest, user)
                    allocated += asked * seconds
                estimator.learn(used, seconds, size)
                largest = max(largest, used)
            yield name, allocated, float((rows[:, 0] * rows[:, 1]).sum()), failures, len(rows)


def by_run(stages: Stages, seeds: int, first: bool) -> Iterator[tuple[str, float, float, int, int]]:
    """As `replay`, as a run asks: once for all tasks of a stage, by its largest input; instances in any order.

    A task that fails raises the request of its stage, also for those after it. With `first`, the first run of each
    stage counts, too, in which all tasks have what the user asked.
    """
    for seed in range(seeds):
        for name, rows in stages.items():
            rng, user = np.random.default_rng(seed), USERS * float(rows[:, 0].max())
            estimator, largest, allocated, failures = requests.make(), 0.0, 0.0, 0
            total, count = 0.0, 0
            for instance in rng.permutation(np.unique(rows[:, 3])):
                tasks = rng.permutation(rows[rows[:, 3] == instance])
                advice = estimator.ask(float(tasks[:, 2].max()))
                counts = first or advice is not None
                total += counts * float((tasks[:, 0] * tasks[:, 1]).sum())
                count += counts * len(tasks)
                asked = user if advice is None else advice.amount
                for used, seconds, _, _ in tasks.tolist():
                    while asked < used:
                        allocated, failures = allocated + asked * seconds, failures + 1
                        asked = again(asked, largest)
                    allocated += asked * seconds * counts
                for used, seconds, size, _ in tasks.tolist():
                    estimator.learn(used, seconds, size)
                    largest = max(largest, used)
            if count:
                yield name, allocated, total, failures, count


def row(what: str, results: Iterator[tuple[str, float, float, int, int]]) -> dict[str, Any]:
    """Sums over stages and seeds, and the share of failed attempts in the worst stage of at least 100 tasks."""
    found = list(results)
    allocated, used, failed, tasks = (sum(each[place] for each in found) for place in (1, 2, 3, 4))  # type: ignore[misc]
    shares: dict[str, list[float]] = defaultdict(list)
    for name, _, _, failures, count in found:
        if count >= 100:
            shares[name].append(failures / count)
    worst = max((float(np.mean(each)), name) for name, each in shares.items())
    return {
        "requests": what,
        "allocated / used": allocated / used,
        "failed attempts [%]": 100 * failed / tasks,
        "worst stage [%]": f"{100 * worst[0]:.2g} ({worst[1]})",
    }


def memory(options: argparse.Namespace) -> None:
    """The table of memory."""
    stages = read_tasks(options.archive)
    tasks = sum(map(len, stages.values()))
    print(f"{tasks} tasks in {len(stages)} stages, {options.seeds} orders")

    def kinds(kind: Callable[..., RequestEstimator], **more: Any) -> Callable[[float], RequestEstimator]:
        return lambda _: kind(**more)

    def learned(asked: float, largest: float, user: float) -> float:
        return again(asked, largest)

    def users(asked: float, largest: float, user: float) -> float:
        return user if asked < user else 2 * asked

    rules: list[tuple[str, Callable[[float], RequestEstimator], Callable[..., float]]] = [
        ("4 x the stage's largest, known before", lambda user: Known(user), learned),
        ("the stage's largest, known before", lambda user: Known(user / USERS), learned),
        ("1.1 x the largest so far", lambda _: LargestTimes(1.1), learned),
        ("least squares on input size, and the largest residual", LeastSquares, learned),
        ("Ponder's rule", Ponder, users),
        ("Sizey's rule, two of its models", Sizey, learned),
        ("quantile", kinds(Quantile), learned),
        ("quantile of nearest inputs", kinds(Nearest), learned),
        ("quantile above a line", kinds(Linear), learned),
        ("**the best of these three by past cost**", kinds(requests.make), learned),
        *((f"the same, risk {risk:g}", kinds(requests.make, risk=risk), learned) for risk in (0.0, 0.002, 0.02, 0.05)),
    ]
    rows = [row(what, replay(stages, make, options.seeds, retry)) for what, make, retry in rules]
    what = "the best, asked once for each stage of a run"
    rows.append(row(f"{what}, from its second run on", by_run(stages, options.seeds, first=False)))
    rows.append(row(f"{what}, with its first", by_run(stages, options.seeds, first=True)))
    show("memory: a task at a time", rows)


def tasks(options: argparse.Namespace) -> None:
    """The table of run times of tasks: as that of memory, with seconds in the place of bytes."""
    stages, rows = read_tasks(options.archive), []
    for idle in (1.0, IDLE_TIME, 0.02):
        ratios, killed = [], 0
        for seed in range(options.seeds):
            for each in stages.values():
                estimator, user = requests.make(idle=idle), USERS * float(each[:, 1].max())
                for _, seconds, size, _ in each[np.random.default_rng(seed).permutation(len(each))].tolist():
                    advice = estimator.ask(size)
                    asked = user if advice is None else advice.amount
                    killed += asked < seconds
                    ratios.append(asked / seconds)
                    estimator.learn(seconds, 1.0, size)
        share, median = 100 * killed / len(ratios), float(np.median(ratios))
        rows.append({"an idle second costs": idle, "killed [%]": share, "median asked / used": median})
    show("wall time of tasks", rows)


def learned_requests(jobs: Workload, least: int) -> Floats:
    """Wall times that jobs would have asked for by those of the same user and program that had ended, shape (n,) [s].

    What the user asked for stands for the size of the input, and is never exceeded; it is asked for as long as fewer
    than `least` have ended. Jobs start and end as in the log.
    """
    found: dict[tuple[int, int], RequestEstimator] = {}
    ended: list[tuple[float, int]] = []
    asked = jobs.walltime.copy()
    ends = jobs.submit + np.nan_to_num(jobs.wait) + jobs.run
    for row_, (now, user, name) in enumerate(zip(jobs.submit, jobs.user.tolist(), jobs.name.tolist(), strict=True)):
        while ended and ended[0][0] <= now:
            _, other = heapq.heappop(ended)
            if jobs.run[other] > 0:
                key = int(jobs.user[other]), int(jobs.name[other])
                estimator = found.setdefault(key, requests.make(idle=IDLE_TIME, kept=300))
                estimator.learn(float(jobs.run[other]), 1.0, float(jobs.walltime[other]))
        heapq.heappush(ended, (float(ends[row_]), row_))
        advice = found[user, name].ask(float(asked[row_])) if (user, name) in found else None
        if advice is not None and advice.tasks >= least:
            asked[row_] = min(asked[row_], max(advice.amount, 60.0))
    return asked


def jobs(options: argparse.Namespace) -> None:
    """The table of logs: how much is asked for, how many are killed, and how long jobs wait under EASY then.

    A job that is killed has run in vain for what it asked, and runs as a whole with what its user asked.
    """
    for path in options.log:
        trace = load_trace(path)
        assert trace.cluster is not None, f"{path} does not say how many processors there are"
        all_jobs = trace.workload.take(np.arange(min(options.jobs, len(trace.workload))))
        some = all_jobs.take((all_jobs.run > 0) & (all_jobs.run <= all_jobs.walltime))
        rows = []
        choices = [("what their users asked", some.walltime), ("what they used", some.run)]
        choices += [(f"learned from {least} jobs on", learned_requests(some, least)) for least in (1, 20, 100)]
        for what, asked in choices:
            killed = asked < some.run
            again_ = replace(
                some, walltime=np.where(killed, some.walltime, asked), run=some.run + np.where(killed, asked, 0.0)
            )
            again_ = replace(again_, walltime=np.maximum(again_.walltime, again_.run))
            done = simulate(again_, trace.cluster, "easy", keep_nodes=False)
            wait = (done.start - again_.submit)[done.ran]
            rows.append(
                {
                    "requests": what,
                    "killed [%]": 100 * float(killed.mean()),
                    "median asked / used": float(np.median(asked / some.run)),
                    "asked / used in all": float(asked.sum() / some.run.sum()),
                    "mean wait [min]": float(wait.mean()) / 60,
                }
            )
        show(f"wall time of {len(some)} jobs of {path.name.partition('.')[0]}", rows)
        show("waits of one job in thirty that asks for less, the others as before", list(alone(some, trace.cluster)))


def alone(jobs: Workload, cluster: Cluster) -> Iterator[dict[str, Any]]:
    """How long jobs wait that ask for little, while all others ask for what their users did; five choices of them."""
    before = simulate(jobs, cluster, "easy", keep_nodes=False).start - jobs.submit
    for factor in (1.0, 1.5, 3.0):
        waits: list[tuple[float, float]] = []
        for first in range(0, 30, 6):
            some = np.arange(len(jobs)) % 30 == first
            walltime = np.where(some, np.minimum(jobs.walltime, factor * jobs.run), jobs.walltime)
            done = simulate(replace(jobs, walltime=walltime), cluster, "easy", keep_nodes=False)
            waits.append((float(before[some].mean()), float((done.start - jobs.submit)[some].mean())))
        asked, less = np.mean(waits, axis=0) / 60
        yield {"asks for": f"{factor:g} x what it uses", "mean wait [min]": less, "as its user asked": asked}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("memory")
    part.add_argument("archive", help="tar archive of WfFormat instances")
    part.add_argument("--seeds", type=int, default=SEEDS, help="orders of the tasks")
    part.set_defaults(run=memory)
    part = parts.add_parser("tasks")
    part.add_argument("archive", help="tar archive of WfFormat instances")
    part.add_argument("--seeds", type=int, default=SEEDS, help="orders of the tasks")
    part.set_defaults(run=tasks)
    part = parts.add_parser("jobs")
    part.add_argument("log", nargs="+", type=Path, help="logs with users and observed waits, such as SWF files")
    part.add_argument("--jobs", type=int, default=10_000, help="how many of each, from its beginning")
    part.set_defaults(run=jobs)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
