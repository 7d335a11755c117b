"""Arrays are taken whole or not at all, whatever becomes of the answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.words import JobRecord, SiteRefusal
from asa.core.clock import ManualClock
from asa.core.errors import BackendError
from asa.core.job import JobChanges, JobHandle, JobRequest, JobState, Refused, Resources
from tests.backends.slurm.fake import NOW, FakeSlurm

TIMEOUT = BackendError("Socket timed out", transient=True)


@pytest.fixture
def fake() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def slurm(fake: FakeSlurm) -> Slurm:
    return Slurm(transport=fake, clock=ManualClock(NOW))


def element(token: str, cores: int = 1) -> JobRequest:
    return JobRequest(token, Resources(cores), 60.0, ("true",), output=f"/run/{token}", array="stages")


THREE = [element("a"), element("b", 2), element("c")]


def handles(slurm: Slurm) -> list[JobHandle]:
    found = [outcome for outcome in slurm.submit(THREE) if isinstance(outcome, JobHandle)]
    assert len(found) == 3
    return found


def test_requests_of_one_array_are_one_submission_and_an_edit_each(slurm: Slurm, fake: FakeSlurm) -> None:
    assert handles(slurm) == [JobHandle("1", token, NOW + 1, at) for at, token in enumerate("abc")]
    assert [key for key, _ in fake.updates] == ["1_2", "1_0", "1_1"]
    assert "--array=0-2%1" in fake.options[0]
    assert slurm.find(["a", "b", "c"]) == {token: JobHandle("1", token, NOW + 1, at) for at, token in enumerate("abc")}


def test_others_of_the_same_call_are_submitted_beside_it(slurm: Slurm, fake: FakeSlurm) -> None:
    alone = JobRequest("alone", Resources(), 60.0, ("true",))
    outcomes = slurm.submit([THREE[0], alone, THREE[1]])
    assert [getattr(outcome, "array_index", "refused") for outcome in outcomes] == [0, None, 1]
    assert len(fake.options) == 2


def test_an_edit_that_is_refused_refuses_all(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.before_update["1_2"] = SiteRefusal("Access/permission denied", "scontrol: Access/permission denied")
    assert slurm.submit(THREE) == [Refused(token, "Access/permission denied") for token in "abc"]
    assert fake.cancelled == ["1"]


@pytest.mark.parametrize(("fault", "key"), [("before_update", "1_2"), ("before_update", "1_1"), ("after_submit", "a")])
def test_an_array_that_was_left_half_made_is_cancelled_when_it_is_looked_for(
    slurm: Slurm, fake: FakeSlurm, fault: str, key: str
) -> None:
    getattr(fake, fault)[key] = TIMEOUT
    with pytest.raises(BackendError):
        slurm.submit(THREE)
    assert fake.cancelled == []
    assert slurm.find(["a", "b", "c"]) == {}
    assert fake.cancelled == ["1"]
    assert [handle.job_id for handle in handles(slurm)] == ["2", "2", "2"]


def test_nobody_elses_array_is_taken_for_one_that_was_left(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.queued = {key: JobRecord(key, "theirs", "PENDING") for key in ("7_0", "7_1")}
    assert slurm.find(["a"]) == {}
    assert fake.cancelled == []


def test_of_elements_without_their_own_names_in_the_accounting_the_first_is_found(
    slurm: Slurm, fake: FakeSlurm
) -> None:
    fake.accounted = {f"1_{at}": JobRecord(f"1_{at}", "a", "COMPLETED", submitted=NOW) for at in (2, 0, 1)}
    assert slurm.find(["a", "b"]) == {"a": JobHandle("1", "a", NOW, 0)}


def test_one_element_that_never_fits_refuses_all(slurm: Slurm, fake: FakeSlurm) -> None:
    outcomes = slurm.submit([element("a"), element("b", 33)])
    assert [getattr(outcome, "reason", "").partition(":")[0] for outcome in outcomes] == ["b", "b"]
    assert fake.options == []


def test_where_elements_cannot_be_edited_there_are_no_arrays() -> None:
    slurm = Slurm(transport=FakeSlurm(arrays=False), clock=ManualClock(NOW))
    assert not slurm.capabilities().arrays
    (outcome,) = slurm.submit(THREE[:1])
    assert isinstance(outcome, Refused)
    assert "cannot change the elements of a job array" in outcome.reason


@pytest.mark.parametrize(("most", "arrays"), [("1001", True), ("1", False), ("0", False)])
def test_a_site_may_have_switched_arrays_off(slurm: Slurm, fake: FakeSlurm, most: str, arrays: bool) -> None:
    fake.settings["MaxArraySize"] = most
    assert slurm.capabilities().arrays == arrays


def test_the_throttle_is_the_arrays(slurm: Slurm, fake: FakeSlurm) -> None:
    first, second, _ = handles(slurm)
    fake.updates.clear()
    slurm.update(second, JobChanges(throttle=2))
    assert fake.updates == [("1", ["ArrayTaskThrottle=2"])]
    del fake.queued["1_0"]
    slurm.update(first, JobChanges(throttle=3))
    assert fake.updates[1:] == [("1", ["ArrayTaskThrottle=3"])]
    fake.queued = {key: replace(record, word="COMPLETED") for key, record in fake.queued.items()}
    with pytest.raises(
        BackendError, match=r"1_0 \(a\) cannot be given another throttle: none of its array is in the queue"
    ):
        slurm.update(first, JobChanges(throttle=4))


def test_elements_that_have_ended_take_no_throttle_and_the_others_do(slurm: Slurm, fake: FakeSlurm) -> None:
    first, *_ = handles(slurm)
    fake.before_update["1"] = SiteRefusal("1_0: Job has already finished\n1_1-2: No error", "scontrol: ...")
    slurm.update(first, JobChanges(throttle=2))
    fake.before_update["1"] = SiteRefusal("1_0-2: Access/permission denied", "scontrol: ...")
    with pytest.raises(SiteRefusal):
        slurm.update(first, JobChanges(throttle=2))


def test_a_throttle_that_means_nothing(slurm: Slurm) -> None:
    with pytest.raises(BackendError, match="at least 1, not 0"):
        slurm.update(handles(slurm)[0], JobChanges(throttle=0))
    (plain,) = slurm.submit([JobRequest("alone", Resources(), 60.0, ("true",))])
    assert isinstance(plain, JobHandle)
    with pytest.raises(BackendError, match=r"2 \(alone\) .* no element of a job array"):
        slurm.update(plain, JobChanges(throttle=2))


def test_elements_are_asked_for_and_cancelled_singly(slurm: Slurm, fake: FakeSlurm) -> None:
    _, second, third = handles(slurm)
    assert [status.state for status in slurm.query([second, third])] == [JobState.PENDING] * 2
    slurm.cancel([second])
    assert fake.cancelled == ["1_1"]


def test_parking_excludes_every_node_of_the_partition(slurm: Slurm, fake: FakeSlurm) -> None:
    assert slurm.capabilities().parks
    first, *_ = handles(slurm)
    fake.updates.clear()
    slurm.update(first, JobChanges(parked=True))
    slurm.update(first, JobChanges(parked=False, walltime_s=60.0))
    assert fake.updates == [("1_0", ["ExcNodeList=n[1-4]"]), ("1_0", ["TimeLimit=1", "ExcNodeList="])]


def test_nodes_that_the_user_excluded_stay_so(fake: FakeSlurm) -> None:
    slurm = Slurm(transport=fake, clock=ManualClock(NOW), exclude="n2")
    first, *_ = handles(slurm)
    slurm.update(first, JobChanges(parked=False))
    assert fake.updates[-1] == ("1_0", ["ExcNodeList=n2"])


def test_where_nodes_are_not_told_nothing_can_be_parked(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.where["Nodes"] = "(null)"
    assert not slurm.capabilities().parks
    with pytest.raises(BackendError, match="does not show the nodes of partition 'main'"):
        slurm.update(handles(slurm)[0], JobChanges(parked=True))
