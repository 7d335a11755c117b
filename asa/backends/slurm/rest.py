"""Slurm through slurmrestd: the transport, its HTTP, and its tokens. The only module that knows requests."""

from __future__ import annotations

import base64
import ipaddress
import json
import logging
import os
import re
import socket
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import NewConnectionError

from asa.backends.batch import run
from asa.backends.slurm import commands, rest_job, rest_parse
from asa.backends.slurm.commands import SlurmCommands, own_name
from asa.backends.slurm.rest_parse import (
    ALREADY_DONE,
    INVALID_JOB_ID,
    NO_ENTRY,
    NOTHING_FOUND,
    Denied,
    NoSuchPage,
    Silent,
    Unauthorized,
)
from asa.backends.slurm.words import JobRecord, NodeGroup, SiteRefusal, VisibleJob
from asa.core.errors import AsaError, BackendError, InvalidInput
from asa.security.files import check_private

log = logging.getLogger(__name__)

NEWEST = 45
"""The newest version of the interface that this was tested with: Slurm 26.05's."""

VERSIONS = (*range(NEWEST, rest_job.OLDEST_TYPED - 1, -1), 38, *range(NEWEST + 1, 50))
"""Versions in the order in which they are tried: the newest known first, unknown ones when a server has no other."""

STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "PREEMPTED",
    "RUNNING", "REQUEUED", "RESIZING", "REVOKED", "SUSPENDED", "TIMEOUT",
)  # fmt: skip
"""`commands.ANY_STATE` in the words that v0.0.40 and later take."""

ITEMS_AT_ONCE = 200
"""Jobs named in one question to the accounting; slurmrestd takes no address longer than about 80 KiB."""

_SECRET = ("SLURM_JWT",)
_HOST = re.compile(r"[^(,\s]+")


class SlurmRest:
    """Slurm through slurmrestd; a `SlurmTransport`.

    The controller's configuration, which slurmrestd does not have, is asked of scontrol where there is one that
    speaks to the same controller, and limits of sacctmgr; that may take `timeout_s` [s]. `user` is a name in Slurm;
    jobs inherit `environment`.
    """

    # v0.0.38 says that a changed element was not changed, and does change it but for its name; later versions refuse
    arrays = False

    def __init__(self, server: RestServer, user: str, timeout_s: float, environment: Mapping[str, str]) -> None:
        self._server, self.user, self._timeout_s = server, user, timeout_s
        self._environment = environment
        self._version: int | None = None
        self.questions = 0  # not those that slurmrestd answers by itself

    def name(self) -> str:
        """The server, and the version of the interface that is spoken with it."""
        return f"slurmrestd at {self._server.name}" + (f", v0.0.{self._version}" if self._version else "")

    def version(self) -> tuple[int, ...]:
        return rest_parse.version(self._ping())

    def submit(self, options: Sequence[str], script: str, withheld: Sequence[str] = ()) -> str:
        inherited = {name: value for name, value in _for_job(self._environment).items() if name not in withheld}
        try:
            job = rest_job.submission(options, script, inherited, self._spoken())
        except InvalidInput as error:
            raise SiteRefusal(str(error)) from error
        log.debug("job script:\n%s", script)
        answer = self._slurm("POST", "job/submit", body=job)
        if not answer.get("job_id"):
            raise BackendError(f"slurmrestd answered a submission with {answer!r}: expected a job id")
        return str(answer["job_id"])

    def submission(self, options: Sequence[str]) -> list[str]:
        return ["sbatch", *options]

    def queue(self, keys: Sequence[str]) -> list[JobRecord]:
        if not keys:
            return []
        jobs = {key.partition("_")[0] for key in keys}
        page = f"job/{jobs.pop()}" if len(jobs) == 1 else "jobs"
        wanted = set(keys)
        answer = self._slurm("GET", page, unless=(INVALID_JOB_ID, NO_ENTRY))
        return [record for record in rest_parse.queue(answer, self.user) if record.key in wanted]

    def queue_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        return rest_parse.queue(self._slurm("GET", "jobs"), self.user) if names else []

    def accounting(self, keys: Sequence[str]) -> list[JobRecord]:
        return [record for some in commands.portions(keys, ITEMS_AT_ONCE) for record in self._accounts({"step": some})]

    def accounting_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        if not names:
            return []
        states = STATES if self._spoken() >= rest_job.OLDEST_TYPED else [commands.ANY_STATE]
        when = {"start_time": [commands.HORIZON], "end_time": ["now"], "state": states}
        return [
            r
            for some in commands.portions(names, ITEMS_AT_ONCE)
            for r in self._accounts(when | {"job_name": [",".join(some)]})
        ]

    def visible_jobs(self, partitions: Sequence[str]) -> list[VisibleJob]:
        wanted = set(partitions)
        jobs = rest_parse.visible_jobs(self._slurm("GET", "jobs"))
        return [job for job in jobs if not wanted.isdisjoint(job.partition.split(","))]

    def update(self, key: str, settings: Sequence[str]) -> None:
        self._slurm("POST", f"job/{key}", body=rest_job.changes(settings, self._spoken()))

    def cancel(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._slurm("DELETE", f"job/{key}", unless=(INVALID_JOB_ID, ALREADY_DONE))

    def configuration(self) -> dict[str, str]:
        """The controller's settings, from scontrol; slurmrestd has no page for them."""
        unknown = f"{self.name()} does not have Slurm's configuration"
        try:
            found = self._commands().configuration()
        except BackendError as error:
            raise SiteRefusal(unknown, f"{unknown}, and neither does scontrol: {error}") from error
        controllers = {match[0] for name, value in found.items() if "Host" in name and (match := _HOST.match(value))}
        if not controllers.issuperset(rest_parse.hosts(self._ping())):
            raise SiteRefusal(unknown, f"{unknown}, and scontrol speaks to another controller")
        return found

    def _commands(self) -> SlurmCommands:
        self.questions += 1
        # Without a token, because an old one would keep scontrol from saying who is asking in the usual way.
        environment = {name: value for name, value in self._environment.items() if name not in _SECRET}
        return SlurmCommands(None, self._timeout_s, environment)

    def partitions(self) -> list[dict[str, str]]:
        """Settings of each; v0.0.40 to v0.0.44 do not say which is the default one: scontrol is asked, if it can be."""
        found = rest_parse.partitions(self._slurm("GET", "partitions"))
        if not any(item["Default"] == "YES" for item in found):
            with suppress(BackendError):
                self.configuration()  # raises when scontrol speaks to another controller
                defaults = {item["PartitionName"]: item.get("Default", "NO") for item in self._commands().partitions()}
                found = [item | {"Default": defaults.get(item["PartitionName"], "NO")} for item in found]
        return found

    def nodes(self, partition: str) -> list[NodeGroup]:
        return rest_parse.nodes(self._slurm("GET", "nodes"), partition.split(","))

    def accounting_settings(self, what: Sequence[str], fields: Sequence[str]) -> list[dict[str, str]]:
        return self._commands().accounting_settings(what, fields)

    def _ping(self) -> Mapping[str, Any]:
        """The answer to ``ping``, in the first of `VERSIONS` that the server speaks."""
        for version in VERSIONS if self._version is None else (self._version,):
            try:
                answer = self._server.ask("GET", "slurm", f"v0.0.{version}", "ping")
            except NoSuchPage:
                continue
            self._version, self.questions = version, self.questions + 1
            return answer
        self._version = None
        raise BackendError(f"slurmrestd at {self._server.name} speaks none of v0.0.38 to v0.0.{max(VERSIONS)}")

    def _spoken(self) -> int:
        if self._version is None:
            self._ping()
        assert self._version is not None
        return self._version

    def _slurm(
        self, method: str, page: str, *, body: Mapping[str, Any] | None = None, unless: Sequence[int] = ()
    ) -> Mapping[str, Any]:
        """What the controller says; nothing when it says no with one of the errors of `unless`."""
        spoken = self._spoken()
        self.questions += method == "GET"
        try:
            return self._server.ask(method, "slurm", f"v0.0.{spoken}", page, body=body)
        except Denied as error:
            named = error.numbers - {0}
            if named and named.issubset(unless):
                return {}
            raise

    def _accounts(self, query: Mapping[str, Sequence[str]]) -> list[JobRecord]:
        """Jobs in the accounting; none where slurmrestd knows of no accounting.

        Lists are repeated parameters (``step=1&step=2``) from v0.0.40 on, which takes commas for names only.
        """
        if self._spoken() < rest_job.OLDEST_TYPED:
            query = {name: [",".join(values)] for name, values in query.items()}
        self.questions += 1
        try:
            answer = self._server.ask("GET", "slurmdb", f"v0.0.{self._spoken()}", "jobs", query=query)
        except NoSuchPage:
            return []
        except Denied as error:
            if NOTHING_FOUND in error.numbers:
                return []
            raise
        return rest_parse.accounting(answer, self.user)


def _for_job(inherited: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment as sbatch would hand it on, without the token."""
    own = {"SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_UMASK": _umask()}
    found = own | commands.submission_environment(inherited)
    return {name: value for name, value in found.items() if name not in _SECRET and _plain(name + value)}


def _umask() -> str:
    """This process's umask, read where that does not change it."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^Umask:\s*(\d+)", status, re.MULTILINE)
    return match[1] if match else "0077"


def _plain(text: str) -> bool:
    """Whether JSON can carry it."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


# -- HTTP --------------------------------------------------------------------------------------------------------------

_ADDRESSES = "expected /path/to/socket, http://HOST:PORT or https://HOST"
_CHUNK = 2**16


class RestServer:
    """One slurmrestd. Nothing is held between questions.

    Proxies, netrc files and redirections are ignored: they would take the token elsewhere.

    Parameters
    ----------
    address
        ``/path/to/socket``, ``http://HOST:PORT`` or ``https://HOST``; others raise `InvalidInput`.
    tokens
        Over a Unix socket a token is sent only when the server asks for it: one that runs as the caller needs none.
    always
        Send a token over a Unix socket, too.
    unencrypted
        Allow plain HTTP to other machines, where all machines on the way can read the token.
    timeout_s
        How long an answer may take [s]; twice as long if it comes in drops.
    authorities
        File with the certificate authorities to trust; None for those of requests.
    """

    def __init__(
        self,
        address: str,
        tokens: Tokens,
        *,
        always: bool = False,
        unencrypted: bool = False,
        timeout_s: float = 60.0,
        authorities: str | None = None,
    ) -> None:
        self._tokens, self._timeout_s, self._verify = tokens, timeout_s, authorities or True
        self._socket = _socket(address)
        self._base = "http://localhost" if self._socket else _base(address, unencrypted)
        self._with_token = always or self._socket is None
        self._accepted = False  # whether it ever accepted the token
        self.name = address

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
        """The answer to a question, such as ``GET /slurm/v0.0.38/jobs``.

        A token that is not accepted is replaced once. When there is no other, that is ``transient`` if one has been
        accepted before: a run waits until its file has a new one. Otherwise raises what
        `rest_parse.content` does, and a ``transient`` `BackendError` when there was no answer.
        """
        replaced = False
        while True:
            try:
                answer = self._once(method, f"/{part}/{version}/{page}", query, body)
            except (Silent, Unauthorized) as error:
                problem = self._diagnosis(error, version)
                if not isinstance(problem, Unauthorized):
                    raise
                if replaced or not self._other_token():
                    raise self._turned_away(problem) from error
                log.info("%s /%s/%s/%s: asked once more with another token", method, part, version, page)
                replaced = True
            else:
                self._accepted |= page != "ping"  # which later versions answer whatever the token is
                return answer

    def _diagnosis(self, error: BackendError, version: str) -> BackendError:
        """Tell a token that is not accepted from a silent controller: 22.05 does so for the database only."""
        if isinstance(error, Silent) and self._with_token:
            try:
                self._once("GET", f"/slurmdb/{version}/tres")
            except Unauthorized as refusal:
                return refusal
            except BackendError:
                pass
        return error

    def _other_token(self) -> bool:
        if self._with_token:
            return self._tokens.renew()
        self._with_token = True
        return True

    def _turned_away(self, error: BackendError) -> BackendError:
        hint = (
            f"the token of user {self._tokens.user} is not accepted{self._tokens.expired()}: write what "
            "`scontrol token` prints to a file (mode 0600), and name it by rest_token=FILE"
        )
        return Unauthorized(f"{error}\n{hint}", transient=self._accepted)

    def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, Sequence[str]] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        asked = f"{method} {path} at {self.name}"
        begin = time.monotonic()
        try:
            status, text = self._exchange(method, path, query, body, asked)
            log.info("%s: HTTP %d after %.2f s", asked, status, time.monotonic() - begin)
            answer = rest_parse.content(status, text, asked)
            for warning in rest_parse.warnings(answer):
                log.log(logging.DEBUG if method == "GET" else logging.WARNING, "%s: %s", asked, warning)
            return answer
        except BackendError as error:
            kind = "transient" if error.transient else "not transient"
            log.warning("%s (%s, after %.2f s)", error, kind, time.monotonic() - begin)
            raise

    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, Sequence[str]] | None,
        body: Mapping[str, Any] | None,
        asked: str,
    ) -> tuple[int, str]:
        """Status and text of the answer."""
        headers = {"Accept": "application/json", "Connection": "close"}
        if self._with_token:
            headers |= {"X-SLURM-USER-NAME": self._tokens.user, "X-SLURM-USER-TOKEN": self._tokens.current()}
        try:
            with requests.Session() as session:
                session.trust_env = False
                if self._socket is not None:
                    session.mount("http://", UnixAdapter(self._socket, self._timeout_s))
                with session.request(
                    method,
                    self._base + path,
                    params=None if query is None else {name: list(values) for name, values in query.items()},
                    json=body,
                    headers=headers,
                    timeout=self._timeout_s,
                    verify=self._verify,
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    return response.status_code, self._text(response, asked)
        except requests.exceptions.SSLError as error:
            raise BackendError(f"{asked}: {_os_reason(error)}: is REQUESTS_CA_BUNDLE set to the site's CA?") from error
        except requests.Timeout as error:
            raise self._late(asked) from error
        except requests.RequestException as error:
            raise BackendError(f"{asked}: {_os_reason(error)}", transient=True) from error

    def _text(self, response: requests.Response, asked: str) -> str:
        """The whole answer; the library bounds the wait for each piece only."""
        deadline = time.monotonic() + self._timeout_s
        pieces = []
        for piece in response.iter_content(_CHUNK):
            pieces.append(piece)
            if time.monotonic() > deadline:
                raise self._late(asked)
        return b"".join(pieces).decode(errors="replace")

    def _late(self, asked: str) -> BackendError:
        return BackendError(f"{asked}: no answer within {self._timeout_s:g} s", transient=True)


def _socket(address: str) -> Path | None:
    """The path of a Unix socket, or None if the address is of another kind."""
    if not address.startswith(("/", "unix:")):
        return None
    path = Path(address.removeprefix("unix:"))
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        hint = "is slurmrestd running, and on this machine?"
        raise InvalidInput(f"rest={address!r}: no socket there: {error.strerror}; {hint}") from error
    if not stat.S_ISSOCK(mode):
        raise InvalidInput(f"rest={address!r} is no socket: expected the one that slurmrestd listens on")
    return path


def _base(address: str, unencrypted: bool) -> str:
    """Checked address of a server on the network."""
    try:
        parts = urlsplit(address)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or parts.username or parts.query or parts.fragment:
        raise InvalidInput(f"rest={address!r}: {_ADDRESSES}")
    if parts.scheme == "http" and not unencrypted and not _loopback(host):
        raise InvalidInput(
            f"rest={address!r} would send the token unencrypted to another machine: use https, an ssh tunnel to a port "
            "of this machine, or allow it with rest_unencrypted=True"
        )
    return address.rstrip("/")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _os_reason(error: BaseException) -> str:
    """The operating system's words, from below the libraries' wrappings."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)


class UnixAdapter(HTTPAdapter):
    """Sends every request that it is mounted for to one socket, whatever host the address names."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Have urllib3 make connections to the socket."""
        path, timeout_s = self._path, self._timeout_s

        class Connection(HTTPConnection):
            def connect(self) -> None:
                self.sock = socket.socket(socket.AF_UNIX)
                try:
                    self.sock.settimeout(timeout_s)
                    self.sock.connect(str(path))
                except OSError as error:
                    self.close()
                    raise NewConnectionError(self, f"{path}: {error}") from error

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": Pool}


# -- tokens ------------------------------------------------------------------------------------------------------------

LIFESPAN_S = 3600
"""How long a token lives that is asked for here [s]."""

_VARIABLE = "SLURM_JWT"
_MARGIN_S = 30.0  # a token this near its end is replaced before it is used [s]
_TOKEN = re.compile(rf"(?:{_VARIABLE}=)?([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)")


class Tokens:
    """The tokens of one user: from a file, or else from ``$SLURM_JWT`` and then ``scontrol token``.

    A token is never part of a command line, of a message or of a job.

    Parameters
    ----------
    user
        Whose tokens, by the name that Slurm knows.
    file
        A file that only its owner can read; it is read again whenever a token is not accepted or near its end. When it
        is missing, open to others or holds no token, an `AsaError` is raised.
    timeout_s
        How long scontrol may take [s].
    """

    def __init__(
        self, user: str, file: Path | None, environment: Mapping[str, str], timeout_s: float, now: Callable[[], float]
    ) -> None:
        self.user, self._file, self._timeout_s, self._now = user, file, timeout_s, now
        self._variable = environment.get(_VARIABLE)
        # With the variable, scontrol would show the old token instead of munge's credential.
        self._environment = {name: value for name, value in environment.items() if name != _VARIABLE}
        self._token: str | None = None if file is None else _read_token(file)

    def current(self) -> str:
        """A token, a new one if the last is near its end; raises a `BackendError` when there is none."""
        if self._token is None:
            self._token = _parse_token(self._variable, f"${_VARIABLE}") if self._variable else self._another()
        end = expiry(self._token)
        if end is not None and end - _MARGIN_S < self._now():
            self.renew()
        return self._token

    def renew(self) -> bool:
        """Look for another token; whether there is one."""
        before = self._token
        try:
            self._token = self._another()
        except AsaError:  # the old one may still do; if not, slurmrestd says so
            return False
        return self._token != before

    def expired(self) -> str:
        """When the last token ended, in words; "" when it has not, or does not say."""
        end = None if self._token is None else expiry(self._token)
        if end is None or end > self._now():
            return ""
        return f" (it expired at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(end))})"

    def _another(self) -> str:
        if self._file is not None:
            return _read_token(self._file)
        other = [] if self.user == own_name() else [f"username={self.user}"]
        argv = ["scontrol", "token", f"lifespan={LIFESPAN_S}", *other]
        try:
            printed = run(argv, timeout_s=self._timeout_s, environment=self._environment)
        except BackendError as error:
            raise BackendError(
                f"slurmrestd asks for a token of user {self.user}: name a file that has one (mode 0600) with "
                f"rest_token=FILE, or set {_VARIABLE}. Asked for one, Slurm said: {error}"
            ) from error
        return _parse_token(printed, "scontrol token")


def expiry(token: str) -> float | None:
    """When a token ends [s since the epoch], as it says itself; None if it does not.

    >>> expiry("eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3MDAwMDAwMDB9.c2lnbmF0dXJl")
    1700000000.0
    """
    try:
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
        return None


def _read_token(file: Path) -> str:
    path = check_private(file)
    try:
        return _parse_token(path.read_text(errors="replace"), str(file))
    except OSError as error:
        raise InvalidInput(
            f"rest_token={str(file)!r} cannot be read: {error.strerror}. Give a file with what `scontrol token` prints"
        ) from error


def _parse_token(text: str, source: str) -> str:
    match = _TOKEN.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"{source} holds no token: expected what `scontrol token` prints, 'SLURM_JWT=...'")
    return match[1]
