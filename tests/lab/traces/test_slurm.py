"""What Slurm says of itself becomes a machine, a dispatcher and a priority; what has no counterpart is named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Association, ClusterAccount, Partition, Qos
from asa.lab.traces.slurm import ASSOCIATION, MOST_BYTES, parse_slurm, read_slurm

RECORDED = Path(__file__).parents[2] / "fixtures" / "slurm" / "22.05.txt"
"""Of the test cluster (`tests/cluster`): Slurm 22.05 with tiers, GPUs, preemption, QOS and fair share."""
TEXT = RECORDED.read_text()
SMALL = """\
SchedulerType           = sched/backfill
PriorityType            = priority/basic
PriorityFlags           =
PartitionName=all Default=YES MaxTime=UNLIMITED DefaultTime=NONE MaxNodes=UNLIMITED PriorityTier=1 Nodes=n[1-2] State=UP
NodeName=n1 CPUTot=4 State=IDLE
NodeName=n2 CPUTot=4 State=IDLE
"""
DAY_AHEAD = "backfill:depth=inf,interval=30.003s,window=1440m"
"""What Slurm's default of ``bf_window``, a day, makes of a machine with longer wall times."""


def test_what_a_real_slurm_says() -> None:
    found = read_slurm(RECORDED)
    assert found.cluster.names == ("c1", "c2", "c3", "c4")
    assert found.cluster.resources == ("cores", "gpus", "gpus:a100")
    assert found.cluster.capacity.tolist() == [[8, 2, 2], [8, 2, 0], [8, 0, 0], [8, 0, 0]]
    assert list(found.cluster.partitions) == ["main", "share", "core", "low", "long", "fast", "week"]
    again = {"preempt_mode": "requeue"}
    assert found.cluster.partitions["fast"] == Partition((0, 1), 1800.0, 300.0, max_nodes=1, tier=20, **again)
    assert found.cluster.partitions["week"] == Partition((0, 1, 2, 3), 7 * 86400.0, **again)
    assert {name for name, each in found.cluster.partitions.items() if not each.preempt_mode} == {"core", "long"}
    assert found.cluster.requeue_delay_s == 6.0
    assert found.cluster.qos == {
        "normal": Qos(max_jobs_per_user=20, max_submit_jobs_per_user=100, max_cores_per_user=12),
        "high": Qos(grp_cores=16, grp_nodes=3, priority=100, max_time_s=3600.0),
    }
    assert found.dispatcher == "backfill:depth=inf,interval=1.003s,limit=200,window=1440m"
    assert found.priority == (
        "multifactor:age=1000,fairshare=5000,qos=100000,max_age_s=600,half_life_s=604800,calc_period_s=60,tree=true,"
        "regime=limits"
    )


def test_which_qos_preempts_which() -> None:
    text = TEXT.replace("preempt/partition_prio", "preempt/qos")
    found = parse_slurm(text)
    assert not any(each.preempt_mode for each in found.cluster.partitions.values())
    assert found.cluster.qos["high"].preempts == ("normal",)
    assert found.cluster.qos["normal"].preempt_mode == "requeue", "that of all, as it has none of its own"
    off = parse_slurm(text.replace("PreemptMode             = REQUEUE", "PreemptMode = OFF")).cluster.qos
    assert off["high"].preempts == ()
    spared = parse_slurm(text.replace("PreemptExemptTime       = 00:00:00", "PreemptExemptTime = 00:05:00")).cluster.qos
    assert spared["normal"].exempt_s == 300.0
    paused = parse_slurm(text.replace("PreemptMode             = REQUEUE", "PreemptMode = GANG,SUSPEND"))
    assert "QOS normal: PreemptMode=GANG,SUSPEND (its jobs are not preempted)" in paused.not_simulated
    assert paused.cluster.qos["high"].preempts == ()
    gone = [each for each in parse_slurm(SMALL).not_simulated if "Preempt" in each]
    assert not gone and parse_slurm(SMALL).cluster.requeue_delay_s == 121.0


ASSOCIATIONS = RECORDED.with_name("22.05-associations.txt").read_text()


def test_whose_shares_count() -> None:
    users = dict.fromkeys(("bin", "daemon", "games", "sys"), 1)
    found = parse_slurm(TEXT + ASSOCIATIONS)
    assert found.cluster.accounts == {
        "root": ClusterAccount(users={"root": 1}),
        "asa": ClusterAccount(users=users),
        "bio": ClusterAccount(3, users={"bin": 1, "daemon": 2}),
        "cells": ClusterAccount(2, "bio", {"sys": 1}),
        "geo": ClusterAccount(1, users={"games": 1}),
    }
    assert not any("shares" in each for each in found.not_simulated)
    others = ASSOCIATIONS + "".join(f"other|{line}\n" for line in ("bio|root||9", "bio||ann|1", "zoo|root||1"))
    assert parse_slurm(TEXT + others).cluster.accounts == found.cluster.accounts, (
        "those of another cluster do not count"
    )
    parent = parse_slurm(TEXT + ASSOCIATIONS.replace("|sys|1", "|sys|parent")).not_simulated
    assert "account 'cells', user 'sys': Fairshare=parent (one share is taken)" in parent
    plain = parse_slurm(TEXT.replace("PriorityFlags ", "PriorityFlags = NO_FAIR_TREE\nOther") + ASSOCIATIONS)
    assert "tree" not in plain.priority
    assert "shares under NO_FAIR_TREE (all users have equal ones)" in plain.not_simulated


def associations(*rows: str, columns: Sequence[str] = ASSOCIATION) -> str:
    """What sacctmgr prints of them: account, parent, user, and what has a value."""
    printed = []
    for row in rows:
        account, parent, user, *values = row.split(" ")
        given = {"Account": account, "Share": "1", "Cluster": "asa"} | dict(value.split(":", 1) for value in values)
        given |= {"ParentName": parent.strip("-"), "User": user.strip("-")}
        printed.append("|".join(given.get(column, "") for column in columns))
    return "\n".join(["|".join(columns), *printed, ""])


def test_whose_limits_count() -> None:
    found = parse_slurm(
        TEXT
        + associations(
            "root - - GrpTRES:cpu=99,node=9,mem=1.50G,gres/gpu=4,gres/gpu:a100=2,energy=5 MaxJobs:7 MaxTRES:cpu=12",
            "root - root MaxJobs:7 MaxTRES:cpu=12",
            "bio root - GrpJobs:20 GrpSubmit:50 MaxJobs:5 MaxTRES:cpu=12 MaxWall:01:00:00",
            "bio - ann GrpTRES:cpu=3 MaxJobs:5 MaxSubmit:6 MaxTRES:cpu=12 MaxWall:01:00:00",
            "bio - bob MaxJobs:7 MaxTRES:cpu=12 GrpJobs:0 MaxWall:01:00:00",
            "cells bio - MaxJobs:5 MaxTRES:cpu=8 MaxWall:01:00:00",
        )
    )
    assert found.cluster.accounts == {
        "root": ClusterAccount(
            grp_cores=99, grp_nodes=9, grp_memory=3 * 2**29, grp_gpus=4, max_jobs=7, max_cores=12, users={"root": 1}),
        "bio": ClusterAccount(
            grp_jobs=20, grp_submit_jobs=50, max_jobs=5, max_time_s=3600.0, users={"ann": 1, "bob": 1},
            user_limits={
                "ann": Association(grp_cores=3, max_submit_jobs=6), "bob": Association(grp_jobs=0, max_jobs=7),
            },
        ),
        "cells": ClusterAccount(max_cores=8, parent="bio"),
    }  # fmt: skip
    assert {
        "GrpTRES=gres/gpu:a100=2,energy=5 of 1 associations",
    } <= {*found.not_simulated}
    assert "limits of accounts and associations" not in found.not_simulated


def test_limits_of_time_count_as_slurm_counts_it() -> None:
    rows = (
        "root - -",
        "bio root - GrpTRESMins:cpu=9000000000,gres/gpu=60,mem=5 GrpTRESRunMins:cpu=99 GrpWall:1-00:00:30",
        "bio - ann MaxTRESMins:cpu=600,gres/gpu=6",
    )
    found = parse_slurm(TEXT + associations(*rows))
    assert found.cluster.accounts["bio"] == ClusterAccount(
        grp_core_minutes=9 * 10**9, grp_gpu_minutes=60, grp_core_run_minutes=99, grp_wall_minutes=1440,
        users={"ann": 1}, user_limits={"ann": Association(max_core_minutes=600, max_gpu_minutes=6)},
    )  # fmt: skip
    assert not found.cluster.safe_limits
    no_shares = parse_slurm(TEXT.replace("PriorityWeightFairShare", "Other") + associations(*rows))
    assert "calc_period_s=60" in no_shares.priority, "where time is counted, too"
    unsafe = "that jobs end when GrpTRESMins or GrpWall is used up (AccountingStorageEnforce has no safe)"
    assert {"GrpTRESMins=mem=5 of 1 associations", unsafe} <= {*found.not_simulated}
    safe = parse_slurm(TEXT.replace("associations,limits,qos", "associations,limits,qos,safe") + associations(*rows))
    assert safe.cluster.safe_limits and unsafe not in safe.not_simulated
    basic = parse_slurm(TEXT.replace("priority/multifactor", "priority/basic") + associations(*rows))
    assert basic.cluster.accounts["bio"].grp_core_run_minutes == 99 and not basic.cluster.has_budgets
    assert "GrpTRESMins and GrpWall (priority/basic counts no time)" in basic.not_simulated


def test_limits_count_where_they_are_enforced_and_shares_where_there_is_fair_share() -> None:
    rows = "root - -", "bio root - MaxJobs:5", "bio - ann"
    plain = TEXT.replace("PriorityWeightFairShare", "Other")
    assert parse_slurm(plain + associations(*rows)).cluster.accounts["bio"].max_jobs == 5
    assert parse_slurm(plain + associations(rows[0])).cluster.accounts == {}
    free = TEXT.replace("associations,limits,qos", "associations") + associations(*rows)
    assert parse_slurm(free).cluster.accounts["bio"] == ClusterAccount(users={"ann": 1})
    old = parse_slurm(TEXT + associations(*rows, columns=ASSOCIATION[:5]))
    assert old.cluster.accounts["bio"] == ClusterAccount(users={"ann": 1})
    assert "limits of accounts and associations" in old.not_simulated


def test_a_user_in_a_partition_has_an_account_for_that() -> None:
    rows = (
        "bio root - MaxJobs:5", "bio - ann MaxJobs:5 Partition:fast GrpJobs:2", "bio - ann MaxJobs:5 GrpTRES:cpu=3",
        "bio - ann MaxJobs:3 Partition:week Share:4", "bio - ann MaxJobs:3 Partition:gone",
    )  # fmt: skip
    found = parse_slurm(TEXT + associations(*rows)).cluster.accounts
    only = {"parent": "bio", "users": {"ann": 1}}
    assert found == {
        "bio": ClusterAccount(max_jobs=5, users={"ann": 1}, user_limits={"ann": Association(grp_cores=3)}),
        "bio:ann:fast": ClusterAccount(partition="fast", grp_jobs=2, **only),
        "bio:ann:week": ClusterAccount(4, partition="week", max_jobs=3, **only),
    }
    one = f"{changed(AccountingStorageEnforce='limits')}\n{associations(rows[0], rows[1].replace('fast', 'all'))}"
    alone = parse_slurm(one)
    assert alone.cluster.accounts["bio"].user_limits == {"ann": Association(grp_jobs=2)}, "there is but one partition"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (associations("bio root - MaxJobs:x"), "account 'bio' has MaxJobs 'x': a whole number"),
        (associations("bio root - MaxTRES:node=x"), "account 'bio' has MaxTRES node 'x': a whole number"),
        (
            associations("bio root - GrpTRESMins:cpu=1.5"),
            "account 'bio' has GrpTRESMins cpu '1.5': a whole number of min",
        ),
        (associations("bio root - GrpTRES:mem=9X"), "account 'bio' has GrpTRES mem '9X': an amount of memory"),
        (associations("bio root - GrpTRES:mem=9999P"), "account 'bio' has GrpTRES mem '9999P': an amount of memory"),
        ("Cluster|Account|User\nasa|bio|ann\n", "line .*: 'asa|bio|ann' is no association: what `sacctmgr"),
        (ASSOCIATIONS.replace("||3", "||x"), "account 'bio' has Share 'x': a whole number"),
        (ASSOCIATIONS.replace("|bio|root|", "|bio|cells|"), "account 'bio' stands above itself"),
    ],
)
def test_associations_that_are_none_are_refused(wrong: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said.replace("|", r"\|")):
        parse_slurm(TEXT + wrong)


def test_what_it_does_besides_is_named() -> None:
    said = read_slurm(RECORDED).not_simulated
    assert set(said) >= {
        "shares of accounts and users (sacctmgr show assoc was not given: all have equal ones)",
        "AccountingStorageTRES is without gpus, gpus:a100 (sacct does not say which jobs ask for them)",
        "partition share: OverSubscribe=FORCE:4",
        "SchedulerParameters=bf_max_job_user=10",
        "limits of accounts and associations",
    }
    assert len(said) < 20, "what changes nothing is not named"


def test_a_plain_machine_has_no_partitions_and_nothing_to_name() -> None:
    found = parse_slurm(SMALL)
    assert (found.dispatcher, found.priority) == (DAY_AHEAD, "fifo")
    assert (found.cluster.nodes, found.cluster.cores) == (2, 8)
    assert not found.cluster.partitions and not found.cluster.qos
    assert found.not_simulated == ()


def changed(**settings: str) -> str:
    """The small one with other settings in the place of those, or besides."""
    lines = [line for line in SMALL.splitlines() if line.split(" ")[0] not in settings]
    return "\n".join([*(f"{key}  = {value}" for key, value in settings.items()), *lines])


@pytest.mark.parametrize(
    ("settings", "dispatcher", "said"),
    [
        (
            {"SchedulerParameters": "bf_window=99999,bf_job_part_count_reserve=1"},
            "backfill:depth=1,interval=30.003s,window=99999m",
            "",
        ),
        (
            {"SchedulerParameters": "bf_max_job_test=50"},
            "backfill:depth=inf,interval=30.003s,limit=50,window=1440m",
            "",
        ),
        (
            {"SchedulerParameters": "bf_interval=60,bf_max_job_test=5,bf_job_part_count_reserve=2"},
            "backfill:depth=2,interval=60.003s,limit=5,window=1440m",
            "",
        ),
        ({"SchedulerType": "sched/builtin"}, "fcfs", ""),
        ({"SchedulerParameters": "bf_interval=-1"}, "fcfs", ""),
        ({"SchedulerType": "sched/odd"}, DAY_AHEAD, "SchedulerType=sched/odd (sched/backfill is taken)"),
        ({"PriorityType": "priority/site"}, DAY_AHEAD, "PriorityType=priority/site (fifo is taken)"),
        ({"Licenses": "matlab:4"}, DAY_AHEAD, "Licenses=matlab:4"),
        ({"TopologyPlugin": "topology/tree"}, DAY_AHEAD, "TopologyPlugin=topology/tree"),
    ],
)  # fmt: skip
def test_the_scheduler(settings: dict[str, str], dispatcher: str, said: str) -> None:
    found = parse_slurm(changed(**settings))
    assert found.dispatcher == dispatcher
    assert any(each.startswith(said) for each in ("", *found.not_simulated))


def test_slurm_26_writes_no_in_small_letters() -> None:
    text = changed(PriorityType="priority/multifactor", PriorityFavorSmall="no", PriorityWeightAge="5")
    found = parse_slurm(text)
    assert found.not_simulated == ()
    assert found.priority.startswith("multifactor:age=5,max_age_s=604800,")


@pytest.mark.parametrize(
    ("longest", "reserve", "dispatcher"),
    [
        ("1-00:00:00", "0", "backfill:depth=inf,interval=30.003s"),
        ("1-00:00:00", "1", "backfill:depth=1,interval=30.003s"),
        ("2-00:00:00", "1", "backfill:depth=1,interval=30.003s,window=1440m"),
    ],
)
def test_reservations_reach_as_far_as_wall_times_where_these_are_within_the_window(
    longest: str, reserve: str, dispatcher: str
) -> None:
    text = changed(SchedulerParameters=f"bf_job_part_count_reserve={reserve}")
    assert parse_slurm(text.replace("MaxTime=UNLIMITED", f"MaxTime={longest}")).dispatcher == dispatcher


def test_nodes_have_what_slurm_says() -> None:
    text = SMALL.replace("n[1-2]", "n[1-4]").replace("CPUTot=4", "CPUTot=4 RealMemory=1000 ActiveFeatures=old")
    text += "NodeName=n3 CPUEfctv=62 CPUTot=64 RealMemory=9000 MemSpecLimit=500 Gres=gpu:a100:3(S:0-1),gpu:1\n"
    text += "   State=DOWN*\n"
    text += "NodeName=n4 CPUTot=8 RealMemory=9000 Gres=shard:8,lustre:no_consume:4G ActiveFeatures=old,ib State=IDLE\n"
    found = parse_slurm(text)
    assert found.cluster.resources == ("cores", "gpus", "gpus:a100", "gres/shard"), "memory does not count"
    assert found.cluster.capacity.tolist() == [[4, 0, 0, 0], [4, 0, 0, 0], [62, 4, 3, 0], [8, 0, 0, 8]]
    assert found.cluster.features == {"old": (0, 1, 3), "ib": (3,)}
    assert found.not_simulated == (
        "which GPUs jobs have that name no type, on 1 nodes of several types (any that are left)",
        "Gres=lustre:no_consume:4G of 1 nodes", "State of 1 nodes, which take no jobs now",
        "that gres/shard are parts of GPUs",
    )  # fmt: skip
    counted = parse_slurm(f"SelectTypeParameters    = CR_CORE_MEMORY\n{text}")
    assert counted.cluster.resources == ("cores", "memory", "gpus", "gpus:a100", "gres/shard")
    assert counted.cluster.capacity[:, 1].tolist() == [1000 * 2**20, 1000 * 2**20, 8500 * 2**20, 9000 * 2**20]
    assert counted.not_simulated == found.not_simulated
    with pytest.raises(InvalidInput, match="node 'n1' has RealMemory '': a whole number"):
        parse_slurm(f"SelectTypeParameters    = CR_CORE_MEMORY\n{SMALL}")


def test_nodes_of_the_lowest_weight_stand_first() -> None:
    text = SMALL.replace("n[1-2]", "n[1-4]").replace("CPUTot=4", "CPUTot=4 Weight=7")
    text += "NodeName=n3 CPUTot=8 Weight=4294967280 State=IDLE\nNodeName=n4 CPUTot=16 Weight=1 State=DRAIN\n"
    text += "PartitionName=large MaxTime=UNLIMITED Nodes=n[3-4] State=UP\n"
    found = parse_slurm(text)
    assert found.cluster.names == ("n4", "n1", "n2", "n3")
    assert found.cluster.capacity.tolist() == [[16], [4], [4], [8]]
    assert (found.away, found.cluster.partitions["large"].nodes) == ((0,), (0, 3))
    assert found.not_simulated == ("State of 1 nodes, which take no jobs now",)
    with pytest.raises(InvalidInput, match=r"node 'n4' has Weight '-1': a whole number from 0 to 2.32 expected"):
        parse_slurm(text.replace("Weight=1 ", "Weight=-1 "))


def test_what_accounting_does_not_record_of_jobs_is_said() -> None:
    text = SMALL.replace("CPUTot=4", "CPUTot=4 Gres=gpu:a100:2,gpu:t4:1,nvme:1")
    recorded = parse_slurm(f"AccountingStorageTRES = cpu,mem,gres/gpu,gres/gpu:a100,gres/nvme\n{text}").not_simulated
    words = "AccountingStorageTRES is without gpus:t4 (sacct does not say which jobs ask for them)"
    assert [each for each in recorded if "Accounting" in each] == [words]
    many = ",".join(f"x{number}:1" for number in range(64))
    with pytest.raises(InvalidInput, match="there are 65 resources: at most 64 expected"):
        parse_slurm(SMALL.replace("CPUTot=4", f"CPUTot=4 Gres={many}"))


def test_limits_that_are_not_enforced_are_not_simulated() -> None:
    found = parse_slurm(TEXT.replace("associations,limits,qos", "associations"))
    assert found.cluster.qos["normal"] == Qos()
    assert "QOS normal: limits (AccountingStorageEnforce has none enforced)" in found.not_simulated


def test_a_reason_of_a_node_changes_nothing_of_it() -> None:
    found = parse_slurm(SMALL.replace("CPUTot=4 State=IDLE", "CPUTot=4 State=IDLE Reason=was CPUTot=64 State=DOWN", 1))
    assert found.cluster.cores == 8
    assert math.isinf(found.cluster.all_partitions[0].max_time_s)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("PartitionName=", "Partition=", "nothing of `scontrol show partition`"),
        ("NodeName=n", "Node=n", "nothing of `scontrol show node`"),
        (" =", ":", "nothing of `scontrol show config`"),
        ("MaxTime=UNLIMITED", "MaxTime=soon", "partition 'all' has MaxTime 'soon': a time such as 1-00:00:00"),
        ("MaxNodes=UNLIMITED", "MaxNodes=-1", "partition 'all' has MaxNodes '-1': a whole number"),
        ("n[1-2]", "n[1-", "brackets do not match"),
        ("Nodes=n[1-2]", "Nodes=m[1-2]", "no partition has any of the nodes"),
        ("CPUTot=4", "CPUTot=many", "node 'n1' has CPUTot 'many'"),
        ("NodeName=n2", "NodeName=n1", "line 6: NodeName 'n1' is empty, or there twice"),
        ("NodeName=n2", "Name|Priority\nnormal|0|1\nNodeName=n2", "line 7: 'normal|0|1' is no QOS"),
    ],
)
def test_damaged_texts_are_refused_in_one_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "slurm.txt"
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(InvalidInput) as refused:
        read_slurm(path)
    assert str(refused.value).startswith(f"{path}: ") and problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        read_slurm(tmp_path / "none.txt")
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(InvalidInput, match="more than 67,108,864 bytes"):
        read_slurm(tmp_path / "huge.txt")
