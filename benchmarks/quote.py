"""Quotes beside what became of the runs, on logs and site models in virtual time.

    python -m benchmarks.quote [--quick] [--runs 120] [--only NAME] [--json FILE] [--from FILE ...] [--first [TIMES]]

One user runs the paper's three workflows again and again, about twice a day, at two sizes; what a stage takes varies
from run to run. Before each run a quote is made, from what the user's earlier runs have taught: run times of stages,
waits of their jobs, the errors of earlier quotes, and the queue as it is visible. Beside it, the forecaster that always
says what the last runs of the same workflow took. Both are scored in the same way.

With ``--first``, waits of single jobs that are quoted where nothing was learned, by the queue alone, in which the wall
times of others are so many TIMES what they are in the log. With ``--from``, the tables are made of rows that ``--json``
kept, without a run.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from asa.core.backfill import planned
from asa.core.event import Quoted
from asa.core.job import Resources
from asa.core.run import FoldedRun
from asa.lab.asa_paper.probes import JobKind, started, submit
from asa.lab.asa_paper.workflows import MODELS, model
from asa.lab.backend.simulated import Simulated
from asa.lab.dispatchers.backfill import rule_of
from asa.lab.virtual import MemoryWaits, run_virtual
from asa.strategies.options import DEFAULT_ESTIMATOR
from asa.workflows.graph import make_graph
from asa.workflows.quote import DrawnWaits, Quote, Quoter, corrected, from_history, quantile, seen_of, stage_times
from asa.workflows.settings import Settings
from asa.workflows.stage import Node, Stage, make_needs
from asa.workflows.virtual_work import Times
from benchmarks.measure import show

QUEUES: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "HPC2N": ({"trace": "HPC2N-2002-2.2-cln.swf.gz", "warmup": 60.0}, (28, 64)),
    "KTH": ({"trace": "KTH-SP2-1996-2.swf.gz", "warmup": 30.0}, (28, 48)),
    "Theta": ({"trace": "theta_argonne_2023_norm.swf.gz", "warmup": 80.0}, (128, 512)),
    "hpc2n model": ({"site": "hpc2n", "warmup": 14.0}, (28, 112)),
    "uppmax model": ({"site": "uppmax", "warmup": 14.0}, (160, 320)),
}
"""Where workflows are injected, and their two sizes [cores]."""
APART_S = 12 * 3600.0
PROBE_S = 7200.0
"""Wall time of a job whose wait is quoted where nothing was learned."""
VARIES = 0.25
"""Standard deviation of the logarithm of what a stage takes, from run to run."""
LAST_MOST = 10
"""Runs of the same workflow by which the plain forecaster's interval goes."""


def varied(name: str, cores: int, factors: Sequence[float]) -> Node:
    """A workflow of the paper, whose stages take these times as long."""
    before: list[Node] = []
    for item, factor in zip(model(name, cores).stages, factors, strict=True):
        each = math.gcd(item.cores, 4)
        run_time_s = min(item.run_time_s * factor, 0.99 * item.walltime_s)
        needs = make_needs(item.name, cores=item.cores, task_cores=each, walltime=item.walltime_s, run_time=run_time_s)
        stage = Stage(abs, needs, item.name)
        node = stage.map(range(item.cores // each)) if item.cores > 1 else stage(0)
        before = [node.after(*before)]
    return before[0]


def run_queue(where: str, runs: int, strategy: str, data: Path, seed: int) -> list[dict[str, Any]]:
    """A row for each run: what was quoted, what the last runs say, and what became of it."""
    options, sizes = QUEUES[where]
    if "trace" in options:
        options = {**options, "trace": data / options["trace"]}
    queue = Simulated(**options, days=runs * APART_S / 86400 * 1.1 + 14)
    chance = random.Random(seed)
    kinds = [(name, cores) for cores in sizes for name in MODELS]
    waits, took = MemoryWaits(DEFAULT_ESTIMATOR), dict[tuple[str, int, str], list[float]]()
    rows: list[dict[str, Any]] = []
    misses: list[tuple[float, float]] = []  # when an error became known, and it
    for number in range(runs):
        queue.sleep(chance.expovariate(1 / APART_S))
        name, cores = chance.choice(kinds)
        sigma = [math.exp(chance.gauss(0.0, VARIES)) for _ in model(name, cores).stages]
        workflow, here = varied(name, cores, sigma), queue.copy()
        now = here.clock.now()
        began = time.process_time()
        found = quoted(workflow, here, strategy, waits, took, (name, cores), [off for at, off in misses if at <= now])
        cost_s = time.process_time() - began
        events = run_virtual(workflow, here, strategy, waits=waits)
        run = FoldedRun()
        for event in events:
            run.on(event)
        assert run.ended is not None, "it is over"
        for stage in run.stages.values():
            assert stage.started is not None and stage.ended is not None, "it is done"
            took.setdefault((name, cores, stage.spec.name), []).append(stage.ended - stage.started)
        rows.append(
            {
                "queue": where, "number": number, "workflow": name, "cores": cores, "at": now, "cost_s": cost_s,
                "done": found.done - now, "drawn": [each - now for each in found.drawn],
                "low": found.low - now, "high": found.high - now,
                "core_hours": found.core_hours, "ended": run.ended - now,
                "waiting": len(here.look().queue),
            }
        )  # fmt: skip
        misses.append((run.ended, found.event().missed(run.ended)))
    return rows


def quoted(
    workflow: Node,
    queue: Simulated,
    strategy: str,
    waits: MemoryWaits,
    took: dict[tuple[str, int, str], list[float]],
    kind: tuple[str, int],
    misses: Sequence[float],
) -> Quote:
    """A quote from what the user's earlier runs have taught."""
    graph, site = make_graph(workflow), queue.capabilities()
    specs, now = graph.specs(site), queue.clock.now()
    settings = Settings(graph.result, "run", "sim", strategy)
    times = stage_times(graph, specs, Times(), virtual=False)
    for name in times:
        if before := took.get((*kind, name)):
            times[name] = from_history(before)
    jobs = sum(map(len, took.values()))
    known = DrawnWaits(waits, now, seen_of(queue), lessons=lambda _resources, _walltime_s: jobs)
    return Quoter(graph, settings, site, specs, known, times, now=now, misses=misses).quote(strategy)


def first_waits(where: str, times: float, data: Path, seed: int, moments: int = 50) -> list[dict[str, Any]]:
    """What is said of waits by the queue alone, beside a plan by wall times, and what they are in a copy of it."""
    options, sizes = QUEUES[where]
    if "trace" in options:
        options = {**options, "trace": data / options["trace"]}
    queue = Simulated(**options, days=moments + 20)
    scene = queue.scene
    workload = replace(scene.workload, walltime=scene.workload.walltime * times)
    queue.scene = replace(scene, workload=workload)
    chance, said = random.Random(seed), dict[str, list[tuple[float, float, float, float]]]()
    for _ in range(moments):
        queue.sleep(chance.expovariate(1 / APART_S))
        now = queue.clock.now()
        book = MemoryWaits(DEFAULT_ESTIMATOR)
        waits = DrawnWaits(book, now, seen_of(queue), lessons=lambda _resources, _walltime_s: 0)
        profile = planned(queue.look().plain())
        for cores in sizes:
            copy = queue.engine.copy()
            row = submit(copy, JobKind(cores, PROBE_S), 1.0)
            (start,) = started(copy, rule_of(scene.dispatcher), [row])
            low, middle, high = waits.predicted(Resources(cores), PROBE_S, now, (0.1, 0.5, 0.9))
            said.setdefault("quote", []).append((middle, low, high, start - now))
            plan_s = profile.earliest(Resources(cores), PROBE_S) - now
            said.setdefault("plan by wall times", []).append((plan_s, plan_s, plan_s, start - now))
    return [{"queue": where, "wall times": times, "forecaster": what, **scored(each)} for what, each in said.items()]


def corrections(rows: Sequence[dict[str, Any]]) -> None:
    """Correct the intervals of one queue's rows by the errors that were known when each quote was made."""
    for row in rows:
        known = [
            Quoted(0.0, other["done"], *other["drawn"], 0.0, tuple(other["drawn"]), 0).missed(other["ended"])
            for other in sorted(rows, key=lambda other: other["at"] + other["ended"])
            if other["at"] + other["ended"] <= row["at"]
        ]
        row["low"], row["high"] = corrected(row["done"], *row["drawn"], known)


def plain(rows: Sequence[dict[str, Any]], place: int) -> tuple[float, float, float] | None:
    """What the last runs of the same kind took: the last one, and the interval of the last few."""
    row = rows[place]
    last = [
        other["ended"]
        for other in rows[:place]
        if (other["workflow"], other["cores"]) == (row["workflow"], row["cores"])
        and other["at"] + other["ended"] <= row["at"]
    ][-LAST_MOST:]
    if len(last) < 3:
        return None
    ordered = sorted(last)
    return last[-1], quantile(ordered, 0.1), quantile(ordered, 0.9)


def table(rows: Sequence[dict[str, Any]], skipped: int = 12) -> list[dict[str, Any]]:
    """Coverage, width and error of both; runs before there is anything to go by are left out."""
    lines = []
    for where in dict.fromkeys(row["queue"] for row in rows):
        here = [row for row in rows if row["queue"] == where]
        others = {place: said for place in range(len(here)) if (said := plain(here, place)) and place >= skipped}
        said = {
            "quote": {place: (here[place]["done"], here[place]["low"], here[place]["high"]) for place in others},
            "uncorrected": {place: (here[place]["done"], *here[place]["drawn"]) for place in others},
            "last runs": others,
        }
        for what, each in said.items():
            lines.append({"queue": where, "forecaster": what, **scored([(*each[k], here[k]["ended"]) for k in each])})
    return lines


def scored(said: Sequence[tuple[float, float, float, float]]) -> dict[str, Any]:
    """How intervals (middle, low, high) did for what came [s]."""
    inside = [low <= came <= high for _, low, high, came in said]
    return {
        "runs": len(said),
        "covered %": 100 * statistics.mean(inside),
        "below %": 100 * statistics.mean(came < low for _, low, _, came in said),
        "width, median h": statistics.median(high - low for _, low, high, _ in said) / 3600,
        "width, mean h": statistics.mean(high - low for _, low, high, _ in said) / 3600,
        "interval score h": statistics.mean(interval_score(*each) for each in said) / 3600,
        "error, mean h": statistics.mean(abs(middle - came) for middle, _, _, came in said) / 3600,
        "within a factor of 2 %": 100 * statistics.mean(0.5 <= (m + 60) / (came + 60) <= 2 for m, _, _, came in said),
    }


def interval_score(_middle: float, low: float, high: float, came: float) -> float:
    """Width, and ten times (2 / 0.2) by how much it missed: the less the better, for 80 % intervals.

    References
    ----------
    T. Gneiting and A. Raftery, Strictly proper scoring rules, prediction, and estimation, JASA 102 (2007).
    """
    return high - low + 10.0 * (max(0.0, low - came) + max(0.0, came - high))


def main() -> int:
    parser = argparse.ArgumentParser(description="quotes beside what became of the runs")
    parser.add_argument("--quick", action="store_true", help="a few runs in one log")
    parser.add_argument("--runs", type=int, default=120, help="in each queue (120)")
    parser.add_argument("--only", help="this queue")
    parser.add_argument("--strategy", default="auto", help="of the runs (auto)")
    parser.add_argument("--data", type=Path, default=Path("shared/data/swf"), help="where the logs are")
    parser.add_argument("--seed", type=int, default=1, help="of runs and moments (1)")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--first", type=float, nargs="?", const=1.0, metavar="TIMES", help="where nothing was learned")
    parser.add_argument("--from", dest="kept", type=Path, nargs="+", help="files with rows")
    options = parser.parse_args()
    if options.kept:
        rows = [row for path in options.kept for row in json.loads(path.read_text())["rows"]]
        for where in {row["queue"] for row in rows}:
            corrections([row for row in rows if row["queue"] == where])
        show(f"Quotes, strategy {options.strategy}", table(rows))
        return 0
    names = [options.only] if options.only else ["KTH"] if options.quick else [*QUEUES]
    if options.first is not None:
        firsts = [row for name in names for row in first_waits(name, options.first, options.data, options.seed)]
        show("Waits that are quoted where nothing was learned", firsts)
        return 0
    rows = []
    for name in names:
        found = run_queue(name, 30 if options.quick else options.runs, options.strategy, options.data, options.seed)
        rows += found
        print(f"{name}: {len(found)} runs", file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps({"rows": rows}))
    show(f"Quotes, strategy {options.strategy}", table(rows))
    costs = [row["cost_s"] for row in rows]
    show("Cost of a quote", [{"CPU, median s": statistics.median(costs), "CPU, largest s": max(costs)}])
    return 0


if __name__ == "__main__":
    sys.exit(main())
