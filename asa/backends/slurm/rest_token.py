"""Where the JSON web token comes from that slurmrestd wants, and when it is time for another."""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from asa.backends.command import run
from asa.core.errors import AsaError, BackendError, InvalidInput
from asa.security.files import check_private

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
        A file that only its owner can read; it is read again whenever a token is not accepted or near its end.
    environment
        Environment of the caller.
    timeout_s
        How long scontrol may take [s].
    now
        The time [s since the epoch].

    Raises
    ------
    AsaError
        When the file is missing, open to others or holds no token.
    """

    def __init__(
        self, user: str, file: Path | None, environment: Mapping[str, str], timeout_s: float, now: Callable[[], float]
    ) -> None:
        self.user, self._file, self._timeout_s, self._now = user, file, timeout_s, now
        self._variable = environment.get(_VARIABLE)
        # With the variable, scontrol would show the old token instead of munge's credential.
        self._environment = {name: value for name, value in environment.items() if name != _VARIABLE}
        self._token: str | None = None if file is None else _read(file)

    def current(self) -> str:
        """A token, a new one if the last is near its end.

        Raises
        ------
        BackendError
            When there is none to be had.
        """
        if self._token is None:
            self._token = _parse(self._variable, f"${_VARIABLE}") if self._variable else self._another()
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

    def _another(self) -> str:
        if self._file is not None:
            return _read(self._file)
        other = [] if self.user == own_name() else [f"username={self.user}"]
        argv = ["scontrol", "token", f"lifespan={LIFESPAN_S}", *other]
        try:
            printed = run(argv, timeout_s=self._timeout_s, environment=self._environment).stdout
        except BackendError as error:
            raise BackendError(
                f"slurmrestd wants a token for user {self.user}: name a file that has one (mode 0600) with "
                f"rest_token=FILE, or set {_VARIABLE}. Asked for one, Slurm said: {error}"
            ) from error
        return _parse(printed, "scontrol token")


def own_name() -> str:
    """The caller's name on this machine."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def expiry(token: str) -> float | None:
    """When a token ends [s since the epoch], by its own account; None if it does not tell.

    >>> expiry("eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3MDAwMDAwMDB9.c2lnbmF0dXJl")
    1700000000.0
    """
    claims = token.split(".")[1]
    try:
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, KeyError, TypeError):
        return None


def _read(file: Path) -> str:
    path = check_private(file)
    try:
        return _parse(path.read_text(errors="replace"), str(file))
    except OSError as error:
        raise InvalidInput(
            f"rest_token={str(file)!r} cannot be read: {error.strerror}. Give a file with what `scontrol token` prints"
        ) from error


def _parse(text: str, source: str) -> str:
    match = _TOKEN.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"{source} holds no token: expected what `scontrol token` prints, 'SLURM_JWT=...'")
    return match[1]
