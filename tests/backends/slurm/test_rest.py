"""The transport that asks slurmrestd, over a server that only looks like it, and its tokens."""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from asa.backends.slurm.rest import ITEMS_AT_ONCE, RestServer, SlurmRest, Tokens, expiry, own_name
from asa.backends.slurm.rest_parse import Denied, NoSuchPage, Silent, Unauthorized
from asa.backends.slurm.words import SiteRefusal
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput, StateError
from asa.security.ca import create, driver_context
from asa.security.files import write_private

RECORDED = Path(__file__).with_name("rest-22.05")


class Answering(RestServer):
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
def rest(server: Answering, tmp_path: Path) -> SlurmRest:
    return SlurmRest(
        server, "ada", 5.0, {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JWT": "a.b.c", "SLURM_JOB_ID": "3"}
    )


def test_the_first_version_that_the_server_speaks(server: Answering, rest: SlurmRest) -> None:
    server.oldest = 41
    assert rest.version() == (22, 5, 8)
    assert rest.name() == "slurmrestd at http://localhost:1, v0.0.41"
    assert server.asked == [f"GET slurm v0.0.{number} ping" for number in (38, 40, 41)]
    rest.queue(["113", "114"])
    assert server.asked[3:] == ["GET slurm v0.0.41 jobs"]


def test_a_server_that_is_too_old(server: Answering, rest: SlurmRest) -> None:
    server.oldest = 37
    with pytest.raises(BackendError, match=r"speaks none of v0\.0\.38 to"):
        rest.queue(["113"])


def test_one_question_for_many_jobs(server: Answering, rest: SlurmRest) -> None:
    found = rest.queue(["113", "115_2", "999"])
    assert [record.key for record in found] == ["113", "115_2"]
    assert server.asked[1:] == ["GET slurm v0.0.38 jobs"]


def test_a_single_job_is_asked_for_by_its_id(server: Answering, rest: SlurmRest) -> None:
    assert [record.key for record in rest.queue(["113"])] == ["113"]
    assert server.asked[1:] == ["GET slurm v0.0.38 job/113"]
    server.replies["slurm job/115"] = denied(2017)
    assert rest.queue(["115_0", "115_2"]) == []


def test_nothing_is_asked_about_nothing(server: Answering, rest: SlurmRest) -> None:
    assert rest.queue([]) == rest.queue_by_name([]) == rest.accounting([]) == rest.accounting_by_name([]) == []
    rest.cancel([])
    assert server.asked == []


def test_the_accounting_is_asked_in_portions(server: Answering, rest: SlurmRest) -> None:
    rest.accounting([str(number) for number in range(ITEMS_AT_ONCE + 1)])
    rest.accounting_by_name(["a", "b"])
    steps = [told["step"] for told in server.told[1:3]]
    assert [len(step.split(",")) for step in steps] == [ITEMS_AT_ONCE, 1]
    assert server.told[3]["job_name"] == "a,b"


@pytest.mark.parametrize("reply", [denied(9003), NoSuchPage("no database here")])
def test_no_accounting(server: Answering, rest: SlurmRest, reply: BackendError) -> None:
    server.replies["slurmdb jobs"] = reply
    assert rest.accounting(["113"]) == []


def test_an_accounting_that_is_away(server: Answering, rest: SlurmRest) -> None:
    server.replies["slurmdb jobs"] = BackendError("Unable to connect to database", transient=True)
    with pytest.raises(BackendError, match="connect to database"):
        rest.accounting(["113"])


def test_an_accounting_that_says_no(server: Answering, rest: SlurmRest) -> None:
    server.replies["slurmdb jobs"] = denied(2002)
    with pytest.raises(Denied, match="no"):
        rest.accounting(["113"])


def test_submitting(server: Answering, rest: SlurmRest) -> None:
    assert rest.submit(["--job-name=token", "--ntasks=2"], "#!/bin/sh\ntrue\n") == "117"
    job = server.told[-1]["job"]
    assert (job["name"], job["tasks"]) == ("token", "2")
    environment = job["environment"]
    assert environment["SLURM_SUBMIT_DIR"] == str(Path.cwd())
    assert int(environment["SLURM_UMASK"], 8) <= 0o777
    assert not {"SLURM_JWT", "SLURM_JOB_ID"} & environment.keys()


def test_what_cannot_be_submitted_is_refused(server: Answering, rest: SlurmRest) -> None:
    with pytest.raises(SiteRefusal, match="--contiguous cannot be given"):
        rest.submit(["--contiguous"], "#!/bin/sh\n")
    server.replies["slurm job/submit"] = {}
    with pytest.raises(BackendError, match="expected a job id"):
        rest.submit([], "#!/bin/sh\n")


def test_changing(server: Answering, rest: SlurmRest) -> None:
    rest.update("113", ["TimeLimit=5"])
    assert (server.asked[-1], server.told[-1]) == ("POST slurm v0.0.38 job/113", {"time_limit": "5"})
    server.replies["slurm job/114"] = denied(2002)
    with pytest.raises(SiteRefusal):
        rest.update("114", ["TimeLimit=5"])


def test_cancelling_passes_over_jobs_that_are_gone(server: Answering, rest: SlurmRest) -> None:
    server.replies |= {"slurm job/1": denied(2017), "slurm job/2": denied(2021)}
    rest.cancel(["1", "2", "3"])
    assert server.asked[1:] == [f"DELETE slurm v0.0.38 job/{number}" for number in (1, 2, 3)]
    server.replies["slurm job/4"] = denied(2002)
    with pytest.raises(SiteRefusal):
        rest.cancel(["4"])


def test_partitions_and_nodes(rest: SlurmRest) -> None:
    assert [item["PartitionName"] for item in rest.partitions()] == ["main", "share"]
    assert {group.partition for group in rest.nodes("main,share")} == {"main", "share"}


class TestConfiguration:
    def scontrol(self, directory: Path, prints: str) -> None:
        program = directory / "scontrol"
        program.write_text(f"#!/bin/sh\nenv >{directory}/seen\n{prints}\n")
        program.chmod(0o700)

    def test_it_is_scontrols(self, rest: SlurmRest, tmp_path: Path) -> None:
        self.scontrol(tmp_path, "echo 'ClusterName = asa'; echo 'SlurmctldHost[0] = login1(127.0.0.1)'")
        assert rest.configuration()["ClusterName"] == "asa"
        assert "SLURM_JWT" not in (tmp_path / "seen").read_text(), "with an old token scontrol would be turned away"

    def test_unless_it_speaks_to_another_controller(self, rest: SlurmRest, tmp_path: Path) -> None:
        self.scontrol(tmp_path, "echo 'ClusterName = other'; echo 'SlurmctldHost[0] = login2'")
        with pytest.raises(SiteRefusal, match="scontrol speaks to another controller"):
            rest.configuration()

    def test_or_none(self, rest: SlurmRest, tmp_path: Path) -> None:
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
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    write_private(path, b"good.good.good")
    return path


def tokens(file: Path | None) -> Tokens:
    return Tokens("ada", file, {"PATH": "/nowhere"}, 5.0, time.time)


def jobs(server: RestServer) -> Any:
    return server.ask("GET", "slurm", "v0.0.38", "jobs")


def test_over_the_network_with_a_token(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        assert jobs(RestServer(address, tokens(file))) == FINE
    assert pretender.asked == [("GET", "/slurm/v0.0.38/jobs", "ada", "good.good.good")]


def test_below_a_path(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        jobs(RestServer(f"{address}/site/", tokens(file)))
    assert pretender.asked[0][1] == "/site/slurm/v0.0.38/jobs"


def test_queries_and_bodies(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        server = RestServer(address, tokens(file))
        server.ask("GET", "slurmdb", "v0.0.38", "jobs", query={"step": "1,2_3"})
        server.ask("POST", "slurm", "v0.0.38", "job/submit", body={"script": "grün"})
        server.ask("DELETE", "slurm", "v0.0.38", "job/7")
    assert [asked[:2] for asked in pretender.asked] == [
        ("GET", "/slurmdb/v0.0.38/jobs?step=1%2C2_3"),
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


def test_a_replaced_token_is_used_without_a_word(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        server = RestServer(address, tokens(file))
        jobs(server)
        pretender.token = "new.new.new"
        write_private(file, b"new.new.new")
        assert jobs(server) == FINE


def test_every_request_is_logged_and_never_a_token(
    pretender: Pretender, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "asa.backends")
    with serving(pretender) as address:
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


def test_a_token_that_is_not_accepted(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        server = RestServer(address, tokens(file))
        pretender.token = "other.other.other"
        with pytest.raises(Unauthorized, match="token of user ada is not accepted") as caught:
            jobs(server)
        assert not caught.value.transient, "it never was: somebody has to do something first"
        assert "good.good" not in str(caught.value)
        pretender.token = "good.good.good"
        jobs(server)
        pretender.token = "other.other.other"
        with pytest.raises(Unauthorized) as caught:
            jobs(server)
        assert caught.value.transient, "it has expired, and a new one may come"


def test_a_controller_that_is_silent(pretender: Pretender, file: Path) -> None:
    def silent(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        found = FINE if request.path.startswith("/slurmdb/") else SILENT
        return 500 if found is SILENT else 200, json.dumps(found).encode()

    pretender.reply = silent
    with serving(pretender) as address, pytest.raises(BackendError, match="Unspecified error") as caught:
        jobs(RestServer(address, tokens(file)))
    assert caught.value.transient
    assert not isinstance(caught.value, Unauthorized)
    assert [asked[1] for asked in pretender.asked] == ["/slurm/v0.0.38/jobs", "/slurmdb/v0.0.38/tres"]


def test_a_controller_and_a_database_that_are_silent(pretender: Pretender, file: Path) -> None:
    pretender.reply = lambda _request: (500, json.dumps(SILENT).encode())
    with (
        serving(pretender) as address,
        pytest.raises(Silent, match=r"slurm/v0\.0\.38/jobs.*Unspecified error") as caught,
    ):
        jobs(RestServer(address, tokens(file)))
    assert caught.value.transient


def test_a_server_whose_certificate_nobody_vouches_for(pretender: Pretender, file: Path, tmp_path: Path) -> None:
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


def test_nobody_listens(tmp_path: Path, file: Path) -> None:
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


def test_an_answer_in_drops_is_given_up_too(pretender: Pretender, file: Path) -> None:
    over = threading.Event()

    def drops(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        request.send_response(200)
        request.end_headers()
        while not over.wait(0.05):
            request.wfile.write(b" " * 2**16)
        return 200, b""

    pretender.reply = drops
    with serving(pretender) as address:
        with pytest.raises(BackendError, match=r"no answer within 0\.3 s"):
            jobs(RestServer(address, tokens(file), timeout_s=0.3))
        over.set()


def test_neither_proxies_nor_redirections_get_the_token(
    pretender: Pretender, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(pretender) as address:
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
    "address", ["http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1", "https://slurm.example.org/rest"]
)
def test_addresses_that_are_safe(address: str) -> None:
    assert RestServer(address, tokens(None)).name == address


def test_plain_http_to_another_machine_may_be_allowed() -> None:
    assert RestServer("http://192.0.2.1:6820", tokens(None), unencrypted=True).name == "http://192.0.2.1:6820"


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
    found, _ = renewable({"PATH": "/nowhere", "SLURM_JWT": "not.this.one"}, file)
    assert found.current() == token(NOW + 3600)
    assert not found.renew()
    write_private(file, token(NOW + 7200).encode())
    assert found.current() == token(NOW + 3600), "it is read again when there is a reason"
    assert found.renew()
    assert found.current() == token(NOW + 7200)


def test_a_token_near_its_end_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_private(file, token(NOW + 3600).encode())
    found, clock = renewable({}, file)
    found.current()
    write_private(file, token(NOW + 7200).encode())
    clock.wait(threading.Event(), NOW + 3590)
    assert found.current() == token(NOW + 7200)


def test_a_file_that_vanishes_leaves_the_old_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_private(file, token(NOW + 1).encode())
    found, _ = renewable({}, file)
    file.unlink()
    assert found.current() == token(NOW + 1)
    assert not found.renew()


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
    assert (programs / "calls").read_text() == "token lifespan=3600\n"
    assert "SLURM_JWT" not in (programs / "seen").read_text()


def test_another_user_is_named(programs: Path) -> None:
    found, _ = renewable(scontrol(programs, f"echo SLURM_JWT={token(None)}"), user="ada")
    assert found.current() == token(None)
    assert (programs / "calls").read_text() == "token lifespan=3600 username=ada\n"


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
