"""What an allocation costs: from the first line of a Slurm job's script to the first task, and from release to the end.

    python -m benchmarks.slurm_latency --runs 10 --nodes 1 6

The script stamps its first line itself. Each run is a program of its own, which prints its result and ends; somebody
else asks Slurm meanwhile how the job stands. A cluster is booted for it (see docs/howto/test-cluster.md), whose nodes
are this machine. The bare peers, in turn with the runs: `srun hostname` on as many nodes; a job script that starts the
same Python, which then says what time it is; and one that starts a plain dask worker, which joins a scheduler here
(without TLS) and runs one task.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

from benchmarks.measure import row, show
from tests.cluster import host, layout
from tests.cluster.cluster import Cluster, running

BOUNDS_S = {1: 0.6, 6: 1.0}
"""What the first task may take [s], by the number of nodes; the exit code tells whether it did at the median."""

_LOOK_S = 0.02
_PROGRAM = """
import json, sys, time
import asa
from asa.backends.slurm.backend import Slurm
from asa.core.event import NodeJoined, Released, Submitted

executor, nodes, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]


@asa.stage(nodes=nodes, tasks_per_node=1, task_cores=1, walltime="5m")
def look_at_clock(index):
    return time.time()


run = asa.run(
    look_at_clock.map(range(nodes)),
    backend=Slurm(setup=f"date +%s.%N > {folder}/stamp"), strategy="per-stage", executor=executor, workdir=folder,
)
times, now = run.result(), time.time()
first_line = float(open(f"{folder}/stamp").read())
events = [event for _, event in run.events()]
(job,) = [event.handle.job_id for event in events if isinstance(event, Submitted)]
found = {
    "joined": max(event.at for event in events if isinstance(event, NodeJoined)) - first_line,
    "first": min(times) - first_line,
    "released": next(event.at for event in events if isinstance(event, Released)),
    "result": now,
    "job": job,
}
print(json.dumps(found), flush=True)
"""


class Watcher:
    """Asks Slurm again and again how jobs stand."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._over, self.ended = cluster, threading.Event(), dict[str, float]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def await_end(self, job: str) -> float:
        """When it had ended [s since the epoch], as far as Slurm knows."""
        while job not in self.ended:
            time.sleep(_LOOK_S)
        return self.ended[job]

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_S):
            for line in self._cluster.run("squeue", "--noheader", "--states=all", "--format=%i %T").splitlines():
                job, state = line.split()
                if state in ("COMPLETED", "FAILED", "CANCELLED"):
                    self.ended.setdefault(job, time.time())


def measure(cluster: Cluster, folder: Path, executor: str, nodes: int) -> dict[str, float]:
    """A run's times [s]: to all nodes and the first task, release to the job's end, result to the program's end."""
    watcher = Watcher(cluster)
    try:
        argv = [sys.executable, "-c", _PROGRAM, executor, str(nodes), str(folder)]
        found: dict[str, Any] = json.loads(subprocess.run(argv, capture_output=True, check=True, text=True).stdout)
        over = time.time()
        return {
            "joined": found["joined"],
            "first": found["first"],
            "program": over - found["result"],
            "job": watcher.await_end(found["job"]) - found["released"],
        }
    finally:
        watcher.close()


def measure_srun(cluster: Cluster, nodes: int) -> float:
    """All of ``srun hostname`` on so many nodes [s]."""
    began = time.time()
    cluster.run("srun", f"--nodes={nodes}", "--ntasks-per-node=1", "hostname")
    return time.time() - began


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
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 6], help="nodes of a job (1 6)")
    options = parser.parse_args()
    config, late = host.configure(nodes=max(options.nodes)), False
    with running(config) as cluster, tempfile.TemporaryDirectory(prefix="asa-latency-") as name:
        folder = Path(name)
        os.environ |= {"SLURM_CONF": str(config.slurm_conf), "ASA_STATE_DIR": str(folder / "state")}
        for nodes in options.nodes:
            executors = ("local", "mesos", "dask") if nodes == 1 else ("local", "mesos")
            found: dict[str, list[dict[str, float]]] = {executor: [] for executor in executors}
            srun, bare, bare_dask = [], [], []
            for _ in range(options.runs):  # in turn: the machine may have other things to do
                srun.append(measure_srun(cluster, nodes))
                if nodes == 1:
                    bare.append(measure_bare(cluster, folder))
                    bare_dask.append(measure_bare_dask(cluster, folder))
                for executor in executors:
                    found[executor].append(measure(cluster, folder, executor, nodes))
            rows = [row("bare: srun hostname, as a whole", srun)]
            if nodes == 1:
                rows.append(row("bare: from the script's first line until Python runs", bare))
                rows.append(row("bare: until a plain dask worker runs a task", bare_dask))
            for executor, runs in found.items():
                rows += [
                    row(f"{executor}: {what}", [each[key] for each in runs])
                    for key, what in (
                        ("joined", "until all nodes have joined"),
                        ("first", "until the first task runs"),
                        ("job", "from release to the job's end"),
                        ("program", "from the result to the program's end"),
                    )
                ]
            plural = "s" if nodes > 1 else ""
            show(f"What an allocation of {nodes} node{plural} costs [s], {options.runs} jobs of each kind", rows)
            medians = {each["what"]: each["median"] for each in rows}
            late |= medians["mesos: until the first task runs"] > BOUNDS_S.get(nodes, float("inf"))
    layout.remove(config)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
