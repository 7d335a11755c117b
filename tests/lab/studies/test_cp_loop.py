from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.simulator.run import simulate
from asa.lab.studies.cp_case import Case
from asa.lab.studies.cp_loop import OnChange, loop


def small(count: int = 60) -> Case:
    draw = np.random.default_rng(5)
    run = draw.integers(5, 60, count).astype(float)
    jobs = Workload.of(
        submit=np.sort(draw.uniform(0, 400, count)), run=run, walltime=run * draw.uniform(1, 3, count),
        units=draw.integers(1, 4, count), kind=draw.integers(0, 3, count), user=draw.integers(0, 3, count),
        name=draw.integers(0, 2, count), demands=[[1, 0], [2, 1], [4, 0]], resources=("cores", "gpus"),
    )  # fmt: skip
    return Case("small", jobs, Cluster(np.array([[4, 2], [4, 2], [4, 0]]), ("cores", "gpus")))


def test_rows_say_what_became_of_the_jobs() -> None:
    here = small()
    rows = loop(here, ["easy", "listplan"], ["oracle", "last-two"])
    assert [(row.dispatcher, row.predictor) for row in rows] == [
        ("easy", "oracle"), ("easy", "last-two"), ("listplan", "oracle"), ("listplan", "last-two"),
    ]  # fmt: skip
    schedule = simulate(here.workload, here.cluster, Easy(), predictor="oracle")
    first = rows[0]
    assert first.mean_wait_s == pytest.approx(schedule.wait.mean())
    assert first.std_wait_s == pytest.approx(schedule.wait.std())
    turnaround = schedule.end - here.workload.submit
    assert first.mean_slowdown == pytest.approx((turnaround / here.workload.run).mean())
    assert first.jobs == 60 and not first.charged and first.case == "small"
    assert 0 < first.mean_s <= first.max_s and first.p99_s <= first.max_s and first.mean_cpu_s > 0
    assert 1 <= first.mean_waiting <= 60
    assert first.decisions <= 2 * 60, "asked once for each arrival or end, at most"


def test_nobody_is_asked_twice_with_nothing_changed() -> None:
    here, asked = small(), []

    class Noted(Easy):
        def decide(self, view: Any) -> Any:
            asked.append((view.now, view.waiting.tolist(), view.active.tolist()))
            return super().decide(view)

    schedule = simulate(here.workload, here.cluster, OnChange(Noted()))
    assert np.array_equal(schedule.start, simulate(here.workload, here.cluster, "easy").start)
    assert all(waiting for _, waiting, _ in asked)
    assert len({at for at, _, _ in asked}) == len(asked)


def test_time_can_be_charged() -> None:
    here = small()
    free, charged = (loop(here, ["listplan"], ["oracle"], dispatch_time=what)[0] for what in ("ignore", "charge"))
    assert charged.charged and not free.charged
    assert charged.mean_wait_s != free.mean_wait_s
