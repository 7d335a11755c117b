from __future__ import annotations

import math

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import rule_of
from asa.lab.simulator import edits
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import Settings
from asa.lab.studies.probes import PROBE_RUN_S, Kind, started, submit, watch

EASY = rule_of("easy")


def machine(**columns: list[float]) -> Engine:
    columns.setdefault("walltime", columns["run"])
    return Engine(Workload.of(**columns), Cluster.of(nodes=1, cores=4), Settings())


def busy() -> Engine:
    """Four cores, all taken from 0 s to 100 s, and then from 100 s to 150 s."""
    return machine(submit=[0, 1], run=[100, 50], cores=[4, 4])


def test_waits_are_those_of_a_job_submitted_then() -> None:
    engine = busy()
    found = watch(engine, EASY, [Kind(2, 60.0), Kind(4, 60.0)], [10.0, 60.0, 200.0])
    assert [probe.wait_s for probe in found[Kind(4, 60.0)]] == pytest.approx([140 + PROBE_RUN_S, 90 + PROBE_RUN_S, 1.0])
    assert [probe.wait_s for probe in found[Kind(2, 60.0)]] == [140.0, 90.0, 0.0]
    assert engine.now == 200.0


def test_the_queue_never_notices() -> None:
    engine, undisturbed = busy(), busy()
    watch(engine, EASY, [Kind(4, 1000.0)], np.arange(0, 100, 5.0).tolist())
    for each in (engine, undisturbed):
        each.drive(EASY)
    assert engine.schedule().start.tolist() == undisturbed.schedule().start.tolist()


def test_small_probes_are_not_behind_large_ones() -> None:
    found = watch(busy(), EASY, [Kind(4, 60.0), Kind(1, 60.0)], [10.0])
    assert found[Kind(1, 60.0)][0].wait_s == 140.0


def test_a_short_probe_is_backfilled_and_a_long_one_is_not() -> None:
    engine = machine(submit=[0, 1], run=[100, 50], cores=[3, 4])
    found = watch(engine, EASY, [Kind(1, 50.0), Kind(1, 1000.0)], [10.0])
    assert found[Kind(1, 50.0)][0].wait_s == 0.0
    assert found[Kind(1, 1000.0)][0].wait_s == 140.0


def test_times_that_have_passed_are_refused() -> None:
    with pytest.raises(InvalidInput, match="it is 50 s already"):
        watch(busy(), EASY, [Kind(1, 10.0)], [50.0, 40.0])


def test_a_job_that_can_never_run_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the machine could run 4 at most"):
        submit(busy(), Kind(5, 10.0), 1.0)


def test_a_job_that_waits_for_what_will_not_come_is_told() -> None:
    engine = busy()
    child = submit(engine, Kind(1, 10.0), 1.0, after=[1])
    edits.cancel(engine, 1)
    with pytest.raises(InvalidInput, match="a job would never start in this queue"):
        started(engine, EASY, [child])


def test_nothing_waits_for_ever() -> None:
    engine = machine(submit=[0], run=[1000], cores=[4])
    assert math.isfinite(watch(engine, EASY, [Kind(4, 10.0)], [0.0])[Kind(4, 10.0)][0].wait_s)
