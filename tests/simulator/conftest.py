"""The simulator is compiled once, before the first test is timed."""

from __future__ import annotations

import pytest

from asa.core.cluster import Cluster
from asa.core.workload import Workload
from asa.simulator.run import simulate


@pytest.fixture(scope="session", autouse=True)
def compiled_simulator() -> None:
    jobs = Workload.of(submit=[0], run=[1], cores=[1], walltime=[1])
    simulate(jobs, Cluster.of(nodes=1), "easy")
