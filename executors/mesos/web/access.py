"""Who may come in, and what for: tokens, and the roles that they stand for."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from asa.core.errors import StateError
from executors.mesos.effects import Refused
from executors.mesos.pool_directory import READER, ROLES, WRITER, PoolDirectory
from executors.mesos.web.limits import Failures

ANYONE = "anyone"
"""The role of all who come where no authentication is asked for: everything."""

_LOOK_S = 1.0
_NAME_MOST = 255


class Principal(NamedTuple):
    """Who has come.

    Parameters
    ----------
    role
        One of `pool_directory.ROLES`, or `ANYONE`.
    name
        The user name of ``Basic``, which a framework's principal must equal; None when none was given.
    """

    role: str
    name: str | None = None

    def check(self, needed: str) -> None:
        """Raises `Refused` (403) when the role is too small."""
        if self.role not in (needed, ANYONE) and (self.role, needed) != (WRITER, READER):
            raise Refused(403, f"this takes the secret of {needed}, and {self.role}'s was given")


class Access:
    """The door: tells roles by their tokens.

    Who has the right token always comes in, since on a shared machine others may fail from the same address. Who has
    not is refused, and after some failures is no longer told more than to wait.

    Parameters
    ----------
    directory
        Where the tokens are; they are read again when their files change.
    required
        False lets everybody in, whatever they say.
    clock
        Seconds that never go backwards [s].
    """

    def __init__(
        self, directory: PoolDirectory, *, required: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory, self._required, self._clock = directory, required, clock
        self._failures = Failures(clock)
        self._looked: float | None = None
        self._stamps: tuple[tuple[int, ...], ...] = ()
        self._tokens: dict[str, bytes] = {}

    def authenticate(self, headers: Mapping[str, str], peer: str | None) -> Principal:
        """Who it is that sends these headers from the address `peer`.

        Raises
        ------
        Refused
            401 when no token, or none of ours, is given; 429 when that has happened too often; 503 when the tokens
            cannot be read.
        """
        if not self._required:
            return Principal(ANYONE)
        name, token = credentials(headers.get("Authorization", ""))
        role = self._role_of(token) if token else None
        if role is not None:
            return Principal(role, name)
        if self._failures.too_many(peer or ""):
            raise Refused(429, "too many requests without a valid token: wait a second")
        raise Refused(401, "expected the token of this pool: as a Bearer token, or as the password of Basic")

    def _role_of(self, token: bytes) -> str | None:
        self._refresh()
        found = None
        for role, secret in self._tokens.items():  # all of them: the time it takes tells nothing
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
            raise Refused(503, "the tokens of this pool cannot be read") from None
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
