"""How much sooner workflows end whose stages choose their widths by the queue, as a table: at equal core-hours.

    python -m benchmarks.moldable --folder LOGS [--cases hpc2n HPC2N ...] [--workflows 100] [--fractions 0.9 0.99]
        [--seeds 1] [--ways oracle plan context forecast]

Into a queue, of a site model or a log, workflows of three moldable stages are injected, 3 % of the core-hours; each
stage is asked for when the one before it is over. With a fixed width, all stages have the least, the middle or the most
of five. The oracle tries each width in a copy of the machine and knows when the stage would end; ours sees the queue.
Both have a patience, and along it lies a front of core-hours and
turnaround; compared is the point at the core-hours of the middle width. `mix` is the best of what any mixture of fixed
widths reaches there: what is won without looking at the queue.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asa.core.context import Context
from asa.core.job import Resources
from asa.core.registry import ESTIMATORS
from asa.core.stage import Width
from asa.core.units import DAY, HOUR
from asa.core.width import PricedWidth, choose, patience_for, time_on
from asa.lab.asa_paper.probes import JobKind, started, submit
from asa.lab.backend.scene import QueueScene, SimulationOptions
from asa.lab.dispatchers.backfill import BackfillRule, rule_of
from asa.lab.forecast.futures import planned_s, visible
from asa.lab.forecast.lookahead import Lookahead
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.state import StopReason
from benchmarks.measure import show

LOGS = {"HPC2N": "HPC2N-2002-2.2-cln.swf.gz", "Theta": "theta_argonne_2023_norm.swf.gz"}
LEAST = {"hpc2n": 28, "uppmax": 40, "HPC2N": 4, "Theta": 128}
"""The narrowest of five widths, each twice the one before."""
STAGES, SHARE = 3, 0.03
WARMUP = {"HPC2N": 30.0, "Theta": 45.0}
"""When workflows begin to come in a log [days]; Theta is nearly empty for a month. In the models after a week."""
CLOSE, TRIES = 0.05, 5
"""How close core-hours come to those that are compared at, and how many patiences are tried for that."""

Sized = Sequence[PricedWidth]
Waits = Callable[[Engine, BackfillRule, Sized], list[float]]
"""What jobs of these widths would wait, if they were submitted now [s]."""


class Case(NamedTuple):
    """A queue, and the workflows that are injected into it: when each comes [s], and the widths of its stages."""

    scene: QueueScene
    engine: Engine
    comes: list[float]
    stages: list[list[Sized]]


def case(name: str, folder: Path, fraction: float, workflows: int, seed: int = 1) -> Case:
    """The background as it is after the warm-up, and workflows over as long a time as makes them 3 % of it."""
    rng = np.random.default_rng(seed)
    cores = [LEAST[name] << step for step in range(5)]
    hours = np.exp(rng.normal(0.0, 0.8, (workflows, STAGES))).clip(1 / 6, 6.0)  # on the middle width
    stages = [[sized(cores, hour * HOUR, fraction) for hour in row] for row in hours]
    source = {"trace": str(next(folder.rglob(LOGS[name])))} if name in LOGS else {"site": name}

    def scene_of(days: float) -> tuple[SimulationOptions, QueueScene]:
        options = SimulationOptions(seed=seed, warmup=WARMUP.get(name, 7.0), days=days, **source)
        return options, options.scene()

    injected = sum(cores[2] * hour * HOUR for hour in hours.flat)
    _, probe = scene_of(28.0)
    others = probe.workload.between(probe.start, probe.end)
    days = injected / SHARE / float((others.cores * others.run).sum()) * (probe.end - probe.start) / DAY
    options, scene = scene_of(days + 4.0)
    if scene.end < scene.start + days * DAY:
        raise SystemExit(f"{name}: the log is too short for {workflows} workflows: lower --workflows")
    engine = Engine(scene.workload, scene.cluster, options.settings(scene))
    comes = np.sort(scene.start + rng.uniform(0.0, days * DAY, workflows)).tolist()
    size = f"{len(scene.workload)} jobs, {scene.cluster.cores} cores, {days:.1f} days"
    print(f"{name}, {fraction}: {size}", file=sys.stderr)
    return Case(scene, engine, comes, stages)


def sized(cores: Sequence[int], middle_s: float, fraction: float) -> Sized:
    """The widths of a stage that takes so long on the middle one [s]; wall times are half as long again."""
    unit = middle_s / time_on(cores[len(cores) // 2], fraction)
    times = [unit * time_on(each, fraction) for each in cores]
    walltimes = [math.ceil(1.5 * time / 300.0) * 300.0 for time in times]
    return [
        PricedWidth(Width(Resources(each), Resources(each), walltime, time), each)
        for each, time, walltime in zip(cores, times, walltimes, strict=True)
    ]


def run(found: Case, expect: Waits | int, times: float = 1.0) -> tuple[float, float]:
    """Mean core-hours and turnaround [h] of the workflows, all of them in the same queue, with a fixed width or by what
    is expected and so many `times` the default patience."""
    engine, rule = found.engine.copy(), rule_of(found.scene.dispatcher)
    todo = [(at, number, 0) for number, at in enumerate(found.comes)]
    jobs: dict[int, tuple[int, int, PricedWidth]] = {}
    charged = turnaround = 0.0
    heapq.heapify(todo)
    while todo or jobs:
        why = engine.dispatch(rule, until=todo[0][0] if todo else math.inf)
        if why is StopReason.JOB_CHANGED:
            for row in [row for row in jobs if not math.isnan(engine.state.job_states["ended"][row])]:
                number, stage, chosen = jobs.pop(row)
                charged += chosen.core_s
                if hasattr(expect, "learn"):
                    expect.learn(row, float(engine.state.jobs["started"][row] - engine.state.jobs["submit"][row]))
                if stage + 1 < STAGES:
                    heapq.heappush(todo, (engine.now, number, stage + 1))
                else:
                    turnaround += engine.now - found.comes[number]
            continue
        if not todo:
            raise SystemExit("jobs that were injected never ended")
        _, number, stage = heapq.heappop(todo)
        options = found.stages[number][stage]
        if isinstance(expect, int):
            chosen = options[expect]
        else:
            waits = expect(engine, rule, options)
            seen = [option._replace(wait_s=wait_s) for option, wait_s in zip(options, waits, strict=True)]
            chosen, _ = choose(seen, 0.0, times * patience_for([option.width for option in options]))
        row = submit(engine, _kind(chosen), chosen.width.run_time_s)
        jobs[row] = number, stage, chosen
        if hasattr(expect, "asked"):
            expect.asked(row, options.index(chosen._replace(wait_s=0.0)))
    count = len(found.comes)
    return charged / count / HOUR, turnaround / count / HOUR


def _kind(option: PricedWidth) -> JobKind:
    return JobKind(option.width.resources.cores, option.width.walltime_s)


def oracle(engine: Engine, rule: BackfillRule, options: Sized) -> list[float]:
    """What each width would really wait."""
    waits = []
    for option in options:
        copy = engine.copy()
        (start,) = started(copy, rule, [submit(copy, _kind(option), option.width.run_time_s)])
        waits.append(start - engine.now)
    return waits


def planned(engine: Engine, _rule: BackfillRule, options: Sized) -> list[float]:
    """By a conservative plan of the queue as it is seen."""
    view = engine.view()
    return [planned_s(view, *_kind(option)) for option in options]


class Estimated:
    """By an estimator that learns from the jobs that were injected before; the plan's while it knows nothing."""

    def __init__(self) -> None:
        self._estimator, self._count = ESTIMATORS.create("context", seed=0), 0
        self._contexts: list[Context] = []
        self._asked: dict[int, Context] = {}

    def __call__(self, engine: Engine, rule: BackfillRule, options: Sized) -> list[float]:
        view, plan = engine.view(), planned(engine, rule, options)
        self._contexts = [
            Context(engine.now, *_kind(option), pending_s=0.0, own_queued=0, planned_s=wait_s).looked(view)
            for option, wait_s in zip(options, plan, strict=True)
        ]
        if self._count < 10:
            return plan
        return [float(self._estimator.predict(context)) for context in self._contexts]

    def asked(self, row: int, place: int) -> None:
        self._asked[row] = replace(self._contexts[place], queue=None)

    def learn(self, row: int, wait_s: float) -> None:
        self._count += 1
        self._estimator.learn(wait_s, context=self._asked.pop(row))


class Forecast:
    """By running the queue forward in many futures, with what was seen of it whenever a width was chosen."""

    def __init__(self) -> None:
        self._lookahead = Lookahead(step=0)

    def __call__(self, engine: Engine, _rule: BackfillRule, options: Sized) -> list[float]:
        self._lookahead.see(engine.view())
        seen = visible(engine.view())
        return [float(np.median(self._lookahead.waits(seen, *_kind(option)))) for option in options]


def front(found: Case, make: Callable[[], Waits], core_hours: float) -> dict[float, tuple[float, float]]:
    """Core-hours and turnaround by patience, of the default one and of those around where the core-hours are these."""
    points, low, high, times = dict[float, tuple[float, float]](), 0.0, math.inf, 1.0
    for _ in range(TRIES):
        points[times] = run(found, make(), times)
        cost = points[times][0]
        low, high = (times, high) if cost < core_hours else (low, times)
        if abs(cost / core_hours - 1) < CLOSE and low > 0 and high < math.inf:
            break
        times = math.sqrt(low * high) if low > 0 and high < math.inf else 4 * low if high == math.inf else high / 4
    return points


def at(core_hours: float, points: Sequence[tuple[float, float]]) -> float:
    """Turnaround at these core-hours, on the lower hull of the points: what is not on it, mixtures of others beat."""
    best = min((hours for cost, hours in points if cost <= core_hours), default=math.nan)
    for low_cost, low in points:
        for high_cost, high in points:
            if low_cost <= core_hours < high_cost:
                share = (core_hours - low_cost) / (high_cost - low_cost)
                best = min(best, low + share * (high - low))
    return best


def rows(name: str, folder: Path, fraction: float, workflows: int, seed: int, ways: Sequence[str]) -> dict[str, Any]:
    """One line of the table; the oracle is one of the `ways`."""
    found = case(name, folder, fraction, workflows, seed)
    found.engine.dispatch(rule_of(found.scene.dispatcher), until=found.comes[0])
    flat = [run(found, place) for place in range(5)]
    cost, middle = flat[2]
    fronts = {way: front(found, CHOOSERS[way], cost) for way in ways}
    mix = at(cost, flat)
    print(flat, fronts, file=sys.stderr)
    reached = {name: at(cost, [*flat, *points.values()]) for name, points in fronts.items()}
    limit = reached["oracle"]
    return {
        "queue": name,
        "parallel": fraction,
        "seed": seed,
        "least [h]": flat[0][1],
        "middle [h]": middle,
        "most [h]": flat[-1][1],
        "core-h": cost,
        "mix [h]": mix,
        "oracle [h]": limit,
        **{f"{name} [h]": hours for name, hours in reached.items() if name != "oracle"},
        **{f"{name}, of the gain": (middle - hours) / (middle - limit or math.nan) for name, hours in reached.items()},
        **{f"{name}, as it is": "{1:.3g} h, {0:.4g} core-h".format(*points[1.0]) for name, points in fronts.items()},
    }


CHOOSERS: dict[str, Callable[[], Waits]] = {
    "oracle": lambda: oracle,
    "plan": lambda: planned,
    "context": Estimated,
    "forecast": Forecast,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the logs are, at any depth")
    parser.add_argument("--cases", nargs="+", choices=list(LEAST), default=list(LEAST))
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.9, 0.99])
    parser.add_argument("--workflows", type=int, default=100, help="how many are injected in each case")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="of the workflows, and of site models (1)")
    parser.add_argument("--ways", nargs="+", choices=list(CHOOSERS), default=list(CHOOSERS), help="to choose (all)")
    options = parser.parse_args()
    ways = dict.fromkeys(["oracle", *options.ways])  # what it gains is what others are measured by
    lines = []
    for name in options.cases:
        for fraction, seed in itertools.product(options.fractions, options.seeds):
            lines.append(rows(name, options.folder, fraction, options.workflows, seed, [*ways]))
            used = resource.getrusage(resource.RUSAGE_SELF)
            print(lines[-1], f"{used.ru_utime + used.ru_stime:.0f} s so far", file=sys.stderr)
    show(f"Widths by the queue: {options.workflows} workflows of {STAGES} stages a case", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
