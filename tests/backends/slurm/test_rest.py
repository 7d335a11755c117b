"""The transport, on recorded answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from asa.backends.slurm.rest import ITEMS_AT_ONCE, Tokens
from asa.backends.slurm.rest import RestServer as Server
from asa.backends.slurm.rest import SlurmRest as Rest
from asa.backends.slurm.rest_parse import Denied, NoSuchPage
from asa.backends.slurm.words import SiteRefusal
from asa.core.errors import BackendError

RECORDED = Path(__file__).with_name("rest-22.05")


class Answering(Server):
    """A server that answers without being asked over a network."""

    def __init__(self, oldest: int = 38) -> None:
        super().__init__("http://localhost:1", Tokens("ada", None, {}, 1.0, lambda: 0.0))
        self.oldest = oldest
        self.asked: list[str] = []
        self.told: list[Any] = []
        self.replies: dict[str, Mapping[str, Any] | BackendError] = {
            "slurm ping": recorded("ping"),
            "slurm jobs": recorded("jobs"),
            "slurm job/113": recorded("jobs"),
            "slurm partitions": recorded("partitions"),
            "slurm nodes": recorded("nodes"),
            "slurm job/submit": {"job_id": 117},
            "slurmdb jobs": recorded("slurmdb-jobs"),
        }

    def ask(
        self,
        method: str,
        part: str,
        version: str,
        page: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        self.asked.append(f"{method} {part} {version} {page}")
        self.told.append(query or body)
        if version != f"v0.0.{self.oldest}":
            raise NoSuchPage("no such page")
        reply = self.replies.get(f"{part} {page}", {})
        if isinstance(reply, BackendError):
            raise reply
        return reply


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


def denied(number: int) -> Denied:
    return Denied("no", "it said no", frozenset({number}))


@pytest.fixture
def server() -> Answering:
    return Answering()


@pytest.fixture
def rest(server: Answering, tmp_path: Path) -> Rest:
    return Rest(server, "ada", 5.0, {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JWT": "a.b.c", "SLURM_JOB_ID": "3"})


def test_the_first_version_that_the_server_speaks(server: Answering, rest: Rest) -> None:
    server.oldest = 41
    assert rest.version() == (22, 5, 8)
    assert rest.name() == "slurmrestd at http://localhost:1, v0.0.41"
    assert server.asked == [f"GET slurm v0.0.{number} ping" for number in (38, 40, 41)]
    rest.queue(["113", "114"])
    assert server.asked[3:] == ["GET slurm v0.0.41 jobs"]


def test_a_server_that_is_too_old(server: Answering, rest: Rest) -> None:
    server.oldest = 37
    with pytest.raises(BackendError, match=r"speaks none of v0\.0\.38 to"):
        rest.queue(["113"])


def test_one_question_for_many_jobs(server: Answering, rest: Rest) -> None:
    found = rest.queue(["113", "115_2", "999"])
    assert [record.key for record in found] == ["113", "115_2"]
    assert server.asked[1:] == ["GET slurm v0.0.38 jobs"]


def test_a_single_job_is_asked_for_by_its_id(server: Answering, rest: Rest) -> None:
    assert [record.key for record in rest.queue(["113"])] == ["113"]
    assert server.asked[1:] == ["GET slurm v0.0.38 job/113"]
    server.replies["slurm job/115"] = denied(2017)
    assert rest.queue(["115_0", "115_2"]) == []


def test_nothing_is_asked_about_nothing(server: Answering, rest: Rest) -> None:
    assert rest.queue([]) == rest.queue_by_name([]) == rest.accounting([]) == rest.accounting_by_name([]) == []
    rest.cancel([])
    assert server.asked == []


def test_the_accounting_is_asked_in_portions(server: Answering, rest: Rest) -> None:
    rest.accounting([str(number) for number in range(ITEMS_AT_ONCE + 1)])
    rest.accounting_by_name(["a", "b"])
    steps = [told["step"] for told in server.told[1:3]]
    assert [len(step.split(",")) for step in steps] == [ITEMS_AT_ONCE, 1]
    assert server.told[3]["job_name"] == "a,b"


@pytest.mark.parametrize("reply", [denied(9003), NoSuchPage("no database here")])
def test_no_accounting(server: Answering, rest: Rest, reply: BackendError) -> None:
    server.replies["slurmdb jobs"] = reply
    assert rest.accounting(["113"]) == []


def test_an_accounting_that_is_away(server: Answering, rest: Rest) -> None:
    server.replies["slurmdb jobs"] = BackendError("Unable to connect to database", transient=True)
    with pytest.raises(BackendError, match="connect to database"):
        rest.accounting(["113"])


def test_an_accounting_that_says_no(server: Answering, rest: Rest) -> None:
    server.replies["slurmdb jobs"] = denied(2002)
    with pytest.raises(Denied, match="no"):
        rest.accounting(["113"])


def test_submitting(server: Answering, rest: Rest) -> None:
    assert rest.submit(["--job-name=token", "--ntasks=2"], "#!/bin/sh\ntrue\n") == "117"
    job = server.told[-1]["job"]
    assert (job["name"], job["tasks"]) == ("token", "2")
    environment = job["environment"]
    assert environment["SLURM_SUBMIT_DIR"] == str(Path.cwd())
    assert int(environment["SLURM_UMASK"], 8) <= 0o777
    assert not {"SLURM_JWT", "SLURM_JOB_ID"} & environment.keys()


def test_what_cannot_be_submitted_is_refused(server: Answering, rest: Rest) -> None:
    with pytest.raises(SiteRefusal, match="--contiguous cannot be given"):
        rest.submit(["--contiguous"], "#!/bin/sh\n")
    server.replies["slurm job/submit"] = {}
    with pytest.raises(BackendError, match="expected a job id"):
        rest.submit([], "#!/bin/sh\n")


def test_changing(server: Answering, rest: Rest) -> None:
    rest.update("113", ["TimeLimit=5"])
    assert (server.asked[-1], server.told[-1]) == ("POST slurm v0.0.38 job/113", {"time_limit": "5"})
    server.replies["slurm job/114"] = denied(2002)
    with pytest.raises(SiteRefusal):
        rest.update("114", ["TimeLimit=5"])


def test_cancelling_passes_over_jobs_that_are_gone(server: Answering, rest: Rest) -> None:
    server.replies |= {"slurm job/1": denied(2017), "slurm job/2": denied(2021)}
    rest.cancel(["1", "2", "3"])
    assert server.asked[1:] == [f"DELETE slurm v0.0.38 job/{number}" for number in (1, 2, 3)]
    server.replies["slurm job/4"] = denied(2002)
    with pytest.raises(SiteRefusal):
        rest.cancel(["4"])


def test_partitions_and_nodes(rest: Rest) -> None:
    assert [item["PartitionName"] for item in rest.partitions()] == ["main", "share"]
    assert {group.partition for group in rest.nodes("main,share")} == {"main", "share"}


class TestConfiguration:
    def scontrol(self, directory: Path, prints: str) -> None:
        program = directory / "scontrol"
        program.write_text(f"#!/bin/sh\nenv >{directory}/seen\n{prints}\n")
        program.chmod(0o700)

    def test_it_is_scontrols(self, rest: Rest, tmp_path: Path) -> None:
        self.scontrol(tmp_path, "echo 'ClusterName = asa'; echo 'SlurmctldHost[0] = login1(127.0.0.1)'")
        assert rest.configuration()["ClusterName"] == "asa"
        assert "SLURM_JWT" not in (tmp_path / "seen").read_text(), "with an old token scontrol would be turned away"

    def test_unless_it_speaks_to_another_controller(self, rest: Rest, tmp_path: Path) -> None:
        self.scontrol(tmp_path, "echo 'ClusterName = other'; echo 'SlurmctldHost[0] = login2'")
        with pytest.raises(SiteRefusal, match="scontrol speaks to another controller"):
            rest.configuration()

    def test_or_none(self, rest: Rest, tmp_path: Path) -> None:
        self.scontrol(tmp_path, "echo 'no configuration' >&2; exit 1")
        with pytest.raises(SiteRefusal, match="neither does scontrol"):
            rest.configuration()


def test_everybodys_jobs_in_some_partitions(server: Answering, rest: Rest) -> None:
    assert {job.key for job in rest.everyone(["main", "other"])} == {"113", "114", "115_0", "115_2", "116"}
    assert rest.everyone(["other"]) == []
    assert server.asked.count("GET slurm v0.0.38 jobs") == 2
