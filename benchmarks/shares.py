"""Core-hours and makespans of the four examples, with stages that take guests and without.

    python -m benchmarks.shares
    python -m benchmarks.shares --rule cosched:rule=static --examples montage,blast

Each example runs on one core of this machine with its small data, once, or two of it side by side in one run. Then the
same in virtual time, on a machine without other users; run times are as measured, times what makes them an hour of work
for each example, and each task uses one core. Sequential stages ask for one core, as they do, or for as many as the
parallel ones, as where nodes are given whole. Each task has 512 MiB.
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
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import asa
from asa.core.event import TaskDone, TasksLaunched
from asa.log.events import EventLog
from asa.metrics.workflow import summarise
from asa.workflows.graph import make_graph
from benchmarks.measure import show

EXAMPLES = Path(__file__).parents[1] / "examples" / "workflows"
NAMES = ("montage", "blast", "statistics", "synthetic")
CORES, WORK_S = 4, 3600.0
QUEUE = "sim:nodes=16,cores=4,memory=16G"
STRATEGIES = ("big-job", "per-stage")


def build(folder: Path, copies: int, *, cores: int, whole: bool = False, shares: Any = False, times: Any = None) -> Any:
    """The example of this process, `copies` times, its parallel stages with so many cores, the others as said."""
    module = importlib.import_module("workflow")
    values = [module.workflow(out=str(folder / f"out-{copy}"), cores=cores) for copy in range(copies)]
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
                    events = [event for _, event in run.events()]
                    launched = [event for event in events if isinstance(event, TasksLaunched) and event.host]
                    guests = sum(stop - start for event in launched for start, stop in event.ranges)
                    summary = summarise(events)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", default=",".join(NAMES))
    parser.add_argument("--rule", default="", help="a guest rule (default: all that is idle)")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.rule or True)))
        return
    rows: list[dict[str, Any]] = []
    for example in options.examples.split(","):
        path = os.pathsep.join([str(EXAMPLES / example), str(EXAMPLES), str(EXAMPLES.parents[1])])
        argv = [sys.executable, "-m", "benchmarks.shares", "--one", example]
        argv += ["--rule", options.rule] if options.rule else []
        done = subprocess.run(
            argv, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True, text=True
        )
        rows += json.loads(done.stdout.splitlines()[-1])
    show("Stages that share, against those that do not", rows)


if __name__ == "__main__":
    main()
