"""Strategies on a real Slurm in each of its four regimes, among other users' jobs.

    python -m benchmarks.slurm_regimes --regime limits --repetitions 10 --json limits.json > limits.md

It boots a cluster of its own, of four nodes of eight cores; ages are recounted once a minute and are full after ten.
Another user's jobs sleep there: in each repetition all strategies meet the same ones, at the same times after their
start. All runs of a regime share what they learn about waits. A repetition takes some five minutes, and several
regimes can be measured side by side: the machine hardly works.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from asa.lab.study import Estimate, estimate
from tests.cluster import host, layout
from tests.cluster.cluster import running
from tests.cluster.config import REGIMES
from tests.integration.load import BackgroundLoad
from tests.integration.shell import Shell

FLOW = Path(__file__).with_name("regime_flow.py")
STRATEGIES = ("big-job", "per-stage", "asa", "asa-naive", "hold")
OTHERS = "daemon"  # a user whom every system has
LOAD = {"offered_load": 0.95, "mean_run_s": 15.0, "backlog_s": 15.0}
MEASURES = ("makespan_s", "total_perceived_wait_s", "core_hours_charged", "overhead_core_hours")


def measure(shell: Shell, strategy: str, seed: int) -> dict[str, Any]:
    """Run the workflow once; what came of it."""
    with BackgroundLoad(shell.cluster, seed, user=OTHERS, **LOAD):
        words = ("--backend", "slurm:partition=main,poll_s=2", "--strategy", strategy, "--pool", "per-stage", "--quiet")
        done = shell.asa("run", FLOW, *words, "--executor", "local", timeout=900)
    if done.code:
        raise RuntimeError(f"{strategy} (seed {seed}) failed:\n{done.err}\n{done.out}")
    jobs = [
        {name: job[name] for name in ("stages", "cores", "wait_s", "core_hours_charged")} for job in done.data["jobs"]
    ]
    return {"strategy": strategy, "seed": seed, **{name: done.data[name] for name in MEASURES}, "jobs": jobs}


def summary(runs: list[dict[str, Any]]) -> dict[str, dict[str, Estimate]]:
    """Means over the repetitions by strategy, and ratios to Per-Stage's sums, with intervals."""
    import numpy as np

    seeds = sorted({run["seed"] for run in runs})
    found: dict[str, dict[str, Estimate]] = {}
    of = {(run["strategy"], run["seed"]): run for run in runs}
    for strategy in dict.fromkeys(run["strategy"] for run in runs):
        whole = [seed for seed in seeds if all((name, seed) in of for name in (strategy, "per-stage", "big-job"))]
        values = {
            name: np.array([[of[each, seed][name] for each in (strategy, "per-stage", "big-job")] for seed in whole])
            for name in MEASURES
        }
        found[strategy] = {name: estimate(lambda v: v[..., 0].mean(-1), table) for name, table in values.items()}
        for place, other in ((1, "per-stage"), (2, "big-job")):
            ratio = estimate(lambda v, at=place: v[..., 0].sum(-1) / v[..., at].sum(-1), values["makespan_s"])
            found[strategy][f"makespan over {other}"] = ratio
        found[strategy]["core-hours over per-stage"] = estimate(
            lambda v: v[..., 0].sum(-1) / v[..., 1].sum(-1), values["core_hours_charged"]
        )
    return found


def markdown(regime: str, runs: list[dict[str, Any]]) -> str:
    """The table."""
    found = summary(runs)
    heads = ("makespan [s]", "perceived wait [s]", "charged [core-h]", "idle, early [core-h]")
    ratios = ("makespan over per-stage", "makespan over big-job", "core-hours over per-stage")
    count = len({run["seed"] for run in runs})
    lines = [
        f"{regime}, {count} runs each: mean [95 % interval]\n",
        "| strategy | " + " | ".join((*heads, *ratios)) + " |",
        "|---|" + "---:|" * (len(heads) + len(ratios)),
    ]
    for strategy, row in found.items():
        lines.append(f"| `{strategy}` | " + " | ".join(str(row[name]) for name in (*MEASURES, *ratios)) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm_regimes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--regime", choices=REGIMES, required=True)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the first repetition's background jobs (1)")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="write all figures to this file, after each repetition"
    )
    options = parser.parse_args()
    runs: list[dict[str, Any]] = []
    config = host.configure(regime=options.regime, database=options.regime != "fifo", users=(OTHERS,))
    try:
        with running(config) as cluster, tempfile.TemporaryDirectory(prefix="asa-regimes-") as folder:
            shell = Shell(cluster, Path(folder))
            for seed in range(options.seed, options.seed + options.repetitions):
                for strategy in options.strategies:
                    began = time.monotonic()
                    runs.append(measure(shell, strategy, seed))
                    told = f"{options.regime} {strategy} seed {seed}: {time.monotonic() - began:.0f} s"
                    print(told, f"makespan {runs[-1]['makespan_s']:.1f} s", file=sys.stderr, flush=True)
                if options.json:
                    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
                    figures = {"regime": options.regime, "machine": machine, "background": LOAD, "runs": runs}
                    options.json.write_text(json.dumps(figures, indent=1) + "\n")
    finally:
        layout.remove(config)
    print(markdown(options.regime, runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
