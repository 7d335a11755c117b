"""What the backend makes of Slurm's answers, on a Slurm that exists only here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.words import JobRecord, SiteRefusal
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    QueueRegime,
    Refused,
    Resources,
)
from asa.core.registry import BACKENDS
from tests.backends.slurm.fake import NOW, FakeSlurm

ONE_CORE = Resources()
NEAREST = ("gres", "get_user_env", "burst_buffer", "resv_ports", "reboot", "time_min", "mail_user")
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


def test_the_controller_tells_when_a_job_was_submitted(slurm: Slurm) -> None:
    assert submit(slurm, request("a")) == [JobHandle("1", "a", NOW + 1)]


def test_or_else_this_machines_clock(slurm: Slurm, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_refusal_is_an_outcome_and_the_rest_goes_on(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.before_submit["a"] = SiteRefusal("Invalid account", "sbatch: error: Invalid account")
    first, second = slurm.submit([request("a"), request("b")])
    assert first == Refused("a", "Invalid account")
    assert isinstance(second, JobHandle)


def test_a_command_that_fails_half_way_loses_no_job(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.before_submit["b"] = BackendError("sbatch: no program 'sbatch' in PATH")
    first, second = slurm.submit([request("a"), request("b")])
    assert isinstance(first, JobHandle)
    assert second == Refused("b", "sbatch: no program 'sbatch' in PATH")


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


def test_a_dependency_on_a_job_in_the_queue_is_left_to_slurm(slurm: Slurm, fake: FakeSlurm) -> None:
    (parent,) = submit(slurm, request("parent"))
    submit(slurm, request("child", Dependency(parent)))
    assert "--dependency=afterok:1" in fake.options[-1]


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


def test_a_dependency_that_is_in_the_queue_at_the_second_look_only_is_left_to_slurm(
    slurm: Slurm, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (parent,) = submit(slurm, request("parent"))
    looks = iter([False])
    ask = fake.queue
    monkeypatch.setattr(fake, "queue", lambda keys: ask(keys) if next(looks, True) else [])
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


def test_what_would_wait_for_ever_is_refused(slurm: Slurm, fake: FakeSlurm) -> None:
    (outcome,) = slurm.submit([request("a", resources=Resources(33))])
    assert isinstance(outcome, Refused)
    assert "32 cores" in outcome.reason
    assert "submit" not in fake.calls


@pytest.mark.parametrize("enforced", ["ALL", "ANY"])
def test_a_site_that_refuses_by_itself_is_asked(slurm: Slurm, fake: FakeSlurm, enforced: str) -> None:
    fake.settings["EnforcePartLimits"] = enforced
    submit(slurm, request("a", resources=Resources(33)))


def test_a_qos_may_allow_more(fake: FakeSlurm) -> None:
    submit(Slurm(transport=fake, qos="large"), request("a", walltime_s=7200.0))


def test_the_partition_that_does_not_exist_is_refused_by_the_site(fake: FakeSlurm) -> None:
    fake.before_submit["a"] = SiteRefusal("Invalid partition name specified", "...")
    slurm = Slurm(partition="nosuch", transport=fake)
    assert slurm.submit([request("a")]) == [Refused("a", "Invalid partition name specified")]
    with pytest.raises(BackendError, match="choose one of main"):
        slurm.capabilities()


def test_settings_that_may_not_be_read_are_taken_to_be_the_strictest(slurm: Slurm, fake: FakeSlurm) -> None:
    fake.settings = {}
    found = slurm.capabilities()
    assert (found.regime, found.site, found.partition) == (QueueRegime.LIMITS, "slurm", "main")


def test_capabilities_are_asked_once(slurm: Slurm, fake: FakeSlurm) -> None:
    found = slurm.capabilities()
    fake.settings = {}
    assert slurm.capabilities() is found
    assert found.regime is QueueRegime.FIFO


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
def test_an_option_that_is_nearly_one_of_its_own_is_refused_at_once(misspelt: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=f"Slurm option '{misspelt}': did you mean '{meant}'"):
        Slurm(**{misspelt: "5"})


def test_no_option_of_sbatch_is_taken_for_a_misspelt_one(fake: FakeSlurm) -> None:
    for name in NEAREST:
        Slurm(transport=fake, **{name: "1"})


def test_several_clusters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="clusters='a,b'"):
        Slurm(clusters="a,b")
