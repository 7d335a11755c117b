"""Over a PBS that exists only in `tests.backends.pbs.fake`; outputs as PBS's reference guide and designs show them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends import pbs
from asa.backends.pbs import Pbs, PbsOptions
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import Dependency, JobChanges, JobHandle, JobRequest, JobState, QueueRegime, Refused, Resources
from asa.core.registry import BACKENDS
from asa.core.units import MIB
from asa.testing.backends import BatchSemantics, TestedSite
from tests.backends.pbs.fake import FakePbs


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000.0)


@pytest.fixture
def fake(clock: ManualClock) -> FakePbs:
    return FakePbs(clock)


@pytest.fixture
def cluster(fake: FakePbs, clock: ManualClock) -> Pbs:
    return Pbs(clock=clock, ask=fake)


def request(token: str = "asa-1", cores: int = 1, nodes: int | None = None, **fields: object) -> JobRequest:
    return JobRequest(token, Resources(cores, nodes), 60.0, ("sh", "-c", "sleep 9; exit 0"), **fields)  # type: ignore[arg-type]


def test_a_submission_in_words() -> None:
    wanted = PbsOptions(queue="short", account="p123", chunk="model=bro", extra="-M 'a b' -m n")
    asked = JobRequest("asa-1", Resources(16, 2, 3 * MIB + 1, 4), 5400.5, ("true",), begin=0.0)
    words = pbs.qsub_options(asked, wanted)
    assert words[:10] == [
        "-N", "asa-1", "-l", "select=2:ncpus=8:mem=2mb:ngpus=2:model=bro", "-l", "place=scatter", "-l",
        "walltime=01:30:01", "-j", "oe",
    ]  # fmt: skip
    assert words[-8:] == ["-q", "short", "-A", "p123", "-M", "a b", "-m", "n"]


@pytest.mark.parametrize("extra", ["-N mine", "-lwalltime=1", "-W depend=1"])
def test_what_asa_says_itself_cannot_be_said_twice(extra: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be passed through"):
        Pbs(extra=extra)


def test_a_token_that_is_no_name_is_refused(cluster: Pbs) -> None:
    with pytest.raises(InvalidInput, match="a letter expected first"):
        cluster.submit([request("1-asa")])


def test_the_site(cluster: Pbs) -> None:
    found = cluster.capabilities()
    assert (found.site, found.partition, found.regime) == ("pbs1", "workq", QueueRegime.LIMITS)
    assert (found.largest, found.cores_per_node) == (Resources(4, None, 32 * 2**30), 4)
    assert found.longest_s == 3600.0 and "job history" not in found.details


def test_what_never_fits_is_refused_in_words(cluster: Pbs) -> None:
    long = JobRequest("asa-2", Resources(1), 7200.0, ("true",))
    outcomes = cluster.submit([request(cores=8), long, request("asa-3", array="a")])
    assert [isinstance(outcome, Refused) for outcome in outcomes] == [True] * 3
    reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, Refused)]
    assert "has room for 4 cores" in reasons[0] and "02:00:00" in reasons[1] and "no job arrays" in reasons[2]


def test_one_question_for_all_and_one_more_for_the_unknown(cluster: Pbs, fake: FakePbs) -> None:
    handles = [handle for handle in cluster.submit([request("a"), request("b")]) if isinstance(handle, JobHandle)]
    fake.said.clear()
    cluster.query(handles)
    assert len(fake.said) == 1
    gone = JobHandle("77.pbs1", "c", 0.0)
    states = [status.state for status in cluster.query([handles[0], gone, handles[1]])]
    assert states == [JobState.RUNNING, JobState.LOST, JobState.RUNNING] and len(fake.said) == 3


def test_a_job_after_one_that_failed_is_refused(cluster: Pbs, clock: ManualClock) -> None:
    bad = JobRequest("bad", Resources(1), 60.0, ("sh", "-c", "sleep 1; exit 3"))
    (failed,) = cluster.submit([bad])
    assert isinstance(failed, JobHandle)
    clock.wait(threading.Event(), clock.now() + 20)
    (outcome,) = cluster.submit([request(dependencies=(Dependency(failed),))])
    assert isinstance(outcome, Refused) and "which ended as failed" in outcome.reason


def test_throttles_and_parking_are_not_there(cluster: Pbs) -> None:
    (handle,) = cluster.submit([request()])
    assert isinstance(handle, JobHandle)
    for changes in (JobChanges(throttle=2), JobChanges(parked=True)):
        with pytest.raises(BackendError, match="neither throttles nor parking"):
            cluster.update(handle, changes)


def test_the_script_runs_its_program(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    words = ("printf", "%s|", "two words", "", "'\"`$HOME`", "*", "grün", "two\nlines")
    asked = JobRequest("a", Resources(), 60.0, words, str(tmp_path / "a b"), str(tmp_path / "out put"))
    subprocess.run(["sh"], input=pbs.job_script(asked, PbsOptions(setup=("pwd",))), text=True, check=True, cwd="/")
    assert (tmp_path / "out put").read_text() == f"{tmp_path / 'a b'}\n" + "|".join(words[2:]) + "|"


def test_the_script_of_several_nodes_starts_it_on_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = tmp_path / "pbsdsh"
    shell.write_text('#!/bin/sh\nshift\nfor node in 1 2; do (cd / && env -i NODE=$node "$@"); done\n')
    shell.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = ("sh", "-c", 'echo "$NODE $PWD $1"', "-", "x  y")
    asked = JobRequest("a", Resources(4, 2), 60.0, words, str(tmp_path), str(tmp_path / "out"))
    subprocess.run(["sh"], input=pbs.job_script(asked, PbsOptions()), text=True, check=True)
    assert (tmp_path / "out").read_text() == f"1 {tmp_path} x  y\n2 {tmp_path} x  y\n"


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_it_speaks_to_programs_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cluster = BACKENDS.create("pbs:queue=short,timeout_s=20")
    with pytest.raises(BackendError, match="no program 'qstat' in PATH"):
        cluster.capabilities()
    program(tmp_path / "qstat", "echo 'qstat: cannot connect to server pbs1 (errno=15010)' >&2; exit 255")
    with pytest.raises(BackendError) as caught:
        cluster.query([JobHandle("1.pbs1", "a", 0.0)])
    assert caught.value.transient
    program(tmp_path / "qstat", 'case "$*" in *-B*) echo \'{"Server":{"pbs1":{}}}\';; *) echo \'{"Queue":{}}\';; esac')
    program(tmp_path / "pbsnodes", "echo '{}'")
    program(tmp_path / "qsub", "cat >script; echo 'qsub: Unauthorized Request' >&2; exit 159")
    monkeypatch.chdir(tmp_path)
    assert cluster.submit([request()]) == [Refused("asa-1", "Unauthorized Request")]
    assert (tmp_path / "script").read_text().startswith("#!/bin/sh\n")
    assert "job history" in cluster.capabilities().details


def test_changes_in_words() -> None:
    wanted = JobChanges(5400.5, Resources(4, 2), (), begin=0.0)
    words = pbs.qalter_options(wanted, now=0.0, chunk="model=bro")
    assert words[:6] == ["-l", "select=2:ncpus=2:model=bro", "-l", "place=scatter", "-l", "walltime=01:30:01"]
    assert words[6:8] == ["-W", "depend="] and words[8] == "-a"
    assert pbs.qalter_options(JobChanges(), now=0.0) == []


def test_no_change_is_no_question(cluster: Pbs, fake: FakePbs) -> None:
    _, handle = cluster.submit([request("a", cores=4), request("b", cores=4)])
    assert isinstance(handle, JobHandle)
    fake.said.clear()
    cluster.update(handle, JobChanges())
    assert not any("qalter" in " ".join(map(str, said)) for said in fake.said)
    cluster.update(handle, JobChanges(walltime_s=90.0))
    assert any("walltime=00:01:30" in " ".join(map(str, said)) for said in fake.said)


def test_a_server_without_a_name_is_called_pbs() -> None:
    assert pbs.parse_server('{"Server": {}}') == ("pbs", {})
    assert pbs.parse_server('{"Server": {"pbs1": {"pbs_version": "23"}}}') == ("pbs1", {"pbs_version": "23"})


HANDLE = JobHandle("1.vbox", "asa-1", 0.0)
QUEUED = """{
    "timestamp":1479277336,
    "pbs_version":"14.1",
    "pbs_server":"vbox",
    "Jobs":{
        "1.vbox":{
            "Job_Name":"asa-1",
            "Job_Owner":"root@vbox",
            "job_state":"Q",
            "queue":"workq",
            "server":"vbox",
            "Checkpoint":"u",
            "ctime":"Fri Nov 11 17:57:05 2016",
            "Error_Path":"vbox:/home/me/asa-1.e1",
            "Hold_Types":"n",
            "Join_Path":"oe",
            "Keep_Files":"n",
            "mtime":"Fri Nov 11 17:57:05 2016",
            "Priority":0,
            "qtime":"Fri Nov 11 17:57:05 2016",
            "Rerunable":"False",
            "Resource_List":{
                "ncpus":16,
                "nodect":2,
                "place":"scatter",
                "select":"2:ncpus=8",
                "walltime":"01:00:00"
            },
            "substate":10,
            "Variable_List":{"PBS_O_HOME":"/root", "PBS_O_LANG":"en_US.UTF-8"},
            "comment":"Not Running: Insufficient amount of resource: ncpus (R: 16 A: 8 T: 8)",
            "etime":"Fri Nov 11 17:57:05 2016",
            "Submit_arguments":"-N asa-1",
            "project":"_pbs_project_default"
        }
    }
}"""
JOB = json.loads(QUEUED)["Jobs"]["1.vbox"]
STARTED = {"stime": "Fri Nov 11 18:00:00 2016", "exec_host": "n1/0*8+n2/0*8", "run_count": 1}


def at(text: str) -> float:
    return time.mktime(time.strptime(f"2016-11-11 {text}", "%Y-%m-%d %H:%M:%S"))


def ended(**attributes: Any) -> dict[str, Any]:
    return JOB | STARTED | {"job_state": "F", "substate": 92, "resources_used": {"walltime": "00:10:00"}} | attributes


def test_a_job_that_waits() -> None:
    jobs = pbs.document(QUEUED, "Jobs")
    status = pbs.parse_status(HANDLE, jobs["1.vbox"])
    assert (status.state, status.reason, status.started) == (JobState.PENDING, "Resources", None)
    assert status.eligible == pbs.submit_time(jobs["1.vbox"]) == at("17:57:05")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"job_state": "W"}, "BeginTime"),
        ({"job_state": "H", "depend": "afterok:0.vbox@vbox"}, "Dependency"),
        ({"job_state": "H"}, "JobHeldUser"),
        ({"comment": ""}, "Priority"),
        ({"comment": "Not Running: Queue not started."}, "Not Running: Queue not started."),
    ],
)
def test_why_a_job_waits(changes: dict[str, str], reason: str) -> None:
    assert pbs.parse_status(HANDLE, JOB | changes).reason == reason


def test_a_job_that_runs() -> None:
    status = pbs.parse_status(HANDLE, JOB | STARTED | {"job_state": "R", "run_count": 2})
    assert (status.state, status.started, status.ended) == (JobState.RUNNING, at("18:00:00"), None)
    assert (status.nodes, status.restarts) == (("n1", "n2"), 1)


@pytest.mark.parametrize(
    ("attributes", "state", "code"),
    [
        ({"Exit_status": 0}, JobState.COMPLETED, 0),
        ({"Exit_status": 3}, JobState.FAILED, 3),
        ({"Exit_status": 265}, JobState.FAILED, 137),
        ({"Exit_status": 271, "substate": 91}, JobState.CANCELLED, 143),
        ({"Exit_status": -29}, JobState.TIMEOUT, None),
        ({"Exit_status": 271, "resources_used": {"walltime": "01:00:03"}}, JobState.TIMEOUT, 143),
        ({"Exit_status": -27}, JobState.OUT_OF_MEMORY, None),
        ({"Exit_status": -1}, JobState.FAILED, None),
    ],
)
def test_how_a_job_ended(attributes: dict[str, Any], state: JobState, code: int | None) -> None:
    status = pbs.parse_status(HANDLE, ended(**attributes))
    assert (status.state, status.exit_code) == (state, code)
    assert status.started == at("18:00:00") and status.ended is not None and status.ended > status.started


def test_a_job_that_was_deleted_before_it_ran_never_started() -> None:
    job = JOB | {"job_state": "F", "substate": 91, "mtime": "Fri Nov 11 19:00:00 2016"}
    status = pbs.parse_status(HANDLE, job)
    assert (status.state, status.started, status.ended) == (JobState.CANCELLED, None, at("19:00:00"))


def test_the_end_is_told_or_follows_from_what_was_used() -> None:
    assert pbs.parse_status(HANDLE, ended(Exit_status=0)).ended == at("18:10:00")
    told = ended(Exit_status=0, obittime="Fri Nov 11 18:10:02 2016")
    assert pbs.parse_status(HANDLE, told).ended == at("18:10:02")


def test_what_is_no_json_is_told() -> None:
    assert pbs.document("", "Jobs") == {}
    with pytest.raises(BackendError, match=r"14\.1 or later"):
        pbs.document("Job id            Name             User", "Jobs")


def test_the_id_that_qsub_prints() -> None:
    assert pbs.parse_job_id("qsub: waiting is over\n1234.pbs1\n") == "1234.pbs1"
    with pytest.raises(BackendError, match="no job id"):
        pbs.parse_job_id("\n")


@given(st.floats(0, 4e9, allow_nan=False))
def test_times_are_read_as_they_are_written(moment: float) -> None:
    text = time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(moment))
    read = pbs.parse_time(text)
    assert read is not None and abs(read - int(moment)) in (0, 3600)  # the hour that summer time says twice


class TestPbs(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        clock = ManualClock(1_700_000_000.0)
        backend = Pbs(clock=clock, ask=FakePbs(clock), poll_s=1.0)
        return TestedSite(
            backend, clock, tmp_path, run_s=10.0, resolution_s=1.0, shortest_s=60.0, walltime_s=600.0, patience_s=200.0
        )
