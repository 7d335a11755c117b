from __future__ import annotations

import pytest

from asa.core.reason import Reason, explained


@pytest.mark.parametrize("reason", list(Reason)[:8])
def test_every_reason_of_a_job_that_waits_has_a_meaning(reason: Reason) -> None:
    assert explained(reason).startswith(f"{reason.value}: ")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("AssocGrpCPUMinutesLimit", "its account has"),
        ("AssocMaxJobsLimit", "its user has"),
        ("QOSGrpNodeLimit", "jobs of its QOS"),
        ("QOSMaxCpuPerUserLimit", "its QOS allows"),
        ("PartitionTimeLimit", "more than its partition allows"),
        ("ReqNodeNotAvail, Reserved for maintenance", "down, drained or reserved"),
        ("DependencyNeverSatisfied", "never start"),
    ],
)
def test_slurms_families_of_reasons_are_told_by_their_beginning(reason: str, said: str) -> None:
    assert said in explained(reason) and explained(reason).startswith(f"{reason}: ")


@pytest.mark.parametrize("reason", ["", "NonZeroExitCode", "no such job"])
def test_others_stay_as_they_are(reason: str) -> None:
    assert explained(reason) == reason
