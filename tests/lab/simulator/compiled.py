"""``python -m tests.lab.simulator.compiled``: compile the simulator, so that no test is timed while it does."""

from __future__ import annotations

from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate


def compile_simulator() -> None:
    """Run one job through it. What numba has compiled stays on disk, for all processes."""
    jobs = Workload.of(submit=[0], run=[1], cores=[1], walltime=[1])
    simulate(jobs, Cluster.of(nodes=1), "easy")


if __name__ == "__main__":
    compile_simulator()
