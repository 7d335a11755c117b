"""How long a twin of a queue takes: five dispatchers, from the view of a queue to what `asa twin` prints.

    python benchmarks/twin.py [--repeats 3]

Jobs of 1 to a quarter of 16,000 cores and five minutes to three days wait, sizes and limits spread over their
logarithms; nearly all cores run something. Least processor time and wall-clock time of the repeats, after a first call
that may compile.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from measure import show

from asa.core.job import Resources
from asa.core.units import DAY
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.cli.twin import outlook
from asa.lab.forecast.twin import COMPARED

CORES = 16_000


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


def row(waiting: int, running: int, repeats: int) -> dict[str, Any]:
    """Least times [s]."""
    view, found = queue(waiting, running), []
    for _ in range(repeats + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        outlook(view, COMPARED, "user1")
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = (min(column) for column in zip(*found[1:], strict=True))
    return {"waiting": waiting, "running": running, "processor [s]": cpu, "wall clock [s]": wall}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of asa twin, without that of the batch system.")
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    sizes = ((100, 100), (1_000, 300), (1_000, 1_000), (5_000, 1_000))
    show("A twin of a queue, five dispatchers", [row(*size, repeats) for size in sizes])


if __name__ == "__main__":
    main()
