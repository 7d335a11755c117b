"""What the HTTP APIs of master and agent share: tokens and the roles they stand for, content types, calls in JSON.

References
----------
Apache Mesos, ``src/master/http.cpp``: the order of the checks and their statuses.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from asa.core.errors import StateError
from asa.web.errors import HTTPError
from asa.web.hosts import FailedAttempts, known_names
from asa.web.server import Request, Response
from executors.mesos.codec import LARGEST, Message, decode, encode
from executors.mesos.messages import field
from executors.mesos.pool_directory import AGENT_NAME, MASTER_NAME, READER, ROLES, WRITER, PoolDirectory

JSON = "application/json"
ANYONE = "anyone"
"""The role of all clients where no authentication is required: everything."""

EXECUTOR = "executor"
"""Whose calls an agent passes on to the master: they have to fit into what that takes. No role has this name."""

BODIES = {READER: 1 << 20, WRITER: 16 << 20, EXECUTOR: 16 << 20}
_LOOK_S = 1.0
_NAME_MOST = 255
_ACCEPTED = frozenset({JSON, "application/*", "*/*", "application/recordio"})
_log = logging.getLogger(__name__)


class Principal(NamedTuple):
    """A role, and the user name of ``Basic``, which a framework's principal must equal; None when none was given."""

    role: str
    name: str | None = None

    def check(self, needed: str) -> None:
        """Raises `HTTPError` (403) when the role is too small."""
        if self.role not in (needed, ANYONE) and (self.role, needed) != (WRITER, READER):
            raise HTTPError(403, f"this takes the secret of {needed}, and {self.role}'s was given")


class TokenAccess:
    """Authentication: finds the role whose token a request has.

    Who has the right token always comes in, since on a shared machine others may fail from the same address. Who has
    not is refused, and after some failures is only answered to wait. Tokens are read again when their files change.
    Unless `required`, every client is let in.
    """

    def __init__(
        self, directory: PoolDirectory, *, required: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory, self._required, self._clock = directory, required, clock
        self._failures = FailedAttempts(clock)
        self._looked: float | None = None
        self._stamps: tuple[tuple[int, ...], ...] = ()
        self._tokens: dict[str, bytes] = {}

    def authenticate(self, headers: Mapping[str, str], peer: str | None) -> Principal:
        """The role and name of who sends these headers from the address `peer`.

        Raises `HTTPError`: 401 when no token, or none of ours, is given; 429 when that has happened too often; 503 when
        the tokens cannot be read.
        """
        if not self._required:
            return Principal(ANYONE)
        name, token = credentials(headers.get("Authorization", ""))
        role = self._role_of(token) if token else None
        if role is not None:
            return Principal(role, name)
        if self._failures.too_many(peer or ""):
            raise HTTPError(429, "too many requests without a valid token: wait a second")
        raise HTTPError(401, "expected the token of this pool: as a Bearer token, or as the password of Basic")

    def _role_of(self, token: bytes) -> str | None:
        self._refresh()
        found = None
        for role, secret in self._tokens.items():  # all of them: the time it takes reveals nothing
            if hmac.compare_digest(secret, token):
                found = role
        return found

    def _refresh(self) -> None:
        now = self._clock()
        if self._looked is not None and now < self._looked + _LOOK_S:
            return
        try:
            stamps = tuple(_stamp(self._directory, role) for role in ROLES)
            if stamps != self._stamps:
                self._tokens = {role: self._directory.token(role).encode() for role in ROLES}
                self._stamps = stamps
        except (OSError, StateError):
            self._tokens, self._stamps = {}, ()
            raise HTTPError(503, "the tokens of this pool cannot be read") from None
        self._looked = now


def credentials(header: str) -> tuple[str | None, bytes]:
    """User name and token in the value of an ``Authorization`` header; no token when it is none that is known.

    >>> credentials("Bearer abc"), credentials("Basic bWU6YWJj"), credentials("Digest abc")
    ((None, b'abc'), ('me', b'abc'), (None, b''))
    """
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() == "bearer":
        return None, rest.strip().encode(errors="surrogateescape")
    if scheme.lower() != "basic":
        return None, b""
    try:
        name, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        return (name.decode()[:_NAME_MOST] or None, password) if colon else (None, b"")
    except (binascii.Error, ValueError):
        return None, b""


def _stamp(directory: PoolDirectory, role: str) -> tuple[int, ...]:
    found = directory.token_file(role).lstat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def body_limit(role: str) -> int:
    """Longest body that is taken from a role [bytes]."""
    return BODIES.get(role, LARGEST)


def host_names(hosts: Collection[str]) -> frozenset[str]:
    """What a ``Host`` header may name: `hosts`, the names in certificates, and ``localhost``."""
    return known_names((*hosts, MASTER_NAME, AGENT_NAME))


def accepts_json(request: Request) -> None:
    """Raises `HTTPError` (406) when the client does not understand JSON."""
    header = request.headers.get("Accept", "*/*")
    if not any(part.partition(";")[0].strip().lower() in _ACCEPTED for part in header.split(",")):
        raise HTTPError(406, f"expected Accept to allow {JSON}: it is all that is spoken here")


def check_content(request: Request) -> None:
    """Raises `HTTPError` (400 or 415) when a call is not sent as plain JSON."""
    content = request.headers.get("Content-Type")
    if content is None:
        raise HTTPError(400, "Expecting 'Content-Type' to be present")
    if content != JSON and content.partition(";")[0].strip().lower() != JSON:
        raise HTTPError(415, f"expected Content-Type {JSON}: JSON is all that is spoken here")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise HTTPError(415, "expected a body that is not compressed")


def call_of(request: Request) -> tuple[Message, str]:
    """The call in a request, and its type; raises `BadMessage` when it is none."""
    call = decode(request.body)
    kind = field(call, "type", str)
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s calls %.80r at %.80r", request.connection.peer, kind, request.path)
    return call, kind


def in_json(found: Any) -> Response:
    """An answer that has something to say."""
    return Response(200, encode(found), JSON)
