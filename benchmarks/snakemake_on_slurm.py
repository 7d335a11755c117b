"""Snakemake on Slurm, twice: through ASA, and through Snakemake's own executor for Slurm, which submits each job.

    make snakemake
    python -m benchmarks.snakemake_on_slurm --jobs 1000 --seconds 3 --contenders asa slurm

A sample is two rules, one after the other, each of which sleeps; a last rule needs all of them. Each contender gets a
cluster of its own (see docs/howto/test-cluster.md): four nodes of eight cores, which are this machine. Both are at
their defaults, but for the partition, and `--jobs` so large that Snakemake itself holds nothing back.

Makespan: from the start of Snakemake to its end. Calls: of Slurm's commands but srun, counted by programs of the same
names that come before them on PATH; in all, and the most in 15 s once the first half minute is over, in which ASA looks
at the site and asks for its jobs. Core-hours: what sacct says that all jobs held. CPU: what the driver and what it
started have used; jobs are Slurm's, and not in it. Snakemake's executor for Slurm is out of ASA's sight: where it is
installed, each process of Snakemake asks Slurm how it is configured.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import show
from benchmarks.peers_on_slurm import charged
from tests.cluster import host, layout
from tests.cluster.cluster import Cluster, running
from tests.integrations.snakemakes import BESIDE, PLUGIN, PYTHON, snakemake

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol", "sacctmgr", "sshare", "sprio")
WINDOW_S, BEGINNING_S = 15.0, 30.0
CONTENDERS = {
    "asa": ("--executor", "asa", "--asa-backend", "slurm:partition=main"),
    "slurm": ("--executor", "slurm", "--default-resources", "slurm_partition=main", "runtime=5"),
}

_FLOW = """
rule all:
    input: "all.txt"
rule align:
    output: "align/{i}.txt"
    shell: "sleep SECONDS; echo {wildcards.i} > {output}"
rule sort:
    input: "align/{i}.txt"
    output: "sort/{i}.txt"
    shell: "sleep SECONDS; cp {input} {output}"
rule gather:
    input: expand("sort/{i}.txt", i=range(SAMPLES))
    output: "all.txt"
    shell: "cat sort/*.txt | wc -l > {output}"
"""


def counted(folder: Path, path: str, slurm_conf: str) -> tuple[str, Path]:
    """A PATH on which Slurm's commands note the time of each call, and where they note it.

    They find the cluster, too: Snakemake's executor takes variables such as SLURM_CONF away from its jobs.
    """
    notes, shims = folder / "calls", folder / "shims"
    shims.mkdir()
    for name in (*COMMANDS, "srun"):
        if (real := shutil.which(name, path=path)) is not None:
            shim, note = shims / name, f'echo "$(date +%s.%N) {name}" >> {notes}\n' * (name != "srun")
            shim.write_text(f'#!/bin/sh\n{note}SLURM_CONF={slurm_conf} exec {real} "$@"\n')
            shim.chmod(0o755)
    notes.touch()
    return f"{shims}{os.pathsep}{path}", notes


def most_within(times: Sequence[float], window_s: float = WINDOW_S) -> int:
    """The most of these times that lie in a window of that length.

    >>> most_within([0.0, 1.0, 14.9, 16.0, 100.0])
    3
    """
    ordered = sorted(times)
    return max((bisect_left(ordered, time + window_s) - place for place, time in enumerate(ordered)), default=0)


def contend(cluster: Cluster, name: str, jobs: int, seconds: float, timeout_s: float = 3000.0) -> dict[str, Any]:
    """Run the workflow once with so many jobs; what came of it."""
    samples = max(1, jobs // 2)
    with tempfile.TemporaryDirectory(prefix="asa-snakemake-") as found:
        folder = Path(found)
        flow = folder / "flow"
        flow.mkdir()
        (flow / "Snakefile").write_text(_FLOW.replace("SECONDS", str(seconds)).replace("SAMPLES", str(samples)))
        path, notes = counted(folder, cluster.env["PATH"], cluster.env["SLURM_CONF"])
        more = {**cluster.env, "PATH": path, "PYTHONPATH": str(PLUGIN if name == "asa" else BESIDE)}
        since, began = time.time(), time.monotonic()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        options = (*CONTENDERS[name], "--jobs", 10 * jobs, "--quiet", "progress", "rules")
        ended = snakemake(flow, *options, state=folder / "state", more=more, timeout_s=timeout_s)
        makespan_s = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode or (flow / "all.txt").read_text().strip() != str(samples):
            logs = "".join(log.read_text()[-2000:] for log in sorted(flow.glob(".snakemake/slurm_logs/**/*.log"))[:1])
            raise RuntimeError(f"{name}: {ended.stdout}{logs}")
        calls = [float(line.split()[0]) for line in notes.read_text().splitlines()]
        later = [at for at in calls if at > since + BEGINNING_S]
        held = charged(cluster, since)
    return {
        "executor": name,
        "rules": 2 * samples + 1,
        "makespan_s": makespan_s,
        "batch_jobs": held["jobs"],
        "calls": len(calls),
        "most_in_15_s": most_within(later),
        "per_15_s": len(later) * WINDOW_S / max(WINDOW_S, makespan_s - BEGINNING_S),
        "core_hours": held["core_s"] / 3600.0,
        "driver_cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snakemake_on_slurm", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000], help="of Snakemake's (1000)")
    parser.add_argument("--seconds", type=float, default=3.0, help="that each sleeps (3)")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    options = parser.parse_args()
    if not PYTHON.exists():
        parser.error("Snakemake is not there: make snakemake")
    rows = []
    for jobs in options.jobs:
        for name in options.contenders:
            config = host.configure(nodes=4, cores_per_node=8, database=True)
            try:
                with running(config) as cluster:
                    rows.append(contend(cluster, name, jobs, options.seconds))
                    print(rows[-1], file=sys.stderr, flush=True)
            finally:
                layout.remove(config)
    show(f"Snakemake on Slurm, rules of {options.seconds:g} s, 32 cores", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
