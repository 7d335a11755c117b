"""What slurmrestd answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asa.backends.slurm import commands, rest_parse
from asa.backends.slurm.rest_parse import Denied, NoSuchPage, Silent, Unauthorized, content
from asa.backends.slurm.words import JobRecord, NodeGroup, SiteRefusal, VisibleJob
from asa.core.errors import BackendError

RECORDED = Path(__file__).with_name("rest-22.05")


def recorded(name: str) -> dict[str, Any]:
    found = json.loads((RECORDED / f"{name}.json").read_text())
    assert isinstance(found, dict)
    return found


def wrapped(number: int | None, *, infinite: bool = False) -> dict[str, Any]:
    return {"set": number is not None, "infinite": infinite, "number": number or 0}


def test_the_version() -> None:
    assert rest_parse.version(recorded("ping")) == (22, 5, 8)
    later = {"meta": {"slurm": {"version": {"major": "24", "micro": "3", "minor": "11"}, "release": "24.11.3"}}}
    assert rest_parse.version(later) == (24, 11, 3)
    with pytest.raises(BackendError, match="expected Slurm's version"):
        rest_parse.version({"meta": {}})


def test_the_controllers_host() -> None:
    assert rest_parse.hosts(recorded("ping")) == ["login1"]


def test_jobs_in_the_queue() -> None:
    jobs = {record.key: record for record in rest_parse.queue(recorded("jobs"), "ada")}
    assert jobs["113"] == JobRecord(
        "113", "failed", "FAILED", "NonZeroExitCode", submitted=1795259101.0, eligible=1795259101.0,
        start=1795259102.0, end=1795259102.0, exit_code=3, nodes=("n1",),
        ages_since=1795259101.0,
    )  # fmt: skip
    assert (jobs["114"].word, jobs["114"].nodes) == ("RUNNING", ("n1", "n2"))
    waiting = jobs["116"]
    assert (waiting.word, waiting.reason, waiting.start, waiting.nodes) == ("PENDING", "Resources", 1795259402.0, ())
    assert rest_parse.queue(recorded("jobs"), "bob") == []


def test_elements_of_an_array_are_jobs_of_their_own() -> None:
    keys = [record.key for record in rest_parse.queue(recorded("jobs"), "ada") if record.name == "array"]
    assert keys == ["115_0", "115_2"]
    job = recorded("jobs")["jobs"][2]
    for told, expected in (
        ({"array_task_string": "1-3,7,10-14:2%4"}, ["1", "2", "3", "7", "10", "12", "14"]),
        ({"array_task_id": 5, "array_task_string": ""}, ["5"]),
        ({"array_task_id": wrapped(0), "array_job_id": wrapped(115)}, ["0"]),
    ):
        records = rest_parse.queue({"jobs": [job | told]}, "ada")
        assert [record.key for record in records] == [f"115_{index}" for index in expected]


def test_a_job_in_later_versions() -> None:
    job = {
        "job_id": 7, "name": "token", "user_name": "ada", "job_state": ["CANCELLED", "COMPLETING"],
        "array_job_id": wrapped(0), "array_task_id": wrapped(None), "state_reason": "None",
        "submit_time": wrapped(100), "eligible_time": wrapped(101), "start_time": wrapped(102),
        "end_time": wrapped(None), "restart_cnt": 2, "nodes": "n[1-2]",
        "exit_code": {
            "status": ["SIGNALED"], "return_code": wrapped(None), "signal": {"id": wrapped(9), "name": "KILL"},
        },
    }  # fmt: skip
    assert rest_parse.queue({"jobs": [job]}, "ada") == [
        JobRecord("7", "token", "CANCELLED,COMPLETING", "", 100.0, 101.0, 102.0, None, 137, 2, ("n1", "n2"))
    ]
    job["exit_code"] = {"status": ["ERROR"], "return_code": wrapped(3), "signal": {"id": wrapped(None)}}
    assert rest_parse.queue({"jobs": [job]}, "ada")[0].exit_code == 3


def test_jobs_in_the_accounting() -> None:
    jobs = {record.name: record for record in rest_parse.accounting(recorded("slurmdb-jobs"), "ada")}
    assert (jobs["failed"].word, jobs["failed"].nodes) == ("FAILED", ("n1",))
    assert jobs["failed"].exit_code is None, "22.05 says 0 of every job"
    assert jobs["running"] == JobRecord(
        "114", "running", "CANCELLED", "cancelled by ada", 1795259101.0, 1795259101.0, 1795259102.0, 1795259106.0,
        0, 0, ("n1", "n2"),
    )  # fmt: skip
    assert (jobs["waiting"].start, jobs["waiting"].nodes) == (None, ())
    assert rest_parse.accounting(recorded("slurmdb-jobs"), "bob") == []


def test_the_accounting_of_later_versions() -> None:
    job = {
        "job_id": 9, "name": "token", "user": "ada", "state": {"current": ["FAILED"], "reason": "NonZeroExitCode"},
        "array": {"job_id": 8, "task_id": wrapped(1)}, "nodes": "n1", "restart_cnt": 1, "kill_request_user": "",
        "time": {"submission": 100, "eligible": 101, "start": 102, "end": 103},
        "exit_code": {"status": ["ERROR"], "return_code": wrapped(3), "signal": {"id": wrapped(None), "name": ""}},
    }  # fmt: skip
    assert rest_parse.accounting({"jobs": [job]}, "ada") == [
        JobRecord("8_1", "token", "FAILED", "", 100.0, 101.0, 102.0, 103.0, 3, 1, ("n1",))
    ]


def test_everybodys_jobs() -> None:
    jobs = {job.key: job for job in rest_parse.visible_jobs(recorded("jobs"))}
    assert list(jobs) == ["113", "114", "115_0", "115_2", "116"]
    assert jobs["114"] == VisibleJob(
        "114", "running", "ada", "main", "RUNNING", "", 4294901654, 10, 2, 300.0, 1795259101.0, 1795259402.0,
        ("n1", "n2"),
    )  # fmt: skip
    assert (jobs["113"].held, jobs["116"].held, jobs["116"].cores, jobs["115_2"].reason) == ((), (), 32, "BeginTime")
    job = recorded("jobs")["jobs"][1]
    later = {"cpus": wrapped(10), "node_count": wrapped(2), "priority": wrapped(4294901654), "job_state": ["RUNNING"]}
    assert rest_parse.visible_jobs({"jobs": [job | later]}) == [jobs["114"]]
    (endless,) = rest_parse.visible_jobs({"jobs": [job | {"time_limit": wrapped(None, infinite=True)}]})
    assert endless.limit is None


def test_partitions() -> None:
    main, share = rest_parse.partitions(recorded("partitions"))
    assert main == {
        "PartitionName": "main", "Default": "YES", "State": "UP", "MaxTime": "1-00:00:00", "DefaultTime": "0-00:05:00",
        "Nodes": "n[1-4]", "TotalNodes": "4", "TotalCPUs": "32", "QoS": "N/A",
    }  # fmt: skip
    assert commands.parse_limit(main["MaxTime"]) == 86400
    assert share["Default"] == "NO"
    unlimited = recorded("partitions")["partitions"][0] | {"max_time_limit": -1, "maximum_nodes_per_job": 2}
    (found,) = rest_parse.partitions({"partitions": [unlimited]})
    assert (commands.parse_limit(found["MaxTime"]), found["MaxNodes"]) == (None, "2")


def test_partitions_of_later_versions() -> None:
    partition = {
        "name": "core", "partition": {"state": ["UP"]}, "qos": {"assigned": "big"},
        "nodes": {"configured": "n[1-4]", "total": 4},
        "maximums": {"time": wrapped(90), "nodes": wrapped(2), "cpus_per_node": wrapped(None, infinite=True)},
        "defaults": {"time": wrapped(None)}, "cpus": {"total": 32},
    }  # fmt: skip
    assert rest_parse.partitions({"partitions": [partition]}) == [
        {
            "PartitionName": "core", "Default": "YES", "State": "UP", "MaxTime": "0-01:30:00", "DefaultTime": "NONE",
            "MaxNodes": "2", "Nodes": "n[1-4]", "TotalNodes": "4", "TotalCPUs": "32", "QoS": "big",
        }
    ]  # fmt: skip
    both = rest_parse.partitions({"partitions": [partition, partition | {"name": "other"}]})
    assert [item["Default"] for item in both] == ["NO", "NO"], "which of several is the default is not told"


def test_nodes() -> None:
    found = rest_parse.nodes(recorded("nodes"), ["main"])
    assert found == [NodeGroup("main", 2, 8, 2**32, 0, "mixed"), NodeGroup("main", 1, 8, 2**32, 0, "idle+planned")]
    assert rest_parse.nodes(recorded("nodes"), ["nosuch"]) == []


def test_nodes_of_later_versions() -> None:
    node = {
        "name": "g1", "cpus": 64, "real_memory": 1024, "gres": "gpu:a100:4(S:0-1)", "state": ["IDLE", "DRAIN"],
        "partitions": ["gpu", "all"],
    }  # fmt: skip
    old = node | {"state": "idle", "state_flags": ["DRAIN"], "partitions": "all"}
    assert rest_parse.nodes({"nodes": [node, old]}, ["all"]) == [NodeGroup("all", 2, 64, 2**30, 4, "idle+drain")]


ASKED = "GET /slurm/v0.0.38/jobs at here"


def failure(status: int, *errors: dict[str, Any], **more: Any) -> BackendError:
    with pytest.raises(BackendError) as caught:
        content(status, json.dumps({"errors": errors, **more}), ASKED)
    assert str(caught.value).startswith(ASKED)
    return caught.value


def test_an_answer() -> None:
    assert content(200, '{"errors": [], "jobs": []}', ASKED) == {"errors": [], "jobs": []}


def test_a_job_that_was_taken_with_a_remark() -> None:
    held = {"error_code": 2042, "error": "Job is in held state, pending scheduler release"}
    assert content(200, json.dumps({"errors": [held], "job_id": 14}), ASKED)["job_id"] == 14


def test_a_refusal_in_the_sites_words() -> None:
    error = failure(500, {"error_code": 2000, "error": "Invalid partition name specified"})
    assert isinstance(error, SiteRefusal)
    assert error.reason == "Invalid partition name specified"


def test_an_option_that_cannot_be_read() -> None:
    error = failure(
        200,
        {"error": "Unable to parse time", "error_code": 2054},
        {
            "description": 'Unable to process key "begin_time"',
            "error_number": -1,
            "error": "Unspecified error",
            "source": "slurm_process_option_data",
        },
        {"error_code": 9001, "error": "Failure during parsing"},
    )
    assert isinstance(error, Denied)
    assert not error.transient
    assert error.reason.splitlines()[:2] == ["Unable to parse time", 'Unable to process key "begin_time"']


def test_words_are_not_said_twice() -> None:
    error = failure(
        500,
        {
            "description": "unable to kill JobId=7777 with signal 9: Invalid job id specified",
            "error_number": 2017,
            "error": "Invalid job id specified",
        },
    )
    assert isinstance(error, Denied)
    assert error.numbers == {2017}
    assert error.reason == "unable to kill JobId=7777 with signal 9: Invalid job id specified"
    error = failure(
        500, {"description": "job update failed", "error_number": 2017, "error": "Invalid job id specified"}
    )
    assert isinstance(error, Denied)
    assert error.reason == "Invalid job id specified (job update failed)"


@pytest.mark.parametrize(
    "error",
    [
        {"error_code": 1800, "error": "Unable to contact slurm controller (connect failure)"},
        {"description": "job update failed", "error_number": 1000, "error": "Unexpected message received"},
        {
            "description": "Failed connecting to slurmdbd",
            "error_number": 7000,
            "error": "Unable to connect to database",
        },
        {"error_code": 5005, "error": "Zero Bytes were transmitted or received"},
    ],
)
def test_a_daemon_that_does_not_answer(error: dict[str, Any]) -> None:
    found = failure(500, error)
    assert found.transient
    assert not isinstance(found, Silent)


def test_a_controller_that_is_silent_or_rejects_the_token() -> None:
    said = {"description": "slurmctld config is unable to load", "error_number": -1, "error": "Unspecified error"}
    for error in (said, {"error": "Unspecified error", "errno": -1}):
        found = failure(500, error)
        assert isinstance(found, Silent)
        assert found.transient


def test_a_token_that_is_not_accepted() -> None:
    found = failure(200, {"error_number": 1007, "error": "Protocol authentication error", "source": "x"}, jobs=[])
    assert isinstance(found, Unauthorized)
    with pytest.raises(Unauthorized, match="Authentication failure") as caught:
        content(401, "Authentication failure", ASKED)
    assert not caught.value.transient


def test_a_page_that_is_not_there() -> None:
    with pytest.raises(NoSuchPage):
        content(404, "Unable find requested URL. Please view /openapi/v3 for API reference.", ASKED)
    later = {"error_number": 9100, "error": "Unable to find requested URL"}
    assert isinstance(failure(404, later), NoSuchPage)
    assert isinstance(failure(404, {"error_number": 2017, "error": "Invalid job id specified"}), Denied)


@pytest.mark.parametrize(("status", "transient"), [(502, True), (429, True), (503, True), (200, False), (400, False)])
def test_an_answer_that_is_not_slurmrestds(status: int, transient: bool) -> None:
    for text in ("<html>Bad Gateway</html>", "[]"):
        with pytest.raises(BackendError, match=f"HTTP {status}.*expected JSON from slurmrestd") as caught:
            content(status, text, ASKED)
        assert caught.value.transient is transient


def test_a_redirection_is_not_followed() -> None:
    with pytest.raises(BackendError, match="HTTP 302") as caught:
        content(302, "", ASKED)
    assert not caught.value.transient
