"""The simulator starts jobs as Slurm does: on recorded runs (docs/lab/accuracy.md), and on a live cluster."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import pytest

from asa.core.errors import IllegalDecision
from asa.core.hostlist import expand
from asa.core.job import JobState
from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import ROOT, ClusterAccount, Qos
from asa.lab.core.cluster import Cluster as Machine
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import Workload
from asa.lab.forecast.slurm_queue import SlurmQueue
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import DispatchLoop, simulate
from asa.lab.simulator.settings import MachineSettings, Multifactor
from asa.lab.simulator.state import REFUSALS, StopReason, why_refused
from asa.lab.traces.load import load_trace
from asa.lab.traces.slurm import ASSOCIATION, SlurmSite, parse_slurm
from tests.agreement import equal_positions, kendall, spearman
from tests.cluster import host, layout
from tests.cluster.cluster import Cluster, running
from tests.cluster.config import ACCOUNT
from tests.integration import replay
from tests.lab.simulator.fair_tree import factors
from tests.lab.simulator.validate import violations

RUNS = Path(__file__).parent / "slurm_runs"
LOG = """\
[2026-11-21T13:56:09.890] _slurm_rpc_submit_batch_job: JobId=1 InitPrio=4294901759 usec=289
[2026-11-21T13:56:09.900] _slurm_rpc_submit_batch_job: JobId=2 InitPrio=4294901758 usec=165
[2026-11-21T13:56:09.950] _slurm_rpc_submit_batch_job: JobId=3 InitPrio=4294901757 usec=184
[2026-11-21T13:56:10.733] sched/backfill: _start_job: Started JobId=1 in main on c19099n1
[2026-11-21T13:56:11.790] _job_complete: JobId=1 WEXITSTATUS 0
[2026-11-21T13:56:11.790] _job_complete: JobId=1 done
[2026-11-21T13:56:11.894] sched: Allocate JobId=2 NodeList=c19099n[1-4] #CPUs=4 Partition=main
[2026-11-21T13:56:12.146] _job_complete: JobId=2 WEXITSTATUS 0
[2026-11-21T13:56:12.146] _job_complete: JobId=2 done
"""


def recorded(site: str, number: int = 0) -> Schedule:
    return replay.schedule_of(replay.read_records(RUNS / f"{site}.{number}.csv"))


Test = TypeVar("Test", bound=Callable[..., None])


def live(test: Test) -> Test:
    """It starts a Slurm of its own."""
    for mark in (pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)):
        test = mark(test)
    return test


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if (reason := host.obstacle()) is not None:
        pytest.skip(reason)
    base, settings = tmp_path_factory.mktemp("slurm"), (("SchedulerParameters", replay.SCHEDULER),)
    with running(host.configure(base, nodes=replay.NODES, cores_per_node=1, settings=settings)) as cluster:
        yield cluster


@live
def test_start_order_on_a_live_cluster(cluster: Cluster) -> None:
    if cluster.version >= (26,):
        pytest.skip("Slurm from 26 on does not log when backfill starts a job")
    jobs = replay.sleepers(seed=1, count=60, run_s=(0.5, 3.0), load=1.2, backlog=20)
    slurm = replay.schedule_of(replay.run(cluster, jobs, timeout=60))
    done = simulate(slurm.workload, slurm.cluster, "conservative", overrun="allow")
    followed, foreseen = replay.same_state(slurm, "conservative")
    rho = spearman(slurm.start, done.start)
    print(f"\nSpearman {rho:.3f}, equal positions {equal_positions(slurm.start, done.start):.2f}")
    print(f"in the same state, Slurm makes {followed:.2f} of its starts, and it {foreseen:.2f} of Slurm's")
    # Jobs run for as long as Slurm needs to look at its queue, and the machine may be busy; fcfs comes to a third.
    assert rho > 0.7
    assert followed > 0.75
    assert foreseen > 0.75


AGES: dict[str, str] = {"PriorityWeightAge": "36000", "PriorityMaxAge": "0-01:00:00", "PriorityWeightQOS": "1000000"}
SAYS = (
    ("scontrol", "show", "config"), ("scontrol", "--all", "show", "partition"), ("scontrol", "show", "node"),
    ("sacctmgr", "--parsable2", "show", "qos"),
    ("sacctmgr", "--parsable2", "show", "assoc", f"format={','.join(ASSOCIATION)}"),
)  # fmt: skip


@contextmanager
def arranged(machine: Machine, fields: Mapping[str, Any] | None = None, /, **settings: str) -> Iterator[Cluster]:
    """A Slurm like this machine, with such fields of `ClusterConfig`, which leaves nothing behind."""
    usual = {"cores_per_node": 1, "regime": "limits", "users": replay.USERS}
    if (reason := host.obstacle(database=True)) is not None:
        pytest.skip(reason)
    config = host.configure(
        nodes=machine.nodes, database=True, settings=tuple(settings.items()), **{**usual, **(fields or {})}
    )  # not in a folder of pytest's, which other users may not enter
    try:
        with running(config) as cluster:
            replay.arrange(cluster, machine)
            yield cluster
    finally:
        layout.remove(config)
    assert not Path(config.base).exists()


def on_both(
    cluster: Cluster, machine: Machine, jobs: Sequence[replay.Sleeper], found: SlurmSite
) -> tuple[list[replay.Record], float, tuple[float, float]]:
    """What Slurm did with jobs of four users; share of the pairs in its order in the simulator; and, in the same state,
    which shares of the starts of each the other makes."""
    records = replay.run(cluster, replay.sent_to(machine, jobs, seed=1, users=4), timeout=120)
    slurm = replay.schedule_of(records, machine)
    done = simulate(slurm.workload, machine, found.dispatcher, overrun="allow", priority=found.priority)
    in_order = float(replay.same_order(slurm.start, done.start)[replay.pairs_apart(slurm.start)].mean())
    both = replay.same_state(slurm, "conservative", [record.on for record in records], priority=found.priority)
    print(f"\nmean wait {slurm.wait.mean():.1f} s, simulated {done.wait.mean():.1f} s; pairs in order {in_order:.3f}")
    print(f"in the same state, Slurm makes {both[0]:.2f} of its starts, and it {both[1]:.2f} of Slurm's")
    return records, in_order, both


@pytest.fixture
def partitioned() -> Iterator[Cluster]:
    own = {"SchedulerParameters": replay.SCHEDULER, "AccountingStorageEnforce": "limits,qos", "SlurmctldDebug": "debug"}
    with arranged(replay.PARTITIONED, **own, **AGES) as cluster:
        yield cluster


@live
def test_partitions_and_qos_on_a_live_cluster(partitioned: Cluster) -> None:
    machine = replay.PARTITIONED
    found = parse_slurm("".join(partitioned.run(*command) for command in SAYS))
    assert found.cluster.partitions == machine.partitions, "Slurm prints what it was configured with"
    assert found.cluster.qos == machine.qos
    assert found.dispatcher == replay.DISPATCHER
    assert found.priority.startswith("multifactor:age=36000,qos=1000000,max_age_s=3600,")
    jobs = replay.sleepers(seed=1, count=40, run_s=(0.5, 4.0), load=1.2, backlog=20, nodes=machine.nodes)
    _, in_order, (followed, foreseen) = on_both(partitioned, machine, jobs, found)
    assert in_order > 0.75
    assert followed > 0.7
    assert foreseen > 0.7


@pytest.fixture
def shared() -> Iterator[Cluster]:
    with arranged(replay.SHARED, PriorityWeightFairshare="1000000") as cluster:
        yield cluster


@live
def test_users_are_ranked_as_on_a_live_cluster(shared: Cluster) -> None:
    """Once a minute Slurm ranks them by what they have used."""
    found = parse_slurm("".join(shared.run(*command) for command in SAYS))
    assert found.cluster.accounts == replay.SHARED.accounts
    assert "fairshare=1000000" in found.priority and "calc_period_s=60,tree=true" in found.priority
    for user, nodes in zip(replay.USERS, (4, 3, 2, 1), strict=True):
        shared.run("sbatch", "--output=/dev/null", "--chdir=/", f"--nodes={nodes}", "--wrap=sleep 5", user=user)
    deadline = time.monotonic() + 150
    while True:
        rows = [
            line.strip().split("|")
            for line in shared.run("sshare", "--all", "--parsable2", "--noheader", "--long").splitlines()
        ]
        users = [(row[0].strip(), row[1], row[4], row[7]) for row in rows if row[1]]
        used = {(account, user): int(usage) for account, user, usage, _ in users}
        ranked = {(account, user): float(factor) for account, user, _, factor in users}
        expected = factors(replay.SHARED.accounts, used)
        if sum(map(bool, used.values())) == 4 and ranked == pytest.approx(expected, abs=1e-5):
            break
        assert time.monotonic() < deadline, f"Slurm: {ranked}; here: {expected}; used: {used}"
        time.sleep(3.0)
    assert len({*ranked.values()}) == 5, "four users have used something, the others nothing"


@pytest.fixture
def limited() -> Iterator[Cluster]:
    own = {"SchedulerParameters": replay.SCHEDULER, "AccountingStorageEnforce": "limits,qos", "SlurmctldDebug": "debug"}
    with arranged(replay.LIMITED, **own, **AGES) as cluster:
        yield cluster


@live
def test_limits_of_accounts_hold_jobs_as_on_a_live_cluster(limited: Cluster) -> None:
    machine = replay.LIMITED
    found = parse_slurm("".join(limited.run(*command) for command in SAYS))
    assert found.cluster.accounts == machine.accounts, "without what accounts and users have from above"
    assert found.cluster.qos == machine.qos
    jobs = replay.sleepers(seed=1, count=24, run_s=(3.0, 8.0), load=3.0, backlog=20, nodes=4)
    records, in_order, right = on_both(limited, machine, jobs, found)
    slurm, on = replay.schedule_of(records, machine), [record.on for record in records]
    assert in_order > 0.7 and min(right) > 0.6
    free, bound = (
        dataclasses.replace(slurm, cluster=dataclasses.replace(machine, **changed))
        for changed in ({"accounts": {}}, {"qos": dict.fromkeys(machine.qos, Qos())})
    )
    wrong = replay.same_state(free, "conservative", on, priority=found.priority)
    print(f"without limits of accounts {wrong[0]:.2f} and {wrong[1]:.2f}")
    assert sum(wrong) < sum(right) - 0.1
    with pytest.raises(IllegalDecision, match="a limit keeps the job"):  # those of the QOS take the place of some
        replay.same_state(bound, "conservative", on, priority=found.priority)


@live
def test_jobs_that_may_never_start_wait_for_slurm_s_reason(limited: Cluster) -> None:
    """In accounts that are closed, or too small for them."""
    sent = [
        ("shut", 1, 1),
        ("still", 1, 1),
        ("empty", 1, 1),
        ("narrow", 4, 1),
        ("small", 3, 1),
        ("small", 2, 1),
        ("short", 1, 3),
        ("short", 1, 2),
    ]
    names = tuple(dict.fromkeys(name for name, _, _ in sent))
    for name in names:
        limited.run("sacctmgr", "--immediate", "add", "user", "daemon", f"account={name}")
    time.sleep(3.0)  # until the controller has them from the database
    numbers = [
        limited.run(
            "sbatch", "--parsable", f"--account={name}", f"--nodes={nodes}", f"--time={minutes}",
            "--output=/dev/null", "--chdir=/", "--wrap=sleep 60", user="daemon",
        ).strip()
        for name, nodes, minutes in sent
    ]  # fmt: skip
    time.sleep(5.0)  # until Slurm has looked at its queue, and given reasons
    jobs = [limited.job(number) for number in numbers]
    limited.run("scancel", *numbers)
    workload = Workload.of(
        submit=[0.0] * len(sent), run=[60.0] * len(sent), cores=[nodes for _, nodes, _ in sent],
        walltime=[60.0 * minutes for _, _, minutes in sent], group=[names.index(name) for name, _, _ in sent],
        user=[0] * len(sent), labels={"group": names, "user": ("daemon",)},
    )  # fmt: skip
    expected = [REFUSALS[code] for code in why_refused(workload, replay.LIMITED)]
    print(f"\n{expected}")
    assert [job["Reason"] for job in jobs] == [reason or "None" for reason in expected]
    assert [job["JobState"] == "RUNNING" for job in jobs] == [reason == "" for reason in expected]


@live
def test_a_user_s_limit_in_a_partition_holds_jobs_as_on_a_live_cluster(limited: Cluster) -> None:
    limited.run("scontrol", "create", "PartitionName=fast", f"Nodes={','.join(limited.nodes)}", "MaxTime=60")
    limited.run("sacctmgr", "--immediate", "add", "user", "daemon", "account=bio", "partition=fast")
    mine = "daemon", "where", "account=bio", "partition=fast"
    limited.run("sacctmgr", "--immediate", "modify", "user", *mine, "set", "GrpJobs=1")
    time.sleep(3.0)  # until the controller has it from the database
    found = parse_slurm("".join(limited.run(*command) for command in SAYS))
    own = found.cluster.accounts["bio:daemon:fast"]
    assert (own.parent, own.partition, own.grp_jobs, [*own.users]) == ("bio", "fast", 1, ["daemon"])
    where, words = ("fast", "fast", "main"), ("--time=1", "--output=/dev/null", "--chdir=/", "--wrap=sleep 20")
    numbers = [
        limited.run("sbatch", "--parsable", "--account=bio", f"--partition={name}", *words, user="daemon").strip()
        for name in where
    ]
    time.sleep(4.0)
    reasons = [limited.job(number)["Reason"] for number in numbers]
    limited.run("scancel", *numbers)
    parts = [*found.cluster.partitions]
    workload = Workload.of(
        submit=[0.0] * 3, run=[20.0] * 3, cores=[1] * 3, walltime=[60.0] * 3, group=[0] * 3,
        partition=[parts.index(name) for name in where], user=[0] * 3,
        labels={"group": ("bio",), "user": ("daemon",), "partition": tuple(parts)},
    )  # fmt: skip
    done = simulate(workload, found.cluster, found.dispatcher, priority=found.priority)
    print(f"\n{reasons}, {done.start.tolist()}")
    assert reasons == ["None", "AssocGrpJobsLimit", "None"]
    assert (done.start > 10).tolist() == [reason != "None" for reason in reasons]


@pytest.fixture
def timed() -> Iterator[Cluster]:
    own = {"SchedulerParameters": replay.SCHEDULER, "AccountingStorageEnforce": "limits,qos,safe"}
    with arranged(replay.TIMED, SlurmctldDebug="debug", **own, **AGES) as cluster:
        yield cluster


@live
def test_limits_of_time_hold_jobs_as_on_a_live_cluster(timed: Cluster) -> None:
    """Slurm counts once a minute what running jobs have used; a budget of 10 core-minutes is used up on the way."""
    machine = replay.TIMED
    found = parse_slurm("".join(timed.run(*command) for command in SAYS))
    assert found.cluster.accounts == machine.accounts and found.cluster.safe_limits
    assert "calc_period_s=60" in found.priority
    daemon, bin_, sys, games = range(4)
    jobs = [
        replay.Sleeper(at, user, nodes, run_s, limit, qos="normal")
        for at, user, nodes, run_s, limit in (
            (0.0, daemon, 2, 40.0, 1), (0.0, daemon, 2, 40.0, 1), (0.0, bin_, 1, 75.0, 5), (0.0, bin_, 1, 10.0, 2),
            (0.0, sys, 1, 55.0, 1), (0.0, sys, 1, 55.0, 1), (60.0, sys, 1, 25.0, 1), (60.0, games, 4, 1.0, 1),
        )
    ]  # fmt: skip
    records = replay.run(timed, jobs, timeout=200)
    late = {
        "AssocGrpCPUMinutesLimit": (daemon, 7, 1), "": (daemon, 6, 1), "AssocGrpWallLimit": (sys, 1, 1),
        "AssocGrpCPURunMinutesLimit": (bin_, 1, 7), "AssocMaxCpuMinutesPerJobLimit": (games, 5, 1),
    }  # fmt: skip
    numbers = [
        timed.run(
            "sbatch", "--parsable", f"--nodes={nodes}", f"--time={limit}", "--output=/dev/null", "--chdir=/",
            "--wrap=sleep 1", user=replay.USERS[user],
        ).strip()
        for user, nodes, limit in late.values()
    ]  # fmt: skip
    time.sleep(8.0)
    said = [timed.job(number) for number in numbers]
    timed.run("scancel", *numbers)
    assert [job["Reason"] for job in said] == [reason or "None" for reason in late]
    end = max(record.end for record in records) + 1.0
    more = [replay.Record(*asked, end, end, end + 1.0, "main", qos="normal") for asked in late.values()]
    slurm = replay.schedule_of([*records, *more], machine)
    done = simulate(slurm.workload, machine, found.dispatcher, overrun="allow", priority=found.priority)
    count = len(records)
    print(f"\n{slurm.start[:count].round(1)} on Slurm\n{done.start[:count].round(1)} here")
    assert np.abs(done.start[:count] - slurm.start[:count]).max() < 5.0
    assert slurm.start[3] - slurm.workload.submit[3] > 20.0, "it waits until the other has used some of its time"
    soon = done.start[count:] < end + 60.0  # what has been used decays: so some start after hours
    assert soon.tolist() == [reason == "" for reason in late]


PREEMPTED = dataclasses.replace(Machine.of(6), qos=replay.PREEMPTING.qos, requeue_delay_s=6.0)


@pytest.fixture
def preempting() -> Iterator[Cluster]:
    own = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE", "AccountingStorageEnforce": "limits,qos"}
    logged = {"SlurmctldDebug": "debug"}
    with arranged(PREEMPTED, SchedulerParameters=replay.SCHEDULER, **logged, **own, **AGES) as cluster:
        yield cluster


@live
def test_behind_a_blocked_job_slurm_preempts_first_and_starts_a_second_later(preempting: Cluster) -> None:
    """The blocked one is planned as if those that it may preempt had gone: when the first job's limit is over."""
    sent = [(4, "high", 10), (2, "normal", 60), (6, "high", 60), (2, "high", 3)]
    numbers: list[str] = []
    for nodes, qos, minutes in sent:
        words = f"--nodes={nodes}", f"--qos={qos}", f"--time={minutes}", "--output=/dev/null", "--chdir=/"
        numbers.append(preempting.run("sbatch", "--parsable", *words, "--wrap=sleep 600", user="daemon").strip())
        time.sleep(4.0)
    first, gone, blocked, last = map(preempting.job, numbers)
    assert [each["JobState"] for each in (first, gone, blocked, last)] == ["RUNNING", "PENDING", "PENDING", "RUNNING"]
    over, planned = (datetime.fromisoformat(at).timestamp() for at in (first["EndTime"], blocked["StartTime"]))
    log = replay.log_of(preempting).read_text()
    started = f"(?:Started|Allocate|creating credential for) JobId={numbers[3]}\\b"  # by version and scheduler
    moments = [
        datetime.fromisoformat(re.findall(rf"^\[(\S+)\] .*{words}", log, re.MULTILINE)[0]).timestamp()
        for words in (f"preempted JobId={numbers[1]} has been requeued", started)
    ]
    print(f"\nplanned {planned - over:+.0f} s after the first job's limit; started {np.diff(moments)[0]:.3f} s after")
    workload = Workload.of(
        submit=[0.0, 4.0, 8.0, 12.0], run=[600.0] * 4, cores=[nodes for nodes, _, _ in sent],
        walltime=[60.0 * minutes for _, _, minutes in sent],
        qos=[[*PREEMPTED.qos].index(qos) for _, qos, _ in sent], labels={"qos": tuple(PREEMPTED.qos)},
    )  # fmt: skip
    found = parse_slurm("".join(preempting.run(*command) for command in SAYS))
    engine = Engine(workload, PREEMPTED, MachineSettings(overrun="allow", priority=found.priority))
    assert DispatchLoop(engine, DISPATCHERS.create(found.dispatcher)).run(until=16.0, promise=True) is StopReason.UNTIL
    assert engine.state.jobs["planned"][2] == 600.0 and abs(planned - over) <= 2.0
    assert engine.state.jobs["started"][3] == pytest.approx(13.0, abs=0.05)  # two passes of 1.003 s
    assert 0.5 < np.diff(moments)[0] < 5.0
    assert engine.state.jobs["restarts"].tolist() == [0, 1, 0, 0]


@live
def test_jobs_are_preempted_as_on_a_live_cluster(preempting: Cluster) -> None:
    """The small ones first, but no more than are needed; of a lower QOS before others."""
    found = parse_slurm("".join(preempting.run(*command) for command in SAYS))
    assert found.cluster.qos == PREEMPTED.qos and found.cluster.requeue_delay_s == PREEMPTED.requeue_delay_s
    waves = (
        [(1, "normal"), (1, "normal"), (1, "normal"), (2, "normal"), (1, "spare")], [(2, "high")], [(3, "high")]
    )  # fmt: skip
    numbers: list[str] = []
    for wave in waves:
        for nodes, qos in wave:
            words = f"--nodes={nodes}", f"--qos={qos}", "--time=30", "--output=/dev/null", "--chdir=/"
            numbers.append(preempting.run("sbatch", "--parsable", *words, "--wrap=sleep 600", user="daemon").strip())
        deadline = time.monotonic() + 60
        while any(preempting.job(number)["JobState"] != "RUNNING" for number in numbers[-len(wave) :]):
            assert time.monotonic() < deadline, f"these do not run: {wave}"
            time.sleep(0.5)
    jobs = [preempting.job(number) for number in numbers]
    sizes, names = zip(*(job for wave in waves for job in wave), strict=True)
    count = len(jobs)
    at = [20.0 * place for place, wave in enumerate(waves) for _ in wave]
    workload = Workload.of(
        submit=at, run=[600.0] * count, cores=sizes, walltime=[1800.0] * count,
        qos=[[*PREEMPTED.qos].index(name) for name in names], labels={"qos": tuple(PREEMPTED.qos)},
    )  # fmt: skip
    done = simulate(workload, PREEMPTED, found.dispatcher, priority=found.priority)
    assert [int(job["Restarts"]) for job in jobs] == done.restarts.tolist() == [1, 1, 0, 1, 0, 0, 0]
    gone = [job["JobState"] == "PREEMPTED" for job in jobs]
    assert gone == [OUTCOMES[code] is JobState.PREEMPTED for code in done.outcome] == [False] * 4 + [True] + [False] * 2


GIB = 2**30
NUMBERS = (4, 6, 5, 1, 2, 3)
"""Of the nodes, from that of the lowest weight on."""
DIFFERING = Machine(
    np.array([[4, 4 * GIB, *gres] for gres in (
        [0, 0, 0, 2], [0, 0, 0, 0], [0, 0, 0, 2], [2, 2, 0, 0], [2, 0, 2, 0], [2, 1, 1, 0],
    )]),
    ("cores", "memory", "gpus", "gpus:a100", "gpus:t4", "gres/nvme"),
    features={"new": (0, 3, 5), "gpu": (3, 4, 5)},
    qos={
        "normal": Qos(), "few": Qos(grp_memory=5 * GIB, grp_gpus=2),
        "small": Qos(max_memory=2 * GIB, max_gpus=1), "own": Qos(max_memory_per_user=3 * GIB, max_gpus_per_user=1),
    },
    accounts={
        ROOT: ClusterAccount(users={"root": 1}), ACCOUNT: ClusterAccount(users=dict.fromkeys(replay.USERS, 1)),
        "lab": ClusterAccount(users={"daemon": 1}, grp_memory=3 * GIB, grp_gpus=2, max_gpus=1),
    },
)  # fmt: skip
ASKED = (
    "--nodes=1 --exclusive", "--nodes=3 --exclusive", "--nodes=2 --exclusive --constraint=new",
    "--nodes=1 --exclusive --constraint=gpu&new", "--nodes=1 --exclusive --constraint=gpu|new",
    "--ntasks=1 --gres=gpu:1", "--ntasks=1 --gres=gpu:2 --mem-per-cpu=3G", "--ntasks=1 --mem-per-cpu=3G",
    "--ntasks=1 --gres=gpu:a100:1", "--ntasks=1 --gres=gpu:a100:2", "--ntasks=2 --gres=gpu:t4:1 --nodes=1",
    "--ntasks=1 --gres=nvme:1", "--ntasks=1 --gres=nvme:2 --mem-per-cpu=2G",
    "--ntasks=1 --gres=gpu:1 --qos=few", "--ntasks=1 --mem-per-cpu=3G --qos=few",
)  # fmt: skip


@pytest.fixture
def differing() -> Iterator[Cluster]:
    own = {
        "cores_per_node": 4, "gpus": ("a100:2", "t4:2", "a100:1+t4:1"), "gres": ("", "", "", "nvme:2", "nvme:2"),
        "features": ("gpu,new", "gpu", "gpu,new", "new"), "regime": "fifo",
    }  # fmt: skip
    counted = {
        "SelectTypeParameters": "CR_Core_Memory", "DefMemPerCPU": "100", "AccountingStorageEnforce": "limits,qos",
        "AccountingStorageTRES": "gres/gpu,gres/gpu:a100,gres/gpu:t4,gres/nvme",
    }  # fmt: skip
    scheduler = f"{replay.SCHEDULER},bf_job_part_count_reserve=1,bf_window=100000"
    with arranged(DIFFERING, own, SchedulerParameters=scheduler, **counted) as cluster:
        for weight, number in enumerate(NUMBERS, 1):
            cluster.run("scontrol", "update", f"NodeName={cluster.nodes[number - 1]}", f"Weight={weight}")
        yield cluster


@live
def test_nodes_differ_as_on_a_live_cluster(differing: Cluster, tmp_path: Path) -> None:
    """The simulator gets what Slurm prints about its nodes and jobs, and nothing else."""
    found, rng = parse_slurm("".join(differing.run(*command) for command in SAYS)), Random(1)
    assert found.cluster.names == tuple(differing.nodes[number - 1] for number in NUMBERS)
    assert (found.cluster.resources, found.cluster.features) == (DIFFERING.resources, DIFFERING.features)
    assert found.cluster.capacity.tolist() == DIFFERING.capacity.tolist()
    assert (found.cluster.qos, found.cluster.accounts) == (DIFFERING.qos, DIFFERING.accounts)
    assert (found.dispatcher, found.priority) == ("backfill:depth=1,interval=1.003s", "fifo")
    shared = list[int]()
    for _ in range(26):
        ask, run_s = rng.choice(ASKED).split(), round(rng.uniform(4, 20))
        words = f"--time={1 + run_s // 5}", "--output=/dev/null", "--chdir=/", f"--wrap=exec sleep {run_s}"
        sent = differing.run("sbatch", "--parsable", f"--account={ACCOUNT}", *ask, *words, user="daemon")
        shared += [] if "--exclusive" in ask else [int(sent)]
    seen = SlurmQueue(lambda command: differing.run("env", "SLURM_TIME_FORMAT=%s", *command), time.time).look()
    deadline = time.monotonic() + 200
    while differing.run("squeue", "--noheader").strip():
        assert time.monotonic() < deadline, "jobs do not end"
        time.sleep(1.0)
    time.sleep(3.0)  # until the database has the last one
    names = "JobID,JobName,User,Account,QOS,Submit,Start,End,ElapsedRaw,State,Timelimit,ReqTRES,AllocTRES,Constraints"
    log = tmp_path / "sacct.txt"
    log.write_text(differing.run("sacct", "--allusers", "--allocations", "--parsable2", f"--format={names}"))
    jobs, plain = (load_trace(log, amounts=amounts).workload for amounts in (True, False))
    of_log = dict(zip(jobs.number.tolist(), gres_of(jobs), strict=True))
    in_queue = dict(zip(map(int, seen.keys), gres_of(seen.jobs), strict=True))
    waiting = [number for number in shared if str(number) in seen.keys[seen.running :]]
    assert waiting and {name for number in shared for name in of_log[number]} == {*DIFFERING.resources[2:]}
    assert [in_queue[number] for number in waiting] == [of_log[number] for number in waiting], "as the twin sees them"
    started = jobs.submit + jobs.wait
    host_lists = differing.run(
        "sacct", "--allusers", "--allocations", "--parsable2", "--noheader", "--format=JobID,NodeList"
    )
    on = {int(row.split("|")[0]): {*expand(row.split("|")[1])} for row in host_lists.split()}
    in_order, same = list[float](), list[float]()
    by_number = found.cluster.by_weight(np.array(NUMBERS))
    for workload, machine in ((jobs, found.cluster), (jobs, by_number), (plain, Machine.of(6, 4))):
        done = simulate(workload, machine, found.dispatcher, priority=found.priority, overrun="allow")
        assert not np.isnan(done.start).any() and violations(done) == []
        in_order.append(float(replay.same_order(started, done.start)[replay.pairs_apart(started)].mean()))
        near = np.abs(done.start - started) <= 3.0
        assert done.placements is not None
        there = [
            {machine.name(node) for run in done.placements.of(row) for node in range(run[0], run[1] + 1)}
            for row in range(len(workload))
        ]
        same.append(float(np.mean([on[number] == there[row] for row, number in enumerate(workload.number.tolist())])))
        print(f"\npairs in order {in_order[-1]:.3f}, within 3 s {near.mean():.2f}, on the same nodes {same[-1]:.2f}")
    print("(as it is; with nodes by number; on equal nodes that have but cores)")
    assert in_order[0] > max(0.8, in_order[2])
    assert same[0] > max(0.7, same[1])


def gres_of(jobs: Workload) -> list[dict[str, int]]:
    """What each job has of GPUs, their types and other Gres."""
    held = jobs.units[:, None] * jobs.demands[jobs.kind]
    return [
        {name: amount for name, amount in zip(jobs.resources, row, strict=True) if amount and name[0] == "g"}
        for row in held.tolist()
    ]


@live
def test_limits_of_memory_and_gpus_are_those_of_a_live_cluster(differing: Cluster) -> None:
    sent = [
        ("few", ACCOUNT, 5, 0), ("few", ACCOUNT, 6, 0), ("few", ACCOUNT, 3, 3), ("few", ACCOUNT, 1, 2),
        ("small", ACCOUNT, 3, 0), ("small", ACCOUNT, 2, 0), ("small", ACCOUNT, 1, 2), ("small", ACCOUNT, 1, 1),
        ("own", ACCOUNT, 4, 0), ("own", ACCOUNT, 1, 2),
        ("normal", "lab", 4, 0), ("normal", "lab", 1, 2), ("normal", "lab", 1, 1),
    ]  # fmt: skip
    numbers = []
    for qos, account, memory, gpus in sent:
        nodes = gpus or 2
        words = [f"--qos={qos}", f"--account={account}", f"--nodes={nodes}", f"--mem={1024 * memory // nodes}"]
        words += ["--gres=gpu:1"] if gpus else []
        words += ["--time=1", "--output=/dev/null", "--chdir=/", "--hold", "--wrap=sleep 1"]
        numbers.append(differing.run("sbatch", "--parsable", *words, user="daemon").strip())
    found = []
    for number in numbers:  # one after another, so that none waits for what others have
        differing.run("scontrol", "release", number)
        deadline = time.monotonic() + 30
        while (job := differing.job(number))["JobState"] == "PENDING" and job["Reason"][:3] not in ("QOS", "Ass"):
            assert time.monotonic() < deadline, f"it waits for {job['Reason']}"
            time.sleep(0.3)
        found.append(job["Reason"] if job["JobState"] == "PENDING" else "")
        differing.run("scancel", number)
        while differing.job(number)["JobState"] in ("RUNNING", "COMPLETING"):
            time.sleep(0.3)
    names, accounts = tuple(DIFFERING.qos), tuple(dict.fromkeys(account for _, account, _, _ in sent))
    workload = Workload.of(
        submit=range(len(sent)), run=[1] * len(sent), units=[gpus or 2 for *_, gpus in sent], walltime=[60] * len(sent),
        demands=[[1, memory * GIB // (gpus or 2), int(gpus > 0)] for _, _, memory, gpus in sent],
        kind=range(len(sent)), per_node=[1] * len(sent),
        qos=[names.index(qos) for qos, *_ in sent], group=[accounts.index(account) for _, account, *_ in sent],
        user=[0] * len(sent), labels={"qos": names, "group": accounts, "user": ("daemon",)},
    )  # fmt: skip
    expected = [REFUSALS[code] for code in why_refused(workload, DIFFERING)]
    print(f"\n{expected}")
    assert found == expected


AGEING: dict[str, Any] = {"max_age_s": 3600.0, "size": 12_000, "regime": "multifactor"}
SITES: dict[str, tuple[Any, str, float]] = {  # the priorities and the dispatcher that Slurm was configured like
    "fifo": ("fifo", "conservative", 0.96),
    "fifo-one": ("fifo", "easy", 0.98),
    "size": (Multifactor(age=36_000, **AGEING), "conservative", 0.94),
    "fair-share": (Multifactor(age=36_000, fairshare=40_000, **AGEING), "conservative", 0.88),
    "age": (Multifactor(age=360_000, **AGEING), "conservative", 0.85),  # Slurm's priorities are up to a minute old
}


@pytest.mark.parametrize("site", SITES)
def test_it_decides_as_slurm_did(site: str) -> None:
    priority, dispatcher, least = SITES[site]
    slurm = recorded(site)
    assert min(replay.same_state(slurm, dispatcher, priority=priority)) > least
    named = replay.on_named_nodes(slurm)
    assert min(replay.same_state(named, dispatcher, priority=priority)) > least


@pytest.mark.parametrize("version", ["", "26.05/"])
def test_with_partitions_and_qos_it_is_as_close_to_slurm_as_slurm_to_itself(version: str) -> None:
    both = [replay.read_records(RUNS / f"{version}partitions.{number}.csv") for number in range(2)]
    priority = Multifactor(age=36_000, max_age_s=3600.0, qos=1_000_000, regime="limits")
    for records, others in (both, both[::-1]):
        slurm, other = (replay.schedule_of(each, replay.PARTITIONED) for each in (records, others))
        on = [record.on for record in records]
        followed, foreseen = replay.same_state(slurm, "conservative", on, priority=priority)
        assert followed > 0.88 and foreseen > 0.94
        waits, in_order = [], []
        for late in np.linspace(0, 0.9, 10):
            jobs, machine = replay.later(slurm, late)
            done = simulate(jobs, machine, replay.DISPATCHER, overrun="allow", priority=priority)
            waits.append(done.wait.mean())
            in_order.append(replay.same_order(slurm.start, done.start)[replay.pairs_apart(slurm.start)].mean())
        again = replay.same_order(slurm.start, other.start)[replay.pairs_apart(slurm.start)].mean()
        assert np.mean(in_order) > again - 0.02
        assert np.mean(waits) == pytest.approx((slurm.wait.mean() + other.wait.mean()) / 2, rel=0.06)


FAIR = Multifactor(
    age=36_000, max_age_s=3600.0, fairshare=1_000_000, tree=True, calc_period_s=60.0, regime="limits"
)  # fmt: skip


@pytest.mark.parametrize("version", ["", "26.05/"])
@pytest.mark.parametrize("number", [0, 1])
def test_with_fair_tree_it_decides_as_slurm_did(version: str, number: int) -> None:
    records = replay.read_records(RUNS / f"{version}fair-tree.{number}.csv")
    slurm, on = replay.schedule_of(records, replay.SHARED), [record.on for record in records]
    right = replay.same_state(slurm, "conservative", on, priority=FAIR)
    assert min(right) >= 0.9
    apart = replay.same_state(slurm, replay.DISPATCHER, on, priority=FAIR)  # jobs end before the reservations' seconds
    assert sum(apart) > sum(right) + 0.01
    equal = dataclasses.replace(slurm, cluster=dataclasses.replace(slurm.cluster, accounts={}))
    classic, often = (dataclasses.replace(FAIR, **changed) for changed in ({"tree": False}, {"calc_period_s": 0.0}))
    for like, priority in ((equal, FAIR), (slurm, classic), (slurm, often), (slurm, "fifo")):
        assert sum(replay.same_state(like, "conservative", on, priority=priority)) < sum(right) - 0.1


@pytest.mark.parametrize("run", ["preemption.0", "preemption.1", "26.05/preemption.0"])
def test_with_preemption_and_a_reservation_jobs_wait_as_long_as_on_slurm(run: str) -> None:
    slurm = replay.schedule_of(replay.read_records(RUNS / f"{run}.csv"), replay.PREEMPTING)
    priority = Multifactor(age=36_000, max_age_s=3600.0, qos=1_000_000, regime="limits")

    def simulated(cluster: Machine) -> tuple[float, ...]:
        """Mean wait as a share of Slurm's, pairs in order, jobs that were requeued and cancelled; each in the mean."""
        found = []
        for late in np.linspace(0, 0.9, 10):
            jobs, machine = replay.later(dataclasses.replace(slurm, cluster=cluster), late)
            done = simulate(jobs, machine, replay.DISPATCHER, overrun="allow", priority=priority)
            in_order = replay.same_order(slurm.start, done.start)[replay.pairs_apart(slurm.start)].mean()
            preempted = done.restarts.sum(), done.count(JobState.PREEMPTED)
            found.append((done.wait.mean() / slurm.wait.mean(), in_order, *preempted))
        return tuple(np.mean(found, axis=0).tolist())

    wait, in_order, requeued, cancelled = simulated(slurm.cluster)
    assert wait == pytest.approx(1, abs=0.15)
    assert in_order > 0.9
    assert 0.8 < requeued / slurm.restarts.sum() < 1.4
    assert 0.7 < cancelled / slurm.count(JobState.PREEMPTED) < 2
    other = simulated(dataclasses.replace(slurm.cluster, windows=()))
    assert other[0] < wait - 0.15 and other[1] < in_order - 0.03


@pytest.mark.parametrize(("site", "other"), [("fifo", "easy"), ("fifo-one", "conservative"), ("size", "easy")])
def test_another_dispatcher_decides_otherwise(site: str, other: str) -> None:
    priority, dispatcher, _ = SITES[site]
    right, wrong = (replay.same_state(recorded(site), rule, priority=priority) for rule in (dispatcher, other))
    assert right[0] > wrong[0] + 0.05
    assert right[1] > wrong[1] + 0.05


def test_it_starts_jobs_in_slurm_s_order_as_closely_as_slurm_itself() -> None:
    slurm, again = recorded("fifo"), recorded("fifo", 1)
    done = simulate(slurm.workload, slurm.cluster, replay.DISPATCHER, overrun="allow")
    assert spearman(slurm.start, done.start) > 0.995
    assert kendall(slurm.start, done.start) > kendall(slurm.start, again.start) - 0.01
    assert done.wait.mean() == pytest.approx(slurm.wait.mean(), rel=0.05)


def test_a_controller_s_log() -> None:
    lives = replay.read_log(LOG)
    assert set(lives) == {1, 2}
    assert [each[3] for each in lives.values()] == ["backfill", "main"]
    for life, expected in zip(lives.values(), [(0.0, 0.843, 1.9), (0.01, 2.004, 2.256)], strict=True):
        assert np.array(life[:3]) - lives[1][0] == pytest.approx(expected, abs=1e-6)


def test_records_can_be_kept(tmp_path: Path) -> None:
    records = [replay.Record(0, 8, 5, 0.0, 1.5, 3.25, "main"), replay.Record(1, 1, 1, 0.013, 3.3, 4.0, "backfill")]
    replay.write_records(tmp_path / "run.csv", records)
    assert replay.read_records(tmp_path / "run.csv") == records


def test_the_same_seed_gives_the_same_sleepers() -> None:
    first, again, other = (
        replay.sleepers(seed, 200, run_s=(2, 16), load=0.9, backlog=10, users=2) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert {job.nodes for job in first} == set(range(1, replay.NODES + 1))
    assert {job.user for job in first} == {0, 1}
    assert all(2 <= job.run_s <= 16 and job.run_s <= job.limit_min <= 5 * job.run_s + 1 for job in first)
    assert [job.at for job in first[:10]] == [0.0] * 10


@pytest.mark.parametrize("dispatcher", ["fcfs", "easy", "conservative"])
def test_a_schedule_of_the_simulator_s_own_agrees_wholly(dispatcher: str) -> None:
    jobs = recorded("fifo").workload
    jobs = dataclasses.replace(jobs, submit=np.ceil(jobs.submit), run=np.ceil(jobs.run))  # many events of an instant
    done = simulate(jobs, recorded("fifo").cluster, dispatcher, overrun="allow")
    assert replay.same_state(done, dispatcher) == (1.0, 1.0)
    assert math.isclose(spearman(done.start, done.start), 1.0)
