"""Other people's jobs: a seeded stream of sleeping ones, so that a real queue arises at hardly any CPU load.

`BackgroundLoad` is a context manager; ``python -m tests.integration.load`` does the same until it is interrupted.
"""

from __future__ import annotations

import argparse
import math
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from tests.cluster.cluster import Cluster
from tests.cluster.cluster import load as load_cluster

_MEDIAN_CORES, _CORES_SIGMA, _RUN_SIGMA = 3.0, 0.9, 0.6
_SAMPLE = 2000  # jobs that the mean work of a job is computed from


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A job that sleeps: its size, how long it really runs [s], and the wall time it asks for [min]."""

    cores: int
    run_s: float
    walltime_min: int


def sleepers(rng: Random, mean_run_s: float, most_cores: int) -> Iterator[Sleeper]:
    """Jobs without end: sizes and run times log-normal, wall times 1 to 5 times the run time, in whole minutes.

    Parameters
    ----------
    mean_run_s
        Mean run time [s].
    most_cores
        Of the largest job, at least 1; few reach it.
    """
    mu = math.log(mean_run_s) - _RUN_SIGMA**2 / 2
    while True:
        cores = min(most_cores, max(1, round(rng.lognormvariate(math.log(_MEDIAN_CORES), _CORES_SIGMA))))
        run_s = rng.lognormvariate(mu, _RUN_SIGMA)
        yield Sleeper(cores, run_s, math.ceil(run_s * rng.uniform(1, 5) / 60))


class BackgroundLoad:
    """Keeps a cluster busy while it is entered: a queue at once, then Poisson arrivals; all gone when it is left.

    Parameters
    ----------
    cluster
        Where to.
    seed
        The same seed gives the same jobs at the same times since the start.
    offered_load
        Work submitted per second as a share of the cluster's cores; above 1 the queue grows.
    mean_run_s
        Mean run time of a job [s].
    backlog_s
        How much work waits at the start: so long [s] the whole cluster would need for it.
    most_jobs, most_s
        Nothing is submitted after so many jobs, or so long [s].
    user
        Whose jobs they are, of `ClusterConfig.users`; None for one's own.
    most_cores
        Of the largest job; a quarter of the cluster's by default.
    """

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        *,
        offered_load: float = 0.9,
        mean_run_s: float = 10.0,
        backlog_s: float = 5.0,
        most_jobs: int = 1000,
        most_s: float = 600.0,
        user: str | None = None,
        most_cores: int | None = None,
    ) -> None:
        self._cluster, self._rng, self._user = cluster, Random(seed), user
        self._cores = len(cluster.nodes) * cluster.config.cores_per_node
        self._backlog_s, self._most_jobs, self._most_s = backlog_s, most_jobs, most_s
        most_cores = most_cores or max(1, self._cores // 4)
        self._jobs = sleepers(self._rng, mean_run_s, most_cores)
        sample = [next(kin) for kin in [sleepers(Random(0), mean_run_s, most_cores)] for _ in range(_SAMPLE)]
        mean_work = sum(job.cores * job.run_s for job in sample) / _SAMPLE
        self._rate = offered_load * self._cores / mean_work
        self._name = f"background-{secrets.token_hex(4)}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._arrive, name=self._name)
        self._error: BaseException | None = None
        self.submitted = 0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._fill()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._cluster.run("scancel", f"--name={self._name}")
        if self._error is not None and error is None:
            raise self._error

    def _fill(self) -> None:
        """As if it had gone on for long: running jobs are somewhere in the middle, others wait behind them."""
        running = 0
        while running < self._cores:
            job = next(self._jobs)
            running += job.cores
            self._submit(Sleeper(job.cores, job.run_s * self._rng.random(), job.walltime_min))
        waiting = 0.0
        while waiting < self._backlog_s * self._cores:
            job = next(self._jobs)
            waiting += job.cores * job.run_s
            self._submit(job)

    def _arrive(self) -> None:
        due = time.monotonic()
        try:
            while self.submitted < self._most_jobs:
                due += self._rng.expovariate(self._rate)
                if due > self._began + self._most_s or self._over.wait(due - time.monotonic()):
                    return
                self._submit(next(self._jobs))
        except BaseException as error:
            self._error = error

    def _submit(self, job: Sleeper) -> None:
        self._cluster.run(
            "sbatch", f"--job-name={self._name}", f"--ntasks={job.cores}", f"--time={job.walltime_min}",
            "--mem=1", "--output=/dev/null", f"--wrap=exec sleep {job.run_s:.2f}",
            user=self._user,
        )  # fmt: skip
        self.submitted += 1


def main() -> int:
    """Load the cluster in a directory until interrupted, or for a while."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.load", description=__doc__)
    parser.add_argument("base", type=Path, help="directory of a test cluster that is up")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--offered-load", type=float, default=0.9, help="share of the cores (0.9)")
    parser.add_argument("--mean-run-s", type=float, default=10.0, help="mean run time of a job [s] (10)")
    parser.add_argument("--backlog-s", type=float, default=5.0, help="work that waits at the start [s] (5)")
    parser.add_argument("--most-jobs", type=int, default=1000, help="nothing is submitted after so many jobs (1000)")
    parser.add_argument("--for-s", type=float, default=600.0, help="how long [s] (600)")
    options = parser.parse_args()
    load = BackgroundLoad(
        load_cluster(options.base),
        options.seed,
        offered_load=options.offered_load,
        mean_run_s=options.mean_run_s,
        backlog_s=options.backlog_s,
        most_jobs=options.most_jobs,
        most_s=options.for_s,
    )
    try:
        with load:
            time.sleep(options.for_s)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    print(f"{load.submitted} jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
