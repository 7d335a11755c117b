from __future__ import annotations

from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate


def test_outcomes_are_counted() -> None:
    work = Workload.of(submit=[0, 0, 0], run=[5, 9, 1], cores=[1, 1, 3], walltime=[9, 5, 1])
    schedule = simulate(work, Cluster.of(nodes=2), "fcfs")
    ended = [JobState.COMPLETED, JobState.TIMEOUT, JobState.FAILED, JobState.PENDING]
    assert [schedule.count(state) for state in ended] == [1, 1, 1, 0]
    assert repr(schedule) == "<Schedule of 3 jobs on <Cluster of 2 nodes: 2 cores>>"
