"""A machine under Slurm as the simulator has it, from what Slurm's commands print."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from asa.core.decision import NodeRun
from asa.core.errors import BackendError, InvalidInput
from asa.lab.core.cluster import NodeWindow
from asa.lab.forecast.slurm_queue import AGAIN_S, FIELDS, LIMITS, MACHINE, QUEUE, RESERVATIONS, SlurmQueue
from asa.lab.forecast.twin import Twin

CONFIG = """\
SchedulerType           = sched/backfill
SelectTypeParameters    = CR_CORE_MEMORY
AccountingStorageEnforce = associations,limits,qos
PrivateData             = accounts
"""
PARTITIONS = """\
PartitionName=main Default=YES MaxTime=UNLIMITED PriorityTier=1 Nodes=n[1-4] State=UP
PartitionName=upper MaxTime=UNLIMITED PriorityTier=2 Nodes=n[3-4] State=UP
"""
NODES = """\
NodeName=n1 CPUTot=8 RealMemory=1000 Gres=gpu:2 ActiveFeatures=new State=MIXED
NodeName=n2 CPUTot=8 RealMemory=1000 ActiveFeatures=new State=IDLE+POWERED_DOWN
NodeName=n3 CPUTot=8 RealMemory=1000 ActiveFeatures=old State=IDLE
NodeName=n4 CPUTot=8 RealMemory=1000 ActiveFeatures=old State=MIXED+DRAIN
"""
QOS = "Name|Priority|GrpTRES|MaxJobsPU|MaxSubmitPU|MaxTRESPU\nnormal|0||||\nfew|0||1||\n"
RESERVED = "ReservationName=fix StartTime=9000 EndTime=9600 Nodes=n3 Users=(null) Accounts=(null) Flags=MAINT\n"
USUAL = {
    "ArrayTaskID": "N/A", "UserName": "ann", "Account": "bio", "Partition": "main", "QOS": "normal",
    "State": "PENDING", "Reason": "Priority", "PriorityLong": "10", "NumCPUs": "1", "NumNodes": "1", "NumTasks": "1",
    "TimeLimit": "10:00", "SubmitTime": "900", "StartTime": "N/A", "EndTime": "N/A", "OverSubscribe": "OK",
    "NodeList": "", "Feature": "(null)", "Name": "j", "tres-per-job": "N/A", "tres-per-node": "N/A",
    "tres-per-task": "N/A",
}  # fmt: skip


def line(key: int, tres: str, **fields: str) -> str:
    row = {**USUAL, "ArrayJobID": str(key), "tres-alloc": tres, **fields}
    return "".join(f"{row[name]}{'|/|' if name == 'Feature' else '|'}" for name in FIELDS)


RUNS = {"State": "RUNNING", "Reason": "None", "StartTime": "800", "EndTime": "1400"}
JOBS = [
    line(1, "cpu=6,mem=600M,node=1,gres/gpu=2", NodeList="n1", **RUNS),
    line(2, "cpu=3,mem=90M,node=2", NodeList="n[2-3]", QOS="few", **RUNS),
    line(3, "cpu=2,mem=20M,node=1", NodeList="n4", Partition="upper", **RUNS),
    line(4, "cpu=1,mem=10M,node=1,gres/gpu=1", PriorityLong="50", Name="a|b"),
    line(5, "cpu=4,mem=2000M,node=1", PriorityLong="40"),
    line(6, "cpu=1,mem=10M,node=1", PriorityLong="30", QOS="few"),
    line(7, "cpu=8,mem=80M,node=1", PriorityLong="60", Feature="new", OverSubscribe="NO", NumCPUs="1"),
    line(8, "cpu=1,mem=10M,node=1", PriorityLong="20", Partition="upper,main", Feature="new|old"),
    line(9, "cpu=1,mem=10M,node=1", PriorityLong="90", Reason="Dependency"),
    line(10, "cpu=1,mem=10M,node=1", PriorityLong="0"),
]


class Prints:
    """Commands that print these texts; those of sacctmgr that are not there are refused."""

    def __init__(self, **changed: str) -> None:
        self.asked, self.now = list[Sequence[str]](), 1000.0
        texts = {"config": CONFIG, "partition": PARTITIONS, "node": NODES, "qos": QOS, **changed}
        commands = {"config": MACHINE[0], "partition": MACHINE[1], "node": MACHINE[2], "qos": LIMITS[0]}
        self.texts = {commands[name]: text for name, text in texts.items()}
        self.texts |= {RESERVATIONS: RESERVED, QUEUE: "\n".join(JOBS) + "\n"}

    def __call__(self, argv: Sequence[str]) -> str:
        self.asked.append(argv)
        if argv not in self.texts:
            raise BackendError("Access/permission denied\nand more")
        return self.texts[tuple(argv)]


def test_a_queue_with_all_that_jobs_ask_for() -> None:
    ask = Prints()
    seen = SlurmQueue(ask, lambda: ask.now).look()
    assert seen.keys == ("1", "2", "3", "7", "4", "5", "6", "8"), "by priority; held and dependent jobs are left out"
    assert (seen.running, seen.cores_used) == (3, 11)
    assert seen.nodes[0] == (NodeRun(0, 0, 1),)
    assert seen.nodes[1] == (NodeRun(1, 1, 2), NodeRun(2, 2, 1)), "three cores on two nodes"
    assert seen.cluster.capacity.tolist() == [
        [8, 1000 * 2**20, 2], [8, 1000 * 2**20, 0], [8, 1000 * 2**20, 0], [2, 20 * 2**20, 0]
    ]  # fmt: skip
    assert [each.nodes for each in seen.cluster.partitions.values()] == [(0, 1, 2), (2,)], "n4 is drained"
    assert seen.cluster.windows == (NodeWindow(9000.0, 9600.0, (2,), "fix"),)
    assert seen.walltime_s.tolist() == [600.0] * 8
    assert seen.jobs.label("name", 4) == "a|b"
    assert seen.jobs.label("constraint", 7) == "new|old"
    said = "; ".join(seen.left_out)
    assert "limits of accounts that Slurm hides (PrivateData)" in said
    assert "limits of accounts (sacctmgr: Access/permission denied)" in said
    assert "all partitions but the first of 1 jobs" in said
    twin = Twin.of(seen)
    assert [twin.waits_for(place) for place in range(5)] == [
        "nodes", "nodes", "never starts: BadConstraints", "limit of user ann of QOS 'few'", "its turn",
    ]  # fmt: skip
    starts = dict(zip(seen.keys[3:], twin.under("easy").starts.tolist(), strict=True))
    assert (starts["7"], starts["4"], starts["6"], starts["8"]) == (1400.0, 2000.0, 1400.0, 1000.0), "4 goes behind 7"


def test_jobs_have_gpus_of_types_and_other_gres() -> None:
    nodes = NODES.replace("Gres=gpu:2", "Gres=gpu:a100:1,gpu:t4:2,nvme:4 Weight=5")
    ask = Prints(node=nodes.replace("RealMemory=1000 ActiveFeatures=new", "RealMemory=1000 Gres=gpu:t4:2 Weight=7"))
    jobs = [
        line(1, "cpu=2,node=1,gres/gpu=1", NodeList="n1", **RUNS, **{"tres-per-node": "gres:gpu:a100:1"}),
        line(2, "cpu=2,node=1,gres/gpu=1,gres/gpu:t4=1", NodeList="n2", **RUNS, **{"tres-per-node": "gres:gpu:1"}),
        line(3, "cpu=1,node=1,gres/gpu=1", PriorityLong="50", **{"tres-per-node": "gres:gpu:a100:1"}),
        line(4, "cpu=1,node=1,gres/gpu=2", PriorityLong="40", **{"tres-per-job": "gres/gpu:t4:2"}),
        line(5, "cpu=2,node=2,gres/gpu=4", NumNodes="2", PriorityLong="30", **{"tres-per-node": "gres/gpu:2"}),
        line(6, "cpu=2,node=1", NumTasks="2", PriorityLong="20", **{"tres-per-task": "gres/gpu:t4:1"}),
        line(7, "cpu=1,node=1", PriorityLong="10", **{"tres-per-node": "gres:gpu:0,gres:nvme:3"}),
    ]
    ask.texts[QUEUE] = "\n".join(jobs) + "\n"
    seen = SlurmQueue(ask, lambda: ask.now).look()
    assert seen.cluster.names == ("n3", "n4", "n1", "n2"), "those of low weight first"
    assert seen.cluster.resources == ("cores", "memory", "gpus", "gpus:a100", "gpus:t4", "gres/nvme")
    gres = (seen.jobs.units[:, None] * seen.jobs.demands[seen.jobs.kind])[:, 2:]
    assert gres.tolist() == [
        [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [2, 0, 2, 0], [4, 0, 0, 0], [2, 0, 2, 0], [0, 0, 0, 3]
    ]  # fmt: skip
    starts = Twin.of(seen).under("easy").starts.tolist()
    assert starts == [1400.0, 1000.0, 1600.0, 2200.0, 1000.0], "3 waits for 1, 5 for 3 and 4, and 6 for 5"
    assert not any("Gres" in each or "Accounting" in each for each in seen.left_out)


def test_the_queue_takes_one_call_and_the_machine_is_read_again_now_and_then() -> None:
    ask = Prints()
    queue = SlurmQueue(ask, lambda: ask.now)
    queue.look()
    assert len(ask.asked) == 7
    queue.look()
    assert ask.asked[7:] == [QUEUE]
    ask.now += AGAIN_S
    queue.look()
    assert len(ask.asked) == 15


def test_limits_that_are_not_enforced_are_not_asked_for() -> None:
    ask = Prints(config="SchedulerType = sched/backfill\n")
    seen = SlurmQueue(ask, lambda: ask.now).look()
    assert len(ask.asked) == 5
    assert not seen.cluster.qos
    assert "memory" not in seen.cluster.resources, "nor is memory where Slurm does not count it"


def test_nodes_that_are_hidden_are_refused_by_name() -> None:
    ask = Prints(node="")
    with pytest.raises(InvalidInput, match="scontrol show node"):
        SlurmQueue(ask, lambda: ask.now).look()
