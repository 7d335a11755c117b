"""Questions over HTTP, to a server that only looks like slurmrestd."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from asa.backends.slurm.rest import RestServer as Server
from asa.backends.slurm.rest import Tokens
from asa.backends.slurm.rest_parse import Silent, Unauthorized
from asa.core.errors import BackendError, InvalidInput
from asa.security.ca import create, driver_context
from asa.security.files import write_private

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


def jobs(server: Server) -> Any:
    return server.ask("GET", "slurm", "v0.0.38", "jobs")


def test_over_the_network_with_a_token(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        assert jobs(Server(address, tokens(file))) == FINE
    assert pretender.asked == [("GET", "/slurm/v0.0.38/jobs", "ada", "good.good.good")]


def test_below_a_path(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        jobs(Server(f"{address}/site/", tokens(file)))
    assert pretender.asked[0][1] == "/site/slurm/v0.0.38/jobs"


def test_queries_and_bodies(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        server = Server(address, tokens(file))
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
            assert jobs(Server(form, tokens(None))) == FINE
    assert pretender.asked == [("GET", "/slurm/v0.0.38/jobs", None, None)] * 2


def test_over_a_socket_a_token_is_sent_when_it_is_wanted(pretender: Pretender, file: Path, tmp_path: Path) -> None:
    with serving(pretender, tmp_path / "socket") as address:
        server = Server(address, tokens(file))
        assert jobs(server) == FINE
        assert jobs(server) == FINE
        assert [asked[3] for asked in pretender.asked] == [None, "good.good.good", "good.good.good"]
        pretender.asked.clear()
        jobs(Server(address, tokens(file), always=True))
    assert [asked[3] for asked in pretender.asked] == ["good.good.good"]


def test_a_replaced_token_is_used_without_a_word(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        server = Server(address, tokens(file))
        jobs(server)
        pretender.token = "new.new.new"
        write_private(file, b"new.new.new")
        assert jobs(server) == FINE


def test_a_token_that_is_not_accepted(pretender: Pretender, file: Path) -> None:
    with serving(pretender) as address:
        server = Server(address, tokens(file))
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
        jobs(Server(address, tokens(file)))
    assert caught.value.transient
    assert not isinstance(caught.value, Unauthorized)
    assert [asked[1] for asked in pretender.asked] == ["/slurm/v0.0.38/jobs", "/slurmdb/v0.0.38/tres"]


def test_a_controller_and_a_database_that_are_silent(pretender: Pretender, file: Path) -> None:
    pretender.reply = lambda _request: (500, json.dumps(SILENT).encode())
    with (
        serving(pretender) as address,
        pytest.raises(Silent, match=r"slurm/v0\.0\.38/jobs.*Unspecified error") as caught,
    ):
        jobs(Server(address, tokens(file)))
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
            jobs(Server(f"https://127.0.0.1:{server.getsockname()[1]}", tokens(file)))
        thread.join(10)
    assert not caught.value.transient
    assert "good.good.good" not in str(caught.value)


def test_nobody_listens(tmp_path: Path, file: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = Server(f"http://127.0.0.1:{unused.getsockname()[1]}", tokens(file))
        with pytest.raises(BackendError, match=r"jobs at http.*: Connection refused") as caught:
            jobs(server)
    assert caught.value.transient
    with socket.socket(socket.AF_UNIX) as unused:
        unused.bind(str(tmp_path / "socket"))
        server = Server(str(tmp_path / "socket"), tokens(None))
        with pytest.raises(BackendError, match="socket: Connection refused") as caught:
            jobs(server)
    assert caught.value.transient


def test_a_connection_that_is_cut(pretender: Pretender, file: Path) -> None:
    def cut(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        request.connection.shutdown(socket.SHUT_RDWR)
        return 200, b""

    pretender.reply = cut
    with serving(pretender) as address, pytest.raises(BackendError) as caught:
        jobs(Server(address, tokens(file)))
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
            jobs(Server(address, tokens(file), timeout_s=0.2))
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
            jobs(Server(address, tokens(file), timeout_s=0.3))
        over.set()


def test_neither_proxies_nor_redirections_get_the_token(
    pretender: Pretender, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(pretender) as address:
        assert jobs(Server(address, tokens(file))) == FINE
        pretender.reply = lambda request: (302, b"")
        with pytest.raises(BackendError, match="HTTP 302"):
            jobs(Server(address, tokens(file)))


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
        Server(address, tokens(None))


@pytest.mark.parametrize(
    "address", ["http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1", "https://slurm.example.org/rest"]
)
def test_addresses_that_are_safe(address: str) -> None:
    assert Server(address, tokens(None)).name == address


def test_plain_http_to_another_machine_may_be_allowed() -> None:
    assert Server("http://192.0.2.1:6820", tokens(None), unencrypted=True).name == "http://192.0.2.1:6820"
