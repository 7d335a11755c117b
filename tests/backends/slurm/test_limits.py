"""What the accounting allows: read by an ordinary user, refused or waited for."""

from __future__ import annotations

import pytest

from asa.backends.slurm import limits, words
from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.limits import JobAccount
from asa.core.clock import ManualClock
from asa.core.job import JobHandle, JobRequest, Refused, Resources
from tests.backends.slurm.fake import NOW, POLICY, FakeSlurm

ENFORCED = {"PriorityType": "priority/multifactor", "AccountingStorageEnforce": "associations,limits"}
OWN = {"DefaultAccount": "bio", "Account": "bio", "Partition": ""}


@pytest.fixture
def fake() -> FakeSlurm:
    found = FakeSlurm()
    found.settings |= ENFORCED
    found.accounts = {
        "user": [OWN | {"MaxSubmit": "4", "MaxJobs": "2", "MaxWall": "00:30:00"}],
        "assoc": [
            {"Account": "root", "GrpTRES": "gres/gpu=8"},
            {"Account": "bio", "ParentName": "root", "GrpTRES": "cpu=24,mem=40G", "GrpSubmit": "100"},
            {"Account": "geo", "ParentName": "root", "GrpTRES": "cpu=1"},
        ],
        "qos": [{"Name": "normal"}, {"Name": "tight", "MaxTRES": "cpu=3", "MaxSubmitPU": "9", "MaxWall": "00:10:00"}],
    }
    return found


def connected(fake: FakeSlurm, **options: str) -> Slurm:
    return Slurm(transport=fake, clock=ManualClock(NOW), **options)


def request(token: str = "a", cores: int = 1, walltime_s: float = 60.0, array: str = "") -> JobRequest:
    return JobRequest(token, Resources(cores), walltime_s, ("true",), array=array, output=f"/{token}")


def refusal(slurm: Slurm, asked: JobRequest) -> str:
    (found,) = slurm.submit([asked])
    return found.reason if isinstance(found, Refused) and not found.later else ""


def test_they_are_read_once_and_shown(fake: FakeSlurm) -> None:
    slurm = connected(fake)
    site = slurm.capabilities()
    assert site.details["limits"] == (
        "MaxJobs=2 of user ann in account bio; MaxSubmitJobs=4 of user ann in account bio; MaxWall=00:30:00 of user "
        "ann in account bio; GrpSubmitJobs=100 of account bio; GrpTRES=cpu=24 of account bio; GrpTRES=mem=40G of "
        "account bio; GrpTRES=gres/gpu=8 of account root"
    )
    assert site.most_jobs == 4 and site.longest_s == 1800.0
    assert site.largest is not None and (site.largest.cores, site.largest.memory) == (24, 2**34)
    assert site.bounds == "GrpTRES=cpu=24 of account bio; MaxWall=00:30:00 of user ann in account bio"
    slurm.submit([request()])
    assert sum(call.startswith("sacctmgr") for call in fake.calls) == 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (request(cores=25), "GrpTRES=cpu=24 of account bio: the job asks for 25 cores, and would never start"),
        (request(walltime_s=1860.0), "MaxWall=00:30:00 of user ann in account bio: the job asks for 00:31:00"),
        (request(cores=24, walltime_s=1800.0), ""),
    ],
)
def test_what_could_never_start_is_refused_by_the_limits_name_and_value(
    fake: FakeSlurm, asked: JobRequest, said: str
) -> None:
    found = refusal(connected(fake), asked)
    assert said in found and bool(found) == bool(said)


def test_a_limit_of_the_qos_takes_the_place_of_the_associations(fake: FakeSlurm) -> None:
    slurm = connected(fake, qos="tight")
    assert slurm.capabilities().most_jobs == 9
    assert "MaxTRESPerJob=cpu=3 of QOS tight" in refusal(slurm, request(cores=4))
    assert "MaxWall=00:10:00 of QOS tight" in refusal(slurm, request(walltime_s=660.0))


def test_the_qos_of_the_partition_counts_before_that_of_the_job() -> None:
    rows = [{"Name": "long", "MaxWall": "7-00:00:00"}, {"Name": "short", "MaxWall": "01:00:00"}]
    for flags, of in (("", "QOS short"), ("OverPartQOS", "QOS long")):
        choice = JobAccount("", "long", "core", "short")
        (limit,) = limits.in_force({"Account": "a"}, choice, [], [rows[0] | {"Flags": flags}, rows[1]], "ann")
        assert limit.of == of


def test_account_and_partition_choose_the_association(fake: FakeSlurm) -> None:
    fake.accounts["user"] += [
        {"DefaultAccount": "bio", "Account": "geo", "Partition": "", "MaxSubmit": "7"},
        {"DefaultAccount": "bio", "Account": "geo", "Partition": "main", "MaxSubmit": "5"},
    ]
    assert connected(fake, account="geo").capabilities().most_jobs == 5
    assert "GrpTRES=cpu=1 of account geo" in refusal(connected(fake, account="geo"), request(cores=2))


@pytest.mark.parametrize(
    ("settings", "shown", "said"),
    [
        ({"AccountingStorageEnforce": "associations"}, True, "not enforced"),
        ({}, False, "enforced, but not shown: sacctmgr: Access/permission denied"),
    ],
)
def test_where_they_are_not_enforced_or_not_shown_nothing_is_assumed(
    fake: FakeSlurm, settings: dict[str, str], shown: bool, said: str
) -> None:
    fake.settings |= settings
    fake.accounts = fake.accounts if shown else {}
    slurm = connected(fake)
    assert slurm.capabilities().details["limits"] == said
    assert slurm.capabilities().most_jobs is None
    assert not refusal(slurm, request(cores=32))


def test_a_template_may_choose_another_account(fake: FakeSlurm) -> None:
    slurm = connected(fake, template="#!/bin/sh\n#SBATCH --account=geo\n{{program}}\n")
    assert slurm.capabilities().details["limits"].startswith("not looked at: the job script template chooses")


def test_one_job_too_many_may_be_taken_later(fake: FakeSlurm) -> None:
    fake.most_jobs = 2
    found = connected(fake).submit([request(token) for token in "abcd"])
    assert [type(item) for item in found] == [JobHandle, JobHandle, Refused, Refused]
    for item in found[2:]:
        assert isinstance(item, Refused) and item.later and "AssocMaxSubmitJobLimit" in item.reason
    assert fake.calls.count("submit") == 3, "the last of them was not tried"


def test_an_array_is_too_long_as_a_whole_and_a_single_job_may_yet_fit(fake: FakeSlurm) -> None:
    fake.most_jobs = 2
    found = connected(fake).submit([*(request(token, array="x") for token in "abc"), request("d")])
    assert [type(item) for item in found] == [Refused] * 3 + [JobHandle]
    assert all(item.later for item in found if isinstance(item, Refused))
    assert not fake.updates


@pytest.mark.parametrize(
    ("says", "limited", "full"),
    [
        (f"AssocMaxSubmitJobLimit\nBatch job submission failed: {POLICY}", False, True),
        (f"QOSMaxSubmitJobPerUserLimit\nBatch job submission failed: {POLICY}", False, True),
        (f"AssocGrpSubmitJobsLimit\nBatch job submission failed: {POLICY}", False, True),
        (POLICY, True, True),  # slurmrestd does not say which
        (POLICY, False, False),
        (f"QOSMaxCpuPerJobLimit\nBatch job submission failed: {POLICY}", True, False),
        ("Invalid account or account/partition combination specified", True, False),
    ],
)
def test_which_refusals_are_for_now(says: str, limited: bool, full: bool) -> None:
    assert words.is_full(says, limited) is full
