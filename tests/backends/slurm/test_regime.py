from __future__ import annotations

import pytest

from asa.backends import batch
from asa.backends.slurm import backend
from asa.backends.slurm.words import NodeGroup, SiteRefusal
from asa.core.job import Capabilities, JobRequest, QueueRegime, Resources

GIB = 2**30
MULTIFACTOR = {"PriorityType": "priority/multifactor", "PriorityFlags": "", "AccountingStorageEnforce": ""}
MAIN = {"PartitionName": "main", "Default": "YES", "MaxTime": "1-00:00:00", "MaxNodes": "UNLIMITED", "State": "UP"}
LONG = {"PartitionName": "long", "Default": "NO", "MaxTime": "UNLIMITED", "MaxNodes": "2", "State": "UP"}
NODES = [
    NodeGroup("main", 3, 8, 4 * GIB, 0, "idle"),
    NodeGroup("main", 1, 8, 4 * GIB, 0, "down*"),
    NodeGroup("long", 4, 8, 4 * GIB, 0, "idle"),
    NodeGroup("long", 1, 64, 16 * GIB, 4, "mix"),
]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({}, QueueRegime.LIMITS),
        ({"PriorityType": "priority/basic"}, QueueRegime.FIFO),
        ({"PriorityType": "priority/invented"}, QueueRegime.LIMITS),
        ({"PriorityType": "priority/multifactor"}, QueueRegime.LIMITS),
        (MULTIFACTOR, QueueRegime.MULTIFACTOR),
        (MULTIFACTOR | {"AccountingStorageEnforce": "associations"}, QueueRegime.MULTIFACTOR),
        (MULTIFACTOR | {"AccountingStorageEnforce": "associations,limits"}, QueueRegime.LIMITS),
        (MULTIFACTOR | {"AccountingStorageEnforce": "associations,limits,qos,safe"}, QueueRegime.LIMITS),
        (MULTIFACTOR | {"PriorityFlags": "ACCRUE_ALWAYS,MAX_TRES"}, QueueRegime.ACCRUE_ALWAYS),
        (
            MULTIFACTOR | {"PriorityFlags": "ACCRUE_ALWAYS", "AccountingStorageEnforce": "limits"},
            QueueRegime.ACCRUE_ALWAYS,
        ),
    ],
)
def test_regime(configuration: dict[str, str], expected: QueueRegime) -> None:
    assert backend.queue_regime(configuration) is expected


def survey(
    *partitions: dict[str, str], configuration: dict[str, str] | None = None, nodes: list[NodeGroup] = NODES
) -> Capabilities:
    names = [item["PartitionName"] for item in partitions]
    return backend.site_capabilities(
        configuration or {"ClusterName": "asa"},
        partitions,
        [group for group in nodes if group.partition in names],
        version=(22, 5, 8),
        partition=",".join(names),
        poll_s=15.0,
    )


def test_one_partition() -> None:
    found = survey(MAIN)
    assert (found.site, found.partition) == ("asa", "main")
    assert found.largest == Resources(32, nodes=4, memory=16 * GIB)
    assert found.longest_s == 86400
    assert found.details["Slurm"] == "22.05.8"
    assert "MaxTime=1-00:00:00" in found.details["partition main"]
    assert found.details["nodes of main, down*"] == "1 x 8 cores, 4096 MiB, 0 GPUs"


def test_a_limit_on_nodes_counts_the_largest() -> None:
    found = survey(LONG)
    assert found.largest == Resources(72, nodes=2, memory=20 * GIB, gpus=4)
    assert found.longest_s is None
    assert found.cores_per_node == 64


def test_of_two_partitions_a_job_goes_to_one() -> None:
    found = survey(MAIN, LONG)
    assert found.largest is not None
    assert found.largest.cores == 72
    assert found.longest_s is None


def test_memory_that_nobody_configured_is_not_counted() -> None:
    largest = survey(MAIN, nodes=[NodeGroup("main", 2, 8, 2**20, 0, "idle")]).largest
    assert largest == Resources(16, nodes=2)


def test_unequal_nodes_leave_their_number_open() -> None:
    nodes = [NodeGroup("main", 1, 8, GIB, 0, "idle"), NodeGroup("main", 1, 5, GIB, 0, "idle")]
    largest = survey(MAIN, nodes=nodes).largest
    assert largest == Resources(13, memory=2 * GIB)


def test_cores_that_the_partition_keeps_back() -> None:
    assert survey(MAIN | {"MaxCPUsPerNode": "6"}).largest == Resources(24, nodes=4, memory=16 * GIB)


def test_a_partition_without_nodes() -> None:
    found = survey(MAIN, nodes=[])
    assert (found.largest, found.cores_per_node) == (None, None)


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"AccountingStorageType": "accounting_storage/none", "MinJobAge": "5 sec"}, 2.5),
        ({"AccountingStorageType": "accounting_storage/none", "MinJobAge": "300 sec"}, 15.0),
        ({"AccountingStorageType": "accounting_storage/slurmdbd", "MinJobAge": "2 sec"}, 15.0),
        ({}, 15.0),
    ],
)
def test_without_accounting_every_end_must_be_seen(configuration: dict[str, str], expected: float) -> None:
    assert backend.poll_interval(configuration, 15.0) == expected


def test_default_partition() -> None:
    assert backend.default_partition([LONG, MAIN]) == "main"
    assert backend.default_partition([LONG]) == ""


def test_an_unknown_partition_is_named() -> None:
    assert backend.chosen_partitions([LONG, MAIN], "main,nosuch") == [MAIN]
    with pytest.raises(SiteRefusal, match="no partition 'nosuch': choose one of long, main"):
        backend.chosen_partitions([LONG, MAIN], "nosuch")


@pytest.mark.parametrize(
    ("resources", "walltime_s", "message"),
    [
        (Resources(32, nodes=4), 86400.0, None),
        (Resources(33), 60.0, "room for 32 cores, 4 nodes, 16384 MiB at most, and the job asks for 33 cores"),
        (Resources(1, gpus=1), 60.0, "asks for 1 cores, 1 GPUs"),
        (Resources(1, memory=17 * GIB), 60.0, "asks for 1 cores, 17408 MiB"),
        (Resources(5, nodes=5), 60.0, "may have 4 nodes, and this one asks for 5"),
        (Resources(9, nodes=1), 60.0, "have 8 cores at most, and the job asks for 9 on each"),
        (Resources(1), 86401.0, "a wall time of 1-00:00:00, and the job asks for 1-00:00:01"),
    ],
)
def test_what_never_fits(resources: Resources, walltime_s: float, message: str | None) -> None:
    reason = batch.misfit(JobRequest("a", resources, walltime_s, ("true",)), survey(MAIN), "partition", spreads=True)
    assert reason is None if message is None else message in (reason or "")


def test_what_the_site_does_not_tell_is_not_checked() -> None:
    request = JobRequest("a", Resources(10**6), 10**9, ("true",))
    assert batch.misfit(request, Capabilities("asa"), "partition", spreads=True) is None
