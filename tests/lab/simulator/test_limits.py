"""Limits of users and of a QOS; the engine against the slow scheduler of the partitions' tests."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import IllegalDecision, InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster, Partition, Qos
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill, Easy
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import Multifactor
from asa.lab.simulator.state import REFUSALS, why_refused
from asa.lab.simulator.validate import violations
from tests.lab.simulator.cases import workloads
from tests.lab.simulator.test_partitions import check_agreement
from tests.lab.simulator.test_windows import windowed


@st.composite
def limited(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """A few jobs of three users, with two QOS, and a machine with partitions and windows."""
    jobs, cluster = draw(windowed())
    few, some = st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 3, 4, 6])
    qos = {name: Qos(draw(few), draw(st.sampled_from([0, 0, 2, 3])), draw(some), draw(some)) for name in ("a", "b")}
    codes = draw(st.lists(st.integers(-1, 1), min_size=len(jobs), max_size=len(jobs)))
    jobs = replace(jobs, qos=np.array(codes), labels={**jobs.labels, "qos": ("a", "b")})
    return jobs, replace(cluster, qos=qos)


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(case=limited())
def test_compiled_loop_pull_loop_and_slow_scheduler_agree(depth: float, case: tuple[Workload, Cluster]) -> None:
    check_agreement(*case, depth)


@pytest.mark.parametrize(
    ("dispatcher", "settings"),
    [
        ("easy", {"instant": "one-by-one"}),
        ("easy", {"predictor": "last-two"}),
        ("easy:order=sjf", {"priority": "multifactor"}),
        ("easy++", {}),
        ("random", {}),
        ("binpacking", {}),
        ("knapsack", {}),
    ],
)
@given(case=limited())
def test_no_limit_is_ever_exceeded(dispatcher: str, settings: dict[str, str], case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    schedule = simulate(jobs, cluster, dispatcher, **settings)
    assert violations(schedule) == []
    assert (
        np.isin(schedule.outcome, [OUTCOMES.index(state) for state in (JobState.PENDING, JobState.RUNNING)]).sum() == 0
    )


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@pytest.mark.parametrize("qos", [Qos(), Qos(99, 99, 99, 99, 3)])
@given(jobs=workloads())
def test_limits_that_nobody_reaches_change_nothing(depth: float, qos: Qos, jobs: Workload) -> None:
    jobs = replace(jobs, user=np.arange(len(jobs)) % 3)
    found = [simulate(jobs, cluster, Backfill(depth)) for cluster in (machine(5), machine(5, all=qos))]
    np.testing.assert_array_equal(found[0].start, found[1].start)
    assert found[0].decisions == found[1].decisions


# -- One by one -------------------------------------------------------------------------------------------------------


def work(*jobs: tuple[float, float, int, int], **columns: object) -> Workload:
    """Jobs as (submission, wall time, cores, user); they run as long."""
    submit, wall, cores, user = zip(*jobs, strict=True)
    return Workload.of(submit=submit, run=wall, walltime=wall, cores=cores, user=user, **columns)


def machine(nodes: int, **qos: Qos) -> Cluster:
    return replace(Cluster.of(nodes), qos=qos)


@pytest.mark.parametrize("dispatcher", ["fcfs", "easy", "conservative", "listplan"])
def test_a_job_that_a_limit_keeps_back_blocks_no_other(dispatcher: str) -> None:
    jobs = work((0, 10, 1, 0), (0, 10, 3, 0), (1, 20, 3, 1))
    one = machine(4, normal=Qos(max_jobs_per_user=1))
    assert simulate(jobs, one, dispatcher).start.tolist() == [0.0, 21.0, 1.0]


def test_of_several_that_fit_so_many_start_as_the_limit_allows() -> None:
    jobs = work((0, 10, 1, 0), (0, 10, 1, 0), (0, 10, 1, 0), (0, 10, 1, 1))
    assert simulate(jobs, machine(4, n=Qos(max_jobs_per_user=2))).start.tolist() == [0.0, 0.0, 10.0, 0.0]
    assert simulate(jobs, machine(4, n=Qos(max_cores_per_user=1))).start.tolist() == [0.0, 10.0, 20.0, 0.0]
    assert simulate(jobs, machine(4, n=Qos(grp_cores=3))).start.tolist() == [0.0, 0.0, 0.0, 10.0]


def test_a_small_job_of_the_same_user_goes_on_when_a_large_one_is_beyond_the_limit() -> None:
    jobs = work((0, 10, 2, 0), (0, 10, 2, 0), (0, 10, 1, 0))
    assert simulate(jobs, machine(8, n=Qos(max_cores_per_user=3)), "fcfs").start.tolist() == [0.0, 10.0, 0.0]


def test_a_job_beyond_the_limit_of_submitted_ones_is_refused() -> None:
    jobs = work((0, 10, 1, 0), (0, 10, 1, 0), (1, 10, 1, 0), (1, 10, 1, 1), (10, 10, 1, 0))
    schedule = simulate(jobs, machine(1, n=Qos(max_submit_jobs_per_user=2)))
    assert np.flatnonzero(np.isnan(schedule.start)).tolist() == [2]
    assert OUTCOMES[schedule.outcome[2]] is JobState.FAILED
    assert not why_refused(jobs, schedule.cluster).any()


def test_a_job_larger_than_a_limit_is_refused_with_slurms_reason() -> None:
    jobs = work((0, 10, 3, 0), (0, 10, 3, -1), (0, 10, 4, -1))
    limits = machine(8, n=Qos(max_cores_per_user=2, grp_cores=3))
    assert [REFUSALS[code] for code in why_refused(jobs, limits)] == ["QOSMaxCpuPerUserLimit", "", "QOSGrpCpuLimit"]
    assert np.isnan(simulate(jobs, limits).start).tolist() == [True, False, True]


def test_each_qos_has_its_own_limits_and_the_first_is_the_default() -> None:
    jobs = work((0, 10, 1, 0), (0, 10, 1, 0), (0, 10, 1, 0), qos=[1, -1, 1], labels={"qos": ("low", "high")})
    both = machine(4, low=Qos(max_jobs_per_user=1), high=Qos(max_jobs_per_user=1))
    assert simulate(jobs, both).start.tolist() == [0.0, 0.0, 10.0]
    with pytest.raises(InvalidInput, match="job 1 names QOS 'high', which is not there: choose one of low"):
        simulate(jobs, machine(4, low=Qos()))
    assert simulate(jobs, machine(4)).start.tolist() == [0.0, 0.0, 0.0]


def test_a_qos_of_higher_priority_comes_first_where_priorities_count_it() -> None:
    jobs = work((0, 10, 1, 0), (1, 10, 1, 0), (2, 10, 1, 1), qos=[0, 0, 1], labels={"qos": ("low", "high")})
    both = machine(1, low=Qos(priority=5), high=Qos(priority=10))
    assert simulate(jobs, both, "fcfs").start.tolist() == [0.0, 10.0, 20.0]
    assert simulate(jobs, both, "fcfs", priority=Multifactor(qos=1000)).start.tolist() == [0.0, 20.0, 10.0]


def test_a_dispatcher_does_not_see_jobs_that_a_limit_keeps_back() -> None:
    engine = Engine(work((0, 10, 1, 0), (0, 10, 1, 0), (0, 10, 1, 1)), machine(4, n=Qos(max_jobs_per_user=1)))
    view = engine.advance()
    assert view is not None and view.waiting.tolist() == [0, 1, 2]
    engine.apply([Start(0), Start(1), Start(2)])  # the second may not start any more; asked again:
    view = engine.advance()
    assert view is not None and (view.now, view.waiting.tolist()) == (0.0, [2])
    with pytest.raises(IllegalDecision, match="a limit of its QOS keeps the job from starting now"):
        engine.apply([Start(1)])


def test_what_is_requeued_or_cancelled_gives_its_part_of_the_limit_back() -> None:
    engine = Engine(work((0, 10, 1, 0), (0, 10, 1, 0), (5, 10, 1, 0)), machine(4, n=Qos(1, 2)))
    engine.dispatch(Easy().numbers, until=1.0)
    operations.requeue(engine, 0)  # to the end of the queue
    engine.dispatch(Easy().numbers, until=2.0)
    assert engine.state.jobs["started"][1] == 1.0
    operations.cancel(engine, 1)
    engine.dispatch(Easy().numbers)
    schedule = engine.schedule()
    assert (schedule.start[0], schedule.start[2]) == (2.0, 12.0)  # one had left when the third came


def test_a_job_that_comes_on_the_way_has_the_first_qos() -> None:
    engine = Engine(work((0, 10, 2, 0)), machine(4, n=Qos(grp_cores=3), other=Qos()))
    with pytest.raises(InvalidInput, match="a job of 4 cores: its QOS allows 3"):
        operations.submit(engine, run=5, walltime=5, units=4)
    row = operations.submit(engine, run=5, walltime=5, units=2, watched=False)
    engine.dispatch(Easy().numbers)
    assert engine.state.jobs["started"][row] == 10.0


def test_laws_of_limits_are_checked() -> None:
    schedule = simulate(work((0, 5, 2, 0), (0, 5, 2, 0)), Cluster.of(4))
    after = replace(schedule, cluster=machine(4, n=Qos(1, 1, 3, 3)))
    assert violations(after) == [
        "user 0 of QOS 'n' has 2 running jobs at 0 s: 1 allowed",
        "user 0 of QOS 'n' has 4 cores at 0 s: 3 allowed",
        "user 0 of QOS 'n' has 2 submitted jobs at 0 s: 1 allowed",
        "QOS 'n' has 4 cores at 0 s: 3 allowed",
    ]


def test_limits_hold_on_a_machine_with_partitions_too() -> None:
    parted = replace(machine(4, n=Qos(max_jobs_per_user=1)), partitions={"a": Partition((0, 1, 2, 3))})
    jobs = work((0, 10, 1, 0), (0, 10, 1, 0), (0, 10, 1, 1))
    assert simulate(jobs, parted).start.tolist() == [0.0, 10.0, 0.0]


@pytest.mark.parametrize(
    "values", [{"max_jobs_per_user": -1}, {"grp_cores": 1.5}, {"priority": True}, {"max_cores_per_user": 2**31}]
)
def test_a_qos_has_sensible_limits(values: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=f"a QOS has {next(iter(values))} .*: a whole number from 0 to 2"):
        Qos(**values)
