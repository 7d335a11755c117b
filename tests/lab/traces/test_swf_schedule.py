from __future__ import annotations

import numpy as np

from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import Workload
from asa.lab.traces.swf import read_swf, write_swf
from asa.lab.traces.swf_schedule import log_of


def test_a_schedule_becomes_a_log_and_comes_back(tmp_path):
    jobs = Workload.of(
        submit=[0, 1, 2, 3, 4.5], run=[10, 20, 30, 40, 50], units=[1, 2, 3, 4, 5], walltime=[10, 15, 30, 40, np.nan],
        demands=[[2, 2**20]], user=[4, 5, -1, 7, 8], after=[-1, -1, 0, -1, -1], think=[0, 0, 3, 0, 0],
        partition=[0, 0, 1, 0, 0], labels={"partition": ("long", "short")},
    )  # fmt: skip
    states = [JobState.COMPLETED, JobState.TIMEOUT, JobState.CANCELLED, JobState.PENDING, JobState.COMPLETED]
    schedule = Schedule(
        jobs,
        Cluster.of(4, 8),
        eligible=jobs.submit,
        start=np.array([5, 5, np.nan, np.nan, 60.5]),
        end=np.array([15, 20, np.nan, np.nan, 110.75]),
        outcome=np.array([OUTCOMES.index(state) for state in states], dtype=np.int8),
        restarts=np.zeros(5, dtype=np.int64),
    )
    made = log_of(schedule)
    write_swf(made, tmp_path / "a.swf.gz")
    back = read_swf(tmp_path / "a.swf.gz")
    np.testing.assert_array_equal(back.records, made.records)
    assert back["wait"].tolist() == [5, 4, -1, -1, 56]
    assert back["run"].tolist() == [10, 15, -1, -1, 50.25]
    assert back["status"].tolist() == [1, 0, 5, -1, 1]
    assert back["requested"].tolist() == [2, 4, 6, 8, 10]
    assert back["requested_memory"].tolist() == [512] * 5
    assert back["preceding"].tolist() == [-1, -1, 1, -1, -1]
    trace = back.trace(dependencies=True)
    assert trace.workload.number.tolist() == [1, 2, 5], "those that ran"
    assert trace.workload.wait.tolist() == [5, 4, 56]
    assert trace.report.counts == {"cancelled": 1, "no-run-time": 1, "no-requested-time": 1}
    assert (trace.cluster.nodes, trace.cluster.cores) == (4, 32)
    assert trace.workload.label("partition", 0) == "long"
