"""A workflow of five stages on a busy Slurm: ASA's strategies, a chain of batch jobs, and other people's tools.

    python -m venv PEERS; PEERS/bin/pip install parsl==2026.10.26 dask-jobqueue==0.9.0 submitit==1.5.4
    python -m benchmarks.peers_on_slurm --peers PEERS/bin/python --seeds 1 2 3 --out runs.jsonl
    python -m benchmarks.peers_on_slurm --table runs.jsonl

One task of 1 s; 16 of 2 s on 8 cores; 1 of 1 s on 2 cores; 24 of 2 s on 12 cores; one that returns at once: 82
core-seconds of work, 10 s at best. The tasks sleep. For each seed and configuration a cluster is booted (see
docs/howto/test-cluster.md), of six nodes of four cores, where another user's seeded jobs ask for .85 of the cores (1
to 12 each, 12 s in the mean), and 20 s of work wait from the start; all contenders, one after the other, meet the same
ones. Everything is at its defaults, but that it is told the partition, wall times, and how many cores it may use. ASA
has run the workflow once before on each cluster, alone, so that it knows run times and what an allocation takes.
Parsl: blocks of a node, up to three, four workers in each (it would count this machine's cores). dask-jobqueue: the
same, by `adapt`. submitit: an array of jobs of one core for each stage. The chain: a job for each stage, submitted at
once with `afterok`.

Makespan: from the start of the program to its result; core-seconds: what sacct says all of its jobs held.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster import host, layout
from tests.cluster.cluster import Cluster, running
from tests.integration.load import BackgroundLoad

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "wide": {
        "regime": "multifactor",
        "settings": (("PriorityWeightAge", "0"), ("PriorityWeightJobSize", "100")),
    },
    "age": {"regime": "multifactor"},
    "limits": {"regime": "limits"},
}
"""What the cluster favours: wide jobs (age counts nothing), old ones, and these with limits enforced."""

OTHERS = "daemon"  # a user whom every system has
LOAD = {"offered_load": 0.85, "mean_run_s": 12.0, "backlog_s": 20.0, "most_cores": 12}
PATIENCE_S = 180.0
"""A contender that has no result by then is ended; without a result, it counts with that time."""

STAGES = ((1, 1, 1), (8, 16, 2), (2, 1, 1), (12, 24, 2), (1, 1, 0))  # cores, tasks, seconds of each

_ASA = """
import sys, time
import asa

def rest(index, seconds):
    time.sleep(seconds)
    return index

node = None
for number, (cores, tasks, seconds) in enumerate(STAGES):
    stage = asa.stage(cores=cores, walltime="1m")(rest).options(name=f"stage{number}")
    made = stage.map(range(tasks), seconds=seconds) if tasks > 1 else stage(0, seconds)
    node = made if node is None else made.after(node)
run = asa.run(node, name="five", backend="slurm:partition=main", strategy=sys.argv[1])
run.result()
print("done", flush=True)
"""

_PARSL = """
import time
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import SlurmProvider

def rest(index, seconds):
    import time
    time.sleep(seconds)
    return index

provider = SlurmProvider(partition="main", walltime="00:05:00", max_blocks=3)
executor = HighThroughputExecutor(
    address="127.0.0.1", provider=provider, max_workers_per_node=4, encrypted=False, loopback_address="127.0.0.1"
)
with parsl.load(Config(executors=[executor])):
    app = parsl.python_app(rest)
    for cores, tasks, seconds in STAGES:
        [future.result() for future in [app(index, seconds) for index in range(tasks)]]
    print("done", flush=True)
"""

_DASK = """
import time
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

def rest(index, seconds):
    time.sleep(seconds)
    return index

if __name__ == "__main__":
    with SLURMCluster(
        queue="main", cores=4, processes=4, memory="1GB", walltime="00:05:00", interface="lo",
        scheduler_options={"dashboard_address": None}, worker_extra_args=["--no-dashboard"],
    ) as cluster:
        cluster.adapt(maximum_jobs=3)
        with Client(cluster) as client:
            for cores, tasks, seconds in STAGES:
                client.gather(client.map(rest, range(tasks), seconds=seconds, pure=False))
            print("done", flush=True)
"""

_SUBMITIT = """
import time
import submitit

def rest(index, seconds):
    time.sleep(seconds)
    return index

executor = submitit.AutoExecutor(folder="submitit")
for cores, tasks, seconds in STAGES:
    executor.update_parameters(
        slurm_partition="main", timeout_min=1, cpus_per_task=1, slurm_array_parallelism=cores
    )
    [job.result() for job in executor.map_array(rest, range(tasks), [seconds] * tasks)]
print("done", flush=True)
"""

_CHAIN = """
import os, subprocess, time

after = []
for cores, tasks, seconds in STAGES:
    work = "; ".join([f"sleep {seconds}"] * -(-tasks // cores))
    argv = ["sbatch", "--parsable", "--partition=main", "--time=1", f"--ntasks={cores}", "--output=/dev/null", *after]
    job = subprocess.run(
        [*argv, f"--wrap=srun --ntasks={cores} sh -c '{work}'"], check=True, capture_output=True, text=True
    ).stdout.strip()
    after = [f"--dependency=afterok:{job}"]
while subprocess.run(["squeue", "--noheader", "--jobs", job], capture_output=True, text=True).stdout.strip():
    time.sleep(0.5)
print("done", flush=True)
"""

PROGRAMS = {
    "auto": _ASA, "big-job": _ASA, "per-stage": _ASA, "chain": _CHAIN, "parsl": _PARSL, "dask-jobqueue": _DASK,
    "submitit": _SUBMITIT,
}  # fmt: skip
OWN = ("auto", "big-job", "per-stage", "chain")  # need nothing of other people's
REFERENCES = ("big-job", "per-stage", "chain")
AXES = {"makespan_s": "makespan [s]", "core_s": "core-seconds"}


def contend(cluster: Cluster, name: str, python: str, state: Path, seed: int | None) -> dict[str, Any]:
    """Run the workflow once, among other people's jobs if there is a seed; what came of it."""
    path = f"{Path(python).parent}:{cluster.env['PATH']}"  # Parsl looks for its programs there
    env = {**cluster.env, "ASA_STATE_DIR": str(state), "PATH": path}
    with tempfile.TemporaryDirectory(prefix="asa-peers-") as folder:
        began = time.time()
        if seed is None:
            found = _run(name, python, Path(folder), env)
        else:
            with BackgroundLoad(cluster, seed, user=OTHERS, **LOAD):
                found = _run(name, python, Path(folder), env)
                _await_end(cluster)
        _await_end(cluster)
    return {"contender": name, "seed": seed, **found, **charged(cluster, began)}


def _run(name: str, python: str, folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """Start a contender's program, and stop the time at its result."""
    script = folder / "contender.py"
    script.write_text(f"STAGES = {STAGES!r}\n{PROGRAMS[name]}")
    began = time.monotonic()
    with (
        (folder / "stderr").open("w+") as errors,
        subprocess.Popen(
            [python, str(script), name],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        timer = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))  # what it started, too
        timer.start()
        assert process.stdout is not None
        done = any(line.strip() == "done" for line in process.stdout)
        makespan_s = time.monotonic() - began
        process.stdout.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        timer.cancel()
        if not done:
            errors.seek(0)
            print(f"{name} has no result after {makespan_s:.0f} s:\n{errors.read()[-2000:]}", file=sys.stderr)
    return {"makespan_s": makespan_s if done else PATIENCE_S, "done": done}


def _await_end(cluster: Cluster) -> None:
    """Wait until no job of ours is left; what a contender has left behind is cancelled after a while."""
    until = time.monotonic() + 20
    while cluster.run("squeue", "--noheader", "--user=root"):
        if time.monotonic() > until:
            cluster.run("scancel", "--user=root")
            until = math.inf
        time.sleep(0.5)


def charged(cluster: Cluster, since: float) -> dict[str, float]:
    """Jobs of ours that started since then, and the core-seconds that they held, by sacct."""
    time.sleep(2.5)  # what the controller has sent is written once a second
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    words = ("--allocations", "--noheader", "--parsable2", "--user=root", f"--starttime={start}")
    lines = cluster.run("sacct", *words, "--format=Submit,ElapsedRaw,AllocCPUS").splitlines()
    rows = [line.split("|") for line in lines]
    held = [int(elapsed) * int(cores) for submit, elapsed, cores in rows if submit >= start and int(elapsed)]
    return {"jobs": len(held), "core_s": sum(held)}


def measure(options: argparse.Namespace) -> None:
    """All contenders for each seed and configuration; a line of JSON for each is added to the file."""
    contenders = [name for name in options.contenders if name in OWN or options.peers]
    for seed in options.seeds:
        for configuration in options.configurations:
            config = host.configure(
                nodes=6, cores_per_node=4, database=True, users=(OTHERS,), **CONFIGURATIONS[configuration]
            )
            try:
                with running(config) as cluster, tempfile.TemporaryDirectory(prefix="asa-peers-state-") as state:
                    version = "{}.{:02d}".format(*cluster.version)
                    if any(PROGRAMS[name] is _ASA for name in contenders):
                        contend(cluster, "per-stage", sys.executable, Path(state), None)
                    for name in contenders:
                        python = sys.executable if name in OWN else options.peers
                        row = contend(cluster, name, python, Path(state), seed)
                        row |= {"configuration": configuration, "slurm": version, "load": os.getloadavg()[0]}
                        print(json.dumps(row), file=sys.stderr, flush=True)
                        with options.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")
            finally:
                layout.remove(config)


def interval(values: Sequence[float], draws: int = 2000) -> tuple[float, float, float]:
    """Geometric mean, and where it lies with 95 % (bootstrap over seeds; none with a single one).

    >>> [round(value, 6) for value in interval([2.0, 8.0])]
    [4.0, 2.0, 8.0]
    """
    logs, rng = [math.log(max(value, 1e-9)) for value in values], random.Random(0)
    means = sorted(sum(rng.choices(logs, k=len(logs))) / len(logs) for _ in range(draws))
    low, high = means[int(0.025 * draws)], means[int(0.975 * draws) - 1]
    return math.exp(sum(logs) / len(logs)), math.exp(low), math.exp(high)


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    """A table for each version of Slurm and configuration: geometric means over the seeds that a contender has run.

    The ratio, seed by seed, is to that one of the references whose geometric mean on the axis is least.
    """
    text, every = [], list(rows)
    for where in dict.fromkeys((row["slurm"], row["configuration"]) for row in every):
        here = [row for row in every if (row["slurm"], row["configuration"]) == where]
        of = {(row["contender"], row["seed"]): row for row in here}
        seeds = sorted(seed for seed in {row["seed"] for row in here} if all((name, seed) in of for name in REFERENCES))
        if not seeds:
            continue
        text += [f"Slurm {where[0]}, `{where[1]}`: geometric mean [95 %], ratio to the best reference\n"]
        text += ["| contender | makespan [s] | ratio | core-seconds | ratio | seeds | no result |"]
        text += ["|---|---:|---:|---:|---:|---:|---:|"]
        best = {
            axis: min(REFERENCES, key=lambda name, axis=axis: interval([of[name, seed][axis] for seed in seeds])[0])
            for axis in AXES
        }
        for name in PROGRAMS:
            own = [seed for seed in seeds if (name, seed) in of]
            cells = []
            for axis in AXES if own else ():
                cells.append(_cell([of[name, seed][axis] for seed in own], 0))
                cells.append(_cell([of[name, seed][axis] / of[best[axis], seed][axis] for seed in own], 2))
            failed = sum(not of[name, seed]["done"] for seed in own)
            if own:
                text.append(f"| `{name}` | {' | '.join(cells)} | {len(own)} | {failed or ''} |")
        text.append("")
    return "\n".join(text)


def _cell(values: Sequence[float], digits: int) -> str:
    mean, low, high = interval(values)
    return f"{mean:.{digits}f}" + (f" [{low:.{digits}f}, {high:.{digits}f}]" if len(values) > 1 else "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers_on_slurm", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--peers", metavar="PYTHON", help="has Parsl, dask-jobqueue and submitit; else they are left out"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(1, 11)), help="of the other user's jobs (1-10)"
    )
    parser.add_argument("--configurations", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS))
    parser.add_argument("--contenders", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument(
        "--out", type=Path, default=Path("peers.jsonl"), help="a line is added for each run (peers.jsonl)"
    )
    parser.add_argument("--table", type=Path, nargs="+", metavar="RUNS", help="print the table of these files, and end")
    options = parser.parse_args()
    if not options.table:
        measure(options)
    files = options.table or [options.out]
    print(markdown(json.loads(line) for file in files for line in file.read_text().splitlines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
