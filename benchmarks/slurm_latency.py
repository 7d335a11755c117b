"""How soon the first task of a Slurm job starts, from the first line of the job's script on.

    python -m benchmarks.slurm_latency --runs 10

The script stamps its first line itself. A cluster is booted for it (see docs/howto/test-cluster.md). The bare peers are
a job script that starts the same Python, which then says what time it is, and one that starts a plain dask worker,
which joins a scheduler here (without TLS) and runs one task.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster

import asa
from asa.backends.slurm.backend import Slurm
from asa.core.event import NodeJoined
from benchmarks.measure import row, show
from tests.cluster import host, layout
from tests.cluster.cluster import Cluster, running

BOUND_S = 1.0
"""What the first task may take [s]; the exit code tells whether none took longer."""


@asa.stage(walltime="5m")
def look_at_clock() -> float:
    return time.time()


def measure(folder: Path, executor: str) -> tuple[float, float]:
    """From the script's first line to when the node has joined, and to when the first task runs [s]."""
    stamp = folder / "stamp"
    run = asa.run(
        look_at_clock(),
        backend=Slurm(setup=f"date +%s.%N > {stamp}", poll_s=1),
        strategy="per-stage",
        executor=executor,
        workdir=folder,
        state=folder / "state",
    )
    first_line, task = float(stamp.read_text()), run.result()
    joined = next(event.at for _, event in run.events() if isinstance(event, NodeJoined))
    return joined - first_line, task - first_line


def measure_bare(cluster: Cluster, folder: Path) -> float:
    """From a job script's first line to when a Python that it starts runs [s]."""
    output = folder / "bare"
    clock = f"{sys.executable} -c 'import time; print(time.time())'"
    cluster.run("sbatch", "--wait", f"--output={output}", f"--wrap=date +%s.%N; exec {clock}")
    first_line, python = map(float, output.read_text().split())
    return python - first_line


def measure_bare_dask(cluster: Cluster, folder: Path) -> float:
    """From a job script's first line to when a plain dask worker that it starts runs its first task [s]."""
    output = folder / "bare-dask"
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as scheduler, Client(scheduler) as client:
        worker = (
            f"{sys.executable} -m distributed.cli.dask_worker {scheduler.scheduler_address} --nthreads 1 --no-nanny"
        )
        job = cluster.run("sbatch", "--parsable", f"--output={output}", f"--wrap=date +%s.%N; exec {worker}")
        task = client.submit(time.time, pure=False).result(timeout=60)
    cluster.run("scancel", job.strip())
    return float(task) - float(output.read_text().split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm_latency", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, default=10, help="how many jobs of each kind (10)")
    options = parser.parse_args()
    config = host.configure(nodes=1)
    with running(config) as cluster, tempfile.TemporaryDirectory(prefix="asa-latency-") as name:
        os.environ["SLURM_CONF"] = str(config.slurm_conf)
        folder = Path(name)
        joined, started = zip(*(measure(folder, "local") for _ in range(options.runs)), strict=True)
        with_dask = [measure(folder, "dask")[1] for _ in range(options.runs)]
        bare = [measure_bare(cluster, folder) for _ in range(options.runs)]
        bare_dask = [measure_bare_dask(cluster, folder) for _ in range(options.runs)]
    layout.remove(config)
    title = f"From a Slurm job script's first line on [s], {options.runs} jobs of each kind"
    show(
        title,
        [
            row("bare Python runs", bare),
            row("node has joined", joined),
            row("first task runs, local executor", started),
            row("first task runs, bare dask worker", bare_dask),
            row("first task runs, dask executor", with_dask),
        ],
    )
    return 0 if max(started) <= BOUND_S else 1


if __name__ == "__main__":
    sys.exit(main())
