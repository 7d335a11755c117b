"""How long a twin of a queue takes: five dispatchers, from the view of a queue to what `asa twin` prints.

    python benchmarks/twin.py [--repeats 3]

Jobs of 1 to a quarter of 16,000 cores and five minutes to three days wait, sizes and limits spread over their
logarithms; nearly all cores run something. Either these are cores anywhere, or 500 nodes of 32 cores, a tenth of them
with four GPUs each, in three partitions that overlap, one of them of a higher tier, with a limit of 4,000 cores of a
user: jobs of up to 32 cores are on one node, others on whole ones, and a tenth asks for GPUs. Least processor time and
wall-clock time of the repeats, after a first call that may compile.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from measure import show

from asa.core.decision import NodeRun
from asa.core.job import Resources
from asa.core.units import DAY
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.cli.twin import outlook
from asa.lab.core.cluster import Cluster, Partition, Qos
from asa.lab.core.workload import Workload
from asa.lab.forecast.twin import COMPARED, Snapshot

CORES, NODES = 16_000, 500


def queue(waiting: int, running: int, seed: int = 1) -> QueueView:
    """A view of so many jobs."""
    draw = np.random.default_rng(seed)
    ends = draw.uniform(60.0, DAY, running)
    sizes = np.exp(draw.uniform(0.0, np.log(CORES / 4), waiting)).astype(int)
    limits = np.exp(draw.uniform(np.log(300.0), np.log(3 * DAY), waiting))
    submitted = -draw.uniform(0.0, 3 * DAY, waiting)
    jobs = zip(sizes.tolist(), limits.tolist(), submitted.tolist(), strict=True)
    return QueueView(
        0.0,
        Resources(CORES),
        tuple(
            QueuedJob(f"w{k}", Resources(max(1, cores)), limit, at, f"user{k % 50}")
            for k, (cores, limit, at) in enumerate(jobs)
        ),
        tuple(RunningJob(f"r{k}", Resources(CORES // running), end) for k, end in enumerate(ends.tolist())),
    )


def on_nodes(waiting: int, running: int, seed: int = 1) -> Snapshot:
    """So many jobs on nodes and in partitions."""
    draw, every = np.random.default_rng(seed), tuple(range(NODES))
    capacity = np.full((NODES, 2), (CORES // NODES, 0))
    capacity[: NODES // 10, 1] = 4
    cluster = Cluster(
        capacity,
        ("cores", "gpus"),
        partitions={
            "main": Partition(every),
            "gpu": Partition(every[: NODES // 10]),
            "fast": Partition(every[NODES // 2 :], tier=2),
        },
        qos={"normal": Qos(max_cores_per_user=CORES // 4)},
    )
    cores = np.exp(draw.uniform(0.0, np.log(CORES / 4), waiting)).astype(int)
    gpu = draw.uniform(size=waiting) < 0.1
    small, whole = np.clip(cores, 1, CORES // NODES), np.clip(cores // (CORES // NODES), 1, None)
    units = np.where(gpu, np.minimum(whole, NODES // 20), whole)
    held = np.full(running, max(1, CORES // running))
    needs = np.stack([np.concatenate([held, np.where(whole > 1, CORES // NODES, small)]), np.zeros(running + waiting)])
    needs[1, running:] = np.where(gpu, 2, 0)
    demands, kind = np.unique(needs.T.astype(int), axis=0, return_inverse=True)
    limits = np.exp(draw.uniform(np.log(300.0), np.log(3 * DAY), running + waiting))
    limits[:running] += DAY
    jobs = Workload.of(
        submit=np.zeros(running + waiting),
        run=limits,
        walltime=limits,
        units=np.concatenate([np.ones(running), units]),
        kind=kind.reshape(-1),
        demands=demands,
        resources=("cores", "gpus"),
        user=draw.integers(0, 50, running + waiting),
        partition=np.concatenate([np.zeros(running), np.where(gpu, 1, draw.choice((0, 0, 2), waiting))]),
        labels={"partition": tuple(cluster.partitions)},
    )
    started = -draw.uniform(0.0, DAY, running)
    nodes = tuple((NodeRun(k % NODES, k % NODES, 1),) for k in range(running))
    submitted = np.concatenate([started, -draw.uniform(0.0, 3 * DAY, waiting)])
    return Snapshot(0.0, cluster, jobs, submitted, started, nodes, tuple(range(running + waiting)))


def row(waiting: int, running: int, repeats: int, nodes: bool) -> dict[str, Any]:
    """Least times [s]."""
    seen, found = on_nodes(waiting, running) if nodes else Snapshot.of_view(queue(waiting, running)), []
    for _ in range(repeats + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        outlook(seen, COMPARED, "1" if nodes else "user1")
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = (min(column) for column in zip(*found[1:], strict=True))
    return {
        "on": f"{NODES} nodes" if nodes else "cores",
        "waiting": waiting,
        "running": running,
        "processor [s]": cpu,
        "wall clock [s]": wall,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of asa twin, without that of the batch system.")
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    sizes = ((100, 500, False), (1_000, 1_000, False), (5_000, 1_000, False), (100, 500, True), (1_000, 500, True))
    show("A twin of a queue, five dispatchers", [row(*size[:2], repeats, size[2]) for size in sizes])


if __name__ == "__main__":
    main()
