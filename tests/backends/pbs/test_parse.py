"""Outputs in the form that PBS's reference guide and its design documents show."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends import pbs
from asa.core.errors import BackendError
from asa.core.job import JobHandle, JobState

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
