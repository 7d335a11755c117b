"""The backend over a Slurm that exists only in `tests.backends.slurm.fake`."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends import batch
from asa.backends.slurm import backend, commands
from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.words import JobRecord, NodeGroup, SiteRefusal, VisibleJob
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput, StateError
from asa.core.job import (
    Capabilities,
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    Options,
    QueueRegime,
    Refused,
    Resources,
)
from asa.core.queues import misfit
from asa.core.registry import BACKENDS
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.security.files import write_private
from tests.backends.slurm.fake import NOW, FakeSlurm

ONE_CORE = Resources()
"""Of sbatch's options those that are most like one of ASA's own."""
TIMEOUT = BackendError("Socket timed out", transient=True)


@pytest.fixture
def fake() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def slurm(fake: FakeSlurm) -> Slurm:
    return Slurm(transport=fake, clock=ManualClock(NOW))


def request(
    token: str, *dependencies: Dependency, resources: Resources = ONE_CORE, walltime_s: float = 60.0
) -> JobRequest:
    return JobRequest(token, resources, walltime_s, ("true",), dependencies=dependencies)


def submit(slurm: Slurm, *requests: JobRequest) -> list[JobHandle]:
    handles = [outcome for outcome in slurm.submit(requests) if isinstance(outcome, JobHandle)]
    assert len(handles) == len(requests)
    return handles


def test_a_submission_is_one_call_and_the_status_has_the_controllers_time(slurm: Slurm, fake: FakeSlurm) -> None:
    (handle,) = submit(slurm, request("a"))
    assert handle == JobHandle("1", "a", NOW) and fake.calls == ["submit"]
    assert slurm.query([handle])[0].submitted == NOW + 1
    fake.queued["1"] = replace(fake.queued["1"], submitted=NOW + 50, restarts=1)
    assert slurm.query([handle])[0].submitted is None, "a requeued job's is that of its last start"


def test_submission_times_are_this_machines_without_an_answer(
    slurm: Slurm, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(keys: Sequence[str]) -> list[JobRecord]:
        if keys:
            raise TIMEOUT
        return []

    monkeypatch.setattr(fake, "queue", unreachable)
    assert submit(slurm, request("a")) == [JobHandle("1", "a", NOW)]


def test_the_script_is_the_one_that_is_shown(slurm: Slurm, fake: FakeSlurm) -> None:
    submit(slurm, request("a"))
    assert fake.scripts == [slurm.job_script(request("a"))]
    assert "#SBATCH --job-name=a" in fake.scripts[0]


def test_a_preview_is_what_would_be_submitted_and_submits_nothing(slurm: Slurm, fake: FakeSlurm) -> None:
    single = replace(request("a", resources=Resources(8, unit=2)), withheld=("LICENSE",))
    (line,) = slurm.preview([single])
    assert line.startswith("env -u LICENSE sbatch --job-name=a --ntasks=4 --cpus-per-task=2 ")
    elements = [replace(request(token), array="x", output=f"/{token}") for token in ("b", "c")]
    whole, *edits = slurm.preview(elements)
    assert whole.endswith("--array=0-1%1") and edits[1] == "scontrol update JobId=ID_1 JobName=c StdOut=/c"
    wrong = [elements[0], replace(elements[1], workdir="/elsewhere")]
    assert slurm.preview(wrong)[0] == "# refused: the elements of job array 'x' must start in the same directory"
    assert fake.scripts == []


def test_jobs_have_options_of_their_own(fake: FakeSlurm) -> None:
    slurm = Slurm(partition="core", setup="module load gcc", nice=3, transport=fake, clock=ManualClock(NOW))
    options = (("exclusive", ""), ("nice", "10"), ("partition", "gpu"), ("setup", "module load cuda\nulimit -c 0"))
    submit(slurm, request("a"), request("b", resources=Resources(2, options=options)))
    plain, own = (script.splitlines() for script in fake.scripts)
    assert {"#SBATCH --partition=core", "#SBATCH --nice=3", "module load gcc"} <= set(plain)
    assert {"#SBATCH --partition=gpu", "#SBATCH --nice=10", "#SBATCH --exclusive"} <= set(own)
    assert "#SBATCH --partition=core" not in own and "#SBATCH --nice=3" not in own
    assert own.index("module load gcc") + 1 == own.index("module load cuda") == own.index("ulimit -c 0") - 1
    assert slurm.job_script(request("b", resources=Resources(2, options=options))) == fake.scripts[1]


@pytest.mark.parametrize("options", [(("job-name", "x"),), (("polls", "1"),), (("wrap", "true"),)])
def test_options_of_single_jobs_are_checked_as_those_of_all(slurm: Slurm, options: Options) -> None:
    with pytest.raises(InvalidInput, match=options[0][0]):
        slurm.capabilities().for_jobs(options)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SiteRefusal("Invalid account", "sbatch: error: Invalid account"), "Invalid account"),
        (BackendError("sbatch: no program 'sbatch' in PATH"), "sbatch: no program 'sbatch' in PATH"),
    ],
)
def test_a_refusal_is_an_outcome_and_the_rest_goes_on(
    slurm: Slurm, fake: FakeSlurm, error: BackendError, reason: str
) -> None:
    fake.before_submit["a"] = error
    first, second = slurm.submit([request("a"), request("b")])
    assert first == Refused("a", reason) and isinstance(second, JobHandle)


@pytest.mark.parametrize("silent", range(4))
def test_a_job_is_lost_when_it_is_unknown_to_two_questions_of_its_own(fake: FakeSlurm, silent: int) -> None:
    clock = ManualClock(NOW)
    slurm = Slurm(transport=fake, clock=clock)
    handles = submit(slurm, request("a"), request("b"))
    fake.unshown = {handles[1].job_id: silent}
    states = [status.state for status in slurm.query(handles)]
    assert states == [JobState.PENDING, JobState.LOST if silent == 3 else JobState.PENDING]
    assert clock.now() == NOW + (batch.AGAIN_S if silent >= 2 else 0.0)


def test_a_submission_that_timed_out_may_be_looked_for(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.after_submit["b"] = TIMEOUT
    with pytest.raises(BackendError) as caught:
        slurm.submit([request("a"), request("b"), request("c")])
    assert caught.value.transient
    assert slurm.find(["a", "b", "c"]) == {"a": JobHandle("1", "a", NOW + 1), "b": JobHandle("2", "b", NOW + 1)}


def test_one_question_however_many_jobs(slurm: Slurm, fake: FakeSlurm) -> None:
    handles = submit(slurm, *(request(f"job-{number}") for number in range(50)))
    fake.calls.clear()
    assert [status.handle for status in slurm.query(handles)] == handles
    assert fake.calls == ["queue"]
    fake.end(handles[3], "COMPLETED")
    fake.end(handles[4], "TIMEOUT")
    fake.calls.clear()
    found = slurm.query(handles)
    assert [found[3].state, found[4].state, found[5].state] == [JobState.COMPLETED, JobState.TIMEOUT, JobState.PENDING]
    assert fake.calls == ["queue", "accounting"]


def test_an_id_that_was_given_out_again_is_another_job(slurm: Slurm, fake: FakeSlurm) -> None:
    (old,) = submit(slurm, request("old"))
    fake.queued.clear()
    fake.number = 0
    (new,) = submit(slurm, request("new"))
    assert old.job_id == new.job_id
    assert [status.state for status in slurm.query([old, new])] == [JobState.LOST, JobState.PENDING]
    slurm.cancel([old])
    assert fake.cancelled == []
    with pytest.raises(BackendError, match="not in the queue any more"):
        slurm.update(old, JobChanges(walltime_s=60.0))
    assert fake.updates == []


def test_only_live_jobs_are_cancelled_in_one_call(slurm: Slurm, fake: FakeSlurm) -> None:
    handles = submit(slurm, request("a"), request("b"), request("c"))
    fake.end(handles[1], "COMPLETED")
    fake.queued["3"] = replace(fake.queued["3"], word="FAILED")
    slurm.cancel(handles)
    assert fake.cancelled == ["1"]


def test_of_two_jobs_of_one_name_the_live_one_is_found(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.queued = {
        "7": JobRecord("7", "a", "CANCELLED", submitted=1.0),
        "8": JobRecord("8", "a", "PENDING", submitted=2.0),
        "9": JobRecord("9", "a", "PENDING", submitted=3.0),
    }
    fake.accounted = {"6": JobRecord("6", "b", "COMPLETED", submitted=4.0)}
    assert slurm.find(["a", "b", "c"]) == {"a": JobHandle("8", "a", 2.0), "b": JobHandle("6", "b", 4.0)}


@pytest.mark.parametrize("kind", list(DependencyKind))
def test_a_dependency_on_a_forgotten_job_that_ended_well_is_fulfilled(
    slurm: Slurm, fake: FakeSlurm, kind: DependencyKind
) -> None:
    (parent,) = submit(slurm, request("parent"))
    fake.end(parent, "COMPLETED")
    submit(slurm, request("child", Dependency(parent, kind)))
    assert not any("dependency" in option for option in fake.options[-1])


def test_afterok_of_a_forgotten_job_that_failed_is_refused(slurm: Slurm, fake: FakeSlurm) -> None:
    (parent,) = submit(slurm, request("parent"))
    fake.end(parent, "FAILED")
    (outcome,) = slurm.submit([request("child", Dependency(parent))])
    assert isinstance(outcome, Refused)
    assert outcome.reason.startswith("it was to follow job 1 (parent), which ended as failed")
    submit(slurm, request("other", Dependency(parent, DependencyKind.AFTER_ANY)))


@pytest.mark.parametrize("looks", [0, 1])
def test_a_dependency_on_a_job_in_the_queue_is_left_to_slurm(
    slurm: Slurm, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Also when the first look at the queue does not show it."""
    (parent,) = submit(slurm, request("parent"))
    hidden, ask = iter([False] * looks), fake.queue
    monkeypatch.setattr(fake, "queue", lambda keys: ask(keys) if next(hidden, True) else [])
    submit(slurm, request("child", Dependency(parent)))
    assert "--dependency=afterok:1" in fake.options[-1]


def test_a_dependency_that_is_added_later_is_judged_alike(slurm: Slurm, fake: FakeSlurm) -> None:
    done, failed, live, child = submit(slurm, request("done"), request("failed"), request("live"), request("child"))
    fake.end(done, "COMPLETED")
    fake.end(failed, "FAILED")
    slurm.update(child, JobChanges(dependencies=(Dependency(done), Dependency(live))))
    assert fake.updates == [("4", ["Dependency=afterok:3"])]
    with pytest.raises(BackendError, match=r"job 2 \(failed\), which ended as failed"):
        slurm.update(child, JobChanges(dependencies=(Dependency(failed),)))


def test_a_job_that_would_wait_for_ever_is_refused_where_the_site_does_not(slurm: Slurm, fake: FakeSlurm) -> None:
    large = request("a", resources=Resources(33))
    (outcome,) = slurm.submit([large])
    assert isinstance(outcome, Refused) and "32 cores" in outcome.reason
    assert "submit" not in fake.calls
    for enforced in ("ALL", "ANY"):
        fake.settings["EnforcePartLimits"] = enforced
        submit(Slurm(transport=fake), large)
    fake.settings["EnforcePartLimits"] = "NO"
    submit(Slurm(transport=fake, qos="large"), request("a", walltime_s=7200.0))  # a QOS may allow more


def test_the_partition_that_does_not_exist_is_refused_by_the_site(fake: FakeSlurm) -> None:
    fake.before_submit["a"] = SiteRefusal("Invalid partition name specified", "...")
    slurm = Slurm(partition="nosuch", transport=fake)
    assert slurm.submit([request("a")]) == [Refused("a", "Invalid partition name specified")]
    with pytest.raises(BackendError, match="choose one of main"):
        slurm.capabilities()


def test_capabilities_are_asked_once_and_the_strictest_where_settings_may_not_be_read(fake: FakeSlurm) -> None:
    slurm = Slurm(transport=fake)
    found = slurm.capabilities()
    fake.settings = {}
    assert slurm.capabilities() is found and found.regime is QueueRegime.FIFO
    hidden = Slurm(transport=fake).capabilities()
    assert (hidden.regime, hidden.site, hidden.partition) == (QueueRegime.LIMITS, "slurm", "main")


def test_a_slurm_that_is_too_old(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.slurm_version = (19, 5, 2)
    with pytest.raises(BackendError, match=r"Slurm 19\.05\.2 is too old: expected 20\.11 or newer"):
        slurm.capabilities()


def test_changes_are_one_command(slurm: Slurm, fake: FakeSlurm) -> None:
    (handle,) = submit(slurm, request("a"))
    slurm.update(handle, JobChanges(walltime_s=61.0, dependencies=()))
    slurm.update(handle, JobChanges())
    assert fake.updates == [("1", ["TimeLimit=2", "Dependency="])]


def test_a_template_may_be_a_file(tmp_path: Path, fake: FakeSlurm) -> None:
    path = tmp_path / "template.sh"
    path.write_text("#!/bin/bash\n# mine\n{{program}}\n")
    expected = "#!/bin/bash\n# mine\nif ["
    assert Slurm(template=path, transport=fake).job_script(request("a")).startswith(expected)
    assert Slurm(template=path.read_text(), transport=fake).job_script(request("a")).startswith(expected)
    with pytest.raises(InvalidInput, match=r"template '.*nosuch.sh' cannot be read: No such file"):
        Slurm(template=tmp_path / "nosuch.sh")


def test_options_from_the_command_line(fake: FakeSlurm) -> None:
    slurm = BACKENDS.create("slurm:partition=main,nice=10,exclusive,poll_s=1", transport=fake)
    submit(slurm, request("a"))
    assert {"--partition=main", "--nice=10", "--exclusive"} <= set(fake.options[0])
    assert slurm.capabilities().poll_s == 1


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("pol_s", "poll_s"), ("timeout", "timeout_s"), ("rest-tokens", "rest_token"), ("partion", "partition")],
)
def test_an_option_that_is_nearly_one_of_its_own_is_refused_at_once(fake: FakeSlurm, misspelt: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=f"Slurm option '{misspelt}': did you mean '{meant}'"):
        Slurm(**{misspelt: "5"})
    for name in ("gres", "get_user_env", "burst_buffer", "resv_ports", "reboot", "time_min", "mail_user"):
        Slurm(transport=fake, **{name: "1"})  # those of sbatch's that are most like one of ASA's own


def element(token: str, cores: int = 1) -> JobRequest:
    return JobRequest(token, Resources(cores), 60.0, ("true",), output=f"/run/{token}", array="stages")


THREE = [element("a"), element("b", 2), element("c")]


def handles(slurm: Slurm) -> list[JobHandle]:
    return submit(slurm, *THREE)


def test_requests_of_one_array_are_one_submission_and_an_edit_each(slurm: Slurm, fake: FakeSlurm) -> None:
    assert handles(slurm) == [JobHandle("1", token, NOW, at) for at, token in enumerate("abc")]
    assert [key for key, _ in fake.updates] == ["1_1", "1_0", "1_2"]
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


def test_an_array_of_another_caller_is_not_taken_for_one_that_was_left(slurm: Slurm, fake: FakeSlurm) -> None:
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


@pytest.mark.parametrize(("most", "arrays"), [("1001", True), ("1", False), ("0", False)])
def test_a_site_may_have_no_arrays(slurm: Slurm, fake: FakeSlurm, most: str, arrays: bool) -> None:
    fake.settings["MaxArraySize"] = most
    assert slurm.capabilities().arrays == arrays
    uneditable = Slurm(transport=FakeSlurm(arrays=False), clock=ManualClock(NOW))
    assert not uneditable.capabilities().arrays
    (outcome,) = uneditable.submit(THREE[:1])
    assert isinstance(outcome, Refused) and "cannot change the elements of a job array" in outcome.reason


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


@pytest.mark.parametrize("others", ["\n1_1-2: No error", ""])  # Slurm 24.11 says nothing of them
def test_elements_that_have_ended_take_no_throttle_and_the_others_do(
    slurm: Slurm, fake: FakeSlurm, others: str
) -> None:
    first, *_ = handles(slurm)
    fake.before_update["1"] = SiteRefusal(f"1_0: Job has already finished{others}", "scontrol: ...")
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


def test_an_element_that_vanishes_after_it_was_cancelled_in_the_queue_counts_as_cancelled(
    slurm: Slurm, fake: FakeSlurm
) -> None:
    first, second, third = handles(slurm)
    fake.queued["1_0"] = replace(fake.queued["1_0"], word="RUNNING", nodes=("n1",))
    found = slurm.find(["a", "b"])  # by an earlier driver, and with the controller's times
    slurm.cancel([found["a"], found["b"]])
    fake.queued.clear()  # as Slurm 26.05 forgets the last element of an array
    assert [status.state for status in slurm.query([first, second, third])] == [
        JobState.LOST, JobState.CANCELLED, JobState.LOST,
    ]  # fmt: skip


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


def test_where_nodes_are_not_shown_nothing_can_be_parked(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.where["Nodes"] = "(null)"
    assert not slurm.capabilities().parks
    with pytest.raises(BackendError, match="does not show the nodes of partition 'main'"):
        slurm.update(handles(slurm)[0], JobChanges(parked=True))


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
UNEQUAL = [NodeGroup("main", 1, 8, GIB, 0, "idle"), NodeGroup("main", 1, 5, GIB, 0, "idle")]


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


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ""),
        ({"PriorityWeightJobSize": "0", "PriorityWeightTRES": "(null)"}, ""),
        ({"PriorityWeightTRES": "CPU=0,Mem=0.0,GRES/gpu=500"}, ""),  # elements of an array have the same GPUs
        ({"PriorityWeightJobSize": "100"}, "PriorityWeightJobSize=100"),
        ({"PriorityWeightTRES": "CPU=0,Mem=0.25"}, "PriorityWeightTRES=Mem=0.25"),
        ({"PriorityType": "priority/basic", "PriorityWeightJobSize": "100"}, ""),
    ],
)
def test_where_size_counts_no_array_holds_places(fake: FakeSlurm, settings: dict[str, str], said: str) -> None:
    fake.settings |= commands.parse_configuration(
        "".join(f"{name} = {value}\n" for name, value in (MULTIFACTOR | settings).items())
    )
    site = Slurm(transport=fake, clock=ManualClock(NOW)).capabilities()
    assert site.arrays == (not said)
    found = site.details["job arrays"]
    assert said in found and found.startswith("hold no places" if said else "keep their order")


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


@pytest.mark.parametrize(
    ("partitions", "nodes", "largest", "longest_s", "cores_per_node"),
    [
        ([MAIN], NODES, Resources(32, nodes=4, memory=16 * GIB), 86400, 8),
        ([LONG], NODES, Resources(72, nodes=2, memory=20 * GIB, gpus=4), None, 64),  # a limit on nodes: the largest
        ([MAIN, LONG], NODES, Resources(72, nodes=2, memory=20 * GIB, gpus=4), None, 64),  # a job goes to one of them
        ([MAIN], [NodeGroup("main", 2, 8, 2**20, 0, "idle")], Resources(16, nodes=2), 86400, 8),  # no memory is set
        ([MAIN], UNEQUAL, Resources(13, memory=2 * GIB), 86400, 8),
        ([MAIN | {"MaxCPUsPerNode": "6"}], NODES, Resources(24, nodes=4, memory=16 * GIB), 86400, 6),
        ([MAIN], [], None, 86400, None),
    ],
)
def test_the_largest_job_of_some_partitions(
    partitions: list[dict[str, str]],
    nodes: list[NodeGroup],
    largest: Resources | None,
    longest_s: float | None,
    cores_per_node: int | None,
) -> None:
    found = survey(*partitions, nodes=nodes)
    assert (found.largest, found.longest_s, found.cores_per_node) == (largest, longest_s, cores_per_node)
    assert (found.site, found.partition) == ("asa", ",".join(item["PartitionName"] for item in partitions))


def test_details_of_a_site() -> None:
    details = survey(MAIN).details
    assert details["Slurm"] == "22.05.8"
    assert "MaxTime=1-00:00:00" in details["partition main"]
    assert details["nodes of main, down*"] == "1 x 8 cores, 4096 MiB, 0 GPUs"


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ("AccountingStorageType   = accounting_storage/none\nMinJobAge  = 5 sec\n", 2.5),
        ("AccountingStorageType   = (null)\nMinJobAge               = 5 sec\n", 2.5),
        ("AccountingStorageType   = accounting_storage/none\nMinJobAge  = 300 sec\n", 15.0),
        ("AccountingStorageType   = accounting_storage/slurmdbd\nMinJobAge  = 2 sec\n", 15.0),
        ("", 15.0),
    ],
)
def test_without_accounting_every_end_must_be_seen(configuration: str, expected: float) -> None:
    assert backend.poll_interval(commands.parse_configuration(configuration), 15.0) == expected


@pytest.mark.parametrize(
    ("words", "whole"),
    [({}, False), ({"OverSubscribe": "NO", "Exclusive": "NO"}, False), ({"OverSubscribe": "EXCLUSIVE"}, True),
     ({"OverSubscribe": "NO", "Exclusive": "NODE"}, True)],
)  # fmt: skip
def test_a_partition_that_gives_whole_nodes(words: dict[str, str], whole: bool) -> None:
    """Slurm says so in other words since 26.05."""
    assert survey(MAIN | words).whole_nodes is whole


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
def test_a_job_that_never_fits(resources: Resources, walltime_s: float, message: str | None) -> None:
    reason = misfit(JobRequest("a", resources, walltime_s, ("true",)), survey(MAIN), "partition", spreads=True)
    assert reason is None if message is None else message in (reason or "")


def test_limits_that_a_site_does_not_show_are_not_checked() -> None:
    request = JobRequest("a", Resources(10**6), 10**9, ("true",))
    assert misfit(request, Capabilities("asa"), "partition", spreads=True) is None


CORE = {"PartitionName": "core", "Nodes": "n[1-4]"}
SHORT = {"PartitionName": "short", "Nodes": "n[4-5]"}
GROUPS = [NodeGroup("core", 4, 8, 2**32, 0, "mix")]
WAITS = VisibleJob("7", "name", "ada", "core", "PENDING", "Priority", 10, 4, 1, 600.0, 100.0, None)
RUNS = VisibleJob("6", "", "bob", "short", "RUNNING", "", 10, 8, 1, 600.0, 90.0, NOW + 60, ("n4",))


def view(*jobs: VisibleJob, groups: Sequence[NodeGroup] = GROUPS, partitions: Sequence[Any] = (CORE,)) -> QueueView:
    found = backend.queue_view(NOW, jobs, groups, partitions)
    assert found is not None
    return found


def queue(*jobs: VisibleJob) -> list[object]:
    return [job.key for job in view(*jobs).queue]


def test_a_job_in_the_view() -> None:
    found = view(WAITS, RUNS)
    assert (found.now, found.capacity) == (NOW, Resources(32, nodes=4))
    assert found.queue == (QueuedJob("7", Resources(4), 600.0, 100.0, "ada", "name"),)
    assert found.running == (RunningJob("6", Resources(8), NOW + 60, 600.0),)


def test_the_highest_priority_comes_first_and_then_the_oldest() -> None:
    jobs = [replace(WAITS, key="8", submitted=99.0), replace(WAITS, key="9", priority=11), WAITS]
    elements = [replace(WAITS, key="5_10", priority=9), replace(WAITS, key="5_9", priority=9)]
    assert queue(*elements, *jobs) == ["9", "8", "7", "5_9", "5_10"]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=20))
def test_the_order_does_not_depend_on_that_of_the_answer(ranks: list[tuple[int, int]]) -> None:
    jobs = [
        replace(WAITS, key=str(at), priority=priority, submitted=float(submitted))
        for at, (priority, submitted) in enumerate(ranks)
    ]
    assert queue(*jobs) == queue(*reversed(jobs))


@pytest.mark.parametrize("reason", sorted(backend.NOT_ELIGIBLE))
def test_a_job_that_could_not_start_on_an_empty_machine_is_left_out(reason: str) -> None:
    assert queue(replace(WAITS, reason=reason)) == []
    assert queue(replace(WAITS, priority=0)) == []


def test_running_jobs_count_where_their_nodes_are() -> None:
    elsewhere, late = replace(RUNS, held=("n5",)), replace(RUNS, key="5", word="COMPLETING", end=NOW - 5)
    found = view(elsewhere, late, replace(RUNS, key="4", end=None))
    assert [(job.key, job.ends) for job in found.running] == [("5", NOW), ("4", math.inf)]


def test_sizes_and_limits_of_those_that_wait() -> None:
    found = view(replace(WAITS, nodes=2, limit=None), replace(WAITS, nodes=3))
    sizes = [(job.resources, job.walltime_s) for job in found.queue]
    assert sizes == [(Resources(4, nodes=2), math.inf), (Resources(4), 600.0)]


@pytest.mark.parametrize(
    ("state", "works"),
    [
        *((state, False) for state in ("down*", "drain", "drained", "idle+drain", "fail", "unk*")),
        *((state, True) for state in ("idle", "mix", "alloc", "drng", "comp", "draining", "allocated+drain")),
    ],
)
def test_nodes_that_do_not_work_are_not_counted(state: str, works: bool) -> None:
    group = NodeGroup("core", 2, 8, 0, 0, state)
    assert view(groups=[*GROUPS, group]).capacity.cores == (48 if works else 32)
    alone = backend.queue_view(NOW, [], [group], [CORE])
    assert (None if alone is None else alone.capacity) == (Resources(16, nodes=2) if works else None)


def test_nodes_of_two_partitions_are_counted_once() -> None:
    groups = [*GROUPS, NodeGroup("short", 2, 8, 0, 0, "idle"), NodeGroup("gpu", 1, 4, 0, 4, "idle")]
    partitions = [CORE, SHORT, {"PartitionName": "gpu", "Nodes": "g1"}]
    assert view(groups=groups, partitions=partitions).capacity.cores == 36


def test_the_backend_looks_at_its_partition(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.visible = [replace(WAITS, partition="main"), WAITS]
    found = slurm.look()
    assert found is not None
    assert (found.capacity, [job.user for job in found.queue]) == (Resources(32, nodes=4), ["ada"])
    fake.hidden = True
    assert slurm.look() is None


HIGH = CORE | {"PriorityTier": "10", "PreemptMode": "OFF"}
LOW = CORE | {"PartitionName": "low", "PriorityTier": "1", "PreemptMode": "REQUEUE"}
ELSEWHERE = {"PartitionName": "else", "Nodes": "e[1-2]", "PriorityTier": "1", "PreemptMode": "REQUEUE"}
BY_TIER = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}


@pytest.mark.parametrize(
    ("configuration", "yields"), [(BY_TIER, True), ({}, False), ({"PreemptType": "(null)"}, False)]
)
def test_a_partition_is_preemptible_where_a_higher_one_has_its_nodes(
    configuration: dict[str, str], yields: bool
) -> None:
    partitions = [HIGH, LOW, ELSEWHERE]
    tiers = backend.preemption_tiers(configuration, partitions)
    found = [backend.is_preemptible([item], partitions, tiers) for item in partitions]
    assert found == [False, yields, False]


def test_jobs_that_would_be_preempted_keep_nobody_waiting() -> None:
    tiers = backend.preemption_tiers(BY_TIER, [HIGH, LOW])
    running, waiting = replace(RUNS, partition="low"), replace(WAITS, key="8", partition="low", priority=99)
    high = backend.queue_view(NOW, [running, waiting, WAITS], GROUPS, [HIGH], tiers)
    assert high is not None and ([job.key for job in high.queue], high.running) == (["7"], ())
    groups = [replace(GROUPS[0], partition="low")]
    low = backend.queue_view(NOW, [running, waiting, WAITS], groups, [LOW], tiers)
    assert low is not None
    assert [job.key for job in low.queue] == ["7", "8"], "jobs of the higher partition come first"
    assert [job.key for job in low.running] == ["6"]


def test_several_queues_are_seen_with_the_questions_of_one(
    slurm: Slurm, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.visible = [replace(WAITS, partition="main"), WAITS]
    queues = [(), (("partition", "main"),), (("partition", "nosuch"),)]
    asked: list[Sequence[str]] = []
    look = fake.visible_jobs

    def visible_jobs(partitions: Sequence[str]) -> list[VisibleJob]:
        asked.append(partitions)
        return look(partitions)

    monkeypatch.setattr(fake, "visible_jobs", visible_jobs)
    found = slurm.looks(queues)
    assert found[0] == found[1] is not None and found[2] is None
    assert len(asked) == 1
    fake.hidden = True
    assert slurm.looks(queues) == [None] * 3


REST = "http://localhost:1"


def test_the_spec_of_the_command_line(tmp_path: Path) -> None:
    write_private(tmp_path / "token", b"a.b.c")
    backend = BACKENDS.create(f"slurm:rest={REST},rest_token={tmp_path}/token,rest_user=ada,partition=core,nice=10")
    assert isinstance(backend, Slurm)
    with pytest.raises(StateError, match="cannot look at"):
        BACKENDS.create(f"slurm:rest={REST},rest_token={tmp_path}/nosuch")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rest": REST, "clusters": "a"}, "name the slurmrestd of that cluster"),
        ({"clusters": "a,b"}, "expected one"),
        ({"rest_token": "file"}, "rest_token without rest: add rest=ADDRESS"),
        ({"rest_unencrypted": True}, "rest_unencrypted without rest: add rest=ADDRESS"),
        ({"rest": REST, "no_such_flag": True}, "--no-such-flag.*not known to slurmrestd"),
        ({"rest": REST, "template": "#!/bin/sh\n#SBATCH --x11\n{{program}}\n"}, "--x11.*not known to slurmrestd"),
        ({"rest": REST, "transport": FakeSlurm()}, "transport and rest: give one way to reach Slurm"),
        ({"rest_user": "ada", "transport": FakeSlurm()}, "transport and rest_user: give one way to reach Slurm"),
        ({"rest": "nowhere"}, "expected /path/to/socket"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Slurm(**options)


def test_requests_is_imported_only_when_it_is_used() -> None:
    program = f"""
import sys
from asa.backends.slurm.backend import Slurm
Slurm("core")
assert "requests" not in sys.modules
Slurm("core", rest={REST!r})
assert "requests" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
