from __future__ import annotations

from dataclasses import replace

import numpy as np

from asa.core.cluster import Cluster
from asa.core.schedule import Placements
from asa.core.workload import Workload
from asa.simulator.run import simulate
from asa.simulator.validate import violations


def test_units_of_a_job_on_a_node_are_counted_over_all_its_runs() -> None:
    work = Workload.of(submit=[0], run=[1], walltime=[1], units=[3], per_node=[2])
    schedule = simulate(work, Cluster.of(nodes=2, cores=4))
    assert violations(schedule) == []
    twice = Placements(np.array([0, 0]), np.array([[0, 0, 2], [0, 0, 1]]))
    assert violations(replace(schedule, placements=twice)) == ["job 1 has 3 units on node n0: 2 at most"]
