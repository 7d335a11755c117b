"""Schedules that others made, and figures that others published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate
from asa.lab.simulator.validate import violations
from asa.lab.traces.load import load_trace

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def data() -> Path:
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is missing: real logs and the schedules of other simulators")
    return folder


def read(path: Path) -> Workload:
    """The jobs of a log; those of one instant by number, for a result file has them in order of ending."""
    jobs = load_trace(path).workload
    return jobs.take(np.lexsort((jobs.number, jobs.submit)))


def bounded_slowdown(schedule: Schedule) -> float:
    jobs = schedule.workload
    turnaround = schedule.end - jobs.submit
    return float(np.maximum(1.0, turnaround / np.maximum(jobs.run, 10.0)).mean())


@pytest.mark.parametrize(("log", "processors", "slowdown"), [("KTH-SP2", 100, "92.58"), ("CTC-SP2", 338, "49.57")])
def test_easy_equals_pyss_job_by_job(data: Path, log: str, processors: int, slowdown: str) -> None:
    jobs = read(data / "oracle" / f"pyss-EASY-result_{log}.swf.gz")
    schedule = simulate(jobs, Cluster.of(processors), "easy", instant="one-by-one", keep_nodes=False)
    assert np.array_equal(schedule.wait, jobs.wait)
    assert f"{bounded_slowdown(schedule):.2f}" == slowdown


@pytest.mark.parametrize("log", ["KTH-SP2", "CTC-SP2"])
def test_deciding_on_whole_instants_differs_from_pyss_but_keeps_the_laws(data: Path, log: str) -> None:
    jobs = read(data / "oracle" / f"pyss-EASY-result_{log}.swf.gz").take(np.arange(5000))
    schedule = simulate(jobs, Cluster.of({"KTH-SP2": 100, "CTC-SP2": 338}[log]), "easy")
    assert violations(schedule) == []
    assert schedule.ran.all()


@pytest.mark.parametrize(
    ("log", "predictor", "wait", "slowdown"),
    [
        ("lublin_256", "oracle", "97156.0", "590.05"),
        ("lf10k", "user", "14795.7", "181.39"),
        ("lf50k", "user", "16063.7", "212.50"),
    ],
)
def test_classic_easy(data: Path, log: str, predictor: str, wait: str, slowdown: str) -> None:
    schedule = simulate(read(data / "swf" / f"{log}.swf.gz"), Cluster.of(256), "easy", predictor=predictor)
    assert f"{schedule.wait.mean():.1f}" == wait
    assert f"{bounded_slowdown(schedule):.2f}" == slowdown
