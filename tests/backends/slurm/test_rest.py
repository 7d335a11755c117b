"""slurmrestd: the transport over a server that only looks like it, tokens, jobs as it writes them, its answers."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from asa.backends.slurm import commands, rest_parse, words
from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.rest import ITEMS_AT_ONCE, RestServer, SlurmRest, Tokens, expiry, own_name
from asa.backends.slurm.rest_job import PROPERTIES, changes, read, submission
from asa.backends.slurm.rest_parse import Denied, NoSuchPage, Silent, Unauthorized, content
from asa.backends.slurm.words import (
    JobRecord,
    NodeGroup,
    SiteRefusal,
    SlurmOptions,
    VisibleJob,
    job_script,
    local_time,
    sbatch_options,
    scontrol_settings,
)
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput, StateError
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobRequest, JobState, Resources
from asa.security.ca import create, driver_context
from asa.security.files import write_private

RECORDED = Path(__file__).parent


class Answering(RestServer):
    """A server that answers without being asked over a network, and speaks some versions of the interface.

    Its answers were recorded: of 22.05 for version 38, and of 26.05 for later ones.
    """

    def __init__(self, *speaks: int) -> None:
        super().__init__("http://localhost:1", Tokens("ada", None, {}, 1.0, lambda: 0.0))
        self.speaks = speaks or (38,)
        self.asked: list[str] = []
        self.sent: list[Any] = []
        slurm = "22.05" if max(self.speaks) < 40 else "26.05"
        self.replies: dict[str, Mapping[str, Any] | BackendError] = {
            "slurm ping": recorded("ping", slurm),
            "slurm jobs": recorded("jobs", slurm),
            "slurm job/113": recorded("jobs", slurm),
            "slurm partitions": recorded("partitions", slurm),
            "slurm nodes": recorded("nodes", slurm),
            "slurm job/submit": {"job_id": 117},
            "slurmdb jobs": recorded("slurmdb-jobs", slurm),
        }

    def ask(
        self,
        method: str,
        part: str,
        version: str,
        page: str,
        *,
        query: Mapping[str, Sequence[str]] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        self.asked.append(f"{method} {part} {version} {page}")
        self.sent.append(query or body)
        number = int(version.removeprefix("v0.0."))
        if number not in self.speaks:
            raise NoSuchPage("no such page")
        for name, values in (query or {}).items():
            if number < 40 and len(values) > 1:
                raise AssertionError(f"22.05 takes the last of repeated parameters, {name}")
            if number >= 40 and name in ("step", "state") and any("," in value for value in values):
                raise Denied(f"Unknown flag {values}", "it said no", frozenset({9207 if name == "state" else 9000}))
        reply = self.replies.get(f"{part} {page}", {})
        if isinstance(reply, BackendError):
            raise reply
        return reply


def recorded(name: str, slurm: str = "22.05") -> Any:
    return json.loads((RECORDED / f"rest-{slurm}" / f"{name}.json").read_text())


def denied(number: int) -> Denied:
    return Denied("no", "it said no", frozenset({number}))


@pytest.fixture
def server() -> Answering:
    return Answering()


@pytest.fixture
def rest(server: Answering, tmp_path: Path) -> SlurmRest:
    return SlurmRest(
        server, "ada", 5.0, {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JWT": "a.b.c", "SLURM_JOB_ID": "3"}
    )


@pytest.fixture
def newer() -> Answering:
    return Answering(42, 43, 44, 45)


@pytest.fixture
def later(newer: Answering, tmp_path: Path) -> SlurmRest:
    """Slurm 26.05's."""
    return SlurmRest(newer, "ada", 5.0, {"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("speaks", "spoken"),
    [
        ((36, 37, 38), 38),  # 22.05
        ((37, 38, 39), 38),
        ((39, 40, 41), 41),
        ((40, 41, 42), 42),  # 24.11
        ((42, 43, 44, 45), 45),  # 26.05
        ((43, 44, 45, 46), 45),
        ((46, 47), 46),
    ],
)
def test_the_newest_version_that_both_know_is_spoken(
    server: Answering, rest: SlurmRest, speaks: tuple[int, ...], spoken: int
) -> None:
    server.speaks = speaks
    assert rest.version() == (22, 5, 8)
    assert rest.name() == f"slurmrestd at http://localhost:1, v0.0.{spoken}"
    tried = len(server.asked)
    rest.queue(["113", "114"])
    assert server.asked[tried:] == [f"GET slurm v0.0.{spoken} jobs"]


def test_a_server_that_is_too_old(server: Answering, rest: SlurmRest) -> None:
    server.speaks = (37,)
    with pytest.raises(BackendError, match=r"speaks none of v0\.0\.38 to"):
        rest.queue(["113"])


def test_one_question_for_many_jobs(server: Answering, rest: SlurmRest) -> None:
    found = rest.queue(["113", "115_2", "999"])
    assert [record.key for record in found] == ["113", "115_2"]
    assert of_jobs(server) == ["GET slurm v0.0.38 jobs"]


def test_a_single_job_is_asked_for_by_its_id(server: Answering, rest: SlurmRest) -> None:
    assert [record.key for record in rest.queue(["113"])] == ["113"]
    assert of_jobs(server) == ["GET slurm v0.0.38 job/113"]
    server.replies["slurm job/115"] = denied(2017)
    assert rest.queue(["115_0", "115_2"]) == []


def of_jobs(server: Answering) -> list[str]:
    """What was asked, besides which versions it speaks."""
    return [question for question in server.asked if not question.endswith(" ping")]


def test_nothing_is_asked_about_nothing(server: Answering, rest: SlurmRest) -> None:
    assert rest.queue([]) == rest.queue_by_name([]) == rest.accounting([]) == rest.accounting_by_name([]) == []
    rest.cancel([])
    assert server.asked == []


def test_the_accounting_is_asked_in_portions(server: Answering, rest: SlurmRest) -> None:
    rest.accounting([str(number) for number in range(ITEMS_AT_ONCE + 1)])
    rest.accounting_by_name(["a", "b"])
    steps = [sent["step"] for sent in server.sent[-3:-1]]
    assert [len(step.split(",")) for (step,) in steps] == [ITEMS_AT_ONCE, 1]
    assert server.sent[-1]["job_name"] == ["a,b"] and server.sent[-1]["state"] == [commands.ANY_STATE]


@pytest.mark.parametrize("spoken", [40, 42, 45])
def test_the_accounting_of_later_versions_takes_repeated_parameters(
    newer: Answering, later: SlurmRest, spoken: int
) -> None:
    newer.speaks = (spoken,)
    assert [record.key for record in later.accounting(["1", "2"])] == ["1", "2", "7"]
    assert newer.sent[-1] == {"step": ["1", "2"]}
    names = {record.name: words.state_of(record) for record in later.accounting_by_name(["done", "cancelled"])}
    assert (names["done"], names["cancelled"]) == (JobState.COMPLETED, JobState.CANCELLED)
    assert newer.sent[-1]["job_name"] == ["done,cancelled"] and "CANCELLED" in newer.sent[-1]["state"]


def test_a_driver_that_died_finds_its_jobs_with_later_versions(later: SlurmRest) -> None:
    found = Slurm(transport=later, clock=ManualClock(0.0)).find(["runs", "done", "stubborn", "nobody"])
    assert {token: handle.job_id for token, handle in found.items()} == {"runs": "4", "done": "1", "stubborn": "8"}


def test_a_job_that_is_completing_still_runs_in_later_versions(later: SlurmRest) -> None:
    slurm = Slurm(transport=later, clock=ManualClock(0.0))
    handles = slurm.find(["stubborn", "done", "sig"])
    states = dict(zip(handles, slurm.query(list(handles.values())), strict=True))
    assert {token: (status.state, status.exit_code) for token, status in states.items()} == {
        "stubborn": (JobState.RUNNING, None), "done": (JobState.COMPLETED, 0), "sig": (JobState.FAILED, 137),
    }  # fmt: skip
    assert states["stubborn"].ended is None, "processes of it are still alive"


@pytest.mark.parametrize(
    ("reply", "fails"),
    [
        (denied(9003), False),
        (NoSuchPage("no database here"), False),
        (denied(2002), True),
        (BackendError("Unable to connect to database", transient=True), True),
    ],
)
def test_where_there_is_no_accounting_no_job_is_known(
    server: Answering, rest: SlurmRest, reply: BackendError, fails: bool
) -> None:
    server.replies["slurmdb jobs"] = reply
    if not fails:
        assert rest.accounting(["113"]) == []
        return
    with pytest.raises(BackendError) as caught:
        rest.accounting(["113"])
    assert caught.value is reply


def test_submitting(server: Answering, rest: SlurmRest) -> None:
    assert rest.submit(["--job-name=token", "--ntasks=2"], "#!/bin/sh\ntrue\n") == "117"
    job = server.sent[-1]["job"]
    assert (job["name"], job["tasks"]) == ("token", "2")
    environment = job["environment"]
    assert environment["SLURM_SUBMIT_DIR"] == str(Path.cwd())
    assert int(environment["SLURM_UMASK"], 8) <= 0o777
    assert not {"SLURM_JWT", "SLURM_JOB_ID"} & environment.keys()


def test_a_submission_that_slurmrestd_cannot_take_is_refused(server: Answering, rest: SlurmRest) -> None:
    with pytest.raises(SiteRefusal, match="--contiguous cannot be given"):
        rest.submit(["--contiguous"], "#!/bin/sh\n")
    server.replies["slurm job/submit"] = {}
    with pytest.raises(BackendError, match="expected a job id"):
        rest.submit([], "#!/bin/sh\n")


def test_changing(server: Answering, rest: SlurmRest) -> None:
    rest.update("113", ["TimeLimit=5"])
    assert (server.asked[-1], server.sent[-1]) == ("POST slurm v0.0.38 job/113", {"time_limit": "5"})
    server.replies["slurm job/114"] = denied(2002)
    with pytest.raises(SiteRefusal):
        rest.update("114", ["TimeLimit=5"])


def test_cancelling_a_job_that_is_gone_in_later_versions(newer: Answering, later: SlurmRest) -> None:
    newer.replies |= {"slurm job/1": denied(2017), "slurm job/2": Denied("no", "no", frozenset({2021, 2002}))}
    later.cancel(["1"])
    with pytest.raises(SiteRefusal):  # an element had ended, another was not this user's
        later.cancel(["2"])


def test_cancelling_passes_over_jobs_that_are_gone(server: Answering, rest: SlurmRest) -> None:
    server.replies |= {"slurm job/1": denied(2017), "slurm job/2": denied(2021)}
    rest.cancel(["1", "2", "3"])
    assert of_jobs(server) == [f"DELETE slurm v0.0.38 job/{number}" for number in (1, 2, 3)]
    server.replies["slurm job/4"] = denied(2002)
    with pytest.raises(SiteRefusal):
        rest.cancel(["4"])


def test_partitions_and_nodes(rest: SlurmRest, later: SlurmRest) -> None:
    for some in (rest, later):
        found = [(item["PartitionName"], item["Default"]) for item in some.partitions()]
        assert found == [("main", "YES"), ("share", "NO")]
        assert {group.partition for group in some.nodes("main,share")} == {"main", "share"}


@pytest.mark.parametrize("installed", [False, True])
def test_the_default_partition_where_slurmrestd_does_not_say(
    newer: Answering, later: SlurmRest, tmp_path: Path, installed: bool
) -> None:
    newer.speaks = (42,)
    whole = recorded("partitions", "26.05")["partitions"]
    newer.replies["slurm partitions"] = {"partitions": [item | {"flags": []} for item in whole]}
    if installed:
        shown = "PartitionName=main Default=NO; echo PartitionName=share Default=YES"
        program = tmp_path / "scontrol"
        program.write_text(f"#!/bin/sh\ncase $* in *config*) echo SlurmctldHost = login1;; *) echo {shown};; esac\n")
        program.chmod(0o700)
    assert [item["Default"] for item in later.partitions()] == ["NO", "YES" if installed else "NO"]
    if not installed:
        with pytest.raises(
            SiteRefusal, match=r"names no default partition: choose one of main, share, with partition="
        ):
            Slurm(transport=later).capabilities()


class TestConfiguration:
    def scontrol(self, directory: Path, prints: str) -> None:
        program = directory / "scontrol"
        program.write_text(f"#!/bin/sh\nenv >{directory}/seen\n{prints}\n")
        program.chmod(0o700)

    def test_configuration_is_that_of_scontrol(self, rest: SlurmRest, tmp_path: Path) -> None:
        self.scontrol(tmp_path, "echo 'ClusterName = asa'; echo 'SlurmctldHost[0] = login1(127.0.0.1)'")
        assert rest.configuration()["ClusterName"] == "asa"
        assert "SLURM_JWT" not in (tmp_path / "seen").read_text(), "with an old token scontrol would be turned away"

    def test_scontrol_of_another_controller_is_not_used(self, rest: SlurmRest, tmp_path: Path) -> None:
        self.scontrol(tmp_path, "echo 'ClusterName = other'; echo 'SlurmctldHost[0] = login2'")
        with pytest.raises(SiteRefusal, match="scontrol speaks to another controller"):
            rest.configuration()

    def test_no_configuration_without_scontrol(self, rest: SlurmRest, tmp_path: Path) -> None:
        self.scontrol(tmp_path, "echo 'no configuration' >&2; exit 1")
        with pytest.raises(SiteRefusal, match="neither does scontrol"):
            rest.configuration()


def test_everybodys_jobs_in_some_partitions(server: Answering, rest: SlurmRest) -> None:
    assert {job.key for job in rest.visible_jobs(["main", "other"])} == {"113", "114", "115_0", "115_2", "116"}
    assert rest.visible_jobs(["other"]) == []
    assert server.asked.count("GET slurm v0.0.38 jobs") == 2


SILENT = {"errors": [{"error": "Unspecified error", "error_number": -1}]}
WRONG = {"errors": [{"error": "Protocol authentication error", "error_number": 1007}]}
FINE: dict[str, Any] = {"errors": [], "jobs": []}

Reply = Callable[[BaseHTTPRequestHandler], tuple[int, bytes]]


class Pretender:
    """Answers with what `reply` says, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None, str | None]] = []
        self.bodies: list[Any] = []
        self.token = "good.good.good"
        self.reply: Reply = self._as_slurmrestd

    def _as_slurmrestd(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        given = request.headers.get("X-SLURM-USER-TOKEN")
        if given is None:
            return 401, b"Authentication failure"
        if given != self.token:
            database = request.path.startswith("/slurmdb/")
            return (200, json.dumps(WRONG).encode()) if database else (500, json.dumps(SILENT).encode())
        return 200, json.dumps(FINE).encode()


@contextmanager
def serving(pretender: Pretender, path: Path | None = None) -> Iterator[str]:
    """The address of a server; on a Unix socket if a path is given."""

    class Handler(BaseHTTPRequestHandler):
        def address_string(self) -> str:
            return "client"

        def log_message(self, *_: object) -> None:
            pass

        def handle_one(self) -> None:
            headers = self.headers.get("X-SLURM-USER-NAME"), self.headers.get("X-SLURM-USER-TOKEN")
            pretender.asked.append((self.command, self.path, *headers))
            if length := int(self.headers.get("Content-Length") or 0):
                pretender.bodies.append(json.loads(self.rfile.read(length)))
            status, body = pretender.reply(self)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            self.wfile.write(body)

    for method in ("GET", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.handle_one)

    class Tcp(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close = True, False

    class Unix(socketserver.ThreadingUnixStreamServer):
        daemon_threads, block_on_close = True, False

    server = Tcp(("127.0.0.1", 0), Handler) if path is None else Unix(str(path), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}" if path is None else str(path)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def pretender() -> Pretender:
    return Pretender()


@pytest.fixture
def address(pretender: Pretender) -> Iterator[str]:
    with serving(pretender) as found:
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    write_private(path, b"good.good.good")
    return path


def tokens(file: Path | None) -> Tokens:
    return Tokens("ada", file, {"PATH": "/nowhere"}, 5.0, time.time)


def jobs(server: RestServer) -> Any:
    return server.ask("GET", "slurm", "v0.0.38", "jobs")


def test_over_the_network_with_a_token(pretender: Pretender, address: str, file: Path) -> None:
    assert jobs(RestServer(address, tokens(file))) == FINE
    assert pretender.asked == [("GET", "/slurm/v0.0.38/jobs", "ada", "good.good.good")]


def test_below_a_path(pretender: Pretender, address: str, file: Path) -> None:
    jobs(RestServer(f"{address}/site/", tokens(file)))
    assert pretender.asked[0][1] == "/site/slurm/v0.0.38/jobs"


def test_queries_and_bodies(pretender: Pretender, address: str, file: Path) -> None:
    server = RestServer(address, tokens(file))
    server.ask("GET", "slurmdb", "v0.0.38", "jobs", query={"step": ["1,2_3"], "state": ["FAILED", "TIMEOUT"]})
    server.ask("POST", "slurm", "v0.0.38", "job/submit", body={"script": "grün"})
    server.ask("DELETE", "slurm", "v0.0.38", "job/7")
    assert [asked[:2] for asked in pretender.asked] == [
        ("GET", "/slurmdb/v0.0.38/jobs?step=1%2C2_3&state=FAILED&state=TIMEOUT"),
        ("POST", "/slurm/v0.0.38/job/submit"),
        ("DELETE", "/slurm/v0.0.38/job/7"),
    ]
    assert pretender.bodies == [{"script": "grün"}], "slurmrestd takes no body with other methods"


def test_over_a_socket_without_a_token(pretender: Pretender, tmp_path: Path) -> None:
    pretender.reply = lambda request: (200, json.dumps(FINE).encode())
    with serving(pretender, tmp_path / "socket") as address:
        for form in (address, f"unix:{address}"):
            assert jobs(RestServer(form, tokens(None))) == FINE
    assert pretender.asked == [("GET", "/slurm/v0.0.38/jobs", None, None)] * 2


def test_over_a_socket_a_token_is_sent_when_it_is_wanted(pretender: Pretender, file: Path, tmp_path: Path) -> None:
    with serving(pretender, tmp_path / "socket") as address:
        server = RestServer(address, tokens(file))
        assert jobs(server) == FINE
        assert jobs(server) == FINE
        assert [asked[3] for asked in pretender.asked] == [None, "good.good.good", "good.good.good"]
        pretender.asked.clear()
        jobs(RestServer(address, tokens(file), always=True))
    assert [asked[3] for asked in pretender.asked] == ["good.good.good"]


def test_a_replaced_token_is_used_without_a_word(pretender: Pretender, address: str, file: Path) -> None:
    server = RestServer(address, tokens(file))
    jobs(server)
    pretender.token = "new.new.new"
    write_private(file, b"new.new.new")
    assert jobs(server) == FINE


def test_every_request_is_logged_and_never_a_token(
    pretender: Pretender, address: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "asa.backends")
    server = RestServer(address, tokens(file))
    jobs(server)
    pretender.token = "new.new.new"
    write_private(file, b"new.new.new")
    jobs(server)
    pretender.reply = lambda _request: (503, b"busy")
    with pytest.raises(BackendError):
        jobs(server)
    lines = [f"{record.levelname} {record.getMessage()}" for record in caplog.records if "asa." in record.name]
    asked = rf"GET /slurm/v0\.0\.38/jobs at {re.escape(address)}"
    expected = [
        rf"INFO {asked}: HTTP 200 after \d+\.\d\d s",
        rf"INFO {asked}: HTTP 500 after .* s",
        rf"WARNING {asked}: .*\(transient, after .* s\)",
        r"INFO GET /slurmdb/v0\.0\.38/tres at .*: HTTP 200 after .* s",
        r"WARNING GET /slurmdb/v0\.0\.38/tres at .*\(not transient, after .* s\)",
        r"INFO GET /slurm/v0\.0\.38/jobs: asked once more with another token",
        rf"INFO {asked}: HTTP 200 after .* s",
        rf"INFO {asked}: HTTP 503 after .* s",
        rf"WARNING {asked}: .*\(transient, after .* s\)",
    ]
    assert len(lines) == len(expected) and all(map(re.fullmatch, expected, lines)), lines
    assert "good.good" not in caplog.text and "new.new" not in caplog.text


def test_a_token_that_is_not_accepted(pretender: Pretender, address: str, file: Path) -> None:
    server = RestServer(address, tokens(file))
    pretender.token = "other.other.other"
    with pytest.raises(Unauthorized, match="token of user ada is not accepted") as caught:
        jobs(server)
    assert not caught.value.transient, "it never was: a user has to act first"
    assert "good.good" not in str(caught.value)
    pretender.token = "good.good.good"
    jobs(server)
    pretender.token = "other.other.other"
    with pytest.raises(Unauthorized) as caught:
        jobs(server)
    assert caught.value.transient, "it has expired, and a new one may come"


def test_a_token_that_has_expired_before_the_first_call(pretender: Pretender, address: str, file: Path) -> None:
    def as_26_05(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        if request.path.endswith("/ping"):  # answered whoever asks
            return 200, json.dumps(recorded("ping", "26.05")).encode()
        refused = {
            "description": "Unable to query jobs",
            "error_number": 1007,
            "error": "Protocol authentication error",
        }
        return 511, json.dumps({"jobs": [], "errors": [refused]}).encode()

    pretender.reply = as_26_05
    write_private(file, token(time.time() - 60).encode())
    rest = SlurmRest(RestServer(address, tokens(file)), "ada", 5.0, {"PATH": "/nowhere"})
    assert rest.version() == (26, 5, 5)
    with pytest.raises(Unauthorized, match=r"Protocol authentication error[^{]*rest_token=FILE") as caught:
        rest.partitions()
    assert not caught.value.transient, "none was ever accepted"
    assert re.search(
        r"not accepted \(it expired at \d{4}-\d\d-\d\d .*\): write what `scontrol token`", str(caught.value)
    )


@pytest.mark.parametrize("database", [True, False])
def test_a_controller_that_is_silent(pretender: Pretender, address: str, file: Path, database: bool) -> None:
    def silent(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        fine = database and request.path.startswith("/slurmdb/")
        return (200, json.dumps(FINE).encode()) if fine else (500, json.dumps(SILENT).encode())

    pretender.reply = silent
    with pytest.raises(Silent, match=r"slurm/v0\.0\.38/jobs.*Unspecified error") as caught:
        jobs(RestServer(address, tokens(file)))
    assert caught.value.transient and not isinstance(caught.value, Unauthorized)
    assert [asked[1] for asked in pretender.asked] == ["/slurm/v0.0.38/jobs", "/slurmdb/v0.0.38/tres"]


def test_a_server_whose_certificate_is_not_trusted(pretender: Pretender, file: Path, tmp_path: Path) -> None:
    create(tmp_path / "tls", "run")

    def shake_hands() -> None:
        with contextlib.suppress(OSError):
            server.accept()

    with driver_context(tmp_path / "tls").wrap_socket(
        socket.create_server(("127.0.0.1", 0)), server_side=True
    ) as server:
        server.settimeout(10)
        thread = threading.Thread(target=shake_hands, daemon=True)
        thread.start()
        with pytest.raises(BackendError, match=r"is REQUESTS_CA_BUNDLE set to the site's CA\?") as caught:
            jobs(RestServer(f"https://127.0.0.1:{server.getsockname()[1]}", tokens(file)))
        thread.join(10)
    assert not caught.value.transient
    assert "good.good.good" not in str(caught.value)


def test_a_refused_connection_is_transient(tmp_path: Path, file: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = RestServer(f"http://127.0.0.1:{unused.getsockname()[1]}", tokens(file))
        with pytest.raises(BackendError, match=r"jobs at http.*: Connection refused") as caught:
            jobs(server)
    assert caught.value.transient
    with socket.socket(socket.AF_UNIX) as unused:
        unused.bind(str(tmp_path / "socket"))
        server = RestServer(str(tmp_path / "socket"), tokens(None))
        with pytest.raises(BackendError, match="socket: Connection refused") as caught:
            jobs(server)
    assert caught.value.transient


def test_a_connection_that_is_cut(pretender: Pretender, file: Path) -> None:
    def cut(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        request.connection.shutdown(socket.SHUT_RDWR)
        return 200, b""

    pretender.reply = cut
    with serving(pretender) as address, pytest.raises(BackendError) as caught:
        jobs(RestServer(address, tokens(file)))
    assert caught.value.transient


@pytest.mark.parametrize("kind", ["network", "socket"])
def test_no_answer_in_time(pretender: Pretender, file: Path, tmp_path: Path, kind: str) -> None:
    over = threading.Event()

    def late(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        over.wait(30)
        return 200, b"{}"

    pretender.reply = late
    with serving(pretender, tmp_path / "socket" if kind == "socket" else None) as address:
        with pytest.raises(BackendError, match=r"no answer within 0\.2 s") as caught:
            jobs(RestServer(address, tokens(file), timeout_s=0.2))
        over.set()
    assert caught.value.transient


def test_an_answer_in_drops_is_given_up_too(pretender: Pretender, address: str, file: Path) -> None:
    over = threading.Event()

    def drops(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        request.send_response(200)
        request.end_headers()
        while not over.wait(0.05):
            request.wfile.write(b" " * 2**16)
        return 200, b""

    pretender.reply = drops
    with pytest.raises(BackendError, match=r"no answer within 0\.3 s"):
        jobs(RestServer(address, tokens(file), timeout_s=0.3))
    over.set()


def test_neither_proxies_nor_redirections_get_the_token(
    pretender: Pretender, address: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert jobs(RestServer(address, tokens(file))) == FINE
    pretender.reply = lambda request: (302, b"")
    with pytest.raises(BackendError, match="HTTP 302"):
        jobs(RestServer(address, tokens(file)))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://example.org:6820", "unencrypted to another machine: use https"),
        ("http://192.0.2.1:6820", "rest_unencrypted=True"),
        ("localhost:6820", "expected /path/to/socket"),
        ("ftp://localhost", "expected /path/to/socket"),
        ("http://", "expected /path/to/socket"),
        ("http://localhost:many", "expected /path/to/socket"),
        ("http://ada:secret@localhost:1", "expected /path/to/socket"),
        ("", "expected /path/to/socket"),
        ("/nowhere/socket", "no socket there: No such file"),
        ("/", "is no socket"),
    ],
)
def test_addresses_that_cannot_be_used(address: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        RestServer(address, tokens(None))


@pytest.mark.parametrize(
    ("address", "unencrypted"),
    [
        *((a, False) for a in ("http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1", "https://slurm.org/rest")),
        ("http://192.0.2.1:6820", True),
    ],
)
def test_addresses_that_can_be_used(address: str, unencrypted: bool) -> None:
    assert RestServer(address, tokens(None), unencrypted=unencrypted).name == address


NOW = 1000.0


def token(end: float | None, name: str = "a") -> str:
    claims = {"sun": name} if end is None else {"sun": name, "exp": end}
    return f"head.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sign"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def scontrol(programs: Path, prints: str) -> dict[str, str]:
    """An environment in which scontrol prints this, and notes how it was called."""
    program = programs / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$*" >>{programs}/calls\nenv >{programs}/seen\n{prints}\n')
    program.chmod(0o700)
    return {"PATH": f"{programs}:/usr/bin:/bin"}


def renewable(environment: dict[str, str], file: Path | None = None, user: str = "") -> tuple[Tokens, ManualClock]:
    clock = ManualClock(NOW)
    return Tokens(user or own_name(), file, environment, 5.0, clock.now), clock


@pytest.mark.parametrize("text", ["x.y.z", "a.b", "a.bm90IGpzb24.c", token(None)])
def test_a_token_may_not_tell_its_end(text: str) -> None:
    assert expiry(text) is None


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_private(file, f"SLURM_JWT={token(NOW + 3600)}\n".encode())
    found, clock = renewable({"PATH": "/nowhere", "SLURM_JWT": "not.this.one"}, file)
    assert found.current() == token(NOW + 3600)
    assert not found.renew()
    write_private(file, token(NOW + 7200).encode())
    assert found.current() == token(NOW + 3600), "it is read again when there is a reason"
    assert found.renew()
    assert found.current() == token(NOW + 7200)
    write_private(file, token(NOW + 10_000).encode())
    clock.wait(threading.Event(), NOW + 7190)
    assert found.current() == token(NOW + 10_000), "near its end a token is replaced"
    file.unlink()
    clock.wait(threading.Event(), NOW + 9990)
    assert found.current() == token(NOW + 10_000) and not found.renew(), "when the file vanishes the old one stays"


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(StateError, match="cannot look at"):
        renewable({}, file)
    write_private(file, b"what is this?")
    with pytest.raises(InvalidInput, match="holds no token") as caught:
        renewable({}, file)
    assert "what is this" not in str(caught.value)
    file.chmod(0o644)
    with pytest.raises(StateError, match="open to other users"):
        renewable({}, file)
    (tmp_path / "directory").mkdir(mode=0o700)
    with pytest.raises(StateError, match="directory is no file"):
        renewable({}, tmp_path / "directory")


def test_an_account_without_a_name_goes_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container."""
    monkeypatch.setattr(os, "geteuid", lambda: 987_654_321)
    assert own_name() == "987654321"


def test_the_variable_and_then_scontrol(programs: Path) -> None:
    environment = scontrol(programs, f"echo SLURM_JWT={token(NOW + 3600, 'new')}")
    found, clock = renewable(environment | {"SLURM_JWT": token(NOW + 60)})
    assert found.current() == token(NOW + 60)
    assert not (programs / "calls").exists()
    clock.wait(threading.Event(), NOW + 50)
    assert found.current() == token(NOW + 3600, "new")
    other, _ = renewable(environment, user="ada")
    assert other.current() == token(NOW + 3600, "new")
    assert (programs / "calls").read_text() == "token lifespan=3600\ntoken lifespan=3600 username=ada\n"
    assert "SLURM_JWT" not in (programs / "seen").read_text()


def test_none_to_be_had(programs: Path) -> None:
    found, _ = renewable(scontrol(programs, "echo 'auth/jwt is not configured' >&2; exit 1"))
    with pytest.raises(BackendError, match="rest_token=FILE, or set SLURM_JWT") as caught:
        found.current()
    assert "auth/jwt is not configured" in str(caught.value)
    assert not found.renew()


def test_a_variable_that_is_no_token() -> None:
    found, _ = renewable({"SLURM_JWT": "secret"})
    with pytest.raises(InvalidInput, match=r"\$SLURM_JWT holds no token") as caught:
        found.current()
    assert "secret" not in str(caught.value)


# Jobs in slurmrestd's words.


BEGIN = 1800000000.0
PARENT = JobHandle("7", "parent", 0.0)
REQUEST = JobRequest(
    "token",
    Resources(8, nodes=2, memory=2**30, gpus=2),
    5400.0,
    ("true",),
    workdir="/data",
    output="/data/out%1",
    dependencies=(Dependency(PARENT, DependencyKind.AFTER_OK),),
    begin=BEGIN,
)


def job(version: int, *options: str, script: str = "#!/bin/sh\ntrue\n", **inherited: str) -> dict[str, object]:
    posted = submission(options, script, inherited, version)
    assert posted["script"] == script
    found = posted["job"]
    assert isinstance(found, dict)
    return found


def test_a_whole_request_in_the_words_of_22_05() -> None:
    options = SlurmOptions({"partition": "core", "nice": 10, "exclusive": True})
    posted = submission(sbatch_options(REQUEST, options), job_script(REQUEST, options), {"A": "1"}, 38)
    assert posted["job"] == {
        "name": "token", "tasks": "8", "nodes": "2", "tasks_per_node": "4", "memory_per_node": "512M", "gres": "gpu:1",
        "time_limit": "90", "current_working_directory": "/data", "standard_output": "/data/out%%1",
        "open_mode": "append", "no_requeue": True, "dependency": "afterok:7", "kill_on_invalid_dependency": "yes",
        "begin_time": f"uts{BEGIN:.0f}", "partition": "core", "nice": "10", "exclusive": "exclusive",
        "environment": {"A": "1"},
    }  # fmt: skip


def test_a_whole_request_with_typed_values() -> None:
    options = SlurmOptions({"partition": "core", "nice": 10, "exclusive": True})
    posted = submission(sbatch_options(REQUEST, options), job_script(REQUEST, options), {"A": "1"}, 40)
    assert posted["job"] == {
        "name": "token", "tasks": 8, "minimum_cpus": 8, "nodes": "2", "tasks_per_node": 4,
        "memory_per_node": {"set": True, "infinite": False, "number": 512}, "tres_per_node": "gres/gpu:1",
        "time_limit": {"set": True, "infinite": False, "number": 90}, "current_working_directory": "/data",
        "standard_output": "/data/out%%1", "open_mode": ["APPEND"], "requeue": False, "dependency": "afterok:7",
        "flags": ["KILL_INVALID_DEPENDENCY"], "begin_time": {"set": True, "infinite": False, "number": int(BEGIN)},
        "partition": "core", "nice": 10, "shared": ["none"], "environment": ["A=1"],
    }  # fmt: skip


def test_lines_of_the_script_count_and_options_win() -> None:
    script = (
        "#!/bin/bash -l\n\n# words\n#SBATCH --nice=5 -C 'big node'\n#SBATCH -p core  # why\n#SBATCHX --qos=no\n"
        "echo hello\n#SBATCH --qos=late\n"
    )
    found = job(38, "--nice=10", script=script)
    assert (found["nice"], found["constraints"], found["partition"]) == ("10", "big node", "core")
    assert "qos" not in found


def test_a_relative_directory_is_this_process_s() -> None:
    assert job(38, "--chdir=data")["current_working_directory"] == str(Path.cwd() / "data")


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        ("ALL", {"A": "1", "B": "2"}),
        ("ALL,C=3", {"A": "1", "B": "2", "C": "3"}),
        ("A", {"A": "1", "SLURM_GET_USER_ENV": "1"}),
        ("NONE", {"SLURM_GET_USER_ENV": "1", "SLURM_EXPORT_ENV": "NONE"}),
    ],
)
def test_the_environment(export: str, expected: dict[str, str]) -> None:
    found = job(38, f"--export={export}", A="1", B="2")
    assert found["environment"] == expected
    assert "export" not in found


def test_options_without_their_value() -> None:
    assert read(["--nice", "--exclusive", "-k", "--exclusive=user", "-s"]) == {
        "nice": "100", "exclusive": "user", "no-kill": "set", "oversubscribe": "",
    }  # fmt: skip


def test_several_generic_resources_share_a_property() -> None:
    assert job(40, "--gres=nvme:1,gpu:2", "--gpus-per-node=1")["tres_per_node"] == "gres/nvme:1,gres/gpu:2,gres/gpu:1"


@pytest.mark.parametrize(
    ("version", "option", "words"),
    [
        *((38, option, "not known to slurmrestd") for option in ("--no-such-flag", "-Z", "--nosuch=3", "word")),
        (38, "--contiguous", r"--contiguous cannot be given through slurmrestd v0\.0\.38: leave out"),
        (40, "--array=0-3", r"--array cannot be given through slurmrestd v0\.0\.40"),
        (40, "--signal=USR1@60", r"--signal cannot be given through slurmrestd v0\.0\.40"),
        *((40, option, "expected a plain number") for option in ("--mem=lots", "--time-min=1:30:00", "--nice=x")),
    ],
)
def test_an_option_that_a_version_cannot_express_is_refused(version: int, option: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        job(version, option)
    assert job(40, "--contiguous")["contiguous"] is True


@pytest.mark.parametrize(("text", "mib"), [("2G", 2048), ("512", 512), ("512M", 512), ("2048K", 2), ("1T", 2**20)])
def test_memory(text: str, mib: int) -> None:
    assert job(40, f"--mem={text}")["memory_per_node"] == {"set": True, "infinite": False, "number": mib}


def test_no_two_options_have_one_letter() -> None:
    letters = [known.letter for known in PROPERTIES.values() if known.letter]
    assert len(letters) == len(set(letters))


def test_changes_of_22_05() -> None:
    after = (Dependency(PARENT, DependencyKind.AFTER),)
    size = Resources(8, nodes=2, memory=2**30)
    wanted = JobChanges(resources=size, walltime_s=600.0, dependencies=after, begin=BEGIN)
    assert changes(scontrol_settings(wanted, 0.0), 38) == {
        "tasks": "8", "cpus_per_task": 1, "nodes": "2-2", "tasks_per_node": "4", "minimum_cpus_per_node": "4",
        "memory_per_node": "512", "time_limit": "10", "dependency": "after:7", "begin_time": f"uts{BEGIN:.0f}",
    }  # fmt: skip
    assert changes(scontrol_settings(JobChanges(dependencies=(), begin=0.0), 1.0), 38) == {
        "dependency": "",
        "begin_time": "now",
    }


def test_changes_that_only_commands_can_make() -> None:
    assert changes(["ExcNodeList=n[1-4]"], 38) == {"exclude_nodes": "n[1-4]"}
    with pytest.raises(InvalidInput, match="JobName of a job cannot be changed through slurmrestd: leave out rest"):
        changes(["JobName=other"], 38)


def test_changes_with_typed_values() -> None:
    wanted = JobChanges(resources=Resources(8, memory=2**30), walltime_s=600.0, begin=0.0)
    assert changes(scontrol_settings(wanted, 1.0), 40) == {
        "tasks": 8, "minimum_cpus": 8, "memory_per_cpu": {"set": True, "infinite": False, "number": 128},
        "time_limit": {"set": True, "infinite": False, "number": 10},
        "begin_time": {"set": True, "infinite": False, "number": 1},
    }  # fmt: skip


def test_a_begin_time_survives_its_way() -> None:
    now = int(time.time())
    assert job(38, f"--begin={local_time(now)}")["begin_time"] == f"uts{now}"


# Answers.


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
        ages_since=1795259101.0, cpus=1,
    )  # fmt: skip
    assert (jobs["114"].word, jobs["114"].nodes) == ("RUNNING", ("n1", "n2"))
    waiting = jobs["116"]
    assert (waiting.word, waiting.reason, waiting.start, waiting.nodes) == ("PENDING", "Resources", 1795259402.0, ())
    assert rest_parse.queue(recorded("jobs"), "bob") == []


def test_elements_of_an_array_are_jobs_of_their_own() -> None:
    keys = [record.key for record in rest_parse.queue(recorded("jobs"), "ada") if record.name == "array"]
    assert keys == ["115_0", "115_2"]
    job = recorded("jobs")["jobs"][2]
    for shown, expected in (
        ({"array_task_string": "1-3,7,10-14:2%4"}, ["1", "2", "3", "7", "10", "12", "14"]),
        ({"array_task_id": 5, "array_task_string": ""}, ["5"]),
        ({"array_task_id": wrapped(0), "array_job_id": wrapped(115)}, ["0"]),
    ):
        records = rest_parse.queue({"jobs": [job | shown]}, "ada")
        assert [record.key for record in records] == [f"115_{index}" for index in expected]


def test_a_job_in_later_versions() -> None:
    job = {
        "job_id": 7, "name": "token", "user_name": "ada", "job_state": ["CANCELLED", "COMPLETING"],
        "array_job_id": wrapped(0), "array_task_id": wrapped(None), "state_reason": "None",
        "submit_time": wrapped(100), "eligible_time": wrapped(101), "start_time": wrapped(102),
        "end_time": wrapped(None), "restart_cnt": 2, "nodes": "n[1-2]", "cpus": wrapped(3),
        "exit_code": {
            "status": ["SIGNALED"], "return_code": wrapped(None), "signal": {"id": wrapped(9), "name": "KILL"},
        },
    }  # fmt: skip
    assert rest_parse.queue({"jobs": [job]}, "ada") == [
        JobRecord("7", "token", "CANCELLED,COMPLETING", "", 100.0, 101.0, 102.0, None, 137, 2, ("n1", "n2"), cpus=3)
    ]
    job["tres_alloc_str"] = "cpu=3,mem=1G,node=2,billing=3,energy=4321"
    assert rest_parse.queue({"jobs": [job]}, "ada")[0].energy_j == 4321.0
    job["exit_code"] = {"status": ["ERROR"], "return_code": wrapped(3), "signal": {"id": wrapped(None)}}
    assert rest_parse.queue({"jobs": [job]}, "ada")[0].exit_code == 3


def test_jobs_in_the_accounting() -> None:
    jobs = {record.name: record for record in rest_parse.accounting(recorded("slurmdb-jobs"), "ada")}
    assert (jobs["failed"].word, jobs["failed"].nodes) == ("FAILED", ("n1",))
    assert jobs["failed"].exit_code is None, "22.05 says 0 of every job"
    assert jobs["running"] == JobRecord(
        "114", "running", "CANCELLED", "cancelled by ada", 1795259101.0, 1795259101.0, 1795259102.0, 1795259106.0,
        0, 0, ("n1", "n2"), cpus=10,
    )  # fmt: skip
    assert (jobs["waiting"].start, jobs["waiting"].nodes) == (None, ())
    assert rest_parse.accounting(recorded("slurmdb-jobs"), "bob") == []
    answer = json.loads(json.dumps(recorded("slurmdb-jobs")))
    for item in (each for job in answer["jobs"] for each in job["tres"]["allocated"] if each["type"] == "energy"):
        item["count"] = 77
    assert {record.energy_j for record in rest_parse.accounting(answer, "ada")} == {None, 77.0}


def test_the_accounting_of_later_versions() -> None:
    job = {
        "job_id": 9, "name": "token", "user": "ada", "state": {"current": ["FAILED"], "reason": "NonZeroExitCode"},
        "array": {"job_id": 8, "task_id": wrapped(1)}, "nodes": "n1", "restart_cnt": 1, "kill_request_user": "",
        "time": {"submission": 100, "eligible": 101, "start": 102, "end": 103},
        "exit_code": {"status": ["ERROR"], "return_code": wrapped(3), "signal": {"id": wrapped(None), "name": ""}},
        "tres": {"allocated": [{"type": "mem", "count": 64}, {"type": "cpu", "name": "", "id": 1, "count": 6}]},
    }  # fmt: skip
    assert rest_parse.accounting({"jobs": [job]}, "ada") == [
        JobRecord("8_1", "token", "FAILED", "", 100.0, 101.0, 102.0, 103.0, 3, 1, ("n1",), cpus=6)
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
    assert [item["Default"] for item in both] == ["NO", "NO"], "which of several is the default is not shown"


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
    (found,) = rest_parse.nodes({"nodes": [node, old]}, ["all"])
    assert found == NodeGroup("all", 2, 64, 2**30, 4, "idle+drain", "4 a100")


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


@pytest.mark.parametrize(
    ("errors", "numbers", "reasons"),
    [
        ([{"error_code": 2000, "error": "Invalid partition name"}], {2000}, ["Invalid partition name"]),
        (
            [
                {"error": "Unable to parse time", "error_code": 2054},
                {"description": 'Unable to process key "begin_time"', "error_number": -1, "error": "Unspecified error"},
                {"error_code": 9001, "error": "Failure during parsing"},
            ],
            {2054, 9001},
            ["Unable to parse time", 'Unable to process key "begin_time"', "Failure during parsing"],
        ),
        (
            [{"description": "unable to kill: Invalid job id specified", "error_number": 2017,
              "error": "Invalid job id specified"}],
            {2017},
            ["unable to kill: Invalid job id specified"],  # not said twice
        ),
        (
            [{"description": "job update failed", "error_number": 2017, "error": "Invalid job id specified"}],
            {2017},
            ["Invalid job id specified (job update failed)"],
        ),
    ],
)  # fmt: skip
def test_a_refusal_in_the_sites_words(errors: list[dict[str, Any]], numbers: set[int], reasons: list[str]) -> None:
    for status in (200, 500):
        error = failure(status, *errors)
        assert isinstance(error, Denied) and isinstance(error, SiteRefusal) and not error.transient
        assert error.numbers >= numbers
        assert error.reason.splitlines()[: len(reasons)] == reasons


@pytest.mark.parametrize(
    ("error", "silent"),
    [
        ({"error_code": 1800, "error": "Unable to contact slurm controller (connect failure)"}, False),
        ({"description": "job update failed", "error_number": 1000, "error": "Unexpected message received"}, False),
        ({"description": "Failed connecting", "error_number": 7000, "error": "Unable to connect to database"}, False),
        ({"error_code": 5005, "error": "Zero Bytes were transmitted or received"}, False),
        ({"description": "slurmctld config is unable to load", "error_number": -1, "error": "Unspecified error"}, True),
        ({"error": "Unspecified error", "errno": -1}, True),  # or it rejects the token
    ],
)
def test_a_daemon_that_does_not_answer(error: dict[str, Any], silent: bool) -> None:
    found = failure(500, error)
    assert found.transient and isinstance(found, Silent) is silent


def test_what_becomes_of_single_jobs_stands_beside_the_errors() -> None:
    unknown = recorded("cancel", "26.05")
    with pytest.raises(Denied, match="Invalid job id specified") as caught:
        content(200, json.dumps(unknown), ASKED)
    assert caught.value.numbers == {2017}
    fine = {"status": [{"error": {"string": "", "code": 0, "message": ""}, "step_id": "7"}], "errors": []}
    assert content(200, json.dumps(fine), ASKED) == fine
    with pytest.raises(Denied, match="Job has already finished"):
        content(200, json.dumps({"results": [{"error_code": 2021, "error": "Job has already finished"}]}), ASKED)
    assert content(200, json.dumps({"results": None, "errors": []}), ASKED)["results"] is None


def test_what_a_version_did_not_understand_is_logged(
    pretender: Pretender, address: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warning = {"description": "Expected OpenAPI type=array", "source": "#/excluded_nodes/"}
    pretender.reply = lambda _: (200, json.dumps(FINE | {"warnings": [warning]}).encode())
    RestServer(address, tokens(file)).ask("POST", "slurm", "v0.0.45", "job/7", body={})
    assert "#/excluded_nodes/: Expected OpenAPI type=array" in caplog.text


def test_an_answer_to_a_token_that_is_not_accepted() -> None:
    found = failure(200, {"error_number": 1007, "error": "Protocol authentication error", "source": "x"}, jobs=[])
    assert isinstance(found, Unauthorized)
    for status in (401, 511):
        with pytest.raises(Unauthorized, match="Authentication failure") as caught:
            content(status, "Authentication failure", ASKED)
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
