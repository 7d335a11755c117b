from __future__ import annotations

import numpy as np
import pytest

from asa.core.decision import Start
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.queue import queue_of
from asa.lab.simulator.engine import Engine
from tests.lab.dispatchers.views import Job, node_view, queue_view

ONE = Resources(cores=1)


def test_a_table_and_objects_say_the_same() -> None:
    engine = Engine(Workload.of(submit=[0, 3], run=[9, 9], cores=[3, 2], walltime=[10, 20]), Cluster.of(4))
    engine.advance()
    engine.apply([Start(0)])
    table = engine.advance()
    assert table is not None
    objects = QueueView(table.now, table.capacity, table.queue, table.running)
    for found in (queue_of(table), queue_of(objects)):
        assert (found.now, list(found.keys), found.free, found.total) == (3.0, [1], 1, 4)
        columns = (found.size, found.estimate, found.wait, found.priority, found.ends, found.held)
        assert [column.tolist() for column in columns] == [[2], [20], [0], [0], [10], [3]]


def test_an_overdue_job_ends_now() -> None:
    view = QueueView(50.0, Resources(cores=2), (), (RunningJob("R", ONE, 40.0),))
    assert queue_of(view).ends.tolist() == [50.0]


def test_what_it_does_not_know() -> None:
    with pytest.raises(InvalidInput, match="equal nodes"):
        queue_of(node_view([Job(1)], [[8, 4]], demands=((1, 1),)))
    with pytest.raises(InvalidInput, match="job 1 has no wall time"):
        queue_of(queue_view([Job(1), Job(1, estimate=np.nan)], free=1, total=2))
    greedy = QueuedJob("A", Resources(cores=1, gpus=1), 60.0, 0.0)
    with pytest.raises(InvalidInput, match="memory or GPUs"):
        queue_of(QueueView(0.0, Resources(cores=4, gpus=4), (greedy,), ()))
