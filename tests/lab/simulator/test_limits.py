"""Limits of users, QOS and accounts; the engine against the slow scheduler of the partitions' tests."""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import IllegalDecision, InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import ROOT, Association, Cluster, ClusterAccount, Partition, Qos
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.dispatchers.backfill import Backfill, Easy
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import Multifactor
from asa.lab.simulator.state import REFUSALS, walltimes, why_refused
from tests.lab.simulator.cases import pull, whole_numbers, workloads
from tests.lab.simulator.test_kinds import kinds
from tests.lab.simulator.test_partitions import Oracle, check_agreement
from tests.lab.simulator.test_windows import windowed
from tests.lab.simulator.validate import violations


@st.composite
def limited(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """A few jobs of three users, with two QOS, and a machine with partitions and windows."""
    jobs, cluster = draw(windowed())
    few, some = st.sampled_from([None] * 4 + [0, 1, 1, 2, 2]), st.sampled_from([None] * 3 + [0, 3, 3, 4, 4, 6, 6])
    counts, cores = ("max_jobs_per_user", "max_submit_jobs_per_user"), ("max_cores_per_user", "grp_cores")
    limits = st.fixed_dictionaries(dict.fromkeys(counts, few) | dict.fromkeys(cores, some))
    qos = {name: Qos(**draw(limits)) for name in ("a", "b")}
    codes = draw(st.lists(st.integers(-1, 1), min_size=len(jobs), max_size=len(jobs)))
    jobs = replace(jobs, qos=np.array(codes), labels={**jobs.labels, "qos": ("a", "b")})
    return jobs, replace(cluster, qos=qos)


@st.composite
def in_accounts(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """The same, in a tree of accounts that have limits, too, as have their users."""
    jobs, cluster = draw(limited())
    values = st.sampled_from([None] * 6 + [0, 1, 1, 2, 2, 4, 4, 6, 6])
    names = ("grp_jobs", "grp_submit_jobs", "grp_cores", "max_jobs", "max_submit_jobs", "max_cores")
    times = st.sampled_from([None] * 6 + [0.0, 2.0, 5.0, 8.0])
    association = st.builds(Association, **dict.fromkeys(names, values), max_time_s=times)
    accounts = {}
    for name, parents in ((ROOT, [ROOT]), ("a", [ROOT]), ("b", [ROOT, "a"]), ("c", [ROOT, "a", "b"])):
        users = draw(st.dictionaries(st.sampled_from(["ann", "bob"]), association, max_size=2))
        own = asdict(draw(association)) if draw(st.booleans()) else {}
        accounts[name] = ClusterAccount(parent=draw(st.sampled_from(parents)), user_limits=users, **own)
    codes = draw(st.lists(st.integers(-1, 3), min_size=len(jobs), max_size=len(jobs)))
    jobs = replace(jobs, group=np.array(codes), labels={**jobs.labels, "group": ("a", "b", "c", "d")})
    return jobs, replace(cluster, accounts=accounts, qos=draw(st.sampled_from([{}, cluster.qos])))


@st.composite
def of_all_kinds(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """A few jobs with memory and GPUs on nodes that differ, with limits of each kind of QOS, accounts and users."""
    jobs, cluster = draw(kinds())
    column = whole_numbers(draw, len(jobs))
    labels = {"user": ("ann", "bob"), "qos": ("a", "b"), "group": ("a", "b")}
    codes = {name: np.array(column(-1, 1)) for name in labels}
    values = st.sampled_from([0, 1, 1, 2, 2, 3, 4, 6])

    def some(kind: type) -> dict[str, int]:
        names = [item.name for item in fields(kind) if item.type == "int | None"]
        found: dict[str, int] = draw(st.dictionaries(st.sampled_from(names), values, max_size=3))
        return found

    qos = {name: Qos(**some(Qos)) for name in ("a", "b")}
    accounts = {
        name: ClusterAccount(parent=parent, user_limits={"ann": Association(**some(Association))}, **some(Association))
        for name, parent in ((ROOT, ROOT), ("a", ROOT), ("b", "a"))
    }
    return replace(jobs, **codes, labels={**jobs.labels, **labels}), replace(cluster, qos=qos, accounts=accounts)


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(case=of_all_kinds())
def test_they_agree_with_limits_of_nodes_memory_and_gpus(depth: float, case: tuple[Workload, Cluster]) -> None:
    check_agreement(*case, depth)


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(case=in_accounts())
def test_they_agree_with_limits_of_accounts_and_their_users(depth: float, case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    check_agreement(jobs if cluster.qos else replace(jobs, qos=np.full(len(jobs), UNKNOWN)), cluster, depth)


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(case=in_accounts(), data=st.data())
def test_jobs_of_a_user_in_a_partition_are_under_the_limits_for_these(
    depth: float, case: tuple[Workload, Cluster], data: st.DataObject
) -> None:
    jobs, cluster = case
    jobs = jobs if cluster.qos else replace(jobs, qos=np.full(len(jobs), UNKNOWN))
    few, accounts = st.sampled_from([None, 0, 1, 2, 4]), {}
    partitions = [*cluster.partitions]
    for name in ("x", "y", "z"):
        own = {
            "partition": data.draw(st.sampled_from(partitions)),
            "users": {data.draw(st.sampled_from(["ann", "bob"])): 1},
        }
        limits = {kind: data.draw(few) for kind in ("grp_jobs", "grp_cores", "max_jobs", "max_cores")}
        accounts[name] = ClusterAccount(parent=data.draw(st.sampled_from([ROOT, "a", "b"])), **own, **limits)
    groups = []
    for row in range(len(jobs)):
        groups.append(jobs.label("group", row))
        for name, each in accounts.items():
            here = jobs.label("partition", row) or partitions[0]
            if (jobs.label("group", row) or ROOT, here) == (each.parent, each.partition) and jobs.label(
                "user", row
            ) in each.users:
                groups[-1] = name
    codes = sorted({*groups, "-"} - {""})
    moved = np.array([codes.index(name) if name else UNKNOWN for name in groups])
    there = replace(cluster, accounts={**cluster.accounts, **accounts})
    oracle = Oracle(replace(jobs, group=moved, labels={**jobs.labels, "group": tuple(codes)}), there, depth)
    schedule = simulate(jobs, there, Backfill(depth))
    np.testing.assert_array_equal(schedule.start, oracle.starts())
    assert violations(schedule) == []


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
@pytest.mark.parametrize("qos", [Qos(), Qos(max_jobs_per_user=99, max_cores_per_user=99, grp_cores=99, priority=3)])
@given(jobs=workloads())
def test_limits_that_nobody_reaches_change_nothing(depth: float, qos: Qos, jobs: Workload) -> None:
    jobs = replace(jobs, user=np.arange(len(jobs)) % 3)
    found = [simulate(jobs, cluster, Backfill(depth)) for cluster in (machine(5), machine(5, all=qos))]
    np.testing.assert_array_equal(found[0].start, found[1].start)
    assert found[0].decisions == found[1].decisions


# -- Of time ----------------------------------------------------------------------------------------------------------


@st.composite
def timed(draw: st.DrawFn) -> tuple[Workload, Cluster, Multifactor]:
    """A few jobs of two users, in two accounts and two QOS with limits of time; and how time decays and is counted."""
    count = draw(st.integers(1, 9))
    column = whole_numbers(draw, count)
    labels = {"user": ("ann", "bob"), "qos": ("a", "b"), "group": ("a", "b")}
    unit, wall = draw(st.sampled_from([60.0, 60.0, 25.0])), np.array(column(1, 6))
    jobs = Workload.of(
        submit=20.0 * np.array(column(0, 9)), run=unit / 4 * np.minimum(column(1, 24), 4 * wall), walltime=unit * wall,
        units=column(1, 3), kind=column(0, 1), demands=[[1, 0], [1, 1]], resources=("cores", "gpus"),
        **{name: column(-1, 1) for name in labels}, labels=labels,
    )  # fmt: skip
    minutes = [item.name for item in fields(Association) if item.name.endswith("minutes")]

    def some() -> dict[str, int]:
        values = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 8, 10, 12, 12])
        found: dict[str, int] = draw(st.dictionaries(st.sampled_from(minutes), values, max_size=2))
        return found

    cluster = Cluster(
        np.array([[6, 4]]),
        ("cores", "gpus"),
        partitions={"all": Partition((0,))},
        qos={name: Qos(**some(), decays=draw(st.booleans())) for name in ("a", "b")},
        accounts={
            name: ClusterAccount(parent=parent, user_limits={"ann": Association(**some())}, **some())
            for name, parent in ((ROOT, ROOT), ("a", ROOT), ("b", "a"))
        },
        safe_limits=draw(st.booleans()),
    )
    priority = Multifactor(
        age=0.0,
        half_life_s=draw(st.sampled_from([math.inf, 200.0, 60.0])),
        calc_period_s=draw(st.sampled_from([0.0, 30.0, 60.0])),
    )
    return jobs, cluster, priority


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(case=timed())
def test_they_agree_with_limits_of_time(depth: float, case: tuple[Workload, Cluster, Multifactor]) -> None:
    jobs, cluster, priority = case
    rule = Backfill(depth)
    schedule = simulate(jobs, cluster, rule, priority=priority)
    slow = Oracle(
        jobs, cluster, depth, half_life=priority.half_life_s, counts_each=priority.calc_period_s or 1.0
    ).starts()  # fmt: skip
    np.testing.assert_array_equal(schedule.start, slow)
    np.testing.assert_array_equal(schedule.start, pull(jobs, cluster, rule, priority=priority).start)
    assert violations(schedule) == []


def minutes(*jobs: tuple[float, float, float, int]) -> Workload:
    """Jobs as (submission, wall time, run time, cores), times in minutes, of one user in account a."""
    submit, wall, run, cores = (60.0 * np.array(column) for column in zip(*jobs, strict=True))
    own = {"user": ("ann",), "group": ("a",)}
    return Workload.of(
        submit=submit, run=run, walltime=wall, cores=cores / 60, labels=own, user=[0] * len(jobs), group=[0] * len(jobs)
    )


def test_time_is_counted_when_something_else_happens_at_that_moment() -> None:
    """The last job comes when what the others have used has decayed far enough for the one that waits."""
    jobs = Workload.of(
        submit=[0.0] * 6 + [180.0], run=[6.25] * 5 + [25.0, 6.25], units=[3, 3, 3, 1, 1, 1, 1],
        walltime=[25.0, 25.0, 25.0, 50.0, 75.0, 25.0, 125.0], group=[0] * 7, user=[0] * 7,
        labels={"group": ("a",), "user": ("ann",)},
    )  # fmt: skip
    cluster = replace(Cluster.of(6), accounts={"a": ClusterAccount(grp_core_minutes=2)})
    done = simulate(jobs, cluster, "fcfs", priority="multifactor:half_life_s=200,calc_period_s=60")
    assert done.start[4] == 180.0 and np.isnan(done.start[6]), "the last asks for more than there ever is"


def begun(jobs: Workload, account: ClusterAccount, *, safe: bool = True, **priority: float) -> list[float]:
    """When jobs start [min] in such an account on 8 cores."""
    cluster = replace(Cluster.of(8), accounts={"a": account}, safe_limits=safe)
    schedule = simulate(jobs, cluster, priority=Multifactor(**{"half_life_s": math.inf, **priority}))
    return (schedule.start / 60).round(2).tolist()


def test_what_running_jobs_may_still_use_falls_while_they_run() -> None:
    """Slurm cuts minutes off, and counts them each time that it makes priorities anew."""
    jobs, account = minutes((0, 10, 10, 1), (0, 10, 6, 1), (0, 5, 5, 1)), ClusterAccount(grp_core_run_minutes=20)
    assert begun(jobs, account) == [0.0, 0.0, round(2 + 1 / 60, 2)], "20 - 2 t + 5 is below 21"
    assert begun(jobs, account, calc_period_s=300.0) == [0.0, 0.0, 5.0]
    early = minutes((0, 10, 1, 1), (0, 10, 1, 1), (0, 5, 5, 1))
    assert begun(early, account, calc_period_s=300.0) == [0.0, 0.0, 1.0], "one that has ended uses nothing any more"


def test_a_budget_of_core_minutes_is_used_up_and_comes_back_as_it_decays() -> None:
    jobs, account = minutes((0, 2, 2, 2), (0, 2, 1, 2), (0, 4, 4, 1), (9, 1, 1, 1)), ClusterAccount(grp_core_minutes=10)
    assert begun(jobs, account)[:3] == [0.0, 0.0, 1.0], "4 are left to the first or used by it, 2 used: so 4 may start"
    assert np.isnan(begun(jobs, account)[3])
    assert begun(jobs, account, half_life_s=600.0)[3] == 9.0
    lasting = {"n": Qos(grp_core_minutes=10, decays=False)}
    cluster = replace(Cluster.of(8), qos=lasting)
    schedule = simulate(jobs, cluster, priority=Multifactor(half_life_s=60.0))
    assert np.isnan(schedule.start).tolist() == [False] * 3 + [True] and violations(schedule) == []
    assert OUTCOMES[schedule.outcome[3]] is JobState.PENDING


def test_where_limits_are_not_safe_jobs_start_while_anything_is_left() -> None:
    jobs, account = minutes((0, 9, 9, 1), (0, 9, 9, 1), (8, 9, 9, 1), (9, 1, 1, 1)), ClusterAccount(grp_core_minutes=10)
    assert np.isnan(begun(jobs, account)).tolist() == [False, True, True, False]
    assert begun(jobs, account, safe=False)[:2] == [0.0, 0.0]
    assert np.isnan(begun(jobs, account, safe=False)[2:]).all(), "16 and more are used"


def test_run_times_of_an_account_add_up_whatever_jobs_have() -> None:
    jobs = minutes((0, 2, 2, 4), (0, 2, 2, 1), (3, 1, 1, 1), (9, 2, 2, 1))
    assert begun(jobs, ClusterAccount(grp_wall_minutes=5))[:3] == [0.0, 0.0, 3.0]
    assert np.isnan(begun(jobs, ClusterAccount(grp_wall_minutes=5))[3])


def test_a_job_of_too_many_minutes_is_refused_with_slurms_reason() -> None:
    jobs = minutes((0, 5, 5, 3))
    for limits, reason in (
        ({"accounts": {"a": ClusterAccount(max_core_minutes=14)}}, "AssocMaxCpuMinutesPerJobLimit"),
        ({"accounts": {"a": ClusterAccount(grp_core_minutes=14)}}, "AssocGrpCPUMinutesLimit"),
        ({"accounts": {"a": ClusterAccount(grp_core_run_minutes=14)}}, "AssocGrpCPURunMinutesLimit"),
        ({"accounts": {"a": ClusterAccount(grp_wall_minutes=4)}}, "AssocGrpWallLimit"),
        ({"accounts": {"a": ClusterAccount(max_core_minutes=15, grp_gpu_minutes=0)}}, ""),
        ({"qos": {"n": Qos(max_core_minutes=14)}}, "QOSMaxCpuMinutesPerJobLimit"),
        ({"qos": {"n": Qos(max_core_minutes=15)}, "accounts": {"a": ClusterAccount(max_core_minutes=1)}}, ""),
        ({"qos": {"n": Qos(grp_core_run_minutes=14)}}, "QOSGrpCPURunMinutesLimit"),
    ):
        cluster = replace(Cluster.of(8), **limits)
        assert REFUSALS[why_refused(jobs, cluster)[0]] == reason
        assert np.isnan(simulate(jobs, cluster).start[0]) == (reason != "")
    endless = replace(jobs, walltime=np.array([math.nan]))
    cluster = replace(Cluster.of(8), accounts={"a": ClusterAccount(max_core_minutes=14)})
    assert walltimes(endless, cluster).tolist() == [240.0], "whole minutes, of three cores"
    engine = Engine(jobs, replace(Cluster.of(8), qos={"n": Qos(grp_core_minutes=14)}))
    with pytest.raises(InvalidInput, match=r"a job of 16 core-minutes: at most 14 expected \(QOSGrpCPUMinutesLimit\)"):
        operations.submit(engine, run=60, walltime=240, units=4)


def test_laws_of_time_are_checked() -> None:
    schedule = simulate(minutes((0, 5, 5, 1), (2, 5, 5, 1)), Cluster.of(8))
    limits = {"a": ClusterAccount(grp_core_run_minutes=7)}
    assert violations(replace(schedule, cluster=replace(Cluster.of(8), accounts=limits))) == [
        "account 'a' has 8 core-minutes of running jobs at 120 s: 7 allowed"
    ]


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


# -- Accounts ---------------------------------------------------------------------------------------------------------


def test_an_account_of_a_partition_is_for_users_in_one_that_is_there() -> None:
    parts = {"gpu": Partition((0, 1)), "all": Partition((0, 1, 2, 3))}
    accounts = {
        "bio": ClusterAccount(grp_jobs=2),
        "few": ClusterAccount(parent="bio", partition="gpu", users={"0": 1}, grp_jobs=1),
    }
    machine = replace(Cluster.of(4), partitions=parts, accounts=accounts)
    jobs = work(*((0, 10, 1, user) for user in (0, 0, 0, 1, 0)), partition=[0, 0, 1, 0, 1], group=[0] * 5,
        labels={"partition": tuple(parts), "group": ("bio",)})  # fmt: skip
    assert simulate(jobs, machine, "easy").start.tolist() == [0.0, 10.0, 0.0, 10.0, 20.0]
    for wrong in ({"partition": "old"}, {"users": {}}):
        with pytest.raises(
            InvalidInput, match=r"account 'few' is for . users in partition '.*': at least one, and one of"
        ):
            replace(machine, accounts={**accounts, "few": replace(accounts["few"], **wrong)})


def started(accounts: dict[str, ClusterAccount], group: list[int], user: list[int], **qos: Qos) -> list[float]:
    """When jobs of a core and 10 s start that are submitted together to accounts a, b, c."""
    jobs = work(*((0, 10, 1, each) for each in user), group=group, labels={"group": ("a", "b", "c")})
    return simulate(jobs, replace(machine(8, **qos), accounts=accounts)).start.tolist()


@pytest.mark.parametrize("limits", [{"grp_jobs": 2}, {"grp_cores": 2}])
def test_a_limit_of_an_account_is_one_of_all_accounts_and_users_below_it(limits: dict[str, int]) -> None:
    tree = {"a": ClusterAccount(**limits), "b": ClusterAccount(parent="a")}
    assert started(tree, [0, 1, 1, 0, 2], [0, 1, 0, 1, 0]) == [0.0, 0.0, 10.0, 10.0, 0.0]
    assert started({ROOT: ClusterAccount(**limits)}, [0, 1, 2], [0, 0, 1]) == [0.0, 0.0, 10.0]


def test_each_user_of_an_account_has_the_limit_of_the_nearest_account_or_his_own() -> None:
    tree = {
        "a": ClusterAccount(max_jobs=1, user_limits={"1": Association(max_jobs=2)}),
        "b": ClusterAccount(parent="a"),
        "c": ClusterAccount(parent="a", max_jobs=2),
    }
    assert started(tree, [0, 0, 0, 0, 0], [0, 0, 1, 1, 1]) == [0.0, 10.0, 0.0, 0.0, 10.0]
    assert started(tree, [0, 1, 1], [0, 0, 0]) == [0.0, 0.0, 10.0], "in each account for itself"
    assert started(tree, [2, 2, 2], [0, 0, 0]) == [0.0, 0.0, 10.0]
    assert started(tree, [1, 1], [-1, -1]) == [0.0, 0.0], "that of an unknown user is not known"


def test_a_user_of_an_account_may_have_a_limit_of_cores() -> None:
    tree = {"a": ClusterAccount(user_limits={"0": Association(grp_cores=1)})}
    assert started(tree, [0, 0, 0, 1], [0, 0, 1, 0]) == [0.0, 10.0, 0.0, 0.0]


def test_a_limit_of_the_qos_takes_the_place_of_the_same_one_of_an_account() -> None:
    tree = {"a": ClusterAccount(max_jobs=1, grp_cores=1)}
    both = [0, 0, 0], [0, 0, 0]
    assert started(tree, *both) == [0.0, 10.0, 20.0]
    assert started(tree, *both, n=Qos(max_jobs_per_user=2)) == [0.0, 10.0, 20.0], "the cores are the account's"
    assert started(tree, *both, n=Qos(grp_cores=2)) == [0.0, 10.0, 20.0], "the jobs are the account's"
    assert started(tree, *both, n=Qos(max_jobs_per_user=2, grp_cores=3)) == [0.0, 0.0, 10.0]
    few, more = {"a": ClusterAccount(max_submit_jobs=1)}, Qos(max_submit_jobs_per_user=2)
    assert np.isnan(started(few, *both, n=more)).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ClusterAccount(grp_jobs=0), "AssocGrpJobsLimit"),
        (ClusterAccount(max_jobs=0), "AssocMaxJobsLimit"),
        (ClusterAccount(grp_cores=0), "AssocGrpCpuLimit"),
        (ClusterAccount(max_cores=0), "AssocMaxCpuPerJobLimit"),
        (ClusterAccount(max_submit_jobs=0), "limit of submitted jobs"),
        (ClusterAccount(grp_submit_jobs=0), "limit of submitted jobs"),
        (Qos(max_jobs_per_user=0), "QOSMaxJobsPerUserLimit"),
        (Qos(max_cores_per_user=0), "QOSMaxCpuPerUserLimit"),
        (Qos(grp_cores=0), "QOSGrpCpuLimit"),
        (Qos(max_submit_jobs_per_user=0), "limit of submitted jobs"),
    ],
)
def test_a_limit_of_0_means_none_may(limits: ClusterAccount | Qos, reason: str) -> None:
    closed = {"qos": {"n": limits}} if isinstance(limits, Qos) else {"accounts": {"a": limits}}
    jobs = work((0, 10, 1, 0), (1, 10, 1, 0), group=[0, 0], labels={"group": ("a",)})
    schedule = simulate(jobs, replace(Cluster.of(2), **closed))
    assert {OUTCOMES[code] for code in schedule.outcome} == {JobState.FAILED} and violations(schedule) == []
    why = REFUSALS[why_refused(jobs, schedule.cluster)[0]]
    assert (why or REFUSALS[-1]) == reason
    if isinstance(limits, Qos):
        return
    own = {"a": replace(limits, parent="b"), "b": ClusterAccount(max_jobs=0, max_cores=0, max_submit_jobs=0)}
    open_again = {"a": ClusterAccount(parent="b", max_jobs=1, max_cores=1, max_submit_jobs=2), "b": own["b"]}
    assert np.isnan(started(own, [0], [0])).all()
    assert started(open_again, [0, 0], [0, 0]) == [0.0, 10.0], "its own takes the place of that from above"


@pytest.mark.parametrize("limits", [{"max_submit_jobs": 2}, {"grp_submit_jobs": 2}])
def test_a_job_beyond_the_submitted_ones_of_an_account_is_refused(limits: dict[str, int]) -> None:
    assert np.isnan(started({"a": ClusterAccount(**limits)}, [0, 0, 0, 1], [0, 0, 0, 0])).tolist() == [0, 0, 1, 0]


def test_a_job_larger_than_its_account_allows_is_refused_with_slurms_reason() -> None:
    jobs = work((0, 1, 3, 0), (0, 1, 2, 0), (0, 1, 2, 1), group=[0, 0, 1], labels={"group": ("a", "b")})
    tree = {"a": ClusterAccount(max_cores=2), "b": ClusterAccount(grp_cores=1)}
    limits = replace(machine(8), accounts=tree)
    assert [REFUSALS[code] for code in why_refused(jobs, limits)] == ["AssocMaxCpuPerJobLimit", "", "AssocGrpCpuLimit"]
    assert np.isnan(simulate(jobs, limits).start).tolist() == [True, False, True]


def test_a_job_that_comes_on_the_way_is_in_no_account_but_the_uppermost() -> None:
    cluster = replace(Cluster.of(4), accounts={ROOT: ClusterAccount(grp_cores=3), "0": ClusterAccount(grp_cores=1)})
    engine = Engine(work((0, 10, 1, 0), group=[0]), cluster)
    with pytest.raises(InvalidInput, match=r"a job of 4 cores: at most 3 expected \(AssocGrpCpuLimit\)"):
        operations.submit(engine, run=5, walltime=5, units=4)
    rows = [operations.submit(engine, run=5, walltime=5, units=units, user=units, watched=False) for units in (2, 1)]
    engine.dispatch(Easy().numbers)
    assert engine.state.jobs["started"][rows].tolist() == [0.0, 5.0]


def test_laws_of_accounts_are_checked() -> None:
    schedule = simulate(work((0, 5, 2, 0), (0, 5, 2, 0)), Cluster.of(4))
    tree = {ROOT: ClusterAccount(grp_cores=3, user_limits={"0": Association(max_jobs=1)})}
    assert violations(replace(schedule, cluster=replace(Cluster.of(4), accounts=tree))) == [
        "account 'root' has 4 cores at 0 s: 3 allowed",
        "user 0 of account 'root' has 2 running jobs at 0 s: 1 allowed",
    ]


@pytest.mark.parametrize("kind", [Association, ClusterAccount])
def test_an_association_has_sensible_limits(kind: type[Association]) -> None:
    with pytest.raises(InvalidInput, match=r"an a.* has max_jobs -1: a whole number from 0 to 2"):
        kind(max_jobs=-1)


def test_a_job_of_too_many_nodes_or_gpus_or_too_much_memory_is_refused_with_slurms_reason() -> None:
    cluster = Cluster.of(4, cores=4, memory=8, gpus=2)
    jobs = Workload.of(
        submit=[0, 0, 0], run=[9, 9, 9], walltime=[9, 9, 9], units=[9, 2, 2], demands=[[1, 0, 0], [1, 8, 0], [1, 0, 2]],
        kind=[0, 1, 2], user=[0, 0, 0], labels={"user": ("ann",)},
    )  # fmt: skip
    for limits, expected in (
        ({"qos": {"n": Qos(max_nodes=2, max_memory=15, max_gpus=3)}},
         ("QOSMaxNodePerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxGRESPerJob")),
        ({"qos": {"n": Qos(grp_nodes=2, grp_memory=15, grp_gpus=3)}},
         ("QOSGrpNodeLimit", "QOSGrpMemLimit", "QOSGrpGRES")),
        ({"qos": {"n": Qos(max_nodes_per_user=2, max_memory_per_user=15, max_gpus_per_user=3)}},
         ("QOSMaxNodePerUserLimit", "QOSMaxMemoryPerUser", "QOSMaxGRESPerUser")),
        ({"accounts": {ROOT: ClusterAccount(max_nodes=2, max_memory=15, max_gpus=3)}},
         ("AssocMaxNodePerJobLimit", "AssocMaxMemPerJob", "AssocMaxGRESPerJob")),
        ({"accounts": {ROOT: ClusterAccount(grp_nodes=2, grp_memory=15, grp_gpus=3)}},
         ("AssocGrpNodeLimit", "AssocGrpMemLimit", "AssocGrpGRES")),
        ({"qos": {"n": Qos(max_nodes=3)}, "accounts": {ROOT: ClusterAccount(max_nodes=2)}}, ("", "", "")),
    ):  # fmt: skip
        machine = replace(cluster, **limits)
        assert tuple(REFUSALS[code] for code in why_refused(jobs, machine)) == expected
        assert np.isnan(simulate(jobs, machine).start).tolist() == [word != "" for word in expected]


def test_a_job_longer_than_its_qos_or_account_allows_is_refused() -> None:
    """Slurm 22.05 lets it wait for ever, also one that has its partition's default."""
    jobs = work((0, 5, 1, 0), (0, 5, 1, 0), (0, 5, 1, 0), qos=[0, 0, 0], labels={"qos": ("n",)})
    jobs = replace(jobs, walltime=np.array([10.0, 20.0, math.nan]))
    of_account, of_both = {ROOT: ClusterAccount(max_time_s=10.0)}, {"n": Qos(max_time_s=20.0)}
    association, own = "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"
    default = {"p": Partition((0, 1), math.inf, default_time_s=30.0)}
    for limits, expected in (
        ({"accounts": of_account}, ["", association, ""]),
        ({"accounts": of_account, "qos": of_both}, ["", "", ""]),
        ({"accounts": of_account, "partitions": default}, ["", association, association]),
        ({"accounts": of_account, "qos": of_both, "partitions": default}, ["", "", own]),
        ({"accounts": {ROOT: ClusterAccount(max_time_s=0.0)}}, [association] * 3),
    ):
        site = replace(machine(2), **limits)
        given = jobs if site.qos else replace(jobs, qos=np.full(3, UNKNOWN), labels={})
        assert [REFUSALS[code] for code in why_refused(given, site)] == expected
        schedule = simulate(given, site)
        assert np.isnan(schedule.start).tolist() == [word != "" for word in expected] and violations(schedule) == []
    assert walltimes(given, replace(machine(2), accounts=of_account)).tolist() == [10.0, 20.0, 10.0]
    engine = Engine(given, replace(machine(2), accounts=of_account))
    with pytest.raises(InvalidInput, match=r"a job of 11 s: at most 10 s expected \(AssocMaxWall"):
        operations.submit(engine, run=5, walltime=11, units=1)
    with pytest.raises(InvalidInput, match="a QOS has max_time_s inf: a finite time from 0 s on expected"):
        Qos(max_time_s=math.inf)


def test_a_limit_of_nodes_is_kept_where_jobs_could_be_spread() -> None:
    """The last one fits on two nodes together with the others, or alone on one."""
    jobs = work((0, 10, 1, 0), (0, 10, 2, 0), (1, 10, 2, 1))
    small = replace(Cluster(np.array([[2], [2], [3]])), qos={"n": Qos(max_nodes=1)})
    schedule = simulate(jobs, small, "fcfs")
    assert violations(schedule) == []
    used = dict(schedule.placements or ())
    assert all(run.first == run.last for run in used.values()) and len(used) == 3


def test_a_job_that_comes_on_the_way_is_under_limits_of_nodes_and_gpus() -> None:
    cluster = replace(Cluster.of(4, cores=4, gpus=2), qos={"n": Qos(max_nodes=2, grp_gpus=3)})
    engine = Engine(Workload.of(submit=[0], run=[5], units=[1], demands=[[1, 0, 2]], walltime=[5]), cluster)
    for units, need, words in ((9, (1, 0), "9 cores|3 nodes: at most 2"), (2, (1, 2), "4 GPUs: at most 3")):
        with pytest.raises(InvalidInput, match=words):
            operations.submit(engine, run=5, walltime=5, units=units, need=need)
    rows = [operations.submit(engine, run=5, walltime=5, units=1, need=(1, 2), watched=False) for _ in range(2)]
    engine.dispatch(Easy().numbers)
    assert engine.state.jobs["started"][[0, *rows]].tolist() == [0.0, 5.0, 10.0]


# -- Priorities, and operations ---------------------------------------------------------------------------------------


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
    with pytest.raises(IllegalDecision, match="a limit keeps the job from starting now"):
        engine.apply([Start(1)])


def test_what_is_requeued_or_cancelled_gives_its_part_of_the_limit_back() -> None:
    engine = Engine(
        work((0, 10, 1, 0), (0, 10, 1, 0), (5, 10, 1, 0)),
        machine(4, n=Qos(max_jobs_per_user=1, max_submit_jobs_per_user=2)),
    )
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
    with pytest.raises(InvalidInput, match=r"a job of 4 cores: at most 3 expected \(QOSGrpCpuLimit\)"):
        operations.submit(engine, run=5, walltime=5, units=4)
    row = operations.submit(engine, run=5, walltime=5, units=2, watched=False)
    engine.dispatch(Easy().numbers)
    assert engine.state.jobs["started"][row] == 10.0


def test_laws_of_limits_are_checked() -> None:
    schedule = simulate(work((0, 5, 2, 0), (0, 5, 2, 0)), Cluster.of(4))
    after = replace(
        schedule,
        cluster=machine(4, n=Qos(max_jobs_per_user=1, max_submit_jobs_per_user=1, max_cores_per_user=3, grp_cores=3)),
    )
    assert violations(after) == [
        "QOS 'n' has 4 cores at 0 s: 3 allowed",
        "user 0 of QOS 'n' has 2 running jobs at 0 s: 1 allowed",
        "user 0 of QOS 'n' has 2 submitted jobs at 0 s: 1 allowed",
        "user 0 of QOS 'n' has 4 cores at 0 s: 3 allowed",
    ]


def test_limits_hold_on_a_machine_with_partitions_too() -> None:
    parted = replace(machine(4, n=Qos(max_jobs_per_user=1)), partitions={"a": Partition((0, 1, 2, 3))})
    jobs = work((0, 10, 1, 0), (0, 10, 1, 0), (0, 10, 1, 1))
    assert simulate(jobs, parted).start.tolist() == [0.0, 10.0, 0.0]


@pytest.mark.parametrize(
    "values",
    [
        {"max_jobs_per_user": -1},
        {"grp_cores": 1.5},
        {"priority": True},
        {"priority": None},
        {"max_cores_per_user": 2**31},
    ],
)
def test_a_qos_has_sensible_limits(values: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=f"a QOS has {next(iter(values))} .*: a whole number from 0 to 2"):
        Qos(**values)
