"""Core-hours and makespans of the four examples, with stages that take guests and without.

    python -m benchmarks.shares
    python -m benchmarks.shares --rule cosched:rule=static --examples montage,blast
    python -m benchmarks.shares --slurm --repetitions 3

Each example runs on one core of this machine with its small data, once, or two of it side by side in one run. Then the
same in virtual time, on a machine without other users; run times are as measured, times what makes them an hour of work
for each example, and each task uses one core. Sequential stages ask for one core, as they do, or for as many as the
parallel ones, as where nodes are given whole. Each task has 512 MiB.

With --slurm two of each example run side by side on a Slurm cluster that is started here (root), on one node with two
of this machine's cores, with larger data; all stages ask for both cores.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import asa
from asa.core.event import TaskDone, TasksLaunched
from asa.log.events import EventLog
from asa.metrics.workflow import RunSummary, summarise
from asa.workflows.graph import make_graph
from benchmarks.measure import show
from tests.cluster import host, layout
from tests.cluster.cluster import running

EXAMPLES = Path(__file__).parents[1] / "examples" / "workflows"
NAMES = ("montage", "blast", "statistics", "synthetic")
CORES, WORK_S = 4, 3600.0
QUEUE = "sim:nodes=16,cores=4,memory=16G"
STRATEGIES = ("big-job", "per-stage")
SLURM_CORES = 2
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "montage": ("--tiles 5x5 --size 1200 --seed 1 --out tiles", {"tiles": "tiles"}),
    "blast": (
        "--sequences 20000 --queries 12000 --seed 1 --out genes",
        {"query": "genes/query.fa", "database": "genes/database.fa"},
    ),
    "statistics": ("--minutes 4000000 --seed 1 --out power.txt", {"data": "power.txt"}),
    "synthetic": ("", {"seconds": 4.0}),
}
"""For Slurm: what makes an example's data, and the arguments of its workflow."""


def build(
    folder: Path, copies: int, *, cores: int, whole: bool = False, shares: Any = False, times: Any = None, **data: Any
) -> Any:
    """The example of this process, `copies` times, its parallel stages with so many cores, the others as said."""
    module = importlib.import_module("workflow")
    values = [module.workflow(out=str(folder / f"out-{copy}"), cores=cores, **data) for copy in range(copies)]
    for name, node in make_graph(values).nodes.items():
        wide = cores if node.mapped or whole else 1
        memory = f"{512 * (cores if node.mapped else 1)}M"
        needs = {"cores": wide, "cpus": 1 if node.mapped else wide, "memory": memory, "walltime": "8h"}
        node.stage = node.stage.options(**needs, shares=shares, run_time=times and times[name], name=node.stage.name)
    return values


def measure(example: str, rule: Any) -> list[dict[str, Any]]:
    """Rows of one example, whose folder is this process's first on its path."""
    warnings.simplefilter("ignore", asa.AsaWarning)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        folder, state = Path(name), Path(name, "state")
        for copies in (1, 2):
            real = asa.run(build(folder, copies, cores=1), backend="local:cores=1", strategy="big-job", state=state)
            real.result()
            log, took = folder / f"one-core-{copies}.db", defaultdict(list)
            with EventLog(log, results=False) as kept:
                for _, event in real.events():
                    if isinstance(event, TaskDone):
                        took[event.stage].append(event.at - event.started)
                        event = replace(event, cpu_s=took[event.stage][-1], source="rusage")
                    kept.append([event])
            scale = copies * WORK_S / sum(map(sum, took.values()))
            times = {stage: scale * fmean(seconds) for stage, seconds in took.items()}
            for strategy, whole in itertools.product(STRATEGIES, (False, True)):
                found: list[tuple[float, float, int]] = []
                for shares in (False, rule):
                    flow = build(folder, copies, cores=CORES, whole=whole, shares=shares, times=times)
                    run = asa.run(flow, backend=f"{QUEUE},times={log}", strategy=strategy, state=state)
                    run.result()
                    summary, guests = came_of(run)
                    found.append((summary.core_hours_charged, (summary.makespan_s or 0.0) / 3600, guests))
                (hours, span, _), (less, sooner, guests) = found
                rows.append(
                    {
                        "in one run": f"{copies} {example}",
                        "strategy": strategy,
                        "sequential stages ask for": f"{CORES if whole else 1} cores",
                        "core-hours": hours,
                        "with guests": less,
                        "change [%]": round(100 * (less / hours - 1), 1),
                        "makespan [h]": span,
                        "with guests [h]": sooner,
                        "guests": guests,
                    }
                )
    return rows


def came_of(run: Any) -> tuple[RunSummary, int]:
    """The figures of a run, and how many tasks were guests."""
    events = [event for _, event in run.events()]
    launched = [event for event in events if isinstance(event, TasksLaunched) and event.host]
    return summarise(events), sum(stop - start for event in launched for start, stop in event.ranges)


def on_slurm(example: str, rule: Any, repetitions: int) -> list[dict[str, Any]]:
    """Rows of one example on the cluster of this process's environment: a run without guests and one with, in turn."""
    warnings.simplefilter("ignore", asa.AsaWarning)
    words, data = DATA[example]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        if words:
            script = EXAMPLES / example / "make_data.py"
            subprocess.run([sys.executable, str(script), *words.split()], check=True, stdout=sys.stderr)
        for repetition, shares in itertools.product(range(repetitions), (False, rule)):
            folder = Path(name, f"{repetition}-{shares}")
            flow = build(folder, 2, cores=SLURM_CORES, whole=True, shares=shares, **data)
            run = asa.run(flow, backend="slurm:poll_s=1", strategy="big-job", state=Path(name, "state"))
            run.result()
            summary, guests = came_of(run)
            row = {
                "in one run": f"2 {example}",
                "repetition": repetition + 1,
                "guest rule": str(rule) if shares else "none",
                "core-hours": summary.core_hours_charged,
                "makespan [s]": summary.makespan_s,
                "guests": guests,
            }
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
    return rows


def apart(examples: Sequence[str], environment: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of these examples, each measured in a process of its own: their modules have the same names."""
    rows: list[dict[str, Any]] = []
    for example in examples:
        path = os.pathsep.join([str(EXAMPLES / example), str(EXAMPLES), str(EXAMPLES.parents[1])])
        argv = [sys.executable, "-m", "benchmarks.shares", *sys.argv[1:], "--one", example]
        done = subprocess.run(
            argv, env=os.environ | environment | {"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True, text=True
        )
        rows += json.loads(done.stdout.splitlines()[-1])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", default=",".join(NAMES))
    parser.add_argument("--rule", default="", help="a guest rule (default: all that is idle)")
    parser.add_argument("--slurm", action="store_true", help="on a Slurm cluster of this machine")
    parser.add_argument("--repetitions", type=int, default=1, help="of each pair of runs with --slurm (1)")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rule: Any = options.rule or True
    if options.one:
        slurm = options.slurm
        found = on_slurm(options.one, rule, options.repetitions) if slurm else measure(options.one, rule)
        print(json.dumps(found))
        return
    examples = options.examples.split(",")
    if options.slurm:
        config = host.configure(nodes=1, cores_per_node=SLURM_CORES)
        with running(config):
            rows = apart(examples, {"SLURM_CONF": str(config.slurm_conf)})
        layout.remove(config)
    else:
        rows = apart(examples, {})
    show("Stages that share, against those that do not", rows)


if __name__ == "__main__":
    main()
