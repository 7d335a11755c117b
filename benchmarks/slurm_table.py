"""All four workflows under all five strategies on a busy Slurm cluster, as a table.

    python -m benchmarks.slurm_table --repetitions 3 --json slurm_table.json > slurm_table.md

It boots a cluster of its own (see docs/howto/test-cluster.md), four nodes of eight cores with first-come-first-served
order and backfill. Other people's jobs sleep there: in each repetition all runs meet the same ones, at the same times
after their start, so that strategies can be compared pair by pair. All runs share what they learn about waits, and are
made in the order of the table. Results are checked. A repetition takes about 20 minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.cluster import host, layout
from tests.cluster.cluster import running
from tests.integration.examples import EXAMPLES, FOLDER, STRATEGIES, Example
from tests.integration.load import BackgroundLoad
from tests.integration.shell import Shell

OFFERED_LOAD, MEAN_RUN_S, BACKLOG_S = 0.9, 15.0, 15.0
"""Of the background jobs: see `BackgroundLoad`."""

MEASURES = {  # of a run -> head of its column, decimals
    "makespan_s": ("makespan [s]", 1),
    "total_perceived_wait_s": ("perceived wait [s]", 1),
    "core_hours_charged": ("charged [core-h]", 4),
    "core_hours_used": ("used [core-h]", 4),
    "overhead_core_hours": ("overhead [core-h]", 4),
}


@dataclasses.dataclass(frozen=True)
class Work:
    """A workflow, what makes its input, and its arguments: some 10 s of work on 2 cores."""

    example: Example
    data: tuple[str, ...]
    arguments: tuple[str, ...]


WORKS = {
    "montage": Work(
        dataclasses.replace(EXAMPLES["montage"], truth="tiles/truth.json"),
        ("--tiles", "5x5", "--size", "600", "--seed", "1", "--out", "tiles"),
        ("tiles=tiles", "cores=4"),
    ),
    "blast": Work(
        dataclasses.replace(EXAMPLES["blast"], truth="genes/truth.json"),
        ("--sequences", "10000", "--queries", "6000", "--seed", "1", "--out", "genes"),
        ("query=genes/query.fa", "database=genes/database.fa", "cores=8"),
    ),
    "statistics": Work(
        dataclasses.replace(EXAMPLES["statistics"], truth="power.txt"),
        ("--minutes", "1600000", "--seed", "1", "--out", "power.txt"),
        ("data=power.txt", "cores=4"),
    ),
    "synthetic": Work(EXAMPLES["synthetic"], (), ("seconds=1", "cores=8")),
}


def make_data(shell: Shell, works: Iterable[Work]) -> None:
    """Make the input of some workflows in the shell's folder."""
    for work in works:
        if work.data:
            script = FOLDER / work.example.name / "make_data.py"
            subprocess.run([sys.executable, str(script), *work.data], cwd=shell.folder, check=True, stdout=sys.stderr)


def measure(shell: Shell, work: Work, strategy: str, seed: int) -> dict[str, Any]:
    """Run a workflow once among other people's jobs; what came of it."""
    out = f"{work.example.name}-out"
    settings = (word for argument in work.arguments for word in ("--set", argument))
    with BackgroundLoad(shell.cluster, seed, offered_load=OFFERED_LOAD, mean_run_s=MEAN_RUN_S, backlog_s=BACKLOG_S):
        done = work.example.run(shell, out, strategy, *settings)
    if done.code:
        raise RuntimeError(f"{work.example.name} under {strategy} failed:\n{done.err}")
    work.example.check(shell, out, done.out, golden=False)
    return {
        "workflow": work.example.name,
        "strategy": strategy,
        "seed": seed,
        "executor": done.data["executor"],
        **{name: done.data[name] for name in MEASURES},
        "jobs": [
            {name: job[name] for name in ("stages", "cores", "wait_s", "predicted_wait_s", "core_hours_charged")}
            for job in done.data["jobs"]
        ],
    }


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean, least and most of every measure, for each workflow and strategy."""
    rows = []
    for workflow, strategy in dict.fromkeys((run["workflow"], run["strategy"]) for run in runs):
        same = [run for run in runs if (run["workflow"], run["strategy"]) == (workflow, strategy)]
        row: dict[str, Any] = {"workflow": workflow, "strategy": strategy, "runs": len(same)}
        for name in MEASURES:
            values = [run[name] for run in same]
            row[name] = {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}
        rows.append(row)
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table: mean and, where there was more than one run, least to most."""
    lines = [
        "| workflow | strategy | " + " | ".join(head for head, _ in MEASURES.values()) + " |",
        "|---|---|" + "---:|" * len(MEASURES),
    ]
    for row in rows:
        cells = []
        for name, (_, decimals) in MEASURES.items():
            value = row[name]
            spread = f" ({value['min']:.{decimals}f}-{value['max']:.{decimals}f})" if row["runs"] > 1 else ""
            cells.append(f"{value['mean']:.{decimals}f}{spread}")
        lines.append(f"| {row['workflow']} | `{row['strategy']}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm_table", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--repetitions", type=int, default=1, help="how often to run everything (1)")
    parser.add_argument("--seed", type=int, default=1, help="of the background jobs in the first repetition (1)")
    parser.add_argument("--workflows", default=",".join(WORKS), help="some of them, by comma (all)")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, help="some of them (all)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all figures to this file")
    options = parser.parse_args()
    works = [WORKS[name] for name in options.workflows.split(",")]
    runs: list[dict[str, Any]] = []
    config = host.configure()
    with running(config) as cluster, tempfile.TemporaryDirectory(prefix="asa-table-") as folder:
        shell = Shell(cluster, Path(folder))
        make_data(shell, works)
        for seed in range(options.seed, options.seed + options.repetitions):
            for work in works:
                for strategy in options.strategies:
                    began = time.monotonic()
                    runs.append(measure(shell, work, strategy, seed))
                    told = f"{work.example.name} {strategy} seed {seed}: {time.monotonic() - began:.0f} s"
                    print(told, file=sys.stderr, flush=True)
    layout.remove(config)
    rows = summary(runs)
    print(markdown(rows))
    if options.json:
        load = {"offered_load": OFFERED_LOAD, "mean_run_s": MEAN_RUN_S, "backlog_s": BACKLOG_S}
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        figures = {"machine": machine, "background": load, "rows": rows, "runs": runs}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
